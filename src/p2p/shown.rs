//! What threads may know of the posted receives and the kept messages without their lock: whether there
//! are any that a message of some source could concern.
//!
//! ```text
//!   all       everything that is posted or kept
//!   wild      receives that are posted for any source
//!   sources   the rest, by the source's slot (64 counts: others of the same count are taken for it)
//! ```
//! Changed by whoever has the lock of the queues. A thread that receives straight out of the lane of a
//! source looks here while it has that lane's lock:
//!
//! * A message of that source is kept under the same lock, or before there was a lane, so what was kept
//!   of it is seen, and stays seen until a receive has got it.
//! * A receive that another thread posts meanwhile may not be seen. Then neither came first, and the
//!   message goes to the one that takes it out of the lane.

use crate::base::Slot;
use crate::base::sync::{AtomicU32, Ordering};

#[cfg(not(loom))]
const COUNTS: usize = 64;
/// Atomics are dear in the models.
#[cfg(loom)]
const COUNTS: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Shown {
    all: AtomicU32,
    wild: AtomicU32,
    sources: [AtomicU32; COUNTS],
}

impl Default for Shown {
    fn default() -> Shown {
        let zero = || AtomicU32::new(0);
        Shown { all: zero(), wild: zero(), sources: std::array::from_fn(|_| zero()) }
    }
}

impl Shown {
    #[inline(always)]
    fn of(&self, source: Option<Slot>) -> &AtomicU32 {
        source.map_or(&self.wild, |source| &self.sources[usize::from(source.0) % COUNTS])
    }

    /// A receive was posted for `source`, or a message of it kept. The caller has the queues.
    #[inline]
    pub fn add(&self, source: Option<Slot>) {
        for count in [&self.all, self.of(source)] {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }

    /// One of these is gone. The caller has the queues.
    #[inline]
    pub fn remove(&self, source: Option<Slot>) {
        for count in [&self.all, self.of(source)] {
            count.store(count.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Release);
        }
    }

    /// Whether nothing is posted or kept that could come before a receive from `source` that begins
    /// now, or take what it takes; of any source: nothing at all.
    ///
    /// Cost: two loads of lines that are written where receives are posted and messages kept.
    #[inline(always)]
    pub fn is_clear(&self, source: Option<Slot>) -> bool {
        match source {
            None => self.all.load(Ordering::Acquire) == 0,
            Some(_) => {
                let clear = |count: &AtomicU32| count.load(Ordering::Acquire) == 0;
                clear(&self.wild) && clear(self.of(source))
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::sync::UnsafeCell;
    use crate::biased::Biased;
    use loom::thread;
    use std::collections::VecDeque;
    use std::sync::Arc;

    const SOURCE: Option<Slot> = Some(Slot(1));

    /// The lane of a source, and the queues for it: kept messages, and receives that wait.
    struct Place {
        lane: Biased<VecDeque<u32>>,
        queues: Biased<(VecDeque<u32>, VecDeque<Arc<UnsafeCell<u32>>>)>,
        shown: Shown,
    }

    impl Place {
        fn new(messages: u32) -> Arc<Place> {
            Arc::new(Place {
                lane: Biased::new((1..=messages).collect()),
                queues: Biased::new((VecDeque::new(), VecDeque::new())),
                shown: Shown::default(),
            })
        }

        /// Straight out of the lane.
        fn take_directly(&self) -> Option<u32> {
            let mut lane = self.lane.try_lock()?;
            if !self.shown.is_clear(SOURCE) {
                return None;
            }
            lane.pop_front()
        }

        /// What is kept, or the receive that waits from now on.
        fn post(&self) -> Result<u32, Arc<UnsafeCell<u32>>> {
            let mut queues = self.queues.lock();
            if let Some(kept) = queues.0.pop_front() {
                self.shown.remove(SOURCE);
                return Ok(kept);
            }
            let receive = Arc::new(UnsafeCell::new(0));
            queues.1.push_back(receive.clone());
            self.shown.add(SOURCE);
            Err(receive)
        }

        /// Takes one message out of the lane, for whichever receive waits, or keeps it.
        fn poll(&self) {
            let Some(mut lane) = self.lane.try_lock() else { return };
            let Some(message) = lane.pop_front() else { return };
            let mut queues = self.queues.lock();
            match queues.1.pop_front() {
                Some(receive) => {
                    self.shown.remove(SOURCE);
                    // SAFETY: it waits no more, and its owner looks when the threads have ended.
                    receive.with_mut(|receive| unsafe { *receive = message });
                }
                None => {
                    queues.0.push_back(message);
                    self.shown.add(SOURCE);
                }
            }
        }
    }

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3).min(3));
        builder.check(f);
    }

    /// What a poll has kept comes before what is still in the lane.
    #[test]
    fn loom_nothing_overtakes_a_message_that_is_kept() {
        model(|| {
            let place = Place::new(2);
            let other = place.clone();
            let poll = thread::spawn(move || other.poll());
            let first = place.take_directly().or_else(|| place.post().ok());
            poll.join().unwrap();
            match first {
                Some(first) => assert_eq!(first, 1),
                // It waits, and gets the next one unless the poll had it.
                None => place.poll(),
            }
        });
    }

    /// A receive that was posted before gets the message before one that begins afterwards.
    #[test]
    fn loom_a_receive_that_waits_is_not_passed() {
        model(|| {
            let place = Place::new(2);
            let Err(waits) = place.post() else { panic!("nothing was kept") };
            let other = place.clone();
            let poll = thread::spawn(move || other.poll());
            let taken = place.take_directly();
            poll.join().unwrap();
            // SAFETY: nobody else is left.
            let got = waits.with(|receive| unsafe { *receive });
            assert!(
                got == 1 && taken.is_none_or(|taken| taken == 2) || got == 0 && taken.is_none()
            );
        });
    }

    /// A message goes to one receive, posted or not.
    #[test]
    fn loom_a_message_is_received_once() {
        model(|| {
            let place = Place::new(1);
            let other = place.clone();
            let posts = thread::spawn(move || match other.post() {
                Ok(message) => Ok(message),
                Err(waits) => {
                    other.poll();
                    Err(waits)
                }
            });
            let taken = place.take_directly();
            let posted = posts.join().unwrap();
            place.poll();
            // SAFETY: nobody else is left.
            let posted = posted.unwrap_or_else(|waits| waits.with(|receive| unsafe { *receive }));
            assert_eq!(taken.unwrap_or(0) + posted, 1);
        });
    }
}
