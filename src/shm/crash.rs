//! Simulated kills: a test makes its thread stop for good at the n-th of these points. In a
//! library build a point is nothing.
//!
//! A kill cannot be a panic that runs destructors, so code between points must hold no guards;
//! the test catches the unwinding and never touches what the thread had in its hands.

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

/// Whether the calling thread is being killed: destructors that run all the same do nothing.
#[cfg(all(not(test), not(loom)))]
#[inline(always)]
pub(crate) fn struck() -> bool {
    false
}

#[cfg(test)]
pub(crate) use armed::*;

#[cfg(test)]
mod armed {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    #[cfg(not(loom))]
    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(0) };
        static STRUCK: Cell<bool> = const { Cell::new(false) };
    }
    #[cfg(loom)]
    loom::thread_local! {
        static LEFT: Cell<u32> = Cell::new(0);
        static STRUCK: Cell<bool> = Cell::new(false);
    }

    struct Killed;

    /// A place where the calling thread may be killed.
    pub(crate) fn point() {
        LEFT.with(|left| {
            let n = left.get();
            left.set(n.saturating_sub(1));
            if n == 1 {
                STRUCK.with(|struck| struck.set(true));
                resume_unwind(Box::new(Killed));
            }
        });
    }

    /// See above.
    #[cfg(not(loom))]
    pub(crate) fn struck() -> bool {
        STRUCK.with(Cell::get)
    }

    #[cfg(not(loom))]
    /// Runs `f` for somebody else, who is not to be killed, in the midst of [`kill_at`].
    pub(crate) fn spare<R>(f: impl FnOnce() -> R) -> R {
        let left = LEFT.with(|left| left.replace(0));
        let result = f();
        LEFT.with(|now| now.set(left));
        result
    }

    /// Runs `f`, killing it at its `n`-th point (counted from 1). `None` if it was killed.
    pub(crate) fn kill_at<R>(n: u32, f: impl FnOnce() -> R) -> Option<R> {
        LEFT.with(|left| left.set(n));
        let result = catch_unwind(AssertUnwindSafe(f));
        LEFT.with(|left| left.set(0));
        STRUCK.with(|struck| struck.set(false));
        match result {
            Ok(value) => Some(value),
            Err(cause) if cause.is::<Killed>() => None,
            Err(cause) => resume_unwind(cause),
        }
    }
}
