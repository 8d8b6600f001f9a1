//! A registered handler without its types: what is in a window's table, and can be run by whoever
//! has addresses and shapes: the origin on mapped memory, the target on what a packet brought.

use super::call::RawCall;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::{Datum, Layout, Shape};
use crate::rma::core::{Core, Handlers};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a handler serves that is not registered any more: no window.
pub(super) const NOWHERE: u64 = u64::MAX;

/// Longest name of a type that is told to others.
pub(super) const NAME: usize = 160;

pub(super) type UntypedRun = dyn Fn(&mut RawCall<'_>) -> Result<()> + Send + Sync;

/// A type of elements as ranks compare it and messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub name: &'static str,
    pub fingerprint: u64,
    pub size: usize,
    pub align: usize,
}

/// A handler without its types: what is in the window's table.
pub(crate) struct Entry {
    pub(super) index: u32,
    pub(super) window: u64,
    /// The same as long as it is registered, then [`NOWHERE`]: one load tells both.
    pub(super) serves: AtomicU64,
    pub(super) vector: bool,
    pub(super) types: Option<[Type; 3]>,
    /// One element of persistent part, input and output; bytes for untyped handlers.
    pub(super) elements: [Layout; 3],
    /// The typed closure in its `Arc`, for those who look it up by index.
    pub(super) typed: Option<Box<dyn Any + Send + Sync>>,
    pub(super) run: Box<UntypedRun>,
}

/// Why a handler did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It panicked, with this text.
    Panicked(String),
    /// It counted more entries of output than a segment has room for.
    TooMany {
        /// The segment, counted from the message's first.
        segment: usize,
        /// Entries that the handler counted.
        count: usize,
        /// Entries that there can be.
        most: usize,
    },
    /// It was not called: what it should have been called with is not usable.
    Refused(String),
}

impl Entry {
    /// What is registered under an index.
    pub fn find(core: &Core, index: u32) -> Option<Arc<Entry>> {
        core.attached(index)?.downcast().ok()
    }

    /// As [`Entry::find`], in a table that is held beyond its window.
    pub fn find_in(handlers: &Handlers, index: u32) -> Option<Arc<Entry>> {
        handlers.get(index)?.downcast().ok()
    }
}

impl Entry {
    /// The index it is registered under.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether its output is variable.
    pub fn is_vector(&self) -> bool {
        self.vector
    }

    /// One element of the input, of the output: what entries are where no layouts are given.
    pub fn elements(&self) -> (&Layout, &Layout, &Layout) {
        let [persistent, input, output] = &self.elements;
        (persistent, input, output)
    }

    /// Size and alignment of an element of the persistent part: 1 and 1 for untyped handlers.
    pub fn persistent_element(&self) -> (usize, usize) {
        self.types.map_or((1, 1), |[persistent, ..]| (persistent.size, persistent.align))
    }

    /// Whether input may lie at this address.
    pub fn input_aligned(&self, at: *const u8) -> bool {
        self.types.is_none_or(|[_, input, _]| at.addr().is_multiple_of(input.align))
    }

    /// Whether output may lie at this address.
    pub fn output_aligned(&self, at: *const u8) -> bool {
        self.types.is_none_or(|[.., output]| at.addr().is_multiple_of(output.align))
    }

    /// What staged input and output are to be aligned to: a cache line, or more if an element
    /// needs that.
    pub fn buffer_align(&self) -> usize {
        self.types.map_or(64, |[_, input, output]| input.align.max(output.align).max(64))
    }

