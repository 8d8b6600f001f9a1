//! What everybody needs and nobody argues about: ids, errors, deadlines, settings, counters and
//! the one place atomics come from.

#[cfg(not(loom))]
pub mod adapt;
#[cfg(not(loom))]
pub(crate) mod copy;
pub mod error;
#[cfg(not(loom))]
pub(crate) mod filling;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod forked;
#[cfg(not(loom))]
pub mod hints;
pub mod ids;
#[cfg(not(loom))]
pub(crate) mod keys;
#[cfg(not(loom))]
pub(crate) mod long;
#[cfg(not(loom))]
mod nontemporal;
pub(crate) mod prefetch;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod reentry;
#[cfg(not(loom))]
pub(crate) mod request;
#[cfg(not(loom))]
pub mod settings;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod signals;
#[cfg(not(loom))]
pub(crate) mod slab;
#[cfg(not(loom))]
pub(crate) mod stores;
pub mod sync;
pub mod time;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod version;
#[cfg(not(loom))]
mod wide;

pub use error::{Error, Result};
pub use ids::{Offset, Rank, Slot};
#[cfg(not(loom))]
pub use request::Request;
pub use time::Deadline;
