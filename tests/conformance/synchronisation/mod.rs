//! Epochs: what each kind of synchronisation promises, and what is refused.

mod groups;
mod locks;
mod rules;

use super::Written;
use hither::{Assertions, Epoch, Error, Job, LockKind, Op, Rank, Result};
use std::time::{Duration, Instant};

/// Everything about synchronisation.
pub fn cases() -> impl Iterator<Item = &'static Written> {
    [locks::CASES, groups::CASES, rules::CASES].into_iter().flatten()
}

const SHARED: LockKind = LockKind::Shared;
const EXCLUSIVE: LockKind = LockKind::Exclusive;

fn none() -> Assertions {
    Assertions::default()
}

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

/// Waits for what must come true in the end.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !holds()? {
        assert!(start.elapsed() < Duration::from_secs(100), "never: {what}");
        std::thread::yield_now();
    }
    Ok(())
}

fn word(epoch: &Epoch<'_, u64>, target: Rank, index: usize) -> Result<u64> {
    epoch.fetch_and_op(target, index, Op::NoOp, 0)
}

fn refused<T>(result: Result<T>) {
    match result {
        Err(Error::Misuse { why, .. }) => assert!(!why.is_empty()),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("allowed"),
    }
}

/// Adds one to an element in a way that only mutual exclusion makes right.
fn add_one(epoch: &Epoch<'_, u64>, target: Rank, index: usize) -> Result<()> {
    let mut value = [0];
    epoch.get(target, index, &mut value)?;
    epoch.put(target, index, &[value[0] + 1])
}
