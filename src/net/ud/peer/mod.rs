//! One connection: see the picture in the room's `ud` for lives and how they begin.

mod incoming;
mod outgoing;
mod timers;

use super::config::Config;
use super::receiving::Receiving;
use super::ring::Ring;
use super::round_trip::RoundTrip;
use super::{Lost, Refused, Sent, Shared};
use crate::net::wire::{FURTHER, Fragment, OVERHEAD, add};

/// Never.
const NEVER: u64 = u64::MAX;

/// An acknowledgement is due after so many datagrams while some are missing or come again.
const SOON: u16 = 4;

/// What waits to be sent besides data.
#[derive(Clone, Copy, Default, Debug)]
struct Owed {
    ack: bool,
    hello: bool,
    welcome: bool,
    ping: bool,
    bye: bool,
    farewell: bool,
}

/// A message of which not all pieces are in the ring.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    total: u32,
    done: u32,
    channel: u8,
}

/// A connection to one process. All times are nanoseconds since any one time, and do not go
/// back.
///
/// Sending copies a message once, into the buffers that it is sent from; a message that fits into
/// one datagram and comes in order is handed on where it lies. Neither allocates, once there are
/// as many buffers as are needed and the ring of the connection is there.
#[derive(Debug)]
pub struct Peer {
    id: u32,
    /// This side's life, and the peer's; 0 as long as that is not known.
    mine: u32,
    theirs: u32,
    /// The peer has shown that it knows `mine`.
    proven: bool,
    /// It has left; or this side has.
    left: bool,
    leaving: bool,
    /// It was told that this side leaves, and has not answered.
    parting: bool,
    /// Somebody wants to know whether it lives; and it was asked.
    watched: bool,
    asked: bool,
    owed: Owed,
    /// There is no later life.
    exhausted: bool,
    /// Datagrams that came since the last acknowledgement.
    unacknowledged: u16,
    /// Credit in the last one.
    told: u16,
    /// The next sequence number, and credit, while there is no ring.
    next: u32,
    credit: u32,
    ring: Option<Box<Ring>>,
    receiving: Receiving,
    unfinished: Option<Unfinished>,
    /// Messages taken, those of them that have arrived or are given up, and how many there were
    /// when this pair of lives began.
    accepted: u64,
    confirmed: u64,
    before: u64,
    trip: RoundTrip,
    /// When it was last heard of, when something was last under way, since when it should answer.
    heard: u64,
    active: u64,
    waits: u64,
    /// When to send again, and when to acknowledge.
    resend: u64,
    acknowledge: u64,
}

impl Peer {
    /// Nothing is known of the process with number `id`, and nothing is sent before there is
    /// something to say.
    pub fn new(id: u32, config: &Config, now: u64) -> Peer {
        Peer {
            id,
            mine: u32::from(config.incarnation) << 16,
            theirs: 0,
            proven: false,
            left: false,
            leaving: false,
            parting: false,
            watched: false,
            asked: false,
            owed: Owed::default(),
            exhausted: false,
            unacknowledged: 0,
            told: 0,
            next: config.first,
            credit: 0,
            ring: None,
            receiving: Receiving::new(config.first),
            unfinished: None,
            accepted: 0,
            confirmed: 0,
            before: 0,
            trip: RoundTrip::default(),
            heard: now,
            active: now,
            waits: now,
            resend: NEVER,
            acknowledge: NEVER,
        }
    }

    /// Its number in the job.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Messages that have arrived, or were reported as lost.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Whether nothing of what was sent waits for its acknowledgement.
    pub fn is_drained(&self) -> bool {
        self.unfinished.is_none() && self.ring.as_ref().is_none_or(|ring| ring.is_empty())
    }

    /// Whether the peer has everything that was sent to it, or will never.
    pub fn has_everything(&self) -> bool {
        self.left || self.is_drained()
    }

    /// Whether data can go without a round trip before them.
    pub fn is_open(&self) -> bool {
        self.proven && !self.left
    }

    /// Bytes that it has, with this structure.
    pub fn bytes(&self) -> usize {
        let ring = self.ring.as_ref().map_or(0, |_| size_of::<Ring>());
        size_of::<Peer>() + ring + self.receiving.bytes()
    }

    /// Whether to ask the peer from time to time whether it lives, though nothing is sent to it.
    pub fn watch(&mut self, watch: bool) {
        self.watched = watch;
    }

    /// Takes leave when everything has been acknowledged, until that is answered. Nothing can be
    /// sent any more.
    pub fn leave(&mut self) {
        self.leaving = true;
        self.owed.bye = true;
    }

    /// Once this side has taken leave: whether the peer has everything and knows, or will never.
    pub fn has_parted(&self) -> bool {
        let told = !self.owed.bye && !self.parting;
        // To one that has not shown that it is there nothing was said that it could miss.
        self.left || self.is_drained() && (told || !self.proven)
    }

