//! The agent that a launcher starts on another host: joins `boot::launch::agent`, which knows
//! processes, with what knows the node's memory, the machine, and its addresses.

use super::launch::{Recorder, seats};
use crate::base::{Error, Result, settings};
use crate::boot::launch::agent::{self, Prepared};
use crate::boot::launch::frame::Order;
use crate::net::sockets::find_address;
use crate::shm::node::Node;
use crate::shm::observer::Observer;
use crate::topo::{Bind, Places};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Serves a launcher on another host, over the standard input and output, to the end of its job: for
/// a program that is an agent and nothing else (`hither agent`). See
/// [`Launcher::agent`](super::Launcher::agent).
///
/// # Errors
/// What keeps it from beginning; the launcher is told of later failures.
pub fn serve() -> Result<()> {
    let copy = |fd| {
        rustix::io::fcntl_dupfd_cloexec(fd, 10)
            .map_err(|e| Error::os("duplicating the agent's connection", e))
    };
    let (input, output) = (copy(rustix::stdio::stdin())?, copy(rustix::stdio::stdout())?);
    // Whatever else is written goes elsewhere.
    let failed = |e| Error::os("redirecting the agent's output", e);
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(failed)?;
    agent::serve(input, output, prepare)
}

fn prepare(order: &Order, places: &Places) -> Result<Prepared> {
    let memory: OwnedFd = Node::create_memory(places.count_on(order.node), order.heap)?;
    let copy = memory.try_clone().map_err(|e| Error::os("duplicating a descriptor", e))?;
    let mut observers: Vec<Option<Observer>> = Vec::new();
    observers.resize_with(order.node as usize, || None);
    observers.push(Some(Observer::open(copy)?));
    let recorder = Recorder { places: places.clone(), observers };
    let bind = match order.bind {
        1 => Bind::Core,
        2 => Bind::Spread,
        _ => Bind::None,
    };
    let locals: Vec<u32> = places.ranks_on(order.node).collect();
    let cpus = seats(bind, &locals, &recorder)?;
    let address = choose(&order.address, &order.candidates)?.to_string();
    let env = vec![(settings::NET_ADDRESS.name.into(), address.clone().into())];
    Ok(Prepared { memory, watcher: Box::new(recorder), cpus, env, address })
}

/// The address that the network of this host's ranks is to use: in the subnet or of the interface that
/// the user wants, else the one by which the launcher has reached it.
fn choose(wanted: &str, candidates: &[String]) -> Result<IpAddr> {
    if !wanted.is_empty() {
        return resolve(wanted);
    }
    // client address, client port, server address, server port
    let ssh = settings::environment("SSH_CONNECTION");
    let ssh = ssh.as_deref().and_then(|text| text.split_whitespace().nth(2)).map(str::to_owned);
    let all = ssh.iter().chain(candidates).filter_map(|text| text.parse::<IpAddr>().ok());
    let own = |address: &IpAddr| UdpSocket::bind(SocketAddr::new(*address, 0)).is_ok();
    let mut usable = all.filter(|address| find_address(&address.to_string()).is_ok()).filter(own);
    usable.next().ok_or_else(|| {
        Error::boot(
            "by which address this host is reached is not known; choose an interface or subnet by \
             --net-address (HITHER_NET_ADDRESS)",
        )
    })
}

/// This machine's address by what users call it: an address, an interface, or a subnet as
/// `10.1.0.0/16`.
///
/// # Errors
/// [`Error::InvalidArgument`] if this machine has none of that kind.
pub(super) fn resolve(text: &str) -> Result<IpAddr> {
    let Some((network, bits)) = text.split_once('/') else { return find_address(text) };
    let wrong = |why: String| Error::invalid(settings::NET_ADDRESS.name, why);
    let parsed = network.parse::<IpAddr>().ok().zip(bits.parse::<u32>().ok());
    let Some((network, bits)) = parsed.filter(|(net, bits)| *bits <= width(net)) else {
        return Err(wrong(format!("\"{text}\" is no subnet; one is written as 10.1.0.0/16")));
    };
    // The address from which the kernel would send there. Nothing is sent, and nothing bound that
    // others could reach.
    let source = |to: IpAddr| {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
        rustix::net::connect(&socket, &SocketAddr::new(to, 9)).ok()?;
        let own = SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
        Some(own.ip())
    };
    let inside = |address: &IpAddr| prefix(address, bits) == prefix(&network, bits);
    let own = source(next(network)).filter(inside);
    own.ok_or_else(|| wrong(format!("this host has no address in the subnet {text}")))
}

fn width(address: &IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: &IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Which kind of address, and its first bits.
fn prefix(address: &IpAddr, bits: u32) -> (bool, u128) {
    let shift = width(address) - bits;
    (address.is_ipv4(), number(address).checked_shr(shift).unwrap_or(0))
}

/// The address after this one: a subnet's own is no host's.
fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() | 1).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() | 1).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_chosen_by_subnet_and_never_for_all_interfaces() {
        assert_eq!(resolve("127.0.0.0/8").unwrap().to_string(), "127.0.0.1");
        assert_eq!(resolve("127.0.0.1").unwrap().to_string(), "127.0.0.1");
        for wrong in ["0.0.0.0", "127.0.0.0/33", "x/8", "198.51.100.0/24", "::/129"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
        let candidates = ["0.0.0.0", "198.51.100.7", "127.0.0.1"].map(String::from);
        assert_eq!(choose("127.0.0.0/8", &[]).unwrap().to_string(), "127.0.0.1");
        let chosen = choose("", &candidates).unwrap();
        assert!(!chosen.is_unspecified() && chosen.to_string() != "198.51.100.7");
    }
}
