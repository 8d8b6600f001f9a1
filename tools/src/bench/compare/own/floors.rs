//! The raw limits of each workload: by as many ranks as there are, all at once, as the workload itself.
//!
//! Where there are several ways, the better one is the limit. Limits of two ranks are those of the other
//! benchmarks; in a larger job each pair, or each rank, has one of its own ([`Crew::part`]).

use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::floor::announced::{Announced, Update};
use crate::bench::floor::atomics::{Atomics, Instruction};
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::floor::broadcast::FlagBroadcast;
use crate::bench::floor::call::LockedCall;
use crate::bench::floor::copied::{Copied, Sharing};
use crate::bench::floor::copy_cells::CopyCells;
use crate::bench::floor::handed::HandedBack;
use crate::bench::floor::mutex::{LockUnlock, RobustMutex};
use crate::bench::floor::ping_pong::PingPong;
use crate::bench::floor::ring::{Ring, TwoRings};
use crate::bench::floor::sum::PrivateSum;
use crate::bench::meter::Meter;
use crate::bench::pages::buffers;
use crate::bench::subject::rma::{epochs::Sync, operation::Operation, raw::RawEpochs};
use crate::bench::subject::talk::pairs::Pairs;
use hither::Result;

/// From here on one copy by the kernel, not two through shared memory.
const LARGE: usize = 64 << 10;
const MANY: u64 = 128;

type Sides = Vec<Box<dyn Side>>;

/// Whether its operations add to single elements of a window that may be updated in either way.
fn adds(workload: &str) -> bool {
    let operation = workload.strip_suffix("-rate").unwrap_or(workload);
    matches!(operation, "accumulate" | "get-accumulate" | "fetch-and-op")
}

/// What the limit of a workload is called.
pub fn name(workload: &str, size: usize) -> Option<&'static str> {
    Some(match workload {
        "latency" | "signal" if size <= 8 => "ping-pong, two lines",
        "latency" if size < LARGE => "copy in + copy out",
        "latency" | "latency-still" => "CMA",
        "rate" => "ring of messages with tags",
        "rate-pairs" => "rings of messages with tags",
        "bandwidth" | "bandwidth-still" => "copies alone",
        "bidirectional" => "copies alone",
        "request" => "robust mutex + call",
        "put" | "get" if size == 8 => "instruction + fence",
        "put" | "get" => "memcpy + fence",
        "put-rate" | "get-rate" => "instructions",
        other if adds(other) => "fetch_add, announced",
        "single-fetch-and-op" | "single-fetch-and-op-rate" => "fetch_add",
        "sum-same" => "fetch_add by all",
        "compare-and-swap" => "cmpxchg, announced",
        "single-compare-and-swap" => "cmpxchg",
        "lock-shared" | "lock-exclusive" => "robust mutex",
        "lock-contended" => "robust mutex of all",
        "fence" | "barrier" => "flag barrier",
        "pscw" => "flags there and back",
        "allreduce" | "alltoall" if size == 8 => "flag all-reduce",
        "broadcast" if size == 8 => "flag broadcast",
        "sum-one" => "private loop",
        "sum-all" => "private loops",
        "bfs" => "threads of one process",
        "start" => "fork + exec",
        _ if workload.starts_with("availability") => "all of the time",
        _ => return None,
    })
}

/// What the floor of a workload is called, where less is asked of it than of the limit.
pub fn floor_name(workload: &str) -> Option<&'static str> {
    match workload {
        "rate" => Some("bare ring"),
        "rate-pairs" => Some("bare rings"),
        other if adds(other) => Some("fetch_add"),
        "compare-and-swap" => Some("cmpxchg"),
        _ => None,
    }
}

/// Polls before ranks that share cores give theirs up: whether few or many are better depends on who runs where.
const PACES: [u32; 2] = [4, 500];

/// Their parts of this rank; none where there is none. Where the floor is another program, it is the last one.
pub fn make(crew: &Crew, workload: &str, size: usize) -> Result<Sides> {
    let mut sides = limits(crew, workload, size)?;
    if crew.shares_cores() && waits(workload) {
        for polls in PACES {
            sides.extend(crew.at_pace(polls, || limits(crew, workload, size))?);
        }
    }
    sides.extend(floor(crew, workload, size)?);
    Ok(sides)
}

