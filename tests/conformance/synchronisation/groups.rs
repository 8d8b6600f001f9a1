//! Fences, and the synchronisation of groups by start and post.

use super::{EXCLUSIVE, SHARED, add_one, next, none, previous, refused, until, word};
use crate::Written;
use crate::kinds::direct;
use hither::{Assertions, Error, Job, Op, Rank, Result, Window};
use std::time::Duration;

pub const CASES: &[Written] = &[
    ("dropped_guards_close_their_epochs", dropped_guards),
    ("fence_assertions", fence_assertions),
    ("start_post_in_a_ring", ring),
    ("start_post_in_pairs", pairs),
    ("start_post_one_and_all", one_and_all),
    ("start_post_empty_groups", empty_groups),
    ("start_post_polled_by_test", polled),
    ("start_post_without_check", unchecked),
    ("start_post_groups_are_validated", bad_groups),
    ("exposure_goes_on_after_a_deadline", exposure_deadline),
    ("start_post_given_up_at_a_deadline", given_up),
    ("start_post_with_a_member_that_is_gone", gone),
    ("start_post_given_up_many_times", given_up_often),
];

fn fence_assertions(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let first = Assertions { no_precede: true, no_store: true, ..none() };
    let reading = Assertions { no_put: true, no_store: true, ..none() };
    let last = Assertions { no_succeed: true, no_put: true, ..none() };
    for round in 1..30u64 {
        let mut epoch = window.fence_with(first)?;
        epoch.put(next(job), 0, &[round])?;
        epoch.next_with(reading)?;
        assert_eq!(epoch.assertions(), reading);
        let mut far = [0];
        epoch.get(previous(job), 0, &mut far)?;
        assert_eq!((far[0], window.local().get(0)?), (round, round));
        epoch.next_with(last)?;
        refused(epoch.put(next(job), 0, &[0]));
        refused(epoch.next());
        drop(epoch);
        // It is still a barrier.
        window.local().set(0, round + 1000)?;
        let ended = window.fence_with(Assertions { no_precede: true, ..last })?;
        refused(ended.get(next(job), 0, &mut far));
        refused(ended.end());
        let epoch = window.lock_all()?;
        assert_eq!(word(&epoch, next(job), 0)?, round + 1000);
        epoch.unlock_all()?;
        job.team().barrier()?;
    }
    Ok(())
}

fn ring(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    for round in 1..100u64 {
        let exposure = window.post(&[previous(job)])?;
        let access = window.start(&[next(job)])?;
        access.put(next(job), 0, &[round, round * 2])?;
        access.complete()?;
        exposure.wait()?;
        let mut mine = [0; 2];
        window.local().read(0, &mut mine)?;
        assert_eq!(mine, [round, round * 2]);
    }
    job.team().barrier()
}

/// Each rank with the one whose number differs in the last bit, in one direction at a time.
fn pairs(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let partner = Rank(job.rank().0 ^ 1);
    if partner.0 < job.size() {
        for round in 1..60u64 {
            for first in [0, 1] {
                if job.rank().0 % 2 == first {
                    let access = window.start(&[partner])?;
                    access.accumulate(partner, 0, Op::Sum, &[round])?;
                    access.complete()?;
                } else {
                    let before = window.local().get(0)?;
                    window.post(&[partner])?.wait()?;
                    assert_eq!(window.local().get(0)?, before + round);
                }
            }
        }
    }
    job.team().barrier()
}

