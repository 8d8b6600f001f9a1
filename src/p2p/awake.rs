//! Large messages between two that both wait for their ends: both copy, at the same time.
//!
//! | | sender waits for its end | it does something else |
//! |---|---|---|
//! | receiver waits | each has the kernel copy a half (`halves`), or in pieces through shared buffers (`stream`): one fills while the other empties | the receiver copies, by the kernel |
//! | it does something else, and came first | the sender copies, by the kernel, to where it is wanted (`advert`) | the first who looks |
//! | it does something else, and came second | the sender fills shared buffers, if there are any for all of it; else the receiver copies at once, by the kernel | the same |
//!
//! Which is the soonest over is found out (see [`copiers`](super::copiers)): halves are as a rule, but where cores are
//! near each other and the data in their caches two copies by two cores may be, for the kernel has to find and
//! hold every page, and on some processors its loop is not the fastest; where the receiver alone copies,
//! the sender can go on to something else. Messages that cross, of which each side has some to copy, go by the kernel
//! or through shared buffers, which is found out for them by themselves. Data in memory that both have mapped are
//! copied once, by the receiver. Halves and streams need both sides, so they, but for streams no longer than
//! their buffers, are begun only if both are inside of a call that does not return before this message is over:
//!
//! - who waits to have sent says so by its claim's word (`claim`), as a receiver does that was
//!   advertised;
//! - who waits to receive by its record, which nobody else looks at.
//!
//! A thread that goes to sleep takes that back, unless the message is so long that waking it is worth
//! while.

use super::claim;
use super::copiers::Who;
use super::endpoint::Endpoint;
use super::engine::Sending;
use super::matching::Key;
use super::messenger::Messenger;
use super::reach::Reach;
use super::record::Record;
use super::wire::Rts;
use crate::base::Slot;
use crate::base::sync::{AtomicU32, Ordering, spin_hint};
use crate::link::core::Wire;
use crate::shm::node::Node;
use std::time::{Duration, Instant};

/// Set in what a send's record notes, above its claim's name.
const NAMED: u64 = 1 << 32;

/// From so many bytes on it is worth while to wake a thread for its half of the copies, or to have it copy
/// from shared memory itself, rather than ask the kernel for a copy that takes half as long again.
pub(super) const WORTH_WAKING: usize = 512 << 10;

/// How long after its announcement a sender may still be announcing others before it waits: a fraction of what
/// the kernel takes for as many bytes, for each of these, and at most.
const SHORTLY: Duration = Duration::from_micros(1);
const FOR_EACH: usize = 64 << 10;
const AT_MOST: u32 = 32;
/// From so many bytes on that is long enough for a sender of some messages.
const WORTH_AWAITING: usize = 256 << 10;

/// How many of these a message of so many bytes is worth.
fn turns(bytes: usize) -> u32 {
    u32::try_from(bytes / FOR_EACH).unwrap_or(AT_MOST).min(AT_MOST)
}

/// Whether to wait for others that do not wait yet: not for a while where that was in vain, for twice as
/// many messages each time.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How many messages it is not tried for; how many after the next failure.
    left: AtomicU32,
    next: AtomicU32,
}

/// For how many it is not tried at most.
const LONGEST: u32 = 64;

impl Patience {
    /// Whether `come` says so within `turns` of a moment, if it is tried at all.
    fn wait(&self, turns: u32, come: impl Fn() -> bool) -> bool {
        // Threads may overwrite each other's: it is an estimate.
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            return false;
        }
        let start = Instant::now();
        let found = loop {
            spin_hint();
            if come() {
                break true;
            }
            if start.elapsed() >= SHORTLY * turns {
                break false;
            }
        };
        let next = self.next.load(Ordering::Relaxed);
        let (left, next) = if found { (0, 0) } else { (next, (2 * next + 1).min(LONGEST)) };
        self.left.store(left, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        found
    }
}

impl Record {
    /// Notes the claim of a send.
    pub(super) fn note_claim(&self, name: u32) {
        self.awake.store(NAMED | u64::from(name), Ordering::Relaxed);
    }

    fn claim(&self) -> Option<u32> {
        let noted = self.awake.load(Ordering::Relaxed);
        (noted & NAMED != 0).then_some(noted as u32)
    }
}

impl Endpoint {
    #[inline]
    fn is_large(&self, record: &Record) -> bool {
        record.buffer.place.len() > self.messenger.limits.eager
    }

    /// The caller waits from now on for the end of a send that was announced.
    pub(super) fn attend_send(&self, record: &Record) {
        if self.is_large(record)
            && let Some(name) = record.claim()
            && self.node.pace().is_awake()
        {
            claim::attend(&self.node, name);
        }
    }

    /// It does not any more, or sleeps.
    pub(super) fn leave_send(&self, record: &Record) {
        if let Some(name) = record.claim() {
            // If the message is over, the word is another's by now, which this does not touch.
            claim::leave(&self.node, name);
        }
    }

    /// The same before a sleep.
    pub(super) fn rest_send(&self, record: &Record) {
        if record.buffer.place.len() < WORTH_WAKING {
            self.leave_send(record);
        }
    }

    /// The caller waits from now on for the end of a receive. Under `key` it is posted, if it is.
    #[inline]
    pub(super) fn attend_receive(&self, record: &Record, key: Option<Key>) {
        if self.is_large(record) {
            self.attend_large(record, key);
        }
    }

