//! Binding: which CPUs each of a node's ranks runs on. Planning is a pure function of topology,
//! wish and number of ranks, so every rank and the launcher come to the same plan by themselves.

use super::cpuset::CpuSet;
use super::model::{Cpu, Topology};
use crate::base::{Error, Rank, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How ranks are to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Bind {
    /// The scheduler decides.
    None,
    /// A core for each rank, neighbours close together: a cache is filled before the next one is
    /// used, and every core has one rank before any core has two.
    #[default]
    Core,
    /// A core for each rank, spread evenly over the machine: the most cache and memory bandwidth
    /// for few ranks.
    Spread,
}

impl FromStr for Bind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Bind> {
        match text {
            "none" => Ok(Bind::None),
            "core" => Ok(Bind::Core),
            "spread" => Ok(Bind::Spread),
            _ => Err(Error::invalid("bind", format!("\"{text}\" is not none, core or spread"))),
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bind::None => "none",
            Bind::Core => "core",
            Bind::Spread => "spread",
        })
    }
}

/// What became of a plan's wish for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The calling thread runs on these CPUs only.
    To(CpuSet),
    /// Nothing was changed, because binding was not asked for, there are more ranks than CPUs,
    /// or the topology is synthetic.
    No,
}

/// Which CPUs each of `ranks` ranks runs on.
///
/// With at most as many ranks as allowed physical cores, every rank has a whole core (all its
/// allowed threads). With more, up to the number of allowed CPUs, further ranks take second and
/// later threads, and ranks that share a core are bound to one thread each. With still more
/// ranks no rank is bound ([`Plan::oversubscribed`]): two bound ranks of one CPU could only take
/// turns there while another CPU idles.
///
/// Takes memory in proportion to the CPUs, not to the ranks.
#[derive(Clone, Debug)]
pub struct Plan {
    ranks: u32,
    parallelism: u32,
    synthetic: bool,
    seats: Vec<Seat>,
}

#[derive(Clone, Debug)]
struct Seat {
    cpu: u32,
    /// The threads of the core, this one included, that no rank sits on.
    spare: Vec<u32>,
}

impl Plan {
    /// Plans for `ranks` ranks on one node. Costs time in O(CPUs log CPUs).
    pub fn new(topology: &Topology, bind: Bind, ranks: u32) -> Plan {
        let cpus = topology.allowed().count();
        let seats = if bind == Bind::None || ranks as usize > cpus {
            Vec::new()
        } else {
            seats(topology, bind, ranks as usize)
        };
        let parallelism = topology.parallelism();
        Plan { ranks, parallelism, synthetic: topology.synthetic, seats }
    }

    /// The CPUs of a rank (by its number on the node); `None` if it is not bound.
    pub fn cpus(&self, rank: Rank) -> Option<CpuSet> {
        let seat = self.seats.get(rank.index())?;
        Some(std::iter::once(seat.cpu).chain(seat.spare.iter().copied()).collect())
    }

    /// The CPU by which a rank's place is known (for distances and groups): the first that it
    /// was given; `None` if it is not bound.
    pub fn home_cpu(&self, rank: Rank) -> Option<u32> {
        self.seats.get(rank.index()).map(|seat| seat.cpu)
    }

    /// Whether there are more ranks than can run at the same time, by CPUs or by the control
    /// group's quota. Waits should then yield early.
    pub fn oversubscribed(&self) -> bool {
        self.ranks > self.parallelism
    }

    /// Whether ranks are bound.
    pub fn binds(&self) -> bool {
        !self.seats.is_empty()
    }

    /// What a user should know about this plan, if anything: that ranks share CPUs, and whether
    /// they are bound all the same.
    pub fn note(&self) -> Option<String> {
        if !self.oversubscribed() {
            return None;
        }
        let unbound = !self.binds();
        Some(format!(
            "{} ranks share {} CPU{}{}",
            self.ranks,
            self.parallelism,
            if self.parallelism == 1 { "" } else { "s" },
            if unbound { "; ranks are not bound" } else { "" }
        ))
    }

