//! One per process: the engine, the channels, and who drives them.
//!
//! ```text
//!   user's call: lock; call the engine ---- done? ----> return
//!                  ^     | not yet: look into the inboxes, ask again; sleep on the doorbell
//!                  +-----+
//!   thread:      sleeps on the same doorbell while no call drives (see `thread`)
//! ```
//! Everything is behind one lock, held for one look into the inboxes or one call of the engine.
//! The agent hangs on the [`Node`] and never owns it.

use super::fault;
use super::thread::Thread;
use super::wire::{self, Packet};
use super::world::{Around, Site, World};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Error, Rank, Result, Slot, settings};
use crate::link::service::{Channel, Inlet, Outlet, doorbell};
use crate::rma::foreign::{Foreign, Outgoing};
use crate::rma::runtime::{Engine, Handled, Limits, Message, Sent, WindowId};
use crate::shm::node::Node;
use crate::shm::segment::{INBOX_BYTES, SERVICES};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Most messages taken from an inbox in one look.
const BATCH: usize = 256;

/// No inbox holds more messages: each takes a cell of 64 bytes.
const MOST_IN_INBOX: u64 = INBOX_BYTES / 64;

/// How long after a member has dropped a window it counts as missing there.
const PATIENCE: Duration = Duration::from_secs(3);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Agent {
    state: Mutex<State>,
    /// Calls that wait at present, and so look into the inboxes themselves.
    drivers: AtomicU32,
    /// Grows with every call that looked into the inboxes.
    pub looks: AtomicU32,
    thread: Mutex<Option<Thread>>,
    threaded: bool,
}

/// What the lock protects.
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
    suspicious: bool,
    deaths: u32,
    broken: Option<String>,
}

impl Agent {
    /// The agent of the process, made at first use: its inboxes are reserved then.
    pub fn of(node: &Node) -> Result<Arc<Agent>> {
        let agent = node.attachment(|| Agent::new(node))?;
        if !agent.threaded {
            // Whoever waits here for something else is waited for by those whose operations come.
            let helper = Arc::downgrade(&agent);
            node.help_while_waiting(move |node| {
                if let Some(agent) = helper.upgrade()
                    && let Some(mut state) = agent.try_enter()
                {
                    // Damage stays, and is reported by the next call.
                    let found = state.look(node).unwrap_or(true);
                    let ran = agent.leave(state);
                    if (found || ran) && agent.drivers() > 0 {
                        doorbell(node, node.slot()).notify();
                    }
                }
            });
        }
        Ok(agent)
    }

    fn new(node: &Node) -> Result<Agent> {
        let threaded = match settings::PROGRESS.text().as_str() {
            "thread" => true,
            "calls" => false,
            other => {
                let why = format!("\"{other}\" is neither thread nor calls");
                return Err(Error::invalid(settings::PROGRESS.name, why));
            }
        };
        let outlets = (Outlet::new(Channel::Requests), Outlet::new(Channel::Replies));
        let state = State {
            engine: Engine::new(Limits::from_settings()?),
            world: World::new(outlets.0, outlets.1),
            requests: Inlet::open(node, Channel::Requests)?,
            replies: Inlet::open(node, Channel::Replies)?,
            stuck: None,
            retry: false,
            untold: Vec::new(),
            suspicious: false,
            deaths: 0,
            broken: None,
        };
        Ok(Agent {
            state: Mutex::new(state),
            drivers: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            thread: Mutex::new(None),
            threaded,
        })
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// What has broken the packet path of this process.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.intact()?;
        Ok(Entered(Some(state)))
    }

