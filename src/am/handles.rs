//! What messages can be issued with, and what their requests bring.
//!
//! ```text
//!   Handler<T, I, O>         one output for each segment       Vec<O>
//!   VectorHandler<T, I, O>   as much of it as there is         VectorOutput<O>: with the counts
//! ```
//! A [`super::builder::Message`] is the same for both but for where its output goes.

use super::call::Form;
use super::entry::Entry;
use super::handler::{Handler, VectorHandler};
use super::message::told;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Epoch;
use std::ops::Range;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
}

/// Handlers that a message can be issued with: [`Handler`] and [`VectorHandler`].
pub trait Handles<T>: sealed::Sealed + 'static {
    /// Elements of the input.
    type Input: Datum;
    /// Elements of the output.
    type Output: Datum;
    /// What a request brings.
    type Answer: Send + 'static;
    #[doc(hidden)]
    fn parts(&self) -> Parts<'_>;
    /// Runs a message of one segment without layouts, if that can be done here and now; false, and
    /// nothing has happened, if it cannot.
    #[doc(hidden)]
    fn run_here(
        &self,
        _epoch: &Epoch<'_, T>,
        _target: Rank,
        _persistent: Range<usize>,
        _input: &[Self::Input],
        _output: &mut [Self::Output],
    ) -> Result<bool>
    where
        T: Datum,
    {
        Ok(false)
    }
    #[doc(hidden)]
    fn answer(output: Vec<Self::Output>, counts: Vec<usize>, each: usize) -> Self::Answer;
}

/// What a handler is made of, for this crate.
#[doc(hidden)]
#[derive(Debug)]
pub struct Parts<'h>(pub(super) &'h Arc<Entry>);

impl<T, I, O> sealed::Sealed for Handler<T, I, O> {}
impl<T, I, O> sealed::Sealed for VectorHandler<T, I, O> {}

impl<T: Datum, I: Datum, O: Datum> Handles<T> for Handler<T, I, O> {
    type Input = I;
    type Output = O;
    type Answer = Vec<O>;
    fn parts(&self) -> Parts<'_> {
        Parts(&self.entry)
    }
    #[inline(always)]
    fn run_here(
        &self,
        epoch: &Epoch<'_, T>,
        target: Rank,
        persistent: Range<usize>,
        input: &[I],
        output: &mut [O],
    ) -> Result<bool> {
        // Without output, handlers are to see from the shape that there is none.
        let Range { start, end } = persistent;
        let len = end.saturating_sub(start);
        let form = Form::plain(&self.entry, len, input, output);
        let form = if output.is_empty() { Some(&form) } else { None };
        match epoch.am_plain(self, target, start, end, input, output, form) {
            Some(done) => told(self, target, done).map(|()| true),
            None => epoch.am_here(self, target, start..end, input, output, form),
        }
    }
    fn answer(output: Vec<O>, _: Vec<usize>, _: usize) -> Vec<O> {
        output
    }
}

impl<T: Datum, I: Datum, O: Datum> Handles<T> for VectorHandler<T, I, O> {
    type Input = I;
    type Output = O;
    type Answer = VectorOutput<O>;
    fn parts(&self) -> Parts<'_> {
        Parts(&self.entry)
    }
    fn answer(output: Vec<O>, counts: Vec<usize>, each: usize) -> VectorOutput<O> {
        VectorOutput { output, counts, each }
    }
}

/// The output of a message with variable output, from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorOutput<O> {
    /// All segments, each at its fixed place.
    pub output: Vec<O>,
    /// How many entries of each segment there are.
    pub counts: Vec<usize>,
    /// Elements from one segment to the next.
    each: usize,
}

impl<O> VectorOutput<O> {
    /// What there is of a segment, for messages without a layout of the output; empty beyond the
    /// last one.
    pub fn segment(&self, index: usize) -> &[O] {
        let Some(count) = self.counts.get(index) else { return &[] };
        let first = index.saturating_mul(self.each).min(self.output.len());
        &self.output[first..(first + (*count).min(self.each)).min(self.output.len())]
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.counts.len()
    }
}
