//! A window's block in the commons: what all its members share about it.
//!
//! ```text
//! roll                      members and their presence, see `shm::roll`
//! WindowHeader   128 B      line 0: kind, size, where its memory lies; line 1: accumulates
//! everywhere     set        members that hold a lock on every part (see `bits`)
//! Part           x n        one record per member:
//!   PartInfo      64 B        where the part lies, its size and displacement unit; of
//!                             a dynamic window: where the table of attachments lies
//!   PartLock      64 B        its passive-target lock (see `shm::lock::part`)
//!   PartLine      64 B        active messages: lock, poison, count
//!   ActiveLine    64 B        where its owner waits for posts and completions, and for signals
//!   readers       set         who holds its lock shared
//!   posts         2 B x n     of each member as a target: has it exposed its part to this one
//!   answers       2 B x n     of each member as an origin: is it done with this one's part (see
//!                             `shm::pair`)
//!   Stripe        64 B x 32   locks of accumulates, one per stretch of the part in turn
//! Copied        16 B x m    of a window on several nodes whose parts may differ: size and unit of
//!                           every member's part, on each node once
//! ```
//! Sets, posts and answers are rounded up to a line. Everything is indexed by rank in the window's
//! team; of a team on several nodes each node has a block for its own members, indexed by their
//! numbers among those, and the synchronisation of the window is its packets' business.

pub(crate) use super::directory::Entry;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Rank, Slot};
use crate::coll::Team;
use crate::shm::bias::Bias;
use crate::shm::bits::{Bits, words};
use crate::shm::holding::Holding;
use crate::shm::lock::part::{PartLock, Parts};
use crate::shm::lock::{Caller, QueueLock};
use crate::shm::map::{PAGE, round_up};
use crate::shm::pair::{Answered, Pair, Posted};
use crate::shm::park::WaitCell;
use crate::shm::region::SharedLayout;
use crate::shm::segment::MAX_CAPACITY;
use crate::shm::seq::SeqWord;
use std::ptr::NonNull;

/// Locks of accumulates per part.
pub(crate) const STRIPES: usize = 32;

#[repr(C, align(64))]
pub(crate) struct WindowHeader {
    /// Offset of the window's range within every stride.
    pub(super) heap: AtomicU64,
    /// Bytes of that range; 0 if the window has none.
    pub(super) bytes: AtomicU64,
    /// Members.
    pub(super) size: AtomicU32,
    /// Slot + 1 of the only stride in which the range is used, 0 for those of all members.
    pub(super) home: AtomicU32,
    /// A [`Flavour`](super::kind::Flavour).
    pub(super) flavour: AtomicU32,
    _pad0: AtomicU32,
    /// Where those wait who wait for `everywhere` to become empty.
    vacated: WaitCell,
    /// The number of a window on several nodes; 0 of others.
    pub(super) number: AtomicU64,
    _pad1: [AtomicU64; 2],
    /// How elements are updated at present (see `accumulate`). Read by every accumulate, seldom
    /// written.
    pub accumulate: Bias,
    _pad2: [AtomicU64; 7],
}

/// Where a member's part lies. Written by its owner while the window is made; read-only then.
#[repr(C, align(64))]
pub(crate) struct PartInfo {
    /// Offset in the segment of the part's first byte, if it is mapped.
    offset: AtomicU64,
    /// Bytes of the part.
    bytes: AtomicU64,
    /// Bytes per displacement.
    unit: AtomicU32,
    /// How it can be reached: one of the `REACH_` values.
    reach: AtomicU32,
    _pad0: AtomicU64,
    /// Of a dynamic window: guards the next two.
    pub(super) attached: SeqWord,
    /// Offset of the table of attachments in the segment; 0 if there is none.
    pub(super) table: AtomicU64,
    /// Attachments in it.
    pub(super) count: AtomicU64,
    /// Fence epochs by packets that the member had ended when it dropped the window.
    fences: AtomicU64,
}

/// A part that every process of the node has mapped.
pub(crate) const REACH_MAPPED: u32 = 1;
/// A part that only its owner has mapped.
pub(crate) const REACH_PRIVATE: u32 = 2;

impl PartInfo {
    /// What the record says, as a peer wrote it: nothing of it is checked.
    #[inline]
    pub fn entry(&self) -> Entry {
        Entry {
            offset: self.offset.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            unit: self.unit.load(Ordering::Relaxed),
            reach: self.reach.load(Ordering::Relaxed),
        }
    }

