//! Handlers of active messages may not communicate: a lock is held while they run, so a handler
//! that waited for another could wait for itself. This marks the threads that are inside one.

use super::error::{Error, Result};
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static UPDATED: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a handler until dropped.
#[derive(Debug)]
pub struct Inside(());

/// Enters a handler on this thread.
#[inline]
pub fn enter() -> Inside {
    INSIDE.set(true);
    Inside(())
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Whether this thread is inside a handler. Cost: one load of a thread-local.
#[inline(always)]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// An error if this thread is inside a handler. Cost: one load of a thread-local.
#[inline]
pub fn refuse_inside(what: &'static str) -> Result<()> {
    if INSIDE.get() { Err(refused(what)) } else { Ok(()) }
}

#[cold]
fn refused(what: &'static str) -> Error {
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
    UPDATED.set(true);
}

/// Whether this thread has done so since it last asked.
pub fn take_update() -> bool {
    UPDATED.replace(false)
}
