//! What the connections to other nodes have done.

use crate::base::sync::{AtomicU64, Ordering};

/// What a process has sent to other nodes so far, and how its connections have changed. Each of the
/// three flows to a peer (messages, requests and replies of one-sided operations) counts as one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NetworkCounters {
    /// Datagrams with messages or pieces of them, sent for the first time.
    pub datagrams: u64,
    /// Those that were sent again.
    pub datagrams_resent: u64,
    /// Messages sent by queue pairs.
    pub by_pairs: u64,
    /// Sends of queue pairs that carried them: small ones share one where many are under way.
    pub sends_by_pairs: u64,
    /// Parts of large transfers that the devices have carried out, or been asked to.
    pub parts: u64,
    /// Changes to a queue pair.
    pub promotions: u64,
    /// Changes back to datagrams, as both sides had agreed.
    pub returns: u64,
    /// Queue pairs that failed; what they may have lost was sent again.
    pub failures: u64,
    /// Changes that this process had asked for and that are complete: to a queue pair, of the threshold,
    /// back to datagrams.
    pub switches: u64,
    /// How long these took in all, from asking to using, in nanoseconds. Nothing waits meanwhile.
    pub switch_nanoseconds: u64,
    /// Changes of the eager threshold, from one queue pair to another, whoever had asked.
    pub thresholds: u64,
    /// Changes that this process had asked for and that were refused.
    pub refusals: u64,
    /// The largest eager threshold by which messages went, in bytes with their headers; 0 as long as
    /// all queue pairs had that of messages of the usual size.
    pub eager_threshold: u64,
    /// Bytes of the pools that larger messages are received into.
    pub pool_bytes: u64,
    /// The most that there were.
    pub pool_bytes_peak: u64,
    /// Transfers that found their memory registered, by one before.
    pub registrations_used_again: u64,
    /// Messages that have come and were thrown away: for an endpoint that this process does not have, or
    /// of a kind that nobody sends.
    pub senseless: u64,
}

/// The part of it that queue pairs count: by whoever has their flow, so nobody waits for it.
#[derive(Debug, Default)]
pub(super) struct PairCounts {
    pub by_pairs: Count,
    pub sends: Count,
    pub parts: Count,
    pub promotions: Count,
    pub returns: Count,
    pub failures: Count,
    pub switches: Count,
    pub switch_nanoseconds: Count,
    pub thresholds: Count,
    pub refusals: Count,
    pub eager_threshold: Count,
}

/// Something that is counted.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// So many more.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// At least that many.
    pub fn raise(&self, to: u64) {
        self.0.fetch_max(to, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl PairCounts {
    /// With what others count: reliable delivery by datagrams its first ones and repeated ones, pools
    /// their bytes, now and at most.
    pub fn with(
        &self,
        datagrams: u64,
        datagrams_resent: u64,
        (pool_bytes, pool_bytes_peak): (u64, u64),
    ) -> NetworkCounters {
        NetworkCounters {
            datagrams,
            datagrams_resent,
            by_pairs: self.by_pairs.get(),
            sends_by_pairs: self.sends.get(),
            parts: self.parts.get(),
            promotions: self.promotions.get(),
            returns: self.returns.get(),
            failures: self.failures.get(),
            switches: self.switches.get(),
            switch_nanoseconds: self.switch_nanoseconds.get(),
            thresholds: self.thresholds.get(),
            refusals: self.refusals.get(),
            eager_threshold: self.eager_threshold.get(),
            pool_bytes,
            pool_bytes_peak,
            registrations_used_again: 0,
            senseless: 0,
        }
    }
}
