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
//! Who waits for one message looks into the lane of its peer alone (see [`feed`](super::feed)), and
//! leaves what is behind the message where it is. What is here looks at all of them, one thread at a
//! time.

use super::control::{self, LEFT, SWITCH};
use super::far::{Far, Line};
use super::favourite::Favourite;
use super::feed::{Feed, OpenLane};
use super::inbound::Inbound;
use super::table::Table;
use super::{KINDS, Message};
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot};
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::SharedRef;
use crate::shm::ring::lane::LaneMemory;
use crate::shm::ring::lane_receiver::{LaneReceiver, One, Taker};
use crate::shm::ring::{InPlace, Label, Position, Scratch};
use crate::shm::segment::{LANE_BYTES, Port, Ports};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

/// Most messages taken from one lane before the next one is looked at.
pub(super) const LANE_BATCH: usize = 32;
/// Most messages taken from the inbox before the lanes are looked at.
const INBOX_BATCH: usize = 64;
/// Messages between two looks at the ages of lanes.
const AGE_EVERY: u64 = 256;
/// A lane is idle that brought none of so many messages.
const IDLE: u64 = 1 << 16;
/// The same, while a peer wants a lane and finds none.
const IDLE_IF_WANTED: u64 = 512;

/// Polls in which nobody else has looked into another thread's lane, before one looks into it.
const PATIENCE: u32 = 16;

/// Which lanes a poll looks into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Not into those of which another thread looks after.
    Polite,
    /// All: who goes to sleep afterwards must have overlooked none.
    Thorough,
}

/// What a poll is to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Not the lane of this peer: it has been looked into.
    pub but: Option<Slot>,
    /// Which of the others.
    pub manner: Manner,
}

/// What came of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Come {
    /// Messages taken.
    pub count: usize,
    /// Something was left alone because another thread looks after it.
    pub partial: bool,
    /// Whether a message broke it off.
    pub flow: ControlFlow<()>,
    /// Whose lane brought the latest message, and which of the lanes it is.
    pub latest: Option<Slot>,
    lane: Option<usize>,
}

impl Come {
    const NOTHING: Come =
        Come { count: 0, partial: false, flow: Continue(()), latest: None, lane: None };
}

/// What the lane has that brought what came lately.
pub(super) enum Favoured<'a> {
    /// A message, which was taken; something else `follows` it already.
    Taken { message: Message<'a>, follows: bool },
    /// Nothing.
    Nothing,
    /// Only [`Receiver::poll_favourite`] can say.
    Unknown,
}

/// The program's next message, copied into `scratch`.
struct Wanted<'a> {
    looks: u32,
    scratch: &'a mut Scratch,
    /// Its label and size.
    taken: Option<(Label, usize)>,
}

impl Taker for Wanted<'_> {
    #[inline(always)]
    fn takes(&mut self, message: impl InPlace) -> bool {
        let label = message.label();
        if label.kind() < KINDS {
            self.taken = self.scratch.copy_whole(&message).map(|len| (label, len));
        }
        self.taken.is_some()
    }

    #[inline(always)]
    fn looks(&self) -> u32 {
        self.looks
    }
}

/// See the [module](self).
pub(super) struct Receiver {
    ports: Ports,
    inbound: Inbound,
    scratch: Box<Scratch>,
    lanes: Vec<Attached>,
    /// Messages received, by which lanes age; those of lanes are added when a poll comes by.
    clock: u64,
    favourite: Favourite,
    next_ageing: u64,
    /// Peers that are gone, and where the inbox ended when that was seen.
    departed: Vec<(Slot, Position)>,
    deaths: u32,
    /// Deaths to clean up after, once everything before this place in the inbox was received.
    burial: Option<(u32, Position)>,
    pub reclaims: u64,
    /// Of the poll that goes on: what it has taken, and whether it left something alone.
    come: Come,
}

/// A lane that a peer has switched to; what is read of it is its feed's.
struct Attached {
    feed: Arc<Feed>,
    from: Slot,
    index: usize,
    word: usize,
    generation: u64,
    last_used: u64,
    revoked: bool,
    /// The feed's counters at the last poll, and polls since then in which they were the same.
    taken: u64,
    looks: u32,
    quiet: u32,
}

impl Attached {
    /// Whether nothing more can come.
    fn is_over(&self, node: &Node, ports: &Ports) -> bool {
        let word = &node.port(ports, self.from).sending[self.word];
        self.revoked && LaneReceiver::is_quiet(word) || node.is_dead(self.from)
    }

