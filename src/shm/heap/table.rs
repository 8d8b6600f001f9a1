//! The record of what is allocated in a heap, and of who answers for it.
//!
//! ```text
//! ExtentTable   0      8       16      24     32                            128 KiB
//!               | lock | next  | swept | high | extent 0 | ... | extent 4094 |
//!
//! Extent        len     bytes; 0: unused. Highest bit: a use of a range, not a range
//!               offset  of its first byte; slot + 1 of the only stride it is used in, highest 16 bits
//!               owner   who answers for it: kind, number (see `Owner`)
//!               tag     of a range: the number in its id; of a use: how often it is used
//! ```
//! Every change of the record is **one store of 64 bits**: a range or a use comes into being when
//! its length is stored, the rest of it being there by then, is gone when its length is cleared, and
//! changes hands when its owner is stored. A process killed anywhere leaves the state before or
//! after a change, so there is nothing to roll back or forth: the next holder of the lock goes on as
//! if nothing had happened. What was half done by the dead is half done with extents that the dead
//! answer for, or that nobody does any more, and those are found by looking at their owners.

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Offset, Slot};
use crate::shm::crash;
use crate::shm::lock::QueueLock;
#[cfg(not(loom))]
use crate::shm::region::SharedLayout;

/// Most allocations of one heap at a time, uses by windows included.
#[cfg(not(loom))]
pub const MAX_EXTENTS: usize = 4095;
/// Few in models, which look at each.
#[cfg(loom)]
pub const MAX_EXTENTS: usize = 3;
/// Bits of an id that say where in the table it is.
const INDEX_BITS: u32 = 12;
/// Bits of offsets and lengths.
pub(super) const LOW: u64 = (1 << 48) - 1;
/// Marks the length of a use.
const USE: u64 = 1 << 63;
/// Where the kind of an owner begins.
const KIND: u32 = 60;

/// Names an allocation among all there ever are in its heap: none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

impl Id {
    /// The id that a peer told; it need not name anything.
    pub fn from_raw(raw: u64) -> Id {
        Id(raw & ((1 << KIND) - 1))
    }

    /// As a number, never 0.
    pub fn raw(self) -> u64 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as usize & ((1 << INDEX_BITS) - 1)
    }
}

/// Who answers for an extent: it is there as long as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Its uses alone.
    Nobody,
    /// A process, which alone knows of it.
    Process(Slot),
    /// A process, which is about to free it: nobody uses it any more, and nothing belongs to it.
    Freeing(Slot),
    /// A process, which ends the block here: performs its last rites, frees what belongs to it.
    Ending(Slot),
    /// Those who stand on the roll at its beginning (see `shm::roll`).
    Members,
    /// A block of the commons that it belongs to.
    Block(Id),
    /// The job: it is never freed.
    Job,
}

impl Owner {
    fn pack(self) -> u64 {
        match self {
            Owner::Nobody => 0,
            Owner::Process(slot) => 1 << KIND | u64::from(slot.0),
            Owner::Members => 2 << KIND,
            Owner::Block(id) => 3 << KIND | id.0,
            Owner::Job => 4 << KIND,
            Owner::Freeing(slot) => 5 << KIND | u64::from(slot.0),
            Owner::Ending(slot) => 6 << KIND | u64::from(slot.0),
        }
    }

    /// Whatever else the word says is nobody's to free.
    fn unpack(raw: u64) -> Owner {
        match raw >> KIND {
            0 => Owner::Nobody,
            1 => Owner::Process(Slot(raw as u16)),
            2 => Owner::Members,
            3 => Owner::Block(Id::from_raw(raw)),
            5 => Owner::Freeing(Slot(raw as u16)),
            6 => Owner::Ending(Slot(raw as u16)),
            _ => Owner::Job,
        }
    }
}

/// One allocation, or one use of one.
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(32))]
pub struct Extent {
    pub(super) len: AtomicU64,
    pub(super) offset: AtomicU64,
    owner: AtomicU64,
    tag: AtomicU64,
}

/// What an extent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where in the table it is.
    pub(super) index: usize,
    /// First byte, within the area.
    pub offset: Offset,
    /// Bytes.
    pub len: u64,
    /// Who answers for it.
    pub owner: Owner,
    /// The only stride in which it is used, if there is but one.
    pub home: Option<Slot>,
    /// It is a use of the range at this offset.
    pub is_use: bool,
    pub(super) tag: u64,
}

impl Entry {
    /// Whether somebody is about to free it.
    pub(super) fn is_going(&self) -> bool {
        matches!(self.owner, Owner::Freeing(_) | Owner::Ending(_))
    }

    /// Its id. Of a use it means nothing.
    pub fn id(&self) -> Id {
        Id::from_raw(self.tag << INDEX_BITS | self.index as u64)
    }
}

