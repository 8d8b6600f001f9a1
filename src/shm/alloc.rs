//! The node's two heaps, as its processes use them: symmetric memory (one offset, valid in every
//! slot's stride) and the commons (blocks that belong to teams and windows).
//!
//! Allocation takes addresses only; whoever uses a range reserves its pages. Freeing gives the
//! pages back as well, so that a fresh block reads as zeros.
//!
//! Everything has an owner that can end: see [`Owner`], `shm::holding` for blocks that several
//! processes share, and `shm::sweep` for what becomes of what the dead owned. Freeing has three
//! steps: it is noted who frees the range, its pages go, then the range is free; so pages are never
//! given back of what has come to be somebody else's.

use super::heap::{Entry, ExtentTable, Heap, Id, Owner, Wanted};
use super::holding::Holding;
use super::map::{PAGE, round_up};
use super::node::Node;
use super::region::SharedRef;
use super::segment::HUGE_PAGE;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Offset, Result, Slot, forked};
use std::time::Duration;

/// Longest wait for a heap's lock. It is held for microseconds; whoever dies with it is noticed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for what others are about to free, where there is no room: they give back pages.
const FREEING: Duration = Duration::from_secs(2);
/// From this size on, symmetric memory is aligned so that huge pages can back it.
const HUGE_FROM: u64 = 4 * HUGE_PAGE;

#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Symmetric = 0,
    Commons = 1,
}

