//! Shared memory, tried out: sealing, mapping, huge pages, futexes, locks.

use super::Finding;
use crate::topo::bytes;
use hither::base::sync::{Ordering, futex_wait, futex_wake};
use hither::base::{Deadline, Offset, Slot, settings};
use hither::shm::map::{self, Mapping};
use hither::shm::node::Node;
use hither::shm::region::SharedRef;
use hither::shm::segment::{HUGE_PAGE, NodeHeader};
use hither::topo::Topology;
use hither::{Error, Result};
use rustix::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub fn check() -> Vec<Finding> {
    vec![sealing(), segment(), huge_pages(), hugetlb(), futex(), membarrier()]
}

fn failed(topic: &'static str, error: &Error, advice: &str) -> Finding {
    Finding::problem(topic, error.to_string(), advice)
}

fn sealing() -> Finding {
    let probe = || -> Result<bool> {
        let fd = map::create_memfd("hither-doctor", 1 << 20)?;
        map::reserve(fd.as_fd(), 0, 1 << 16, "a probe")?;
        map::reopen(&fd)?;
        Ok(rustix::fs::ftruncate(&fd, 0).is_err() && map::sealed_length(&fd)? == 1 << 20)
    };
    match probe() {
        Ok(true) => Finding::ok("memory files", "memfd works, is sealed, and can be reopened"),
        Ok(false) => Finding::problem(
            "memory files",
            "a sealed memfd could be truncated",
            "this kernel (or sandbox) does not honour seals; use another",
        ),
        Err(error) => failed("memory files", &error, "hither needs memfd_create, seals and /proc"),
    }
}

/// Attaches for real to a node of one rank, whose heap is as long as those of one rank per CPU.
fn segment() -> Finding {
    let heap = settings::HEAP_SIZE.bytes().unwrap_or(64 << 30);
    let ranks = Topology::of_machine().map_or(1, |t| t.allowed().count().max(1) as u64);
    let probe = || -> Result<u64> {
        let fd = Node::create_memory(1, heap.saturating_mul(ranks))?;
        let node = Node::attach(fd, Slot(0), Deadline::after(Duration::from_secs(10)))?;
        node.leave();
        Ok(node.areas().length)
    };
    let advice = "lower HITHER_HEAP_SIZE, or raise the limit on address space (ulimit -v)";
    match probe() {
        Ok(length) => Finding::ok(
            "addresses",
            format!("{} mapped at one address, as {ranks} rank(s) need", bytes(length)),
        ),
        // A setting's value, which is reported with the settings.
        Err(Error::InvalidArgument { what, .. }) => {
            Finding::note("addresses", format!("not tried, because of {what}"), "correct it first")
        }
        Err(error) => failed("addresses", &error, advice),
    }
}

/// Whether symmetric memory gets huge pages, by allocating some as windows do.
fn huge_pages() -> Finding {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let topic = "huge pages";
    let setting = std::fs::read_to_string(FILE).unwrap_or_default();
    let Some(mode) = selected(&setting) else {
        let advice = "fine for small windows; big ones are slower to walk at random";
        return Finding::note(topic, "this kernel has none for shared memory", advice);
    };
    let text = format!("for shared memory the system says \"{mode}\"");
    match huge_probe() {
        Ok(true) => Finding::ok(topic, format!("{text}; windows of 8 MiB and more get them")),
        Ok(false) => Finding::note(
            topic,
            format!("{text}; windows do not get them"),
            format!("for faster random access to big windows: echo always > {FILE} (as root)"),
        ),
        Err(error) => {
            Finding::note(topic, format!("{text}; the probe failed: {error}"), "see above")
        }
    }
}

/// Reserves and touches some memory the way windows do; true if it came as huge pages.
fn huge_probe() -> Result<bool> {
    let length = 4 * HUGE_PAGE;
    let fd = map::create_memfd("hither-doctor", length)?;
    // Somewhere aligned: huge pages need address and offset in step.
    let base = (0..64).map(|i| 0x2000_0000_0000 + i * (64 << 30));
    let mapping = base
        .filter_map(|at| Mapping::at(&fd, length, at).transpose())
        .next()
        .unwrap_or_else(|| Mapping::anywhere(&fd, length))?;
    mapping.advise_huge(0, length);
    map::reserve(fd.as_fd(), 0, length, "a probe of huge pages")?;
    mapping.collapse_huge(0, length);
    mapping.populate(0, length);
    let smaps = std::fs::read_to_string("/proc/self/smaps")
        .map_err(|e| Error::os("reading /proc/self/smaps", e))?;
    Ok(huge_bytes(&smaps, mapping.base().as_ptr() as u64) > 0)
}

