//! A network in one process, in virtual time: any number of devices joined by links with a latency
//! and a bandwidth. Deterministic: with one thread the same seed and the same calls give the same
//! run, to the nanosecond.
//!
//! Time stands still while programs compute and moves in [`Channel::wait`] and [`Network::step`]
//! only, event by event: a loop that only polls sees nothing arrive. A wait without an end returns
//! `Elapsed` when nothing is under way any more, for then nothing would ever wake it.
//!
//! ```text
//!  post -> frames -> [ node's link: one after the other, bytes / bandwidth ] -> latency -> arrival
//! ```
//! [`Network::in_real_time`] is the same with the machine's time, for ranks that are threads and
//! know nothing of it.
//!
//! Like RDMA devices it never tells an idle queue pair that its peer is gone.
//!
//! [`Channel::wait`]: super::provider::Channel::wait

mod channel;
mod clock;
mod device;
mod network;
mod rc;
#[cfg(test)]
mod tests;
mod ud;

pub use network::{Network, Parameters};
