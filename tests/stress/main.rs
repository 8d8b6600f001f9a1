//! Many ranks on few cores, mixing everything: phases of random kinds one after the other, each with
//! an invariant that is checked at its end, windows coming and going all the time.
//!
//! ```text
//! stress [--seconds N] [--seed S] [--ranks N] [--form threads|processes] [--way direct|packets]
//! ```
//! If a phase does not end in time, every rank says in which step of which phase it is, and the test
//! fails.

mod phases;
#[path = "../support/mod.rs"]
mod support;
mod watch;

use hither::{Job, Op, Result};
use std::time::{Duration, Instant};
use support::options::Options;
use support::random::Random;
use support::ranks;
use watch::Watch;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-stress";
/// Ways in which windows are reached.
pub const WAYS: [&str; 2] = ["direct", "packets"];

fn main() {
    let options =
        Options::read(&["--seconds", "--seed", "--ranks", "--form", "--way", "--threads"]);
    if options.behind(RANK).is_some() {
        return rank_main(&options);
    }
    let seed = options.number("--seed").unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let seconds = options.number("--seconds").unwrap_or(5);
    println!("seed {seed}, {seconds} seconds in each form");
    let mut failed = 0;
    for way in WAYS.into_iter().filter(|way| options.allows("--way", way)) {
        for form in ["threads", "processes"].into_iter().filter(|f| options.allows("--form", f)) {
            for ranks in [8, 16].into_iter().filter(|n| options.allows("--ranks", n)) {
                let phases = stress(form, way, ranks, seed, seconds);
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
    let (seed, seconds_text) = (seed.to_string(), seconds.to_string());
    let size = if form == "threads" { ranks } else { 1 };
    let launcher = ranks::launcher()
        .args([RANK, "--way", way, "--seed", &seed, "--seconds", &seconds_text])
        .args(["--threads", &size.to_string()])
        .ranks(if form == "threads" { 1 } else { ranks })
        .bind(hither::topo::Bind::None)
        .env("HITHER_WAIT_TIMEOUT", watch::LIMIT)
        .timeout(Duration::from_secs(180 + 2 * seconds));
    let outcome = ranks::run(launcher);
    if !ranks::well(&outcome) {
        return None;
    }
    ranks::said(&outcome, 0)
        .lines()
        .filter_map(|line| line.strip_prefix("phases ")?.parse().ok())
        .next_back()
}

fn rank_main(options: &Options) {
    let number = |name| options.number(name).expect("a number");
    let (seed, seconds) = (number("--seed"), number("--seconds"));
    let way = options.value("--way").expect("a way");
    let threads = number("--threads") as u32;
    watch::begin();
    if threads > 1 {
        let ends =
            Job::threads(threads, |job| all(&job, way, seed, seconds).and_then(|()| job.finish()));
        for end in ends.expect("starting threads") {
            end.unwrap_or_else(|error| panic!("{error}"));
        }
        return;
    }
    let job = Job::init().expect("joining the job");
    all(&job, way, seed, seconds).unwrap_or_else(|error| panic!("{error}"));
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
