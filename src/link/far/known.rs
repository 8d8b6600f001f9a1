//! One peer on one flow: what goes to it, by which way, and what has come out of turn.

use super::batch::Entries;
use super::due::Mark;
use super::intake::{label, put};
use super::order::{KEPT_OF_PAIRS, Order, Place};
use super::outlet::Outlet;
use super::paired::{Host, Paired};
use super::stock::Held;
use crate::base::Rank;
use crate::link::{MAX_MESSAGE, Push};
use crate::net::provider::Peer as Handle;
use crate::net::ud::{Peer, Refused, Sent, Shared};
use crate::shm::ring::Label;
use std::collections::VecDeque;

/// Bytes before a message's own in datagrams: its number and its label.
pub(super) const HEAD: usize = 16;

/// Channels of datagrams: messages, and packets about queue pairs.
pub(super) const MESSAGES: u8 = 0;
pub(super) const PACKETS: u8 = 1;

/// A message that has come.
pub(super) struct Arrived {
    pub from: Rank,
    /// Nothing if the peer made it up.
    pub label: Option<Label>,
    pub bytes: Body,
    /// The number of the queue pair that it came by, if nothing else of that send comes after it; or 0.
    pub by: u32,
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

/// A label as it travels.
fn word(label: Label) -> u64 {
    label.imm() << 8 | u64::from(label.kind())
}

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
        label: Label,
        bytes: [&[u8]; 2],
    ) -> Option<Push> {
        let word = word(label);
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
        inbox: &mut VecDeque<Arrived>,
        host: Host<'_>,
    ) {
        match self.order.place(number, KEPT_OF_PAIRS) {
            Place::Again | Place::TooEarly => self.taken(message.by, host),
            place => put(&mut self.order, inbox, place, number, message),
        }
    }

    /// Several messages have come in one send of a queue pair. It counts as taken when the last one is.
    pub fn several_came(
        &mut self,
        from: Rank,
        pair: u32,
        first: u64,
        bytes: &[u8],
        inbox: &mut VecDeque<Arrived>,
        host: Host<'_>,
    ) {
        let mut entries = Entries::new(bytes).peekable();
        if !Entries::new(bytes).are_sound() {
            return self.taken(pair, host);
        }
        let mut number = first;
        while let Some((word, bytes)) = entries.next() {
            let by = if entries.peek().is_none() { pair } else { 0 };
            let message = Arrived { from, label: label(word), bytes: Body::Own(bytes.into()), by };
            self.came_by_pair(number, message, inbox, host);
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

    /// What came by a queue pair was taken.
    pub fn taken(&mut self, pair: u32, host: Host<'_>) {
        if pair != 0 {
            self.paired.iter_mut().for_each(|paired| paired.taken(pair, host));
        }
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
