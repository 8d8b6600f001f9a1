//! Why no pool can be exhausted by those who wait for each other.
//!
//! An object of a pool is held by something that is *ready* (its lock is granted, its fence epoch
//! open, its exposure posted) or by something that *waits* for such a word of a peer. What is ready
//! ends by itself: its operations go out, the target performs whatever arrives and answers, and
//! the answer gives the objects back. What waits may wait for somebody who waits for this process:
//! for another thread of it, say, that holds the lock which that peer wants, and that needs an
//! object to go on. So:
//!
//! ```text
//!   pool               what waits may have          what is ready finds
//!   target objects     all but one                  one that is free, or ready: it is sent,
//!                                                   answered, and won back
//!   operation objects  all but those that others'   one that is free, or ready: it is sent
//!                      may take, and one
//!   outstanding        all but one                  one that is free, or ready: it is answered
//!   origin objects     all; who finds none stands   (nothing that is ready needs one)
//!                      in line without (`crowd`)
//! ```
//!
//! Whoever is ready therefore waits for answers only, and those come: a target handles what
//! arrives in order, and needs nothing but room for the reply, which its receiver always takes in
//! (`message`). What waits and finds nothing left holds nothing for it either: the operation is not
//! taken, and the call that gave it sees to it that the word comes (it asks for the lock, or joins
//! the barrier), after which it is ready.
//!
//! *Locks.* A lock that is taken behind the program's back, after the call for it has returned,
//! would be a wait that others of the process run into: who asks for the next one has to wait for
//! it, so that locks are taken in the program's order. So only one acquisition at a time is left
//! open like that, and it begins only while the process has no other lock epoch: as long as it
//! waits, the process holds no lock (but those of the same lock-all epoch, for which nobody waits
//! that it waits for: see `line`). All others are complete when their calls return (`acquire`),
//! need no object meanwhile, and wait for nothing but themselves.

use super::limits::Limits;
use super::table::TargetObject;

/// What waits holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Target objects.
    pub targets: usize,
    /// Operations kept.
    pub operations: usize,
    /// Operations sent and not known to be done.
    pub sent: u64,
}

impl Waiting {
    /// What one object holds.
    pub fn of(object: &TargetObject) -> Waiting {
        Waiting {
            targets: 1,
            operations: object.pending.len() + object.speculated.len(),
            sent: object.issued - object.acked,
        }
    }

    /// What an object held waits no more.
    pub fn leave(&mut self, what: Waiting) {
        self.targets -= what.targets;
        self.operations -= what.operations;
        self.sent -= what.sent;
    }

    /// Whether another target object may be taken.
    pub fn may_take(&self, limits: &Limits) -> bool {
        self.targets + 1 < limits.targets
    }

    /// Whether another operation may be kept.
    pub fn may_keep(&self, limits: &Limits) -> bool {
        self.operations + 1 < limits.operations - limits.others()
    }

    /// Whether another operation may be sent before the word has come.
    pub fn may_send(&self, limits: &Limits) -> bool {
        self.sent + 1 < limits.outstanding as u64
    }
}
