//! Connections to processes of other nodes, over a network device.
//!
//! ```text
//!  try_send --> reliable delivery (net::ud, one for each flow and peer) --> datagrams --> device
//!  poll     <-- inbox of the flow <-- reliable delivery <-- datagrams <-- device
//!                                          ^
//!          a thread that sleeps in the device, or whoever polls (`shift`)
//! ```
//! Flows do not wait for each other: each has sequence numbers, credits and an inbox of its own. In
//! datagrams a process on a flow has the number `rank * 4 + flow`. Endpoints have the flow of messages
//! in common: threads that send by different ones to other nodes, or look at the device, take turns at
//! its lock. Each has an inbox and a bell of its own ([`inboxes`](super::inboxes)).
//!
//! A peer is met when the first message goes to it or comes from it: its address is asked for in the
//! job's directory once, or is where its datagram came from. One that does not answer counts as dead
//! after a time (`HITHER_NET_TIMEOUT`); who is waited for without anything under way is asked now and
//! then whether it lives.

mod beyond;

use super::alarm::Alarm;
use super::deliver::{End, FlowState};
use super::inboxes::bit;
use super::kept::Registered;
use super::outlet::{News, Outlet, PairSettings};
use super::seats::Seats;
use super::shift::Shift;
use super::transfer::{Copying, Direction, Transfer, Update};
use super::{Each, Far, Flow, Line, NetworkCounters};
use crate::base::adapt::Class;
use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Rank, Result, Slot};
use crate::link::{MAX_MESSAGE, Push};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Address, Capabilities, Device, Remote};
use crate::shm::beyond::Standing;
use crate::shm::node::Node;
use crate::shm::region::SharedRef;
use crate::shm::ring::Label;
use crate::shm::segment::{Port, RankSlot};
use crate::topo::Placement;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Calls that look for requests and replies in vain between two looks at the device.
const LOOK_EVERY: u32 = 16;

/// All endpoints.
const ALL: u64 = u64::MAX;

/// Where processes are reached.
pub(crate) trait Directory: Send + Sync {
    /// The address that `rank` has published.
    ///
    /// # Errors
    /// Nobody knows it.
    fn address(&self, rank: Rank) -> Result<Address>;
}

/// What all connections of a process share.
pub(super) struct Inner {
    /// Of the threads of calls, which keep it. The network's own thread must not: the process
    /// leaves when the last who keeps it lets it go, and nobody waits for that thread.
    node: Weak<Node>,
    /// Where it tells who waits.
    bells: SharedRef<RankSlot>,
    placement: Placement,
    me: Rank,
    directory: Box<dyn Directory>,
    outlet: Outlet,
    flows: [Mutex<FlowState>; 3],
    /// Endpoints: how many messages there are for each, and its bell.
    seats: Seats,
    /// Those of which others are to take what waits.
    overdue: AtomicU64,
    /// Messages in the inboxes of the other flows, as of the last change.
    come: [AtomicU32; 3],
    looks: AtomicU32,
    shift: Shift,
    alarm: Alarm,
    ended: RwLock<HashMap<Rank, (Standing, String)>>,
    any_ended: AtomicBool,
    deaths: AtomicU32,
    leaving: AtomicBool,
    stopping: AtomicBool,
}

/// See the [module](self).
pub(crate) struct Edge {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Descriptors and threads are the process's that made them.
    process: u32,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Edge({} over {})", self.inner.me, self.inner.outlet.name())
    }
}

