//! Symmetric windows: the same number of elements on every rank, at the same offset of every
//! rank's symmetric memory.
//!
//! ```text
//! address(target, index) = base + heap(slot of target) + offset + index * size_of T
//!                        = first + slot * stride            + index * size_of T
//! ```
//! Two additions and a multiplication; nothing is looked up and nothing kept per target.

use super::accumulate::Domain;
use super::block::{PartLine, WindowBlock, create, discard};
use super::core::Core;
use super::info::Info;
use super::view::{View, out_of_bounds};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Offset, Rank, Result, Slot};
use crate::coll::Team;
use crate::layout::Datum;
use crate::shm::map::{PAGE, round_up};
use crate::shm::node::Node;
use crate::shm::segment::STATE_DEAD;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of every member of a team that all of them can access one-sidedly.
///
/// Usable from many threads. Dropping it is not collective: the memory goes when the last member
/// drops it. Private state: this structure, whatever the number of ranks.
#[derive(Debug)]
pub struct Window<T> {
    core: Arc<Core>,
    /// Where slot 0's part would begin.
    first: *mut u8,
    stride: usize,
    len: usize,
    /// Members of the team. Here, as the next two, so that an operation looks nowhere else: behind
    /// a fence every load that depends on another one counts.
    size: u32,
    identity: bool,
    /// Count of the deaths in the job.
    deaths: NonNull<AtomicU32>,
    _elements: PhantomData<T>,
}

// SAFETY: the raw pointer stands for mapped memory that `core` keeps alive and that is accessed
// by atomics and opaque copies only; T is plain data.
unsafe impl<T: Datum> Send for Window<T> {}
// SAFETY: as above.
unsafe impl<T: Datum> Sync for Window<T> {}

impl<T: Datum> Window<T> {
    /// Allocates `len` elements, all zero bits, on every member. Collective; `len` and `T` must
    /// be the same everywhere, and `len` may be 0.
    ///
    /// Each member reserves the physical memory of its own part now, close to itself.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] in the ranks that cannot reserve their part, and
    /// [`Error::PeerFailed`] in the others; [`Error::Mismatch`] if members disagree.
    pub fn allocate(team: &Team, len: usize) -> Result<Window<T>> {
        const DURING: &str = "Window::allocate";
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes as u64 <= team.node().areas().stride)
            .ok_or_else(|| Error::OutOfMemory {
                what: "a window".into(),
                wanted: (len as u64).saturating_mul(size_of::<T>() as u64),
                available: team.node().areas().stride,
                limit: "HITHER_HEAP_SIZE".into(),
                advice: "raise HITHER_HEAP_SIZE or use fewer ranks",
            });
        let leader = team.rank() == Rank(0);
        // Told apart by the leader's values, so that a disagreement is found before anything
        // else can go wrong.
        let mine = [len as u64, T::fingerprint()];
        let mut theirs = mine;
        team.broadcast(Rank(0), &mut theirs)?;
        let same = check_same(team, mine, theirs);
        let bytes = team.agree(DURING, same.and(bytes))? as u64;

