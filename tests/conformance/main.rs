//! The conformance suite: what every call must do, at 1, 2, 4 and 8 ranks, with ranks as threads
//! of one process and with ranks as processes, on windows that are reached directly and on windows
//! reached by packets. Each case runs on every rank and fails by panic or error.
//!
//! ```text
//! conformance [WORD] [--ranks N] [--form threads|processes] [--way WAY] [--list]
//!             [--all] [--turn N]
//! ```
//! Ways are `direct`, `packets`, `calls` (packets that only calls of the ranks take in, at 2 and 4
//! ranks), `nodes-2` and `nodes-4` (so many emulated nodes, between which sockets carry everything:
//! processes only), `nodes-2-cyclic` (ranks on each in turn: four), `nodes-2-faults` (where they do so
//! badly: two ranks), `sim-2` and `sim-4` (nodes in one process, and a virtual network between them),
//! `sim-2-faults` (one that loses a fifth of all datagrams), those of collectives with other algorithms
//! ([`coll::WAYS`]), and those of messages with other eager thresholds ([`talk::WAYS`]).
//! A word selects cases whose names contain it; several go with commas between. Handwritten cases
//! run once per way; of the generated ones, those that choose packets themselves run once, the
//! others once per way.
//!
//! By packets, and of more than [`FEW`] ranks, the generated cases take turns, one part of [`TURNS`] a
//! day, unless all are wanted (`--all`, or a word): they take minutes. `--turn` repeats another day's.
//! With faults all cases take turns like that, one part of [`LOSSY_TURNS`] a day, and of the ways of
//! messages one a day is run at 8 ranks.
//!
//! Every sweep over the cases is a process of its own (or a job of processes), which says what it
//! has done case by case: after a failure the sweep goes on behind the case that failed.

mod active;
mod coll;
mod collective;
mod dynamic;
mod generated;
mod kinds;
mod memory;
mod mixed;
mod operations;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod synchronisation;
mod talk;
mod window;

use hither::world::VirtualNetwork;
use hither::{Job, Result};
use std::time::Duration;
use support::options::Options;
use sweep::Sweep;

/// A case: runs on every rank of a job.
pub struct Case {
    /// Unique.
    pub name: String,
    /// What every rank does.
    pub run: Run,
}

type Run = Box<dyn Fn(&Job) -> Result<()> + Send + Sync>;