impl Edge {
    /// Opens a process's end on a device.
    pub fn open(
        node: &Arc<Node>,
        device: Arc<dyn Device>,
        cookie: u64,
        silence: Duration,
        pairs: PairSettings,
        directory: impl FnOnce(&Address) -> Result<Box<dyn Directory>>,
    ) -> Result<Arc<Edge>> {
        let (placement, me) = (node.placement().clone(), node.rank_of(node.slot()));
        let outlet = Outlet::open(device, cookie, pairs)?;
        let directory = directory(&outlet.address())?;
        let flow = |flow| FlowState::new(flow, me, placement.ranks(), cookie, silence, &outlet);
        let [a, b, c] = [flow(Flow::Messages)?, flow(Flow::Requests)?, flow(Flow::Replies)?];
        let seats = Seats::new();
        let own = node.areas().ports(0).map(|ports| ports.control(node.slot()));
        let own =
            own.ok_or_else(|| Error::invalid("endpoints", "a process has none of its own"))?;
        seats.open(0, SharedRef::new(node.mapping(), own)?, true)?;
        let inner = Arc::new(Inner {
            node: Arc::downgrade(node),
            bells: SharedRef::new(node.mapping(), node.areas().slot(node.slot()))?,
            placement,
            me,
            directory,
            outlet,
            flows: [Mutex::new(a), Mutex::new(b), Mutex::new(c)],
            seats,
            overdue: AtomicU64::new(0),
            come: Default::default(),
            looks: AtomicU32::new(0),
            shift: Shift::default(),
            alarm: Alarm::new(),
            ended: RwLock::default(),
            any_ended: AtomicBool::new(false),
            deaths: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let for_thread = inner.clone();
        let thread = std::thread::Builder::new()
            .name("hither-net".into())
            .spawn(move || for_thread.run())
            .map_err(|e| Error::os("starting the network's thread", e))?;
        let (thread, process) = (Mutex::new(Some(thread)), std::process::id());
        Ok(Arc::new(Edge { inner, thread, process }))
    }
}

impl Inner {
    fn flow(&self, flow: Flow) -> MutexGuard<'_, FlowState> {
        self.flows[flow as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transfer whose end rings where who asked for it waits.
    fn transfer(self: &Arc<Inner>, by: Line) -> Arc<Transfer> {
        let for_end = Arc::downgrade(self);
        Arc::new(Transfer::new(move || {
            for_end.upgrade().into_iter().for_each(|inner| inner.ring(by.flow, bit(by.endpoint)));
        }))
    }

    /// Begins a transfer; false, and nothing comes of it, if no queue pair leads there now.
    fn begin(&self, rank: Rank, flow: Flow, copying: Copying) -> bool {
        let mut state = self.flow(flow);
        let refused = state.copy(&self.outlet, rank, copying);
        let next = state.next();
        drop(state);
        self.due(next);
        refused.is_none()
    }

    /// A flow on which a peer has been met.
    fn met(&self, flow: Flow, rank: Rank) -> Result<MutexGuard<'_, FlowState>> {
        let mut state = self.flow(flow);
        if !state.knows(rank) {
            drop(state);
            // Asked without the lock: it may take a round trip to whoever keeps the directory.
            let address = self.directory.address(rank)?;
            state = self.flow(flow);
            state.meet(&self.outlet, rank, &address)?;
        }
        Ok(state)
    }

    /// Sleeps in the device, and does what comes, until the end; sleeps elsewhere while calls do it.
    fn run(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.alarm.off();
            self.shift.leave_to_calls(self.outlet.now());
            self.alarm.begin();
            self.outlet.arm();
            let next = self.look(true);
            self.alarm.sleeps_until(next);
            self.outlet.sleep(next);
        }
    }

    /// Does what there is to do, for a call. `thorough`: also waits for another thread that takes
    /// datagrams. When something is due next; the network's thread knows.
    fn progress(&self, thorough: bool) -> u64 {
        let next = self.look(thorough);
        self.due(next);
        next
    }

    /// Something is due then: the network's thread is to look, whether there are calls or not. A load,
    /// mostly; a system call if it would sleep longer.
    #[inline]
    fn due(&self, next: u64) {
        if self.alarm.is_sooner(next) {
            self.outlet.wake();
        }
    }

    /// Takes datagrams that have come, does what is due, sends what can be sent. When something is
    /// due next.
    fn look(&self, thorough: bool) -> u64 {
        self.take(thorough);
        let now = self.outlet.now();
        let mut next = u64::MAX;
        for flow in Flow::ALL {
            let mut state = self.flow(flow);
            next = next.min(state.tick(&self.outlet, now));
            self.settle(flow, state);
        }
        next
    }

    /// Takes what has come, and sends nothing that waits for company unless fewer sends are under way
    /// than seemed to be.
    fn glance(&self) {
        self.take(false);
        for flow in Flow::ALL {
            let state = self.flow(flow);
            let next = state.overdue_at();
            self.settle(flow, state);
            self.due(next);
        }
    }

    /// Takes what has come. Then nothing more comes of those whose end was known before, and it can
    /// be told.
    fn take(&self, thorough: bool) {
        let Some(mut taking) = self.outlet.begin(thorough) else { return };
        Flow::ALL.into_iter().for_each(|flow| self.flow(flow).mark_ends());
        taking.take(&mut |news| match news {
            News::Datagram(flow, header, body, source) => {
                self.flow(flow).receive(&self.outlet, &header, body, &source);
            }
            News::Pair(rank, flow, pair, came) => {
                self.flow(flow).pair_came(&self.outlet, rank, pair, came);
            }
        });
        Flow::ALL.into_iter().for_each(|flow| self.flow(flow).tell_ends(&self.outlet));
    }

    /// After something was done on a flow: tells who waits.
    fn settle(&self, flow: Flow, mut state: MutexGuard<'_, FlowState>) {
        let ring = self.publish(flow, &mut state);
        let (events, room): (Vec<End>, u64) = state.take_news();
        drop(state);
        let some = !events.is_empty();
        for (rank, standing, why) in events {
            // Before anybody learns of it: what a peer was writing into memory of this process's comes
            // no more.
            self.flow(Flow::Requests).cut(&self.outlet, rank);
            self.note_end(rank, standing, why);
        }
        self.ring(flow, if some { ALL } else { ring | room });
    }

    /// Has those who look see what there is on a flow; which endpoints are to be woken, a bit each.
    fn publish(&self, flow: Flow, state: &mut FlowState) -> u64 {
        let (changed, overdue, alarm) = state.take_changes();
        if flow != Flow::Messages {
            let count = state.waiting(0) as u32;
            let before = self.come[flow as usize].swap(count, Ordering::AcqRel);
            return u64::from(count > before);
        }
        let mut ring = if alarm { ALL } else { 0 };
        for (endpoint, seat) in self.seats.of(changed) {
            if seat.set(state.waiting(endpoint)) {
                ring |= bit(endpoint);
            }
        }
        if self.overdue.load(Ordering::Relaxed) != overdue {
            self.overdue.store(overdue, Ordering::Release);
        }
        ring
    }

    /// Wakes who waits on a flow: of the link's own messages, at endpoints, a bit each.
    fn ring(&self, flow: Flow, endpoints: u64) {
        match flow {
            Flow::Messages => self.seats.ring(endpoints),
            Flow::Requests | Flow::Replies if endpoints != 0 => {
                self.bells.service.notify();
            }
            Flow::Requests | Flow::Replies => {}
        }
    }

    fn note_end(&self, rank: Rank, standing: Standing, why: String) {
        let mut ended = self.ended.write().unwrap_or_else(PoisonError::into_inner);
        let first = !ended.contains_key(&rank);
        if first && standing == Standing::Dead {
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
        ended.entry(rank).or_insert((standing, why));
        drop(ended);
        self.any_ended.store(true, Ordering::Release);
        if first {
            Flow::ALL.into_iter().for_each(|flow| self.ring(flow, ALL));
        }
    }

    fn rank_of(&self, slot: Slot) -> Option<Rank> {
        self.placement.rank_of(slot)
    }

    fn end_of(&self, rank: Rank) -> Option<(Standing, String)> {
        if !self.any_ended.load(Ordering::Acquire) {
            return None;
        }
        self.ended.read().unwrap_or_else(PoisonError::into_inner).get(&rank).cloned()
    }

    /// The error that a peer is gone.
    fn gone(&self, slot: Slot) -> Error {
        match self.node.upgrade() {
            Some(node) => node.died(slot, "a message to another node"),
            None => Error::boot("this process has left the job"),
        }
    }

    /// Waits until peers have what was sent to them, and takes leave of them. Of none on one flow
    /// before they have what went on the others: who is told by one that this process has left
    /// expects nothing more of it on any. Of those that do not answer one waits as long as for others
    /// that count as dead: a peer that is busy, or a network that loses much, needs its time, and
    /// whoever misses the last message would take this process for dead.
    fn part(&self) {
        let each = self.flow(Flow::Messages).silence();
        self.await_peers(each, |flow| flow.is_drained());
        for flow in Flow::ALL {
            self.flow(flow).leave(&self.outlet);
        }
        self.await_peers(each, |flow| flow.has_parted());
    }

    /// Goes on until all flows are where they are to be, for so many nanoseconds.
    fn await_peers(&self, limit: u64, there: impl Fn(&FlowState) -> bool) {
        let until = self.outlet.now().saturating_add(limit);
        loop {
            self.outlet.pairs().await_sent();
            self.outlet.arm();
            let next = self.progress(true);
            if Flow::ALL.into_iter().all(|flow| there(&self.flow(flow)))
                || self.outlet.now() >= until
            {
                return;
            }
            self.outlet.sleep(next.min(until));
        }
    }
}

impl Far for Edge {
    fn try_send(&self, to: Slot, by: Line, label: Label, bytes: [&[u8]; 2]) -> Result<Push> {
        let (inner, flow) = (&*self.inner, by.flow);
        let Some(rank) = inner.rank_of(to) else { return Err(inner.gone(to)) };
        if inner.end_of(rank).is_some() {
            return Err(inner.gone(to));
        }
        if flow == Flow::Messages {
            inner.seats.get(by.endpoint).into_iter().for_each(|seat| seat.travels());
        }
        let mut state = inner.met(flow, rank)?;
        match state.send(&inner.outlet, (rank, by.endpoint), label, bytes) {
            Some(push) => {
                let (next, opened) = (state.next(), state.take_opened());
                drop(state);
                inner.due(next);
                if opened {
                    inner.glance();
                }
                Ok(push)
            }
            None => {
                drop(state);
                // Of its end this may be the first that is noticed, and others are told of it only
                // once everything that had come has been taken.
                inner.progress(true);
                Err(inner.gone(to))
            }
        }
    }

    fn has_come(&self, by: Line) -> bool {
        let (inner, flow) = (&*self.inner, by.flow);
        if flow == Flow::Messages {
            let Some(seat) = inner.seats.get(by.endpoint) else { return false };
            if !seat.has_come() && seat.is_to_look() {
                inner.progress(false);
                inner.shift.note_look(inner.outlet.now());
            }
            return seat.has_come();
        }
        if inner.come[flow as usize].load(Ordering::Acquire) != 0 {
            return true;
        }
        if inner.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            inner.progress(false);
            inner.shift.note_look(inner.outlet.now());
        }
        inner.come[flow as usize].load(Ordering::Acquire) != 0
    }

    fn poll(&self, by: Line, most: usize, f: &mut Each<'_>) -> usize {
        let (inner, flow) = (&*self.inner, by.flow);
        let mut count = 0;
        while count < most {
            let mut state = inner.flow(flow);
            let next = state.take(&inner.outlet, by.endpoint);
            // What has been offered again may be for others.
            let others = inner.publish(flow, &mut state) & !bit(by.endpoint);
            let due = state.next();
            drop(state);
            inner.ring(flow, others);
            inner.due(due);
            let Some((from, label, bytes)) = next else { break };
            count += 1;
            // Who finds what the network's thread has brought would have brought it.
            inner.shift.note_look(inner.outlet.now());
            let Some(from) = inner.placement.slot_of(from) else { continue };
            let Some(label) = label else { continue };
            if f(from, label, bytes.get()).is_break() {
                break;
            }
        }
        count
    }

    fn promote(&self, to: Slot) -> Result<bool> {
        let Some(rank) = self.inner.rank_of(to) else { return Err(self.inner.gone(to)) };
        let mut state = self.inner.met(Flow::Messages, rank)?;
        let hot = state.promote(&self.inner.outlet, rank);
        let next = state.next();
        drop(state);
        self.inner.due(next);
        Ok(hot)
    }

    fn eager(&self, to: Slot) -> usize {
        let rank = self.inner.rank_of(to);
        rank.map_or(MAX_MESSAGE, |rank| self.inner.flow(Flow::Messages).eager(rank))
    }

    fn widen(&self, to: Slot, class: Class) -> Result<()> {
        let Some(rank) = self.inner.rank_of(to) else { return Err(self.inner.gone(to)) };
        let mut state = self.inner.met(Flow::Messages, rank)?;
        state.widen(&self.inner.outlet, rank, class);
        let next = state.next();
        drop(state);
        self.inner.due(next);
        Ok(())
    }

    fn is_hot(&self, to: Slot, flow: Flow) -> bool {
        let rank = self.inner.rank_of(to);
        rank.is_some_and(|rank| self.inner.flow(flow).is_hot(rank))
    }

    unsafe fn own(&self, first: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { self.inner.outlet.pairs().kept().own(first, bytes) };
    }

    fn disown(&self, first: NonNull<u8>, bytes: usize) -> bool {
        self.inner.outlet.pairs().kept().disown(first, bytes)
    }

    fn expose(&self, memory: &Memory, access: Access) -> Option<Registered> {
        self.inner.outlet.pairs().register(memory, access).ok()
    }

    fn open(&self, endpoint: u8, port: SharedRef<Port>) -> Result<()> {
        let mut state = self.inner.flow(Flow::Messages);
        self.inner.seats.open(endpoint, port, false)?;
        state.open(endpoint);
        Ok(())
    }

    fn overdue(&self) -> u64 {
        self.inner.overdue.load(Ordering::Acquire)
    }

    fn copy(
        &self,
        peer: Slot,
        by: Line,
        direction: Direction,
        there: Remote,
        here: &Memory,
    ) -> Option<Arc<Transfer>> {
        let (inner, rank, flow) = (&self.inner, self.inner.rank_of(peer)?, by.flow);
        if !inner.flow(flow).is_hot(rank) {
            return None;
        }
        let transfer = inner.transfer(by);
        let pairs = inner.outlet.pairs();
        let copying = Copying::begin(pairs, transfer.clone(), direction, here, there)?;
        inner.begin(rank, flow, copying).then_some(transfer)
    }

    fn update(&self, peer: Slot, by: Line, update: Update, there: Remote) -> Option<Arc<Transfer>> {
        let (inner, rank) = (&self.inner, self.inner.rank_of(peer)?);
        let word = inner.outlet.pairs().bounces().word()?;
        let transfer = inner.transfer(by);
        let copying = Copying::update(transfer.clone(), update, word, there);
        inner.begin(rank, by.flow, copying).then_some(transfer)
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.inner.outlet.pairs().capabilities())
    }

