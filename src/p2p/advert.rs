//! Telling the sender where a large message is wanted, so that who came first needs not help.
//!
//! ```text
//!  receiver                                     sender
//!    post; ADVERT(pattern, buffer, taken) ----->  kept
//!                                                 a send that the pattern takes, the first since
//!                                                 number `taken`: claims the advert's word,
//!                                                 copies into the buffer
//!    done  <------------------------ FULFILLED    in order with its other messages
//! ```
//! **Both sides agree without a word.** Every message that can match is numbered by its sender, in
//! the order in which it travels. An advert says how many the receiver had taken when it posted
//! the receive; among those none matched. So the receive is for the first later one that the
//! pattern takes, if no receive posted before could take it (then none is advertised, `has_rival`).
//! The sender looks back at what it sent after that number; if it cannot look back so far, or if
//! there was one, the advert is void. Messages that were themselves fulfilled went to their own
//! adverts and do not count.
//!
//! **When.** A receive that goes on after its call is advertised at once: nobody may be there when
//! the message comes. One that is waited for on a core of its own only before it sleeps: until
//! then the receiver is the better one to copy, since it finds the data in its cache afterwards,
//! and since it reaches the sender's shared memory without a system call where the sender would
//! not reach its private one.
//!
//! A source that would lend its message's buffer (see `lent`) is told nothing: that is two copies, but short ones
//! and without the kernel, and it need keep no log.
//!
//! A receive that goes on and is waited for later is attended meanwhile (see `claim`): as long as its
//! thread is awake a sender whose data are shared memory, and which would have to ask the kernel,
//! announces them instead.
//!
//! The claim's word (see `claim`) decides if both act at the same time: the receiver takes the
//! advert back before it gives the receive to another message (a thread of the sender may have
//! sent one while another was copying), cancels it, or gives it up.

use super::claim;
use super::counters::count;
use super::engine::{Advertised, Engine, Posted};
use super::lent;
use super::matching::{Arrive, Envelope, Key, Pattern};
use super::messenger::Messenger;
use super::outgoing::Waiting;
use super::reach::{self, Direction, Reach};
use super::record::{Arrived, RecordRef};
use super::send::Letter;
use super::wire::{self, Words, elements_agree};
use crate::base::keys::ByNumber;
use crate::base::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::base::{Error, Result, Slot};
use crate::link::Message;
use crate::link::core::Wire;
use crate::link::vc::Numbered;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Adverts of one peer that are kept.
const MOST: usize = 64;

/// Messages that may be lent, to a peer that has sent none lately, for each look.
const PASSED: u32 = 16;

/// An advert, as its receiver keeps it.
#[derive(Clone, Copy, Debug)]
struct Advert {
    context: u32,
    tag: Option<u32>,
    element: u8,
    capacity: u64,
    address: u64,
    word: u32,
    taken: u64,
}

/// The adverts of all peers.
#[derive(Debug, Default)]
pub(super) struct Adverts {
    /// Of all peers, together; changed under the lock. Most sends find that there are none.
    count: AtomicUsize,
    /// Messages that were lent without a look for adverts, since the last one.
    passed: AtomicU32,
    peers: Mutex<ByNumber<Slot, VecDeque<Advert>>>,
}

impl Adverts {
    fn lock(&self) -> MutexGuard<'_, ByNumber<Slot, VecDeque<Advert>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those of a peer that is gone.
    pub fn forget(&self, peer: Slot) {
        let mut peers = self.lock();
        let gone = peers.remove(&peer).map_or(0, |adverts| adverts.len());
        self.count.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Whether there are none of `peer`.
    fn are_none(&self, peer: Slot) -> bool {
        // Relaxed: what this thread has taken it has counted, and what another one takes meanwhile
        // may have come later.
        self.count.load(Ordering::Relaxed) == 0
            || self.lock().get(&peer).is_none_or(VecDeque::is_empty)
    }
}

const ANY_TAG: u64 = 1 << 32;

impl Messenger {
    /// Receiver: tells the source of a receive that is posted, if that may be done and is worth it.
    pub(super) fn advertise(&self, wire: Wire<'_>, key: Key, pattern: &Pattern) {
        let mut engine = self.engine();
        let advert = self.make_advert(wire, &mut engine, key, pattern);
        drop(engine);
        if let Some((to, words)) = advert
            && let Ok(label) = wire::label(wire::ADVERT, pattern.context, 0)
        {
            self.outgoing.note(wire, to, label, words);
        }
    }

