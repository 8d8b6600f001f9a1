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
use super::model::{CacheGroup, CacheKind, Found, Topology};
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
    let mut set: CpuSet = match online.filter(|set| !set.is_empty()) {
        Some(online) => online.iter().chain(allowed.iter()).collect(),
        None => system.numbered("cpu").iter().map(|cpu| cpu.0).chain(allowed.iter()).collect(),
    };
    let offline: Vec<u32> =
        set.iter().filter(|cpu| system.number(&format!("cpu{cpu}/online")) == Some(0u32)).collect();
    offline.into_iter().for_each(|cpu| set.remove(cpu));
    if set.is_empty() {
        set.insert(0);
    }
    set
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
        let slow = devices.cpus("cpu_atom/cpus", "");
        let hybrid = fast.is_some() && slow.is_some();

        let mut numa_of = BTreeMap::new();
        let mut memory = BTreeMap::new();
        for (number, node) in devices.sub("system/node").numbered("node") {
            let cpus = node.cpus("cpulist", "cpumap").unwrap_or_default();
            numa_of.extend(cpus.iter().map(|cpu| (cpu, number)));
            memory.extend(node.text("meminfo").and_then(|m| node_memory(&m)).map(|b| (number, b)));
        }

        let mut all_caches: BTreeMap<(u32, CacheKind, u32), (Option<u64>, u32)> = BTreeMap::new();
        let found = present.iter().map(|id| {
            let cpu = system.sub(&format!("cpu{id}"));
            let place = cpu.sub("topology");
            let core = place
                .cpus("core_cpus_list", "core_cpus")
                .or_else(|| place.cpus("thread_siblings_list", "thread_siblings"))
                .filter(|set| set.contains(id));
            let caches = caches_of(id, &cpu);
            for cache in &caches {
                let first = cache.sharers.first().unwrap_or(id);
                let entry = (cache.bytes, cache.sharers.len() as u32);
                all_caches.entry((cache.level, cache.kind, first)).or_insert(entry);
            }
            let last = caches
                .iter()
                .filter(|cache| cache.kind != CacheKind::Instruction && cache.level >= 2)
                .max_by_key(|cache| cache.level);
            let speed = cpu.number("cpu_capacity").unwrap_or_else(|| match &slow {
                Some(slow) if hybrid && slow.contains(id) => 512,
                _ => 1024,
            });
            Found {
                id,
                package: place.number("physical_package_id").unwrap_or(0),
                numa: numa_of.get(&id).copied(),
                cache: last.map(|cache| (cache.level, cache.sharers.first().unwrap_or(id))),
                cache_bytes: last.and_then(|cache| cache.bytes),
                core: core.and_then(|set| set.first()).unwrap_or(id),
                speed,
                allowed: !any_allowed || allowed.contains(id),
            }
        });
        let mut topology = Topology::build(found.collect(), &memory);
        topology.cache_groups = sum_up(&all_caches);
        topology.quota = cpu_quota(root);
        topology.name = model_name(&root.join("proc/cpuinfo"));
        topology
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
