//! Tagged messages: what each call does, every size class and its neighbours, order, errors, and
//! random traffic against an oracle, by one thread of each rank and by four.

mod basic;
mod errors;
mod random;
mod sizes;

use crate::Written;
use hither::{Job, Rank};

pub fn cases() -> impl Iterator<Item = &'static Written> {
    [basic::CASES, errors::CASES, sizes::CASES, random::CASES].into_iter().flatten()
}

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

/// What a message of a kind consists of.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let byte = |i: usize| (seed.wrapping_mul(31) as usize + i * 7 + (i >> 8)) as u8;
    (0..len).map(byte).collect()
}
