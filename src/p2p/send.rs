//! Sending: how a message of a size travels, and waiting for it.
//!
//! | | |
//! |---|---|
//! | small | its data travel with it; over when there is room on the connection |
//! | small, synchronous | the same; over when the receiver says so |
//! | of middle size, in a node | in a buffer of the sender's (`lent`), of which it tells; over when there is room for that |
//! | large, its receive was advertised | copied to where it is wanted; over then |
//! | large, not larger than the eager threshold of this direction | copied to a buffer of the receiver's pool; over when there was room for the message that says so |
//! | large, not larger than the threshold to a peer on another node | its data travel with it; over when there is room for them |
//! | large, or the receiver has too much that nobody asked for | announced; over when the receiver has copied |

use super::counters::count;
use super::eager::{Fill, Filled};
use super::endpoint::Endpoint;
use super::engine::Sending;
use super::express;
use super::fetch::Exposed;
use super::lent;
use super::messenger::{Messenger, Wanted};
use super::outgoing::{Waiting, pack, with_data};
use super::record::{Arrived, Buffer, Place, Record, RecordRef};
use super::wire::{self, Rts, Words};
use crate::base::{Deadline, Error, Result, Slot};
use crate::link::core::Wire;
use crate::link::vc::Numbered;
use crate::shm::node::Node;
use crate::shm::ring::{Headed, Label};
use std::any::Any;
use std::sync::Arc;

/// What a message is sent as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter {
    /// To whom.
    pub to: Slot,
    /// The team's context.
    pub context: u32,
    /// This process's rank in the team.
    pub rank: u32,
    /// The message's tag.
    pub tag: u32,
    /// Code of its elements.
    pub element: u8,
}

impl Letter {
    #[inline(always)]
    pub(super) fn label(&self, kind: u8) -> Result<Label> {
        wire::label(kind, self.context, self.element)
    }

    #[inline(always)]
    fn head(&self) -> u64 {
        wire::head(self.rank, self.tag)
    }

    pub(super) fn fulfilled(&self, len: usize, word: u32) -> Words {
        Words::new([self.head(), len as u64, word.into()])
    }
}

/// Whether a send is over only when its receive has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
}

/// How a send is begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Its memory is the caller's, who may want it back before the end.
    pub borrowed: bool,
    /// The caller waits for the end.
    pub blocks: bool,
    /// A receive that waits for it was looked for, and so was a buffer to lend: neither is there, or the message is
    /// to be announced.
    pub tried: bool,
}

/// What came of sending a message at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Now {
    Sent,
    /// Nothing has happened.
    Untried,
    /// Nothing, but see [`How::tried`].
    Tried,
}

impl Now {
    fn of(sent: bool) -> Now {
        if sent { Now::Sent } else { Now::Untried }
    }
}

const DURING: &str = "send";

impl Endpoint {
    /// Whether a message's data may travel with it.
    #[inline(always)]
    fn is_small(&self, to: Slot, len: usize) -> bool {
        if len > self.messenger.limits.eager {
            return false;
        }
        if !self.node.is_local(to) {
            self.messenger.look_before_far_sends(self.wire());
        }
        !self.messenger.is_pressed(self.wire(), to)
    }

    /// Whether a message's data travel in it, rather than in a buffer of their own.
    #[inline(always)]
    fn is_short(&self, to: Slot, place: &Place) -> bool {
        self.is_small(to, place.len()) && !self.messenger.is_lendable(&self.node, to, place)
    }

    /// Sends a standard message the short way (see [`Endpoint::express`]), if it can be: whether it was sent. If not,
    /// nothing has happened.
    #[inline(always)]
    pub fn send_at_once<const HOW: u8>(&self, letter: &Letter, data: &[u8]) -> bool {
        let Ok(label) = letter.label(wire::EAGER) else { return false };
        self.express::<HOW>(letter.to, label, letter.head(), data)
    }

