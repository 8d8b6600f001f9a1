//! One-sided operations on an open epoch.
//!
//! On a part that is mapped here the origin carries an operation out itself: it has happened at the
//! target when the call returns, up to the processor's store buffer. On any other part it becomes
//! packets (see `packet`): the call returns when the origin's memory has been read, with the result
//! if there is one; what the target finds wrong with an operation without a result shows at the
//! next flush or the end of the epoch.

pub(crate) mod away;
mod direct;
mod general;
mod layouts;
mod requests;
pub(crate) mod transfer;

pub(crate) use direct::reshape;
pub(crate) use requests::zeroed;

use super::accumulate::Element;
use super::epoch::Epoch;
use crate::base::long::{Kind, long_copy_in};
use crate::base::{Error, Rank, Result, stores};
use crate::layout::Datum;
use crate::layout::op::{Op, check_op};
use crate::rma::kind::Place;
use crate::shm::copy::{copy_in, copy_out};

impl<T: Datum> Epoch<'_, T> {
    /// Writes `values` to `target` from displacement `start` on. `values` may be used again at
    /// once.
    ///
    /// A single aligned element of 1, 2, 4 or 8 bytes is written whole; longer runs may tear
    /// against concurrent readers. Cost on a mapped part: the stores, and the cache-line transfers
    /// that they cause; from 8 KiB on past the caches where that is measured to be faster (`HITHER_STORES`).
    /// No atomic read-modify-write, no copy but the one, no system call. Waits
    /// only by packets, while nothing more can be sent.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the epoch does not cover `target`; [`Error::OutOfBounds`];
    /// [`Error::InvalidArgument`] for a rank that is none, or a displacement at which no element
    /// can lie; by packets [`Error::RankDied`] and [`Error::TimedOut`].
    #[inline(always)]
    pub fn put(&self, target: Rank, start: usize, values: &[T]) -> Result<()> {
        // A word goes by value whatever comes: one whose address were taken for the unusual case
        // would go to memory first.
        if let [value] = *values
            && size_of::<T>() <= size_of::<u64>()
        {
            let Some(to) = self.direct(target, start, 1) else {
                return self.put_one_anywhere(target, start, value);
            };
            stores::note();
            // SAFETY: `direct` checked the range; `value` is private memory, so nothing overlaps.
            unsafe { copy_in(to.cast(), (&raw const value).cast(), size_of::<T>()) };
            return Ok(());
        }
        let Some(to) = self.direct(target, start, values.len()) else {
            return self.put_anywhere(target, start, values);
        };
        stores::note();
        // SAFETY: `direct` checked the range; `values` is private memory, so nothing overlaps.
        unsafe { long_copy_in(Kind::Part, to.cast(), values.as_ptr().cast(), size_of_val(values)) };
        Ok(())
    }

    #[inline(never)]
    fn put_one_anywhere(&self, target: Rank, start: usize, value: T) -> Result<()> {
        self.put_anywhere(target, start, &[value])
    }

    #[inline(never)]
    fn put_anywhere(&self, target: Rank, start: usize, values: &[T]) -> Result<()> {
        self.admit("put", target)?;
        let to = match self.window.place("put", target, start, values.len())? {
            Place::Here(to) => to,
            Place::Away(at) => return self.window.put_away(target, at, values),
        };
        stores::note();
        // SAFETY: as for `put`, by `place`.
        unsafe { long_copy_in(Kind::Part, to.cast(), values.as_ptr().cast(), size_of_val(values)) };
        Ok(())
    }

    /// Reads from `target` from displacement `start` on, filling `into`. The elements are there
    /// when it returns; tearing as for [`Epoch::put`].
    ///
    /// Cost on a mapped part: the loads. By packets it waits for the answer.
    ///
    /// # Errors
    /// As for [`Epoch::put`].
    #[inline(always)]
    pub fn get(&self, target: Rank, start: usize, into: &mut [T]) -> Result<()> {
        let Some(from) = self.direct(target, start, into.len()) else {
            return self.get_anywhere(target, start, into);
        };
        // SAFETY: `direct` checked the range; `into` is private memory, so nothing overlaps.
        unsafe { copy_out(into.as_mut_ptr().cast(), from.cast(), size_of_val(into)) };
        Ok(())
    }

    #[inline(never)]
    fn get_anywhere(&self, target: Rank, start: usize, into: &mut [T]) -> Result<()> {
        self.admit("get", target)?;
        let from = match self.window.place("get", target, start, into.len())? {
            Place::Here(from) => from,
            Place::Away(at) => return self.window.get_away(target, at, into),
        };
        // SAFETY: as for `get`, by `place`.
        unsafe { copy_out(into.as_mut_ptr().cast(), from.cast(), size_of_val(into)) };
        Ok(())
    }
}

