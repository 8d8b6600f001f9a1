//! Datagrams through the virtual network.

use super::network::{Happening, Network, Place};
use crate::base::slab::Slab;
use crate::base::{Error, Result};
use crate::net::provider::{Address, Datagram, Peer, PostError, Receive, Refused, UdQueuePair};
use crate::net::soft::datagram::Ud;
use crate::net::soft::objects::Counted;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) struct SimUd {
    pub ud: Ud,
    pub place: Place,
    pub network: Arc<Network>,
    pub peers: Mutex<Slab<Place>>,
    pub _counted: Counted,
}

impl Drop for SimUd {
    fn drop(&mut self) {
        self.network.remove(self.place);
    }
}

impl SimUd {
    pub fn arrive(&self, bytes: &[u8], node: u32) {
        self.ud.arrive(bytes, |number| Place { node, number, incarnation: 0 }.address(false));
    }

    fn send_one(&self, datagram: &Datagram<'_>) -> Result<(), PostError> {
        let to = *self
            .peers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(datagram.to.0)
            .ok_or(PostError::UnknownPeer)?;
        // What is under way has memory of its own.
        let mut bytes = Vec::new();
        if self.ud.pack(datagram, to.number, &mut bytes)? {
            let length = bytes.len();
            let happening = Happening::Datagram { from: self.place, to, bytes };
            self.network.send(self.place.node, length, happening);
            self.ud.sent(datagram);
        }
        Ok(())
    }
}

impl UdQueuePair for SimUd {
    fn number(&self) -> u32 {
        self.place.number
    }

    fn address(&self) -> Address {
        self.place.address(false)
    }

    fn open_peer(&self, address: &Address) -> Result<Peer> {
        let place = Place::from_address(address, false).ok_or_else(|| {
            Error::invalid("a peer's address", "it is not of a simulated datagram queue pair")
        })?;
        Ok(Peer(self.peers.lock().unwrap_or_else(PoisonError::into_inner).insert(place)))
    }

    fn close_peer(&self, peer: Peer) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(peer.0);
    }

    fn send(&self, datagrams: &[Datagram<'_>]) -> Result<(), Refused> {
        for (posted, datagram) in datagrams.iter().enumerate() {
            self.send_one(datagram).map_err(|why| Refused { posted, why })?;
        }
        Ok(())
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.ud.receive(receives)
    }
}
