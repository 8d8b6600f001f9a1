//! What the agent's lock protects: the engine, what surrounds it, the inboxes. One look takes what
//! has arrived, replies first, lets the engine go on, and tells it who is gone.

use super::fault;
use super::outgoing::Out;
use super::wire::{self, Packet};
use super::world::{Around, NOBODY, World};
use crate::base::{Deadline, Error, Rank, Result, Slot};
use crate::link::service::{Channel, Inlet, Outlet};
use crate::rma::runtime::{Engine, Handled, Limits, Message, Sent, WindowId};
use crate::shm::node::Node;
use crate::shm::segment::INBOX_BYTES;
use std::time::{Duration, Instant};

/// Most messages taken from an inbox in one look.
const BATCH: usize = 256;

/// No inbox holds more messages: each takes a cell of 64 bytes.
const MOST_IN_INBOX: u64 = INBOX_BYTES / 64;

/// How long after a member has dropped a window it counts as missing there, if nobody waits for it
/// in particular: who does notices at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two rounds of questions to the members of windows, at least.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct State {
    pub engine: Engine,
    pub world: World,
    requests: Inlet,
    replies: Inlet,
    /// A request that could not be answered yet: from whom, its kind and bytes.
    stuck: Option<(Slot, u8, Vec<u8>)>,
    /// Something waits for room at a peer, which rings nobody's bell.
    pub retry: bool,
    /// Peers that are not believed any more, and have yet to be told so, by window.
    untold: Vec<(WindowId, Slot)>,
    /// Members are to be looked at even if nobody has died.
    pub suspicious: bool,
    deaths: u32,
    /// When members were asked last.
    probed: Option<Instant>,
    pub broken: Option<String>,
}

impl State {
    /// Reserves the process's inboxes.
    pub fn open(node: &Node) -> Result<State> {
        let outlets = (Outlet::new(Channel::Requests), Outlet::new(Channel::Replies));
        Ok(State {
            engine: Engine::new(Limits::from_settings()?),
            world: World::new(outlets.0, outlets.1),
            requests: Inlet::open(node, Channel::Requests)?,
            replies: Inlet::open(node, Channel::Replies)?,
            stuck: None,
            retry: false,
            untold: Vec::new(),
            suspicious: false,
            deaths: 0,
            probed: None,
            broken: None,
        })
    }

