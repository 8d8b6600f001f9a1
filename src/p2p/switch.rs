//! Eager thresholds at work: what [`adapt`](super::adapt) decides is carried out here.
//!
//! ```text
//!  isend, wait:  sizes, times ---> Estimator --- wants ---> Handshake <--- SWITCH ---> the peer's
//!                                                   |           |
//!  sends up to the threshold <--- lease ------------+           +---> Pools: blocks, buffers
//!  POOL, or RTS that says that no buffer was free -------------------> taken, missed
//! ```
//! What is known of a peer is made with the first large message to or from it. Its lock is held for
//! a packet or a note, that of the pools for a count (and while buffers are made). The order is:
//! peer, then pools or messages that wait. Neither is held while data are copied.
//!
//! Between nodes the link agrees on thresholds, with the queue pairs that have them; here it is only
//! decided that a larger one is wanted, and what goes by it.
//!
//! Packets travel behind all messages sent before them. Nothing depends on that here, for a
//! buffer's word says whose it is whatever the packets say; queue pairs will.
//!
//! **Time** is that between posting and the first wait or test, without what the thread spent
//! waiting for other large messages meanwhile: two requests waited for one after the other overlap
//! with nothing.

use super::adapt::Ways;
use super::adapt::{Action, Class, Counters, Estimator, Handshake, Limits, Packet, Pools, Speed};
use super::budget::Budget;
use super::counters::{MessageCounters, count};
use super::messenger::Messenger;
use super::outgoing::Waiting;
use super::pool::PoolBlock;
use super::transfer::Due;
use super::wire::{self, Words};
use crate::base::keys::ByNumber;
use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Result, Slot, settings};
use crate::link::core::Wire;
use crate::shm::heap::Id;
use crate::shm::node::Node;
use crate::shm::ring::Label;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes that a message has beside its data, as thresholds count them.
pub(super) const HEADER: u64 = 64;

/// Polls between two looks at the clock.
const POLLS: u32 = 64;

/// What says how large messages may be whose data travel with them.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Where a message needs both sides' help otherwise, or everywhere.
    Adaptive { everywhere: bool },
    /// Up to so many bytes, by pools of that class; those that this process makes begin with so
    /// many buffers.
    Fixed { most: usize, class: Option<Class>, buffers: u32 },
}

/// See the [module](self).
pub(super) struct Switching {
    rule: Rule,
    limits: Limits,
    began: Instant,
    peers: Mutex<ByNumber<Slot, Arc<Peer>>>,
    pub(super) mine: Mutex<Mine>,
    /// Of what is copied in the node, and of what comes from others.
    speed: Mutex<Speed>,
    far_speed: Mutex<Speed>,
    /// When to look for what is not needed any more; never before there are pools.
    look_at: AtomicU64,
    polls: AtomicU32,
    /// Whether there was a large message to or from somebody whose threshold adapts.
    adapts: AtomicBool,
}

/// Share of that which the pools of an endpoint that is not the process's may have, whose places in
/// the node's memory are as large.
const SHARE: u64 = 8;

/// Pools in which this process receives.
pub(super) struct Mine {
    pub pools: Pools,
    budget: Arc<Budget>,
    blocks: Vec<PoolBlock>,
    counters: Counters,
}

/// What is known of one peer.
pub(super) struct Peer {
    /// Packets that have come, in order.
    packets: Mutex<VecDeque<[u64; 2]>>,
    pub state: Mutex<State>,
}

pub(super) struct State {
    pub estimator: Estimator,
    handshake: Handshake,
    /// The pool that messages to it go into.
    pub lease: Option<Arc<PoolBlock>>,
    /// The one that they are to go into.
    offered: Option<Arc<PoolBlock>>,
    /// Those that they went into before, while some are under way.
    old: Vec<Arc<PoolBlock>>,
    /// The class of the pool that was joined last for its messages.
    joined: Option<Class>,
    gone: bool,
    /// It has sent a packet that made no sense: no more of its are looked at, and no more sent.
    absurd: bool,
}

