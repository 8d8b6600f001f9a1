//! Messages in full: segments, layouts, variable output, requests.
//!
//! ```text
//!   epoch.message(&handler, target)
//!        .persistent(range) | .persistent_layout(start, shape)        nothing by default
//!        .segments(n)                                                 1 by default
//!        .input(slice)    [.input_layout(segment)]  [.input_there(layout)]
//!        .output(slice[, counts]) [.output_layout(segment)] [.output_there(layout)]
//!        .placement(p)
//!     -> .run()            blocks: output is there
//!      | .post()           no output: done at the next flush, or the end of the epoch
//!      | .request(n)       output comes by the request, which can be waited for or awaited
//! ```
//! Without layouts a slice is divided evenly into segments.

use super::away::{Mode, Parcel, Pending};
use super::entry::Entry;
use super::handler::{Handler, VectorHandler};
use super::handles::{Handles, Parts};
use super::issue::{Sent, WHAT, issue};
use super::message::backwards;
use super::plan::{Asked, Counts, Given, Placement};
use crate::base::request::Going;
use crate::base::{Error, Rank, Result};
use crate::layout::{Datum, Layout, Shape};
use crate::rma::{Epoch, Request, zeroed};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

/// A message that is being described. See the methods; [`Epoch::message`] begins one.
#[must_use = "a message is sent by run, post or request"]
pub struct Message<'m, T, H: Handles<T>> {
    epoch: &'m Epoch<'m, T>,
    handler: &'m H,
    entry: &'m Arc<Entry>,
    target: Rank,
    segments: usize,
    displacement: usize,
    /// The elements of the persistent part, if they follow each other.
    range: Option<Range<usize>>,
    /// The persistent part, if they do not.
    persistent: Option<Shape<'m>>,
    input: &'m [H::Input],
    input_segment: Option<Shape<'m>>,
    input_there: Option<&'m Layout>,
    output: Option<&'m mut [H::Output]>,
    output_segment: Option<Shape<'m>>,
    output_there: Option<&'m Layout>,
    counts: Option<&'m mut [usize]>,
    placement: Placement,
}

impl<T: Datum> Epoch<'_, T> {
    /// Begins to describe a message for `handler` on `target`'s part. Nothing happens before it
    /// is sent.
    #[inline]
    pub fn message<'m, H: Handles<T>>(&'m self, handler: &'m H, target: Rank) -> Message<'m, T, H> {
        let Parts(entry) = handler.parts();
        Message {
            epoch: self,
            handler,
            entry,
            target,
            segments: 1,
            displacement: 0,
            range: Some(0..0),
            persistent: None,
            input: &[],
            input_segment: None,
            input_there: None,
            output: None,
            output_segment: None,
            output_there: None,
            counts: None,
            placement: Placement::default(),
        }
    }
}

impl<'m, T: Datum, H: Handles<T>> Message<'m, T, H> {
    /// The handler works on these elements of the target's part.
    #[inline]
    pub fn persistent(self, range: Range<usize>) -> Self {
        Message { displacement: range.start, persistent: None, range: Some(range), ..self }
    }

    /// The handler works on the bytes of `shape` around displacement `start`. It gets a view from
    /// the first to the last element that the shape touches.
    pub fn persistent_layout(self, start: usize, shape: Shape<'m>) -> Self {
        Message { displacement: start, persistent: Some(shape), range: None, ..self }
    }

    /// How many segments the message has; with none it calls no handler.
    #[inline]
    pub fn segments(self, segments: usize) -> Self {
        Message { segments, ..self }
    }

    /// What the handler gets.
    #[inline]
    pub fn input(self, input: &'m [H::Input]) -> Self {
        Message { input, ..self }
    }

    /// One segment of the input here: the first one's shape is applied at the first byte of the
    /// slice, each further one where the one before ends (its count of extents).
    pub fn input_layout(self, segment: Shape<'m>) -> Self {
        Message { input_segment: Some(segment), ..self }
    }

    /// An entry of the input as the handler gets it: each segment becomes as many of them as it
    /// has bytes for. As it lies here unless said otherwise.
    pub fn input_there(self, entry: &'m Layout) -> Self {
        Message { input_there: Some(entry), ..self }
    }

    /// One segment of the output here, as [`Message::input_layout`].
    pub fn output_layout(self, segment: Shape<'m>) -> Self {
        Message { output_segment: Some(segment), ..self }
    }

    /// An entry of the output as the handler makes it, as [`Message::input_there`].
    pub fn output_there(self, entry: &'m Layout) -> Self {
        Message { output_there: Some(entry), ..self }
    }

    /// Where the handler runs if the target's part is not mapped here.
    pub fn placement(self, placement: Placement) -> Self {
        Message { placement, ..self }
    }