    fn attend_large(&self, record: &Record, key: Option<Key>) {
        let woken = record.buffer.place.len() >= WORTH_WAKING;
        if woken || self.node.pace().is_awake() {
            record.awake.store(1, Ordering::Relaxed);
            self.advert_of(key).into_iter().for_each(|word| claim::attend(&self.node, word));
        }
    }

    /// The source of a receive that the caller may wait for was just told of it.
    pub(super) fn attend_advert(&self, record: &Record, key: Key) {
        if record.awake.load(Ordering::Relaxed) != 0 {
            self.advert_of(Some(key)).into_iter().for_each(|word| claim::attend(&self.node, word));
        }
    }

    /// It does not any more, or sleeps.
    pub(super) fn leave_receive(&self, record: &Record, key: Option<Key>) {
        if record.awake.load(Ordering::Relaxed) != 0 {
            record.awake.store(0, Ordering::Relaxed);
            self.advert_of(key).into_iter().for_each(|word| claim::leave(&self.node, word));
        }
    }

    /// The same before a sleep.
    pub(super) fn rest_receive(&self, record: &Record, key: Option<Key>) {
        if record.buffer.place.len() < WORTH_WAKING {
            self.leave_receive(record, key);
        }
    }

    fn advert_of(&self, key: Option<Key>) -> Option<u32> {
        let key = key?;
        self.messenger.engine().matching.posted_mut(key)?.advert
    }
}

/// Who waits for an announced message that both sides could copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    /// Both.
    Both,
    /// Both, each for the other's messages, too.
    Crossing,
    /// Its sender. The receive was posted by a thread that may do something else now.
    Sender,
}

impl Messenger {
    /// Who waits for the end of an announced message, if both sides could copy: not if this side does not wait, and
    /// the sender has messages of this process's to copy at the same time.
    pub(super) fn who_waits(
        &self,
        wire: Wire<'_>,
        record: &Record,
        from: Slot,
        reach: Reach,
        rts: &Rts,
    ) -> Option<Waiting> {
        if !matches!(reach, Reach::Kernel(_)) || !self.reaches.may_share() {
            return None;
        }
        let waits = record.awake.load(Ordering::Relaxed) != 0;
        let attended = || rts.claim.is_some_and(|name| claim::is_attended(wire.node, from, name));
        let crosses = || self.engine().sendings.iter().any(|(_, sending)| sending.to == from);
        let bytes = rts.length as usize;
        let shared = attended()
            || waits
                && bytes >= WORTH_AWAITING
                && self.is_worth_awaiting(wire, from, bytes, crosses())
                && self.patience.wait(turns(bytes), attended);
        match (shared && crosses(), waits) {
            _ if !shared => None,
            (true, waits) => waits.then_some(Waiting::Crossing),
            (false, true) => Some(Waiting::Both),
            (false, false) => Some(Waiting::Sender),
        }
    }

    /// Sender: a moment for a receiver that has told where it wants a message, and may be about to wait for it: it may just
    /// be posting others. What the kernel copies for this side meanwhile keeps both from those.
    pub(super) fn await_receiver(&self, node: &Node, to: Slot, word: u32, bytes: usize) {
        if bytes >= WORTH_AWAITING && node.pace().is_awake() && self.reaches.may_share() {
            self.expectation.wait(turns(bytes), || claim::is_attended(node, to, word));
        }
    }

    /// Whether a message is over sooner if its sender waits for it, too, which may be about to: it has just
    /// announced what it sends, and announces others. What the kernel copies meanwhile keeps this side
    /// from those: one in a window of eight took as long as half of the others.
    fn is_worth_awaiting(&self, wire: Wire<'_>, from: Slot, bytes: usize, crosses: bool) -> bool {
        let who = match self.reaches.copiers(crosses) {
            Err(who) => who,
            Ok(copiers) if crosses && !leads(wire.node, from) => copiers.follow(bytes, false),
            Ok(copiers) => copiers.chosen(bytes),
        };
        wire.node.pace().is_awake() && who != Who::Receiver
    }

    /// A peer copies a message of this side's, or has it copied into its buffers. If the peer finds out what
    /// is the fastest for messages that cross, its next one goes the same way.
    pub(super) fn saw_copied(&self, node: &Node, by: Slot, sending: &Sending, who: Who) {
        if !leads(node, by)
            && node.is_local(by)
            && let Ok(copiers) = self.reaches.copiers(true)
        {
            copiers.saw(who, sending.record.get().buffer.place.len());
        }
    }
}

/// Whether it is this side of two that finds out who copies messages that cross.
pub(super) fn leads(node: &Node, peer: Slot) -> bool {
    node.slot() < peer
}

/// Whether it is the other side that finds out which way messages of middle size go that cross. Between endpoints of one
/// process it is neither.
pub(super) fn follows(node: &Node, peer: Slot) -> bool {
    peer < node.slot()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Who never waits is waited for less and less, and again as soon as that has paid.
    #[test]
    fn patience_is_short_with_those_who_never_come() {
        let (patience, looks) = (Patience::default(), Cell::new(0));
        let mut tries = Vec::new();
        for message in 0..1000 {
            looks.set(0);
            assert!(!patience.wait(0, || {
                looks.set(looks.get() + 1);
                false
            }));
            if looks.get() > 0 {
                tries.push(message);
            }
        }
        assert_eq!(tries[..6], [0, 1, 3, 7, 15, 31]);
        assert!(tries.len() > 1000 / 66 && tries.len() < 30, "{tries:?}");
        let paid = (0..=LONGEST).position(|_| patience.wait(0, || true));
        assert!(paid.is_some());
        assert!((0..100).all(|_| patience.wait(0, || true)));
    }
}
