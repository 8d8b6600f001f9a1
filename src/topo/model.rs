//! The machine as a tree: package > NUMA node > last-level cache > core > thread.

use super::cpuset::CpuSet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A level of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Hardware threads of one physical core.
    Core,
    /// Cores that share a last-level cache.
    Cache,
    /// Cores of one NUMA node.
    Numa,
    /// Cores of one package (socket).
    Package,
    /// All of them.
    Machine,
}

/// One logical CPU (hardware thread) and where it sits. Group numbers are dense, count from 0
/// and ascend in tree order, whatever numbers the system uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number for it.
    pub id: u32,
    /// Package.
    pub package: u32,
    /// NUMA node: index into [`Topology::nodes`].
    pub numa: u32,
    /// Last-level cache: index into [`Topology::caches`].
    pub cache: u32,
    /// Physical core.
    pub core: u32,
    /// Position among the threads of its core.
    pub thread: u32,
    /// Relative speed of the core; more is faster. All equal but on hybrid machines.
    pub speed: u32,
    /// Whether this process may run on it.
    pub allowed: bool,
}

impl Cpu {
    /// Number of the group of `level` that the CPU belongs to.
    pub fn group(&self, level: Level) -> u32 {
        match level {
            Level::Core => self.core,
            Level::Cache => self.cache,
            Level::Numa => self.numa,
            Level::Package => self.package,
            Level::Machine => 0,
        }
    }
}

/// One NUMA node that has CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number; `None` where the system does not say (then packages stand in).
    pub id: Option<u32>,
    /// Its memory in bytes, where known.
    pub memory: Option<u64>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// A number of equal caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheGroup {
    /// 1, 2, 3...
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes of one of them, where known.
    pub bytes: Option<u64>,
    /// CPUs that share one of them.
    pub sharers: u32,
    /// How many there are.
    pub count: u32,
}

/// A last-level cache: the largest that cores share, L3 where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLevel {
    /// Its level; 0 where the system does not say.
    pub level: u32,
    /// Its bytes, where known.
    pub bytes: Option<u64>,
}

/// A machine: its CPUs in tree order, and what is known of the groups they form.
#[derive(Clone, Debug)]
pub struct Topology {
    cpus: Vec<Cpu>,
    // (kernel's number, position in `cpus`), ascending: numbers may be sparse.
    by_id: Vec<(u32, u32)>,
    /// NUMA nodes, by [`Cpu::numa`].
    pub nodes: Vec<NumaNode>,
    /// Last-level caches, by [`Cpu::cache`].
    pub caches: Vec<LastLevel>,
    /// Processors' worth of time that the enclosing control groups allow; `None` is unlimited.
    pub quota: Option<f64>,
    /// Whether this is a synthetic topology, to which nothing can be bound.
    pub synthetic: bool,
    pub(super) details: Details,
    counts: [u32; 5],
}

/// Where to find what only people want to know: not read until asked for, because every rank
/// detects the topology and reading all of it takes long on big machines.
#[derive(Clone, Debug)]
pub(super) enum Details {
    /// In files under this root.
    Files(PathBuf),
    /// Here.
    Given { name: String, caches: Vec<CacheGroup> },
}

/// A CPU as found, with the system's own numbers, before numbers are made dense.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub id: u32,
    pub package: i64,
    pub numa: Option<u32>,
    /// Level and lowest CPU of the last-level cache.
    pub cache: Option<(u32, u32)>,
    pub cache_bytes: Option<u64>,
    /// Lowest CPU of the core.
    pub core: u32,
    pub speed: u32,
    pub allowed: bool,
}

