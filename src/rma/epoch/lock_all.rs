//! Lock-all epochs: access to every part, shared with everybody but exclusive locks.

use super::{Assertions, Epoch, Scope};
use crate::base::stores;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Window;
use std::ops::Deref;

/// Shared locks of all parts. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct LockAllEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
    open: bool,
}

impl<T: Datum> Window<T> {
    /// Locks all parts, shared. Waits until nobody holds one exclusively.
    ///
    /// Cost if nobody does: one atomic read-modify-write, a look at every part's lock, and one
    /// read-modify-write to unlock. Where packets synchronise the members it locks this rank's own part,
    /// and each other target when the first operation goes there.
    ///
    /// # Errors
    /// As [`Window::lock`]; [`crate::Error::Misuse`] also while this rank holds any lock of the
    /// window, [`Window::lock_all`]'s among them: threads share the epoch.
    pub fn lock_all(&self) -> Result<LockAllEpoch<'_, T>> {
        self.lock_all_with(Assertions::default())
    }

    /// As [`Window::lock_all`], with assertions. With [`Assertions::no_check`] nothing is taken.
    pub fn lock_all_with(&self, assertions: Assertions) -> Result<LockAllEpoch<'_, T>> {
        self.core().lock_all("Window::lock_all", assertions, true)?;
        let epoch = Epoch::new(self, assertions, Scope::All);
        Ok(LockAllEpoch { epoch, open: true })
    }
}

impl<T: Datum> LockAllEpoch<'_, T> {
    /// Completes this rank's operations on `target`, at the target.
    ///
    /// Cost: a full fence if this thread has put since its last one (what updates single elements is
    /// one), and the load of a line that only deaths write; by packets it waits for the target's
    /// answers.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if the target is dead. Its memory is still there, but nobody
    /// will look at it.
    #[inline(always)]
    pub fn flush(&self, target: Rank) -> Result<()> {
        // Looked at first: behind the fence the loads would have to wait for it.
        if self.epoch.completes_by_fence(target) {
            stores::complete();
            return Ok(());
        }
        self.epoch.window.core().flush("LockAllEpoch::flush", Some(target), false)
    }

    /// Completes this rank's operations on `target` here: the memory they read and write may be
    /// used again. See [`super::LockEpoch::flush_local`].
    #[inline]
    pub fn flush_local(&self, target: Rank) -> Result<()> {
        self.epoch.window.core().flush("LockAllEpoch::flush_local", Some(target), true)
    }

    /// Completes this rank's operations on every rank. Cost: a full fence at most, as for
    /// [`LockAllEpoch::flush`]. Does not look for dead targets.
    #[inline(always)]
    pub fn flush_all(&self) -> Result<()> {
        if self.epoch.window.is_direct() {
            stores::complete();
            return Ok(());
        }
        self.epoch.window.core().flush("LockAllEpoch::flush_all", None, false)
    }

    /// As [`LockAllEpoch::flush_local`], for every rank.
    #[inline]
    pub fn flush_local_all(&self) -> Result<()> {
        self.epoch.window.core().flush("LockAllEpoch::flush_local_all", None, true)
    }

    /// See [`Window::sync`].
    #[inline]
    pub fn sync(&self) {
        self.epoch.window.sync();
    }

    /// Completes all operations and closes the epoch. Does not look for dead targets that are
    /// mapped.
    ///
    /// # Errors
    /// By packets: [`crate::Error::RankDied`], and what a target refused. The epoch is closed then
    /// too.
    pub fn unlock_all(mut self) -> Result<()> {
        self.close()
    }

    fn close(&mut self) -> Result<()> {
        self.open = false;
        self.epoch.window.core().unlock_all("LockAllEpoch::unlock_all", true)
    }
}

impl<T: Datum> Drop for LockAllEpoch<'_, T> {
    fn drop(&mut self) {
        if self.open {
            // An error also shows in later uses of the window.
            let _ = self.close();
        }
    }
}

impl<'w, T: Datum> Deref for LockAllEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
