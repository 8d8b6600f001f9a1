//! Exposure epochs: the target's side of the synchronisation of groups.

use super::Assertions;
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Window;

/// This rank's part, exposed to a group.
///
/// Dropping it waits for the group, unless the thread panics.
#[derive(Debug)]
pub struct ExposureEpoch<'w, T: Datum> {
    window: &'w Window<T>,
    open: bool,
}

impl<T: Datum> Window<T> {
    /// Exposes this rank's part to `origins`, each of which calls [`Window::start`] with this rank
    /// in its group. Does not wait. `origins` may be empty and may contain this rank.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] while this part is exposed or this rank has it locked, or a fence
    /// or lock-all epoch of the window is open in this process; [`crate::Error::InvalidArgument`] if the
    /// group names a rank twice or one that is none.
    pub fn post(&self, origins: &[Rank]) -> Result<ExposureEpoch<'_, T>> {
        self.post_with(origins, Assertions::default())
    }

    /// As [`Window::post`], with assertions. With [`Assertions::no_check`] nobody is told.
    pub fn post_with(
        &self,
        origins: &[Rank],
        assertions: Assertions,
    ) -> Result<ExposureEpoch<'_, T>> {
        self.core().post("Window::post", origins, assertions, true)?;
        Ok(ExposureEpoch { window: self, open: true })
    }
}

impl<T: Datum> ExposureEpoch<'_, T> {
    /// Waits until all origins have completed their accesses, which can be seen in the part then. One
    /// that gives its access epoch up, dies, or drops the window is not waited for any longer.
    ///
    /// # Errors
    /// With each of these the others have completed, the part is covered and can be exposed
    /// again: [`crate::Error::RankDied`] if an origin died before it completed, or gave up because
    /// of a death, which is named; [`crate::Error::PeerFailed`] if one gave up because its deadline
    /// had passed; [`crate::Error::Misuse`] if one dropped the window.
    /// [`crate::Error::TimedOut`] names those that have not completed: the part stays exposed, and
    /// [`crate::rma::Unguarded::test`] and [`crate::rma::Unguarded::wait`] go on with it.
    pub fn wait(mut self) -> Result<()> {
        self.close()
    }

    /// Whether all origins have completed their accesses. If so, the epoch is over. Never waits.
    ///
    /// # Errors
    /// As [`ExposureEpoch::wait`].
    pub fn test(&mut self) -> Result<bool> {
        if self.open {
            let over = self.window.core().exposure_over("ExposureEpoch::test", false, true);
            self.open = matches!(over, Ok(false));
            over
        } else {
            Ok(true)
        }
    }

    fn close(&mut self) -> Result<()> {
        if std::mem::take(&mut self.open) {
            self.window.core().exposure_over("ExposureEpoch::wait", true, true)?;
        }
        Ok(())
    }
}

impl<T: Datum> Drop for ExposureEpoch<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if self.open {
                self.window.core().leave_exposed("ExposureEpoch::drop");
            }
        } else {
            // Who died shows in the next synchronisation with it.
            let _ = self.close();
        }
    }
}
