//! Two first-fit heaps over offsets: the symmetric heap (one offset is valid in every slot's
//! stride) and the commons (blocks that belong to teams).
//!
//! The state is a table of extents in the segment, guarded by a robust lock. An extent counts as
//! allocated once its `len` is non-zero, which is the last thing an allocation stores and the
//! first thing a free clears: a process killed anywhere in between leaves a consistent table, and
//! at worst an entry that nobody uses.

use super::lock::QueueLock;
use super::region::SharedLayout;
use crate::base::sync::AtomicU64;

/// Most allocations of one heap at a time.
pub const MAX_EXTENTS: usize = 4095;

/// One allocation.
#[repr(C, align(16))]
pub struct Extent {
    offset: AtomicU64,
    len: AtomicU64,
}

/// The state of one heap.
#[repr(C, align(64))]
pub struct ExtentTable {
    lock: QueueLock,
    _pad: [AtomicU64; 1],
    extents: [Extent; MAX_EXTENTS],
}

const _: () = assert!(size_of::<ExtentTable>() == 64 << 10);

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for ExtentTable {}