/// Bytes of huge pages in the mapping that starts at `address`.
fn huge_bytes(smaps: &str, address: u64) -> u64 {
    let start = format!("{address:x}-");
    let of_mapping = smaps.lines().skip_while(|line| !line.starts_with(&start)).skip(1);
    // The next mapping's head line is the first without a "Name:" at its start.
    of_mapping
        .take_while(|line| line.split_whitespace().next().is_some_and(|name| name.ends_with(':')))
        .filter(|line| line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum::<u64>()
        * 1024
}

/// The word in brackets: `always [madvise] never` selects madvise.
fn selected(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

fn hugetlb() -> Finding {
    let mut pools = Vec::new();
    for entry in std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten() {
        let read = |name: &str| -> u64 {
            let text = std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        let (all, free) = (read("nr_hugepages"), read("free_hugepages"));
        let name = entry.file_name().to_string_lossy().replace("hugepages-", "");
        if all > 0 {
            pools.push(format!("{all} x {name} ({free} free)"));
        }
    }
    let pools = if pools.is_empty() { "none".into() } else { pools.join(", ") };
    Finding::ok("hugetlb pools", format!("{pools} (not used by this version)"))
}

/// Sleeps on a word through one mapping and is woken through another at a different address:
/// what two processes do.
fn futex() -> Finding {
    let topic = "futexes";
    let probe = || -> Result<bool> {
        let fd = map::create_memfd("hither-doctor", map::PAGE)?;
        map::reserve(fd.as_fd(), 0, map::PAGE, "a probe of futexes")?;
        let map = || -> Result<SharedRef<NodeHeader>> {
            SharedRef::new(&Arc::new(Mapping::anywhere(&fd, map::PAGE)?), Offset(0))
        };
        let (sleeper, waker) = (map()?, map()?);
        let deadline = Deadline::after(Duration::from_secs(5));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The word never changes and the sleep is longer than the deadline: only a wake
                // that arrives ends it in time.
                futex_wait(&sleeper.size, 0, Duration::from_secs(6));
                sleeper.capacity.store(1, Ordering::Release);
            });
            while waker.capacity.load(Ordering::Acquire) == 0 && !deadline.passed() {
                futex_wake(&waker.size, 1);
                std::thread::yield_now();
            }
        });
        Ok(!deadline.passed())
    };
    match probe() {
        Ok(true) => Finding::ok(topic, "a sleeper is woken through another mapping"),
        Ok(false) => Finding::problem(
            topic,
            "a sleeper was not woken through another mapping within 5 s",
            "waits between processes would only end by time slices; use another sandbox or kernel",
        ),
        Err(error) => failed(topic, &error, "hither needs shared memory files"),
    }
}

fn membarrier() -> Finding {
    if hither::base::sync::register_asymmetric() {
        return Finding::ok("membarrier", "global expedited: wakers need no memory fence");
    }
    Finding::note(
        "membarrier",
        "global expedited is not available: wakers use a full memory fence",
        "nothing is broken; Linux 4.16 or later without a system-call filter has it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_word_is_found() {
        assert_eq!(selected("always within_size advise [never] deny force\n"), Some("never"));
        assert_eq!(selected("none here"), None);
        assert_eq!(selected("[open"), None);
    }

    #[test]
    fn huge_pages_of_one_mapping_are_counted() {
        let smaps = "1000-2000 rw-s 00000000 00:01 1 /memfd:a\nRss: 4 kB\nShmemPmdMapped: 8 kB\n\
                     2000-3000 rw-s 00000000 00:01 1 /memfd:b\nShmemPmdMapped: 2048 kB\n\
                     FilePmdMapped: 0 kB\nVmFlags: rd wr\n";
        assert_eq!(huge_bytes(smaps, 0x1000), 8 << 10);
        assert_eq!(huge_bytes(smaps, 0x2000), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x9000), 0);
    }

    #[test]
    fn where_these_tests_run_hither_can_run() {
        for finding in [sealing(), segment(), futex()] {
            assert_eq!(finding.state, super::super::State::Ok, "{finding:?}");
        }
    }
}
