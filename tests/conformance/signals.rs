//! Signals after data, and waits for words of the own part.

use super::Written;
use super::operations::{next, previous, read};
use hither::{Compare, Error, Job, Rank, Result, SignalOp, Window};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("signals_come_after_their_data", signals_after_data),
    ("signals_in_the_same_window", signals_same_window),
    ("signals_of_many_origins_add_up", signals_add_up),
    ("plain_puts_end_a_wait", plain_puts_end_a_wait),
    ("waits_compare_as_they_say", comparisons),
    ("waits_keep_the_deadline", wait_deadline),
];

fn signals_after_data(job: &Job) -> Result<()> {
    const ROUNDS: u64 = 200;
    let lengths = [1usize, 7, 300, 4000];
    let data = Window::<u64>::allocate(job.team(), 4000)?;
    let words = Window::<u64>::allocate(job.team(), 4)?;
    let (there, signal) = (data.lock_all()?, words.lock_all()?);
    for round in 1..=ROUNDS {
        let len = lengths[round as usize % lengths.len()];
        let fill = |rank: Rank| round << 16 | u64::from(rank.0);
        let values = vec![fill(job.rank()); len];
        there.put_signal(next(job), 0, &values, &signal, 2, SignalOp::Set, round)?;
        let seen = words.wait_until(2, Compare::Ge, round)?;
        // Everybody answers before the next round, so nobody is ahead.
        assert_eq!(seen, round);
        let mut got = vec![0; len];
        data.local().read(0, &mut got)?;
        assert_eq!(got, vec![fill(previous(job)); len], "round {round}");
        there.put_signal(previous(job), 0, &[], &signal, 3, SignalOp::Add, 1)?;
        words.wait_until(3, Compare::Eq, round)?;
    }
    there.unlock_all()?;
    signal.unlock_all()?;
    job.team().barrier()
}

fn signals_same_window(job: &Job) -> Result<()> {
    const ROUNDS: u64 = 100;
    let window = Window::<u64>::allocate(job.team(), 1002)?;
    let epoch = window.lock_all()?;
    for round in 1..=ROUNDS {
        let len = 1 + (round as usize * 37) % 1000;
        epoch.put_signal(next(job), 2, &vec![round; len], &epoch, 0, SignalOp::Set, round)?;
        window.wait_until(0, Compare::Ge, round)?;
        let mut got = vec![0; len];
        window.local().read(2, &mut got)?;
        assert_eq!(got, vec![round; len]);
        epoch.put_signal(previous(job), 0, &[], &epoch, 1, SignalOp::Set, round)?;
        window.wait_until(1, Compare::Ge, round)?;
    }
    let bad = epoch.put_signal(next(job), 2, &[1; 1001], &epoch, 0, SignalOp::Add, 5);
    assert!(matches!(bad, Err(Error::OutOfBounds { .. })), "{bad:?}");
    let bad = epoch.put_signal(next(job), 2, &[1], &epoch, 1002, SignalOp::Add, 5);
    assert!(matches!(bad, Err(Error::OutOfBounds { .. })), "{bad:?}");
    epoch.unlock_all()?;
    assert_eq!(window.local().get(0)?, ROUNDS, "an error changed the word");
    job.team().barrier()
}

fn signals_add_up(job: &Job) -> Result<()> {
    const EACH: u64 = 50;
    let words = Window::<u64>::allocate(job.team(), 1)?;
    let data = Window::<u32>::allocate(job.team(), job.size() as usize)?;
    let (there, signal) = (data.lock_all()?, words.lock_all()?);
    for i in 1..=EACH {
        for target in job.team().ranks() {
            let place = job.rank().index();
            there.put_signal(target, place, &[i as u32], &signal, 0, SignalOp::Add, 1)?;
        }
    }
    let total = EACH * u64::from(job.size());
    assert_eq!(words.wait_until(0, Compare::Ge, total)?, total);
    assert_eq!(read(&data), vec![EACH as u32; job.size() as usize]);
    there.unlock_all()?;
    signal.unlock_all()?;
    job.team().barrier()
}

fn plain_puts_end_a_wait(job: &Job) -> Result<()> {
    let window = Window::<i32>::allocate(job.team(), 3)?;
    let epoch = window.lock_all()?;
    if job.rank() == Rank(0) {
        // Long enough for the others to fall asleep.
        std::thread::sleep(Duration::from_millis(60));
        for target in job.team().ranks() {
            epoch.put(target, 1, &[-5])?;
        }
        epoch.flush_all()?;
    }
    assert_eq!(window.wait_until(1, Compare::Lt, 0)?, -5);
    epoch.unlock_all()?;
    job.team().barrier()
}

fn comparisons(job: &Job) -> Result<()> {
    let window = Window::<f64>::allocate(job.team(), 2)?;
    window.local().set(0, 2.5)?;
    let short = Window::<f64>::allocate(&job.team().with_deadline(crate::brief(200)), 2)?;
    short.local().set(0, 2.5)?;
    let table = [
        (Compare::Eq, [false, true, false]),
        (Compare::Ne, [true, false, true]),
        (Compare::Lt, [false, false, true]),
        (Compare::Le, [false, true, true]),
        (Compare::Gt, [true, false, false]),
        (Compare::Ge, [true, true, false]),
    ];
    for (compare, want) in table {
        for (value, holds) in [2.0, 2.5, 3.0].into_iter().zip(want) {
            assert_eq!(compare.holds(2.5, value), holds, "{compare:?} {value}");
            if holds {
                assert_eq!(window.wait_until(0, compare, value)?, 2.5);
            } else if value == 3.0 {
                let wait = short.wait_until(0, compare, value);
                assert!(matches!(wait, Err(Error::TimedOut { .. })), "{wait:?}");
            }
        }
    }
    assert!(Compare::Ne.holds(f64::NAN, f64::NAN) && !Compare::Eq.holds(f64::NAN, f64::NAN));
    let bad = window.wait_until(2, Compare::Eq, 0.0);
    assert!(matches!(bad, Err(Error::OutOfBounds { .. })), "{bad:?}");
    job.team().barrier()
}

fn wait_deadline(job: &Job) -> Result<()> {
    let limit = crate::brief(200);
    let window = Window::<u64>::allocate(&job.team().with_deadline(limit), 1)?;
    let begun = Instant::now();
    let wait = window.wait_until(0, Compare::Ne, 0);
    assert!(matches!(wait, Err(Error::TimedOut { .. })), "{wait:?}");
    assert!(begun.elapsed() >= limit);
    job.team().barrier()
}
