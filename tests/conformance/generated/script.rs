//! What an origin does to a target in a case, as a list of steps that a model carries out
//! plainly and the library for real.
//!
//! A part of the window has a region per origin, which only that origin changes (so every value is
//! known exactly), and a common region at the end, which all change at the same time by operations
//! that commute:
//!
//! ```text
//! | origin 0: block block ...| origin 1: ... | ... | common |
//! ```

use super::dimension::{Case, Operation, Promise, Shape};
use super::value::Value;
use hither::{Op, SignalOp};

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub enum Do<T> {
    Put,
    Get,
    Accumulate(Op),
    GetAccumulate(Op),
    PutRequest,
    GetRequest,
    AccumulateRequest(Op),
    GetAccumulateRequest(Op),
    FetchAndOp(Op),
    CompareAndSwap {
        expected: T,
    },
    /// With the signal of this number.
    PutSignal(SignalOp, usize),
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Step<T> {
    pub what: Do<T>,
    /// First element of the target.
    pub start: usize,
    /// Elements of the target, counted from `start`.
    pub places: Vec<usize>,
    /// How those lie.
    pub shape: Shape,
    /// One for each place; what is put or accumulated.
    pub values: Vec<T>,
}

/// Puts with a signal that an origin makes to each target.
pub const SIGNALS: usize = 3;

/// How many elements there are of what.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Elements of a block.
    pub span: usize,
    /// Elements of an origin's region.
    pub region: usize,
    /// Elements of a part.
    pub len: usize,
}

impl Plan {
    pub fn new<T: Value>(case: &Case, ranks: u32) -> Plan {
        let span = case.shape.span();
        let blocks = match case.operation {
            Operation::Put
            | Operation::Get
            | Operation::PutRequest
            | Operation::GetRequest
            | Operation::CompareAndSwap => 3,
            Operation::PutSignalSet | Operation::PutSignalAdd => SIGNALS,
            _ => operations::<T>(case).len() + 1,
        };
        let region = span * blocks;
        let common = span * T::commuting().len();
        Plan { span, region, len: region * ranks as usize + common }
    }

    /// Where the common region begins.
    pub fn common(&self, ranks: u32) -> usize {
        self.region * ranks as usize
    }
}

/// The operations of a case: all that apply, few where there are many elements.
fn operations<T: Value>(case: &Case) -> Vec<Op> {
    let all = T::operations();
    if case.shape.is_long() { all.into_iter().step_by(4).collect() } else { all }
}

/// What a part holds before anything happens.
pub fn initial<T: Value>(target: u32, index: usize) -> T {
    T::of(index.wrapping_mul(5).wrapping_add(target as usize * 3))
}

