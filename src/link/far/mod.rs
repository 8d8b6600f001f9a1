//! The seam to the other medium: what connections to processes of other nodes do for the link.
//!
//! ```text
//!   Wire::try_send ----+---- connection of the table (this node's processes: lane, inbox)
//!                      +---- Far (other nodes')  ----- network ----- their Far
//!   Wire::poll    <----+---- lanes, inbox
//!                      +---- Far::poll
//! ```
//! The rules are those of the link: messages of one process to another on one flow come once, whole
//! and in order; sending never waits; what dead processes had sent is still delivered as far as it
//! has arrived.

mod alarm;
pub(crate) mod bare;
mod batch;
mod bounce;
mod counters;
mod deliver;
mod due;
pub(crate) mod edge;
#[cfg(test)]
mod endpoint_tests;
mod head;
#[cfg(test)]
pub(crate) mod hub;
mod inboxes;
mod intake;
mod kept;
mod known;
mod order;
mod outlet;
mod paired;
mod pairs;
mod places;
mod seats;
mod shift;
mod stock;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(test)]
mod transfer_tests;
mod word;

pub use counters::NetworkCounters;
pub(in crate::link) use inboxes::{bit, bits};
pub(crate) use kept::Registered;
pub(crate) use outlet::PairSettings;
pub(crate) use transfer::{Direction, Outcome, Transfer, Update};

use super::Push;
use crate::base::adapt::Class;
use crate::base::{Result, Slot};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Capabilities, Remote};
use crate::shm::region::SharedRef;
use crate::shm::ring::{FIRST_BYTES, Label, Payload};
use crate::shm::segment::Port;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

/// Flows between two processes. What has come on one never waits for another's being taken, so
/// that requests can be left where they are while replies are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Flow {
    /// The link's own messages.
    Messages = 0,
    /// Requests of one-sided operations.
    Requests = 1,
    /// Their replies.
    Replies = 2,
}

impl Flow {
    /// All of them.
    pub const ALL: [Flow; 3] = [Flow::Messages, Flow::Requests, Flow::Replies];
}

/// What a message goes by: a flow, and which endpoint it is of, at both ends. The link's own messages
/// have endpoints; 0 is the process's own. All endpoints have one connection to a peer on the flow, and
/// its order; whoever takes what came for one leaves the others' where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// The flow.
    pub flow: Flow,
    /// The number of the endpoint.
    pub endpoint: u8,
}

impl Line {
    /// That of an endpoint's messages.
    pub fn messages(endpoint: u8) -> Line {
        Line { flow: Flow::Messages, endpoint }
    }
}

impl From<Flow> for Line {
    fn from(flow: Flow) -> Line {
        Line { flow, endpoint: 0 }
    }
}

/// Bytes of a message at most, whatever the threshold: one that had gone by a queue pair may have to go
/// by another way.
pub(crate) const LONGEST: usize = stock::LARGEST.threshold() as usize;

/// The largest class that [`Far::widen`] takes.
pub(crate) const WIDEST: Class = stock::LARGEST;

/// What is called with each message that is taken: its sender, its label, its bytes.
pub(crate) type Each<'f> = dyn FnMut(Slot, Label, &[u8]) -> ControlFlow<()> + 'f;

/// Connections to processes of other nodes. Used from any thread.
pub(crate) trait Far: Send + Sync + std::fmt::Debug {
    /// Sends a message of at most [`LONGEST`] bytes, in pieces that lie apart, or says
    /// that there is no room. Never waits. Room that comes again rings this process's doorbell (of the
    /// endpoint, or of its services).
    ///
    /// # Errors
    /// The end of the peer.
    fn try_send(&self, to: Slot, by: Line, label: Label, bytes: [&[u8]; 2]) -> Result<Push>;

    /// Whether a message may have come by a line. A load; now and then a look at the device.
    fn has_come(&self, by: Line) -> bool;

