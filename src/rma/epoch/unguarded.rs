//! Epochs without guards, for programs that open and close them in places that do not nest, and
//! for those that were written for MPI.

use super::super::core::Core;
use super::state::{FENCE, NONE, OFFERED};
use super::{Assertions, Epoch, LockKind, Scope, misuse};
use crate::base::{Rank, Result, reentry};
use crate::layout::Datum;
use crate::rma::Window;

/// A window whose epochs are opened and closed by calls. See [`Window::unguarded`].
///
/// What MPI calls erroneous is [`crate::Error::Misuse`] here, says what to do, and changes
/// nothing: an epoch opened while one is open that excludes it, one closed that is not open, a lock
/// taken twice, an operation on a target that no epoch covers. The state is the window's own, in
/// this process: guards and calls respect each other, but an epoch that a guard opened is closed
/// by that guard.
#[derive(Clone, Copy, Debug)]
pub struct Unguarded<'w, T> {
    window: &'w Window<T>,
}

impl<T: Datum> Window<T> {
    /// The window's epochs as calls instead of guards.
    pub fn unguarded(&self) -> Unguarded<'_, T> {
        Unguarded { window: self }
    }
}

impl<'w, T: Datum> Unguarded<'w, T> {
    #[inline]
    fn core(&self) -> &'w Core {
        self.window.core()
    }

    /// Operations on `target`, which an open epoch must cover; each of them looks again. What the
    /// epoch asserts of active messages holds for them.
    ///
    /// After a fence that did not assert [`Assertions::no_succeed`], this is what makes a fence
    /// epoch of what follows; until then `start`, `lock` and the like may follow as well.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] if no epoch covers the target.
    pub fn epoch(&self, target: Rank) -> Result<Epoch<'w, T>> {
        const WHAT: &str = "Unguarded::epoch";
        let core = self.core();
        reentry::refuse_inside(WHAT)?;
        core.check_target(WHAT, target)?;
        if !core.covers(target) {
            let why = format!("no open epoch covers rank {target}; open one that does first");
            return Err(misuse(WHAT, why));
        }
        let concurrent_am = core.epochs.is_concurrent(target.0);
        let assertions = Assertions { concurrent_am, ..Assertions::default() };
        Ok(Epoch::new(self.window, assertions, Scope::Unguarded(target)))
    }

    /// Ends the fence epoch that is open, if one is, and opens another unless it asserts
    /// [`Assertions::no_succeed`]. Collective. Errors as [`Window::fence`].
    pub fn fence(&self, assertions: Assertions) -> Result<()> {
        let from = [NONE, OFFERED, FENCE];
        let done = self.core().fence("Unguarded::fence", &from, assertions, OFFERED);
        // What a fence reports need not keep it from opening an epoch.
        if matches!(self.core().epochs.access(), FENCE | OFFERED) {
            self.core().epochs.assert_concurrent(assertions.concurrent_am);
        }
        done
    }

    /// Exposes this rank's part to `origins`. As [`Window::post`].
    pub fn post(&self, origins: &[Rank], assertions: Assertions) -> Result<()> {
        self.core().post("Unguarded::post", origins, assertions, false)
    }

    /// Opens access to `targets`. As [`Window::start`].
    pub fn start(&self, targets: &[Rank], assertions: Assertions) -> Result<()> {
        self.core().start("Unguarded::start", targets, assertions, false)?;
        self.core().epochs.assert_concurrent(assertions.concurrent_am);
        Ok(())
    }

    /// Ends what `start` opened. As [`super::AccessEpoch::complete`].
    pub fn complete(&self) -> Result<()> {
        self.core().complete("Unguarded::complete", false)
    }

    /// Ends what `post` opened, or what is left of an exposure whose wait timed out. As
    /// [`super::ExposureEpoch::wait`]; after [`crate::Error::TimedOut`] it can be called again.
    pub fn wait(&self) -> Result<()> {
        self.core().exposure_over("Unguarded::wait", true, false).map(drop)
    }

    /// Whether what `post` opened is over; if so it has ended. As [`super::ExposureEpoch::test`].
    pub fn test(&self) -> Result<bool> {
        self.core().exposure_over("Unguarded::test", false, false)
    }

    /// Locks a part. As [`Window::lock`].
    pub fn lock(&self, target: Rank, kind: LockKind, assertions: Assertions) -> Result<()> {
        self.core().lock_listed("Unguarded::lock", target, kind, assertions)
    }

    /// Who was lost while it held a part exclusively that this rank has locked by
    /// [`Unguarded::lock`] since. See [`super::LockEpoch::recovered_from`].
    pub fn recovered_from(&self, target: Rank) -> Result<Option<Rank>> {
        self.core().recovered_listed("Unguarded::recovered_from", target)
    }

    /// Completes the operations on a part and unlocks it. As [`super::LockEpoch::unlock`].
    pub fn unlock(&self, target: Rank) -> Result<()> {
        self.core().unlock_found("Unguarded::unlock", target)
    }

    /// Locks all parts, shared. As [`Window::lock_all`].
    pub fn lock_all(&self, assertions: Assertions) -> Result<()> {
        self.core().lock_all("Unguarded::lock_all", assertions, false)?;
        self.core().epochs.assert_concurrent(assertions.concurrent_am);
        Ok(())
    }

    /// Completes all operations and unlocks all parts.
    pub fn unlock_all(&self) -> Result<()> {
        self.core().unlock_all("Unguarded::unlock_all", false)
    }

    /// Completes this rank's operations on `target`, there, within a lock. As
    /// [`super::LockAllEpoch::flush`].
    pub fn flush(&self, target: Rank) -> Result<()> {
        self.flushed("Unguarded::flush", Some(target), false)
    }

    /// As [`super::LockAllEpoch::flush_local`].
    pub fn flush_local(&self, target: Rank) -> Result<()> {
        self.flushed("Unguarded::flush_local", Some(target), true)
    }

    /// Completes this rank's operations on all targets that it has locked, there.
    pub fn flush_all(&self) -> Result<()> {
        self.flushed("Unguarded::flush_all", None, false)
    }

    /// As [`super::LockAllEpoch::flush_local_all`].
    pub fn flush_local_all(&self) -> Result<()> {
        self.flushed("Unguarded::flush_local_all", None, true)
    }

    fn flushed(&self, what: &'static str, target: Option<Rank>, local: bool) -> Result<()> {
        if let Some(target) = target {
            self.core().check_target(what, target)?;
        }
        self.core().check_passive(what, target)?;
        self.core().flush(what, target, local)
    }

    /// See [`Window::sync`].
    pub fn sync(&self) {
        self.window.sync();
    }
}
