//! Whether this process is the child of a rank, forked off without an exec.
//!
//! Such a child has a copy of everything the rank had, and is nobody in the job: if it wrote to
//! shared memory, sent, or took part in anything, it would do so in the rank's name. What is done to
//! its memory stands in `shm::forked`; here is what calls look at before they wait or ask the
//! kernel for something. Short ways look at nothing of the kind: the thread that the child begins
//! with counts as one that may not communicate (see `reentry`, which they look at anyway).

use super::error::{Error, Result};

#[cfg(not(loom))]
mod imp {
    use crate::base::reentry;
    use crate::base::sync::{AtomicBool, Ordering};

    static FORKED: AtomicBool = AtomicBool::new(false);

    /// Whether this process was forked off from a rank. One load.
    #[inline]
    pub fn is_forked() -> bool {
        FORKED.load(Ordering::Relaxed)
    }

    /// Says so, for ever. For the only thread of a fresh child; async-signal-safe there if
    /// [`prepare`] was called by the same thread before the fork.
    pub fn declare_forked() {
        FORKED.store(true, Ordering::Relaxed);
        reentry::never_again();
    }

    /// Has the thread-local variable made that [`declare_forked`] will write.
    pub fn prepare() {
        std::hint::black_box(reentry::is_inside());
    }
}

#[cfg(loom)]
mod imp {
    /// Models do not fork.
    pub fn is_forked() -> bool {
        false
    }
}

pub use imp::*;

/// An error if this process was forked off from a rank. One load.
#[inline]
pub fn refuse_forked(what: &'static str) -> Result<()> {
    if is_forked() { Err(error(what)) } else { Ok(()) }
}

/// The error of a call that such a process may not make.
#[cold]
pub fn error(what: &'static str) -> Error {
    Error::Forked { what }
}