fn one_and_all(job: &Job) -> Result<()> {
    let size = job.size() as usize;
    let window = Window::<u64>::allocate(job.team(), size)?;
    // In an order of each one's own: groups are sets.
    let mut everybody: Vec<Rank> = job.team().ranks().collect();
    everybody.rotate_left(job.rank().index());
    for round in 1..20u64 {
        // All to all, oneself among them.
        let exposure = window.post(&everybody)?;
        let access = window.start(&everybody)?;
        for &target in &everybody {
            access.put(target, job.rank().index(), &[round * 100 + u64::from(job.rank().0)])?;
        }
        access.complete()?;
        exposure.wait()?;
        for rank in 0..size {
            assert_eq!(window.local().get(rank)?, round * 100 + rank as u64);
        }
        // All to one.
        let root = Rank((round % u64::from(job.size())) as u32);
        let exposure = (job.rank() == root).then(|| window.post(&everybody)).transpose()?;
        let access = window.start(&[root])?;
        access.put(root, job.rank().index(), &[round])?;
        access.complete()?;
        if let Some(exposure) = exposure {
            exposure.wait()?;
            for rank in 0..size {
                assert_eq!(window.local().get(rank)?, round);
            }
        }
        job.team().barrier()?;
    }
    Ok(())
}

fn empty_groups(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for _ in 0..20 {
        let mut exposure = window.post(&[])?;
        let access = window.start(&[])?;
        refused(access.put(next(job), 0, &[1]));
        access.complete()?;
        assert!(exposure.test()?);
        window.post(&[])?.wait()?;
    }
    assert_eq!(window.local().get(0)?, 0);
    job.team().barrier()
}

fn polled(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for round in 1..40u64 {
        let mut exposure = window.post(&[previous(job)])?;
        // Nobody starts before this barrier.
        assert!(!exposure.test()?);
        job.team().barrier()?;
        let access = window.start(&[next(job)])?;
        access.put(next(job), 0, &[round])?;
        access.complete()?;
        until("the origin completes", || exposure.test())?;
        assert!(exposure.test()?, "it stays over");
        assert_eq!(window.local().get(0)?, round);
        exposure.wait()?;
        job.team().barrier()?;
    }
    Ok(())
}

fn unchecked(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let asserted = Assertions { no_check: true, ..none() };
    for round in 1..30u64 {
        let exposure = window.post_with(&[previous(job)], asserted)?;
        job.team().barrier()?;
        let access = window.start_with(&[next(job)], asserted)?;
        access.put(next(job), 0, &[round])?;
        access.complete()?;
        exposure.wait()?;
        assert_eq!(window.local().get(0)?, round);
        // As if it had not been.
        let exposure = window.post(&[previous(job)])?;
        window.start(&[next(job)])?.complete()?;
        exposure.wait()?;
        // Locks that nobody wants at the same time: each rank its own target.
        let epoch = window.lock_with(next(job), EXCLUSIVE, asserted)?;
        add_one(&epoch, next(job), 0)?;
        epoch.unlock()?;
        job.team().barrier()?;
        assert_eq!(window.local().get(0)?, round + 1);
        let epoch = window.lock_all_with(asserted)?;
        assert_eq!(word(&epoch, next(job), 0)?, round + 1);
        epoch.unlock_all()?;
        job.team().barrier()?;
    }
    Ok(())
}

fn bad_groups(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let invalid = |error: Option<Error>| {
        assert!(matches!(error, Some(Error::InvalidArgument { .. })), "{error:?}");
    };
    for group in [vec![Rank(job.size())], vec![Rank(0), Rank(0)], vec![Rank(u32::MAX), Rank(0)]] {
        invalid(window.start(&group).err());
        invalid(window.post(&group).err());
        invalid(window.unguarded().start(&group, none()).err());
        invalid(window.unguarded().post(&group, none()).err());
    }
    for target in [Rank(job.size()), Rank(u32::MAX)] {
        invalid(window.lock(target, SHARED).err());
        invalid(window.unguarded().lock(target, EXCLUSIVE, none()).err());
        invalid(window.unguarded().unlock(target).err());
        invalid(window.unguarded().epoch(target).err());
    }
    // Nothing is open.
    window.fence()?.end()
}

/// A deadline that the making of a window meets, too.
const HASTE: Duration = Duration::from_millis(300);

