//! What surrounds the engine in this process: outlets, windows, and data on its way.

use super::distrust::Distrust;
use super::execute::{self, Progress};
use super::fault;
use super::places::{Doubt, Exposed, Known};
use super::wire::Packet;
use crate::base::keys::ByNumber;
use crate::base::{Deadline, Error, Rank, Result, Slot};
use crate::coll::Team;
use crate::link::Push;
use crate::link::service::Outlet;
use crate::rma::accumulate::Domain;
use crate::rma::block::WindowBlock;
use crate::rma::foreign::{FIRST, Foreign};
use crate::rma::remote::OwnPart;
use crate::rma::runtime::{Class, Fault, Host, Message, Sent, Trouble, WindowId};
use crate::shm::node::Node;
use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// How long an operation that arrived waits for the lock of some elements while everything else
/// here waits for it: longer than a line of others who are at work takes.
pub(super) const PATIENCE: Duration = Duration::from_micros(100);
/// Till it tries again.
const PAUSE: Duration = Duration::from_micros(300);

/// Windows that this process remembers to have dropped. Whoever waits for it in one that is longer
/// gone has its deadline.
const DEPARTED: usize = 1024;
/// Members of a window that are asked at a time.
const ASKED: u32 = 16;
/// Sender's rank in answers of a process that does not have the window.
pub(super) const NOBODY: u32 = u32::MAX;

/// An operation that found elements locked, by somebody who does not run at present, or died.
#[derive(Debug)]
pub(super) struct Half {
    progress: Progress,
    /// To be tried again.
    again: Deadline,
    /// To be refused.
    limit: Option<Deadline>,
}

impl Default for Half {
    fn default() -> Half {
        Half { progress: Progress::default(), again: Deadline::NEVER, limit: None }
    }
}

/// A window that this process can be asked about.
#[derive(Debug)]
pub(super) struct Site {
    pub team: Team,
    pub block: Arc<WindowBlock>,
    pub domain: Domain,
    pub own: Arc<dyn OwnPart>,
    /// Who performs operations that are not one-sided ones.
    pub foreign: Option<Arc<dyn Foreign>>,
    /// What stopped half-way, by origin: its operations come one after the other.
    pub halves: ByNumber<u32, Half>,
    /// Members that are gone and that the engine knows to be.
    pub buried: HashSet<u32>,
    /// Members that have dropped the window, and until when they are borne with.
    pub dropped: HashMap<u32, Deadline>,
    /// Members on other nodes that have said that they dropped it, and the fence epochs they had
    /// ended.
    pub left: HashMap<u32, u64>,
    /// Whom of the members on other nodes to ask next.
    pub asked: u32,
    /// This process's part, once somebody on another node has asked for it.
    pub exposed: Option<Exposed>,
    /// Where parts on other nodes are that were asked for.
    pub places: HashMap<u32, Known>,
    /// Updates of single elements, of a kind that devices carry out, of each of these parts.
    pub singles: HashMap<u32, u32>,
    /// Whether devices may update elements of this process's part.
    pub admits: bool,
}

impl Site {
    /// Whether a member is known to have dropped the window.
    pub fn has_gone(&self, rank: u32) -> bool {
        self.left.contains_key(&rank) || self.block.has_gone(rank)
    }

    /// How many fence epochs one that has dropped it had ended.
    pub fn left_fences(&self, rank: u32) -> u64 {
        self.left.get(&rank).copied().unwrap_or_else(|| self.block.left_fences(rank))
    }

    /// The next member on another node to be asked, if it is not known to be gone.
    fn next_to_ask(&mut self) -> Option<Slot> {
        let rank = Rank(self.asked % self.team.size());
        self.asked = rank.0 + 1;
        let slot = self.team.slot_of(rank).ok()?;
        let node = self.team.node();
        let known = self.has_gone(rank.0) || node.is_local(slot) || node.is_dead(slot);
        (!known).then_some(slot)
    }

    /// The rank of a member.
    pub fn rank_at(&self, slot: Slot) -> Option<Rank> {
        self.team.ranks().find(|rank| self.team.slot_of(*rank).is_ok_and(|at| at == slot))
    }
}

/// Data that was asked for.
#[derive(Debug)]
enum Claim {
    /// One unit, waited for by a call.
    Unit(Option<Result<Vec<u8>, Trouble>>),
    /// A piece of what a ticket stands for.
    Piece { ticket: u64, position: usize, bytes: usize },
}

