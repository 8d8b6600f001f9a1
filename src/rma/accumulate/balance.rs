//! When the way changes in which a window's elements are updated (see [`domain`](super::domain)).
//!
//! Every update that the present way makes dearer than the other one would
//! adds the difference to a private balance of its process, and every one that it makes cheaper
//! takes it off again. Once the loss exceeds [`Node::turn_after`], which is several times what a
//! change costs, the process changes the way. So whatever the program does, it loses a constant
//! factor at most against the better of the two ways (the argument of the ski rental: before each
//! change, at least as much was lost with the way given up).
//!
//! [`Node::turn_after`]: crate::shm::node::Node::turn_after

use super::domain::Domain;
use crate::base::sync::Ordering;
use crate::shm::bias::Way;
use crate::shm::section;

/// ns that updates cost, roughly: only their ratios and the order of magnitude matter.
pub(super) mod cost {
    /// A native update of an element.
    pub const NATIVE: usize = 5;
    /// A plain one: 8 of them.
    pub const PLAIN_8: usize = 4;
    /// Taking and releasing a free lock.
    pub const LOCK: i32 = 12;
    /// A lock that somebody else holds.
    pub const CONTENDED: i32 = 250;
}

impl Domain {
    /// Adds to the balance what native updates lose (or locks, if negative), and changes the way
    /// once it is enough.
    pub(super) fn weigh(&self, loss: i32) {
        let way = self.near.bias().way();
        let balance = self.balance.load(Ordering::Relaxed).saturating_add(loss);
        // What speaks for the present way cannot be saved up.
        let balance = match way {
            Way::Native => balance.max(0),
            Way::Locked => balance.min(0),
            Way::Both => balance,
        };
        let to = if loss > 0 { Way::Locked } else { Way::Native };
        let enough = balance.unsigned_abs() >= self.turn_after.unsigned_abs()
            && (balance >= 0) == (loss > 0)
            && way != to;
        self.balance.store(if enough { 0 } else { balance }, Ordering::Relaxed);
        if enough {
            self.near.bias().turn(to, || self.outwait());
        }
    }

    #[cfg(test)]
    pub fn way(&self) -> Way {
        self.near.bias().way()
    }

    #[cfg(test)]
    pub fn turn(&self, to: Way) -> bool {
        self.near.bias().turn(to, || self.outwait())
    }

    /// Waits for the sections of all members.
    pub(super) fn outwait(&self) -> bool {
        let node = &**self.team().node();
        if self.team().ranks().any(|rank| self.team().slot_of(rank).is_err()) {
            return false;
        }
        let slots = self.team().ranks().filter_map(|rank| self.team().slot_of(rank).ok());
        let sections = slots.flat_map(|slot| node.sections(slot).map(move |word| (slot, word)));
        section::outwait(sections, |slot| node.probe(slot))
    }
}

/// ns that plain updates of so many elements save against native ones.
pub(super) fn gain(count: usize) -> i32 {
    let ns = count.saturating_mul(8 * cost::NATIVE - cost::PLAIN_8) / 8;
    i32::try_from(ns).unwrap_or(i32::MAX)
}
