//! Two first-fit heaps over offsets: the symmetric heap (one offset is valid in every slot's
//! stride) and the commons (blocks that belong to teams).
//!
//! ```text
//! ExtentTable   0        8      16                             64 KiB
//!               | lock   | pad  | extent 0 | ... | extent 4094 |
//! extent        claim: u16, offset: u48; uses: u16, len: u48 (0: unused)
//! ```
//! The state is a table of extents in the segment, guarded by a robust lock, in no order. An
//! extent counts as allocated once its `len` is non-zero, which is the last thing an allocation
//! stores and the first thing a free clears: a process killed anywhere in between leaves a
//! consistent table, and at worst an extent that nobody uses. So the next holder of the lock goes
//! on as if nothing had happened. The heap hands out numbers and touches no memory but its table.
//!
//! What one process alone answers for, it claims: when it dies, the next [`Heap::sweep`] gives it
//! back. What several windows use counts its uses, and outlives its claim until the last of them.
//! What has neither is freed by whoever knows that nobody uses it any more.

use super::crash;
use super::lock::{LockEnv, QueueLock};
use super::map::round_up;
use super::region::SharedLayout;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Deadline, Error, Offset, Result, Slot};

/// Most allocations of one heap at a time.
pub const MAX_EXTENTS: usize = 4095;

/// Unit of lengths and alignments: a cache line, so that no two allocations share one.
pub const GRANULE: u64 = 64;

/// One allocation.
#[repr(C, align(16))]
pub struct Extent {
    /// Slot + 1 of who claims it, or 0, in the highest 16 bits.
    offset: AtomicU64,
    /// Number of uses in the highest 16 bits.
    len: AtomicU64,
}

/// Bits of offsets and lengths.
const LOW: u64 = (1 << 48) - 1;

/// Who answers for an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The slot that claims it.
    pub claim: Option<Slot>,
    /// Uses by windows.
    pub uses: u16,
}

/// What becomes of an allocation that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Keep,
    /// It is free.
    Free,
}

impl Extent {
    /// Offset, length and holders, if it is in use.
    fn read(&self) -> Option<(u64, u64, Holders)> {
        // Acquire: whoever sees the length sees the offset.
        let len = self.len.load(Ordering::Acquire);
        let offset = self.offset.load(Ordering::Relaxed);
        let claim = (offset >> 48).checked_sub(1).map(|slot| Slot(slot as u16));
        let holders = Holders { claim, uses: (len >> 48) as u16 };
        (len != 0).then_some((offset & LOW, len & LOW, holders))
    }

    /// Writes both words; the length last, so that a kill in between leaves the extent as free as
    /// it was before, with the claim that it has then.
    fn write(&self, offset: u64, len: u64, holders: Holders) {
        crash::point();
        let claim = holders.claim.map_or(0, |slot| u64::from(slot.0) + 1);
        self.offset.store(offset | claim << 48, Ordering::Relaxed);
        crash::point();
        // Release: a scan that sees the length sees the offset, even after a kill right here.
        self.len.store(len | u64::from(holders.uses) << 48, Ordering::Release);
        crash::point();
    }
}

/// The state of one heap. All zeros is an empty one.
#[repr(C, align(64))]
pub struct ExtentTable {
    lock: QueueLock,
    _pad: [AtomicU64; 1],
    extents: [Extent; MAX_EXTENTS],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Extent>() == 16);
    assert!(offset_of!(Extent, len) == 8);
    assert!(offset_of!(ExtentTable, extents) == 16);
    assert!(size_of::<ExtentTable>() == 64 << 10);
};

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for ExtentTable {}

/// What a scan of the table found.
struct Scan {
    /// Extents in use as (start, end), in ascending order.
    used: Vec<(u64, u64)>,
    /// An entry of the table that is not in use.
    vacant: Option<usize>,
}

/// A first-fit allocator over a table of extents. Offsets are relative to the area it manages.
#[derive(Clone, Copy)]
pub struct Heap<'a> {
    table: &'a ExtentTable,
    length: u64,
    what: &'static str,
}

