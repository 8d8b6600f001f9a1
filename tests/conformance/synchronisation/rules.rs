//! Which epochs go together, what they cover, and what is refused: with guards and without.

use super::{EXCLUSIVE, SHARED, add_one, next, none, previous, refused, until};
use crate::Written;
use hither::rma::Info;
use hither::{Assertions, Epoch, Error, Job, Op, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("epochs_cover_their_targets_only", scopes),
    ("epochs_that_exclude_each_other", excluded),
    ("epochs_that_go_together", together),
    ("nested_locks_are_refused", nested),
    ("no_locks_forbids_locks", no_locks),
    ("unguarded_epochs_of_all_kinds", unguarded),
    ("unguarded_misuse_changes_nothing", misuse_matrix),
];

fn scopes(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let (one, other) = (next(job), Rank((job.rank().0 + 2) % job.size()));
    let outside = |epoch: &Epoch<'_, u64>| {
        if one != other {
            refused(epoch.put(other, 0, &[1]));
            refused(epoch.get(other, 0, &mut [0]));
            refused(epoch.accumulate(other, 0, Op::Sum, &[1]));
            refused(epoch.get_accumulate(other, 0, Op::Sum, &[1], &mut [0]));
            refused(epoch.fetch_and_op(other, 0, Op::Sum, 1));
            refused(epoch.compare_and_swap(other, 0, 0, 1));
            refused(epoch.put_request(other, 0, &[1]));
            refused(epoch.get_request(other, 0, 1));
        }
        assert!(epoch.put(Rank(job.size()), 0, &[1]).is_err());
        epoch.accumulate(one, 1, Op::Sum, &[1])
    };
    for kind in [SHARED, EXCLUSIVE] {
        let epoch = window.lock(one, kind)?;
        outside(&epoch)?;
        epoch.unlock()?;
    }
    let exposure = window.post(&[previous(job)])?;
    let access = window.start(&[one])?;
    outside(&access)?;
    access.complete()?;
    exposure.wait()?;
    let loose = window.unguarded();
    loose.lock(one, SHARED, none())?;
    let epoch = loose.epoch(one)?;
    outside(&epoch)?;
    if one != other {
        refused(loose.epoch(other));
    }
    loose.unlock(one)?;
    refused(epoch.put(one, 0, &[1]));
    job.team().barrier()?;
    let mut mine = [0; 2];
    window.local().read(0, &mut mine)?;
    assert_eq!(mine, [0, 4]);
    job.team().barrier()
}

/// What every epoch but `allowed` says when it is opened now.
fn refuses_all_but(window: &Window<u64>, allowed: &[&str]) {
    let me = window.team().rank();
    let check = |name: &str, result: Result<()>| {
        if !allowed.contains(&name) {
            refused(result);
        }
    };
    if !allowed.contains(&"lock") {
        check("lock", window.lock(me, SHARED).map(drop));
        check("lock", window.lock(me, EXCLUSIVE).map(drop));
        let asserted = Assertions { no_check: true, ..none() };
        check("lock", window.lock_with(me, EXCLUSIVE, asserted).map(drop));
    }
    if !allowed.contains(&"lock_all") {
        check("lock_all", window.lock_all().map(drop));
        let asserted = Assertions { no_check: true, ..none() };
        check("lock_all", window.lock_all_with(asserted).map(drop));
    }
    if !allowed.contains(&"start") {
        check("start", window.start(&[]).map(drop));
    }
    if !allowed.contains(&"post") {
        check("post", window.post(&[]).map(drop));
    }
    if !allowed.contains(&"fence") {
        check("fence", window.fence().map(drop));
    }
}

fn excluded(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let me = job.rank();
    for _ in 0..3 {
        let epoch = window.fence()?;
        refuses_all_but(&window, &[]);
        epoch.put(next(job), 0, &[1])?;
        epoch.end()?;
        let epoch = window.lock_all()?;
        refuses_all_but(&window, &[]);
        epoch.put(next(job), 0, &[1])?;
        epoch.unlock_all()?;
        let epoch = window.lock(me, EXCLUSIVE)?;
        refuses_all_but(&window, &[]);
        epoch.put(me, 0, &[1])?;
        epoch.unlock()?;
        let epoch = window.lock_with(me, SHARED, Assertions { no_check: true, ..none() })?;
        refuses_all_but(&window, &[]);
        epoch.unlock()?;
        let epoch = window.start(&[])?;
        refuses_all_but(&window, &["post"]);
        epoch.complete()?;
        let exposure = window.post(&[])?;
        refuses_all_but(&window, &["start"]);
        exposure.wait()?;
    }
    job.team().barrier()
}