impl<T: Element> Epoch<'_, T> {
    /// `target[start + i] = target[start + i] OP values[i]`, each element atomically against every
    /// other update of it (see `accumulate`); the call as a whole is not one atomic step.
    ///
    /// Cost on a mapped part: of up to 4 elements [`Element::fetch_op`]'s each, a load of a line
    /// of the window that is seldom written, and two stores to a line of the thread's own. Of many,
    /// a lock for each 16 KiB and vector loops, once the window has found that to be cheaper. The
    /// change between the two takes a system call.
    ///
    /// # Errors
    /// As for [`Epoch::put`]; [`Error::InvalidArgument`] also if `op` does not apply to the
    /// elements. [`Error::TimedOut`] if a lock was not to be had in time: some elements are updated
    /// then.
    #[inline(always)]
    pub fn accumulate(&self, target: Rank, start: usize, op: Op, values: &[T]) -> Result<()> {
        if op == Op::Replace {
            stores::note();
        }
        if let [value] = *values
            && T::KIND.allows(op)
            && let Some(at) = self.direct(target, start, 1)
            // SAFETY: `direct` checked the range.
            && unsafe { self.updates().accumulate_natively(at, op, value) }
        {
            return Ok(());
        }
        self.accumulate_anywhere(target, start, op, values)
    }

    #[inline(never)]
    fn accumulate_anywhere(&self, target: Rank, start: usize, op: Op, values: &[T]) -> Result<()> {
        check_op::<T>(op)?;
        self.admit("accumulate", target)?;
        let at = match self.window.place("accumulate", target, start, values.len())? {
            Place::Here(at) => at,
            Place::Away(at) => return self.window.accumulate_away(target, at, op, values),
        };
        stores::note();
        // SAFETY: `place` checked the range.
        unsafe { self.window.domain().accumulate(target, at, op, values) }
    }

    /// As [`Epoch::accumulate`], and fills `result` with what was there, element by element. With
    /// [`Op::NoOp`] it is an atomic read, and `values` may be empty.
    ///
    /// Blocks until the result is there. Cost as for [`Epoch::accumulate`].
    ///
    /// # Errors
    /// As for [`Epoch::accumulate`]; [`Error::InvalidArgument`] also if there are not as many
    /// values as results.
    #[inline(always)]
    pub fn get_accumulate(
        &self,
        target: Rank,
        start: usize,
        op: Op,
        values: &[T],
        result: &mut [T],
    ) -> Result<()> {
        if let ([value], [result]) = (values, &mut *result)
            && let Some(old) = self.fetch_op_directly(target, start, op, *value)
        {
            *result = old;
            return Ok(());
        }
        self.get_accumulate_anywhere(target, start, op, values, result)
    }

    #[inline(never)]
    fn get_accumulate_anywhere(
        &self,
        target: Rank,
        start: usize,
        op: Op,
        values: &[T],
        result: &mut [T],
    ) -> Result<()> {
        const WHAT: &str = "get_accumulate";
        self.admit(WHAT, target)?;
        check_op::<T>(op)?;
        let reads_only = op == Op::NoOp && values.is_empty();
        if !reads_only && values.len() != result.len() {
            let (values, results) = (values.len(), result.len());
            let why = format!("{values} values for {results} results: want as many");
            return Err(Error::invalid(WHAT, why));
        }
        match self.window.place(WHAT, target, start, result.len())? {
            Place::Here(at) => {
                let (count, into) = (result.len(), result.as_mut_ptr().cast::<u8>());
                // An operation without operands looks at none; the results stand in.
                let from = if reads_only { into.cast_const() } else { values.as_ptr().cast() };
                let (domain, at) = (self.window.domain(), at.cast());
                stores::note();
                // SAFETY: `place` checked the range; values and result are as long.
                unsafe { domain.update(target, T::KIND, op, at, count, from, Some(into)) }
            }
            Place::Away(at) => {
                self.window.get_accumulate_away(WHAT, target, at, op, values, result)
            }
        }
    }

    /// Atomically replaces one element of `target` by `element OP value`; returns what was there.
    /// With [`Op::NoOp`] it is an atomic read.
    ///
    /// Cost and errors as for [`Epoch::accumulate`]; by packets it waits for the answer.
    #[inline(always)]
    pub fn fetch_and_op(&self, target: Rank, index: usize, op: Op, value: T) -> Result<T> {
        match self.fetch_op_directly(target, index, op, value) {
            Some(old) => Ok(old),
            None => self.fetch_and_op_anywhere(target, index, op, value),
        }
    }

    /// What was there, if arithmetic finds the element and it is updated natively; `None`, and nothing has
    /// changed, if not.
    #[inline(always)]
    fn fetch_op_directly(&self, target: Rank, index: usize, op: Op, value: T) -> Option<T> {
        if !T::KIND.allows(op) {
            return None;
        }
        let at = self.direct(target, index, 1)?;
        // SAFETY: `direct` checked the range.
        unsafe { self.updates().fetch_op_natively(at, op, value) }
    }

    #[cold]
    #[inline(never)]
    fn fetch_and_op_anywhere(&self, target: Rank, index: usize, op: Op, value: T) -> Result<T> {
        check_op::<T>(op)?;
        self.admit("fetch_and_op", target)?;
        let at = match self.window.place("fetch_and_op", target, index, 1)? {
            Place::Here(at) => at,
            Place::Away(at) => {
                let mut old = [value];
                let window = self.window;
                window.get_accumulate_away("fetch_and_op", target, at, op, &[value], &mut old)?;
                return Ok(old[0]);
            }
        };
        stores::note();
        // SAFETY: as above.
        unsafe { self.window.domain().fetch_op(target, at, op, value) }
    }

    /// Atomically replaces one element of `target` by `new` if its bits equal `expected`'s;
    /// returns what was there, which tells whether it was replaced.
    ///
    /// Cost and errors as for [`Epoch::fetch_and_op`].
    #[inline(always)]
    pub fn compare_and_swap(&self, target: Rank, index: usize, expected: T, new: T) -> Result<T> {
        if let Some(at) = self.direct(target, index, 1) {
            let domain = self.updates();
            // SAFETY: `direct` checked the range.
            if let Some(old) = unsafe { domain.compare_swap_natively(at, expected, new) } {
                return Ok(old);
            }
        }
        self.compare_and_swap_anywhere(target, index, expected, new)
    }

    #[cold]
    #[inline(never)]
    fn compare_and_swap_anywhere(
        &self,
        target: Rank,
        index: usize,
        expected: T,
        new: T,
    ) -> Result<T> {
        self.admit("compare_and_swap", target)?;
        let at = match self.window.place("compare_and_swap", target, index, 1)? {
            Place::Here(at) => at,
            Place::Away(at) => return self.window.swap_away(target, at, expected, new),
        };
        stores::note();
        // SAFETY: as above.
        unsafe { self.window.domain().compare_swap(target, at, expected, new) }
    }
}