/// Whether ranks wait for each other within a turn of the loop.
fn waits(workload: &str) -> bool {
    match workload {
        "request" | "lock-shared" | "lock-exclusive" | "lock-contended" => false,
        "fence" | "pscw" | "barrier" | "allreduce" | "broadcast" | "alltoall" => true,
        other => {
            ["latency", "rate", "bandwidth", "bidirectional"].iter().any(|of| other.starts_with(of))
        }
    }
}

/// The floor, if that is another program.
fn floor(crew: &Crew, workload: &str, size: usize) -> Result<Option<Box<dyn Side>>> {
    let update = |operation, per_epoch| raw(crew, operation, Sync::LockAll, (size, per_epoch));
    Ok(match workload {
        "rate" => Some(pairs(crew, Ring::long(size), |p| boxed(Ring::packed(p, size, true)))?),
        "rate-pairs" => {
            let ring = Ring::of_pair(crew, size, |p| Ring::packed(p, size, true))?;
            Some(boxed(Pairs::new(crew, ring))?)
        }
        "accumulate" => Some(update(Operation::Accumulate, 1)?),
        "accumulate-rate" => Some(update(Operation::Accumulate, MANY)?),
        "get-accumulate" => Some(update(Operation::GetAccumulate, 1)?),
        "get-accumulate-rate" => Some(update(Operation::GetAccumulate, MANY)?),
        "fetch-and-op" => Some(update(Operation::FetchAndOp, 1)?),
        "fetch-and-op-rate" => Some(update(Operation::FetchAndOp, MANY)?),
        "compare-and-swap" => Some(update(Operation::CompareAndSwap, 1)?),
        _ => None,
    })
}

/// Instructions of one rank, between what stands for epochs of so many.
fn raw(
    crew: &Crew,
    operation: Operation,
    sync: Sync,
    (size, per_epoch): (usize, u64),
) -> Result<Box<dyn Side>> {
    let bytes = size.max(8);
    let make = |part: &Crew| boxed(RawEpochs::new(part, operation, sync, bytes, per_epoch));
    // Of two ranks one is the target.
    if crew.size() == 2 { make(crew) } else { parts(crew, 1, 2 * bytes, make) }
}

/// One rank's updates that others could outwait.
fn announced(crew: &Crew, update: Update) -> Result<Box<dyn Side>> {
    let make = |part: &Crew| boxed(Announced::new(part, update));
    if crew.size() == 2 { make(crew) } else { parts(crew, 1, 0, make) }
}

fn limits(crew: &Crew, workload: &str, size: usize) -> Result<Sides> {
    let one = |side: Result<Box<dyn Side>>| side.map(|side| vec![side]);
    let raw = |operation, sync, per_epoch| one(raw(crew, operation, sync, (size, per_epoch)));
    let all = Sync::LockAll;
    match workload {
        "latency" | "signal" if size <= 8 => one(pairs(crew, 0, |p| boxed(PingPong::new(p, 2)))),
        "latency" if size < LARGE => one(pairs(crew, 4 * size, |p| boxed(CopyCells::new(p, size)))),
        "latency" | "latency-still" => one(pairs(crew, size, |p| boxed(HandedBack::new(p, size)))),
        "rate" => [false, true]
            .map(|long| pairs(crew, Ring::any(size), |p| boxed(Ring::tagged(p, size, long))))
            .into_iter()
            .collect(),
        "rate-pairs" => [false, true]
            .map(|long| {
                let ring = Ring::of_pair(crew, size, |p| Ring::tagged(p, size, long))?;
                boxed(Pairs::new(crew, ring))
            })
            .into_iter()
            .collect(),
        "bandwidth" | "bandwidth-still" | "bidirectional" => copies(crew, workload, size),
        "request" => one(pairs(crew, 0, |p| boxed(LockedCall::new(p, true)))),
        "put" => raw(Operation::Put, all, 1),
        "get" => raw(Operation::Get, all, 1),
        "accumulate" | "accumulate-rate" | "fetch-and-op" | "fetch-and-op-rate" => {
            one(announced(crew, Update::FetchAdd))
        }
        "get-accumulate" | "get-accumulate-rate" => one(announced(crew, Update::FetchAddKept)),
        "compare-and-swap" => one(announced(crew, Update::CompareSwap)),
        "single-fetch-and-op" => raw(Operation::FetchAndOp, all, 1),
        "single-compare-and-swap" => raw(Operation::CompareAndSwap, all, 1),
        "put-rate" => raw(Operation::Put, all, MANY),
        "get-rate" => raw(Operation::Get, all, MANY),
        "single-fetch-and-op-rate" => raw(Operation::FetchAndOp, all, MANY),
        "lock-shared" => raw(Operation::Put, Sync::LockShared, 1),
        "lock-exclusive" => raw(Operation::Put, Sync::LockExclusive, 1),
        "lock-contended" => one(boxed(RobustMutex::new(crew).map(|mutex| All(LockUnlock(mutex))))),
        "fence" | "barrier" => one(boxed(FlagBarrier::new(crew, false))),
        "pscw" => {
            one(pairs(crew, 0, |p| boxed(RawEpochs::new(p, Operation::Put, Sync::Pscw, 8, 1))))
        }
        "allreduce" | "alltoall" if size == 8 => one(boxed(FlagBarrier::new(crew, true))),
        "broadcast" if size == 8 => one(boxed(FlagBroadcast::new(crew))),
        "sum-same" => one(boxed(Atomics::contended(crew, Instruction::FetchAdd))),
        "sum-one" => one(boxed(Ok(PrivateSum::new(size)))),
        "sum-all" => one(boxed(Ok(All(PrivateSum::new(size))))),
        _ => Ok(Vec::new()),
    }
}

