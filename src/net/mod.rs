//! The edge of a node: traffic that leaves it.
//!
//! [`provider`] is the interface to what carries it: queue pairs, completion queues, registered
//! memory, in the terms of RDMA devices. Everything above is written against it and does not know
//! which device it is. Nothing here knows of shared memory, and `shm` knows nothing of this.
//!
//! ```text
//!   ud, wire       messages over datagrams     pools      receive buffers by size class
//!   switch         datagrams <-> queue pairs   regcache   registrations that are kept
//!   promotion      who gets a queue pair       ranks      where ranks are, without tables
//!        these do no input or output
//!   provider       the interface; sockets, sim, fault: what is behind it
//! ```

mod alarm;
pub mod fault;
pub mod memory;
pub mod pools;
pub mod promotion;
pub mod provider;
pub mod ranks;
pub mod regcache;
pub mod sim;
pub mod sockets;
mod soft;
pub mod switch;
pub mod ud;
pub mod verbs;
pub mod wire;

#[cfg(test)]
mod conformance;