/// What a ticket stands for.
#[derive(Debug)]
struct Gathering {
    bytes: Vec<u8>,
    missing: usize,
    trouble: Option<Trouble>,
    waker: Option<Waker>,
}

/// Operations of this process that devices have carried out, and that they could not.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub written: u64,
    pub read: u64,
    pub updated: u64,
    pub modified: u64,
    pub failed: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct World {
    requests: Outlet,
    replies: Outlet,
    pub sites: ByNumber<WindowId, Site>,
    /// Shared with the windows' calls.
    pub distrust: Arc<Distrust>,
    /// The [`Site::foreign`] of those sites that have one, to be asked after each look.
    pub foreigners: Vec<(WindowId, Arc<dyn Foreign>)>,
    claims: ByNumber<u64, Claim>,
    gatherings: ByNumber<u64, Gathering>,
    next: u64,
    packet: Vec<u8>,
    /// Windows on several nodes that were dropped lately, and the fence epochs ended on them.
    departed: VecDeque<(WindowId, u64)>,
    /// Places to which late bytes may be on their way.
    pub doubts: Vec<Doubt>,
    /// What devices have done.
    pub moved: Moved,
    /// Futures to wake once the lock is released.
    pub wake: Vec<Waker>,
    /// Something has happened besides what arrived that other calls may wait for.
    pub rung: bool,
    /// What is dropped then.
    pub spent: Vec<Box<dyn Any + Send>>,
    /// Damage found where it could not be reported.
    pub damage: Option<Error>,
}

impl World {
    pub fn new(requests: Outlet, replies: Outlet) -> World {
        World {
            requests,
            replies,
            sites: ByNumber::default(),
            distrust: Arc::default(),
            foreigners: Vec::new(),
            claims: ByNumber::default(),
            gatherings: ByNumber::default(),
            next: 0,
            packet: Vec::new(),
            departed: VecDeque::new(),
            doubts: Vec::new(),
            moved: Moved::default(),
            wake: Vec::new(),
            rung: false,
            spent: Vec::new(),
            damage: None,
        }
    }

    /// Remembers for a while how far this process was on a window that it drops.
    pub fn depart(&mut self, window: WindowId, fences: u64) {
        if self.departed.len() == DEPARTED {
            self.departed.pop_front();
        }
        self.departed.push_back((window, fences));
    }

    /// Answers whoever asks about a window that this process does not have any more; one that it
    /// does not know may be one that it will have. If there is no room, it is asked again.
    pub fn say_gone(&mut self, node: &Node, to: Slot, window: WindowId) {
        let known = self.departed.iter().find(|(id, _)| *id == window);
        let Some(&(_, fences)) = known else { return };
        self.put(node, to, Packet { window, from: NOBODY, message: Message::Gone { fences } });
    }

