//! Issuing an active message: origin computation.

use super::call::Call;
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
        if self.am_here(handler, target, &persistent, input, output)? {
            return Ok(());
        }
        self.am_away(handler, target, persistent, input, output)
    }

    /// [`Epoch::am`] on a part that is mapped; false, and nothing has happened, if it is not.
    #[inline(always)]
    pub(super) fn am_here<I: Datum, O: Datum>(
        &self,
        handler: &Handler<T, I, O>,
        target: Rank,
        persistent: &Range<usize>,
        input: &[I],
        output: &mut [O],
    ) -> Result<bool> {
        let window = self.window();
        reentry::refuse_inside(WHAT)?;
        handler.entry.usable_on(window.id())?;
        self.admit(WHAT, target)?;
        let Some(len) = persistent.end.checked_sub(persistent.start) else {
            return Err(backwards(persistent.clone()));
        };
        let first = match window.place(WHAT, target, persistent.start, len)? {
            Place::Here(first) => first,
            Place::Away(_) => return Ok(false),
        };
        window.check_alive(target, WHAT)?;
        // SAFETY: `locate` checked the range, which stays mapped as long as the window.
        let view = unsafe { View::new(first, len, target, window.domain()) };
        let call = Call {
            input,
            output,
            persistent: view,
            start: persistent.start,
            target,
            segments: 1,
            segment_offset: 0,
            form: None,
        };
        let concurrent = self.assertions().concurrent_am;
        // Made an error of outside of the turn: it is large.
        turn::take(window.core(), target, concurrent, || run(handler, call))?
            .map_err(|payload| panicked(handler.entry.index(), target, payload))?;
        Ok(true)
    }

    #[cold]
    #[inline(never)]
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
    /// once the program has repaired its data. Any rank may do it.
    pub fn heal(&self, target: Rank) -> Result<()> {
        reentry::refuse_inside("Window::heal")?;
        self.core().check_target("Window::heal", target)?;
        let line = self.line(target);
        let guard = line.am_lock.lock(&**self.node(), self.team().deadline())?;
        line.poison.store(0, Ordering::Relaxed);
        drop(guard);
        Ok(())
    }
}

#[inline(always)]
fn run<T: Datum, I: Datum, O: Datum>(
    handler: &Handler<T, I, O>,
    call: Call<'_, T, I, O>,
) -> std::thread::Result<()> {
    let inside = reentry::enter();
    // A handler that unwinds leaves its own data as they are; nothing of the library's is open.
    let outcome = catch_unwind(AssertUnwindSafe(|| (handler.run)(call)));
    drop(inside);
    outcome
}

#[cold]
fn panicked(index: u32, target: Rank, payload: Box<dyn std::any::Any + Send>) -> Error {
    Error::HandlerPanicked { index, target, message: told_by(payload) }
}

#[cold]
pub(super) fn backwards(Range { start, end }: Range<usize>) -> Error {
    Error::invalid("an active message", format!("{start}..{end} ends before it starts"))
}
