//! Handlers and their registration.
//!
//! ```text
//!   register, register_vector     Handler<T, I, O> --- typed closure, called directly -----+
//!                  |                     |                                              |
//!                  v                     v                                              v
//!   window: table of indices ----> Entry: index, types, layouts of elements     the program's closure
//!                  ^                     |                                              ^
//!   register_raw --+                     +-- untyped: RawCall -> slices, view ----------+
//! ```
//! An entry can be run by whoever has addresses and shapes: the origin on mapped memory, the
//! target on what a packet brought.

use super::away;
use super::call::{Call, RawCall, VectorCall};
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::{Datum, Layout, Shape};
use crate::rma::Window;
use crate::rma::core::{Core, Handlers};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const REGISTER: &str = "Window::register";
const DEREGISTER: &str = "Window::deregister";
/// Longest name of a type that is told to others.
const NAME: usize = 160;

pub(super) type Run<T, I, O> = dyn Fn(Call<'_, T, I, O>) + Send + Sync;
pub(super) type VectorRun<T, I, O> = dyn Fn(VectorCall<'_, T, I, O>) + Send + Sync;
type UntypedRun = dyn Fn(&mut RawCall<'_>) -> Result<()> + Send + Sync;

/// A registered handler. Cloning is cheap.
pub struct Handler<T, I, O> {
    pub(super) entry: Arc<Entry>,
    pub(super) run: Arc<Run<T, I, O>>,
}

/// A registered handler whose messages have variable output. Cloning is cheap.
pub struct VectorHandler<T, I, O> {
    pub(super) entry: Arc<Entry>,
    pub(super) run: Arc<VectorRun<T, I, O>>,
}

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
    index: u32,
    window: u64,
    registered: AtomicBool,
    vector: bool,
    types: Option<[Type; 3]>,
    /// One element of persistent part, input and output; bytes for untyped handlers.
    elements: [Layout; 3],
    /// The typed closure in its `Arc`, for those who look it up by index.
    typed: Option<Box<dyn Any + Send + Sync>>,
    run: Box<UntypedRun>,
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

    /// An error unless it is registered on the window, at present.
    #[inline]
    pub fn usable_on(&self, window: u64) -> Result<()> {
        if self.window == window && self.registered.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(self.unusable(window))
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
            Err(payload) => return Err(Failure::Panicked(text_of(&*payload))),
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

/// The text of a panic.
pub(super) fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".into())
}

impl Type {
    fn of<T: Datum>() -> Type {
        Type {
            name: std::any::type_name::<T>(),
            fingerprint: T::fingerprint(),
            size: size_of::<T>(),
            align: align_of::<T>(),
        }
    }

    /// For the other members.
    fn text(&self) -> String {
        let end = (0..=self.name.len().min(NAME)).rev().find(|&at| self.name.is_char_boundary(at));
        format!("{} ({} bytes)", &self.name[..end.unwrap_or(0)], self.size)
    }
}

/// What the members tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Step {
    Register = 1,
    RegisterVector = 2,
    RegisterUntyped = 3,
    RegisterUntypedVector = 4,
    Deregister = 5,
}

impl Step {
    fn text(code: u64) -> &'static str {
        match code {
            1 => "register",
            2 => "register_vector",
            3 => "register_untyped",
            4 => "register_untyped with variable output",
            5 => "deregister",
            _ => "another call",
        }
    }
}

/// A handler on its way into the table.
pub(super) struct New {
    pub vector: bool,
    pub types: Option<[Type; 3]>,
    pub elements: [Layout; 3],
    pub typed: Option<Box<dyn Any + Send + Sync>>,
    pub run: Box<UntypedRun>,
}

impl New {
    fn typed<T: Datum, I: Datum, O: Datum>(
        vector: bool,
        typed: Box<dyn Any + Send + Sync>,
        run: Box<UntypedRun>,
    ) -> New {
        New {
            vector,
            types: Some([Type::of::<T>(), Type::of::<I>(), Type::of::<O>()]),
            elements: [Layout::of::<T>(), Layout::of::<I>(), Layout::of::<O>()],
            typed: Some(typed),
            run,
        }
    }
}

impl<T: Datum> Window<T> {
    /// Registers `run` under `index` on this window. Collective; every member must provide a
    /// functionally equivalent handler with the same types under the same index, because any of
    /// them may be the one that runs.
    ///
    /// The handler may not communicate: collectives, epochs, operations that wait and active
    /// messages from inside it fail with [`Error::Misuse`]; what it needs of the window it reaches
    /// through its call. If it panics, the origin of that message gets
    /// [`Error::HandlerPanicked`], nobody else notices. Its closure lives until it is deregistered
    /// or the window goes: one that holds the window itself keeps it.
    ///
    /// Cost: three small collectives.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if members register different indices or types, which it names;
    /// [`Error::Misuse`] if the index is taken.
    pub fn register<I: Datum, O: Datum>(
        &self,
        index: u32,
        run: impl Fn(Call<'_, T, I, O>) + Send + Sync + 'static,
    ) -> Result<Handler<T, I, O>> {
        let run: Arc<Run<T, I, O>> = Arc::new(run);
        let inner = run.clone();
        let untyped = move |raw: &mut RawCall<'_>| {
            // SAFETY: the caller of `Entry::call` answers for the buffers of this entry's types.
            inner(unsafe { raw.typed::<T, I, O>() }?);
            Ok(())
        };
        let typed = Box::new(run.clone());
        let entry = self.enter(index, New::typed::<T, I, O>(false, typed, Box::new(untyped)))?;
        Ok(Handler { entry, run })
    }

    /// As [`Window::register`], for messages with variable output: the handler says how many
    /// entries of output each segment has.
    pub fn register_vector<I: Datum, O: Datum>(
        &self,
        index: u32,
        run: impl Fn(VectorCall<'_, T, I, O>) + Send + Sync + 'static,
    ) -> Result<VectorHandler<T, I, O>> {
        let run: Arc<VectorRun<T, I, O>> = Arc::new(run);
        let inner = run.clone();
        let untyped = move |raw: &mut RawCall<'_>| {
            // SAFETY: as for `register`.
            let call = unsafe { raw.typed::<T, I, O>() }?;
            let counts = raw.counts.as_deref_mut().unwrap_or_default();
            inner(VectorCall::new(call, counts));
            Ok(())
        };
        let typed = Box::new(run.clone());
        let entry = self.enter(index, New::typed::<T, I, O>(true, typed, Box::new(untyped)))?;
        Ok(VectorHandler { entry, run })
    }

    /// The handler registered under `index`, if there is one of these types.
    pub fn handler<I: Datum, O: Datum>(&self, index: u32) -> Option<Handler<T, I, O>> {
        let entry = Entry::find(self.core(), index)?;
        let run = entry.typed.as_ref()?.downcast_ref::<Arc<Run<T, I, O>>>()?.clone();
        Some(Handler { entry, run })
    }

    /// The handler with variable output registered under `index`, if there is one of these types.
    pub fn vector_handler<I: Datum, O: Datum>(&self, index: u32) -> Option<VectorHandler<T, I, O>> {
        let entry = Entry::find(self.core(), index)?;
        let run = entry.typed.as_ref()?.downcast_ref::<Arc<VectorRun<T, I, O>>>()?.clone();
        Some(VectorHandler { entry, run })
    }

    /// Forgets the handler under `index`, whatever it is. Collective. What messages by it are not
    /// complete by then fail; later ones are [`Error::Misuse`]. The index is free afterwards.
    ///
    /// # Errors
    /// [`Error::Misuse`] if nothing is registered under `index`; [`Error::Mismatch`] if members
    /// name different ones. The handler stays then.
    pub fn deregister(&self, index: u32) -> Result<()> {
        self.same_step(DEREGISTER, Step::Deregister, index, None)?;
        let found = Entry::find(self.core(), index).ok_or_else(|| Error::Misuse {
            what: DEREGISTER,
            why: format!("no handler is registered under index {index} of this window"),
        });
        let entry = self.team().agree(DEREGISTER, found)?;
        self.core().detach_handler(index);
        entry.registered.store(false, Ordering::Release);
        Ok(())
    }

    /// Puts a handler into the table, at all members or none.
    pub(super) fn enter(&self, index: u32, new: New) -> Result<Arc<Entry>> {
        let step = match (new.types.is_some(), new.vector) {
            (true, false) => Step::Register,
            (true, true) => Step::RegisterVector,
            (false, false) => Step::RegisterUntyped,
            (false, true) => Step::RegisterUntypedVector,
        };
        self.same_step(REGISTER, step, index, new.types.as_ref())?;
        let New { vector, types, elements, typed, run } = new;
        let (window, registered) = (self.id(), AtomicBool::new(true));
        let entry =
            Arc::new(Entry { index, window, registered, vector, types, elements, typed, run });
        let own = self.core().attach_handler(index, entry.clone());
        let kept = if !own {
            let why = format!("index {index} is taken on this window; use another");
            Err(Error::Misuse { what: REGISTER, why })
        } else if self.core().remote().is_some() {
            away::attach(self.core())
        } else {
            Ok(())
        };
        let agreed = self.team().agree(REGISTER, kept);
        if own && agreed.is_err() {
            self.core().detach_handler(index);
        }
        agreed.map(|()| entry)
    }

    /// An error at all members unless all do the same with the same index and types.
    fn same_step(
        &self,
        during: &'static str,
        step: Step,
        index: u32,
        types: Option<&[Type; 3]>,
    ) -> Result<()> {
        let prints =
            types.map_or([0; 2], |[_, input, output]| [input.fingerprint, output.fingerprint]);
        let texts =
            types.map_or_else(Default::default, |[_, input, output]| [input.text(), output.text()]);
        let lens = texts.each_ref().map(|text| text.len() as u64);
        let mine = [step as u64, index.into(), prints[0], prints[1], lens[0], lens[1]];
        let mut theirs = mine;
        self.team().broadcast(Rank(0), &mut theirs)?;
        let of_root = |text: &str, len: u64| {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize((len as usize).min(2 * NAME), 0);
            bytes
        };
        let mut first = of_root(&texts[0], theirs[4]);
        let split = first.len();
        first.extend(of_root(&texts[1], theirs[5]));
        self.team().broadcast(Rank(0), &mut first)?;
        let (input, output) = first.split_at(split);
        let named = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let differs = |what, a_has, b_has| {
            Err(Error::Mismatch { what, a: Rank(0), a_has, b: self.team().rank(), b_has })
        };
        let quoted = |value: u64| value.to_string();
        let same = if mine[0] != theirs[0] {
            let called = |code| Step::text(code).to_owned();
            differs("what is done with a handler", called(theirs[0]), called(mine[0]))
        } else if mine[1] != theirs[1] {
            differs("a handler's index", quoted(theirs[1]), quoted(mine[1]))
        } else if mine[2] != theirs[2] {
            differs("a handler's input type", named(input), texts[0].clone())
        } else if mine[3] != theirs[3] {
            differs("a handler's output type", named(output), texts[1].clone())
        } else {
            Ok(())
        };
        self.team().agree(during, same)
    }
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

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "handler {} of window {:#x}", self.index, self.window)
    }
}

macro_rules! cheap_handle {
    ($handle:ident, $name:literal) => {
        impl<T, I, O> Clone for $handle<T, I, O> {
            fn clone(&self) -> Self {
                $handle { entry: self.entry.clone(), run: self.run.clone() }
            }
        }

        impl<T, I, O> $handle<T, I, O> {
            /// The index that it is registered under.
            pub fn index(&self) -> u32 {
                self.entry.index
            }
        }

        impl<T, I, O> std::fmt::Debug for $handle<T, I, O> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({} on window {:#x})", $name, self.entry.index, self.entry.window)
            }
        }
    };
}
cheap_handle!(Handler, "Handler");
cheap_handle!(VectorHandler, "VectorHandler");
