//! What becomes of a message that has come: which receive it goes to, or where it is kept.
//!
//! ```text
//!   a label's kind --- data, announcement, pooled ---> matching ---> its receive | unexpected
//!                  `-- the rest: answers, pieces, switches, what peers finished
//! ```
//! A match takes the engine's lock for as long as it takes, once for each message.

use super::claim;
use super::copiers::Who;
use super::eager::Pooled;
use super::engine::{Body, Data, Engine, Posted, Unexpected};
use super::matching::{Arrive, Envelope};
use super::messenger::Messenger;
use super::record::{Arrived, RecordRef};
use super::transfer::{Due, given_up};
use super::wire::{self, Rts, Words};
use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::link::Message;
use crate::link::core::Wire;
use crate::shm::ring::Label;

/// Bytes that are copied out of a buffer while messages are received: no more than a message may bring itself.
const AT_ONCE: usize = 8192;

impl Messenger {
    /// Takes one message of a connection; the receive that it has ended at once, if any.
    #[inline]
    pub(super) fn take(&self, wire: Wire<'_>, message: Message<'_>) -> Option<RecordRef> {
        if message.kind == wire::EAGER {
            let Some((head, data)) = message.bytes.split_first_chunk::<8>() else {
                self.damage(message.from, "a message without a head");
                return None;
            };
            return self.whole(wire, &message, u64::from_ne_bytes(*head), data, None);
        }
        self.take_other(wire, message);
        None
    }

    #[inline(never)]
    fn take_other(&self, wire: Wire<'_>, message: Message<'_>) {
        let from = message.from;
        let local = wire.node.is_local(from);
        let taken = match message.kind {
            wire::PIECE if !local => self.far_piece_came(wire, from, message.bytes),
            wire::PRESSURE if !local => {
                wire::words(message.bytes).map(|[pressed]| self.pressure_came(from, pressed))
            }
            // These speak of memory that both sides have.
            wire::FULFILLED
            | wire::DATA
            | wire::ADVERT
            | wire::POOL
            | wire::LENT
            | wire::HELP
            | wire::HELPED
            | wire::SWITCH
                if !local =>
            {
                None
            }
            wire::EAGER_SYNC => match message.bytes.split_at_checked(16) {
                Some((first, data)) => wire::words(first).map(|[head, number]| {
                    self.whole(wire, &message, head, data, Some(number));
                }),
                None => None,
            },
            wire::RTS => Rts::read(message.bytes).map(|(head, rts)| {
                self.announced(wire, &message, head, rts);
            }),
            wire::FULFILLED => wire::words(message.bytes).map(|[head, length, advert]| {
                self.fulfilled(wire, &message, head, length, advert);
            }),
            wire::FIN => wire::words(message.bytes).map(|[number]| {
                self.finished(wire, from, number, message.imm as u8);
            }),
            wire::CTS => wire::words(message.bytes).map(|[number, stream, buffer, size]| {
                self.asked_for(wire, from, number, stream, buffer, size);
            }),
            wire::DATA => wire::words(message.bytes).map(|[stream, buffer, position, len]| {
                self.piece_came(from, stream, buffer, position, len);
            }),
            wire::ABORT => {
                wire::words(message.bytes).map(|[stream]| self.aborted(wire, from, stream))
            }
            wire::HELP => {
                wire::words(message.bytes).map(|words| self.help_wanted(wire.node, from, words))
            }
            wire::HELPED => wire::words(message.bytes)
                .map(|[stream]| self.helped(wire, from, stream, message.imm == 0)),
            wire::ADVERT => wire::words(message.bytes).map(|words: [u64; 5]| {
                self.advertised(wire, from, message.imm, words);
            }),
            wire::POOL => wire::words(message.bytes).and_then(|[head, length, place]| {
                let pooled = self.pooled(from, length, place)?;
                self.pooled_came(wire, &message, head, pooled);
                Some(())
            }),
            wire::LENT => wire::words(message.bytes).and_then(|[head, length, place]| {
                let pooled = self.borrowed(wire.node, from, length, place)?;
                self.pooled_came(wire, &message, head, pooled);
                Some(())
            }),
            wire::SWITCH => {
                wire::words(message.bytes).map(|words| self.packet_came(wire, from, words))
            }
            _ => None,
        };
        if taken.is_none() {
            self.damage(from, &format!("a message of kind {:#x}", message.kind));
        }
    }