impl Topology {
    /// Builds the tree. `memory` are the NUMA nodes' bytes by the kernel's number.
    pub(super) fn build(mut found: Vec<Found>, memory: &BTreeMap<u32, u64>) -> Topology {
        // What the system leaves open follows from the next level up: without NUMA information
        // a package is a node, without cache information a node is a cache.
        type Node = (Option<u32>, i64);
        let node = |f: &Found| -> Node { (f.numa, if f.numa.is_some() { 0 } else { f.package }) };
        type Cache = (Option<(u32, u32)>, Option<Node>);
        let cache = |f: &Found| -> Cache {
            (f.cache, if f.cache.is_some() { None } else { Some(node(f)) })
        };
        found.sort_by_key(|f| (f.package, node(f), cache(f), f.core, f.id));
        let mut packages = Dense::default();
        let mut nodes = Dense::default();
        let mut caches = Dense::default();
        let mut cores = Dense::default();
        let mut threads: BTreeMap<u32, u32> = BTreeMap::new();
        let mut topology = Topology {
            cpus: Vec::with_capacity(found.len()),
            by_id: Vec::with_capacity(found.len()),
            nodes: Vec::new(),
            caches: Vec::new(),
            quota: None,
            synthetic: false,
            details: Details::Given { name: String::new(), caches: Vec::new() },
            counts: [0; 5],
        };
        for f in &found {
            let numa = nodes.number(node(f));
            if numa as usize == topology.nodes.len() {
                let memory = f.numa.and_then(|id| memory.get(&id).copied());
                topology.nodes.push(NumaNode { id: f.numa, memory });
            }
            let cache = caches.number(cache(f));
            if cache as usize == topology.caches.len() {
                let level = f.cache.map_or(0, |c| c.0);
                topology.caches.push(LastLevel { level, bytes: f.cache_bytes });
            }
            let core = cores.number(f.core);
            let next = threads.entry(core).or_insert(0);
            let thread = *next;
            *next += 1;
            topology.by_id.push((f.id, topology.cpus.len() as u32));
            topology.cpus.push(Cpu {
                id: f.id,
                package: packages.number(f.package),
                numa,
                cache,
                core,
                thread,
                speed: f.speed,
                allowed: f.allowed,
            });
        }
        topology.by_id.sort_unstable();
        topology.counts = [cores.len(), caches.len(), nodes.len(), packages.len(), 1];
        topology
    }

    /// All CPUs that are online, in tree order: neighbours are near each other.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPUs that this process may run on, in tree order.
    pub fn allowed(&self) -> impl DoubleEndedIterator<Item = &Cpu> + Clone {
        self.cpus.iter().filter(|cpu| cpu.allowed)
    }

    /// The CPUs that this process may run on, as a set.
    pub fn allowed_set(&self) -> CpuSet {
        self.allowed().map(|cpu| cpu.id).collect()
    }

    /// The CPU with the kernel's number `id`. Costs a binary search.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        let at = self.by_id.binary_search_by_key(&id, |entry| entry.0).ok()?;
        self.cpus.get(self.by_id[at].1 as usize)
    }

    /// Number of groups of a level.
    pub fn count(&self, level: Level) -> u32 {
        self.counts[level as usize]
    }

    /// Number of physical cores with at least one CPU that this process may run on.
    pub fn allowed_cores(&self) -> u32 {
        let cores: BTreeSet<u32> = self.allowed().map(|cpu| cpu.core).collect();
        cores.len() as u32
    }

    /// How many ranks can compute at the same time: allowed CPUs, or what the control group's
    /// quota leaves of them, at least 1. With more ranks than that, waits should not spin long.
    pub fn parallelism(&self) -> u32 {
        let cpus = self.allowed().count().max(1) as u32;
        self.quota.map_or(cpus, |quota| cpus.min((quota.floor() as u32).max(1)))
    }
}

/// Gives dense numbers to keys in the order of their first appearance.
struct Dense<K>(BTreeMap<K, u32>);

impl<K> Default for Dense<K> {
    fn default() -> Self {
        Dense(BTreeMap::new())
    }
}

impl<K: Ord> Dense<K> {
    fn number(&mut self, key: K) -> u32 {
        let next = self.len();
        *self.0.entry(key).or_insert(next)
    }

    fn len(&self) -> u32 {
        self.0.len() as u32
    }
}