    /// Fills in the record: its owner, while the window is made.
    pub fn fill(&self, entry: Entry) {
        self.offset.store(entry.offset, Ordering::Relaxed);
        self.bytes.store(entry.bytes, Ordering::Relaxed);
        self.unit.store(entry.unit, Ordering::Relaxed);
        self.reach.store(entry.reach, Ordering::Release);
    }
}

/// What is known on a node about a part, of a window whose members are on several.
#[repr(C)]
pub(super) struct Copied {
    bytes: AtomicU64,
    unit: AtomicU64,
}

/// What is shared about the active messages on one member's part.
#[repr(C, align(64))]
pub(crate) struct PartLine {
    /// Serialises the active messages on this part.
    pub am_lock: QueueLock,
    /// Slot + 1 of a process that died inside an active message on this part, else 0.
    pub poison: AtomicU32,
    _pad0: AtomicU32,
    /// Counts the times that messages ran on this part.
    pub version: AtomicU64,
    _pad1: [AtomicU64; 5],
}

/// Where the owner of a part waits.
#[repr(C, align(64))]
pub(crate) struct ActiveLine {
    /// For posts and completions.
    pub active: WaitCell,
    /// For a word of the part to change.
    pub signal: WaitCell,
    /// Slot + 1 of the dead process because of which the owner last gave up or lost an epoch; 0 if
    /// it was for another reason.
    pub cause: AtomicU32,
    _pad0: AtomicU32,
    _pad1: [AtomicU64; 5],
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
    assert!(size_of::<PartLine>() == 64);
    assert!(offset_of!(PartLine, poison) == 8);
    assert!(size_of::<ActiveLine>() == 64);
    assert!(offset_of!(ActiveLine, cause) == 16);
    assert!(size_of::<Stripe>() == 64);
    assert!(size_of::<Copied>() == 16);
};

/// Where the parts' records lie in a block for a team of some size: every window keeps it, so it is
/// small, and the rest is computed from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The first record, and bytes from one to the next.
    parts: u32,
    part: u32,
}

const PASSIVE: usize = size_of::<PartInfo>();
const AM: usize = PASSIVE + size_of::<PartLock>();
const ACTIVE: usize = AM + size_of::<PartLine>();
const SETS: usize = ACTIVE + size_of::<ActiveLine>();
const LOCKS: usize = STRIPES * size_of::<Stripe>();

impl Plan {
    pub(super) fn new(size: u32) -> Plan {
        let set = (words(size) * 8).next_multiple_of(64);
        let row = (size as usize * size_of::<Posted>()).next_multiple_of(64);
        // A team has at most as many members as a node has slots: far below what a u32 holds.
        let parts = (size_of::<WindowHeader>() + set) as u32;
        let part = (SETS + set + 2 * row + LOCKS) as u32;
        Plan { parts, part }
    }

    /// Bytes of the block of a team of `size`, behind its roll.
    pub(super) fn bytes(&self, size: u32) -> u64 {
        self.bytes_with(size, 0)
    }

    /// The same with `copied` sizes of parts.
    pub(super) fn bytes_with(&self, size: u32, copied: u32) -> u64 {
        let copies = u64::from(copied) * size_of::<Copied>() as u64;
        round_up(u64::from(self.parts) + u64::from(self.part) * u64::from(size) + copies, PAGE)
    }

    /// Where a member's record lies.
    #[inline]
    fn record(&self, rank: u32) -> usize {
        self.parts as usize + self.part as usize * rank as usize
    }

    /// Where the posts lie in a record, behind the set.
    fn posts(&self) -> usize {
        SETS + self.parts as usize - size_of::<WindowHeader>()
    }

    /// Where the locks of accumulates lie in a record: at its end.
    fn stripes(&self) -> usize {
        self.part as usize - LOCKS
    }

    /// Where the answers lie in a record, halfway from the posts to the locks.
    fn answers(&self) -> usize {
        self.posts().midpoint(self.stripes())
    }
}

/// Access to a window's block, and this process's membership in it.
#[derive(Debug)]
pub(crate) struct WindowBlock {
    /// What keeps it.
    pub(super) holding: Holding,
    /// Its header.
    pub(super) base: NonNull<u8>,
    pub(super) plan: Plan,
    pub team: Team,
    /// This member and its slot, and how many there are, on this node: here, because the team has
    /// them several loads away, and short, because every window has them (a node has at most
    /// [`MAX_CAPACITY`] slots).
    pub(super) me: u16,
    pub(super) slot: Slot,
    pub(super) size: u16,
    /// Some members are on other nodes: ranks are not the numbers of members here.
    pub(super) spans: bool,
    /// The window's range within every stride, and its bytes.
    pub heap: u64,
    pub bytes: u64,
}

