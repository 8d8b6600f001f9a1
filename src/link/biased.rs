//! A lock that costs the thread that usually takes it no atomic read-modify-write.
//!
//! Such an instruction waits until all earlier stores have reached the cache, so a mutex around
//! every message makes each wait for the line of the one before; without, they overlap.
//!
//! ```text
//! owner                                     any other thread, holding `turns`
//!   active = 1                                owner = SHARED
//!   light_fence                               heavy_fence
//!   owner == me?                              active == 0?  (or wait until it is)
//!     yes: work; active = 0 (Release)           yes: work; give `turns` back
//!     no:  active = 0; take `turns`
//! ```
//! Either the owner sees SHARED, or the other thread sees `active`: the pair of fences. While the
//! lock is SHARED everybody takes `turns`, a mutex; whoever takes it many times in a row becomes
//! the owner. So the system call in the heavy fence is paid when the usual user changes, not when
//! threads take turns.
//!
//! A thread is known by the address of a thread-local variable. The address of a thread that has
//! ended may come back with a new one, which then inherits what the former owned: it had left
//! (`active` is 0), and its memory was not reused before it had ended.

use crate::base::sync::{
    AtomicU32, AtomicU64, Ordering, UnsafeCell, heavy_fence, light_fence, yield_now,
};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// No thread's address.
const SHARED: u64 = 1;
/// Turns in a row that make a thread the owner.
const MANY: u32 = 256;

/// A value that one thread at a time works with, usually the same.
pub(crate) struct Biased<T> {
    /// Address of the owning thread, or [`SHARED`]; 0 before the first use. Changed under `turns`.
    owner: AtomicU64,
    /// The owner is inside. Written by the owner only.
    active: AtomicU32,
    turns: Mutex<Turns>,
    value: UnsafeCell<T>,
}

struct Turns {
    last: u64,
    count: u32,
}

// SAFETY: the value is reached by one thread at a time, see the module; it moves between threads
// as it would in a mutex.
unsafe impl<T: Send> Sync for Biased<T> {}

thread_local! {
    static HERE: u8 = const { 0 };
}

#[inline(always)]
fn me() -> u64 {
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64) << 1
}

impl<T> Biased<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Biased<T> {
        Biased {
            owner: AtomicU64::new(0),
            active: AtomicU32::new(0),
            turns: Mutex::new(Turns { last: 0, count: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. A thread that has it already waits for ever, as for a mutex.
    ///
    /// Cost for the owner: two stores and two loads of private lines.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.enter() {
            Some(guard) => guard,
            None => self.lock_shared(),
        }
    }

    /// The value, if nobody has it now (the calling thread included).
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.enter() {
            Some(guard) => Some(guard),
            None => self.try_lock_shared(),
        }
    }

    /// As the owner.
    #[inline(always)]
    fn enter(&self) -> Option<Guard<'_, T>> {
        let me = me();
        // Only the owner writes `active`, so as the owner this thread knows whether it is inside.
        if self.owner.load(Ordering::Relaxed) != me || self.active.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.active.store(1, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Relaxed) == me {
            return Some(Guard::new(self, None));
        }
        self.active.store(0, Ordering::Release);
        None
    }

    #[cold]
    fn lock_shared(&self) -> Guard<'_, T> {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.share();
        while self.active.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        self.take_turn(turns)
    }

    #[cold]
    fn try_lock_shared(&self) -> Option<Guard<'_, T>> {
        let turns = match self.turns.try_lock() {
            Ok(turns) => turns,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.owner.load(Ordering::Relaxed) == me() {
            // This thread is inside.
            return None;
        }
        self.share();
        (self.active.load(Ordering::Acquire) == 0).then(|| self.take_turn(turns))
    }

    /// Ends the ownership of another thread. The caller holds `turns`.
    fn share(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 && owner != SHARED {
            self.owner.store(SHARED, Ordering::Relaxed);
            heavy_fence();
        }
    }

    /// The caller holds `turns`, there is no owner, and nobody is inside.
    fn take_turn<'a>(&'a self, mut turns: MutexGuard<'a, Turns>) -> Guard<'a, T> {
        let me = me();
        turns.count = if turns.last == me { turns.count + 1 } else { 0 };
        turns.last = me;
        if self.owner.load(Ordering::Relaxed) == SHARED && turns.count < MANY {
            return Guard::new(self, Some(turns));
        }
        turns.count = 0;
        // Both become known to the next that takes `turns`.
        self.active.store(1, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
        Guard::new(self, None)
    }
}

/// The value, until dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// Present unless the thread is the owner.
    turns: Option<MutexGuard<'a, Turns>>,
    /// Must be dropped by the thread that made it.
    _here: PhantomData<*const ()>,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn new(lock: &'a Biased<T>, turns: Option<MutexGuard<'a, Turns>>) -> Self {
        Guard { lock, turns, _here: PhantomData }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.turns.is_none() {
            self.lock.active.store(0, Ordering::Release);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this thread alone has the value while the guard lives, see the module.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::AtomicBool;
    use std::sync::Barrier;

    /// Two words that only ever differ while somebody is inside.
    type Twin = [u64; 2];

    fn add(twin: &mut Twin) {
        assert_eq!(twin[0], twin[1]);
        twin[0] += 1;
        std::hint::black_box(&mut *twin);
        twin[1] += 1;
    }

    #[test]
    fn nothing_is_lost_among_threads_that_come_and_go() {
        let lock = Biased::new([0, 0]);
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let (lock, barrier) = (&lock, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    // Runs long enough to become the owner, broken up by the others.
                    for i in 0..20_000u64 {
                        add(&mut lock.lock());
                        if i % (700 + 100 * t) == 0 {
                            yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), [80_000, 80_000]);
    }

    #[test]
    fn the_owner_and_an_occasional_visitor_exclude_each_other() {
        let lock = Biased::new([0, 0]);
        let done = AtomicBool::new(false);
        let visits = std::thread::scope(|scope| {
            let visitor = scope.spawn(|| {
                let mut visits = 0;
                while !done.load(Ordering::Relaxed) {
                    if let Some(mut twin) = lock.try_lock() {
                        add(&mut twin);
                        visits += 1;
                    }
                    yield_now();
                }
                visits
            });
            for _ in 0..200_000 {
                add(&mut lock.lock());
            }
            done.store(true, Ordering::Relaxed);
            visitor.join().unwrap()
        });
        assert_eq!(*lock.lock(), [200_000 + visits; 2]);
    }

    #[test]
    fn a_thread_that_is_inside_gets_nothing_and_a_panic_gives_back() {
        let lock = Biased::new([0, 0]);
        for _ in 0..2 {
            let inside = lock.lock();
            assert!(lock.try_lock().is_none(), "the owner is inside");
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(lock.try_lock().is_none(), "another is inside"));
            });
            assert!(lock.try_lock().is_none(), "no longer the owner, but still inside");
            drop(inside);
            assert!(lock.try_lock().is_some());
        }
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = lock.lock();
            panic!("on purpose");
        }));
        assert!(panic.is_err() && lock.try_lock().is_some());
    }
}
