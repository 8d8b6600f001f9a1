//! Which benchmarks there are.

use super::crew::Crew;
use super::duel::{self, Case, Effort};
use super::hosts;
use super::jobs::Options;
use super::row::Row;
use super::subject::{
    active, bfs, coll, collectives, idle, instructions, limits, link, memory, messages, metadata,
    net, net_switch, net_windows, overhead, oversub, rma, scale, start, stencil3d, talk, window,
};
use hither::{Error, Job, Result};
use std::sync::Arc;

/// How a benchmark is carried out.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Comparisons inside one job.
    Cases(fn() -> Vec<Case>),
    /// Something of its own inside one job; rows come out on rank 0.
    Inside(fn(&Crew, Effort) -> Result<Vec<Row>>),
    /// The same, from before the job is joined.
    Alone(fn() -> Result<Vec<Row>>),
    /// Something of its own inside one job whose ranks share no memory.
    Across(fn(&Arc<Job>, Effort) -> Result<Vec<Row>>),
    /// Something of its own that starts jobs.
    Outside(fn(&Options) -> Result<Vec<Row>>),
}

/// One benchmark.
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for `list`; empty for parts of others.
    pub about: &'static str,
    /// Settings of its job.
    pub settings: &'static [(&'static str, &'static str)],
    /// How.
    pub kind: Kind,
}

const fn bench(name: &'static str, about: &'static str, kind: Kind) -> Bench {
    Bench { name, about, settings: &[], kind }
}

/// The part of the stencil for one size.
const fn stencil_part(at: usize) -> Bench {
    bench(stencil3d::PARTS[at].0, "", Kind::Inside(stencil3d::PARTS[at].2))
}