const _: () = assert!(MAX_CAPACITY <= u16::MAX as u32);

// SAFETY: `base` points into the mapping that `team` keeps alive; access is through SharedLayout
// references only.
unsafe impl Send for WindowBlock {}
// SAFETY: as above.
unsafe impl Sync for WindowBlock {}

impl WindowBlock {
    /// The header.
    #[inline]
    pub fn header(&self) -> &WindowHeader {
        // SAFETY: `kind::life` checked the block; it begins with the header.
        unsafe { self.base.cast().as_ref() }
    }

    /// The members that hold a lock on every part.
    #[inline]
    pub fn everywhere(&self) -> Bits<'_> {
        // SAFETY: the set follows the header inside the block that `kind::life` checked.
        unsafe {
            Bits::new(self.base.add(size_of::<WindowHeader>()).cast(), words(self.size.into()))
        }
    }

    /// The number here of a rank of the team. That of one on another node, who has none, is that of
    /// this member: nobody has any business there.
    #[inline]
    fn index(&self, rank: u32) -> u32 {
        if self.spans { self.team.local_of(Rank(rank)).unwrap_or(self.me.into()) } else { rank }
    }

    /// Whether a member's records are in this block: it is on this node.
    #[inline]
    pub fn is_here(&self, rank: u32) -> bool {
        !self.spans || self.team.local_of(Rank(rank)).is_some()
    }

    /// What the node's copy says of a part of a window on several nodes, if it has one.
    pub fn copied(&self, rank: u32) -> Entry {
        let reach = REACH_PRIVATE;
        if rank >= self.team.size() {
            return Entry { reach, ..Entry::default() };
        }
        let copied = self.copy_of(rank);
        let bytes = copied.bytes.load(Ordering::Relaxed);
        let unit = copied.unit.load(Ordering::Relaxed) as u32;
        Entry { offset: 0, bytes, unit, reach }
    }

    /// Fills in the copy: the first member on the node, while the window is made.
    pub fn copy(&self, rank: u32, bytes: u64, unit: u64) {
        if rank < self.team.size() {
            let copied = self.copy_of(rank);
            copied.bytes.store(bytes, Ordering::Relaxed);
            copied.unit.store(unit, Ordering::Release);
        }
    }

    fn copy_of(&self, rank: u32) -> &Copied {
        let at = self.plan.record(self.size.into()) + rank as usize * size_of::<Copied>();
        // SAFETY: only windows that have a copy come here, and `kind::life` checked the block with
        // as many of them as the team has members; the records before them end at multiples of 64.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// A record in a member's part; numbers beyond the block fold onto 0.
    ///
    /// # Safety
    /// A `T` lies at `at` of every part of the plan.
    #[inline]
    unsafe fn record<T: SharedLayout>(&self, rank: u32, at: usize) -> &T {
        let rank = if rank < self.size.into() { rank } else { 0 };
        let at = self.plan.record(rank) + at;
        // SAFETY: rank < size, so the record lies inside the block that `kind::life` checked.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// Where a member's part lies, as its owner wrote it. Of a window on several nodes the node's copy
    /// says it, the same on all of them, and only how large the part is.
    #[inline]
    pub fn entry(&self, rank: u32) -> Entry {
        if self.spans { self.copied(rank) } else { self.info(rank).entry() }
    }

    /// A member's record.
    #[inline]
    pub fn info(&self, rank: u32) -> &PartInfo {
        // SAFETY: as the layout says.
        unsafe { self.record(self.index(rank), 0) }
    }

    /// The passive-target lock of a member's part.
    #[inline]
    pub fn passive(&self, rank: u32) -> &PartLock {
        // SAFETY: as the layout says.
        unsafe { self.record(rank, PASSIVE) }
    }

    /// The line of a member's active messages.
    #[inline]
    pub fn part(&self, rank: u32) -> &PartLine {
        // SAFETY: as the layout says.
        unsafe { self.record(self.index(rank), AM) }
    }

    /// Bytes from a record in one member's part to the same one in the next member's.
    pub fn apart(&self) -> usize {
        self.plan.part as usize
    }

    /// Where a member waits.
    #[inline]
    pub fn active(&self, rank: u32) -> &ActiveLine {
        // SAFETY: as the layout says.
        unsafe { self.record(self.index(rank), ACTIVE) }
    }

    /// Who holds the lock of a member's part shared.
    #[inline]
    fn readers_of(&self, rank: u32) -> Bits<'_> {
        // SAFETY: as the layout says; the set has as many words.
        unsafe {
            let first: &AtomicWord = self.record(rank, SETS);
            Bits::new(NonNull::from(&first.0), words(self.size.into()))
        }
    }

    /// Notes how many fence epochs by packets this member has ended, before it drops the window.
    pub fn leave_fences(&self, number: u64) {
        self.info(self.team.rank().0).fences.store(number, Ordering::Release);
    }

    /// How many a member had ended that has dropped the window.
    pub fn left_fences(&self, member: u32) -> u64 {
        self.info(member).fences.load(Ordering::Acquire)
    }

    /// Whose death was the cause when a member last gave up or lost an epoch.
    pub fn cause_of(&self, member: u32) -> Option<Slot> {
        if !self.is_here(member) {
            return None;
        }
        let cause = self.active(member).cause.load(Ordering::Relaxed);
        let node = self.team.node();
        let slot = node.checked_slot(u64::from(cause.checked_sub(1)?)).ok()?;
        node.is_dead(slot).then_some(slot)
    }

    /// What a target and an origin tell each other.
    #[inline]
    pub fn pair(&self, target: u32, origin: u32) -> Pair<'_> {
        let within = |rank: u32| if rank < self.team.size() { rank as usize } else { 0 };
        let (posts, answers) = (self.plan.posts(), self.plan.answers());
        // SAFETY: as the layout says; there is one for each member.
        unsafe {
            Pair {
                posted: self.record(origin, posts + within(target) * size_of::<Posted>()),
                answered: self.record(target, answers + within(origin) * size_of::<Answered>()),
            }
        }
    }

    /// One of the locks of accumulates on a part, in turn. Parts in one stride are one memory to
    /// whoever looks across them: they share rank 0's.
    #[inline]
    pub fn stripe(&self, rank: u32, index: usize) -> &Stripe {
        let joined = self.header().home.load(Ordering::Relaxed) != 0;
        let rank = if joined { 0 } else { self.index(rank) };
        // SAFETY: as the layout says, of each of so many.
        unsafe { self.record(rank, self.plan.stripes() + index % STRIPES * size_of::<Stripe>()) }
    }
}

