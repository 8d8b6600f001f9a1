//! Random active messages whose order is checked: ranks send messages of all forms to the parts of a
//! few, whose handlers write themselves into logs there, and afterwards the logs must be what the
//! promises allow (see `check`): each message once, as if one after the other unless they may be
//! concurrent, those of one origin in the order that the hints ask for.
//!
//! ```text
//! messages [--rounds N] [--seed S] [--ranks N] [--form threads|processes] [--way direct|packets]
//! ```
//! A failure prints the seed of its round; `--rounds 1 --seed S` with the form, the ranks and the
//! way of the failure runs its program again.

mod check;
mod play;
mod script;
mod selftest;
#[path = "../support/mod.rs"]
mod support;

use hither::{Job, Result};
use script::Round;
use std::time::Duration;
use support::options::Options;
use support::ranks;
use support::sweep::Sweep;

/// First argument of a process that is a rank.
const RANK: &str = "--rank-of-messages";
const WAYS: [&str; 2] = ["direct", "packets"];
/// Settings that rounds by packets are played with in turn.
const SETTINGS: [&[(&str, &str)]; 6] = [
    &[],
    &[("HITHER_AM_THREADS", "3")],
    &[("HITHER_AM_SYSTEM_TOTAL", "4K"), ("HITHER_AM_THREADS", "3")],
    &[("HITHER_AM_UNIT", "64"), ("HITHER_AM_THREADS", "3")],
    &[("HITHER_PROGRESS", "calls")],
    &[("HITHER_AM_SYSTEM_BUFFER", "8192"), ("HITHER_AM_THREADS", "2")],
];

fn main() {
    let options = Options::read(Sweep::OPTIONS);
    if options.behind(RANK).is_some() {
        return rank_main(&options);
    }
    println!("the checker refused {} logs spoilt on purpose", selftest::run());
    let all = Sweep::read(&options, 40);
    let caught = racy(all.seed);
    println!("{caught} of 60 rounds with messages that are not kept apart were refused");
    all.run(&WAYS, &[1, 2, 4, 6], caught == 0, |form, way, ranks| {
        sweep(form, way, ranks, all.seed, all.rounds)
    });
}

/// How many of some rounds are refused in which messages run at the same time and must not.
fn racy(seed: u64) -> usize {
    let rounds = |job: Job| -> Result<usize> {
        let refused = (seed..seed + 60).filter(|&seed| {
            let round = Round { racy: true, concurrent: false, ..Round::new(seed, WAYS[0], 4) };
            play::play(&job, &round).is_err()
        });
        let refused = refused.count();
        job.finish().map(|()| refused)
    };
    let ends = Job::threads(4, rounds).expect("starting threads");
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
    let settings: &[&[_]] = if way == "packets" { &SETTINGS } else { &SETTINGS[..1] };
    settings.iter().all(|settings| launch(settings, way, ranks, seed, rounds))
}

fn launch(
    settings: &[(&str, &str)],
    way: &'static str,
    ranks: u32,
    seed: u64,
    rounds: u64,
) -> bool {
    let mut launcher = ranks::launcher()
        .args([RANK, "--way", way, "--seed", &seed.to_string(), "--rounds", &rounds.to_string()])
        .ranks(ranks)
        .env("HITHER_WAIT_TIMEOUT", "60")
        .timeout(Duration::from_secs(60 + 4 * rounds));
    for (name, value) in settings {
        launcher = launcher.env(name, value);
    }
    let outcome = ranks::run(launcher);
    print!("{}", ranks::said(&outcome, 0));
    let well = ranks::well(&outcome);
    if !well {
        eprintln!("it was played with {settings:?}");
    }
    well
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
    (seed..seed + rounds).try_for_each(|seed| play::play(job, &Round::new(seed, way, job.size())))
}
