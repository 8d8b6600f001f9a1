//! Locks: exclusion, fairness, deadlines, flushes.

use super::{EXCLUSIVE, SHARED, add_one, next, until, word};
use crate::Written;
use hither::{Assertions, Epoch, Error, Job, Op, Rank, Result, Window};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("exclusive_locks_exclude", exclusive_locks),
    ("exclusive_locks_of_several_parts", several_parts),
    ("shared_locks_are_held_together", shared_together),
    ("lock_all_goes_with_shared_locks", all_together),
    ("lock_all_excludes_exclusive_locks", all_excludes),
    ("a_writer_gets_through_a_stream_of_readers", writer_among_readers),
    ("a_reader_gets_through_a_stream_of_writers", reader_among_writers),
    ("lock_all_gets_through_streams_of_writers", all_among_writers),
    ("a_writer_gets_through_lock_alls_that_overlap", writer_among_alls),
    ("locks_end_at_deadlines", lock_deadline),
    ("flushes_of_all_forms", flushes),
    ("threads_share_an_epoch", threads),
    ("threads_unlock_at_the_same_time", threads_unlock),
];

fn exclusive_locks(job: &Job) -> Result<()> {
    const EACH: u64 = 300;
    let window = Window::<u64>::allocate(job.team(), 2)?;
    for round in 0..EACH {
        let target = Rank((round / 3 % u64::from(job.size())) as u32);
        let epoch = window.lock(target, EXCLUSIVE)?;
        assert!(epoch.is_exclusive() && epoch.target() == target && epoch.kind() == EXCLUSIVE);
        add_one(&epoch, target, 0)?;
        add_one(&epoch, target, 1)?;
        epoch.unlock()?;
    }
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let mut counts = [0, 0];
    for rank in job.team().ranks() {
        let mut both = [0, 0];
        epoch.get(rank, 0, &mut both)?;
        counts = [counts[0] + both[0], counts[1] + both[1]];
    }
    assert_eq!(counts, [EACH * u64::from(job.size()); 2]);
    epoch.unlock_all()?;
    // By packets, nobody answers for a part whose owner has dropped the window.
    window.free()
}

/// Every part locked by one rank at a time, in order; what is moved among them stays constant.
fn several_parts(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    window.local().set(0, 1000)?;
    job.team().barrier()?;
    for round in 0..40 {
        let locks: Result<Vec<_>> =
            job.team().ranks().map(|rank| window.lock(rank, EXCLUSIVE)).collect();
        let locks = locks?;
        let mut parts = vec![0; locks.len()];
        for (lock, part) in locks.iter().zip(&mut parts) {
            lock.get(lock.target(), 0, std::slice::from_mut(part))?;
        }
        assert_eq!(parts.iter().sum::<u64>(), 1000 * locks.len() as u64);
        let (from, to) = (round % parts.len(), (round * 3 + 1) % parts.len());
        let amount = parts[from] / 3;
        parts[from] -= amount;
        parts[to] += amount;
        for (lock, part) in locks.iter().zip(&parts) {
            lock.put(lock.target(), 0, &[*part])?;
        }
        locks.into_iter().try_for_each(|lock| lock.unlock())?;
    }
    job.team().barrier()
}

/// Everybody is inside at the same time, which the last to come proves to all.
fn meet_inside(job: &Job, epoch: &Epoch<'_, u64>, round: u64) -> Result<()> {
    let everybody = (round + 1) * u64::from(job.size());
    epoch.fetch_and_op(Rank(0), 0, Op::Sum, 1)?;
    until("all are inside", || Ok(word(epoch, Rank(0), 0)? >= everybody))
}

fn shared_together(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for round in 0..20 {
        let epoch = window.lock(Rank(0), SHARED)?;
        assert!(!epoch.is_exclusive());
        meet_inside(job, &epoch, round)?;
        epoch.unlock()?;
        // Nobody is in the next round while somebody still counts this one.
        job.team().barrier()?;
    }
    Ok(())
}

fn all_together(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    for round in 0..20 {
        if (u64::from(job.rank().0) + round) % 2 == 0 {
            let epoch = window.lock_all()?;
            meet_inside(job, &epoch, round)?;
            epoch.unlock_all()?;
        } else {
            let epoch = window.lock(Rank(0), SHARED)?;
            meet_inside(job, &epoch, round)?;
            epoch.unlock()?;
        }
        job.team().barrier()?;
    }
    Ok(())
}

/// Two words that every exclusive holder leaves equal: never seen unequal under lock_all.
fn all_excludes(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    for round in 0..150u64 {
        let target = Rank(((round + u64::from(job.rank().0)) % u64::from(job.size())) as u32);
        if (round + u64::from(job.rank().0)) % 3 == 0 {
            let epoch = window.lock_all()?;
            for rank in job.team().ranks() {
                let mut both = [0, 0];
                epoch.get(rank, 0, &mut both)?;
                assert_eq!(both[0], both[1], "seen in the midst of an exclusive lock");
            }
            epoch.unlock_all()?;
        } else {
            let epoch = window.lock(target, EXCLUSIVE)?;
            add_one(&epoch, target, 0)?;
            epoch.flush()?;
            std::hint::spin_loop();
            add_one(&epoch, target, 1)?;
            epoch.unlock()?;
        }
    }
    job.team().barrier()
}