fn together(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let other = next(job);
    // Access and exposure.
    let access = window.start(&[])?;
    let exposure = window.post(&[])?;
    exposure.wait()?;
    access.complete()?;
    if other != job.rank() {
        // A lock of another part while the own one is exposed to nobody.
        let exposure = window.post(&[])?;
        let epoch = window.lock(other, SHARED)?;
        refused(window.lock(job.rank(), SHARED));
        exposure.wait()?;
        let exposure = window.post(&[])?;
        epoch.unlock()?;
        exposure.wait()?;
        // Locks of several parts.
        let (one, two) = (window.lock(other, SHARED)?, window.lock(job.rank(), SHARED)?);
        refused(window.post(&[]));
        one.unlock()?;
        two.unlock()?;
    }
    // Two windows have nothing to do with each other.
    let second = Window::<u64>::allocate(job.team(), 1)?;
    let (one, two) = (window.lock_all()?, second.fence()?);
    one.unlock_all()?;
    two.end()
}

fn nested(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let target = next(job);
    for kind in [SHARED, EXCLUSIVE] {
        let epoch = window.lock(target, kind)?;
        refused(window.lock(target, SHARED));
        refused(window.lock(target, EXCLUSIVE));
        refused(window.unguarded().lock(target, kind, none()));
        refused(window.lock_with(target, kind, Assertions { no_check: true, ..none() }));
        add_one(&epoch, target, 0)?;
        epoch.unlock()?;
        // Each part is locked by one rank, but others look through here too.
        window.lock(target, kind)?.unlock()?;
    }
    job.team().barrier()
}

fn no_locks(job: &Job) -> Result<()> {
    let info = Info { no_locks: true, ..Info::default() };
    let window = Window::<u64>::builder(job.team()).info(info).allocate(1)?;
    refused(window.lock(next(job), SHARED));
    refused(window.lock_all());
    refused(window.unguarded().lock(next(job), EXCLUSIVE, none()));
    refused(window.unguarded().lock_all(none()));
    let epoch = window.fence()?;
    epoch.put(next(job), 0, &[3])?;
    epoch.end()?;
    assert_eq!(window.local().get(0)?, 3);
    job.team().barrier()
}

fn unguarded(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let loose = window.unguarded();
    let (target, origin) = (next(job), previous(job));
    let end = Assertions { no_succeed: true, ..none() };
    for round in 1..20u64 {
        loose.fence(none())?;
        loose.epoch(target)?.put(target, 0, &[round])?;
        loose.fence(none())?;
        assert_eq!(window.local().get(0)?, round);
        // Nothing happens in what this fence opens, so that other epochs may follow as well.
        loose.post(&[origin], none())?;
        loose.start(&[target], none())?;
        loose.epoch(target)?.put(target, 0, &[round + 1])?;
        loose.complete()?;
        loose.wait()?;
        assert_eq!(window.local().get(0)?, round + 1);
        job.team().barrier()?;
        loose.lock(target, EXCLUSIVE, none())?;
        assert_eq!(loose.recovered_from(target)?, None);
        let epoch = loose.epoch(target)?;
        assert!(epoch.is_exclusive());
        add_one(&epoch, target, 0)?;
        loose.flush(target)?;
        loose.flush_local(target)?;
        loose.flush_all()?;
        loose.flush_local_all()?;
        loose.sync();
        add_one(&epoch, target, 0)?;
        loose.unlock(target)?;
        job.team().barrier()?;
        assert_eq!(window.local().get(0)?, round + 3);
        job.team().barrier()?;
        let asserted = Assertions { no_check: true, ..none() };
        loose.lock(target, SHARED, asserted)?;
        loose.epoch(target)?.accumulate(target, 0, Op::Sum, &[1])?;
        loose.unlock(target)?;
        loose.lock_all(none())?;
        let epoch = loose.epoch(target)?;
        epoch.accumulate(target, 0, Op::Sum, &[1])?;
        loose.flush_all()?;
        loose.unlock_all()?;
        loose.fence(end)?;
        assert_eq!(window.local().get(0)?, round + 5);
        loose.post(&[origin], none())?;
        loose.start(&[target], none())?;
        loose.complete()?;
        until("the origin completes", || loose.test())?;
        job.team().barrier()?;
    }
    Ok(())
}

