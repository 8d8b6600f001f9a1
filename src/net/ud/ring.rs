//! What one side has under way to the other.
//!
//! ```text
//!    una                 sent            queued                   bit i of the masks: una + i
//!     | done | flying | lost | flying |  waiting |  room  |
//!     waiting: to be sent, for the first time or again; done: acknowledged ahead of una
//! ```

use super::config::SPAN;
use super::round_trip::RoundTrip;
use super::{Buffer, Buffers, Counters};
use crate::net::wire::Reject;

/// Datagrams sent after one and acknowledged before it is taken for lost, to begin with.
const AHEAD: u32 = 3;
/// The most that this becomes.
const MOST_AHEAD: u32 = 32;
/// Datagrams under way to begin with.
const BEGIN: u32 = 16;
/// However many are lost, so many may be under way.
const LEAST: u32 = 4;
/// A loss of more than one in so many of a round is taken for the receiver's or a switch's.
const TOLERATED: u32 = 16;

#[derive(Default, Debug)]
struct Slot {
    buffer: Option<Buffer>,
    length: u16,
    /// How often it was sent, or 255.
    times: u8,
    /// Others may join the messages in it, as long as it has not been sent.
    open: bool,
    /// Messages that are whole with it.
    messages: u16,
    /// Counts sendings.
    order: u32,
    sent: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    slots: [Slot; SPAN as usize],
    /// The sequence number of bit 0.
    una: u32,
    /// Datagrams from `una` on that there are, and of those, that were sent once at least.
    queued: u32,
    sent: u32,
    waiting: u64,
    done: u64,
    /// Up to which the peer has given credit, and how many may be under way besides.
    limit: u32,
    allowed: u32,
    /// Counts sendings; and the latest that was acknowledged.
    order: u32,
    latest: u32,
    /// See [`AHEAD`].
    ahead: u32,
    /// A round ends when what was sent after its beginning is acknowledged.
    round: u32,
    round_acked: u32,
    round_lost: u32,
}

/// What an acknowledgement has told.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Acked {
    /// Datagrams that were not known to have arrived.
    pub new: u32,
    /// Messages that are now complete at the other side.
    pub messages: u32,
}

impl Ring {
    pub fn new(first: u32, credit: u32) -> Ring {
        Ring {
            slots: std::array::from_fn(|_| Slot::default()),
            una: first,
            queued: 0,
            sent: 0,
            waiting: 0,
            done: 0,
            limit: first.wrapping_add(credit),
            allowed: BEGIN,
            order: 0,
            latest: 0,
            ahead: AHEAD,
            round: 0,
            round_acked: 0,
            round_lost: 0,
        }
    }

    /// The sequence number of the next datagram.
    pub fn next(&self) -> u32 {
        self.una.wrapping_add(self.queued)
    }

    /// Credit that is left from `una` on.
    pub fn credit(&self) -> u32 {
        let credit = self.limit.wrapping_sub(self.una);
        if credit > SPAN { 0 } else { credit }
    }

    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// How many are under way.
    pub fn flying(&self) -> u32 {
        self.queued - (self.waiting | self.done).count_ones()
    }

    fn at(&mut self, bit: u32) -> &mut Slot {
        &mut self.slots[(self.una.wrapping_add(bit) % SPAN) as usize]
    }

    /// Whether one more would fit.
    pub fn has_room(&self, span: u32) -> bool {
        self.queued < span
    }

    /// One more to be sent: its length, whether a message ends in it, and whether others may follow.
    pub fn push(&mut self, buffer: Buffer, length: u16, ends: bool, open: bool) {
        let (bit, messages) = (self.queued, u16::from(ends));
        *self.at(bit) = Slot { buffer: Some(buffer), length, messages, open, ..Slot::default() };
        self.waiting |= 1 << bit;
        self.queued += 1;
    }

    /// The latest datagram and its length, if another message may still be put into it.
    #[inline]
    pub fn latest_open(&self) -> Option<(&Buffer, usize)> {
        let bit = self.queued.checked_sub(1)?;
        let slot = &self.slots[(self.una.wrapping_add(bit) % SPAN) as usize];
        let buffer = slot.buffer.as_ref().filter(|_| slot.open && slot.times == 0)?;
        Some((buffer, usize::from(slot.length)))
    }

    /// One was, and it is so long now; whether more may follow.
    pub fn joined(&mut self, length: u16, open: bool) {
        if let Some(bit) = self.queued.checked_sub(1) {
            let slot = self.at(bit);
            (slot.length, slot.messages, slot.open) = (length, slot.messages + 1, open);
        }
    }

    /// Whether it is the latest, and other messages may join those in it.
    #[inline]
    pub fn is_latest_open(&self, bit: u32) -> bool {
        bit + 1 == self.queued && self.latest_open().is_some()
    }

    /// The first one to be sent now, if any may be.
    #[inline]
    pub fn sendable(&self) -> Option<u32> {
        if self.waiting == 0 || self.flying() >= self.allowed {
            return None;
        }
        let bit = self.waiting.trailing_zeros();
        (bit < self.credit()).then_some(bit)
    }

    /// What to send of it: its buffer, its length, its sequence number, whether it was sent before.
    #[inline]
    pub fn datagram(&self, bit: u32) -> Option<(&Buffer, usize, u32, bool)> {
        let sequence = self.una.wrapping_add(bit);
        let slot = &self.slots[(sequence % SPAN) as usize];
        Some((slot.buffer.as_ref()?, usize::from(slot.length), sequence, slot.times > 0))
    }

