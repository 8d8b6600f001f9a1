//! Receiving, looking for messages, and what becomes of both when peers are gone.

use super::direct::Soon;
use super::endpoint::Endpoint;
use super::engine::{Advertised, Body, Posted, Unexpected};
use super::lent;
use super::matching::{Envelope, Key, Pattern, Post};
use super::messenger::{Messenger, Wanted};
use super::outgoing::Waiting;
use super::record::{Arrived, Buffer, Record, RecordRef};
use super::send::missing;
use super::wire;
use crate::base::{Deadline, Result, Slot};
use crate::link::core::Wire;
use std::any::Any;
use std::sync::Arc;

/// A message taken out of the queue, for one receive to get.
#[derive(Debug)]
pub(crate) struct Taken {
    envelope: Envelope,
    message: Unexpected,
}

impl Taken {
    /// What it is.
    pub fn arrived(&self) -> Arrived {
        let bytes = self.message.len();
        Arrived { rank: self.message.rank, tag: self.envelope.tag, bytes }
    }
}

impl Endpoint {
    /// Posts a receive; its key if it waits. Not `present`: the caller may not be there when the
    /// message comes.
    ///
    /// # Safety
    /// The record stays until it is done or was given up.
    pub(super) unsafe fn post(
        &self,
        pattern: &Pattern,
        record: &Record,
        present: bool,
    ) -> Option<Key> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        // SAFETY: the caller's.
        let handle = unsafe { RecordRef::new(record) };
        // A source that would lend its message's buffer is not told where it is wanted: that is two copies, but
        // both short, and the source need not ask the kernel, nor keep a log.
        let place = &record.buffer.place;
        let telling = pattern.source.is_some_and(|source| {
            place.len() > messenger.limits.eager
                && (place.len() > lent::SINGLE || !messenger.is_lendable(&self.node, source, place))
        });
        let mut engine = messenger.engine();
        let sole = telling && !engine.matching.has_rival(pattern);
        match engine.matching.post(*pattern, Posted { record: handle, advert: None, sole }) {
            Post::Matched(_, envelope, message) => {
                engine.held = engine.held.saturating_sub(message.cost());
                messenger.relieve(wire, &engine);
                drop(engine);
                messenger.meet_unexpected(wire, handle, envelope, message);
                None
            }
            Post::Waiting(key) => {
                drop(engine);
                if sole && !present {
                    // Its message may have come, whose sender need not be told any more. Damage is reported by the
                    // next call that waits.
                    let _ = messenger.take_all(wire);
                    messenger.advertise(wire, key, pattern);
                }
                Some(key)
            }
        }
    }

    /// Receives a message. `check` is asked before each sleep.
    ///
    /// Cost of a small one that is there or comes soon, on a hot connection, while nothing that its
    /// source could send is posted or kept: one cache line, a private lock, and the copy; see
    /// [`direct`](super::direct). Else the receive is posted: if there are others, two searches
    /// in tables. Nothing is allocated.
    #[inline]
    pub fn receive(
        &self,
        pattern: &Pattern,
        buffer: Buffer,
        deadline: impl FnOnce() -> Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        let mut soon = Soon::Post;
        if buffer.place.len() <= self.messenger.limits.eager {
            soon = self.receive_soon(pattern, &buffer)?;
            if let Soon::Taken(arrived) = soon {
                return Ok(arrived);
            }
        }
        self.receive_late(soon, pattern, buffer, deadline(), during, check)
    }

    /// What [`Endpoint::receive_soon`] has not brought.
    #[inline(never)]
    fn receive_late(
        &self,
        soon: Soon,
        pattern: &Pattern,
        buffer: Buffer,
        deadline: Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        let record = Record::new(buffer);
        match soon {
            Soon::Taken(arrived) => Ok(arrived),
            Soon::Wait => self.receive_awake(pattern, &record, deadline, during, check),
            Soon::Post => self.receive_posted(pattern, &record, deadline, during, check),
        }
    }

    /// Posts a receive and waits for it.
    pub(super) fn receive_posted(
        &self,
        pattern: &Pattern,
        record: &Record,
        deadline: Deadline,
        during: &'static str,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        self.blocking(pattern.source, record.buffer.place.len());
        let mut guard = GivenUp::new(self, record);
        let present = self.node.pace().is_awake();
        self.attend_receive(record, None);
        // SAFETY: the guard gives it up if it is not done when this ends.
        guard.key = unsafe { self.post(pattern, record, present) };
        let mut leaving = guard.key.filter(|_| present);
        let check = || {
            self.rest_receive(record, None);
            if let Some(key) = leaving.take() {
                self.messenger.advertise(self.wire(), key, pattern);
                self.attend_advert(record, key);
            }
            check()
        };
        let waited = self.await_received(pattern, record, deadline, during, check);
        self.end_receive(guard, waited)
    }

    /// What came of a receive that was posted and waited for.
    pub(super) fn end_receive(&self, guard: GivenUp<'_>, waited: Result<()>) -> Result<Arrived> {
        let (record, key) = (guard.record, guard.key);
        std::mem::forget(guard);
        match waited {
            Err(error) if self.give_up_receive(record, key) => Err(error),
            _ => record.take().unwrap_or_else(|| Ok(Arrived::default())),
        }
    }

    /// Waits for a posted receive.
    pub(super) fn await_received(
        &self,
        pattern: &Pattern,
        record: &Record,
        deadline: Deadline,
        during: &'static str,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let check = || {
            if let Some(source) = pattern.source {
                messenger.mourn(wire, source)?;
            }
            check()
        };
        let wanted = Wanted { record: Some(record), source: pattern.source, beside: false };
        let done = || record.is_done();
        let waited = messenger.wait_until(wire, deadline, during, wanted, done, check);
        waited.map_err(|error| missing(&self.node, error, pattern.source))
    }

    /// Waits for a receive that goes on, if it is large as one that its source knows to be waited for
    /// until this thread sleeps.
    pub(super) fn await_attended(
        &self,
        pattern: &Pattern,
        key: Option<Key>,
        record: &Record,
        deadline: Deadline,
        during: &'static str,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.attend_receive(record, key);
        let check = || {
            self.rest_receive(record, key);
            check()
        };
        let waited = self.await_received(pattern, record, deadline, during, check);
        self.leave_receive(record, key);
        waited
    }

    /// Posts a receive that goes on after the call. `owner` keeps the record.
    pub(super) fn begin_receive(
        &self,
        pattern: &Pattern,
        record: &Record,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Option<Key> {
        // SAFETY: nobody has it yet.
        unsafe { record.keep(owner) };
        // SAFETY: the owner is kept until the record is done.
        unsafe { self.post(pattern, record, false) }
    }

    /// Receives a message that was taken out, with a record that stays until it is done.
    pub fn receive_taken(
        &self,
        taken: Taken,
        record: &Record,
        deadline: Deadline,
        during: &'static str,
    ) -> Result<Arrived> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let guard = GivenUp::new(self, record);
        // SAFETY: the guard gives it up if it is not done when this ends.
        let handle = unsafe { RecordRef::new(record) };
        let source = taken.envelope.source;
        messenger.meet_unexpected(wire, handle, taken.envelope, taken.message);
        let check = || messenger.mourn(wire, source);
        let wanted = Wanted { record: Some(record), source: Some(source), beside: false };
        let done = || record.is_done();
        let waited = messenger.wait_until(wire, deadline, during, wanted, done, check);
        std::mem::forget(guard);
        match waited {
            Err(error) if self.give_up_receive(record, None) => {
                Err(missing(&self.node, error, Some(source)))
            }
            _ => record.take().unwrap_or_else(|| Ok(Arrived::default())),
        }
    }

    /// A message that was taken out and that nobody received: its sender is told.
    pub fn drop_taken(&self, taken: &Taken) {
        let number = match taken.message.body {
            Body::Whole(_, number) => number,
            Body::Announced(rts) => Some(rts.number),
            Body::Pooled(pooled) => {
                self.messenger.give_back(&self.node, pooled);
                None
            }
        };
        if let Some(number) = number {
            self.messenger.tell_finished(
                self.wire(),
                taken.envelope.source,
                number,
                wire::GIVEN_UP,
            );
        }
    }

    /// Takes a receive back: true if it had no message yet, and its memory is the caller's again;
    /// else it is done when this returns. Waits only for copies that are being made.
    pub(super) fn give_up_receive(&self, record: &Record, key: Option<Key>) -> bool {
        let (messenger, wire) = (&*self.messenger, self.wire());
        loop {
            if record.is_done() {
                return false;
            }
            if messenger.stop_fetch(wire, record) == Some(true) {
                return record.abandon();
            }
            let mut engine = messenger.engine();
            let mut source = None;
            match key.and_then(|key| Some((key, engine.matching.posted_mut(key)?.advert))) {
                Some((key, None)) => {
                    engine.matching.cancel(key);
                    drop(engine);
                    return record.abandon();
                }
                Some((key, Some(word))) if messenger.claims.withdraw(wire.node, word) => {
                    engine.adverts.remove(&word);
                    engine.matching.cancel(key);
                    drop(engine);
                    return record.abandon();
                }
                Some((key, Some(_))) => {
                    // Its sender copies into it: that ends, or the sender does.
                    let mut all = engine.matching.posted();
                    source = all.find(|(it, ..)| *it == key).and_then(|(_, p, _)| p.source);
                }
                None => {
                    let stream = engine.stream_of(record);
                    let stream = stream.and_then(|number| engine.streams.get_mut(number));
                    let stream = stream.filter(|stream| {
                        let word = stream.half.and_then(|half| half.word);
                        stream.busy == 0
                            && word.is_none_or(|word| messenger.claims.withdraw(wire.node, word))
                    });
                    if let Some(stream) = stream {
                        // What still comes goes nowhere.
                        stream.record = None;
                        stream.half.iter_mut().for_each(|half| half.word = None);
                        drop(engine);
                        return record.abandon();
                    }
                }
            }
            drop(engine);
            let _ = messenger.progress(wire);
            if let Some(source) = source {
                let _ = messenger.mourn(wire, source);
            }
            crate::base::sync::yield_now();
        }
    }

    /// Cancels a posted receive: true if it had no message yet.
    pub(super) fn cancel(&self, record: &Record, key: Option<Key>) -> bool {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let Some(key) = key else { return false };
        let mut engine = messenger.engine();
        let Some(posted) = engine.matching.posted_mut(key).copied() else { return false };
        if let Some(word) = posted.advert {
            if !messenger.claims.withdraw(wire.node, word) {
                return false;
            }
            engine.adverts.remove(&word);
        }
        engine.matching.cancel(key);
        drop(engine);
        record.abandon()
    }

    /// The message that a receive would get, if one is there.
    pub fn look(&self, pattern: &Pattern) -> Result<Option<Arrived>> {
        self.progress()?;
        Ok(self.seen(pattern))
    }

    fn seen(&self, pattern: &Pattern) -> Option<Arrived> {
        let mut engine = self.messenger.engine();
        let (envelope, message) = engine.matching.probe(pattern)?;
        Some(Arrived { rank: message.rank, tag: envelope.tag, bytes: message.len() })
    }

    /// Takes the message that a receive would get out, if one is there.
    pub fn take(&self, pattern: &Pattern) -> Result<Option<Taken>> {
        self.progress()?;
        Ok(self.taken(pattern))
    }

    /// The same without progress.
    pub fn taken(&self, pattern: &Pattern) -> Option<Taken> {
        let mut engine = self.messenger.engine();
        let (envelope, message) = engine.take(pattern)?;
        self.messenger.relieve(self.wire(), &engine);
        Some(Taken { envelope, message })
    }

    /// Waits for a message that a receive would get.
    pub fn await_look(
        &self,
        pattern: &Pattern,
        deadline: Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Arrived> {
        self.await_some(pattern, deadline, during, check, || self.seen(pattern))
    }

    /// Waits for a message that a receive would get, and takes it out.
    pub fn await_taken(
        &self,
        pattern: &Pattern,
        deadline: Deadline,
        during: &'static str,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Taken> {
        self.await_some(pattern, deadline, during, check, || self.taken(pattern))
    }

    fn await_some<R>(
        &self,
        pattern: &Pattern,
        deadline: Deadline,
        during: &'static str,
        mut check: impl FnMut() -> Result<()>,
        find: impl Fn() -> Option<R>,
    ) -> Result<R> {
        let (messenger, wire) = (&*self.messenger, self.wire());
        let check = || {
            if let Some(source) = pattern.source
                && messenger.has_mourned(wire, source)?
            {
                return Err(wire.node.died(source, during));
            }
            check()
        };
        let waited = self.await_any(deadline, during, find, check);
        waited.map_err(|error| missing(&self.node, error, pattern.source))
    }
}

