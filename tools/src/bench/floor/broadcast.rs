//! A word from ranks 0 and 1 in turn to all: written once, read by everybody else.
//!
//! ```text
//! 128 i         0: number of the broadcast   8: its value           (SLOTS of them)
//! 128 (SLOTS + r)  broadcasts that rank r has been through
//! ```

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const SLOTS: u64 = 16;

/// All ranks. An operation is a broadcast of 8 bytes.
pub struct FlagBroadcast {
    area: Area,
    rank: u32,
    size: u32,
    polls: u32,
    /// Broadcasts that this rank has been through.
    at: u64,
    /// Broadcasts that all are known to have been through.
    passed: u64,
}

impl FlagBroadcast {
    /// Collective.
    pub fn new(crew: &Crew) -> Result<FlagBroadcast> {
        let (rank, size, polls) = (crew.rank(), crew.size(), crew.polls());
        let area = crew.block().take((SLOTS as usize + size as usize) * APART)?;
        Ok(FlagBroadcast { area, rank, size, polls, at: 0, passed: 0 })
    }

    fn progress(&self, rank: u32) -> usize {
        (SLOTS as usize + rank as usize) * APART
    }

    fn once(&mut self) -> Result<()> {
        let number = self.at + 1;
        let slot = (self.at % SLOTS) as usize * APART;
        let root = self.at % u64::from(self.size.min(2));
        let value = number.wrapping_mul(3);
        if u64::from(self.rank) == root {
            if self.at >= self.passed + SLOTS {
                let mut least = self.at;
                for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                    let progress = self.area.word(self.progress(rank));
                    spin_for(self.polls, || progress.load(Acquire) + SLOTS > self.at)?;
                    least = least.min(progress.load(Relaxed));
                }
                self.passed = least;
            }
            self.area.word(slot + 8).store(value, Relaxed);
            self.area.word(slot).store(number, Release);
        } else {
            let flag = self.area.word(slot);
            spin_for(self.polls, || flag.load(Acquire) == number)?;
            if self.area.word(slot + 8).load(Relaxed) != value {
                return Err(Error::invalid("bench", "the bare broadcast is wrong"));
            }
        }
        self.at = number;
        if number.is_multiple_of(SLOTS / 2) {
            self.area.word(self.progress(self.rank)).store(number, Release);
        }
        Ok(())
    }
}

impl Side for FlagBroadcast {
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
    fn everybody_gets_every_word() {
        for size in [1, 2, 3, 4] {
            exercise(size, FlagBroadcast::new);
        }
    }
}
