//! Windows. Most are symmetric: the same number of elements on every rank, at the same offset of
//! every rank's symmetric memory.
//!
//! ```text
//! address(target, index) = base + heap(slot of target) + offset + index * size_of T
//!                        = first + target * stride          + index * size_of T
//! ```
//! Two additions and a multiplication; nothing is looked up and nothing kept per target. That is so
//! where the slots of the team's members are an arithmetic progression: `first` and `stride` have it
//! in them. For other teams and other windows see `kind`.

use super::accumulate::{Near, Updates};
use super::block::{Entry, PartLine, REACH_MAPPED};
use super::core::{Core, Own};
use super::info::Info;
use super::kind::{Attributes, Flavour, Model, Parts, Place, Span, WindowBuilder, damaged};
use super::memory::{Memory, Region};
use super::turns::Turns;
use super::view::{View, out_of_bounds};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Offset, Rank, Result, Slot};
use crate::coll::Team;
use crate::layout::Datum;
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::locate;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Not 0.
static SOME: AtomicU32 = AtomicU32::new(1);

/// Memory of every member of a team that all of them can access one-sidedly.
///
/// Usable from many threads. Dropping it is not collective: the memory goes when the last member
/// drops it. Private state: this structure, whatever the number of ranks.
#[derive(Debug)]
pub struct Window<T> {
    core: Arc<Core>,
    /// Where rank 0's part begins, if `simple`.
    first: *mut u8,
    /// Bytes from one rank's part to the next one's; wraps around where they lie in falling order.
    stride: usize,
    len: usize,
    /// Ranks below this are reached by arithmetic: the size of the team if all parts are alike,
    /// mapped, aligned for elements, counted in them, and at equal distances, else 0; nothing goes
    /// by packets then. Here, as the ones above, so that an operation looks nowhere else.
    simple: u32,
    /// The same, but for their sizes and units, which may differ: those stand in the block.
    placed: u32,
    /// What updates look at first.
    near: Near,
    /// What active messages look at first.
    turns: Turns,
    /// Count of the deaths in the job, if all of it is on this node.
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
    /// be the same everywhere, and `len` may be 0. Short for `builder(team).allocate(len)`.
    ///
    /// Each member reserves the physical memory of its own part now, close to itself.
    ///
    /// # Errors
    /// See [`WindowBuilder`].
    pub fn allocate(team: &Team, len: usize) -> Result<Window<T>> {
        Self::builder(team).allocate(len)
    }

