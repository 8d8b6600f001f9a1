//! A lock that costs the thread that usually takes it no atomic read-modify-write.
//!
//! Such an instruction waits until all earlier stores have reached the cache, so a mutex around
//! every message makes each wait for the line of the one before; without, they overlap.
//!
//! ```text
//! owner                                     any other thread, holding `turns`
//!   active[me] = 1                            owner = SHARED
//!   light_fence                               heavy_fence
//!   owner == me?                              active[last owner] == 0?  (or wait until it is)
//!     yes: work; active[me] = 0 (Release)       yes: work; give `turns` back
//!     no:  active[me] = 0; take `turns`
//! ```
//! Either the owner sees SHARED, or the other thread sees `active`: the pair of fences. While the
//! lock is SHARED everybody takes `turns`, a mutex; whoever takes it many times in a row becomes
//! the owner. So the system call in the heavy fence is paid when the usual user changes, not when
//! threads take turns.
//!
//! Each thread that was ever the owner has a flag of its own: one that was held up between its first
//! look at `owner` and its flag may write the flag when another has long become the owner.
//!
//! A thread is known by the address of a thread-local variable. The address of a thread that has
//! ended may come back with a new one, which then inherits what the former owned: it had left
//! (`active` is 0), and its memory was not reused before it had ended.

use crate::base::sync::{
    AtomicU8, AtomicU64, Ordering, UnsafeCell, heavy_fence, light_fence, yield_now,
};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// Threads that may become the owner: the first ones that take many turns in a row.
const OWNERS: usize = 8;
/// What of an owner's word is the place of its flag.
const PLACE: u64 = 15;
/// No thread's word.
const SHARED: u64 = OWNERS as u64;
/// Turns in a row that make a thread the owner.
const MANY: u32 = if cfg!(loom) { 1 } else { 256 };

/// A value that one thread at a time works with, usually the same.
pub(crate) struct Biased<T> {
    /// Name of the owning thread and the place of its flag, or [`SHARED`]; 0 before the first use.
    /// Changed under `turns`.
    owner: AtomicU64,
    /// The owner is inside. Each written by one thread only.
    active: [AtomicU8; OWNERS],
    turns: Mutex<Turns>,
    value: UnsafeCell<T>,
}

impl<T> std::fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Biased").finish_non_exhaustive()
    }
}

struct Turns {
    last: u64,
    count: u32,
    /// Place of the latest owner's flag.
    owner: usize,
    /// Names of those who were owners, by the places of their flags.
    owners: Vec<u64>,
}

// SAFETY: the value is reached by one thread at a time, see the module; it moves between threads
// as it would in a mutex.
unsafe impl<T: Send> Sync for Biased<T> {}

#[cfg(not(loom))]
thread_local! {
    static HERE: Here = const { Here(0) };
}

/// Leaves room below its address for [`PLACE`].
#[cfg(not(loom))]
#[repr(align(16))]
struct Here(#[expect(dead_code, reason = "what counts is where it lies")] u8);

#[cfg(all(test, not(loom)))]
thread_local! {
    static SLOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Times that the calling thread has come to such a lock that was not its own.
#[cfg(all(test, not(loom)))]
pub(crate) fn turns_taken() -> u64 {
    SLOW.with(std::cell::Cell::get)
}

fn note_turn() {
    #[cfg(all(test, not(loom)))]
    SLOW.with(|slow| slow.set(slow.get() + 1));
}

/// Loom's threads are one to the system.
#[cfg(loom)]
fn me() -> u64 {
    let name = format!("{:?}", loom::thread::current().id());
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    (digits.parse::<u64>().unwrap_or(0) + 1) << 4
}

/// Names the calling thread among those that live; never 0, a multiple of 16.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn me() -> u64 {
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}

impl<T> Biased<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Biased<T> {
        Biased {
            owner: AtomicU64::new(0),
            active: std::array::from_fn(|_| AtomicU8::new(0)),
            turns: Mutex::new(Turns { last: 0, count: 0, owner: 0, owners: Vec::new() }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. A thread that has it already waits for ever, as for a mutex.
    ///
    /// Cost for the owner: two stores and two loads of private lines.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.lock_as_owner() {
            Some(guard) => guard,
            None => self.lock_shared(),
        }
    }

    /// The value, if nobody has it now (the calling thread included).
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.lock_as_owner() {
            Some(guard) => Some(guard),
            None => self.try_lock_shared(),
        }
    }

    /// Whether the calling thread is the owner. It may not be the next moment.
    #[cfg_attr(loom, allow(dead_code))]
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) & !PLACE == me()
    }

    /// The value, if the calling thread is the owner, and not inside already.
    ///
    /// Cost: as for [`Biased::lock`].
    #[inline(always)]
    pub fn lock_as_owner(&self) -> Option<Guard<'_, T>> {
        let me = me();
        let owner = self.owner.load(Ordering::Relaxed);
        if owner & !PLACE != me {
            return None;
        }
        // Only this thread writes the flag, so it knows whether it is inside.
        let active = &self.active[owner as usize % OWNERS];
        if active.load(Ordering::Relaxed) != 0 {
            return None;
        }
        active.store(1, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Relaxed) == owner {
            return Some(Guard::owner(self, active));
        }
        active.store(0, Ordering::Release);
        None
    }

    #[cold]
    fn lock_shared(&self) -> Guard<'_, T> {
        note_turn();
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.share();
        let active = &self.active[turns.owner];
        while active.load(Ordering::Acquire) != 0 {
            yield_now();
            // Loom would have this thread see the old value for ever.
            #[cfg(loom)]
            active.fetch_or(0, Ordering::Relaxed);
        }
        self.take_turn(turns)
    }

    /// The value, if nobody has it now, for who is [not the owner](Biased::lock_as_owner).
    #[cold]
    pub fn try_lock_shared(&self) -> Option<Guard<'_, T>> {
        note_turn();
        let turns = match self.turns.try_lock() {
            Ok(turns) => turns,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.owner.load(Ordering::Relaxed) & !PLACE == me() {
            // This thread is inside.
            return None;
        }
        self.share();
        let active = &self.active[turns.owner];
        (active.load(Ordering::Acquire) == 0).then(|| self.take_turn(turns))
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
        turns.count = if turns.last == me { turns.count.saturating_add(1) } else { 0 };
        turns.last = me;
        if self.owner.load(Ordering::Relaxed) == SHARED && turns.count < MANY {
            return Guard::shared(self, turns);
        }
        let place = match turns.owners.iter().position(|owner| *owner == me) {
            Some(place) => place,
            None if turns.owners.len() == OWNERS => {
                return Guard::shared(self, turns);
            }
            None => {
                turns.owners.push(me);
                turns.owners.len() - 1
            }
        };
        turns.count = 0;
        turns.owner = place;
        // Both become known to the next that takes `turns`.
        self.active[place].store(1, Ordering::Relaxed);
        self.owner.store(me | place as u64, Ordering::Relaxed);
        Guard::owner(self, &self.active[place])
    }
}