    /// Sends the message and waits until it has run: output and counts are there.
    ///
    /// Cost on a mapped part: that of [`Epoch::am`]; with several segments, layouts or variable
    /// output some hundred nanoseconds for the checks, and the copies of those sides whose layouts
    /// differ.
    ///
    /// # Errors
    /// As for [`Epoch::am`]; [`Error::InvalidArgument`] if slices, segments and layouts do not go
    /// together. Before anything has run, but for what the handler does wrong: it has run for the
    /// segments before then, and may have for some of the others.
    #[inline]
    pub fn run(mut self) -> Result<()> {
        let output: &'m mut [H::Output] = self.output.take().unwrap_or_default();
        if self.run_plain(output)? { Ok(()) } else { self.again().run_any(output) }
    }

    /// Runs the message here and now if that can be done; false, and nothing has happened, if it
    /// cannot.
    #[inline(always)]
    fn run_plain(&self, output: &mut [H::Output]) -> Result<bool> {
        match self.plain() {
            Some(range) => {
                self.handler.run_here(self.epoch, self.target, range, self.input, output)
            }
            None => Ok(false),
        }
    }

    /// The elements of the persistent part, if it is all as [`Epoch::am`] has it: one segment,
    /// element after element.
    #[inline(always)]
    fn plain(&self) -> Option<Range<usize>> {
        let segments = self.input_segment.is_some() || self.output_segment.is_some();
        let entries = self.input_there.is_some() || self.output_there.is_some();
        if segments || entries || self.segments != 1 {
            return None;
        }
        self.range.clone()
    }

    /// The same once more. Whoever hands a message to a function out of line hands this, so that
    /// what is built step by step is built in registers.
    #[inline(always)]
    fn again(self) -> Self {
        Message { segments: self.segments, ..self }
    }

    #[inline(never)]
    fn run_any(mut self, output: &'m mut [H::Output]) -> Result<()> {
        let counts: Option<&'m mut [usize]> = self.counts.take();
        if let Some(counts) = &counts
            && counts.len() != self.segments
        {
            let (segments, counts) = (self.segments, counts.len());
            let why = format!("{counts} counts for {segments} segments: want as many");
            return Err(Error::invalid(WHAT, why));
        }
        let counts = counts.map(|counts| Counts(counts.as_mut_ptr()));
        let (len, at) = (output.len(), output.as_mut_ptr());
        self.send(len, at, counts, Mode::Wait).map(drop)
    }

    /// Sends the message without waiting for it: it is done after the next flush of the target, or
    /// the end of the epoch, which report what went wrong with it. The input may be used again at
    /// once. Output is not to be had.
    ///
    /// On a mapped part the message has run when this returns, at the cost of [`Message::run`].
    #[inline]
    pub fn post(self) -> Result<()> {
        if self.output.is_none() && self.run_plain(&mut [])? {
            return Ok(());
        }
        self.again().post_any()
    }

    #[inline(never)]
    fn post_any(self) -> Result<()> {
        self.no_output("post")?;
        self.send(0, std::ptr::dangling_mut(), None, Mode::Post).map(drop)
    }

    /// Sends the message; the request brings the output, of `each` elements (entries of the
    /// output's layout, if there is one) per segment. It can be waited for, asked, or awaited; the
    /// input may be used again at once.
    ///
    /// On a mapped part the message has run when this returns. Cost besides that of
    /// [`Message::run`]: the output's vector.
    ///
    /// # Errors
    /// As for [`Message::run`]; [`Error::OutOfMemory`] if there is no room for the output.
    pub fn request(mut self, each: usize) -> Result<Request<H::Answer>> {
        self.no_output("request")?;
        // Nothing is allocated for nothing: by packets this is never the way.
        if !self.entry.is_vector() && self.epoch.window().is_direct() && self.plain().is_some() {
            let mut output = zeroed::<H::Output>(WHAT, each)?;
            if self.run_plain(&mut output)? {
                return Ok(Request::done(H::answer(output, Vec::new(), each)));
            }
        }
        let entry = self.output_segment.map_or(self.entry.elements().2, |shape| shape.layout);
        let segment = entry.times(each);
        let (lower, upper) = super::plan::times(segment, self.segments)?.true_bounds()?;
        let size = size_of::<H::Output>().max(1);
        // One that goes backwards is refused when it is sent.
        let len = if lower < 0 { 0 } else { upper.unsigned_abs().div_ceil(size) };
        let mut output = zeroed::<H::Output>(WHAT, len)?;
        let vector = self.entry.is_vector();
        let mut counts = zeroed::<usize>(WHAT, if vector { self.segments } else { 0 })?;
        self.output_segment = Some(segment);
        let at = output.as_mut_ptr();
        let to = vector.then_some(Counts(counts.as_mut_ptr()));
        let each = entry.extent().unsigned_abs().saturating_mul(each) / size;
        let parcel: Parcel = Box::new(Kept { output, counts, each });
        match self.send(len, at, to, Mode::Request(parcel))? {
            Sent::Done(parcel) => opened::<T, H>(parcel).map(Request::done),
            Sent::Going(pending) => {
                Ok(Request::going(Box::new(Awaited::<T, H> { pending, _types: PhantomData })))
            }
        }
    }

