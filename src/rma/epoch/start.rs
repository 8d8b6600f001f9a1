//! Access epochs: the origin's side of the synchronisation of groups.

use super::{Assertions, Epoch, Scope};
use crate::base::{Rank, Result};
use crate::layout::Datum;
use crate::rma::Window;
use std::ops::Deref;

/// Access to the parts of a group that has exposed them. Dereferences to [`Epoch`].
#[derive(Debug)]
pub struct AccessEpoch<'w, T: Datum> {
    epoch: Epoch<'w, T>,
    open: bool,
}

impl<T: Datum> Window<T> {
    /// Opens an access epoch to the parts of `targets`. Waits until each of them has called
    /// [`Window::post`] with this rank in its group; where packets synchronise the members, operations wait
    /// for that instead. `targets` may be empty and may contain this rank.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] while another access epoch, or a lock, of this window is open in
    /// this process; [`crate::Error::InvalidArgument`] if the group names a rank twice or one that
    /// is none; [`crate::Error::RankDied`] if a target died before it posted; [`crate::Error::Misuse`] if
    /// one has dropped the window; [`crate::Error::TimedOut`] names those that have not posted.
    ///
    /// After an error no epoch is open, and the targets that had posted are told: their exposures
    /// end with an error, and they have to post again for the next call. Those that had not posted
    /// are told when they do, unless it was for the deadline: then their posts are for the next
    /// call.
    pub fn start(&self, targets: &[Rank]) -> Result<AccessEpoch<'_, T>> {
        self.start_with(targets, Assertions::default())
    }

    /// As [`Window::start`], with assertions. With [`Assertions::no_check`] it waits for nobody.
    pub fn start_with(
        &self,
        targets: &[Rank],
        assertions: Assertions,
    ) -> Result<AccessEpoch<'_, T>> {
        let group = self.core().start("Window::start", targets, assertions, true)?;
        let epoch = Epoch::new(self, assertions, Scope::Group(group));
        Ok(AccessEpoch { epoch, open: true })
    }
}

impl<T: Datum> AccessEpoch<'_, T> {
    /// Completes this epoch's operations, at the targets, and tells those. Does not wait for them.
    ///
    /// # Errors
    /// [`crate::Error::RankDied`] if a target is known to be dead. The epoch is closed then too.
    /// Where packets synchronise the members and some target has not posted, that ends the epoch without
    /// it, as [`Window::start`] would have ended; [`crate::Error::TimedOut`] names such targets, too:
    /// no operation was done there, while the others get all that was meant for them.
    pub fn complete(mut self) -> Result<()> {
        self.close()
    }

    fn close(&mut self) -> Result<()> {
        self.open = false;
        self.epoch.window.core().complete("AccessEpoch::complete", true)
    }
}

impl<T: Datum> Drop for AccessEpoch<'_, T> {
    fn drop(&mut self) {
        if self.open {
            // Also while the thread panics: the targets wait for it.
            let _ = self.close();
        }
    }
}

impl<'w, T: Datum> Deref for AccessEpoch<'w, T> {
    type Target = Epoch<'w, T>;
    #[inline(always)]
    fn deref(&self) -> &Epoch<'w, T> {
        &self.epoch
    }
}
