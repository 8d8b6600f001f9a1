//! How fast one producer can feed one consumer: a ring of slots, each with its own number, no
//! message lengths, no kinds, no bells, nobody ever sleeps or dies.
//!
//! ```text
//! 0: consumed (written by rank 1, now and then)      128 + slot * stride: number, then bytes
//!                                                    with envelopes: number and tag, length and sender, bytes
//! ```

use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_for};
use crate::bench::duel::Side;
use crate::bench::meter::Meter;
use crate::bench::pages::Pages;
use hither::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most slots in a ring.
const SLOTS: u64 = 256;
/// Fewest.
const FEW: u64 = 4;
/// Bytes of a ring of short messages: they stay in the cores' own caches.
const BYTES: usize = 256 << 10;
/// Bytes of one of large messages, and from which size on: what the consumer has read has left its core's own cache before
/// it is written again, or each copy into the ring would take up to twice as long.
const WIDE: usize = 2 << 20;
const LARGE: usize = 16 << 10;
/// Bytes of a long one, in whose slots the consumer's core has long forgotten what was there before: on some machines
/// several times as fast for short messages.
const LONG: usize = 512 << 10;
const LINE: usize = 64;
const PAGE: usize = 4096;

/// Rank 0 produces, rank 1 consumes. An operation is a message.
pub struct Ring {
    area: Area,
    size: usize,
    stride: usize,
    /// A power of two.
    slots: u64,
    /// Messages after which the consumer says how far it is.
    report: u64,
    rank: u32,
    polls: u32,
    position: u64,
    consumed: u64,
    /// Buffers of `apart` bytes, used in turn; where the next one lies.
    private: Pages<u8>,
    apart: usize,
    turn: usize,
    /// Whether messages have envelopes.
    tagged: bool,
}

/// What the number of a tagged message is joined to: its tag.
const TAG: u64 = 1 << 32;
/// What its length is joined to: its sender.
const SENDER: u64 = 7 << 32;
const LOW: u64 = 0xffff_ffff;

#[inline(always)]
fn first_word(number: u64, tagged: bool) -> u64 {
    if tagged { number & LOW | TAG } else { number }
}

/// Copies bytes; those of a word as one.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    if size == 8 {
        // SAFETY: 8 bytes, by the caller.
        unsafe { to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()) }
    } else {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size) }
    }
}

impl Ring {
    /// For messages of `size` bytes, each on lines of its own.
    pub fn new(crew: &Crew, size: usize) -> Result<Ring> {
        Self::among(crew, size, 1)
    }

    /// The same out of, and into, so many buffers in turn.
    pub fn among(crew: &Crew, size: usize, buffers: usize) -> Result<Ring> {
        let mut ring = Self::with(crew, (size, (8 + size).next_multiple_of(LINE)), false, false)?;
        ring.apart = size.max(8).next_multiple_of(PAGE);
        ring.private = Pages::new(ring.apart * buffers.max(1));
        Ok(ring)
    }

    /// For messages of `size` bytes, one right behind the other; a `long` ring of them or a short one.
    pub fn packed(crew: &Crew, size: usize, long: bool) -> Result<Ring> {
        Self::with(crew, (size, (8 + size).next_multiple_of(8)), false, long)
    }

    /// The same of messages that have a tag, a sender and a length, which the receiver looks at.
    pub fn tagged(crew: &Crew, size: usize, long: bool) -> Result<Ring> {
        Self::with(crew, (size, (16 + size).next_multiple_of(8)), true, long)
    }

    fn with(crew: &Crew, (size, stride): (usize, usize), tagged: bool, long: bool) -> Result<Ring> {
        // Not rounded up: what is asked for stays within the bytes.
        let (bytes, most) = if long { (LONG, LONG as u64) } else { (Self::lap(size), SLOTS) };
        let slots = (1u64 << (bytes / stride).max(1).ilog2()).clamp(FEW, most);
        let area = crew.block().take(if long { Self::long(size) } else { Self::bytes(size) })?;
        Ok(Ring {
            area,
            size,
            stride,
            slots,
            report: (slots / 8).max(1),
            rank: crew.rank(),
            polls: crew.polls(),
            position: 0,
            consumed: 0,
            private: Pages::new(size.max(8)),
            apart: size.max(8),
            turn: 0,
            tagged,
        })
    }

    /// Bytes that are written before it begins anew, about.
    fn lap(size: usize) -> usize {
        if size < LARGE { BYTES } else { WIDE }
    }

    /// Memory for one.
    pub fn bytes(size: usize) -> usize {
        let stride = (16 + size).next_multiple_of(LINE);
        APART + (SLOTS as usize * stride).min(Self::lap(size).max(FEW as usize * stride))
    }

    /// Memory for a long one.
    pub fn long(size: usize) -> usize {
        APART + LONG.max(FEW as usize * (16 + size).next_multiple_of(LINE))
    }

    /// Memory for one of either kind.
    pub fn any(size: usize) -> usize {
        Self::long(size).max(Self::bytes(size))
    }