    /// Sends bytes that lie together. See [`Team::send`](crate::coll::Team::send).
    ///
    /// Cost of a small one on a hot connection: that of [`crate::link::Link::try_send`] with eight bytes
    /// more, and two loads that find that nothing else waits to be sent. Nothing is allocated.
    #[inline]
    pub fn send(
        &self,
        letter: Letter,
        data: &[u8],
        mode: Mode,
        deadline: impl FnOnce() -> Deadline,
    ) -> Result<()> {
        if mode == Mode::Standard && data.len() <= lent::FEW && self.is_small(letter.to, data.len())
        {
            let (head, label) = (letter.head(), letter.label(wire::EAGER)?);
            let payload = Headed(head, data);
            if self.messenger.outgoing.is_empty()
                && self.wire().try_send_numbered(letter.to, label, payload, head)? == Numbered::Sent
            {
                return Ok(());
            }
        }
        // SAFETY: `data` is borrowed until the record is done or given up; it is only read.
        let place = unsafe { Place::flat(data.as_ptr().cast_mut(), data.len()) };
        self.send_place(&letter, place, mode, deadline())
    }

    /// Sends what lies in a place.
    pub fn send_place(
        &self,
        letter: &Letter,
        place: Place,
        mode: Mode,
        deadline: Deadline,
    ) -> Result<()> {
        let len = place.len();
        self.blocking(Some(letter.to), len);
        let now = self.send_now(letter, &place, mode, true)?;
        if now == Now::Sent {
            return Ok(());
        }
        let record = Record::new(Buffer::new(place, letter.element, 1));
        // SAFETY: the record outlives the guard below, which gives it up if it is not done by then;
        // before that nobody keeps the handle.
        let handle = unsafe { RecordRef::new(&record) };
        if mode == Mode::Standard && self.is_short(letter.to, &record.buffer.place) {
            let (head, label) = (letter.head(), letter.label(wire::EAGER)?);
            let outgoing = &self.messenger.outgoing;
            return with_data(&handle, |data| {
                let attempt = || {
                    outgoing.try_send(
                        &self.messenger,
                        self.wire(),
                        letter.to,
                        label,
                        Headed(head, data),
                        head,
                    )
                };
                self.wait_for_room(letter.to, deadline, attempt)
            });
        }
        let guard = GivenUp { endpoint: self, record: &record, to: letter.to };
        let how = How { borrowed: true, blocks: true, tried: now == Now::Tried };
        let begun = self.begin(letter, handle, mode, how)?;
        if let Begun::Over = begun {
            return Ok(());
        }
        self.attend_send(&record);
        let sent = match begun {
            Begun::Words { label, words } => self.wait_for_room(letter.to, deadline, || {
                let outgoing = &self.messenger.outgoing;
                outgoing.try_send(
                    &self.messenger,
                    self.wire(),
                    letter.to,
                    label,
                    words.bytes(),
                    words.first(),
                )
            }),
            Begun::Data { label, head, number } => {
                let data = pack(&handle, &number.to_ne_bytes());
                self.wait_for_room(letter.to, deadline, || {
                    let payload = Headed(head, &data);
                    self.messenger.outgoing.try_send(
                        &self.messenger,
                        self.wire(),
                        letter.to,
                        label,
                        payload,
                        head,
                    )
                })
            }
            Begun::Eager { label, head } => {
                let room = with_data(&handle, |data| {
                    self.wait_for_room(letter.to, deadline, || {
                        let (messenger, payload) = (&self.messenger, Headed(head, data));
                        let (outgoing, wire) = (&messenger.outgoing, self.wire());
                        outgoing.try_send(messenger, wire, letter.to, label, payload, head)
                    })
                });
                // Nobody else has the record.
                std::mem::forget(guard);
                return room;
            }
            Begun::Pooled { label, words, filled } => {
                let room = self.wait_for_room(letter.to, deadline, || {
                    let (outgoing, head) = (&self.messenger.outgoing, words.first());
                    let (messenger, wire) = (&self.messenger, self.wire());
                    outgoing.try_send(messenger, wire, letter.to, label, words.bytes(), head)
                });
                // Nobody else has the record.
                std::mem::forget(guard);
                return room.map(|()| filled.sent());
            }
            Begun::Over => Ok(()),
        };
        let waited = sent.and_then(|()| self.await_sent(&record, letter.to, deadline, || Ok(())));
        if let Err(error) = waited
            && self.give_up_send(&record, letter.to)
        {
            std::mem::forget(guard);
            return Err(error);
        }
        std::mem::forget(guard);
        record.take().map_or(Ok(()), |outcome| outcome.map(drop))
    }

