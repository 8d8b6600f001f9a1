//! The receiving side: one inbox, and the lanes that peers have switched to.
//!
//! ```text
//! lane:   free --owner taken--> unknown --SWITCH--> attached --idle--> revoked
//!          ^                       | owner dead         | LEFT, or       | the producer's word is
//!          |                       |                    | owner dead     | quiet, or any of those
//!          +-----------------------+--------------------+----------------+
//! ```
//! Between *attached* and *free* a lane is emptied, so messages of one peer keep their order. An
//! idle lane is one that brought nothing while this process received many other messages; how
//! many depends on whether anybody wants a lane. A process that receives nothing takes no lane
//! back: time alone is no reason.
//!
//! Who waits for one message wants that one, not what is behind it: a poll may be ended by what it
//! has found ([`ControlFlow`]), and then leaves the rest where it is. It begins with the lane of the
//! peer that is waited for; so that a flood from there keeps nobody else's messages from being
//! taken, the others are looked at first after so many polls that ended early.

use super::control::{self, LEFT, SWITCH};
use super::far::{Far, Flow};
use super::inbound::Inbound;
use super::{KINDS, Message};
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot};
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::SharedRef;
use crate::shm::ring::lane::{LaneMemory, LaneReceiver};
use crate::shm::ring::{Polled, Position, Scratch};
use crate::shm::segment::{LANE_BYTES, Port, Ports};
use std::collections::VecDeque;
use std::ops::ControlFlow::{self, Break, Continue};

/// Most messages taken from one lane before the next one is looked at.
const LANE_BATCH: usize = 32;
/// Most messages taken from the inbox before the lanes are looked at.
const INBOX_BATCH: usize = 64;
/// Messages between two looks at the ages of lanes.
const AGE_EVERY: u64 = 256;
/// A lane is idle that brought none of so many messages.
const IDLE: u64 = 1 << 16;
/// The same, while a peer wants a lane and finds none.
const IDLE_IF_WANTED: u64 = 512;

/// Polls that end with the first lane they look at, before one that looks at all others first.
const MOST_ENDED: u32 = 64;

/// Bytes of the program's messages that are held at most (and what one poll adds).
const MOST_HELD: usize = 16 << 20;
/// What holding a message costs beside its bytes.
const HELD_COST: usize = 64;

/// See the [module](self).
pub(super) struct Receiver {
    ports: Ports,
    inbound: Inbound,
    scratch: Scratch,
    lanes: Vec<Attached>,
    /// The lane that brought the latest message, if it is still there.
    latest: usize,
    /// Polls in a row that ended with the first lane.
    ended: u32,
    /// Messages received, by which lanes age.
    clock: u64,
    next_ageing: u64,
    /// The program's messages that another room came across.
    held: VecDeque<Held>,
    held_bytes: usize,
    /// Peers that are gone, and where the inbox ended when that was seen.
    departed: Vec<(Slot, Position)>,
    deaths: u32,
    /// Deaths to clean up after, once everything before this place in the inbox was received.
    burial: Option<(u32, Position)>,
    pub reclaims: u64,
}

struct Held {
    from: Slot,
    kind: u8,
    imm: u64,
    bytes: Box<[u8]>,
}

struct Attached {
    memory: SharedRef<LaneMemory>,
    from_lane: LaneReceiver,
    from: Slot,
    index: usize,
    word: usize,
    generation: u64,
    last_used: u64,
    revoked: bool,
}

impl Attached {
    /// Takes up to `limit` messages, fewer if `f` breaks off: how many.
    #[inline]
    fn take(
        &mut self,
        scratch: &mut Scratch,
        limit: usize,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<(usize, ControlFlow<()>)> {
        let mut count = 0;
        while count < limit {
            let Polled::Message(m) = self.from_lane.poll(&self.memory, scratch)? else { break };
            count += 1;
            let (kind, imm) = (m.label.kind(), m.label.imm());
            if f(Message { from: self.from, kind, imm, bytes: m.bytes }).is_break() {
                return Ok((count, Break(())));
            }
        }
        Ok((count, Continue(())))
    }

    /// Whether nothing more can come.
    fn is_over(&self, node: &Node, ports: &Ports) -> bool {
        let word = &node.port(ports, self.from).sending[self.word];
        self.revoked && LaneReceiver::is_quiet(word) || node.is_dead(self.from)
    }
}

impl Receiver {
    /// At the port of this process among these.
    pub fn new(node: &Node, ports: Ports) -> Result<Receiver> {
        Ok(Receiver {
            ports,
            inbound: Inbound::new(node, ports.inbox(node.slot()))?,
            scratch: Scratch::new(),
            lanes: Vec::new(),
            latest: 0,
            ended: 0,
            clock: 0,
            next_ageing: AGE_EVERY,
            held: VecDeque::new(),
            held_bytes: 0,
            departed: Vec::new(),
            deaths: 0,
            burial: None,
            reclaims: 0,
        })
    }