    /// Fails if the packet path of this process is broken.
    pub fn intact(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::Incompatible {
                what: "the packet path of this process",
                why: format!("{why}; end the job"),
            }),
        }
    }

    /// Packets received.
    pub fn received(&self) -> u64 {
        self.requests.received() + self.replies.received()
    }

    /// Asks about senders that have not finished, and some members of every window; unless it has
    /// just done so. What is asked of other nodes wakes those who wait there: if they asked in turn
    /// each time, that would not end.
    pub fn probe(&mut self, node: &Node) {
        if self.probed.is_some_and(|at| at.elapsed() < PROBE_EVERY) {
            return;
        }
        self.probed = Some(Instant::now());
        self.requests.probe_unfinished(node);
        self.replies.probe_unfinished(node);
        for site in self.world.sites.values() {
            // Without those that are known to be gone, at whom the check would stop.
            let members = site.team.ranks().filter_map(|rank| site.team.slot_of(rank).ok());
            let members = members.filter(|slot| !node.is_dead(*slot));
            // Records who is gone; [`State::bury`] looks who it is.
            let _ = node.check(members, "a one-sided operation");
        }
        self.world.ask_around(node);
    }

    /// Takes what has arrived, a bounded number of messages, and lets the engine go on. Returns
    /// whether something had arrived, or has happened otherwise that calls may wait for.
    ///
    /// # Errors
    /// Damage. It stays.
    pub fn look(&mut self, node: &Node) -> Result<bool> {
        let found = self.look_once(node);
        let found = match self.world.damage.take() {
            Some(damage) => Err(damage),
            None => found,
        };
        found.inspect_err(|error| self.broken = Some(error.to_string()))
    }

    fn look_once(&mut self, node: &Node) -> Result<bool> {
        let mut found = false;
        for _ in 0..BATCH {
            let Some((from, kind, bytes)) = self.replies.poll(node)? else { break };
            found = true;
            let around = Around { node, world: &mut self.world };
            // Replies are always dealt with.
            if let Err(nonsense) = handle(&mut self.engine, around, from, kind, bytes) {
                self.distrust(from, nonsense);
            }
        }
        if let Some((from, kind, bytes)) = self.stuck.take() {
            found |= self.take(node, from, kind, &bytes);
        }
        for _ in 0..BATCH {
            if self.stuck.is_some() {
                break;
            }
            let Some((from, kind, bytes)) = self.requests.poll(node)? else { break };
            found = true;
            let around = Around { node, world: &mut self.world };
            match handle(&mut self.engine, around, from, kind, bytes) {
                Ok(Handled::Busy) => self.stuck = Some((from, kind, bytes.to_vec())),
                Ok(_) => {}
                Err(nonsense) => self.distrust(from, nonsense),
            }
        }
        self.tell_distrusted(node);
        let told = self.world.doubts.is_empty() || self.world.tell_doubts(node, None);
        let wants = self.engine.progress(&mut Around { node, world: &mut self.world });
        let wants = self.pump(node).unwrap_or(wants);
        self.retry = wants || self.stuck.is_some() || !self.untold.is_empty() || !told;
        let deaths = node.death_mark();
        if (deaths != self.deaths || self.suspicious) && self.bury(node)? {
            found = true;
        }
        Ok(found | std::mem::take(&mut self.world.rung))
    }

    /// Handles a request that was put aside; false if it has to wait on.
    fn take(&mut self, node: &Node, from: Slot, kind: u8, bytes: &[u8]) -> bool {
        let around = Around { node, world: &mut self.world };
        match handle(&mut self.engine, around, from, kind, bytes) {
            Ok(Handled::Busy) => {
                self.stuck = Some((from, kind, bytes.to_vec()));
                return false;
            }
            Ok(_) => {}
            Err(nonsense) => self.distrust(from, nonsense),
        }
        true
    }

    /// Nothing that `peer` sends is believed any more.
    fn distrust(&mut self, peer: Slot, nonsense: Nonsense) {
        let (why, told) = match nonsense {
            Nonsense::Packet(why) => (format!("rank {peer} sent one that is none: {why}"), false),
            Nonsense::Refused => (format!("rank {peer} could not read what this rank sent"), true),
        };
        if self.world.distrust.note(peer, why) {
            self.suspicious = true;
            if !told {
                let windows =
                    self.world.sites.iter().filter(|(_, site)| site.rank_at(peer).is_some());
                self.untold.extend(windows.map(|(id, _)| (*id, peer)));
            }
        }
    }

    /// Tells those who are not believed so, as far as there is room.
    fn tell_distrusted(&mut self, node: &Node) {
        let world = &mut self.world;
        self.untold.retain(|(window, peer)| {
            let Some(site) = world.sites.get(window) else { return false };
            let result = Err(fault::distrusted());
            let message = Message::Answer { seq: 0, acked: false, request: None, result };
            let from = site.team.rank().0;
            world.put(node, *peer, Packet { window: *window, from, message }) == Sent::Full
        });
    }

    /// Has those pump that have something to send; whether the engine wants to be asked again, if
    /// there were any.
    fn pump(&mut self, node: &Node) -> Option<bool> {
        let mut wants = None;
        for i in 0..self.world.foreigners.len() {
            let (window, foreign) = &self.world.foreigners[i];
            if !foreign.busy() {
                continue;
            }
            let (window, foreign) = (*window, foreign.clone());
            loop {
                let around = Around { node, world: &mut self.world };
                let mut out =
                    Out { engine: &mut self.engine, around, window, blocked: false, sent: false };
                let did = foreign.pump(&mut out);
                let Out { blocked, sent, .. } = out;
                // What was given may be kept yet, or stand where there was no room.
                let left = self.engine.progress(&mut Around { node, world: &mut self.world });
                wants = Some(wants == Some(true) || left || blocked);
                if !blocked || !did || !sent {
                    break;
                }
            }
        }
        wants
    }

    /// Tells the engine of members that are gone, once all that they had sent has been taken.
    /// Returns whether there were any.
    pub fn bury(&mut self, node: &Node) -> Result<bool> {
        // Who is found gone now had sent everything before: it is in the inboxes.
        let deaths = node.death_mark();
        self.suspicious = false;
        let mut gone = Vec::new();
        let mut left = false;
        for (id, site) in &mut self.world.sites {
            let me = site.team.rank();
            for rank in site.team.ranks().filter(|rank| *rank != me) {
                let distrust = &self.world.distrust;
                let is_dead = site
                    .team
                    .slot_of(rank)
                    .is_ok_and(|slot| node.is_dead(slot) || distrust.has(slot));
                if site.buried.contains(&rank.0) || !(is_dead || site.has_gone(rank.0)) {
                    continue;
                }
                // One that lives may have done its part, while what the others still wait for is
                // on its way from somebody else.
                let limit = || Deadline::after(PATIENCE);
                if is_dead || site.dropped.entry(rank.0).or_insert_with(limit).passed() {
                    gone.push((*id, rank.0));
                } else {
                    left |= self.engine.misses(*id, rank.0, site.left_fences(rank.0));
                }
            }
        }
        if (left || !gone.is_empty()) && !self.drain(node)? {
            self.suspicious = true;
            return Ok(false);
        }
        if left {
            // All that they had sent is here, and it is not what is waited for.
            for (id, site) in &self.world.sites {
                let dropped = site.dropped.keys().filter(|rank| !site.buried.contains(rank));
                gone.extend(
                    dropped
                        .filter_map(|&rank| {
                            let missed = self.engine.misses(*id, rank, site.left_fences(rank));
                            (missed && !gone.contains(&(*id, rank))).then_some((*id, rank))
                        })
                        .collect::<Vec<_>>(),
                );
            }
        }
        self.deaths = deaths;
        for &(id, rank) in &gone {
            let Some(site) = self.world.sites.get_mut(&id) else { continue };
            site.buried.insert(rank);
            site.halves.remove(&rank);
            let foreign = site.foreign.clone();
            self.world.forget_member(id, Rank(rank));
            self.engine.peer_dead(&mut Around { node, world: &mut self.world }, id, rank);
            if let Some(foreign) = foreign {
                foreign.died(Rank(rank));
            }
        }
        Ok(!gone.is_empty())
    }

    /// Takes all that has arrived before the call; false if a request blocks those behind it. What
    /// others send meanwhile does not prolong it.
    fn drain(&mut self, node: &Node) -> Result<bool> {
        if let Some((from, kind, bytes)) = self.stuck.take()
            && !self.take(node, from, kind, &bytes)
        {
            return Ok(false);
        }
        let (mut replies, mut requests) = (false, false);
        for _ in 0..MOST_IN_INBOX {
            let Some((from, kind, bytes)) = self.replies.poll(node)? else {
                replies = self.replies.is_blocked();
                break;
            };
            let around = Around { node, world: &mut self.world };
            if let Err(nonsense) = handle(&mut self.engine, around, from, kind, bytes) {
                self.distrust(from, nonsense);
            }
        }
        for _ in 0..MOST_IN_INBOX {
            let Some((from, kind, bytes)) = self.requests.poll(node)? else {
                requests = self.requests.is_blocked();
                break;
            };
            let around = Around { node, world: &mut self.world };
            match handle(&mut self.engine, around, from, kind, bytes) {
                Ok(Handled::Busy) => {
                    self.stuck = Some((from, kind, bytes.to_vec()));
                    return Ok(false);
                }
                Ok(_) => {}
                Err(nonsense) => self.distrust(from, nonsense),
            }
        }
        Ok(!replies && !requests)
    }
}