    /// For every other window: other kinds, hints, sizes or displacement units.
    pub fn builder(team: &Team) -> WindowBuilder<'_, T> {
        WindowBuilder::new(team)
    }

    pub(super) fn new(core: Core) -> Window<T> {
        let team = &core.block.team;
        let node = team.node();
        // Where parts are away nothing is computed.
        let found = if core.remote().is_none() { progression(team) } else { None };
        let (slot, step) = found.unwrap_or_default();
        // In the mapping: `kind::life` checked that every part lies inside its stride.
        let start = node.areas().heap(Slot(0)).0 + core.block.heap;
        let first = node.mapping().base().as_ptr().wrapping_add(start as usize);
        let first = first.wrapping_add(slot.wrapping_mul(node.areas().stride as usize));
        let stride = step.wrapping_mul(node.areas().stride as usize);
        let aligned = (first.addr() | stride).is_multiple_of(align_of::<T>());
        let regular = aligned && step != 0 && core.remote().is_none();
        let (simple, placed) = match core.parts {
            Parts::Uniform { unit, .. } => (regular && unit == size_of::<T>(), false),
            Parts::Table(_) => (false, regular && core.block.lies_in_every_stride()),
            Parts::Dynamic(_) => (false, false),
        };
        Window {
            first,
            stride,
            len: core.own.bytes / size_of::<T>().max(1),
            simple: if simple { team.size() } else { 0 },
            placed: if placed { team.size() } else { 0 },
            near: core.domain.near(),
            turns: Turns::new(&core.block),
            deaths: match team.spans_nodes() {
                false => NonNull::from(&node.header().deaths),
                // Deaths on other nodes are counted elsewhere: look there.
                true => NonNull::from(&SOME),
            },
            core: Arc::new(core),
            _elements: PhantomData,
        }
    }

    /// The team that allocated the window.
    #[inline]
    pub fn team(&self) -> &Team {
        &self.core.block.team
    }

    /// Elements of this rank's own part: of every rank's, unless sizes differ.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this rank's own part has no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements of a rank's part.
    pub fn len_of(&self, target: Rank) -> Result<usize> {
        let part = self.core.part_of("Window::len_of", target)?;
        Ok(part.bytes / size_of::<T>().max(1))
    }

    /// What describes this rank's own part, and the window's kind.
    pub fn attributes(&self) -> Attributes {
        let Own { first, bytes, unit } = self.core.own;
        Attributes {
            flavour: self.core.flavour,
            model: Model::Unified,
            base: first.addr(),
            size: bytes,
            unit,
        }
    }

    /// The hints in use.
    pub fn info(&self) -> Info {
        self.core.info.clone()
    }

    /// This rank's own part. Empty for a dynamic window, which has none.
    #[inline]
    pub fn local(&self) -> View<'_, T> {
        let first = self.core.own.first.cast();
        // SAFETY: the own part: `len` elements, mapped as long as self.
        unsafe { View::new(first, self.len, self.team().rank(), self.domain()) }
    }

    /// Another rank's part, for direct loads and stores: in the node it is as near as one's own.
    /// Order against other ranks' accesses comes from epochs, as for every other operation. In a
    /// window of a team on several nodes it is there for an open epoch that covers the part: it waits
    /// until that gives access, and is to be asked for again in the next one.
    ///
    /// # Errors
    /// [`Error::Misuse`] if that part is reached by packets, or if on several nodes no open epoch
    /// covers it; as for operations.
    pub fn part(&self, target: Rank) -> Result<View<'_, T>> {
        const WHAT: &str = "Window::part";
        let part = self.core.part_of(WHAT, target)?;
        let first = part.first.ok_or_else(|| not_mapped(WHAT, target))?;
        if !first.cast::<T>().is_aligned() {
            return Err(damaged());
        }
        if self.core.block.spans {
            self.core.reach_covered(WHAT, target)?;
        }
        let len = part.bytes / size_of::<T>().max(1);
        // SAFETY: `part_of` checked that the part is mapped, as long as the window is.
        Ok(unsafe { View::new(first.cast(), len, target, self.domain()) })
    }

    /// A rank's part of a shared window, for direct loads and stores; without a rank, that of the
    /// first rank whose part has elements (`MPI_Win_shared_query`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the window is not a shared one, or its medium is packets.
    pub fn query(&self, target: impl Into<Option<Rank>>) -> Result<View<'_, T>> {
        const WHAT: &str = "Window::query";
        self.refuse_unshared(WHAT)?;
        let filled = |rank: &Rank| self.core.part_of(WHAT, *rank).is_ok_and(|p| p.bytes > 0);
        let first = || self.team().ranks().find(filled).unwrap_or(Rank(0));
        self.part(target.into().unwrap_or_else(first))
    }

    /// All parts of a shared window, one after the other, in the order of the ranks.
    ///
    /// # Errors
    /// As for [`Window::query`]; [`Error::Misuse`] if the parts lie apart.
    pub fn query_all(&self) -> Result<View<'_, T>> {
        const WHAT: &str = "Window::query_all";
        self.refuse_unshared(WHAT)?;
        if self.core.info.alloc_shared_noncontig {
            let why = "the parts lie apart; ask for one, or do not promise alloc_shared_noncontig";
            return Err(Error::Misuse { what: WHAT, why: why.into() });
        }
        // Refuses what `part` refuses.
        self.part(Rank(0))?;
        let block = &self.core.block;
        let (node, slot) = (self.node(), self.team().slot_of(Rank(0))?);
        let at = Offset(node.areas().heap(slot).0 + block.heap);
        let first = locate(node.mapping(), at, block.bytes, PAGE)?.as_ptr();
        let len = block.bytes as usize / size_of::<T>().max(1);
        // SAFETY: the parts fill the window's range, `bytes` in one stride (see `kind::create`);
        // `locate` checked that it is mapped. They share rank 0's locks.
        Ok(unsafe { View::new(first.cast(), len, Rank(0), self.domain()) })
    }

    fn refuse_unshared(&self, what: &'static str) -> Result<()> {
        if self.core.flavour == Flavour::Shared {
            return Ok(());
        }
        let why =
            "only shared windows can be queried; make one with WindowBuilder::allocate_shared";
        Err(Error::Misuse { what, why: why.into() })
    }

    /// The memory that this rank brought along when the window was created.
    pub fn memory(&self) -> Option<Memory<T>> {
        let region = Region::clone(self.core.memory.as_ref()?);
        // SAFETY: it came from a Memory<T>.
        Some(unsafe { Memory::from_region(region) })
    }

    /// Address of `count` elements of `target` from displacement `start` on, if the part has them:
    /// a comparison, two additions and a multiplication.
    ///
    /// # Safety
    /// `target` is one of [`Window::simple_ranks`].
    #[inline(always)]
    pub(crate) unsafe fn direct(&self, target: Rank, start: usize, count: usize) -> Option<*mut T> {
        if start.checked_add(count).is_none_or(|end| end > self.len) {
            return None;
        }
        let part = self.first.wrapping_add((target.0 as usize).wrapping_mul(self.stride));
        // SAFETY: start + count <= len, so the elements lie inside the target's part.
        let at = unsafe { part.cast::<T>().add(start) };
        // SAFETY: where ranks are simple, all parts are aligned for elements (see `new`).
        unsafe { std::hint::assert_unchecked(at.is_aligned()) };
        Some(at)
    }

    /// Where `count` elements of `target` from displacement `start` on are, checked.
    ///
    /// Cost where [`Window::direct`] finds them: that, and one more comparison; where only sizes
    /// differ, a line of the block, which nobody writes, as well.
    #[inline(always)]
    pub(crate) fn place(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        count: usize,
    ) -> Result<Place<T>> {
        if target.0 < self.simple {
            // SAFETY: just looked.
            if let Some(at) = unsafe { self.direct(target, start, count) } {
                return Ok(Place::Here(at));
            }
        }
        if let Some(at) = self.placed(target, start, count) {
            return Ok(Place::Here(at));
        }
        self.place_any(what, target, start, count)
    }

    /// As [`Window::direct`], of parts that lie like those but have sizes of their own.
    #[inline(always)]
    fn placed(&self, target: Rank, start: usize, count: usize) -> Option<*mut T> {
        if target.0 >= self.placed {
            return None;
        }
        let block = &self.core.block;
        let Entry { bytes, unit, reach, .. } = block.info(target.0).entry();
        // A peer wrote that: what it says is no more than what the window has in each stride.
        let len = bytes.min(block.bytes) as usize / size_of::<T>().max(1);
        let fits = start.checked_add(count).is_some_and(|end| end <= len);
        if !fits || unit as usize != size_of::<T>() || reach != REACH_MAPPED {
            return None;
        }
        let part = self.first.wrapping_add((target.0 as usize).wrapping_mul(self.stride));
        // SAFETY: start + count <= len, so the elements lie inside the window's range.
        Some(unsafe { part.cast::<T>().add(start) })
    }

    #[inline(never)]
    fn place_any(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        count: usize,
    ) -> Result<Place<T>> {
        let span = Span::of::<T>(count).ok_or_else(|| {
            let len = self.len_of(target).unwrap_or(0);
            out_of_bounds(what, target, start, count, len)
        })?;
        Ok(match self.core.place_span(what, target, start, span)? {
            Place::Here(at) => Place::Here(at.cast()),
            Place::Away(at) => Place::Away(at),
        })
    }

    /// What this process has done so far on all its windows that are reached by packets, and what
    /// it holds for them: names and values (empty for a window that is not). Takes a lock.
    pub fn packet_counters(&self) -> Vec<(&'static str, u64)> {
        self.core.remote().map_or_else(Vec::new, |remote| remote.counters())
    }

    /// The shared control line of a member's part.
    #[inline]
    pub(crate) fn line(&self, target: Rank) -> &PartLine {
        self.core.block.part(target.0)
    }

    /// Identity of the window in the job while it lives.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.core.block.at().0
    }

    /// What does not depend on the element type.
    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What updates of elements go through.
    #[inline(always)]
    pub(crate) fn domain(&self) -> Updates<'_> {
        Updates::new(self.near, &self.core.domain)
    }

    /// The attachment to the node.
    #[inline]
    pub(crate) fn node(&self) -> &Arc<Node> {
        self.core.block.team.node()
    }

    /// Whether operations on any target are complete once this thread's stores are.
    #[inline(always)]
    pub(crate) fn is_direct(&self) -> bool {
        self.simple > 0
    }

    /// What active messages look at first.
    #[inline(always)]
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Whether nobody in the job has died, as far as is known: one load.
    #[inline(always)]
    pub(crate) fn all_live(&self) -> bool {
        // SAFETY: a word of the header of the node's mapping, which `core` keeps alive, or a static.
        unsafe { self.deaths.as_ref() }.load(Ordering::Relaxed) == 0
    }

    /// An error if `target` is known to be dead. One load while nobody in the job has died.
    #[inline]
    pub(crate) fn check_alive(&self, target: Rank, during: &'static str) -> Result<()> {
        if self.all_live() { Ok(()) } else { self.core.check_alive(target, during) }
    }

    /// Frees the window, collectively: returns when every member has called it, so no operation
    /// is in flight any more. Dropping the window frees it too, without synchronising.
    pub fn free(self) -> Result<()> {
        self.team().barrier()
    }
}

