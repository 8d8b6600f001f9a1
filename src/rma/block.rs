//! A window's block in the commons: what all its members share about it.
//!
//! ```text
//! WindowHeader   64 B      where its symmetric memory lies, life cycle
//! PartLine       64 B x n  one line per member's part: active-message lock, poison, presence
//! ```

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Deadline, Error, Offset, Result};
use crate::coll::Team;
use crate::shm::lock::QueueLock;
use crate::shm::map::{PAGE, available_memory, round_up};
use crate::shm::region::{SharedLayout, locate};
use std::ptr::NonNull;
use std::time::Duration;

/// Longest wait for a lock that nobody can hold for long any more.
const PATIENCE: Duration = Duration::from_secs(5);
const WINDOW_MAGIC: u64 = 0x4869_5769_6e64_0001;
/// The member has dropped the window.
const GONE: u32 = 1;

#[repr(C, align(64))]
struct WindowHeader {
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
}

/// What is shared about one member's part.
#[repr(C, align(64))]
pub(crate) struct PartLine {
    /// Serialises the active messages on this part.
    pub am_lock: QueueLock,
    /// Slot + 1 of a process that died inside an active message on this part, else 0.
    pub poison: AtomicU32,
    presence: AtomicU32,
    _pad: [AtomicU64; 6],
}

// SAFETY: repr(C) of atomics.
unsafe impl SharedLayout for WindowHeader {}
// SAFETY: repr(C) of atomics (the lock is one).
unsafe impl SharedLayout for PartLine {}

const _: () = {
    assert!(size_of::<WindowHeader>() == 64);
    assert!(size_of::<PartLine>() == 64);
    assert!(std::mem::offset_of!(PartLine, poison) == 8);
};

/// Access to a window's block, and this process's membership in it.
#[derive(Debug)]
pub(super) struct WindowBlock {
    pub at: Offset,
    base: NonNull<u8>,
    pub team: Team,
    pub heap: u64,
    pub bytes: u64,
}

// SAFETY: `base` points into the mapping that `team` keeps alive; access is through SharedLayout
// references only.
unsafe impl Send for WindowBlock {}
// SAFETY: as above.
unsafe impl Sync for WindowBlock {}

fn block_bytes(size: u32) -> u64 {
    round_up((size_of::<WindowHeader>() + size_of::<PartLine>() * size as usize) as u64, PAGE)
}

/// Allocates the block and the address range of a window (no pages of the latter yet).
pub(super) fn create(team: &Team, bytes: u64) -> Result<Offset> {
    check_total(bytes, team.size())?;
    let node = team.node();
    let length = block_bytes(team.size());
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
    let base = locate(node.mapping(), at, block_bytes(team.size()), PAGE)?;
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
        Ok(WindowBlock { at, base, team: team.clone(), heap, bytes })
    }

    /// The line of a member's part; ranks beyond the team fold onto rank 0.
    #[inline]
    pub fn part(&self, rank: u32) -> &PartLine {
        let rank = if rank < self.team.size() { rank } else { 0 };
        let at = size_of::<WindowHeader>() + size_of::<PartLine>() * rank as usize;
        // SAFETY: rank < size, so the line lies inside the block that `open` checked.
        unsafe { self.base.add(at).cast().as_ref() }
    }
}

impl Drop for WindowBlock {
    /// The last member to drop the window frees it for all: until then others may have
    /// operations in flight on any part. The dead count as having dropped it. Who is last is
    /// decided under the lock of the commons, so that nobody looks at what another has freed.
    fn drop(&mut self) {
        let node = self.team.node();
        let slot_of = |rank| self.team.slot_of(rank);
        let last = || {
            self.part(self.team.rank().0).presence.store(GONE, Ordering::Release);
            let last = self.team.ranks().all(|rank| {
                self.part(rank.0).presence.load(Ordering::Acquire) == GONE
                    || slot_of(rank).is_ok_and(|slot| node.probe(slot))
            });
            if last {
                // Taking each lock once sweeps what dead waiters left in it (see `shm::lock`).
                for rank in self.team.ranks() {
                    let lock = &self.part(rank.0).am_lock;
                    let _ = lock.lock(&**node, Deadline::after(PATIENCE)).map(drop);
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
