//! Reading the machine from sysfs. No file is required: whatever is missing (containers, old
//! kernels, virtual machines, other architectures) is replaced by the weakest assumption that
//! keeps every CPU usable.
//!
//! ```text
//! sys/devices/system/cpu/online                                which CPUs there are
//! sys/devices/system/cpu/cpuN/topology/{physical_package_id, core_cpus_list}
//! sys/devices/system/cpu/cpuN/cache/indexI/{level, type, size, shared_cpu_list}
//! sys/devices/system/cpu/cpuN/cpu_capacity                     speed, Arm and RISC-V
//! sys/devices/{cpu_core, cpu_atom}/cpus                        speed, hybrid x86
//! sys/devices/system/node/nodeN/{cpulist, meminfo}
//! ```

use super::cpuset::CpuSet;
use super::model::{CacheGroup, CacheKind, Details, Found, Topology};
use super::quota::cpu_quota;
use crate::base::settings::parse_bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A directory of small text files.
struct Dir(PathBuf);

impl Dir {
    fn sub(&self, name: &str) -> Dir {
        Dir(self.0.join(name))
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(name)).ok().map(|text| text.trim().to_owned())
    }

    fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// The set of CPUs in `list`, or else in the mask file `mask`.
    fn cpus(&self, list: &str, mask: &str) -> Option<CpuSet> {
        let from_list = self.text(list).and_then(|text| CpuSet::parse(&text));
        from_list.or_else(|| CpuSet::parse_mask(&self.text(mask)?))
    }

    /// The subdirectories `prefix` + number, by number.
    fn numbered(&self, prefix: &str) -> Vec<(u32, Dir)> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut found: Vec<(u32, Dir)> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                let number = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
                Some((number, Dir(entry.path())))
            })
            .collect();
        found.sort_by_key(|entry| entry.0);
        found
    }
}

/// One cache, as some CPU sees it.
struct CacheSeen {
    level: u32,
    kind: CacheKind,
    bytes: Option<u64>,
    sharers: CpuSet,
}

fn caches_of(cpu: u32, dir: &Dir) -> Vec<CacheSeen> {
    let seen = dir.sub("cache").numbered("index").into_iter().filter_map(|(_, index)| {
        let kind = match index.text("type").as_deref() {
            Some("Data") => CacheKind::Data,
            Some("Instruction") => CacheKind::Instruction,
            Some("Unified") | None => CacheKind::Unified,
            Some(_) => return None,
        };
        let sharers = index.cpus("shared_cpu_list", "shared_cpu_map");
        Some(CacheSeen {
            level: index.number("level")?,
            kind,
            bytes: index.text("size").and_then(|size| parse_bytes(&size)),
            // A list that does not have its own CPU is damaged (some virtual machines).
            sharers: sharers
                .filter(|set| set.contains(cpu))
                .unwrap_or_else(|| [cpu].into_iter().collect()),
        })
    });
    seen.collect()
}

/// The CPUs to take: those online, and those this process may run on (a container may show
/// another machine's list), less those that say of themselves that they are offline.
fn present(system: &Dir, allowed: &CpuSet) -> CpuSet {
    let online = system.text("online").and_then(|text| CpuSet::parse(&text));
    let online = online.unwrap_or_default();
    let mut doubtful: Vec<u32> = allowed.iter().collect();
    if online.is_empty() {
        doubtful.extend(system.numbered("cpu").iter().map(|cpu| cpu.0));
    }
    let mut set = online;
    doubtful.retain(|&cpu| !set.contains(cpu));
    for cpu in doubtful {
        if system.number(&format!("cpu{cpu}/online")) != Some(0u32) {
            set.insert(cpu);
        }
    }
    if set.is_empty() {
        set.insert(0);
    }
    set
}

/// Gives every CPU its group's key. The first CPU of a group reads the group's file and answers
/// for all in it, so that a big machine takes few reads.
struct Groups<K>(BTreeMap<u32, K>);

impl<K: Copy> Groups<K> {
    fn of(&mut self, cpu: u32, read: impl FnOnce() -> (CpuSet, K)) -> K {
        if let Some(&key) = self.0.get(&cpu) {
            return key;
        }
        let (members, key) = read();
        for member in members.iter() {
            self.0.entry(member).or_insert(key);
        }
        key
    }
}

/// The last-level cache of a CPU: its sharers; level, lowest sharer and size.
type Last = Option<(u32, u32, Option<u64>)>;

fn last_level(cpu: u32, dir: &Dir) -> (CpuSet, Last) {
    let data = |cache: &CacheSeen| cache.kind != CacheKind::Instruction && cache.level >= 2;
    match caches_of(cpu, dir).into_iter().filter(data).max_by_key(|cache| cache.level) {
        Some(cache) => {
            let first = cache.sharers.first().unwrap_or(cpu);
            (cache.sharers, Some((cache.level, first, cache.bytes)))
        }
        None => (CpuSet::new(), None),
    }
}