    /// An error unless it can be called with buffers of these shapes (all segments of input and
    /// output, as they lie at the target).
    ///
    /// Typed handlers get buffers as slices: those begin where the shape is applied, and hold whole
    /// elements.
    pub fn check(&self, input: Shape<'_>, output: Shape<'_>, persistent: Shape<'_>) -> Result<()> {
        persistent.true_bounds()?;
        let Some([_, takes, makes]) = self.types else { return Ok(()) };
        for (name, shape, element) in [("input", input, takes), ("output", output, makes)] {
            let (lower, _) = shape.true_bounds()?;
            if lower < 0 || shape.count > 0 && shape.layout.extent() < 0 {
                return Err(self.refuse(format!(
                    "the layout of the {name} at the target goes backwards, which a slice cannot; \
                     describe it from its lowest byte on, or register an untyped handler"
                )));
            }
            if !shape.size()?.is_multiple_of(element.size.max(1)) {
                return Err(self.refuse(format!(
                    "{} bytes of {name} are no whole number of {} ({} bytes each)",
                    shape.size()?,
                    element.name,
                    element.size
                )));
            }
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, why: String) -> Error {
        Error::invalid("an active message", format!("handler {}: {why}", self.index))
    }

    /// Whether it has not been deregistered.
    pub fn is_registered(&self) -> bool {
        self.serves.load(Ordering::Acquire) != NOWHERE
    }

    /// Whether it is registered on the window, at present: one load.
    #[inline(always)]
    pub fn serves(&self, window: u64) -> bool {
        self.serves.load(Ordering::Relaxed) == window
    }

    /// An error unless it is registered on the window, at present.
    #[inline]
    pub fn usable_on(&self, window: u64) -> Result<()> {
        if self.serves(window) { Ok(()) } else { Err(self.unusable(window)) }
    }

    #[cold]
    fn unusable(&self, window: u64) -> Error {
        let index = self.index;
        let why = if self.window == window {
            format!("handler {index} has been deregistered; register it again")
        } else {
            format!("handler {index} was registered on another window; register it on this one")
        };
        Error::Misuse { what: "an active message", why }
    }

    /// Calls the handler once, on this thread, which counts as inside a handler meanwhile. Who
    /// calls sees to order and exclusion.
    ///
    /// # Safety
    /// As [`RawCall`] says of its addresses; [`Entry::check`] was passed; addresses are aligned for
    /// the handler's elements; nobody else accesses input (to write) and output meanwhile, and all
    /// bytes from either address to the last byte of the shapes are initialised.
    pub unsafe fn call(&self, call: &mut RawCall<'_>) -> Result<(), Failure> {
        let (segments, offset) = (call.segments, call.segment_offset);
        let most = call.output_segment.count;
        // The handler may do with its call what it likes; these stay.
        let counts = call.counts.take().map(|counts| {
            counts.fill(0);
            (counts.as_mut_ptr(), counts.len().min(segments))
        });
        // SAFETY: the slice that the call had, which this function does not touch meanwhile.
        let slice = |(first, len)| unsafe { std::slice::from_raw_parts_mut(first, len) };
        call.counts = counts.map(slice);
        let inside = reentry::enter();
        // A handler that unwinds leaves its own data as they are; nothing of the library's is open.
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(call)));
        drop(inside);
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::Refused(error.to_string())),
            Err(payload) => return Err(Failure::Panicked(told_by(payload))),
        }
        let Some((first, len)) = counts else { return Ok(()) };
        // SAFETY: as above, and the handler is over.
        let counts = unsafe { std::slice::from_raw_parts(first, len) };
        match counts.iter().position(|&count| count > most) {
            None => Ok(()),
            Some(at) => Err(Failure::TooMany { segment: offset + at, count: counts[at], most }),
        }
    }
}

impl Failure {
    /// What the origin's program is told.
    #[cold]
    pub fn error(self, index: u32, target: Rank) -> Error {
        const WHAT: &str = "an active message";
        match self {
            Failure::Panicked(message) => Error::HandlerPanicked { index, target, message },
            Failure::TooMany { segment, count, most } => Error::Misuse {
                what: WHAT,
                why: format!(
                    "handler {index} counted {count} entries of output in segment {segment}, which \
                     has room for {most}; count what was written"
                ),
            },
            Failure::Refused(why) => Error::invalid(WHAT, format!("handler {index}: {why}")),
        }
    }
}

impl Type {
    pub fn of<T: Datum>() -> Type {
        Type {
            name: std::any::type_name::<T>(),
            fingerprint: T::fingerprint(),
            size: size_of::<T>(),
            align: align_of::<T>(),
        }
    }

    /// For the other members.
    pub fn text(&self) -> String {
        let end = (0..=self.name.len().min(NAME)).rev().find(|&at| self.name.is_char_boundary(at));
        format!("{} ({} bytes)", &self.name[..end.unwrap_or(0)], self.size)
    }
}

/// The text of a panic. What the program panicked with goes here, and may itself panic as it goes.
#[cold]
pub(super) fn told_by(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // No third chance.
        std::mem::forget(again);
    }
    text.unwrap_or_else(|| "no message".into())
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "handler {} of window {:#x}", self.index, self.window)
    }
}
