//! What a process has of its connections, apart from the program's handle ([`Link`](super::Link)):
//! it hangs on the [`Node`] and never owns it, and the rooms of the library that send by it
//! (tagged messages) use it beside the program.
//!
//! ```text
//!   kind below KINDS                     the program's: to the callback of Link::poll, or held
//!                                        until it polls, if another room polled
//!   KINDS <= kind < FIRST_RESERVED       the sink's
//!   FIRST_RESERVED and above             the link's own
//! ```

use super::biased::Biased;
use super::far::{Far, LONGEST, Line, with_pieces};
use super::feed::Feed;
use super::held::Held;
use super::near::Near;
use super::overlooked::Overlooked;
use super::receive::Receiver;
use super::relieve::Others;
use super::table::Table;
use super::vc::{Express, Numbered, Vc};
use super::words::Words;
use super::{Counters, Message, Push};
use crate::base::hints::Hints;
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Error, Result, Slot, settings};
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::park::WaitCell;
use crate::shm::region::SharedRef;
use crate::shm::ring::{Headed, Label, Payload};
use crate::shm::segment::{INBOX_BYTES, PORTS, Port, Ports};
use std::sync::{Arc, OnceLock};

/// Who gets the messages of the kinds from [`KINDS`] on.
pub(crate) trait Sink: Send + Sync {
    /// A message has come. Called with the receiver's lock held: it may not poll.
    fn arrive(&self, wire: Wire<'_>, message: Message<'_>);

    /// After a poll of the program's, without any lock held: time to answer.
    fn settle(&self, wire: Wire<'_>);
}

/// See the [module](self).
pub(crate) struct Core {
    /// Where it is found in every process, and which of its endpoints' it is.
    ports: Ports,
    number: u8,
    table: Table<Vc>,
    /// What comes by lanes, by the peers it comes from.
    pub(super) feeds: Table<Feed>,
    words: Words,
    pub(super) receiver: Biased<Receiver>,
    lane_after: u32,
    near: Near,
    pub(super) sink: OnceLock<Arc<dyn Sink>>,
    hints: Arc<Hints>,
    far: OnceLock<Arc<dyn Far>>,
    /// Polls for the sink, changed by whoever has the receiver.
    looks: AtomicU32,
    /// The slot whose lane brought the latest message that a poll of all has found.
    pub(super) latest: AtomicU32,
    /// The program's messages that a poll for the sink came across.
    pub(super) held: Held,
    /// A thread that is about to sleep found the receiver or a feed in use, so that what has come
    /// meanwhile may lie there unseen.
    pub(super) overlooked: Overlooked,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    /// The connections of a process, made at first use.
    ///
    /// # Errors
    /// The setting `HITHER_LANE_AFTER` is no number.
    pub fn of(node: &Node) -> Result<Arc<Core>> {
        node.attachment(|| {
            let lane_after = settings::LANE_AFTER.number()?.min(u64::from(u32::MAX)) as u32;
            Core::new(node, 0, lane_after, Arc::default())
        })
    }

    /// As [`Core::of`], with connections becoming hot after `lane_after` messages if they are
    /// made now.
    pub fn with_lane_after(node: &Node, lane_after: u32) -> Result<Arc<Core>> {
        node.attachment(|| Core::new(node, 0, lane_after, Arc::default()))
    }

    /// Connections of their own, between the ports of this number: those who have it in their
    /// processes can send to it once all have made theirs. To be made once in a process's life.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; no such number.
    pub fn at_port(node: &Node, number: usize) -> Result<Arc<Core>> {
        let lane_after = settings::LANE_AFTER.number()?.min(u64::from(u32::MAX)) as u32;
        let core = Core::new(node, number, lane_after, Core::of(node)?.hints.clone())?;
        let what = "the port of an endpoint";
        node.reserve(core.ports.control(node.slot()), PAGE, what)?;
        node.reserve(core.ports.inbox(node.slot()), INBOX_BYTES, what)?;
        Ok(Arc::new(core))
    }

    /// Has those of a port reach other nodes by what carries the process's own. Does nothing the second
    /// time, or if that has no other nodes.
    ///
    /// # Errors
    /// Those of [`Far::open`].
    pub fn reach_beyond(self: &Arc<Core>, node: &Node) -> Result<()> {
        let own = Core::of(node)?;
        let Some(far) = own.far().filter(|_| self.far().is_none()) else { return Ok(()) };
        Others::enter(node, self)?;
        let port = SharedRef::new(node.mapping(), self.ports.control(node.slot()))?;
        far.open(self.number, port)?;
        self.reach_far(far.clone());
        Ok(())
    }

