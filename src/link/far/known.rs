//! One peer on one flow: what goes to it, by which way, and what has come out of turn.

use super::batch::Entries;
use super::due::Mark;
use super::inboxes::Inboxes;
use super::intake::put;
use super::order::{KEPT_OF_PAIRS, Order, Place};
use super::outlet::Outlet;
use super::paired::{Host, Paired};
use super::stock::Held;
use super::word;
use crate::base::Rank;
use crate::link::{MAX_MESSAGE, Push};
use crate::net::provider::Peer as Handle;
use crate::net::ud::{Peer, Refused, Sent, Shared};
use crate::shm::ring::Label;
use std::sync::Arc;

/// Bytes before a message's own in datagrams: its number and its word.
pub(super) const HEAD: usize = 16;

/// Channels of datagrams: messages, and packets about queue pairs.
pub(super) const MESSAGES: u8 = 0;
pub(super) const PACKETS: u8 = 1;

/// A message that has come.
pub(super) struct Arrived {
    pub from: Rank,
    /// Nothing if the peer made it up.
    pub label: Option<Label>,
    /// The endpoint that it is for.
    pub endpoint: u8,
    pub bytes: Body,
    /// What it came by.
    pub debt: Debt,
}

/// A queue pair is to be told when all messages of a send were taken: each of them owes it something, or
/// the last one does.
pub(super) struct Debt {
    /// The number of the queue pair; or 0.
    pair: u32,
    /// What it owes together with others, which may be taken in any order.
    share: Option<Arc<()>>,
}

impl Debt {
    /// Of a message that came by a datagram, or has others of its send behind it.
    pub const NONE: Debt = Debt { pair: 0, share: None };

    /// Of the only, or last, message of a send by a queue pair.
    pub fn alone(pair: u32) -> Debt {
        Debt { pair, share: None }
    }

    /// Whether something is owed.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.pair != 0
    }

    /// It is paid: the queue pair of which a send is over with that; or 0.
    pub fn pay(self) -> u32 {
        match self.share {
            None => self.pair,
            Some(share) => Arc::into_inner(share).map_or(0, |()| self.pair),
        }
    }
}

/// Its bytes.
pub(super) enum Body {
    Own(Box<[u8]>),
    /// Where they came.
    Held(Held),
}

impl Body {
    pub fn get(&self) -> &[u8] {
        match self {
            Body::Own(bytes) => bytes,
            Body::Held(held) => held.bytes(),
        }
    }
}

/// See the [module](self).
pub(super) struct Known {
    pub peer: Peer,
    pub handle: Handle,
    /// It had something for an inbox that was full.
    pub held: bool,
    /// A message that was taken in part.
    pub rest: Option<Vec<u8>>,
    /// The number of the next message.
    pub next: u64,
    pub order: Order<Arrived>,
    /// If it has, or had, or is asked for a queue pair.
    pub paired: Option<Box<Paired>>,
    /// When to try again what the device had no room for; [`NEVER`] if it had.
    pub again: u64,
    /// When it is looked at.
    pub mark: Mark,
}

/// No time.
const NEVER: u64 = u64::MAX;

/// Nanoseconds after which a device may have room again.
const ROOM: u64 = 100_000;

impl Known {
    /// A peer to which nothing has gone yet.
    pub fn new(peer: Peer, handle: Handle) -> Known {
        let (held, rest, next, again) = (false, None, 0, NEVER);
        let (order, paired, mark) = (Order::new(), None, Mark::NONE);
        Known { peer, handle, held, rest, next, order, paired, again, mark }
    }

    /// What it knows of queue pairs; `me` is this process.
    pub fn paired(&mut self, me: Rank, rank: Rank) -> &mut Paired {
        self.paired.get_or_insert_with(|| Box::new(Paired::new(me < rank)))
    }

    /// Whether something is to be done as soon as it can be: memory or the device had no room.
    pub fn is_busy(&self) -> bool {
        let more = || self.paired.as_ref().is_some_and(|paired| paired.has_more());
        self.rest.is_some() || self.peer.has_output() || more()
    }

    /// Whether messages go by a queue pair now.
    pub fn sends_by_pair(&self) -> bool {
        self.paired.as_ref().is_some_and(|paired| paired.sends_by_pair())
    }

    /// Sends a message; nothing if the peer is gone.
    pub fn send(
        &mut self,
        shared: &mut Shared,
        host: Host<'_>,
        (endpoint, label): (u8, Label),
        bytes: [&[u8]; 2],
    ) -> Option<Push> {
        let word = word::encode(endpoint, label);
        if let Some(paired) = &mut self.paired {
            // One that is too long for it, which it was not when it was decided how it goes, goes by
            // datagrams; its number keeps the order.
            let length = bytes[0].len() + bytes[1].len();
            let fits = length <= MAX_MESSAGE || length <= paired.eager();
            if fits && paired.sends_by_pair() {
                return match paired.send(host, self.next, word, bytes) {
                    Some(true) => {
                        self.next += 1;
                        Some(Push::Sent)
                    }
                    // What has failed is mended before it is tried again.
                    _ => Some(Push::Full),
                };
            }
            if !paired.may_send_datagrams() {
                return Some(Push::Full);
            }
        }
        let sent = self.datagram(shared, MESSAGES, Some((self.next, word)), bytes, host.now)?;
        if sent {
            self.next += 1;
            self.paired.iter_mut().for_each(|paired| paired.sent_datagrams());
        }
        Some(if sent { Push::Sent } else { Push::Full })
    }