/// Windows of messages: through shared memory, in and out; and once by the kernel, by the receiver or by both.
fn copies(crew: &Crew, workload: &str, size: usize) -> Result<Sides> {
    let (window, both) = (buffers(size), workload == "bidirectional");
    let bytes = 2 * Ring::bytes(size) + Copied::BYTES;
    let (kept, every) =
        if workload == "bandwidth-still" { (1, 1) } else { (window, window as u64) };
    let through = |p: &Crew| match both {
        true => boxed(TwoRings::among(p, size, kept)),
        false => boxed(Ring::among(p, size, kept)),
    };
    let ways: &[Sharing] =
        if both { &[Sharing::BothWays] } else { &[Sharing::Receiver, Sharing::Halves(every)] };
    let mut sides = vec![pairs(crew, bytes, through)?];
    for &way in ways {
        sides.push(pairs(crew, bytes, |p| {
            Ok(match Copied::new(p, size, (window, kept), way)? {
                Some(copied) => Box::new(copied),
                // Every rank has as many sides.
                None => through(p)?,
            })
        })?);
    }
    Ok(sides)
}

fn boxed<S: Side + 'static>(side: Result<S>) -> Result<Box<dyn Side>> {
    side.map(|side| Box::new(side) as Box<dyn Side>)
}

/// What each pair of ranks has.
fn pairs(
    crew: &Crew,
    bytes: usize,
    make: impl FnOnce(&Crew) -> Result<Box<dyn Side>>,
) -> Result<Box<dyn Side>> {
    parts(crew, 2, bytes, make)
}

/// What each part of `members` ranks has, in `bytes` of shared memory and some pages.
fn parts(
    crew: &Crew,
    members: u32,
    bytes: usize,
    make: impl FnOnce(&Crew) -> Result<Box<dyn Side>>,
) -> Result<Box<dyn Side>> {
    const SOME: usize = 64 << 10;
    if crew.size() == members {
        return make(crew);
    }
    Ok(match crew.part(members, bytes + SOME)? {
        Some(part) => Box::new(InParts { leads: part.leads(), side: make(&part)? }),
        None => Box::new(Idle),
    })
}

/// A side of each part, all at once. That of rank 0's is timed.
struct InParts {
    side: Box<dyn Side>,
    leads: bool,
}

impl Side for InParts {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        self.side.lead(count, meter)
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.leads {
            self.side.lead(count, &mut Meter::whole())
        } else {
            self.side.follow(count)
        }
    }
}

/// What every rank does as the leader.
struct All<S>(S);

impl<S: Side> Side for All<S> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        self.0.lead(count, meter)
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        self.0.lead(count, &mut Meter::whole())
    }
}

/// A rank that has no part.
struct Idle;

impl Side for Idle {
    fn lead(&mut self, _: u64, _: &mut Meter) -> Result<()> {
        Ok(())
    }
}