    /// A ring for each pair of ranks 2 i and 2 i + 1: that of this rank.
    pub fn of_pair(
        crew: &Crew,
        size: usize,
        make: impl FnOnce(&Crew) -> Result<Ring>,
    ) -> Result<Ring> {
        let part = crew.part(2, Self::any(size))?;
        let part = part.ok_or_else(|| Error::invalid("bench", "this rank has no partner"))?;
        make(&part)
    }

    /// Sends `count` messages, and waits until all have been consumed.
    pub fn produce(&mut self, count: u64) -> Result<()> {
        self.send(count)?;
        self.settle()
    }

    /// Waits until all have been consumed.
    fn settle(&mut self) -> Result<()> {
        let (head, position) = (self.area.word(0), self.position);
        spin_for(self.polls, || head.load(Acquire) == position)?;
        self.consumed = position;
        Ok(())
    }

    /// Sends `count` messages.
    fn send(&mut self, count: u64) -> Result<()> {
        let (area, size, head) = (&self.area, self.size, self.area.word(0));
        let (slots, stride, tagged) = (self.slots, self.stride, self.tagged);
        let (position, consumed, apart) = (&mut self.position, &mut self.consumed, self.apart);
        for _ in 0..count {
            if *position - *consumed == slots {
                spin_for(self.polls, || {
                    *consumed = head.load(Acquire);
                    *position - *consumed < slots
                })?;
            }
            let private = &mut self.private[self.turn..];
            self.turn = if private.len() < 2 * apart { 0 } else { self.turn + apart };
            private[..8].copy_from_slice(&position.to_ne_bytes());
            let slot = APART + (*position & (slots - 1)) as usize * stride;
            let to = if tagged {
                area.word(slot + 8).store(size as u64 | SENDER, Relaxed);
                area.bytes(slot + 16, size)
            } else {
                area.bytes(slot + 8, size)
            };
            // SAFETY: `to` has room for `size` bytes; the consumer has passed this slot's
            // last message and waits for the number stored below.
            unsafe { copy(private.as_ptr(), to, size) };
            *position += 1;
            area.word(slot).store(first_word(*position, tagged), Release);
        }
        Ok(())
    }

    /// Takes `count` messages.
    pub fn consume(&mut self, count: u64) -> Result<()> {
        let end = self.position + count;
        while self.position < end {
            let slot = APART + (self.position & (self.slots - 1)) as usize * self.stride;
            let (number, next) = (self.area.word(slot), self.position + 1);
            let first = first_word(next, self.tagged);
            spin_for(self.polls, || number.load(Acquire) == first)?;
            let (mut size, mut at) = (self.size, slot + 8);
            if self.tagged {
                let second = self.area.word(at).load(Relaxed);
                if second & !LOW != SENDER {
                    return Err(Error::invalid("bench", "a message of somebody else"));
                }
                (size, at) = (self.apart.min((second & LOW) as usize), slot + 16);
            }
            let private = &mut self.private[self.turn..];
            self.turn = if private.len() < 2 * self.apart { 0 } else { self.turn + self.apart };
            let from = self.area.bytes(at, size);
            // SAFETY: the number says that the bytes are complete, and the producer leaves them
            // alone until this rank reports to have passed them.
            unsafe { copy(from, private.as_mut_ptr(), size) };
            if private[..8] != self.position.to_ne_bytes() {
                return Err(Error::invalid("bench", "the bare ring lost a message"));
            }
            self.position = next;
            if next & (self.report - 1) == 0 || next == end {
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

/// Two rings, one each way: messages both ways, some at a time. An operation is one each way.
pub struct TwoRings {
    rings: [Ring; 2],
    rank: usize,
}

impl TwoRings {
    /// For messages of `size` bytes between ranks 0 and 1, out of so many buffers in turn.
    pub fn among(crew: &Crew, size: usize, buffers: usize) -> Result<TwoRings> {
        let rings = [Ring::among(crew, size, buffers)?, Ring::among(crew, size, buffers)?];
        Ok(TwoRings { rings, rank: crew.rank() as usize })
    }

    fn run(&mut self, count: u64) -> Result<()> {
        let (some, mut left) = (self.rings[0].slots / 2, count);
        while left > 0 {
            let next = left.min(some);
            self.rings[self.rank].send(next)?;
            self.rings[1 - self.rank].consume(next)?;
            left -= next;
        }
        self.rings[self.rank].settle()
    }
}

impl Side for TwoRings {
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
    fn every_message_arrives_in_order() {
        for size in [8, 128, 512, 5000, 300_000] {
            exercise(2, |crew| Ring::new(crew, size));
            for long in [false, true] {
                exercise(2, |crew| Ring::packed(crew, size, long));
                exercise(2, |crew| Ring::tagged(crew, size, long));
            }
            for buffers in [1, 3] {
                exercise(2, |crew| Ring::among(crew, size, buffers));
                exercise(2, |crew| TwoRings::among(crew, size, buffers));
            }
        }
    }
}
