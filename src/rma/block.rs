//! A window's block in the commons: what all its members share about it.
//!
//! ```text
//! WindowHeader   128 B      line 0: kind, size, where its memory lies; line 1: accumulates
//! everywhere     set        members that hold a lock on every part (see `bits`)
//! Part           x n        one record per member:
//!   PartInfo      64 B        where the part lies, its size and displacement unit, presence
//!   PassiveLine   64 B        its passive-target lock
//!   PartLine      64 B        active-message lock, poison
//!   ActiveLine    64 B        where its owner waits for posts and completions, and for signals
//!   readers       set         who holds its lock shared
//!   posted        set         who has exposed its part to this member
//!   completed     set         who has completed its accesses to this member's part
//!   Stripe        64 B x 32   locks of accumulates, one per stretch of the part in turn
//! ```
//! Sets are rounded up to a line. Everything is indexed by rank in the window's team.

use super::bits::{Bits, words};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Deadline, Error, Offset, Result};
use crate::coll::Team;
use crate::shm::lock::QueueLock;
use crate::shm::map::{PAGE, available_memory, round_up};
use crate::shm::park::WaitCell;
use crate::shm::region::{SharedLayout, locate};
use std::ptr::NonNull;
use std::time::Duration;

/// Longest wait for a lock that nobody can hold for long any more.
const PATIENCE: Duration = Duration::from_secs(5);
const WINDOW_MAGIC: u64 = 0x4869_5769_6e64_0002;
/// The member has dropped the window.
const GONE: u32 = 1;
/// Locks of accumulates per part.
pub(crate) const STRIPES: usize = 32;

#[repr(C, align(64))]
pub(crate) struct WindowHeader {
    /// [`WINDOW_MAGIC`], stored last.
    magic: AtomicU64,
    /// Offset of the window within every member's stride.
    heap: AtomicU64,
    /// Bytes of each part.
    bytes: AtomicU64,
    /// Members.
    size: AtomicU32,
    _pad0: AtomicU32,
    _pad1: [AtomicU64; 4],
    /// How elements are updated at present (see `accumulate`). Read by every accumulate, seldom
    /// written.
    pub accumulate: AtomicU64,
    _pad2: [AtomicU64; 7],
}

/// Where a member's part lies. Written by its owner while the window is made; read-only then, but
/// for `presence`.
#[repr(C, align(64))]
pub(crate) struct PartInfo {
    /// Offset in the segment of the part's first byte.
    pub offset: AtomicU64,
    /// Bytes of the part.
    pub bytes: AtomicU64,
    /// Bytes per displacement.
    pub unit: AtomicU32,
    /// How it can be reached.
    pub reach: AtomicU32,
    presence: AtomicU32,
    _pad0: AtomicU32,
    _pad1: [AtomicU64; 4],
}

/// The passive-target lock of a part.
#[repr(C, align(64))]
pub(crate) struct PassiveLine {
    /// Held by whoever holds the part exclusively or waits for its readers to go; passed through
    /// by readers that found it taken.
    pub gate: QueueLock,
    /// Rank + 1 of whoever holds the part exclusively.
    pub exclusive: AtomicU32,
    _pad0: AtomicU32,
    /// Where the holder of the gate waits for the readers to go.
    pub drained: WaitCell,
    _pad1: [AtomicU64; 5],
}

/// What is shared about the active messages on one member's part.
#[repr(C, align(64))]
pub(crate) struct PartLine {
    /// Serialises the active messages on this part.
    pub am_lock: QueueLock,
    /// Slot + 1 of a process that died inside an active message on this part, else 0.
    pub poison: AtomicU32,
    _pad0: AtomicU32,
    _pad1: [AtomicU64; 6],
}

/// Where the owner of a part waits.
#[repr(C, align(64))]
pub(crate) struct ActiveLine {
    /// For posts and completions.
    pub active: WaitCell,
    /// For a word of the part to change.
    pub signal: WaitCell,
    _pad: [AtomicU64; 6],
}

/// A lock of accumulates.
#[repr(C, align(64))]
pub(crate) struct Stripe {
    pub lock: QueueLock,
    _pad: [AtomicU64; 7],
}

// SAFETY: repr(C) of atomics.
unsafe impl SharedLayout for WindowHeader {}
// SAFETY: repr(C) of atomics.
unsafe impl SharedLayout for PartInfo {}
// SAFETY: repr(C) of atomics (locks and cells are some).
unsafe impl SharedLayout for PassiveLine {}
// SAFETY: repr(C) of atomics (the lock is one).
unsafe impl SharedLayout for PartLine {}
// SAFETY: repr(C) of atomics (the cells are some).
unsafe impl SharedLayout for ActiveLine {}
// SAFETY: repr(C) of atomics (the lock is one).
unsafe impl SharedLayout for Stripe {}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<WindowHeader>() == 128);
    assert!(offset_of!(WindowHeader, accumulate) == 64);
    assert!(size_of::<PartInfo>() == 64);
    assert!(size_of::<PassiveLine>() == 64);
    assert!(offset_of!(PassiveLine, exclusive) == 8);
    assert!(offset_of!(PassiveLine, drained) == 16);
    assert!(size_of::<PartLine>() == 64);
    assert!(offset_of!(PartLine, poison) == 8);
    assert!(size_of::<ActiveLine>() == 64);
    assert!(size_of::<Stripe>() == 64);
};

