//! Handlers and their registration.

use crate::base::{Error, Rank, Result};
use crate::layout::Datum;
use crate::rma::{View, Window};
use std::sync::Arc;

/// What a handler is called with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'c, T, I, O> {
    /// The origin's input.
    pub input: &'c [I],
    /// Where the output goes: the origin's buffer.
    pub output: &'c mut [O],
    /// The part of the target's window that the message names.
    pub persistent: View<'c, T>,
    /// First element of `persistent` within the target's part.
    pub start: usize,
    /// The target, numbered as in the window's team.
    pub target: Rank,
}

pub(super) type Run<T, I, O> = dyn Fn(Call<'_, T, I, O>) + Send + Sync;

/// A registered handler. Cloning is cheap.
pub struct Handler<T, I, O> {
    pub(super) index: u32,
    pub(super) window: u64,
    pub(super) run: Arc<Run<T, I, O>>,
}

impl<T, I, O> Clone for Handler<T, I, O> {
    fn clone(&self) -> Self {
        Handler { index: self.index, window: self.window, run: self.run.clone() }
    }
}

impl<T, I, O> std::fmt::Debug for Handler<T, I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handler({} on window {:#x})", self.index, self.window)
    }
}

impl<T: Datum> Window<T> {
    /// Registers `run` under `index` on this window. Collective; every member must provide a
    /// functionally equivalent handler with the same types under the same index, because any of
    /// them may be the one that runs.
    ///
    /// The handler may not communicate: collectives and active messages from inside it fail with
    /// [`Error::Misuse`]; what it needs of the window it reaches through its call. If it panics, the origin of that message gets [`Error::HandlerPanicked`], nobody else notices.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if members register different indices or types; [`Error::Misuse`] if
    /// the index is taken.
    pub fn register<I: Datum, O: Datum>(
        &self,
        index: u32,
        run: impl Fn(Call<'_, T, I, O>) + Send + Sync + 'static,
    ) -> Result<Handler<T, I, O>> {
        const DURING: &str = "Window::register";
        let mine = [u64::from(index), I::fingerprint(), O::fingerprint()];
        let mut theirs = mine;
        self.team().broadcast(Rank(0), &mut theirs)?;
        let handler = Handler { index, window: self.id(), run: Arc::new(run) };
        let taken = || Error::Misuse {
            what: DURING,
            why: format!("index {index} is taken on this window; use another"),
        };
        let kept = same(self.team().rank(), mine, theirs).and_then(|()| {
            let kept = self.core().attach_handler(index, Arc::new(handler.clone()));
            if kept { Ok(()) } else { Err(taken()) }
        });
        let own = kept.is_ok();
        let agreed = self.team().agree(DURING, kept);
        if own && agreed.is_err() {
            self.core().detach_handler(index);
        }
        agreed.map(|()| handler)
    }

    /// The handler registered under `index`, if there is one of these types.
    pub fn handler<I: Datum, O: Datum>(&self, index: u32) -> Option<Handler<T, I, O>> {
        self.core().attached(index)?.downcast_ref::<Handler<T, I, O>>().cloned()
    }
}

fn same(me: Rank, mine: [u64; 3], theirs: [u64; 3]) -> Result<()> {
    let names = ["a handler's index", "a handler's input type", "a handler's output type"];
    for (what, (mine, theirs)) in names.into_iter().zip(mine.into_iter().zip(theirs)) {
        if mine != theirs {
            return Err(Error::Mismatch {
                what,
                a: Rank(0),
                a_has: format!("{theirs:#x}"),
                b: me,
                b_has: format!("{mine:#x}"),
            });
        }
    }
    Ok(())
}
