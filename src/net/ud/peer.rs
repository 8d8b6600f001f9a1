//! One connection: see the picture in the room's `ud` for lives and how they begin.

use super::config::Config;
use super::receiving::{Came, Receiving, Upper};
use super::ring::Ring;
use super::round_trip::RoundTrip;
use super::{Counters, Event, Lost, Refused, Sent, Shared};
use crate::net::wire::{Fragment, HEADER, Header, Kind, OVERHEAD, Reject};

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
        let most = u32::from(shared.config.datagram) - OVERHEAD as u32;
        let (next, credit) = (self.next, self.credit);
        let ring = self.ring.get_or_insert_with(|| Box::new(Ring::new(next, credit)));
        let idle = ring.is_empty();
        let whole = loop {
            if !ring.has_room(shared.config.span) {
                break false;
            }
            let Some(buffer) = shared.buffers.take() else { break false };
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
            message.done += length;
            let ends = message.done == message.total;
            ring.push(buffer, OVERHEAD as u16 + length as u16, ends);
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

    fn begin_waiting(&mut self, config: &Config, now: u64) {
        if !self.asked {
            self.waits = now;
        }
        if !self.proven {
            self.owed.hello = true;
        }
        if self.resend == NEVER {
            self.resend = now + self.trip.timeout(config);
        }
    }

    /// Whether the peer should answer.
    fn is_waiting(&self) -> bool {
        self.asked || self.parting || !self.is_drained()
    }

    /// When [`tick`](Self::tick) has to be called next, if nothing happens before.
    pub fn next(&self, config: &Config) -> Option<u64> {
        let mut next = self.resend.min(self.acknowledge);
        if self.is_waiting() {
            next = next.min(self.heard.max(self.waits) + config.silence);
        } else {
            if let Some(interval) = self.asks_after(config) {
                next = next.min(self.heard + interval);
            }
            if self.ring.is_some() || self.receiving.is_warm() {
                next = next.min(self.active + config.cool);
            }
        }
        (next != NEVER).then_some(next)
    }

    /// Time without a word after which the peer is to be asked whether it lives. Of one that has
    /// begun something that takes memory here, somebody always wants to know.
    fn asks_after(&self, config: &Config) -> Option<u64> {
        if self.left || self.exhausted {
            None
        } else if self.watched && !self.leaving && config.keepalive > 0 {
            Some(config.keepalive)
        } else {
            self.receiving.is_incomplete().then_some(config.silence / 2)
        }
    }

    /// Does what is due at `now`; what is to be sent then, [`transmit`](Self::transmit) sends.
    pub fn tick(&mut self, shared: &mut Shared, now: u64, upper: &mut impl Upper) {
        if self.is_waiting() && now >= self.heard.max(self.waits) + shared.config.silence {
            let lost = self.give_up(shared);
            return upper.event(self.id, Event::Silent(lost));
        }
        if now >= self.acknowledge {
            self.owed.ack = true;
            self.acknowledge = NEVER;
        }
        if !self.is_waiting() {
            let interval = self.asks_after(&shared.config);
            if interval.is_some_and(|interval| now >= self.heard + interval) {
                self.waits = now;
                self.asked = true;
                (self.owed.ping, self.owed.hello) = (self.proven, !self.proven);
                self.resend = now + self.trip.timeout(&shared.config);
            } else {
                self.resend = NEVER;
                if now >= self.active + shared.config.cool {
                    self.cool();
                }
            }
        }
        if now >= self.resend {
            self.time_out(shared, now);
        }
    }

    fn time_out(&mut self, shared: &mut Shared, now: u64) {
        if !self.proven {
            self.owed.hello = true;
        } else if let Some(ring) = self.ring.as_mut()
            && ring.flying() > 0
        {
            ring.time_out();
            shared.counters.timeouts += 1;
        } else if self.parting {
            self.owed.bye = true;
        } else {
            // Waiting for credit, or for an answer.
            self.owed.ping = true;
        }
        self.trip.slower();
        self.resend = now + self.trip.timeout(&shared.config);
    }

    fn cool(&mut self) {
        if let Some(ring) = self.ring.take_if(|ring| ring.is_empty()) {
            (self.next, self.credit) = (ring.next(), ring.credit());
        }
        self.receiving.cool();
    }

    /// Offers the host again what it had no room for.
    pub fn deliver(&mut self, shared: &mut Shared, upper: &mut impl Upper) {
        if !self.receiving.is_held_back() {
            return;
        }
        match self.receiving.drain(self.id, shared, upper) {
            // A sender that waits for credit does not ask for it soon.
            Ok(true) if u32::from(self.told) <= shared.config.span / 2 => self.owed.ack = true,
            Ok(_) => {}
            Err(reject) => self.break_off(reject, shared, upper),
        }
    }

    /// A datagram of the peer's, decoded by [`Header::decode`].
    pub fn receive(
        &mut self,
        shared: &mut Shared,
        header: &Header,
        body: &[u8],
        now: u64,
        upper: &mut impl Upper,
    ) {
        if let Err(reject) = self.take(shared, header, body, now, upper) {
            shared.counters.rejects.note(reject);
        }
    }

    fn take(
        &mut self,
        shared: &mut Shared,
        header: &Header,
        body: &[u8],
        now: u64,
        upper: &mut impl Upper,
    ) -> Result<(), Reject> {
        if header.to != shared.config.me {
            return Err(Reject::Destination);
        }
        if header.from != self.id {
            return Err(Reject::Origin);
        }
        if header.from_life < self.theirs {
            return Err(Reject::Stale);
        }
        if header.kind == Kind::Hello {
            if header.to_life > self.mine {
                return Err(Reject::Stale);
            }
            self.meet(header.from_life, shared, upper);
            (self.heard, self.owed.welcome) = (now, true);
            return Ok(());
        }
        let known = header.from_life == self.theirs || header.kind == Kind::Welcome;
        if header.to_life != self.mine || !known {
            // It has not heard of this life. A Welcome that is too late needs no answer.
            self.owed.hello |= header.kind != Kind::Welcome && header.to_life < self.mine;
            return Err(Reject::Stale);
        }
        self.meet(header.from_life, shared, upper);
        let came = (header.acknowledged, header.selective, u32::from(header.credit));
        // What is sent to one that has left is forgotten, with its numbers.
        if !self.left {
            self.acknowledged(came, now, shared)?;
        }
        self.heard = now;
        self.asked = false;
        if !self.proven {
            self.prove(shared, now, upper);
        }
        match header.kind {
            Kind::Data => self.data(shared, header.sequence, body, now, upper)?,
            Kind::Ping | Kind::Welcome => self.owed.ack = true,
            Kind::Bye => {
                self.owed.farewell = true;
                if !std::mem::replace(&mut self.left, true) {
                    let lost = self.forget_sent(shared);
                    upper.event(self.id, Event::Left(lost));
                }
            }
            Kind::Farewell if self.is_drained() => (self.parting, self.resend) = (false, NEVER),
            Kind::Ack | Kind::Hello | Kind::Farewell => {}
        }
        Ok(())
    }

    /// The peer is in this life of its own: the present one, or a later one.
    fn meet(&mut self, life: u32, shared: &mut Shared, upper: &mut impl Upper) {
        if life == self.theirs {
            return;
        }
        let first = shared.config.first;
        self.receiving.clear(first, shared);
        let known = std::mem::replace(&mut self.theirs, life) != 0;
        self.unacknowledged = 0;
        self.acknowledge = NEVER;
        (self.owed.ack, self.owed.ping) = (false, false);
        self.left = false;
        // What was sent in the life before may have arrived; what waited for this one goes on.
        if std::mem::replace(&mut self.proven, false) {
            let lost = self.forget_sent(shared);
            upper.event(self.id, Event::Restarted(lost));
        } else if known && self.ring.is_none() {
            (self.next, self.credit) = (first, 0);
        }
    }

    fn prove(&mut self, shared: &Shared, now: u64, upper: &mut impl Upper) {
        self.proven = true;
        self.owed.hello = false;
        self.trip = RoundTrip::default();
        if self.is_waiting() {
            self.resend = now + self.trip.timeout(&shared.config);
        }
        upper.event(self.id, Event::Opened);
    }

    #[inline]
    fn acknowledged(
        &mut self,
        came: (u32, u64, u32),
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Reject> {
        let Some(ring) = self.ring.as_mut() else {
            let (acknowledged, selective, credit) = came;
            if acknowledged == self.next && selective == 0 {
                self.credit = self.credit.max(credit.min(super::SPAN));
            } else if acknowledged.wrapping_sub(self.next) < 1 << 31 {
                return Err(Reject::Sequence);
            }
            return Ok(());
        };
        let Shared { config, buffers, counters, .. } = shared;
        let acked = ring.acknowledge(came, now, &mut self.trip, buffers, counters)?;
        self.confirmed += u64::from(acked.messages);
        if acked.new > 0 {
            self.active = now;
            self.resend = if ring.is_empty() { NEVER } else { now + self.trip.timeout(config) };
        }
        Ok(())
    }

    #[inline]
    fn data(
        &mut self,
        shared: &mut Shared,
        sequence: u32,
        body: &[u8],
        now: u64,
        upper: &mut impl Upper,
    ) -> Result<(), Reject> {
        let came = match self.receiving.receive(self.id, sequence, body, shared, upper) {
            Ok(came) => came,
            Err(Reject::Fragment) => {
                self.break_off(Reject::Fragment, shared, upper);
                return Ok(());
            }
            Err(reject) => return Err(reject),
        };
        self.active = now;
        match came {
            Came::InOrder | Came::Ahead => shared.counters.received += 1,
            Came::Again => shared.counters.duplicates += 1,
            Came::Starved => shared.counters.starved += 1,
        }
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let every = shared.config.ack_every;
        let every = if came == Came::InOrder { every } else { every.min(SOON) };
        if self.unacknowledged >= every {
            self.owed.ack = true;
        } else if self.acknowledge == NEVER {
            self.acknowledge = now + shared.config.ack_delay;
        }
        Ok(())
    }

    /// The peer's messages make no sense: nothing that it sends in this life is worth anything.
    fn break_off(&mut self, reject: Reject, shared: &mut Shared, upper: &mut impl Upper) {
        shared.counters.rejects.note(reject);
        let lost = self.give_up(shared);
        self.owed.hello = true;
        upper.event(self.id, Event::Broken(lost));
    }

    /// This life ends.
    fn give_up(&mut self, shared: &mut Shared) -> Lost {
        let lost = self.forget_sent(shared);
        self.receiving.clear(shared.config.first, shared);
        match (self.mine + 1) & 0xffff {
            0 => self.exhausted = true,
            _ => self.mine += 1,
        }
        self.proven = false;
        self.owed = Owed::default();
        (self.unacknowledged, self.acknowledge) = (0, NEVER);
        self.trip = RoundTrip::default();
        lost
    }

    /// Gives up what was not acknowledged.
    fn forget_sent(&mut self, shared: &mut Shared) -> Lost {
        if let Some(mut ring) = self.ring.take() {
            ring.clear(&mut shared.buffers);
        }
        (self.next, self.credit) = (shared.config.first, 0);
        self.accepted += u64::from(self.unfinished.take().is_some());
        let lost = Lost { first: self.confirmed, count: self.accepted - self.confirmed };
        (self.confirmed, self.before) = (self.accepted, self.accepted);
        (self.asked, self.parting, self.resend) = (false, false, NEVER);
        lost
    }

    /// Whether [`transmit`](Self::transmit) has something to send.
    pub fn has_output(&self) -> bool {
        let owed = self.owed;
        let data = || self.ring.as_ref().is_some_and(|ring| ring.sendable().is_some());
        let bye = || owed.bye && self.is_drained();
        let short = owed.ack || owed.ping || owed.farewell;
        owed.hello || owed.welcome || (self.proven && (short || bye() || data()))
    }

    /// Sends what can be sent now: `out` takes a datagram, or says that it cannot (then the answer
    /// is false: call again when it can). To be called after every other call.
    pub fn transmit(
        &mut self,
        shared: &mut Shared,
        now: u64,
        out: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        if self.owed.welcome && self.theirs != 0 {
            if !self.bare(Kind::Welcome, shared, out) {
                return false;
            }
            self.owed.welcome = false;
        }
        if self.owed.hello {
            if !self.bare(Kind::Hello, shared, out) {
                return false;
            }
            self.owed.hello = false;
        }
        if !self.proven {
            return true;
        }
        if let Some(mut ring) = self.ring.take() {
            let all = self.ring_out(&mut ring, shared, now, out);
            self.ring = Some(ring);
            if !all {
                return false;
            }
        }
        if self.owed.bye && self.is_drained() {
            if !self.bare(Kind::Bye, shared, out) {
                return false;
            }
            self.owed.bye = false;
            if !std::mem::replace(&mut self.parting, true) {
                (self.waits, self.resend) = (now, now + self.trip.timeout(&shared.config));
            }
        }
        if self.owed.farewell {
            if !self.bare(Kind::Farewell, shared, out) {
                return false;
            }
            self.owed.farewell = false;
        }
        if self.owed.ping {
            if !self.bare(Kind::Ping, shared, out) {
                return false;
            }
            self.owed.ping = false;
        }
        !self.owed.ack || self.bare(Kind::Ack, shared, out)
    }

    #[inline]
    fn ring_out(
        &mut self,
        ring: &mut Ring,
        shared: &mut Shared,
        now: u64,
        out: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        while let Some(bit) = ring.sendable() {
            let Some((buffer, length, sequence, again)) = ring.datagram(bit) else { return true };
            let header = self.header(Kind::Data, length - HEADER, sequence, &shared.config);
            let bytes = &mut shared.buffers.get_mut(buffer)[..length];
            header.encode(bytes);
            if !out(bytes) {
                return false;
            }
            if ring.flying() == 0 {
                self.resend = now + self.trip.timeout(&shared.config);
            }
            ring.note_sent(bit, now);
            self.has_acknowledged(&header);
            let Counters { sent, resent, .. } = &mut shared.counters;
            *if again { resent } else { sent } += 1;
        }
        true
    }

    #[inline]
    fn header(&self, kind: Kind, length: usize, sequence: u32, config: &Config) -> Header {
        let (acknowledged, selective, credit) = self.receiving.state(config.span);
        Header {
            kind,
            length: length as u16,
            credit: credit as u16,
            cookie: config.cookie,
            from: config.me,
            to: self.id,
            from_life: self.mine,
            to_life: self.theirs,
            sequence,
            acknowledged,
            selective,
        }
    }

    fn has_acknowledged(&mut self, header: &Header) {
        (self.owed.ack, self.unacknowledged, self.acknowledge) = (false, 0, NEVER);
        self.told = header.credit;
    }

    fn bare(
        &mut self,
        kind: Kind,
        shared: &mut Shared,
        out: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let next = self.ring.as_ref().map_or(self.next, |ring| ring.next());
        let header = self.header(kind, 0, next, &shared.config);
        let mut bytes = [0; HEADER];
        header.encode(&mut bytes);
        let sent = out(&bytes);
        if sent {
            let Counters { acks, control, .. } = &mut shared.counters;
            *if kind == Kind::Ack { acks } else { control } += 1;
            if kind != Kind::Hello {
                self.has_acknowledged(&header);
            }
        }
        sent
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
