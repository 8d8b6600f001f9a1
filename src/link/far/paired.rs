//! One flow to one peer that has, gets or gives up a queue pair of its own.
//!
//! ```text
//!   datagrams ---- asked for by traffic, by a hint, or by the peer ----> queue pair
//!      ^  ^                   (net::switch; nobody waits)                   |  |
//!      |  '------------- little used, another one needs its place ---------'  |
//!      '---- it failed: what the peer may not have goes by datagrams again ----'
//! ```
//! The queue pair has a class, which says how large messages may be that go by it; one of a larger
//! class takes its place in the same way (paper 000 §4.2).
//!
//! A queue pair carries as many sends with messages as its receiver has promised room for ([`room`]);
//! each message back, or one of its own, tells of more. Small messages share them (`together`). One
//! that fails ends a *life*: both sides begin anew with datagrams, and packets of earlier lives are
//! nobody's. Messages are numbered (`order`), so that what is sent again in vain does no harm.

mod together;

use super::Flow;
use super::batch::{Batch, Entries};
use super::head::{Head, Kind};
use super::order::AHEAD;
use super::pairs::{Pairs, Posted};
use super::places::Spot;
use super::stock::{self, USUAL, room};
use super::transfer::{Copying, Copyings};
use crate::base::Rank;
use crate::base::adapt::Class;
use crate::net::provider::{Address, RcQueuePair};
use crate::net::switch::{Action, Switch, Way};
use crate::net::wire::Control;
use std::collections::VecDeque;
use std::sync::Arc;

/// Failures one after the other after which a peer gets no queue pair any more: something is in their
/// way.
const FAILURES: u32 = 3;

/// Messages after which a queue pair has served well, though it failed.
const SERVED: u32 = 10_000;

/// Bytes of a packet before its own: the life that it is of.
const LIFE: usize = 4;

/// Whose it is, and where queue pairs come from.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
    pub pairs: &'a Pairs,
    pub rank: Rank,
    pub flow: Flow,
    /// What the policy calls this flow to this peer.
    pub key: u32,
    pub now: u64,
}

struct Pair {
    connection: u32,
    class: Class,
    queue: Arc<dyn RcQueuePair>,
    /// Sends with messages by it, and how many there may have been.
    sent: u32,
    may: u32,
    /// Those that came by it, those whose messages were all taken, and how many of these the peer
    /// knows of.
    come: u32,
    taken: u32,
    told: u32,
}

impl Pair {
    /// What a message by it is to say.
    fn room(&self) -> u32 {
        self.taken.wrapping_add(room(self.class))
    }

    /// Whether the peer has room for another one.
    fn may_send(&self) -> bool {
        (self.sent.wrapping_sub(self.may) as i32) < 0
    }

    /// One is under way.
    fn has_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.has_told();
    }

    /// One that says so is under way.
    fn has_told(&mut self) {
        self.told = self.taken;
    }

    fn must_tell(&self) -> bool {
        self.taken.wrapping_sub(self.told) >= room(self.class) / 2
    }
}

/// What a queue pair has under way.
struct Flying {
    pair: u32,
    place: Spot,
    load: Load,
}

/// What that is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// A message of the flow, with so many bytes behind its head.
    Message(usize),
    /// Several messages, with so many bytes behind their head.
    Several(usize),
    /// Something about the queue pair itself.
    Own,
    /// A part of a transfer: which one's.
    Part(u64),
}

impl Load {
    fn has_messages(self) -> bool {
        matches!(self, Load::Message(_) | Load::Several(_))
    }
}

/// Sends bytes by datagrams, as the message with this number and label or as a packet; says whether
/// there was room.
pub(super) type Datagram<'f> = dyn FnMut(Option<(u64, u64)>, &[u8]) -> bool + 'f;

