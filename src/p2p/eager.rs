//! Large messages that travel with their data: into a buffer of the receiver's, and out of it.
//!
//! ```text
//!  sender                                  receiver
//!    take a buffer, copy in; POOL -------> the buffer is its own; match, copy out, give back
//!    no buffer is free: RTS, missed -----> one more is made
//! ```

use super::adapt::Class;
use super::counters::count;
use super::messenger::Messenger;
use super::pool::PoolBlock;
use super::record::Place;
use super::switch::{HEADER, lock};
use super::wire::Words;
use crate::base::Slot;
use crate::link::core::Wire;
use crate::shm::copy::copy_in;
use crate::shm::node::Node;
use std::sync::Arc;

/// A buffer of the receiver's that has a message, of which it does not know yet.
#[derive(Debug)]
pub(super) struct Filled {
    lease: Arc<PoolBlock>,
    index: u32,
    me: Slot,
    sent: bool,
}

impl Filled {
    /// The payload that says so.
    pub fn words(&self, head: u64, len: usize) -> Words {
        let place = u64::from(self.lease.class().exponent()) << 32 | u64::from(self.index);
        Words::new([head, len as u64, place])
    }

    /// It was said: the buffer is the receiver's.
    pub fn sent(mut self) {
        self.sent = true;
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if !self.sent {
            self.lease.untake(self.me, self.index);
        }
    }
}

/// What came of an attempt to send by a pool.
pub(super) enum Fill {
    Filled(Filled),
    /// It may go so, but no buffer is free.
    Missed,
    /// It may not.
    No,
}

/// A message in a buffer of this process's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    class: Class,
    index: u32,
    pub len: usize,
}

impl Messenger {
    /// Sender: puts the data of a large message into a buffer of its receiver's, if they may go so.
    /// Two uncontended locks and one compare-exchange beside the copy.
    pub(super) fn try_pool(&self, wire: Wire<'_>, to: Slot, place: &Place) -> Fill {
        let switching = &self.switching;
        let Some(peer) = switching.known(to) else { return Fill::No };
        let state = lock(&peer.state);
        let len = place.len();
        let may = switching.allows(&state, len);
        let lease = state.lease.as_ref().filter(|lease| {
            may && (len as u64).saturating_add(HEADER) <= lease.class().threshold()
        });
        let Some(lease) = lease.cloned() else { return Fill::No };
        drop(state);
        let (node, me) = (wire.node, wire.node.slot());
        let Some(index) = lease.take(node) else {
            count(&self.counting.missed);
            return Fill::Missed;
        };
        let filled = Filled { lease, index, me, sent: false };
        let Ok(at) = filled.lease.buffer(node, index) else { return Fill::No };
        match place.address() {
            // SAFETY: the buffer is this sender's, and `len` bytes fit as was checked; the record
            // is the engine's.
            Some(from) => unsafe { copy_in(at.as_ptr(), from, len) },
            // SAFETY: as above.
            None => unsafe { place.read(0, at.as_ptr(), len) },
        }
        count(&self.counting.pooled);
        Fill::Filled(filled)
    }

    /// Receiver: a message has come in a buffer; nothing if that cannot be.
    pub(super) fn pooled(&self, from: Slot, len: u64, place: u64) -> Option<Pooled> {
        let class = u8::try_from(place >> 32).ok().and_then(Class::new)?;
        let (index, switching) = (place as u32, &self.switching);
        let mut mine = lock(&switching.mine);
        let fits = len.checked_add(HEADER)? <= class.threshold();
        let known = fits && mine.block(class)?.arrived(from, index);
        if !known {
            return None;
        }
        mine.pools.taken(class, switching.now());
        Some(Pooled { class, index, len: len as usize })
    }

    /// Receiver: address of the data.
    pub(super) fn pooled_at(&self, node: &Node, pooled: Pooled) -> Option<*const u8> {
        let mine = lock(&self.switching.mine);
        let at = mine.block(pooled.class)?.buffer(node, pooled.index).ok()?;
        Some(at.as_ptr().cast_const())
    }

    /// Receiver: the data were copied, or nobody wants them.
    pub(super) fn give_back(&self, pooled: Pooled) {
        let switching = &self.switching;
        let mut mine = lock(&switching.mine);
        if let Some(block) = mine.block(pooled.class) {
            block.give_back(pooled.index);
            mine.pools.given_back(pooled.class, switching.now());
        }
    }
}