    fn make_advert(
        &self,
        wire: Wire<'_>,
        engine: &mut Engine,
        key: Key,
        pattern: &Pattern,
    ) -> Option<(Slot, Words)> {
        let source = pattern.source?;
        let posted = engine.matching.posted_mut(key)?;
        if !posted.sole || posted.advert.is_some() {
            return None;
        }
        let record = posted.record;
        let (place, element) = (&record.get().buffer.place, record.get().buffer.element);
        let address = place.address()?.addr() as u64;
        let local = wire.node.is_local(source);
        if place.len() <= self.limits.eager || !local || wire.node.is_dead(source) {
            return None;
        }
        let word = self.claims.take(wire.node)?;
        engine.matching.posted_mut(key)?.advert = Some(word);
        engine.adverts.insert(word, Advertised::Posted(key));
        let tag = pattern.tag.map_or(ANY_TAG, u64::from) | u64::from(element) << 40;
        // A thread that takes one meanwhile began before the receive was posted: counted or not, the
        // sender is told of no message that came later.
        let taken = engine.peers.get(source).taken + wire.taken_directly(source);
        count(&self.counting.advertised);
        let words = Words::new([tag, place.len() as u64, address, word.into(), taken]);
        Some((source, words))
    }

    /// Sender: an advert has come.
    pub(super) fn advertised(&self, wire: Wire<'_>, from: Slot, imm: u64, words: [u64; 5]) {
        let [tag, capacity, address, word, taken] = words;
        let sound = address.checked_add(capacity).is_some() && word <= u64::from(u32::MAX);
        if !sound || wire.keep_log(from).is_err() {
            return self.damage(from, "an advert");
        }
        let advert = Advert {
            context: wire::unlabel(imm).0,
            tag: (tag & ANY_TAG == 0).then_some(tag as u32),
            element: (tag >> 40) as u8,
            capacity,
            address,
            word: word as u32,
            taken,
        };
        let mut peers = self.adverts.lock();
        let adverts = peers.entry(from).or_default();
        if adverts.len() == MOST {
            adverts.pop_front();
        } else {
            self.adverts.count.fetch_add(1, Ordering::Relaxed);
        }
        adverts.push_back(advert);
    }

    /// Sender: the same as [`Messenger::try_fulfil`] for a message that may be lent. Whether anything has come is looked at
    /// before each message only if its receiver may send adverts: for large ones, and where both have mapped its memory.
    ///
    /// # Errors
    /// Those of both.
    pub(super) fn try_fulfil_lent(
        &self,
        wire: Wire<'_>,
        letter: &Letter,
        data: &[u8],
    ) -> Result<bool> {
        let passed = self.adverts.passed.load(Ordering::Relaxed);
        // A hint: another thread's count may be lost.
        let looks = passed >= PASSED || data.len() > lent::SINGLE || wire.keeps_log(letter.to);
        self.adverts.passed.store(if looks { 0 } else { passed + 1 }, Ordering::Relaxed);
        if looks {
            self.glance(wire)?;
        }
        self.try_fulfil(wire, letter, data)
    }

    /// Sender: copies a large message to where it is wanted, if its receiver said so; whether it
    /// did, and nothing more is to be done.
    ///
    /// # Errors
    /// The end of the peer.
    pub(super) fn try_fulfil(&self, wire: Wire<'_>, letter: &Letter, data: &[u8]) -> Result<bool> {
        let to = letter.to;
        if self.adverts.are_none(to) || self.outgoing.has_queue(to) {
            return Ok(false);
        }
        let Some(_number) = wire.close_numbers(to)? else { return Ok(false) };
        let outcome = self.fulfil(wire, letter, data);
        wire.open_numbers(to)?;
        match outcome? {
            None => Ok(false),
            Some((_, Numbered::Sent)) => Ok(true),
            Some((word, _)) => {
                // The data are there; the message that says so goes before all that follows.
                let words = letter.fulfilled(data.len(), word);
                let label = letter.label(wire::FULFILLED)?;
                self.outgoing.queue(to, Waiting::Words { label, words, logged: false });
                Ok(true)
            }
        }
    }

