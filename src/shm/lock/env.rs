//! A node's attachment is what locks must know.

use super::{LocalNodes, LockEnv, LockNode};
use crate::base::Slot;
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
}
