//! A sweep: the cases one after the other in one job, in a child process or in ranks that are
//! processes. After a failure a new job goes on behind the case that failed.

use super::support::ranks;
use super::{Case, selected};
use hither::topo::Map;
use hither::world::Simulation;
use hither::{Job, Result};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// First argument of a process that works for a sweep: then way, form, ranks, filter, turn (or a
/// word that is no number), first case.
pub const WORKER: &str = "--worker-of-conformance";
/// Names the variable with the longest time for one case, in seconds: 100 unless it says otherwise,
/// enough for a loaded machine.
pub const PATIENCE: &str = "CONFORMANCE_PATIENCE";
/// Deadline of every wait within a case, in seconds: a hang becomes an error that names who is
/// missing.
const WAIT: &str = "60";
/// Milliseconds from which on a case is among those that are named for the time they took.
const LONG: u64 = 200;
/// Failures after which a sweep is given up.
const TOO_MANY: usize = 25;

/// One form of the suite.
pub struct Sweep<'s> {
    pub way: &'s str,
    pub form: &'s str,
    pub ranks: u32,
    pub filter: &'s str,
    /// Which of the generated cases; all for `None`.
    pub turn: Option<usize>,
}

impl Sweep<'_> {
    /// Runs it; returns how many cases passed and failed.
    pub fn run(&self) -> (usize, usize) {
        let began = Instant::now();
        let cases = selected(self.way, self.ranks, self.filter, self.turn);
        let label = format!("{} {} {}", self.form, self.ranks, self.way);
        let (mut passed, mut failed, mut generated) = (0, 0, 0);
        let mut first = 0;
        let mut all: Vec<(u64, usize)> = Vec::new();
        while first < cases.len() && failed < TOO_MANY {
            let (times, well) = self.go_on_from(first);
            let done = times.iter().map(|(number, _)| number + 1).max().unwrap_or(first);
            all.extend(times.into_iter().map(|(number, took)| (took, number)));
            for case in &cases[first..done.min(cases.len())] {
                passed += 1;
                // Thousands of lines would hide the few that matter.
                if case.name.starts_with("gen/") {
                    generated += 1;
                } else {
                    println!("test {label} {} ... ok", case.name);
                }
            }
            first = done;
            if first < cases.len() {
                failed += 1;
                println!("test {label} {} ... FAILED", cases[first].name);
                first += 1;
            } else if !well {
                failed += 1;
                println!("test {label} every rank ends well ... FAILED");
            }
        }
        if failed >= TOO_MANY {
            println!("test {label}: given up after {failed} failures, {} cases left", {
                cases.len() - first
            });
        }
        let took = began.elapsed();
        println!("     {label}: {passed} passed ({generated} generated) in {took:.1?}");
        all.sort_unstable_by(|one, other| other.cmp(one));
        let long = all.iter().take_while(|(took, _)| *took >= LONG).take(5);
        let long = long.map(|(took, number)| format!("{} {took} ms", cases[*number].name));
        let long: Vec<String> = long.collect();
        if !long.is_empty() {
            println!("     {label}: the longest: {}", long.join(", "));
        }
        (passed, failed)
    }

    /// Runs the cases from `first` on until one fails; returns those that are done, with the
    /// milliseconds that they took, and whether everything ended well.
    fn go_on_from(&self, first: usize) -> (Vec<(usize, u64)>, bool) {
        let (size, from) = (self.ranks.to_string(), first.to_string());
        let turn = self.turn.map_or_else(|| "all".to_owned(), |turn| turn.to_string());
        let args = [WORKER, self.way, self.form, &size, self.filter, &turn, &from];
        let (text, complaint, well) = if self.form == "processes" {
            let launcher = ranks::launcher()
                .args(args)
                .ranks(self.ranks)
                .nodes(super::nodes(self.way))
                .map(if self.way == super::IN_TURN { Map::Cyclic(1) } else { Map::Block })
                .env("HITHER_RMA_MEDIUM", medium(self.way))
                .env("HITHER_PROGRESS", progress(self.way))
                .env("HITHER_COLL", algorithms(self.way))
                .env("HITHER_WAIT_TIMEOUT", WAIT)
                .timeout(Duration::from_secs(1800));
            let launcher = settings(self.way)
                .iter()
                .fold(launcher, |launcher, (name, value)| launcher.env(name, value));
            let outcome = ranks::run(launcher);
            let complaint = outcome.stderr.concat();
            let summary = format!("{}\n", outcome.summary()).into_bytes();
            let well = outcome.code() == 0;
            (outcome.stdout[0].clone(), [complaint, summary].concat(), well)
        } else {
            let program = std::env::current_exe().expect("the path of this test");
            let output = Command::new(program)
                .args(args)
                .env("HITHER_RMA_MEDIUM", medium(self.way))
                .env("HITHER_PROGRESS", progress(self.way))
                .env("HITHER_COLL", algorithms(self.way))
                .env("HITHER_WAIT_TIMEOUT", WAIT)
                .envs(settings(self.way).iter().copied())
                .output()
                .expect("starting a process");
            (output.stdout, output.stderr, output.status.success())
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let done = text.lines().filter_map(|line| {
            let (number, took) = line.strip_prefix("done ")?.split_once(' ')?;
            Some((number.parse().ok()?, took.parse().ok()?))
        });
        let done: Vec<(usize, u64)> = done.collect();
        if !well {
            eprint!("{}", String::from_utf8_lossy(&complaint));
        }
        (done, well)
    }
}

