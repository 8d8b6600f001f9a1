//! Sockets as a network device: for machines without RDMA, and to try several nodes on one.
//!
//! A datagram queue pair is a UDP socket. A connected one is two TCP connections, each made by the
//! side whose operations it carries, with the answers to them coming back on it: so a message that
//! waits for a receive holds up nothing but what was posted behind it.
//!
//! ```text
//!  A: queue pair                                   B: queue pair
//!     |  connect(B)  ---- hello, requests of A --->   |        hello: magic, version, cookie,
//!     |              <--- answers ----------------    |               number and incarnation of
//!     |  <--- hello, requests of B ---- connect(A)    |               the one called, address of
//!     |  ---- answers ---------------------------->   |               the caller
//! ```
//!
//! One-sided operations are carried out by the device's thread, which sleeps in `epoll` until
//! something comes or some patience ends, and by whoever polls a completion queue that is empty. A
//! user with a thread that always waits can do without the device's ([`Config::thread`]).
//!
//! Costs. A datagram: one system call and one copy on each side, besides the kernel's. A connected
//! operation: one system call to write it if the socket takes it (many operations share one where it
//! does not), one or two at the target (ask, read) and one for the answer; bytes are copied into
//! frames at the sender and out of them at the receiver, once each. Frames have 32 bytes of header for
//! 32 KiB at most. Every connected queue pair has two descriptors.
//!
//! Nothing listens on an address that was not chosen (`HITHER_NET_ADDRESS`; the default is this
//! machine only), and whoever does not know the job's cookie is counted and dropped. The cookie is
//! no encryption: it keeps out what comes by mistake, not who reads the wire.

mod address;
mod channel;
mod device;
mod engine;
mod hello;
mod interface;
mod rc;
mod stream;
#[cfg(test)]
mod tests;
mod ud;

pub use device::open;
pub use interface::find as find_address;

use crate::base::Result;
use crate::base::settings;
use std::net::IpAddr;

/// How to open the device.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all processes of a job know and others do not.
    pub cookie: u64,
    /// The address of this machine that everything is bound to; not the unspecified one.
    pub address: IpAddr,
    /// Longest datagram.
    pub datagram: u32,
    /// Whether the device has a thread of its own. Without one somebody has to wait in a channel of
    /// it whenever nobody polls: each message then wakes one thread less.
    pub thread: bool,
}

impl Config {
    /// From the settings.
    pub fn from_settings(cookie: u64) -> Result<Config> {
        let address = find_address(&settings::NET_ADDRESS.text())?;
        let datagram = settings::NET_DATAGRAM.bytes()?.min(u32::MAX.into()) as u32;
        Ok(Config { cookie, address, datagram, thread: true })
    }
}
