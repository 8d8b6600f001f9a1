//! One flow of a process: its peers, what goes to them, and what has come and not been taken.

use super::due::Due;
use super::head::{Head, Kind};
use super::inboxes::{Inboxes, bit};
use super::intake::Intake;
use super::known::{Arrived, Body, Debt, HEAD, Known};
use super::outlet::Outlet;
use super::paired::Host;
use super::pairs::Came;
use super::stock::USUAL;
use super::transfer::Copying;
use super::{Flow, LONGEST};
use crate::base::adapt::Class;
use crate::base::{Error, Rank, Result};
use crate::link::{MAX_MESSAGE, Push};
use crate::net::promotion::Advice;
use crate::net::provider::Address;
use crate::net::switch::Way;
use crate::net::ud::{Config, Peer, Shared};
use crate::net::wire::Header;
use crate::shm::beyond::Standing;
use crate::shm::ring::Label;
use std::collections::HashMap;
use std::time::Duration;

/// Nanoseconds between two looks for queue pairs that nobody uses.
const UNUSED: u64 = 1_000_000_000;

/// The number of a process on a flow.
pub(super) fn number(rank: Rank, flow: Flow) -> u32 {
    rank.0 << 2 | flow as u32
}

/// Whose number on which flow it is.
pub(super) fn from_number(number: u32) -> (Rank, Option<Flow>) {
    let flow = Flow::ALL.into_iter().find(|flow| *flow as u32 == number & 3);
    (Rank(number >> 2), flow)
}

/// What became of a peer, for those who wait.
pub(super) type End = (Rank, Standing, String);

/// See the [module](self).
pub(super) struct FlowState {
    flow: Flow,
    me: Rank,
    ranks: u32,
    shared: Shared,
    peers: HashMap<Rank, Known>,
    due: Due,
    inboxes: Inboxes,
    /// Ends of which not all may know yet: those noticed, those to be told once queue pairs were
    /// looked at, and those that can be.
    ends: Vec<End>,
    ending: Vec<End>,
    ended: Vec<End>,
    /// Packets that have come, for lack of a better place while others are being taken.
    packets: Vec<(Rank, Vec<u8>)>,
    /// When unused queue pairs are looked for next.
    unused: u64,
    /// Endpoints of which a message was refused for lack of room, and that have not been told of any
    /// since.
    refused: u64,
    room: bool,
    /// A message has begun to wait for company.
    opened: bool,
    leaving: bool,
}

impl FlowState {
    /// A flow of the process with rank `me` of `ranks`, in datagrams that the outlet takes.
    pub fn new(
        flow: Flow,
        me: Rank,
        ranks: u32,
        cookie: u64,
        silence: Duration,
        outlet: &Outlet,
    ) -> Result<FlowState> {
        let mut config = Config::new(cookie, number(me, flow), ranks << 2, 1);
        config.datagram = outlet.datagram();
        let longest = if flow == Flow::Messages { LONGEST } else { MAX_MESSAGE };
        config.message = (longest + HEAD) as u32;
        config.buffers = 1024;
        config.silence = silence.as_nanos().min(1 << 58) as u64;
        config.keepalive = config.keepalive.min(config.silence / 4).max(1);
        Ok(FlowState {
            flow,
            me,
            ranks,
            shared: Shared::new(config)?,
            peers: HashMap::new(),
            due: Due::default(),
            inboxes: Inboxes::new(),
            ends: Vec::new(),
            ending: Vec::new(),
            ended: Vec::new(),
            packets: Vec::new(),
            unused: 0,
            refused: 0,
            room: false,
            opened: false,
            leaving: false,
        })
    }

    /// Nanoseconds after which a peer that does not answer counts as dead.
    pub fn silence(&self) -> u64 {
        self.shared.config().silence
    }

    /// Takes messages for an endpoint from now on.
    pub fn open(&mut self, endpoint: u8) {
        self.inboxes.open(endpoint);
    }

    /// Messages that wait for an endpoint's calls.
    pub fn waiting(&self, endpoint: u8) -> usize {
        self.inboxes.len(endpoint)
    }

    /// Endpoints of which something has come or was taken since this was last asked, a bit each; those
    /// of which others are to take what waits; and whether all are to be woken for that.
    pub fn take_changes(&mut self) -> (u64, u64, bool) {
        (self.inboxes.take_changed(), self.inboxes.overdue(), self.inboxes.take_alarm())
    }

