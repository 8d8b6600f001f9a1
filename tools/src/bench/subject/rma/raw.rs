//! The same epochs without a library: instructions on shared memory, between a flag barrier, flags
//! there and back, a robust mutex, or before a full fence.

use super::epochs::Sync;
use super::operation::{Operation, words};
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::floor::barrier::FlagBarrier;
use crate::bench::floor::mutex::RobustMutex;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// See the module.
pub struct RawEpochs {
    work: RawWork,
    sync: Sync,
    per_epoch: u64,
    rank: u32,
    polls: u32,
    barrier: FlagBarrier,
    mutex: RobustMutex,
    /// Exposure and completion of an epoch.
    flags: Area,
    turn: u64,
}

struct RawWork {
    operation: Operation,
    area: Area,
    bytes: usize,
    origin: Vec<u64>,
    private: Vec<u64>,
}

impl RawEpochs {
    pub fn new(
        crew: &Crew,
        operation: Operation,
        sync: Sync,
        bytes: usize,
        per_epoch: u64,
    ) -> Result<RawEpochs> {
        let area = crew.block().take(8 * words(bytes))?;
        if crew.rank() + 1 == crew.size() {
            for word in 0..words(bytes) {
                area.word(8 * word).store(0, Relaxed);
            }
        }
        let count = bytes.div_ceil(8);
        Ok(RawEpochs {
            work: RawWork {
                operation,
                area,
                bytes,
                origin: vec![1; count],
                private: vec![0; count],
            },
            sync,
            per_epoch,
            rank: crew.rank(),
            polls: crew.polls(),
            barrier: FlagBarrier::new(crew, false)?,
            mutex: RobustMutex::new(crew)?,
            flags: crew.block().take(2 * APART)?,
            turn: 0,
        })
    }
}

impl RawWork {
    /// Operations between fences. Those of one word each in a loop that has nothing else in it: they are
    /// as short as what stands around them. A read-modify-write is a fence itself, and so is an exchange
    /// instead of a store. Nothing goes to memory that need not: the next locked instruction would wait for it.
    fn lead_bare(&mut self, count: u64, per_epoch: u64, meter: &mut Meter) -> Result<()> {
        use Operation::{
            Accumulate, AccumulateVector, CompareAndSwap, FetchAndOp, Get, GetAccumulate, Put,
        };
        let word = self.area.word(0);
        let one = black_box(1u64);
        let nothing = || ();
        match self.operation {
            Put if self.bytes == 8 && per_epoch == 1 => {
                let once = || {
                    word.swap(one, SeqCst);
                };
                rounds(count, per_epoch, meter, once, nothing)
            }
            Put if self.bytes == 8 => {
                let once = || word.store(one, Relaxed);
                rounds(count, per_epoch, meter, once, || fence(SeqCst))
            }
            Get if self.bytes == 8 => {
                let once = || {
                    black_box(word.load(Relaxed));
                };
                rounds(count, per_epoch, meter, once, || fence(SeqCst))
            }
            // What was there goes to memory, which a locked instruction waits for.
            GetAccumulate if self.bytes == 8 => {
                let result = self.private.as_mut_slice();
                let once = || {
                    black_box(&mut *result)[0] = word.fetch_add(one, AcqRel);
                };
                rounds(count, per_epoch, meter, once, nothing)
            }
            Accumulate if self.bytes == 8 => {
                let once = || {
                    word.fetch_add(one, AcqRel);
                };
                rounds(count, per_epoch, meter, once, nothing)
            }
            FetchAndOp if self.bytes == 8 => {
                let mut total = 0u64;
                let once = || total = total.wrapping_add(word.fetch_add(one, AcqRel));
                let done = rounds(count, per_epoch, meter, once, nothing);
                black_box(total);
                done
            }
            CompareAndSwap => {
                let mut old = word.load(Relaxed);
                let once = || {
                    let next = old.wrapping_add(one);
                    old = match word.compare_exchange(old, next, AcqRel, Acquire) {
                        Ok(_) => next,
                        Err(found) => found,
                    };
                };
                rounds(count, per_epoch, meter, once, nothing)
            }
            AccumulateVector => rounds(count, per_epoch, meter, || self.once(), nothing),
            _ => rounds(count, per_epoch, meter, || self.once(), || fence(SeqCst)),
        }
    }

