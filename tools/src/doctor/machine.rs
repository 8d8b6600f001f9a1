//! Processors and memory.

use super::Finding;
use crate::topo;
use hither::shm::map::available_memory;
use hither::topo::{Level, Topology};

/// Less free memory than this is worth a remark.
const LITTLE: u64 = 256 << 20;

pub fn check() -> Vec<Finding> {
    vec![cpus(), memory(), dev_shm()]
}

fn cpus() -> Finding {
    let t = match Topology::detect() {
        Ok(t) => t,
        // A bad HITHER_TOPOLOGY is reported among the settings.
        Err(error) => return Finding::note("processors", error.to_string(), "see the settings"),
    };
    let text = format!("{}: {}", t.name(), topo::summary(&t));
    let allowed = t.allowed().count() as u32;
    if t.synthetic {
        let advice = "unset HITHER_TOPOLOGY to use the machine's";
        return Finding::note("processors", text, advice);
    }
    if t.parallelism() < allowed {
        let quota = t.quota.unwrap_or_default();
        let text = format!("{text}; a control group limits processor time to {quota:.2} CPUs");
        let advice = format!("start at most {} ranks, or raise the limit", t.parallelism());
        return Finding::note("processors", text, advice);
    }
    if allowed < t.cpus().len() as u32 {
        let text = format!("{text}; {allowed} CPUs allowed");
        let advice = format!("ranks are placed on CPUs {}", t.allowed_set());
        return Finding::note("processors", text, advice);
    }
    // A topology of one cache per core on a big machine is most likely a hidden one.
    if t.count(Level::Core) > 8 && t.caches.iter().all(|cache| cache.level == 0) {
        let advice = "/sys/devices/system/cpu/*/cache is hidden; placement ignores caches";
        return Finding::note("processors", text, advice);
    }
    Finding::ok("processors", text)
}

fn memory() -> Finding {
    let (bytes, limit) = available_memory();
    if bytes == u64::MAX {
        return Finding::note(
            "memory",
            "neither /proc/meminfo nor a control group says how much is available",
            "mount /proc, so that running out of memory can be foreseen",
        );
    }
    let text = format!("{} can be had ({limit})", topo::bytes(bytes));
    if bytes < LITTLE {
        return Finding::note("memory", text, "free some memory, or raise the container's limit");
    }
    Finding::ok("memory", text)
}

fn dev_shm() -> Finding {
    let size = rustix::fs::statvfs("/dev/shm").map(|s| s.f_blocks.saturating_mul(s.f_frsize));
    let size = size.map_or("not there".into(), topo::bytes);
    Finding::ok("/dev/shm", format!("{size} (hither does not use it, however small it is)"))
}
