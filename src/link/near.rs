//! Lanes first to near ranks.
//!
//! A process has [`LANES`] lanes to give. In a job in which not every peer can have one, a peer
//! that shares a cache gains most from it (its messages never leave that cache), so connections
//! become hot the sooner, the nearer the peer: the number of messages it takes is multiplied by
//! a factor that grows with the distance of the two cores.

use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::shm::node::Node;
use crate::shm::segment::LANES;
use crate::topo::{Distance, Topology};
use std::sync::OnceLock;

/// What a link knows of its peers' distance: nothing before it has one, nor as long as there are
/// lanes for all.
#[derive(Debug, Default)]
pub struct Near(OnceLock<Option<Box<Topology>>>);

impl Near {
    fn topology(&self, node: &Node) -> Option<&Topology> {
        if node.size() as usize <= LANES + 1 {
            return None;
        }
        // Without a topology all peers are taken for equally near.
        self.0.get_or_init(|| Topology::detect().ok().map(Box::new)).as_deref()
    }

    /// Messages after which the connection to `peer` becomes hot. The first time that it matters
    /// it reads what the machine looks like: some system calls.
    pub fn lane_after(&self, node: &Node, peer: Slot, usual: u32) -> u32 {
        let Some(topology) = self.topology(node) else { return usual };
        // 0 where a rank is not bound.
        let core = |slot| node.rank_slot(slot).core.load(Ordering::Relaxed).checked_sub(1);
        let distance = topology.distance_between(core(node.slot()), core(peer));
        usual.saturating_mul(patience(distance))
    }
}

/// How many times the usual number of messages a peer at this distance has to send.
fn patience(distance: Distance) -> u32 {
    match distance {
        Distance::SameThread | Distance::SameCore | Distance::SameCache => 1,
        Distance::SameNuma => 2,
        Distance::SamePackage | Distance::Unknown => 4,
        Distance::OtherPackage => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_sooner() {
        let machine = Topology::synthetic("2x2x2x4x1").unwrap();
        let order: Vec<u32> = [0, 1, 4, 8, 16]
            .into_iter()
            .map(|cpu| patience(machine.distance_between(Some(0), Some(cpu))))
            .collect();
        assert_eq!(order, [1, 1, 2, 4, 8]);
        assert_eq!(patience(machine.distance_between(Some(0), None)), 4);
    }
}
