//! Peers whose packets make no sense, and the error that waits for them end with.
//!
//! ```text
//!   b                                   a
//!   nonsense  ------------------------> notes b and why; b counts as gone in all windows
//!   notes a as one that it cannot       <--- refusal, in each window that both have
//!   talk to; a counts as gone
//! ```
//! Both ends give up, so neither waits for what the other will not do. It lasts as long as the job:
//! what was lost in between cannot be made good.

use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Slot};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// See the [module](self). Its lock is held by nobody who waits, and taken by nobody as long as all
/// are believed: that is one relaxed load.
#[derive(Debug, Default)]
pub(super) struct Distrust {
    /// Somebody is noted. Set under the agent's lock, under which packets are handled, too.
    any: AtomicBool,
    peers: Mutex<HashMap<Slot, String>>,
}

impl Distrust {
    /// Notes a peer and why; false if it was noted before.
    pub fn note(&self, peer: Slot, why: impl Into<String>) -> bool {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = !peers.contains_key(&peer);
        if fresh {
            peers.insert(peer, why.into());
            self.any.store(true, Ordering::Relaxed);
        }
        fresh
    }

    /// Whether nobody is noted.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether a peer is noted.
    pub fn has(&self, peer: Slot) -> bool {
        !self.is_empty()
            && self.peers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&peer)
    }

    /// The error of what needs a peer that is noted.
    pub fn error(&self, peer: Slot) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.get(&peer).map(|why| Error::Incompatible {
            what: "a packet",
            why: format!("{why}; nothing more is exchanged with rank {peer}, end the job"),
        })
    }
}
