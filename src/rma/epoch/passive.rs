//! Passive-target synchronisation without element types: taking and giving back the locks of
//! `shm::lock::part` within the rules of `state`.

use super::super::block::WindowBlock;
use super::super::core::Core;
use super::super::remote::Locking;
use super::state::{GUARDED, LOCK_ALL, NESTED, NONE, OFFERED, misuse};
use super::{Assertions, LockKind};
use crate::base::{Rank, Result, reentry};
use crate::shm::lock::part::{self, Begun, Parts, Taken};

/// How a granted lock is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Through the window's block.
    Block,
    /// Nothing was taken.
    Asserted,
    /// Through what synchronises the window instead of its block.
    Engine,
}

/// A granted lock: how it is given back, and the rank that was lost while it had it. One word: of fields
/// that are stored one by one and loaded together just behind, the load waits until all stores are done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant(u64);

impl Grant {
    /// Through the window's block, and nobody was lost.
    const PLAIN: Grant = Grant::new(Hold::Block, None);
    const HOLD: u64 = 3;

    const fn new(hold: Hold, recovered: Option<Rank>) -> Grant {
        let lost = match recovered {
            Some(rank) => rank.0 as u64 + 1,
            None => 0,
        };
        Grant(lost << 2 | hold as u64)
    }

    #[inline(always)]
    pub fn hold(self) -> Hold {
        match self.0 & Grant::HOLD {
            0 => Hold::Block,
            1 => Hold::Asserted,
            _ => Hold::Engine,
        }
    }

    fn recovered(self) -> Option<Rank> {
        (self.0 >> 2).checked_sub(1).map(|rank| Rank(rank as u32))
    }
}

/// How far a lock came at once.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    /// It is held.
    Done,
    /// It may be taken; so far it has come, and the state of the epochs is to be looked at again.
    Lock(Begun),
    /// Nothing is done: somebody must look closer.
    Refused,
}

const NOT_LOCKED: &str = "this rank holds no lock on the target; lock it first";
const NO_LOCKS: &str =
    "the window was made with the hint no_locks; make it without to lock its parts";

impl Core {
    /// Locks a part.
    #[inline(always)]
    pub(super) fn lock(
        &self,
        what: &'static str,
        target: Rank,
        kind: LockKind,
        assertions: Assertions,
    ) -> Result<Grant> {
        // The read-modify-write waits for all stores before it, also for those that keep registers. One
        // function for each kind needs fewer, and fewer still where no thread-local is looked at, which is
        // a call until the program is linked.
        let begun = match kind {
            _ if reentry::is_inside() => Beginning::Refused,
            LockKind::Exclusive => self.begin_exclusive(target, assertions.no_check),
            LockKind::Shared => self.begin_shared(target, assertions.no_check),
        };
        match begun {
            Beginning::Done => Ok(Grant::PLAIN),
            begun => self.go_on_locking(what, target, kind, assertions, begun),
        }
    }

    #[inline(never)]
    fn begin_exclusive(&self, target: Rank, no_check: bool) -> Beginning {
        self.begin_lock(target, no_check, |block| part::begin_exclusive(block, target.0))
    }

    #[inline(never)]
    fn begin_shared(&self, target: Rank, no_check: bool) -> Beginning {
        self.begin_lock(target, no_check, |block| part::begin_shared(block, target.0))
    }

    /// Locks a part that nobody else wants, where nothing needs a closer look; outside of handlers.
    #[inline(always)]
    fn begin_lock(
        &self,
        target: Rank,
        no_check: bool,
        begin: impl FnOnce(&WindowBlock) -> Begun,
    ) -> Beginning {
        let block = &*self.block;
        let plain = self.plain_locks && !no_check && target.0 < block.size();
        if !plain || !self.epochs.is_idle() {
            return Beginning::Refused;
        }
        let begun = begin(block);
        if begun == Begun::Granted && self.epochs.is_noted() {
            return Beginning::Done;
        }
        Beginning::Lock(begun)
    }

    #[cold]
    #[inline(never)]
    fn go_on_locking(
        &self,
        what: &'static str,
        target: Rank,
        kind: LockKind,
        assertions: Assertions,
        beginning: Beginning,
    ) -> Result<Grant> {
        let own = target == self.block.team.rank();
        let begun = match beginning {
            Beginning::Lock(begun) => begun,
            _ => {
                if let Some(grant) = self.lock_elsewhere(what, target, kind, assertions)? {
                    return Ok(grant);
                }
                Begun::Not
            }
        };
        let deadline = self.block.team.deadline();
        let taken = match kind {
            LockKind::Exclusive => part::go_on_exclusive(&*self.block, target.0, begun, deadline)?,
            LockKind::Shared => part::go_on_shared(&*self.block, target.0, begun, deadline)?,
        };
        let Taken::Granted { lost } = taken else { return Err(misuse(what, NESTED)) };
        if let Err(error) = self.epochs.note_lock(what, own) {
            self.unlock_block(target, kind, true)?;
            return Err(error);
        }
        // A rank beyond the team is nothing that a member wrote.
        let recovered = lost.filter(|&rank| rank < self.block.team.size()).map(Rank);
        Ok(Grant::new(Hold::Block, recovered))
    }

