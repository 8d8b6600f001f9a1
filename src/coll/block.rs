//! A team's block in the commons.
//!
//! ```text
//! roll           members and their presence, see `shm::roll`
//! TeamHeader     192 B   life cycle, count barrier, survivors' team; rounded to a page
//! areas          AREA bytes x n, one per member, reserved by that member:
//!     MemberLines   flags, boards, posts  one page
//!     piece 0       PIECE bytes           data this member shows the others, even phases
//!     piece 1       PIECE bytes           odd phases
//!     result        PIECE bytes           this member's share of a reduction
//! ```
//! Phases: every synchronising step of a team has a number, the same in all members. A member
//! writes its piece or board of phase p and synchronises. It writes the same half again in phase
//! p + 2, which it reaches only after everybody entered phase p + 1, and so finished reading
//! phase p. Two halves are therefore enough. Small broadcasts do not synchronise and are no phases: see
//! `post`.

use super::aside::KEPT;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::base::{Error, Offset, Result, Slot};
use crate::shm::holding::Holding;
use crate::shm::map::{PAGE, round_up};
use crate::shm::node::Node;
use crate::shm::park::WaitCell;
use crate::shm::region::{SharedLayout, locate};
use crate::shm::roll::Roll;
use std::ptr::NonNull;
use std::sync::Arc;

/// Marks a finished team block.
pub(super) const TEAM_MAGIC: u64 = 0x4869_5465_616d_0006;
/// The kind of such a block.
const KIND: u32 = 1;
/// Bytes of one piece.
pub(super) const PIECE: usize = 16 << 10;
/// Bytes of one member's area.
const AREA: u64 = PAGE + 3 * PIECE as u64;
/// Rounds of the dissemination barrier that there are flags for: 4^8 members.
pub(super) const ROUNDS: usize = 8;
/// Payload bytes of a board.
pub(super) const BOARD: usize = 56;
/// Posts that a member may have ahead of one that has not looked.
pub(super) const POSTS: usize = 16;
/// Calls of a member that others can still look up: members are apart by at most all posts and a
/// synchronising step on both sides.
pub(super) const CALLS: usize = 2 * POSTS;

/// Contexts that a node can give out, where there are several.
const CONTEXTS: u32 = 1 << 20;

/// The context with a number that a node gives out: no other has it. The highest bit is left to
/// those of collectives (see `span`).
fn context(node: u32, nodes: u32, number: u32) -> Option<u32> {
    if nodes == 1 {
        return (number < 1 << 31).then_some(number);
    }
    let known = number < CONTEXTS - KEPT && node < (1 << 31) / CONTEXTS;
    known.then(|| node * CONTEXTS + number)
}

/// Start of the block.
#[repr(C, align(64))]
pub(super) struct TeamHeader {
    /// [`TEAM_MAGIC`], stored last.
    pub magic: AtomicU64,
    /// Members.
    pub size: AtomicU32,
    /// Why the team's collectives have ended (see `core`); else 0.
    pub broken: AtomicU32,
    /// Id of the block of the survivors' team, 0 while there is none.
    pub child: AtomicU64,
    /// Not 0 once a member has given up waiting for the others in the making of that.
    pub given_up: AtomicU32,
    /// By what messages of the team are told from those of others: never used before in this job.
    pub context: AtomicU32,
    /// Two ranks whose calls did not match; 0 while there are none.
    pub pair: AtomicU64,
    _pad0: [AtomicU64; 3],
    /// Count barrier: arrivals, ever, with the sum of their calls' words above.
    pub arrived: AtomicU64,
    _pad1: [AtomicU64; 7],
    /// Count barrier: barriers completed, and those who sleep for it.
    pub released: AtomicU64,
    /// Sleepers for `released` and for members joining.
    pub wait: WaitCell,
    _pad2: [AtomicU64; 6],
}

/// A value of at most [`BOARD`] bytes with its phase: one cache line.
#[repr(C, align(64))]
pub(super) struct Board {
    /// Phase of the payload, with the word of the call above; stored last with Release.
    pub step: AtomicU64,
    /// The payload; the owner writes it before `step`, others read it after.
    pub payload: UnsafeCell<[u64; BOARD / 8]>,
}

// SAFETY: the payload is written only by the owner, and between the phases in which others read
// it (module documentation); `step` orders the two.
unsafe impl Sync for Board {}

/// A board by itself in a pair of lines, as [`Flag`] is.
#[repr(C, align(128))]
pub(super) struct Pair(pub Board);

/// Dissemination barrier: the last phase whose round this is of a member has reached, with the word of
/// its call above. Two lines, as processors fetch lines in pairs: others poll one round's while the next is
/// written.
#[repr(C, align(128))]
pub(super) struct Flag(pub AtomicU64);

