//! One-sided operations on an open epoch.
//!
//! In the node the origin carries an operation out itself: it has happened at the target when the
//! call returns, up to the processor's store buffer.

pub(crate) mod transfer;

use super::accumulate::Element;
use super::epoch::Epoch;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::layout::op::{Op, check_op};
use crate::shm::copy::{copy_in, copy_out};

impl<T: Datum> Epoch<'_, T> {
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
        // SAFETY: `locate` checked the range.
        unsafe { self.window.domain().accumulate(target, at, op, values) }
    }

    /// Atomically replaces one element of `target` by `element OP value`; returns what was there.
    #[inline]
    pub fn fetch_and_op(&self, target: Rank, index: usize, op: Op, value: T) -> Result<T> {
        check_op::<T>(op)?;
        let at = self.window.locate("fetch_and_op", target, index, 1)?;
        // SAFETY: as above.
        unsafe { self.window.domain().fetch_op(target, at, op, value) }
    }

    /// Atomically replaces one element of `target` by `new` if its bits equal `expected`'s;
    /// returns what was there.
    #[inline]
    pub fn compare_and_swap(&self, target: Rank, index: usize, expected: T, new: T) -> Result<T> {
        let at = self.window.locate("compare_and_swap", target, index, 1)?;
        // SAFETY: as above.
        unsafe { self.window.domain().compare_swap(target, at, expected, new) }
    }
}
