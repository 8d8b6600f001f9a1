//! The raw limit of each workload that has one, between two ranks, or the ranks of pairs.

use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::floor::call::LockedCall;
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::handed::HandedBack;
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::Ring;
use crate::bench::floor::sum::PrivateSum;
use crate::bench::subject::rma::{epochs::Sync, operation::Operation, raw::RawEpochs};
use crate::bench::subject::talk::pairs::Pairs;
use hither::Result;

/// From here on one copy by the kernel, not two through shared memory.
const LARGE: usize = 64 << 10;
const MANY: u64 = 128;

/// What the limit of a workload is called.
pub fn name(workload: &str, size: usize) -> Option<&'static str> {
    Some(match workload {
        "latency" | "signal" if size <= 8 => "ping-pong, two lines",
        "latency" if size < LARGE => "copy in + copy out",
        "latency" => "CMA",
        "rate" => "bare ring",
        "rate-pairs" => "bare rings",
        "request" => "robust mutex + call",
        "put" | "get" if size == 8 => "instruction + fence",
        "put" | "get" => "memcpy + fence",
        "put-rate" | "get-rate" => "instructions",
        "accumulate" | "fetch-and-op" | "accumulate-rate" | "fetch-and-op-rate" => "fetch_add",
        "get-accumulate" | "get-accumulate-rate" => "fetch_add",
        "compare-and-swap" => "cmpxchg",
        "lock-shared" | "lock-exclusive" => "robust mutex",
        "fence" | "barrier" => "flag barrier",
        "allreduce" if size == 8 => "flag all-reduce",
        "sum-one" => "private loop",
        "start" => "fork + exec",
        _ if workload.starts_with("availability") => "all of the time",
        _ => return None,
    })
}

/// Its part of this rank; none where there is none.
pub fn make(crew: &Crew, workload: &str, size: usize) -> Result<Option<Box<dyn Side>>> {
    let raw = |operation, sync, per_epoch| -> Result<Option<Box<dyn Side>>> {
        Ok(Some(Box::new(RawEpochs::new(crew, operation, sync, size.max(8), per_epoch)?)))
    };
    let all = Sync::LockAll;
    match workload {
        "latency" | "signal" if size <= 8 => Ok(Some(Box::new(PingPong::new(crew, 2)?))),
        "latency" if size < LARGE => Ok(Some(Box::new(CopyCells::new(crew, size)?))),
        "latency" => Ok(Some(Box::new(HandedBack::new(crew, size)?))),
        "rate" => Ok(Some(Box::new(Ring::new(crew, size)?))),
        "request" => Ok(Some(Box::new(LockedCall::new(crew, true)?))),
        "rate-pairs" => Ok(Some(Box::new(Pairs::new(crew, Ring::of_pair(crew, size)?)?))),
        "put" => raw(Operation::Put, all, 1),
        "get" => raw(Operation::Get, all, 1),
        "accumulate" => raw(Operation::Accumulate, all, 1),
        "get-accumulate" => raw(Operation::GetAccumulate, all, 1),
        "fetch-and-op" => raw(Operation::FetchAndOp, all, 1),
        "compare-and-swap" => raw(Operation::CompareAndSwap, all, 1),
        "put-rate" => raw(Operation::Put, all, MANY),
        "get-rate" => raw(Operation::Get, all, MANY),
        "accumulate-rate" => raw(Operation::Accumulate, all, MANY),
        "get-accumulate-rate" => raw(Operation::GetAccumulate, all, MANY),
        "fetch-and-op-rate" => raw(Operation::FetchAndOp, all, MANY),
        "lock-shared" => raw(Operation::Put, Sync::LockShared, 1),
        "lock-exclusive" => raw(Operation::Put, Sync::LockExclusive, 1),
        "fence" | "barrier" => Ok(Some(Box::new(FlagBarrier::new(crew, false)?))),
        "allreduce" if size == 8 => Ok(Some(Box::new(FlagBarrier::new(crew, true)?))),
        "sum-one" => Ok(Some(Box::new(PrivateSum::new(size)))),
        _ => Ok(None),
    }
}