    /// Whether another thread looks after it. One that is not seen again has gone.
    fn is_looked_after(&mut self) -> bool {
        if self.feed.is_mine() {
            return false;
        }
        let looks = self.feed.looks();
        self.quiet = if looks == self.looks { self.quiet.saturating_add(1) } else { 0 };
        self.looks = looks;
        self.quiet < PATIENCE
    }

    /// Adds what was taken to the clock.
    #[inline(always)]
    fn age(&mut self, clock: &mut u64) {
        let taken = self.feed.taken();
        if taken != self.taken {
            *clock += taken - self.taken;
            self.taken = taken;
            self.last_used = *clock;
        }
    }
}

impl Receiver {
    /// At the port of this process among these.
    pub fn new(node: &Node, ports: Ports) -> Result<Receiver> {
        Ok(Receiver {
            ports,
            inbound: Inbound::new(node, ports.inbox(node.slot()))?,
            scratch: Box::new(Scratch::new()),
            lanes: Vec::new(),
            clock: 0,
            favourite: Favourite::default(),
            next_ageing: AGE_EVERY,
            departed: Vec::new(),
            deaths: 0,
            burial: None,
            reclaims: 0,
            come: Come::NOTHING,
        })
    }

    fn own<'n>(&self, node: &'n Node) -> &'n Port {
        node.port(&self.ports, node.slot())
    }

    /// Messages received.
    pub fn received(&mut self) -> u64 {
        self.lanes.iter_mut().for_each(|lane| lane.age(&mut self.clock));
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

    /// Takes what has come from other nodes, a bounded number of messages.
    #[cold]
    pub fn poll_far(
        &mut self,
        (far, endpoint): (&dyn Far, u8),
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> usize {
        let count = far.poll(Line::messages(endpoint), INBOX_BATCH, &mut |from, label, bytes| {
            f(Message { from, kind: label.kind(), imm: label.imm(), bytes })
        });
        self.clock += count as u64;
        self.favourite.found(count, None);
        count
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
        let lanes = self.lanes.iter().filter(|lane| lane.from == peer);
        // Who has the lock takes what is there.
        Ok(lanes.map(|lane| lane.feed.try_lock()).all(|way| way.is_some_and(|way| way.is_empty())))
    }

    /// Receives what is there, a bounded number of messages, fewer if `f` breaks off.
    pub fn poll(
        &mut self,
        (node, feeds): (&Node, &Table<Feed>),
        scope: Scope,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<Come> {
        self.come = Come::NOTHING;
        let mut scope = scope;
        // Again after a change of lanes: whoever goes to sleep after a poll that found nothing
        // must have looked into the lanes of which that poll has learned.
        let mut changed = true;
        let mut flow = Continue(());
        while changed && flow.is_continue() {
            flow = self.poll_lanes(node, scope, f)?;
            if flow.is_continue() {
                (changed, flow) = self.poll_inbox((node, feeds), f)?;
                scope.but = None;
            }
        }
        let deaths = node.header().deaths.load(Ordering::Acquire);
        if deaths != self.deaths || self.clock >= self.next_ageing {
            self.keep_house(node, deaths, f)?;
        }
        self.favourite.found(self.come.count, self.come.lane);
        self.come.flow = flow;
        Ok(self.come)
    }

    /// For a program that waits, before a poll of all: looks into the lane alone that brought what came
    /// lately, several times if nothing is there, and takes the next message if that is one of the program's, of
    /// at least a word and at most ten cells.
    ///
    /// Cost: the message's lines, and its feed's lock, which must be this thread's. While nothing comes, a few
    /// instructions and a pause for each look.
    #[inline(always)]
    pub fn take_favourite(&mut self, awake: bool) -> Favoured<'_> {
        let (lane, looks) = self.favourite.lane(awake);
        let Some(lane) = self.lanes.get(lane).filter(|_| looks > 0) else {
            return Favoured::Unknown;
        };
        let mut wanted = Wanted { looks: looks - 1, scratch: &mut self.scratch, taken: None };
        let (one, follows) = lane.feed.take_whole(&mut wanted);
        let Some((label, len)) = wanted.taken else {
            return if one == One::Nothing { Favoured::Nothing } else { Favoured::Unknown };
        };
        self.favourite.brought();
        // SAFETY: the message that was copied last has so many.
        let bytes = unsafe { self.scratch.bytes(len) };
        let (from, kind, imm) = (lane.from, label.kind(), label.imm());
        Favoured::Taken { message: Message { from, kind, imm, bytes }, follows }
    }

    /// The same for whatever is there, at most [`LANE_BATCH`] messages, by any thread.
    pub fn poll_favourite(
        &mut self,
        awake: bool,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (lane, looks) = self.favourite.lane(awake);
        let Some(lane) = self.lanes.get(lane).filter(|_| looks > 0) else { return Ok(()) };
        let Some(mut way) = lane.feed.try_lock() else { return Ok(()) };
        if lane.feed.watch(&mut way, looks - 1) {
            let (count, _) = lane.feed.take(&mut way, &mut self.scratch, LANE_BATCH, f)?;
            if count > 0 {
                self.favourite.brought();
            }
        }
        Ok(())
    }

    #[inline]
    fn poll_lanes(
        &mut self,
        node: &Node,
        scope: Scope,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut i = 0;
        while i < self.lanes.len() {
            let lane = &mut self.lanes[i];
            if lane.revoked && lane.is_over(node, &self.ports) {
                self.retire(node, i, f)?;
                continue;
            }
            if Some(lane.from) != scope.but && self.poll_lane(i, scope.manner, f)?.is_break() {
                return Ok(Break(()));
            }
            self.lanes[i].age(&mut self.clock);
            i += 1;
        }
        Ok(Continue(()))
    }

    #[inline]
    fn poll_lane(
        &mut self,
        at: usize,
        manner: Manner,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let lane = &mut self.lanes[at];
        if manner == Manner::Polite && lane.is_looked_after() {
            self.come.partial = true;
            return Ok(Continue(()));
        }
        let Some(mut way) = lane.feed.try_lock() else {
            self.come.partial = true;
            return Ok(Continue(()));
        };
        let (count, flow) = lane.feed.take(&mut way, &mut self.scratch, LANE_BATCH, f)?;
        drop(way);
        if count > 0 {
            self.come.count += count;
            (self.come.latest, self.come.lane) = (Some(lane.from), Some(at));
            lane.age(&mut self.clock);
        }
        Ok(flow)
    }

    /// Takes from the inbox; true if the set of lanes changed.
    #[inline]
    fn poll_inbox(
        &mut self,
        (node, feeds): (&Node, &Table<Feed>),
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<(bool, ControlFlow<()>)> {
        let mut changed = false;
        for _ in 0..INBOX_BATCH {
            let Some((from, m)) = self.inbound.poll(node, &mut self.scratch)? else { break };
            let (kind, imm) = (m.label.kind(), m.label.imm());
            if kind < control::FIRST_RESERVED {
                self.clock += 1;
                self.come.count += 1;
                if f(Message { from, kind, imm, bytes: m.bytes }).is_break() {
                    return Ok((changed, Break(())));
                }
            } else {
                changed = true;
                self.control((node, feeds), from, (kind, imm), f)?;
            }
        }
        Ok((changed, Continue(())))
    }

    #[cold]
    fn control(
        &mut self,
        (node, feeds): (&Node, &Table<Feed>),
        from: Slot,
        (kind, imm): (u8, u64),
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
                let feed = feeds.insert_shared(from, || Ok::<_, Error>(Feed::new(from)))?;
                if !feed.lock().open(OpenLane { memory, from_lane }) {
                    return Err(unexpected(from, kind, imm));
                }
                let (taken, looks) = (feed.taken(), feed.looks());
                self.lanes.push(Attached {
                    feed,
                    from,
                    index,
                    word,
                    generation,
                    last_used: self.clock,
                    revoked: false,
                    taken,
                    looks,
                    quiet: 0,
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
        let mut way = lane.feed.lock();
        while {
            let (count, flow) = lane.feed.take(&mut way, &mut self.scratch, usize::MAX, f)?;
            self.come.count += count;
            flow.is_break()
        } {}
        let open = way.close();
        drop(way);
        lane.age(&mut self.clock);
        let Some(OpenLane { memory, from_lane }) = open else { return Ok(()) };
        // A producer that left of its own accord has its grant still.
        if !lane.revoked {
            from_lane.revoke(&memory);
        }
        from_lane.close(&memory);
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
        // Of a poll that broke off some are not up to date.
        self.received();
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
        if let Some(open) = lane.feed.lock().lane() {
            open.from_lane.revoke(&open.memory);
        }
        lane.revoked = true;
        true
    }
}

fn unexpected(from: Slot, kind: u8, imm: u64) -> Error {
    Error::Incompatible {
        what: "a control message",
        why: format!("rank {from} sent kind {kind:#x}, imm {imm:#x}; end the job"),
    }
}