/// A case written by hand.
pub type Written = (&'static str, fn(&Job) -> Result<()>);

const SIZES: [u32; 4] = [1, 2, 4, 8];

/// The ways in which windows are reached, unless a case says so itself.
const WAYS: [&str; 3] = ["direct", "packets", "calls"];

/// Numbers of ranks where only their calls take packets in: two that have a core each, and more than
/// the machine may have cores.
const BY_CALLS: [u32; 2] = [2, 4];

/// Cases about memory that is mapped, by nature.
const MAPPED: [&str; 4] = [
    "same_address_everywhere",
    "barrier_orders_stores",
    "threads_of_a_rank",
    // By packets as many handlers run at a time as the target has threads for.
    "am_concurrent_when_asserted",
];

/// Of up to so many ranks all generated cases are run directly, every day. More share the cores of
/// most machines, and each case takes the longer.
const FEW: u32 = 4;

/// Parts in which generated cases take turns. A prime that divides no dimension's size, so that
/// every value of each has its place in every part.
const TURNS: usize = 7;

/// The same for all cases where datagrams are lost, and for [`PAIRS`] on four nodes, which take time.
/// Has no divisor in common with the parts of generated cases, so that each of those has its turn here,
/// too.
const LOSSY_TURNS: usize = 6;

/// Ways on several nodes, and how many.
const NODES: [(&str, u32); 8] = [
    ("nodes-2", 2),
    (DEVICES, 2),
    (IN_TURN, 2),
    ("nodes-4", 4),
    (FAULTS, 2),
    ("sim-2", 2),
    ("sim-4", 4),
    (VIRTUAL_FAULTS, 2),
];

/// The way on two nodes between which devices carry out every put and get that they can: of windows
/// only.
const DEVICES: &str = "nodes-2-devices";

/// From the first bytes on, by queue pairs that come at once.
const AT_ONCE: [(&str, &str); 4] = [
    ("HITHER_NET_PAIR_AFTER", "1"),
    ("HITHER_NET_PUT_FROM", "1"),
    ("HITHER_NET_GET_FROM", "1"),
    ("HITHER_NET_ATOMICS", "always"),
];

/// Ways whose nodes are in one process, joined by a virtual network: ranks are threads there.
const SIMULATED: &str = "sim-";

/// Datagrams overtake each other in it.
const VIRTUAL: VirtualNetwork = VirtualNetwork {
    seed: 20,
    latency: Duration::from_micros(5),
    bandwidth: 5_000_000_000,
    jitter: Duration::from_micros(20),
    datagram_prefix: 40,
    datagram: 4096,
};

/// The way on two such nodes between which a fifth of all datagrams is lost.
const VIRTUAL_FAULTS: &str = "sim-2-faults";

/// How many of 1000.
const A_FIFTH: [(&str, &str); 4] = [
    ("HITHER_NET_FAULTS", "drop=200,duplicate=50,delay=20,reorder=50,cut=2"),
    ("HITHER_NET_PAIR_AFTER", "8"),
    ("HITHER_NET_PUT_FROM", "1"),
    ("HITHER_NET_GET_FROM", "1"),
];

/// The way on two nodes whose ranks do not follow each other: at four ranks, the fewest of which two
/// are on each.
const IN_TURN: &str = "nodes-2-cyclic";

/// Cases that see a pair of ranks at a time, on one node or on two, whichever ranks are beside them:
/// they take most of the time, and other ways run them.
const PAIRS: [&str; 6] =
    ["am_", "talk_sizes_", "talk_switch_", "talk_random", "talk_much_", "talk_floods_"];

/// The way on two nodes between which datagrams are lost, doubled, late and overtaken, and queue
/// pairs are cut.
const FAULTS: &str = "nodes-2-faults";

/// How many of 1000; queue pairs come early.
const HOW_MANY: [(&str, &str); 4] = [
    ("HITHER_NET_FAULTS", "drop=30,duplicate=20,delay=20,reorder=20,cut=1"),
    ("HITHER_NET_PAIR_AFTER", "8"),
    ("HITHER_NET_PUT_FROM", "100"),
    ("HITHER_NET_GET_FROM", "100"),
];

/// On four nodes everybody who is sent to gets a queue pair, but there are never more than a few.
const FEW_PAIRS: [(&str, &str); 4] = [
    ("HITHER_NET_PAIR_AFTER", "1"),
    ("HITHER_NET_PAIR_LIMIT", "3"),
    ("HITHER_NET_PUT_FROM", "1"),
    ("HITHER_NET_GET_FROM", "1"),
];

/// The limit of a team that is to be found waiting in vain: so many milliseconds, and more where
/// datagrams are lost or everything is slow, for what is not in vain takes its time there.
pub fn brief(milliseconds: u64) -> Duration {
    let given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let slow = given("HITHER_NET_FAULTS") || given(sweep::PATIENCE);
    Duration::from_millis(if slow { 10 * milliseconds } else { milliseconds })
}

/// By how much fewer of the generated cases are run at a time on several nodes: windows there go the
/// way that packets go in a node, which the other ways try.
const BETWEEN: usize = 5;

/// Nodes of the jobs of a way.
fn nodes(way: &str) -> u32 {
    NODES.iter().find(|(name, _)| *name == way).map_or(1, |(_, nodes)| *nodes)
}

/// Every way: [`WAYS`], those on several nodes, and those of collectives and of messages.
fn ways() -> impl Iterator<Item = &'static str> {
    let messages = talk::WAYS.iter().map(|(way, _)| *way);
    let edge = NODES.iter().map(|(way, _)| *way);
    WAYS.into_iter().chain(edge).chain(coll::WAYS.into_iter().map(|(way, _)| way)).chain(messages)
}

fn by_hand(&(name, run): &Written) -> Case {
    Case { name: name.to_owned(), run: Box::new(run) }
}

/// All cases for a way and so many ranks: with the first way, those too that choose for themselves, and
/// collectives.
fn cases(way: &str, ranks: u32) -> Vec<Case> {
    if talk::WAYS.iter().any(|(name, _)| *name == way) {
        return talk::with(way).map(by_hand).collect();
    }
    if !WAYS.contains(&way) && nodes(way) == 1 {
        return coll::written().map(by_hand).collect();
    }
    let written = [
        collective::CASES,
        window::CASES,
        kinds::CASES,
        memory::CASES,
        mixed::CASES,
        dynamic::CASES,
        operations::CASES,
        signals::CASES,
    ]
    .into_iter()
    .flatten()
    .chain(active::written());
    let written = written.chain(synchronisation::cases());
    // Messages and collectives have nothing to do with windows, but with nodes.
    let all_rooms = way == WAYS[0] || nodes(way) > 1 && way != DEVICES;
    let written = written.chain(talk::cases().filter(|_| all_rooms));
    let written = written.filter(|(name, _)| way == WAYS[0] || !MAPPED.contains(name));
    let of_collectives = coll::written().filter(|_| all_rooms);
    let mut all: Vec<Case> = written.chain(of_collectives).map(by_hand).collect();
    all.extend(active::generated());
    let chooses =
        |case: &Case| case.name.ends_with("/packets") || case.name.starts_with("gen/absurd/");
    all.extend(generated::cases().into_iter().filter(|case| way == WAYS[0] || !chooses(case)));
    // Ranks of different nodes share no memory (see `kinds::lies_apart`).
    all.retain(|case| nodes(way) == 1 || !case.name.contains("/allocate_shared"));
    let by_others = matches!(way, IN_TURN | DEVICES | "sim-4") || way == "nodes-4" && ranks > FEW;
    all.retain(|case| !by_others || !PAIRS.iter().any(|pair| case.name.starts_with(pair)));
    all
}

