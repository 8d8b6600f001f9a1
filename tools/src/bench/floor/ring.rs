//! How fast one producer can feed one consumer: a ring of slots, each with its own number, no
//! message lengths, no kinds, no bells, nobody ever sleeps or dies.
//!
//! ```text
//! 0: consumed (written by rank 1, now and then)      128 + slot * stride: number, then bytes
//! ```

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Release};

/// Slots in the ring.
const SLOTS: u64 = 256;
/// Messages after which the consumer says how far it is.
const REPORT: u64 = SLOTS / 8;

/// Rank 0 produces, rank 1 consumes. An operation is a message.
pub struct Ring {
    area: Area,
    size: usize,
    rank: u32,
    polls: u32,
    position: u64,
    consumed: u64,
    private: Vec<u8>,
}

impl Ring {
    /// For messages of `size` bytes.
    pub fn new(crew: &Crew, size: usize) -> Result<Ring> {
        let area = crew.block().take(APART + SLOTS as usize * Self::stride(size))?;
        let (private, polls) = (vec![0; size.max(8)], crew.polls());
        Ok(Ring { area, size, rank: crew.rank(), polls, position: 0, consumed: 0, private })
    }

    /// A ring for each pair of ranks 2 i and 2 i + 1: that of this rank.
    pub fn of_pair(crew: &Crew, size: usize) -> Result<Ring> {
        let mut own = None;
        for pair in 0..crew.size().div_ceil(2) {
            // Every rank takes the areas of all, or they would not be the same ones.
            let ring = Ring::new(crew, size)?;
            if pair == crew.rank() / 2 {
                own = Some(ring);
            }
        }
        own.ok_or_else(|| Error::invalid("bench", "this rank has no partner"))
    }

    fn stride(size: usize) -> usize {
        (8 + size).next_multiple_of(64)
    }

    fn slot(size: usize, position: u64) -> usize {
        APART + (position % SLOTS) as usize * Self::stride(size)
    }

    /// Sends `count` messages, and waits until all have been consumed.
    pub fn produce(&mut self, count: u64) -> Result<()> {
        let (area, size, head) = (&self.area, self.size, self.area.word(0));
        let (position, consumed, private) =
            (&mut self.position, &mut self.consumed, &mut self.private);
        for _ in 0..count {
            if *position - *consumed == SLOTS {
                spin_for(self.polls, || {
                    *consumed = head.load(Acquire);
                    *position - *consumed < SLOTS
                })?;
            }
            private[..8].copy_from_slice(&position.to_ne_bytes());
            let slot = Self::slot(size, *position);
            let to = area.bytes(slot + 8, size);
            // SAFETY: `to` has room for `size` bytes; the consumer has passed this slot's
            // last message and waits for the number stored below.
            unsafe { std::ptr::copy_nonoverlapping(private.as_ptr(), to, size) };
            *position += 1;
            area.word(slot).store(*position, Release);
        }
        spin_for(self.polls, || head.load(Acquire) == *position)?;
        self.consumed = self.position;
        Ok(())
    }

    /// Takes `count` messages.
    pub fn consume(&mut self, count: u64) -> Result<()> {
        let end = self.position + count;
        while self.position < end {
            let slot = Self::slot(self.size, self.position);
            let (number, next) = (self.area.word(slot), self.position + 1);
            spin_for(self.polls, || number.load(Acquire) == next)?;
            let from = self.area.bytes(slot + 8, self.size);
            // SAFETY: the number says that the bytes are complete, and the producer leaves them
            // alone until this rank reports to have passed them.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.private.as_mut_ptr(), self.size);
            }
            if self.private[..8] != self.position.to_ne_bytes() {
                return Err(Error::invalid("bench", "the bare ring lost a message"));
            }
            self.position = next;
            if next.is_multiple_of(REPORT) || next == end {
                self.area.word(0).store(next, Release);
            }
        }
        Ok(())
    }
}

impl Side for Ring {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| self.produce(count))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.rank == 1 { self.consume(count) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn every_message_arrives_in_order() {
        for size in [8, 128, 512] {
            exercise(2, |crew| Ring::new(crew, size));
        }
    }
}