    /// Takes messages that have come by a line, at most `most` and until `f` breaks off; how many.
    /// What comes afterwards rings the doorbell. `f` may send. Where order matters one thread at a time
    /// takes from a line.
    fn poll(&self, by: Line, most: usize, f: &mut Each<'_>) -> usize;

    /// Takes messages for an endpoint of this process from now on, and wakes who waits for them at the
    /// port. The process's own is open from the start.
    ///
    /// # Errors
    /// There is no such number.
    fn open(&self, endpoint: u8, port: SharedRef<Port>) -> Result<()>;

    /// Endpoints, a bit each, that have let messages lie so long that those of others cannot come:
    /// whoever looks is to take them. A load of a line that is seldom written.
    fn overdue(&self) -> u64;

    /// Much will be sent to a peer: asks for a connection of its own; whether it has one. Never waits
    /// for it.
    ///
    /// # Errors
    /// Nobody knows where the peer is reached.
    fn promote(&self, to: Slot) -> Result<bool>;

    /// Bytes of a message that goes to a peer at once, without its receiver being asked: more than
    /// [`super::MAX_MESSAGE`] where a queue pair has a larger eager threshold. Longer ones than that
    /// find no room.
    fn eager(&self, to: Slot) -> usize;

    /// Larger messages are to go to a peer at once: asks for a queue pair with a threshold of this
    /// class. Never waits for it; whether it comes is seen by [`Far::eager`].
    ///
    /// # Errors
    /// Nobody knows where the peer is reached.
    fn widen(&self, to: Slot, class: Class) -> Result<()>;

    /// Whether messages to a peer on a flow go by a connection of its own.
    fn is_hot(&self, to: Slot, flow: Flow) -> bool;

    /// Has registrations in these bytes kept from one transfer to the next, until [`Far::disown`].
    ///
    /// # Safety
    /// They stay mapped, readable and writable, until they are disowned, and no reference to them
    /// exists while a device may access them.
    unsafe fn own(&self, first: NonNull<u8>, bytes: usize);

    /// The bytes are going to be something else. False if a transfer still uses them: then they have
    /// to stay as they are.
    fn disown(&self, first: NonNull<u8>, bytes: usize) -> bool;

    /// Lets peers access memory of this process by their queue pairs, as long as the result lives;
    /// nothing if the device cannot.
    fn expose(&self, memory: &Memory, access: Access) -> Option<Registered>;

    /// Begins to copy all of `here` from or to a peer's memory, by the queue pair of a flow. Never
    /// waits; nothing if no queue pair leads there now. The end rings this process's doorbell (of the
    /// endpoint, or of its services).
    fn copy(
        &self,
        peer: Slot,
        by: Line,
        direction: Direction,
        there: Remote,
        here: &Memory,
    ) -> Option<Arc<Transfer>>;

    /// Begins to update a word of a peer's memory in one step, by the queue pair of a flow. Never waits;
    /// nothing if no queue pair leads there now, or too many updates are under way. Its end is told as
    /// that of a copy; [`Transfer::old`] has what was there.
    fn update(&self, peer: Slot, by: Line, update: Update, there: Remote) -> Option<Arc<Transfer>>;

    /// What the device can do, if there is one.
    fn capabilities(&self) -> Option<Capabilities>;

    /// Has the queue pair of a flow to a peer fail: transfers by it are over when this returns. What
    /// is said on the flow goes another way.
    fn break_off(&self, peer: Slot, flow: Flow);

    /// Of a peer that is gone: whether all messages that had come from it for an endpoint have been
    /// taken.
    fn has_drained(&self, peer: Slot, endpoint: u8) -> bool;

    /// What has been done so far.
    fn counters(&self) -> NetworkCounters;
}

/// Calls `f` with the two pieces of a payload.
pub(super) fn with_pieces<R>(payload: impl Payload, f: impl FnOnce([&[u8]; 2]) -> R) -> R {
    let mut first = [0u64; FIRST_BYTES / 8];
    // SAFETY: aligned words of this function's own, FIRST_BYTES in all.
    unsafe { payload.put_first(first.as_mut_ptr().cast()) };
    // SAFETY: they are initialised, and any bytes will do.
    let first: &[u8] = unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), FIRST_BYTES) };
    f([&first[..payload.size().min(FIRST_BYTES)], payload.rest()])
}
