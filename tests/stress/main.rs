//! Many ranks on few cores, mixing everything: phases of random kinds one after the other, each with
//! an invariant that is checked at its end, windows coming and going all the time.
//!
//! ```text
//! stress [--seconds N] [--seed S] [--ranks N] [--form threads|processes] [--way direct|packets]
//! ```
//! If a phase does not end in time, every rank says in which step of which phase it is, and the test
//! fails.

mod phases;
#[path = "../support/random.rs"]
mod random;
mod watch;

use hither::world::{Launcher, Output};
use hither::{Job, Op, Result};
use random::Random;
use std::time::{Duration, Instant};
use watch::Watch;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-stress";
/// Ways in which windows are reached.
pub const WAYS: [&str; 2] = ["direct", "packets"];

fn value_of(args: &[String], name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).cloned()
}

fn number(args: &[String], name: &str) -> Option<u64> {
    value_of(args, name)?.parse().ok()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == RANK) {
        return rank_main(&args);
    }
    let seed = number(&args, "--seed").unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let seconds = number(&args, "--seconds").unwrap_or(5);
    println!("seed {seed}, {seconds} seconds in each form");
    let mut failed = 0;
    for way in WAYS.into_iter().filter(|w| value_of(&args, "--way").is_none_or(|v| v == *w)) {
        for form in ["threads", "processes"] {
            if value_of(&args, "--form").is_some_and(|v| v != form) {
                continue;
            }
            for ranks in [8, 16] {
                if number(&args, "--ranks").is_some_and(|n| n != ranks) {
                    continue;
                }
                let phases = stress(form, way, ranks as u32, seed, seconds);
                failed += u32::from(phases.is_none());
                match phases {
                    Some(phases) => println!("test {form} {ranks} {way} ... ok, {phases} phases"),
                    None => println!("test {form} {ranks} {way} ... FAILED"),
                }
            }
        }
    }
    if failed > 0 {
        println!("{failed} failed; the seed was {seed}");
        std::process::exit(1);
    }
}

/// Phases done, if all went well.
fn stress(form: &str, way: &str, ranks: u32, seed: u64, seconds: u64) -> Option<u64> {
    let program = std::env::current_exe().expect("the path of this test");
    let (seed, seconds_text) = (seed.to_string(), seconds.to_string());
    let size = if form == "threads" { ranks } else { 1 };
    let launcher = Launcher::new(program)
        .args([RANK, "--way", way, "--seed", &seed, "--seconds", &seconds_text])
        .args(["--threads", &size.to_string()])
        .ranks(if form == "threads" { 1 } else { ranks })
        .bind(hither::topo::Bind::None)
        .env("HITHER_WAIT_TIMEOUT", watch::LIMIT)
        .output(Output::Capture)
        .timeout(Duration::from_secs(180 + 2 * seconds));
    let outcome = launcher.start().and_then(|running| running.wait()).expect("launching");
    let said = String::from_utf8_lossy(&outcome.stdout[0]).into_owned();
    if outcome.code() != 0 {
        eprintln!("{}", outcome.summary());
        outcome.stderr.iter().for_each(|text| eprint!("{}", String::from_utf8_lossy(text)));
        return None;
    }
    said.lines().filter_map(|line| line.strip_prefix("phases ")?.parse().ok()).next_back()
}

fn rank_main(args: &[String]) {
    let number = |name| number(args, name).expect("a number");
    let (seed, seconds) = (number("--seed"), number("--seconds"));
    let way = value_of(args, "--way").expect("a way");
    let threads = number("--threads") as u32;
    watch::begin();
    if threads > 1 {
        let ends =
            Job::threads(threads, |job| all(&job, &way, seed, seconds).and_then(|()| job.finish()));
        for end in ends.expect("starting threads") {
            end.unwrap_or_else(|error| panic!("{error}"));
        }
        return;
    }
    let job = Job::init().expect("joining the job");
    all(&job, &way, seed, seconds).unwrap_or_else(|error| panic!("{error}"));
    job.finish().expect("leaving the job");
}

/// Phases until the time is over.
fn all(job: &Job, way: &str, seed: u64, seconds: u64) -> Result<()> {
    let began = Instant::now();
    let watch = Watch::new(job.rank().0);
    let mut random = Random::new(seed);
    let mut phases = 0u64;
    let stage = phases::Stage { job, way, watch: &watch };
    loop {
        // One decides for all when it is enough.
        let mut over = [u64::from(began.elapsed() > Duration::from_secs(seconds))];
        watch.step("deciding whether to go on");
        job.team().allreduce(Op::Max, &mut over)?;
        if over == [1] {
            break;
        }
        let (name, phase) = phases::PHASES[random.below(phases::PHASES.len() as u64) as usize];
        watch.phase(name);
        phase(&stage, random.next())?;
        phases += 1;
        if job.rank().0 == 0 {
            println!("phases {phases}");
        }
    }
    watch.phase("the end");
    job.team().barrier()?;
    let left = job.node().symmetric_in_use()?;
    assert_eq!(left, 0, "bytes of windows that nobody has any more");
    job.team().barrier()
}
