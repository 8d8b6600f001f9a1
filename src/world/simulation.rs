//! Jobs on several nodes in one process: ranks are threads, each node has its own shared memory, and
//! between nodes is a virtual network ([`crate::net::sim`]) with the machine's time.

use super::Job;
use super::VirtualNetwork;
use super::edge;
use crate::base::{Error, Rank, Result};
use crate::link::far::edge::Directory;
use crate::net::provider::Address;
use crate::net::sim::Network;
use crate::shm::node::Node;
use crate::topo::{Map, Placement};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Who opens its end before others are asked for theirs has this long at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job whose ranks are threads of this process, on nodes that a virtual network joins: for tests of
/// programs and of what becomes of them on networks that are slow, far or bad, without a launcher and
/// without sockets.
///
/// Settings are those of processes: `HITHER_NET_FAULTS` loses and doubles datagrams here, too.
#[derive(Clone, Debug)]
pub struct Simulation {
    ranks: u32,
    nodes: u32,
    map: Map,
    network: VirtualNetwork,
}

impl Simulation {
    /// `ranks` ranks on `nodes` nodes, block by block, with 2 µs and 12.5 GB/s between nodes.
    pub fn new(ranks: u32, nodes: u32) -> Simulation {
        Simulation { ranks, nodes, map: Map::Block, network: VirtualNetwork::default() }
    }

    /// Which ranks are on which node.
    pub fn map(mut self, map: Map) -> Simulation {
        self.map = map;
        self
    }

    /// What the network is like.
    pub fn network(mut self, network: VirtualNetwork) -> Simulation {
        self.network = network;
        self
    }

    /// Runs `body` on every rank; the results in rank order. As [`Job::threads`] otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for ranks that cannot be placed like that; as [`Job::threads`].
    ///
    /// # Panics
    /// As [`Job::threads`].
    pub fn run<R: Send>(self, body: impl Fn(Job) -> R + Send + Sync) -> Result<Vec<R>> {
        let places = self.map.places(self.ranks, Some(self.nodes))?;
        let network = Network::in_real_time(self.network)?;
        let published = Arc::new(Published::default());
        // The network is this job's alone: no cookie keeps anybody out.
        let cookie = 1;
        let connect = |node: &Arc<Node>| {
            if node.placement().nodes() == 1 {
                return Ok(());
            }
            edge::over(node, network.device(cookie), cookie, |address| {
                published.put(node.rank_of(node.slot()), address);
                Ok(Box::new(published.clone()))
            })
        };
        Job::threads_placed(Placement::of(places, 0)?, connect, body)
    }
}

/// Where the ranks are reached.
#[derive(Default)]
struct Published {
    all: Mutex<HashMap<Rank, Address>>,
    changed: Condvar,
}

impl Published {
    fn put(&self, rank: Rank, address: &Address) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(rank, *address);
        self.changed.notify_all();
    }
}

impl Directory for Arc<Published> {
    fn address(&self, rank: Rank) -> Result<Address> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |all: &mut HashMap<Rank, Address>| !all.contains_key(&rank);
        let waited = self.changed.wait_timeout_while(all, PATIENCE, waits);
        let (all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::boot(format!("rank {rank} has not said where it is reached"));
        all.get(&rank).copied().ok_or_else(missing)
    }
}