    /// A message with its data.
    #[inline]
    fn whole(
        &self,
        wire: Wire<'_>,
        message: &Message<'_>,
        head: u64,
        data: &[u8],
        number: Option<u64>,
    ) -> Option<RecordRef> {
        let (context, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let envelope = Envelope { context, source: message.from, tag };
        let mut engine = self.engine();
        engine.peers.get(message.from).taken += 1;
        let ended = self.match_arrived(wire, &mut engine, &envelope);
        match ended {
            Some(record) => {
                drop(engine);
                record.deliver(Arrived { rank, tag, bytes: data.len() }, element, data);
                if let Some(number) = number {
                    self.tell_finished(wire, message.from, number, wire::RECEIVED);
                }
            }
            None => {
                let body = Body::Whole(Data::new(data), number);
                engine.keep(envelope, Unexpected { rank, element, body });
                self.counting.unexpected(&engine);
                if engine.held > self.limits.unexpected {
                    wire.port(wire.node.slot()).pressure.store(1, Ordering::Relaxed);
                    self.press(wire, message.from);
                }
            }
        }
        ended
    }

    /// The receive that takes a message that has come.
    #[inline]
    fn match_arrived(
        &self,
        wire: Wire<'_>,
        engine: &mut Engine,
        envelope: &Envelope,
    ) -> Option<RecordRef> {
        match engine.matching.arrive(envelope) {
            Arrive::Matched(_, Posted { record, advert: None, .. }) => Some(record),
            Arrive::Matched(_, posted) => self.match_advertised(wire, engine, envelope, posted),
            Arrive::Unexpected => None,
        }
    }

    /// An announcement.
    fn announced(&self, wire: Wire<'_>, message: &Message<'_>, head: u64, rts: Rts) {
        let (context, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let envelope = Envelope { context, source: message.from, tag };
        if let Some(name) = rts.claim.filter(|_| wire.node.is_local(message.from)) {
            // Looked at and changed a moment later: in one transfer of its line.
            claim::ask_for(wire.node, message.from, name);
        }
        if rts.missed {
            self.defer(Due::Missed { from: message.from, len: rts.length });
        }
        let mut engine = self.engine();
        engine.peers.get(message.from).taken += 1;
        match self.match_arrived(wire, &mut engine, &envelope) {
            Some(record) => {
                drop(engine);
                let arrived = Arrived { rank, tag, bytes: rts.length as usize };
                self.meet(wire, record, message.from, arrived, element, rts);
            }
            None => {
                let body = Body::Announced(rts);
                engine.keep(envelope, Unexpected { rank, element, body });
                self.counting.unexpected(&engine);
            }
        }
    }

    /// A message in a buffer.
    fn pooled_came(&self, wire: Wire<'_>, message: &Message<'_>, head: u64, pooled: Pooled) {
        let (context, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let envelope = Envelope { context, source: message.from, tag };
        let mut engine = self.engine();
        engine.peers.get(message.from).taken += 1;
        match self.match_arrived(wire, &mut engine, &envelope) {
            Some(record) => {
                drop(engine);
                let arrived = Arrived { rank, tag, bytes: pooled.len };
                if pooled.len <= AT_ONCE {
                    return self.drain(wire, record, arrived, element, pooled, true);
                }
                self.defer(Due::Drain { record, arrived, element, pooled });
            }
            None => {
                let body = Body::Pooled(pooled);
                engine.keep(envelope, Unexpected { rank, element, body });
                self.counting.unexpected(&engine);
            }
        }
    }

    /// An announced message has met its receive: what comes of it.
    pub(super) fn meet(
        &self,
        wire: Wire<'_>,
        record: RecordRef,
        from: Slot,
        arrived: Arrived,
        element: u8,
        rts: Rts,
    ) {
        if let Err(error) = record.get().admit(arrived, element) {
            self.tell_finished(wire, from, rts.number, wire::RECEIVED);
            return record.finish(Err(error));
        }
        self.defer(Due::Pull { record, from, arrived, rts });
    }

    /// A message that was unexpected has met its receive.
    pub(super) fn meet_unexpected(
        &self,
        wire: Wire<'_>,
        record: RecordRef,
        envelope: Envelope,
        message: Unexpected,
    ) {
        let bytes = message.len();
        let arrived = Arrived { rank: message.rank, tag: envelope.tag, bytes };
        match message.body {
            Body::Whole(data, number) => {
                record.deliver(arrived, message.element, data.bytes());
                if let Some(number) = number {
                    self.tell_finished(wire, envelope.source, number, wire::RECEIVED);
                }
            }
            Body::Announced(rts) => {
                self.meet(wire, record, envelope.source, arrived, message.element, rts);
            }
            Body::Pooled(pooled) => {
                self.drain(wire, record, arrived, message.element, pooled, false);
            }
        }
    }

    /// Tells senders that they may send small messages again, if so.
    #[inline]
    pub(super) fn relieve(&self, wire: Wire<'_>, engine: &Engine) {
        let pressure = &wire.port(wire.node.slot()).pressure;
        if pressure.load(Ordering::Relaxed) != 0 && engine.held <= self.limits.unexpected / 2 {
            pressure.store(0, Ordering::Relaxed);
            self.unpress(wire);
        }
    }

    /// Tells the sender of a message that it was received.
    pub(super) fn tell_finished(&self, wire: Wire<'_>, to: Slot, number: u64, status: u8) {
        if let Ok(label) = Label::new(wire::FIN, status.into()) {
            self.outgoing.note(wire, to, label, Words::new([number]));
        }
    }

    /// A receiver has what was announced (or gave it up).
    fn finished(&self, wire: Wire<'_>, from: Slot, number: u64, status: u8) {
        let mut engine = self.engine();
        if engine.sendings.get_mut(number).is_none_or(|sending| sending.to != from) {
            // Given up meanwhile.
            return;
        }
        let Some(sending) = engine.sendings.remove(number) else { return };
        drop(engine);
        if let Some(claim) = sending.claim {
            self.claims.release(wire.node, claim);
        }
        let outcome = match status {
            wire::RECEIVED => Ok(Arrived::default()),
            wire::COPIED => {
                self.saw_copied(wire.node, from, &sending, Who::Receiver);
                Ok(Arrived::default())
            }
            _ => Err(given_up(wire.node, from, "sending a message")),
        };
        sending.conclude().finish(outcome);
    }
}
