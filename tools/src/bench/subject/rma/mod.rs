//! One-sided communication: every operation under every synchronisation, by size, contended, and
//! on what its packets are issued.
//!
//! ```text
//! operation   what is done to the target's part       raw      the same without a library
//! epochs      under which synchronisation             origins  several origins, one target
//! issue       when packets leave (paper 001)          overlap  whom packets wait for (001, 004)
//! ```
//! Benchmarks named `...-packets` are the same, in a job whose windows are reached by packets.

pub mod epochs;
pub mod issue;
pub mod operation;
mod origins;
pub mod overlap;
pub mod raw;

pub use origins::{accumulates, locks};

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair};
use crate::bench::row::{Goal, Point, Unit};
use epochs::{Epochs, Sync};
use hither::Result;
use operation::Operation;
use raw::RawEpochs;

/// What makes a job's windows be reached by packets.
pub const PACKETS: &[(&str, &str)] = &[("HITHER_RMA_MEDIUM", "packets")];

/// Operations of an epoch where rates are measured.
const MANY: u64 = 128;

fn against_raw(
    operation: Operation,
    sync: Sync,
    bytes: usize,
    per_epoch: u64,
) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        Ok(Pair {
            subject: Box::new(Epochs::new(crew, operation, sync, bytes, per_epoch)?),
            floor: Box::new(RawEpochs::new(crew, operation, sync, bytes, per_epoch)?),
        })
    }
}

/// Every operation under every synchronisation.
fn matrix(bench: &'static str, direct: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for sync in Sync::ALL {
        for operation in Operation::ALL {
            let bytes = operation.usual_bytes();
            let goal = match (direct, sync, operation) {
                (true, Sync::LockAll, Operation::Put | Operation::Get) => Goal::AtMost(1.4),
                (true, Sync::LockAll, Operation::FetchAndOp | Operation::CompareAndSwap) => {
                    Goal::AtMost(1.3)
                }
                (true, Sync::LockExclusive | Sync::LockShared | Sync::Fence, Operation::Put) => {
                    Goal::AtMost(1.3)
                }
                _ => Goal::None,
            };
            let what = format!("{}, {}", sync.name(), operation.name());
            let single = against_raw(operation, sync, bytes, 1);
            cases.push(Case::latency(bench, &*what, bytes, sync.limit(), goal, single));
            let what = format!("{what}, {MANY} per epoch");
            let many = against_raw(operation, sync, bytes, MANY);
            cases.push(
                Case::latency(bench, what, bytes, sync.limit(), Goal::None, many)
                    .counted_in(Unit::MillionPerSecond),
            );
        }
    }
    cases
}

/// Put, get and accumulate from a word to megabytes, each completed.
fn sizes(bench: &'static str, how: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in [Operation::Put, Operation::Get, Operation::Accumulate] {
        for shift in (3..=22).step_by(1) {
            let bytes = 1usize << shift;
            let title = format!("One operation and flush, by size, {how}");
            let limit = operation.raw_name();
            let setup = against_raw(operation, Sync::LockAll, bytes, 1);
            cases.push(
                Case::latency(bench, operation.name(), bytes, limit, Goal::None, setup)
                    .on(Point::new(title, operation.name(), "bytes", bytes as f64)),
            );
        }
    }
    cases
}

/// `rma`.
pub fn direct() -> Vec<Case> {
    matrix("rma", true)
}

/// `rma-packets`.
pub fn packets() -> Vec<Case> {
    matrix("rma-packets", false)
}

/// `rma-size`.
pub fn direct_sizes() -> Vec<Case> {
    sizes("rma-size", "direct")
}

/// `rma-size-packets`.
pub fn packet_sizes() -> Vec<Case> {
    sizes("rma-size-packets", "by packets")
}