/// First page of a member's area.
#[repr(C, align(128))]
pub(super) struct MemberLines {
    /// One for each round, written by this member, polled by its partners of that round.
    pub flags: [Flag; ROUNDS],
    /// Boards of even and odd phases.
    pub boards: [Pair; 2],
    /// Sleepers waiting for anything this member writes.
    pub wait: WaitCell,
    _pad: [AtomicU64; 7],
    pub been: Been,
    /// Its latest calls, by their numbers.
    pub calls: [Doing; CALLS],
    /// What it has posted last, see `post`.
    pub posts: [Board; POSTS],
}

/// What a member has done, of which others read where they wait.
#[repr(C, align(64))]
pub(super) struct Been {
    /// Calls that it is through with: who leaves the job after a call is not missed in it.
    pub through: AtomicU64,
    /// Posts of all members that it is through with, or a few less.
    pub seen: AtomicU32,
    _pad: [AtomicU32; 13],
}

/// A call that a member is in or was in. Written at every step of one, and read by others only where
/// they wait in vain.
#[repr(C, align(32))]
pub(super) struct Doing {
    /// The number of the step, with the word of the call above.
    pub step: AtomicU64,
    /// The call in full (see `sign`).
    pub packed: AtomicU64,
    /// The same.
    pub bytes: AtomicU64,
}

// SAFETY: repr(C) of atomics and a protocol-owned cell; any bits are valid.
unsafe impl SharedLayout for TeamHeader {}
// SAFETY: as above.
unsafe impl SharedLayout for MemberLines {}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<TeamHeader>() == 192);
    assert!(offset_of!(TeamHeader, arrived) == 64);
    assert!(offset_of!(TeamHeader, released) == 128);
    assert!(size_of::<Board>() == 64);
    assert!(offset_of!(Board, payload) == 8);
    assert!(size_of::<Flag>() == 128);
    assert!(size_of::<MemberLines>() == 3456);
    assert!(offset_of!(MemberLines, boards) == 1024);
    assert!(offset_of!(MemberLines, wait) == 1280);
    assert!(offset_of!(MemberLines, been) == 1344);
    assert!(offset_of!(MemberLines, calls) == 1408);
    assert!(offset_of!(MemberLines, posts) == 2432);
    assert!(size_of::<Been>() == 64);
    assert!(size_of::<Doing>() == 32);
    assert!(offset_of!(TeamHeader, pair) == 32);
};

/// Access to one team's block.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub node: Arc<Node>,
    pub at: Offset,
    pub size: u32,
    pub roll: Roll,
    areas: NonNull<u8>,
    header: NonNull<TeamHeader>,
}

