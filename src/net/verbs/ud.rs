//! Datagram queue pairs, and the routes to their peers (address handles). A route is shared by all
//! peers behind it, and stays until what was sent by it has completed.

use super::address::Spot;
use super::bindings::{self, GRH, Gid, halves, number};
use super::context::last_error;
use super::hub::Hub;
use super::pair::Pair;
use super::post::{Request, flag};
use super::ring::Slot;
use crate::base::slab::Slab;
use crate::base::{Error, Result};
use crate::net::provider::{
    Address, Datagram, Opcode, Peer, PostError, Receive, Refused, UdQueuePair,
};
use crate::net::verbs::device::Counted;
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An address handle.
struct Route {
    hub: Arc<Hub>,
    raw: NonNull<bindings::Handle>,
}

// SAFETY: the library's functions may be called for one handle from any thread.
unsafe impl Send for Route {}
// SAFETY: as above.
unsafe impl Sync for Route {}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { (self.hub.verbs().ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

#[derive(Default)]
struct Peers {
    open: Slab<(Arc<Route>, u32)>,
    routes: HashMap<(Gid, u16), Weak<Route>>,
    /// Closed ones, kept until everything before this number has completed.
    closed: VecDeque<(u64, Arc<Route>)>,
}

pub(super) struct VerbsUd {
    pair: Arc<Pair>,
    address: Address,
    peers: Mutex<Peers>,
    _counted: Counted,
}

impl Drop for VerbsUd {
    fn drop(&mut self) {
        // Nothing is made, so nothing can fail.
        let _ = self.pair.renew(false);
    }
}

impl VerbsUd {
    pub fn new(pair: Arc<Pair>, counted: Counted) -> VerbsUd {
        let number = pair.lock().raw.as_ref().map_or(0, |raw| raw.number());
        let address = pair.hub.spot(number, false).address(pair.hub.cookie);
        VerbsUd { pair, address, peers: Mutex::default(), _counted: counted }
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn route(&self, peers: &mut Peers, spot: &Spot) -> Result<Arc<Route>> {
        if let Some(route) = peers.routes.get(&(spot.gid, spot.lid)).and_then(Weak::upgrade) {
            return Ok(route);
        }
        let hub = self.pair.hub.clone();
        let mut attr = hub.route(spot);
        // SAFETY: the domain lives, and the route keeps it.
        let raw = unsafe { (hub.verbs().ibv_create_ah)(hub.domain.raw(), &mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("finding the route to a peer"))?;
        let route = Arc::new(Route { hub, raw });
        peers.routes.retain(|_, route| route.strong_count() > 0);
        peers.routes.insert((spot.gid, spot.lid), Arc::downgrade(&route));
        Ok(route)
    }

    fn request(
        &self,
        peers: &Peers,
        datagram: &Datagram<'_>,
        request: &mut Request<'_>,
    ) -> Result<Slot, PostError> {
        let (route, to) = peers.open.get(datagram.to.0).ok_or(PostError::UnknownPeer)?;
        let pair = &*self.pair;
        let length = request.data(&datagram.data, pair.hub.capabilities.datagram, pair)?;
        let immediate = datagram.immediate;
        request.wr.send_flags |= flag(datagram.signalled, number::SEND_SIGNALED)
            | flag(datagram.solicited, number::SEND_SOLICITED);
        request.wr.opcode =
            if immediate.is_some() { number::WR_SEND_WITH_IMM } else { number::WR_SEND };
        request.wr.imm_data = immediate.unwrap_or(0).to_be();
        let route = route.raw.as_ptr().expose_provenance() as u64;
        request.wr.wr = [route, halves(*to, pair.hub.qkey), 0, 0];
        Ok(Slot::new(datagram.id, Opcode::Send, length))
    }
}

impl UdQueuePair for VerbsUd {
    fn number(&self) -> u32 {
        self.pair.number
    }

    fn address(&self) -> Address {
        self.address
    }

    fn open_peer(&self, address: &Address) -> Result<Peer> {
        let hub = &self.pair.hub;
        let spot = Spot::decode(address, false, hub.cookie).map(|(spot, _)| spot);
        let spot = spot.filter(|spot| hub.same_fabric(spot)).ok_or_else(|| {
            Error::invalid(
                "a peer's address",
                "it is not of a datagram queue pair over verbs, on the same kind of network",
            )
        })?;
        let mut peers = self.peers();
        let route = self.route(&mut peers, &spot)?;
        Ok(Peer(peers.open.insert((route, spot.number))))
    }

    fn close_peer(&self, peer: Peer) {
        let mut peers = self.peers();
        let Some((route, _)) = peers.open.remove(peer.0) else { return };
        let line = self.pair.lock();
        let (oldest, next) = (line.sends.oldest(), line.sends.next());
        drop(line);
        while peers.closed.front().is_some_and(|(until, _)| *until <= oldest) {
            peers.closed.pop_front();
        }
        if next > oldest {
            peers.closed.push_back((next, route));
        }
    }

    fn send(&self, datagrams: &[Datagram<'_>]) -> Result<(), Refused> {
        let peers = self.peers();
        let mut line = self.pair.lock();
        self.pair.post_sends(&mut line, datagrams.len(), |i, request| {
            self.request(&peers, &datagrams[i], request)
        })
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        let shortest = self.pair.hub.capabilities.datagram + GRH;
        self.pair.post_receives(receives, shortest.into())
    }
}
