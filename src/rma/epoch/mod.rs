//! Epochs: when a process may access the parts of a window, and when its operations are complete.
//!
//! | epoch | opened, closed by | access to | synchronises |
//! |---|---|---|---|
//! | fence | [`Window::fence`], `next`, `end` | every part | everybody with everybody |
//! | start, post | [`Window::start`], `complete`; [`Window::post`], `wait` or `test` | the group's parts | origins with targets |
//! | lock | [`Window::lock`], `unlock` | one part | nobody; excludes other locks |
//! | lock-all | [`Window::lock_all`], `unlock_all` | every part | nobody; excludes exclusive locks |
//!
//! Each is a guard: operations exist only on one, and dropping it closes it. The same is to be had
//! without guards, for programs whose epochs do not nest like scopes: [`Window::unguarded`].
//! Which epochs can be open together stands in `state`; what must not be is [`Error::Misuse`], and
//! leaves everything as it was.
//!
//! On a mapped part an operation has happened at the target when it returns, up to the processor's
//! store buffer; completing it (flush, and closing the epoch) is the fence that empties that. By
//! packets, completing waits until the target has carried the operation out and said so, and
//! reports what it refused.
//!
//! Windows whose parts are all mapped, or some of them, synchronise by words in the window's block.
//! Where packets reach all parts, or all those on other nodes, they synchronise the members too: then
//! opening an epoch does not wait for other ranks, its operations do, direct ones among them.
//!
//! Several threads of a rank share an epoch by sharing its guard. One that opens or closes an epoch
//! while another does so is refused.

mod active;
mod complete;
mod exposure;
mod fence;
mod group;
mod lock;
mod lock_all;
mod members;
mod passive;
mod start;
pub(crate) mod state;
mod unguarded;

pub use exposure::ExposureEpoch;
pub use fence::FenceEpoch;
pub use lock::LockEpoch;
pub use lock_all::LockAllEpoch;
pub use start::AccessEpoch;
pub use unguarded::Unguarded;

use super::accumulate::{Near, Updates};
use super::core::Core;
use super::window::Window;
use crate::base::sync::{AtomicU32, Ordering, full_fence};
use crate::base::{Error, Rank, Result};
use crate::layout::Datum;
use group::Group;
use state::misuse;
use std::ptr::NonNull;

/// What the caller asserts when it opens or closes an epoch. Wrong assertions give wrong results,
/// not undefined behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assertions {
    /// Active messages of this epoch may run at the same time as others on the same target
    /// (`MPIX_MODE_CONCURRENT_AM` of paper 001 §6.4.5): no lock is taken for them.
    pub concurrent_am: bool,
    /// Fence, post: the own part was not changed by local stores since the last synchronisation
    /// (`MPI_MODE_NOSTORE`). Windows are unified memory, so there is nothing to save.
    pub no_store: bool,
    /// Fence, post: the own part will not be changed by others' puts and accumulates
    /// (`MPI_MODE_NOPUT`). As above.
    pub no_put: bool,
    /// Fence: this process has no operations to complete (`MPI_MODE_NOPRECEDE`): only a barrier
    /// is left. All members must assert it, or none.
    pub no_precede: bool,
    /// Fence: no operations follow until the next synchronisation (`MPI_MODE_NOSUCCEED`): the
    /// fence opens no epoch. All members must assert it, or none.
    pub no_succeed: bool,
    /// Lock, lock-all: nobody holds or wants a lock that conflicts: nothing is taken. Start: all
    /// targets have called post already, with the same assertion; post: all origins will call
    /// start with it: nobody is told, and nothing is waited for (`MPI_MODE_NOCHECK`).
    pub no_check: bool,
}

/// How a part is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Together with others that lock it shared.
    Shared,
    /// Alone.
    Exclusive,
}

/// Which targets an epoch covers.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    /// All.
    All,
    /// One; whether it is locked exclusively.
    One(Rank, LockKind),
    /// These, in order.
    Group(Group),
    /// This one as long as an epoch covers it that was opened without a guard.
    Unguarded(Rank),
    /// None any more.
    Closed,
}

/// An open epoch: where the operations are.
#[derive(Debug)]
pub struct Epoch<'w, T> {
    pub(super) window: &'w Window<T>,
    assertions: Assertions,
    scope: Scope,
    /// What operations look at, and nothing else.
    plain: Plain,
}

/// Ranks that an epoch covers and whose parts are found by arithmetic. It follows from the scope and
/// the window; here, because every operation of a loop loads what it needs of it anew: the compiler
/// cannot know that the stores of the one before have not changed it.
#[derive(Clone, Copy, Debug)]
struct Plain {
    /// Rank 0's part, and the distance to each next one's.
    first: *mut u8,
    stride: usize,
    extent: Extent,
    /// What updates look at first, and flushes.
    near: Near,
    deaths: NonNull<AtomicU32>,
}