/// Offsets in a block for a team of some size.
#[derive(Clone, Copy, Debug)]
struct Plan {
    set: usize,
    parts: usize,
    part: usize,
    bytes: u64,
}

const PASSIVE: usize = size_of::<PartInfo>();
const AM: usize = PASSIVE + size_of::<PassiveLine>();
const ACTIVE: usize = AM + size_of::<PartLine>();
const SETS: usize = ACTIVE + size_of::<ActiveLine>();

/// The sets of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Set {
    /// Who holds its lock shared.
    Readers = 0,
    /// Who has exposed its part to this member.
    Posted = 1,
    /// Who has completed its accesses to this member's part.
    Completed = 2,
}

impl Plan {
    fn new(size: u32) -> Plan {
        let set = (words(size) * 8).next_multiple_of(64);
        let parts = size_of::<WindowHeader>() + set;
        let part = SETS + 3 * set + STRIPES * size_of::<Stripe>();
        let bytes = round_up((parts + part * size as usize) as u64, PAGE);
        Plan { set, parts, part, bytes }
    }
}

/// Access to a window's block, and this process's membership in it.
#[derive(Debug)]
pub(crate) struct WindowBlock {
    pub at: Offset,
    base: NonNull<u8>,
    plan: Plan,
    pub team: Team,
    pub heap: u64,
    pub bytes: u64,
}

// SAFETY: `base` points into the mapping that `team` keeps alive; access is through SharedLayout
// references only.
unsafe impl Send for WindowBlock {}
// SAFETY: as above.
unsafe impl Sync for WindowBlock {}

/// Allocates the block and the address range of a window (no pages of the latter yet).
pub(super) fn create(team: &Team, bytes: u64) -> Result<Offset> {
    check_total(bytes, team.size())?;
    let node = team.node();
    let length = Plan::new(team.size()).bytes;
    let at = node.alloc_commons(length)?;
    let fill = || {
        node.reserve(at, length, "a window's control lines")?;
        let heap = node.alloc_symmetric(bytes)?;
        let header: NonNull<WindowHeader> = locate(node.mapping(), at, length, PAGE)?.cast();
        // SAFETY: `locate` checked bounds and alignment; WindowHeader is a SharedLayout.
        let header = unsafe { header.as_ref() };
        header.heap.store(heap, Ordering::Relaxed);
        header.bytes.store(bytes, Ordering::Relaxed);
        header.size.store(team.size(), Ordering::Relaxed);
        header.magic.store(WINDOW_MAGIC, Ordering::Release);
        Ok(())
    };
    if let Err(error) = fill() {
        let _ = node.free_commons(at);
        return Err(error);
    }
    Ok(at)
}

/// Checks the block at `at`; returns where it lies, its offset in every stride, and the bytes of
/// each part.
fn validate(team: &Team, at: Offset) -> Result<(NonNull<u8>, u64, u64)> {
    let node = team.node();
    let base = locate(node.mapping(), at, Plan::new(team.size()).bytes, PAGE)?;
    // SAFETY: `locate` checked bounds and alignment; WindowHeader is a SharedLayout.
    let header: &WindowHeader = unsafe { base.cast().as_ref() };
    let magic = header.magic.load(Ordering::Acquire);
    let heap = header.heap.load(Ordering::Relaxed);
    let bytes = header.bytes.load(Ordering::Relaxed);
    let fits = heap.checked_add(bytes).is_some_and(|end| end <= node.areas().stride);
    if magic != WINDOW_MAGIC || header.size.load(Ordering::Relaxed) != team.size() || !fits {
        return Err(Error::Incompatible {
            what: "a window's block",
            why: format!("no finished window of this team lies at {at}"),
        });
    }
    Ok((base, heap, bytes))
}

/// Undoes [`create`], for a window that no other member has heard of.
pub(super) fn discard(team: &Team, at: Offset) {
    // Failure leaves addresses taken until the job ends.
    if let Ok((_, heap, _)) = validate(team, at) {
        let _ = team.node().free_symmetric(heap, std::iter::empty());
    }
    let _ = team.node().free_commons(at);
}