fn medium(way: &str) -> &str {
    if matches!(way, "packets" | "calls") { "packets" } else { "auto" }
}

/// Who takes packets in.
fn progress(way: &str) -> &str {
    if way == "calls" { "calls" } else { "thread" }
}

/// The settings for messages, and for what becomes of datagrams.
fn settings(way: &str) -> &'static [(&'static str, &'static str)] {
    match way {
        super::DEVICES => &super::AT_ONCE,
        super::FAULTS => &super::HOW_MANY,
        super::VIRTUAL_FAULTS => &super::A_FIFTH,
        "nodes-4" => &super::FEW_PAIRS,
        _ => {
            let found = super::talk::WAYS.iter().find(|(name, _)| *name == way);
            found.map_or(&[], |(_, settings)| settings)
        }
    }
}

/// The setting for collectives.
fn algorithms(way: &str) -> &'static str {
    let found = super::coll::WAYS.into_iter().find(|(name, _)| *name == way);
    found.map_or("", |(_, setting)| setting)
}

/// A process of a sweep.
pub fn work(args: &[String]) {
    let [way, form, ranks, filter, turn, first] = args else {
        panic!("arguments of a worker: {args:?}")
    };
    let ranks: u32 = ranks.parse().expect("a number of ranks");
    let cases = selected(way, ranks, filter, turn.parse().ok());
    let first: usize = first.parse().expect("the first case");
    std::thread::spawn(watch);
    if form == "processes" {
        let job = Job::init().expect("joining the job");
        all(&job, &cases, first).unwrap_or_else(|failure| panic!("{failure}"));
        job.finish().expect("leaving the job");
        return;
    }
    let rank = |job: Job| match all(&job, &cases, first) {
        Ok(()) => job.finish().map_err(|error| error.to_string()),
        Err(failure) => Err(failure),
    };
    let outcomes = match super::nodes(way) {
        1 => Job::threads(ranks, rank),
        nodes => Simulation::new(ranks, nodes).network(super::VIRTUAL).run(rank),
    };
    let failures: Vec<String> =
        outcomes.expect("starting threads").into_iter().filter_map(|end| end.err()).collect();
    if !failures.is_empty() {
        eprintln!("{}", failures.join("\n"));
        std::process::exit(1);
    }
}

/// All cases from `first` on in one job.
fn all(job: &Job, cases: &[Case], first: usize) -> Result<(), String> {
    for (number, case) in cases.iter().enumerate().skip(first) {
        let text = |error| format!("{}, rank {}: {error}", case.name, job.rank());
        let began = Instant::now();
        (case.run)(job).map_err(text)?;
        job.team().barrier().map_err(text)?;
        DONE.fetch_add(1, Ordering::Relaxed);
        if job.rank().0 == 0 {
            println!("done {number} {}", began.elapsed().as_millis());
            let _ = std::io::stdout().flush();
        }
    }
    Ok(())
}

/// Cases that ranks of this process have ended.
static DONE: AtomicUsize = AtomicUsize::new(0);

/// Ends the process if no case ends for a long time.
fn watch() {
    let given = std::env::var(PATIENCE).ok().and_then(|seconds| seconds.parse().ok());
    let patience = Duration::from_secs(given.unwrap_or(100));
    let mut last = (Instant::now(), 0);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let done = DONE.load(Ordering::Relaxed);
        if done != last.1 {
            last = (Instant::now(), done);
        } else if last.0.elapsed() > patience {
            eprintln!("no case has ended for {patience:?}: this one hangs");
            std::process::abort();
        }
    }
}
