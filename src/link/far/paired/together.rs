//! Small messages that share a send of the queue pair.
//!
//! While [`FEW`] sends are under way, what is sent waits for company: until it is as much as one send
//! carries, fewer are under way, or a call looks (which then waits for something that this may bring).
//! Whoever sends little never waits.

use super::{Flying, Host, Load, Paired};
use crate::link::far::batch::{Entries, SMALL};
use crate::link::far::head::{Head, Kind};
use crate::link::far::pairs::Posted;
use crate::net::switch::Way;

/// Sends under way from which on messages wait for company.
const FEW: usize = 4;

impl Paired {
    /// Has a message join others, if it is to; else there are none before it. Some(false) if there is no
    /// room, Some(None) if the queue pair has failed, as for [`Paired::send`].
    pub(super) fn join(
        &mut self,
        host: Host<'_>,
        number: u64,
        label: u64,
        bytes: [&[u8]; 2],
    ) -> Option<Option<bool>> {
        let length = bytes[0].len() + bytes[1].len();
        let joins = length <= SMALL && self.batch.fits(length);
        if !self.batch.is_empty() && !joins {
            let posted = self.post_batch(host);
            if posted != Some(true) {
                return Some(posted);
            }
        }
        let alone = self.batch.is_empty() && (length > SMALL || self.flying.len() < FEW);
        if alone {
            return None;
        }
        self.batch.add(number, label, bytes);
        Some(Some(true))
    }

    /// Sends what waits for company: if few sends are under way, or in any case.
    pub fn send_batch(&mut self, if_few: bool, host: Host<'_>) {
        if self.batch.is_empty() || if_few && self.flying.len() >= FEW {
            return;
        }
        if self.sends_by_pair() {
            self.post_batch(host);
        } else {
            self.part_company();
        }
    }

    /// Messages that wait for company.
    pub fn batched(&self) -> u32 {
        self.batch.count()
    }

    /// As [`Paired::send`], of all that wait.
    fn post_batch(&mut self, host: Host<'_>) -> Option<bool> {
        let Way::Pair(connection) = self.switch.sends_by() else { return Some(false) };
        let pair = self.pairs.iter_mut().find(|pair| pair.connection == connection)?;
        if !pair.may_send() {
            return Some(false);
        }
        let (number, count) = (self.batch.first(), u64::from(self.batch.count()));
        let head = Head { number, label: 0, room: pair.room(), kind: Kind::Several };
        let bytes = self.batch.bytes();
        match host.pairs.post(&*pair.queue, pair.class, &head, [bytes, &[]]) {
            Posted::Sent(place) => {
                pair.has_sent();
                host.pairs.counts.by_pairs.add(count);
                host.pairs.counts.sends.add(1);
                let (pair, load) = (pair.queue.number(), Load::Several(bytes.len()));
                self.flying.push_back(Flying { pair, place, load });
                self.switch.sent(Way::Pair(connection));
                self.batch.clear();
                Some(true)
            }
            Posted::Full => {
                self.starved = true;
                Some(false)
            }
            Posted::Failed => {
                self.broken = true;
                None
            }
        }
    }

    /// What waits goes by datagrams, each by itself.
    pub(super) fn part_company(&mut self) {
        for (number, (label, bytes)) in (self.batch.first()..).zip(Entries::new(self.batch.bytes()))
        {
            self.again.push_back((number, label, bytes.to_vec()));
        }
        self.batch.clear();
    }
}
