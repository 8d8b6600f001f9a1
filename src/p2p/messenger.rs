//! One per process: who takes what has come, and carries out what follows from it.
//!
//! ```text
//!   a call waits:  is it done? --no--> progress: receive (link's lock) --> arrive (engine's lock)
//!        ^                                |
//!        +--------------------------------+-- settle: copies, answers, what found no room: no lock
//! ```
//! Any call makes progress for all; there is a thread only while requests are awaited as futures
//! (see `awaited`). One thread at a time receives, the others
//! see whether their own record is done. A match takes the engine's lock for as long as it takes,
//! small data are copied after it is released, and large ones are left to `settle`, in which any
//! thread takes what is due. Both locks cost the thread that usually takes them no atomic
//! operation.

use super::advert::Adverts;
use super::awaited::Awaited;
use super::claim::Claims;
use super::counters::{Counting, count};
use super::engine::{Body, Data, Engine, Posted, Unexpected};
use super::matching::{Arrive, Envelope, Pattern};
use super::outgoing::Outgoing;
use super::reach::Reaches;
use super::record::{Arrived, Record, RecordRef};
use super::stream::Buffers;
use super::switch::Switching;
use super::transfer::{Due, given_up};
use super::wire::{self, Rts, Words};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Error, Result, Slot, settings};
use crate::link::Message;
use crate::link::biased::{Biased, Guard};
use crate::link::core::{Core, Sink, Wire};
use crate::shm::node::Node;
use crate::shm::park::Pace;
use crate::shm::ring::Label;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sizes that are chosen by settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest message whose data travel with it.
    pub eager: usize,
    /// Memory for unexpected messages above which large and small ones are only announced.
    pub unexpected: usize,
}

/// See the [module](self).
pub struct Messenger {
    engine: Biased<Engine>,
    pub(super) outgoing: Outgoing,
    pub(super) claims: Claims,
    pub(super) reaches: Reaches,
    pub(super) limits: Limits,
    due: Mutex<VecDeque<Due>>,
    /// Copies that are due, and 1 once the messages are damaged.
    work: AtomicU32,
    broken: Mutex<Option<String>>,
    pub(super) counting: Counting,
    pub(super) buffers: Buffers,
    pub(super) adverts: Adverts,
    pub(super) awaited: Awaited,
    pub(super) switching: Switching,
}

