//! One copy of many bytes from a process that has just written them to another that reads them:
//! what a large message costs at the least.
//!
//! ```text
//! rank 0    writes its buffer |  [copies them]  number -->  ...............  <-- answer |
//! rank 1          all read    |                 sees it     [copies them]    answers    |  reads all
//!                             |<------------------------- timed ----------------------->|
//!
//! flags   0: number (rank 0)   128: answer (rank 1)   256: all read (rank 1; back and forth rank 0)
//!         384 and 512: where the private buffers are (`kernel`)
//! ```
//! The bytes are new every time and read every time, so that they have to come from the writer's
//! cache to the reader's. Who copies, and how, is the [`Way`]. Where the kernel does not copy
//! between processes (CMA), bytes of private memory go in and out of shared memory instead.

use super::kernel::There;
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use hither::{Error, Result};
use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Where the bytes lie, and who copies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Rank 1, out of shared memory that rank 0 wrote.
    OutOfShared,
    /// Rank 0, into shared memory that rank 1 reads.
    IntoShared,
    /// Rank 1, by the kernel (CMA), out of rank 0's private memory.
    OutOfPrivate,
    /// Rank 0, by the kernel, into rank 1's private memory.
    IntoPrivate,
}

impl Way {
    /// What it is called as a limit.
    pub fn name(self) -> &'static str {
        match self {
            Way::OutOfShared => "memcpy by the receiver",
            Way::IntoShared => "memcpy by the sender",
            Way::OutOfPrivate => "CMA by the receiver",
            Way::IntoPrivate => "CMA by the sender",
        }
    }
}

/// Adds up all bytes, so that they are read.
pub fn read_all(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks();
    black_box(words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word))))
}

/// One copy from rank 0 to rank 1. An operation is one of them, answered.
pub struct Handed {
    way: Way,
    flags: Area,
    shared: Area,
    private: Vec<u8>,
    /// The partner's private buffer, if the kernel copies from and to it.
    there: Option<There>,
    rank: u32,
    polls: u32,
    turn: u64,
}

const ANSWER: usize = APART;
const READ_ALL: usize = 2 * APART;
const PLACES: usize = 3 * APART;

impl Handed {
    /// Of `size` bytes, a multiple of 8. Collective.
    pub fn new(crew: &Crew, size: usize, way: Way) -> Result<Handed> {
        let flags = crew.block().take(5 * APART)?;
        let shared = crew.block().take(size)?;
        let (mut private, rank) = (vec![0u8; size], crew.rank());
        let mut there = None;
        if rank < 2 && matches!(way, Way::OutOfPrivate | Way::IntoPrivate) {
            there = There::meet(&flags, PLACES, rank, &mut private)?;
        }
        Ok(Handed { way, flags, shared, private, there, rank, polls: crew.polls(), turn: 0 })
    }

    /// The sender's part of a copy.
    fn give(&mut self) -> Result<()> {
        let size = self.private.len();
        match (self.way, self.there) {
            (Way::OutOfShared, _) | (Way::OutOfPrivate, Some(_)) => Ok(()),
            (Way::IntoPrivate, Some(there)) => there.copy(&mut self.private, false),
            (Way::IntoShared, _) | (_, None) => {
                let (from, to) = (self.private.as_ptr(), self.shared.bytes(0, size));
                // SAFETY: both have that size; the receiver has read the last bytes, and looks
                // for new ones only after the number.
                unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
                Ok(())
            }
        }
    }

    /// The receiver's.
    fn get(&mut self) -> Result<()> {
        let size = self.private.len();
        match (self.way, self.there) {
            (Way::IntoShared, _) | (Way::IntoPrivate, Some(_)) => Ok(()),
            (Way::OutOfPrivate, Some(there)) => there.copy(&mut self.private, true),
            (Way::OutOfShared, _) | (_, None) => {
                let (from, to) = (self.shared.bytes(0, size), self.private.as_mut_ptr());
                // SAFETY: both have that size; the sender waits for the answer.
                unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
                Ok(())
            }
        }
    }

    /// Rank 0 writes new bytes, once rank 1 has read the last ones.
    fn prepare(&mut self) -> Result<()> {
        let (read, turn) = (self.flags.word(READ_ALL), self.turn);
        spin_for(self.polls, || read.load(Acquire) == turn)?;
        self.turn += 1;
        let (byte, size) = (self.turn as u8, self.private.len());
        if self.way == Way::OutOfShared {
            // SAFETY: as long as the area, which rank 1 reads only between a number and its answer.
            unsafe { self.shared.bytes(0, size).write_bytes(byte, size) };
        } else {
            self.private.fill(byte);
        }
        black_box(&self.private);
        Ok(())
    }

