//! Fake machines, written as directory trees.

use super::super::{Bind, Distance, Level, Plan};
use super::*;
use crate::base::Rank;
use std::fs;

struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Fake {
        Fake(tempfile::tempdir().unwrap())
    }

    fn put(&self, path: impl AsRef<str>, text: impl AsRef<str>) -> &Fake {
        let path = self.0.path().join("sys/devices").join(path.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{}\n", text.as_ref())).unwrap();
        self
    }

    fn cpu(&self, cpu: u32, package: i32, siblings: &str) -> &Fake {
        let dir = format!("system/cpu/cpu{cpu}/topology");
        self.put(format!("{dir}/physical_package_id"), package.to_string());
        self.put(format!("{dir}/core_cpus_list"), siblings)
    }

    fn cache(&self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) {
        let dir = format!("system/cpu/cpu{cpu}/cache/index{index}");
        self.put(format!("{dir}/level"), level.to_string());
        self.put(format!("{dir}/type"), kind);
        self.put(format!("{dir}/size"), size);
        self.put(format!("{dir}/shared_cpu_list"), shared);
    }

    fn node(&self, node: u32, cpus: &str, kib: u64) {
        self.put(format!("system/node/node{node}/cpulist"), cpus);
        let text = format!("Node {node} MemTotal:       {kib} kB\nNode {node} MemFree: 1 kB");
        self.put(format!("system/node/node{node}/meminfo"), text);
    }

    fn read(&self, allowed: &str) -> Topology {
        Topology::from_root(self.0.path(), &CpuSet::parse(allowed).unwrap())
    }
}

fn counts(t: &Topology) -> [u32; 5] {
    [Level::Package, Level::Numa, Level::Cache, Level::Core, Level::Machine].map(|l| t.count(l))
}

/// Two packages of four cores with two threads, numbered as Intel servers are: even CPUs in
/// package 0, odd ones in package 1.
#[test]
fn two_packages_with_interleaved_numbers() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-15");
    for cpu in 0..16u32 {
        let (package, core) = (cpu % 2, cpu % 8);
        fake.cpu(cpu, package as i32, &format!("{core},{}", core + 8));
        fake.cache(cpu, 0, 1, "Data", "48K", &format!("{core},{}", core + 8));
        fake.cache(cpu, 1, 1, "Instruction", "32K", &format!("{core},{}", core + 8));
        fake.cache(cpu, 2, 2, "Unified", "2048K", &format!("{core},{}", core + 8));
        let all = if package == 0 { "0,2,4,6,8,10,12,14" } else { "1,3,5,7,9,11,13,15" };
        fake.cache(cpu, 3, 3, "Unified", "36864K", all);
    }
    fake.node(0, "0,2,4,6,8,10,12,14", 1 << 20);
    fake.node(1, "1,3,5,7,9,11,13,15", 2 << 20);
    let t = fake.read("0-15");
    assert_eq!(counts(&t), [2, 2, 2, 8, 1]);
    let order: Vec<u32> = t.cpus().iter().map(|c| c.id).collect();
    assert_eq!(order, [0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15]);
    assert_eq!(t.distance(0, 8), Distance::SameCore);
    assert_eq!(t.distance(0, 2), Distance::SameCache);
    assert_eq!(t.distance(0, 1), Distance::OtherPackage);
    assert_eq!(t.nodes[1].memory, Some(2 << 30));
    assert_eq!(t.caches[0].bytes, Some(36 << 20));
    let sum: Vec<_> = t.cache_groups().iter().map(|g| (g.level, g.sharers, g.count)).collect();
    assert_eq!(sum, [(1, 2, 8), (1, 2, 8), (2, 2, 8), (3, 8, 2)]);
    // Four ranks are packed into package 0, whose CPUs are the even ones.
    let plan = Plan::new(&t, Bind::Core, 4);
    let sets: Vec<String> = (0..4).map(|r| plan.cpus(Rank(r)).unwrap().to_string()).collect();
    assert_eq!(sets, ["0,8", "2,10", "4,12", "6,14"]);
}

/// One package, one NUMA node, four groups of cores with an L3 each (core complexes).
#[test]
fn core_complexes_are_cache_groups() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-15");
    for cpu in 0..16u32 {
        fake.cpu(cpu, 0, &cpu.to_string());
        fake.cache(cpu, 2, 2, "Unified", "512K", &cpu.to_string());
        let first = cpu / 4 * 4;
        fake.cache(cpu, 3, 3, "Unified", "32M", &format!("{first}-{}", first + 3));
    }
    fake.node(0, "0-15", 1024);
    let t = fake.read("0-15");
    assert_eq!(counts(&t), [1, 1, 4, 16, 1]);
    assert_eq!(t.distance(0, 3), Distance::SameCache);
    assert_eq!(t.distance(0, 4), Distance::SameNuma);
}

