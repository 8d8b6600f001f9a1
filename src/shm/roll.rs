//! The roll of a block: who may use it, and who does. It lies at the beginning of every block of
//! the commons that several processes share.
//!
//! ```text
//! RollHead   64 B      kind of the block, members
//! rows       8 B x n   slot, presence; rounded up to a line
//!
//! presence   ABSENT --joins--> JOINED --(READY)--> GONE
//! ```
//! A block is held by the members that have joined it and are alive. A member that has not joined
//! does not hold it: when the last holder goes, or dies, the block goes, and whoever comes then is
//! turned away. Presence changes under the lock of the commons, except from JOINED to READY.

use super::crash;
use super::map::Mapping;
use super::region::{SharedLayout, locate};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Offset, Result, Slot};
use std::ptr::NonNull;

/// The member holds the block.
pub const JOINED: u32 = 1;
/// It holds it, and has done what others wait for before they use it.
pub const READY: u32 = 2;
/// It will not use the block any more.
pub const GONE: u32 = 3;

/// Start of the block.
#[repr(C, align(64))]
struct RollHead {
    kind: AtomicU32,
    size: AtomicU32,
    _pad: [AtomicU32; 14],
}

/// One member.
#[repr(C)]
struct Row {
    slot: AtomicU32,
    presence: AtomicU32,
}

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for RollHead {}

const _: () = {
    assert!(size_of::<RollHead>() == 64);
    assert!(size_of::<Row>() == 8);
};

/// A view of a roll: usable as long as the mapping it was opened in.
#[derive(Clone, Copy, Debug)]
pub struct Roll {
    head: NonNull<RollHead>,
    size: u32,
}

// SAFETY: `head` is a shared reference to a structure of atomics.
unsafe impl Send for Roll {}
// SAFETY: as above.
unsafe impl Sync for Roll {}

impl Roll {
    /// Bytes of the roll of `size` members: what else is in the block begins there.
    pub const fn bytes(size: u32) -> u64 {
        (size_of::<RollHead>() as u64 + size_of::<Row>() as u64 * size as u64).next_multiple_of(64)
    }

    /// The roll of `size` members of the block at `at`, bounds checked.
    pub fn view(map: &Mapping, at: Offset, size: u32) -> Result<Roll> {
        Ok(Roll { head: locate(map, at, Self::bytes(size), 64)?.cast(), size })
    }

    /// The roll of the `len` bytes at `at`, as it says itself; an error if it cannot be right.
    pub fn open(map: &Mapping, at: Offset, len: u64) -> Result<Roll> {
        let size = Self::view(map, at, 0)?.head().size.load(Ordering::Acquire);
        if size == 0 || size > u32::from(u16::MAX) || Self::bytes(size) > len {
            return Err(Error::Incompatible {
                what: "a block of a team or a window",
                why: format!("{size} members of {len} bytes at {at}; end the job"),
            });
        }
        Self::view(map, at, size)
    }

    /// Writes a fresh roll, on which `me` has joined.
    pub fn write(&self, kind: u32, members: impl Iterator<Item = Slot>, me: u32) {
        for (rank, slot) in (0..self.size).zip(members) {
            self.row(rank).slot.store(u32::from(slot.0), Ordering::Relaxed);
        }
        crash::point();
        self.row(me).presence.store(JOINED, Ordering::Relaxed);
        self.head().kind.store(kind, Ordering::Relaxed);
        crash::point();
        self.head().size.store(self.size, Ordering::Release);
    }

    fn head(&self) -> &RollHead {
        // SAFETY: `view` checked it, and the mapping lives.
        unsafe { self.head.as_ref() }
    }

    /// Ranks beyond the roll fold onto rank 0.
    #[inline]
    fn row(&self, rank: u32) -> &Row {
        let rank = if rank < self.size { rank as usize } else { 0 };
        // SAFETY: rank < size, so the row lies inside of what `view` checked.
        unsafe { self.head.add(1).cast::<Row>().add(rank).as_ref() }
    }

    /// What kind of block it is, as whoever made it says.
    pub fn kind(&self) -> u32 {
        self.head().kind.load(Ordering::Relaxed)
    }

    /// Members.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The slot of a member, as the block's maker wrote it: not checked.
    #[inline]
    pub fn slot(&self, rank: u32) -> u32 {
        self.row(rank).slot.load(Ordering::Relaxed)
    }

    /// Where the process at `slot` stands.
    pub fn rank_of(&self, slot: Slot) -> Option<u32> {
        (0..self.size).find(|&rank| self.slot(rank) == u32::from(slot.0))
    }

    /// How far a member is: 0, [`JOINED`], [`READY`] or [`GONE`].
    #[inline]
    pub fn presence(&self, rank: u32) -> u32 {
        self.row(rank).presence.load(Ordering::Acquire)
    }

    /// Notes how far a member is.
    pub fn note(&self, rank: u32, presence: u32) {
        crash::point();
        self.row(rank).presence.store(presence, Ordering::Release);
        crash::point();
    }

    /// Whether a member that has joined is not gone; `gone` says of a slot whether it is dead.
    pub fn is_held(&self, gone: impl Fn(Slot) -> bool) -> bool {
        (0..self.size).any(|rank| {
            matches!(self.presence(rank), JOINED | READY) && !gone(Slot(self.slot(rank) as u16))
        })
    }
}
