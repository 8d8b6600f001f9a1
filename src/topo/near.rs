//! Decisions for machines with many cores: whom to open lanes to first, who leads a group, where
//! an inbox's memory should be.
//!
//! Ranks are given by iterators of `(Rank, Option<CPU>)`, the CPU being the one the rank is
//! bound to (read from its slot, or computed by a [`Plan`](super::Plan)), `None` if it is not
//! bound. Nothing here stores anything per rank: orders are made by passing over the ranks again.

use super::cpuset::CpuSet;
use super::distance::Distance;
use super::model::{Level, Topology};
use crate::base::Rank;

/// A rank and the CPU it is bound to, if it is.
pub type Placed = (Rank, Option<u32>);

/// The other ranks of a team of `size` in the order `me + 1, ..., size - 1, 0, ..., me - 1`:
/// started like this, orders of different ranks do not all begin with the same peer.
pub fn others(me: Rank, size: u32) -> impl Iterator<Item = Rank> + Clone {
    (me.0.saturating_add(1)..size).chain(0..me.0.min(size)).map(Rank)
}

impl Topology {
    /// The peers with their distances from `here`, the nearest first; peers at one distance keep
    /// the order of `peers` (see [`others`]). The order in which lanes are opened while lanes
    /// are scarce.
    ///
    /// Stores nothing: passes over `peers` once per distance, seven times in all.
    pub fn near_first<'a>(
        &'a self,
        here: Option<u32>,
        peers: impl Iterator<Item = Placed> + Clone + 'a,
    ) -> impl Iterator<Item = (Distance, Rank)> + 'a {
        Distance::ALL.into_iter().flat_map(move |distance| {
            peers
                .clone()
                .filter(move |peer| self.distance_between(here, peer.1) == distance)
                .map(move |peer| (distance, peer.0))
        })
    }

    /// Number of the group of `level` that a CPU lies in; `None` for ranks that are not bound
    /// and for CPUs that are not in the machine. All such ranks together count as one group.
    pub fn group_of(&self, level: Level, cpu: Option<u32>) -> Option<u32> {
        self.cpu(cpu?).map(|cpu| cpu.group(level))
    }

    /// Leader of the group in which a rank bound to `here` works: the first of `ranks` in that
    /// group. Every rank that asks with the same `ranks` gets the same answer for its group.
    /// `None` only if no rank of the group is among `ranks`. One pass, up to the leader.
    pub fn leader(
        &self,
        level: Level,
        here: Option<u32>,
        ranks: impl IntoIterator<Item = Placed>,
    ) -> Option<Rank> {
        let mine = self.group_of(level, here);
        ranks.into_iter().find(|r| self.group_of(level, r.1) == mine).map(|r| r.0)
    }

    /// The leaders of all groups that have ranks, in the order of `ranks`. One pass; keeps one
    /// bit per group of the machine, nothing per rank.
    pub fn leaders<'a>(
        &'a self,
        level: Level,
        ranks: impl IntoIterator<Item = Placed> + 'a,
    ) -> impl Iterator<Item = Rank> + 'a {
        let mut led = vec![0u64; (self.count(level) as usize + 1).div_ceil(64)];
        ranks.into_iter().filter_map(move |(rank, cpu)| {
            // Bit 0 is the group of those that are not bound.
            let group = self.group_of(level, cpu).map_or(0, |g| g as usize + 1);
            let bit = 1 << (group % 64);
            let first = led[group / 64] & bit == 0;
            led[group / 64] |= bit;
            first.then_some(rank)
        })
    }

    /// The kernel's number of the NUMA node where memory that a rank running on `cpus` polls
    /// (its inbox, its incoming lanes, its part of windows) should be: the reader polls, so
    /// memory is at home with the reader. `None` if `cpus` spans nodes or the system has no
    /// numbers for them: then first touch decides as well as anything.
    ///
    /// A rank that is bound *before* it reserves its memory gets this by first touch.
    pub fn home_node(&self, cpus: &CpuSet) -> Option<u32> {
        let mut nodes = cpus.iter().map(|id| self.cpu(id).map(|cpu| cpu.numa));
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then(|| self.nodes[first as usize].id)?
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bind, Plan};
    use super::*;

    fn placed(
        plan: &Plan,
        ranks: impl Iterator<Item = Rank> + Clone,
    ) -> impl Iterator<Item = Placed> + Clone {
        ranks.map(|r| (r, plan.home_cpu(r)))
    }

    #[test]
    fn lanes_go_to_near_ranks_first_on_256_cpus() {
        let t = Topology::synthetic("2x4x2x8x2").unwrap();
        let plan = Plan::new(&t, Bind::Core, 256);
        for me in [0, 1, 77, 128, 200, 255].map(Rank) {
            let order: Vec<(Distance, Rank)> =
                t.near_first(plan.home_cpu(me), placed(&plan, others(me, 256))).collect();
            assert_eq!(order.len(), 255);
            assert!(order.is_sorted_by_key(|o| o.0), "nearest first");
            let mut ranks: Vec<u32> = order.iter().map(|o| o.1.0).collect();
            ranks.sort_unstable();
            ranks.dedup();
            assert!(ranks.len() == 255 && !ranks.contains(&me.0), "every other rank once");
            let at = |d| order.iter().filter(|o| o.0 == d).count();
            let counts = Distance::ALL.map(at);
            // 1 sibling, 7 other cores of the cache, 1 other cache of the node, 3 other nodes.
            assert_eq!(counts, [0, 1, 14, 16, 96, 128, 0]);
            // 64 lanes: all of the node's ranks are among them.
            assert!(order[..31].iter().all(|o| o.0 <= Distance::SameNuma));
        }
    }

    #[test]
    fn equal_peers_are_not_all_met_in_the_same_order() {
        let order = |me| others(Rank(me), 4).map(|r| r.0).collect::<Vec<_>>();
        assert_eq!(order(0), [1, 2, 3]);
        assert_eq!(order(2), [3, 0, 1]);
        assert_eq!(others(Rank(9), 2).count(), 2, "a rank outside the team has only peers");
        assert_eq!(others(Rank(0), 1).count(), 0);
    }

    #[test]
    fn every_group_has_one_leader_and_all_members_agree_on_it() {
        let t = Topology::synthetic("2x4x2x8x2").unwrap();
        for size in [1, 5, 8, 100, 128, 256, 300] {
            let plan = Plan::new(&t, Bind::Core, size);
            let all = || placed(&plan, (0..size).map(Rank));
            for level in [Level::Core, Level::Cache, Level::Numa, Level::Package, Level::Machine] {
                let leaders: Vec<Rank> = t.leaders(level, all()).collect();
                let mut groups: Vec<_> = all().map(|p| t.group_of(level, p.1)).collect();
                groups.sort_unstable();
                groups.dedup();
                assert_eq!(leaders.len(), groups.len(), "{size} {level:?}");
                for (rank, cpu) in all() {
                    let leader = t.leader(level, cpu, all()).unwrap();
                    assert!(leaders.contains(&leader) && leader <= rank);
                    let theirs = t.group_of(level, plan.home_cpu(leader));
                    assert_eq!(theirs, t.group_of(level, cpu));
                }
            }
        }
    }

    #[test]
    fn leaders_survive_the_death_of_the_first() {
        let t = Topology::synthetic("1x2x1x2x1").unwrap();
        let plan = Plan::new(&t, Bind::Core, 4);
        let left = [1, 2, 3].map(Rank);
        let all = || placed(&plan, left.into_iter());
        assert_eq!(t.leader(Level::Numa, plan.home_cpu(Rank(1)), all()), Some(Rank(1)));
        assert_eq!(t.leaders(Level::Numa, all()).collect::<Vec<_>>(), [Rank(1), Rank(2)]);
    }

    #[test]
    fn an_inbox_lives_with_its_reader() {
        let t = Topology::synthetic("2x4x2x8x2").unwrap();
        let plan = Plan::new(&t, Bind::Core, 128);
        for rank in (0..128).map(Rank) {
            let home = t.home_node(&plan.cpus(rank).unwrap());
            assert_eq!(home, Some(rank.0 / 16), "16 cores per node, ranks packed");
        }
        assert_eq!(t.home_node(&t.allowed_set()), None, "spans nodes");
        assert_eq!(t.home_node(&CpuSet::new()), None);
        assert_eq!(t.home_node(&CpuSet::parse("999").unwrap()), None);
    }
}
