//! What a thread that goes to sleep may have overlooked, because another thread was inside of what it
//! wanted to look into: whoever was inside wakes it.
//!
//! ```text
//! sleeper (its bell's flag is set)          who is inside
//!   try_lock failed: word = 1                 takes what is there, leaves the lock
//!   heavy_fence                               light_fence
//!   try_lock once more: failed? rings         word != 0?  word = 0; rings
//!     the bell itself, so does not sleep
//! ```
//! Either the second attempt finds the lock free, and so sees everything, or the word is seen by
//! whoever leaves the lock then: the pair of fences. The word may be one for many locks: who has seen
//! one of them in use twice does not sleep.

use crate::base::sync::{AtomicU32, Ordering, heavy_fence, light_fence};
use crate::shm::park::WaitCell;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Overlooked(AtomicU32);

impl Overlooked {
    /// Before a sleep: a lock was in use at the last look. It is to be tried once more now.
    pub fn note(&self) {
        self.0.store(1, Ordering::Relaxed);
        heavy_fence();
    }

    /// A lock was left. `found`: something that another thread may wait for has come.
    ///
    /// Cost: one load of a line that is seldom written.
    #[inline(always)]
    pub fn left<'b>(&self, found: bool, bell: impl FnOnce() -> &'b WaitCell) {
        light_fence();
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
            bell().notify();
        } else if found {
            bell().notify();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::Deadline;
    use crate::base::sync::futex_blocks;
    use crate::biased::Biased;
    use crate::shm::park::Pace;
    use loom::thread;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    const AT_ONCE: Pace =
        Pace { spins: 0, yields: 0, slice: Duration::from_millis(1), longest: Pace::LONGEST };

    /// Two lanes with a message each or none, what was taken out of them, and the bell.
    struct Place {
        lanes: [Biased<u32>; 2],
        taken: AtomicU32,
        overlooked: Overlooked,
        bell: WaitCell,
    }

    impl Place {
        /// Looks into a lane; whether that was possible.
        fn look(&self, lane: usize) -> bool {
            let Some(mut inside) = self.lanes[lane].try_lock() else { return false };
            let found = std::mem::take(&mut *inside);
            self.taken.fetch_add(found, Ordering::Release);
            drop(inside);
            self.overlooked.left(found > 0, || &self.bell);
            true
        }
    }

    /// A sleep ends by wakes alone: a lost one is a deadlock.
    fn model(messages: [u32; 2], others: &'static [usize]) {
        futex_blocks(true);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3).min(3));
        builder.check(move || {
            let place = Arc::new(Place {
                lanes: messages.map(Biased::new),
                taken: AtomicU32::new(0),
                overlooked: Overlooked::default(),
                bell: WaitCell::new(),
            });
            let looks = |lane: usize| {
                let place = place.clone();
                thread::spawn(move || {
                    place.look(lane);
                })
            };
            let others: Vec<_> = others.iter().map(|lane| looks(*lane)).collect();
            let all: u32 = messages.iter().sum();
            // Whoever stays awake because of one who is inside looks again, which is not the model's.
            let awake = Cell::new(false);
            let poll = || {
                (0..2).for_each(|lane| {
                    place.look(lane);
                });
                (awake.get() || place.taken.load(Ordering::Acquire) == all).then_some(())
            };
            let check = || {
                place.overlooked.note();
                let seen = (0..2).all(|lane| place.look(lane));
                if !seen || place.taken.load(Ordering::Acquire) == all {
                    awake.set(true);
                    place.bell.notify();
                }
                Ok(())
            };
            place.bell.wait(AT_ONCE, Deadline::NEVER, "a model", poll, check).unwrap();
            others.into_iter().for_each(|other| other.join().unwrap());
        });
        futex_blocks(false);
    }

    #[test]
    fn loom_a_sleeper_learns_what_one_who_was_inside_has_found() {
        model([1, 0], &[0]);
    }

    #[test]
    fn loom_a_sleeper_learns_it_of_several_lanes() {
        model([1, 1], &[0, 1]);
    }
}
