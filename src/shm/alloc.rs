//! The node's two heaps, as its processes use them: symmetric memory (one offset, valid in every
//! slot's stride) and the commons (blocks that belong to teams and windows).
//!
//! Allocation takes addresses only; whoever uses a range reserves its pages. Freeing gives the
//! pages back as well, so that a fresh block reads as zeros.

use super::heap::{ExtentTable, Heap};
use super::map::{PAGE, round_up};
use super::node::Node;
use super::region::SharedRef;
use super::segment::HUGE_PAGE;
use crate::base::{Deadline, Offset, Result, Slot};
use std::time::Duration;

/// Longest wait for a heap's lock. It is held for microseconds; whoever dies with it is noticed.
const PATIENCE: Duration = Duration::from_secs(30);
/// From this size on, symmetric memory is aligned so that huge pages can back it.
const HUGE_FROM: u64 = 4 * HUGE_PAGE;

#[derive(Clone, Copy)]
enum Which {
    Symmetric = 0,
    Commons = 1,
}

impl Node {
    fn with_heap<R>(&self, which: Which, run: impl FnOnce(Heap<'_>) -> Result<R>) -> Result<R> {
        let table: SharedRef<ExtentTable> =
            SharedRef::new(self.mapping(), self.areas().extents(which as usize))?;
        run(match which {
            Which::Symmetric => Heap::new(&table, self.areas().stride, "symmetric memory"),
            Which::Commons => Heap::new(&table, self.areas().commons().1, "the node's commons"),
        })
    }

    /// Takes an address range of `len` bytes in every slot's symmetric memory; returns its offset
    /// within a stride.
    pub fn alloc_symmetric(&self, len: u64) -> Result<u64> {
        let align = if len >= HUGE_FROM { HUGE_PAGE } else { PAGE };
        let deadline = Deadline::after(PATIENCE);
        // Whole pages: pages are given back when the range is freed.
        let len = round_up(len.min(self.areas().stride), PAGE);
        let take = |heap: Heap<'_>| heap.alloc(self, len, align, deadline);
        self.with_heap(Which::Symmetric, take).map(|at| at.0)
    }

    /// Frees a range of symmetric memory and its pages in the strides of `slots`.
    pub fn free_symmetric(&self, at: u64, slots: impl Iterator<Item = Slot>) -> Result<()> {
        let deadline = Deadline::after(PATIENCE);
        // The pages first: as soon as the range is free, another window may use it.
        let len = self.with_heap(Which::Symmetric, |heap| heap.length_at(Offset(at)))?;
        for slot in slots {
            self.release(Offset(self.areas().heap(slot).0 + at), len);
        }
        self.with_heap(Which::Symmetric, |heap| heap.free(self, Offset(at), deadline))?;
        Ok(())
    }

    /// Takes a block of `len` bytes of the commons; its pages read as zeros.
    pub fn alloc_commons(&self, len: u64) -> Result<Offset> {
        let deadline = Deadline::after(PATIENCE);
        let len = round_up(len, PAGE);
        let take = |heap: Heap<'_>| heap.alloc(self, len, PAGE, deadline);
        let at = self.with_heap(Which::Commons, take)?;
        Ok(Offset(self.areas().commons().0.0 + at.0))
    }

    /// Frees a block of the commons and its pages.
    pub fn free_commons(&self, at: Offset) -> Result<()> {
        let deadline = Deadline::after(PATIENCE);
        let within = Offset(at.0.saturating_sub(self.areas().commons().0.0));
        let len = self.with_heap(Which::Commons, |heap| heap.length_at(within))?;
        self.release(at, len);
        self.with_heap(Which::Commons, |heap| heap.free(self, within, deadline))?;
        Ok(())
    }

    /// As [`Node::free_commons`], if `last` says so, which is asked under the heap's lock: of all
    /// the processes that ask in turn exactly one frees the block, and none asks after that.
    pub fn free_commons_if(&self, at: Offset, last: impl FnOnce() -> bool) -> Result<()> {
        let deadline = Deadline::after(PATIENCE);
        let within = Offset(at.0.saturating_sub(self.areas().commons().0.0));
        self.with_heap(Which::Commons, |heap| {
            let len = heap.length_at(within)?;
            let last = || {
                let last = last();
                if last {
                    self.release(at, len);
                }
                last
            };
            heap.free_if(self, within, deadline, last).map(drop)
        })
    }

    /// Bytes of address space allocated in each slot's symmetric memory.
    pub fn symmetric_in_use(&self) -> Result<u64> {
        self.with_heap(Which::Symmetric, |heap| Ok(heap.usage().0))
    }

    /// Bytes of the commons that are allocated.
    pub fn commons_in_use(&self) -> Result<u64> {
        self.with_heap(Which::Commons, |heap| Ok(heap.usage().0))
    }
}