/// See the [module](self).
pub(super) struct Paired {
    switch: Switch,
    first: bool,
    life: u32,
    failures: u32,
    pairs: Vec<Pair>,
    flying: VecDeque<Flying>,
    /// Small messages that wait for company.
    batch: Batch,
    copyings: Copyings,
    /// Packets to be sent, oldest first.
    packets: VecDeque<(Way, Vec<u8>)>,
    /// Messages that go by datagrams again: number, label, bytes.
    again: VecDeque<(u64, u64, Vec<u8>)>,
    /// Sent by datagrams while queue pairs have some under way.
    ahead: u32,
    /// A queue pair failed, and that was not seen to yet.
    broken: bool,
    /// Something waits until what was sent has completed.
    starved: bool,
}

impl Paired {
    /// Datagrams, as between all. Of the two sides exactly one is `first`.
    pub fn new(first: bool) -> Paired {
        Paired {
            switch: Switch::new(first),
            first,
            life: 0,
            failures: 0,
            pairs: Vec::new(),
            flying: VecDeque::new(),
            batch: Batch::default(),
            copyings: Copyings::default(),
            packets: VecDeque::new(),
            again: VecDeque::new(),
            ahead: 0,
            broken: false,
            starved: false,
        }
    }

    /// Asks for a queue pair of a class, or for datagrams.
    pub fn want(&mut self, class: Option<Class>, host: Host<'_>) {
        let mut actions = Vec::new();
        let asked = self.switch.want(class, host.now, &mut actions);
        self.carry_out(actions, host);
        // Where a change is under way its end says what has come of it.
        if !asked && self.switch.is_free() {
            self.settle_policy(host);
        } else if self.switch.is_refused() && !self.sends_by_pair() {
            host.pairs.policy().refused(host.key);
        }
    }

    /// Asks for a queue pair of a class that is larger than what there is, unless a change is under way
    /// already.
    pub fn widen(&mut self, class: Class, host: Host<'_>) {
        let class = class.clamp(stock::SMALLEST, stock::LARGEST);
        if self.switch.is_free() && self.switch.class() < Some(class) {
            self.want(Some(class), host);
        }
    }

    /// Bytes of a message that goes at once.
    pub fn eager(&self) -> usize {
        stock::longest(self.switch.class())
    }

    /// Whether messages go by a queue pair now.
    pub fn sends_by_pair(&self) -> bool {
        self.switch.sends_by() != Way::Datagrams
    }

    /// Whether a message may go by datagrams now.
    pub fn may_send_datagrams(&mut self) -> bool {
        self.part_company();
        if !self.again.is_empty() {
            return false;
        }
        if !self.flying.iter().any(|flying| flying.load.has_messages()) {
            self.ahead = 0;
            return true;
        }
        self.starved |= self.ahead >= AHEAD;
        self.ahead < AHEAD
    }

    /// One has gone by datagrams.
    pub fn sent_datagrams(&mut self) {
        self.ahead += 1;
    }

    /// Sends a message by the queue pair. Nothing if it has failed: see [`Paired::mend`].
    pub fn send(
        &mut self,
        host: Host<'_>,
        number: u64,
        label: u64,
        bytes: [&[u8]; 2],
    ) -> Option<bool> {
        if let Some(joined) = self.join(host, number, label, bytes) {
            return joined;
        }
        let load = Load::Message(bytes[0].len() + bytes[1].len());
        self.post(host, (number, label), load, 1, bytes)
    }

    /// Whether something has begun to wait for completions of what was sent, since it was last asked.
    pub fn take_starved(&mut self) -> bool {
        std::mem::take(&mut self.starved)
    }

    /// All messages of a send that came by a queue pair were taken (or had come before).
    pub fn taken(&mut self, queue: u32, host: Host<'_>) {
        let pair = self.pairs.iter_mut().find(|pair| pair.queue.number() == queue);
        let Some(pair) = pair else { return };
        pair.taken = pair.taken.wrapping_add(1);
        if pair.must_tell() {
            self.tell_room(host);
        }
    }

    /// Whether the peer can send nothing more by a queue pair until something that came by it was taken.
    pub fn is_exhausted(&self) -> bool {
        self.pairs.iter().any(|pair| pair.come.wrapping_sub(pair.told) >= room(pair.class))
    }