impl Node {
    pub(super) fn with_heap<R>(
        &self,
        which: Which,
        run: impl FnOnce(Heap<'_>, Deadline) -> Result<R>,
    ) -> Result<R> {
        // Also from destructors in a child, whose copy of the table says nothing about the job.
        forked::refuse_forked("allocating or freeing shared memory")?;
        let table: SharedRef<ExtentTable> =
            SharedRef::new(self.mapping(), self.areas().extents(which as usize))?;
        let heap = match which {
            Which::Symmetric => Heap::new(&table, self.areas().stride, "symmetric memory"),
            Which::Commons => Heap::new(&table, self.areas().commons().1, "the node's commons"),
        };
        run(heap, Deadline::after(PATIENCE))
    }

    pub(super) fn commons<R>(
        &self,
        run: impl FnOnce(Heap<'_>, Deadline) -> Result<R>,
    ) -> Result<R> {
        self.with_heap(Which::Commons, run)
    }

    /// Where in the segment an offset of the commons is.
    pub(super) fn in_commons(&self, within: Offset) -> Offset {
        Offset(self.areas().commons().0.0 + within.0)
    }

    pub(super) fn is_block_gone(&self, id: Id) -> bool {
        // Unknown is not gone.
        self.commons(|heap, _| Ok(!heap.has(id))).unwrap_or(false)
    }

    /// Takes a range of whole pages: pages are given back when it is freed. Before it says that
    /// there is no room, it asks whether anybody has died, and waits for what is being freed.
    pub(super) fn take(
        &self,
        which: Which,
        len: u64,
        owner: Owner,
        home: Option<Slot>,
    ) -> Result<Entry> {
        let most = match which {
            Which::Symmetric => self.areas().stride,
            Which::Commons => self.areas().commons().1,
        };
        let huge = matches!(which, Which::Symmetric) && len >= HUGE_FROM;
        let align = if huge { HUGE_PAGE } else { PAGE };
        let len = if len > most { len } else { round_up(len, PAGE) };
        let wanted = Wanted { len, align, owner, home };
        let take = || {
            self.sweep()?;
            self.with_heap(which, |heap, until| heap.locked(self, until, |t| t.take(wanted)))?
        };
        let deaths = || self.header().deaths.load(Ordering::Acquire);
        let before = deaths();
        match take() {
            Err(error @ (Error::OutOfMemory { .. } | Error::Exhausted { .. })) if len <= most => {
                self.locals().for_each(|slot| {
                    self.probe(slot);
                });
                let freed = self.await_freeing(which)?;
                if freed || deaths() != before { take() } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    /// Waits for a moment until nothing is being freed any more; whether anything was.
    fn await_freeing(&self, which: Which) -> Result<bool> {
        let until = Deadline::after(FREEING);
        let freeing = || self.with_heap(which, |heap, _| Ok(heap.is_freeing()));
        let was = freeing()?;
        while freeing()? && !until.passed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(was)
    }

    /// Frees what this process alone owns, and its pages: in the stride that it is used in, else in
    /// those of `slots`, else in all.
    pub(super) fn finish(
        &self,
        which: Which,
        entries: &[Entry],
        slots: Option<&[Slot]>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let in_stride = |entry: &Entry, slot: Slot| {
            if u32::from(slot.0) < self.size() {
                self.release(Offset(self.areas().heap(slot).0 + entry.offset.0), entry.len);
            }
        };
        for entry in entries {
            match (which, entry.home, slots) {
                (Which::Commons, ..) => self.release(self.in_commons(entry.offset), entry.len),
                (Which::Symmetric, Some(home), _) => in_stride(entry, home),
                (_, None, Some(slots)) => slots.iter().for_each(|slot| in_stride(entry, *slot)),
                (_, None, None) => {
                    self.locals().for_each(|slot| in_stride(entry, slot));
                }
            }
        }
        self.with_heap(which, |heap, until| {
            heap.locked(self, until, |table| entries.iter().for_each(|entry| table.remove(entry)))
        })
    }

    /// Takes a block of `len` bytes of the commons that lasts as long as the job; its pages read as
    /// zeros.
    pub(crate) fn alloc_for_job(&self, len: u64) -> Result<Offset> {
        Ok(self.in_commons(self.take(Which::Commons, len, Owner::Job, None)?.offset))
    }

    /// Takes a block of `len` bytes of the commons that belongs to another one, and goes with it if
    /// it is not [freed](Node::free_part) before.
    pub(crate) fn alloc_part(&self, of: &Holding, len: u64) -> Result<Offset> {
        let entry = self.take(Which::Commons, len, Owner::Block(of.id()), None)?;
        Ok(self.in_commons(entry.offset))
    }

    /// Frees what [`Node::alloc_part`] returned.
    pub(crate) fn free_part(&self, at: Offset) -> Result<()> {
        let within = Offset(at.0.saturating_sub(self.areas().commons().0.0));
        let mine = self.commons(|heap, until| {
            heap.locked(self, until, |table| {
                let entry = table.containing(within)?;
                table.hand(&entry, Owner::Freeing(self.slot()));
                Ok(entry)
            })
        })??;
        self.finish(Which::Commons, &[mine], None)
    }

    /// Takes an address range of `len` bytes in every slot's symmetric memory, or, with `home`, of
    /// that slot's alone, which goes with the block `of`. Returns its offset within a stride.
    pub(crate) fn alloc_symmetric(
        &self,
        of: &Holding,
        len: u64,
        home: Option<Slot>,
    ) -> Result<u64> {
        let entry = self.take(Which::Symmetric, len, Owner::Block(of.id()), home)?;
        Ok(entry.offset.0)
    }

    /// As [`Node::alloc_symmetric`], in this process's own stride, and as long as it says and lives,
    /// and longer as long as windows use it.
    pub(crate) fn alloc_own(&self, len: u64) -> Result<u64> {
        let me = self.slot();
        Ok(self.take(Which::Symmetric, len, Owner::Process(me), Some(me))?.offset.0)
    }

    /// Ends this process's ownership of what [`Node::alloc_own`] returned: it stays as long as
    /// windows use it.
    pub(crate) fn disown(&self, at: u64) -> Result<()> {
        let me = Owner::Process(self.slot());
        let unused = self.with_heap(Which::Symmetric, |heap, until| {
            heap.locked(self, until, |table| {
                let range = table.containing(Offset(at))?;
                let used = table.is_used(&range);
                if range.owner != me {
                    return Ok(None);
                }
                let next = if used { Owner::Nobody } else { Owner::Freeing(self.slot()) };
                table.hand(&range, next);
                Ok((!used).then_some(range))
            })
        })??;
        self.finish(Which::Symmetric, unused.as_slice(), None)
    }

    /// Counts one more use, by the window whose block is `by`, of the range that `at` lies in. Uses
    /// end one by one or with the block.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if there is no room to record the first one by this window.
    pub(crate) fn add_use(&self, at: u64, by: &Holding) -> Result<()> {
        self.with_heap(Which::Symmetric, |heap, until| {
            heap.locked(self, until, |table| table.add_use(&table.containing(Offset(at))?, by.id()))
        })?
    }

    /// Ends one use that [`Node::add_use`] counted, and frees the range if that was the last and
    /// nobody alive owns it.
    pub(crate) fn end_use(&self, at: u64, by: &Holding) -> Result<()> {
        let unused = self.with_heap(Which::Symmetric, |heap, until| {
            heap.locked(self, until, |table| {
                let range = table.containing(Offset(at))?;
                table.end_use(&range, by.id());
                Ok(self.claim_unused(table, &range).then_some(range))
            })
        })??;
        self.finish(Which::Symmetric, unused.as_slice(), None)
    }

    /// Bytes of address space allocated in each slot's symmetric memory.
    pub fn symmetric_in_use(&self) -> Result<u64> {
        self.sweep()?;
        self.with_heap(Which::Symmetric, |heap, _| Ok(heap.usage().0))
    }

    /// Bytes of the commons that are allocated.
    pub fn commons_in_use(&self) -> Result<u64> {
        self.sweep()?;
        self.commons(|heap, _| Ok(heap.usage().0))
    }
}
