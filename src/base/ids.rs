//! The identifiers that cross room borders, as types, so that a rank is never taken for an
//! offset or a slot.

use std::fmt;

/// Position of a process in a team (or in the job, which is the first team): `0..size`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for Rank {
    fn from(value: u32) -> Self {
        Rank(value)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of a process on this node. Those of the node's own processes are their positions in
/// the tables of its segment; those of other nodes' processes follow behind, see
/// [`crate::topo::Placement`]. The processes of a node agree on it, those of different nodes do
/// not. A process keeps its slot for as long as it lives; teams map their ranks to slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A distance in bytes from the start of a mapping. Shared layouts hold these, never addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Offset(pub u64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
