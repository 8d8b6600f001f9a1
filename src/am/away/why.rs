//! Why a target could not do what an origin wanted: numbers on their way, and the errors that they
//! become.

use super::WHAT;
use crate::base::{Error, Rank};
use crate::rma::remote::gone;
use crate::rma::runtime::Fault;

/// Code of faults by which a target refuses a request that makes no sense.
pub(super) const REFUSED: u16 = 100;

// Why a target could not run a unit.
pub(super) const UNUSABLE: u32 = 1;
pub(super) const OUT_OF_BOUNDS: u32 = 2;
pub(super) const TOO_MANY: u32 = 3;
pub(super) const LOCKED: u32 = 4;
pub(super) const NO_ROOM: u32 = 5;
/// It has dropped the window.
pub(super) const GONE: u32 = 6;
/// The library itself panicked.
pub(super) const BROKEN: u32 = 7;
/// It is not prepared for messages on the window.
pub(super) const UNPREPARED: u32 = 8;

/// The answer to a request that makes no sense; `why` tells the places in the code apart.
pub(super) fn fault(why: u64) -> Fault {
    Fault { code: REFUSED, details: [why, 0, 0] }
}

/// The error that a target's number stands for.
#[cold]
pub(super) fn failed(target: Rank, index: u32, why: u32) -> Error {
    match why {
        UNUSABLE => Error::invalid(
            WHAT,
            format!(
                "handler {index} at rank {target} cannot be called with these layouts; register \
                 equivalent handlers at all ranks"
            ),
        ),
        OUT_OF_BOUNDS => Error::invalid(
            WHAT,
            format!(
                "the persistent range does not lie in rank {target}'s part (any more), or not all \
                 of the elements that handler {index} can reach"
            ),
        ),
        TOO_MANY => Error::Misuse {
            what: WHAT,
            why: format!(
                "handler {index} counted more entries of output in a segment than it has room for; \
                 count what was written"
            ),
        },
        LOCKED => Error::invalid(
            WHAT,
            format!("rank {target} did not get the turn on its part before its deadline"),
        ),
        NO_ROOM => Error::invalid(
            WHAT,
            format!(
                "rank {target} has no memory to stage it; lower HITHER_AM_SYSTEM_BUFFER, or free \
                 memory there"
            ),
        ),
        GONE => gone(WHAT, target),
        BROKEN => Error::Incompatible {
            what: "the packet path of a rank",
            why: format!(
                "the library at rank {target} panicked while it ran a unit of handler {index}, \
                 which is a bug: please report it"
            ),
        },
        UNPREPARED => Error::Misuse {
            what: WHAT,
            why: format!(
                "rank {target} is not prepared for messages on this window; register handlers at \
                 all ranks, and wait until that has returned"
            ),
        },
        other => Error::Incompatible {
            what: "a packet of an active message",
            why: format!(
                "rank {target} refused it ({other}); are the window's hints the same at all ranks?"
            ),
        },
    }
}