    #[inline(always)]
    fn once(&mut self) {
        let (word, bytes) = (self.area.word(0), self.bytes);
        let at = self.area.bytes(0, bytes);
        match self.operation {
            Operation::Put if bytes == 8 => word.store(black_box(self.origin[0]), Relaxed),
            Operation::Get if bytes == 8 => {
                black_box(word.load(Relaxed));
            }
            Operation::Put | Operation::PutSignal => {
                // SAFETY: both are `bytes` long and apart; the others leave the area alone.
                unsafe {
                    let from = black_box(self.origin.as_ptr()).cast();
                    std::ptr::copy_nonoverlapping(from, at, bytes);
                }
                if self.operation == Operation::PutSignal {
                    let signal = self.area.word(bytes);
                    signal.store(signal.load(Relaxed) + 1, Release);
                }
            }
            Operation::Get => {
                // SAFETY: as above.
                unsafe {
                    let to = black_box(self.private.as_mut_ptr()).cast();
                    std::ptr::copy_nonoverlapping(at, to, bytes);
                }
            }
            Operation::Accumulate | Operation::GetAccumulate if bytes > 8 => {
                let origin = black_box(&*self.origin);
                for (sum, value) in black_box(&mut *self.private).iter_mut().zip(origin) {
                    *sum = sum.wrapping_add(*value);
                }
            }
            Operation::Accumulate | Operation::GetAccumulate | Operation::FetchAndOp => {
                black_box(word.fetch_add(1, AcqRel));
            }
            Operation::CompareAndSwap => {
                let old = word.load(Relaxed);
                let _ = black_box(word.compare_exchange(old, old + 1, AcqRel, Acquire));
            }
            Operation::PutVector => {
                for (i, value) in black_box(&*self.origin).iter().enumerate() {
                    self.area.word(16 * i).store(*value, Relaxed);
                }
            }
            Operation::GetVector => {
                for (i, value) in black_box(&mut *self.private).iter_mut().enumerate() {
                    *value = self.area.word(16 * i).load(Relaxed);
                }
            }
            Operation::AccumulateVector => {
                for (i, value) in black_box(&*self.origin).iter().enumerate() {
                    black_box(self.area.word(16 * i).fetch_add(*value, AcqRel));
                }
            }
        }
    }
}

/// `count` operations, and what completes them after each `per_epoch`.
#[inline(always)]
fn rounds(
    count: u64,
    per_epoch: u64,
    meter: &mut Meter,
    mut once: impl FnMut(),
    complete: impl Fn(),
) -> Result<()> {
    if per_epoch == 1 {
        return meter.run(count, |_| {
            once();
            complete();
            Ok(())
        });
    }
    meter.run(count.div_ceil(per_epoch), |epoch| {
        for _ in 0..per_epoch.min(count - epoch * per_epoch) {
            once();
        }
        complete();
        Ok(())
    })
}

impl Side for RawEpochs {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (work, per_epoch) = (&mut self.work, self.per_epoch);
        // The last epoch may be shorter.
        let mut operations = |epoch: u64| {
            for _ in 0..per_epoch.min(count - epoch * per_epoch) {
                work.once();
            }
        };
        let epochs = count.div_ceil(per_epoch);
        match self.sync {
            Sync::Fence => meter.run(epochs, |epoch| {
                operations(epoch);
                self.barrier.once()
            }),
            Sync::Pscw => {
                let (exposed, completed) = (self.flags.word(0), self.flags.word(APART));
                let mut turn = self.turn;
                meter.run(epochs, |epoch| {
                    turn += 1;
                    spin_for(self.polls, || exposed.load(Acquire) == turn)?;
                    operations(epoch);
                    completed.store(turn, Release);
                    Ok(())
                })?;
                self.turn = turn;
                Ok(())
            }
            Sync::LockShared | Sync::LockExclusive => meter.run(epochs, |epoch| {
                self.mutex.with(|| operations(epoch));
                Ok(())
            }),
            Sync::LockAll => work.lead_bare(count, per_epoch, meter),
        }
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        let epochs = count.div_ceil(self.per_epoch);
        match self.sync {
            Sync::Fence => (0..epochs).try_for_each(|_| self.barrier.once()),
            Sync::Pscw if self.rank == 1 => {
                let (exposed, completed) = (self.flags.word(0), self.flags.word(APART));
                for _ in 0..epochs {
                    self.turn += 1;
                    exposed.store(self.turn, Release);
                    spin_for(self.polls, || completed.load(Acquire) == self.turn)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn every_operation_runs_under_every_synchronisation() {
        for sync in Sync::ALL {
            for operation in Operation::ALL {
                for bytes in [8, 512] {
                    exercise(2, |crew| RawEpochs::new(crew, operation, sync, bytes, 3));
                }
            }
        }
    }
}