impl Extent {
    fn read(&self, index: usize) -> Option<Entry> {
        // Acquire: whoever sees the length sees the rest.
        let len = self.len.load(Ordering::Acquire);
        if len == 0 {
            return None;
        }
        let offset = self.offset.load(Ordering::Relaxed);
        Some(Entry {
            index,
            offset: Offset(offset & LOW),
            len: len & LOW,
            owner: Owner::unpack(self.owner.load(Ordering::Relaxed)),
            home: (offset >> 48).checked_sub(1).map(|slot| Slot(slot as u16)),
            is_use: len & USE != 0,
            tag: self.tag.load(Ordering::Relaxed),
        })
    }

    fn write(&self, entry: &Entry) {
        let home = entry.home.map_or(0, |slot| u64::from(slot.0) + 1);
        crash::point();
        self.offset.store(entry.offset.0 | home << 48, Ordering::Relaxed);
        crash::point();
        self.owner.store(entry.owner.pack(), Ordering::Relaxed);
        crash::point();
        self.tag.store(entry.tag, Ordering::Relaxed);
        crash::point();
        let mark = if entry.is_use { USE } else { 0 };
        // Release: who sees the length sees the rest, even after a kill right here.
        self.len.store(entry.len | mark, Ordering::Release);
        crash::point();
    }
}

/// The state of one heap. All zeros is an empty one.
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct ExtentTable {
    pub(super) lock: QueueLock,
    /// Number in the id of the last allocation.
    next: AtomicU64,
    /// Deaths in the job when what the dead left behind was last looked for.
    pub swept: AtomicU32,
    _pad: AtomicU32,
    /// Extents that have ever been in use: the first ones.
    high: AtomicU64,
    pub(super) extents: [Extent; MAX_EXTENTS],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Extent>() == 32);
    assert!(offset_of!(Extent, len) == 0);
    assert!(offset_of!(Extent, owner) == 16);
    assert!(offset_of!(ExtentTable, next) == 8);
    assert!(offset_of!(ExtentTable, high) == 24);
    assert!(offset_of!(ExtentTable, extents) == 32);
    assert!(size_of::<ExtentTable>() == 128 << 10);
    assert!(MAX_EXTENTS < 1 << INDEX_BITS);
};

#[cfg(not(loom))]
// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for ExtentTable {}

impl ExtentTable {
    /// What is in use. Whoever does not hold the lock sees each word of an extent as it was at some
    /// moment: of one that changes, some words may be older than others.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let high = (self.high.load(Ordering::Acquire) as usize).min(MAX_EXTENTS);
        self.extents[..high].iter().enumerate().filter_map(|(index, extent)| extent.read(index))
    }

    /// The range with an id, if it is still there. Whoever does not hold the lock learns only that it
    /// is: a tag is never stored twice, but the other words may be those of the last range here.
    pub fn find(&self, id: Id) -> Option<Entry> {
        let entry = self.extents.get(id.index())?.read(id.index())?;
        (!entry.is_use && entry.id() == id).then_some(entry)
    }

    /// An extent that is not in use. The caller holds the lock.
    pub(super) fn vacant(&self) -> Option<usize> {
        let high = self.high.load(Ordering::Relaxed) as usize;
        let below = |i: &usize| self.extents[*i].len.load(Ordering::Relaxed) == 0;
        (0..high.min(MAX_EXTENTS)).find(below).or((high < MAX_EXTENTS).then_some(high))
    }

    /// Puts a range or a use into a vacant extent. The caller holds the lock.
    pub(super) fn insert(&self, mut entry: Entry) -> Entry {
        if !entry.is_use {
            entry.tag = self.next.load(Ordering::Relaxed) + 1;
            crash::point();
            self.next.store(entry.tag, Ordering::Relaxed);
        }
        crash::point();
        // Before the extent is in use: whoever sees it in use looks at it.
        if self.high.load(Ordering::Relaxed) <= entry.index as u64 {
            self.high.store(entry.index as u64 + 1, Ordering::Release);
        }
        self.extents[entry.index].write(&entry);
        entry
    }

    /// Hands an extent to another owner. The caller holds the lock.
    pub(super) fn hand(&self, entry: &Entry, owner: Owner) {
        crash::point();
        self.extents[entry.index].owner.store(owner.pack(), Ordering::Release);
        crash::point();
    }

    /// Changes how often a use is one. The caller holds the lock.
    pub(super) fn count(&self, entry: &Entry, uses: u64) {
        crash::point();
        self.extents[entry.index].tag.store(uses, Ordering::Relaxed);
        crash::point();
    }

    /// Ends a range or a use. The caller holds the lock.
    pub(super) fn remove(&self, entry: &Entry) {
        crash::point();
        self.extents[entry.index].len.store(0, Ordering::Release);
        crash::point();
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn empty() -> Box<ExtentTable> {
        // SAFETY: a SharedLayout: all zeros is valid.
        unsafe { Box::<ExtentTable>::new_zeroed().assume_init() }
    }
}
