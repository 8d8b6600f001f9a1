//! Copies of large messages, made by whoever makes progress: no lock is held meanwhile.
//!
//! ```text
//!  sender                                 receiver
//!    RTS --------------------------------> match; claim; copy from the sender's memory
//!    done <------------------------- FIN
//!
//!    or, if both wait (see `awake`), each copies a half (see `halves`);
//!    or, if neither can reach the other's memory (see `stream`), or both wait:
//!         <------------- CTS, a buffer each
//!    fill a buffer; DATA ----------------> empty it; CTS again
//! ```

use super::awake::{Waiting, follows, leads};
use super::claim::claim;
use super::copiers::Who;
use super::counters::count;
use super::eager::Pooled;
use super::engine::Stream;
use super::halves::Share;
use super::lent;
use super::messenger::Messenger;
use super::reach::{self, Direction, Reach};
use super::record::{Arrived, RecordRef};
use super::wire::{self, Rts};
use crate::base::{Error, Result, Slot};
use crate::link::core::Wire;
use crate::net::provider::Remote;
use crate::shm::node::Node;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Bytes that are put together at a time for data that do not lie together.
const PACK: usize = 64 << 10;

/// A copy that is due.
#[derive(Debug)]
pub(super) enum Due {
    /// Of an announced message, which a receive has met.
    Pull { record: RecordRef, from: Slot, arrived: Arrived, rts: Rts },
    /// Into a buffer that the receiver gives.
    Push { number: u64, to: Slot, stream: u64, buffer: u64, size: usize },
    /// Of a half, to where the receiver wants it.
    Help { number: u64, to: Slot, stream: u64, address: u64, split: u64, word: u32 },
    /// Out of a buffer that the sender has filled.
    Empty { stream: u64, buffer: u64, position: usize, len: usize },
    /// Nothing to copy: whoever awaits a request that is over is to be woken.
    Wake(Waker),
    /// Out of a buffer of a pool.
    Drain { record: RecordRef, arrived: Arrived, element: u8, pooled: Pooled },
    /// No copy: a sender found no buffer of a pool free.
    Missed { from: Slot, len: u64 },
    /// Neither: packets of a switch have come.
    Packets { from: Slot },
}

impl Due {
    /// Whether it is a whole message, that this side copies.
    pub fn is_pull(&self) -> bool {
        matches!(self, Due::Pull { .. })
    }
}

/// What one side gets whose peer gave the message up. If somebody has died, most likely because of
/// that: then the error names the dead.
pub(super) fn given_up(node: &Node, peer: Slot, during: &'static str) -> Error {
    if node.deaths() > 0
        && let Some(dead) = node.locals().find(|slot| node.has_died(*slot))
    {
        return node.died(dead, during);
    }
    Error::PeerFailed { rank: node.rank_of(peer), during }
}

/// What a receive gets whose message its sender took back.
pub(super) fn taken_back(node: &Node, from: Slot) -> Error {
    given_up(node, from, "receiving a message")
}

impl Messenger {
    /// Makes a copy.
    pub(super) fn carry(&self, wire: Wire<'_>, due: Due) {
        match due {
            // The program's code.
            Due::Wake(waker) => drop(catch_unwind(AssertUnwindSafe(|| waker.wake()))),
            Due::Pull { record, from, arrived, rts } => self.pull(wire, record, from, arrived, rts),
            Due::Push { number, to, stream, buffer, size } => {
                self.push(wire, number, to, stream, buffer, size);
            }
            Due::Help { number, to, stream, address, split, word } => {
                self.help(wire, number, to, stream, (address, split, word));
            }
            Due::Empty { stream, buffer, position, len } => {
                self.empty(wire, stream, buffer, position, len);
            }
            Due::Drain { record, arrived, element, pooled } => {
                self.drain(wire, record, arrived, element, pooled, true);
            }
            Due::Missed { from, len } => self.make_more(wire, from, len),
            Due::Packets { from } => self.take_packets(wire, from),
        }
    }

    /// Copies a message out of a buffer of a pool, or of its sender's. `awaited`: its receive was there first.
    pub(super) fn drain(
        &self,
        wire: Wire<'_>,
        record: RecordRef,
        arrived: Arrived,
        element: u8,
        pooled: Pooled,
        awaited: bool,
    ) {
        let mut asked = self.asked(wire.node, pooled, awaited);
        let outcome = record.get().admit(arrived, element).map(|()| {
            let place = &record.get().buffer.place;
            if let Some(asked) = &mut asked {
                self.probe(wire.node, place, pooled, asked);
            }
            if let Some(from) = self.pooled_at(wire.node, pooled) {
                // SAFETY: `pooled.len` bytes of a buffer that is this process's until it is given
                // back; the record is the engine's, and this thread has it alone.
                unsafe { place.fill(from, pooled.len) };
            }
            arrived
        });
        if let Some(asked) = asked.filter(|_| outcome.is_ok()) {
            self.answer(wire.node, pooled, asked);
        }
        self.give_back(wire.node, pooled);
        record.finish(outcome);
    }