    /// Binds the calling thread, and threads it starts from now on, as planned for `rank`. To be
    /// called before other threads are started and before memory is reserved, so that memory
    /// comes from the rank's own NUMA node.
    ///
    /// Does nothing where the plan binds nothing or the topology is synthetic. Fails with
    /// [`Error::Os`] if the system refuses.
    pub fn apply(&self, rank: Rank) -> Result<Bound> {
        match self.cpus(rank) {
            Some(cpus) if !self.synthetic => cpus.apply().map(|()| Bound::To(cpus)),
            _ => Ok(Bound::No),
        }
    }
}

/// The first `ranks` seats in the order in which ranks take them.
fn seats(topology: &Topology, bind: Bind, ranks: usize) -> Vec<Seat> {
    // Allowed CPUs of each core; threads that are not allowed don't count as threads.
    let mut cores: Vec<Vec<&Cpu>> = Vec::new();
    let mut at: BTreeMap<u32, usize> = BTreeMap::new();
    for cpu in topology.allowed() {
        let core = *at.entry(cpu.core).or_insert_with(|| {
            cores.push(Vec::new());
            cores.len() - 1
        });
        cores[core].push(cpu);
    }
    // Stable: equal cores stay in tree order; on hybrid machines the faster ones come first.
    cores.sort_by_key(|core| std::cmp::Reverse(core[0].speed));
    if bind == Bind::Spread && ranks < cores.len() {
        let all = cores.len();
        cores = (0..ranks).map(|rank| cores[rank * all / ranks].clone()).collect();
    }
    let rounds = cores.iter().map(Vec::len).max().unwrap_or(0);
    let by_round = (0..rounds).flat_map(|round| {
        let having = cores.iter().enumerate().filter(move |(_, core)| core.len() > round);
        having.map(move |(core, threads)| (core, threads[round].id))
    });
    let taken: Vec<(usize, u32)> = by_round.take(ranks).collect();
    let mut sitting = vec![0u32; cores.len()];
    taken.iter().for_each(|seat| sitting[seat.0] += 1);
    let seat = |&(core, cpu): &(usize, u32)| {
        let alone = sitting[core] == 1;
        let others = cores[core].iter().map(|c| c.id).filter(|&id| alone && id != cpu);
        Seat { cpu, spare: others.collect() }
    };
    taken.iter().map(seat).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Distance, Level};
    use super::*;
    use proptest::prelude::*;

    fn cpus(plan: &Plan, rank: u32) -> String {
        plan.cpus(Rank(rank)).map_or("-".into(), |set| set.to_string())
    }

    #[test]
    fn whole_cores_first_then_single_threads_then_none() {
        let t = Topology::synthetic("1x1x2x2x2").unwrap();
        let of = |n| (0..n).map(|r| cpus(&Plan::new(&t, Bind::Core, n), r)).collect::<Vec<_>>();
        assert_eq!(of(1), ["0,4"]);
        assert_eq!(of(4), ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(of(5), ["0", "1,5", "2,6", "3,7", "4"], "only sharers give up their sibling");
        assert_eq!(of(8), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(of(9), ["-"; 9]);
        let over = Plan::new(&t, Bind::Core, 9);
        assert!(over.oversubscribed() && !over.binds());
        assert_eq!(over.note().unwrap(), "9 ranks share 8 CPUs; ranks are not bound");
        assert_eq!(Plan::new(&t, Bind::Core, 8).note(), None);
        assert_eq!(cpus(&Plan::new(&t, Bind::None, 2), 0), "-");
        assert_eq!(cpus(&Plan::new(&t, Bind::Core, 2), 7), "-", "no such rank");
    }

    #[test]
    fn few_ranks_spread_over_nodes_and_neighbours_stay_near() {
        let t = Topology::synthetic("2x2x2x4x1").unwrap();
        let plan = Plan::new(&t, Bind::Spread, 4);
        let nodes: Vec<_> = (0..4).map(|r| t.home_node(&plan.cpus(Rank(r)).unwrap())).collect();
        assert_eq!(nodes, [Some(0), Some(1), Some(2), Some(3)]);
        let plan = Plan::new(&t, Bind::Spread, 16);
        let far = t.distance_between(plan.home_cpu(Rank(0)), plan.home_cpu(Rank(1)));
        assert_eq!(far, Distance::SameCache);
    }

    #[test]
    fn packed_ranks_fill_a_cache_before_the_next() {
        let t = Topology::synthetic("2x4x2x8x2").unwrap();
        let plan = Plan::new(&t, Bind::Core, 100);
        for rank in 0..100 {
            assert_eq!(t.group_of(Level::Cache, plan.home_cpu(Rank(rank))), Some(rank / 8));
        }
    }

    #[test]
    fn a_quota_makes_a_job_oversubscribed_though_it_can_be_bound() {
        let mut t = Topology::synthetic("1x1x1x8x1").unwrap();
        t.quota = Some(2.5);
        let plan = Plan::new(&t, Bind::Core, 4);
        assert!(plan.oversubscribed() && plan.binds());
        assert_eq!(plan.note().unwrap(), "4 ranks share 2 CPUs");
        t.quota = Some(0.1);
        assert!(!Plan::new(&t, Bind::Core, 1).oversubscribed());
        assert_eq!(Plan::new(&t, Bind::Core, 2).note().unwrap(), "2 ranks share 1 CPU");
    }

    #[test]
    fn names_round_trip() {
        for bind in [Bind::None, Bind::Core, Bind::Spread] {
            assert_eq!(bind.to_string().parse::<Bind>().unwrap(), bind);
        }
        assert!("cores".parse::<Bind>().unwrap_err().to_string().contains("none, core or spread"));
    }

    #[test]
    fn a_plan_for_this_machine_can_be_carried_out() {
        let t = Topology::of_machine().unwrap();
        let ranks = t.allowed().count() as u32;
        for rank in (0..ranks).map(Rank) {
            let plan = Plan::new(&t, Bind::Core, ranks);
            std::thread::spawn(move || {
                let Bound::To(set) = plan.apply(rank).unwrap() else { panic!("not bound") };
                assert_eq!(CpuSet::of_thread().unwrap(), set);
            })
            .join()
            .unwrap();
        }
        let synthetic = Topology::synthetic("1x1x1x64x1").unwrap();
        let before = CpuSet::of_thread().unwrap();
        assert_eq!(Plan::new(&synthetic, Bind::Core, 64).apply(Rank(63)).unwrap(), Bound::No);
        assert_eq!(CpuSet::of_thread().unwrap(), before);
    }

    proptest! {
        #[test]
        fn no_cpu_is_given_twice_and_cores_fill_evenly(
            (p, n, l, c, t) in (1u32..3, 1u32..4, 1u32..4, 1u32..6, 1u32..5),
            spread in any::<bool>(), ranks in 1u32..400,
        ) {
            let topology = Topology::synthetic(&format!("{p}x{n}x{l}x{c}x{t}")).unwrap();
            let bind = if spread { Bind::Spread } else { Bind::Core };
            let plan = Plan::new(&topology, bind, ranks);
            prop_assert_eq!(plan.binds(), ranks <= p * n * l * c * t);
            if plan.binds() {
                let mut given = CpuSet::new();
                let mut total = 0;
                let mut per_core = vec![0u32; topology.count(Level::Core) as usize];
                for rank in (0..ranks).map(Rank) {
                    let set = plan.cpus(rank).unwrap();
                    prop_assert!(set.contains(plan.home_cpu(rank).unwrap()));
                    total += set.len();
                    set.iter().for_each(|cpu| given.insert(cpu));
                    per_core[topology.cpu(set.first().unwrap()).unwrap().core as usize] += 1;
                }
                prop_assert_eq!(given.len(), total);
                let fill = ranks.div_ceil(topology.count(Level::Core));
                prop_assert!(per_core.iter().all(|&used| used <= fill));
            }
        }
    }
}
