//! What goes to the peer: what is owed, and data as far as they may go.

use super::{NEVER, Peer};
use crate::net::ud::config::Config;
use crate::net::ud::ring::Ring;
use crate::net::ud::{Counters, Shared};
use crate::net::wire::{HEADER, Header, Kind};

/// More datagrams than can be under way.
const NONE_STAYS: u32 = u32::MAX;

impl Peer {
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
        self.send_out(shared, now, NONE_STAYS, out)
    }

    /// As [`transmit`](Self::transmit), but a datagram that other messages may join stays while
    /// [`Config::cork`] others are under way: `transmit` has to be called in any case when something
    /// comes, and soon. Many small messages cost as many datagrams as they fill that way.
    pub fn transmit_most(
        &mut self,
        shared: &mut Shared,
        now: u64,
        out: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let cork = shared.config.cork;
        self.send_out(shared, now, cork, out)
    }

    fn send_out(
        &mut self,
        shared: &mut Shared,
        now: u64,
        cork: u32,
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
            let all = self.ring_out(&mut ring, shared, now, cork, out);
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
    pub(super) fn ring_out(
        &mut self,
        ring: &mut Ring,
        shared: &mut Shared,
        now: u64,
        cork: u32,
        out: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        while let Some(bit) = ring.sendable() {
            if ring.flying() >= cork && ring.is_latest_open(bit) {
                break;
            }
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
    pub(super) fn header(
        &self,
        kind: Kind,
        length: usize,
        sequence: u32,
        config: &Config,
    ) -> Header {
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

    pub(super) fn has_acknowledged(&mut self, header: &Header) {
        (self.owed.ack, self.unacknowledged, self.acknowledge) = (false, 0, NEVER);
        self.told = header.credit;
    }

    pub(super) fn bare(
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
}