impl<T> Window<T> {
    /// What updates look at first.
    #[inline(always)]
    pub(super) fn near(&self) -> Near {
        self.near
    }

    /// A count of the job's deaths, which the window keeps mapped: 0 as long as nobody has died, as far as is
    /// known, but never where deaths on other nodes are counted elsewhere.
    #[inline(always)]
    pub(super) fn deaths(&self) -> NonNull<AtomicU32> {
        self.deaths
    }

    /// Ranks below this are reached by arithmetic.
    #[inline(always)]
    pub(super) fn simple_ranks(&self) -> u32 {
        self.simple
    }

    /// Where their parts lie: the first, how far apart, and how many elements each has.
    #[inline(always)]
    pub(super) fn simple_parts(&self) -> (*mut u8, usize, usize) {
        (self.first, self.stride, self.len)
    }
}

/// The first slot of a team's members and the distance to each next one's (1 for a team of one), if
/// that is always the same. Computed for the whole job's team; of others each member is looked at
/// once.
fn progression(team: &Team) -> Option<(usize, usize)> {
    if team.is_identity() {
        return Some((0, 1));
    }
    let slot = |rank: Rank| team.slot_of(rank).ok().map(Slot::index);
    let first = slot(Rank(0))?;
    let step = if team.size() > 1 { slot(Rank(1))?.wrapping_sub(first) } else { 1 };
    let mut expected = first;
    for rank in team.ranks() {
        if slot(rank)? != expected {
            return None;
        }
        expected = expected.wrapping_add(step);
    }
    Some((first, step))
}

#[cold]
fn not_mapped(what: &'static str, target: Rank) -> Error {
    Error::Misuse {
        what,
        why: format!(
            "rank {target}'s part is reached by packets and not mapped here; use put, get and \
             accumulates, or memory of this library's and the medium \"auto\""
        ),
    }
}
