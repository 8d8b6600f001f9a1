//! Lock-all epochs: access to every part, synchronised by nobody.

use super::{Assertions, Epoch};
use crate::base::sync::full_fence;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Window;
use std::ops::Deref;

/// Access to every rank's part without synchronising with anybody. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct LockAllEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
}

impl<T: Datum> Window<T> {
    /// Opens a lock-all epoch. Costs nothing in the node: shared locks exclude only exclusive
    /// ones, of which this version has none.
    pub fn lock_all(&self) -> Result<LockAllEpoch<'_, T>> {
        self.lock_all_with(Assertions::default())
    }

    /// As [`Window::lock_all`], with assertions.
    pub fn lock_all_with(&self, assertions: Assertions) -> Result<LockAllEpoch<'_, T>> {
        full_fence();
        Ok(LockAllEpoch { epoch: Epoch { window: self, assertions } })
    }
}

impl<T: Datum> LockAllEpoch<'_, T> {
    /// Completes this rank's operations on `target`, at the target.
    ///
    /// Cost: a full fence and the load of a line that only deaths write.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if the target is dead. Its memory is still there, but nobody
    /// will look at it.
    #[inline]
    pub fn flush(&self, target: Rank) -> Result<()> {
        // Looked at first: behind the fence the load would have to wait for it.
        let alive = self.epoch.window.check_alive(target, "a flush");
        full_fence();
        alive
    }

    /// Completes this rank's operations on every rank. Cost: a full fence. Does not look for dead
    /// targets.
    #[inline]
    pub fn flush_all(&self) -> Result<()> {
        full_fence();
        Ok(())
    }

    /// Completes all operations and closes the epoch.
    pub fn unlock_all(self) -> Result<()> {
        self.flush_all()
    }
}

impl<T: Datum> Drop for LockAllEpoch<'_, T> {
    fn drop(&mut self) {
        full_fence();
    }
}

impl<'w, T: Datum> Deref for LockAllEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