/// In each state every call that is illegal there: refused, and the state is as before, which the
/// legal calls at the end of each show.
fn misuse_matrix(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let loose = window.unguarded();
    let (me, target) = (job.rank(), next(job));
    let asserted = Assertions { no_check: true, ..none() };
    let closers: &[(&str, &dyn Fn() -> Result<()>)] = &[
        ("complete", &|| loose.complete()),
        ("wait", &|| loose.wait()),
        ("test", &|| loose.test().map(drop)),
        ("unlock", &|| loose.unlock(me)),
        ("unlock_all", &|| loose.unlock_all()),
        ("flush", &|| loose.flush(me)),
        ("flush", &|| loose.flush_local(me)),
        ("flush_all", &|| loose.flush_all()),
        ("flush_all", &|| loose.flush_local_all()),
        ("epoch", &|| loose.epoch(me).map(drop)),
    ];
    let openers: &[(&str, &dyn Fn() -> Result<()>)] = &[
        ("fence", &|| loose.fence(none())),
        ("start", &|| loose.start(&[], none())),
        ("post", &|| loose.post(&[], none())),
        ("lock", &|| loose.lock(me, SHARED, none())),
        ("lock", &|| loose.lock(me, EXCLUSIVE, none())),
        ("lock", &|| loose.lock(me, EXCLUSIVE, asserted)),
        ("lock_all", &|| loose.lock_all(none())),
        ("lock_all", &|| loose.lock_all(asserted)),
    ];
    let all_but = |legal: &[&str]| {
        for (name, call) in closers.iter().chain(openers) {
            if !legal.contains(name) {
                let result = call();
                assert!(matches!(result, Err(Error::Misuse { .. })), "{name}: {result:?}");
            }
        }
        refuses_all_but(&window, legal);
    };
    let any = ["fence", "start", "post", "lock", "lock_all"];
    all_but(&any);
    // Locked.
    for kind in [SHARED, EXCLUSIVE] {
        loose.lock(me, kind, none())?;
        all_but(&["unlock", "flush", "flush_all", "epoch"]);
        loose.unlock(me)?;
        all_but(&any);
    }
    loose.lock(me, EXCLUSIVE, asserted)?;
    all_but(&["unlock", "flush", "flush_all", "epoch"]);
    loose.unlock(me)?;
    // All locked.
    loose.lock_all(none())?;
    all_but(&["unlock_all", "flush", "flush_all", "epoch"]);
    loose.unlock_all()?;
    all_but(&any);
    // Started, for nobody.
    loose.start(&[], none())?;
    all_but(&["complete", "post"]);
    loose.complete()?;
    // Exposed, to nobody.
    loose.post(&[], none())?;
    all_but(&["wait", "test", "start"]);
    loose.start(&[], none())?;
    all_but(&["wait", "test", "complete"]);
    loose.complete()?;
    loose.wait()?;
    all_but(&any);
    // A fence, and what it opens once it is used.
    loose.fence(none())?;
    all_but(&["epoch", "fence", "start", "post", "lock", "lock_all"]);
    loose.epoch(target)?.put(target, 0, &[1])?;
    all_but(&["epoch", "fence"]);
    loose.fence(none())?;
    assert_eq!(window.local().get(0)?, 1);
    loose.fence(Assertions { no_succeed: true, ..none() })?;
    all_but(&any);
    // What a guard opened, it closes.
    let guard = window.lock_all()?;
    all_but(&["flush", "flush_all", "epoch"]);
    guard.unlock_all()?;
    let guard = window.fence()?;
    all_but(&["epoch"]);
    guard.end()?;
    let (access, exposure) = (window.start(&[])?, window.post(&[])?);
    all_but(&[]);
    access.complete()?;
    exposure.wait()?;
    all_but(&any);
    job.team().barrier()
}