// SAFETY: both point into the mapping that `node` keeps alive; access is by SharedLayout
// references and protocol-owned copies.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn head_bytes(size: u32) -> u64 {
        round_up(Roll::bytes(size) + size_of::<TeamHeader>() as u64, PAGE)
    }

    /// Bytes of a block for `size` members.
    pub fn bytes(size: u32) -> u64 {
        Self::head_bytes(size) + u64::from(size) * AREA
    }

    /// A view of the block at `at`, bounds checked; it need not be finished.
    pub fn view(node: &Arc<Node>, at: Offset, size: u32) -> Result<Block> {
        let base = locate(node.mapping(), at, Self::bytes(size), PAGE)?;
        let roll = Roll::view(node.mapping(), at, size)?;
        // SAFETY: it lies behind the roll, in the first pages of what `locate` checked.
        let header = unsafe { base.add(Roll::bytes(size) as usize) }.cast();
        // SAFETY: `locate` checked `bytes(size)` bytes from there, of which the areas are all behind these.
        let areas = unsafe { base.add(Self::head_bytes(size) as usize) };
        Ok(Block { node: node.clone(), at, size, roll, areas, header })
    }

    /// Opens a finished block of `size` members.
    pub fn open(node: &Arc<Node>, at: Offset, size: u32) -> Result<Block> {
        let block = Self::view(node, at, size)?;
        let magic = block.header().magic.load(Ordering::Acquire);
        if magic != TEAM_MAGIC || block.header().size.load(Ordering::Relaxed) != size {
            return Err(Error::Incompatible {
                what: "a team's block",
                why: format!("no finished team of {size} lies at {at}"),
            });
        }
        Ok(block)
    }

    /// Makes the block of a team of `slots`, which this process, one of them, has joined. Behind
    /// it there are `tail` bytes, zeros, for a team on several nodes.
    pub fn create(node: &Arc<Node>, slots: &[Slot], tail: u64) -> Result<Holding> {
        let size = slots.len() as u32;
        let (bytes, head) = (Self::bytes(size), Self::head_bytes(size));
        let holding = Holding::create(node, KIND, bytes + tail, head, slots, "a team's header")?;
        if tail > 0 {
            node.reserve(Self::tail(holding.at(), size), tail, "a team's list of members")?;
        }
        Self::view(node, holding.at(), size)?.finish()?;
        Ok(holding)
    }

    /// Where what lies behind the block of `size` members begins.
    pub fn tail(at: Offset, size: u32) -> Offset {
        Offset(at.0 + Self::bytes(size))
    }

    /// Where the block of the whole job's team lies, as far as it is on this node, and of the
    /// node's own team: the first ones of the commons, where everybody looks for them. In a job of
    /// one node they are one.
    pub fn place_of_whole(node: &Arc<Node>) -> Offset {
        node.areas().commons().0
    }

    /// See [`Block::place_of_whole`].
    pub fn place_of_node(node: &Arc<Node>) -> Offset {
        let whole = Self::place_of_whole(node);
        if node.placement().nodes() == 1 {
            return whole;
        }
        Offset(whole.0 + round_up(Self::bytes(node.size()), PAGE))
    }

    /// Makes one of these two, in this order: not joined by anybody, and there for ever.
    pub fn create_lasting(node: &Arc<Node>, place: Offset) -> Result<()> {
        let size = node.size();
        let at = node.alloc_for_job(Self::bytes(size))?;
        let block = Self::view(node, at, size)?;
        if at != place {
            return Err(Error::Incompatible {
                what: "the node's commons",
                why: format!("a block lies at {at}, not at {place}"),
            });
        }
        node.reserve(at, Self::head_bytes(size), "a team's header")?;
        block.roll.write(KIND, (0..size as u16).map(Slot), node.slot().0.into());
        block.finish()
    }

    /// Finishes a fresh block, whose pages are zero behind its roll.
    fn finish(&self) -> Result<()> {
        self.header().size.store(self.size, Ordering::Relaxed);
        let context = Self::new_context(&self.node)?;
        self.header().context.store(context, Ordering::Relaxed);
        self.header().magic.store(TEAM_MAGIC, Ordering::Release);
        Ok(())
    }

    /// A context that no other team of the job has.
    pub fn new_context(node: &Node) -> Result<u32> {
        let number = node.header().contexts.fetch_add(1, Ordering::Relaxed);
        let placement = node.placement();
        context(placement.node(), placement.nodes(), number).ok_or(Error::Exhausted {
            what: "contexts for messages of teams",
            limit: number.into(),
            advice: "make fewer teams in one job, or fewer nodes: each team has one for ever",
        })
    }

    /// Reserves this member's area, on its own NUMA node.
    pub fn reserve_area(&self, rank: u32) -> Result<()> {
        let at = self.at.0 + Self::head_bytes(self.size) + u64::from(rank) * AREA;
        self.node.reserve(Offset(at), AREA, "a team member's exchange area")
    }

    #[inline]
    pub fn header(&self) -> &TeamHeader {
        // SAFETY: `view` checked the bounds of the whole block, page aligned.
        unsafe { self.header.as_ref() }
    }

    /// The slot of a member, as its creator wrote it; an error if no such slot exists.
    pub fn member(&self, rank: u32) -> Result<Slot> {
        if rank >= self.size {
            return Err(Error::invalid("rank", format!("{rank} in a team of {}", self.size)));
        }
        self.node.checked_slot(self.roll.slot(rank).into())
    }

    #[inline]
    fn area(&self, rank: u32) -> NonNull<u8> {
        let rank = if rank < self.size { rank } else { 0 };
        // SAFETY: rank < size, so the area lies within the block that `view` checked.
        unsafe { self.areas.add(rank as usize * AREA as usize) }
    }

    /// A member's flags and boards.
    #[inline]
    pub fn lines(&self, rank: u32) -> &MemberLines {
        // SAFETY: `area` is inside the block and page aligned.
        unsafe { self.area(rank).cast().as_ref() }
    }

    /// First byte of a member's piece for a phase.
    pub fn piece(&self, rank: u32, phase: u32) -> *mut u8 {
        let at = PAGE as usize + (phase as usize % 2) * PIECE;
        // SAFETY: inside the member's area.
        unsafe { self.area(rank).add(at).as_ptr() }
    }

    /// First byte of a member's result piece.
    pub fn result(&self, rank: u32) -> *mut u8 {
        // SAFETY: inside the member's area.
        unsafe { self.area(rank).add(PAGE as usize + 2 * PIECE).as_ptr() }
    }
}
