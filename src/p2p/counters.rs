//! What a process has done with messages so far.

use super::engine::Engine;
use crate::base::sync::{AtomicU64, Ordering};

/// What a process has done with tagged messages so far, and what it holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MessageCounters {
    /// Messages that were announced: their data did not travel with them.
    pub announced: u64,
    /// Large messages that this process copied from their sender's memory.
    pub pulled: u64,
    /// Large messages of which this process and their sender copied a half each.
    pub halved: u64,
    /// Large messages that this process copied into a receive that waited for them.
    pub fulfilled: u64,
    /// Messages that came in pieces because neither side could copy from or to the other.
    pub streamed: u64,
    /// Large messages of other nodes that this process read out of their sender's memory.
    pub fetched: u64,
    /// Receives of which their sources were told.
    pub advertised: u64,
    /// Messages that came before they were asked for.
    pub unexpected: u64,
    /// Bytes that such messages took at most at a time.
    pub unexpected_peak: u64,
    /// Receives that wait.
    pub posted: u64,
    /// Messages that wait to be asked for, the library's own between nodes among them.
    pub waiting: u64,
    /// Sends that were announced and are not over.
    pub sending: u64,
    /// Large messages that this process put into a buffer of their receiver's pool, or sent to another
    /// node with their data.
    pub pooled: u64,
    /// Messages that this process put into a buffer of its own for their receiver to copy out of.
    pub lent: u64,
    /// Bytes of the buffers for these.
    pub lent_bytes: u64,
    /// Messages that would have gone by a pool, had a buffer been free.
    pub missed: u64,
    /// Changes of an eager threshold that this process asked for and that were made.
    pub switches: u64,
    /// Those that it asked for and that were refused.
    pub refusals: u64,
    /// Nanoseconds that changes took in all, from asking to the end; messages went on meanwhile.
    pub switching_ns: u64,
    /// Nanoseconds that the longest one took.
    pub longest_switch_ns: u64,
    /// The largest eager threshold by which this process came to send, in bytes; 0: none beyond
    /// short messages.
    pub eager_threshold: u64,
    /// Buffers made for pools in which this process receives, and how many of them were freed.
    pub pool_buffers_made: u64,
    /// See [`MessageCounters::pool_buffers_made`].
    pub pool_buffers_freed: u64,
    /// Nanoseconds that making and freeing them took.
    pub pool_memory_ns: u64,
    /// Bytes of the buffers in such pools.
    pub pool_bytes: u64,
    /// The most that there were.
    pub pool_bytes_peak: u64,
    /// Messages of this library's protocol that made no sense. About the change of a threshold:
    /// that peer's changes are ignored from then on. Others: every call fails.
    pub protocol_errors: u64,
}

/// The counters while they count.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub announced: AtomicU64,
    pub pulled: AtomicU64,
    pub halved: AtomicU64,
    pub fulfilled: AtomicU64,
    pub streamed: AtomicU64,
    pub fetched: AtomicU64,
    pub advertised: AtomicU64,
    pub pooled: AtomicU64,
    pub missed: AtomicU64,
    pub senseless: AtomicU64,
    unexpected: AtomicU64,
    peak: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counting {
    /// One more unexpected message. Called with the engine's lock held, so it needs no atomic
    /// addition.
    pub fn unexpected(&self, engine: &Engine) {
        self.unexpected.store(self.unexpected.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if engine.held as u64 > self.peak.load(Ordering::Relaxed) {
            self.peak.store(engine.held as u64, Ordering::Relaxed);
        }
    }

    /// All of them, with what the engine holds.
    pub fn read(&self, engine: &Engine) -> MessageCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MessageCounters {
            announced: read(&self.announced),
            pulled: read(&self.pulled),
            halved: read(&self.halved),
            fulfilled: read(&self.fulfilled),
            streamed: read(&self.streamed),
            fetched: read(&self.fetched),
            advertised: read(&self.advertised),
            unexpected: read(&self.unexpected),
            unexpected_peak: read(&self.peak),
            posted: engine.matching.posted_len() as u64,
            waiting: engine.matching.unexpected_len() as u64,
            sending: engine.sendings.len() as u64,
            pooled: read(&self.pooled),
            missed: read(&self.missed),
            protocol_errors: read(&self.senseless),
            ..MessageCounters::default()
        }
    }
}
