//! Many large messages, each copied once by the kernel from one private memory to another (CMA), in windows
//! that are answered as a whole: what bandwidth there is without anything in between.
//!
//! ```text
//! a line of flags of each rank   0: windows whose bytes are there      8: messages whose half is done
//!                               16: messages with a place to go to    24: windows taken
//! behind them: where the private memories are (`kernel`)
//!
//! halves    rank 0   bytes are there  ------------------>  [upper half]   half done   ...
//!           rank 1   place there  ---------------------->  [lower half]   (other half)   ...   taken
//! ```
//! A private memory has what goes out, and behind it as much room for what comes in.

use super::kernel::There;
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use crate::bench::pages::Pages;
use hither::{Error, Result};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

const READY: usize = 0;
const DONE: usize = 8;
const PLACED: usize = 16;
const TAKEN: usize = 24;
const PAGE: usize = 4096;

/// Who copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Rank 1 all that rank 0 sends.
    Receiver,
    /// Both a half of each message, once rank 1 has said where so many go to.
    Halves(u64),
    /// Messages go both ways, and each copies what it receives.
    BothWays,
}

/// Windows of messages. An operation is a message, or one each way.
pub struct Copied {
    sharing: Sharing,
    size: usize,
    /// Buffers used in turn.
    buffers: usize,
    /// Messages before an answer.
    window: u64,
    flags: Area,
    own: Pages<u8>,
    there: There,
    rank: u32,
    polls: u32,
    windows: u64,
    messages: u64,
}

impl Copied {
    /// Of `size` bytes, in windows of `window` messages out of `buffers` buffers. None where the system does
    /// not allow it. Collective.
    pub fn new(
        crew: &Crew,
        size: usize,
        (window, buffers): (usize, usize),
        sharing: Sharing,
    ) -> Result<Option<Copied>> {
        let flags = crew.block().take(Self::BYTES)?;
        let (mut own, rank) = (Pages::<u8>::new(2 * buffers * size), crew.rank());
        own[..buffers * size].fill(rank as u8 + 1);
        own[buffers * size..].fill(0);
        let there = There::meet(&flags, 2 * APART, rank, &mut own)?;
        Ok(there.map(|there| Copied {
            sharing,
            size,
            buffers,
            window: window as u64,
            flags,
            own,
            there,
            rank,
            polls: crew.polls(),
            windows: 0,
            messages: 0,
        }))
    }

    /// Memory for one.
    pub const BYTES: usize = 4 * APART;

    fn flag(&self, rank: u32, what: usize) -> &AtomicU64 {
        self.flags.word(rank as usize * APART + what)
    }

    fn say(&self, what: usize, value: u64) {
        self.flag(self.rank, what).store(value, Release);
    }

    fn hear(&self, what: usize, value: u64) -> Result<()> {
        let flag = self.flag(1 - self.rank, what);
        spin_for(self.polls, || flag.load(Acquire) >= value)
    }

    /// Bytes that rank 0 leaves to rank 1, the lower ones.
    fn half(&self) -> usize {
        (self.size / 2).next_multiple_of(PAGE).min(self.size)
    }

    /// Copies the lower `bytes` of the other's message `i` to its place here.
    fn take(&mut self, i: u64, bytes: usize) -> Result<()> {
        let at = i as usize % self.buffers * self.size;
        let into = self.buffers * self.size + at;
        self.there.from(at).copy(&mut self.own[into..into + bytes], true)
    }

    /// Copies the upper half of message `i` to its place there.
    fn give(&mut self, i: u64) -> Result<()> {
        let (at, half) = (i as usize % self.buffers * self.size, self.half());
        let place = self.there.from(self.buffers * self.size + at + half);
        place.copy(&mut self.own[at + half..at + self.size], false)
    }

    /// A window of `count` messages.
    fn window(&mut self, count: u64) -> Result<()> {
        self.windows += 1;
        let (now, sends) = (self.windows, self.rank == 0);
        if sends || self.sharing == Sharing::BothWays {
            self.say(READY, now);
        }
        match self.sharing {
            Sharing::Halves(every) => {
                let (first, mut at) = (self.messages, 0);
                while at < count {
                    let end = count.min(at + every);
                    if sends {
                        self.hear(PLACED, first + end)?;
                        (at..end).try_for_each(|i| self.give(i))?;
                        self.say(DONE, first + end);
                    } else {
                        self.say(PLACED, first + end);
                        self.hear(READY, now)?;
                        (at..end).try_for_each(|i| self.take(i, self.half()))?;
                        self.hear(DONE, first + end)?;
                    }
                    at = end;
                }
            }
            Sharing::Receiver if sends => {}
            Sharing::Receiver | Sharing::BothWays => {
                self.hear(READY, now)?;
                (0..count).try_for_each(|i| self.take(i, self.size))?;
            }
        }
        self.messages += count;
        if !sends || self.sharing == Sharing::BothWays {
            self.say(TAKEN, now);
        }
        if sends || self.sharing == Sharing::BothWays { self.hear(TAKEN, now) } else { Ok(()) }
    }

    fn run(&mut self, count: u64) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let next = left.min(self.window);
            self.window(next)?;
            left -= next;
        }
        self.check()
    }

    /// Whether the first message came whole.
    fn check(&mut self) -> Result<()> {
        if self.rank == 0 && self.sharing != Sharing::BothWays {
            return Ok(());
        }
        let (from, size) = (self.buffers * self.size, self.size);
        let other = (1 - self.rank) as u8 + 1;
        // Another process wrote to it.
        let came = black_box(&mut self.own[from..from + size]);
        if came[0] != other || came[size - 1] != other {
            return Err(Error::invalid("bench", "the copied bytes are not what was sent"));
        }
        (came[0], came[size - 1]) = (0, 0);
        Ok(())
    }
}

impl Side for Copied {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| self.run(count))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        self.run(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::duel::tests::exercise;

    #[test]
    fn messages_come_whole_whoever_copies() {
        for sharing in
            [Sharing::Receiver, Sharing::Halves(1), Sharing::Halves(3), Sharing::BothWays]
        {
            for size in [1000, 5000, 20_000] {
                exercise(2, |crew| {
                    let copied = Copied::new(crew, size, (7, 4), sharing)?;
                    copied.ok_or_else(|| Error::invalid("test", "a process may not copy its own"))
                });
            }
        }
    }
}