    fn new(node: &Node, number: usize, lane_after: u32, hints: Arc<Hints>) -> Result<Core> {
        let ports = node.areas().ports(number).ok_or_else(|| {
            Error::invalid("endpoints", format!("number {number} is above {PORTS}"))
        })?;
        Ok(Core {
            ports,
            number: number as u8,
            table: Table::new(),
            feeds: Table::new(),
            words: Words::default(),
            receiver: Biased::new(Receiver::new(node, ports)?),
            lane_after,
            near: Near::default(),
            sink: OnceLock::new(),
            far: OnceLock::new(),
            hints,
            looks: AtomicU32::new(0),
            latest: AtomicU32::new(0),
            held: Held::default(),
            overlooked: Overlooked::default(),
        })
    }

    /// Has `sink` get its messages from now on; false if there is one, which stays.
    pub fn attach(&self, sink: Arc<dyn Sink>) -> bool {
        self.sink.set(sink).is_ok()
    }

    /// What the program says of itself: one set for a process.
    pub fn hints(&self) -> &Arc<Hints> {
        &self.hints
    }

    /// Has `far` carry what goes to processes of other nodes; the first one stays.
    pub fn reach_far(&self, far: Arc<dyn Far>) {
        let _ = self.far.set(far);
    }

    /// Which of the process's endpoints these are of; 0 is its own.
    #[inline]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// By what they reach other nodes.
    #[inline]
    pub fn line(&self) -> Line {
        Line::messages(self.number)
    }

    /// What carries that.
    #[inline]
    pub fn far(&self) -> Option<&Arc<dyn Far>> {
        self.far.get()
    }

    /// Changes whenever somebody looks for messages.
    pub fn looks(&self) -> u32 {
        let mut looks = self.looks.load(Ordering::Relaxed);
        self.feeds.for_each(|feed| looks = looks.wrapping_add(feed.looks()));
        looks
    }

    /// The caller has the receiver.
    #[inline(always)]
    pub(super) fn note_look(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The feed of `peer`, or of whoever sent the latest message, if it has ever had a lane.
    #[inline(always)]
    pub(super) fn feed(&self, peer: Option<Slot>) -> Option<&Feed> {
        let latest = || Slot(self.latest.load(Ordering::Relaxed) as u16);
        self.feeds.get(peer.unwrap_or_else(latest))
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    pub(super) fn table(&self) -> &Table<Vc> {
        &self.table
    }
}

/// A process's connections with its attachment: what sends and receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire<'a> {
    /// The attachment.
    pub node: &'a Node,
    /// The connections.
    pub core: &'a Core,
}

impl<'a> Wire<'a> {
    /// Where `slot` is sent to by these connections.
    #[inline(always)]
    pub fn port(self, slot: Slot) -> &'a Port {
        self.node.port(&self.core.ports, slot)
    }

    pub(super) fn ports(self) -> &'a Ports {
        &self.core.ports
    }