    fn wait_for_room(
        &self,
        to: Slot,
        deadline: Deadline,
        attempt: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let wire = self.wire();
        let progress = || self.messenger.progress(wire).map(drop);
        wire.wait_for_room(to, deadline, DURING, attempt, progress)
    }

    /// Waits for the end of a send. `check` is asked before each sleep.
    pub(super) fn await_sent(
        &self,
        record: &Record,
        to: Slot,
        deadline: Deadline,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let wire = self.wire();
        self.attend_send(record);
        let check = || {
            self.rest_send(record);
            self.messenger.mourn(wire, to).and_then(|()| check())
        };
        let wanted = Wanted { record: Some(record), source: Some(to), beside: false };
        let done = || record.is_done();
        let waited = self.messenger.wait_until(wire, deadline, DURING, wanted, done, check);
        self.leave_send(record);
        waited.map_err(|error| missing(&self.node, error, Some(to)))
    }

    /// Takes the first step of a message that does not simply go: what is to be sent now.
    fn begin(&self, letter: &Letter, handle: RecordRef, mode: Mode, how: How) -> Result<Begun<'_>> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let (to, head) = (letter.to, letter.head());
        let len = handle.get().buffer.place.len();
        if self.node.is_dead(to) {
            return Err(self.node.died(to, DURING));
        }
        let mut sending = Sending::new(handle, to);
        if self.is_small(to, len) && mode == Mode::Synchronous {
            let number = messenger.engine().sendings.insert(sending);
            return Ok(Begun::Data { label: letter.label(wire::EAGER_SYNC)?, head, number });
        }
        let address = handle.get().buffer.place.address();
        let lendable = mode == Mode::Standard
            && messenger.is_lendable(&self.node, to, &handle.get().buffer.place);
        if lendable && len <= messenger.limits.eager {
            if let Some(loan) = messenger.try_lend(wire, to, &handle.get().buffer.place) {
                let filled = Filled::Lent(loan);
                let (label, words) = (letter.label(filled.kind())?, filled.words(head, len));
                return Ok(Begun::Pooled { label, words, filled });
            }
            if !messenger.is_pressed(wire, to) {
                return Ok(Begun::Eager { label: letter.label(wire::EAGER)?, head });
            }
        }
        if let Some(at) = address.filter(|_| !how.tried) {
            messenger.glance(wire)?;
            // SAFETY: the record's memory, which is not changed before the record is done.
            let data = unsafe { std::slice::from_raw_parts(at, len) };
            if messenger.try_fulfil(wire, letter, data)? {
                handle.finish(Ok(Arrived::default()));
                return Ok(Begun::Over);
            }
        }
        let large = len > messenger.limits.eager;
        let mut missed = false;
        if large && mode == Mode::Standard && !messenger.is_pressed(self.wire(), to) {
            if !self.node.is_local(to) && messenger.goes_far(wire, to, len) {
                count(&messenger.counting.pooled);
                return Ok(Begun::Eager { label: letter.label(wire::EAGER)?, head });
            }
            let place = &handle.get().buffer.place;
            let lent = match lendable && !how.tried {
                true => messenger.try_lend_large(wire, to, place, how.blocks)?,
                false => None,
            };
            let filled = lent.map(|loan| Fill::Filled(Filled::Lent(loan)));
            match filled.unwrap_or_else(|| messenger.try_pool(wire, to, place)) {
                Fill::Filled(filled) => {
                    let words = filled.words(head, len);
                    return Ok(Begun::Pooled {
                        label: letter.label(filled.kind())?,
                        words,
                        filled,
                    });
                }
                Fill::Missed => missed = true,
                Fill::No => {}
            }
        }
        if large {
            messenger.note_rendezvous(wire, to, len);
        }
        let local = self.node.is_local(to);
        let claimed = address.filter(|_| how.borrowed && local);
        sending.claim = claimed.and_then(|_| messenger.claims.take(wire.node));
        sending.claim.into_iter().for_each(|name| handle.get().note_claim(name));
        sending.exposed = messenger.expose(wire, to, handle);
        let rts = Rts { missed, ..messenger.rts(sending, how.borrowed || !local) };
        Ok(Begun::Words { label: letter.label(wire::RTS)?, words: rts.words(head) })
    }

    /// Sends a standard message with its data, or in a buffer that is lent, if there is room for it now. Nothing is
    /// allocated, and behind the copy into a buffer comes no locked instruction.
    #[inline]
    pub(super) fn send_now(
        &self,
        letter: &Letter,
        place: &Place,
        mode: Mode,
        blocks: bool,
    ) -> Result<Now> {
        if mode != Mode::Standard {
            return Ok(Now::Untried);
        }
        let (messenger, wire) = (&*self.messenger, self.wire());
        let (to, head, len) = (letter.to, letter.head(), place.len());
        let Some(at) = place.address() else { return Ok(Now::Untried) };
        if len > messenger.limits.eager.max(messenger.limits.lend) || !messenger.outgoing.is_empty()
        {
            return Ok(Now::Untried);
        }
        // SAFETY: the place's memory, which is not changed before the send is over.
        let data = unsafe { std::slice::from_raw_parts(at, len) };
        if self.is_short(to, place) {
            let label = letter.label(wire::EAGER)?;
            let sent = len <= express::MOST && self.send_express(to, label, head, data)
                || wire.try_send_numbered(to, label, Headed(head, data), head)? == Numbered::Sent;
            return Ok(Now::of(sent));
        }
        if !messenger.is_lendable(&self.node, to, place) || messenger.is_pressed(wire, to) {
            return Ok(Now::Untried);
        }
        let loan = match len > messenger.limits.eager {
            false => messenger.try_lend(wire, to, place),
            true if self.node.is_dead(to) => None,
            true => {
                if messenger.try_fulfil_lent(wire, letter, data)? {
                    return Ok(Now::Sent);
                }
                match messenger.try_lend_large(wire, to, place, blocks)? {
                    None => return Ok(Now::Tried),
                    loan => loan,
                }
            }
        };
        let Some(loan) = loan else { return Ok(Now::Untried) };
        let filled = Filled::Lent(loan);
        let (label, words) = (letter.label(filled.kind())?, filled.words(head, len));
        // What the general way keeps on the stack it reads back when the copy's stores are through.
        let sent = self.send_express(to, label, head, &words.bytes()[8..])
            || wire.try_send_numbered(to, label, words.bytes(), head)? == Numbered::Sent;
        if sent {
            filled.sent();
        }
        Ok(Now::of(sent))
    }

    /// Begins a send that goes on after the call. `owner` keeps the record; its memory too unless
    /// that is borrowed.
    ///
    /// # Errors
    /// The end of the peer, and damage. Then the record is not the engine's.
    pub(super) fn begin_send(
        &self,
        letter: &Letter,
        record: &Record,
        owner: Arc<dyn Any + Send + Sync>,
        mode: Mode,
        how: How,
    ) -> Result<()> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let to = letter.to;
        // SAFETY: `owner` keeps it where it is.
        let handle = unsafe { RecordRef::new(record) };
        if mode == Mode::Standard && self.is_short(to, &record.buffer.place) {
            let (head, label) = (letter.head(), letter.label(wire::EAGER)?);
            let sent = with_data(&handle, |data| {
                messenger.outgoing.try_send(messenger, wire, to, label, Headed(head, data), head)
            })?;
            if sent {
                handle.finish(Ok(Arrived::default()));
                return Ok(());
            }
            // SAFETY: nobody has it yet.
            unsafe { record.keep(owner) };
            messenger.outgoing.queue(to, Waiting::Data { label, head, record: handle });
            return messenger.progress(wire).map(drop);
        }
        // SAFETY: as above.
        unsafe { record.keep(owner) };
        let waiting = match self.begin(letter, handle, mode, how) {
            Err(error) => {
                handle.finish(Ok(Arrived::default()));
                return Err(error);
            }
            Ok(Begun::Over) => return Ok(()),
            Ok(Begun::Words { label, words }) => Waiting::Words { label, words, logged: true },
            Ok(Begun::Eager { label, head }) => Waiting::Data { label, head, record: handle },
            Ok(Begun::Data { label, head, number }) => {
                Waiting::Synchronous { label, head, number, record: handle }
            }
            Ok(Begun::Pooled { label, words, filled }) => {
                Waiting::Pooled { label, words, record: handle, filled: filled.keep() }
            }
        };
        messenger.outgoing.send_or_queue(messenger, wire, to, waiting);
        Ok(())
    }

    /// Takes a send back, whose outcome nobody waits for any longer: true if it was not over, and
    /// its memory is the caller's again.
    pub(super) fn give_up_send(&self, record: &Record, to: Slot) -> bool {
        let (messenger, wire) = (&*self.messenger, self.wire());
        loop {
            if record.is_done() {
                return false;
            }
            let unsent = messenger.outgoing.recall(to, |waiting| match waiting {
                Waiting::Data { record: it, .. }
                | Waiting::Pooled { record: it, .. }
                | Waiting::Synchronous { record: it, .. } => it.is(record),
                Waiting::Words { .. } | Waiting::Packet { .. } => false,
            });
            let mut engine = messenger.engine();
            let Some(number) = engine.sending_of(record) else {
                drop(engine);
                if unsent || !record.is_kept() {
                    return record.abandon();
                }
                // Just being ended by another thread.
                crate::base::sync::yield_now();
                continue;
            };
            let sending = engine.sendings.get_mut(number);
            let free = sending.is_some_and(|sending| {
                sending.busy == 0
                    && sending.claim.is_none_or(|claim| messenger.claims.withdraw(wire.node, claim))
            });
            if free {
                let sending = engine.sendings.remove(number);
                drop(engine);
                sending.map(Sending::withdraw);
                return record.abandon();
            }
            drop(engine);
            // The receiver copies from it: that ends, or the receiver does.
            let _ = messenger.progress(wire);
            let _ = messenger.mourn(wire, to);
        }
    }
}