    /// Asks some members of every window on several nodes whether they still have it: who waits for
    /// them cannot look.
    pub fn ask_around(&mut self, node: &Node) {
        let mut asked = Vec::new();
        for (&window, site) in self.sites.iter_mut().filter(|(_, s)| s.team.spans_nodes()) {
            let from = site.team.rank().0;
            let some = (0..site.team.size().min(ASKED)).filter_map(|_| site.next_to_ask());
            asked.extend(some.map(|to| (to, Packet { window, from, message: Message::Ask })));
        }
        for (to, packet) in asked {
            self.put(node, to, packet);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A token for a unit that a call waits for.
    pub fn claim(&mut self) -> u64 {
        let token = self.number();
        self.claims.insert(token, Claim::Unit(None));
        token
    }

    /// What has become of a claimed unit; the token is used up by an answer.
    pub fn take(&mut self, token: u64) -> Option<Result<Vec<u8>, Trouble>> {
        match self.claims.get(&token) {
            Some(Claim::Unit(Some(_))) => {}
            _ => return None,
        }
        match self.claims.remove(&token) {
            Some(Claim::Unit(done)) => done,
            _ => None,
        }
    }

    /// Forgets a claim; what comes for it is dropped.
    pub fn forget(&mut self, token: u64) {
        self.claims.remove(&token);
    }

    /// A ticket for `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if this process has no room for so many.
    pub fn gather(&mut self, what: &'static str, bytes: usize) -> Result<u64> {
        let mut room = Vec::new();
        room.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory {
            what: format!("the result of {what}"),
            wanted: bytes as u64,
            available: 0,
            limit: "memory of this process".into(),
            advice: "ask for fewer elements at a time",
        })?;
        room.resize(bytes, 0);
        let ticket = self.number();
        let gathering = Gathering { bytes: room, missing: bytes, trouble: None, waker: None };
        self.gatherings.insert(ticket, gathering);
        Ok(ticket)
    }

    /// Whether something is still to come for a ticket.
    pub fn gathers(&self) -> bool {
        self.gatherings.values().any(|one| one.missing > 0 && one.trouble.is_none())
    }

    /// A token for a piece of a ticket's bytes.
    pub fn claim_piece(&mut self, ticket: u64, position: usize, bytes: usize) -> u64 {
        let token = self.number();
        self.claims.insert(token, Claim::Piece { ticket, position, bytes });
        token
    }

    /// What a ticket stands for, once it is there; the ticket is used up. Else `waker` is woken
    /// when it is. An unknown ticket has failed: it has been used up.
    pub fn collect(
        &mut self,
        ticket: u64,
        waker: Option<&Waker>,
    ) -> Option<Result<Vec<u8>, Trouble>> {
        let Some(gathering) = self.gatherings.get_mut(&ticket) else {
            return Some(Err(Trouble::Misuse("the request was completed before")));
        };
        if gathering.missing > 0 && gathering.trouble.is_none() {
            if let Some(waker) = waker {
                let before = gathering.waker.replace(waker.clone());
                self.let_go(before);
            }
            return None;
        }
        let mut gathering = self.gatherings.remove(&ticket)?;
        self.let_go(gathering.waker.take());
        Some(gathering.trouble.map_or(Ok(gathering.bytes), Err))
    }

    /// Forgets a ticket.
    pub fn abandon(&mut self, ticket: u64) {
        let gathering = self.gatherings.remove(&ticket);
        self.let_go(gathering.and_then(|gathering| gathering.waker));
    }

    /// Drops a waker once the lock is released: it may own other requests.
    fn let_go(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.spent.push(Box::new(waker));
        }
    }

    /// Units that are awaited, and bytes set aside for results of requests.
    pub fn held(&self) -> (u64, u64) {
        let bytes: usize = self.gatherings.values().map(|one| one.bytes.len()).sum();
        (self.claims.len() as u64, bytes as u64)
    }

    /// Packets sent.
    pub fn sent(&self) -> u64 {
        self.requests.sent() + self.replies.sent()
    }

    fn deliver(&mut self, token: u64, data: Result<&[u8], Trouble>) {
        match self.claims.get_mut(&token) {
            Some(Claim::Unit(done)) => {
                done.get_or_insert(data.map(<[u8]>::to_vec));
            }
            Some(&mut Claim::Piece { ticket, position, bytes }) => {
                self.claims.remove(&token);
                let Some(gathering) = self.gatherings.get_mut(&ticket) else { return };
                match data {
                    Ok(data) if data.len() == bytes => {
                        gathering.bytes[position..position + bytes].copy_from_slice(data);
                        gathering.missing -= bytes;
                    }
                    Ok(_) => gathering.trouble = Some(short()),
                    Err(trouble) => gathering.trouble = Some(trouble),
                }
                if gathering.missing == 0 || gathering.trouble.is_some() {
                    self.wake.extend(gathering.waker.take());
                }
            }
            None => {}
        }
    }

    /// Puts a packet into the inbox of `to`, whatever that has to be told before.
    ///
    /// # Errors
    /// The peer is gone; damage.
    pub fn send(&mut self, node: &Node, to: Slot, packet: Packet<'_>) -> Result<Push> {
        let kind = packet.encode(&mut self.packet);
        let outlet = match packet.message.class() {
            Class::Request => &mut self.requests,
            Class::Reply => &mut self.replies,
        };
        outlet.try_send(node, to, kind, &self.packet)
    }