    /// Rank 0 hands the bytes over and waits for the answer.
    fn hand(&mut self) -> Result<()> {
        self.give()?;
        self.flags.word(0).store(self.turn, Release);
        let (answer, turn) = (self.flags.word(ANSWER), self.turn);
        spin_for(self.polls, || answer.load(Acquire) == turn)
    }

    /// Rank 1 takes the bytes, answers, and reads them.
    fn take(&mut self) -> Result<()> {
        self.turn += 1;
        let (number, turn, size) = (self.flags.word(0), self.turn, self.private.len());
        spin_for(self.polls, || number.load(Acquire) == turn)?;
        self.get()?;
        self.flags.word(ANSWER).store(turn, Release);
        let sum = if self.way == Way::IntoShared {
            // SAFETY: rank 0 writes to it again only after the number below.
            read_all(unsafe { std::slice::from_raw_parts(self.shared.bytes(0, size), size) })
        } else {
            // Another process wrote to it.
            read_all(black_box(&self.private))
        };
        let word = u64::from_ne_bytes([turn as u8; 8]);
        if sum != word.wrapping_mul(size as u64 / 8) {
            return Err(Error::invalid("bench", "the copied bytes are not what was written"));
        }
        self.flags.word(READ_ALL).store(turn, Release);
        Ok(())
    }
}

impl Side for Handed {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let side = std::cell::RefCell::new(self);
        meter.parts(count, |_| side.borrow_mut().prepare(), |_| side.borrow_mut().hand())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.rank != 1 {
            return Ok(());
        }
        (0..count).try_for_each(|_| self.take())
    }
}

/// Back and forth, each out of the other's memory. An operation is a round trip.
pub struct HandedBack {
    handed: Handed,
    /// Where both have mapped buffers: rank 0's and rank 1's.
    mapped: Option<[Area; 2]>,
}

impl HandedBack {
    /// Of `size` bytes of private memory. Collective.
    pub fn new(crew: &Crew, size: usize) -> Result<HandedBack> {
        Ok(HandedBack { handed: Handed::new(crew, size, Way::OutOfPrivate)?, mapped: None })
    }

    /// Of `size` bytes of shared memory. Collective.
    pub fn mapped(crew: &Crew, size: usize) -> Result<HandedBack> {
        let handed = Handed::new(crew, size, Way::OutOfShared)?;
        let areas = [crew.block().take(size)?, crew.block().take(size)?];
        Ok(HandedBack { handed, mapped: Some(areas) })
    }

    /// The receiver's part, at either end.
    fn get(&mut self) -> Result<()> {
        let Some(areas) = &self.mapped else { return self.handed.get() };
        let (size, own) = (self.handed.private.len(), self.handed.rank as usize);
        let (from, to) = (areas[1 - own].bytes(0, size), areas[own].bytes(0, size));
        // SAFETY: both have that size; the other waits for a number.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
        Ok(())
    }

    /// The first word of this rank's buffer.
    fn first(&mut self) -> &mut [u8] {
        match &self.mapped {
            // SAFETY: the other reads it only between a number and its answer.
            Some(areas) => unsafe {
                std::slice::from_raw_parts_mut(areas[self.handed.rank as usize].bytes(0, 8), 8)
            },
            None => &mut self.handed.private[..8],
        }
    }
}

impl Side for HandedBack {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.run(count, |_| {
            self.handed.turn += 1;
            let turn = self.handed.turn.to_ne_bytes();
            self.first().copy_from_slice(&turn);
            self.handed.hand()?;
            self.get()
        })?;
        self.handed.flags.word(READ_ALL).store(self.handed.turn, Release);
        let turn = self.handed.turn.to_ne_bytes();
        if *self.first() != turn {
            return Err(Error::invalid("bench", "the copied bytes came back changed"));
        }
        Ok(())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if self.handed.rank != 1 {
            return Ok(());
        }
        for _ in 0..count {
            self.handed.turn += 1;
            let turn = self.handed.turn;
            let number = self.handed.flags.word(0);
            spin_for(self.handed.polls, || number.load(Acquire) == turn)?;
            self.get()?;
            self.handed.give()?;
            // It stays as it is until the next number, by which rank 0 has read it.
            self.handed.flags.word(ANSWER).store(turn, Release);
        }
        // The last one too: this side may be dropped now.
        let (read, turn) = (self.handed.flags.word(READ_ALL), self.handed.turn);
        spin_for(self.handed.polls, || read.load(Acquire) == turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn bytes_arrive_every_way_that_the_system_has() {
        for way in [Way::OutOfShared, Way::IntoShared, Way::OutOfPrivate, Way::IntoPrivate] {
            exercise(2, |crew| Handed::new(crew, 8000, way));
        }
        exercise(3, |crew| HandedBack::new(crew, 8000));
        exercise(2, |crew| HandedBack::mapped(crew, 8000));
    }
}