    fn pull(&self, wire: Wire<'_>, record: RecordRef, from: Slot, arrived: Arrived, rts: Rts) {
        let readable = rts.readable && wire.node.is_local(from);
        let shared = readable && reach::is_shared(wire.node, rts.address, rts.length);
        let reach = match readable {
            true if shared => Reach::Mapped,
            true => self.reaches.of(wire.node, from),
            false => Reach::Never,
        };
        let waiting = (reach != Reach::Never)
            .then(|| self.who_waits(wire, record.get(), from, reach, &rts))
            .flatten();
        // Only where there is a choice it is of use to know what it was.
        let crossing = waiting == Some(Waiting::Crossing);
        let together = crossing || waiting == Some(Waiting::Both);
        let copiers = self.reaches.copiers(crossing);
        let led = crossing && !leads(wire.node, from);
        let bytes = arrived.bytes;
        let middle = (bytes <= self.limits.lend).then(|| lent::class_of(bytes));
        let single = bytes <= self.limits.lend.min(lent::SINGLE);
        // What this side lends to others meanwhile crosses it, too: its sender has copies of its own to make.
        let busy = middle.is_some_and(|class| self.judge.got(class)) && single && !crossing;
        // What lies in shared memory is always announced: only of other messages it says which way was chosen.
        let chosen = reach != Reach::Never && !shared && follows(wire.node, from);
        middle.filter(|_| chosen).into_iter().for_each(|class| self.judge.saw(class, true));
        let choice = copiers.ok().filter(|_| together && !led && !busy);
        let who = match (waiting, copiers) {
            (None, _) => Who::Receiver,
            (Some(_), Err(granted)) => granted,
            (Some(_), Ok(_)) if busy => Who::Receiver,
            (Some(_), Ok(copiers)) if led => copiers.follow(bytes, single),
            (Some(Waiting::Both | Waiting::Crossing), Ok(copiers)) => copiers.choose(bytes, single),
            (Some(Waiting::Sender), Ok(copiers)) => copiers.chosen(bytes),
        };
        let stream = |record| Stream {
            record: Some(record),
            from,
            number: rts.number,
            arrived,
            began: self.switching.now(),
            chosen: choice.is_some() && who != Who::Receiver,
            crossing,
            piece: 0,
            granted: 0,
            come: 0,
            buffers: Vec::new(),
            busy: 0,
            half: None,
        };
        let begin = |record| {
            if wire.node.is_local(from) {
                self.ask(wire, stream(record));
            } else {
                let source = rts.key.map(|key| Remote { address: rts.address, key });
                self.fetch(wire, stream(record), source);
            }
        };
        if reach == Reach::Never || together && who == Who::Both {
            return begin(record);
        }
        if waiting == Some(Waiting::Sender)
            && who == Who::Both
            && self.keep(wire, stream(record)).is_ok()
        {
            return;
        }
        match rts.claim.map(|name| claim(wire.node, from, name, false)) {
            None | Some(true) => {}
            Some(false) => return record.finish(Err(taken_back(wire.node, from))),
        }
        let halves = waiting == Some(Waiting::Both) && who == Who::Halves;
        let share = if halves { self.share_of(wire, from, bytes) } else { Share::Receiver };
        if share != Share::Receiver && self.halve(wire, stream(record), share, reach, rts.address) {
            return;
        }
        let alone = if halves { Who::Halves } else { Who::Receiver };
        let began = self.switching.now();
        match self.copy_in(wire, record, from, reach, &rts) {
            Ok(()) => {
                count(&self.counting.pulled);
                let now = self.switching.now();
                if self.switching.has_adapted() {
                    self.switching.moved(bytes, now.saturating_sub(began));
                }
                self.note_copied((choice.map(|_| alone), crossing), bytes, began, now);
                let status = if crossing { wire::COPIED } else { wire::RECEIVED };
                self.tell_finished(wire, from, rts.number, status);
                record.finish(Ok(arrived));
            }
            // The kernel does not do it after all.
            Err(Error::Os { .. }) => {
                self.reaches.forget(from);
                begin(record);
            }
            Err(error) => record.finish(Err(error)),
        }
    }

    /// What an announced message took since its copy could begin; and by whom, if that was chosen, and whether of
    /// messages that cross.
    pub(super) fn note_copied(
        &self,
        (chosen, crossing): (Option<Who>, bool),
        bytes: usize,
        began: u64,
        now: u64,
    ) {
        let time = match (chosen, self.reaches.copiers(crossing)) {
            (Some(who), Ok(copiers)) => copiers.took(who, bytes, began, now),
            _ => now.saturating_sub(began),
        };
        if bytes <= self.limits.lend {
            self.judge.announced(lent::class_of(bytes), bytes, time);
        }
    }

    fn copy_in(
        &self,
        wire: Wire<'_>,
        record: RecordRef,
        from: Slot,
        reach: Reach,
        rts: &Rts,
    ) -> Result<()> {
        let (node, len) = (wire.node, rts.length as usize);
        let place = &record.get().buffer.place;
        if let Some(here) = place.address() {
            // SAFETY: the record is the engine's, this thread has it alone, and it was checked
            // that there is room; what the sender announced stays as it is until FIN.
            return unsafe {
                reach::copy(node, from, reach, here, rts.address, len, Direction::In)
            };
        }
        let mut pack = vec![0u8; PACK.min(len)];
        let mut position = 0;
        while position < len {
            let piece = (len - position).min(PACK);
            // SAFETY: as above; the piece fits.
            unsafe {
                let there = rts.address + position as u64;
                let here = pack.as_mut_ptr();
                reach::copy(node, from, reach, here, there, piece, Direction::In)?;
                place.write(position, &pack[..piece]);
            }
            position += piece;
        }
        Ok(())
    }
}