    /// Puts a packet into the inbox of `to`: a request after what it has to be told first.
    pub fn put(&mut self, node: &Node, to: Slot, packet: Packet<'_>) -> Sent {
        let request = packet.message.class() == Class::Request;
        if request && !self.doubts.is_empty() && !self.tell_doubts(node, Some(to)) {
            return Sent::Full;
        }
        match self.send(node, to, packet) {
            Ok(Push::Sent) => Sent::Yes,
            Ok(Push::Full) => Sent::Full,
            Err(error) if error.is_death() => Sent::Gone,
            Err(error) => {
                self.damage.get_or_insert(error);
                Sent::Gone
            }
        }
    }
}

/// The trouble of an answer that is not as long as what was asked for.
pub(super) fn short() -> Trouble {
    Trouble::Misuse("an answer has another length than what was asked for")
}

/// The world as the engine sees it.
pub(super) struct Around<'w> {
    pub node: &'w Node,
    pub world: &'w mut World,
}

impl Around<'_> {
    /// Tells the room above of trouble in what it has issued.
    fn tell(&mut self, window: WindowId, trouble: Trouble, tell: impl Fn(&dyn Foreign, &Error)) {
        let Some(site) = self.world.sites.get(&window) else { return };
        let Some(foreign) = &site.foreign else { return };
        let (block, distrust) = (&site.block, &self.world.distrust);
        let error = fault::trouble_of(self.node, block, distrust, "an active message", trouble);
        tell(&**foreign, &error);
        self.world.rung = true;
    }
}

impl Host for Around<'_> {
    fn send(&mut self, window: WindowId, to: u32, message: &Message<'_>) -> Sent {
        let Some(site) = self.world.sites.get(&window) else { return Sent::Gone };
        let Ok(slot) = site.team.slot_of(Rank(to)) else { return Sent::Gone };
        let from = site.team.rank().0;
        self.world.put(self.node, slot, Packet { window, from, message: *message })
    }

    fn perform(
        &mut self,
        window: WindowId,
        origin: u32,
        body: &[u8],
        answer: &mut Vec<u8>,
    ) -> Poll<Result<(), Fault>> {
        let Some(site) = self.world.sites.get_mut(&window) else {
            return Poll::Ready(Err(fault::closed()));
        };
        if body.first() == Some(&FIRST) {
            let Some(foreign) = &site.foreign else {
                return Poll::Ready(Err(fault::nobody()));
            };
            return Poll::Ready(foreign.arrived(Rank(origin), body));
        }
        let me = site.team.rank();
        let half = if site.halves.is_empty() { None } else { site.halves.remove(&origin) };
        let mut half = match half {
            Some(half) if !half.again.passed() => {
                site.halves.insert(origin, half);
                return Poll::Pending;
            }
            Some(half) => half,
            None => Half::default(),
        };
        let progress = &mut half.progress;
        let done = execute::perform(&*site.own, &site.domain, me, body, answer, progress);
        if done.is_pending() {
            let limit = *half.limit.get_or_insert_with(|| site.team.deadline());
            if limit.passed() {
                return Poll::Ready(Err(fault::refused(0)));
            }
            half.again = Deadline::after(PAUSE);
            site.halves.insert(origin, half);
            return Poll::Pending;
        }
        // Somebody may wait for a word of this part to change.
        site.block.active(me.0).signal.notify();
        done
    }

    fn data(&mut self, token: u64, data: &[u8]) {
        self.world.deliver(token, Ok(data));
    }

    fn failed(&mut self, token: u64, trouble: Trouble) {
        self.world.deliver(token, Err(trouble));
    }

    fn dropped(&mut self, window: WindowId, to: u32, body: &[u8], trouble: Trouble) {
        if body.first() == Some(&FIRST) {
            self.tell(window, trouble, |foreign, error| foreign.dropped(Rank(to), body, error));
        }
    }

    fn abandoned(&mut self, window: WindowId, to: u32, trouble: Trouble) {
        self.tell(window, trouble, |foreign, error| foreign.abandoned(Rank(to), error));
    }

    fn note(&mut self, window: WindowId, from: u32, body: &[u8]) {
        let site = self.world.sites.get(&window);
        if let Some(foreign) = site.and_then(|site| site.foreign.as_ref()) {
            foreign.noted(Rank(from), body);
        }
    }

    fn refused(&mut self, window: WindowId, by: u32, fault: Fault) {
        let site = self.world.sites.get(&window);
        if let Some(foreign) = site.and_then(|site| site.foreign.as_ref()) {
            foreign.refused(Rank(by), fault);
        }
    }
}
