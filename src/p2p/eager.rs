//! Large messages that travel with their data: into a buffer of the receiver's, and out of it.
//!
//! ```text
//!  sender                                  receiver
//!    take a buffer, copy in; POOL -------> the buffer is its own; match, copy out, give back
//!    no buffer is free: RTS, missed -----> one more is made
//! ```

use super::adapt::Class;
use super::awake::follows;
use super::borrow::Borrow;
use super::counters::count;
use super::judge::Drained;
use super::lent::{self, Loan};
use super::messenger::Messenger;
use super::middle::Asked;
use super::pool::PoolBlock;
use super::reach;
use super::record::Place;
use super::switch::{HEADER, lock};
use super::wire::{self, Words};
use crate::base::Slot;
use crate::base::long::{Kind, long_copy_in};
use crate::link::core::Wire;
use crate::shm::node::Node;
use std::sync::Arc;

/// A buffer that has a message, of which its receiver does not know yet.
#[derive(Debug)]
pub(super) enum Filled<'a> {
    /// Of the receiver's pool.
    Pool(Leased),
    /// The sender's own.
    Lent(Loan<'a>),
}

/// A buffer of the receiver's that has a message, of which it does not know yet.
#[derive(Debug)]
pub(super) struct Leased {
    lease: Arc<PoolBlock>,
    index: u32,
    me: Slot,
    sent: bool,
}

impl Filled<'_> {
    /// The payload that says so.
    pub fn words(&self, head: u64, len: usize) -> Words {
        let place = match self {
            Filled::Pool(it) => u64::from(it.lease.class().exponent()) << 32 | u64::from(it.index),
            Filled::Lent(loan) => loan.at(),
        };
        Words::new([head, len as u64, place])
    }

    /// The kind of the message that says so.
    pub fn kind(&self) -> u8 {
        match self {
            Filled::Pool(_) => wire::POOL,
            Filled::Lent(_) => wire::LENT,
        }
    }

    /// The same, for a message that waits.
    pub fn keep(self) -> Filled<'static> {
        match self {
            Filled::Pool(leased) => Filled::Pool(leased),
            Filled::Lent(loan) => Filled::Lent(loan.keep()),
        }
    }

    /// It was said: the buffer is the receiver's.
    pub fn sent(self) {
        match self {
            Filled::Pool(mut leased) => leased.sent = true,
            Filled::Lent(loan) => loan.sent(),
        }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if !self.sent {
            self.lease.untake(self.me, self.index);
        }
    }
}

/// What came of an attempt to send by a pool.
pub(super) enum Fill<'a> {
    Filled(Filled<'a>),
    /// It may go so, but no buffer is free.
    Missed,
    /// It may not.
    No,
}

/// A message in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    from: Slot,
    lies: Lies,
    pub len: usize,
}

/// In which one.
#[derive(Clone, Copy, Debug)]
enum Lies {
    /// Of a pool of this process's.
    Pool(Class, u32),
    /// Of its sender's.
    Lent(Borrow),
}

