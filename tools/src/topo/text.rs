//! The tree as text: one line per last-level cache, and one per core on small machines.

use super::{Scene, bytes, count};
use hither::topo::{CacheGroup, CacheKind, Cpu, CpuSet};

/// Up to this many cores, each has a line.
const FEW_CORES: u32 = 16;

pub fn render(scene: &Scene) -> String {
    let t = &scene.topology;
    let mut lines = Vec::new();
    let mut line = |text: String| lines.push(text);
    line(t.name());
    line(scene.summary());
    let caches = t.cache_groups();
    if !caches.is_empty() {
        line(format!("caches: {}", list(&caches)));
    }
    line(String::new());
    for package in t.cpus().chunk_by(|a, b| a.package == b.package) {
        line(format!("package {}", package[0].package));
        for node in package.chunk_by(|a, b| a.numa == b.numa) {
            let info = &t.nodes[node[0].numa as usize];
            let name = info.id.map_or("NUMA node ?".into(), |id| format!("NUMA node {id}"));
            let memory = info.memory.map_or(String::new(), |m| format!(" · {}", bytes(m)));
            line(format!("  {name}{memory}"));
            for cache in node.chunk_by(|a, b| a.cache == b.cache) {
                let cores: Vec<&[Cpu]> = cache.chunk_by(|a, b| a.core == b.core).collect();
                let name = cache_name(scene, cache[0].cache);
                let number = count(cores.len() as u32, "core");
                line(format!("    {name} · {number}{}", seated(scene, cache)));
                if t.count(hither::topo::Level::Core) <= FEW_CORES {
                    for core in cores {
                        line(format!("      core {}{}", core[0].core, seated(scene, core)));
                    }
                }
            }
        }
    }
    line(String::new());
    line(scene.placement());
    lines.join("\n") + "\n"
}

/// ` · cpus 0-7 · ranks 0-7`.
fn seated(scene: &Scene, cpus: &[Cpu]) -> String {
    let ids: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
    let mut text = format!(" · cpu{} {ids}", if ids.len() == 1 { "" } else { "s" });
    let forbidden: CpuSet = cpus.iter().filter(|cpu| !cpu.allowed).map(|cpu| cpu.id).collect();
    if forbidden.len() == ids.len() {
        text += " · not allowed";
    } else if !forbidden.is_empty() {
        text += &format!(" (not allowed: {forbidden})");
    }
    let slow = cpus.iter().map(|cpu| cpu.speed).max().unwrap_or(0);
    if scene.topology.cpus().iter().any(|cpu| cpu.speed > slow) {
        text += " · slower";
    }
    // A set of CPU numbers also writes rank numbers as ranges.
    let ranks: CpuSet =
        cpus.iter().filter_map(|cpu| scene.seats.get(&cpu.id)).map(|s| s.0).collect();
    if !ranks.is_empty() {
        text += &format!(" · rank{} {ranks}", if ranks.len() == 1 { "" } else { "s" });
    }
    text
}

/// `L3 32 MiB`.
pub fn cache_name(scene: &Scene, cache: u32) -> String {
    let last = scene.topology.caches[cache as usize];
    let size = last.bytes.map_or(String::new(), |b| format!(" {}", bytes(b)));
    if last.level == 0 { "cache unknown".into() } else { format!("L{}{size}", last.level) }
}

fn list(caches: &[CacheGroup]) -> String {
    let one = |group: &CacheGroup| {
        let kind = match group.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        let size = group.bytes.map_or("?".into(), bytes);
        format!("L{}{kind} {size} x {}", group.level, group.count)
    };
    caches.iter().map(one).collect::<Vec<_>>().join(", ")
}
