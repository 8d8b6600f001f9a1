//! Waiting for the members of a group, and telling them: the synchronisation of groups by the
//! words of the window's block. See [`active`](super::active) for the protocol.

use super::super::core::Core;
use super::state::Exposure;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result, Slot};
use crate::shm::lock::part::Parts;
use crate::shm::pair::{Answer, Pair};
use crate::shm::park::WaitCell;
use std::cell::{Cell, RefCell};

impl Core {
    fn with_target(&self, target: Rank) -> Pair<'_> {
        self.block.pair(target.0, self.block.me())
    }

    fn with_origin(&self, origin: Rank) -> Pair<'_> {
        self.block.pair(self.block.me(), origin.0)
    }

    /// Posts to `group`; `wake`: those who wait for it.
    pub(super) fn tell_origins(&self, group: &[Rank], wake: bool) {
        let exposure = &mut self.epochs.groups().exposure;
        exposure.open.clear();
        for &origin in group {
            exposure.open.push((origin, self.with_origin(origin).post()));
            if wake {
                self.block.active(origin.0).active.notify();
            }
        }
    }

    /// Answers the posts of an access epoch that is over.
    pub(super) fn answer_targets(&self, group: &[Rank], completed: bool) {
        if !completed {
            self.set_cause(0);
        }
        for &target in group {
            self.with_target(target).close(completed);
            self.block.active(target.0).active.notify();
        }
    }

    /// Waits until all of `group` have posted, unless they are promised to have (`no_check`), and
    /// starts on the posts. On an error those that have come are declined, and after a death the
    /// next ones forgone; as long as a target has not posted for `pair::AHEAD` starts that failed, it
    /// is waited for, a death or not.
    pub(super) fn start_on(
        &self,
        what: &'static str,
        group: &[Rank],
        no_check: bool,
    ) -> Result<()> {
        if !no_check && !self.all_open(group) {
            self.await_posts(what, group)?;
        }
        group.iter().for_each(|target| self.with_target(*target).start());
        Ok(())
    }

    fn all_open(&self, group: &[Rank]) -> bool {
        group.iter().all(|target| self.with_target(*target).is_open())
    }

    fn await_posts(&self, what: &'static str, group: &[Rank]) -> Result<()> {
        let node = self.block.team.node();
        let missing = || group.iter().filter(|target| !self.with_target(**target).is_open());
        let cause = Cell::new(0);
        let look = || {
            // Also helps with what others want of this process.
            node.check(std::iter::empty(), what)?;
            let absent = missing().find(|target| {
                // What it did last is there by now.
                self.is_absent(**target) && !self.with_target(**target).is_open()
            });
            // What a living target has yet to be told is bounded: it first has to take some of it.
            let full = || {
                let living = group.iter().filter(|target| !self.is_absent(**target));
                living.map(|target| self.with_target(*target)).any(|pair| pair.is_full())
            };
            absent.filter(|_| !full()).map_or(Ok(()), |&target| {
                let (error, why) = self.absence(what, target);
                cause.set(why);
                Err(error)
            })
        };
        let cell = &self.block.active(self.block.team.rank().0).active;
        let poll = || self.all_open(group).then_some(());
        let waited = self.wait_for_one(cell, self.only(group.iter()), what, poll, look);
        waited.map_err(|error| {
            let error = self.with_missing(error, missing().copied());
            self.give_up(group, cause.get(), !matches!(error, Error::TimedOut { .. }));
            error
        })
    }

    /// The process that is the only one of a group.
    fn only<'a>(&self, mut group: impl Iterator<Item = &'a Rank>) -> Option<Slot> {
        let first = group.next()?;
        group.next().is_none().then(|| self.block.slot_of(first.0)).flatten()
    }

    /// Waits for what one process has to do, or several.
    fn wait_for_one(
        &self,
        cell: &WaitCell,
        peer: Option<Slot>,
        what: &'static str,
        poll: impl FnMut() -> Option<()>,
        look: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let (node, deadline) = (self.block.team.node(), self.block.team.deadline());
        match peer {
            Some(_) => node.wait_for(cell, peer, deadline, what, poll, look),
            None => node.wait(cell, deadline, what, poll, look),
        }
    }

    /// Tells the targets of a start that it has failed; `forgo`: also those that have not posted.
    fn give_up(&self, group: &[Rank], cause: u32, forgo: bool) {
        self.set_cause(cause);
        for &target in group {
            self.with_target(target).give_up(forgo);
            self.block.active(target.0).active.notify();
        }
    }

    /// Waits until nobody has access to the own part any more.
    pub(super) fn await_answers(&self, what: &'static str, exposure: &mut Exposure) -> Result<()> {
        let node = self.block.team.node();
        let cell = &self.block.active(self.block.team.rank().0).active;
        let peer = self.only(exposure.open.iter().map(|(origin, _)| origin));
        let exposure = RefCell::new(exposure);
        let poll = || self.take_answers(what, &mut exposure.borrow_mut()).then_some(());
        let look = || {
            // Also helps with what others want of this process.
            node.check(std::iter::empty(), what)?;
            if self.take_absent(what, &mut exposure.borrow_mut()) {
                // Not to sleep over it.
                cell.notify();
            }
            Ok(())
        };
        let waited = self.wait_for_one(cell, peer, what, poll, look);
        waited.map_err(|error| {
            self.with_missing(error, exposure.borrow().open.iter().map(|(origin, _)| *origin))
        })
    }

    /// Whether nobody has access to the own part any more. Asks the kernel about deaths now and
    /// then.
    pub(super) fn look_for_answers(&self, what: &'static str, exposure: &mut Exposure) -> bool {
        if self.take_answers(what, exposure) {
            return true;
        }
        let deaths = self.block.team.node().death_mark();
        (self.epochs.looks_often() || deaths > 0) && self.take_absent(what, exposure)
    }

    /// Takes out of an exposure who has answered; whether nobody is left.
    fn take_answers(&self, what: &'static str, exposure: &mut Exposure) -> bool {
        let Exposure { open, failed } = exposure;
        open.retain(|&(origin, post)| match self.with_origin(origin).answer(post) {
            None => true,
            Some(Answer::Completed) => false,
            Some(Answer::GaveUp) => {
                failed.get_or_insert_with(|| self.given_up(what, origin));
                false
            }
        });
        open.is_empty()
    }

    /// Takes out of an exposure who will never answer; whether nobody is left.
    fn take_absent(&self, what: &'static str, exposure: &mut Exposure) -> bool {
        let Exposure { open, failed } = exposure;
        open.retain(|&(origin, post)| {
            // What it did last is there by now.
            let lost = self.is_absent(origin) && self.with_origin(origin).answer(post).is_none();
            if lost {
                failed.get_or_insert_with(|| self.absence(what, origin).0);
            }
            !lost
        });
        open.is_empty()
    }

    /// Whether a member is dead or has dropped the window. One system call.
    fn is_absent(&self, member: Rank) -> bool {
        let slot = self.block.slot_of(member.0);
        self.block.has_gone(member.0) || slot.is_some_and(|slot| self.block.team.node().probe(slot))
    }

    /// The error about a member that is absent, and the cause to tell others.
    fn absence(&self, what: &'static str, member: Rank) -> (Error, u32) {
        let node = self.block.team.node();
        match self.block.slot_of(member.0).filter(|slot| node.is_dead(*slot)) {
            Some(slot) => (node.died(slot, what), u32::from(slot.0) + 1),
            None => match self.block.cause_of(member.0) {
                Some(slot) => (node.died(slot, what), u32::from(slot.0) + 1),
                None => (super::super::remote::gone(what, member), 0),
            },
        }
    }

    /// The error about an origin that gave up.
    fn given_up(&self, what: &'static str, origin: Rank) -> Error {
        match self.block.cause_of(origin.0) {
            Some(slot) => self.block.team.node().died(slot, what),
            None => Error::PeerFailed { rank: origin, during: what },
        }
    }

    /// Notes for others, who may come to wait for this member in vain, why it lost an epoch.
    pub(super) fn note<R>(&self, result: Result<R>) -> Result<R> {
        if let Err(Error::RankDied { rank, .. }) = &result {
            // The error names a rank of the job.
            let slot = self.block.team.node().placement().slot_of(*rank);
            self.set_cause(slot.map_or(0, |slot| u32::from(slot.0) + 1));
        }
        result
    }

    fn set_cause(&self, cause: u32) {
        self.block.active(self.block.team.rank().0).cause.store(cause, Ordering::Relaxed);
    }

    fn with_missing(&self, error: Error, missing: impl Iterator<Item = Rank>) -> Error {
        match error {
            Error::TimedOut { during, waited, .. } => {
                let slots = missing.filter_map(|member| self.block.slot_of(member.0));
                let node = self.block.team.node();
                let missing = slots.map(|slot| node.rank_of(slot)).collect();
                Error::TimedOut { during, waited, missing }
            }
            other => other,
        }
    }
}
