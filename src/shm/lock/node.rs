//! Queue nodes: one per waiting thread, in the shared memory of the thread's slot, and the
//! process-private book of which of them are in use.

use super::word::Id;
use super::{LockEnv, NODES};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, futex_wake};

/// The node belongs to nobody's queue; its process may use it.
pub(super) const FREE: u32 = 0;
/// Its thread waits, or holds the lock.
pub(super) const WAITING: u32 = 1;
/// Its thread gave up waiting. The node stays in the queue until it is passed over.
pub(super) const ABANDONED: u32 = 2;
/// The owner named in `by` is taking it out of the debris.
pub(super) const PASSED: u32 = 3;
/// Flag: the thread sleeps on the state.
pub(super) const PARKED: u32 = 4;
/// Flag: look at the lock word, you may be the owner.
pub(super) const HINT: u32 = 8;

/// One waiter's place in a lock's queue. All zeros is a free node.
///
/// `state` is written by the waiting thread, by whoever sets the hint, and, once abandoned, by the
/// owner that passes it over, which also writes `by`. `prev` and `turn` are written by the waiting thread alone:
/// before it is in the queue, and `prev` while it owns the lock. `behind` is written by whoever stands in line
/// behind it.
#[repr(C, align(64))]
pub struct LockNode {
    pub(super) state: AtomicU32,
    pub(super) prev: AtomicU32,
    /// Id of the owner that passed it.
    pub(super) by: AtomicU32,
    /// How many times it has stood in line.
    pub(super) turn: AtomicU32,
    /// Id of the node next to it in line, and above that the `turn` in which it is that.
    pub(super) behind: AtomicU64,
    _pad: [u32; 10],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<LockNode>() == 64);
    assert!(offset_of!(LockNode, state) == 0);
    assert!(offset_of!(LockNode, prev) == 4);
    assert!(offset_of!(LockNode, by) == 8);
    assert!(offset_of!(LockNode, turn) == 12);
    assert!(offset_of!(LockNode, behind) == 16);
};

impl Default for LockNode {
    fn default() -> Self {
        LockNode {
            state: AtomicU32::new(FREE),
            prev: AtomicU32::new(0),
            by: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            behind: AtomicU64::new(0),
            _pad: [0; 10],
        }
    }
}

impl LockNode {
    pub(super) fn kind(&self) -> u32 {
        self.state.load(Ordering::Acquire) & !(PARKED | HINT)
    }

    /// Begins another life of the node in a queue.
    pub(super) fn begin(&self) {
        // Release: who sees this life sees that the lock has been handed on in the last.
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.state.store(WAITING, Ordering::Relaxed);
    }

    /// Notes who stands behind the node in a life of it.
    pub(super) fn note_behind(&self, id: Id, turn: u32) {
        self.behind.store(u64::from(turn) << 32 | u64::from(id.0), Ordering::Release);
    }

    /// Who stands behind the node, if that has been noted in its present life.
    pub(super) fn noted_behind(&self) -> Option<Id> {
        let behind = self.behind.load(Ordering::Acquire);
        let current = (behind >> 32) as u32 == self.turn.load(Ordering::Relaxed);
        (current && behind as u32 != 0).then_some(Id(behind as u32))
    }

    /// Tells the node's thread to look at the lock word. It may come late, to a thread that
    /// waits for another lock by now: that one looks and goes on waiting.
    pub(super) fn hint(&self) {
        if self.state.fetch_or(HINT, Ordering::AcqRel) & PARKED != 0 {
            futex_wake(&self.state, 1);
        }
    }
}

/// Nodes kept for taking over a lock whose owner is gone. Such a node never waits, so it is back
/// when its holder releases: abandoned waits cannot use up what is needed to sweep them.
const RESERVE: u64 = 0xff << 56;

/// Which of a slot's nodes its process uses. Private to the process; all its threads share it.
#[derive(Debug)]
pub struct LocalNodes {
    /// Nodes for the taking.
    free: AtomicU64,
    /// Nodes left in a queue by a thread that went away; see [`is_back`].
    left: AtomicU64,
    /// Nodes that do not wait.
    reserve: u64,
}

impl Default for LocalNodes {
    fn default() -> Self {
        // Node 0 only lends its id to holders that never queued.
        LocalNodes { free: AtomicU64::new(!1), left: AtomicU64::new(0), reserve: RESERVE }
    }
}

impl LocalNodes {
    /// A node to wait with. Two private atomics, except when nodes run short.
    pub(super) fn take<E: LockEnv>(&self, env: &E) -> Option<usize> {
        if let Some(k) = self.take_of(!self.reserve) {
            return Some(k);
        }
        let mut left = self.left.load(Ordering::Acquire);
        while left != 0 {
            let k = left.trailing_zeros() as usize;
            left &= left - 1;
            let bit = 1 << k;
            if is_back(env, k) && self.left.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                if bit & self.reserve == 0 {
                    return Some(k);
                }
                self.free.fetch_or(bit, Ordering::Release);
            }
        }
        None
    }

    /// A node to take a lock over with.
    pub(super) fn take_reserved(&self) -> Option<usize> {
        self.take_of(self.reserve)
    }

    fn take_of(&self, mask: u64) -> Option<usize> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free & mask != 0 {
            let k = (free & mask).trailing_zeros() as usize;
            let taken = self.free.compare_exchange_weak(
                free,
                free & !(1 << k),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(k),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Takes back a node that is in no queue.
    pub(super) fn give(&self, k: usize, node: &LockNode) {
        node.state.store(FREE, Ordering::Relaxed);
        self.free.fetch_or(1 << k, Ordering::Release);
    }

    /// Notes that a node is still in a queue though its thread is done with it.
    pub(super) fn leave(&self, k: usize) {
        self.left.fetch_or(1 << k, Ordering::Release);
    }

    /// Nodes that can be taken now, for tests.
    #[cfg(test)]
    pub(super) fn available<E: LockEnv>(&self, env: &E) -> usize {
        let free = self.free.load(Ordering::Relaxed).count_ones() as usize;
        let left = self.left.load(Ordering::Relaxed);
        let back = (1..NODES).filter(|&k| left & 1 << k != 0 && is_back(env, k));
        free + back.count()
    }

    /// A book of `n` nodes to wait with and one in reserve, to run out of in tests.
    #[cfg(test)]
    pub(super) fn small(n: usize) -> LocalNodes {
        let free = AtomicU64::new((u64::MAX >> (62 - n)) & !1);
        LocalNodes { free, left: AtomicU64::new(0), reserve: 1 << (n + 1) }
    }
}

/// Whether a node that was left in a queue is in none any more: it was freed, or its sweeper died
/// between unlinking and freeing it. That sweeper's `prev` changes no more; while it names the
/// node, the node is still linked, and the next owner will pass it.
fn is_back<E: LockEnv>(env: &E, k: usize) -> bool {
    let Some(node) = env.node(env.slot(), k) else { return false };
    match node.kind() {
        FREE => true,
        PASSED => {
            let by = Id(node.by.load(Ordering::Acquire)).parts();
            by.is_some_and(|(slot, at)| {
                env.is_dead(slot)
                    && env.node(slot, at).is_some_and(|sweeper| {
                        sweeper.prev.load(Ordering::Relaxed) != Id::new(env.slot(), k).0
                    })
            })
        }
        _ => false,
    }
}

const _: () = assert!(NODES == 64, "the books are bits of a u64");