/// The value, until dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// The flag by which the owner came in.
    active: Option<&'a AtomicU8>,
    /// What others hold: initialised only if there is no flag. No `Option` and no `enum`: their tag is a byte
    /// beside which others are copied with every move of the guard, as a word, which is not to be had before
    /// that byte has left the store buffer, and with it whatever was stored before.
    turns: MaybeUninit<MutexGuard<'a, Turns>>,
    /// Must be dropped by the thread that made it.
    _here: PhantomData<*const ()>,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn owner(lock: &'a Biased<T>, active: &'a AtomicU8) -> Self {
        Guard { lock, active: Some(active), turns: MaybeUninit::uninit(), _here: PhantomData }
    }

    fn shared(lock: &'a Biased<T>, turns: MutexGuard<'a, Turns>) -> Self {
        Guard { lock, active: None, turns: MaybeUninit::new(turns), _here: PhantomData }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.active {
            Some(active) => active.store(0, Ordering::Release),
            // SAFETY: only `shared` makes a guard without a flag, and puts the turns there; a guard is dropped once.
            None => unsafe { self.turns.assume_init_drop() },
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

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    /// Loom sees two threads that are inside at a time.
    type Shared = Arc<Biased<UnsafeCell<u32>>>;

    fn add(inside: &UnsafeCell<u32>) {
        // SAFETY: as the lock promises, which the model tries.
        inside.with_mut(|value| unsafe { *value += 1 });
    }

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3).min(3));
        builder.check(f);
    }

    #[test]
    fn loom_who_looks_after_anothers_is_inside_alone_or_not_at_all() {
        model(|| {
            let lock: Shared = Arc::new(Biased::new(UnsafeCell::new(0)));
            add(&lock.lock());
            let other = lock.clone();
            let helper = thread::spawn(move || {
                let got = other.try_lock().map(|inside| add(&inside)).is_some();
                u32::from(got)
            });
            (0..2).for_each(|_| add(&lock.lock()));
            let helped = helper.join().unwrap();
            // SAFETY: nobody else is left.
            lock.lock().with(|value| assert_eq!(unsafe { *value }, 3 + helped));
        });
    }

    /// Each becomes the owner in its turn, and loses that to the other. (Neither waits: loom would have
    /// a thread that does see the same for ever.)
    #[test]
    fn loom_ownership_goes_to_and_fro_and_one_is_inside_at_a_time() {
        model(|| {
            let lock: Shared = Arc::new(Biased::new(UnsafeCell::new(0)));
            let other = lock.clone();
            // The second time in a row makes an owner, as the first time ever does.
            let turns = |lock: Shared| {
                (0..3).filter_map(|_| lock.try_lock().map(|inside| add(&inside))).count() as u32
            };
            let helper = thread::spawn(move || turns(other));
            let count = turns(lock.clone()) + helper.join().unwrap();
            // SAFETY: nobody else is left.
            lock.lock().with(|value| assert_eq!(unsafe { *value }, count));
        });
    }
}

#[cfg(all(test, not(loom)))]
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
    fn more_threads_than_can_be_owners_exclude_each_other_too() {
        let lock = Biased::new([0, 0]);
        let go = Barrier::new(2 * OWNERS);
        std::thread::scope(|scope| {
            for _ in 0..2 * OWNERS {
                scope.spawn(|| {
                    go.wait();
                    (0..3 * u64::from(MANY)).for_each(|_| add(&mut lock.lock()));
                    // All are there until the last one has been the owner, or could not be.
                    go.wait();
                });
            }
        });
        let all = 2 * OWNERS as u64 * 3 * u64::from(MANY);
        assert_eq!(*lock.lock(), [all, all]);
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
