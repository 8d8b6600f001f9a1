//! One node's memory: mapping, typed access, segment layout, symmetric heap, rings, locks,
//! parking, liveness. Knows nothing of the network, and nothing of tags, windows or teams.

#[cfg(not(loom))]
pub(crate) mod alloc;
#[cfg(not(loom))]
mod aside;
#[cfg(not(loom))]
pub(crate) mod beyond;
pub(crate) mod bias;
pub(crate) mod bits;
#[cfg(not(loom))]
pub(crate) use crate::base::copy;
mod crash;
#[cfg(not(loom))]
mod crowd;
#[cfg(not(loom))]
pub(crate) mod forked;
#[cfg(not(loom))]
mod habit;
#[cfg_attr(loom, allow(dead_code, unused_imports))]
pub(crate) mod heap;
#[cfg(not(loom))]
pub(crate) mod holding;
#[cfg(not(loom))]
pub(crate) mod liveness;
pub mod lock;
#[cfg(not(loom))]
pub mod map;
#[cfg(not(loom))]
pub mod node;
#[cfg(not(loom))]
pub(crate) mod observer;
pub(crate) mod pair;
pub(crate) mod park;
#[cfg(not(loom))]
pub mod region;
pub mod ring;
#[cfg(not(loom))]
pub(crate) mod roll;
#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod section;
#[cfg(not(loom))]
pub mod segment;
pub(crate) mod seq;
#[cfg(not(loom))]
pub(crate) mod standing;
#[cfg(not(loom))]
mod sweep;
#[cfg(not(loom))]
#[cfg(not(loom))]
mod waiting;
#[cfg(not(loom))]
pub(crate) mod wiring;
