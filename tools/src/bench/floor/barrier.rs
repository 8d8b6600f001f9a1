//! A barrier of flags on shared lines: everybody numbers its own line and watches the others'.
//! With a value beside each number it is an all-reduce.

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// All ranks. An operation is a barrier.
pub struct FlagBarrier {
    area: Area,
    rank: u32,
    size: u32,
    epoch: u64,
    reduce: bool,
    polls: u32,
}

/// Most polls before the processor is given away where others need it.
const FEW: u32 = 4;

impl FlagBarrier {
    /// Bare, or (`reduce`) summing one number over all ranks.
    pub fn new(crew: &Crew, reduce: bool) -> Result<FlagBarrier> {
        // Two sets of lines in turn: a fast rank may be one epoch ahead of a slow one.
        let area = crew.block().take(2 * crew.size() as usize * APART)?;
        let polls = if crew.shares_cores() { crew.polls().min(FEW) } else { crew.polls() };
        Ok(FlagBarrier { area, rank: crew.rank(), size: crew.size(), epoch: 0, reduce, polls })
    }

    /// One barrier.
    #[inline(always)]
    pub fn once(&mut self) -> Result<()> {
        self.epoch += 1;
        let epoch = self.epoch;
        let set = (epoch % 2) as usize * self.size as usize * APART;
        let place = |rank: u32| set + rank as usize * APART;
        if self.reduce {
            self.area.word(place(self.rank) + 8).store(epoch + u64::from(self.rank), Relaxed);
        }
        self.area.word(place(self.rank)).store(epoch, Release);
        let mut sum = epoch + u64::from(self.rank);
        for rank in (0..self.size).filter(|&r| r != self.rank) {
            let flag = self.area.word(place(rank));
            spin_for(self.polls, || flag.load(Acquire) >= epoch)?;
            if self.reduce {
                sum += self.area.word(place(rank) + 8).load(Relaxed);
            }
        }
        let n = u64::from(self.size);
        if self.reduce && sum != n * epoch + n * (n - 1) / 2 {
            return Err(Error::invalid("bench", "the bare reduction is wrong"));
        }
        Ok(())
    }
}

impl Side for FlagBarrier {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| self.once())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.once())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn nobody_is_left_behind_and_sums_are_right() {
        for size in [1, 2, 3] {
            exercise(size, |crew| FlagBarrier::new(crew, false));
            exercise(size, |crew| FlagBarrier::new(crew, true));
        }
    }
}
