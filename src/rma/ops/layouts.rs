//! Operations on non-contiguous data, at the target, at the origin, or at both.
//!
//! A shape at the target is applied at displacement `start`, one at the origin at the first byte
//! of the slice it comes with. Both are moved through in packed order, so they need not look
//! alike: they only have to have the same number of bytes.

use super::away::Operands;
use super::general::within;
use super::transfer::Action;
use crate::base::{Rank, Result};
use crate::layout::op::check_op;
use crate::layout::{Datum, Op, Shape};
use crate::rma::accumulate::Element;
use crate::rma::epoch::Epoch;
use crate::rma::remote::{Landing, Memory};

impl<T: Datum> Epoch<'_, T> {
    /// Writes the bytes of `here` in `values` to those of `there` around displacement `start` of
    /// `target`. Where `there` has the same place twice, the later one in packed order stays.
    ///
    /// Blocks as [`Epoch::put`] does. Cost: the stores; a few instructions per contiguous piece.
    ///
    /// # Errors
    /// Before anything is written: [`crate::Error::OutOfBounds`] if a byte of `there` lies outside
    /// of the target's part; [`crate::Error::InvalidArgument`] if one of `here` lies outside of
    /// `values`, or if their sizes differ.
    pub fn put_layout(
        &self,
        target: Rank,
        start: usize,
        there: Shape<'_>,
        values: &[T],
        here: Shape<'_>,
    ) -> Result<()> {
        const WHAT: &str = "put_layout";
        self.admit(WHAT, target)?;
        let origin = within(WHAT, Memory::of(values), here)?;
        let operands = Operands { origin, ..Operands::send::<T>(Action::Put, None, &[]) };
        self.window.shaped(WHAT, (target, start, there), operands)
    }

    /// Reads the bytes of `there` around displacement `start` of `target` into those of `here` in
    /// `into`.
    ///
    /// Blocks, costs and fails as [`Epoch::put_layout`].
    pub fn get_layout(
        &self,
        target: Rank,
        start: usize,
        there: Shape<'_>,
        into: &mut [T],
        here: Shape<'_>,
    ) -> Result<()> {
        const WHAT: &str = "get_layout";
        self.admit(WHAT, target)?;
        let landing = Landing::Here(within(WHAT, Memory::of_mut(into), here)?);
        let operands = Operands { landing, ..Operands::send::<T>(Action::Get, None, &[]) };
        self.window.shaped(WHAT, (target, start, there), operands)
    }
}

impl<T: Element> Epoch<'_, T> {
    /// `target = target OP origin` for each element of `there` around displacement `start` of
    /// `target` and the element of `here` in `values` at the same place in packed order, each
    /// atomically.
    ///
    /// Blocks as [`Epoch::accumulate`] does. Cost: that of an accumulate per contiguous piece.
    ///
    /// # Errors
    /// As for [`Epoch::put_layout`]; [`crate::Error::InvalidArgument`] also if `op` does not apply
    /// to the window's elements, if the layouts have elements of another kind, or if `there` puts
    /// them at addresses to which they are not aligned.
    pub fn accumulate_layout(
        &self,
        target: Rank,
        start: usize,
        there: Shape<'_>,
        op: Op,
        values: &[T],
        here: Shape<'_>,
    ) -> Result<()> {
        const WHAT: &str = "accumulate_layout";
        self.admit(WHAT, target)?;
        check_op::<T>(op)?;
        let origin = within(WHAT, Memory::of(values), here)?;
        let send = Operands::send::<T>(Action::Accumulate(op), Some(T::KIND), &[]);
        self.window.shaped(WHAT, (target, start, there), Operands { origin, ..send })
    }

    /// As [`Epoch::accumulate_layout`]; what was there goes to the elements of `into_shape` in
    /// `into`. With [`Op::NoOp`] it is an atomic read, and `values` may be empty.
    ///
    /// Blocks until the result is there. Cost and errors as for [`Epoch::accumulate_layout`].
    #[expect(clippy::too_many_arguments, reason = "three memories, each with its shape")]
    pub fn get_accumulate_layout(
        &self,
        target: Rank,
        start: usize,
        there: Shape<'_>,
        op: Op,
        values: &[T],
        here: Shape<'_>,
        into: &mut [T],
        into_shape: Shape<'_>,
    ) -> Result<()> {
        const WHAT: &str = "get_accumulate_layout";
        self.admit(WHAT, target)?;
        check_op::<T>(op)?;
        let origin = if op == Op::NoOp && values.is_empty() {
            Memory::NONE
        } else {
            within(WHAT, Memory::of(values), here)?
        };
        let landing = Landing::Here(within(WHAT, Memory::of_mut(into), into_shape)?);
        let send = Operands::send::<T>(Action::GetAccumulate(op), Some(T::KIND), &[]);
        self.window.shaped(WHAT, (target, start, there), Operands { origin, landing, ..send })
    }
}
