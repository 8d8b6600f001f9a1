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
//! * [`remote`]: the calls of a window; [`waiting`]: how they wait; [`reached`]: which parts the origin
//!   may access itself at present.
//!
//! **What bounds the memory.** A process owns two inboxes of fixed size. Requests stay in theirs
//! while the answer to the first finds no room; replies are always taken at once, which needs no
//! room anywhere. So two processes that flood each other always go on, and no queue of packets
//! exists beside the inboxes, the engine's pools, and one request that waits per process.
//!
//! **What a peer's nonsense ends.** A packet that cannot be read, or makes no sense where it
//! arrives, says that its sender cannot be relied on: from then on it counts as gone in all windows
//! that it shares with this process, and is told so ([`distrust`]). All others go on.

mod agent;
mod alone;
mod body;
mod cut;
mod device;
mod distrust;
mod execute;
mod fault;
mod modify;
mod outgoing;
mod places;
mod reached;
mod remote;
mod single;
mod state;
mod thread;
mod waiting;
mod wire;
mod world;

#[cfg(test)]
mod busy_tests;
#[cfg(test)]
pub(crate) mod dice;
#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod places_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;

pub(crate) use remote::open;

use crate::link::MAX_MESSAGE;
use crate::rma::runtime::Limits;

/// Largest team whose fences use the reduce-scatter. Of all settings of this path the one that all
/// members of a window must have alike: they would wait for messages that others never send.
pub(crate) fn small_teams() -> u64 {
    // What cannot be used is reported when the path is opened.
    Limits::from_settings().map_or(u64::MAX, |limits| limits.reduce_teams.into())
}

/// Largest body of an operation, and largest answer.
pub(super) const MOST_BODY: usize = MAX_MESSAGE - wire::HEADER;
/// Most bytes at the target of one unit.
pub(super) const MOST_UNIT: usize = MOST_BODY - body::HEADER;
