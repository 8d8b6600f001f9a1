//! The program's messages that another room came across: kept until the program polls.
//!
//! Whoever takes a message out of a lane or out of the inbox puts it here while it still has the lock
//! of that one, so those of one sender are here in their order.

use super::Message;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::base::{Error, Result, Slot};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the program's messages that are held at most (and what one poll adds).
const MOST: usize = 16 << 20;
/// What holding a message costs beside its bytes.
const COST: usize = 64;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Held {
    all: Mutex<VecDeque<Kept>>,
    /// What they take, changed under the lock.
    bytes: AtomicUsize,
}

struct Kept {
    from: Slot,
    kind: u8,
    imm: u64,
    bytes: Box<[u8]>,
}

impl Held {
    fn all(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a message.
    #[cold]
    pub fn keep(&self, m: Message<'_>) {
        let mut all = self.all();
        all.push_back(Kept { from: m.from, kind: m.kind, imm: m.imm, bytes: m.bytes.into() });
        let bytes = self.bytes.load(Ordering::Relaxed) + m.bytes.len() + COST;
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether nothing is kept. One load.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    /// Gives the program what is kept; no lock is held meanwhile. One load if that is nothing.
    #[inline(always)]
    pub fn give(&self, f: &mut impl FnMut(Message<'_>)) {
        if !self.is_empty() {
            self.give_all(f);
        }
    }

    #[cold]
    fn give_all(&self, f: &mut impl FnMut(Message<'_>)) {
        while !self.is_empty() {
            let mut all = self.all();
            let Some(kept) = all.pop_front() else { return };
            let bytes = self.bytes.load(Ordering::Relaxed) - kept.bytes.len() - COST;
            self.bytes.store(bytes, Ordering::Relaxed);
            drop(all);
            f(Message { from: kept.from, kind: kept.kind, imm: kept.imm, bytes: &kept.bytes });
        }
    }

    /// Whether more may be kept. One load.
    ///
    /// # Errors
    /// [`Error::Exhausted`].
    #[inline(always)]
    pub fn admit(&self) -> Result<()> {
        if self.bytes.load(Ordering::Relaxed) < MOST { Ok(()) } else { Err(exhausted()) }
    }
}

#[cold]
fn exhausted() -> Error {
    Error::Exhausted {
        what: "bytes for short messages that have come and that nobody received",
        limit: MOST as u64,
        advice: "receive them with Link::poll: what is behind them cannot arrive",
    }
}