    /// Takes a lock that is not one of the block's, if it is to be such a one.
    ///
    /// # Errors
    /// Why this rank may take no lock of that part now.
    fn lock_elsewhere(
        &self,
        what: &'static str,
        target: Rank,
        kind: LockKind,
        assertions: Assertions,
    ) -> Result<Option<Grant>> {
        reentry::refuse_inside(what)?;
        self.check_target(what, target)?;
        let own = target == self.block.team.rank();
        if self.info.no_locks {
            return Err(misuse(what, NO_LOCKS));
        }
        self.epochs.may_lock(what, own)?;
        if self.epochs.listed(target.0).is_some() {
            return Err(misuse(what, NESTED));
        }
        if let Some(engine) = self.engine() {
            let exclusive = kind == LockKind::Exclusive;
            let beside = self.epochs.list(what, target.0, kind, own)?;
            engine
                .lock(target, Locking { exclusive, no_check: assertions.no_check, beside })
                .inspect_err(|_| _ = self.epochs.unlist(target.0))?;
            self.epochs.taken(target.0);
            return Ok(Some(Grant::new(Hold::Engine, None)));
        }
        if assertions.no_check {
            if self.held(target).is_some() {
                return Err(misuse(what, NESTED));
            }
            self.epochs.list(what, target.0, kind, own)?;
            self.epochs.taken(target.0);
            return Ok(Some(Grant::new(Hold::Asserted, None)));
        }
        Ok(None)
    }

    /// Unlocks a part for which nobody waits, and so completes the operations on it, where nothing
    /// needs a closer look. False, and nothing has changed, otherwise; then [`Core::unlock`].
    #[inline(never)]
    pub(super) fn unlock_plainly(&self, target: Rank, kind: LockKind) -> bool {
        self.plain_locks
            && match kind {
                LockKind::Exclusive => part::end_exclusive(&*self.block, target.0),
                LockKind::Shared => part::unlock_shared(&*self.block, target.0),
            }
    }

    /// Completes the operations on a part and unlocks it, as the grant says.
    #[cold]
    #[inline(never)]
    pub(super) fn unlock(
        &self,
        what: &'static str,
        target: Rank,
        kind: LockKind,
        hold: Hold,
    ) -> Result<()> {
        let alive = self.check_alive(target, what);
        let done = match hold {
            // Direct operations are complete by the read-modify-write that gives the lock back.
            Hold::Block => {
                let done = self.complete_away(Some(target));
                self.unlock_block(target, kind, true)?;
                done
            }
            Hold::Asserted => {
                let done = self.complete_operations(Some(target));
                self.epochs.unlist(target.0);
                done
            }
            Hold::Engine => self.unlock_engine(target),
        };
        done.and(alive)
    }

    /// Gives a lock of the block back. `sound`: see [`part::unlock_exclusive`].
    #[inline]
    pub(super) fn unlock_block(&self, target: Rank, kind: LockKind, sound: bool) -> Result<()> {
        let block = &*self.block;
        match kind {
            LockKind::Exclusive if block.lock_of(target.0).is_exclusive_of(block.me()) => {
                part::unlock_exclusive(block, target.0, sound)
            }
            LockKind::Shared if part::unlock_shared(block, target.0) => Ok(()),
            _ => Err(misuse("unlock", NOT_LOCKED)),
        }
    }

    /// Gives a lock back from a thread that panics. Waits for nobody.
    pub(super) fn abandon_lock(&self, target: Rank, kind: LockKind, hold: Hold) {
        match hold {
            // It fails only if a peer overwrote the lock; later uses say so too.
            Hold::Block => drop(self.unlock_block(target, kind, false)),
            Hold::Asserted => _ = self.epochs.unlist(target.0),
            // Not without the answer, or nobody would ever get the lock.
            Hold::Engine => drop(self.unlock_engine(target)),
        }
    }

    /// The engine must get one call for each lock: a second one, of another thread, would end an
    /// epoch of the part that is not the caller's.
    fn unlock_engine(&self, target: Rank) -> Result<()> {
        if !self.epochs.give_back(target.0) {
            return Err(misuse("unlock", NOT_LOCKED));
        }
        let done = self.engine().map_or(Ok(()), |engine| engine.unlock(target));
        self.epochs.unlist(target.0);
        done
    }

