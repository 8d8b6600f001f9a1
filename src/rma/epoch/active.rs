//! Active-target synchronisation of groups, without element types: the calls.
//!
//! ```text
//!  origin o                                     target t
//!                                               post:     o is told that t is exposed
//!  start: until all targets have posted
//!  operations on t
//!  complete: complete them; t is told     ->    wait, test: until all origins have answered
//!
//!  fails before t has posted, because
//!    a target died:        forgoes t's next post  ->  whose exposure fails when it comes
//!    its deadline passed:  nothing; the next start can have the post
//!  fails after t has posted, in either way:       ->  the exposure fails
//! ```
//! **One rule for both paths**: each post belongs to one start, and the epoch of the two succeeds
//! or fails for both. So after a failure both sides begin anew, and an origin whose deadline has
//! passed may begin anew alone if no post had come. Posts and starts are numbered, so that nothing
//! late counts for a later epoch: not a post that was forgone, nor an answer to one before.
//!
//! | | parts mapped | by packets |
//! |---|---|---|
//! | state machine | [`pair`](crate::shm::pair), words in the window's block | `rma::runtime::pscw`, messages |
//! | what waits for posts | `start` | operations and `complete` |
//! | what fails | `start` | `complete`, after what could be done on targets that had posted |
//!
//! **Who is waited for.** Every living member of the group, and nobody else: a death concerns the
//! epochs of those whose group has the dead rank, and of those to whom they gave up. An exposure
//! ends when each of its origins has completed, given up, died or dropped the window; then nobody
//! is left who could access the part, and it is closed, with an error unless all have completed.
//! Only a deadline leaves it open, for `wait` or `test` to go on.
//!
//! Cost per member of a group: `post` and `complete` one store to a line of the other's, and a look
//! whether it sleeps; `start` a store to a line of its own; `wait` a load.

use super::super::core::Core;
use super::Assertions;
use super::group::Group;
use super::state::{GUARDED, NONE, OFFERED, POSTED, START};
use crate::base::{Error, Rank, Result, reentry};
use crate::shm::lock::part;

impl Core {
    /// Exposes the own part to `group`.
    pub(super) fn post(
        &self,
        what: &'static str,
        group: &[Rank],
        assertions: Assertions,
        guarded: bool,
    ) -> Result<()> {
        reentry::refuse_inside(what)?;
        let group = self.check_group(what, group)?;
        let me = self.block.team.rank();
        let change = self.epochs.expose(what, || Ok(self.held(me).is_some()))?;
        match self.engine() {
            Some(engine) => engine.expose(&group, assertions.no_check)?,
            None => self.tell_origins(&group, !assertions.no_check),
        }
        change.settle(if guarded { POSTED | GUARDED } else { POSTED });
        Ok(())
    }

    /// Opens access to the parts of `group`, once all have posted; returns the group in order.
    pub(super) fn start(
        &self,
        what: &'static str,
        group: &[Rank],
        assertions: Assertions,
        guarded: bool,
    ) -> Result<Group> {
        reentry::refuse_inside(what)?;
        let group = self.check_group(what, group)?;
        let holds = || part::holds_any(&*self.block);
        let change = self.epochs.open(what, &[NONE, OFFERED], START, true, holds)?;
        match self.engine() {
            Some(engine) => engine.start(&group, assertions.no_check)?,
            None => self.start_on(what, &group, assertions.no_check)?,
        }
        self.epochs.groups().started = group.clone();
        change.settle(if guarded { START | GUARDED } else { START });
        Ok(group)
    }

    /// Completes the operations of the access epoch and tells its targets.
    pub(super) fn complete(&self, what: &'static str, guarded: bool) -> Result<()> {
        reentry::refuse_inside(what)?;
        let from = if guarded { START | GUARDED } else { START };
        let change = self.epochs.change(what, &[from], NONE)?;
        let group = std::mem::take(&mut self.epochs.groups().started);
        let done = match self.engine() {
            Some(engine) => engine.complete(),
            None => {
                let done = self.complete_operations(None);
                // After any other error what could be done has been done.
                let completed = !matches!(done, Err(Error::TimedOut { .. }));
                self.answer_targets(&group, completed);
                done
            }
        };
        change.settle(NONE);
        self.note(
            done.and_then(|()| group.iter().try_for_each(|&target| self.check_alive(target, what))),
        )
    }

    /// Waits until the origins of the exposure epoch have completed, or (`wait` false) says
    /// whether they have; the epoch is over then.
    pub(super) fn exposure_over(
        &self,
        what: &'static str,
        wait: bool,
        guarded: bool,
    ) -> Result<bool> {
        reentry::refuse_inside(what)?;
        let change = self.epochs.cover(what, guarded)?;
        let over = match self.engine() {
            Some(engine) => engine.exposure_over(wait),
            None => self.exposure_ends(what, wait),
        };
        match &over {
            Ok(false) => drop(change),
            // Late completions must find the epoch they belong to. It has no guard any more.
            Err(Error::TimedOut { .. }) => change.settle(POSTED),
            _ => change.settle(NONE),
        }
        self.note(over)
    }

    /// The guard of an exposure goes without waiting: what is left of it can be waited for
    /// without one.
    pub(super) fn leave_exposed(&self, what: &'static str) {
        if let Ok(change) = self.epochs.cover(what, true) {
            change.settle(POSTED);
        }
    }

    fn exposure_ends(&self, what: &'static str, wait: bool) -> Result<bool> {
        let mut exposure = std::mem::take(&mut self.epochs.groups().exposure);
        let over = if wait {
            self.await_answers(what, &mut exposure).map(|()| true)
        } else {
            Ok(self.look_for_answers(what, &mut exposure))
        };
        let failed = if matches!(over, Ok(true)) { exposure.failed.take() } else { None };
        self.epochs.groups().exposure = exposure;
        failed.map_or(over, Err)
    }
}
