//! Who looks at the device: calls that wait awake, or the network's thread.
//!
//! ```text
//!   asleep in the device --woken, and calls look often--> off duty
//!        ^                                                   |  a nap after the other, while calls
//!        +-- a call is about to sleep, or few have looked ---+  have looked often during the last
//! ```
//! A datagram ends the sleep of a thread that sleeps in the device, though a call is awake that would
//! have taken it sooner: the thread then takes the core, and the lock, from who waits for the message.
//! Off duty it sleeps elsewhere. Calls that look do all that it would do, what is due included. If they
//! end without a sleep, the device goes without a look for [`NAP`] at most.

use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long the thread stays off duty without asking whether calls still look.
const NAP: Duration = Duration::from_micros(500);

/// Looks in a nap, below which calls do not look often.
const OFTEN: u32 = 16;

/// The latest look of who looks often is not longer ago, in ns.
const LATELY: u64 = 100_000;

/// Times that the thread stays on duty after a call that went to sleep had it come back: calls that
/// sleep before each message would send it to and fro.
const STAYS: u32 = 32;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shift {
    /// Looks of calls, ever. Those that meet may count as one.
    looks: AtomicU32,
    /// When the latest was, of the device's time.
    latest: AtomicU64,
    /// The thread is off duty.
    off: AtomicBool,
    /// The same, for who sleeps and who wakes.
    gate: Mutex<bool>,
    back: Condvar,
    /// How often the thread is to stay. Its own.
    stays: AtomicU32,
    /// Looks up to a time, from which on they are counted. Its own.
    seen: AtomicU32,
    since: AtomicU64,
}

impl Shift {
    /// A call has looked. Two stores of a line that only calls that look write.
    #[inline]
    pub fn note_look(&self, now: u64) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.latest.store(now, Ordering::Relaxed);
    }

    /// For the network's thread, before it sleeps: naps while calls look often. False if it did not.
    pub fn leave_to_calls(&self, now: u64) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let often = looks.wrapping_sub(self.seen.load(Ordering::Relaxed)) >= OFTEN;
        // Who is woken again and again asks more often than calls look.
        let since = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if often || since >= NAP.as_nanos() as u64 {
            self.seen.store(looks, Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
        let lately = now.saturating_sub(self.latest.load(Ordering::Relaxed)) < LATELY;
        if !(often && lately) {
            return false;
        }
        let stays = self.stays.load(Ordering::Relaxed);
        if stays > 0 {
            self.stays.store(stays - 1, Ordering::Relaxed);
            return false;
        }
        while self.nap() {}
        true
    }

    /// Whether calls have looked often meanwhile, and none is about to sleep.
    fn nap(&self) -> bool {
        let mut off = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        *off = true;
        self.off.store(true, Ordering::Release);
        let slept = self.back.wait_timeout_while(off, NAP, |off| *off);
        let (mut off, timeout) = slept.unwrap_or_else(PoisonError::into_inner);
        *off = false;
        self.off.store(false, Ordering::Relaxed);
        drop(off);
        if !timeout.timed_out() {
            self.stays.store(STAYS, Ordering::Relaxed);
            return false;
        }
        let looks = self.looks.load(Ordering::Relaxed);
        looks.wrapping_sub(self.seen.swap(looks, Ordering::Relaxed)) >= OFTEN
    }

    /// Has the thread look again: nobody else will. A load if it does; else a mutex, and a system call.
    ///
    /// If the thread goes off duty just then, that lasts for a [`NAP`].
    #[inline]
    pub fn call_back(&self) {
        if self.off.load(Ordering::Acquire) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut off = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *off) {
            self.back.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(shift: &Shift, times: u32, now: u64) {
        (0..times).for_each(|_| shift.note_look(now));
    }

    #[test]
    fn the_thread_stays_where_nobody_looks_or_looked_long_ago_or_seldom() {
        let shift = Shift::default();
        assert!(!shift.leave_to_calls(1_000));
        look(&shift, OFTEN, 1_000);
        assert!(!shift.leave_to_calls(1_000 + LATELY));
        look(&shift, OFTEN - 1, 2_000_000);
        assert!(!shift.leave_to_calls(2_000_001));
    }

    /// It asks with each datagram that wakes it; calls look less often than that.
    #[test]
    fn looks_add_up_over_many_wakes_but_not_over_a_long_time() {
        let nap = NAP.as_nanos() as u64;
        for (step, leaves) in [(1_000, true), (nap / 4, false)] {
            let shift = Shift::default();
            let mut left = false;
            for wake in 1..=u64::from(OFTEN) {
                look(&shift, 1, wake * step);
                left |= shift.leave_to_calls(wake * step);
            }
            assert_eq!(left, leaves, "with {step} ns between wakes");
        }
    }

    #[test]
    fn it_comes_back_when_calls_no_longer_look() {
        let shift = Shift::default();
        look(&shift, OFTEN, 1_000);
        assert!(shift.leave_to_calls(1_001), "and nobody called it back");
        assert!(!shift.off.load(Ordering::Relaxed));
        // What was seen does not count twice.
        assert!(!shift.leave_to_calls(1_001));
        look(&shift, OFTEN, 1_000);
        assert!(shift.leave_to_calls(1_001));
    }

    #[test]
    fn who_goes_to_sleep_has_it_back_and_it_stays_for_some_time() {
        let shift = Shift::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while shift.stays.load(Ordering::Relaxed) == 0 {
                    look(&shift, OFTEN, 1_000);
                    shift.call_back();
                    std::thread::yield_now();
                }
            });
            while shift.stays.load(Ordering::Relaxed) == 0 {
                shift.leave_to_calls(1_001);
            }
        });
        for _ in 0..STAYS {
            look(&shift, OFTEN, 1_000);
            assert!(!shift.leave_to_calls(1_001));
        }
        look(&shift, OFTEN, 1_000);
        assert!(shift.leave_to_calls(1_001));
    }
}
