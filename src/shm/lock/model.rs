//! A node's worth of lock nodes in private memory, with slots that can be declared dead: what
//! tests and models run the lock against.

use super::{LocalNodes, LockEnv, LockNode, QueueLock};
use crate::base::Slot;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::shm::park::Pace;
use std::sync::Arc;
use std::time::Duration;

/// The memory all slots share.
pub(crate) struct Shared {
    nodes: Vec<Vec<LockNode>>,
    dead: Vec<AtomicBool>,
    books: Vec<LocalNodes>,
    /// The lock under test.
    pub(crate) lock: QueueLock,
    /// Threads inside the lock at this moment, and how often it was held.
    inside: AtomicU32,
    pub(crate) entries: AtomicU32,
}

/// One process's view of it.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) shared: Arc<Shared>,
    slot: Slot,
    pace: Pace,
}

impl Env {
    /// One view per slot, with `nodes` nodes to wait with each.
    pub(crate) fn new(slots: usize, nodes: usize) -> Vec<Env> {
        let pace = if cfg!(loom) || cfg!(miri) {
            Pace { spins: 0, yields: 1, slice: Duration::from_millis(1), longest: Pace::LONGEST }
        } else {
            Pace { spins: 20, yields: 4, slice: Duration::from_millis(1), longest: Pace::LONGEST }
        };
        let shared = Arc::new(Shared {
            nodes: (0..slots)
                .map(|_| (0..nodes + 2).map(|_| LockNode::default()).collect())
                .collect(),
            dead: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            books: (0..slots).map(|_| LocalNodes::small(nodes)).collect(),
            lock: QueueLock::default(),
            inside: AtomicU32::new(0),
            entries: AtomicU32::new(0),
        });
        (0..slots)
            .map(|slot| Env { shared: shared.clone(), slot: Slot(slot as u16), pace })
            .collect()
    }

    /// Declares this slot dead: none of its threads takes another step.
    pub(crate) fn die(&self) {
        self.shared.dead[self.slot.index()].store(true, Ordering::Release);
    }

    /// What the holder does: fails if anybody else is inside.
    pub(crate) fn critical_section(&self) {
        self.enter();
        self.exit();
    }

    pub(crate) fn enter(&self) {
        assert_eq!(self.shared.inside.swap(1, Ordering::Relaxed), 0, "two holders");
        self.shared.entries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn exit(&self) {
        self.shared.inside.store(0, Ordering::Relaxed);
    }

    /// Nodes of this slot that are in nobody's hands, without the reserve.
    pub(crate) fn available(&self) -> usize {
        self.nodes().available(self) - 1
    }

    /// Ids in the lock's word: owner, tail, stop; all 0 if it is free.
    pub(crate) fn word(&self) -> (u32, u32, u32) {
        let w = self.shared.lock.load();
        (w.owner().0, w.tail().0, w.stop().0)
    }
}

impl LockEnv for Env {
    fn node(&self, slot: Slot, k: usize) -> Option<&LockNode> {
        self.shared.nodes.get(slot.index())?.get(k)
    }
    fn slot(&self) -> Slot {
        self.slot
    }
    fn nodes(&self) -> &LocalNodes {
        &self.shared.books[self.slot.index()]
    }
    fn pace(&self) -> Pace {
        self.pace
    }
    fn is_dead(&self, slot: Slot) -> bool {
        self.shared.dead.get(slot.index()).is_some_and(|dead| dead.load(Ordering::Acquire))
    }
    fn probe(&self, slot: Slot) -> bool {
        self.is_dead(slot)
    }
}
