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
//! See [`super::entry`].

use super::away;
use super::call::{Call, RawCall, VectorCall};
use super::entry::{Entry, NAME, NOWHERE, Type, UntypedRun};
use super::run::Run;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Error, Rank, Result};
use crate::layout::{Datum, Layout};
use crate::rma::Window;
use std::any::Any;
use std::sync::Arc;

const REGISTER: &str = "Window::register";
const DEREGISTER: &str = "Window::deregister";

pub(super) type VectorRun<T, I, O> = dyn Fn(VectorCall<'_, T, I, O>) + Send + Sync;

/// A registered handler. Cloning is cheap.
pub struct Handler<T, I, O> {
    pub(super) entry: Arc<Entry>,
    pub(super) run: Arc<dyn Run<T, I, O>>,
}

/// A registered handler whose messages have variable output. Cloning is cheap.
pub struct VectorHandler<T, I, O> {
    pub(super) entry: Arc<Entry>,
    pub(super) run: Arc<VectorRun<T, I, O>>,
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
    /// Cost: four small collectives; six where parts go by packets.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if members register different indices or types, which it names;
    /// [`Error::Misuse`] if the index is taken.
    pub fn register<I: Datum, O: Datum>(
        &self,
        index: u32,
        run: impl Fn(Call<'_, T, I, O>) + Send + Sync + 'static,
    ) -> Result<Handler<T, I, O>> {
        let run: Arc<dyn Run<T, I, O>> = Arc::new(run);
        let inner = run.clone();
        let untyped = move |raw: &mut RawCall<'_>| {
            let form = raw.form::<T>()?;
            // SAFETY: the caller of `Entry::call` answers for the buffers of this entry's types.
            inner.run(unsafe { raw.typed::<T, I, O>(&form) }?);
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
            let form = raw.form::<T>()?;
            // SAFETY: as for `register`.
            let call = unsafe { raw.typed::<T, I, O>(&form) }?;
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
        let run = entry.typed.as_ref()?.downcast_ref::<Arc<dyn Run<T, I, O>>>()?.clone();
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
        entry.serves.store(NOWHERE, Ordering::Release);
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
        let (window, serves) = (self.id(), AtomicU64::new(self.id()));
        let entry = Arc::new(Entry { index, window, serves, vector, types, elements, typed, run });
        let own = self.core().attach_handler(index, entry.clone());
        let kept = if !own {
            let why = format!("index {index} is taken on this window; use another");
            Err(Error::Misuse { what: REGISTER, why })
        } else if self.core().remote().is_some() {
            away::attach(self.core())
        } else {
            Ok(())
        };
        let kept = match self.core().remote() {
            // Whether there is one is the same at all members.
            Some(_) => self.team().agree(REGISTER, kept).and_then(|()| away::furnish(self.core())),
            None => kept,
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
