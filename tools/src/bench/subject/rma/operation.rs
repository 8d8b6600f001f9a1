//! One operation on the target's part.

use hither::layout::Layout;
use hither::rma::{Epoch, SignalOp};
use hither::{Op, Rank, Result};
use std::hint::black_box;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Put,
    Get,
    Accumulate,
    GetAccumulate,
    FetchAndOp,
    CompareAndSwap,
    PutSignal,
    PutVector,
    GetVector,
    AccumulateVector,
}

impl Operation {
    pub const ALL: [Operation; 10] = [
        Operation::Put,
        Operation::Get,
        Operation::Accumulate,
        Operation::GetAccumulate,
        Operation::FetchAndOp,
        Operation::CompareAndSwap,
        Operation::PutSignal,
        Operation::PutVector,
        Operation::GetVector,
        Operation::AccumulateVector,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Accumulate => "accumulate",
            Operation::GetAccumulate => "get_accumulate",
            Operation::FetchAndOp => "fetch_and_op",
            Operation::CompareAndSwap => "compare_and_swap",
            Operation::PutSignal => "put_signal",
            Operation::PutVector => "put of every other word",
            Operation::GetVector => "get of every other word",
            Operation::AccumulateVector => "accumulate of every other word",
        }
    }

    /// The raw operation it is compared with.
    pub fn raw_name(self) -> &'static str {
        match self {
            Operation::Put | Operation::Get => "memcpy",
            Operation::Accumulate | Operation::GetAccumulate => "private loop",
            Operation::FetchAndOp => "fetch_add",
            Operation::CompareAndSwap => "cmpxchg",
            Operation::PutSignal => "memcpy, store",
            Operation::PutVector | Operation::GetVector => "loop over words",
            Operation::AccumulateVector => "fetch_add of words",
        }
    }

    /// Bytes where no other number is asked for.
    pub fn usual_bytes(self) -> usize {
        match self {
            Operation::PutVector | Operation::GetVector | Operation::AccumulateVector => 512,
            _ => 8,
        }
    }
}

/// All that an operation needs, made before anything is timed.
pub struct Work {
    operation: Operation,
    target: Rank,
    origin: Vec<u64>,
    result: Vec<u64>,
    expected: u64,
    strided: Layout,
    packed: Layout,
}

/// Words of a part that operations of `bytes` bytes fit.
pub fn words(bytes: usize) -> usize {
    2 * bytes.div_ceil(8)
}

impl Work {
    pub fn new(operation: Operation, bytes: usize) -> Result<Work> {
        let words = bytes.div_ceil(8);
        Ok(Work {
            operation,
            target: Rank(1),
            origin: vec![1; words],
            result: vec![0; words],
            expected: 0,
            strided: Layout::of::<u64>().vector(words, 1, 2)?,
            packed: Layout::of::<u64>().contiguous(words)?,
        })
    }

    /// Carries it out.
    #[inline(always)]
    pub fn once(&mut self, epoch: &Epoch<'_, u64>) -> Result<()> {
        let (target, origin) = (self.target, black_box(&*self.origin));
        match self.operation {
            Operation::Put => epoch.put(target, 0, origin),
            Operation::Get => {
                epoch.get(target, 0, &mut self.result)?;
                black_box(&self.result);
                Ok(())
            }
            Operation::Accumulate => epoch.accumulate(target, 0, Op::Sum, origin),
            Operation::GetAccumulate => {
                epoch.get_accumulate(target, 0, Op::Sum, origin, &mut self.result)?;
                black_box(&self.result);
                Ok(())
            }
            Operation::FetchAndOp => {
                black_box(epoch.fetch_and_op(target, 0, Op::Sum, 1)?);
                Ok(())
            }
            Operation::CompareAndSwap => {
                let next = self.expected.wrapping_add(1);
                let found = epoch.compare_and_swap(target, 0, self.expected, next)?;
                // It always succeeds but for the first time.
                self.expected = if found == self.expected { next } else { found };
                Ok(())
            }
            Operation::PutSignal => {
                // The last word of the part is the signal.
                let at = words(8 * origin.len()) - 1;
                epoch.put_signal(target, 0, origin, epoch, at, SignalOp::Add, 1)
            }
            Operation::PutVector => {
                let (there, here) = (self.strided.times(1), self.packed.times(1));
                epoch.put_layout(target, 0, there, origin, here)
            }
            Operation::GetVector => {
                let (there, here) = (self.strided.times(1), self.packed.times(1));
                epoch.get_layout(target, 0, there, &mut self.result, here)?;
                black_box(&self.result);
                Ok(())
            }
            Operation::AccumulateVector => {
                let (there, here) = (self.strided.times(1), self.packed.times(1));
                epoch.accumulate_layout(target, 0, there, Op::Sum, origin, here)
            }
        }
    }
}