    fn break_off(&self, peer: Slot, flow: Flow) {
        if let Some(rank) = self.inner.rank_of(peer) {
            let mut state = self.inner.flow(flow);
            state.break_off(&self.inner.outlet, rank);
            let next = state.next();
            drop(state);
            self.inner.due(next);
        }
    }

    fn counters(&self) -> NetworkCounters {
        let (mut sent, mut resent, mut senseless) = (0, 0, 0);
        for flow in Flow::ALL {
            let state = self.inner.flow(flow);
            let (first, again) = state.datagrams();
            (sent, resent) = (sent + first, resent + again);
            senseless += state.senseless();
        }
        let pairs = self.inner.outlet.pairs();
        let registrations_used_again = pairs.kept().again();
        let counters = pairs.counts.with(sent, resent, pairs.stock_bytes());
        NetworkCounters { senseless, registrations_used_again, ..counters }
    }

    fn has_drained(&self, peer: Slot, endpoint: u8) -> bool {
        let rank = self.inner.rank_of(peer);
        rank.is_none_or(|rank| !self.inner.flow(Flow::Messages).has_from(rank, endpoint))
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.shift.call_back();
        self.inner.outlet.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It ends by itself; that it panicked is a defect that its message has told.
        let _ = thread.map(JoinHandle::join);
        if self.inner.leaving.load(Ordering::Acquire) {
            self.inner.part();
        }
    }
}
