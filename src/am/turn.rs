//! Whose turn it is on a part: exclusion of messages, and the fences around handlers.
//!
//! ```text
//!   take   lock of the part's line (robust)  ->  poisoned?  ->  handler  ->  version + 1  ->  give back
//!                 |                                 ^
//!                 +- the holder before died: poison-+     until Window::heal
//! ```
//! Paper 001 §6.4.5 wants a full barrier before and after each handler, so that it sees what
//! operations before have written, and later ones see what it wrote. Taking the lock and giving it
//! back are read-modify-writes, which x86-64 makes full barriers; elsewhere, and where messages may
//! run at the same time and take no lock, there are explicit ones.

use crate::base::sync::{Ordering, fence_after_rmw, full_fence};
use crate::base::{Error, Rank, Result, Slot};
use crate::rma::block::PartLine;
use crate::rma::core::Core;
use crate::rma::turns::Turns;
use crate::shm::lock::Sole;
use std::sync::Arc;

/// Runs `work` while no other message runs on `target`'s part, unless messages may run at the same
/// time. Whichever process runs a handler on a part does it through this.
///
/// Waits for the lock, noticing the death of its holder. Cost uncontended: two atomic
/// read-modify-writes and three plain accesses on the line of the part; where messages may run at
/// the same time, two full fences and a load of that line instead.
///
/// # Errors
/// [`Error::WindowPoisoned`]; [`Error::TimedOut`] after the team's deadline.
#[inline(always)]
pub(crate) fn take<R>(
    core: &Core,
    target: Rank,
    concurrent: bool,
    work: impl FnOnce() -> R,
) -> Result<R> {
    let line = core.block.part(target.0);
    if concurrent {
        full_fence();
        sound(core, target, line.poison.load(Ordering::Relaxed))?;
        let done = work();
        // Whoever fetched the part to work on a copy of it looks at this before it writes back.
        if core.remote().is_some() {
            line.version.fetch_add(1, Ordering::AcqRel);
            fence_after_rmw();
        } else {
            full_fence();
        }
        return Ok(done);
    }
    let by = Sole::of(core.block.team.node().slot());
    if !line.am_lock.take_alone(by) {
        return in_line(core, target, true, work);
    }
    // Nobody died with it: it was given back.
    let alone = Alone { core, line, by };
    fence_after_rmw();
    sound(core, target, line.poison.load(Ordering::Relaxed))?;
    let done = work();
    count(core, line);
    drop(alone);
    fence_after_rmw();
    Ok(done)
}

/// Begins what [`take`] does around work, as it goes nearly always: the part is one that arithmetic
/// finds (then nothing of the window goes by packets, and no turn is counted), the lock is free and
/// the part sound. `None`, and nothing has happened, if it is not so: then [`take`] does it, or says
/// what is wrong. Otherwise work is next that does not unwind, then [`end_plain`].
///
/// Two functions rather than one with the work as its argument, so that what is called in the work
/// can be called from where this stands. Cost: as for [`take`]; of the window it looks only at
/// what `turns` has of it.
///
/// # Safety
/// `target` is one of `core`'s members that arithmetic reaches, and `turns` is of its window.
#[inline(always)]
pub(crate) unsafe fn begin_plain<'w>(
    core: &'w Arc<Core>,
    turns: &Turns,
    target: Rank,
    concurrent: bool,
) -> Option<&'w PartLine> {
    // SAFETY: the caller's; the core keeps the window.
    let line = unsafe { turns.line(target.0) };
    if concurrent {
        full_fence();
    } else {
        if !line.am_lock.take_alone(turns.sole()) {
            return None;
        }
        fence_after_rmw();
    }
    if line.poison.load(Ordering::Relaxed) != 0 {
        if !concurrent {
            hand_on(core, line);
        }
        return None;
    }
    Some(line)
}

/// Ends what [`begin_plain`] began; see there.
#[inline(always)]
pub(crate) fn end_plain(core: &Arc<Core>, turns: &Turns, line: &PartLine, concurrent: bool) {
    if concurrent {
        full_fence();
        return;
    }
    if !line.am_lock.release_alone(turns.sole()) {
        hand_on(core, line);
    }
    fence_after_rmw();
}

/// Gives a lock back, whether somebody waits for it or not.
#[cold]
#[inline(never)]
fn hand_on(core: &Core, line: &PartLine) {
    // It fails only when a peer overwrote the lock; every later use of it says so too.
    let _ = line.am_lock.release_own(&**core.block.team.node());
}

/// As [`take`], for work that is no handler: nobody else's copy of the part is the worse for it.
pub(crate) fn look<R>(core: &Core, target: Rank, work: impl FnOnce() -> R) -> Result<R> {
    in_line(core, target, false, work)
}

/// As [`take`], where others may have the lock or want it.
#[cold]
#[inline(never)]
fn in_line<R>(core: &Core, target: Rank, counts: bool, work: impl FnOnce() -> R) -> Result<R> {
    let (line, env) = (core.block.part(target.0), &**core.block.team.node());
    let guard = line.am_lock.lock(env, core.block.team.deadline())?;
    fence_after_rmw();
    if let Some(culprit) = guard.previous_holder_died() {
        line.poison.store(u32::from(culprit.0) + 1, Ordering::Relaxed);
    }
    sound(core, target, line.poison.load(Ordering::Relaxed))?;
    let done = work();
    if counts {
        count(core, line);
    }
    drop(guard);
    fence_after_rmw();
    Ok(done)
}

/// A lock that was free, until dropped. Nothing to carry about, unlike a guard of those in line.
struct Alone<'l> {
    core: &'l Core,
    line: &'l PartLine,
    by: Sole,
}

impl Drop for Alone<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.line.am_lock.release_alone(self.by) {
            hand_on(self.core, self.line);
        }
    }
}

/// Counts a turn, where somebody may fetch the part to work on a copy of it. Changed by holders of
/// the lock only, but for messages that take none.
#[inline(always)]
fn count(core: &Core, line: &PartLine) {
    if core.remote().is_some() {
        let version = line.version.load(Ordering::Relaxed);
        line.version.store(version.wrapping_add(1), Ordering::Relaxed);
    }
}

/// An error if a part's poison says that it is.
#[inline(always)]
fn sound(core: &Core, target: Rank, poison: u32) -> Result<()> {
    if poison == 0 { Ok(()) } else { Err(poisoned(core, target, poison)) }
}

#[cold]
fn poisoned(core: &Core, target: Rank, poison: u32) -> Error {
    // Slots are each node's own numbers; the error names a rank of the job.
    let culprit = core.block.team.node().rank_of(Slot((poison - 1) as u16));
    Error::WindowPoisoned { target, culprit }
}
