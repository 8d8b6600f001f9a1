//! The packet path: one-sided operations that the target carries out.
//!
//! ```text
//!  origin                                           target
//!  Operation --- cut --> body --+
//!                               v
//!     remote ---> engine ---> wire ---> requests ---> wire ---> engine ---> execute ---> part
//!     (waits)       ^                                             |
//!                   +-------- wire <---- replies <----------------+
//! ```
//! * [`cut`], [`body`]: an operation as units, each complete in itself and no longer than a packet.
//! * [`wire`]: the engines' messages as bytes. [`fault`]: how a refusal travels.
//! * [`execute`]: a unit carried out on the part, in the window's one atomic domain.
//! * [`agent`], [`world`]: one per process; engine, transport, and the windows there are.
//! * [`thread`]: carries out what arrives while the program is elsewhere.
//! * [`remote`]: the calls of a window.
//!
//! **What bounds the memory.** A process owns two inboxes of fixed size. Requests stay in theirs
//! while the answer to the first finds no room; replies are always taken at once, which needs no
//! room anywhere. So two processes that flood each other always go on, and no queue of packets
//! exists beside the inboxes, the engine's pools, and one request that waits per process.

mod agent;
mod body;
mod cut;
mod execute;
mod fault;
mod remote;
mod thread;
mod wire;
mod world;

#[cfg(test)]
pub(crate) mod dice;
#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod tests;

pub(crate) use remote::open;

use crate::link::MAX_MESSAGE;

/// Largest body of an operation, and largest answer.
pub(super) const MOST_BODY: usize = MAX_MESSAGE - wire::HEADER;
/// Most bytes at the target of one unit.
pub(super) const MOST_UNIT: usize = MOST_BODY - body::HEADER;