    /// Who was lost while it held a part exclusively that this process has locked since.
    pub(super) fn recovered_from(&self, target: Rank, grant: Grant) -> Result<Option<Rank>> {
        match (grant.hold(), self.remote()) {
            (Hold::Engine, Some(engine)) => engine.recovered_from(target),
            _ => Ok(grant.recovered()),
        }
    }

    /// Locks a part for a caller that keeps no guard.
    pub(super) fn lock_listed(
        &self,
        what: &'static str,
        target: Rank,
        kind: LockKind,
        assertions: Assertions,
    ) -> Result<()> {
        let grant = self.lock(what, target, kind, assertions)?;
        if let Some(rank) = grant.recovered() {
            self.epochs.groups().recovered.push((target.0, rank));
        }
        if assertions.concurrent_am {
            self.epochs.groups().concurrent.push(target.0);
        }
        Ok(())
    }

    /// As [`Core::recovered_from`], for a lock without a guard.
    pub(super) fn recovered_listed(
        &self,
        what: &'static str,
        target: Rank,
    ) -> Result<Option<Rank>> {
        self.check_target(what, target)?;
        if self.held(target).is_none() {
            return Err(misuse(what, NOT_LOCKED));
        }
        if let Some(engine) = self.engine() {
            return engine.recovered_from(target);
        }
        let groups = self.epochs.groups();
        Ok(groups.recovered.iter().find(|(part, _)| *part == target.0).map(|(_, rank)| *rank))
    }

    /// As [`Core::unlock`], finding out how the part is held.
    pub(super) fn unlock_found(&self, what: &'static str, target: Rank) -> Result<()> {
        reentry::refuse_inside(what)?;
        self.check_target(what, target)?;
        if self.held(target).is_none() {
            return Err(misuse(what, NOT_LOCKED));
        }
        let alive = self.check_alive(target, what);
        let mut groups = self.epochs.groups();
        groups.recovered.retain(|(part, _)| *part != target.0);
        groups.concurrent.retain(|part| *part != target.0);
        drop(groups);
        if self.engine().is_some() {
            return self.unlock_engine(target).and(alive);
        }
        let done = self.complete_operations(Some(target));
        let given_back = self.epochs.unlist(target.0)
            || part::try_unlock_exclusive(&*self.block, target.0)?
            || part::unlock_shared(&*self.block, target.0);
        if given_back { done.and(alive) } else { Err(misuse(what, NOT_LOCKED)) }
    }

    /// How this process holds the lock of a part; not through [`Core::lock_all`].
    pub(super) fn held(&self, target: Rank) -> Option<LockKind> {
        let block = &*self.block;
        if let Some(kind) = self.epochs.listed(target.0) {
            return Some(kind);
        }
        if block.lock_of(target.0).is_exclusive_of(block.me()) {
            return Some(LockKind::Exclusive);
        }
        block.readers(target.0).contains(block.me()).then_some(LockKind::Shared)
    }

    /// Whether this process holds the lock of any part.
    pub(super) fn holds_any(&self) -> Result<bool> {
        Ok(!self.epochs.groups().lists_none() || part::holds_any(&*self.block)?)
    }

    /// Locks all parts, shared. The word of the state says afterwards whether by a guard.
    pub(super) fn lock_all(
        &self,
        what: &'static str,
        assertions: Assertions,
        guarded: bool,
    ) -> Result<()> {
        reentry::refuse_inside(what)?;
        if self.info.no_locks {
            return Err(misuse(what, NO_LOCKS));
        }
        let block = &*self.block;
        let change =
            self.epochs.open(what, &[NONE, OFFERED], LOCK_ALL, false, || part::holds_any(block))?;
        if let Some(engine) = self.engine() {
            engine.lock_all(assertions.no_check)?;
        } else if !assertions.no_check {
            let taken = part::lock_all(block, block.team.deadline())?;
            if taken == Taken::Already {
                return Err(misuse(what, NESTED));
            }
        }
        change.settle(if guarded { LOCK_ALL | GUARDED } else { LOCK_ALL });
        Ok(())
    }

    /// Completes all operations and unlocks all parts.
    pub(super) fn unlock_all(&self, what: &'static str, guarded: bool) -> Result<()> {
        reentry::refuse_inside(what)?;
        let from = if guarded { LOCK_ALL | GUARDED } else { LOCK_ALL };
        let change = self.epochs.change(what, &[from], NONE)?;
        let done = match self.engine() {
            Some(engine) => engine.unlock_all(),
            None => {
                let done = self.complete_operations(None);
                // Not there if nothing was taken.
                part::unlock_all(&*self.block);
                done
            }
        };
        change.settle(NONE);
        done
    }
}
