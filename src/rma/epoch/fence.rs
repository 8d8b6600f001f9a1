//! Fence epochs: collective phases.

use super::super::core::Core;
use super::state::{FENCE, GUARDED, NONE, OFFERED, misuse};
use super::{Assertions, Epoch, Scope};
use crate::base::sync::fence_after_rmw;
use crate::base::{Error, Result, reentry};
use crate::layout::Datum;
use crate::rma::Window;
use crate::shm::lock::part;
use std::ops::Deref;

/// A sequence of fence phases. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct FenceEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
}

impl Core {
    /// Ends the operations of a phase, everybody's. An error inside is what became of operations,
    /// one outside is that of the fence itself.
    fn fence_all(&self, assertions: Assertions) -> Result<Result<()>> {
        if let Some(engine) = self.engine() {
            return match engine.fence(assertions) {
                Err(error) if error.is_death() || matches!(error, Error::TimedOut { .. }) => {
                    Err(error)
                }
                done => Ok(done),
            };
        }
        let done = match assertions.no_precede {
            true => Ok(()),
            false => {
                // Direct ones are complete: the epoch's word was changed by a read-modify-write.
                fence_after_rmw();
                self.complete_away(None)
            }
        };
        // In any case: the others are on their way to it.
        self.block.team.barrier().map(|()| done)
    }

    /// A fence that ends what fence epoch there is. What it leaves is `after`, or nothing if it
    /// asserts that nothing follows, or fails.
    pub(super) fn fence(
        &self,
        what: &'static str,
        from: &[u32],
        assertions: Assertions,
        after: u32,
    ) -> Result<()> {
        reentry::refuse_inside(what)?;
        let holds = || part::holds_any(&*self.block);
        let change = self.epochs.open(what, from, FENCE, false, holds)?;
        match self.fence_all(assertions) {
            Ok(done) => {
                // After an error there is no guard that would close what is opened.
                let unheld = done.is_err() && after & GUARDED != 0 && !from.contains(&after);
                change.settle(if assertions.no_succeed || unheld { NONE } else { after });
                done
            }
            Err(error) => {
                // There will be no fence any more that could end it. Otherwise it is as it was.
                if error.is_death() || self.block.team.is_broken() {
                    change.settle(NONE);
                }
                Err(error)
            }
        }
    }
}

impl<T: Datum> Window<T> {
    /// Opens a fence epoch. Collective: a barrier. Where packets synchronise the members it does not wait;
    /// operations wait until their target has called it.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] while another epoch of this window is open in this process;
    /// [`crate::Error::RankDied`] and [`crate::Error::TimedOut`], after which the team of the
    /// window synchronises no more (see [`crate::Team`]), but locks still work.
    pub fn fence(&self) -> Result<FenceEpoch<'_, T>> {
        self.fence_with(Assertions::default())
    }

    /// As [`Window::fence`], with assertions. With [`Assertions::no_succeed`] it is only a
    /// synchronisation: the epoch returned has ended.
    pub fn fence_with(&self, assertions: Assertions) -> Result<FenceEpoch<'_, T>> {
        self.core().fence("Window::fence", &[NONE, OFFERED], assertions, FENCE | GUARDED)?;
        let scope = if assertions.no_succeed { Scope::Closed } else { Scope::All };
        Ok(FenceEpoch { epoch: Epoch::new(self, assertions, scope) })
    }
}

impl<T: Datum> FenceEpoch<'_, T> {
    /// Ends this phase and begins the next: all operations of this phase on this rank's part, and
    /// all of its own, are complete when it returns; whatever accesses a part in the next phase
    /// sees the operations of this one. Collective: a full fence and a barrier; where packets
    /// synchronise the members, a reduce-scatter or a barrier of messages.
    ///
    /// # Errors
    /// As [`Window::fence`]. If the team synchronises no more, the epoch has ended.
    #[expect(clippy::should_implement_trait, reason = "the next phase, not the next item")]
    pub fn next(&mut self) -> Result<()> {
        self.next_with(Assertions { no_precede: false, ..self.epoch.assertions })
    }

    /// As [`FenceEpoch::next`], with assertions, which hold for the next phase then.
    pub fn next_with(&mut self, assertions: Assertions) -> Result<()> {
        const WHAT: &str = "FenceEpoch::next";
        if matches!(self.epoch.scope, Scope::Closed) {
            return Err(misuse(WHAT, "the epoch has ended; open a new one by Window::fence"));
        }
        let open = FENCE | GUARDED;
        let core = self.epoch.window.core();
        let fenced = core.fence(WHAT, &[open], assertions, open);
        // Whatever is the reason that it ended.
        if core.epochs.access() == NONE {
            self.epoch.end_scope();
        }
        self.epoch.assertions = assertions;
        fenced
    }

    /// Ends the epoch. Collective: a full fence and a barrier.
    pub fn end(self) -> Result<()> {
        self.end_with(Assertions::default())
    }

    /// As [`FenceEpoch::end`], with assertions; that nothing follows is implied.
    pub fn end_with(mut self, assertions: Assertions) -> Result<()> {
        self.next_with(Assertions { no_succeed: true, ..assertions })
    }
}

impl<T: Datum> Drop for FenceEpoch<'_, T> {
    fn drop(&mut self) {
        if matches!(self.epoch.scope, Scope::Closed) {
            return;
        }
        // While the thread panics, waiting for the others could only hang them. Otherwise, an
        // error (a dead member) also shows in the next collective of the team.
        if !std::thread::panicking() {
            let _ = self.next_with(Assertions { no_succeed: true, ..Assertions::default() });
        }
        let core = self.epoch.window.core();
        if let Ok(change) = core.epochs.change("FenceEpoch::drop", &[FENCE | GUARDED], NONE) {
            change.settle(NONE);
        }
    }
}

impl<'w, T: Datum> Deref for FenceEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
