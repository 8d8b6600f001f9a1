//! Which way a window's elements are updated, natively or under locks (see [`super::domain`]): when it is changed, and
//! how native updates see to it that nobody is at the other one.
//!
//! *When to change.* Every update that the present way makes dearer than the other one would
//! adds the difference to a private balance of its process, and every one that it makes cheaper
//! takes it off again. Once the loss exceeds [`Node::turn_after`], which is several times what a
//! change costs, the process changes the way. So whatever the program does, it loses a constant
//! factor at most against the better of the two ways (the argument of the ski rental: before each
//! change, at least as much was lost with the way given up).
//!
//! *Fresh.* Most windows see single elements only. As long as nobody has changed the way, threads stay at the window
//! instead of entering a section for each update (see [`crate::shm::section`]). Whoever wants the first change may have to
//! wait for one who stays and computes, which is the one loss without a bound, and comes once; meanwhile all others
//! update under locks by native updates.
//!
//! [`Node::turn_after`]: crate::shm::node::Node::turn_after

use super::domain::Domain;
use crate::base::sync::Ordering;
use crate::shm::bias::Way;
use crate::shm::section;

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
            self.near.bias().turn(to, || self.outwait(to));
        }
    }

    #[cfg(test)]
    pub fn way(&self) -> Way {
        self.near.bias().way()
    }

    #[cfg(test)]
    pub fn turn(&self, to: Way) -> bool {
        self.near.bias().turn(to, || self.outwait(to))
    }

    /// Runs a native update if that is the way. From now on the thread stays at the window, if it can.
    #[inline]
    pub(super) fn natively<R>(&self, update: impl FnOnce() -> R) -> Option<R> {
        let near = self.near;
        if near.bias().is_fresh() && self.stay() {
            return Some(update());
        }
        section::depart_from(near.name);
        let section = section::mine(near.name, || &**self.team().node())?;
        let turn = section.enter();
        let done = if near.bias().is_native() { Some(update()) } else { None };
        section.leave(turn);
        done
    }

    /// Has this thread stay at the window, so that its updates need no sections. False, and it does not,
    /// if the way has been changed or it has no word.
    #[cold]
    fn stay(&self) -> bool {
        let name = self.near.name;
        let stays = section::stay(self.team().node(), self.near.place(), name);
        if stays && !self.near.bias().is_fresh() {
            section::depart_from(name);
            return false;
        }
        stays
    }

    /// Waits for the sections of all members, and before elements are updated under locks for those
    /// who stay at the window, too.
    pub(super) fn outwait(&self, to: Way) -> bool {
        section::depart_from(self.near.name);
        let place = (to == Way::Locked).then_some(self.near.place());
        let node = &**self.team().node();
        if self.team().ranks().any(|rank| self.team().slot_of(rank).is_err()) {
            return false;
        }
        let slots = self.team().ranks().filter_map(|rank| self.team().slot_of(rank).ok());
        let sections = slots.flat_map(|slot| node.sections(slot).map(move |word| (slot, word)));
        // Who has left does nothing any more, wherever its threads said that they stay.
        section::outwait(sections, place, |slot| node.probe(slot) || node.has_left(slot))
    }
}