/// So many ranks from one on, and elements of the part of each, in one word: between two locked instructions, each load
/// takes its time. What does not fit is left out: it is found the long way.
///
/// ```text
/// 63       elements       32 31   ranks   16 15   first   0
/// ```
#[derive(Clone, Copy, Debug)]
struct Extent(u64);

impl Extent {
    const NOTHING: Extent = Extent(0);

    #[inline(always)]
    fn new(from: u32, ranks: u32, len: usize) -> Extent {
        let (Ok(from), Ok(ranks)) = (u16::try_from(from), u16::try_from(ranks)) else {
            return Extent::NOTHING;
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Extent(u64::from(len) << 32 | u64::from(ranks) << 16 | u64::from(from))
    }

    #[inline(always)]
    fn covers(self, rank: u32) -> bool {
        rank.wrapping_sub(u32::from(self.0 as u16)) < u32::from((self.0 >> 16) as u16)
    }

    /// Whether parts have `count` elements from `start` on.
    #[inline(always)]
    fn has(self, start: usize, count: usize) -> bool {
        start.checked_add(count).is_some_and(|end| end as u64 <= self.0 >> 32)
    }
}

// SAFETY: the pointer stands for mapped memory that the window keeps, accessed by atomics and opaque
// copies only.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl<'w, T: Datum> Epoch<'w, T> {
    #[inline]
    fn new(window: &'w Window<T>, assertions: Assertions, scope: Scope) -> Epoch<'w, T> {
        let plain = window.plain(&scope);
        Epoch { window, assertions, scope, plain }
    }

    /// The epoch has ended.
    fn end_scope(&mut self) {
        self.scope = Scope::Closed;
        self.plain.extent = Extent::NOTHING;
    }

    /// The window.
    #[inline]
    pub fn window(&self) -> &'w Window<T> {
        self.window
    }

    /// What was asserted when the epoch was opened.
    #[inline]
    pub fn assertions(&self) -> Assertions {
        self.assertions
    }

    /// An error unless the epoch covers `target`. One predictable branch where it covers all.
    #[inline(always)]
    pub(crate) fn admit(&self, what: &'static str, target: Rank) -> Result<()> {
        match self.scope {
            Scope::All => Ok(()),
            Scope::One(only, _) if only == target => Ok(()),
            _ => self.look(what, target),
        }
    }

    /// Address of `count` elements of `target` from displacement `start` on, if the epoch covers
    /// the target and arithmetic finds them. Operations begin with this; whatever is not so simple
    /// they leave to one function out of line: that keeps them short enough to be inlined, and an
    /// error needs no copy on its way.
    #[inline(always)]
    pub(crate) fn direct(&self, target: Rank, start: usize, count: usize) -> Option<*mut T> {
        let Plain { first, stride, extent, .. } = self.plain;
        if !extent.covers(target.0) || !extent.has(start, count) {
            // What is rare is laid out elsewhere: each jump over it would take a cycle or two.
            std::hint::cold_path();
            return None;
        }
        let part = first.wrapping_add((target.0 as usize).wrapping_mul(stride));
        // SAFETY: parts have these elements, so they lie inside the target's.
        let at = unsafe { part.cast::<T>().add(start) };
        // SAFETY: where ranks are plain, all parts are aligned for elements (see `Window::new`).
        unsafe { std::hint::assert_unchecked(at.is_aligned()) };
        Some(at)
    }