/// Runs `stream` again and again on all ranks but the first, until `one` has run `times` there: it
/// comes to an end only if the stream does not overtake it for ever.
fn through_a_stream(
    job: &Job,
    times: usize,
    one: impl Fn() -> Result<()>,
    stream: impl Fn() -> Result<()>,
) -> Result<()> {
    let flag = Window::<u64>::allocate(job.team(), 1)?;
    let open = flag.lock_all()?;
    if job.rank() == Rank(0) {
        for _ in 0..times {
            one()?;
        }
        open.accumulate(Rank(0), 0, Op::Sum, &[1])?;
        open.flush(Rank(0))?;
    } else {
        until("the end of the stream", || {
            stream()?;
            Ok(word(&open, Rank(0), 0)? != 0)
        })?;
    }
    open.unlock_all()?;
    job.team().barrier()
}

fn writer_among_readers(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let target = Rank(job.size() - 1);
    let writer = || {
        let epoch = window.lock(target, EXCLUSIVE)?;
        add_one(&epoch, target, 0)?;
        epoch.unlock()
    };
    through_a_stream(job, 60, writer, || {
        let epoch = window.lock(target, SHARED)?;
        word(&epoch, target, 0)?;
        epoch.unlock()
    })
}

fn reader_among_writers(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let target = Rank(job.size() - 1);
    let reader = || {
        let epoch = window.lock(target, SHARED)?;
        word(&epoch, target, 0)?;
        epoch.unlock()
    };
    through_a_stream(job, 60, reader, || {
        let epoch = window.lock(target, EXCLUSIVE)?;
        add_one(&epoch, target, 0)?;
        epoch.unlock()
    })
}

fn all_among_writers(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let all = || {
        let epoch = window.lock_all()?;
        word(&epoch, Rank(0), 0)?;
        epoch.unlock_all()
    };
    through_a_stream(job, 25, all, || {
        for target in job.team().ranks() {
            let epoch = window.lock(target, EXCLUSIVE)?;
            add_one(&epoch, target, 0)?;
            epoch.unlock()?;
        }
        Ok(())
    })
}

/// All ranks but the first are in lock-all epochs, each of which lasts until another has begun: so
/// the part is never free by chance. The first wants it exclusively.
fn writer_among_alls(job: &Job) -> Result<()> {
    /// How long an epoch lasts if nobody else comes in: those that wait for the writer do not.
    const ALONE: Duration = Duration::from_millis(25);
    let target = Rank(job.size() - 1);
    // By packets, parts are locked one by one where the process holds no other locks, else all at
    // once.
    for no_check in [true, false] {
        let window = Window::<u64>::allocate(job.team(), 1)?;
        // Of the first rank: whether it has done, and how many epochs have begun.
        let signs = Window::<u64>::allocate(job.team(), 2)?;
        let open = signs.lock_all_with(Assertions { no_check, ..Assertions::default() })?;
        if job.rank() == Rank(0) {
            for _ in 0..8 {
                let epoch = window.lock(target, EXCLUSIVE)?;
                add_one(&epoch, target, 0)?;
                epoch.unlock()?;
            }
            open.accumulate(Rank(0), 0, Op::Sum, &[1])?;
            open.flush(Rank(0))?;
        } else {
            until("the writer has got through", || {
                let epoch = window.lock_all()?;
                word(&epoch, target, 0)?;
                let begun = open.fetch_and_op(Rank(0), 1, Op::Sum, 1)? + 1;
                let came = Instant::now();
                let mut seen = [0, begun];
                while seen == [0, begun] && came.elapsed() < ALONE {
                    open.get(Rank(0), 0, &mut seen)?;
                    std::thread::yield_now();
                }
                epoch.unlock_all()?;
                Ok(seen[0] != 0)
            })?;
        }
        open.unlock_all()?;
        job.team().barrier()?;
        signs.free()?;
        window.free()?;
    }
    Ok(())
}

fn lock_deadline(job: &Job) -> Result<()> {
    let hasty = job.team().with_deadline(crate::brief(200));
    let window = Window::<u64>::allocate(&hasty, 1)?;
    let last = Rank(job.size() - 1);
    let held = (job.rank() == Rank(0)).then(|| window.lock(last, EXCLUSIVE)).transpose()?;
    if let Some(held) = &held {
        // By packets the first operation waits for the grant.
        patient(|| word(held, last, 0))?;
    }
    job.team().barrier()?;
    if job.rank() != Rank(0) {
        for kind in [SHARED, EXCLUSIVE] {
            let outcome = window.lock(last, kind).and_then(|epoch| {
                epoch.put(last, 0, &[9])?;
                epoch.unlock()
            });
            assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
        }
        let outcome = window.lock_all().and_then(|epoch| {
            epoch.put(last, 0, &[9])?;
            epoch.unlock_all()
        });
        assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
    }
    job.team().barrier()?;
    if let Some(held) = held {
        assert_eq!(patient(|| word(&held, last, 0))?, 0, "written without a lock");
        // By packets a slow answer ends the wait, not the unlock.
        given_up(held.unlock())?;
    }
    job.team().barrier()?;
    // Nothing is left of those that gave up.
    let epoch = patient(|| window.lock(last, EXCLUSIVE))?;
    assert_eq!(epoch.recovered_from(), None);
    given_up(epoch.unlock())?;
    job.team().barrier()?;
    let epoch = patient(|| window.lock_all())?;
    patient(|| word(&epoch, last, 0))?;
    given_up(epoch.unlock_all())?;
    patient(|| window.lock_all()).and_then(|epoch| given_up(epoch.unlock_all()))?;
    job.team().barrier()
}