    /// Takes the lock if nobody has it.
    pub fn try_enter(&self) -> Option<Entered<'_>> {
        match self.state.try_lock() {
            Ok(state) => Some(Entered(Some(state))),
            Err(TryLockError::Poisoned(poisoned)) => Some(Entered(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Marks the calling thread as one that looks into the inboxes until dropped.
    pub fn driving(&self) -> Driving<'_> {
        self.drivers.fetch_add(1, Ordering::AcqRel);
        Driving(self)
    }

    /// Calls that look into the inboxes at present.
    pub fn drivers(&self) -> u32 {
        self.drivers.load(Ordering::Acquire)
    }

    /// Whether a thread makes progress.
    pub fn threaded(&self) -> bool {
        self.threaded
    }

    /// Releases the lock and, where no thread does it, runs what is due: whether anything was. It
    /// has something to send then.
    pub fn leave(&self, state: Entered<'_>) -> bool {
        if self.threaded || !state.world.foreigners.iter().any(|(_, foreign)| foreign.due()) {
            return false;
        }
        let due = state.world.foreigners.iter().filter(|(_, foreign)| foreign.due());
        let due: Vec<Arc<dyn Foreign>> = due.map(|(_, foreign)| foreign.clone()).collect();
        drop(state);
        due.iter().filter(|foreign| foreign.run_due()).count() > 0
    }

    /// Takes a window in; the first one starts the thread.
    pub fn add(self: &Arc<Agent>, node: &Arc<Node>, id: WindowId, site: Site) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && self.threaded {
            *thread = Some(Thread::start(self.clone(), node.clone())?);
        }
        let (me, size) = (site.team.rank().0, site.team.size());
        let mut state = self.enter()?;
        state.world.sites.insert(id, site);
        state.engine.add_window(id, me, size);
        state.suspicious |= !state.world.distrust.is_empty();
        Ok(())
    }

    /// Lets a window go; the last one ends the thread. Whoever waits for its data is told.
    pub fn remove(&self, node: &Node, id: WindowId) {
        self.dismiss(id);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = Entered(Some(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
        let here = &mut *state;
        here.engine.remove_window(&mut Around { node, world: &mut here.world }, id);
        let site = state.world.sites.remove(&id);
        let ended = if state.world.sites.is_empty() { thread.take() } else { None };
        // Futures that are woken now, and those that the thread wakes while it is waited for, may
        // let other windows go.
        drop(thread);
        drop(state);
        // Outside the lock: it may be the last reference to the window's block.
        drop(site);
        if let Some(ended) = ended {
            ended.stop(node);
        }
    }

    /// Takes in who performs a window's other operations.
    pub fn attach(&self, id: WindowId, foreign: Arc<dyn Foreign>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let world = &mut state.world;
        let Some(site) = world.sites.get_mut(&id) else { return };
        for rank in &site.buried {
            foreign.died(Rank(*rank));
        }
        site.foreign = Some(foreign.clone());
        world.foreigners.push((id, foreign));
    }

    /// Lets go who performs a window's other operations: nothing is run when it returns.
    fn dismiss(&self, id: WindowId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = state.world.sites.get_mut(&id).and_then(|site| site.foreign.take());
        state.world.foreigners.retain(|(of, _)| *of != id);
        drop(state);
        if let Some(foreign) = foreign {
            foreign.close();
        }
    }

    /// Has those pump that have something to send, and leaves to the thread or the next call what
    /// finds no room.
    pub fn kick(&self, node: &Node) {
        let Ok(mut state) = self.enter() else { return };
        let found = state.look(node).unwrap_or(true);
        let left = state.retry;
        drop(state);
        if left || found && self.drivers() > 0 {
            doorbell(node, node.slot()).notify();
        }
    }

    /// Counters of engine and transport, and the bytes they hold.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = state.engine.counters().each();
        let (claims, gathered) = state.world.held();
        all.extend([
            ("packets_received", state.requests.received() + state.replies.received()),
            ("packets_sent", state.world.sent()),
            ("outstanding", state.engine.outstanding()),
            ("pool_bytes", state.engine.pool_bytes() as u64),
            ("inbox_bytes", SERVICES as u64 * INBOX_BYTES),
            ("units_awaited", claims),
            ("result_bytes", gathered),
        ]);
        for (_, foreign) in &state.world.foreigners {
            for (name, value) in foreign.counters() {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += value,
                    None => all.push((name, value)),
                }
            }
        }
        all
    }

    /// Ends the packet path of this process: calls fail from now on.
    pub fn damage(&self, node: &Node, why: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken.get_or_insert(why);
        drop(state);
        doorbell(node, node.slot()).notify();
    }

    /// For the checks of waits: asks about some members of every window (if `ask`, or a request
    /// is under way, for which nobody may be waiting in a call), and tells the engine of those that
    /// are gone.
    ///
    /// # Errors
    /// Only damage.
    pub fn look_around(&self, node: &Node, ask: bool) -> Result<()> {
        let mut state = self.enter()?;
        if ask || state.world.gathers() {
            state.requests.probe_unfinished(node);
            state.replies.probe_unfinished(node);
            for site in state.world.sites.values() {
                // Without those that are known to be gone, at whom the check would stop.
                let members = site.team.ranks().filter_map(|rank| site.team.slot_of(rank).ok());
                let members = members.filter(|slot| !node.is_dead(*slot));
                // Records who is gone; who it is is looked at below.
                let _ = node.check(members, "a one-sided operation");
            }
        }
        if state.bury(node)? {
            drop(state);
            doorbell(node, node.slot()).notify();
        }
        Ok(())
    }
}

/// The lock, held. Futures are woken after it is released.
#[derive(Debug)]
pub(super) struct Entered<'a>(Option<MutexGuard<'a, State>>);