#[test]
fn a_single_core() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0").cpu(0, 0, "0");
    let t = fake.read("0");
    assert_eq!(counts(&t), [1, 1, 1, 1, 1]);
    assert_eq!(Plan::new(&t, Bind::Core, 1).cpus(Rank(0)).unwrap().to_string(), "0");
    assert!(Plan::new(&t, Bind::Core, 2).oversubscribed());
}

#[test]
fn nothing_readable_at_all_still_gives_the_allowed_cpus() {
    let t = Fake::new().read("3,70,1500");
    assert_eq!(counts(&t), [1, 1, 1, 3, 1]);
    assert_eq!(t.allowed_set().to_string(), "3,70,1500");
    assert_eq!(t.nodes[0].id, None);
    assert_eq!(t.home_node(&t.allowed_set()), None, "the node has no number to bind memory to");
    assert_eq!(Fake::new().read("").cpus().len(), 1);
}

#[test]
fn without_cache_and_node_files_packages_stand_in() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-3");
    for cpu in 0..4u32 {
        fake.cpu(cpu, cpu as i32 / 2, &cpu.to_string());
    }
    let t = fake.read("0-3");
    assert_eq!(counts(&t), [2, 2, 2, 4, 1]);
    assert_eq!(t.distance(0, 1), Distance::SameCache);
    assert_eq!(t.distance(1, 2), Distance::OtherPackage);
    assert_eq!(t.caches[0].bytes, None);
    assert!(t.cache_groups().is_empty());
}

#[test]
fn offline_sparse_and_very_high_numbers() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0,2,1024-1025");
    for cpu in [0u32, 1, 2, 3, 1024, 1025] {
        fake.put(format!("system/cpu/cpu{cpu}/online"), if cpu == 3 { "0" } else { "1" });
    }
    for cpu in [0u32, 2] {
        fake.cpu(cpu, 0, &cpu.to_string());
    }
    for cpu in [1024u32, 1025] {
        fake.cpu(cpu, 7, "1024-1025");
    }
    // The affinity mask may name more than is online: CPU 3 says that it is not.
    let t = fake.read("2-3,1024-1025");
    assert_eq!(t.cpus().iter().map(|c| c.id).collect::<Vec<_>>(), [0, 2, 1024, 1025]);
    assert_eq!(t.allowed_set().to_string(), "2,1024-1025");
    assert_eq!(t.allowed_cores(), 2);
    assert_eq!(t.cpu(1025).map(|c| (c.package, c.thread)), Some((1, 1)));
    assert_eq!(t.cpu(3), None);
    let plan = Plan::new(&t, Bind::Core, 2);
    assert_eq!(plan.cpus(Rank(1)).unwrap().to_string(), "1024-1025");
}

#[test]
fn without_an_online_list_directories_count_and_old_file_names_are_known() {
    let fake = Fake::new();
    for cpu in 0..4u32 {
        let dir = format!("system/cpu/cpu{cpu}");
        fake.put(format!("{dir}/topology/physical_package_id"), "0");
        let mask = if cpu < 2 { "00000003" } else { "0000000c" };
        fake.put(format!("{dir}/topology/thread_siblings"), mask);
        fake.put(format!("{dir}/cache/index2/level"), "2");
        fake.put(format!("{dir}/cache/index2/shared_cpu_map"), mask);
    }
    fake.put("system/cpu/cpufreq/boost", "1").put("system/cpu/cpu3/online", "0");
    fake.put("system/node/node0/cpumap", "0000000f");
    let t = fake.read("0-2");
    assert_eq!(counts(&t), [1, 1, 2, 2, 1]);
    assert_eq!(t.cpus().len(), 3);
    assert_eq!(t.caches[0].level, 2);
    assert_eq!(t.nodes[0].id, Some(0));
}

/// Fast cores with two threads and an L3; slow ones in a cluster with an L2 and the L3; two more
/// outside it.
#[test]
fn hybrid_cores_are_used_fast_ones_first() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-9");
    fake.put("cpu_core/cpus", "6-9").put("cpu_atom/cpus", "0-5");
    for cpu in 0..6u32 {
        fake.cpu(cpu, 0, &cpu.to_string());
        let cluster = if cpu < 4 { "0-3" } else { "4-5" };
        fake.cache(cpu, 2, 2, "Unified", "4096K", cluster);
    }
    for cpu in 6..10u32 {
        let pair = if cpu < 8 { "6-7" } else { "8-9" };
        fake.cpu(cpu, 0, pair);
        fake.cache(cpu, 2, 2, "Unified", "2048K", pair);
    }
    for cpu in (0..4u32).chain(6..10) {
        fake.cache(cpu, 3, 3, "Unified", "24576K", "0-3,6-9");
    }
    let t = fake.read("0-9");
    assert_eq!(t.count(Level::Cache), 2, "the L3, and the L2 of those outside it");
    assert_eq!(t.distance(4, 5), Distance::SameCache);
    assert_eq!(t.distance(3, 4), Distance::SameNuma);
    let plan = Plan::new(&t, Bind::Core, 9);
    let homes: Vec<u32> = (0..9).map(|r| plan.home_cpu(Rank(r)).unwrap()).collect();
    assert_eq!(homes, [6, 8, 4, 5, 0, 1, 2, 3, 7], "fast cores, slow cores, second threads");
}

