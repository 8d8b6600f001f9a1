//! Whether those who wait, and those whom they wait for, have a core each.
//!
//! Ranks are known from the start, threads are not: a process whose share of the cores is one and
//! that has two threads waiting awake keeps whoever is to answer from running, be it in this
//! process or in a peer. So waits are counted once they have gone on for longer than an answer
//! takes that is under way:
//!
//! ```text
//!   wait: some polls at once --> enter --> polls with pauses or yields --> leave --> sleep
//!                                  |
//!        more inside than cores? crowded = MEMORY      else, if not 0: crowded -= 1
//!
//!   nothing for as long as one spins, and there it is when the core was given up, SUSPICIONS times in a row:
//!        who was waited for stood in line for this core: crowded = LONG_MEMORY
//!
//!   it was given up, and strangers ran for long: crowded = 0, and not again for as many waits
//! ```
//! The second happens to threads that no core is promised to, while the system has put two that talk
//! to each other on one; it may take long to find another. Once is not enough: whatever runs for a moment
//! as an answer comes from another core looks the same.
//!
//! While `crowded` is not 0 all waits of the process give up their core at once; those that spin
//! already see it at their next pause. It is remembered for some waits, because threads that are
//! many enough to be in each other's way are seldom all waiting when one of them looks.

use crate::base::sync::{AtomicU32, Ordering};

/// Waits that find nobody in the way until it is taken for true.
const MEMORY: u32 = 256;
/// The same, after a wait that found another thread in the way on its core: to find that out
/// again takes as long as some hundred messages.
const LONG_MEMORY: u32 = 1024;

/// So many waits must have found that, none of those in between having ended while it spun.
const SUSPICIONS: u32 = 3;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    /// Threads that may wait awake at a time.
    share: u32,
    /// Threads that wait awake.
    inside: AtomicU32,
    /// Waits for which too many threads are remembered.
    crowded: AtomicU32,
    /// Waits for which strangers are.
    strangers: AtomicU32,
    /// Waits in a row that ended as soon as the core was given up.
    suspicions: AtomicU32,
}

/// A thread that waits awake, until dropped.
pub(super) struct Awake<'a>(&'a Crowd);

impl Crowd {
    /// Of a process that has `share` cores for itself.
    pub fn new(share: u32) -> Crowd {
        let zero = || AtomicU32::new(0);
        Crowd { share, inside: zero(), crowded: zero(), strangers: zero(), suspicions: zero() }
    }

    /// Of a process that need not look: it gives up its cores anyway, or was told not to.
    pub fn ignored() -> Crowd {
        Crowd::new(u32::MAX)
    }

    /// A wait that had spun in vain ended as soon as the core was given up.
    #[cold]
    pub fn note_yielded(&self) {
        if self.share == u32::MAX || self.strangers.load(Ordering::Relaxed) != 0 {
            return;
        }
        // Two threads at once may lose one.
        let suspicions = self.suspicions.load(Ordering::Relaxed) + 1;
        if suspicions < SUSPICIONS {
            return self.suspicions.store(suspicions, Ordering::Relaxed);
        }
        self.suspicions.store(0, Ordering::Relaxed);
        self.crowded.store(LONG_MEMORY, Ordering::Relaxed);
    }

    /// A wait ended while it spun: who was waited for has a core. One load, as a rule.
    #[inline]
    pub fn note_spun(&self) {
        if self.suspicions.load(Ordering::Relaxed) != 0 {
            self.suspicions.store(0, Ordering::Relaxed);
        }
    }

    /// A wait has given up its core to others than those it waits for, for long: that is not to
    /// happen more often than it must.
    #[cold]
    pub fn note_strangers(&self) {
        if self.share != u32::MAX {
            self.strangers.store(LONG_MEMORY, Ordering::Relaxed);
            self.crowded.store(0, Ordering::Relaxed);
        }
    }

    /// Whether more threads waited awake lately than there are cores for. One load.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) != 0
    }

    /// Counts the calling thread, if that matters.
    ///
    /// Cost: two atomic additions, one now and one later, to a line of this process's.
    pub fn enter(&self) -> Option<Awake<'_>> {
        if self.share == u32::MAX {
            return None;
        }
        if self.inside.fetch_add(1, Ordering::Relaxed) >= self.share {
            self.crowded.store(MEMORY, Ordering::Relaxed);
        } else {
            // Two threads at once may forget one wait too few.
            let left = self.crowded.load(Ordering::Relaxed);
            if left != 0 {
                self.crowded.store(left - 1, Ordering::Relaxed);
            }
        }
        let strangers = self.strangers.load(Ordering::Relaxed);
        if strangers != 0 {
            self.strangers.store(strangers - 1, Ordering::Relaxed);
        }
        Some(Awake(self))
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cores_are_a_crowd_that_is_forgotten() {
        let crowd = Crowd::new(2);
        let first = crowd.enter();
        let second = crowd.enter();
        assert!(!crowd.is_crowded(), "there is a core for each of two");
        let third = crowd.enter();
        assert!(crowd.is_crowded());
        drop((first, second, third));
        for _ in 0..MEMORY {
            assert!(crowd.is_crowded(), "it is remembered");
            drop(crowd.enter());
        }
        assert!(!crowd.is_crowded(), "nobody was in the way for long");
    }

    #[test]
    fn a_core_that_had_to_be_given_up_is_remembered_for_longer() {
        let crowd = Crowd::new(1);
        (0..SUSPICIONS).for_each(|_| crowd.note_yielded());
        for _ in 0..LONG_MEMORY {
            assert!(crowd.is_crowded());
            drop(crowd.enter());
        }
        assert!(!crowd.is_crowded());
    }

    #[test]
    fn an_answer_that_came_as_the_core_was_given_up_may_be_chance() {
        let crowd = Crowd::new(1);
        for _ in 0..100 {
            (1..SUSPICIONS).for_each(|_| crowd.note_yielded());
            assert!(!crowd.is_crowded());
            crowd.note_spun();
        }
        (1..SUSPICIONS).for_each(|_| crowd.note_yielded());
        assert!(!crowd.is_crowded());
        crowd.note_yielded();
        assert!(crowd.is_crowded());
    }

    #[test]
    fn where_strangers_run_no_core_is_given_up_early() {
        let crowd = Crowd::new(1);
        (0..SUSPICIONS).for_each(|_| crowd.note_yielded());
        crowd.note_strangers();
        for _ in 0..LONG_MEMORY {
            (0..SUSPICIONS).for_each(|_| crowd.note_yielded());
            assert!(!crowd.is_crowded());
            drop(crowd.enter());
        }
        (0..SUSPICIONS).for_each(|_| crowd.note_yielded());
        assert!(crowd.is_crowded(), "they are forgotten");
    }

    #[test]
    fn whoever_need_not_look_is_not_counted() {
        let crowd = Crowd::ignored();
        (0..SUSPICIONS).for_each(|_| crowd.note_yielded());
        let all: Vec<_> = (0..9).map(|_| crowd.enter()).collect();
        assert!(all.iter().all(Option::is_none));
        assert!(!crowd.is_crowded());
    }
}
