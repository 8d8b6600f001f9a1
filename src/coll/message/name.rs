//! From whom, which, and what came.

use crate::base::Rank;
use crate::p2p::Arrived;

/// Any source, or any tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Any;

/// Whose messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those of this rank.
    Rank(Rank),
    /// Every member's.
    Any,
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Source {
        Source::Rank(rank)
    }
}

impl From<Any> for Source {
    fn from(_: Any) -> Source {
        Source::Any
    }
}

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Those with this tag.
    Exactly(u32),
    /// Whatever their tag.
    Any,
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Tag {
        Tag::Exactly(tag)
    }
}

impl From<Any> for Tag {
    fn from(_: Any) -> Tag {
        Tag::Any
    }
}

/// What is known of a message that was received, or that waits to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who sent it.
    pub source: Rank,
    /// Its tag.
    pub tag: u32,
    /// Whole elements that it has, of the type of the call.
    pub elements: usize,
    /// Bytes that it has.
    pub bytes: usize,
}

impl Status {
    /// Of a message whose sender is known to be a member, counted in units of so many bytes.
    #[inline(always)]
    pub(super) fn of(arrived: Arrived, unit: usize) -> Status {
        let (source, bytes) = (Rank(arrived.rank), arrived.bytes);
        let elements = bytes.checked_div(unit).unwrap_or(0);
        Status { source, tag: arrived.tag, elements, bytes }
    }
}