/// What `origin` does to its region of `target`.
pub fn own<T: Value>(case: &Case, ranks: u32, origin: u32, target: u32) -> Vec<Step<T>> {
    let plan = Plan::new::<T>(case, ranks);
    let base = plan.region * origin as usize;
    let places = case.shape.places();
    let salt = (origin * 17 + target * 29) as usize;
    let values = |step: usize| -> Vec<T> {
        (0..places.len()).map(|i| T::of(salt + step * 101 + i * 3 + 1)).collect()
    };
    let step = |what, block: usize, number: usize| Step {
        what,
        start: base + block * plan.span + case.shape.start(),
        places: places.clone(),
        shape: case.shape,
        values: values(number),
    };
    let ordered = case.promise != Promise::Unordered;
    let mut steps = Vec::new();
    match case.operation {
        Operation::Put => steps.extend((0..3).map(|block| step(Do::Put, block, block))),
        Operation::PutSignalSet | Operation::PutSignalAdd => {
            let op = case.operation.signal().expect("an operation with a signal");
            let signal = |block| step(Do::PutSignal(op, block), block, block);
            steps.extend((0..SIGNALS).map(signal));
        }
        Operation::Get => steps.extend((0..3).map(|block| step(Do::Get, block, block))),
        Operation::PutRequest => {
            steps.extend((0..3).map(|block| step(Do::PutRequest, block, block)));
        }
        Operation::GetRequest => {
            steps.extend((0..3).map(|block| step(Do::GetRequest, block, block)));
        }
        Operation::Accumulate
        | Operation::GetAccumulate
        | Operation::AccumulateRequest
        | Operation::GetAccumulateRequest => {
            let all = operations::<T>(case);
            for (block, &op) in all.iter().enumerate() {
                let what = updating(case.operation, op);
                steps.push(step(what, block, block));
                // One after the other on the same elements: the order is kept.
                if ordered {
                    steps.push(step(what, all.len(), block));
                }
            }
        }
        Operation::FetchAndOp => {
            let all = operations::<T>(case);
            for (block, &op) in all.iter().enumerate() {
                steps.push(single(step(Do::FetchAndOp(op), block, block)));
                if ordered {
                    steps.push(single(step(Do::FetchAndOp(op), all.len(), block)));
                }
            }
        }
        Operation::CompareAndSwap => {
            let at = base + case.shape.start() + places[0];
            let first: T = initial(target, at);
            let second = T::of(salt + 7);
            for (number, expected) in [first, second, first, second].into_iter().enumerate() {
                let mut cas = single(step(Do::CompareAndSwap { expected }, 0, number));
                cas.values = vec![if number == 0 { second } else { T::of(salt + number) }];
                steps.push(cas);
            }
        }
    }
    steps
}

fn updating<T>(operation: Operation, op: Op) -> Do<T> {
    match operation {
        Operation::GetAccumulate => Do::GetAccumulate(op),
        Operation::AccumulateRequest => Do::AccumulateRequest(op),
        Operation::GetAccumulateRequest => Do::GetAccumulateRequest(op),
        _ => Do::Accumulate(op),
    }
}

fn single<T: Value>(mut step: Step<T>) -> Step<T> {
    step.places.truncate(1);
    step.values.truncate(1);
    step
}

/// What every origin does to the common region of every target.
pub fn common<T: Value>(case: &Case, ranks: u32, origin: u32) -> Vec<Step<T>> {
    let plan = Plan::new::<T>(case, ranks);
    let at = plan.common(ranks);
    let places = case.shape.places();
    let mut steps = Vec::new();
    for (block, &op) in T::commuting().iter().enumerate() {
        let step = |what| Step {
            what,
            start: at + block * plan.span + case.shape.start(),
            places: places.clone(),
            shape: case.shape,
            values: (0..places.len()).map(|i| T::of(origin as usize + i + block)).collect(),
        };
        match case.operation {
            Operation::Accumulate
            | Operation::GetAccumulate
            | Operation::AccumulateRequest
            | Operation::GetAccumulateRequest => steps.push(step(updating(case.operation, op))),
            Operation::FetchAndOp => steps.push(single(step(Do::FetchAndOp(op)))),
            _ => {}
        }
    }
    steps
}

/// Carries a step out on a plain array; returns what it gives back.
pub fn model<T: Value>(part: &mut [T], step: &Step<T>) -> Vec<T> {
    let mut back = Vec::new();
    for (&place, &value) in step.places.iter().zip(&step.values) {
        let element = &mut part[step.start + place];
        let old = *element;
        match step.what {
            Do::Put | Do::PutRequest | Do::PutSignal(..) => *element = value,
            Do::Get | Do::GetRequest => back.push(old),
            Do::Accumulate(op) | Do::AccumulateRequest(op) => {
                *element = T::oracle(op, old, value);
            }
            Do::FetchAndOp(op) | Do::GetAccumulate(op) | Do::GetAccumulateRequest(op) => {
                back.push(old);
                *element = T::oracle(op, old, value);
            }
            Do::CompareAndSwap { expected } => {
                back.push(old);
                if old == expected {
                    *element = value;
                }
            }
        }
    }
    back
}
