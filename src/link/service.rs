//! Service channels: more inboxes per process, for messages that are answered inside the library
//! rather than received by the program.
//!
//! ```text
//!   process A --- try_send ---> B's inbox of requests --- poll ---> process B
//!             <---------------- A's inbox of replies  <------------
//!                rings the receiver's service doorbell
//! ```
//! Two of them, so that who cannot answer a request now may leave the requests behind it where
//! they are and still take replies: receiving a reply never needs room anywhere, so two processes
//! that flood each other with requests always go on. What waits is bounded by the inboxes' sizes.
//!
//! It is apart from the [`Link`](super::Link) so that neither waits for the other: a program that
//! does not receive its messages does not stop one-sided operations on its memory, and the other
//! way round. There are no lanes: requests are bounded in number by whoever sends them, so a
//! shared inbox is never far behind.
//!
//! Messages of one sender to one receiver on one channel arrive in order. All methods take `&mut self`: whoever
//! owns the channel serialises its threads, and keeps the node alive.

use super::core::Core;
use super::far::{Far, Flow, with_pieces};
use super::inbound::Inbound;
use super::{MAX_MESSAGE, Push};
use crate::base::{Error, Result, Slot};
use crate::shm::node::Node;
use crate::shm::park::WaitCell;
use crate::shm::region::SharedRef;
use crate::shm::ring::inbox::{InboxMemory, InboxSender};
use crate::shm::ring::{Label, Scratch};
use crate::shm::segment::{INBOX_BYTES, SERVICES};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Which of a process's service inboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// What may have to wait until it can be answered.
    Requests = 0,
    /// What is always taken at once.
    Replies = 1,
}

const _: () = assert!(Channel::Replies as usize + 1 == SERVICES);

impl Channel {
    /// What carries it between nodes.
    fn flow(self) -> Flow {
        match self {
            Channel::Requests => Flow::Requests,
            Channel::Replies => Flow::Replies,
        }
    }
}

/// Where one process takes the messages of a channel. There must be only one for a [`Node`], kept
/// as long as the node: it knows how far the inbox has been read.
pub(crate) struct Inlet {
    inbound: Inbound,
    scratch: Box<Scratch>,
    received: u64,
    flow: Flow,
    /// Connections to other nodes, if there are any; `None` before they have been asked for.
    far: Option<Option<Arc<dyn Far>>>,
    /// What came last from another node.
    from_far: Vec<u8>,
    /// Whose turn it is to be looked at first: this node's processes, or the others.
    far_first: bool,
}

impl Inlet {
    /// Opens this process's end, reserving the pages of its inbox (128 KiB). A peer may send only
    /// after it has learned that this has succeeded.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn open(node: &Node, channel: Channel) -> Result<Inlet> {
        let at = node.areas().service(node.slot(), channel as usize);
        node.reserve(at, INBOX_BYTES, "this rank's service inbox")?;
        Ok(Inlet {
            inbound: Inbound::new(node, at)?,
            scratch: Box::new(Scratch::new()),
            received: 0,
            flow: channel.flow(),
            far: None,
            from_far: Vec::new(),
            far_first: false,
        })
    }

    /// Takes the next message: its sender, its kind, and a private copy of its bytes. Never waits.
    ///
    /// # Errors
    /// Only damaged shared memory.
    pub fn poll(&mut self, node: &Node) -> Result<Option<(Slot, u8, &[u8])>> {
        // In turn, so that neither keeps the other waiting for ever.
        self.far_first = !self.far_first;
        if self.far_first
            && let Some((from, kind)) = self.poll_far(node)
        {
            return Ok(Some((from, kind, &self.from_far)));
        }
        let come = self.inbound.poll(node, &mut self.scratch)?;
        if let Some((from, kind, len)) = come.map(|(from, m)| (from, m.label.kind(), m.bytes.len()))
        {
            self.received += 1;
            // SAFETY: it is the message that was copied in last.
            return Ok(Some((from, kind, unsafe { self.scratch.bytes(len) })));
        }
        if !self.far_first
            && let Some((from, kind)) = self.poll_far(node)
        {
            return Ok(Some((from, kind, &self.from_far)));
        }
        Ok(None)
    }

    /// The same of other nodes; the bytes are left in `from_far`.
    fn poll_far(&mut self, node: &Node) -> Option<(Slot, u8)> {
        if self.far.is_none() {
            // At the first use: a channel may be opened while something else is attached to the node.
            self.far = Some(Core::of(node).ok()?.far().cloned());
        }
        let far = self.far.as_ref()?.as_deref().filter(|far| far.has_come(self.flow.into()))?;
        let mut found = None;
        far.poll(self.flow.into(), 1, &mut |from, label, bytes| {
            self.from_far.clear();
            self.from_far.extend_from_slice(bytes);
            found = Some((from, label.kind()));
            ControlFlow::Break(())
        });
        self.received += u64::from(found.is_some());
        found
    }

    /// Whether what has arrived behind it waits for a message that somebody is writing.
    pub fn is_blocked(&self) -> bool {
        self.inbound.unfinished().is_some()
    }

    /// If the inbox waits for a message that somebody is writing: asks whether the writer lives.
    /// For the checks of waits.
    pub fn probe_unfinished(&self, node: &Node) {
        if let Some(owner) = self.inbound.unfinished() {
            node.probe(owner);
        }
    }

    /// Messages received so far.
    pub fn received(&self) -> u64 {
        self.received
    }
}

/// From where one process sends on a channel. Grows with the peers it sends to.
pub(crate) struct Outlet {
    channel: Channel,
    peers: HashMap<Slot, Outbound>,
    far: Option<Arc<dyn Far>>,
    sent: u64,
}

struct Outbound {
    inbox: SharedRef<InboxMemory>,
    to_inbox: InboxSender,
}

