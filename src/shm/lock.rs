//! Fair, robust queue locks (being built).
use crate::base::sync::{AtomicU32, AtomicU64};

/// One waiter's place in a lock's queue.
#[repr(C, align(64))]
pub struct LockNode {
    /// Wait state and futex word.
    pub state: AtomicU32,
    /// Id of the node ahead.
    pub prev: AtomicU32,
    _pad: [AtomicU64; 7],
}

/// A fair robust lock in shared memory.
#[repr(C, align(8))]
pub struct QueueLock {
    word: AtomicU64,
}
