//! Processes that die while devices write into memory of other nodes for them, or into theirs: nothing
//! lands in a part once somebody else has been granted its lock, who is granted it is told of the death,
//! and those that are left go on.

#[path = "support/mod.rs"]
mod support;

use hither::rma::LockKind;
use hither::{Error, Job, Op, Rank, Result, Window};
use std::time::Duration;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// When the victim dies: milliseconds after it has begun.
const AFTER: &str = "HITHER_TEST_AFTER";

/// Whose part is written, on the second of two nodes: by two of the first and one of the second.
const TARGET: Rank = Rank(3);
const RANKS: usize = 4;
const ELEMENTS: usize = 200_000;
const ROUNDS: u64 = 12;

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let after = std::env::var(AFTER).ok().and_then(|text| text.parse().ok()).expect("when");
    ranks::ends(&role, play(&role, Duration::from_millis(after)))
}

fn die_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        ranks::die()
    });
}

fn counter(window: &Window<u64>, name: &str) -> u64 {
    let all = window.packet_counters();
    all.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// Puts until a device does it.
fn warm(window: &Window<u64>) -> Result<()> {
    while counter(window, "puts_by_queue_pair") == 0 {
        let epoch = window.lock(TARGET, LockKind::Shared)?;
        epoch.put(TARGET, 0, &[0; 5000])?;
        epoch.unlock()?;
    }
    Ok(())
}

/// One turn under the exclusive lock: what the part has stays as it is, until it is put anew. Whether
/// the lock was taken from the dead one.
fn turn(window: &Window<u64>, victim: Rank, value: u64) -> Result<bool> {
    let epoch = window.lock(TARGET, LockKind::Exclusive)?;
    let lost = epoch.recovered_from();
    assert!(lost.is_none_or(|lost| lost == victim), "lost {lost:?}");
    let (mut before, mut after) = (vec![0; ELEMENTS], vec![0; ELEMENTS]);
    epoch.get(TARGET, 0, &mut before)?;
    let whole = before.iter().all(|element| *element == before[0]);
    assert!(whole || lost.is_some(), "somebody else has been at work");
    std::thread::sleep(Duration::from_millis(if lost.is_some() { 300 } else { 1 }));
    epoch.get(TARGET, 0, &mut after)?;
    assert!(before == after, "something has landed late");
    epoch.put(TARGET, 0, &vec![value; ELEMENTS])?;
    epoch.unlock()?;
    Ok(lost.is_some())
}

fn play(role: &str, after: Duration) -> Result<String> {
    let job = Job::init()?;
    let (team, me) = (job.team(), job.rank());
    let victim = if role == "target" { TARGET } else { Rank(0) };
    let window = Window::<u64>::allocate(team, ELEMENTS)?;
    if me.0 < 2 {
        warm(&window)?;
    }
    team.barrier()?;
    if me == victim {
        die_after(after);
    }
    match role {
        "origin" => {
            let (mut told, mut round) = (0, 0);
            // The victim goes on until it is dead, the others until that is known.
            let slot = team.slot_of(victim)?;
            let gone = || team.node().check([slot].into_iter(), "a test");
            while me == victim || round < ROUNDS || gone().is_ok() {
                told += u64::from(turn(&window, victim, u64::from(me.0) << 32 | round)?);
                round += 1;
            }
            let rest = team.shrink()?;
            let mut all = [told];
            rest.allreduce(Op::Sum, &mut all)?;
            assert!(all[0] <= 1, "told {} times", all[0]);
            rest.barrier()?;
        }
        _ => {
            let mut puts = 0u64;
            let error = loop {
                let written = window.lock_all().and_then(|epoch| {
                    epoch.put(TARGET, 0, &vec![puts; ELEMENTS])?;
                    epoch.unlock_all()
                });
                match written {
                    Ok(()) => puts += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::RankDied { rank: TARGET, .. }), "{error}");
            team.shrink()?.barrier()?;
        }
    }
    Ok("went on".into())
}

fn played(role: &str, victim: usize) {
    for after in [1, 7, 20, 45, 80] {
        let launcher = ranks::launcher()
            .args(["role", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(AFTER, after.to_string())
            .env("HITHER_NET_TIMEOUT", "2")
            .env("HITHER_NET_PAIR_AFTER", "8")
            .env("HITHER_WAIT_TIMEOUT", "60")
            .ranks(RANKS as u32)
            .nodes(2)
            .survive(true)
            .timeout(Duration::from_secs(150));
        let outcome = ranks::run(launcher);
        for rank in (0..RANKS).filter(|rank| *rank != victim) {
            let said = ranks::said(&outcome, rank);
            let complaint = String::from_utf8_lossy(&outcome.stderr[rank]);
            let what = format!("{role}, after {after} ms: rank {rank}");
            assert!(said.contains("went on"), "{what}: {said} {complaint}");
        }
    }
}

#[test]
fn nothing_of_a_writer_that_died_lands_under_the_next_ones_lock() {
    played("origin", 0);
}

#[test]
fn writers_learn_of_the_death_of_their_target() {
    played("target", TARGET.index());
}
