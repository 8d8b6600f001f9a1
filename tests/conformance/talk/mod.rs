//! Tagged messages: what each call does, every size class and its neighbours, order, errors, and
//! random traffic against an oracle, by one thread of each rank and by four.
//!
//! What is about large messages runs with several settings of eager thresholds: see [`WAYS`].

mod basic;
mod busy;
mod endpoints;
mod errors;
mod lent;
mod network;
mod random;
mod sizes;
mod switching;

use crate::Written;
use hither::{Job, Rank};

/// Settings by their names, with values.
type Settings = &'static [(&'static str, &'static str)];

/// No message goes by a buffer of its sender's.
const LEND_NONE: (&str, &str) = ("HITHER_LEND_LIMIT", "0");

/// Whatever is measured.
const NONTEMPORAL: (&str, &str) = ("HITHER_STORES", "nontemporal");

/// Ways in which only cases about large messages run, with their settings.
pub const WAYS: [(&str, Settings); 8] = [
    // Nobody copies another's private memory, and no threshold changes.
    ("streams", &[("HITHER_EAGER", "fixed"), ("HITHER_CMA", "0"), LEND_NONE]),
    // Thresholds go up, pools are used up, and buffers go again all the time.
    (
        "eager-short",
        &[
            ("HITHER_EAGER", "always"),
            ("HITHER_EAGER_AGE", "0.001"),
            ("HITHER_EAGER_BYTES", "600K"),
            ("HITHER_EAGER_BUFFERS", "3"),
            ("HITHER_EAGER_POOLS", "2"),
            LEND_NONE,
        ],
    ),
    ("eager-short-streams", &[("HITHER_EAGER_AGE", "0.003"), ("HITHER_CMA", "0"), LEND_NONE]),
    (
        "eager-fixed",
        &[
            ("HITHER_EAGER", "fixed"),
            ("HITHER_EAGER_LIMIT", "300000"),
            ("HITHER_EAGER_FIXED_BUFFERS", "2"),
            LEND_NONE,
        ],
    ),
    (
        "eager-fixed-streams",
        &[("HITHER_EAGER", "fixed"), ("HITHER_EAGER_LIMIT", "40K"), ("HITHER_CMA", "0"), LEND_NONE],
    ),
    // Buffers of senders go again all the time, and are filled past the caches.
    ("lent-short", &[("HITHER_EAGER_AGE", "0.001"), NONTEMPORAL]),
    // Both sides copy at the same time where both wait, however many ranks share a core.
    ("together", &[("HITHER_CMA", "slow"), ("HITHER_SPIN", "64"), NONTEMPORAL]),
    // The same, and each has the kernel copy a half.
    ("halves", &[("HITHER_CMA", "halves"), ("HITHER_SPIN", "64"), LEND_NONE]),
];

/// Those of them in which it matters that two ranks have private memory: threads have one, and copy from it.
pub const APART: [&str; 2] = ["together", "halves"];

/// Whether it is a way's turn to be run by more ranks than most machines have cores. The ways differ by
/// how a message travels from one rank to another, whoever is beside them: it takes a minute each.
pub fn is_crowded(way: &str, turn: usize) -> bool {
    WAYS.iter().position(|(name, _)| *name == way).is_none_or(|own| own == turn % WAYS.len())
}

pub fn cases() -> impl Iterator<Item = &'static Written> {
    let apart = [basic::CASES, endpoints::CASES, busy::CASES, errors::CASES, network::CASES];
    apart.into_iter().chain([sizes::CASES, random::CASES, switching::CASES, lent::CASES]).flatten()
}

/// Those that run with a way of [`WAYS`]: with the plain one, where no threshold changes, all but
/// those about changes; with that in which lent buffers come and go, those that they are used by.
pub fn with(way: &str) -> impl Iterator<Item = &'static Written> {
    let first = if way == WAYS[0].0 { basic::CASES } else { switching::CASES };
    let apart = match way {
        "lent-short" => vec![errors::CASES],
        _ => vec![first, endpoints::CASES, busy::CASES, errors::CASES],
    };
    apart.into_iter().chain([sizes::CASES, random::CASES, lent::CASES]).flatten()
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
