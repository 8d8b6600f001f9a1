//! Fence epochs: collective phases.

use super::super::core::Core;
use super::state::{FENCE, GUARDED, NONE, OFFERED, misuse};
use super::{Assertions, Epoch, Scope};
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
            // Direct ones need nothing but the barrier: what a member has stored before, all have behind it.
            false => self.complete_away(None),
        };
        // In any case: the others are on their way to it.
        self.block.team.barrier().map(|()| done)
    }

    /// A fence between two phases of a guard's epoch. Only that guard can end it, and as long as it is open
    /// no other epoch is opened and no lock taken: the state stays as it is, without a read-modify-write.
    #[inline(always)]
    fn fence_again(&self, what: &'static str, assertions: Assertions) -> Result<()> {
        if self.remote().is_none() && !assertions.no_succeed {
            return self.fence_plainly(what);
        }
        reentry::refuse_inside(what)?;
        let done = match self.fence_all(assertions) {
            Ok(done) => done,
            Err(error) => return Err(self.fence_failed(what, error)),
        };
        if assertions.no_succeed {
            self.epochs.change(what, &[FENCE | GUARDED], NONE)?.settle(NONE);
        }
        done
    }

    /// What most do, without a result in a result.
    #[inline(always)]
    fn fence_plainly(&self, what: &'static str) -> Result<()> {
        reentry::refuse_inside(what)?;
        match self.block.team.barrier() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fence_failed(what, error)),
        }
    }

    /// What is left of the epoch after a fence that has failed: if there will be no fence any more that could
    /// end it, nothing. Otherwise it is as it was.
    #[cold]
    fn fence_failed(&self, what: &'static str, error: Error) -> Error {
        if (error.is_death() || self.block.team.is_broken())
            && let Ok(change) = self.epochs.change(what, &[FENCE | GUARDED], NONE)
        {
            change.settle(NONE);
        }
        error
    }

    /// A fence that ends what fence epoch there is, but for a guard's. What it leaves is `after`, or nothing
    /// if it asserts that nothing follows, or fails.
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
                let unheld = done.is_err() && after & GUARDED != 0;
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
    /// sees the operations of this one. Collective: a barrier; where packets
    /// synchronise the members, a reduce-scatter or a barrier of messages.
    ///
    /// # Errors
    /// As [`Window::fence`]. If the team synchronises no more, the epoch has ended.
    #[expect(clippy::should_implement_trait, reason = "the next phase, not the next item")]
    pub fn next(&mut self) -> Result<()> {
        const WHAT: &str = "FenceEpoch::next";
        let it = &self.epoch.assertions;
        let plain = !it.no_precede && !it.no_succeed && !matches!(self.epoch.scope, Scope::Closed);
        let core = self.epoch.window.core();
        if !plain || core.remote().is_some() {
            return self.next_with(Assertions { no_precede: false, ..self.epoch.assertions });
        }
        // What has been asserted stays: it is not copied.
        match core.fence_plainly(WHAT) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.after_fence(self.epoch.assertions, error)),
        }
    }

    /// As [`FenceEpoch::next`], with assertions, which hold for the next phase then.
    pub fn next_with(&mut self, assertions: Assertions) -> Result<()> {
        const WHAT: &str = "FenceEpoch::next";
        if matches!(self.epoch.scope, Scope::Closed) {
            return Err(misuse(WHAT, "the epoch has ended; open a new one by Window::fence"));
        }
        let core = self.epoch.window.core();
        // Looked at, and not kept and returned: see `Core::sync_inline` of teams.
        if let Err(error) = core.fence_again(WHAT, assertions) {
            return Err(self.after_fence(assertions, error));
        }
        self.epoch.assertions = assertions;
        if assertions.no_succeed {
            self.epoch.end_scope();
        }
        Ok(())
    }

    #[cold]
    fn after_fence(&mut self, assertions: Assertions, error: Error) -> Error {
        // Whatever is the reason that it ended.
        if self.epoch.window.core().epochs.access() == NONE {
            self.epoch.end_scope();
        }
        self.epoch.assertions = assertions;
        error
    }

    /// Ends the epoch. Collective: a barrier.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;
    use crate::base::Rank;
    use crate::rma::LockKind;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn refused<T>(result: Result<T>) {
        assert!(matches!(result, Err(Error::Misuse { .. })), "{:?}", result.err());
    }

    /// The state says nothing of a guard that goes from phase to phase, so it has to refuse all the while what it
    /// refuses to others while a fence is open.
    #[test]
    fn while_a_guard_waits_for_the_next_phase_no_other_epoch_is_opened() {
        let (tell, told) = channel::<()>();
        let (tell, told) = (std::sync::Mutex::new(tell), std::sync::Mutex::new(told));
        let ends = Job::threads(2, |job| {
            let window = Window::<u64>::allocate(job.team(), 1)?;
            let mut epoch = window.fence()?;
            if job.rank() == Rank(1) {
                // The other rank cannot be through before this one has called.
                told.lock().unwrap().recv().unwrap();
                epoch.next()?;
                return epoch.end();
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        refused(window.lock(Rank(1), LockKind::Shared).map(drop));
                        refused(window.lock_all().map(drop));
                        refused(window.post(&[Rank(1)]).map(drop));
                        refused(window.start(&[Rank(1)]).map(drop));
                        refused(window.fence().map(drop));
                        refused(window.unguarded().fence(Assertions::default()));
                        std::thread::yield_now();
                    }
                    tell.lock().unwrap().send(()).unwrap();
                });
                epoch.next()
            })?;
            epoch.put(Rank(1), 0, &[1])?;
            epoch.end()?;
            // And is over then.
            window.lock(Rank(0), LockKind::Shared)?.unlock()
        });
        ends.unwrap().into_iter().for_each(|end| end.unwrap());
    }

    #[test]
    fn a_phase_that_not_all_begin_in_time_is_the_last_but_not_the_windows_end() {
        let ends = Job::threads(2, |job| {
            let team = job.team().with_deadline(Duration::from_millis(50));
            let window = Window::<u64>::allocate(&team, 1)?;
            let mut epoch = window.fence()?;
            if job.rank() == Rank(0) {
                let late = epoch.next();
                assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
                refused(epoch.put(Rank(1), 0, &[1]));
                refused(epoch.next());
                drop(epoch);
                let lock = window.lock(Rank(1), LockKind::Exclusive)?;
                lock.put(Rank(1), 0, &[7])?;
                lock.unlock()?;
                return job.team().send(Rank(1), 1, &[0u8]);
            }
            job.team().recv(Rank(0), 1, &mut [0u8])?;
            assert_eq!(window.local().get(0)?, 7);
            assert!(epoch.next().is_err(), "the other one will not come");
            refused(epoch.next());
            Ok(())
        });
        ends.unwrap().into_iter().for_each(|end| end.unwrap());
    }
}
