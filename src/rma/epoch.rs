//! Epochs as guards: an operation exists only on an open epoch, and closing the epoch is what
//! dropping its guard does.
//!
//! *Fence* epochs are collective: operations of one phase are complete everywhere before any of
//! the next begins. *Lock-all* epochs are not: the origin completes its own operations with
//! `flush`. In the node an operation has happened at the target when it returns, up to the
//! processor's store buffer; `flush` is the fence that empties that.

use super::atomic::Element;
use super::window::Window;
use crate::base::sync::full_fence;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::layout::op::{Op, check_op};
use crate::shm::copy::{copy_in, copy_out};
use std::ops::Deref;

/// What the caller asserts when it opens an epoch. Wrong assertions give wrong results, not
/// undefined behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assertions {
    /// Active messages of this epoch may run at the same time as others on the same target
    /// (`MPIX_MODE_CONCURRENT_AM` of paper 001 §6.4.5): no lock is taken for them.
    pub concurrent_am: bool,
}

/// An open epoch: where the operations are.
#[derive(Debug)]
pub struct Epoch<'w, T> {
    window: &'w Window<T>,
    assertions: Assertions,
}

impl<'w, T: Datum> Epoch<'w, T> {
    /// The window.
    #[inline]
    pub fn window(&self) -> &'w Window<T> {
        self.window
    }

    /// What was asserted when the epoch was opened.
    #[inline]
    pub fn assertions(&self) -> Assertions {
        self.assertions
    }

    /// Writes `values` to `target` from element `start` on.
    ///
    /// Cost: the stores, and the cache-line transfers that they cause. No atomic
    /// read-modify-write, no copy but the one, no system call.
    #[inline]
    pub fn put(&self, target: Rank, start: usize, values: &[T]) -> Result<()> {
        let to = self.window.locate("put", target, start, values.len())?;
        // SAFETY: `locate` checked the range; `values` is private memory, so nothing overlaps.
        unsafe { copy_in(to.cast(), values.as_ptr().cast(), size_of_val(values)) };
        Ok(())
    }

    /// Reads from `target` from element `start` on, filling `into`.
    ///
    /// Cost: the loads.
    #[inline]
    pub fn get(&self, target: Rank, start: usize, into: &mut [T]) -> Result<()> {
        let from = self.window.locate("get", target, start, into.len())?;
        // SAFETY: `locate` checked the range; `into` is private memory, so nothing overlaps.
        unsafe { copy_out(into.as_mut_ptr().cast(), from.cast(), size_of_val(into)) };
        Ok(())
    }
}

impl<T: Element> Epoch<'_, T> {
    /// `target[start + i] = target[start + i] OP values[i]`, each element atomically.
    ///
    /// Cost per element: see [`Element::fetch_op`].
    #[inline]
    pub fn accumulate(&self, target: Rank, start: usize, op: Op, values: &[T]) -> Result<()> {
        check_op::<T>(op)?;
        let at = self.window.locate("accumulate", target, start, values.len())?;
        // SAFETY: `locate` checked the range; windows are accessed atomically.
        unsafe { T::accumulate(at, op, values) };
        Ok(())
    }

    /// Atomically replaces one element of `target` by `element OP value`; returns what was there.
    #[inline]
    pub fn fetch_and_op(&self, target: Rank, index: usize, op: Op, value: T) -> Result<T> {
        check_op::<T>(op)?;
        let at = self.window.locate("fetch_and_op", target, index, 1)?;
        // SAFETY: as above.
        Ok(unsafe { T::fetch_op(at, op, value) })
    }

    /// Atomically replaces one element of `target` by `new` if its bits equal `expected`'s;
    /// returns what was there.
    #[inline]
    pub fn compare_and_swap(&self, target: Rank, index: usize, expected: T, new: T) -> Result<T> {
        let at = self.window.locate("compare_and_swap", target, index, 1)?;
        // SAFETY: as above.
        Ok(unsafe { T::compare_swap(at, expected, new) })
    }
}

/// A sequence of fence phases. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct FenceEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
    open: bool,
}

/// Access to every rank's part without synchronising with anybody. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct LockAllEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
}

impl<T: Datum> Window<T> {
    /// Opens a fence epoch. Collective: a barrier.
    pub fn fence(&self) -> Result<FenceEpoch<'_, T>> {
        self.fence_with(Assertions::default())
    }

    /// As [`Window::fence`], with assertions.
    pub fn fence_with(&self, assertions: Assertions) -> Result<FenceEpoch<'_, T>> {
        full_fence();
        self.team().barrier()?;
        Ok(FenceEpoch { epoch: Epoch { window: self, assertions }, open: true })
    }

    /// Opens a lock-all epoch. Costs nothing in the node: shared locks exclude only exclusive
    /// ones, of which this version has none.
    pub fn lock_all(&self) -> Result<LockAllEpoch<'_, T>> {
        self.lock_all_with(Assertions::default())
    }

    /// As [`Window::lock_all`], with assertions.
    pub fn lock_all_with(&self, assertions: Assertions) -> Result<LockAllEpoch<'_, T>> {
        full_fence();
        Ok(LockAllEpoch { epoch: Epoch { window: self, assertions } })
    }
}

impl<T: Datum> FenceEpoch<'_, T> {
    /// Ends this phase and begins the next: every operation of every member in this phase is
    /// complete when it returns. Collective: a barrier.
    #[expect(clippy::should_implement_trait, reason = "the next phase, not the next item")]
    pub fn next(&mut self) -> Result<()> {
        full_fence();
        self.epoch.window.team().barrier()
    }

    /// Ends the epoch. Collective: a barrier.
    pub fn end(mut self) -> Result<()> {
        self.open = false;
        self.next()
    }
}

impl<T: Datum> Drop for FenceEpoch<'_, T> {
    fn drop(&mut self) {
        // An error (a dead member) also shows in the next collective of the team. While this
        // thread unwinds, waiting for the others could only hang them.
        if self.open && !std::thread::panicking() {
            let _ = self.next();
        }
    }
}

impl<T: Datum> LockAllEpoch<'_, T> {
    /// Completes this rank's operations on `target`, at the target.
    ///
    /// Cost: a full fence and the load of a line that only deaths write.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if the target is dead. Its memory is still there, but nobody
    /// will look at it.
    #[inline]
    pub fn flush(&self, target: Rank) -> Result<()> {
        // Looked at first: behind the fence the load would have to wait for it.
        let alive = self.epoch.window.check_alive(target, "a flush");
        full_fence();
        alive
    }

    /// Completes this rank's operations on every rank. Cost: a full fence. Does not look for dead
    /// targets.
    #[inline]
    pub fn flush_all(&self) -> Result<()> {
        full_fence();
        Ok(())
    }

    /// Completes all operations and closes the epoch.
    pub fn unlock_all(self) -> Result<()> {
        self.flush_all()
    }
}

impl<T: Datum> Drop for LockAllEpoch<'_, T> {
    fn drop(&mut self) {
        full_fence();
    }
}

impl<'w, T: Datum> Deref for FenceEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}

impl<'w, T: Datum> Deref for LockAllEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