fn exposure_deadline(job: &Job) -> Result<()> {
    let hasty = job.team().with_deadline(HASTE);
    let window = Window::<u64>::allocate(&hasty, 1)?;
    let mut late = window.post(&[previous(job)])?.wait();
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    refused(window.post(&[previous(job)]));
    let loose = window.unguarded();
    assert!(!loose.test()?);
    job.team().barrier()?;
    put_in_time(&window, &[next(job)], 7)?;
    until("the origin completes", || {
        late = loose.wait();
        Ok(!matches!(late, Err(Error::TimedOut { .. })))
    })?;
    late?;
    assert_eq!(window.local().get(0)?, 7);
    refused(loose.wait());
    job.team().barrier()?;
    // A start that was given up leaves nothing behind, and keeps posts that come.
    let early = put_to(&window, &[next(job)], 8);
    match &early {
        Err(Error::TimedOut { missing, .. }) => assert_eq!(missing[..], [next(job)]),
        _ => panic!("{early:?}"),
    }
    job.team().barrier()?;
    drop(window.post(&[previous(job)])?);
    assert!(!loose.test()?, "the guard gave up waiting, and left it open");
    job.team().barrier()?;
    put_in_time(&window, &[next(job)], 9)?;
    until("the origin completes", || match loose.wait() {
        Err(Error::TimedOut { .. }) => Ok(false),
        other => other.map(|()| true),
    })?;
    assert_eq!(window.local().get(0)?, 9);
    job.team().barrier()
}

/// One access epoch.
fn put_to(window: &Window<u64>, targets: &[Rank], value: u64) -> Result<()> {
    let access = window.start(targets)?;
    for &target in targets {
        access.put(target, 0, &[value])?;
    }
    access.complete()
}

/// Access epochs until all targets, which have posted, have had theirs. By packets an epoch can
/// miss its deadline because posts are on their way; those that have come end by themselves.
fn put_in_time(window: &Window<u64>, targets: &[Rank], value: u64) -> Result<()> {
    let mut left = targets.to_vec();
    while !left.is_empty() {
        left = match put_to(window, &left, value) {
            Err(Error::TimedOut { missing, .. }) => missing,
            other => return other,
        };
    }
    Ok(())
}

/// An origin runs out of time because one of its targets is late. The other one, which had posted, is
/// told: it gets all or an error. The late one is not: it gets what the origin does next.
fn given_up(job: &Job) -> Result<()> {
    let hasty = job.team().with_deadline(HASTE);
    let quick = Window::<u64>::allocate(&hasty, 1)?;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let (origin, early, late) = (Rank(0), Rank(1), Rank(2));
    for round in 1..3u64 {
        if job.size() < 3 {
            break;
        }
        let loose = quick.unguarded();
        if job.rank() == early {
            loose.post(&[origin], none())?;
        }
        job.team().barrier()?;
        if job.rank() == origin {
            let done = put_to(&quick, &[early, late], round);
            match &done {
                Err(Error::TimedOut { missing, .. }) => assert_eq!(missing[..], [late]),
                _ => panic!("{done:?}"),
            }
        }
        if job.rank() == early {
            // It ends, without another call of the origin.
            let mut over = Ok(false);
            until("the origin gives up", || {
                over = loose.test();
                Ok(!matches!(over, Ok(false)))
            })?;
            match over {
                Ok(_) => assert_eq!(quick.local().get(0)?, round),
                Err(Error::PeerFailed { rank, .. }) => {
                    assert_eq!((rank, quick.local().get(0)?), (origin, (round - 1) * 1000));
                }
                Err(error) => return Err(error),
            }
            refused(loose.wait());
        }
        job.team().barrier()?;
        // The late one posts; the origin tries again; the early one has to post again.
        if [early, late].contains(&job.rank()) {
            loose.post(&[origin], none())?;
        }
        job.team().barrier()?;
        if job.rank() == origin {
            put_in_time(&quick, &[early, late], round * 1000)?;
        }
        if [early, late].contains(&job.rank()) {
            until("the origin completes", || match loose.wait() {
                Err(Error::TimedOut { .. }) => Ok(false),
                other => other.map(|()| true),
            })?;
            assert_eq!(quick.local().get(0)?, round * 1000);
        }
        // Other windows do not mind.
        let exposure = window.post(&[previous(job)])?;
        put_to(&window, &[next(job)], round)?;
        exposure.wait()?;
        assert_eq!(window.local().get(0)?, round);
        job.team().barrier()?;
    }
    Ok(())
}

