//! The machine and the placement as one JSON object.

use super::Scene;
use hither::topo::{CacheKind, Level};
use hither::{Error, Result};
use serde::Serialize;

#[derive(Serialize)]
struct Machine {
    name: String,
    synthetic: bool,
    packages: u32,
    cores: u32,
    allowed_cores: u32,
    /// CPUs' worth of time that control groups allow; null is unlimited.
    quota: Option<f64>,
    numa_nodes: Vec<Node>,
    last_level_caches: Vec<LastLevel>,
    caches: Vec<Cache>,
    cpus: Vec<Cpu>,
    ranks: u32,
    bind: String,
    bound: bool,
    oversubscribed: bool,
    placement: String,
}

#[derive(Serialize)]
struct Node {
    id: Option<u32>,
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct LastLevel {
    level: u32,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct Cache {
    level: u32,
    kind: &'static str,
    bytes: Option<u64>,
    sharers: u32,
    count: u32,
}

#[derive(Serialize)]
struct Cpu {
    cpu: u32,
    package: u32,
    numa: u32,
    cache: u32,
    core: u32,
    thread: u32,
    allowed: bool,
    rank: Option<u32>,
}

pub fn render(scene: &Scene) -> Result<String> {
    let t = &scene.topology;
    let kind = |kind| match kind {
        CacheKind::Data => "data",
        CacheKind::Instruction => "instruction",
        CacheKind::Unified => "unified",
    };
    let cpu = |cpu: &hither::topo::Cpu| Cpu {
        cpu: cpu.id,
        package: cpu.package,
        numa: cpu.numa,
        cache: cpu.cache,
        core: cpu.core,
        thread: cpu.thread,
        allowed: cpu.allowed,
        rank: scene.seats.get(&cpu.id).map(|seat| seat.0),
    };
    let node = |n: &hither::topo::NumaNode| Node { id: n.id, memory_bytes: n.memory };
    let machine = Machine {
        name: t.name(),
        synthetic: t.synthetic,
        packages: t.count(Level::Package),
        cores: t.count(Level::Core),
        allowed_cores: t.allowed_cores(),
        quota: t.quota,
        numa_nodes: t.nodes.iter().map(node).collect(),
        last_level_caches: t
            .caches
            .iter()
            .map(|cache| LastLevel { level: cache.level, bytes: cache.bytes })
            .collect(),
        caches: t
            .cache_groups()
            .iter()
            .map(|g| Cache {
                level: g.level,
                kind: kind(g.kind),
                bytes: g.bytes,
                sharers: g.sharers,
                count: g.count,
            })
            .collect(),
        cpus: t.cpus().iter().map(cpu).collect(),
        ranks: scene.ranks,
        bind: scene.bind.to_string(),
        bound: scene.plan.binds(),
        oversubscribed: scene.plan.oversubscribed(),
        placement: scene.placement(),
    };
    serde_json::to_string(&machine).map_err(|e| Error::os("writing JSON", e))
}