    #[inline]
    pub(super) fn vc(self, peer: Slot) -> Result<&'a Vc> {
        match self.core.table.get(peer) {
            Some(vc) => Ok(vc),
            None => self.connect(peer),
        }
    }

    #[cold]
    fn connect(self, peer: Slot) -> Result<&'a Vc> {
        if !self.node.is_local(peer) {
            return Err(self.nobody(peer));
        }
        let lane_after = self.core.near.lane_after(self.node, peer, self.core.lane_after);
        self.core.table.insert(peer, || Vc::new(self, peer, lane_after))
    }

    /// Sends a message, or says that there is no room. Never waits.
    #[inline]
    pub fn try_send(self, peer: Slot, label: Label, bytes: impl Payload) -> Result<Push> {
        match self.core.table.get(peer) {
            Some(vc) => vc.lock().try_send(self, label, bytes),
            None if self.node.is_local(peer) => {
                self.connect(peer)?.lock().try_send(self, label, bytes)
            }
            None => self.try_send_far(peer, label, bytes, super::MAX_MESSAGE),
        }
    }

    #[cold]
    fn try_send_far(
        self,
        peer: Slot,
        label: Label,
        bytes: impl Payload,
        most: usize,
    ) -> Result<Push> {
        let far = self.core.far().ok_or_else(|| self.nobody(peer))?;
        if bytes.size() > most {
            let why = format!("{} bytes, and {most} are the most", bytes.size());
            return Err(Error::invalid("message", why));
        }
        with_pieces(bytes, |pieces| far.try_send(peer, self.core.line(), label, pieces))
    }

    /// The error that there is no such process, or none that can be reached.
    #[cold]
    fn nobody(self, peer: Slot) -> Error {
        let (rank, ranks) = (self.node.rank_of(peer), self.node.placement().ranks());
        if rank.0 >= ranks {
            let why = format!("there is no rank {rank} in a job of {ranks}");
            return Error::invalid("send", why);
        }
        let why = format!("rank {rank} is on another node, to which nothing leads from here");
        Error::invalid("send", why)
    }

    /// Sends a message that both sides count, or says why not now. Never waits. To other nodes it may
    /// be as long as [`Far::eager`] says.
    ///
    /// Cost: that of [`Wire::try_send`].
    #[inline]
    pub fn try_send_numbered(
        self,
        peer: Slot,
        label: Label,
        bytes: impl Payload,
        note: u64,
    ) -> Result<Numbered> {
        match self.core.table.get(peer) {
            Some(vc) => vc.lock().try_send_numbered(self, label, bytes, note),
            None if self.node.is_local(peer) => {
                self.connect(peer)?.lock().try_send_numbered(self, label, bytes, note)
            }
            // Nobody counts what goes to other nodes.
            None => self.try_send_far(peer, label, bytes, LONGEST).map(Numbered::from),
        }
    }

    /// See [`Sending::express`](super::vc::Sending::express); also on the condition that the calling
    /// thread is the one that usually sends to `peer`.
    #[inline(always)]
    pub fn express(self, peer: Slot, label: Label, payload: impl Payload) -> bool {
        let sending = self.core.table.get(peer).and_then(Vc::lock_as_owner);
        let sent = sending.map_or(Express::Not, |mut sending| sending.express(label, payload));
        self.expressed(peer, sent)
    }

    /// The same for a message that is not numbered, see [`Sending::express_plain`](super::vc::Sending::express_plain).
    #[inline(always)]
    pub fn express_plain(self, peer: Slot, label: Label, payload: impl Payload) -> bool {
        let sending = self.core.table.get(peer).and_then(Vc::lock_as_owner);
        let sent = sending.map_or(Express::Not, |mut it| it.express_plain(label, payload));
        self.expressed(peer, sent)
    }

    /// The same for one of several cells that is not numbered.
    #[inline(always)]
    pub fn express_plain_several(self, peer: Slot, label: Label, payload: Headed<'_>) -> bool {
        let sending = self.core.table.get(peer).and_then(Vc::lock_as_owner);
        let sent = sending.map_or(Express::Not, |mut it| it.express_plain_several(label, payload));
        self.expressed(peer, sent)
    }

    /// As [`Wire::express`], for a message of several cells, see
    /// [`Sending::express_several`](super::vc::Sending::express_several).
    #[inline(always)]
    pub fn express_several(self, peer: Slot, label: Label, payload: Headed<'_>) -> bool {
        let sending = self.core.table.get(peer).and_then(Vc::lock_as_owner);
        let sent = sending.map_or(Express::Not, |mut it| it.express_several(label, payload));
        self.expressed(peer, sent)
    }

    #[inline(always)]
    fn expressed(self, peer: Slot, sent: Express) -> bool {
        match sent {
            Express::Not => false,
            Express::Sent => true,
            Express::Awaited => self.ring(peer),
        }
    }

    /// Rings the bell of a peer that a message was sent to, which is true. The last thing that its caller
    /// does, so that it needs no room on the stack for it.
    #[cold]
    fn ring(self, peer: Slot) -> bool {
        self.port(peer).doorbell.notify();
        true
    }

    /// As [`Wire::try_send_numbered`], by whoever has closed the numbers.
    pub fn push_numbered(self, peer: Slot, label: Label, bytes: impl Payload) -> Result<Numbered> {
        if !self.node.is_local(peer) {
            return self.try_send_far(peer, label, bytes, LONGEST).map(Numbered::from);
        }
        self.vc(peer)?.lock().push_numbered(self, label, bytes)
    }

    /// Lets no other thread send numbered messages to `peer`, and says how many there were;
    /// `None` if another has done so.
    pub fn close_numbers(self, peer: Slot) -> Result<Option<u64>> {
        Ok(self.vc(peer)?.lock().close_numbers())
    }

    /// Ends [`Wire::close_numbers`].
    pub fn open_numbers(self, peer: Slot) -> Result<()> {
        self.vc(peer)?.lock().open_numbers();
        Ok(())
    }

    /// See [`Link::send_while`](super::Link::send_while).
    pub fn send_while(
        self,
        peer: Slot,
        label: Label,
        bytes: &[u8],
        deadline: Deadline,
        progress: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let attempt = || Ok(self.try_send(peer, label, bytes)? == Push::Sent);
        self.wait_for_room(peer, deadline, "send", attempt, progress)
    }

    /// Repeats `attempt` until it has come to something, sleeping where room becomes free, calling
    /// `progress` in between.
    ///
    /// # Errors
    /// Those of the two; the end of the peer; [`Error::TimedOut`].
    pub fn wait_for_room(
        self,
        peer: Slot,
        deadline: Deadline,
        during: &'static str,
        mut attempt: impl FnMut() -> Result<bool>,
        mut progress: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        if !self.node.is_local(peer) {
            return self.wait_for_far_room(peer, deadline, during, attempt, progress);
        }
        let vc = self.vc(peer)?;
        loop {
            if attempt()? {
                return Ok(());
            }
            let space = vc.lock().space();
            progress()?;
            // Some(true): done. Some(false): the connection has changed; wait at the other place.
            let poll = || {
                match attempt() {
                    Ok(true) => return Some(Ok(true)),
                    Err(e) => return Some(Err(e)),
                    Ok(false) if vc.lock().is_hot() != space.is_lane() => {
                        return Some(Ok(false));
                    }
                    Ok(false) => {}
                }
                progress().err().map(Err)
            };
            let check = || {
                if self.node.probe(peer) { Err(self.node.died(peer, during)) } else { Ok(()) }
            };
            let waited =
                self.node.wait_for(space.cell(), Some(peer), deadline, during, poll, check);
            match waited {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => {}
                Ok(Err(e)) => return Err(e),
                Err(Error::TimedOut { during, waited, .. }) => {
                    let missing = vec![self.node.rank_of(peer)];
                    return Err(Error::TimedOut { during, waited, missing });
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The same where room is on the network: this process's doorbell is rung when there is some.
    fn wait_for_far_room(
        self,
        peer: Slot,
        deadline: Deadline,
        during: &'static str,
        mut attempt: impl FnMut() -> Result<bool>,
        mut progress: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let poll = || match attempt() {
            Ok(true) => Some(Ok(())),
            Ok(false) => progress().err().map(Err),
            Err(error) => Some(Err(error)),
        };
        let check =
            || if self.node.probe(peer) { Err(self.node.died(peer, during)) } else { Ok(()) };
        match self.node.wait(self.doorbell(), deadline, during, poll, check) {
            Ok(outcome) => outcome,
            Err(Error::TimedOut { during, waited, .. }) => {
                let missing = vec![self.node.rank_of(peer)];
                Err(Error::TimedOut { during, waited, missing })
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps a log of numbered messages to `peer` from now on.
    pub fn keep_log(self, peer: Slot) -> Result<()> {
        self.vc(peer)?.lock().keep_log();
        Ok(())
    }

    /// Whether that is so.
    pub fn keeps_log(self, peer: Slot) -> bool {
        self.core.table.get(peer).is_some_and(|vc| vc.lock().keeps_log())
    }

    /// Whether one of the numbered messages to `peer` after number `from` is `such`, by its label's
    /// value and its note; `None` if that is not known. Those of [`Wire::push_numbered`] are not
    /// looked at.
    pub fn logged_since(
        self,
        peer: Slot,
        from: u64,
        such: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<bool>> {
        Ok(self.vc(peer)?.lock().logged_since(from, such))
    }

    /// Makes the connection hot now, if it can be; whether it is.
    pub fn promote(self, peer: Slot) -> Result<bool> {
        if let Some(far) = self.core.far()
            && !self.node.is_local(peer)
        {
            return far.promote(peer);
        }
        self.vc(peer)?.lock().promote(self)
    }

    /// What is rung when messages come.
    #[inline]
    pub fn doorbell(self) -> &'a WaitCell {
        &self.port(self.node.slot()).doorbell
    }

    /// If the inbox waits for a message that somebody is writing: asks whether the writer lives.
    pub fn probe_unfinished(self) {
        if let Some(receiver) = self.core.receiver.try_lock()
            && let Some(owner) = receiver.unfinished()
        {
            self.node.probe(owner);
        }
    }

    /// Of a peer that is gone: whether everything that it had sent has been received.
    pub fn has_drained(self, peer: Slot) -> Result<bool> {
        if !self.node.is_local(peer) {
            return Ok(self.core.far().is_none_or(|far| far.has_drained(peer, self.core.number)));
        }
        match self.core.receiver.try_lock() {
            Some(mut receiver) => receiver.has_drained(peer),
            None => Ok(false),
        }
    }

    /// See [`Link::counters`](super::Link::counters).
    pub fn counters(self) -> Counters {
        let mut counters = Counters::default();
        self.core.table.for_each(|vc| {
            let sending = vc.lock();
            counters.connections += 1;
            counters.sent_cold += sending.sent_cold;
            counters.sent_hot += sending.sent_hot();
            counters.promotions += sending.promotions;
        });
        let mut receiver = self.core.receiver.lock();
        counters.received = receiver.received();
        counters.lanes = receiver.lanes() as u64;
        counters.reclaims = receiver.reclaims;
        counters.skipped = receiver.skipped();
        counters
    }
}
