//! The seam for operations that the room above performs: messages whose units travel among the
//! one-sided operations of a window that is reached by packets.
//!
//! ```text
//!   origin                                              target
//!   pump --- operate --> engine --- Operation --> perform: first byte is FIRST -> arrived
//!                                                   (copies, queues; later, elsewhere: runs)
//!   noted <------------- engine <--- Note ----------- note <--- pump
//! ```
//! So units keep the order of operations, and the synchronisation of epochs: locks, posts and
//! fences hold for them as for a put. What they bring about later comes back in notes, which need
//! no epoch and are taken at once.
//!
//! **Locks.** `arrived`, `noted`, `refused`, `dropped`, `abandoned`, `died`, `give_up` and `pump` are called with
//! the engine's lock held: they neither block nor call what takes it; `idle` and `awaited` with or
//! without it; `close` and `run_due` without it.

use super::runtime::{Fault, Sent};
use crate::base::{Error, Rank, Result};
use std::any::Any;
use std::fmt::Debug;
use std::task::{Poll, Waker};

/// First byte of the body of an operation that is the room above's; that of one-sided units is
/// their version, 1.
pub(crate) const FIRST: u8 = 2;

/// Code of the fault that says that the target has dropped the window.
pub(crate) const CLOSED: u16 = 2;

/// Code of the fault that says that the target has nobody who performs such operations (yet).
pub(crate) const NOBODY: u16 = 7;

/// What the room above does for one window. See the [module](self).
pub(crate) trait Foreign: Any + Debug + Send + Sync {
    /// An operation of `origin` has arrived, in the order in which it was issued. Nothing in
    /// `body` is to be trusted.
    ///
    /// # Errors
    /// What the origin is told (its [`Foreign::refused`]).
    fn arrived(&self, origin: Rank, body: &[u8]) -> std::result::Result<(), Fault>;

    /// A note of `from` has come. Nothing in `body` is to be trusted.
    fn noted(&self, from: Rank, body: &[u8]);

    /// `target` refused an operation of this process that has no result: one of these, or a
    /// one-sided one.
    fn refused(&self, target: Rank, fault: Fault);

    /// An operation of this process on `target` was thrown away before it was sent: its epoch will
    /// never be one with that target. `error` says why.
    fn dropped(&self, target: Rank, body: &[u8], error: &Error);

    /// The present epoch will not be one with `target` any more, because of `error`: what has not
    /// been given to the engine never will be in this epoch.
    fn abandoned(&self, target: Rank, error: &Error);

    /// A member is gone.
    fn died(&self, rank: Rank);

    /// Whether [`Foreign::pump`] has something to do. Called often: one load.
    fn busy(&self) -> bool;

    /// Sends what can be sent; called after each look into the inboxes while [`Foreign::busy`].
    /// Whether it did anything.
    fn pump(&self, out: &mut dyn Outgoing) -> bool;

    /// Whether everything that this process has issued at `target` (anywhere for `None`) is done;
    /// asked by flushes and at the end of epochs (`ends`).
    ///
    /// # Errors
    /// The first thing that went wrong there and that nobody else was told, once, when all is done.
    fn idle(&self, target: Option<Rank>, ends: bool) -> Result<bool>;

    /// Targets for which [`Foreign::idle`] is not true yet.
    fn awaited(&self, target: Option<Rank>) -> Vec<Rank>;

    /// The wait for [`Foreign::idle`] at the end of an epoch was given up because of `error`: nothing
    /// more is begun. What is to be told the targets all the same can go through `out`, before the
    /// epoch is closed; unless another one is always `open`, what is left then finds none.
    fn give_up(&self, target: Option<Rank>, error: &Error, open: bool, out: &mut dyn Outgoing);

    /// Whether something waits to be run by the program's calls. One load.
    fn due(&self) -> bool;

    /// Runs some of it, no more than a call may be kept from returning by, if nobody else does at
    /// the moment. Whether anything was run.
    fn run_due(&self) -> bool;

    /// The window goes: returns once nothing is run on this process's part any more.
    fn close(&self);

    /// What has been done, and what is held: names and values.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// The ways out of a process, while the engine's lock is held.
pub(crate) trait Outgoing {
    /// Issues an operation within the open epoch; it may be kept until there is more, or the epoch
    /// ends. Pending: not now, and nothing has been done; [`Foreign::pump`] is called again.
    ///
    /// # Errors
    /// The target is dead, or no epoch covers it.
    fn operate(&mut self, target: Rank, body: &[u8]) -> Poll<Result<()>>;

    /// Sends what has been issued for a target as soon as the synchronisation allows it.
    fn push(&mut self, target: Rank);

    /// Sends a note. [`Sent::Full`]: not now; [`Foreign::pump`] is called again.
    fn note(&mut self, to: Rank, body: &[u8]) -> Sent;

    /// Has this woken once the engine's lock is released.
    fn wake(&mut self, waker: Waker);

    /// Something has happened that other calls of this process may wait for: they look again.
    fn ring(&mut self);

    /// Has this dropped once the engine's lock is released: that may run code of the program's,
    /// which calls this library.
    fn later(&mut self, spent: Box<dyn Any + Send>);
}