/// Gives a record on the stack up if a panic takes it away.
pub(super) struct GivenUp<'a> {
    endpoint: &'a Endpoint,
    record: &'a Record,
    /// Under which it is posted.
    pub key: Option<Key>,
}

impl<'a> GivenUp<'a> {
    pub fn new(endpoint: &'a Endpoint, record: &'a Record) -> GivenUp<'a> {
        GivenUp { endpoint, record, key: None }
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.endpoint.give_up_receive(self.record, self.key);
    }
}

impl Messenger {
    /// See [`Endpoint::mourn`].
    pub(super) fn mourn(&self, wire: Wire<'_>, peer: Slot) -> Result<()> {
        self.has_mourned(wire, peer).map(drop)
    }

    /// The same; whether the peer is gone and all that it had sent is here.
    pub(super) fn has_mourned(&self, wire: Wire<'_>, peer: Slot) -> Result<bool> {
        if !wire.node.probe(peer) {
            return Ok(false);
        }
        // A poll takes a bounded number of messages; the rest is for the next check.
        for _ in 0..64 {
            self.progress_thoroughly(wire)?;
            if wire.has_drained(peer)? {
                self.bury(wire, peer);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends everything that a peer that is gone would have had to do its part of.
    #[cold]
    fn bury(&self, wire: Wire<'_>, peer: Slot) {
        let died = || Err(wire.node.died(peer, "a message"));
        self.adverts.forget(peer);
        let mut engine = self.engine();
        let mut ended: Vec<RecordRef> = Vec::new();
        for posted in engine.posted_from(peer) {
            if let Some(word) = posted.advert {
                engine.adverts.remove(&word);
                self.claims.release(wire.node, word);
            }
            ended.push(posted.record);
        }
        let claimed = |(word, it): (&u32, &Advertised)| match it {
            Advertised::Claimed(record, from) if *from == peer => Some((*word, *record)),
            _ => None,
        };
        let claimed: Vec<_> = engine.adverts.iter().filter_map(claimed).collect();
        for (word, record) in claimed {
            engine.adverts.remove(&word);
            self.claims.release(wire.node, word);
            ended.push(record);
        }
        let idle = |(number, it): (u64, &super::engine::Sending)| {
            (it.to == peer && it.busy == 0).then_some(number)
        };
        let sendings: Vec<u64> = engine.sendings.iter().filter_map(idle).collect();
        for number in sendings {
            let Some(sending) = engine.sendings.remove(number) else { continue };
            sending.claim.into_iter().for_each(|word| self.claims.release(wire.node, word));
            ended.push(sending.withdraw());
        }
        let from =
            |(number, it): (u64, &super::engine::Stream)| (it.from == peer).then_some(number);
        let streams: Vec<u64> = engine.streams.iter().filter_map(from).collect();
        drop(engine);
        for number in streams {
            let stream = self.end_stream(wire, number, |_| true);
            ended.extend(stream.and_then(|stream| stream.record));
        }
        self.feed_streams(wire);
        // Those of them that wait to be sent are forgotten first: their records end here.
        let ends_here = |it: &Waiting| !matches!(it, Waiting::Data { .. } | Waiting::Pooled { .. });
        self.outgoing.recall(peer, ends_here);
        self.bury_pools(wire, peer);
        self.lending.bury(peer);
        self.bury_far(peer);
        let some = !ended.is_empty();
        ended.into_iter().for_each(|record| record.finish(died()));
        if some {
            wire.doorbell().notify();
        }
    }

    /// See [`Endpoint::forget_context`].
    pub(super) fn forget_context(&self, wire: Wire<'_>, context: u32) {
        // What has come and was not looked at belongs to it too.
        for _ in 0..64 {
            if !matches!(self.progress_thoroughly(wire), Ok(Some(1..))) {
                break;
            }
        }
        let mut engine = self.engine();
        let removed = engine.matching.remove_context(context);
        let (mut numbers, mut pooled_ones) = (Vec::new(), Vec::new());
        for (_, envelope, message) in removed.unexpected {
            engine.held = engine.held.saturating_sub(message.cost());
            let number = match message.body {
                Body::Whole(_, number) => number,
                Body::Announced(rts) => Some(rts.number),
                Body::Pooled(pooled) => {
                    pooled_ones.push(pooled);
                    None
                }
            };
            numbers.extend(number.map(|number| (envelope.source, number)));
        }
        self.relieve(wire, &engine);
        // Receives that nobody waits for any longer: their memory may still be written to.
        for (_, pattern, posted) in removed.posted {
            if let Some(word) = posted.advert {
                if !self.claims.withdraw(wire.node, word) {
                    // Its sender is copying into it, and will say when it has.
                    let source = pattern.source.unwrap_or(wire.node.slot());
                    engine.adverts.insert(word, Advertised::Claimed(posted.record, source));
                    continue;
                }
                engine.adverts.remove(&word);
            }
            posted.record.get().abandon();
        }
        drop(engine);
        pooled_ones.into_iter().for_each(|pooled| self.give_back(wire.node, pooled));
        for (source, number) in numbers {
            self.tell_finished(wire, source, number, wire::GIVEN_UP);
        }
    }
}
