//! Why a target did not carry an operation out: how it travels, and the error it becomes.

use super::distrust::Distrust;
use crate::base::{Error, Rank};
use crate::rma::block::WindowBlock;
use crate::rma::foreign::{CLOSED, NOBODY};
pub(super) use crate::rma::remote::gone;
use crate::rma::runtime::{Fault, Trouble};
use crate::shm::node::Node;

const OUT_OF_BOUNDS: u16 = 1;
const MALFORMED: u16 = 3;
const MISALIGNED: u16 = 4;
const REFUSED: u16 = 5;
const DISTRUSTED: u16 = 6;

/// The bytes `start..end` lie outside of the `len` there are; told in elements.
pub(super) fn out_of_bounds(start: u64, end: u64, len: u64, element: u32) -> Fault {
    let size = u64::from(element.max(1));
    Fault { code: OUT_OF_BOUNDS, details: [start / size, end.div_ceil(size), len / size] }
}

/// The target has dropped the window.
pub(super) fn closed() -> Fault {
    Fault { code: CLOSED, details: [0; 3] }
}

/// The target has nobody for operations that are not one-sided.
pub(super) fn nobody() -> Fault {
    Fault { code: NOBODY, details: [0; 3] }
}

/// The packet made no sense; `why` tells the places in the code apart.
pub(super) fn malformed(why: u64) -> Fault {
    Fault { code: MALFORMED, details: [why, 0, 0] }
}

/// Nothing that the origin sends is believed any more.
pub(super) fn distrusted() -> Fault {
    Fault { code: DISTRUSTED, details: [0; 3] }
}

/// Whether it says so.
pub(super) fn is_distrusted(fault: &Fault) -> bool {
    fault.code == DISTRUSTED
}

/// Elements are not where they can be updated atomically.
pub(super) fn misaligned() -> Fault {
    Fault { code: MISALIGNED, details: [0; 3] }
}

/// The target could not do it; the slot plus one of a dead process, if that is why.
pub(super) fn refused(slot: u64) -> Fault {
    Fault { code: REFUSED, details: [slot, 0, 0] }
}

/// The error that a fault of `target` becomes.
pub(super) fn error(what: &'static str, target: Rank, fault: Fault) -> Error {
    let [a, b, c] = fault.details;
    match fault.code {
        OUT_OF_BOUNDS => Error::OutOfBounds { what, rank: target, start: a, end: b, len: c },
        CLOSED => gone(what, target),
        NOBODY => Error::Misuse {
            what,
            why: format!(
                "rank {target} is not prepared for active messages on this window; register \
                 handlers at all ranks, and wait until that has returned"
            ),
        },
        MISALIGNED => Error::invalid(
            what,
            "the target's elements are not aligned to their size; accumulates update whole, \
             aligned elements",
        ),
        REFUSED if a > 0 => Error::invalid(
            what,
            format!("rank {target} could not carry it out: rank {} died in an update of it", a - 1),
        ),
        _ => Error::Incompatible {
            what: "a packet of a one-sided operation",
            why: format!("rank {target} refused it in {what} (code {}, {a})", fault.code),
        },
    }
}

/// The error that `trouble` stands for.
pub(super) fn trouble_of(
    node: &Node,
    block: &WindowBlock,
    distrust: &Distrust,
    during: &'static str,
    trouble: Trouble,
) -> Error {
    // Who has dropped a window of which a member died did so because of that.
    let dropped = |rank| {
        let members = block.team.ranks().filter_map(|rank| block.team.slot_of(rank).ok());
        match (block.cause_of(rank), node.check(members, during)) {
            (Some(slot), _) => node.died(slot, during),
            (None, Err(error @ Error::RankDied { .. })) => error,
            _ => gone(during, Rank(rank)),
        }
    };
    match trouble {
        Trouble::Dead(rank) => match block.team.slot_of(Rank(rank)) {
            Ok(slot) if node.is_dead(slot) => node.died(slot, during),
            Ok(slot) => distrust.error(slot).unwrap_or_else(|| dropped(rank)),
            Err(unknown) => unknown,
        },
        Trouble::Remote(rank, fault) if fault.code == CLOSED => dropped(rank),
        Trouble::Remote(rank, fault) => error(during, Rank(rank), fault),
        Trouble::Misuse(why) => Error::Misuse { what: during, why: why.into() },
    }
}