/// Every lock in the block of a window with `size` members.
///
/// # Safety
/// The header of such a block lies at `base`, and the block lasts for `'b`.
pub(super) unsafe fn locks<'b>(
    base: NonNull<u8>,
    size: u32,
) -> impl Iterator<Item = &'b QueueLock> {
    let plan = Plan::new(size);
    (0..size).flat_map(move |rank| {
        let at = plan.record(rank);
        let stripes = at + plan.stripes();
        // SAFETY: the records of a part lie there, as the layout says.
        unsafe {
            let passive: &PartLock = base.add(at + PASSIVE).cast().as_ref();
            let line: &PartLine = base.add(at + AM).cast().as_ref();
            let stripe = move |i| &base.add(stripes).cast::<Stripe>().add(i).as_ref().lock;
            [&passive.gate, &line.am_lock].into_iter().chain((0..STRIPES).map(stripe))
        }
    })
}

impl Parts for WindowBlock {
    type Env = Caller;
    #[inline]
    fn env(&self) -> &Caller {
        Caller::of(self.team.node())
    }
    #[inline]
    fn me(&self) -> u32 {
        self.me.into()
    }
    #[inline]
    fn slot(&self) -> Slot {
        self.slot
    }
    #[inline]
    fn size(&self) -> u32 {
        self.size.into()
    }
    fn slot_of(&self, member: u32) -> Option<Slot> {
        self.team.slot_of(Rank(member)).ok()
    }
    #[inline]
    fn lock_of(&self, part: u32) -> &PartLock {
        self.passive(part)
    }
    #[inline]
    fn readers(&self, part: u32) -> Bits<'_> {
        self.readers_of(part)
    }
    #[inline]
    fn everywhere(&self) -> Bits<'_> {
        WindowBlock::everywhere(self)
    }
    #[inline]
    fn vacated(&self) -> &WaitCell {
        &self.header().vacated
    }
}

/// The first word of a set.
#[repr(transparent)]
struct AtomicWord(AtomicU64);

// SAFETY: one atomic.
unsafe impl SharedLayout for AtomicWord {}
