//! The place of a rendezvous of processes on any machines: a TCP address that its user chose.
//!
//! ```text
//! bind and listen there
//!    done                      -> lead
//!    in use, or not of this machine
//!       connect there
//!          connected           -> join the leader
//!          refused, no answer  -> wait a little, and again
//! ```
//! The kernel lets one listen at a time, so there is one leader; when it dies the address is free again.
//! Only processes of the machine that has the address can lead.

use crate::base::{Deadline, Error, Result};
use rustix::fd::OwnedFd;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Longest wait for one connection, and between two attempts.
const ATTEMPT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// What a process finds there.
#[derive(Debug)]
pub(super) enum Found {
    /// Nobody: it leads, and listens here.
    Nobody(TcpListener),
    /// Somebody, to whom this is connected.
    Somebody(OwnedFd),
    /// Nobody that could be reached before the deadline, for this reason.
    Late(String),
}

/// An address that tells one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port(SocketAddr);

impl Port {
    /// That at `address`.
    pub fn new(address: SocketAddr) -> Result<Port> {
        let ip = address.ip();
        if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
            let why = format!(
                "{address} does not tell one place; give the address by which the others reach the \
                 machine that leads, and a port"
            );
            return Err(Error::invalid("address of a rendezvous", why));
        }
        Ok(Port(address))
    }

    /// The address.
    pub fn address(self) -> SocketAddr {
        self.0
    }

    /// Goes there: leads, or connects to whoever does.
    pub fn enter(self, deadline: Deadline) -> Result<Found> {
        let mut pause = Duration::from_millis(1);
        loop {
            match TcpListener::bind(self.0) {
                Ok(listener) => {
                    let set = listener.set_nonblocking(true);
                    set.map_err(|e| Error::os("making the rendezvous' socket non-blocking", e))?;
                    return Ok(Found::Nobody(listener));
                }
                Err(error) => match error.kind() {
                    ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => {}
                    _ => {
                        let hint = "choose an address and port that this user may listen on";
                        let call = "listening at the address of the rendezvous";
                        return Err(Error::Os { call, source: error, hint });
                    }
                },
            }
            let patience = deadline.clamp(ATTEMPT).max(Duration::from_millis(1));
            let why = match TcpStream::connect_timeout(&self.0, patience) {
                Ok(stream) => match prepare(stream)? {
                    Some(socket) => return Ok(Found::Somebody(socket)),
                    None => "nobody listens".to_owned(),
                },
                Err(error) => error.to_string(),
            };
            if deadline.passed() {
                return Ok(Found::Late(why));
            }
            std::thread::sleep(deadline.clamp(pause));
            pause = (pause * 2).min(PAUSE);
        }
    }
}

/// Takes the next one who calls, if somebody does.
pub(super) fn accept(listener: &TcpListener) -> Result<Option<OwnedFd>> {
    match listener.accept() {
        Ok((stream, _)) => prepare(stream),
        Err(error) => match error.raw_os_error() {
            // No more descriptors or memory is this process's trouble; all else the caller's.
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                Err(Error::os("accept in the rendezvous", error))
            }
            _ => Ok(None),
        },
    }
}

/// A connection as it is used; nothing if it leads back to itself, as one to a free port of one's own
/// machine may, or is over already.
fn prepare(stream: TcpStream) -> Result<Option<OwnedFd>> {
    let (Ok(own), Ok(other)) = (stream.local_addr(), stream.peer_addr()) else { return Ok(None) };
    if own == other {
        return Ok(None);
    }
    stream
        .set_nonblocking(true)
        .and_then(|()| stream.set_nodelay(true))
        .map_err(|e| Error::os("setting up a connection of the rendezvous", e))?;
    Ok(Some(stream.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    /// An address on which nobody listens.
    pub fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn one_leads_and_the_next_one_does_when_it_is_gone() {
        let port = Port::new(free()).unwrap();
        let Found::Nobody(first) = port.enter(soon()).unwrap() else { panic!() };
        let Found::Somebody(caller) = port.enter(soon()).unwrap() else { panic!() };
        let called = loop {
            if let Some(called) = accept(&first).unwrap() {
                break called;
            }
        };
        assert!(accept(&first).unwrap().is_none());
        // Connections that stay do not keep the address.
        drop(first);
        let Found::Nobody(_second) = port.enter(soon()).unwrap() else { panic!() };
        drop((caller, called));
    }

    #[test]
    fn an_address_elsewhere_that_does_not_answer_is_given_up_in_time() {
        // Documentation's: nobody has it.
        let port = Port::new("192.0.2.1:7".parse().unwrap()).unwrap();
        let limit = Deadline::after(Duration::from_millis(100));
        assert!(matches!(port.enter(limit).unwrap(), Found::Late(_)));
    }

    #[test]
    fn addresses_that_tell_no_place_are_refused() {
        for address in ["0.0.0.0:7", "[::]:7", "127.0.0.1:0", "224.0.0.1:7"] {
            assert!(Port::new(address.parse().unwrap()).is_err(), "{address}");
        }
    }
}
