//! The edge of a node: traffic that leaves it.
//!
//! [`provider`] is the interface to what carries it: queue pairs, completion queues, registered
//! memory, in the terms of RDMA devices. Everything above is written against it and does not know
//! which device it is. Nothing here knows of shared memory, and `shm` knows nothing of this.

pub mod fault;
pub mod memory;
pub mod provider;
pub mod sim;
pub mod sockets;
mod soft;

#[cfg(test)]
mod conformance;
