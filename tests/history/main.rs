//! Random concurrent programs whose histories are checked: ranks operate on a few words at the same
//! time, write down what they called when and what came back, and afterwards an order must exist
//! that explains all of it (see `check`).
//!
//! ```text
//! history [--rounds N] [--seed S] [--ranks N] [--form threads|processes] [--way direct|packets]
//! ```
//! A failure prints the seed of its round and the whole history of the word that nothing explains;
//! `--rounds 1 --seed S` with the form, the ranks and the way of the failure runs its program again.

mod check;
mod program;
mod round;
mod sections;
mod selftest;
#[path = "../support/mod.rs"]
mod support;

use hither::{Job, Result};
use round::Round;
use std::time::Duration;
use support::options::Options;
use support::ranks;
use support::sweep::Sweep;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-history";
const WAYS: [&str; 2] = ["direct", "packets"];

fn main() {
    let options = Options::read(Sweep::OPTIONS);
    if options.behind(RANK).is_some() {
        return rank_main(&options);
    }
    let refused = selftest::run();
    println!("the checker refused {refused} histories spoilt on purpose");
    let all = Sweep::read(&options, 60);
    let caught = racy(all.seed);
    println!("{caught} of 60 rounds with additions that are not atomic were refused");
    all.run(&WAYS, &[2, 3, 5, 8], caught == 0, |form, way, ranks| {
        sweep(form, way, ranks, all.seed, all.rounds)
    });
}

/// How many of some rounds are refused in which additions are not atomic.
fn racy(seed: u64) -> usize {
    let rounds = |job: Job| -> Result<usize> {
        let refused = (seed..seed + 60).filter(|&seed| {
            let round =
                Round { racy: true, sections: false, ..Round::new(seed, WAYS[0], job.size()) };
            round::play(&job, &round).is_err()
        });
        let refused = refused.count();
        job.finish().map(|()| refused)
    };
    let ends = Job::threads(3, rounds).expect("starting threads");
    ends.into_iter().next().expect("a rank").expect("playing racy rounds")
}

fn sweep(form: &str, way: &'static str, ranks: u32, seed: u64, rounds: u64) -> bool {
    if form == "threads" {
        let ends =
            Job::threads(ranks, |job| all(&job, way, seed, rounds).and_then(|()| job.finish()));
        return ends.is_ok_and(|ends| {
            ends.into_iter().all(|end| end.inspect_err(|e| eprintln!("{e}")).is_ok())
        });
    }
    let launcher = ranks::launcher()
        .args([RANK, "--way", way, "--seed", &seed.to_string(), "--rounds", &rounds.to_string()])
        .ranks(ranks)
        .env("HITHER_WAIT_TIMEOUT", "60")
        .timeout(Duration::from_secs(60 + 2 * rounds));
    let outcome = ranks::run(launcher);
    print!("{}", ranks::said(&outcome, 0));
    ranks::well(&outcome)
}

fn rank_main(options: &Options) {
    let way = options.value("--way").and_then(|way| WAYS.into_iter().find(|w| *w == way));
    let job = Job::init().expect("joining the job");
    let seed = options.number("--seed").expect("a seed");
    let rounds = options.number("--rounds").expect("a number of rounds");
    all(&job, way.expect("a way"), seed, rounds).unwrap_or_else(|error| panic!("{error}"));
    job.finish().expect("leaving the job");
}

fn all(job: &Job, way: &'static str, seed: u64, rounds: u64) -> Result<()> {
    (seed..seed + rounds).try_for_each(|seed| round::play(job, &Round::new(seed, way, job.size())))
}