#[test]
fn capacities_tell_fast_cores_from_slow_ones() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-3");
    for cpu in 0..4u32 {
        fake.cpu(cpu, 0, &cpu.to_string());
        let capacity = if cpu < 2 { "446" } else { "1024" };
        fake.put(format!("system/cpu/cpu{cpu}/cpu_capacity"), capacity);
    }
    let t = fake.read("0-3");
    let plan = Plan::new(&t, Bind::Core, 3);
    let homes: Vec<u32> = (0..3).map(|r| plan.home_cpu(Rank(r)).unwrap()).collect();
    assert_eq!(homes, [2, 3, 0]);
}

#[test]
fn damaged_files_never_break_it() {
    let damages = ["", "x", "-1", "0-", "99999999999999999999", "4294967295", "7-3", "\u{fffd}"];
    for damage in damages {
        let fake = Fake::new();
        fake.put("system/cpu/online", damage);
        for cpu in 0..2u32 {
            let dir = format!("system/cpu/cpu{cpu}");
            for file in ["topology/physical_package_id", "topology/core_cpus_list", "cpu_capacity"]
            {
                fake.put(format!("{dir}/{file}"), damage);
            }
            for file in ["level", "type", "size", "shared_cpu_list"] {
                fake.put(format!("{dir}/cache/index0/{file}"), damage);
            }
        }
        fake.put("system/node/node0/cpulist", damage).put("system/node/node0/meminfo", damage);
        let t = fake.read("0-1");
        assert!(t.cpu(0).is_some() && t.cpu(1).is_some(), "{damage:?}");
        assert_eq!(t.allowed_cores(), 2, "{damage:?}");
    }
    // Sibling and cache lists of somebody else.
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-1").cpu(0, 0, "1").cpu(1, 0, "0");
    fake.cache(0, 3, 3, "Unified", "1M", "1");
    assert_eq!(fake.read("0-1").count(Level::Core), 2);
}

#[test]
fn a_cache_may_span_numa_nodes() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-3");
    for cpu in 0..4u32 {
        fake.cpu(cpu, 0, &cpu.to_string());
        fake.cache(cpu, 3, 3, "Unified", "64M", "0-3");
    }
    fake.node(0, "0-1", 1024);
    fake.node(1, "2-3", 1024);
    fake.node(2, "", 4096);
    let t = fake.read("0-3");
    assert_eq!(counts(&t), [1, 2, 1, 4, 1], "a node without CPUs seats nobody");
    assert_eq!(t.distance(0, 3), Distance::SameCache);
    assert_eq!(t.home_node(&CpuSet::parse("2-3").unwrap()), Some(1));
}

#[test]
fn an_affinity_mask_of_another_machine_allows_all() {
    let fake = Fake::new();
    fake.put("system/cpu/online", "0-1").cpu(0, 0, "0").cpu(1, 0, "1");
    fake.put("system/cpu/cpu8/online", "0");
    assert_eq!(fake.read("8").allowed_set().to_string(), "0-1");
}

#[test]
fn this_machine_agrees_with_proc() {
    let t = Topology::of_machine().unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(t.allowed_set(), CpuSet::parse(list).unwrap());
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let online = stat.lines().filter(|l| {
        l.strip_prefix("cpu").is_some_and(|l| l.starts_with(|c: char| c.is_ascii_digit()))
    });
    // A container may hide CPUs from /proc, but shows no more than there are.
    assert!(t.cpus().len() >= online.count());
    let here = std::thread::available_parallelism().unwrap().get() as u32;
    assert!(t.parallelism().abs_diff(here) <= 1, "{} and {here}", t.parallelism());
    if let Ok(info) = fs::read_to_string("/proc/cpuinfo") {
        let of = |key: &str| {
            let values = info.lines().filter(|l| l.starts_with(key));
            let values: std::collections::BTreeSet<&str> = values.collect();
            values.len() as u32
        };
        let packages = of("physical id");
        assert!(packages <= t.count(Level::Package));
    }
    for cpu in t.cpus() {
        assert_eq!(t.cpu(cpu.id), Some(cpu));
        assert!((cpu.numa as usize) < t.nodes.len() && (cpu.cache as usize) < t.caches.len());
    }
}