/// All benchmarks in the order of `all`, and the parts that run inside the jobs of others.
pub const ALL: &[Bench] = &[
    bench(
        "limits",
        "the raw limits of this machine, each beside itself",
        Kind::Cases(limits::cases),
    ),
    Bench {
        name: "inbox",
        about: "8 B to 4 KiB through the shared inbox: latency and rate",
        // More messages than any run sends before a lane would be opened.
        settings: &[("HITHER_LANE_AFTER", "4294967295")],
        kind: Kind::Cases(link::inbox),
    },
    bench("lane", "8 B to 4 KiB through a private lane: latency and rate", Kind::Cases(link::lane)),
    bench(
        "p2p",
        "tagged messages: latency, rate, bandwidth, pairs, threads",
        Kind::Outside(talk::p2p),
    ),
    bench(
        "net",
        "messages between two nodes, by datagrams and by queue pairs; windows, by packets and by pairs",
        Kind::Outside(net::run),
    ),
    bench(
        "scale",
        "bytes and connections of a process for others on other nodes, 2 to 2^20 ranks (simulated)",
        Kind::Outside(scale::run),
    ),
    bench("put", "put and flush", Kind::Cases(window::put)),
    bench("get", "get and flush", Kind::Cases(window::get)),
    bench("atomics", "fetch_and_op and compare_and_swap", Kind::Cases(window::atomics)),
    bench("accumulate", "accumulates of one element and of 1 MiB", Kind::Cases(window::accumulate)),
    bench(
        "am",
        "active messages run by their origin; with all that begin with am-",
        Kind::Cases(active::cases),
    ),
    bench(
        "am-units",
        "messages of 100 segments by segments in a unit (001, 6.7)",
        Kind::Outside(messages::stream::units),
    ),
    bench(
        "am-buffers",
        "messages by size of the system buffer (001, 6.8 and 6.9)",
        Kind::Outside(messages::stream::buffers),
    ),
    bench(
        "am-order",
        "large and small messages in turn, in order or not (001, 6.10)",
        Kind::Outside(messages::stream::order),
    ),
    bench(
        "am-concurrency",
        "several origins, one at a time or concurrent (001, 6.11)",
        Kind::Outside(messages::stream::concurrency),
    ),
    bench(
        "am-room",
        "messages that ask for room, once, or not at all (001, 7.6 and 7.7)",
        Kind::Outside(messages::room::room),
    ),
    bench(
        "am-contention",
        "origins that compete for room or the lock (001, 7.8 and 7.9)",
        Kind::Outside(messages::room::contention),
    ),
    bench(
        "am-vector",
        "variable output, packed or whole (001, 7.10)",
        Kind::Outside(messages::room::vector),
    ),
    bench(
        "am-latency",
        "messages by who runs them (001, 8.2 and 8.3)",
        Kind::Outside(messages::progress::latency),
    ),
    bench(
        "am-overlap",
        "the target's computing hidden behind messages (001, 8.4)",
        Kind::Outside(messages::progress::overlap),
    ),
    bench(
        "am-mixed",
        "active messages beside other traffic (001, 8.5)",
        Kind::Outside(messages::progress::mixed),
    ),
    bench(
        "am-stencil",
        "a stencil whose edges are active messages (001, 8.6)",
        Kind::Outside(messages::progress::stencil),
    ),
    bench("barrier", "barrier and empty fence", Kind::Cases(coll::barrier)),
    bench("allreduce", "all-reduce of 8 B", Kind::Cases(coll::allreduce)),
    bench(
        "collectives",
        "every collective from 8 B to 1 MiB, of private and of mapped data",
        Kind::Cases(collectives::cases),
    ),
    Bench {
        name: "instructions",
        about: "how many instructions small operations take, and their limits",
        settings: instructions::SETTINGS,
        kind: Kind::Inside(instructions::run),
    },
    bench("bfs", "breadth-first search of hither demo", Kind::Outside(bfs::run)),
    bench("start", "from the command to the first barrier", Kind::Outside(start::run)),
    bench("idle", "processor time of a rank that waits", Kind::Inside(idle::run)),
    bench("oversub", "4 ranks on 2 cores", Kind::Outside(oversub::run)),
    bench(
        "node-memory",
        "private memory of an idle process, 2 to 512 ranks",
        Kind::Outside(memory::run),
    ),
    bench(
        "window-memory",
        "metadata of a window in each process, 2 to 2^20 ranks (beyond 64 simulated)",
        Kind::Outside(metadata::memory),
    ),
    bench(
        "window-rate",
        "puts whose target's metadata is found in a table, a directory or a cache",
        Kind::Cases(metadata::rate),
    ),
    bench("rma", "every one-sided operation under every synchronisation", Kind::Cases(rma::direct)),
    Bench {
        name: "rma-packets",
        about: "the same by packets",
        settings: rma::PACKETS,
        kind: Kind::Cases(rma::packets),
    },
    bench("rma-size", "put, get and accumulate by size", Kind::Cases(rma::direct_sizes)),
    Bench {
        name: "rma-size-packets",
        about: "the same by packets",
        settings: rma::PACKETS,
        kind: Kind::Cases(rma::packet_sizes),
    },
    bench("locks", "lock, put, unlock: alone and contended by all", Kind::Cases(rma::locks)),
    bench(
        "accumulates",
        "accumulates by size, by several origins on one target, of contended words",
        Kind::Cases(rma::accumulates),
    ),
    bench(
        "issue",
        "by packets: eager, delayed and adaptive issuing (001, 3.15 and 4.2 to 4.4)",
        Kind::Outside(rma::issue::issue),
    ),
    bench(
        "fences",
        "by packets: the two fence algorithms (001, 3.12)",
        Kind::Outside(rma::issue::fences),
    ),
    bench(
        "lock-messages",
        "by packets: the lock with or ahead of operations (001, 3.13 and 3.14)",
        Kind::Outside(rma::issue::lock_messages),
    ),
    bench(
        "overlap",
        "computing hidden behind puts (001, table 4.1; 004)",
        Kind::Outside(rma::overlap::overlap),
    ),
    bench(
        "overhead",
        "what a transfer takes of the program's time, and leaves it (002)",
        Kind::Outside(overhead::overhead),
    ),
    bench(
        "stencil3d",
        "a 3D stencil by eager limit: default, tuned by hand, dynamic (000)",
        Kind::Outside(stencil3d::run),
    ),
    bench("skew", "puts to a target that is late (004)", Kind::Outside(rma::overlap::skew)),
    bench("origins", "several origins, one target (004)", Kind::Outside(rma::overlap::origins)),
    Bench {
        name: net::DATAGRAMS,
        about: "",
        settings: net::BY_DATAGRAMS,
        kind: Kind::Cases(net::datagrams),
    },
    Bench { name: net::PAIRS, about: "", settings: net::BY_PAIRS, kind: Kind::Cases(net::pairs) },
    Bench {
        name: net::LOSSES,
        about: "",
        settings: net::WITH_LOSSES,
        kind: Kind::Cases(net::losses),
    },
    Bench {
        name: net_switch::PART,
        about: "",
        settings: net::BY_PAIRS,
        kind: Kind::Inside(net_switch::part),
    },
    Bench {
        name: net::WINDOWS,
        about: "",
        settings: net_windows::SETTINGS,
        kind: Kind::Cases(net_windows::cases),
    },
    Bench {
        name: hosts::DATAGRAMS,
        about: "",
        settings: hosts::BY_DATAGRAMS,
        kind: Kind::Across(hosts::by_datagrams),
    },
    Bench {
        name: hosts::PAIRS,
        about: "",
        settings: hosts::BY_PAIRS,
        kind: Kind::Across(hosts::by_pairs),
    },
    bench(rma::issue::SINGLE, "", Kind::Inside(rma::issue::single)),
    bench(rma::issue::MANY, "", Kind::Inside(rma::issue::many)),
    bench(rma::issue::ALL_TO_ALL, "", Kind::Inside(rma::issue::everybody)),
    bench(rma::issue::LOCKS, "", Kind::Inside(rma::issue::locks)),
    bench(rma::issue::SPECULATION, "", Kind::Inside(rma::issue::speculation)),
    bench(rma::issue::FENCES, "", Kind::Inside(rma::issue::fence_algorithms)),
    bench(rma::overlap::OVERLAP, "", Kind::Inside(rma::overlap::overlap_part)),
    bench(rma::overlap::SKEW, "", Kind::Inside(rma::overlap::skew_part)),
    bench(rma::overlap::ORIGINS, "", Kind::Inside(rma::overlap::origins_part)),
    bench(messages::stream::UNITS, "", Kind::Inside(messages::stream::units_part)),
    bench(messages::stream::BUFFERS, "", Kind::Inside(messages::stream::buffers_part)),
    bench(messages::stream::ORDER, "", Kind::Inside(messages::stream::order_part)),
    bench(messages::stream::CONCURRENCY, "", Kind::Inside(messages::stream::concurrency_part)),
    bench(messages::room::ROOM, "", Kind::Inside(messages::room::room_part)),
    bench(messages::room::CONTENTION, "", Kind::Inside(messages::room::contention_part)),
    bench(messages::room::VECTOR, "", Kind::Inside(messages::room::vector_part)),
    bench(messages::progress::LATENCY, "", Kind::Inside(messages::progress::latency_part)),
    bench(messages::progress::OVERLAP, "", Kind::Inside(messages::progress::overlap_part)),
    bench(messages::progress::MIXED, "", Kind::Inside(messages::progress::mixed_part)),
    bench(messages::progress::STENCIL, "", Kind::Inside(messages::progress::stencil_part)),
    bench(metadata::PART, "", Kind::Alone(metadata::part)),
    bench(overhead::PART, "", Kind::Inside(overhead::part)),
    bench(overhead::messages::PART, "", Kind::Inside(overhead::messages::part)),
    bench(talk::PAIR, "", Kind::Cases(talk::pair_cases)),
    bench(talk::PAIRS, "", Kind::Cases(talk::pairs_cases)),
    bench(talk::threads::THREADS[0].0, "", Kind::Inside(talk::threads::threads_part::<1>)),
    bench(talk::threads::THREADS[1].0, "", Kind::Inside(talk::threads::threads_part::<2>)),
    bench(talk::threads::THREADS[2].0, "", Kind::Inside(talk::threads::threads_part::<4>)),
    bench(talk::threads::ENDPOINTS[0].0, "", Kind::Inside(talk::threads::endpoints_part::<1>)),
    bench(talk::threads::ENDPOINTS[1].0, "", Kind::Inside(talk::threads::endpoints_part::<2>)),
    bench(talk::threads::ENDPOINTS[2].0, "", Kind::Inside(talk::threads::endpoints_part::<4>)),
    bench(talk::threads::STARS[0].0, "", Kind::Inside(talk::threads::star_part)),
    bench(talk::threads::STARS[1].0, "", Kind::Inside(talk::threads::star_part)),
    bench(talk::threads::FUNNELED, "", Kind::Inside(talk::threads::funneled_part)),
    bench(talk::threads::PROCESSES, "", Kind::Inside(talk::threads::processes_part)),
    bench(oversub::PART, "", Kind::Inside(oversub::part)),
    bench(memory::PART, "", Kind::Alone(memory::part)),
    bench(start::PART, "", Kind::Alone(start::part)),
    stencil_part(0),
    stencil_part(1),
    stencil_part(2),
    stencil_part(3),
    stencil_part(4),
    stencil_part(5),
    stencil_part(6),
];

