//! What comes from the peer, and what it means for this life and the peer's.

use super::{NEVER, Owed, Peer, SOON};
use crate::net::ud::receiving::{Came, Upper};
use crate::net::ud::round_trip::RoundTrip;
use crate::net::ud::{Event, Lost, SPAN, Shared};
use crate::net::wire::{Header, Kind, Reject};

impl Peer {
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

    pub(super) fn take(
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
    pub(super) fn meet(&mut self, life: u32, shared: &mut Shared, upper: &mut impl Upper) {
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

    pub(super) fn prove(&mut self, shared: &Shared, now: u64, upper: &mut impl Upper) {
        self.proven = true;
        self.owed.hello = false;
        self.trip = RoundTrip::default();
        if self.is_waiting() {
            self.resend = now + self.trip.timeout(&shared.config);
        }
        upper.event(self.id, Event::Opened);
    }

    #[inline]
    pub(super) fn acknowledged(
        &mut self,
        came: (u32, u64, u32),
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), Reject> {
        let Some(ring) = self.ring.as_mut() else {
            let (acknowledged, selective, credit) = came;
            if acknowledged == self.next && selective == 0 {
                self.credit = self.credit.max(credit.min(SPAN));
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
    pub(super) fn data(
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
    pub(super) fn break_off(
        &mut self,
        reject: Reject,
        shared: &mut Shared,
        upper: &mut impl Upper,
    ) {
        shared.counters.rejects.note(reject);
        let lost = self.give_up(shared);
        self.owed.hello = true;
        upper.event(self.id, Event::Broken(lost));
    }

    /// This life ends.
    pub(super) fn give_up(&mut self, shared: &mut Shared) -> Lost {
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
    pub(super) fn forget_sent(&mut self, shared: &mut Shared) -> Lost {
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
}
