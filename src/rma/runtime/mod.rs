//! The one-sided runtime for windows whose parts are reached by packets: the scalable runtime of
//! paper 001 chapter 3 (§3.4.2-§3.4.6) with the adaptive issuing of chapter 4, as state machines
//! without input or output.
//!
//! In go calls and messages; out come messages to send, operations to perform here and data that
//! has arrived ([`Host`]). Nothing in here knows time, threads, shared memory or a network.

mod acquire;
mod collective;
mod counters;
mod crowd;
mod engine;
mod everyone;
mod fence;
mod give;
mod host;
mod issue;
mod limits;
mod line;
mod message;
mod passive;
mod pools;
mod progress;
mod pscw;
mod queries;
mod ranks;
mod reach;
mod reserve;
mod shared;
mod table;
#[cfg(test)]
mod tests;
mod window;

#[cfg(test)]
pub use counters::Counters;
pub use engine::Engine;
pub use fence::FenceFlags;
pub use host::{Host, Sent};
#[cfg(test)]
pub use limits::Issuing;
pub use limits::Limits;
pub use message::{Class, Fault, Message, Query, RequestId, Riders, WindowId};

/// How a target is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// With others that lock it shared.
    Shared,
    /// Alone.
    Exclusive,
}

/// What is said of a lock that is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockFlags {
    /// Nobody holds a conflicting one (`MPI_MODE_NOCHECK`): nothing is asked for.
    pub no_check: bool,
    /// The caller holds others of the window.
    pub beside: bool,
}

/// Why a call failed, or data will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This rank is dead.
    Dead(u32),
    /// This rank could not perform an operation, and why.
    Remote(u32, Fault),
    /// The call does not fit the state of the window.
    Misuse(&'static str),
}

/// What became of a message given to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Handled {
    /// It is dealt with.
    Done,
    /// A request that cannot be answered or performed now: give it again after progress, before any
    /// later request of the same rank.
    Busy,
    /// A round of a barrier or reduction that no member can have come to: the sender, or what
    /// carries its messages, is not to be relied on. Nothing has been done.
    Nonsense,
}
