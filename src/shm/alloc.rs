//! The node's two heaps, as its processes use them: symmetric memory (one offset, valid in every
//! slot's stride) and the commons (blocks that belong to teams and windows).
//!
//! Allocation takes addresses only; whoever uses a range reserves its pages. Freeing gives the
//! pages back as well, so that a fresh block reads as zeros.
//!
//! What a process makes for a group is *claimed* by it until another member answers for it too: if
//! it dies before, whoever next allocates gives it back. Memory that a process makes for itself is
//! claimed as long as it has it; windows over it count as its *uses*, and outlive the claim.

use super::heap::{ExtentTable, Fate, Heap, Holders};
use super::map::{PAGE, round_up};
use super::node::Node;
use super::region::SharedRef;
use super::segment::HUGE_PAGE;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Offset, Result, Slot};
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

    /// Gives back what the dead claimed. Costs one load while nobody has died.
    fn sweep(&self, which: Which) -> Result<()> {
        if self.header().deaths.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let deadline = Deadline::after(PATIENCE);
        let reclaim = |at: Offset, len| match which {
            Which::Commons => self.release(Offset(self.areas().commons().0.0 + at.0), len),
            Which::Symmetric => {
                for slot in 0..self.size() as u16 {
                    self.release(Offset(self.areas().heap(Slot(slot)).0 + at.0), len);
                }
            }
        };
        self.with_heap(which, |heap| heap.sweep(self, deadline, reclaim)).map(drop)
    }

    fn take(&self, which: Which, len: u64, align: u64, claimed: bool) -> Result<Offset> {
        self.sweep(which)?;
        let deadline = Deadline::after(PATIENCE);
        let holders = Holders { claim: claimed.then_some(self.slot()), uses: 0 };
        self.with_heap(which, |heap| heap.alloc_held(self, len, align, holders, deadline))
    }

    /// Takes an address range of `len` bytes in every slot's symmetric memory; returns its offset
    /// within a stride. `claimed`: it is this process's alone until [`Node::share_symmetric`].
    pub fn alloc_symmetric(&self, len: u64, claimed: bool) -> Result<u64> {
        let align = if len >= HUGE_FROM { HUGE_PAGE } else { PAGE };
        // Whole pages: pages are given back when the range is freed.
        let len = if len > self.areas().stride { len } else { round_up(len, PAGE) };
        self.take(Which::Symmetric, len, align, claimed).map(|at| at.0)
    }

    /// Ends the claim on a range of symmetric memory: its users answer for it now.
    pub fn share_symmetric(&self, at: u64) -> Result<()> {
        let share = |_, _, holders: &mut Holders| {
            holders.claim = None;
            (Fate::Keep, ())
        };
        self.visit_symmetric(at, share)
    }

    /// Ends this process's claim on a range of which it used its own stride, and frees it if nothing
    /// uses it.
    pub fn disown_symmetric(&self, at: u64) -> Result<()> {
        self.visit_symmetric(at, |start, len, holders| {
            holders.claim = None;
            (self.fate(start, len, self.slot(), holders), ())
        })
    }

    /// Counts one more use of the range that `at` lies in.
    pub fn use_symmetric(&self, at: u64) -> Result<()> {
        self.visit_symmetric(at, |_, _, holders| match holders.uses.checked_add(1) {
            Some(uses) => {
                holders.uses = uses;
                (Fate::Keep, Ok(()))
            }
            None => {
                let full = Error::Exhausted {
                    what: "windows over the same memory",
                    limit: u16::MAX.into(),
                    advice: "detach or free some",
                };
                (Fate::Keep, Err(full))
            }
        })?
    }

    /// Ends one use of the range that `at` lies in, of which `owner`'s stride is used; frees it if
    /// that was the last and nobody alive claims it.
    pub fn unuse_symmetric(&self, at: u64, owner: Slot) -> Result<()> {
        self.visit_symmetric(at, |start, len, holders| {
            holders.uses = holders.uses.saturating_sub(1);
            holders.claim = holders.claim.filter(|slot| !self.probe(*slot));
            (self.fate(start, len, owner, holders), ())
        })
    }

    /// Whether a range that one stride of is used stays; if not, its pages go now.
    fn fate(&self, at: Offset, len: u64, owner: Slot, holders: &Holders) -> Fate {
        if holders.uses > 0 || holders.claim.is_some() {
            return Fate::Keep;
        }
        self.release(Offset(self.areas().heap(owner).0 + at.0), len);
        Fate::Free
    }

    fn visit_symmetric<R>(
        &self,
        at: u64,
        look: impl FnOnce(Offset, u64, &mut Holders) -> (Fate, R),
    ) -> Result<R> {
        let deadline = Deadline::after(PATIENCE);
        self.with_heap(Which::Symmetric, |heap| heap.visit(self, Offset(at), deadline, look))
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
        let at = self.take(Which::Commons, round_up(len, PAGE), PAGE, false)?;
        Ok(Offset(self.areas().commons().0.0 + at.0))
    }

    /// As [`Node::alloc_commons`], but the block is this process's alone until somebody
    /// [joins](Node::join_commons) it.
    pub fn claim_commons(&self, len: u64) -> Result<Offset> {
        let at = self.take(Which::Commons, round_up(len, PAGE), PAGE, true)?;
        Ok(Offset(self.areas().commons().0.0 + at.0))
    }

    /// Asks under the heap's lock whether this process may use the block at `at`; if so, its claim
    /// ends, since more than one process answers for it now. False also if there is no such block.
    pub fn join_commons(&self, at: Offset, join: impl FnOnce() -> bool) -> Result<bool> {
        let deadline = Deadline::after(PATIENCE);
        let within = Offset(at.0.saturating_sub(self.areas().commons().0.0));
        let look = |start, _, holders: &mut Holders| {
            let joined = start == within && join();
            if joined {
                holders.claim = None;
            }
            (Fate::Keep, joined)
        };
        match self.with_heap(Which::Commons, |heap| heap.visit(self, within, deadline, look)) {
            Err(Error::Misuse { .. }) => Ok(false),
            outcome => outcome,
        }
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
        self.sweep(Which::Symmetric)?;
        self.with_heap(Which::Symmetric, |heap| Ok(heap.usage().0))
    }

    /// Bytes of the commons that are allocated.
    pub fn commons_in_use(&self) -> Result<u64> {
        self.sweep(Which::Commons)?;
        self.with_heap(Which::Commons, |heap| Ok(heap.usage().0))
    }
}