    /// It has been sent.
    #[inline]
    pub fn note_sent(&mut self, bit: u32, now: u64) {
        self.waiting &= !(1 << bit);
        self.sent = self.sent.max(bit + 1);
        self.order = self.order.wrapping_add(1);
        let order = self.order;
        let slot = self.at(bit);
        slot.times = slot.times.saturating_add(1);
        (slot.order, slot.sent) = (order, now);
    }

    /// The peer acknowledges. What cannot be changes nothing.
    pub fn acknowledge(
        &mut self,
        (acknowledged, selective, credit): (u32, u64, u32),
        now: u64,
        trip: &mut RoundTrip,
        buffers: &mut Buffers,
        counters: &mut Counters,
    ) -> Result<Acked, Reject> {
        let count = acknowledged.wrapping_sub(self.una);
        if count > 1 << 31 {
            // An old one that was overtaken. What it says is known.
            return Ok(Acked::default());
        }
        // The one right behind `acknowledged` has not come, so none of `selective` is without it.
        let most = if selective == 0 { count } else { count + 65 - selective.leading_zeros() };
        if most > self.sent {
            return Err(Reject::Sequence);
        }
        let (mut acked, mut measured) = (Acked::default(), None);
        let bits = below(count) | selective.checked_shl(count + 1).unwrap_or(0);
        let mut new = bits & !self.done;
        while new != 0 {
            let bit = new.trailing_zeros();
            new &= new - 1;
            self.arrived(bit, now, trip, buffers, counters, &mut measured);
            acked.new += 1;
        }
        acked.messages = (0..count).map(|bit| u32::from(self.at(bit).messages)).sum();
        self.done |= bits;
        self.waiting &= !self.done;
        self.done = self.done.checked_shr(count).unwrap_or(0);
        self.waiting = self.waiting.checked_shr(count).unwrap_or(0);
        (self.queued, self.sent) = (self.queued - count, self.sent - count);
        self.una = acknowledged;
        let limit = acknowledged.wrapping_add(credit.min(SPAN));
        if limit.wrapping_sub(self.limit) <= SPAN {
            self.limit = limit;
        }
        if acked.new > 0 {
            match measured {
                Some((_, took)) => trip.note(took),
                None => trip.progress(),
            }
            self.round_acked += acked.new;
            self.find_lost();
            self.end_round();
        }
        Ok(acked)
    }

    fn arrived(
        &mut self,
        bit: u32,
        now: u64,
        trip: &RoundTrip,
        buffers: &mut Buffers,
        counters: &mut Counters,
        measured: &mut Option<(u32, u64)>,
    ) {
        let latest = self.latest;
        let slot = self.at(bit);
        if let Some(buffer) = slot.buffer.take() {
            buffers.give(buffer);
        }
        let took = now.saturating_sub(slot.sent);
        let (order, times) = (slot.order, slot.times);
        if order.wrapping_sub(latest) < 1 << 31 {
            self.latest = order;
        }
        // The latest one has waited least for its acknowledgement.
        if times == 1 && measured.is_none_or(|(of, _)| order.wrapping_sub(of) < 1 << 31) {
            *measured = Some((order, took));
        }
        if times > 1 && took < trip.mean() / 2 {
            counters.spurious += 1;
            self.ahead = (self.ahead + 1).min(MOST_AHEAD);
        }
    }

    /// What was sent well before something that has arrived is to be sent again.
    fn find_lost(&mut self) {
        let mut flying = below(self.sent) & !self.waiting & !self.done;
        while flying != 0 {
            let bit = flying.trailing_zeros();
            flying &= flying - 1;
            let (latest, ahead) = (self.latest, self.ahead);
            let slot = self.at(bit);
            let (behind, once) = (latest.wrapping_sub(slot.order), slot.times == 1);
            if behind < 1 << 31 && behind >= ahead {
                self.waiting |= 1 << bit;
                self.round_lost += 1;
            } else if behind >= 1 << 31 && once {
                // First sendings are in order: all further ones are later still.
                break;
            }
        }
    }

    fn end_round(&mut self) {
        if self.latest.wrapping_sub(self.round) >= 1 << 31 {
            return;
        }
        let (acked, lost) = (self.round_acked, self.round_lost);
        if lost * TOLERATED > acked + lost {
            self.allowed = (self.allowed * 3 / 4).max(LEAST);
        } else {
            let more = if lost == 0 { self.allowed } else { 2 };
            self.allowed = (self.allowed + more).min(SPAN);
        }
        (self.round, self.round_acked, self.round_lost) = (self.order.wrapping_add(1), 0, 0);
    }

    /// Nothing came for long: all that are under way count as lost. How many.
    pub fn time_out(&mut self) -> u32 {
        let flying = below(self.sent) & !self.waiting & !self.done;
        self.waiting |= flying;
        self.allowed = (self.allowed / 2).max(LEAST);
        (self.round, self.round_acked, self.round_lost) = (self.order.wrapping_add(1), 0, 0);
        flying.count_ones()
    }

    /// Gives all buffers back.
    pub fn clear(&mut self, buffers: &mut Buffers) {
        for slot in &mut self.slots {
            if let Some(buffer) = slot.buffer.take() {
                buffers.give(buffer);
            }
        }
    }
}

/// The lowest `count` bits.
fn below(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
