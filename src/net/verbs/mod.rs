//! RDMA devices: RoCE v2 and InfiniBand, by rdma-core's `libibverbs`, which is loaded at run time. A
//! machine without it has no such device ([`available`] says why), and everything else works.
//!
//! ```text
//!  bindings   the library's layouts and functions        library    loading it
//!  policy     which device, port and GID, and why        context    opened devices and their ports
//!  timing, status, address, ring                         without input and output
//!  hub        what the objects of a device share: domain, registered memory (region), events
//!  channel    ibv_comp_channel      queue   ibv_cq       shared     ibv_srq
//!  pair       what both kinds of ibv_qp have in common   post       posting to them
//!  rc, ud     the two kinds, ud with address handles     keeper     events; asking idle pairs' peers
//!  device     all of it behind the interface
//! ```
//!
//! Every object keeps what it is made of, so that the device takes them apart in the right order.
//! Queue pairs know by a ring what was posted to them: devices tell of an operation that failed little
//! more than its number, and of those that are not signalled nothing.
//!
//! Costs. Posting takes the queue pair's lock and gives up to eight requests to the device in one
//! call; nothing is allocated. Polling takes the completion queue's lock, and for each completion that
//! of its queue pair. Of a datagram's receive 40 bytes are read to tell its sender.
//!
//! What devices do not tell cannot be counted ([`Counters`](super::provider::Counters)): what peers
//! were refused, datagrams without a receive. Datagrams with another job's key are counted by the
//! port, for all processes that use it.

mod address;
mod bindings;
mod channel;
mod context;
mod device;
mod hub;
mod keeper;
mod library;
mod pair;
mod policy;
mod post;
mod queue;
mod rc;
mod region;
mod ring;
mod shared;
mod status;
#[cfg(test)]
mod tests;
mod timing;
mod ud;

use crate::base::{Error, Result, forked, settings};
use crate::net::provider::Device;
use context::Context;
pub use policy::Network;
use policy::{Choice, Subnet, Wish};
use std::sync::Arc;

/// Most pieces of memory in one operation.
const PIECES: usize = 8;

/// How to open a device.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all processes of a job know and others do not.
    pub cookie: u64,
    /// Longest datagram; the device's own limit (the MTU) may be less.
    pub datagram: u32,
    /// Traffic class (type of service) of all packets.
    pub traffic_class: u8,
    wish: Wish,
}

impl Config {
    /// From the settings.
    pub fn from_settings(cookie: u64) -> Result<Config> {
        let datagram = settings::NET_DATAGRAM.bytes()?.clamp(256, u32::MAX.into()) as u32;
        let small = |setting: &settings::Setting| -> Result<u8> {
            let number = setting.number()?;
            u8::try_from(number)
                .map_err(|_| Error::invalid(setting.name, format!("{number}, and 255 is the most")))
        };
        let subnet = match settings::NET_SUBNET.text() {
            text if text.is_empty() => None,
            text => Some(Subnet::parse(&text).ok_or_else(|| {
                let why = format!("\"{text}\" is no subnet such as 10.0.0.0/8");
                Error::invalid(settings::NET_SUBNET.name, why)
            })?),
        };
        let gid = match settings::NET_GID.text().as_str() {
            "auto" => None,
            _ => Some(small(&settings::NET_GID)?.into()),
        };
        let device = Some(settings::NET_DEVICE.text()).filter(|name| !name.is_empty());
        let port = Some(small(&settings::NET_PORT)?).filter(|port| *port != 0);
        let wish = Wish { device, port, subnet, gid };
        let traffic_class = small(&settings::NET_TRAFFIC_CLASS)?;
        Ok(Config { cookie, datagram, traffic_class, wish })
    }
}

/// A device's port, as other programs name what a job would use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The device's name.
    pub device: String,
    /// Its port.
    pub port: u8,
    /// Index of the address in the port's table; none on InfiniBand, where it need not be said.
    pub gid: Option<u32>,
    /// For people: what it is and why it.
    pub reason: String,
}

/// The device and port that would be used; or why there is none. Opens every device for a moment:
/// milliseconds.
pub fn chosen(config: &Config) -> Result<Chosen, String> {
    let (_, Choice { device, port, link, entry, reason }) = find(config)?;
    let gid = (link == policy::Link::Ethernet).then_some(entry.index);
    Ok(Chosen { device, port, gid, reason })
}

/// What would be used and why it, for people; or why there is none. As [`chosen`].
pub fn available(config: &Config) -> Result<String, String> {
    chosen(config).map(|chosen| chosen.reason)
}

fn find(config: &Config) -> Result<(Context, Choice), String> {
    let verbs = library::functions()?;
    let mut all = Context::all(verbs);
    let mut ports = Vec::new();
    for context in &all {
        // One that does not answer is not used.
        ports.extend(context.ports().unwrap_or_default());
    }
    let choice = policy::choose(&ports, &config.wish)?;
    let at = all.iter().position(|context| context.name == choice.device);
    let at = at.ok_or("the device is gone")?;
    Ok((all.swap_remove(at), choice))
}

/// Opens the device that the settings want and the policy finds; also the kind of network it is on:
/// only devices on the same kind reach each other.
///
/// # Errors
/// There is none: no library, no device, no active port, nothing that fits the settings; or its
/// limits (locked memory above all) are too low.
pub fn open(config: &Config) -> Result<(Arc<dyn Device>, Network)> {
    forked::refuse_forked("opening a network device")?;
    let (context, choice) =
        find(config).map_err(|why| Error::invalid("an RDMA device for the network", why))?;
    Ok((device::open(context, &choice, config)?, choice.network()))
}

/// How much memory this process may lock, which registering needs, for people.
pub fn locked_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.map_or_else(|| "unlimited".into(), |bytes| format!("{} KiB", bytes >> 10))
}
