//! Which rank of a job sits on which node, and what number a node gives to each process.
//!
//! ```text
//! 7 ranks on 3 nodes      node 0      node 1     node 2
//! ranks                   0  1  2     3  4       5  6
//! slots as node 1 has     2  3  4     0  1       5  6
//! ```
//! A node numbers its own processes first (they are the places in its memory), and those of other
//! nodes behind them in the order of their ranks. The number of a process differs between nodes,
//! so what travels between nodes names ranks.
//!
//! Everything is computed: constant size whatever the number of ranks (paper 001, section 5.3).

use crate::base::{Error, Rank, Result, Slot};
use std::ops::Range;

/// Most ranks of a job: a slot is a number of 16 bits, and some words hold it plus one.
pub const MAX_RANKS: u32 = u16::MAX as u32 - 1;

/// Ranks in consecutive blocks on nodes, as equal as they can be, seen from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    ranks: u32,
    nodes: u32,
    node: u32,
}

impl Placement {
    /// `ranks` ranks on `nodes` nodes, seen from `node`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no ranks, no nodes, more nodes than ranks, too many ranks, no
    /// such node.
    pub fn new(ranks: u32, nodes: u32, node: u32) -> Result<Placement> {
        let refuse = |what, why| Err(Error::invalid(what, why));
        if ranks == 0 || ranks > MAX_RANKS {
            return refuse("number of ranks", format!("{ranks} is not in 1..={MAX_RANKS}"));
        }
        if nodes == 0 || nodes > ranks {
            let why = format!("{nodes} nodes for {ranks} ranks; each node has one rank or more");
            return refuse("number of nodes", why);
        }
        if node >= nodes {
            return refuse("node", format!("{node} is not below {nodes}"));
        }
        Ok(Placement { ranks, nodes, node })
    }

    /// A job of one node.
    pub fn one_node(ranks: u32) -> Result<Placement> {
        Placement::new(ranks, 1, 0)
    }

    /// The same job seen from the node of `rank`; from this one if there is no such rank.
    pub fn seen_from(self, rank: Rank) -> Placement {
        Placement { node: self.node_of(rank).unwrap_or(self.node), ..self }
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The node from which it is seen.
    pub fn node(&self) -> u32 {
        self.node
    }

    fn first(&self, node: u32) -> u32 {
        let (each, more) = (self.ranks / self.nodes, self.ranks % self.nodes);
        node * each + node.min(more)
    }

    /// The ranks on a node; none on one that does not exist.
    pub fn ranks_on(&self, node: u32) -> Range<u32> {
        if node >= self.nodes {
            return 0..0;
        }
        self.first(node)..self.first(node + 1)
    }

    /// The ranks on this node.
    pub fn local_ranks(&self) -> Range<u32> {
        self.ranks_on(self.node)
    }

    /// How many there are.
    #[inline]
    pub fn locals(&self) -> u32 {
        self.local_ranks().len() as u32
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: Rank) -> Option<u32> {
        if rank.0 >= self.ranks {
            return None;
        }
        let (each, more) = (self.ranks / self.nodes, self.ranks % self.nodes);
        let large = more * (each + 1);
        Some(if rank.0 < large { rank.0 / (each + 1) } else { more + (rank.0 - large) / each })
    }

    /// The number that this node gives to the process of `rank`.
    #[inline]
    pub fn slot_of(&self, rank: Rank) -> Option<Slot> {
        if rank.0 >= self.ranks {
            return None;
        }
        let here = self.local_ranks();
        let slot = if rank.0 < here.start {
            here.len() as u32 + rank.0
        } else if rank.0 < here.end {
            rank.0 - here.start
        } else {
            rank.0
        };
        Some(Slot(slot as u16))
    }

    /// The rank of the process to which this node gives the number `slot`.
    #[inline]
    pub fn rank_of(&self, slot: Slot) -> Option<Rank> {
        let (slot, here) = (u32::from(slot.0), self.local_ranks());
        if slot >= self.ranks {
            return None;
        }
        let locals = here.len() as u32;
        Some(Rank(if slot < locals {
            here.start + slot
        } else if slot < here.end {
            slot - locals
        } else {
            slot
        }))
    }

    /// Whether that process is on this node.
    #[inline]
    pub fn is_local(&self, slot: Slot) -> bool {
        u32::from(slot.0) < self.locals()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_jobs_are_refused() {
        for (ranks, nodes, node) in [(0, 1, 0), (4, 0, 0), (4, 5, 0), (4, 2, 2), (1 << 17, 2, 0)] {
            assert!(Placement::new(ranks, nodes, node).is_err(), "{ranks} {nodes} {node}");
        }
    }

    proptest! {
        #[test]
        fn every_rank_has_one_node_and_one_number_on_each(
            ranks in 1..200u32, nodes in 1..20u32, from in any::<u32>(),
        ) {
            let nodes = nodes.min(ranks);
            let placement = Placement::new(ranks, nodes, from % nodes).unwrap();
            let mut all = Vec::new();
            for node in 0..nodes {
                let here = placement.ranks_on(node);
                prop_assert!(here.len() as u32 == ranks / nodes || here.len() as u32 == ranks / nodes + 1);
                for rank in here {
                    prop_assert_eq!(placement.node_of(Rank(rank)), Some(node));
                    all.push(rank);
                }
            }
            prop_assert_eq!(all, (0..ranks).collect::<Vec<_>>());
            let mut slots = Vec::new();
            for rank in (0..ranks).map(Rank) {
                let slot = placement.slot_of(rank).unwrap();
                prop_assert_eq!(placement.rank_of(slot), Some(rank));
                let local = placement.node_of(rank) == Some(placement.node());
                prop_assert_eq!(placement.is_local(slot), local);
                slots.push(slot.0);
            }
            // Those of other nodes come in the order of their ranks.
            let far: Vec<u16> = slots.iter().copied().filter(|&s| u32::from(s) >= placement.locals()).collect();
            prop_assert!(far.is_sorted());
            slots.sort_unstable();
            prop_assert_eq!(slots, (0..ranks as u16).collect::<Vec<_>>());
            prop_assert_eq!(placement.slot_of(Rank(ranks)), None);
            prop_assert_eq!(placement.rank_of(Slot(ranks as u16)), None);
            prop_assert_eq!(placement.node_of(Rank(ranks)), None);
            let other = placement.seen_from(Rank(ranks - 1));
            prop_assert_eq!(other.node(), nodes - 1);
        }
    }
}
