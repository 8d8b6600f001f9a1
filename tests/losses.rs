//! Messages between nodes of which many are lost: all come all the same, whatever the sender does.

#[path = "support/mod.rs"]
mod support;

use hither::{Job, Rank, Result, Window};
use std::path::PathBuf;
use std::time::Duration;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// A directory for what ranks tell each other without the library.
const PLACE: &str = "HITHER_TEST_PLACE";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = match role.as_str() {
        "drop nothing" => drop_nothing(),
        "send and compute" => send_and_compute(),
        role => panic!("no role {role}"),
    };
    ranks::ends(&role, played)
}

/// Keeps what is connected for ever, as a program does that has it in a static.
fn drop_nothing() -> Result<String> {
    let job = Job::init()?;
    let window: &'static Window<u64> = Box::leak(Box::new(Window::allocate(job.team(), 4)?));
    job.team().barrier()?;
    assert_eq!(window.len_of(job.rank())?, 4);
    job.finish().map(|()| "finished".into())
}

/// Sends a message, and does without the library until it is there; who waits for it never asks for it.
fn send_and_compute() -> Result<String> {
    let job = Job::init()?;
    let place = PathBuf::from(std::env::var(PLACE).expect("a directory"));
    let nap = Duration::from_millis(1);
    for turn in 0..10u32 {
        let there = place.join(turn.to_string());
        if job.rank() == Rank(0) {
            // So that nothing is due any more.
            std::thread::sleep(nap * 40);
            job.team().send(Rank(1), turn, &[turn])?;
            let mut left = 20_000;
            while !there.exists() {
                left -= 1;
                assert!(left > 0, "message {turn} was lost and not sent again");
                std::thread::sleep(nap);
            }
        } else {
            while job.team().iprobe::<u32>(Rank(0), turn)?.is_none() {
                std::thread::sleep(nap);
            }
            let mut came = [0u32];
            job.team().recv(Rank(0), turn, &mut came)?;
            assert_eq!(came, [turn]);
            std::fs::write(there, []).expect("a file");
        }
    }
    job.finish().map(|()| "finished".into())
}

fn play(role: &str, seed: u32, place: &std::path::Path) {
    let launcher = ranks::launcher()
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(PLACE, place.display().to_string())
        .env("HITHER_NET_FAULTS", format!("drop=400,seed={seed}"))
        .env("HITHER_NET_TIMEOUT", "3")
        .env("HITHER_WAIT_TIMEOUT", "60")
        .ranks(2)
        .nodes(2)
        .timeout(Duration::from_secs(150));
    let outcome = ranks::run(launcher);
    assert!(ranks::well(&outcome), "{role}, seed {seed}");
    (0..2).for_each(|rank| assert!(ranks::said(&outcome, rank).contains("finished")));
}

/// The last messages of a job are lost like all others, and sent again, though nothing is dropped.
#[test]
fn who_has_finished_is_not_missed_whatever_it_keeps() {
    (0..5).for_each(|seed| play("drop nothing", seed, std::path::Path::new("")));
}

#[test]
fn what_who_computes_has_sent_is_sent_again() {
    let place = std::env::temp_dir().join(format!("hither-losses-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    play("send and compute", 7, &place);
    std::fs::remove_dir_all(&place).expect("the directory");
}
