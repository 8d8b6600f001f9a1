//! Kills a random rank at a random moment, over and over, and looks at what is left.
//!
//! Every survivor must end with a typed error that names the dead rank (or go on in a team of
//! the survivors, as asked), none may hang, and nothing may stay behind: no process, no file in
//! a shared directory. `--kills N` sets how many (default 60), `--seed S` repeats a sequence,
//! a word selects workloads by name.

mod work;

use hither::world::{Exit, Launcher, Outcome, Output};
use std::time::Duration;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-kill";
/// Environment variable that marks every process of one run.
const MARK: &str = "HITHER_KILL_TEST_MARK";
/// Exit code of a rank that ended with a typed error about a death.
pub const TYPED: u8 = 3;
/// Exit code of a rank that learnt of the death while it was being wired up.
pub const EARLY: u8 = 4;

/// A small generator: the sequence must be repeatable, not good.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn value_of(args: &[String], name: &str) -> Option<u64> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1)?.parse().ok()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == RANK) {
        std::process::exit(i32::from(work::rank_main(&args[1..])));
    }
    let kills = value_of(&args, "--kills").unwrap_or(60);
    let seed = value_of(&args, "--seed").unwrap_or_else(|| std::process::id().into());
    let filter = args.iter().find(|arg| !arg.starts_with('-') && arg.parse::<u64>().is_err());
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    println!("seed {seed}");
    let before = shared_files();
    let (mut passed, mut failed) = (0, 0);
    let works: Vec<&str> = work::NAMES
        .iter()
        .copied()
        .filter(|name| filter.is_none_or(|f| name.contains(f.as_str())))
        .collect();
    for kill in 0..kills {
        let name = works[kill as usize % works.len()];
        let survive = random.below(2) == 0;
        let ranks = [2, 3, 4, 8][random.below(4) as usize];
        // Some strike while the job is being wired up, most while it works.
        let moment =
            Duration::from_micros(random.below(if kill % 4 == 0 { 15_000 } else { 150_000 }));
        let victim = random.below(u64::from(ranks)) as u32;
        let mark = format!("{}-{kill}", std::process::id());
        let what = format!(
            "kill {kill}: {name}, rank {victim} of {ranks} after {moment:?}{}",
            if survive { ", surviving" } else { "" }
        );
        let outcome = strike(name, ranks, survive, victim, moment, &mark);
        let mut faults = judge(&outcome, victim, survive);
        faults.extend(left_behind(&mark).into_iter().map(|p| format!("process left: {p}")));
        if faults.is_empty() {
            passed += 1;
            continue;
        }
        failed += 1;
        println!("FAILED {what}");
        for fault in faults {
            println!("    {fault}");
        }
        for (rank, text) in outcome.stderr.iter().enumerate() {
            print!("    rank {rank}: {}", String::from_utf8_lossy(text));
        }
    }
    let after = shared_files();
    if after != before {
        failed += 1;
        println!("FAILED shared directories changed: {before:?} -> {after:?}");
    }
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 {
        std::process::exit(1);
    }
}

fn strike(
    name: &str,
    ranks: u32,
    survive: bool,
    victim: u32,
    moment: Duration,
    mark: &str,
) -> Outcome {
    let program = std::env::current_exe().expect("the path of this test");
    let running = Launcher::new(program)
        .args([RANK, name, if survive { "survive" } else { "end" }])
        .ranks(ranks)
        .env(MARK, mark)
        .output(Output::Capture)
        .survive(survive)
        // Whoever is still there after this has not noticed by itself.
        .grace(Duration::from_secs(20))
        .timeout(Duration::from_secs(60))
        .start()
        .expect("starting the job");
    std::thread::sleep(moment);
    running.kill(victim, 9);
    running.wait().expect("the end of the job")
}

/// What is wrong with how the ranks ended.
fn judge(outcome: &Outcome, victim: u32, survive: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if outcome.timed_out {
        faults.push("the job hung".into());
    }
    let mut early = false;
    for (rank, exit) in outcome.ranks.iter().enumerate() {
        let rank = rank as u32;
        let text = String::from_utf8_lossy(&outcome.stderr[rank as usize]);
        let named = text.contains(&format!("rank {victim} "));
        let fine = match *exit {
            Exit::Signal(9) => rank == victim,
            Exit::Code(TYPED) => !survive && named,
            Exit::Code(EARLY) => {
                early = true;
                // Ranks that give the wiring up are gone for the others, which may name them.
                text.contains("died") || text.contains("cannot wire")
            }
            Exit::Code(0) => survive,
            _ => false,
        };
        // After somebody gave up early, others may name that one instead.
        let fine = fine || (early && *exit == Exit::Code(TYPED) && text.contains("died"));
        if !fine && rank != victim {
            faults.push(format!("rank {rank} {exit}"));
        }
        if text.contains("panicked") {
            faults.push(format!("rank {rank} panicked"));
        }
    }
    if outcome.ranks.get(victim as usize) != Some(&Exit::Signal(9)) {
        faults.push("the victim was not killed".into());
    }
    faults
}

/// Processes that carry the mark of a run in their environment.
fn left_behind(mark: &str) -> Vec<String> {
    let needle = format!("{MARK}={mark}\0").into_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environ.windows(needle.len()).any(|window| window == needle)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Names in the directories in which a careless library leaves things.
fn shared_files() -> Vec<String> {
    let mut names: Vec<String> = ["/dev/shm", "/dev/mqueue"]
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten().map(|e| e.path().display().to_string()))
        .collect();
    names.sort();
    names
}
