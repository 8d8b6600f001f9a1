//! One-sided operations: the leader works on rank 1's part of a window, which does not call the
//! library meanwhile.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::atomics::{Atomics, Instruction};
use crate::bench::floor::memcpy::Memcpy;
use crate::bench::floor::sum::PrivateSum;
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Unit};
use hither::{Op, Rank, Result, Window};
use std::hint::black_box;

/// Words worked on in turn where more than one is: 4 KiB.
const WORDS: u64 = 512;

/// Which operation.
#[derive(Clone, Copy)]
enum Operation {
    PutFlush,
    GetFlush,
    Put,
    FetchAndOp,
    CompareAndSwap,
    Accumulate,
}

/// Operations on 8 B words of rank 1.
struct Words {
    window: Window<u64>,
    operation: Operation,
    mask: u64,
}

impl Words {
    fn new(crew: &Crew, operation: Operation, words: u64) -> Result<Words> {
        let window = Window::allocate(crew.job()?.team(), words as usize)?;
        Ok(Words { window, operation, mask: words - 1 })
    }
}

impl Side for Words {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let target = Rank(1);
        let epoch = self.window.lock_all()?;
        let at = |i: u64| (i & self.mask) as usize;
        match self.operation {
            Operation::PutFlush => meter.run(count, |i| {
                epoch.put(target, at(i), &[i])?;
                epoch.flush(target)
            })?,
            Operation::GetFlush => meter.run(count, |i| {
                let mut value = [0];
                epoch.get(target, at(i), &mut value)?;
                epoch.flush(target)?;
                black_box(value);
                Ok(())
            })?,
            Operation::Put => meter.batch(|| {
                for i in 0..count {
                    epoch.put(target, at(i), &[i])?;
                }
                epoch.flush(target)
            })?,
            Operation::FetchAndOp => meter.run(count, |i| {
                black_box(epoch.fetch_and_op(target, at(i), Op::Sum, 1)?);
                Ok(())
            })?,
            Operation::CompareAndSwap => {
                let mut expected = epoch.fetch_and_op(target, 0, Op::NoOp, 0)?;
                meter.run(count, |_| {
                    let next = expected.wrapping_add(1);
                    black_box(epoch.compare_and_swap(target, 0, expected, next)?);
                    expected = next;
                    Ok(())
                })?;
            }
            Operation::Accumulate => meter.batch(|| {
                for i in 0..count {
                    epoch.accumulate(target, at(i), Op::Sum, &[1])?;
                }
                epoch.flush(target)
            })?,
        }
        epoch.unlock_all()
    }
}

fn words(operation: Operation, words: u64, limit: Instruction) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        Ok(Pair {
            subject: Box::new(Words::new(crew, operation, words)?),
            floor: Box::new(Atomics::alone(crew, limit, words)?),
        })
    }
}

/// Which way bytes go.
#[derive(Clone, Copy)]
enum Bulk {
    Put,
    Get,
}

/// Runs of bytes to or from rank 1, each completed.
struct Runs {
    window: Window<u8>,
    private: Vec<u8>,
    bulk: Bulk,
}

impl Side for Runs {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let epoch = self.window.lock_all()?;
        let private = &mut self.private;
        match self.bulk {
            Bulk::Put => meter.run(count, |_| {
                epoch.put(Rank(1), 0, private)?;
                epoch.flush(Rank(1))
            })?,
            Bulk::Get => meter.run(count, |_| {
                epoch.get(Rank(1), 0, private)?;
                epoch.flush(Rank(1))
            })?,
        }
        epoch.unlock_all()
    }
}

fn runs(bulk: Bulk, size: usize) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        let window = Window::allocate(crew.job()?.team(), size)?;
        Ok(Pair {
            subject: Box::new(Runs { window, private: vec![1; size], bulk }),
            floor: Box::new(Memcpy::new(crew, size, matches!(bulk, Bulk::Get))?),
        })
    }
}

/// Sums of f64 into rank 1's part.
struct Sums {
    window: Window<f64>,
    origin: Vec<f64>,
}

impl Side for Sums {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let epoch = self.window.lock_all()?;
        meter.run(count, |_| {
            epoch.accumulate(Rank(1), 0, Op::Sum, &self.origin)?;
            epoch.flush(Rank(1))
        })?;
        epoch.unlock_all()
    }
}

fn bulk(bench: &'static str, what: &'static str, bulk: Bulk) -> impl Iterator<Item = Case> {
    [512, 64 << 10, 1 << 20].into_iter().map(move |size| {
        Case::latency(bench, what, size, "memcpy", Goal::None, runs(bulk, size))
            .counted_in(Unit::GigabytesPerSecond)
    })
}

/// `put`.
pub fn put() -> Vec<Case> {
    let single = words(Operation::PutFlush, 1, Instruction::StoreFence);
    let batch = words(Operation::Put, WORDS, Instruction::Store);
    let mut cases = vec![
        Case::latency("put", "put, flush", 8, "store + fence", Goal::AtMost(1.4), single),
        Case::latency("put", "put, one flush for all", 8, "store", Goal::None, batch)
            .counted_in(Unit::MillionPerSecond),
    ];
    cases.extend(bulk("put", "put, flush", Bulk::Put));
    cases
}

/// `get`.
pub fn get() -> Vec<Case> {
    let single = words(Operation::GetFlush, 1, Instruction::LoadFence);
    let mut cases =
        vec![Case::latency("get", "get, flush", 8, "load + fence", Goal::AtMost(1.4), single)];
    cases.extend(bulk("get", "get, flush", Bulk::Get));
    cases
}

/// `atomics`.
pub fn atomics() -> Vec<Case> {
    let goal = Goal::AtMost(1.3);
    let add = words(Operation::FetchAndOp, 1, Instruction::FetchAdd);
    let swap = words(Operation::CompareAndSwap, 1, Instruction::CompareSwap);
    vec![
        Case::latency("atomics", "fetch_and_op sum", 8, "fetch_add", goal, add),
        Case::latency("atomics", "compare_and_swap", 8, "cmpxchg", goal, swap),
    ]
}

/// `accumulate`.
pub fn accumulate() -> Vec<Case> {
    let words = words(Operation::Accumulate, WORDS, Instruction::FetchAdd);
    let size = 1 << 20;
    let sums = move |crew: &Crew| {
        let window = Window::allocate(crew.job()?.team(), size / 8)?;
        Ok(Pair {
            subject: Box::new(Sums { window, origin: vec![1.0; size / 8] }),
            floor: Box::new(PrivateSum::new(size)),
        })
    };
    vec![
        Case::latency("accumulate", "sum of u64", 8, "fetch_add", Goal::AtLeast(0.77), words)
            .counted_in(Unit::MillionPerSecond),
        Case::latency("accumulate", "sum of f64", size, "private loop", Goal::AtMost(1.1), sums),
    ]
}