/// Whose name also stands for those whose names begin with it.
const GROUP: &str = "am";

/// The benchmark of that name.
pub fn find(name: &str) -> Result<&'static Bench> {
    ALL.iter().find(|bench| bench.name == name).ok_or_else(|| {
        Error::invalid("bench", format!("there is no \"{name}\"; hither bench list shows all"))
    })
}

/// The benchmarks that the names stand for; all for none.
pub fn select(names: &[String]) -> Result<Vec<&'static Bench>> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(ALL.iter().filter(|bench| !bench.about.is_empty()).collect());
    }
    let mut selected = Vec::new();
    for name in names {
        selected.push(find(name)?);
        // "am" is the first of a group.
        let group = format!("{name}-");
        let rest = ALL.iter().filter(|bench| name == GROUP && bench.name.starts_with(&group));
        selected.extend(rest.filter(|bench| !bench.about.is_empty()));
    }
    Ok(selected)
}

/// Runs one rank's part of a benchmark.
pub fn work(bench: &Bench, effort: Effort) -> Result<Vec<Row>> {
    let run: fn(&Crew, Effort, Kind) -> Result<Vec<Row>> = |crew, effort, kind| match kind {
        Kind::Cases(cases) => {
            let mut rows = Vec::new();
            for case in cases() {
                rows.extend(duel::run(crew, &case, effort)?);
            }
            Ok(rows)
        }
        Kind::Inside(run) => run(crew, effort),
        Kind::Alone(_) | Kind::Across(_) | Kind::Outside(_) => Ok(Vec::new()),
    };
    match bench.kind {
        Kind::Alone(run) => run(),
        Kind::Across(run) => {
            let job = Arc::new(Job::init()?);
            let rows = run(&job, effort)?;
            // What was measured, which may hold on to the job, is gone by now.
            Arc::into_inner(job).map_or(Ok(()), Job::finish)?;
            Ok(rows)
        }
        Kind::Outside(_) => Err(Error::invalid("bench", "this one does not run inside a job")),
        kind => {
            let crew = Crew::new(Job::init()?)?;
            let rows = run(&crew, effort, kind)?;
            crew.finish()?;
            Ok(rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, bench) in ALL.iter().enumerate() {
            assert!(ALL[i + 1..].iter().all(|other| other.name != bench.name));
            assert_eq!(find(bench.name).unwrap().name, bench.name);
        }
        assert!(find("nonsense").is_err());
        assert!(select(&[]).unwrap().iter().all(|bench| !bench.about.is_empty()));
        assert_eq!(select(&["get".into(), "put".into()]).unwrap().len(), 2);
        let group = select(&["am".into()]).unwrap();
        assert!(group.len() == 12 && group.iter().all(|bench| bench.name.starts_with("am")));
    }
}