fn siblings(cpu: u32, place: &Dir) -> CpuSet {
    place
        .cpus("core_cpus_list", "core_cpus")
        .or_else(|| place.cpus("thread_siblings_list", "thread_siblings"))
        .filter(|set| set.contains(cpu))
        .unwrap_or_else(|| [cpu].into_iter().collect())
}

impl Topology {
    /// The machine whose `/sys` and `/proc` are under `root`, as seen by a process that may run
    /// on `allowed` (if none of those is online, on all). Never fails: see the module's head.
    pub fn from_root(root: &Path, allowed: &CpuSet) -> Topology {
        let devices = Dir(root.join("sys/devices"));
        let system = devices.sub("system/cpu");
        let present = present(&system, allowed);
        let any_allowed = allowed.iter().any(|cpu| present.contains(cpu));
        let fast = devices.cpus("cpu_core/cpus", "");
        let slow = devices.cpus("cpu_atom/cpus", "").filter(|_| fast.is_some());
        // Kernels that have this file have it for every CPU.
        let capacities = present
            .first()
            .is_some_and(|cpu| system.number::<u32>(&format!("cpu{cpu}/cpu_capacity")).is_some());

        let mut numa_of = BTreeMap::new();
        let mut memory = BTreeMap::new();
        for (number, node) in devices.sub("system/node").numbered("node") {
            let cpus = node.cpus("cpulist", "cpumap").unwrap_or_default();
            numa_of.extend(cpus.iter().map(|cpu| (cpu, number)));
            memory.extend(node.text("meminfo").and_then(|m| node_memory(&m)).map(|b| (number, b)));
        }

        let mut cores = Groups(BTreeMap::new());
        let mut caches = Groups(BTreeMap::new());
        let found = present.iter().map(|id| {
            let cpu = system.sub(&format!("cpu{id}"));
            let place = cpu.sub("topology");
            let core = cores.of(id, || {
                let siblings = siblings(id, &place);
                let first = siblings.first().unwrap_or(id);
                (siblings, first)
            });
            let last = caches.of(id, || last_level(id, &cpu));
            let speed = match &slow {
                _ if capacities => cpu.number("cpu_capacity").unwrap_or(1024),
                Some(slow) if slow.contains(id) => 512,
                _ => 1024,
            };
            Found {
                id,
                package: place.number("physical_package_id").unwrap_or(0),
                numa: numa_of.get(&id).copied(),
                cache: last.map(|(level, first, _)| (level, first)),
                cache_bytes: last.and_then(|(_, _, bytes)| bytes),
                core,
                speed,
                allowed: !any_allowed || allowed.contains(id),
            }
        });
        let mut topology = Topology::build(found.collect(), &memory);
        topology.quota = cpu_quota(root);
        topology.details = Details::Files(root.to_owned());
        topology
    }

    /// Processor model, or the specification of a synthetic topology. Reads a file.
    pub fn name(&self) -> String {
        match &self.details {
            Details::Files(root) => model_name(&root.join("proc/cpuinfo")),
            Details::Given { name, .. } => name.clone(),
        }
    }

    /// All caches summed up, by level. Reads some twenty files per CPU: for people, not for jobs.
    pub fn cache_groups(&self) -> Vec<CacheGroup> {
        let root = match &self.details {
            Details::Files(root) => root,
            Details::Given { caches, .. } => return caches.clone(),
        };
        let system = Dir(root.join("sys/devices/system/cpu"));
        let mut all: BTreeMap<(u32, CacheKind, u32), (Option<u64>, u32)> = BTreeMap::new();
        for cpu in self.cpus() {
            for cache in caches_of(cpu.id, &system.sub(&format!("cpu{}", cpu.id))) {
                let first = cache.sharers.first().unwrap_or(cpu.id);
                let entry = (cache.bytes, cache.sharers.len() as u32);
                all.entry((cache.level, cache.kind, first)).or_insert(entry);
            }
        }
        sum_up(&all)
    }
}

fn node_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

fn model_name(cpuinfo: &Path) -> String {
    let text = std::fs::read_to_string(cpuinfo).unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let keys = ["model name", "Model", "cpu model", "Hardware", "cpu"];
    keys.into_iter().find_map(value).unwrap_or_else(|| "unknown processor".into())
}

fn sum_up(all: &BTreeMap<(u32, CacheKind, u32), (Option<u64>, u32)>) -> Vec<CacheGroup> {
    let mut groups: Vec<CacheGroup> = Vec::new();
    for (&(level, kind, _), &(bytes, sharers)) in all {
        let same = |g: &&mut CacheGroup| {
            (g.level, g.kind, g.bytes, g.sharers) == (level, kind, bytes, sharers)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.count += 1,
            None => groups.push(CacheGroup { level, kind, bytes, sharers, count: 1 }),
        }
    }
    groups
}

#[cfg(test)]
mod tests;