/// Makes a call until it ends in time.
fn patient<R>(mut call: impl FnMut() -> Result<R>) -> Result<R> {
    loop {
        match call() {
            Err(Error::TimedOut { .. }) => {}
            other => return other,
        }
    }
}

/// Takes a deadline that has passed for success.
fn given_up(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::TimedOut { .. }) => Ok(()),
        other => other,
    }
}

fn flushes(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 4)?;
    let target = next(job);
    let epoch = window.lock_all()?;
    epoch.put(target, 0, &[1])?;
    epoch.flush_local(target)?;
    epoch.put(target, 1, &[2])?;
    epoch.flush(target)?;
    epoch.put(target, 2, &[3])?;
    epoch.flush_local_all()?;
    epoch.flush_all()?;
    epoch.sync();
    assert!(epoch.flush(Rank(job.size())).is_err());
    assert!(epoch.flush_local(Rank(u32::MAX)).is_err());
    job.team().barrier()?;
    let mut mine = [0; 4];
    window.local().read(0, &mut mine)?;
    assert_eq!(mine[..3], [1, 2, 3]);
    epoch.unlock_all()?;
    let epoch = window.lock(target, SHARED)?;
    epoch.put(target, 3, &[4])?;
    epoch.flush_local()?;
    epoch.flush()?;
    job.team().barrier()?;
    window.sync();
    assert_eq!(window.local().get(3)?, 4);
    epoch.unlock()?;
    job.team().barrier()
}

fn threads(job: &Job) -> Result<()> {
    const EACH: u64 = 400;
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let target = next(job);
    let epoch = window.lock(target, SHARED)?;
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            for _ in 0..EACH {
                epoch.accumulate(target, 0, Op::Sum, &[1])?;
                epoch.flush()?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().expect("a worker"))
    })?;
    epoch.unlock()?;
    // Threads that want locks of their own get them, or are told that another has it.
    std::thread::scope(|scope| {
        let work = || -> Result<u64> {
            let mut counted = 0;
            for _ in 0..EACH {
                match window.lock(target, EXCLUSIVE) {
                    Ok(epoch) => {
                        add_one(&epoch, target, 1)?;
                        epoch.unlock()?;
                        counted += 1;
                    }
                    Err(Error::Misuse { .. }) => std::thread::yield_now(),
                    Err(error) => return Err(error),
                }
            }
            Ok(counted)
        };
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        let counts: Result<Vec<u64>> =
            workers.into_iter().map(|w| w.join().expect("a worker")).collect();
        let counted: u64 = counts?.iter().sum();
        assert!(counted > 0);
        let epoch = window.lock(target, EXCLUSIVE)?;
        let done = word(&epoch, target, 1)?;
        epoch.unlock()?;
        assert_eq!(done, counted, "each part has one origin here");
        Ok::<_, Error>(())
    })?;
    job.team().barrier()?;
    assert_eq!(window.local().get(0)?, 3 * EACH);
    job.team().barrier()
}

/// Threads that give a lock back at the same moment: one of them does, and the lock is as good as
/// before for all that follows.
fn threads_unlock(job: &Job) -> Result<()> {
    const ROUNDS: u64 = 150;
    const THREADS: usize = 3;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let unguarded = window.unguarded();
    let together = std::sync::Barrier::new(THREADS);
    for target in [next(job), job.rank()] {
        for round in 0..ROUNDS {
            unguarded.lock(target, EXCLUSIVE, Assertions::default())?;
            add_one(&unguarded.epoch(target)?, target, 0)?;
            let unlock = || {
                together.wait();
                match unguarded.unlock(target) {
                    Ok(()) => Ok(1),
                    Err(Error::Misuse { .. }) => Ok(0),
                    Err(error) => Err(error),
                }
            };
            let unlocked: Result<u32> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(unlock)).collect();
                threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
            });
            assert_eq!(unlocked?, 1, "threads that unlocked in round {round}");
        }
    }
    job.team().barrier()?;
    let epoch = window.lock(job.rank(), SHARED)?;
    let done = word(&epoch, job.rank(), 0)?;
    epoch.unlock()?;
    assert_eq!(done, 2 * ROUNDS);
    job.team().barrier()
}