/// An origin whose starts fail one after the other, far ahead of a target: that learns of each.
fn given_up_often(job: &Job) -> Result<()> {
    const TIMES: u64 = 100;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let failed = Window::<u64>::allocate(job.team(), 1)?;
    let (origin, late, gone) = (Rank(0), Rank(1), Rank(2));
    if job.size() < 3 || job.rank() == gone {
        drop(window);
    } else if job.rank() == origin {
        let epoch = failed.lock_all()?;
        for time in 1..=TIMES {
            let done = window.start(&[late, gone]).and_then(|access| access.complete());
            let told = matches!(done, Err(Error::Misuse { .. } | Error::RankLeft { .. }));
            assert!(told, "{time}: {done:?}");
            epoch.put(late, 0, &[time])?;
            epoch.flush(late)?;
        }
        epoch.unlock_all()?;
        put_to(&window, &[late], 5)?;
    } else if job.rank() == late {
        // As many as it may be ahead, and a bit more time for it.
        // Read by calls of the window's, so that the origin's packets come in where only calls take them.
        let epoch = failed.lock_all()?;
        until("the origin fails", || Ok(word(&epoch, late, 0)? >= 32))?;
        epoch.unlock_all()?;
        std::thread::sleep(Duration::from_millis(50));
        for time in 1..=TIMES {
            let over = window.post(&[origin])?.wait();
            // By packets all is done for a target whose post the origin had before it failed.
            assert!(over.is_err() || !direct(&window), "{time}");
            assert_eq!(window.local().get(0)?, 0);
        }
        window.post(&[origin])?.wait()?;
        assert_eq!(window.local().get(0)?, 5);
    }
    job.team().barrier()
}

/// A member that has dropped the window will neither post nor start.
fn gone(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let keeps = Rank(0);
    if job.rank() != keeps || job.size() < 2 {
        return Ok(());
    }
    let told = |result: Result<()>| {
        let left = matches!(result, Err(Error::Misuse { .. } | Error::RankLeft { .. }));
        assert!(left, "{result:?}");
    };
    told(window.start(&[next(job)]).and_then(|access| access.complete()));
    told(window.post(&[next(job)])?.wait());
    let mut exposure = window.post(&[next(job)])?;
    let mut over = Ok(false);
    until("the member is gone", || {
        over = exposure.test();
        Ok(!matches!(over, Ok(false)))
    })?;
    told(over.map(drop));
    // It is closed for good.
    let exposure = window.post(&[keeps])?;
    put_to(&window, &[keeps], 1)?;
    exposure.wait()
}

fn dropped_guards(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for _ in 0..10 {
        for kind in [EXCLUSIVE, SHARED] {
            let epoch = window.lock(next(job), kind)?;
            epoch.accumulate(next(job), 0, Op::Sum, &[1])?;
            drop(epoch);
        }
        window.lock_all()?.accumulate(next(job), 0, Op::Sum, &[1])?;
        let exposure = window.post(&[previous(job)])?;
        window.start(&[next(job)])?.accumulate(next(job), 0, Op::Sum, &[1])?;
        drop(exposure);
        window.fence()?.accumulate(next(job), 0, Op::Sum, &[1])?;
    }
    assert_eq!(window.local().get(0)?, 50);
    job.team().barrier()
}
