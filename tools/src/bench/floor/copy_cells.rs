//! What moving bytes through shared memory costs: copied in by one core, copied out by the
//! other, and the same way back.
//!
//! ```text
//! one cell per direction:  0: number of the message   8..8+size: its bytes
//! ```
//! Number and bytes stand together, so that a message of up to 56 B is one cache line.

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Release};

/// Copy in and copy out between ranks 0 and 1. An operation is a round trip.
pub struct CopyCells {
    area: Area,
    size: usize,
    rank: u32,
    polls: u32,
    turn: u64,
    private: Vec<u8>,
}

impl CopyCells {
    /// For messages of `size` bytes.
    pub fn new(crew: &Crew, size: usize) -> Result<CopyCells> {
        let area = crew.block().take(2 * Self::stride(size))?;
        let (rank, polls, private) = (crew.rank(), crew.polls(), vec![0; size.max(8)]);
        Ok(CopyCells { area, size, rank, polls, turn: 0, private })
    }

    fn stride(size: usize) -> usize {
        (8 + size).next_multiple_of(APART)
    }

    fn cell(&self, direction: usize) -> usize {
        direction * Self::stride(self.size)
    }
}

/// Copies a message in and numbers it.
#[inline(always)]
fn put(area: &Area, cell: usize, turn: u64, private: &[u8], size: usize) {
    let to = area.bytes(cell + 8, size);
    // SAFETY: `to` has room for `size` bytes, which only this rank touches until it has stored
    // the number: the other waits for it. The private buffer has at least `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(private.as_ptr(), to, size) };
    area.word(cell).store(turn, Release);
}

/// Waits for a number and copies its message out.
#[inline(always)]
fn get(
    area: &Area,
    cell: usize,
    turn: u64,
    private: &mut [u8],
    size: usize,
    polls: u32,
) -> Result<()> {
    let flag = area.word(cell);
    spin_for(polls, || flag.load(Acquire) == turn)?;
    let from = area.bytes(cell + 8, size);
    // SAFETY: as in `put`; after the number the writer leaves the bytes alone until this rank
    // has answered.
    unsafe { std::ptr::copy_nonoverlapping(from, private.as_mut_ptr(), size) };
    Ok(())
}

impl Side for CopyCells {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let (there, back, size, polls) = (self.cell(0), self.cell(1), self.size, self.polls);
        let (area, private, mut turn) = (&self.area, &mut self.private, self.turn);
        meter.run(count, |_| {
            turn += 1;
            private[..8].copy_from_slice(&turn.to_ne_bytes());
            put(area, there, turn, private, size);
            get(area, back, turn, private, size, polls)
        })?;
        self.turn = turn;
        if self.private[..8] != turn.to_ne_bytes() {
            return Err(Error::invalid("bench", "the copied bytes came back changed"));
        }
        Ok(())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.rank != 1 {
            return Ok(());
        }
        let (there, back, size, polls) = (self.cell(0), self.cell(1), self.size, self.polls);
        for _ in 0..count {
            self.turn += 1;
            self.private[..8].fill(0);
            get(&self.area, there, self.turn, &mut self.private, size, polls)?;
            put(&self.area, back, self.turn, &self.private, size);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn bytes_come_back_unchanged_at_every_size() {
        for size in [8, 56, 64, 512, 5000] {
            exercise(2, |crew| CopyCells::new(crew, size));
        }
    }
}
