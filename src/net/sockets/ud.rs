//! Datagram queue pairs: a UDP socket each.

use super::address::Spot;
use super::device::Owner;
use super::engine::{Engine, Token};
use crate::base::slab::Slab;
use crate::base::{Error, Result};
use crate::net::provider::{Address, Datagram, Peer, PostError, Receive, Refused, UdQueuePair};
use crate::net::soft::count;
use crate::net::soft::datagram::{HEADER, Ud};
use crate::net::soft::objects::Counted;
use rustix::event::epoll::EventFlags;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};

/// Datagrams taken in one go, so that one queue pair does not keep the others waiting.
const AT_ONCE: usize = 32;

pub(super) struct SocketUd {
    ud: Ud,
    socket: UdpSocket,
    spot: Spot,
    peers: Mutex<Slab<Spot>>,
    buffer: Mutex<Vec<u8>>,
    owner: Arc<Owner>,
    _counted: Counted,
}

impl Drop for SocketUd {
    fn drop(&mut self) {
        self.owner.engine.forget(&self.socket);
        self.owner.engine.remove(self.ud.number);
    }
}

impl SocketUd {
    pub fn new(owner: &Arc<Owner>, ud: Ud, counted: Counted) -> Result<Arc<SocketUd>> {
        let failed = |e: std::io::Error| Error::os("making a UDP socket for a queue pair", e);
        let engine: &Engine = &owner.engine;
        let socket = UdpSocket::bind((engine.here.ip(), 0)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        // As much as the system gives: what has no room there is lost.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        let number = ud.number;
        let local = socket.local_addr().map_err(failed)?;
        let spot = Spot { socket: local, number, incarnation: 0, connected: false };
        let buffer = Mutex::new(Vec::with_capacity(HEADER + ud.limit as usize));
        let (peers, owner) = (Mutex::default(), owner.clone());
        let ud = Arc::new(SocketUd { ud, socket, spot, peers, buffer, owner, _counted: counted });
        ud.owner.engine.add_ud(&ud, number);
        ud.owner.engine.watch(&ud.socket, Token::ud(number), EventFlags::IN)?;
        Ok(ud)
    }

    /// Something came.
    pub fn readable(&self, scratch: &mut [u8]) {
        for _ in 0..AT_ONCE {
            match self.socket.recv_from(scratch) {
                Ok((length, from)) => self.ud.arrive(&scratch[..length], |number| {
                    Spot { socket: from, number, incarnation: 0, connected: false }.address()
                }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // What a datagram of ours met on its way: it is lost, like others.
                Err(_) => count(&self.ud.shared.unwanted),
            }
        }
    }

    fn send_one(&self, datagram: &Datagram<'_>, buffer: &mut Vec<u8>) -> Result<(), PostError> {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let to = *peers.get(datagram.to.0).ok_or(PostError::UnknownPeer)?;
        drop(peers);
        if !self.ud.pack(datagram, to.number, buffer)? {
            return Ok(());
        }
        match self.socket.send_to(buffer, to.socket) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.ud.unsent();
                Err(PostError::Full)
            }
            // Unreachable now: lost, like others.
            _ => {
                self.ud.sent(datagram);
                Ok(())
            }
        }
    }
}

impl UdQueuePair for SocketUd {
    fn number(&self) -> u32 {
        self.ud.number
    }

    fn address(&self) -> Address {
        self.spot.address()
    }

    fn open_peer(&self, address: &Address) -> Result<Peer> {
        let spot = Spot::from_address(address, false)
            .filter(|spot| spot.socket.is_ipv4() == self.spot.socket.is_ipv4());
        let spot = spot.ok_or_else(|| {
            Error::invalid(
                "a peer's address",
                "it is not of a datagram queue pair over sockets of the same IP version",
            )
        })?;
        Ok(Peer(self.peers.lock().unwrap_or_else(PoisonError::into_inner).insert(spot)))
    }

    fn close_peer(&self, peer: Peer) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(peer.0);
    }

    fn send(&self, datagrams: &[Datagram<'_>]) -> Result<(), Refused> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        for (posted, datagram) in datagrams.iter().enumerate() {
            self.send_one(datagram, &mut buffer).map_err(|why| Refused { posted, why })?;
        }
        Ok(())
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.ud.receive(receives)
    }
}
