//! The only place atomics, fences, futexes and racy cells come from. Under `--cfg loom` the same
//! names are loom's, so the models run the very code that ships.
//!
//! Asymmetric fences: whoever goes to sleep pays for both sides. A waker does
//! `store; light_fence; load sleepers`, a sleeper does `store sleepers; heavy_fence; re-check`.
//! With `membarrier(GLOBAL_EXPEDITED)` the heavy fence interrupts every core that runs a thread
//! of a registered process, so the light one is only a compiler fence. Where any process of the
//! node could not register, [`use_full_fences`] makes both sides a full fence.

#[cfg(not(loom))]
mod imp {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };

    /// A cell whose content one side owns at a time, by protocol.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps a value.
        pub const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }
        /// Runs `f` on a pointer for reading.
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
        /// Runs `f` on a pointer for writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// One pause in a spin loop.
    #[inline(always)]
    pub fn spin_hint() {
        std::hint::spin_loop();
    }

    /// Lets another thread run.
    pub fn yield_now() {
        std::thread::yield_now();
    }

    static FULL_FENCES: AtomicBool = AtomicBool::new(true);
    /// Some node of this process needs full fences, now and for ever.
    static NEEDS_FULL: AtomicBool = AtomicBool::new(false);
    static REGISTERED: AtomicBool = AtomicBool::new(false);

    /// Registers this process for asymmetric fences; false where the kernel has none.
    pub fn register_asymmetric() -> bool {
        const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
        // SAFETY: membarrier takes no pointers; unknown commands return an error.
        let rc = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_GLOBAL_EXPEDITED, 0, 0) };
        if rc == 0 {
            REGISTERED.store(true, Ordering::SeqCst);
        }
        rc == 0
    }

    /// Chooses full fences on both sides (true) or asymmetric ones (false) for this process.
    ///
    /// Asymmetric ones may be chosen only once *every* process that shares memory with this one
    /// has registered: a waker that only did a compiler fence is woken up by nobody's barrier.
    /// It is a property of the process: fences of all nodes it is attached to must be full as
    /// soon as those of one must.
    pub fn use_full_fences(full: bool) {
        if full {
            NEEDS_FULL.store(true, Ordering::SeqCst);
        }
        FULL_FENCES.store(NEEDS_FULL.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// A full fence: earlier stores are visible to all before later loads are made.
    ///
    /// On x86-64 a locked read-modify-write of the stack, which is as strong for ordinary memory
    /// as `mfence` and a few times cheaper on most processors. A word in the red zone, which this
    /// process may touch but nobody writes here: one stored just before would make it wait.
    #[inline(always)]
    pub fn full_fence() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a word in the 128 bytes beyond the top of this thread's own stack that the ABI
        // reserves gets the value it has (so nothing is written, as the compiler may think); no
        // other thread uses it.
        unsafe {
            std::arch::asm!("lock or dword ptr [rsp - 64], 0", options(nostack));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        fence(Ordering::SeqCst);
    }

    /// A full fence right behind a read-modify-write of this thread: on x86-64 that was one
    /// already.
    #[inline(always)]
    pub fn fence_after_rmw() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        fence(Ordering::SeqCst);
    }

    /// The waker's side: orders an earlier store before a later load, as seen by a thread that
    /// executed [`heavy_fence`]. Costs nothing but a predictable branch with asymmetric fences.
    #[inline(always)]
    pub fn light_fence() {
        if FULL_FENCES.load(Ordering::Relaxed) {
            std::hint::cold_path();
            full_fence();
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// The sleeper's side: one system call (a few µs) with asymmetric fences.
    #[cold]
    pub fn heavy_fence() {
        const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
        fence(Ordering::SeqCst);
        // Also while this process still uses full fences itself: a peer may have switched.
        if REGISTERED.load(Ordering::Relaxed) {
            // SAFETY: membarrier takes no pointers.
            let rc = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL_EXPEDITED, 0, 0) };
            // It cannot fail once registration has succeeded; should it ever, a sleeper that
            // misses a wake still wakes at the end of its slice.
            let _ = rc;
        }
    }

    use std::time::Duration;

    /// Sleeps while `word == expected`, at most `slice`. Works across processes (the futex is
    /// shared, not process-private). Spurious returns are allowed.
    pub fn futex_wait(word: &AtomicU32, expected: u32, slice: Duration) {
        let slice = libc::timespec {
            tv_sec: libc::time_t::try_from(slice.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: slice.subsec_nanos().into(),
        };
        // By way of libc, not of rustix as below: rustix hands over a pointer to an atomic, and
        // Miri wants exactly the type that the system call names.
        // SAFETY: the word and the time outlive the call, which writes neither.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                expected,
                &raw const slice,
            )
        };
    }

    /// As [`futex_wait`], of two words: whichever is not, or is no longer, what was expected ends the
    /// sleep. Where the system cannot sleep on two (Linux before 5.16), only the first one does.
    pub fn futex_wait_either(words: [&AtomicU32; 2], expected: [u32; 2], slice: Duration) {
        use rustix::io::Errno;
        use rustix::thread::ClockId;
        use rustix::thread::futex::{Timespec, Wait, WaitFlags, WaitPtr, WaitvFlags, waitv};
        let both = [0, 1].map(|k| {
            let mut one = Wait::new();
            one.val = expected[k].into();
            one.uaddr = WaitPtr::new(words[k].as_ptr().cast());
            one.flags = WaitFlags::SIZE_U32;
            one
        });
        // Unlike that of one word, the end of this sleep is a point in time.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanos = now.tv_nsec + i64::from(slice.subsec_nanos());
        let seconds = now.tv_sec.saturating_add(slice.as_secs() as i64);
        let end = Timespec {
            tv_sec: seconds.saturating_add(nanos / 1_000_000_000),
            tv_nsec: nanos % 1_000_000_000,
        };
        let slept = waitv(&both, WaitvFlags::empty(), Some(&end), ClockId::Monotonic);
        // Filters of system calls refuse it either way.
        if matches!(slept, Err(Errno::NOSYS | Errno::PERM)) {
            futex_wait(words[0], expected[0], slice);
        }
    }

    /// Wakes up to `count` sleepers.
    pub fn futex_wake(word: &AtomicU32, count: u32) {
        let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
        // SAFETY: a wake only looks the word's address up.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };

    /// One pause in a spin loop: under loom a scheduling point.
    pub fn spin_hint() {
        loom::thread::yield_now();
    }
    /// Lets another thread run.
    pub fn yield_now() {
        loom::thread::yield_now();
    }
    /// See the real one.
    pub fn full_fence() {
        fence(Ordering::SeqCst);
    }
    /// See the real one.
    pub fn fence_after_rmw() {
        fence(Ordering::SeqCst);
    }
    /// See the real one.
    pub fn light_fence() {
        fence(Ordering::SeqCst);
    }
    /// See the real one.
    pub fn heavy_fence() {
        fence(Ordering::SeqCst);
    }

    std::thread_local! {
        static BLOCKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    loom::lazy_static! {
        static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
            (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
    }

    /// Chooses how this (real) thread's models treat [`futex_wait`]: as a slice that ends at once
    /// (false, the default), or as a sleep that only a wake ends (true), so that a lost wake-up is
    /// a deadlock, which loom reports.
    pub fn futex_blocks(blocks: bool) {
        BLOCKING.with(|b| b.set(blocks));
    }

    /// See the real one and [`futex_blocks`].
    pub fn futex_wait(word: &AtomicU32, expected: u32, _slice: std::time::Duration) {
        if BLOCKING.with(std::cell::Cell::get) {
            // As in the kernel: compared under the lock that a wake takes.
            if let Ok(guard) = SLEEPERS.0.lock() {
                if word.load(Ordering::SeqCst) == expected {
                    drop(SLEEPERS.1.wait(guard));
                }
            }
            return;
        }
        let _ = word.load(Ordering::SeqCst) == expected;
        loom::thread::yield_now();
    }
    /// See the real one and [`futex_blocks`].
    pub fn futex_wait_either(
        words: [&AtomicU32; 2],
        expected: [u32; 2],
        slice: std::time::Duration,
    ) {
        if !BLOCKING.with(std::cell::Cell::get) {
            return futex_wait(words[0], expected[0], slice);
        }
        if let Ok(guard) = SLEEPERS.0.lock() {
            let same = |k: usize| words[k].load(Ordering::SeqCst) == expected[k];
            if same(0) && same(1) {
                drop(SLEEPERS.1.wait(guard));
            }
        }
    }
    /// See the real one and [`futex_blocks`]: wakes everyone, which a futex may do.
    pub fn futex_wake(_word: &AtomicU32, _count: u32) {
        if BLOCKING.with(std::cell::Cell::get) {
            drop(SLEEPERS.0.lock());
            SLEEPERS.1.notify_all();
        }
    }
}

pub use imp::*;

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::thread::ClockId;
    use rustix::thread::futex::{WaitvFlags, waitv};
    use std::time::Duration;

    /// Longer than any test may take.
    const FOREVER: Duration = Duration::from_secs(3600);

    fn sleeps_on_two() -> bool {
        waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) == Err(Errno::INVAL)
    }

    #[test]
    fn either_word_ends_a_sleep_or_keeps_it_from_beginning() {
        let words = [AtomicU32::new(1), AtomicU32::new(2)];
        let both = [&words[0], &words[1]];
        futex_wait_either(both, [0, 2], FOREVER);
        futex_wait_either(both, [1, 2], Duration::from_millis(1));
        if !sleeps_on_two() {
            println!("this system cannot sleep on two words: the second one was not looked at");
            return;
        }
        futex_wait_either(both, [1, 0], FOREVER);
        for word in both {
            let before = both.map(|word| word.load(Ordering::Relaxed));
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| futex_wait_either(both, before, FOREVER));
                while !sleeper.is_finished() {
                    word.fetch_add(1, Ordering::Relaxed);
                    futex_wake(word, 1);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    }
}
