//! Two first-fit heaps over offsets: the symmetric heap (one offset is valid in every slot's
//! stride) and the commons (blocks that belong to teams and windows).
//!
//! The state is a table of extents in the segment (`table`), guarded by a robust lock, in no order.
//! Each extent has an owner, and is garbage once that is gone: its process dead, its members dead
//! or gone, its block freed. A range that nobody owns is garbage once it has no uses. Garbage comes
//! into being by deaths only, and is swept after them (`shm::sweep`). The heap hands out numbers and
//! touches no memory but its table.

mod table;

pub use table::{Entry, ExtentTable, Id, MAX_EXTENTS, Owner};

use super::lock::LockEnv;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Offset, Result, Slot};
use table::LOW;

/// Unit of lengths and alignments: a cache line, so that no two allocations share one.
pub const GRANULE: u64 = 64;

/// A first-fit allocator over a table of extents. Offsets are relative to the area it manages.
#[derive(Clone, Copy)]
pub struct Heap<'a> {
    table: &'a ExtentTable,
    length: u64,
    what: &'static str,
}

/// What is wanted of a heap.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Bytes.
    pub len: u64,
    /// A power of two.
    pub align: u64,
    /// Who answers for it from the beginning.
    pub owner: Owner,
    /// The only stride in which it will be used.
    pub home: Option<Slot>,
}

