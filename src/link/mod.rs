//! One peer, one virtual connection: short messages to any process of the node, in order.
//!
//! ```text
//!            try_send, send                          poll, recv_wait
//!   process A ----------+--- A's lane in B (hot) ----+---------- process B
//!                       +--- B's inbox     (cold) ---+
//! ```
//! A connection is *cold* until it has carried some messages (or a hint says that it will): its
//! messages go through the peer's inbox, which all share. Then it becomes *hot*: it takes a lane
//! in the peer's memory for itself. The peer takes lanes back that lie idle, without the sender's
//! help. Messages of one sender to one peer arrive in the order in which they were sent, also
//! across these changes; see [`vc`](self) for the states and `receive` for the other side.
//!
//! A connection is made when the first message is sent, so the memory of a process grows with
//! the peers it talks to (at most 256 bytes for a cold one), not with the ranks of the job.

pub(crate) mod biased;
mod control;
pub(crate) mod core;
pub(crate) mod far;
mod favourite;
pub(crate) mod feed;
mod held;
mod inbound;
mod near;
mod overlooked;
mod poll;
pub(crate) mod receive;
mod relieve;
pub(crate) mod service;
mod table;
pub(crate) mod vc;
mod words;

#[cfg(test)]
mod tests;

// Public for the benchmarks; it promises programs nothing.
#[doc(hidden)]
pub use self::far::NetworkCounters;
pub use self::far::bare::Bare;
pub use crate::shm::ring::{MAX_MESSAGE, Push};

use self::core::{Core, Wire};
use crate::base::{Deadline, Error, Result, Slot, forked, reentry};
use crate::shm::node::Node;
use crate::shm::ring::{FIRST_BYTES, Headed, Label, SEVERAL_BYTES};
use std::sync::Arc;

/// Kinds that users of the link may give to messages: those below.
pub const KINDS: u8 = 0xe0;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub from: Slot,
    /// Its kind, below [`KINDS`].
    pub kind: u8,
    /// Its immediate value: 40 bits.
    pub imm: u64,
    /// Its payload, a private copy.
    pub bytes: &'a [u8],
}

/// What a link has done so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Connections there are.
    pub connections: u64,
    /// Messages sent through inboxes.
    pub sent_cold: u64,
    /// Messages sent through lanes.
    pub sent_hot: u64,
    /// Connections that became hot, counted each time.
    pub promotions: u64,
    /// Messages received.
    pub received: u64,
    /// Lanes into this process that are in use.
    pub lanes: u64,
    /// Lanes taken back, or given up by their senders.
    pub reclaims: u64,
    /// Messages given up because their senders died while they wrote them.
    pub skipped: u64,
}

/// One process's connections to its peers. Any thread may send, any thread may receive.
pub struct Link {
    node: Arc<Node>,
    core: Arc<Core>,
}

impl Link {
    /// The link of this process. All links of a [`Node`] are one: a message is received once.
    /// Errors: the setting `HITHER_LANE_AFTER` is no number.
    pub fn new(node: Arc<Node>) -> Result<Link> {
        let core = Core::of(&node)?;
        Ok(Link { node, core })
    }

    /// As [`Link::new`], with connections becoming hot after `lane_after` messages, if this is
    /// the first link of the node.
    pub fn with_lane_after(node: Arc<Node>, lane_after: u32) -> Result<Link> {
        let core = Core::with_lane_after(&node, lane_after)?;
        Ok(Link { node, core })
    }

