//! Which threads have stored to shared memory since their last full fence.
//!
//! Completing operations at the target takes a full fence, since stores wait in the processor's store
//! buffer. A read-modify-write empties that buffer itself on x86-64, and loads leave nothing in it: a
//! thread that has done nothing else completes its operations without a fence. So whatever stores
//! plainly *notes* it, in a word of the thread's own, and whoever completes operations looks there.
//!
//! Of the thread's own and not of the epoch's, because threads share epochs: a fence of one of them
//! empties nobody else's buffer, so it must not take the other's note away. Where another thread
//! completes what this one has stored, it has learned of it by a later store of this one, and on x86-64
//! those become visible in order.

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod imp {
    use crate::base::sync::{Ordering, compiler_fence, full_fence};
    use std::cell::Cell;

    thread_local! {
        static NOTED: Cell<bool> = const { Cell::new(false) };
    }

    #[inline(always)]
    pub fn note() {
        NOTED.with(|noted| noted.set(true));
    }

    #[inline(always)]
    pub fn complete() {
        // Taken back only where it is set, and behind the fence: an atomic instruction waits for the stores
        // before it.
        if NOTED.get() {
            full_fence();
            NOTED.set(false);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
mod imp {
    // Elsewhere a relaxed read-modify-write orders nothing.
    pub fn note() {}
    pub use crate::base::sync::full_fence as complete;
}

/// This thread is about to store, other than by a read-modify-write.
///
/// Cost: one store to a line of the thread's own.
#[inline(always)]
pub(crate) fn note() {
    imp::note();
}

/// Makes all that this thread has stored visible to all before its later loads: a full fence, but
/// where every store since the last one was a read-modify-write.
///
/// Cost without such a store: a load and a predictable branch.
#[inline(always)]
pub(crate) fn complete() {
    imp::complete();
}
