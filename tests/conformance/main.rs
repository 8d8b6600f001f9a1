//! The conformance suite: what every call must do, at 1, 2, 4 and 8 ranks, with ranks as threads
//! of one process and with ranks as processes, on windows that are reached directly and on windows
//! reached by packets. Each case runs on every rank and fails by panic or error.
//!
//! ```text
//! conformance [WORD] [--ranks N] [--form threads|processes] [--way WAY] [--list]
//!             [--all] [--turn N]
//! ```
//! Ways are `direct`, `packets`, `calls` (packets that only calls of the ranks take in, at 2 and 4
//! ranks), those of collectives with other algorithms ([`coll::WAYS`]), and those of messages with
//! other eager thresholds ([`talk::WAYS`]).
//! A word selects cases whose names contain it. Handwritten cases run once per way; of the generated
//! ones, those that choose packets themselves run once, the others once per way.
//!
//! By packets the generated cases take turns, one part of [`TURNS`] a day, unless all are wanted
//! (`--all`, or a word): they take minutes. `--turn` repeats another day's.
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
mod operations;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod synchronisation;
mod talk;
mod window;

use hither::{Job, Result};
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

/// Parts in which generated cases take turns. A prime that divides no dimension's size, so that
/// every value of each has its place in every part.
const TURNS: usize = 7;

/// Every way: [`WAYS`], and those of collectives and of messages.
fn ways() -> impl Iterator<Item = &'static str> {
    let messages = talk::WAYS.iter().map(|(way, _)| *way);
    WAYS.into_iter().chain(coll::WAYS.into_iter().map(|(way, _)| way)).chain(messages)
}

fn by_hand(&(name, run): &Written) -> Case {
    Case { name: name.to_owned(), run: Box::new(run) }
}

/// All cases for a way: with the first way, those too that choose for themselves, and collectives.
fn cases(way: &str) -> Vec<Case> {
    if talk::WAYS.iter().any(|(name, _)| *name == way) {
        return talk::with(way).map(by_hand).collect();
    }
    if !WAYS.contains(&way) {
        return coll::written().map(by_hand).collect();
    }
    let written = [
        collective::CASES,
        window::CASES,
        kinds::CASES,
        memory::CASES,
        dynamic::CASES,
        operations::CASES,
        signals::CASES,
    ]
    .into_iter()
    .flatten()
    .chain(active::written());
    let written = written.chain(synchronisation::cases());
    // Messages have nothing to do with windows.
    let written = written.chain(talk::cases().filter(|_| way == WAYS[0]));
    let written = written.filter(|(name, _)| way == WAYS[0] || !MAPPED.contains(name));
    let of_collectives = coll::written().filter(|_| way == WAYS[0]);
    let mut all: Vec<Case> = written.chain(of_collectives).map(by_hand).collect();
    all.extend(active::generated());
    let chooses =
        |case: &Case| case.name.ends_with("/packets") || case.name.starts_with("gen/absurd/");
    all.extend(generated::cases().into_iter().filter(|case| way == WAYS[0] || !chooses(case)));
    all
}

/// The cases for a way whose names contain a word; of the generated ones by packets only those whose
/// turn it is, unless all are to be run.
fn selected(way: &str, filter: &str, turn: Option<usize>) -> Vec<Case> {
    let mut all = cases(way);
    let mut generated = 0;
    all.retain(|case| {
        let counts = case.name.starts_with("gen/");
        generated += usize::from(counts);
        let chosen = turn.is_none_or(|turn| generated % TURNS == turn % TURNS);
        case.name.contains(filter) && (chosen || !counts || way == WAYS[0])
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
            selected(way, filter, turn).iter().for_each(|case| println!("{} ({way})", case.name));
        }
        return;
    }
    if let Some(turn) = turn {
        println!("of the generated cases by packets, turn {} of {TURNS}", turn % TURNS);
    }
    let (mut passed, mut failed) = (0, 0);
    for way in ways().filter(|way| options.allows("--way", way)) {
        for form in ["threads", "processes"].into_iter().filter(|f| options.allows("--form", f)) {
            let sizes: &[u32] = if way == "calls" { &BY_CALLS } else { &SIZES };
            for &ranks in sizes.iter().filter(|n| options.allows("--ranks", n)) {
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