/// The cases for a way and so many ranks whose names contain a word; of the generated ones by packets,
/// or of many ranks, only those whose turn it is, unless all are to be run.
fn selected(way: &str, ranks: u32, filter: &str, turn: Option<usize>) -> Vec<Case> {
    let mut all = cases(way, ranks);
    let mut generated = 0;
    if let (true, Some(turn)) = (matches!(way, FAULTS | VIRTUAL_FAULTS), turn) {
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % LOSSY_TURNS == turn % LOSSY_TURNS
        });
    }
    if let ("nodes-4", Some(turn)) = (way, turn) {
        let mut number = 0;
        all.retain(|case| {
            let pair = PAIRS.iter().any(|pair| case.name.starts_with(pair));
            number += usize::from(pair);
            !pair || number % LOSSY_TURNS == turn % LOSSY_TURNS
        });
    }
    all.retain(|case| {
        let counts = case.name.starts_with("gen/");
        generated += usize::from(counts);
        let turns = if nodes(way) > 1 { TURNS * BETWEEN } else { TURNS };
        let chosen = turn.is_none_or(|turn| generated % turns == turn % turns);
        filter.split(',').any(|word| case.name.contains(word))
            && (chosen || !counts || way == WAYS[0] && ranks <= FEW)
    });
    all
}

/// Days since 1970.
fn today() -> usize {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| (time.as_secs() / 86_400) as usize)
}

fn main() {
    let options = Options::read(&["--ranks", "--form", "--way", "--turn"]);
    if let Some(args) = options.behind(sweep::WORKER) {
        return sweep::work(args);
    }
    let filter = options.word().unwrap_or_default();
    let given = options.number("--turn").map(|turn| turn as usize);
    let all = options.has("--all") || given.is_none() && !filter.is_empty();
    let turn = (!all).then(|| given.unwrap_or_else(today));
    if options.has("--list") {
        for way in ways() {
            selected(way, FEW, filter, turn)
                .iter()
                .for_each(|case| println!("{} ({way})", case.name));
        }
        return;
    }
    if let Some(turn) = turn {
        println!("of generated cases that take turns, turn {} of {TURNS}", turn % TURNS);
    }
    let (mut passed, mut failed) = (0, 0);
    for way in ways().filter(|way| options.allows("--way", way)) {
        for form in ["threads", "processes"].into_iter().filter(|f| options.allows("--form", f)) {
            let nodes = nodes(way);
            // Several nodes are processes, unless they are simulated.
            if nodes > 1 && way.starts_with(SIMULATED) != (form == "threads") {
                continue;
            }
            let apart = talk::APART.contains(&way);
            if apart && form == "threads" {
                continue;
            }
            // Who asks for so many ranks gets them.
            let asked = options.number("--ranks").is_some();
            let crowded = asked || turn.is_none_or(|turn| talk::is_crowded(way, turn));
            let sizes = match way {
                "calls" => &BY_CALLS[..],
                _ if apart => &SIZES[1..],
                _ => &SIZES[..],
            };
            let sizes = sizes.iter().filter(|size| crowded || **size <= FEW);
            // One and two ranks on each node; what faults hit is between nodes.
            let each = match way {
                FAULTS => 1..=1,
                // What two ranks of a node do is the same over sockets.
                way if way.starts_with(SIMULATED) => 1..=1,
                IN_TURN => 2..=2,
                _ => 1..=2,
            };
            let fits = |size: &u32| nodes == 1 || each.contains(&(*size / nodes));
            let sizes = sizes.filter(|size| fits(size));
            for &ranks in sizes.filter(|n| options.allows("--ranks", n)) {
                let sweep = Sweep { way, form, ranks, filter, turn };
                let (good, bad) = sweep.run();
                passed += good;
                failed += bad;
            }
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 || passed == 0 {
        std::process::exit(1);
    }
}
