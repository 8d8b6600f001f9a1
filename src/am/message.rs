//! Issuing an active message: origin computation.

use super::call::{Call, Form};
use super::entry::told_by;
use super::handler::Handler;
use super::issue::WHAT;
use super::turn;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::Datum;
use crate::rma::kind::Place;
use crate::rma::{Epoch, View, Window};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<T: Datum> Epoch<'_, T> {
    /// Runs `handler` on elements `persistent` of `target`'s part, with `input`, filling
    /// `output`. It has run when the call returns; its changes are visible to later messages on
    /// the same target, and to everybody after a flush or fence.
    ///
    /// By default the messages on one target run one after the other, in the order in which
    /// their origins got hold of it, fairly. In an epoch that asserts
    /// [`crate::rma::Assertions::concurrent_am`] they run at the same time, without a lock.
    ///
    /// Cost: two atomics on the target's line (a third process's contention aside), one indirect
    /// call, no copy, no system call; none of the atomics under the assertion.
    ///
    /// # Errors
    /// [`Error::HandlerPanicked`]; [`Error::WindowPoisoned`] if a rank died inside a message on
    /// this target; [`Error::RankDied`] if the target is dead; [`Error::OutOfBounds`];
    /// [`Error::InvalidArgument`] for a range that ends before it starts;
    /// [`Error::Misuse`] from inside a handler or with a handler of another window.
    #[inline]
    pub fn am<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        persistent: Range<usize>,
        input: &[I],
        output: &mut [O],
    ) -> Result<()> {
        match self.am_plain(handler, target, persistent.start, persistent.end, input, output, None)
        {
            Some(done) => told(handler, target, done),
            None => self.am_any(handler, target, persistent, input, output),
        }
    }

    /// [`Epoch::am`] where all is as it nearly always is, which is looked at in one go: the epoch
    /// covers the target, arithmetic finds the elements, the handler is one of this window's,
    /// nobody in the job has died, no other message runs. `None`, and nothing has happened, if
    /// something is not so. `form`: how the buffers lie, if the handler is to be told.
    ///
    /// One function of its own, in which there is nothing else, so that all of it is in line
    /// wherever it is called from. Two words come back, in registers.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn am_plain<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        start: usize,
        end: usize,
        input: &[I],
        output: &mut [O],
        form: Option<&Form<'_>>,
    ) -> Option<Outcome> {
        let window = self.window();
        let (turns, run) = (window.turns(), &*handler.run);
        if reentry::is_inside() || !handler.entry.serves(turns.window()) || !window.all_live() {
            return None;
        }
        let len = end.checked_sub(start)?;
        let first = self.direct(target, start, len)?;
        let concurrent = self.assertions().concurrent_am;
        // SAFETY: `direct` found the target by arithmetic, and the line is of the same window.
        let line = unsafe { turn::begin_plain(window.core(), turns, target, concurrent)? };
        let outcome = guarded(move || {
            // SAFETY: `direct` checked the range, which stays mapped as long as the window.
            unsafe { run.run_plain(input, output, first, len, start, target, window, form) }
        });
        turn::end_plain(window.core(), turns, line, concurrent);
        Some(outcome)
    }

    /// As [`Epoch::am`], whatever is not plain about it.
    #[cold]
    #[inline(never)]
    fn am_any<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        persistent: Range<usize>,
        input: &[I],
        output: &mut [O],
    ) -> Result<()> {
        if self.am_here(handler, target, persistent.clone(), input, output, None)? {
            return Ok(());
        }
        self.am_away(handler, target, persistent, input, output)
    }

    /// [`Epoch::am`] on a part that is mapped, however; false, and nothing has happened, if it is not.
    #[cold]
    #[inline(never)]
    pub(super) fn am_here<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        persistent: Range<usize>,
        input: &[I],
        output: &mut [O],
        form: Option<&Form<'_>>,
    ) -> Result<bool> {
        let window = self.window();
        reentry::refuse_inside(WHAT)?;
        handler.entry.usable_on(window.id())?;
        self.admit(WHAT, target)?;
        let Some(len) = persistent.end.checked_sub(persistent.start) else {
            return Err(backwards(persistent));
        };
        let first = match window.place(WHAT, target, persistent.start, len)? {
            Place::Here(first) => first,
            Place::Away(_) => return Ok(false),
        };
        window.check_alive(target, WHAT)?;
        // SAFETY: `place` checked the range, which stays mapped as long as the window.
        let view = unsafe { View::new(first, len, target, window.domain()) };
        let call = Call {
            input,
            output,
            persistent: view,
            start: persistent.start,
            target,
            segments: 1,
            segment_offset: 0,
            form,
        };
        let concurrent = self.assertions().concurrent_am;
        let work = || guarded(|| handler.run.run(call));
        // Made an error of outside of the turn: it is large.
        told(handler, target, turn::take(window.core(), target, concurrent, work)?)?;
        Ok(true)
    }

    fn am_away<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        persistent: Range<usize>,
        input: &[I],
        output: &mut [O],
    ) -> Result<()> {
        self.message(handler, target).persistent(persistent).input(input).output(output).run()
    }
}

impl<T: Datum> Window<T> {
    /// Declares `target`'s part sound again after a rank died inside an active message on it,
    /// once the program has repaired its data. Any rank on its node may do it.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] if the target is on another node.
    pub fn heal(&self, target: Rank) -> Result<()> {
        const WHAT: &str = "Window::heal";
        reentry::refuse_inside(WHAT)?;
        self.core().check_target(WHAT, target)?;
        if !self.core().block.is_here(target.0) {
            let why = format!("rank {target} is on another node; let it, or one on its node, call");
            return Err(crate::Error::Misuse { what: WHAT, why });
        }
        let line = self.line(target);
        let guard = line.am_lock.lock(&**self.node(), self.team().deadline())?;
        line.poison.store(0, Ordering::Relaxed);
        drop(guard);
        Ok(())
    }
}

/// What a handler that has run panicked with, if it did. One word, because it is kept while the lock
/// is given back, and what is stored before that is waited for.
type Outcome = Option<Box<Box<dyn std::any::Any + Send>>>;

/// Runs a handler: this thread counts as inside of it meanwhile.
#[inline(always)]
fn guarded(run: impl FnOnce()) -> Outcome {
    let inside = reentry::enter();
    // A handler that unwinds leaves its own data as they are; nothing of the library's is open.
    let outcome = catch_unwind(AssertUnwindSafe(run));
    drop(inside);
    match outcome {
        Ok(()) => None,
        Err(payload) => Some(kept(payload)),
    }
}

#[cold]
#[inline(never)]
fn kept(payload: Box<dyn std::any::Any + Send>) -> Box<Box<dyn std::any::Any + Send>> {
    Box::new(payload)
}

/// What the origin's program is told of a handler that has run.
#[inline(always)]
pub(super) fn told<T, I, O>(handler: &Handler<T, I, O>, target: Rank, done: Outcome) -> Result<()> {
    match done {
        None => Ok(()),
        Some(payload) => Err(panicked(handler.entry.index(), target, *payload)),
    }
}

#[cold]
fn panicked(index: u32, target: Rank, payload: Box<dyn std::any::Any + Send>) -> Error {
    Error::HandlerPanicked { index, target, message: told_by(payload) }
}

#[cold]
pub(super) fn backwards(Range { start, end }: Range<usize>) -> Error {
    Error::invalid("an active message", format!("{start}..{end} ends before it starts"))
}
