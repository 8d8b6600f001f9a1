//! The conformance suite: what every call must do, at 1, 2, 4 and 8 ranks, with ranks as threads
//! of one process and with ranks as processes, on windows that are reached directly and on windows
//! reached by packets. Each case runs on every rank and fails by panic or error.
//!
//! ```text
//! conformance [WORD] [--ranks N] [--form threads|processes] [--way direct|packets] [--list]
//! ```
//! A word selects cases whose names contain it. Handwritten cases run once per way; generated ones
//! have the way in their name and run once.
//!
//! Every sweep over the cases is a process of its own (or a job of processes), which says what it
//! has done case by case: after a failure the sweep goes on behind the case that failed.

mod active;
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
const WAYS: [&str; 2] = ["direct", "packets"];

/// Cases about memory that is mapped, by nature.
const MAPPED: [&str; 3] = ["same_address_everywhere", "barrier_orders_stores", "threads_of_a_rank"];

/// Cases that wait when an epoch is opened: by packets opening one does not wait (paper 001
/// §3.4.3), what it opens does.
const WAITING: [&str; 2] = ["locks_end_at_deadlines", "start_post_with_a_member_that_is_gone"];

/// All cases for a way: with the first way, those too that choose for themselves.
fn cases(way: &str) -> Vec<Case> {
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
    .chain(active::written(way));
    let written = written.chain(synchronisation::cases());
    let written = written
        .filter(|(name, _)| way == WAYS[0] || !MAPPED.contains(name) && !WAITING.contains(name));
    let mut all: Vec<Case> =
        written.map(|&(name, run)| Case { name: name.to_owned(), run: Box::new(run) }).collect();
    all.extend(active::generated(way));
    if way == WAYS[0] {
        all.extend(generated::cases());
    }
    all
}

fn selected(way: &str, filter: &str) -> Vec<Case> {
    let mut all = cases(way);
    all.retain(|case| case.name.contains(filter));
    all
}

fn main() {
    let options = Options::read(&["--ranks", "--form", "--way"]);
    if let Some(args) = options.behind(sweep::WORKER) {
        return sweep::work(args);
    }
    let filter = options.word().unwrap_or_default();
    if options.has("--list") {
        for way in WAYS {
            selected(way, filter).iter().for_each(|case| println!("{} ({way})", case.name));
        }
        return;
    }
    let (mut passed, mut failed) = (0, 0);
    for way in WAYS.into_iter().filter(|way| options.allows("--way", way)) {
        for form in ["threads", "processes"].into_iter().filter(|f| options.allows("--form", f)) {
            for ranks in SIZES.into_iter().filter(|n| options.allows("--ranks", n)) {
                let sweep = Sweep { way, form, ranks, filter };
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