impl std::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messenger").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Messenger {
    fn open(node: &Node) -> Result<Messenger> {
        let eager = settings::EAGER_LIMIT.bytes()?;
        let eager = usize::try_from(eager).unwrap_or(usize::MAX);
        let unexpected = settings::UNEXPECTED_LIMIT.bytes()?;
        Ok(Messenger {
            engine: Biased::new(Engine::new()),
            outgoing: Outgoing::default(),
            claims: Claims::default(),
            reaches: Reaches::open(node)?,
            limits: Limits {
                eager: eager.min(wire::MOST_EAGER),
                unexpected: usize::try_from(unexpected).unwrap_or(usize::MAX),
            },
            due: Mutex::default(),
            work: AtomicU32::new(0),
            broken: Mutex::default(),
            counting: Counting::default(),
            buffers: Buffers::default(),
            adverts: Adverts::default(),
            awaited: Awaited::default(),
            switching: Switching::open(eager)?,
        })
    }

    /// The messages of a process: made, and fed by its connections, from the first call on.
    ///
    /// # Errors
    /// Settings that are none.
    pub(crate) fn of(node: &Node, core: &Arc<Core>) -> Result<Arc<Messenger>> {
        let messenger = node.attachment(|| Messenger::open(node))?;
        if core.attach(messenger.clone()) {
            // Who waits here for something else may be waited for by those who send here.
            let (core, messenger) = (Arc::downgrade(core), Arc::downgrade(&messenger));
            node.help_while_waiting(move |node| {
                if let (Some(core), Some(messenger)) = (core.upgrade(), messenger.upgrade()) {
                    // Damage is reported by the next call that is about messages.
                    let _ = messenger.progress(Wire { node, core: &core });
                }
            });
        }
        Ok(messenger)
    }

    /// The engine, for one match. Never held while waiting, sending or copying much.
    #[inline]
    pub(super) fn engine(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Leaves a copy to whoever makes progress next.
    pub(super) fn defer(&self, due: Due) {
        self.work.fetch_add(1, Ordering::AcqRel);
        lock(&self.due).push_back(due);
    }

    /// Receives what has come and does what is due. Never waits, but copies what is due. `None` if
    /// another thread is receiving; else how many messages came.
    ///
    /// # Errors
    /// Damage; [`Error::Exhausted`] if the program leaves its short messages lying.
    #[inline]
    pub(super) fn progress(&self, wire: Wire<'_>) -> Result<Option<usize>> {
        self.progress_until(wire, Wanted::default(), || false)
    }

    /// The same, but takes no more once `done`: what is behind is left where it is, and so costs
    /// no place among the messages that nobody asked for. Looks first for what is wanted, whose
    /// coming wakes no other thread.
    #[inline]
    fn progress_until(
        &self,
        wire: Wire<'_>,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
    ) -> Result<Option<usize>> {
        let polled = wire.poll_sink(wanted.source, |message| {
            let ended = self.take(wire, message);
            if done() {
                let record = wanted.record.zip(ended);
                return ControlFlow::Break(record.is_some_and(|(mine, it)| it.is(mine)));
            }
            ControlFlow::Continue(())
        });
        if self.work.load(Ordering::Relaxed) != 0 || !self.outgoing.is_empty() {
            self.carry_out(wire)?;
        }
        self.look_sometimes(wire);
        polled
    }

    /// Sends what found no room, and makes the copies that are due.
    #[cold]
    fn carry_out(&self, wire: Wire<'_>) -> Result<()> {
        if let Some(why) = &*lock(&self.broken) {
            return Err(Error::Incompatible { what: "a message", why: why.clone() });
        }
        loop {
            self.outgoing.flush(self, wire);
            let Some(due) = lock(&self.due).pop_front() else { return Ok(()) };
            self.work.fetch_sub(1, Ordering::AcqRel);
            self.carry(wire, due);
            // Another thread may wait for what this was.
            wire.doorbell().notify();
        }
    }

    /// Waits until `done`, making progress; `check` is asked before each sleep.
    ///
    /// # Errors
    /// Those of `check` and of the progress; [`Error::TimedOut`].
    #[inline]
    pub(super) fn wait_until(
        &self,
        wire: Wire<'_>,
        deadline: Deadline,
        during: &'static str,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
        check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.wait_at(None, wire, deadline, during, wanted, done, check)
    }

    /// As [`Messenger::wait_until`], at another pace than the process's.
    #[expect(clippy::too_many_arguments, reason = "those of wait_until, and one")]
    #[inline]
    pub(super) fn wait_at(
        &self,
        pace: Option<Pace>,
        wire: Wire<'_>,
        deadline: Deadline,
        during: &'static str,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let contended = std::cell::Cell::new(false);
        let poll = || {
            if done() {
                return Some(Ok(()));
            }
            match self.progress_until(wire, wanted, &done) {
                Err(error) => return Some(Err(error)),
                Ok(None) => contended.set(true),
                Ok(Some(_)) => {}
            }
            done().then_some(Ok(()))
        };
        let check = || {
            if contended.replace(false) {
                wire.note_missed();
                if self.progress(wire)? != Some(0) {
                    // Maybe for this thread, which is about to sleep.
                    wire.doorbell().notify();
                }
            }
            wire.probe_unfinished();
            check()
        };
        match pace {
            None => wire.node.wait(wire.doorbell(), deadline, during, poll, check)?,
            Some(pace) => wire.doorbell().wait(pace, deadline, during, poll, check)?,
        }
    }

    /// Something made no sense: every call fails from now on.
    #[cold]
    pub(super) fn damage(&self, from: Slot, what: &str) {
        count(&self.counting.senseless);
        let mut broken = lock(&self.broken);
        if broken.is_none() {
            *broken = Some(format!("rank {from} sent {what} that makes no sense; end the job"));
            self.work.fetch_add(1, Ordering::AcqRel);
        }
    }

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

    #[cold]
    fn take_other(&self, wire: Wire<'_>, message: Message<'_>) {
        let from = message.from;
        let taken = match message.kind {
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
            wire::ADVERT => wire::words(message.bytes).map(|words: [u64; 5]| {
                self.advertised(wire, from, message.imm, words);
            }),
            wire::POOL => wire::words(message.bytes).and_then(|[head, length, place]| {
                self.pooled_came(wire, &message, head, length, place)
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

    /// The short way of a small message to a receive that was not posted: straight out of the lane,
    /// if no receive is posted and no message kept that could come before. What came, or whether
    /// it is worth asking again at once. `record` is not the engine's.
    ///
    /// Cost: the message's line, two private locks, and the copy.
    ///
    /// # Errors
    /// Damaged shared memory.
    #[inline]
    pub(super) fn take_directly(
        &self,
        wire: Wire<'_>,
        pattern: &Pattern,
        record: &Record,
    ) -> Result<Directly> {
        let mut taken = None;
        let enter = || {
            // While nothing arrives nothing is added to the messages that are kept.
            let engine = self.engine();
            engine.matching.is_empty().then_some(engine)
        };
        let polled = wire.poll_one(pattern.source, enter, |mut engine, message| {
            if message.kind == wire::EAGER
                && let Some((head, data)) = message.bytes.split_first_chunk::<8>()
            {
                let (context, element) = wire::unlabel(message.imm);
                let (rank, tag) = wire::unhead(u64::from_ne_bytes(*head));
                let arrived = Arrived { rank, tag, bytes: data.len() };
                let envelope = Envelope { context, source: message.from, tag };
                if pattern.takes(&envelope) && record.fits(arrived, element) {
                    engine.peers.get(message.from).taken += 1;
                    drop(engine);
                    // SAFETY: the record is the caller's, whose memory it describes.
                    unsafe { record.place.write(0, data) };
                    taken = Some(arrived);
                    return false;
                }
            }
            drop(engine);
            self.take(wire, message);
            true
        })?;
        if let Some(arrived) = taken {
            return Ok(Directly::Taken(arrived));
        }
        let quiet = self.work.load(Ordering::Relaxed) == 0 && self.outgoing.is_empty();
        Ok(if polled == Some(false) && quiet { Directly::Nothing } else { Directly::No })
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
                    self.tell_finished(wire, message.from, number, 0);
                }
            }
            None => {
                let body = Body::Whole(Data::new(data), number);
                engine.keep(envelope, Unexpected { rank, element, body });
                self.counting.unexpected(&engine);
                if engine.held > self.limits.unexpected {
                    wire.node.rank_slot(wire.node.slot()).pressure.store(1, Ordering::Relaxed);
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

    /// A message in a buffer of a pool; nothing if that cannot be.
    fn pooled_came(
        &self,
        wire: Wire<'_>,
        message: &Message<'_>,
        head: u64,
        length: u64,
        place: u64,
    ) -> Option<()> {
        let pooled = self.pooled(message.from, length, place)?;
        let (context, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let envelope = Envelope { context, source: message.from, tag };
        let mut engine = self.engine();
        engine.peers.get(message.from).taken += 1;
        match self.match_arrived(wire, &mut engine, &envelope) {
            Some(record) => {
                drop(engine);
                let arrived = Arrived { rank, tag, bytes: pooled.len };
                self.defer(Due::Drain { record, arrived, element, pooled });
            }
            None => {
                let body = Body::Pooled(pooled);
                engine.keep(envelope, Unexpected { rank, element, body });
                self.counting.unexpected(&engine);
            }
        }
        Some(())
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
            self.tell_finished(wire, from, rts.number, 0);
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
                    self.tell_finished(wire, envelope.source, number, 0);
                }
            }
            Body::Announced(rts) => {
                self.meet(wire, record, envelope.source, arrived, message.element, rts);
            }
            Body::Pooled(pooled) => self.drain(wire, record, arrived, message.element, pooled),
        }
    }

    /// Tells senders that they may send small messages again, if so.
    #[inline]
    pub(super) fn relieve(&self, wire: Wire<'_>, engine: &Engine) {
        let pressure = &wire.node.rank_slot(wire.node.slot()).pressure;
        if pressure.load(Ordering::Relaxed) != 0 && engine.held <= self.limits.unexpected / 2 {
            pressure.store(0, Ordering::Relaxed);
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
            0 => Ok(Arrived::default()),
            _ => Err(given_up(wire.node, from, "sending a message")),
        };
        sending.record.finish(outcome);
    }
}

/// What a thread waits for, as far as that is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    /// Nobody else waits for its end.
    pub record: Option<&'a Record>,
    /// Whose message it is.
    pub source: Option<Slot>,
}

/// What came of [`Messenger::take_directly`].
pub(super) enum Directly {
    Taken(Arrived),
    /// Nothing is there, and nothing else to do.
    Nothing,
    /// The receive is to be posted.
    No,
}

impl Sink for Messenger {
    fn arrive(&self, wire: Wire<'_>, message: Message<'_>) {
        self.take(wire, message);
    }

    fn settle(&self, wire: Wire<'_>) {
        if self.work.load(Ordering::Relaxed) != 0 || !self.outgoing.is_empty() {
            // Damage is reported by the next call that is about messages.
            let _ = self.carry_out(wire);
        }
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        // Peers may still copy from and to what goes on: it is never freed.
        let mut engine = self.engine.lock();
        let numbers: Vec<u64> = engine.sendings.iter().map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(sending) = engine.sendings.remove(number) {
                sending.record.leak();
            }
        }
        let keys: Vec<_> = engine.matching.posted().map(|(key, ..)| key).collect();
        for key in keys {
            if let Some(posted) = engine.matching.cancel(key) {
                posted.record.leak();
            }
        }
    }
}