/// What makes a peer one that is not believed any more.
enum Nonsense {
    /// A packet that cannot be read, or that makes no sense where it arrives.
    Packet(String),
    /// It said that of this process.
    Refused,
}

impl From<Error> for Nonsense {
    fn from(error: Error) -> Nonsense {
        Nonsense::Packet(match error {
            Error::Incompatible { why, .. } => why,
            other => other.to_string(),
        })
    }
}

/// Gives a packet to the engine, after checking that it comes from where it says. What comes from
/// a peer that is not believed is dropped.
fn handle(
    engine: &mut Engine,
    mut around: Around<'_>,
    from: Slot,
    kind: u8,
    bytes: &[u8],
) -> std::result::Result<Handled, Nonsense> {
    if around.world.distrust.has(from) {
        return Ok(Handled::Done);
    }
    let packet = wire::decode(kind, bytes)?;
    if let Message::Answer { result: Err(fault), .. } = &packet.message
        && fault::is_distrusted(fault)
    {
        return Err(Nonsense::Refused);
    }
    let Some(site) = around.world.sites.get_mut(&packet.window) else {
        return Ok(refuse(around, from, &packet));
    };
    if let Message::Gone { fences } = packet.message
        && let Some(rank) = site.rank_at(from)
    {
        site.left.insert(rank.0, fences);
        return Ok(Handled::Done);
    }
    let rank = match packet.from {
        // A process that does not have the window any more does not know its rank in it.
        NOBODY => site.rank_at(from),
        rank => Some(Rank(rank)).filter(|rank| {
            rank.0 < site.team.size() && site.team.slot_of(*rank).is_ok_and(|slot| slot == from)
        }),
    };
    let Some(rank) = rank else {
        let why = format!("it came as of rank {} of a window, which is another", packet.from);
        return Err(Nonsense::Packet(why));
    };
    match packet.message {
        Message::Ask => return Ok(Handled::Done),
        Message::Where { stale, updates } => {
            let world = around.world;
            return Ok(world.tell_place(around.node, from, packet.window, stale, updates));
        }
        Message::Place { region } => {
            around.world.learn(packet.window, rank, region);
            return Ok(Handled::Done);
        }
        _ => {}
    }
    match engine.handle(&mut around, packet.window, rank.0, &packet.message) {
        Handled::Nonsense => {
            Err(Nonsense::Packet("it is of a barrier or reduction that is not due".into()))
        }
        handled => Ok(handled),
    }
}

/// Answers a request for a window that this process does not have any more.
fn refuse(around: Around<'_>, from: Slot, packet: &Packet<'_>) -> Handled {
    let result = Err(fault::closed());
    let message = match packet.message {
        Message::Operation { seq, request, riders, .. } => {
            Message::Answer { seq, acked: riders.ack, request, result }
        }
        Message::Control { seq, riders } => {
            Message::Answer { seq, acked: riders.ack, request: None, result }
        }
        // What the lock is for will be refused.
        Message::Lock(_) => Message::Granted { recovered: None, clock: 0 },
        Message::Ask => {
            around.world.say_gone(around.node, from, packet.window);
            return Handled::Done;
        }
        Message::Where { .. } => Message::Place { region: &[] },
        // Late, and of no use to anybody.
        _ => return Handled::Done,
    };
    let answer = Packet { window: packet.window, from: NOBODY, message };
    match around.world.put(around.node, from, answer) {
        Sent::Full => Handled::Busy,
        Sent::Yes | Sent::Gone => Handled::Done,
    }
}
