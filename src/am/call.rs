//! What a handler is called with: typed, typed with counts, and untyped.
//!
//! ```text
//!   origin's buffers                       what a call gets (figure 6.6 of paper 001)
//!   input   |seg 0|seg 1|seg 2|seg 3|  -->  input       segments segment_offset ..+ segments
//!   output  |seg 0|seg 1|seg 2|seg 3|  <--  output      the same segments
//!                                           counts      of vector handlers: one for each of them
//!   target's part  ....|#########|...  <->  persistent  all of it in every call
//! ```
//! A message of several segments may come in several calls, each with some consecutive ones. Every
//! call is described by a [`RawCall`]; typed handlers get it as slices and a view, made by the
//! functions here.

use super::entry::Entry;
use crate::base::{Rank, Result};
use crate::layout::{Datum, Shape};
use crate::rma::View;
use crate::rma::accumulate::Updates;
use std::ops::Range;

/// What a handler is called with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'c, T, I, O> {
    /// The origin's input: the segments of this call, one after the other.
    pub input: &'c [I],
    /// Where the output goes, as many segments. What it holds before is not specified.
    pub output: &'c mut [O],
    /// The part of the target's window that the message names.
    pub persistent: View<'c, T>,
    /// Displacement of the persistent part within the target's part: its first element, unless a
    /// layout begins elsewhere.
    pub start: usize,
    /// The target, numbered as in the window's team.
    pub target: Rank,
    /// How many segments this call has: 1 or more.
    pub segments: usize,
    /// How many segments of the message come before those of this call.
    pub segment_offset: usize,
    /// How the buffers lie, if not element after element.
    pub(super) form: Option<&'c Form<'c>>,
}

/// What the handler of a message with variable output is called with.
#[derive(Debug)]
#[non_exhaustive]
pub struct VectorCall<'c, T, I, O> {
    /// As [`Call::input`].
    pub input: &'c [I],
    /// As [`Call::output`]: for each segment the most that it may have.
    pub output: &'c mut [O],
    /// How many entries of each segment's output there are: elements, or what the message's layout
    /// of the output at the target describes. 0 at first.
    pub counts: &'c mut [usize],
    /// As [`Call::persistent`].
    pub persistent: View<'c, T>,
    /// As [`Call::start`].
    pub start: usize,
    /// As [`Call::target`].
    pub target: Rank,
    /// As [`Call::segments`].
    pub segments: usize,
    /// As [`Call::segment_offset`].
    pub segment_offset: usize,
    pub(super) form: Option<&'c Form<'c>>,
}

/// How the buffers of a call lie at the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'c> {
    input: Shape<'c>,
    output: Shape<'c>,
    persistent: Shape<'c>,
    lead: isize,
}

impl<'c> Form<'c> {
    /// Of one segment whose buffers all lie element after element.
    pub(super) fn plain<I, O>(
        entry: &'c Entry,
        elements: usize,
        input: &[I],
        output: &[O],
    ) -> Form<'c> {
        let (element, takes, makes) = entry.elements();
        let (input, output) = (takes.times(input.len()), makes.times(output.len()));
        Form { input, output, persistent: element.times(elements), lead: 0 }
    }
}

macro_rules! segments_and_layouts {
    ($call:ident) => {
        impl<'c, T: Datum, I: Datum, O: Datum> $call<'c, T, I, O> {
            /// Input of segment `index` of this call: all that lies between its first and its last
            /// element. Empty beyond the last segment.
            pub fn input_of(&self, index: usize) -> &'c [I] {
                let shape = self.form.as_ref().map(|form| form.input);
                &self.input[piece::<I>(self.input.len(), self.segments, shape, index)]
            }

            /// Where the output of segment `index` of this call goes, as [`Self::input_of`].
            pub fn output_of(&mut self, index: usize) -> &mut [O] {
                let shape = self.form.as_ref().map(|form| form.output);
                let there = piece::<O>(self.output.len(), self.segments, shape, index);
                &mut self.output[there]
            }

            /// How one segment's input lies, from its first byte on; nothing if the message was
            /// issued without layouts: element after element.
            pub fn input_shape(&self) -> Option<Shape<'c>> {
                self.form.as_ref().map(|form| form.input)
            }

            /// How one segment's output lies, as [`Self::input_shape`].
            pub fn output_shape(&self) -> Option<Shape<'c>> {
                self.form.as_ref().map(|form| form.output)
            }

            /// How the elements of the message lie in `persistent`: a shape, and the element of
            /// `persistent` at which it is applied, which may lie before the first one.
            pub fn persistent_shape(&self) -> Option<(isize, Shape<'c>)> {
                self.form.as_ref().map(|form| (-form.lead, form.persistent))
            }
        }
    };
}
segments_and_layouts!(Call);
segments_and_layouts!(VectorCall);

/// Elements of segment `index` in a buffer of `len` elements.
fn piece<E>(len: usize, segments: usize, shape: Option<Shape<'_>>, index: usize) -> Range<usize> {
    if index >= segments {
        return len..len;
    }
    let Some(shape) = shape else {
        let each = len / segments.max(1);
        return index * each..(index + 1) * each;
    };
    let size = size_of::<E>().max(1);
    let (_, upper) = shape.true_bounds().unwrap_or((0, 0));
    let stride = shape.layout.extent().unsigned_abs().saturating_mul(shape.count);
    let first = index.saturating_mul(stride);
    let end = first.saturating_add(upper.unsigned_abs());
    (first / size).min(len)..end.div_ceil(size).min(len)
}

