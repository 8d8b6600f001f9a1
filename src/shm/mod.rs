//! One node's memory: mapping, typed access, segment layout, symmetric heap, rings, locks,
//! parking, liveness. Knows nothing of the network, and nothing of tags, windows or teams.

#[cfg(not(loom))]
pub mod alloc;
pub mod bias;
pub(crate) mod bits;
#[cfg(not(loom))]
pub mod copy;
mod crash;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
pub mod liveness;
pub mod lock;
#[cfg(not(loom))]
pub mod map;
#[cfg(not(loom))]
pub mod node;
#[cfg(not(loom))]
pub mod observer;
pub mod park;
#[cfg(not(loom))]
pub mod region;
pub mod ring;
pub mod section;
#[cfg(not(loom))]
pub mod segment;
pub mod seq;
#[cfg(not(loom))]
pub mod wiring;