    /// What updates of elements go through.
    #[inline(always)]
    pub(crate) fn updates(&self) -> Updates<'w> {
        Updates::new(self.plain.near, &self.window.core().domain)
    }

    /// Whether the operations on `target`, which a lock covers, are complete once this thread's stores are, and
    /// nobody in the job has died: two comparisons.
    #[inline(always)]
    fn completes_by_fence(&self, target: Rank) -> bool {
        // SAFETY: a word of the node's mapping, which the window's core keeps alive, or a static; the epoch borrows
        // the window.
        let deaths = unsafe { self.plain.deaths.as_ref() };
        let completes = self.plain.extent.covers(target.0) && deaths.load(Ordering::Relaxed) == 0;
        if !completes {
            std::hint::cold_path();
        }
        completes
    }

    /// Whether the target is locked exclusively: no other rank's locks are held meanwhile. Owners
    /// may still use views of their parts, and threads of this rank share the epoch.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        match self.scope {
            Scope::One(_, kind) => kind == LockKind::Exclusive,
            Scope::Unguarded(target) => {
                self.window.core().held(target) == Some(LockKind::Exclusive)
            }
            _ => false,
        }
    }

    /// Out of line, so that operations stay short enough to be inlined.
    #[inline(never)]
    fn look(&self, what: &'static str, target: Rank) -> Result<()> {
        let covered = match &self.scope {
            Scope::All => true,
            Scope::One(only, _) => *only == target,
            Scope::Group(targets) => targets.binary_search(&target).is_ok(),
            Scope::Unguarded(only) => *only == target && self.window.core().covers(target),
            Scope::Closed => false,
        };
        if covered { Ok(()) } else { Err(self.outside(what, target)) }
    }

    #[cold]
    fn outside(&self, what: &'static str, target: Rank) -> Error {
        if target.0 >= self.window.team().size() {
            return not_a_rank(what, target, self.window.team().size());
        }
        let why = match &self.scope {
            Scope::Unguarded(only) if *only == target => {
                "the epoch has been closed; open one that covers the target first".into()
            }
            Scope::Closed => "the epoch has ended; open a new one for further operations".into(),
            Scope::One(only, _) | Scope::Unguarded(only) => {
                format!("this epoch covers rank {only} only, not rank {target}")
            }
            _ => format!("rank {target} is not in the group that the epoch was opened for"),
        };
        misuse(what, why)
    }
}

#[cold]
fn not_a_rank(what: &'static str, target: Rank, size: u32) -> Error {
    Error::invalid(what, format!("target {target} is not a rank of a team of {size}"))
}

impl<T> Window<T> {
    /// The ranks that a scope covers and arithmetic reaches, where they are a range; of all others
    /// each operation asks again.
    #[inline]
    fn plain(&self, scope: &Scope) -> Plain {
        let simple = self.simple_ranks();
        let (from, ranks) = match scope {
            Scope::All => (0, simple),
            Scope::One(only, _) => (only.0, u32::from(only.0 < simple)),
            Scope::Group(ranks) => match (ranks.first(), ranks.last()) {
                // In order, and each once.
                (Some(first), Some(last))
                    if last.0 < simple && (last.0 - first.0) as usize == ranks.len() - 1 =>
                {
                    (first.0, last.0 - first.0 + 1)
                }
                _ => (0, 0),
            },
            Scope::Unguarded(_) | Scope::Closed => (0, 0),
        };
        let (first, stride, len) = self.simple_parts();
        let (near, deaths) = (self.near(), self.deaths());
        Plain { first, stride, extent: Extent::new(from, ranks, len), near, deaths }
    }
}

impl<T: Datum> Window<T> {
    /// Orders this thread's accesses to the window, local and remote, before those that follow.
    /// The public and the private copy are one (`MPI_WIN_UNIFIED`), so this is a full fence.
    #[inline]
    pub fn sync(&self) {
        full_fence();
    }
}

impl Core {
    /// An error unless `target` is a member.
    #[inline]
    pub(crate) fn check_target(&self, what: &'static str, target: Rank) -> Result<()> {
        let size = self.block.team.size();
        if target.0 < size { Ok(()) } else { Err(not_a_rank(what, target, size)) }
    }

    /// The members of a group, in order.
    fn check_group(&self, what: &'static str, group: &[Rank]) -> Result<Group> {
        if let Some(last) = group.iter().max() {
            self.check_target(what, *last)?;
        }
        Group::of(group).map_err(|twice| {
            let why = format!("rank {twice} is in the group twice; name each rank once");
            Error::invalid(what, why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_what_fits_and_no_more() {
        let extent = Extent::new(3, 4, 10);
        let covered: Vec<u32> = (0..20).filter(|&rank| extent.covers(rank)).collect();
        assert_eq!(covered, [3, 4, 5, 6]);
        assert!(!extent.covers(u32::MAX) && !extent.covers(3 + (1 << 16)));
        assert!(extent.has(0, 10) && extent.has(9, 1) && extent.has(10, 0));
        assert!(!extent.has(10, 1) && !extent.has(0, 11) && !extent.has(usize::MAX, 2));
        // Longer parts: their first elements.
        let long = Extent::new(0, 1, usize::MAX);
        assert!(long.has(u32::MAX as usize - 1, 1) && !long.has(u32::MAX as usize, 1));
        // More ranks than it counts: none.
        for none in [Extent::new(0, 1 << 16, 10), Extent::new(1 << 16, 1, 10), Extent::NOTHING] {
            assert!((0..3).all(|rank| !none.covers(rank)));
        }
        assert!(Extent::new(u32::from(u16::MAX), 1, 1).covers(u32::from(u16::MAX)));
    }
}
