//! Fence epochs: collective phases.

use super::{Assertions, Epoch};
use crate::base::Result;
use crate::base::sync::full_fence;
use crate::layout::Datum;
use crate::rma::Window;
use std::ops::Deref;

/// A sequence of fence phases. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct FenceEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
    open: bool,
}

impl<T: Datum> Window<T> {
    /// Opens a fence epoch. Collective: a barrier.
    pub fn fence(&self) -> Result<FenceEpoch<'_, T>> {
        self.fence_with(Assertions::default())
    }

    /// As [`Window::fence`], with assertions.
    pub fn fence_with(&self, assertions: Assertions) -> Result<FenceEpoch<'_, T>> {
        full_fence();
        self.team().barrier()?;
        Ok(FenceEpoch { epoch: Epoch { window: self, assertions }, open: true })
    }
}

impl<T: Datum> FenceEpoch<'_, T> {
    /// Ends this phase and begins the next: every operation of every member in this phase is
    /// complete when it returns. Collective: a barrier.
    #[expect(clippy::should_implement_trait, reason = "the next phase, not the next item")]
    pub fn next(&mut self) -> Result<()> {
        full_fence();
        self.epoch.window.team().barrier()
    }

    /// Ends the epoch. Collective: a barrier.
    pub fn end(mut self) -> Result<()> {
        self.open = false;
        self.next()
    }
}

impl<T: Datum> Drop for FenceEpoch<'_, T> {
    fn drop(&mut self) {
        // An error (a dead member) also shows in the next collective of the team. While this
        // thread unwinds, waiting for the others could only hang them.
        if self.open && !std::thread::panicking() {
            let _ = self.next();
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