    /// Whether a message has begun to wait for company since this was last asked.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// What has become of peers, and for which endpoints there is room again where there was none.
    pub fn take_news(&mut self) -> (Vec<End>, u64) {
        let some = std::mem::take(&mut self.room);
        let room = if some { std::mem::take(&mut self.refused) } else { 0 };
        (std::mem::take(&mut self.ended), room)
    }

    /// What has been noticed of ends until now can be told as soon as queue pairs have been looked
    /// at: who is told that a peer has left expects nothing more of it.
    pub fn mark_ends(&mut self) {
        self.ending.append(&mut self.ends);
    }

    /// Queue pairs have been looked at since.
    pub fn tell_ends(&mut self, outlet: &Outlet) {
        for end in std::mem::take(&mut self.ending) {
            let host = self.host(outlet, end.0, outlet.now());
            if let Some(known) = self.peers.get_mut(&end.0) {
                // What is missing does not come any more.
                known.order.give_up();
                known.paired.iter_mut().for_each(|paired| paired.abandon(host));
                known.paired = None;
            }
            self.note(end.0);
            self.ended.push(end);
        }
    }

    fn host<'a>(&self, outlet: &'a Outlet, rank: Rank, now: u64) -> Host<'a> {
        let (flow, key) = (self.flow, number(rank, self.flow));
        Host { pairs: outlet.pairs(), rank, flow, key, now }
    }

    /// Whether a peer has been met.
    pub fn knows(&self, rank: Rank) -> bool {
        self.peers.contains_key(&rank)
    }

    /// Meets a peer at its address.
    pub fn meet(&mut self, outlet: &Outlet, rank: Rank, address: &Address) -> Result<()> {
        if self.knows(rank) {
            return Ok(());
        }
        if rank.0 >= self.ranks {
            let why = format!("there is no rank {rank} in a job of {}", self.ranks);
            return Err(Error::invalid("a message to another node", why));
        }
        let handle = outlet.open_peer(address)?;
        let peer = Peer::new(number(rank, self.flow), self.shared.config(), outlet.now());
        let known = Known::new(peer, handle);
        self.peers.insert(rank, known);
        self.note(rank);
        Ok(())
    }

    /// Has a peer looked at in time, after something was done with it.
    fn note(&mut self, rank: Rank) {
        if let Some(known) = self.peers.get_mut(&rank) {
            self.due.note(rank, known, self.shared.config());
        }
    }

    /// Asks a peer from now on whether it lives; false if it has not been met.
    pub fn watch(&mut self, rank: Rank) -> bool {
        let known = self.peers.get_mut(&rank).map(|known| known.peer.watch(true)).is_some();
        self.note(rank);
        known
    }

    /// Whether something that came from a peer for an endpoint has not been taken.
    pub fn has_from(&self, rank: Rank, endpoint: u8) -> bool {
        let held = self.peers.get(&rank).is_some_and(|known| known.held);
        held || self.inboxes.has_from(endpoint, rank)
    }

    /// Sends a message to an endpoint of a peer that has been met; nothing if it is gone.
    pub fn send(
        &mut self,
        outlet: &Outlet,
        (rank, endpoint): (Rank, u8),
        label: Label,
        bytes: [&[u8]; 2],
    ) -> Option<Push> {
        let (now, me) = (outlet.now(), self.me);
        let host = self.host(outlet, rank, now);
        let known = self.peers.get_mut(&rank)?;
        let advice = host.pairs.policy().note_send(host.key, host.pairs.in_kernel(), now);
        match advice {
            Some(Advice::Make(_)) => known.paired(me, rank).want(Some(USUAL), host),
            Some(Advice::GiveUp(victim)) => host.pairs.condemn(victim),
            None => {}
        }
        let shared = &mut self.shared;
        let mut sent = known.send(shared, host, (endpoint, label), bytes);
        known.go_on(shared, host);
        if sent == Some(Push::Full) {
            // A queue pair that has failed is mended now.
            sent = known.send(shared, host, (endpoint, label), bytes);
        }
        if sent == Some(Push::Full) {
            self.refused |= bit(endpoint);
            let starved = known.paired.as_mut().is_some_and(|paired| paired.take_starved());
            if starved && host.pairs.await_sent() {
                // The network's thread is to be told of places that are free again.
                outlet.wake();
            }
        }
        known.transmit_most(shared, outlet, now);
        self.opened |= known.await_batch(now);
        self.due.note(rank, known, self.shared.config());
        sent
    }

    /// Asks for a queue pair for a peer that has been met, if it has none; whether it has one.
    pub fn promote(&mut self, outlet: &Outlet, rank: Rank) -> bool {
        let (now, me) = (outlet.now(), self.me);
        let host = self.host(outlet, rank, now);
        let Some(known) = self.peers.get_mut(&rank) else { return false };
        let hot = known.sends_by_pair();
        if !hot && host.pairs.policy().asked(host.key, now) {
            known.paired(me, rank).want(Some(USUAL), host);
            self.go_on(outlet, rank, now);
        }
        hot
    }

    /// Asks for a queue pair with a larger eager threshold for a peer that has been met.
    pub fn widen(&mut self, outlet: &Outlet, rank: Rank, class: Class) {
        let (now, me) = (outlet.now(), self.me);
        let host = self.host(outlet, rank, now);
        let Some(known) = self.peers.get_mut(&rank) else { return };
        if known.sends_by_pair() || host.pairs.policy().asked(host.key, now) {
            known.paired(me, rank).widen(class, host);
            self.go_on(outlet, rank, now);
        }
    }

    /// Bytes of a message that goes to a peer at once.
    pub fn eager(&self, rank: Rank) -> usize {
        let paired = self.peers.get(&rank).and_then(|known| known.paired.as_ref());
        paired.map_or(MAX_MESSAGE, |paired| paired.eager())
    }

    /// Whether messages to a peer go by a queue pair now.
    pub fn is_hot(&self, rank: Rank) -> bool {
        self.peers.get(&rank).is_some_and(Known::sends_by_pair)
    }

    /// Begins a transfer from or to a peer's memory; back it comes if no queue pair leads there now.
    pub fn copy(&mut self, outlet: &Outlet, rank: Rank, copying: Copying) -> Option<Copying> {
        let now = outlet.now();
        let host = self.host(outlet, rank, now);
        let known = self.peers.get_mut(&rank).and_then(|known| known.paired.as_mut());
        let Some(paired) = known.filter(|paired| paired.sends_by_pair()) else {
            return Some(copying);
        };
        // Whoever only copies uses its queue pair, too.
        let advice = host.pairs.policy().note_send(host.key, host.pairs.in_kernel(), now);
        if let Some(Advice::GiveUp(victim)) = advice {
            host.pairs.condemn(victim);
        }
        paired.copy(copying);
        self.go_on(outlet, rank, now);
        None
    }

    /// Has a queue pair to a peer fail, if there is one; nothing is done by this end of it afterwards.
    pub fn break_off(&mut self, outlet: &Outlet, rank: Rank) {
        let known = self.peers.get_mut(&rank).and_then(|known| known.paired.as_mut());
        if let Some(paired) = known {
            paired.break_off();
            self.go_on(outlet, rank, outlet.now());
        }
    }

    /// A peer is gone, as another flow has found: nothing comes by its queue pair any more.
    pub fn cut(&mut self, outlet: &Outlet, rank: Rank) {
        let host = self.host(outlet, rank, outlet.now());
        if let Some(known) = self.peers.get_mut(&rank) {
            known.paired.iter_mut().for_each(|paired| paired.abandon(host));
            known.paired = None;
        }
        self.note(rank);
    }

    /// A datagram of this flow has come, from `source`.
    pub fn receive(&mut self, outlet: &Outlet, header: &Header, body: &[u8], source: &Address) {
        let (rank, flow) = from_number(header.from);
        // One that this process has not met says where it is, with the job's cookie.
        if flow != Some(self.flow) || self.meet(outlet, rank, source).is_err() {
            return;
        }
        let Some(known) = self.peers.get_mut(&rank) else { return };
        let now = outlet.now();
        let before = known.peer.confirmed();
        let mut intake = Intake {
            inboxes: &mut self.inboxes,
            ends: &mut self.ends,
            packets: &mut self.packets,
            order: &mut known.order,
            held: &mut known.held,
            silence: Duration::from_nanos(self.shared.config().silence),
        };
        known.peer.receive(&mut self.shared, header, body, now, &mut intake);
        self.room |= known.peer.confirmed() != before;
        // What came by a queue pair may have waited for this one, in nobody's line.
        let exhausted = known.is_exhausted();
        self.go_on(outlet, rank, now);
        self.press(exhausted, now);
        if !self.packets.is_empty() {
            self.take_packets(outlet, now);
        }
    }

    /// Sees to it that what waits is taken in time, if something else cannot come before: it was left with
    /// its peer, or a peer has `exhausted` what it may send.
    fn press(&mut self, exhausted: bool, now: u64) {
        if exhausted || self.inboxes.holds() {
            self.inboxes.press(now);
        }
    }

    /// Whether a peer can send nothing more by a queue pair until something is taken.
    #[cfg(test)]
    pub fn is_exhausted(&self) -> bool {
        self.peers.values().any(Known::is_exhausted)
    }

    /// Whether all that waits is taken in time, whoever looks.
    #[cfg(test)]
    pub fn sees_to_all(&self) -> bool {
        self.inboxes.presses_all()
    }

    /// Packets about queue pairs that came in datagrams.
    #[cold]
    fn take_packets(&mut self, outlet: &Outlet, now: u64) {
        for (rank, bytes) in std::mem::take(&mut self.packets) {
            let (host, me) = (self.host(outlet, rank, now), self.me);
            if let Some(known) = self.peers.get_mut(&rank) {
                known.paired(me, rank).packet(&bytes, Way::Datagrams, host);
                self.room = true;
                self.go_on(outlet, rank, now);
            }
        }
    }

    /// Something has happened to a queue pair of this flow.
    pub fn pair_came(&mut self, outlet: &Outlet, rank: Rank, pair: u32, came: Came<'_>) {
        let now = outlet.now();
        let host = self.host(outlet, rank, now);
        let Some(known) = self.peers.get_mut(&rank) else { return };
        match came {
            Came::Message(bytes, held) => {
                // What makes no sense is dropped: nobody could do anything with it.
                let Some((head, rest)) = Head::decode(bytes) else { return };
                if let Some(paired) = &mut known.paired {
                    paired.came(pair, &head, rest, host);
                }
                let inboxes = &mut self.inboxes;
                if head.kind == Kind::Message {
                    let (endpoint, label) = inboxes.admit(head.label);
                    let bytes = held.map_or_else(|| Body::Own(rest.into()), Body::Held);
                    let debt = Debt::alone(pair);
                    let message = Arrived { from: rank, label, endpoint, bytes, debt };
                    known.came_by_pair(head.number, message, inboxes, host);
                } else if head.kind == Kind::Several {
                    let rest = held.as_ref().map_or(rest, |held| held.bytes());
                    known.several_came(rank, pair, head.number, rest, inboxes, host);
                }
                if known.is_exhausted() {
                    inboxes.press(now);
                }
                self.room = true;
            }
            Came::Sent => {
                known.paired.iter_mut().for_each(|paired| paired.completed(pair, host));
                self.room = true;
            }
            Came::Failed { refused } => {
                known.paired.iter_mut().for_each(|paired| paired.failed(pair, refused));
                self.room = true;
            }
        }
        self.go_on(outlet, rank, now);
        // What had overtaken it may have waited for it.
        if self.inboxes.holds() && self.inboxes.may_have_room() {
            self.offer_again(outlet);
        }
    }

    /// Does for a peer what could not be done before.
    fn go_on(&mut self, outlet: &Outlet, rank: Rank, now: u64) {
        let host = self.host(outlet, rank, now);
        if let Some(known) = self.peers.get_mut(&rank) {
            known.go_on(&mut self.shared, host);
            known.send_batch(true, host);
            known.transmit(&mut self.shared, outlet, now);
            self.due.note(rank, known, self.shared.config());
        }
    }

    /// The next message for an endpoint; makes room for what was held back.
    pub fn take(&mut self, outlet: &Outlet, endpoint: u8) -> Option<(Rank, Option<Label>, Body)> {
        let next = self.inboxes.take(endpoint);
        let next = next.map(|Arrived { from, label, bytes, debt, .. }| {
            if debt.is_some() {
                let host = self.host(outlet, from, outlet.now());
                if let Some(known) = self.peers.get_mut(&from) {
                    known.taken(debt, host);
                }
                self.note(from);
            }
            (from, label, bytes)
        });
        if self.inboxes.has_room_again(endpoint) {
            self.offer_again(outlet);
        }
        next
    }

    fn offer_again(&mut self, outlet: &Outlet) {
        self.inboxes.offer();
        let (now, mut exhausted) = (outlet.now(), false);
        let silence = Duration::from_nanos(self.shared.config().silence);
        for (&rank, known) in self.peers.iter_mut().filter(|(_, known)| known.held) {
            known.held = false;
            let (inboxes, ends, packets) = (&mut self.inboxes, &mut self.ends, &mut self.packets);
            let (order, held) = (&mut known.order, &mut known.held);
            let mut intake = Intake { inboxes, ends, packets, order, held, silence };
            known.peer.deliver(&mut self.shared, &mut intake);
            known.transmit(&mut self.shared, outlet, now);
            exhausted |= known.is_exhausted();
            self.due.note(rank, known, self.shared.config());
        }
        self.press(exhausted, now);
        if !self.packets.is_empty() {
            self.take_packets(outlet, now);
        }
    }

    /// When messages that others wait for are overdue.
    pub fn overdue_at(&self) -> u64 {
        self.inboxes.next()
    }

    /// When something is due next, as far as time alone makes it so.
    pub fn next(&self) -> u64 {
        self.due.next().min(self.inboxes.next())
    }

    /// Does what is due; when something is next.
    pub fn tick(&mut self, outlet: &Outlet, now: u64) -> u64 {
        let mut next = self.give_pairs_up(outlet, now);
        for rank in self.due.take_busy() {
            self.peers.get_mut(&rank).into_iter().for_each(|known| known.mark.busy_was_taken());
            next = next.min(self.look_after(outlet, rank, now));
        }
        for rank in self.due.take_times(now) {
            self.peers.get_mut(&rank).into_iter().for_each(|known| known.mark.time_was_taken());
            next = next.min(self.look_after(outlet, rank, now));
        }
        if !self.packets.is_empty() {
            self.take_packets(outlet, now);
        }
        self.press(false, now);
        self.inboxes.tick(now);
        next.min(self.next())
    }

    /// Does what is due for a peer; when it is to be looked at again in any case.
    fn look_after(&mut self, outlet: &Outlet, rank: Rank, now: u64) -> u64 {
        let (mut next, host) = (u64::MAX, self.host(outlet, rank, now));
        let silence = Duration::from_nanos(self.shared.config().silence);
        let Some(known) = self.peers.get_mut(&rank) else { return next };
        if known.peer.next(self.shared.config()).is_some_and(|at| at <= now) {
            let (inboxes, ends, packets) = (&mut self.inboxes, &mut self.ends, &mut self.packets);
            let (order, held) = (&mut known.order, &mut known.held);
            let mut intake = Intake { inboxes, ends, packets, order, held, silence };
            known.peer.tick(&mut self.shared, now, &mut intake);
        }
        known.go_on(&mut self.shared, host);
        known.send_batch(false, host);
        known.transmit(&mut self.shared, outlet, now);
        if known.is_exhausted() {
            self.inboxes.press(now);
        }
        if known.paired.as_ref().is_some_and(|paired| paired.has_more()) {
            next = next.min(now + 1_000_000);
        }
        self.due.note(rank, known, self.shared.config());
        next
    }

    /// Has queue pairs go that are not used, or whose places others are to have; when to look again.
    fn give_pairs_up(&mut self, outlet: &Outlet, now: u64) -> u64 {
        if !outlet.pairs().are_there() {
            return u64::MAX;
        }
        let pairs = outlet.pairs();
        if self.flow == Flow::Messages && now >= self.unused {
            self.unused = now.saturating_add(UNUSED);
            if let Some(Advice::GiveUp(victim)) = pairs.policy().unused(now) {
                pairs.condemn(victim);
            }
        }
        for victim in pairs.victims(self.flow) {
            let rank = from_number(victim).0;
            let host = self.host(outlet, rank, now);
            match self.peers.get_mut(&rank).and_then(|known| known.paired.as_mut()) {
                Some(paired) => paired.want(None, host),
                None => pairs.policy().forget(victim),
            }
            self.note(rank);
        }
        if self.flow == Flow::Messages { self.unused } else { u64::MAX }
    }

    /// Takes leave of all peers.
    pub fn leave(&mut self, outlet: &Outlet) {
        let now = outlet.now();
        if !std::mem::replace(&mut self.leaving, true) {
            self.peers.values_mut().for_each(|known| known.peer.leave());
        }
        for (&rank, known) in &mut self.peers {
            known.transmit(&mut self.shared, outlet, now);
            self.due.note(rank, known, self.shared.config());
        }
    }

    /// Whether all peers have what was sent to them, or are gone.
    pub fn is_drained(&self) -> bool {
        let mut all = self.peers.values();
        all.all(|known| {
            let drained = known.paired.as_ref().is_none_or(|paired| paired.is_drained());
            known.rest.is_none() && drained && known.peer.has_everything()
        })
    }

    /// Messages that have come and made no sense.
    pub fn senseless(&self) -> u64 {
        self.inboxes.senseless()
    }

    /// Datagrams with messages that were sent, and those that were sent again.
    pub fn datagrams(&self) -> (u64, u64) {
        let counters = &self.shared.counters;
        (counters.sent, counters.resent + counters.timeouts)
    }

    /// Whether all peers know that this process has left, or are gone.
    pub fn has_parted(&self) -> bool {
        self.peers.values().all(|known| known.peer.has_parted())
    }
}