impl Messenger {
    /// Sender: puts the data of a large message into a buffer of its receiver's, if they may go so.
    /// Two uncontended locks and one compare-exchange beside the copy.
    pub(super) fn try_pool(&self, wire: Wire<'_>, to: Slot, place: &Place) -> Fill<'_> {
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
        let filled = Leased { lease, index, me, sent: false };
        let Ok(at) = filled.lease.buffer(node, index) else { return Fill::No };
        match place.address() {
            // SAFETY: the buffer is this sender's, and `len` bytes fit as was checked; the record
            // is the engine's.
            Some(from) => unsafe { long_copy_in(Kind::Pool, at.as_ptr(), from, len) },
            // SAFETY: as above.
            None => unsafe { place.read(0, at.as_ptr(), len) },
        }
        count(&self.counting.pooled);
        Fill::Filled(Filled::Pool(filled))
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
        Some(Pooled { from, lies: Lies::Pool(class, index), len: len as usize })
    }

    /// Receiver: a message has come in a buffer of its sender's; nothing if that cannot be.
    pub(super) fn borrowed(&self, node: &Node, from: Slot, len: u64, place: u64) -> Option<Pooled> {
        let len = usize::try_from(len).ok()?;
        let borrow = Borrow::of(node, place, len)?;
        Some(Pooled { from, lies: Lies::Lent(borrow), len })
    }

    /// Receiver: address of the data.
    pub(super) fn pooled_at(&self, node: &Node, pooled: Pooled) -> Option<*const u8> {
        let at = match pooled.lies {
            Lies::Pool(class, index) => {
                lock(&self.switching.mine).block(class)?.buffer(node, index).ok()?
            }
            Lies::Lent(borrow) => borrow.data(),
        };
        Some(at.as_ptr().cast_const())
    }

    /// Receiver: the copy out of a buffer begins. What its sender wants to know of it, if anything.
    pub(super) fn asked(
        &self,
        node: &Node,
        pooled: Pooled,
        awaited: bool,
    ) -> Option<(Asked, Drained)> {
        let Lies::Lent(borrow) = pooled.lies else { return None };
        let class = lent::class_of(pooled.len);
        let both_ways = self.judge.got(class);
        if follows(node, pooled.from) {
            self.judge.saw(class, false);
        }
        let asked = borrow.asked(node)?;
        let began = self.switching.now();
        // Where ranks share cores each copy takes time from all of them, and it is the system that is late.
        let shared = !node.pace().is_awake();
        let (awaited, both_ways) = (awaited || shared, both_ways || shared);
        let (bytes, ended, by_kernel) = (pooled.len, began, None);
        Some((asked, Drained { bytes, began, ended, awaited, both_ways, by_kernel }))
    }

    /// Receiver: before a message is copied out that its sender has lent and that is timed, now and then has the
    /// kernel copy it, as if it had been announced, and notes what that took. The copy that counts is the one
    /// afterwards: the sender may have died, and its number be another process's.
    pub(super) fn probe(
        &self,
        node: &Node,
        place: &Place,
        pooled: Pooled,
        (asked, it): &mut (Asked, Drained),
    ) {
        let (Lies::Lent(borrow), Some(to)) = (pooled.lies, place.address()) else { return };
        let len = pooled.len.min(place.len());
        if !asked.counts || len == 0 || !self.judge.is_curious(lent::class_of(pooled.len)) {
            return;
        }
        // The node's memory is at the same address there.
        let (reach, there) =
            (self.reaches.of(node, pooled.from), borrow.data().addr().get() as u64);
        let began = self.switching.now();
        // SAFETY: the record is the engine's and this thread has it alone; its memory has room for `len`, and what is
        // written to it now is overwritten.
        if unsafe { reach::is_copied(reach, to, there, len) } {
            it.by_kernel = Some(self.switching.now().saturating_sub(began));
        }
    }

    /// Receiver: it has ended.
    #[cold]
    pub(super) fn answer(&self, node: &Node, pooled: Pooled, asked: (Asked, Drained)) {
        let (Lies::Lent(borrow), (asked, it)) = (pooled.lies, asked) else { return };
        let (bytes, it) = (it.bytes, Drained { ended: self.switching.now(), ..it });
        let verdict = self.judge.judge(lent::class_of(bytes), asked, it);
        verdict.into_iter().for_each(|verdict| borrow.answer(node, verdict));
    }

    /// Receiver: the data were copied, or nobody wants them.
    pub(super) fn give_back(&self, node: &Node, pooled: Pooled) {
        let switching = &self.switching;
        let (class, index) = match pooled.lies {
            Lies::Pool(class, index) => (class, index),
            Lies::Lent(borrow) => return borrow.give_back(node),
        };
        let mut mine = lock(&switching.mine);
        if let Some(block) = mine.block(class) {
            block.give_back(index);
            mine.pools.given_back(class, switching.now());
        }
    }
}
