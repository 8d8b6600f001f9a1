//! Faults over any device: what networks do, by a seeded plan, seen through the interface alone.
//!
//! - A datagram that is dropped goes to a queue pair of this decorator's that nobody looks at, so its
//!   completion comes as ever. One that is delayed does the same, and a copy follows when its time
//!   has come: at the next call of the device (post, poll, wait), and a wait ends in time for it.
//! - A duplicate is posted right before the original, unsignalled.
//! - A connected queue pair that is cut fails as one whose peer does not answer: the first operation
//!   completes with `RetryExceeded`. The peer finds out as its own device would tell it.
//!
//! Copies take room in the queues as any datagram: where there is none, what was held is lost, and
//! what a program sends may be refused earlier than its own datagrams alone would be, until it has
//! looked at completions.
//!
//! A sleeper that is woken to send what is due earlier than it had thought returns as if called.
//!
//! The decisions depend on the seed and the order of posts only.

mod device;
mod plan;
mod pool;
mod queues;
mod rc;
mod state;
#[cfg(test)]
mod tests;
mod ud;

pub use device::FaultDevice;

use std::time::Duration;

/// How often what happens, of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the decisions.
    pub seed: u64,
    /// Datagrams lost.
    pub drop: u32,
    /// Datagrams that arrive twice.
    pub duplicate: u32,
    /// Datagrams that are held for up to `delay_for`.
    pub delay: u32,
    /// See `delay`.
    pub delay_for: Duration,
    /// Datagrams that the next one overtakes.
    pub reorder: u32,
    /// Posts to connected queue pairs that find them cut.
    pub cut: u32,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Datagrams lost.
    pub dropped: u64,
    /// Datagrams sent twice.
    pub duplicated: u64,
    /// Datagrams held.
    pub delayed: u64,
    /// Datagrams that another overtook.
    pub reordered: u64,
    /// Queue pairs cut.
    pub cut: u64,
}