impl Outlet {
    /// An outlet with no connections yet.
    pub fn new(channel: Channel) -> Outlet {
        Outlet { channel, peers: HashMap::new(), far: None, sent: 0 }
    }

    /// Sends a message to `peer` (this process included), or says that there is no room. Never
    /// waits.
    ///
    /// # Errors
    /// [`Error::RankDied`] or [`Error::RankLeft`] if the peer is known to be gone;
    /// [`Error::InvalidArgument`] for a message above [`super::MAX_MESSAGE`] or a peer that does
    /// not exist.
    ///
    /// Cost up to 48 bytes: two compare-exchanges on contended lines of the peer, and a system
    /// call if it sleeps. One more line per 56 bytes.
    pub fn try_send(&mut self, node: &Node, peer: Slot, kind: u8, bytes: &[u8]) -> Result<Push> {
        if node.is_dead(peer) {
            return Err(node.died(peer, "a one-sided operation"));
        }
        let label = Label::new(kind, 0)?;
        if !node.is_local(peer) {
            return self.try_send_far(node, peer, label, bytes);
        }
        let out = match self.peers.entry(peer) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(fresh) => {
                let at = node.areas().service(peer, self.channel as usize);
                let inbox = SharedRef::new(node.mapping(), at)?;
                fresh.insert(Outbound { inbox, to_inbox: InboxSender::default() })
            }
        };
        let push = out.to_inbox.try_send(&out.inbox, node.slot(), label, bytes)?;
        if push == Push::Sent {
            self.sent += 1;
            doorbell(node, peer).notify();
        }
        Ok(push)
    }

    fn try_send_far(&mut self, node: &Node, to: Slot, label: Label, bytes: &[u8]) -> Result<Push> {
        if self.far.is_none() {
            self.far = Core::of(node)?.far().cloned();
        }
        let known = node.placement().rank_of(to).is_some();
        let Some(far) = self.far.as_deref().filter(|_| known && bytes.len() <= MAX_MESSAGE) else {
            let (rank, ranks) = (node.rank_of(to), node.placement().ranks());
            let why = format!("{} bytes to rank {rank} of {ranks} cannot be sent", bytes.len());
            return Err(Error::invalid("a service message", why));
        };
        let push = with_pieces(bytes, |pieces| {
            far.try_send(to, self.channel.flow().into(), label, pieces)
        })?;
        self.sent += u64::from(push == Push::Sent);
        Ok(push)
    }

    /// Messages sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

impl std::fmt::Debug for Inlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inlet").field("received", &self.received).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Rung when something has been put into the service inbox of `slot`.
pub(crate) fn doorbell(node: &Node, slot: Slot) -> &WaitCell {
    &node.rank_slot(slot).service
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Deadline;
    use crate::shm::liveness::eventually;
    use crate::shm::map::Mapping;
    use crate::shm::segment::Areas;

    fn ends(node: &Node) -> (Inlet, Outlet) {
        (Inlet::open(node, Channel::Replies).unwrap(), Outlet::new(Channel::Replies))
    }

    fn pair() -> [Arc<Node>; 2] {
        let fd = Node::create_memory(2, 1 << 21).unwrap();
        let length = Areas::new(2, 1 << 21).unwrap().length;
        let map = Arc::new(Mapping::anywhere(&fd, length).unwrap());
        [0, 1].map(|s| Node::attach_mapped(fd.try_clone().unwrap(), Slot(s), map.clone()).unwrap())
    }

    #[test]
    fn messages_arrive_whole_and_in_order_and_a_full_inbox_says_so() {
        let [a, b] = pair();
        let ((_, mut at_a), (mut at_b, _)) = (ends(&a), ends(&b));
        let body = |i: usize| vec![i as u8; (i * 97) % (MAX_MESSAGE + 1)];
        let (mut sent, mut seen) = (0, 0);
        let mut was_full = false;
        while seen < 500 {
            while sent < 500 {
                match at_a.try_send(&a, Slot(1), (sent % 7) as u8, &body(sent)).unwrap() {
                    Push::Sent => sent += 1,
                    Push::Full => {
                        was_full = true;
                        break;
                    }
                }
            }
            while let Some((from, kind, bytes)) = at_b.poll(&b).unwrap() {
                assert_eq!((from, kind, bytes), (Slot(0), (seen % 7) as u8, &*body(seen)));
                seen += 1;
            }
        }
        assert!(was_full);
        assert_eq!((at_b.received(), at_a.sent()), (500, 500));
        assert!(at_a.try_send(&a, Slot(0), 1, &[0; MAX_MESSAGE + 1]).is_err());
        assert!(at_a.try_send(&a, Slot(9), 1, &[]).is_err());
    }

    #[test]
    fn the_receiver_sleeps_until_its_doorbell_rings() {
        let [a, b] = pair();
        let ((_, mut at_a), (mut at_b, _)) = (ends(&a), ends(&b));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                let cell = doorbell(&b, Slot(1));
                while seen < 2000 {
                    let poll = || at_b.poll(&b).unwrap().map(|_| 1);
                    seen += cell.wait(b.pace(), Deadline::NEVER, "test", poll, || Ok(())).unwrap();
                }
            });
            for _ in 0..2000 {
                while at_a.try_send(&a, Slot(1), 0, b"x").unwrap() == Push::Full {}
            }
        });
    }

    #[test]
    fn a_dead_peer_is_an_error() {
        let [a, b] = pair();
        let mut at_a = ends(&a).1;
        ends(&b);
        drop(b);
        eventually("the death is seen", || a.probe(Slot(1)));
        let error = at_a.try_send(&a, Slot(1), 0, &[]).unwrap_err();
        assert!(matches!(error, Error::RankDied { .. }), "{error}");
    }
}