    /// The process's attachment.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    #[inline(always)]
    fn wire(&self) -> Wire<'_> {
        Wire { node: &self.node, core: &self.core }
    }

    /// Sends a message to `peer`, or says that there is no room ([`Push::Full`]): backpressure is
    /// the caller's to handle, by receiving, or by doing something else. Never waits.
    ///
    /// `kind` is below [`KINDS`], `imm` has at most 40 bits, `bytes` are at most [`MAX_MESSAGE`].
    /// Sending to oneself is allowed and goes through the inbox.
    ///
    /// Errors: [`Error::RankDied`] if the peer is known to be gone (messages sent before may or
    /// may not have been received); [`Error::InvalidArgument`].
    ///
    /// Cost on a hot connection, up to 48 bytes: one cache line to the peer; a private lock; loads
    /// of lines that seldom change (the peer's state and doorbell, the lane's grant), stores to a
    /// line of this process. On a cold one: two compare-exchanges instead, on contended lines.
    /// The peer is woken by a system call only if it sleeps.
    #[inline]
    pub fn try_send(&self, peer: Slot, kind: u8, imm: u64, bytes: &[u8]) -> Result<Push> {
        reentry::refuse_inside("try_send")?;
        let label = label(kind, imm)?;
        if self.express(peer, label, bytes) {
            return Ok(Push::Sent);
        }
        self.wire().try_send(peer, label, bytes)
    }

    /// Sends a short message on a hot connection that has room; whether it did.
    #[inline(always)]
    fn express(&self, peer: Slot, label: Label, bytes: &[u8]) -> bool {
        if bytes.len() <= FIRST_BYTES {
            return self.wire().express_plain(peer, label, bytes);
        }
        bytes.len() <= SEVERAL_BYTES && self.express_several(peer, label, bytes)
    }

    /// The same for one of several cells, in a function of its own for what it keeps in registers.
    #[inline(never)]
    fn express_several(&self, peer: Slot, label: Label, bytes: &[u8]) -> bool {
        bytes.split_first_chunk().is_some_and(|(head, behind)| {
            let payload = Headed(u64::from_ne_bytes(*head), behind);
            self.wire().express_plain_several(peer, label, payload)
        })
    }

    /// Sends a message, waiting for room until `deadline` or until the peer dies.
    ///
    /// Waiting holds up nobody else: other threads may send, also to the same peer. But it does
    /// not receive: two processes that both only send to each other, with full rings, wait for
    /// each other until the deadline. Who cannot rule that out uses [`Link::send_while`].
    #[inline]
    pub fn send(
        &self,
        peer: Slot,
        kind: u8,
        imm: u64,
        bytes: &[u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.send_while(peer, kind, imm, bytes, deadline, || Ok(()))
    }

    /// As [`Link::send`], but calls `progress` whenever there is no room: if that receives (by
    /// [`Link::poll`]), processes that send to each other in any pattern do not block each other.
    ///
    /// Errors: those of [`Link::try_send`] and of `progress`; [`Error::TimedOut`].
    #[inline]
    pub fn send_while(
        &self,
        peer: Slot,
        kind: u8,
        imm: u64,
        bytes: &[u8],
        deadline: Deadline,
        progress: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        reentry::refuse_inside("send")?;
        let label = label(kind, imm)?;
        if self.express(peer, label, bytes) {
            return Ok(());
        }
        self.wire().send_while(peer, label, bytes, deadline, progress)
    }

    /// Makes the connection to `peer` hot now, if it can be: the hint that much will be sent.
    /// Returns whether it is hot. Never waits: on another node the peer is asked for a queue pair,
    /// and messages go by it once it is there.
    pub fn promote(&self, peer: Slot) -> Result<bool> {
        reentry::refuse_inside("promote")?;
        self.wire().promote(peer)
    }

    /// Whether messages to `peer` go through a lane now, or by a queue pair.
    pub fn is_hot(&self, peer: Slot) -> bool {
        if let Some(far) = self.core.far()
            && !self.node.is_local(peer)
        {
            return !forked::is_forked() && far.is_hot(peer, far::Flow::Messages);
        }
        !forked::is_forked() && self.core.table().get(peer).is_some_and(|vc| vc.lock().is_hot())
    }

    /// Receives what has arrived, at most a few hundred messages, and calls `f` for each. Returns
    /// how many there were. Never waits; if another thread is receiving, or from within `f`, it
    /// returns 0.
    ///
    /// `f` may send, but a send that waits for room cannot be helped by this process's receiving.
    /// Messages of a sender come in order. What dead processes had sent is still delivered.
    ///
    /// Errors: damaged shared memory; [`Error::Misuse`] from inside an active message's handler.
    ///
    /// Cost of an empty poll: one load for the inbox, one for each lane in use, and the count of
    /// deaths: all in this core's cache until somebody writes there.
    #[inline]
    pub fn poll(&self, mut f: impl FnMut(Message<'_>)) -> Result<usize> {
        reentry::refuse_inside("poll")?;
        self.wire().poll(false, &mut f)
    }

    /// Receives as [`Link::poll`], waiting for a message if there is none, until `deadline` or
    /// until `check` fails. Sleeps on this process's doorbell when spinning does not pay.
    ///
    /// Looks first into the lane that brought what came lately, up to 32 times for each look at all (8 where cores
    /// are shared), and is content with what is there: who answers by the same lane again and again is heard
    /// some 50 ns sooner, and what comes by any other way 0.4 µs later at most.
    ///
    /// `check` is called before each sleep, to end the wait when a process that the message
    /// should come from is gone ([`Node::check`]).
    ///
    /// Cost if that lane has something: its line, two locks that are this thread's already, no atomic
    /// read-modify-write and no system call.
    ///
    /// # Errors
    /// Those of [`Link::poll`] and of `check`; [`Error::TimedOut`].
    pub fn recv_wait(
        &self,
        deadline: Deadline,
        check: impl FnMut() -> Result<()>,
        mut f: impl FnMut(Message<'_>),
    ) -> Result<usize> {
        reentry::refuse_inside("recv_wait")?;
        let wire = self.wire();
        // What is there, or comes at once, need not go through all that a wait is made of.
        // The number by itself: a result that is handed on is copied in pieces larger than it was written in, which are
        // not to be had before all stores until then are done.
        match wire.poll_waiting(&mut f)? {
            0 => self.recv_later(deadline, check, f),
            count => Ok(count),
        }
    }

    #[inline(never)]
    fn recv_later(
        &self,
        deadline: Deadline,
        mut check: impl FnMut() -> Result<()>,
        mut f: impl FnMut(Message<'_>),
    ) -> Result<usize> {
        let wire = self.wire();
        let poll = || match wire.poll_on(&mut f) {
            Ok(0) => None,
            found => Some(found),
        };
        let check = || {
            wire.probe_unfinished();
            check()
        };
        self.node.wait_for(wire.doorbell(), None, deadline, "receive", poll, check)?
    }

    /// What has been done so far. Takes every connection's lock for a moment. Zeros in a process
    /// that was forked off from a rank.
    pub fn counters(&self) -> Counters {
        if forked::is_forked() {
            return Counters::default();
        }
        self.wire().counters()
    }

    /// What has been done so far to reach other nodes; nothing if the job has one alone. Takes a lock
    /// of each flow for a moment.
    pub fn network_counters(&self) -> Option<NetworkCounters> {
        if forked::is_forked() {
            return None;
        }
        self.core.far().map(|far| far.counters())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A child that a rank has forked off gives none of its connections up.
        if forked::is_forked() {
            return;
        }
        // They can be opened again: other rooms of the library may go on using them.
        self.core.table().for_each(|vc| vc.lock().close(self.wire()));
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("slot", &self.node.slot()).finish_non_exhaustive()
    }
}

#[inline(always)]
fn label(kind: u8, imm: u64) -> Result<Label> {
    if kind >= KINDS {
        return Err(Error::invalid(
            "send",
            format!("kind {kind:#x} is one of the library's own; use one below {KINDS:#x}"),
        ));
    }
    Label::new(kind, imm)
}
