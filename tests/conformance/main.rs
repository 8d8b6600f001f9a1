//! The conformance suite: what every call must do, at 1, 2, 4 and 8 ranks, with ranks as threads
//! of one process and with ranks as processes. Each case runs on every rank and fails by panic
//! or error. A filter on the command line selects cases by name.

mod active;
mod collective;
mod window;

use hither::world::{Launcher, Output};
use hither::{Job, Result};
use std::time::Duration;

/// A case: runs on every rank of a job.
pub type Case = (&'static str, fn(&Job) -> Result<()>);

const SIZES: [u32; 4] = [1, 2, 4, 8];
/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-conformance";

fn cases() -> impl Iterator<Item = Case> {
    [collective::CASES, window::CASES, active::CASES].into_iter().flatten().copied()
}

fn selected(filter: Option<&str>) -> impl Iterator<Item = Case> {
    let filter = filter.unwrap_or("").to_owned();
    cases().filter(move |(name, _)| name.contains(&filter))
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some(RANK) {
        return rank_main(args.next().as_deref());
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let (mut passed, mut failed) = (0, 0);
    let mut record = |name: String, ok: bool| {
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    };
    for size in SIZES {
        for (name, run) in selected(filter.as_deref()) {
            record(format!("threads {size} {name}"), in_threads(size, run));
        }
    }
    for size in SIZES {
        for (name, ok) in in_processes(size, filter.as_deref()) {
            record(format!("processes {size} {name}"), ok);
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 {
        std::process::exit(1);
    }
}

fn in_threads(size: u32, run: fn(&Job) -> Result<()>) -> bool {
    let outcome = std::panic::catch_unwind(|| {
        Job::threads(size, |job| {
            let result = run(&job);
            result.and_then(|()| job.finish())
        })
    });
    match outcome {
        Ok(Ok(results)) => results.into_iter().all(|r| r.inspect_err(|e| eprintln!("{e}")).is_ok()),
        Ok(Err(error)) => {
            eprintln!("{error}");
            false
        }
        Err(_) => false,
    }
}

/// One rank: runs the cases one after the other in one job, and says so after each.
fn rank_main(filter: Option<&str>) {
    let job = Job::init().expect("joining the job");
    for (name, run) in selected(filter) {
        run(&job).unwrap_or_else(|e| panic!("{name}, rank {}: {e}", job.rank()));
        job.team().barrier().expect("the barrier after a case");
        if job.rank().0 == 0 {
            println!("done {name}");
        }
    }
    job.finish().expect("leaving the job");
}

fn in_processes(size: u32, filter: Option<&str>) -> Vec<(&'static str, bool)> {
    let program = std::env::current_exe().expect("the path of this test");
    let mut launcher = Launcher::new(program)
        .args([RANK])
        .ranks(size)
        .output(Output::Capture)
        .timeout(Duration::from_secs(300));
    if let Some(filter) = filter {
        launcher = launcher.args([filter]);
    }
    let outcome = launcher.start().and_then(|running| running.wait()).expect("launching");
    let text = String::from_utf8_lossy(&outcome.stdout[0]).into_owned();
    let done: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("done ")).collect();
    if outcome.code() != 0 {
        eprintln!("{}", outcome.summary());
        for rank in 0..size {
            eprint!("{}", String::from_utf8_lossy(&outcome.stderr[rank as usize]));
        }
    }
    let ended_well = outcome.code() == 0;
    let all: Vec<_> = selected(filter).map(|(name, _)| (name, done.contains(&name))).collect();
    let complete = all.iter().all(|(_, ok)| *ok);
    let mut results = all;
    results.push(("every rank ends well", ended_well && complete));
    results
}
