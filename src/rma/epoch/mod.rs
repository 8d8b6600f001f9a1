//! Epochs as guards: an operation exists only on an open epoch, and closing the epoch is what
//! dropping its guard does.
//!
//! *Fence* epochs are collective: operations of one phase are complete everywhere before any of
//! the next begins. *Lock-all* epochs are not: the origin completes its own operations with
//! `flush`. In the node an operation has happened at the target when it returns, up to the
//! processor's store buffer; `flush` is the fence that empties that.

mod fence;
mod lock_all;

pub use fence::FenceEpoch;
pub use lock_all::LockAllEpoch;

use super::window::Window;
use crate::layout::Datum;

/// What the caller asserts when it opens an epoch. Wrong assertions give wrong results, not
/// undefined behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assertions {
    /// Active messages of this epoch may run at the same time as others on the same target
    /// (`MPIX_MODE_CONCURRENT_AM` of paper 001 §6.4.5): no lock is taken for them.
    pub concurrent_am: bool,
}

/// An open epoch: where the operations are.
#[derive(Debug)]
pub struct Epoch<'w, T> {
    pub(super) window: &'w Window<T>,
    assertions: Assertions,
}

impl<'w, T: Datum> Epoch<'w, T> {
    /// The window.
    #[inline]
    pub fn window(&self) -> &'w Window<T> {
        self.window
    }

    /// What was asserted when the epoch was opened.
    #[inline]
    pub fn assertions(&self) -> Assertions {
        self.assertions
    }
}