    /// `len` elements of output at `at`.
    fn send(
        self,
        len: usize,
        at: *mut H::Output,
        counts: Option<Counts>,
        mode: Mode,
    ) -> Result<Sent> {
        let (element, inputs, outputs) = self.entry.elements();
        let persistent = match (self.persistent, self.range) {
            (Some(shape), _) => shape,
            (None, None) => element.times(0),
            (None, Some(range)) => match range.end.checked_sub(range.start) {
                Some(count) => element.times(count),
                None => return Err(backwards(range)),
            },
        };
        let divided = |name: &str, count: usize, element: &'m Layout| {
            if count.checked_rem(self.segments).unwrap_or(count) != 0 {
                let segments = self.segments;
                let why = format!(
                    "{count} elements of {name} do not divide into {segments} equal segments"
                );
                return Err(Error::invalid(WHAT, why));
            }
            Ok(element.times(count.checked_div(self.segments).unwrap_or(0)))
        };
        let input_segment = match self.input_segment {
            Some(segment) => segment,
            None => divided("input", self.input.len(), inputs)?,
        };
        let output_segment = match self.output_segment {
            Some(segment) => segment,
            None => divided("output", len, outputs)?,
        };
        let asked = Asked {
            segments: self.segments,
            input: Given {
                at: self.input.as_ptr().cast_mut().cast(),
                room: Some(size_of_val(self.input)),
                segment: input_segment,
            },
            output: Given {
                at: at.cast(),
                room: Some(len.saturating_mul(size_of::<H::Output>())),
                segment: output_segment,
            },
            target_input: self.input_there.unwrap_or(input_segment.layout),
            target_output: self.output_there.unwrap_or(output_segment.layout),
            displacement: self.displacement,
            persistent,
            counts,
            placement: self.placement,
        };
        // SAFETY: input is a slice; output and counts are those of the caller, which are long
        // enough and valid until the call returns, or kept in the mode's parcel.
        unsafe { issue(self.epoch, self.entry, self.target, asked, mode) }
    }

    fn no_output(&self, form: &str) -> Result<()> {
        if self.output.is_none() {
            return Ok(());
        }
        let why = format!("by {form} there is no output buffer; use run, or take it off");
        Err(Error::invalid(WHAT, why))
    }
}

impl<'m, T: Datum, I: Datum, O: Datum> Message<'m, T, Handler<T, I, O>> {
    /// Where the output goes.
    pub fn output(self, output: &'m mut [O]) -> Self {
        Message { output: Some(output), ..self }
    }
}

impl<'m, T: Datum, I: Datum, O: Datum> Message<'m, T, VectorHandler<T, I, O>> {
    /// Where the output goes, each segment to its fixed place, and how many entries of each there
    /// are (of the output's layout here): as many counts as segments.
    pub fn output(self, output: &'m mut [O], counts: &'m mut [usize]) -> Self {
        Message { output: Some(output), counts: Some(counts), ..self }
    }
}

/// Output and counts of a request.
struct Kept<O> {
    output: Vec<O>,
    counts: Vec<usize>,
    /// Elements from one segment to the next.
    each: usize,
}

fn opened<T, H: Handles<T>>(parcel: Option<Parcel>) -> Result<H::Answer> {
    match parcel.map(|parcel| parcel.downcast::<Kept<H::Output>>()) {
        Some(Ok(kept)) => Ok(H::answer(kept.output, kept.counts, kept.each)),
        _ => Err(Error::invalid(WHAT, "its output was lost")),
    }
}

/// A request's message that is on its way.
struct Awaited<T, H> {
    pending: Box<dyn Pending>,
    _types: PhantomData<fn() -> (T, H)>,
}

impl<T: Datum, H: Handles<T>> Going<H::Answer> for Awaited<T, H> {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<H::Answer>> {
        Some(self.pending.poll(waker)?.and_then(|parcel| opened::<T, H>(Some(parcel))))
    }

    fn wait(self: Box<Self>) -> Result<H::Answer> {
        self.pending.wait().and_then(|parcel| opened::<T, H>(Some(parcel)))
    }
}

impl<T, H: Handles<T>> std::fmt::Debug for Message<'_, T, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({:?}, {} segments to {})", self.entry, self.segments, self.target)
    }
}
