//! Single instructions on shared memory: store and load with a full fence, lock-prefixed add
//! and compare-and-swap; alone, or with every rank at one word. What comes back stays in registers: a
//! locked instruction waits for every store before it.

use crate::bench::block::Area;
use crate::bench::crew::Crew;
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::Result;
use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// Which instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// A store, then a full fence.
    StoreFence,
    /// A full fence, then a load.
    LoadFence,
    /// A plain store.
    Store,
    /// fetch_add.
    FetchAdd,
    /// compare_exchange that succeeds.
    CompareSwap,
}

/// One instruction on words of shared memory that another rank touched first.
pub struct Atomics {
    area: Area,
    instruction: Instruction,
    /// Words used in turn, a power of two.
    words: u64,
    together: bool,
}

impl Atomics {
    /// Rank 0 alone, on `words` words in turn (a power of two).
    pub fn alone(crew: &Crew, instruction: Instruction, words: u64) -> Result<Atomics> {
        let area = crew.block().take(8 * words as usize)?;
        if crew.rank() == crew.size() - 1 {
            for i in 0..words as usize {
                area.word(8 * i).store(0, Relaxed);
            }
        }
        Ok(Atomics { area, instruction, words: words.next_power_of_two(), together: false })
    }

    /// All ranks at one word.
    pub fn contended(crew: &Crew, instruction: Instruction) -> Result<Atomics> {
        Ok(Atomics { together: true, ..Self::alone(crew, instruction, 1)? })
    }

    fn perform(&self, count: u64, meter: &mut Meter) -> Result<()> {
        let mask = self.words - 1;
        let area = &self.area;
        let word = |i: u64| area.word(8 * (i & mask) as usize);
        match self.instruction {
            Instruction::StoreFence => meter.run(count, |i| {
                word(i).store(i, Relaxed);
                fence(SeqCst);
                Ok(())
            }),
            Instruction::LoadFence => meter.run(count, |i| {
                fence(SeqCst);
                black_box(word(i).load(Relaxed));
                Ok(())
            }),
            Instruction::Store => meter.run(count, |i| {
                word(i).store(i, Relaxed);
                Ok(())
            }),
            Instruction::FetchAdd => {
                let mut total = 0u64;
                let done = meter.run(count, |i| {
                    total = total.wrapping_add(word(i).fetch_add(1, AcqRel));
                    Ok(())
                });
                black_box(total);
                done
            }
            Instruction::CompareSwap => {
                let mut failed = 0u64;
                let done = meter.run(count, |i| {
                    let word = word(i);
                    let old = word.load(Relaxed);
                    failed +=
                        u64::from(word.compare_exchange(old, old + 1, AcqRel, Acquire).is_err());
                    Ok(())
                });
                black_box(failed);
                done
            }
        }
    }
}

impl Side for Atomics {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        self.perform(count, meter)
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.together {
            self.perform(count, &mut Meter::whole())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::with_crew;
    use std::sync::Barrier;

    #[test]
    fn every_instruction_is_carried_out() {
        for instruction in [
            Instruction::StoreFence,
            Instruction::LoadFence,
            Instruction::Store,
            Instruction::FetchAdd,
            Instruction::CompareSwap,
        ] {
            with_crew(1, |crew| {
                let mut side = Atomics::alone(&crew, instruction, 4).unwrap();
                side.lead(400, &mut Meter::whole()).unwrap();
                let left = side.area.word(8).load(Relaxed);
                match instruction {
                    Instruction::FetchAdd | Instruction::CompareSwap => assert_eq!(left, 100),
                    Instruction::StoreFence | Instruction::Store => assert_eq!(left, 397),
                    Instruction::LoadFence => assert_eq!(left, 0),
                }
            });
        }
    }

    #[test]
    fn contended_adds_all_count() {
        let barrier = Barrier::new(3);
        with_crew(3, |crew| {
            let mut side = Atomics::contended(&crew, Instruction::FetchAdd).unwrap();
            barrier.wait();
            match crew.leads() {
                true => side.lead(1000, &mut Meter::whole()).unwrap(),
                false => side.follow(1000).unwrap(),
            }
            barrier.wait();
            assert_eq!(side.area.word(0).load(Relaxed), 3000);
        });
    }
}