    /// Sends a message, given in parts. `Part`: go on with [`resume`](Self::resume). Nothing goes
    /// out before [`transmit`](Self::transmit).
    #[inline]
    pub fn send(
        &mut self,
        shared: &mut Shared,
        channel: u8,
        parts: &[&[u8]],
        now: u64,
    ) -> Result<Sent, Refused> {
        if self.unfinished.is_some() {
            return Err(Refused::Unfinished);
        }
        if self.left || self.leaving {
            return Err(Refused::Left);
        }
        if self.exhausted {
            return Err(Refused::Exhausted);
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        match u32::try_from(total) {
            Ok(total) if total <= shared.config.message => {
                self.pieces(shared, Unfinished { total, done: 0, channel }, parts, now)
            }
            _ => Err(Refused::TooLong),
        }
    }

    /// Goes on with a message of which some was taken: the same parts again.
    pub fn resume(
        &mut self,
        shared: &mut Shared,
        parts: &[&[u8]],
        now: u64,
    ) -> Result<Sent, Refused> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        match self.unfinished {
            Some(unfinished) if unfinished.total as usize == total => {
                self.pieces(shared, unfinished, parts, now)
            }
            _ => Err(Refused::Unfinished),
        }
    }

    fn pieces(
        &mut self,
        shared: &mut Shared,
        mut message: Unfinished,
        parts: &[&[u8]],
        now: u64,
    ) -> Result<Sent, Refused> {
        if message.done == 0 && self.join(shared, message, parts) {
            self.active = now;
            self.accepted += 1;
            return Ok(Sent::Whole(self.accepted - 1));
        }
        let most = u32::from(shared.config.datagram) - OVERHEAD as u32;
        let (next, credit) = (self.next, self.credit);
        let ring = self.ring.get_or_insert_with(|| Box::new(Ring::new(next, credit)));
        let idle = ring.is_empty();
        let whole = loop {
            if !ring.has_room(shared.config.span) {
                break false;
            }
            // A message that has begun takes memory at its receiver, for which others wait.
            let goes_on = message.done > 0 && ring.is_empty();
            let taken = if goes_on { shared.buffers.take_beyond() } else { shared.buffers.take() };
            let Some(buffer) = taken else { break false };
            let length = (message.total - message.done).min(most);
            let fragment = Fragment {
                message: (self.accepted - self.before) as u32,
                total: message.total,
                offset: message.done,
                channel: message.channel,
            };
            let bytes = shared.buffers.get_mut(&buffer);
            fragment.encode(bytes);
            gather(parts, message.done as usize, &mut bytes[OVERHEAD..][..length as usize]);
            // As long as one more of its length fits.
            let open = length == message.total && 2 * length + FURTHER as u32 <= most;
            message.done += length;
            let ends = message.done == message.total;
            ring.push(buffer, OVERHEAD as u16 + length as u16, ends, open);
            if ends {
                break true;
            }
        };
        self.active = now;
        if idle && !ring.is_empty() {
            self.begin_waiting(&shared.config, now);
        }
        if whole {
            self.unfinished = None;
            self.accepted += 1;
            Ok(Sent::Whole(self.accepted - 1))
        } else if message.done == 0 {
            Err(Refused::Full)
        } else {
            self.unfinished = Some(message);
            Ok(Sent::Part)
        }
    }

    /// Puts a message behind those in the latest datagram, if that can be.
    #[inline]
    fn join(&mut self, shared: &mut Shared, message: Unfinished, parts: &[&[u8]]) -> bool {
        let Some(ring) = self.ring.as_mut() else { return false };
        let Some((buffer, used)) = ring.latest_open() else { return false };
        let length = message.total as usize;
        let datagram = shared.buffers.get_mut(buffer);
        let Some(place) = add(datagram, used, message.channel, length) else { return false };
        gather(parts, 0, &mut datagram[place.clone()]);
        let open = place.end + FURTHER + length <= datagram.len();
        ring.joined(place.end as u16, open);
        true
    }

    /// Gives back all memory: the peer is of no interest any more. What was not acknowledged is
    /// lost.
    pub fn close(mut self, shared: &mut Shared) -> Lost {
        let lost = self.forget_sent(shared);
        self.receiving.clear(shared.config.first, shared);
        lost
    }
}

/// Copies what is at `from` in `parts`, one behind the other.
#[inline]
fn gather(parts: &[&[u8]], mut from: usize, to: &mut [u8]) {
    let mut done = 0;
    for part in parts {
        if from < part.len() {
            let count = (part.len() - from).min(to.len() - done);
            to[done..done + count].copy_from_slice(&part[from..from + count]);
            done += count;
        }
        from = from.saturating_sub(part.len());
        if done == to.len() {
            break;
        }
    }
}

// A connection that is idle has nothing but this. Many thousands may be.
const _: () = assert!(size_of::<Peer>() <= 256);
