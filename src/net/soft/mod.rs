//! What devices made of software have in common: keys, completion queues, receive queues, and the
//! protocol of connected queue pairs, all without input and output. `sockets` moves its bytes over
//! TCP, `sim` through virtual time.
//!
//! ```text
//!  post --> requester --- requests ---> responder --> registered memory, receives
//!            ^   slots                    answers
//!            '--------- answers ----------'
//!  two streams of bytes, one each way, for each side's own operations: a request that waits for a
//!  receive holds up what is behind it, never the answers to the other side's operations
//! ```

pub(super) mod completions;
pub(super) mod core;
pub(super) mod datagram;
pub(super) mod events;
pub(super) mod frame;
pub(super) mod keys;
pub(super) mod objects;
pub(super) mod pieces;
pub(super) mod receives;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::net::provider::Counters;

/// Most pieces of one operation.
pub(super) const PIECES: usize = 4;
/// Most bytes of an inline operation.
pub(super) const INLINE: usize = 256;
/// Reads and atomics of a queue pair under way.
pub(super) const READS: usize = 16;
/// Longest message.
pub(super) const MESSAGE: u32 = 1 << 30;

/// What the objects of one device share.
#[derive(Default)]
pub(super) struct Shared {
    pub keys: keys::Keys,
    pub events: events::Events,
    pub strangers: AtomicU64,
    pub malformed: AtomicU64,
    pub unwanted: AtomicU64,
    pub refused: AtomicU64,
    numbers: AtomicU32,
    /// Queue pairs there are.
    pub queue_pairs: AtomicU32,
}

impl Shared {
    /// A number that no other object of the device has had (in 2^32 of them).
    pub fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn counters(&self) -> Counters {
        Counters {
            strangers: self.strangers.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
            unwanted: self.unwanted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