impl<'a> Heap<'a> {
    /// The heap of an area of `length` bytes; `what` names it in messages. Every process must pass
    /// the same length.
    pub fn new(table: &'a ExtentTable, length: u64, what: &'static str) -> Heap<'a> {
        Heap { table, length: length.min(LOW), what }
    }

    /// Takes `len` bytes (rounded up to [`GRANULE`], at least one) at a multiple of `align`, a
    /// power of two, from the lowest gap they fit, for these holders from the beginning. The area itself must be aligned to `align`.
    ///
    /// Cost: the lock, a read of the table (64 KiB), a sort of what is in use; meant for windows,
    /// not for messages. Waits for the lock until `deadline`. Fails with [`Error::OutOfMemory`]
    /// when no gap is large enough, [`Error::Exhausted`] when the table is full.
    pub fn alloc_held<E: LockEnv>(
        &self,
        env: &E,
        len: u64,
        align: u64,
        holders: Holders,
        deadline: Deadline,
    ) -> Result<Offset> {
        if !align.is_power_of_two() {
            let why = format!("{align} is not a power of two");
            return Err(Error::invalid("alignment of shared memory", why));
        }
        let align = align.max(GRANULE);
        let held = self.table.lock.acquire(env, deadline)?;
        // A dead holder needs no repair: the table is right at every moment.
        let outcome = self.alloc_locked(len, align, holders);
        self.table.lock.release(env, held)?;
        outcome
    }

    fn alloc_locked(&self, len: u64, align: u64, holders: Holders) -> Result<Offset> {
        let scan = self.scan()?;
        // What cannot even be rounded cannot fit either.
        let rounded = if len > self.length { len } else { round_up(len.max(1), GRANULE) };
        let (fit, largest) = first_fit(&scan.used, self.length, rounded, align);
        let Some(offset) = fit else {
            let in_use: u64 = scan.used.iter().map(|(start, end)| end - start).sum();
            return Err(Error::OutOfMemory {
                what: self.what.to_owned(),
                wanted: len,
                available: largest,
                limit: format!(
                    "the largest gap; {in_use} of {} bytes are in {} allocations",
                    self.length,
                    scan.used.len()
                ),
                advice: "free what is not needed, ask for less, or raise HITHER_HEAP_SIZE",
            });
        };
        let Some(vacant) = scan.vacant else {
            return Err(Error::Exhausted {
                what: "allocations of shared memory",
                limit: MAX_EXTENTS as u64,
                advice: "free some, or allocate fewer and larger ones",
            });
        };
        self.table.extents[vacant].write(offset, rounded, holders);
        Ok(Offset(offset))
    }

    /// Gives an allocation back, and returns its length. Fails with [`Error::Misuse`] if there is
    /// none at `offset`. Waits for the lock until `deadline`.
    pub fn free<E: LockEnv>(&self, env: &E, offset: Offset, deadline: Deadline) -> Result<u64> {
        self.free_if(env, offset, deadline, || true).map(|(len, _)| len)
    }

    /// As [`Heap::free`] if `agreed`, which is called under the lock, says so. Returns the length
    /// of the allocation, and whether it was given back.
    pub fn free_if<E: LockEnv>(
        &self,
        env: &E,
        offset: Offset,
        deadline: Deadline,
        agreed: impl FnOnce() -> bool,
    ) -> Result<(u64, bool)> {
        let fate = |_, len, _: &mut Holders| {
            if agreed() { (Fate::Free, (len, true)) } else { (Fate::Keep, (len, false)) }
        };
        self.look_at(env, |at, _| at == offset.0, offset, deadline, fate)
    }

    /// Looks at the allocation that `within` lies in, under the lock: `look` gets its offset,
    /// length and holders, may change the holders, and says what becomes of it. Fails with
    /// [`Error::Misuse`] if nothing is allocated there. Waits for the lock until `deadline`.
    pub fn visit<E: LockEnv, R>(
        &self,
        env: &E,
        within: Offset,
        deadline: Deadline,
        look: impl FnOnce(Offset, u64, &mut Holders) -> (Fate, R),
    ) -> Result<R> {
        let inside = |at, len| within.0.checked_sub(at).is_some_and(|gap| gap < len);
        self.look_at(env, inside, within, deadline, look)
    }

    fn look_at<E: LockEnv, R>(
        &self,
        env: &E,
        which: impl Fn(u64, u64) -> bool,
        wanted: Offset,
        deadline: Deadline,
        look: impl FnOnce(Offset, u64, &mut Holders) -> (Fate, R),
    ) -> Result<R> {
        let held = self.table.lock.acquire(env, deadline)?;
        let outcome = match self.find(which) {
            None => Err(self.nothing_at(wanted)),
            Some((extent, offset, len, before)) => {
                let mut holders = before;
                let (fate, result) = look(Offset(offset), len, &mut holders);
                match fate {
                    Fate::Free => {
                        crash::point();
                        extent.len.store(0, Ordering::Release);
                        crash::point();
                    }
                    Fate::Keep if holders != before => extent.write(offset, len, holders),
                    Fate::Keep => {}
                }
                Ok(result)
            }
        };
        self.table.lock.release(env, held)?;
        outcome
    }

    /// Gives back what the dead claimed and nobody uses, and ends their claims on the rest.
    /// `reclaim` is called under the lock with what is about to become free. Returns the number of
    /// claims that ended.
    pub fn sweep<E: LockEnv>(
        &self,
        env: &E,
        deadline: Deadline,
        mut reclaim: impl FnMut(Offset, u64),
    ) -> Result<usize> {
        let of_the_dead = |holders: Holders| holders.claim.is_some_and(|slot| env.is_dead(slot));
        let any = |extent: &Extent| extent.read().is_some_and(|(_, _, h)| of_the_dead(h));
        if !self.table.extents.iter().any(any) {
            return Ok(0);
        }
        let held = self.table.lock.acquire(env, deadline)?;
        let mut ended = 0;
        for extent in &self.table.extents {
            let Some((offset, len, holders)) = extent.read() else { continue };
            if !of_the_dead(holders) {
                continue;
            }
            ended += 1;
            if holders.uses > 0 {
                extent.write(offset, len, Holders { claim: None, ..holders });
            } else {
                reclaim(Offset(offset), len);
                crash::point();
                extent.len.store(0, Ordering::Release);
            }
        }
        self.table.lock.release(env, held)?;
        Ok(ended)
    }

    fn find(&self, which: impl Fn(u64, u64) -> bool) -> Option<(&Extent, u64, u64, Holders)> {
        self.table.extents.iter().find_map(|extent| {
            let (offset, len, holders) = extent.read()?;
            let wanted = which(offset, len) && len <= self.length;
            wanted.then_some((extent, offset, len, holders))
        })
    }

    #[cold]
    fn nothing_at(&self, offset: Offset) -> Error {
        Error::Misuse {
            what: "freeing shared memory",
            why: format!("nothing is allocated at {offset} of {}; free it once", self.what),
        }
    }

    /// Length of the allocation at `offset`, which the caller owns. Takes no lock.
    pub fn length_at(&self, offset: Offset) -> Result<u64> {
        let found = self.find(|at, _| at == offset.0);
        found.map(|(_, _, len, _)| len).ok_or_else(|| self.nothing_at(offset))
    }

    /// Bytes in use, and number of allocations. Takes no lock: a snapshot for reports.
    pub fn usage(&self) -> (u64, usize) {
        let lens = self.table.extents.iter().filter_map(|extent| Some(extent.read()?.1));
        lens.fold((0, 0), |(bytes, count), len| (len.saturating_add(bytes), count + 1))
    }

    /// Reads and checks the table. The caller holds the lock.
    fn scan(&self) -> Result<Scan> {
        let mut scan = Scan { used: Vec::new(), vacant: None };
        for (i, extent) in self.table.extents.iter().enumerate() {
            let Some((start, len, _)) = extent.read() else {
                scan.vacant.get_or_insert(i);
                continue;
            };
            match start.checked_add(len) {
                Some(end) if end <= self.length => scan.used.push((start, end)),
                _ => return Err(self.damaged(start, len)),
            }
        }
        scan.used.sort_unstable();
        match scan.used.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(self.damaged(pair[1].0, pair[1].1 - pair[1].0)),
            None => Ok(scan),
        }
    }

    #[cold]
    fn damaged(&self, start: u64, len: u64) -> Error {
        Error::Incompatible {
            what: "the table of shared allocations",
            why: format!(
                "{len} bytes at {start:#x} overlap others or leave the {} bytes of {}; \
                 some process has overwritten it, end the job",
                self.length, self.what
            ),
        }
    }
}

/// The lowest offset at which `len` bytes fit between `used`, and the largest gap there is.
fn first_fit(used: &[(u64, u64)], length: u64, len: u64, align: u64) -> (Option<u64>, u64) {
    let mut largest = 0;
    let mut at = 0u64;
    for &(start, end) in used.iter().chain(&[(length, length)]) {
        let aligned = at.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        if start.checked_sub(aligned).is_some_and(|gap| gap >= len) {
            return (Some(aligned), largest);
        }
        largest = largest.max(start.saturating_sub(at));
        at = end;
    }
    (None, largest)
}

#[cfg(test)]
mod tests;
