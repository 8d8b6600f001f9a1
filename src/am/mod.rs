//! Active messages on windows: user handlers that work on the target's part of a window.
//!
//! In the node the origin runs its own copy of the handler directly on the target's memory
//! (origin computation, paper 001 §6.4.3 and §8.2.2): input and output buffers are used where
//! they are, and the target does nothing. Messages on one target are serialised by a robust
//! queue lock in the target's line of the window's block, unless the epoch asserts that they may
//! run concurrently (§6.4.5).

pub(crate) mod away;
mod body;
mod budget;
mod buffers;
mod builder;
pub(crate) mod call;
mod changes;
mod credit;
pub(crate) mod entry;
mod extent;
mod handler;
mod handles;
mod issue;
mod message;
mod order;
mod origin;
mod pack;
mod place;
pub(crate) mod plan;
mod queue;
mod raw;
mod room;
mod run;
pub(crate) mod turn;
#[cfg(test)]
mod turn_tests;

#[cfg(test)]
mod tests;

pub use away::UserBuffer;
pub use builder::Message;
pub use call::{Call, RawCall, VectorCall};
pub use handler::{Handler, VectorHandler};
pub use handles::{Handles, VectorOutput};
pub use plan::Placement;
pub use raw::{HandlerFunction, RawMessage, UntypedHandler};