        let created = if leader { create(team, bytes).map(|at| at.0) } else { Ok(0) };
        let made = created.as_ref().ok().copied();
        let agreed = team.agree(DURING, created);
        if let (true, Err(_), Some(at)) = (leader, &agreed, made) {
            // Nobody else has heard of it.
            discard(team, Offset(at));
        }
        let mut at = [agreed?];
        team.broadcast(Rank(0), &mut at)?;
        let block = WindowBlock::open(team, Offset(at[0]));
        let node = team.node();
        let part = block.as_ref().ok().map(|b| Offset(node.areas().heap(node.slot()).0 + b.heap));
        let reserved = block.and_then(|b| reserve_part(team, &b).map(|()| b));
        let block = team.agree(DURING, reserved).inspect_err(|_| {
            // Nobody has the window in working order. Whoever missed its offset does not count as
            // having dropped it, so its addresses may stay taken; the memory need not.
            if let Some(part) = part {
                node.release(part, round_up(bytes, PAGE));
            }
        })?;
        let start = node.areas().heap(Slot(0)).0 + block.heap;
        // SAFETY: WindowBlock::open checked that every part lies inside its stride, and the
        // areas lie inside the mapping.
        let first = unsafe { node.mapping().base().as_ptr().add(start as usize) };
        Ok(Window {
            first,
            stride: node.areas().stride as usize,
            len,
            size: team.size(),
            identity: team.is_identity(),
            deaths: NonNull::from(&node.header().deaths),
            core: Arc::new(Core::new(block, Info::default())),
            _elements: PhantomData,
        })
    }

    /// The team that allocated the window.
    #[inline]
    pub fn team(&self) -> &Team {
        &self.core.block.team
    }

    /// Elements of each part.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the parts have no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This rank's own part.
    #[inline]
    pub fn local(&self) -> View<'_, T> {
        let first = self.part_at(self.team().node().slot());
        // SAFETY: the part of a slot of this job: `len` elements, mapped as long as self.
        unsafe { View::new(first, self.len, self.team().rank(), self.domain()) }
    }

    /// Another rank's part, for direct loads and stores: in the node it is as near as one's own.
    /// Order against other ranks' accesses comes from epochs, as for every other operation.
    pub fn part(&self, target: Rank) -> Result<View<'_, T>> {
        let first = self.part_at(self.team().slot_of(target)?);
        // SAFETY: as above, for a slot that `slot_of` validated.
        Ok(unsafe { View::new(first, self.len, target, self.domain()) })
    }

    #[inline(always)]
    fn part_at(&self, slot: Slot) -> *mut T {
        // SAFETY: slot < capacity (own, or validated), and every stride lies in the mapping.
        unsafe { self.first.add(slot.index() * self.stride).cast() }
    }

    /// Address of `count` elements of `target` from `start` on, checked.
    #[inline(always)]
    pub(crate) fn locate(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        count: usize,
    ) -> Result<*mut T> {
        let in_bounds = start.checked_add(count).is_some_and(|end| end <= self.len);
        if !in_bounds || target.0 >= self.size {
            return Err(self.refuse(what, target, start, count));
        }
        let slot =
            if self.identity { Slot(target.0 as u16) } else { self.team().slot_of(target)? };
        // SAFETY: start + count <= len, so the elements lie inside the target's part.
        Ok(unsafe { self.part_at(slot).add(start) })
    }

    #[cold]
    fn refuse(&self, what: &'static str, target: Rank, start: usize, count: usize) -> Error {
        if target.0 >= self.team().size() {
            let why = format!("target {target} is not a rank of a team of {}", self.team().size());
            return Error::invalid(what, why);
        }
        out_of_bounds(what, target, start, count, self.len)
    }

    /// The shared control line of a member's part.
    #[inline]
    pub(crate) fn line(&self, target: Rank) -> &PartLine {
        self.core.block.part(target.0)
    }

    /// Identity of the window in the job while it lives.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.core.block.at.0
    }

    /// What does not depend on the element type.
    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What updates of elements go through.
    #[inline(always)]
    pub(crate) fn domain(&self) -> &Domain {
        &self.core.domain
    }

    /// The attachment to the node.
    #[inline]
    pub(crate) fn node(&self) -> &Arc<Node> {
        self.core.block.team.node()
    }

    /// An error if `target` is known to be dead. One load while nobody in the job has died.
    #[inline]
    pub(crate) fn check_alive(&self, target: Rank, during: &'static str) -> Result<()> {
        // SAFETY: a word of the header of the node's mapping, which `core` keeps alive.
        if unsafe { self.deaths.as_ref() }.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.look_for(target, during)
    }

    #[cold]
    fn look_for(&self, target: Rank, during: &'static str) -> Result<()> {
        let node = self.node();
        let slot = self.team().slot_of(target)?;
        // One that left in good order has only stopped looking at its memory.
        let state = node.rank_slot(slot).state.load(crate::base::sync::Ordering::Acquire);
        if state == STATE_DEAD { Err(node.died(slot, during)) } else { Ok(()) }
    }

    /// Frees the window, collectively: returns when every member has called it, so no operation
    /// is in flight any more. Dropping the window frees it too, without synchronising.
    pub fn free(self) -> Result<()> {
        self.team().barrier()
    }
}

fn check_same(team: &Team, mine: [u64; 2], theirs: [u64; 2]) -> Result<()> {
    let differs = |what, a: String, b: String| {
        Err(Error::Mismatch { what, a: Rank(0), a_has: a, b: team.rank(), b_has: b })
    };
    if mine[1] != theirs[1] {
        let hex = |v: u64| format!("type fingerprint {v:#x}");
        return differs("the element type of a window", hex(theirs[1]), hex(mine[1]));
    }
    if mine[0] != theirs[0] {
        let text = |v: u64| format!("{v} elements");
        return differs("the length of a window", text(theirs[0]), text(mine[0]));
    }
    Ok(())
}

/// Reserves and maps this member's part: first touch by the owner.
fn reserve_part(team: &Team, block: &WindowBlock) -> Result<()> {
    let node = team.node();
    let at = Offset(node.areas().heap(node.slot()).0 + block.heap);
    let length = round_up(block.bytes, PAGE);
    node.reserve(at, length, "a window")?;
    node.warm(at, length);
    Ok(())
}
