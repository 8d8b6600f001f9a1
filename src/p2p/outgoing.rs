//! What is to be sent and found no room yet.
//!
//! Two kinds. *Numbered* messages keep their order: one queue for each peer, and as long as it is
//! not empty what comes later goes behind. *Notes* answer something and may overtake each other;
//! they wait in one queue. Both are bounded by what the program and its peers have begun.

use super::eager::Filled;
use super::messenger::Messenger;
use super::record::RecordRef;
use super::wire::Words;
use crate::base::keys::ByNumber;
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Result, Slot};
use crate::link::Push;
use crate::link::core::Wire;
use crate::link::vc::Numbered;
use crate::shm::ring::{Headed, Label, Payload};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A numbered message that waits for room.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Data that the message itself carries: the record is done once it is sent.
    Data { label: Label, head: u64, record: RecordRef },
    /// As above, but somebody else ends the record: the number goes before the data.
    Synchronous { label: Label, head: u64, number: u64, record: RecordRef },
    /// Words. Not `logged`: it does not count among those that a receive could take.
    Words { label: Label, words: Words, logged: bool },
    /// As above, about data in a buffer of the receiver's: the record is done once it is sent.
    Pooled { label: Label, words: Words, record: RecordRef, filled: Filled<'static> },
    /// A packet of a switch: not numbered, but in order with what is.
    Packet { label: Label, words: Words },
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    numbered: Mutex<ByNumber<Slot, VecDeque<Waiting>>>,
    notes: Mutex<VecDeque<(Slot, Label, Words)>>,
    /// Messages in all of the queues.
    count: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outgoing {
    /// Whether nothing waits. One load.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Sends a numbered message behind those that wait; false if that is not possible now.
    pub fn try_send(
        &self,
        messenger: &Messenger,
        wire: Wire<'_>,
        to: Slot,
        label: Label,
        payload: impl Payload,
        head: u64,
    ) -> Result<bool> {
        if self.is_empty() {
            return Ok(wire.try_send_numbered(to, label, payload, head)? == Numbered::Sent);
        }
        let mut queues = lock(&self.numbered);
        if let Some(queue) = queues.get_mut(&to) {
            if !self.flush_queue(messenger, wire, to, queue)? {
                return Ok(false);
            }
            queues.remove(&to);
        }
        Ok(wire.try_send_numbered(to, label, payload, head)? == Numbered::Sent)
    }

    /// Something else waits for room, or does not any more.
    pub fn more(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// See [`Outgoing::more`].
    pub fn less(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether numbered messages to `to` wait.
    pub fn has_queue(&self, to: Slot) -> bool {
        !self.is_empty() && lock(&self.numbered).contains_key(&to)
    }

    /// Sends a numbered message, or puts it behind those that wait.
    pub fn send_or_queue(&self, messenger: &Messenger, wire: Wire<'_>, to: Slot, mut it: Waiting) {
        if self.is_empty() && matches!(attempt(wire, to, &mut it), Ok(Numbered::Sent)) {
            return it.conclude();
        }
        self.queue(to, it);
        // If the peer is gone, this ends it.
        self.flush(messenger, wire);
    }

    /// Puts a numbered message behind those that wait.
    pub fn queue(&self, to: Slot, waiting: Waiting) {
        // Counted first: whoever sees the queue empty afterwards has sent nothing before.
        self.count.fetch_add(1, Ordering::AcqRel);
        lock(&self.numbered).entry(to).or_default().push_back(waiting);
    }

    /// Sends an answer, now or later. What is for the dead is forgotten.
    pub fn note(&self, wire: Wire<'_>, to: Slot, label: Label, words: Words) {
        if express_plain(wire, to, label, &words) {
            return;
        }
        match wire.try_send(to, label, words.bytes()) {
            Ok(Push::Sent) | Err(_) => {}
            Ok(Push::Full) => {
                self.count.fetch_add(1, Ordering::AcqRel);
                lock(&self.notes).push_back((to, label, words));
            }
        }
    }

    /// Sends what finds room now.
    pub fn flush(&self, messenger: &Messenger, wire: Wire<'_>) {
        if self.is_empty() {
            return;
        }
        let mut notes = lock(&self.notes);
        for _ in 0..notes.len() {
            let Some((to, label, words)) = notes.pop_front() else { break };
            match wire.try_send(to, label, words.bytes()) {
                Ok(Push::Full) => notes.push_back((to, label, words)),
                Ok(Push::Sent) | Err(_) => {
                    self.count.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        drop(notes);
        messenger.push_far(wire);
        messenger.end_fetches(wire);
        let mut queues = lock(&self.numbered);
        queues.retain(|to, queue| match self.flush_queue(messenger, wire, *to, queue) {
            Ok(empty) => !empty,
            Err(_) => {
                // The peer is gone: what waits for it ends with the reason.
                self.count.fetch_sub(queue.len() as u32, Ordering::AcqRel);
                for waiting in queue.drain(..) {
                    if let Waiting::Data { record, .. } | Waiting::Pooled { record, .. } = waiting {
                        record.finish(Err(wire.node.died(*to, "isend")));
                    }
                }
                false
            }
        });
    }

    /// Sends from one queue; whether it is empty now.
    fn flush_queue(
        &self,
        messenger: &Messenger,
        wire: Wire<'_>,
        to: Slot,
        queue: &mut VecDeque<Waiting>,
    ) -> Result<bool> {
        while let Some(first) = queue.front_mut() {
            if let Waiting::Data { label, head, record } = first
                && messenger.is_pressed(wire, to)
            {
                // When it was queued there was room for its data; now there is none.
                let (label, head, record) = (*label, *head, *record);
                *first = messenger.announce(wire, to, record, label, head)?;
            }
            if attempt(wire, to, first)? != Numbered::Sent {
                return Ok(false);
            }
            self.count.fetch_sub(1, Ordering::AcqRel);
            queue.pop_front().into_iter().for_each(Waiting::conclude);
        }
        Ok(true)
    }

    /// Takes a message that waits out again, whose record is `which`; whether it was there.
    pub fn recall(&self, to: Slot, which: impl Fn(&Waiting) -> bool) -> bool {
        let mut queues = lock(&self.numbered);
        let Some(queue) = queues.get_mut(&to) else { return false };
        let before = queue.len();
        queue.retain(|waiting| !which(waiting));
        let taken = before - queue.len();
        if queue.is_empty() {
            queues.remove(&to);
        }
        self.count.fetch_sub(taken as u32, Ordering::AcqRel);
        taken > 0
    }
}

/// Sends a message that waits, if there is room.
fn attempt(wire: Wire<'_>, to: Slot, waiting: &mut Waiting) -> Result<Numbered> {
    match waiting {
        Waiting::Data { label, head, record } => {
            with_data(record, |data| wire.try_send_numbered(to, *label, Headed(*head, data), *head))
        }
        Waiting::Synchronous { label, head, number, record } => {
            let data = pack(record, &number.to_ne_bytes());
            wire.try_send_numbered(to, *label, Headed(*head, &data), *head)
        }
        Waiting::Words { label, words, logged: true } | Waiting::Pooled { label, words, .. } => {
            if express(wire, to, *label, words) {
                return Ok(Numbered::Sent);
            }
            wire.try_send_numbered(to, *label, words.bytes(), words.first())
        }
        Waiting::Words { label, words, .. } => wire.push_numbered(to, *label, words.bytes()),
        Waiting::Packet { label, words } => {
            wire.try_send(to, *label, words.bytes()).map(|pushed| match pushed {
                Push::Sent => Numbered::Sent,
                Push::Full => Numbered::Full,
            })
        }
    }
}

/// Sends words the short way, if that can be (see [`Endpoint::express`](super::endpoint::Endpoint::express)): what the
/// general way keeps on the stack it reads back only when a copy's stores, that came before, are through.
#[inline(never)]
fn express(wire: Wire<'_>, to: Slot, label: Label, words: &Words) -> bool {
    wire.express(to, label, words.headed())
}

/// The same of words that are not numbered.
#[inline(never)]
fn express_plain(wire: Wire<'_>, to: Slot, label: Label, words: &Words) -> bool {
    wire.express_plain(to, label, words.headed())
}

impl Waiting {
    /// It was sent: ends what ends with that.
    fn conclude(self) {
        match self {
            Waiting::Data { record, .. } => record.finish(Ok(Default::default())),
            Waiting::Pooled { record, filled, .. } => {
                filled.sent();
                record.finish(Ok(Default::default()));
            }
            Waiting::Synchronous { .. } | Waiting::Words { .. } | Waiting::Packet { .. } => {}
        }
    }
}

/// Runs `f` with the data of a small record, put together if they do not lie so.
pub(super) fn with_data<R>(record: &RecordRef, f: impl FnOnce(&[u8]) -> R) -> R {
    let place = &record.get().buffer.place;
    match place.address() {
        // SAFETY: the record is the engine's, and so are the bytes.
        Some(at) => f(unsafe { std::slice::from_raw_parts(at, place.len()) }),
        None => f(&pack(record, &[])),
    }
}

/// The data of a small record behind `first`.
pub(super) fn pack(record: &RecordRef, first: &[u8]) -> Vec<u8> {
    let place = &record.get().buffer.place;
    let mut data = Vec::with_capacity(first.len() + place.len());
    data.extend_from_slice(first);
    // SAFETY: as many bytes as were reserved, all written by `read` before the length says so; the
    // record is the engine's.
    unsafe {
        place.read(0, data.as_mut_ptr().add(first.len()), place.len());
        data.set_len(first.len() + place.len());
    }
    data
}
