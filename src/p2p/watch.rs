//! When a program posts large messages and when it waits for them: what eager thresholds adapt to.
//!
//! ```text
//!   isend A, isend B -------- computes -------- wait A ..... wait B
//!        |<----------------------------------------|           |
//!        |<----------------------------------------|<- minus ->|    waiting is not computing
//! ```
//! Nor is copying in `isend`.
//! Costs nothing for messages that are small, and one load for those of peers whose memory the kernel copies, as
//! long as there were no others.

use super::endpoint::Endpoint;
use crate::base::Slot;
use crate::base::sync::{AtomicU64, Ordering};
use std::cell::Cell;

thread_local! {
    /// Nanoseconds that this thread has spent in calls about large messages.
    static BLOCKED: Cell<u64> = const { Cell::new(0) };
}

fn blocked() -> u64 {
    BLOCKED.with(Cell::get)
}

/// When a large message was posted; nothing for one that is small or was waited for, or of a peer whose
/// threshold does not adapt.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// 0: nothing to be noted.
    posted: AtomicU64,
    blocked: u64,
    peer: Option<Slot>,
    len: usize,
}

/// Counts the time until it is dropped as spent in calls about large messages.
pub(super) struct Busy<'a> {
    endpoint: &'a Endpoint,
    since: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let waited = self.endpoint.messenger.switching.now().saturating_sub(self.since);
        BLOCKED.with(|blocked| blocked.set(blocked.get().saturating_add(waited)));
    }
}

impl Endpoint {
    /// A message of `len` bytes to or from `peer` is being posted.
    pub(super) fn watch(&self, peer: Option<Slot>, len: usize) -> Watch {
        let Some(whose) = peer.filter(|_| len > self.messenger.limits.eager) else {
            return Watch::default();
        };
        if !self.messenger.adapts_to(self.wire(), whose) {
            // What waiting for it takes is not computing for the others.
            let len = if self.messenger.switching.has_adapted() { len } else { 0 };
            return Watch { len, ..Watch::default() };
        }
        let posted = AtomicU64::new(self.messenger.switching.now());
        Watch { posted, blocked: blocked(), peer, len }
    }

    /// The program asks for it.
    pub(super) fn asked_for(&self, watch: &Watch) {
        if watch.posted.load(Ordering::Relaxed) != 0 {
            self.asked_first(watch);
        }
    }

    #[cold]
    fn asked_first(&self, watch: &Watch) {
        let posted = watch.posted.swap(0, Ordering::Relaxed);
        if let (Some(peer), 1..) = (watch.peer, posted) {
            // On another thread than it was posted on the difference means nothing.
            let blocked = blocked().saturating_sub(watch.blocked);
            let now = self.messenger.switching.now().saturating_sub(blocked);
            self.messenger.note_wait(self.wire(), peer, posted, now, watch.len);
        }
    }

    /// The program begins to wait for it.
    pub(super) fn waiting(&self, watch: &Watch) -> Option<Busy<'_>> {
        self.asked_for(watch);
        self.busy(watch)
    }

    /// The program is inside of a call about it.
    pub(super) fn busy(&self, watch: &Watch) -> Option<Busy<'_>> {
        (watch.len > 0).then(|| Busy { endpoint: self, since: self.messenger.switching.now() })
    }

    /// A message of `len` bytes to or from `peer` goes by a call that blocks.
    #[inline]
    pub(super) fn blocking(&self, peer: Option<Slot>, len: usize) {
        if len > self.messenger.limits.eager
            && let Some(peer) = peer
        {
            self.messenger.note_blocking(self.wire(), peer);
        }
    }
}
