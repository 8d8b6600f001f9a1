//! Handlers of active messages may not communicate: a lock is held while they run, so a handler
//! that waited for another could wait for itself. This marks the threads that are inside one, and
//! for good the thread of a process that was forked off from a rank (see `forked`): both are
//! refused what communicates, at the price of one look.

use super::error::{Error, Result};
use super::forked;
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static UPDATED: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a handler until dropped.
#[derive(Debug)]
pub struct Inside(());

/// Enters a handler on this thread.
#[inline(always)]
pub fn enter() -> Inside {
    mark(true);
    Inside(())
}

/// One store: `LocalKey::set` is a call wherever it is not inlined.
#[inline(always)]
fn mark(inside: bool) {
    INSIDE.with(|cell| cell.set(inside));
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        mark(false);
    }
}

/// Marks this thread for good. (A handler that forks and returns in the child takes the mark away
/// again; waits and system calls still look at `forked`.)
#[cfg(not(loom))]
pub(super) fn never_again() {
    mark(true);
}

/// Whether this thread is inside a handler. Cost: one load of a thread-local.
#[inline(always)]
pub fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// An error if this thread is inside a handler. Cost: one load of a thread-local.
#[inline]
pub fn refuse_inside(what: &'static str) -> Result<()> {
    if is_inside() { Err(refused(what)) } else { Ok(()) }
}

#[cold]
fn refused(what: &'static str) -> Error {
    if forked::is_forked() {
        return forked::error(what);
    }
    Error::Misuse {
        what,
        why: "an active message's handler may not communicate; return what is needed in its \
              output and let the origin go on from there"
            .into(),
    }
}

/// This thread updates an element of a window through a view, atomically. Cost: one store.
#[inline]
pub fn note_update() {
    UPDATED.with(|cell| cell.set(true));
}

/// Whether this thread has done so since it last asked.
pub fn take_update() -> bool {
    UPDATED.replace(false)
}