impl<'c, T, I, O> VectorCall<'c, T, I, O> {
    pub(super) fn new(call: Call<'c, T, I, O>, counts: &'c mut [usize]) -> Self {
        let Call { input, output, persistent, start, target, segments, segment_offset, form } =
            call;
        VectorCall {
            input,
            output,
            counts,
            persistent,
            start,
            target,
            segments,
            segment_offset,
            form,
        }
    }
}

/// What an untyped handler is called with (figures 6.2 and 7.3 of paper 001).
///
/// The addresses are valid until the handler returns, for the bytes that the shapes describe from
/// there: `segments` copies of the segment's shape for input and output. They need not be aligned
/// to anything but what the origin's own buffers are aligned to, and to 64 bytes where they are not
/// the origin's own buffers.
#[derive(Debug)]
#[non_exhaustive]
pub struct RawCall<'c> {
    /// Where the input is; read only.
    pub input: *const u8,
    /// One segment of the input: entries, and how many of them.
    pub input_segment: Shape<'c>,
    /// Where the persistent buffer is. Others may access it at the same time, by operations other
    /// than active messages; see [`RawCall::view`].
    pub persistent: *mut u8,
    /// All of the persistent buffer.
    pub persistent_shape: Shape<'c>,
    /// Where the output goes.
    pub output: *mut u8,
    /// One segment of the output: entries, and how many of them at most.
    pub output_segment: Shape<'c>,
    /// How many segments this call has: 1 or more.
    pub segments: usize,
    /// How many segments of the message come before those of this call.
    pub segment_offset: usize,
    /// Of a message with variable output: for each segment the number of entries that there are,
    /// to be set by the handler; 0 at first.
    pub counts: Option<&'c mut [usize]>,
    /// The target, numbered as in the window's team.
    pub target: Rank,
    /// The displacement that the message names within the target's part.
    pub displacement: usize,
    /// What updates of the window's elements go through.
    pub(crate) domain: Updates<'c>,
}

impl<'c> RawCall<'c> {
    /// The persistent buffer as elements, from the first to the last that the shape touches.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if no element can lie where the buffer does.
    ///
    /// # Safety
    /// The part has elements of type `T` there, as the window's creator says.
    pub unsafe fn view<T: Datum>(&self) -> Result<View<'c, T>> {
        let (lower, upper) = super::plan::whole_elements::<T>(self.persistent_shape)?;
        let first = self.persistent.wrapping_offset(lower);
        if !first.cast::<T>().is_aligned() {
            let why = format!("its elements need multiples of {} bytes", align_of::<T>());
            return Err(crate::Error::invalid("RawCall::view", why));
        }
        let len = (upper - lower).unsigned_abs() / size_of::<T>().max(1);
        // SAFETY: the caller's, and the bytes of the shape lie in the target's part.
        Ok(unsafe { View::new(first.cast(), len, self.target, self.domain) })
    }

    /// How the buffers lie, for typed handlers of a window of `T`.
    pub(super) fn form<T>(&self) -> Result<Form<'c>> {
        let (lower, _) = super::plan::whole_elements::<T>(self.persistent_shape)?;
        Ok(Form {
            input: self.input_segment,
            output: self.output_segment,
            persistent: self.persistent_shape,
            lead: lower / size_of::<T>().max(1).cast_signed(),
        })
    }

    /// Elements of a buffer of this call's segments.
    fn elements<E>(&self, segment: Shape<'_>) -> Result<usize> {
        let (_, upper) = super::plan::times(segment, self.segments)?.true_bounds()?;
        Ok(upper.unsigned_abs().div_ceil(size_of::<E>().max(1)))
    }

    /// The call as a typed handler gets it; `form` is its own.
    ///
    /// # Safety
    /// The handler's entry accepts the shapes (see `Entry::check`); the addresses are aligned for
    /// elements and valid for as many as the shapes of all segments touch, counted from the
    /// addresses on; the input is not written and the output not accessed otherwise meanwhile.
    pub(super) unsafe fn typed<'f, T: Datum, I: Datum, O: Datum>(
        &self,
        form: &'f Form<'c>,
    ) -> Result<Call<'f, T, I, O>>
    where
        'c: 'f,
    {
        let inputs = self.elements::<I>(self.input_segment)?;
        let outputs = self.elements::<O>(self.output_segment)?;
        // Nothing may have any address.
        let (from, to) = (self.input.cast::<I>(), self.output.cast::<O>());
        let from = if inputs > 0 { from } else { std::ptr::dangling() };
        let to = if outputs > 0 { to } else { std::ptr::dangling_mut() };
        // SAFETY: the caller's.
        let (input, output, persistent) = unsafe {
            (
                std::slice::from_raw_parts(from, inputs),
                std::slice::from_raw_parts_mut(to, outputs),
                self.view::<T>()?,
            )
        };
        Ok(Call {
            input,
            output,
            persistent,
            start: self.displacement,
            target: self.target,
            segments: self.segments,
            segment_offset: self.segment_offset,
            form: Some(form),
        })
    }
}
