//! Lock epochs: access to one part, shared with others that lock it shared, or alone.

use super::passive::{Grant, Hold};
use super::{Assertions, Epoch, LockKind, Scope};
use crate::base::stores;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Window;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A held lock of one part. Dereferences to [`Epoch`].
///
/// Dropping it unlocks the part, also while the thread panics; an exclusive lock counts as lost
/// then (see [`LockEpoch::recovered_from`]; where locks are taken by packets, only the death of a
/// rank counts as that).
#[derive(Debug)]
pub struct LockEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
    target: Rank,
    kind: LockKind,
    grant: Grant,
}

impl<T: Datum> Window<T> {
    /// Locks `target`'s part. Waits until the lock is granted: exclusive locks exclude all other
    /// locks of the part, by [`Window::lock_all`] too; shared ones only exclusive ones. Who finds
    /// the part locked tries again for some µs, then stands in line: nobody overtakes who stands in
    /// line, readers neither. So whoever holds the locks of several parts at a time must take them
    /// in an order that all follow.
    ///
    /// Cost if nobody else wants the part: one atomic read-modify-write, and one to unlock.
    ///
    /// Where packets synchronise the members it waits only for the lock of this rank's own part; otherwise
    /// operations wait for the grant, and so does [`LockEpoch::recovered_from`]. There, shared locks may be
    /// taken beside others in any order, and beside lock-all epochs, which take theirs as they need them;
    /// a thread that holds locks should not ask for an exclusive one beside a lock-all epoch of another
    /// rank.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] if an epoch that excludes locks is open, this rank has locked the
    /// part already, or the window was made with `no_locks`; [`crate::Error::TimedOut`] names who
    /// holds the lock. The death of holders and waiters is none: see
    /// [`LockEpoch::recovered_from`]. A dead target's part can be locked where it is mapped; where
    /// it is reached by packets, that is [`crate::Error::RankDied`].
    #[inline(always)]
    pub fn lock(&self, target: Rank, kind: LockKind) -> Result<LockEpoch<'_, T>> {
        self.lock_with(target, kind, Assertions::default())
    }

    /// As [`Window::lock`], with assertions. With [`Assertions::no_check`] nothing is taken.
    #[inline(always)]
    pub fn lock_with(
        &self,
        target: Rank,
        kind: LockKind,
        assertions: Assertions,
    ) -> Result<LockEpoch<'_, T>> {
        let grant = self.core().lock("Window::lock", target, kind, assertions)?;
        let epoch = Epoch::new(self, assertions, Scope::One(target, kind));
        Ok(LockEpoch { epoch, target, kind, grant })
    }
}

impl<T: Datum> LockEpoch<'_, T> {
    /// Whose part is locked.
    pub fn target(&self) -> Rank {
        self.target
    }

    /// How it is locked.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// The rank that was lost while it held this part exclusively: it died, or panicked. What it
    /// was changing may be half-changed, so look at the data, and repair them under an exclusive
    /// lock. All who are granted the lock are told, up to and including the first that is granted it
    /// exclusively; after that the part counts as sound.
    ///
    /// Where locks are taken by packets this waits for the grant, and errors show at the next
    /// flush.
    pub fn recovered_from(&self) -> Option<Rank> {
        let core = self.epoch.window.core();
        core.recovered_from(self.target, self.grant).ok().flatten()
    }

    /// Completes this rank's operations on the target, there. Cost: a full fence if this
    /// thread has put since its last one (what updates single elements is one), and a load of a line that
    /// only deaths write; by packets it waits for the target's answers.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if the target is dead. Its memory is still there, but nobody
    /// will look at it.
    #[inline(always)]
    pub fn flush(&self) -> Result<()> {
        if self.epoch.completes_by_fence(self.target) {
            stores::complete();
            return Ok(());
        }
        self.epoch.window.core().flush("LockEpoch::flush", Some(self.target), false)
    }

    /// Completes this rank's operations on the target here: the memory they read and write may be
    /// used again. That is so already when an operation returns; it is for programs that were
    /// written for MPI.
    #[inline]
    pub fn flush_local(&self) -> Result<()> {
        self.epoch.window.core().flush("LockEpoch::flush_local", Some(self.target), true)
    }

    /// Completes the operations and unlocks the part.
    ///
    /// # Errors
    /// As [`LockEpoch::flush`]; the part is unlocked then too.
    #[inline(always)]
    pub fn unlock(self) -> Result<()> {
        // Nothing in it needs to be dropped but the lock, and that is given back here; telling its
        // drop so by a flag would move the guard to memory first.
        ManuallyDrop::new(self).close()
    }

    #[inline(always)]
    fn close(&self) -> Result<()> {
        let (window, hold) = (self.epoch.window, self.grant.hold());
        let core = window.core();
        if hold == Hold::Block && window.all_live() && core.unlock_plainly(self.target, self.kind) {
            return Ok(());
        }
        core.unlock("LockEpoch::unlock", self.target, self.kind, hold)
    }
}

impl<T: Datum> Drop for LockEpoch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let core = self.epoch.window.core();
            core.abandon_lock(self.target, self.kind, self.grant.hold());
        } else {
            // An error also shows in later uses of the lock or the target.
            let _ = self.close();
        }
    }
}

impl<'w, T: Datum> Deref for LockEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