    fn own<'n>(&self, node: &'n Node) -> &'n Port {
        node.port(&self.ports, node.slot())
    }

    /// Messages received.
    pub fn received(&self) -> u64 {
        self.clock
    }

    /// Messages given up because their producers died while they wrote them.
    pub fn skipped(&self) -> u64 {
        self.inbound.skipped()
    }

    /// Lanes attached.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Whose unfinished message the inbox waits for.
    pub fn unfinished(&self) -> Option<Slot> {
        self.inbound.unfinished()
    }

    /// Gives the program what was held for it.
    pub fn give_held(&mut self, mut f: impl FnMut(Message<'_>)) {
        while let Some(held) = self.held.pop_front() {
            self.held_bytes -= held.bytes.len() + HELD_COST;
            f(Message { from: held.from, kind: held.kind, imm: held.imm, bytes: &held.bytes });
        }
    }

    /// As [`Receiver::poll`], but `f` gets messages of the kinds from [`KINDS`] on only; the
    /// others are held for the program. Begins with `first`, or else with whoever sent the latest
    /// message, and ends when `f` breaks off.
    ///
    /// Cost if the first lane has what breaks off: that lane's line; nothing else is looked at.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if very much is held.
    #[inline]
    pub fn poll_holding(
        &mut self,
        node: &Node,
        first: Option<Slot>,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<usize> {
        if self.held_bytes >= MOST_HELD {
            return Err(Error::Exhausted {
                what: "bytes for short messages that have come and that nobody received",
                limit: MOST_HELD as u64,
                advice: "receive them with Link::poll: what is behind them cannot arrive",
            });
        }
        let mut held = std::mem::take(&mut self.held);
        let mut bytes = 0;
        let mut sort = |m: Message<'_>| {
            if m.kind >= KINDS {
                return f(m);
            }
            bytes += hold(&mut held, m);
            Continue(())
        };
        let before = self.clock;
        let polled = match self.poll_first(node, first, &mut sort) {
            Ok(Break(())) => Ok(()),
            Ok(Continue(())) => self.poll(node, &mut sort).map(drop),
            Err(error) => Err(error),
        };
        self.held = held;
        self.held_bytes += bytes;
        polled.map(|()| (self.clock - before) as usize)
    }

    /// Takes what has come from other nodes, a bounded number of messages.
    #[cold]
    pub fn poll_far(
        &mut self,
        far: &dyn Far,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> usize {
        let count = far.poll(Flow::Messages, INBOX_BATCH, &mut |from, label, bytes| {
            f(Message { from, kind: label.kind(), imm: label.imm(), bytes })
        });
        self.clock += count as u64;
        count
    }

    /// The same as [`Receiver::poll_holding`] does.
    #[cold]
    pub fn poll_far_holding(
        &mut self,
        far: &dyn Far,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> usize {
        let mut held = std::mem::take(&mut self.held);
        let mut bytes = 0;
        let count = self.poll_far(far, &mut |m| {
            if m.kind >= KINDS {
                return f(m);
            }
            bytes += hold(&mut held, m);
            Continue(())
        });
        self.held = held;
        self.held_bytes += bytes;
        count
    }

    /// Takes at most one message, of the lane that [`Receiver::poll_holding`] would begin with:
    /// whether there was one, or `None` if that poll has to be made. The program's are held.
    ///
    /// Cost: that lane's line; nothing else is looked at.
    #[inline]
    pub fn poll_one(
        &mut self,
        first: Option<Slot>,
        f: impl FnOnce(Message<'_>),
    ) -> Result<Option<bool>> {
        let Some(lane) = self.lanes.get_mut(self.latest) else { return Ok(None) };
        if first.is_some_and(|first| first != lane.from) || self.ended >= MOST_ENDED {
            return Ok(None);
        }
        let Polled::Message(m) = lane.from_lane.poll(&lane.memory, &mut self.scratch)? else {
            return Ok(Some(false));
        };
        self.clock += 1;
        lane.last_used = self.clock;
        self.ended += 1;
        let (kind, imm) = (m.label.kind(), m.label.imm());
        let message = Message { from: lane.from, kind, imm, bytes: m.bytes };
        if kind >= KINDS {
            f(message);
        } else {
            self.held_bytes += hold(&mut self.held, message);
        }
        Ok(Some(true))
    }

    /// Takes from one lane until `f` breaks off, or until there is nothing more.
    #[inline]
    fn poll_first(
        &mut self,
        node: &Node,
        first: Option<Slot>,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let is_it = |lane: &Attached| first.is_none_or(|first| first == lane.from);
        if !self.lanes.get(self.latest).is_some_and(is_it) {
            match self.lanes.iter().position(is_it) {
                Some(at) => self.latest = at,
                None => return Ok(Continue(())),
            }
        }
        if self.ended >= MOST_ENDED {
            return self.poll_others(node, f);
        }
        let flow = self.take_from(self.latest, f)?;
        self.ended = if flow.is_break() { self.ended + 1 } else { 0 };
        Ok(flow)
    }

    /// Takes from everything but the lane that the latest polls began with.
    #[cold]
    fn poll_others(
        &mut self,
        node: &Node,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.ended = 0;
        let often = self.lanes.get(self.latest).map(|lane| lane.from);
        let polled = self.poll_all(node, often, f)?;
        if let Some(at) = self.lanes.iter().position(|lane| Some(lane.from) == often) {
            self.latest = at;
        }
        Ok(polled)
    }

    /// Takes a batch from a lane, which is there.
    #[inline]
    fn take_from(
        &mut self,
        at: usize,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let lane = &mut self.lanes[at];
        let (count, flow) = lane.take(&mut self.scratch, LANE_BATCH, f)?;
        if count > 0 {
            self.clock += count as u64;
            lane.last_used = self.clock;
            self.latest = at;
        }
        Ok(flow)
    }

    /// Of a peer that is gone: whether all that it had sent has been taken. To be asked again,
    /// after a poll, if not.
    pub fn has_drained(&mut self, peer: Slot) -> Result<bool> {
        let place = match self.departed.iter().find(|(slot, _)| *slot == peer) {
            Some((_, place)) => *place,
            None => {
                let place = self.inbound.load_tail()?;
                self.departed.push((peer, place));
                place
            }
        };
        // A lane is known once the inbox has been read so far.
        if !self.inbound.has_passed(place) {
            return Ok(false);
        }
        Ok(self.lanes.iter().all(|lane| lane.from != peer || lane.from_lane.is_empty(&lane.memory)))
    }

    /// Receives what is there, a bounded number of messages, fewer if `f` breaks off. Returns their
    /// number.
    pub fn poll(
        &mut self,
        node: &Node,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<usize> {
        let before = self.clock;
        let _ = self.poll_all(node, None, f)?;
        Ok((self.clock - before) as usize)
    }

    /// The same of all but the lane of `but`.
    fn poll_all(
        &mut self,
        node: &Node,
        but: Option<Slot>,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        // Again after a change of lanes: whoever goes to sleep after a poll that found nothing
        // must have looked into the lanes of which that poll has learned.
        let mut changed = true;
        let mut flow = Continue(());
        while changed && flow.is_continue() {
            flow = self.poll_lanes(node, but, f)?;
            if flow.is_continue() {
                (changed, flow) = self.poll_inbox(node, f)?;
            }
        }
        let deaths = node.header().deaths.load(Ordering::Acquire);
        if deaths != self.deaths || self.clock >= self.next_ageing {
            self.keep_house(node, deaths, f)?;
        }
        Ok(flow)
    }

    #[inline]
    fn poll_lanes(
        &mut self,
        node: &Node,
        but: Option<Slot>,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut i = 0;
        while i < self.lanes.len() {
            let lane = &mut self.lanes[i];
            if lane.revoked && lane.is_over(node, &self.ports) {
                self.retire(node, i, f)?;
                continue;
            }
            if Some(lane.from) != but && self.take_from(i, f)?.is_break() {
                return Ok(Break(()));
            }
            i += 1;
        }
        Ok(Continue(()))
    }

    /// Takes from the inbox; true if the set of lanes changed.
    #[inline]
    fn poll_inbox(
        &mut self,
        node: &Node,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<(bool, ControlFlow<()>)> {
        let mut changed = false;
        for _ in 0..INBOX_BATCH {
            let Some((from, m)) = self.inbound.poll(node, &mut self.scratch)? else { break };
            let (kind, imm) = (m.label.kind(), m.label.imm());
            if kind < control::FIRST_RESERVED {
                self.clock += 1;
                if f(Message { from, kind, imm, bytes: m.bytes }).is_break() {
                    return Ok((changed, Break(())));
                }
            } else {
                changed = true;
                self.control(node, from, kind, imm, f)?;
            }
        }
        Ok((changed, Continue(())))
    }

    #[cold]
    fn control(
        &mut self,
        node: &Node,
        from: Slot,
        kind: u8,
        imm: u64,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (index, word, generation) = control::unpack(imm);
        let known = self.lanes.iter().position(|l| l.index == index);
        match (kind, known) {
            (SWITCH, None) => {
                let owner = self.own(node).lane_owners[index].load(Ordering::Acquire);
                let memory: SharedRef<LaneMemory> =
                    SharedRef::new(node.mapping(), self.ports.lane(node.slot(), index))?;
                let from_lane = LaneReceiver::open(&memory, generation);
                let Some(from_lane) = from_lane.filter(|_| owner == from.0 + 1) else {
                    return Err(unexpected(from, kind, imm));
                };
                let last_used = self.clock;
                let revoked = false;
                self.lanes.push(Attached {
                    memory,
                    from_lane,
                    from,
                    index,
                    word,
                    generation,
                    last_used,
                    revoked,
                });
                Ok(())
            }
            (LEFT, Some(i)) if self.lanes[i].from == from => {
                if self.lanes[i].generation == generation {
                    self.retire(node, i, f)?;
                }
                Ok(())
            }
            // The lane had been taken back before its producer noticed; it may have a new owner.
            (LEFT, _) => Ok(()),
            _ => Err(unexpected(from, kind, imm)),
        }
    }

    /// Empties a lane whose producer writes no more, and frees it.
    #[cold]
    fn retire(
        &mut self,
        node: &Node,
        i: usize,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut lane = self.lanes.swap_remove(i);
        loop {
            let (count, flow) = lane.take(&mut self.scratch, usize::MAX, f)?;
            self.clock += count as u64;
            if flow.is_continue() {
                break;
            }
        }
        // A producer that left of its own accord has its grant still.
        if !lane.revoked {
            lane.from_lane.revoke(&lane.memory);
        }
        lane.from_lane.close(&lane.memory);
        // All but the first page: a former producer may still read the grant there.
        let at = self.ports.lane(node.slot(), lane.index);
        node.release(Offset(at.0 + PAGE), LANE_BYTES - PAGE);
        self.own(node).lane_owners[lane.index].store(0, Ordering::Release);
        self.reclaims += 1;
        Ok(())
    }

    #[cold]
    fn keep_house(
        &mut self,
        node: &Node,
        deaths: u32,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.clock >= self.next_ageing {
            self.next_ageing = self.clock + AGE_EVERY;
            self.revoke_idle(node);
        }
        if deaths == self.deaths {
            return Ok(());
        }
        // What the dead had sent through the inbox is taken first, so that every lane that was
        // switched to is known; a lane that is then owned but unknown was never used.
        let (deaths, place) = match self.burial {
            Some(burial) => burial,
            None => *self.burial.insert((deaths, self.inbound.load_tail()?)),
        };
        if self.inbound.has_passed(place) {
            self.burial = None;
            self.deaths = deaths;
            self.bury(node, f)?;
        }
        Ok(())
    }

    fn bury(
        &mut self,
        node: &Node,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        while let Some(i) = self.lanes.iter().position(|l| node.is_dead(l.from)) {
            self.retire(node, i, f)?;
        }
        let owners = &self.own(node).lane_owners;
        for owner in owners {
            let taken_by = owner.load(Ordering::Acquire);
            if taken_by != 0 && node.is_dead(node.checked_slot(u64::from(taken_by) - 1)?) {
                owner.store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    fn revoke_idle(&mut self, node: &Node) {
        let wanted = &self.own(node).lanes_wanted;
        let is_wanted = wanted.load(Ordering::Relaxed) != 0;
        let idle = if is_wanted { IDLE_IF_WANTED } else { IDLE };
        if self.revoke_oldest(idle) {
            wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Revokes the lane that has been idle longest, if for at least `idle` messages.
    pub fn revoke_oldest(&mut self, idle: u64) -> bool {
        let clock = self.clock;
        let oldest = self
            .lanes
            .iter_mut()
            .filter(|l| !l.revoked && clock - l.last_used >= idle)
            .min_by_key(|l| l.last_used);
        let Some(lane) = oldest else { return false };
        lane.from_lane.revoke(&lane.memory);
        lane.revoked = true;
        true
    }
}

/// Keeps a message of the program's for it: bytes that this takes.
#[cold]
fn hold(held: &mut VecDeque<Held>, m: Message<'_>) -> usize {
    held.push_back(Held { from: m.from, kind: m.kind, imm: m.imm, bytes: m.bytes.into() });
    m.bytes.len() + HELD_COST
}

fn unexpected(from: Slot, kind: u8, imm: u64) -> Error {
    Error::Incompatible {
        what: "a control message",
        why: format!("rank {from} sent kind {kind:#x}, imm {imm:#x}; end the job"),
    }
}