/// An error if all parts together do not fit the memory there is now. Asked once, before the
/// members reserve their parts at the same time, each of which sees the same room.
fn check_total(bytes: u64, size: u32) -> Result<()> {
    let wanted = bytes.saturating_mul(size.into());
    let (available, limit) = available_memory();
    if wanted <= available {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        what: format!("a window of {size} parts of {bytes} bytes"),
        wanted,
        available,
        limit,
        advice: "use a smaller window, fewer ranks, or raise that limit",
    })
}

impl WindowBlock {
    /// Opens the block that the team's first member created.
    pub fn open(team: &Team, at: Offset) -> Result<WindowBlock> {
        let (base, heap, bytes) = validate(team, at)?;
        let plan = Plan::new(team.size());
        Ok(WindowBlock { at, base, plan, team: team.clone(), heap, bytes })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> &WindowHeader {
        // SAFETY: `open` checked the block; it begins with the header.
        unsafe { self.base.cast().as_ref() }
    }

    /// The members that hold a lock on every part.
    #[inline]
    pub fn everywhere(&self) -> Bits<'_> {
        // SAFETY: the set follows the header inside the block that `open` checked.
        unsafe { Bits::new(self.base.add(size_of::<WindowHeader>()).cast(), self.plan.set / 8) }
    }

    /// A record in a member's part; ranks beyond the team fold onto rank 0.
    ///
    /// # Safety
    /// A `T` lies at `at` of every part of the plan.
    #[inline]
    unsafe fn record<T: SharedLayout>(&self, rank: u32, at: usize) -> &T {
        let rank = if rank < self.team.size() { rank } else { 0 };
        let at = self.plan.parts + self.plan.part * rank as usize + at;
        // SAFETY: rank < size, so the record lies inside the block that `open` checked.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// Where a member's part lies.
    #[inline]
    pub fn info(&self, rank: u32) -> &PartInfo {
        // SAFETY: as the layout says.
        unsafe { self.record(rank, 0) }
    }

    /// The passive-target lock of a member's part.
    #[inline]
    pub fn passive(&self, rank: u32) -> &PassiveLine {
        // SAFETY: as the layout says.
        unsafe { self.record(rank, PASSIVE) }
    }

    /// The line of a member's active messages.
    #[inline]
    pub fn part(&self, rank: u32) -> &PartLine {
        // SAFETY: as the layout says.
        unsafe { self.record(rank, AM) }
    }

    /// Where a member waits.
    #[inline]
    pub fn active(&self, rank: u32) -> &ActiveLine {
        // SAFETY: as the layout says.
        unsafe { self.record(rank, ACTIVE) }
    }

    /// One of the sets of a member's part.
    #[inline]
    pub fn set(&self, rank: u32, which: Set) -> Bits<'_> {
        let at = SETS + which as usize * self.plan.set;
        // SAFETY: as the layout says; the set has plan.set bytes.
        unsafe {
            let first: &AtomicWord = self.record(rank, at);
            Bits::new(NonNull::from(&first.0), self.plan.set / 8)
        }
    }

    /// One of the locks of accumulates on a member's part, in turn.
    #[inline]
    pub fn stripe(&self, rank: u32, index: usize) -> &Stripe {
        let at = SETS + 3 * self.plan.set + (index % STRIPES) * size_of::<Stripe>();
        // SAFETY: as the layout says.
        unsafe { self.record(rank, at) }
    }
}

/// The first word of a set.
#[repr(transparent)]
struct AtomicWord(AtomicU64);

// SAFETY: one atomic.
unsafe impl SharedLayout for AtomicWord {}

impl Drop for WindowBlock {
    /// The last member to drop the window frees it for all: until then others may have
    /// operations in flight on any part. The dead count as having dropped it. Who is last is
    /// decided under the lock of the commons, so that nobody looks at what another has freed.
    fn drop(&mut self) {
        let node = self.team.node();
        let slot_of = |rank| self.team.slot_of(rank);
        let last = || {
            self.info(self.team.rank().0).presence.store(GONE, Ordering::Release);
            let last = self.team.ranks().all(|rank| {
                self.info(rank.0).presence.load(Ordering::Acquire) == GONE
                    || slot_of(rank).is_ok_and(|slot| node.probe(slot))
            });
            if last {
                // Taking each lock once sweeps what dead waiters left in it (see `shm::lock`).
                for rank in self.team.ranks() {
                    let stripes = (0..STRIPES).map(|i| &self.stripe(rank.0, i).lock);
                    let others = [&self.part(rank.0).am_lock, &self.passive(rank.0).gate];
                    for lock in stripes.chain(others) {
                        let _ = lock.lock(&**node, Deadline::after(PATIENCE)).map(drop);
                    }
                }
                // Failure leaves the memory allocated until the job ends.
                let slots = self.team.ranks().filter_map(|r| slot_of(r).ok());
                let _ = node.free_symmetric(self.heap, slots);
            }
            last
        };
        let _ = node.free_commons_if(self.at, last);
    }
}