impl<'a> Heap<'a> {
    /// The heap of an area of `length` bytes; `what` names it in messages. Every process must pass
    /// the same length.
    pub fn new(table: &'a ExtentTable, length: u64, what: &'static str) -> Heap<'a> {
        Heap { table, length: length.min(LOW), what }
    }

    /// Runs `run` under the table's lock, for which it waits until `deadline`. A holder that died
    /// needs no repair: the table is right at every moment.
    pub fn locked<E: LockEnv, R>(
        &self,
        env: &E,
        deadline: Deadline,
        run: impl FnOnce(&Locked<'a>) -> R,
    ) -> Result<R> {
        let held = self.table.lock.acquire(env, deadline)?;
        let outcome = run(&Locked { heap: *self });
        self.table.lock.release(env, held)?;
        Ok(outcome)
    }

    /// Deaths that the last sweep knew of.
    pub fn swept(&self) -> u32 {
        self.table.swept.load(Ordering::Acquire)
    }

    /// Notes that what `deaths` deaths left behind has been swept.
    pub fn note_swept(&self, deaths: u32) {
        self.table.swept.store(deaths, Ordering::Release);
    }

    /// Whether a range is there. Takes no lock: what is gone stays gone.
    pub fn has(&self, id: Id) -> bool {
        self.table.find(id).is_some()
    }

    /// Bytes in use, and number of allocations, without those that are being freed. Takes no lock: a
    /// snapshot for reports.
    pub fn usage(&self) -> (u64, usize) {
        let counts = |e: &Entry| !e.is_use && !e.is_going();
        let ranges = self.table.entries().filter(counts);
        ranges.fold((0, 0), |(bytes, count), e| (e.len.saturating_add(bytes), count + 1))
    }

    /// Whether somebody is about to free something. Takes no lock.
    pub fn is_freeing(&self) -> bool {
        self.table.entries().any(|entry| entry.is_going())
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

/// A heap whose lock is held.
pub struct Locked<'a> {
    heap: Heap<'a>,
}

impl Locked<'_> {
    /// Takes `wanted.len` bytes (rounded up to [`GRANULE`], at least one) from the lowest gap they
    /// fit. The area itself must be aligned as is wanted.
    ///
    /// Cost: a read of what was ever in use of the table (at most 128 KiB), a sort of what is; meant
    /// for windows, not for messages. Fails with [`Error::OutOfMemory`] when no gap is large enough,
    /// [`Error::Exhausted`] when the table is full.
    pub fn take(&self, wanted: Wanted) -> Result<Entry> {
        let Wanted { len, align, owner, home } = wanted;
        if !align.is_power_of_two() {
            let why = format!("{align} is not a power of two");
            return Err(Error::invalid("alignment of shared memory", why));
        }
        let heap = &self.heap;
        let used = self.ranges()?;
        // What cannot even be rounded cannot fit either.
        let rounded = if len > heap.length { len } else { len.max(1).next_multiple_of(GRANULE) };
        let (fit, largest) = first_fit(&used, heap.length, rounded, align.max(GRANULE));
        let Some(offset) = fit else {
            let in_use: u64 = used.iter().map(|(start, end)| end - start).sum();
            return Err(Error::OutOfMemory {
                what: heap.what.to_owned(),
                wanted: len,
                available: largest,
                limit: format!(
                    "the largest gap; {in_use} of {} bytes are in {} allocations",
                    heap.length,
                    used.len()
                ),
                advice: "free what is not needed, ask for less, or raise HITHER_HEAP_SIZE",
            });
        };
        let (offset, index) = (Offset(offset), self.vacant()?);
        let entry = Entry { index, offset, len: rounded, owner, home, is_use: false, tag: 0 };
        Ok(heap.table.insert(entry))
    }

    fn vacant(&self) -> Result<usize> {
        self.heap.table.vacant().ok_or(Error::Exhausted {
            what: "allocations of shared memory",
            limit: MAX_EXTENTS as u64,
            advice: "free some, or allocate fewer and larger ones",
        })
    }

    /// What is in use: ranges and uses.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.heap.table.entries()
    }

    /// The range with an id.
    pub fn find(&self, id: Id) -> Option<Entry> {
        self.heap.table.find(id)
    }

    /// The range that `within` lies in; an error if nothing is allocated there.
    pub fn containing(&self, within: Offset) -> Result<Entry> {
        let inside = |e: &Entry| within.0.checked_sub(e.offset.0).is_some_and(|gap| gap < e.len);
        let fits = |e: &Entry| e.len <= self.heap.length;
        let found = self.entries().find(|e| !e.is_use && inside(e) && fits(e));
        found.ok_or_else(|| Error::Misuse {
            what: "freeing shared memory",
            why: format!("nothing is allocated at {within} of {}; free it once", self.heap.what),
        })
    }

    /// Hands a range to another owner.
    pub fn hand(&self, entry: &Entry, owner: Owner) {
        self.heap.table.hand(entry, owner);
    }

    /// Ends a range or a use.
    pub fn remove(&self, entry: &Entry) {
        self.heap.table.remove(entry);
    }

    fn use_of(&self, range: &Entry, block: Id) -> Option<Entry> {
        let owner = Owner::Block(block);
        self.entries().find(|e| e.is_use && e.offset == range.offset && e.owner == owner)
    }

    /// Counts one more use of a range by the window whose block is `block`. Such a use is as
    /// long-lived as the block, if nobody ends it before. Fails with [`Error::Exhausted`] if the
    /// table is full.
    pub fn add_use(&self, range: &Entry, block: Id) -> Result<()> {
        match self.use_of(range, block) {
            Some(there) => self.heap.table.count(&there, there.tag.saturating_add(1)),
            None => {
                let (index, owner) = (self.vacant()?, Owner::Block(block));
                self.heap.table.insert(Entry { index, owner, is_use: true, tag: 1, ..*range });
            }
        }
        Ok(())
    }

    /// Ends one of the uses that [`Locked::add_use`] counted.
    pub fn end_use(&self, range: &Entry, block: Id) {
        match self.use_of(range, block) {
            Some(there) if there.tag > 1 => self.heap.table.count(&there, there.tag - 1),
            Some(there) => self.remove(&there),
            None => {}
        }
    }

    /// Whether any window uses a range.
    pub fn is_used(&self, range: &Entry) -> bool {
        self.entries().any(|e| e.is_use && e.offset == range.offset)
    }

    /// The ranges in use as (start, end), in ascending order; checked.
    fn ranges(&self) -> Result<Vec<(u64, u64)>> {
        let mut used = Vec::new();
        for entry in self.entries().filter(|entry| !entry.is_use) {
            let start = entry.offset.0;
            match start.checked_add(entry.len) {
                Some(end) if end <= self.heap.length => used.push((start, end)),
                _ => return Err(self.heap.damaged(start, entry.len)),
            }
        }
        used.sort_unstable();
        match used.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(self.heap.damaged(pair[1].0, pair[1].1 - pair[1].0)),
            None => Ok(used),
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

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
