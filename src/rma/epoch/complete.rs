//! Completing operations: what closing an epoch, and a flush in its midst, do with the operations
//! issued so far.

use super::super::core::Core;
use super::super::remote::Remote;
use super::state::{START, misuse};
use crate::base::sync::full_fence;
use crate::base::{Rank, Result, forked, reentry};

/// Operations of others are waited for: not inside a handler.
fn may_wait(during: &'static str) -> Result<()> {
    reentry::refuse_inside(during)
}

impl Core {
    /// Completes this process's operations on `target` (on all targets for `None`) there.
    #[inline]
    pub(super) fn complete_operations(&self, target: Option<Rank>) -> Result<()> {
        // Looked at first: behind the fence each load would have to wait for it.
        let remote = self.remote();
        full_fence();
        remote.map_or(Ok(()), |remote| may_wait("flush").and_then(|()| remote.flush(target)))
    }

    /// Completes those that are not direct, which a fence does not.
    #[inline]
    pub(super) fn complete_away(&self, target: Option<Rank>) -> Result<()> {
        let Some(remote) = self.remote() else { return Ok(()) };
        may_wait("flush").and_then(|()| remote.flush(target))
    }

    /// Completes them here: the memory that they read and write is the caller's again.
    #[inline]
    pub(super) fn complete_locally(&self, target: Option<Rank>) -> Result<()> {
        let Some(remote) = self.remote() else { return Ok(()) };
        may_wait("flush_local").and_then(|()| remote.flush_local(target))
    }

    /// What synchronises the window, if it is not its shared block. Direct operations are complete
    /// when this returns.
    #[inline]
    pub(super) fn engine(&self) -> Option<&dyn Remote> {
        let engine = self.remote().filter(|remote| remote.synchronises())?;
        full_fence();
        Some(&**engine)
    }

    /// An error if `target` is known to be dead: its memory is still there, but nobody will look
    /// at it. One load while nobody in the job has died.
    #[inline]
    pub(crate) fn check_alive(&self, target: Rank, during: &'static str) -> Result<()> {
        if self.block.team.node().death_mark() == 0 {
            return Ok(());
        }
        self.look_for(target, during)
    }

    #[cold]
    fn look_for(&self, target: Rank, during: &'static str) -> Result<()> {
        // In a child that a rank has forked off the count says this.
        forked::refuse_forked(during)?;
        let team = &self.block.team;
        let slot = team.slot_of(target)?;
        // One that left in good order has only stopped looking at its memory.
        if team.node().has_died(slot) { Err(team.node().died(slot, during)) } else { Ok(()) }
    }

    /// Flushes from a passive-target epoch. Out of line: what goes by a fence alone does not come
    /// here (see `Epoch::completes_by_fence`).
    #[cold]
    #[inline(never)]
    pub(super) fn flush(
        &self,
        what: &'static str,
        target: Option<Rank>,
        local: bool,
    ) -> Result<()> {
        if let Some(target) = target {
            self.check_target(what, target)?;
            if !local {
                // Looked at first: behind the fence the load would have to wait for it.
                let alive = self.check_alive(target, what);
                return self.complete_operations(Some(target)).and(alive);
            }
        }
        if local { self.complete_locally(target) } else { self.complete_operations(target) }
    }

    /// Whether an epoch opened by this process covers `target`.
    pub(super) fn covers(&self, target: Rank) -> bool {
        let access = self.epochs.access() & !super::state::GUARDED;
        match access {
            super::state::LOCK_ALL | super::state::FENCE => true,
            START => self.epochs.groups().started.binary_search(&target).is_ok(),
            super::state::OFFERED => self.epochs.accept(),
            _ => self.held(target).is_some(),
        }
    }

    /// Waits for access to a part on this node of a window on several, for as long as the epoch lasts
    /// that covers it.
    pub(crate) fn reach_covered(&self, what: &'static str, target: Rank) -> Result<()> {
        if self.covers(target) {
            return self.reach(what, target);
        }
        let why = format!(
            "no open epoch covers rank {target}; the team is on several nodes, so ask for its part in \
             an epoch"
        );
        Err(misuse(what, why))
    }

    /// An error unless a passive-target epoch of this process covers `target` (anything, for
    /// `None`).
    pub(super) fn check_passive(&self, what: &'static str, target: Option<Rank>) -> Result<()> {
        let covered = match self.epochs.access() & !super::state::GUARDED {
            super::state::LOCK_ALL => true,
            super::state::NONE | super::state::OFFERED => match target {
                Some(target) => self.held(target).is_some(),
                None => self.holds_any()?,
            },
            _ => false,
        };
        if covered {
            return Ok(());
        }
        Err(misuse(what, "no lock of this rank covers the target; only locks can be flushed"))
    }
}
