//! Large messages from other nodes that their receivers read out of their senders' memory, where a
//! queue pair leads from one to the other.
//!
//! ```text
//!  receiver                                        sender
//!                                                   (registers the data)
//!    match <------------------------- RTS(length, address, key)
//!    read, part by part  . . . . . . . . . . . . .  (its device answers; no call of its takes part)
//!    FIN ------------------------------------------> registers them no more; done
//!
//!    or, if the queue pair fails meanwhile, is given up, or leads there no more:
//!    CTS ------------------------------------------> PIECE(0) PIECE(1) ...           (see `far`)
//! ```
//! What the announcement says of the memory is checked by the sender's device: a place that is not
//! what it has registered fails the queue pair, no more. A sender that gives its message up registers
//! it no more, so that a read fails, and tells whoever asks for pieces then.

use super::counters::count;
use super::engine::Stream;
use super::messenger::Messenger;
use super::record::{Record, RecordRef};
use super::wire;
use crate::base::Slot;
use crate::link::core::Wire;
use crate::link::far::{Direction, Flow, Outcome, Registered, Transfer};
use crate::net::memory::Lent;
use crate::net::provider::{Access, Remote};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The data of a send while a peer may read them. Before the record is done this is dropped, which
/// waits for the part of a read that is just being answered.
#[derive(Debug)]
pub(super) struct Exposed {
    // In this order: registered no more, then back.
    registered: Registered,
    _lent: Lent,
}

impl Exposed {
    /// Where they are.
    pub fn remote(&self) -> Remote {
        self.registered.remote()
    }

    /// Nobody reads them any more: the registration may be kept.
    pub fn give_back(self) {
        self.registered.give_back();
    }
}

/// A message that is being read.
#[derive(Debug)]
struct Fetch {
    /// Whose it is, and what comes of it if it cannot be read.
    stream: Stream,
    transfer: Arc<Transfer>,
    lent: Lent,
    /// The receive is given up, by whoever takes this out.
    given_up: bool,
}

/// Those of a process.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    all: Mutex<Vec<Fetch>>,
}

impl Fetches {
    fn lock(&self) -> MutexGuard<'_, Vec<Fetch>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being read goes on into memory that is never freed.
    pub fn leak(&self) {
        self.lock().drain(..).for_each(|fetch| std::mem::forget(fetch.lent));
    }
}

/// Lends a record's data, if they lie together.
fn lend(record: &Record, len: usize) -> Option<(Lent, crate::net::memory::Memory)> {
    let base = NonNull::new(record.buffer.place.address()?)?;
    // SAFETY: the record's memory, of which it has `len` bytes, as the callers saw to; it is the
    // engine's until the record is done, before which what was lent is back. Sends are registered
    // for reading only, and nobody else uses the memory of a receive.
    Some(unsafe { Lent::new(base, len) })
}

impl Messenger {
    /// Sender: lets the receiver of a large message read it, if it can.
    pub(super) fn expose(&self, wire: Wire<'_>, to: Slot, record: RecordRef) -> Option<Exposed> {
        let (record, far) = (record.get(), wire.core.far()?);
        let len = record.buffer.place.len();
        if len < self.limits.read || wire.node.is_local(to) || !far.is_hot(to, Flow::Messages) {
            return None;
        }
        let (lent, memory) = lend(record, len)?;
        let registered = far.expose(&memory, Access::REMOTE_READ)?;
        Some(Exposed { registered, _lent: lent })
    }

    /// Receiver: has the data of a message come from another node: read from `source`, if that is
    /// said and can be done, else in pieces.
    pub(super) fn fetch(&self, wire: Wire<'_>, stream: Stream, source: Option<Remote>) {
        let begun = source.and_then(|source| {
            let record = stream.record?;
            let (lent, memory) = lend(record.get(), stream.arrived.bytes)?;
            let (far, read) = (wire.core.far()?, Direction::Read);
            let transfer = far.copy(stream.from, wire.core.line(), read, source, &memory)?;
            Some((transfer, lent))
        });
        let Some((transfer, lent)) = begun else { return self.ask_far(wire, stream) };
        self.outgoing.more();
        self.fetches.lock().push(Fetch { stream, transfer, lent, given_up: false });
    }

    /// Receiver: sees to messages that have been read, or could not be.
    pub(super) fn end_fetches(&self, wire: Wire<'_>) {
        let mut all = self.fetches.lock();
        if all.is_empty() {
            return;
        }
        let over = |fetch: &mut Fetch| !fetch.given_up && fetch.transfer.outcome().is_some();
        let over: Vec<Fetch> = all.extract_if(.., over).collect();
        drop(all);
        let some = !over.is_empty();
        for Fetch { stream, transfer, lent, .. } in over {
            drop(lent);
            self.outgoing.less();
            let (from, Some(record)) = (stream.from, stream.record) else { continue };
            if transfer.is_done() {
                count(&self.counting.fetched);
                self.switching.came_far(stream.arrived.bytes, stream.began);
                self.tell_finished(wire, from, stream.number, wire::RECEIVED);
                record.finish(Ok(stream.arrived));
            } else if wire.node.is_dead(from) {
                record.finish(Err(wire.node.died(from, "a message")));
            } else {
                self.ask_far(wire, stream);
            }
        }
        if some {
            // Another thread may wait for what this was.
            wire.doorbell().notify();
        }
    }

    /// Receiver: gives up what is being read into a record: whether it is given up now, or has to be
    /// waited for. Nothing if nothing is read into it.
    pub(super) fn stop_fetch(&self, wire: Wire<'_>, record: &Record) -> Option<bool> {
        let mut all = self.fetches.lock();
        let mine = |fetch: &Fetch| fetch.stream.record.is_some_and(|it| it.is(record));
        let at = all.iter().position(mine)?;
        let fetch = &mut all[at];
        fetch.transfer.stop();
        let outcome = fetch.transfer.outcome();
        // If all of it has come after all, the receive is over.
        fetch.given_up = outcome != Some(Outcome::Done);
        if outcome.is_none_or(|outcome| outcome == Outcome::Done) {
            return Some(false);
        }
        let Fetch { stream, lent, .. } = all.remove(at);
        drop(all);
        drop(lent);
        self.outgoing.less();
        // As for what comes in pieces: its sender does not notice.
        self.tell_finished(wire, stream.from, stream.number, wire::RECEIVED);
        Some(true)
    }
}