impl State {
    /// Whether thresholds of this peer may still change.
    fn is_over(&self) -> bool {
        self.gone || self.absurd
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mine {
    pub fn block(&self, class: Class) -> Option<&PoolBlock> {
        self.blocks.iter().find(|block| block.class() == class)
    }

    /// Leaves blocks of pools that are no more.
    fn tidy(&mut self, node: &Node) {
        let pools = &self.pools;
        self.blocks.retain(|block| {
            let stays = pools.get(block.class()).is_some();
            if !stays {
                block.leave(node);
            }
            stays
        });
    }

    /// Makes up to `count` buffers; how many.
    fn make(&mut self, node: &Node, class: Class, count: u32) -> u32 {
        let began = Instant::now();
        let granted = self.budget.take(count, class.threshold());
        let made = self.block(class).map_or(0, |block| block.make(node, granted));
        self.budget.give_back(granted.saturating_sub(made), class.threshold());
        self.pools.made(class, made);
        let took = began.elapsed().as_nanos() as u64;
        self.counters.note_buffers(made, 0, took, &self.pools);
        made
    }
}

impl Switching {
    /// By the settings; of the process's endpoint, or of one that it `shares` its memory with.
    ///
    /// # Errors
    /// Settings that are none.
    pub fn open(eager_limit: usize, budget: Arc<Budget>, shares: bool) -> Result<Switching> {
        let mut limits = Limits::from_settings()?;
        limits.bytes /= if shares { SHARE } else { 1 };
        let large = eager_limit > wire::MOST_EAGER;
        let rule = match settings::EAGER.text().as_str() {
            "adaptive" => Rule::Adaptive { everywhere: false },
            "always" => Rule::Adaptive { everywhere: true },
            "fixed" => Rule::Fixed {
                most: eager_limit,
                class: if large { Class::covering(eager_limit as u64 + HEADER) } else { None },
                buffers: u32::try_from(settings::EAGER_FIXED_BUFFERS.number()?).unwrap_or(u32::MAX),
            },
            other => {
                let why = format!("\"{other}\" is none of adaptive, always and fixed");
                return Err(Error::invalid(settings::EAGER.name, why));
            }
        };
        let mine = Mine {
            pools: Pools::new(limits),
            budget,
            blocks: Vec::new(),
            counters: Counters::default(),
        };
        Ok(Switching {
            rule,
            limits,
            began: Instant::now(),
            peers: Mutex::default(),
            mine: Mutex::new(mine),
            speed: Mutex::default(),
            far_speed: Mutex::new(Speed::between_nodes()),
            look_at: AtomicU64::new(u64::MAX),
            polls: AtomicU32::new(0),
            adapts: AtomicBool::new(false),
        })
    }

    /// Nanoseconds; never 0.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    /// A copy of `len` bytes of a large message took so many nanoseconds.
    pub fn moved(&self, len: usize, took: u64) {
        lock(&self.speed).note(len as u64, took);
    }

    /// Whether there was a large message to or from somebody whose threshold adapts: then times of all count.
    pub fn has_adapted(&self) -> bool {
        self.adapts.load(Ordering::Relaxed)
    }

    /// As [`moved`](Self::moved), from another node.
    pub fn came_far(&self, len: usize, began: u64) {
        lock(&self.far_speed).note(len as u64, self.now().saturating_sub(began));
    }

    pub fn known(&self, slot: Slot) -> Option<Arc<Peer>> {
        lock(&self.peers).get(&slot).cloned()
    }

    fn peer(&self, slot: Slot, me: Slot) -> Arc<Peer> {
        let mut peers = lock(&self.peers);
        let peer = peers.entry(slot).or_insert_with(|| {
            let state = State {
                estimator: Estimator::new(HEADER as u32),
                handshake: Handshake::new(Ways::Each, me < slot),
                lease: None,
                offered: None,
                old: Vec::new(),
                joined: None,
                gone: false,
                absurd: false,
            };
            Arc::new(Peer { packets: Mutex::default(), state: Mutex::new(state) })
        });
        peer.clone()
    }

    /// Whether a message of `len` bytes may go eagerly, as far as this side is concerned.
    pub fn allows(&self, state: &State, len: usize) -> bool {
        match self.rule {
            Rule::Adaptive { .. } => state.estimator.pays(),
            Rule::Fixed { most, .. } => len <= most,
        }
    }

    /// The class that should be asked for, where there is `current`.
    pub fn wish(&self, state: &State, current: Option<Class>) -> Option<Class> {
        match self.rule {
            Rule::Adaptive { .. } => {
                state.estimator.wants(current, Class::within(self.limits.bytes)?)
            }
            Rule::Fixed { class, .. } => class.filter(|class| Some(*class) > current),
        }
    }

    /// Has [`Messenger::look_sometimes`] look from now on. One load if it does.
    #[inline]
    pub(super) fn look_from_now_on(&self) {
        if self.look_at.load(Ordering::Relaxed) == u64::MAX {
            self.look_soon();
        }
    }

    fn look_soon(&self) {
        let next = self.now().saturating_add(self.interval());
        self.look_at.fetch_min(next, Ordering::Relaxed);
    }

    /// Nanoseconds between two looks.
    fn interval(&self) -> u64 {
        (self.limits.age / 8).clamp(100_000, 10_000_000_000)
    }

    /// Adds what was done to counters.
    pub fn fill_in(&self, counters: &mut MessageCounters) {
        let mine = lock(&self.mine);
        let done = &mine.counters;
        counters.switches = done.switches;
        counters.refusals = done.refusals;
        counters.switching_ns = done.switching;
        counters.longest_switch_ns = done.longest;
        counters.eager_threshold = done.largest.map_or(0, Class::threshold);
        counters.pool_buffers_made = done.made;
        counters.pool_buffers_freed = done.freed;
        counters.pool_memory_ns = done.memory_time;
        counters.pool_bytes = done.bytes;
        counters.pool_bytes_peak = done.most_bytes;
    }

    /// A peer is to send into the pool of `class`; whether it is there.
    fn join(&self, node: &Node, class: Class) -> bool {
        let (mut mine, now) = (lock(&self.mine), self.now());
        let Ok(mut more) = mine.pools.join(class, now) else { return false };
        if mine.block(class).is_none() {
            let fit = u32::try_from(self.limits.bytes / class.threshold()).unwrap_or(u32::MAX);
            match PoolBlock::create(node, class, fit.min(self.limits.buffers)) {
                Ok(block) => mine.blocks.push(block),
                Err(_) => {
                    mine.pools.leave(class);
                    return false;
                }
            }
        }
        let have = mine.pools.get(class).map_or(0, |pool| pool.buffers);
        if let Rule::Fixed { buffers, .. } = self.rule {
            let room = self.limits.bytes.saturating_sub(mine.pools.bytes()) / class.threshold();
            let most = buffers.min(self.limits.buffers).saturating_sub(have);
            more = more.max(most.min(u32::try_from(room).unwrap_or(u32::MAX)));
        }
        if mine.make(node, class, more) + have == 0 {
            mine.pools.leave(class);
            mine.tidy(node);
            return false;
        }
        drop(mine);
        self.look_soon();
        true
    }
}

impl State {
    /// Leaves pools that nothing is under way to.
    fn reap(&mut self, node: &Node) {
        self.old.retain(|block| {
            let in_use = Arc::strong_count(block) > 1;
            if !in_use {
                block.leave(node);
            }
            in_use
        });
    }
}

impl Messenger {
    /// Sender: a message too large for short ones goes by rendezvous.
    pub(super) fn note_rendezvous(&self, wire: Wire<'_>, to: Slot, len: usize) {
        self.note(wire, to, |estimator| estimator.note_rendezvous(len as u64));
    }

    /// A large message was sent or received in a call that blocks.
    #[cold]
    pub(super) fn note_blocking(&self, wire: Wire<'_>, peer: Slot) {
        self.note(wire, peer, Estimator::note_blocking);
    }

    /// The program waits for a large message for the first time, at `waited`.
    pub(super) fn note_wait(
        &self,
        wire: Wire<'_>,
        peer: Slot,
        posted: u64,
        waited: u64,
        len: usize,
    ) {
        let switching = &self.switching;
        let near = wire.node.is_local(peer);
        let speed = if near { &switching.speed } else { &switching.far_speed };
        let transfer = lock(speed).estimate(len as u64);
        self.note(wire, peer, |estimator| estimator.note_wait(posted, waited, transfer));
    }

    /// Whether the threshold of messages to `to` may adapt, by what is noted.
    #[inline]
    pub(super) fn adapts_to(&self, wire: Wire<'_>, to: Slot) -> bool {
        // Who can copy alone leaves the other all its time: a copy into a pool could only cost more.
        let helped = wire.node.is_local(to)
            && matches!(self.switching.rule, Rule::Adaptive { everywhere: false })
            && !self.reaches.is_out_of_reach(wire.node, to);
        let adapts = !helped && to != wire.node.slot();
        if adapts && !self.switching.has_adapted() {
            self.switching.adapts.store(true, Ordering::Relaxed);
        }
        adapts
    }

    fn note(&self, wire: Wire<'_>, to: Slot, note: impl FnOnce(&mut Estimator)) {
        if !self.adapts_to(wire, to) {
            return;
        }
        let (switching, me) = (&self.switching, wire.node.slot());
        let local = wire.node.is_local(to);
        let peer = switching.peer(to, me);
        let mut state = lock(&peer.state);
        note(&mut state.estimator);
        if !local {
            return self.widen(wire, to, &mut state);
        }
        if state.is_over() || !state.handshake.is_free() {
            return;
        }
        let Some(class) = switching.wish(&state, state.handshake.sends()) else { return };
        let mut out = Vec::new();
        state.handshake.want(class, switching.now(), &mut out);
        self.carry_out_actions(wire, to, &mut state, out);
        drop(state);
        self.outgoing.flush(self, wire);
    }

    /// Does what a handshake asks for.
    fn carry_out_actions(&self, wire: Wire<'_>, to: Slot, state: &mut State, out: Vec<Action>) {
        let (switching, node) = (&self.switching, wire.node);
        let mut actions = VecDeque::from(out);
        while let Some(action) = actions.pop_front() {
            lock(&switching.mine).counters.note(&action, switching.now());
            match action {
                Action::Send(packet) => {
                    if packet == (Packet::ConnRep { ready: false }) {
                        state.old.extend(state.offered.take());
                        state.reap(node);
                    }
                    let pool = state.joined.filter(|_| names_pool(packet));
                    let mine = lock(&switching.mine);
                    let pool = pool.and_then(|class| mine.block(class)).map(PoolBlock::id);
                    drop(mine);
                    let pool = pool.map_or(0, Id::raw);
                    if let Ok(label) = Label::new(wire::SWITCH, 0) {
                        let words = Words::new([packet.encode().into(), pool]);
                        self.outgoing.queue(to, Waiting::Packet { label, words });
                    }
                }
                Action::JoinPool(class) => {
                    let joined = switching.join(node, class);
                    if joined {
                        state.joined = Some(class);
                    }
                    let mut more = Vec::new();
                    state.handshake.pool(joined, &mut more);
                    actions.extend(more);
                }
                Action::LeavePool(class) => {
                    let mut mine = lock(&switching.mine);
                    mine.pools.leave(class);
                    mine.tidy(node);
                }
                Action::Use(class) => {
                    state.estimator.settle();
                    state.old.extend(state.lease.take());
                    state.lease = state.offered.take();
                    if state.lease.as_ref().is_some_and(|lease| lease.class() != class) {
                        // A pool of another class than was agreed.
                        state.old.extend(state.lease.take());
                        self.distrust(state);
                    }
                    state.reap(node);
                    switching.look_soon();
                }
                Action::Refused => state.estimator.settle(),
                Action::CloseOld | Action::Switched { .. } => {}
            }
        }
    }

    /// A packet has come; it is dealt with by whoever makes progress next.
    pub(super) fn packet_came(&self, wire: Wire<'_>, from: Slot, words: [u64; 2]) {
        let peer = self.switching.peer(from, wire.node.slot());
        lock(&peer.packets).push_back(words);
        self.defer(Due::Packets { from });
    }

    /// Deals with the packets of a peer, in order.
    pub(super) fn take_packets(&self, wire: Wire<'_>, from: Slot) {
        let (switching, node) = (&self.switching, wire.node);
        let peer = switching.peer(from, node.slot());
        let mut state = lock(&peer.state);
        loop {
            let next = lock(&peer.packets).pop_front();
            let Some([word, pool]) = next else { break };
            if state.is_over() {
                continue;
            }
            let Some(packet) = u32::try_from(word).ok().and_then(Packet::decode) else {
                self.distrust(&mut state);
                continue;
            };
            let mut out = Vec::new();
            let wish = switching.wish(&state, state.handshake.sends());
            let can_join = |class| lock(&switching.mine).pools.can_join(class);
            if state.handshake.receive(packet, wish, can_join, &mut out).is_err() {
                self.distrust(&mut state);
                continue;
            }
            if names_pool(packet) {
                let unused = state.offered.take();
                state.old.extend(unused);
                state.reap(node);
                match PoolBlock::join(node, Id::from_raw(pool)) {
                    // Without it messages go by rendezvous as before.
                    Ok(None) | Err(Error::Misuse { .. }) => {}
                    Ok(Some(block)) => state.offered = Some(Arc::new(block)),
                    Err(_) => {
                        self.distrust(&mut state);
                        continue;
                    }
                }
            }
            self.carry_out_actions(wire, from, &mut state, out);
        }
        drop(state);
        self.outgoing.flush(self, wire);
    }

    /// A packet made no sense. Messages do not depend on thresholds: they go on by those that were
    /// agreed on before.
    #[cold]
    fn distrust(&self, state: &mut State) {
        count(&self.counting.senseless);
        state.absurd = true;
    }

    /// Receiver: a sender found no buffer free for a message of `len` bytes.
    pub(super) fn make_more(&self, wire: Wire<'_>, from: Slot, len: u64) {
        let switching = &self.switching;
        let Some(peer) = switching.known(from) else { return };
        let class = lock(&peer.state).handshake.receives();
        let fits = |class: &Class| len.saturating_add(HEADER) <= class.threshold();
        let Some(class) = class.filter(fits) else { return };
        let mut mine = lock(&switching.mine);
        let more = mine.pools.missed(class, switching.now());
        if more > 0 {
            // Each of several that were missed says so: one for each is what is needed.
            mine.make(wire.node, class, 1);
        }
    }

    /// To be called with each poll: now and then looks at what is not needed any more. One load
    /// while there are no pools.
    #[inline]
    pub(super) fn look_sometimes(&self, wire: Wire<'_>) {
        if self.switching.look_at.load(Ordering::Relaxed) != u64::MAX {
            // Not exact where several threads poll, which does not matter.
            let polls = self.switching.polls.load(Ordering::Relaxed).wrapping_add(1);
            self.switching.polls.store(polls, Ordering::Relaxed);
            if polls.is_multiple_of(POLLS) {
                self.look(wire);
            }
        }
    }

    #[cold]
    fn look(&self, wire: Wire<'_>) {
        let (switching, node) = (&self.switching, wire.node);
        let (now, at) = (switching.now(), switching.look_at.load(Ordering::Relaxed));
        let next = now.saturating_add(switching.interval());
        let look_at = &switching.look_at;
        if now < at
            || look_at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let peers: Vec<(Slot, Arc<Peer>)> =
            lock(&switching.peers).iter().map(|(slot, peer)| (*slot, peer.clone())).collect();
        for (slot, peer) in peers {
            let gone = match peer.state.try_lock() {
                Ok(mut state) => {
                    state.reap(node);
                    state.gone
                }
                Err(_) => continue,
            };
            if !gone && node.is_dead(slot) {
                // What it had taken here is nobody's.
                let _ = self.mourn(wire, slot);
            }
        }
        self.lending.look(node);
        if !matches!(switching.rule, Rule::Adaptive { .. }) {
            return;
        }
        let mut mine = lock(&switching.mine);
        while let Some((class, surplus)) = mine.pools.surplus(now) {
            let began = Instant::now();
            let freed = mine.block(class).map_or(0, |block| block.unmake(node, surplus));
            mine.pools.freed(class, freed, now);
            mine.budget.give_back(freed, class.threshold());
            let took = began.elapsed().as_nanos() as u64;
            let Mine { pools, counters, .. } = &mut *mine;
            counters.note_buffers(0, freed, took, pools);
            mine.tidy(node);
        }
    }

    /// A peer is gone, and all that it had sent has come.
    pub(super) fn bury_pools(&self, wire: Wire<'_>, slot: Slot) {
        let (switching, node) = (&self.switching, wire.node);
        let Some(peer) = switching.known(slot) else { return };
        let mut state = lock(&peer.state);
        if !std::mem::replace(&mut state.gone, true) {
            lock(&switching.mine).blocks.iter().for_each(|block| block.free_of(slot));
            let mut out = Vec::new();
            state.handshake.abandon(&mut out);
            self.carry_out_actions(wire, slot, &mut state, out);
        }
        let leases = [state.lease.take(), state.offered.take()];
        state.old.extend(leases.into_iter().flatten());
        state.reap(node);
    }
}

/// Whether a packet comes with the name of a pool.
fn names_pool(packet: Packet) -> bool {
    matches!(packet, Packet::ConnRep { ready: true } | Packet::ConnReq { moves: Some(true) })
}