    /// Between closed numbers. What came of sending FULFILLED; `None` if no advert can be used.
    fn fulfil(
        &self,
        wire: Wire<'_>,
        letter: &Letter,
        data: &[u8],
    ) -> Result<Option<(u32, Numbered)>> {
        let to = letter.to;
        let Some(advert) = self.find_advert(wire, letter)? else { return Ok(None) };
        let fits = data.len() as u64 <= advert.capacity;
        if !fits || !elements_agree(letter.element, advert.element) {
            // An error of the receiver's, which finds it out by itself.
            return Ok(None);
        }
        let reach = if reach::is_shared(wire.node, advert.address, advert.capacity) {
            Reach::Mapped
        } else {
            self.reaches.of(wire.node, to)
        };
        // Who waits for shared data reads them faster than the kernel copies, and both together may be
        // faster, too, with private ones.
        let at = data.as_ptr().addr() as u64;
        let slower = matches!(reach, Reach::Kernel(_))
            && (wire.node.pace().is_awake() && self.reaches.may_share()
                || reach::is_shared(wire.node, at, data.len() as u64));
        if slower {
            self.await_receiver(wire.node, to, advert.word, data.len());
        }
        if reach == Reach::Never || !claim::claim(wire.node, to, advert.word, slower) {
            return Ok(None);
        }
        let (here, began) = (data.as_ptr().cast_mut(), self.switching.now());
        // SAFETY: only read; the receiver's memory is the message's, as the claim says, and as
        // large as the advert says.
        let copied = unsafe {
            reach::copy(wire.node, to, reach, here, advert.address, data.len(), Direction::Out)
        };
        match copied {
            Ok(()) => {
                let took = self.switching.now().saturating_sub(began);
                self.switching.moved(data.len(), took);
            }
            Err(Error::Os { .. }) => {
                self.reaches.forget(to);
                claim::unclaim(wire.node, to, advert.word);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        count(&self.counting.fulfilled);
        let words = letter.fulfilled(data.len(), advert.word);
        let sent = wire.push_numbered(to, letter.label(wire::FULFILLED)?, words.bytes())?;
        Ok(Some((advert.word, sent)))
    }

    /// The advert that the next message goes to. Those that can no longer be used are dropped.
    fn find_advert(&self, wire: Wire<'_>, letter: &Letter) -> Result<Option<Advert>> {
        let mut peers = self.adverts.lock();
        let Some(adverts) = peers.get_mut(&letter.to) else { return Ok(None) };
        let mut at = 0;
        while let Some(&advert) = adverts.get(at) {
            let takes = |context: u32, tag: u32| {
                advert.context == context && advert.tag.is_none_or(|wanted| wanted == tag)
            };
            if !takes(letter.context, letter.tag) {
                at += 1;
                continue;
            }
            adverts.remove(at);
            self.adverts.count.fetch_sub(1, Ordering::Relaxed);
            let earlier = wire.logged_since(letter.to, advert.taken, |imm, head| {
                takes(wire::unlabel(imm).0, wire::unhead(head).1)
            })?;
            if earlier == Some(false) {
                return Ok(Some(advert));
            }
        }
        Ok(None)
    }

    /// Receiver: a message has met an advertised receive.
    #[cold]
    pub(super) fn match_advertised(
        &self,
        wire: Wire<'_>,
        engine: &mut Engine,
        envelope: &Envelope,
        first: Posted,
    ) -> Option<RecordRef> {
        let mut posted = first;
        loop {
            let Some(word) = posted.advert else { return Some(posted.record) };
            if self.claims.withdraw(wire.node, word) {
                engine.adverts.remove(&word);
                return Some(posted.record);
            }
            // Another thread of the sender is copying into it: it is no longer to be had.
            engine.adverts.insert(word, Advertised::Claimed(posted.record, envelope.source));
            match engine.matching.arrive(envelope) {
                Arrive::Matched(_, next) => posted = next,
                Arrive::Unexpected => return None,
            }
        }
    }

    /// Receiver: an advertised receive has its message.
    pub(super) fn fulfilled(
        &self,
        wire: Wire<'_>,
        message: &Message<'_>,
        head: u64,
        length: u64,
        word: u64,
    ) {
        let (_, element) = wire::unlabel(message.imm);
        let (rank, tag) = wire::unhead(head);
        let mut engine = self.engine();
        engine.peers.get(message.from).taken += 1;
        let word = word as u32;
        let record = match engine.adverts.remove(&word) {
            Some(Advertised::Posted(key)) => engine.matching.cancel(key).map(|it| it.record),
            Some(Advertised::Claimed(record, _)) => Some(record),
            None => None,
        };
        drop(engine);
        let Some(record) = record else {
            return self.damage(message.from, "a message for a receive that there is not");
        };
        self.claims.release(wire.node, word);
        let arrived = Arrived { rank, tag, bytes: length as usize };
        record.finish(record.get().admit(arrived, element).map(|()| arrived));
    }
}