    /// Sends a message or a packet by datagrams, or says that there is no room; nothing if the peer is
    /// gone.
    fn datagram(
        &mut self,
        shared: &mut Shared,
        channel: u8,
        head: Option<(u64, u64)>,
        bytes: [&[u8]; 2],
        now: u64,
    ) -> Option<bool> {
        let mut first = [0; HEAD];
        let head = match head {
            None => &first[..0],
            Some((number, label)) => {
                first[..8].copy_from_slice(&number.to_le_bytes());
                first[8..].copy_from_slice(&label.to_le_bytes());
                &first[..]
            }
        };
        let parts = [head, bytes[0], bytes[1]];
        match self.peer.send(shared, channel, &parts, now) {
            Ok(Sent::Whole(_)) => Some(true),
            // A message that is taken in part goes on here: its rest has room of its own.
            Ok(Sent::Part) => {
                self.rest = Some(parts.concat());
                Some(true)
            }
            Err(Refused::Full | Refused::Unfinished) => Some(false),
            Err(Refused::TooLong | Refused::Left | Refused::Exhausted) => None,
        }
    }

    /// A message has come by a queue pair. Its sender has not sent more than there is room for.
    pub fn came_by_pair(
        &mut self,
        number: u64,
        message: Arrived,
        inboxes: &mut Inboxes,
        host: Host<'_>,
    ) {
        match self.order.place(number, KEPT_OF_PAIRS) {
            Place::Again | Place::TooEarly => self.taken(message.debt, host),
            place => put(&mut self.order, inboxes, place, number, message),
        }
    }

    /// Several messages have come in one send of a queue pair. It counts as taken when all are: with
    /// the last one, if they are for one endpoint.
    pub fn several_came(
        &mut self,
        from: Rank,
        pair: u32,
        first: u64,
        bytes: &[u8],
        inboxes: &mut Inboxes,
        host: Host<'_>,
    ) {
        let mut entries = Entries::new(bytes).peekable();
        if !Entries::new(bytes).are_sound() {
            return self.taken(Debt::alone(pair), host);
        }
        let mut endpoints = Entries::new(bytes).map(|(word, _)| word::decode(word).map(|it| it.0));
        let one = endpoints.next();
        let mut share = endpoints.any(|other| Some(other) != one).then(Arc::default);
        let mut number = first;
        while let Some((word, bytes)) = entries.next() {
            let (endpoint, label) = inboxes.admit(word);
            // The last one has what this function had, so that nobody waits for that.
            let last = entries.peek().is_none();
            let debt = match &share {
                Some(_) if last => Debt { pair, share: share.take() },
                Some(_) => Debt { pair, share: share.clone() },
                None if last => Debt::alone(pair),
                None => Debt::NONE,
            };
            let bytes = Body::Own(bytes.into());
            let message = Arrived { from, label, endpoint, bytes, debt };
            self.came_by_pair(number, message, inboxes, host);
            number = number.wrapping_add(1);
        }
    }

    /// Sends messages that wait for company by a queue pair: if few sends are under way, or in any
    /// case.
    pub fn send_batch(&mut self, if_few: bool, host: Host<'_>) {
        self.paired.iter_mut().for_each(|paired| paired.send_batch(if_few, host));
    }

    /// Has messages that wait for company go in time, if there are some. Whether there is just one.
    pub fn await_batch(&mut self, now: u64) -> bool {
        let batched = self.paired.as_ref().map_or(0, |paired| paired.batched());
        if batched > 0 {
            self.again = self.again.min(now + ROOM);
        }
        batched == 1
    }

    /// What owed a queue pair something was taken.
    pub fn taken(&mut self, debt: Debt, host: Host<'_>) {
        let pair = debt.pay();
        if pair != 0 {
            self.paired.iter_mut().for_each(|paired| paired.taken(pair, host));
        }
    }

    /// Whether the peer can send nothing more by a queue pair until what came by it was taken.
    pub fn is_exhausted(&self) -> bool {
        self.paired.as_ref().is_some_and(|paired| paired.is_exhausted())
    }

    /// Goes on with a message of which some was taken, then with what waits for it.
    pub fn go_on(&mut self, shared: &mut Shared, host: Host<'_>) {
        if let Some(rest) = &self.rest
            && !matches!(self.peer.resume(shared, &[rest], host.now), Ok(Sent::Part))
        {
            self.rest = None;
        }
        let Some(mut paired) = self.paired.take() else { return };
        if paired.has_more() {
            paired.go_on(host, &mut |head, bytes| {
                let channel = if head.is_some() { MESSAGES } else { PACKETS };
                // One that is gone needs nothing more.
                self.datagram(shared, channel, head, [bytes, &[]], host.now).unwrap_or(true)
            });
        }
        self.paired = Some(paired);
    }

    /// Sends what can be sent by datagrams now.
    pub fn transmit(&mut self, shared: &mut Shared, outlet: &Outlet, now: u64) {
        let mut out = |datagram: &[u8]| outlet.send(self.handle, datagram);
        let all = !self.peer.has_output() || self.peer.transmit(shared, now, &mut out);
        self.again = if all { NEVER } else { now + ROOM };
    }

    /// As [`transmit`](Self::transmit), but what others may join may stay while enough is under way
    /// that an answer comes, or until somebody looks.
    pub fn transmit_most(&mut self, shared: &mut Shared, outlet: &Outlet, now: u64) {
        let mut out = |datagram: &[u8]| outlet.send(self.handle, datagram);
        let all = !self.peer.has_output() || self.peer.transmit_most(shared, now, &mut out);
        self.again = if all { NEVER } else { now + ROOM };
    }
}
