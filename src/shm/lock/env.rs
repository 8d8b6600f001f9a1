//! A node's attachment is what locks must know: as itself for locks that the library holds for a
//! moment, as a [`Caller`] for those that a program waits for.

use super::{LocalNodes, LockEnv, LockNode};
use crate::base::{Rank, Slot};
use crate::shm::node::Node;
use crate::shm::park::Pace;

impl LockEnv for Node {
    fn node(&self, slot: Slot, k: usize) -> Option<&LockNode> {
        if u32::from(slot.0) >= Node::size(self) {
            return None;
        }
        self.rank_slot(slot).lock_nodes.get(k)
    }
    #[inline]
    fn slot(&self) -> Slot {
        Node::slot(self)
    }
    fn nodes(&self) -> &LocalNodes {
        &self.lock_nodes
    }
    fn pace(&self) -> Pace {
        Node::pace(self)
    }
    #[inline]
    fn is_dead(&self, slot: Slot) -> bool {
        Node::is_dead(self, slot)
    }
    fn probe(&self, slot: Slot) -> bool {
        Node::probe(self, slot)
    }
    fn rank(&self, slot: Slot) -> Rank {
        self.rank_of(slot)
    }
}

/// A node, for locks that a program waits for while it holds nothing of the library's: such a wait
/// looks after pending work, as all waits of the program do, and sleeps no longer than these. Others
/// may not, for the work may want what the caller holds; nor need they: who holds a lock of the
/// library's (of some elements, of a part in an active message, of the heap) waits for nobody's
/// packets before giving it back, for handlers do not communicate.
#[repr(transparent)]
pub(crate) struct Caller(Node);

impl Caller {
    /// The node, seen so.
    #[inline]
    pub fn of(node: &Node) -> &Caller {
        // SAFETY: a Caller is a Node and nothing else (transparent); the lifetime is the same.
        unsafe { &*std::ptr::from_ref(node).cast() }
    }
}

impl LockEnv for Caller {
    fn node(&self, slot: Slot, k: usize) -> Option<&LockNode> {
        LockEnv::node(&self.0, slot, k)
    }
    #[inline]
    fn slot(&self) -> Slot {
        self.0.slot()
    }
    fn nodes(&self) -> &LocalNodes {
        LockEnv::nodes(&self.0)
    }
    fn pace(&self) -> Pace {
        self.0.pace()
    }
    #[inline]
    fn is_dead(&self, slot: Slot) -> bool {
        self.0.is_dead(slot)
    }
    fn probe(&self, slot: Slot) -> bool {
        self.0.probe(slot)
    }
    fn waiting(&self, turn: u32) {
        self.0.help_now_and_then(turn);
    }
}