impl std::ops::Deref for Entered<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("only drop takes the guard")
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("only drop takes the guard")
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mut state) = self.0.take() {
            let wake = std::mem::take(&mut state.world.wake);
            drop(state);
            for waker in wake {
                // A panic of one, which is the program's, is reported by its hook, and keeps
                // neither the others from being woken nor the packets from being taken.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}

/// See [`Agent::driving`].
pub(super) struct Driving<'a>(&'a Agent);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.drivers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl State {
    fn intact(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::Incompatible {
                what: "the packet path of this process",
                why: format!("{why}; end the job"),
            }),
        }
    }

    /// Takes what has arrived, a bounded number of messages, and lets the engine go on. Returns
    /// whether something had arrived.
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
        let wants = self.engine.progress(&mut Around { node, world: &mut self.world });
        let wants = self.pump(node).unwrap_or(wants);
        self.retry = wants || self.stuck.is_some() || !self.untold.is_empty();
        let deaths = node.header().deaths.load(Ordering::Acquire);
        if (deaths != self.deaths || self.suspicious) && self.bury(node)? {
            found = true;
        }
        Ok(found)
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
    fn bury(&mut self, node: &Node) -> Result<bool> {
        // Who is found gone now had sent everything before: it is in the inboxes.
        let deaths = node.header().deaths.load(Ordering::Acquire);
        self.suspicious = false;
        let mut gone = Vec::new();
        for (id, site) in &mut self.world.sites {
            let me = site.team.rank();
            for rank in site.team.ranks().filter(|rank| *rank != me) {
                let distrust = &self.world.distrust;
                let is_dead = site
                    .team
                    .slot_of(rank)
                    .is_ok_and(|slot| node.is_dead(slot) || distrust.has(slot));
                if site.buried.contains(&rank.0) || !(is_dead || site.block.has_gone(rank.0)) {
                    continue;
                }
                // One that lives may have done its part, while what the others still wait for is
                // on its way from somebody else.
                let limit = || Deadline::after(PATIENCE);
                if is_dead || site.dropped.entry(rank.0).or_insert_with(limit).passed() {
                    gone.push((*id, rank.0));
                }
            }
        }
        if !gone.is_empty() && !self.drain(node)? {
            self.suspicious = true;
            return Ok(false);
        }
        self.deaths = deaths;
        for &(id, rank) in &gone {
            let Some(site) = self.world.sites.get_mut(&id) else { continue };
            site.buried.insert(rank);
            let foreign = site.foreign.clone();
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

#[allow(dead_code)] // Read by what the room above will attach.
/// What [`Foreign::pump`] sends through.
struct Out<'a> {
    engine: &'a mut Engine,
    around: Around<'a>,
    window: WindowId,
    /// Something found no room.
    blocked: bool,
    /// Something found room.
    sent: bool,
}

impl Outgoing for Out<'_> {
    fn operate(&mut self, target: Rank, body: &[u8]) -> Poll<Result<()>> {
        let given = self.engine.operate(&mut self.around, self.window, target.0, body, None);
        match given {
            Poll::Pending => self.blocked = true,
            Poll::Ready(_) => self.sent = true,
        }
        let (node, world) = (self.around.node, &*self.around.world);
        given.map_err(|trouble| match world.sites.get(&self.window) {
            Some(site) => {
                let (block, distrust) = (&site.block, &world.distrust);
                fault::trouble_of(node, block, distrust, "an active message", trouble)
            }
            None => fault::gone("an active message", target),
        })
    }

    fn push(&mut self, target: Rank) {
        self.engine.push(&mut self.around, self.window, target.0);
    }

    fn note(&mut self, to: Rank, body: &[u8]) -> Sent {
        let sent = self.engine.note(&mut self.around, self.window, to.0, body);
        match sent {
            Sent::Full => self.blocked = true,
            Sent::Yes | Sent::Gone => self.sent = true,
        }
        sent
    }

    fn wake(&mut self, waker: Waker) {
        self.around.world.wake.push(waker);
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
    let Some(site) = around.world.sites.get(&packet.window) else {
        return Ok(refuse(around, from, &packet));
    };
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
    match engine.handle(&mut around, packet.window, rank.0, &packet.message) {
        Handled::Nonsense => {
            Err(Nonsense::Packet("it is of a barrier or reduction that is not due".into()))
        }
        handled => Ok(handled),
    }
}

/// Sender's rank in answers of a process that does not have the window.
const NOBODY: u32 = u32::MAX;

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
        Message::Lock { .. } => Message::Granted { recovered: None },
        // Late, and of no use to anybody.
        _ => return Handled::Done,
    };
    let answer = Packet { window: packet.window, from: NOBODY, message };
    match around.world.put(around.node, from, answer) {
        Sent::Full => Handled::Busy,
        Sent::Yes | Sent::Gone => Handled::Done,
    }
}
