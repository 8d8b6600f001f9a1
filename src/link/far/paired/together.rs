//! Messages in sends of the queue pair, which small ones share.
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
        let batch = std::mem::take(&mut self.batch);
        let (load, bytes) = (Load::Several(batch.bytes().len()), [batch.bytes(), &[]]);
        let posted = self.post(host, (batch.first(), 0), load, batch.count(), bytes);
        self.batch = batch;
        if posted == Some(true) {
            self.batch.clear();
        }
        posted
    }

    /// Posts a send with so many messages, the first of which has this number, as [`Paired::send`] does.
    pub(super) fn post(
        &mut self,
        host: Host<'_>,
        (number, label): (u64, u64),
        load: Load,
        messages: u32,
        bytes: [&[u8]; 2],
    ) -> Option<bool> {
        let Way::Pair(connection) = self.switch.sends_by() else { return Some(false) };
        let pair = self.pairs.iter_mut().find(|pair| pair.connection == connection)?;
        if !pair.may_send() {
            return Some(false);
        }
        let kind = if matches!(load, Load::Several(_)) { Kind::Several } else { Kind::Message };
        let head = Head { number, label, room: pair.room(), kind };
        match host.pairs.post(&*pair.queue, pair.class, &head, bytes) {
            Posted::Sent(place) => {
                pair.has_sent();
                host.pairs.counts.by_pairs.add(messages.into());
                host.pairs.counts.sends.add(1);
                self.flying.push_back(Flying { pair: pair.queue.number(), place, load });
                self.switch.sent(Way::Pair(connection));
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
