//! A call on its way: the same code for calls that block and for calls that do not.
//!
//! The algorithms are asynchronous functions made of a few steps (a barrier, an exchange of
//! boards). In a call that blocks, every step waits by itself at the team's pace, so the function
//! runs through in one go; in one that does not, a step that cannot go on yet leaves word where
//! something will happen next, and the function is asked again later (see `queue`).

use super::core::{Core, Place};
use super::sign::Sign;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Deadline, Error, Result};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// One call of one member.
pub(super) struct Course<'c> {
    core: Held<'c>,
    pub sign: Sign,
    mode: Mode,
}

enum Held<'c> {
    Borrowed(&'c Core),
    Shared(Arc<Core>),
}

enum Mode {
    Blocking(Deadline),
    /// Where the call that is under way waits at present, as [`Place::to_raw`] has it.
    Polling(Arc<AtomicU64>),
}

impl<'c> Course<'c> {
    /// A call that blocks.
    pub fn blocking_call(core: &'c Core, sign: Sign, deadline: Deadline) -> Course<'c> {
        Course { core: Held::Borrowed(core), sign, mode: Mode::Blocking(deadline) }
    }

    /// A call that is asked again and again.
    pub fn polled(core: Arc<Core>, sign: Sign, at: Arc<AtomicU64>) -> Course<'static> {
        Course { core: Held::Shared(core), sign, mode: Mode::Polling(at) }
    }

    #[inline]
    pub fn core(&self) -> &Core {
        match &self.core {
            Held::Borrowed(core) => core,
            Held::Shared(core) => core,
        }
    }

    /// The deadline of a call that blocks.
    #[inline]
    pub fn blocking(&self) -> Option<Deadline> {
        match self.mode {
            Mode::Blocking(deadline) => Some(deadline),
            Mode::Polling(_) => None,
        }
    }

    /// How long the call may wait.
    pub fn patience(&self) -> Deadline {
        self.blocking().unwrap_or(Deadline::NEVER)
    }

    /// Members.
    pub fn size(&self) -> u32 {
        self.core().block.size
    }

    /// This member.
    pub fn rank(&self) -> u32 {
        self.core().rank
    }

    /// Goes on when `come` says so; of a call that does not block.
    pub async fn until(
        &self,
        place: Place,
        mut come: impl FnMut() -> Option<Result<()>>,
    ) -> Result<()> {
        poll_fn(|_| match come() {
            Some(result) => Poll::Ready(result),
            None => {
                if let Mode::Polling(at) = &self.mode {
                    at.store(place.to_raw(), Ordering::Relaxed);
                }
                Poll::Pending
            }
        })
        .await
    }
}

/// Runs a call that blocks.
pub(super) fn run_through<R>(call: impl Future<Output = Result<R>>) -> Result<R> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        // Every step of a call that blocks waits by itself.
        Poll::Pending => Err(Error::Misuse {
            what: "a collective",
            why: "a step of a call that blocks did not wait; this is a fault of the library".into(),
        }),
    }
}