    /// Tells the peer of room that it may not know of.
    fn tell_room(&mut self, host: Host<'_>) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.must_tell()) {
            let head = Head { number: 0, label: 0, room: pair.room(), kind: Kind::Room };
            let queue = pair.queue.number();
            match host.pairs.post(&*pair.queue, pair.class, &head, [&[], &[]]) {
                Posted::Sent(place) => {
                    pair.has_told();
                    self.flying.push_back(Flying { pair: queue, place, load: Load::Own });
                    self.switch.sent(Way::Pair(pair.connection));
                }
                Posted::Full => {}
                Posted::Failed => self.broken = true,
            }
        }
    }

    /// Something has come by a queue pair. A packet of a life that the peer has begun leaves what is
    /// to be done to [`Paired::mend`].
    pub fn came(&mut self, queue: u32, head: &Head, rest: &[u8], host: Host<'_>) {
        let pair = self.pairs.iter_mut().find(|pair| pair.queue.number() == queue);
        let Some(pair) = pair else { return };
        if pair.may.wrapping_sub(head.room) as i32 <= 0 {
            pair.may = head.room;
        }
        let by = Way::Pair(pair.connection);
        if matches!(head.kind, Kind::Message | Kind::Several) {
            pair.come = pair.come.wrapping_add(1);
            // Whoever sends more than it has room for is not believed.
            self.broken |= pair.come.wrapping_sub(pair.taken) > room(pair.class);
        }
        if head.kind == Kind::Control {
            self.packet(rest, by, host);
        }
    }

    /// A packet has come.
    pub fn packet(&mut self, bytes: &[u8], by: Way, host: Host<'_>) {
        let Some((life, packet)) = bytes.split_first_chunk::<LIFE>() else { return };
        let life = u32::from_le_bytes(*life);
        let news = life.wrapping_sub(self.life) as i32;
        if news > 0 {
            // The peer has begun anew. Nothing of it: it only says so.
            self.begin_anew(life, host);
        }
        if news < 0 || packet.is_empty() {
            return;
        }
        let Ok(control) = Control::decode(packet) else {
            self.broken = true;
            return;
        };
        let mut actions = Vec::new();
        let (key, now, failures) = (host.key, host.now, self.failures);
        let by_pair = self.sends_by_pair();
        let may = |class| {
            failures < FAILURES
                && host.pairs.can_join(host.flow, class)
                && (by_pair || host.pairs.policy().asked(key, now))
        };
        let received = self.switch.receive(&control, by, None, may, &mut actions);
        self.carry_out(actions, host);
        if received.is_err() {
            self.broken = true;
        }
        if self.switch.is_free() {
            self.settle_policy(host);
        }
    }

    fn settle_policy(&self, host: Host<'_>) {
        let mut policy = host.pairs.policy();
        if self.sends_by_pair() { policy.made(host.key) } else { policy.gone(host.key) }
    }

    /// The first of what a queue pair has under way is with the peer.
    pub fn completed(&mut self, queue: u32, host: Host<'_>) {
        let Some(at) = self.flying.iter().position(|flying| flying.pair == queue) else { return };
        if let Some(Flying { load: Load::Part(copying), .. }) = self.flying.remove(at) {
            self.copyings.completed(copying);
        }
        let pair = self.pairs.iter().find(|pair| pair.queue.number() == queue);
        if let Some(connection) = pair.map(|pair| pair.connection) {
            let mut actions = Vec::new();
            self.switch.completed(Way::Pair(connection), &mut actions);
            self.carry_out(actions, host);
        }
    }

    /// Begins a transfer; [`Paired::go_on`] goes on.
    pub fn copy(&mut self, copying: Copying) {
        self.copyings.add(copying);
    }

    /// Posts parts of transfers, as many as may be under way.
    fn copy_on(&mut self, host: Host<'_>) {
        let Way::Pair(connection) = self.switch.sends_by() else { return self.copyings.stop() };
        let pair = self.pairs.iter().find(|pair| pair.connection == connection);
        let Some(pair) = pair.map(|pair| pair.queue.clone()) else { return self.copyings.stop() };
        while let Some(part) = self.copyings.next(host.pairs.longest()) {
            match host.pairs.post_part(&*pair, &part) {
                Posted::Sent(place) => {
                    self.copyings.posted(part.copying, part.here.length);
                    host.pairs.counts.parts.add(1);
                    let (pair, load) = (pair.number(), Load::Part(part.copying));
                    self.flying.push_back(Flying { pair, place, load });
                    self.switch.sent(Way::Pair(connection));
                }
                Posted::Full => return,
                Posted::Failed => {
                    self.broken = true;
                    return;
                }
            }
        }
    }

    /// Has the queue pairs fail, if there are any.
    pub fn break_off(&mut self) {
        self.broken |= !self.pairs.is_empty();
    }

    /// A queue pair has failed; whether because the peer refuses the first of what is under way by it.
    pub fn failed(&mut self, queue: u32, refused: bool) {
        self.broken |= self.pairs.iter().any(|pair| pair.queue.number() == queue);
        if !refused {
            return;
        }
        let mut flying = self.flying.iter().filter(|flying| flying.pair == queue);
        // A read is refused where it is answered, when later ones may have been carried out already; an
        // update before anything behind it is looked at.
        if let Some(Flying { load: Load::Part(first), .. }) = flying.next()
            && self.copyings.refused(*first)
        {
            for flying in flying {
                if let Load::Part(copying) = flying.load {
                    self.copyings.refused(copying);
                }
            }
        }
    }

    /// After a failure: begins anew, and tells the peer.
    pub fn mend(&mut self, host: Host<'_>) {
        if self.broken {
            self.begin_anew(self.life.wrapping_add(1), host);
            self.packets.push_back((Way::Datagrams, self.life.to_le_bytes().into()));
        }
    }

    /// Back to datagrams, with what the peer may not have.
    fn begin_anew(&mut self, life: u32, host: Host<'_>) {
        self.broken = false;
        self.life = life;
        host.pairs.counts.failures.add(u64::from(!self.pairs.is_empty()));
        let served = self.pairs.iter().any(|pair| pair.sent.max(pair.taken) >= SERVED);
        self.failures = if served { 1 } else { self.failures + 1 };
        self.end(host);
        self.switch = Switch::new(self.first);
        let mut policy = host.pairs.policy();
        if self.failures < FAILURES { policy.gone(host.key) } else { policy.refused(host.key) }
    }

    /// Gives up all queue pairs; what is under way by them is to go again.
    fn end(&mut self, host: Host<'_>) {
        for flying in std::mem::take(&mut self.flying) {
            let (Load::Message(length) | Load::Several(length)) = flying.load else { continue };
            match host.pairs.read_back(flying.place, length) {
                Some((head, bytes)) if head.kind == Kind::Several => {
                    let numbered = (head.number..).zip(Entries::new(&bytes));
                    let each = numbered.map(|(number, (label, one))| (number, label, one.to_vec()));
                    self.again.extend(each);
                }
                Some((head, bytes)) => self.again.push_back((head.number, head.label, bytes)),
                None => {}
            }
        }
        self.part_company();
        // Of two queue pairs that followed each other both may have had some under way.
        self.again.make_contiguous().sort_by_key(|(number, ..)| *number);
        for pair in self.pairs.drain(..) {
            pair.queue.fail();
            host.pairs.retire(pair.queue);
        }
        // Nothing is done to their memory here any more.
        self.copyings.fail();
        self.packets.clear();
        self.ahead = 0;
    }

    /// The peer is gone.
    pub fn abandon(&mut self, host: Host<'_>) {
        self.end(host);
        self.again.clear();
        self.broken = false;
        host.pairs.policy().forget(host.key);
    }

    /// Does what could not be done before.
    pub fn go_on(&mut self, host: Host<'_>, datagram: &mut Datagram<'_>) {
        self.mend(host);
        while let Some((number, label, bytes)) = self.again.front() {
            if !datagram(Some((*number, *label)), bytes) {
                return;
            }
            self.again.pop_front();
        }
        while let Some((way, bytes)) = self.packets.front() {
            let sent = match way {
                Way::Datagrams => datagram(None, bytes),
                Way::Pair(connection) => {
                    let pair = self.pairs.iter_mut().find(|pair| pair.connection == *connection);
                    match pair {
                        None => true,
                        Some(pair) => {
                            let (number, label, kind) = (0, 0, Kind::Control);
                            let head = Head { number, label, room: pair.room(), kind };
                            match host.pairs.post(&*pair.queue, pair.class, &head, [bytes, &[]]) {
                                Posted::Sent(place) => {
                                    pair.has_told();
                                    let pair = pair.queue.number();
                                    self.flying.push_back(Flying { pair, place, load: Load::Own });
                                    self.switch.sent(*way);
                                    true
                                }
                                Posted::Full => false,
                                Posted::Failed => {
                                    self.broken = true;
                                    false
                                }
                            }
                        }
                    }
                }
            };
            if !sent {
                break;
            }
            self.packets.pop_front();
        }
        self.copy_on(host);
        self.tell_room(host);
    }

    /// Whether there is something for [`Paired::go_on`].
    pub fn has_more(&self) -> bool {
        self.broken
            || !self.again.is_empty()
            || !self.packets.is_empty()
            || !self.batch.is_empty()
            || self.copyings.have_more()
            || self.pairs.iter().any(Pair::must_tell)
    }

    /// Whether the peer has all messages.
    pub fn is_drained(&self) -> bool {
        let under_way = self.flying.iter().any(|flying| flying.load.has_messages());
        !under_way && self.batch.is_empty() && self.again.is_empty() && !self.broken
    }

    fn carry_out(&mut self, mut actions: Vec<Action>, host: Host<'_>) {
        // Some bring others.
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Open { number, class } => {
                        let queue = host.pairs.open(host.rank, host.flow, class).ok();
                        let address = queue.as_ref().map(|queue| queue.address());
                        if let Some(queue) = queue {
                            let (sent, come, taken) = (0, 0, 0);
                            let pair = Pair {
                                connection: number,
                                class,
                                queue,
                                sent,
                                may: room(class),
                                come,
                                taken,
                                told: 0,
                            };
                            self.pairs.push(pair);
                        }
                        let end_point = address.as_ref().map(Address::as_bytes);
                        self.switch.opened(end_point, &mut actions);
                    }
                    Action::Connect { number, peer } => {
                        let pair = self.pairs.iter().find(|pair| pair.connection == number);
                        let connected = pair.is_some_and(|pair| {
                            Address::from_bytes(peer.end_point())
                                .and_then(|address| pair.queue.connect(&address))
                                .is_ok()
                        });
                        self.broken |= !connected;
                    }
                    Action::Send { by, control } => {
                        let (bytes, length) = control.encode();
                        let packet = [&self.life.to_le_bytes()[..], &bytes[..length]].concat();
                        self.packets.push_back((by, packet));
                    }
                    Action::Use { by, class } => {
                        let counts = &host.pairs.counts;
                        match by {
                            Way::Pair(_) if self.pairs.len() > 1 => counts.thresholds.add(1),
                            Way::Pair(_) => counts.promotions.add(1),
                            Way::Datagrams => counts.returns.add(1),
                        }
                        let large = class.filter(|class| *class > USUAL);
                        counts.eager_threshold.raise(large.map_or(0, Class::threshold));
                        self.settle_policy(host);
                    }
                    Action::Close { number, .. } => {
                        if let Some(at) = self.pairs.iter().position(|p| p.connection == number) {
                            host.pairs.retire(self.pairs.remove(at).queue);
                        }
                    }
                    Action::Refused => {
                        host.pairs.counts.refusals.add(1);
                        if !self.sends_by_pair() {
                            host.pairs.policy().refused(host.key);
                        }
                    }
                    Action::Switched { since } => {
                        let counts = &host.pairs.counts;
                        counts.switches.add(1);
                        counts.switch_nanoseconds.add(host.now.saturating_sub(since));
                    }
                    // Messages are numbered.
                    Action::Release => {}
                }
            }
        }
    }
}
