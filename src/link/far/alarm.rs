//! When the network's thread looks next, for calls that know that it should look sooner.
//!
//! ```text
//!   thread: begin -- takes each flow's lock, asks what is due -- sleeps_until(that) -- sleeps
//!   call:          takes a flow's lock, has something due, lets it go -- is_sooner? -- wakes it
//! ```
//! Either the thread's turn at that lock comes later and it sees what is due, or the call sees that
//! it has begun.

use crate::base::sync::{AtomicU64, Ordering};

/// See the [module](self). Times are the device's, in ns.
#[derive(Debug)]
pub(super) struct Alarm {
    next: AtomicU64,
}

impl Alarm {
    /// Of a thread that has not begun.
    pub fn new() -> Alarm {
        Alarm { next: AtomicU64::new(0) }
    }

    /// The thread sleeps elsewhere, and nobody is to wake it: it looks soon in any case.
    pub fn off(&self) {
        self.next.store(0, Ordering::SeqCst);
    }

    /// The thread is about to ask what is due.
    pub fn begin(&self) {
        self.next.store(u64::MAX, Ordering::SeqCst);
    }

    /// It is about to sleep until then.
    pub fn sleeps_until(&self, next: u64) {
        self.next.fetch_min(next, Ordering::SeqCst);
    }

    /// Something is due at `next`: whether the thread would sleep longer, and is to be woken. Says so
    /// to one call alone. A load, mostly.
    #[inline]
    pub fn is_sooner(&self, next: u64) -> bool {
        next < self.next.load(Ordering::SeqCst)
            && next < self.next.fetch_min(next, Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_for_what_comes_before_it_looks_and_once() {
        let alarm = Alarm::new();
        assert!(!alarm.is_sooner(5), "it has not begun, and will ask");
        alarm.begin();
        alarm.sleeps_until(9);
        assert!(!alarm.is_sooner(9));
        assert!(alarm.is_sooner(5));
        assert!(!alarm.is_sooner(5) && !alarm.is_sooner(7));
        assert!(alarm.is_sooner(4));
        alarm.off();
        assert!(!alarm.is_sooner(1));
        alarm.begin();
        assert!(alarm.is_sooner(u64::MAX - 1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// The thread sleeps no longer than what is due, or somebody wakes it.
    #[test]
    fn loom_nothing_due_is_slept_over() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3).min(3));
        builder.check(|| {
            let alarm = Arc::new((Alarm::new(), Mutex::new(u64::MAX)));
            let calls: Vec<_> = [5, 7]
                .map(|at| {
                    let alarm = alarm.clone();
                    thread::spawn(move || {
                        let mut due = alarm.1.lock().unwrap();
                        *due = (*due).min(at);
                        drop(due);
                        alarm.0.is_sooner(at)
                    })
                })
                .into();
            alarm.0.off();
            alarm.0.begin();
            let next = *alarm.1.lock().unwrap();
            alarm.0.sleeps_until(next);
            let woken = calls.into_iter().fold(false, |any, call| any | call.join().unwrap());
            assert!(next == 5 || woken, "it sleeps until {next}");
        });
    }
}