impl Messenger {
    /// Keeps a send and makes its announcement.
    fn rts(&self, sending: Sending, borrowed: bool) -> Rts {
        count(&self.counting.announced);
        let (place, claim) = (&sending.record.get().buffer.place, sending.claim);
        let readable = place.address().is_some() && (claim.is_some() || !borrowed);
        let exposed = sending.exposed.as_ref().map(Exposed::remote);
        let address = match exposed {
            Some(remote) => remote.address,
            None => place.address().map_or(0, |at| at.addr() as u64),
        };
        let key = exposed.map(|remote| remote.key);
        let length = place.len() as u64;
        let number = self.engine().sendings.insert(sending);
        Rts { length, address, number, claim, key, readable, missed: false }
    }

    /// Announces a message whose data were to travel with it. Its memory may be borrowed.
    pub(super) fn announce(
        &self,
        wire: Wire<'_>,
        to: Slot,
        record: RecordRef,
        label: Label,
        head: u64,
    ) -> Result<Waiting> {
        let flat = record.get().buffer.place.address().is_some();
        let shared = flat && wire.node.is_local(to);
        let claim = if shared { self.claims.take(wire.node) } else { None };
        let rts = self.rts(Sending { claim, ..Sending::new(record, to) }, true);
        let label = Label::new(wire::RTS, label.imm())?;
        Ok(Waiting::Words { label, words: rts.words(head), logged: true })
    }
}

/// What is to be sent of a message that has begun.
enum Begun<'a> {
    Words {
        label: Label,
        words: Words,
    },
    Data {
        label: Label,
        head: u64,
        number: u64,
    },
    /// With its data, to another node.
    Eager {
        label: Label,
        head: u64,
    },
    /// About data that are in a buffer of the receiver's already.
    Pooled {
        label: Label,
        words: Words,
        filled: Filled<'a>,
    },
    /// Nothing: it is over.
    Over,
}

/// Gives a record on the stack up if a panic takes it away.
struct GivenUp<'a> {
    endpoint: &'a Endpoint,
    record: &'a Record,
    to: Slot,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.endpoint.give_up_send(self.record, self.to);
    }
}

/// Names who is waited for.
pub(super) fn missing(node: &Node, error: Error, slot: Option<Slot>) -> Error {
    match (error, slot) {
        (Error::TimedOut { during, waited, .. }, Some(slot)) => {
            Error::TimedOut { during, waited, missing: vec![node.rank_of(slot)] }
        }
        (other, _) => other,
    }
}
