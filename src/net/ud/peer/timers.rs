//! What is due without anything having come.

use super::{NEVER, Peer};
use crate::net::ud::config::Config;
use crate::net::ud::receiving::Upper;
use crate::net::ud::{Event, Shared};

impl Peer {
    pub(super) fn begin_waiting(&mut self, config: &Config, now: u64) {
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
    pub(super) fn is_waiting(&self) -> bool {
        self.asked || self.parting || !self.is_drained()
    }

    /// When [`tick`](Self::tick) has to be called next, if nothing happens before.
    pub fn next(&self, config: &Config) -> Option<u64> {
        let mut next = self.resend.min(self.acknowledge);
        if self.receiving.is_starved() {
            next = next.min(self.active + config.least_timeout);
        }
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
    pub(super) fn asks_after(&self, config: &Config) -> Option<u64> {
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
        if self.receiving.is_starved() && now >= self.active + shared.config.least_timeout {
            self.active = now;
            self.deliver(shared, upper);
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

    pub(super) fn time_out(&mut self, shared: &mut Shared, now: u64) {
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

    pub(super) fn cool(&mut self) {
        if let Some(ring) = self.ring.take_if(|ring| ring.is_empty()) {
            (self.next, self.credit) = (ring.next(), ring.credit());
        }
        self.receiving.cool();
    }
}
