//! Which rank of a job sits on which node, and what number a node gives to each process.
//!
//! ```text
//! 7 ranks on 3 nodes      0  1  2  3  4  5  6
//! nodes, equal blocks     0  0  0  1  1  2  2       nodes, cyclic    0  1  2  0  1  2  0
//! slots as node 1 has     2  3  4  0  1  5  6       as node 1 has    2  0  3  4  1  5  6
//! ```
//! A node numbers its own processes first, in the order of their ranks (they are the places in its
//! memory), and those of other nodes behind them, in that order too. The number of a process differs
//! between nodes, so what travels between nodes names ranks.
//!
//! Everything is computed, from the map of the job ([`Places`]) and from where in it a node's own
//! ranks are: constant size whatever the number of ranks where there is a rule (paper 001, section
//! 5.3), else what grows with the number of blocks in which ranks were placed.

use super::places::{Places, Stretch};
use crate::base::{Error, Rank, Result, Slot};
use std::sync::Arc;

pub use super::places::MAX_RANKS;

/// Where in a period the ranks of a node are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    One(Stretch),
    /// By their starts; one or more.
    Many(Arc<[Stretch]>),
}

/// The ranks of a job on nodes, seen from one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    places: Places,
    node: u32,
    locals: u32,
    /// Ranks after which the map repeats itself, and how many of them are on this node.
    period: u32,
    per: u32,
    own: Own,
}

impl Placement {
    /// `ranks` ranks on `nodes` nodes in consecutive blocks as equal as they can be, seen from `node`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no ranks, no nodes, more nodes than ranks, too many ranks, no
    /// such node.
    pub fn new(ranks: u32, nodes: u32, node: u32) -> Result<Placement> {
        Placement::of(Places::equal(ranks, nodes)?, node)
    }

    /// A job of one node.
    pub fn one_node(ranks: u32) -> Result<Placement> {
        Placement::new(ranks, 1, 0)
    }

    /// Ranks where a map has them, seen from `node`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such node.
    pub fn of(places: Places, node: u32) -> Result<Placement> {
        let own = {
            let mut stretches = places.stretches(node);
            match (stretches.next(), stretches.next()) {
                (None, _) => None,
                (Some(only), None) => Some(Own::One(only)),
                (Some(first), Some(second)) => {
                    Some(Own::Many([first, second].into_iter().chain(stretches).collect()))
                }
            }
        };
        let own = own.ok_or_else(|| {
            Error::invalid("node", format!("{node} is not below {}", places.nodes()))
        })?;
        let per = own.all().iter().map(|stretch| stretch.len).sum();
        let (locals, period) = (places.count_on(node), places.period());
        Ok(Placement { places, node, locals, period, per, own })
    }

    /// The same job seen from the node of `rank`; from this one if there is no such rank.
    pub fn seen_from(&self, rank: Rank) -> Placement {
        let there = self.node_of(rank).filter(|node| *node != self.node);
        let seen = there.and_then(|node| Placement::of(self.places.clone(), node).ok());
        seen.unwrap_or_else(|| self.clone())
    }

    /// The map of the job, as all nodes have it.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Ranks of the job.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.places.ranks()
    }

    /// Nodes of the job.
    #[inline]
    pub fn nodes(&self) -> u32 {
        self.places.nodes()
    }

    /// The node from which it is seen.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// How many ranks are on this node.
    #[inline]
    pub fn locals(&self) -> u32 {
        self.locals
    }

    /// The ranks on this node, in order.
    pub fn local_ranks(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.places.ranks_on(self.node)
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: Rank) -> Option<u32> {
        self.places.node_of(rank.0)
    }

    /// The number that the node of `rank` gives to its process.
    pub fn local_of(&self, rank: Rank) -> Option<Slot> {
        self.places.local_of(rank.0).map(|local| Slot(local as u16))
    }

    /// The number that this node gives to the process of `rank`: constant time, or the logarithm of
    /// the number of blocks that this node has in the map's pattern.
    #[inline]
    pub fn slot_of(&self, rank: Rank) -> Option<Slot> {
        let rank = rank.0;
        if rank >= self.ranks() {
            return None;
        }
        // No division where the map does not repeat itself.
        let (before, within) = if rank < self.period {
            (0, rank)
        } else {
            (rank / self.period * self.per, rank % self.period)
        };
        // Starts behind it, if all do.
        let last = self.own.last_of(|stretch| stretch.start <= within);
        let below = before + last.before + within.saturating_sub(last.start).min(last.len);
        let here = within >= last.start && within - last.start < last.len;
        let slot = if here { below } else { self.locals + (rank - below) };
        Some(Slot(slot as u16))
    }

    /// The rank of the process to which this node gives the number `slot`, at the same cost.
    #[inline]
    pub fn rank_of(&self, slot: Slot) -> Option<Rank> {
        let slot = u32::from(slot.0);
        if slot >= self.ranks() {
            return None;
        }
        // Where the period begins, and the how-manieth it is there.
        let split = |number: u32, each: u32| {
            if number < each { (0, number) } else { (number / each * self.period, number % each) }
        };
        Some(Rank(match slot.checked_sub(self.locals) {
            None => {
                let (round, within) = split(slot, self.per);
                let stretch = self.own.last_of(|stretch| stretch.before <= within);
                round + stretch.start + (within - stretch.before)
            }
            Some(other) => {
                // One at least: there is another node.
                let (round, within) = split(other, (self.period - self.per).max(1));
                let last = self.own.last_of(|stretch| stretch.start - stretch.before <= within);
                let behind = last.start - last.before <= within;
                round + within + if behind { last.before + last.len } else { 0 }
            }
        }))
    }

    /// Whether that process is on this node.
    #[inline]
    pub fn is_local(&self, slot: Slot) -> bool {
        u32::from(slot.0) < self.locals
    }
}

impl Own {
    fn all(&self) -> &[Stretch] {
        match self {
            Own::One(only) => std::slice::from_ref(only),
            Own::Many(all) => all,
        }
    }

    /// The last stretch for which `reached` holds, which holds for those before it; the first if for
    /// none.
    #[inline]
    fn last_of(&self, reached: impl Fn(&Stretch) -> bool) -> Stretch {
        match self {
            Own::One(only) => *only,
            Own::Many(all) => all[all.partition_point(reached).max(1) - 1],
        }
    }
}

#[cfg(test)]
mod tests;
