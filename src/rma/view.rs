//! Direct access to a run of elements in shared memory: a rank's own part of a window, or the
//! part that an active message's handler works on.

use super::accumulate::{Element, Updates};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::Datum;
use crate::layout::op::{Op, check_op};
use crate::shm::copy::{copy_in, copy_out};
use std::marker::PhantomData;

/// Elements `0..len` of a part of a window, for loads and stores by whoever has it mapped. Others
/// may access them at the same time, so they are never lent out as a slice: a single element of 1,
/// 2, 4 or 8 bytes that lies at a multiple of its size is read and written whole; longer ones and
/// runs may tear against concurrent writers.
///
/// Loads and stores have no order but the thread's own: what others wrote is to be seen after a
/// synchronisation with them. [`View::fetch_and_op`] and [`View::compare_and_swap`] are updates
/// like those of every origin; no update is lost.
#[derive(Clone, Copy, Debug)]
pub struct View<'w, T> {
    first: *mut T,
    len: usize,
    owner: Rank,
    domain: Updates<'w>,
    _window: PhantomData<&'w T>,
}

// SAFETY: a View is an address range of a live mapping (for 'w) accessed by atomics and opaque
// copies only; T is plain data.
unsafe impl<T: Datum> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Datum> Sync for View<'_, T> {}

impl<'w, T: Datum> View<'w, T> {
    /// # Safety
    /// `first..first+len` are aligned elements of `owner`'s memory in the window of `domain`, which
    /// stays mapped for `'w`.
    pub(crate) unsafe fn new(
        first: *mut T,
        len: usize,
        owner: Rank,
        domain: Updates<'w>,
    ) -> View<'w, T> {
        View { first, len, owner, domain, _window: PhantomData }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn at(&self, what: &'static str, start: usize, count: usize) -> Result<*mut T> {
        match start.checked_add(count) {
            // SAFETY: start <= len.
            Some(end) if end <= self.len => Ok(unsafe { self.first.add(start) }),
            _ => Err(out_of_bounds(what, self.owner, start, count, self.len)),
        }
    }

    /// Element `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Result<T> {
        let from = self.at("View::get", index, 1)?;
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: `at` checked the bounds; any bytes make a valid T.
        unsafe {
            copy_out(value.as_mut_ptr().cast(), from.cast(), size_of::<T>());
            Ok(value.assume_init())
        }
    }

    /// Sets element `index`.
    #[inline]
    pub fn set(&self, index: usize, value: T) -> Result<()> {
        let to = self.at("View::set", index, 1)?;
        // SAFETY: `at` checked the bounds.
        unsafe { copy_in(to.cast(), (&raw const value).cast(), size_of::<T>()) };
        Ok(())
    }

    /// Reads `into.len()` elements from `start` on.
    #[inline]
    pub fn read(&self, start: usize, into: &mut [T]) -> Result<()> {
        let from = self.at("View::read", start, into.len())?;
        // SAFETY: `at` checked the bounds; private and shared memory do not overlap.
        unsafe { copy_out(into.as_mut_ptr().cast(), from.cast(), size_of_val(into)) };
        Ok(())
    }

    /// Writes `values` from `start` on.
    #[inline]
    pub fn write(&self, start: usize, values: &[T]) -> Result<()> {
        let to = self.at("View::write", start, values.len())?;
        // SAFETY: `at` checked the bounds; private and shared memory do not overlap.
        unsafe { copy_in(to.cast(), values.as_ptr().cast(), size_of_val(values)) };
        Ok(())
    }

    /// Elements `start..end` as a view of their own.
    #[inline]
    pub fn slice(&self, start: usize, end: usize) -> Result<View<'w, T>> {
        let count = end.checked_sub(start).ok_or_else(|| {
            Error::invalid("View::slice", format!("{start}..{end} ends before it starts"))
        })?;
        let first = self.at("View::slice", start, count)?;
        Ok(View { first, len: count, ..*self })
    }

    /// Address of the first element, for code that keeps pointers in symmetric memory: it is the
    /// same in every process of the node. Whoever dereferences it answers for races.
    #[inline]
    pub fn as_ptr(&self) -> *mut T {
        self.first
    }
}

impl<T: Element> View<'_, T> {
    /// Atomically replaces element `index` by `element OP value`; returns what was there.
    #[inline]
    pub fn fetch_and_op(&self, index: usize, op: Op, value: T) -> Result<T> {
        check_op::<T>(op)?;
        let at = self.at("View::fetch_and_op", index, 1)?;
        reentry::note_update();
        // SAFETY: in bounds, aligned, of the owner's part.
        unsafe { self.domain.fetch_op(self.owner, at, op, value) }
    }

    /// Atomically replaces element `index` by `new` if it equals `expected` bit by bit; returns
    /// what was there.
    #[inline]
    pub fn compare_and_swap(&self, index: usize, expected: T, new: T) -> Result<T> {
        let at = self.at("View::compare_and_swap", index, 1)?;
        reentry::note_update();
        // SAFETY: in bounds, aligned, of the owner's part.
        unsafe { self.domain.compare_swap(self.owner, at, expected, new) }
    }
}

#[cold]
pub(super) fn out_of_bounds(
    what: &'static str,
    rank: Rank,
    start: usize,
    count: usize,
    len: usize,
) -> Error {
    Error::OutOfBounds {
        what,
        rank,
        start: start as u64,
        end: (start as u64).saturating_add(count as u64),
        len: len as u64,
    }
}
