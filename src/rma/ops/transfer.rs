//! An operation without its element type: what the general path carries out, whichever way the
//! target's memory is reached.

use crate::layout::Op;

/// What an operation does with the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Origin to target.
    Put,
    /// Target to result.
    Get,
    /// `target = target OP origin`, each element atomically.
    Accumulate(Op),
    /// The same, with what was there to result.
    GetAccumulate(Op),
    /// `target = origin` if it equals `compare`, with what was there to result. One element.
    CompareSwap,
}
