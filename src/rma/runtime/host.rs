//! What the engine needs of the world around it: a way to send and a memory to work on.

use super::{Fault, Message, Trouble, WindowId};
use std::task::Poll;

/// What became of a message handed to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It will arrive, after what was sent before it in the same class.
    Yes,
    /// There is no room now; the engine tries again when it is asked to progress.
    Full,
    /// The receiver is dead; the message is forgotten.
    Gone,
}

/// The world around an [`Engine`](super::Engine). None of the calls may block, none may call the
/// engine.
pub trait Host {
    /// Hands a message to the transport. A rank sends to itself too; such a message comes back
    /// through [`Engine::handle`](super::Engine::handle) like any other.
    fn send(&mut self, window: WindowId, to: u32, message: &Message<'_>) -> Sent;

    /// Performs an operation of `origin` on this rank's part of the window; what the origin is
    /// to get is appended to `answer`. Pending: not now, for somebody else is at work there; the
    /// engine asks again, with the same operation, before any other of that origin.
    ///
    /// # Errors
    /// The fault to tell the origin, if the operation cannot be performed.
    fn perform(
        &mut self,
        window: WindowId,
        origin: u32,
        body: &[u8],
        answer: &mut Vec<u8>,
    ) -> Poll<Result<(), Fault>>;

    /// The data that this rank's operation `token` asked for.
    fn data(&mut self, token: u64, data: &[u8]);

    /// No data will come for this rank's operation `token`.
    fn failed(&mut self, token: u64, trouble: Trouble);

    /// An operation of this rank for `to`, which has no token, is thrown away: it was never sent,
    /// and its epoch will not be one with `to` any more.
    fn dropped(&mut self, window: WindowId, to: u32, body: &[u8], trouble: Trouble);

    /// The present epoch will not be one with `to` any more; what was kept for it has been thrown
    /// away.
    fn abandoned(&mut self, window: WindowId, to: u32, trouble: Trouble);

    /// A note of `from` has arrived ([`Engine::note`](super::Engine::note)).
    fn note(&mut self, window: WindowId, from: u32, body: &[u8]);

    /// `by` could not perform an operation of this rank that has no token: the next flush tells
    /// the program so.
    fn refused(&mut self, window: WindowId, by: u32, fault: Fault);
}
