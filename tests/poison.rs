//! A rank dies inside a handler: the part it worked on is poisoned, until somebody has repaired and
//! healed it; other parts go on. The ranks are this test's own executable.

use hither::world::{Exit, Launcher, Output};
use hither::{Assertions, Error, Job, LockAllEpoch, Rank, Result, Window};
use std::time::{Duration, Instant};

const ROLE: &str = "HITHER_TEST_ROLE";
/// The input that is fatal.
const FATAL: u64 = 666;

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let code = match play() {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            3
        }
    };
    std::process::exit(code);
}

fn die() {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
}

fn poisoned<T: std::fmt::Debug>(result: Result<T>) {
    let told = matches!(result, Err(Error::WindowPoisoned { target: Rank(0), culprit: Rank(1) }));
    assert!(told, "{result:?}");
}

fn play() -> Result<()> {
    let job = Job::init()?;
    let me = job.rank();
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let twice = window.register::<u64, u64>(1, |call| {
        // Two words that are equal unless a change is half done.
        let new = call.persistent.get(0).unwrap_or(0) + 1;
        let _ = call.persistent.set(0, new);
        if call.input == [FATAL] {
            die();
        }
        let _ = call.persistent.set(1, new);
        call.output.fill(new);
    })?;
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let send = |epoch: &LockAllEpoch<'_, u64>, to: u32, input: u64| {
        let mut new = [0];
        epoch.am(&twice, Rank(to), 0..2, &[input], &mut new).map(|()| new[0])
    };
    if me == Rank(1) {
        send(&epoch, 0, 1)?;
        return send(&epoch, 0, FATAL).map(drop);
    }
    // The death is noticed by whoever wants the part next.
    let begun = Instant::now();
    let first = loop {
        match send(&epoch, 0, 1) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(30), "nobody has died"),
            Err(error) => break error,
        }
    };
    poisoned::<u64>(Err(first));
    let survivors = job.team().shrink()?;
    poisoned(send(&epoch, 0, 1));
    poisoned(epoch.message(&twice, Rank(0)).persistent(0..2).segments(2).input(&[1, 1]).run());
    poisoned(epoch.message(&twice, Rank(0)).persistent(0..2).post());
    poisoned(epoch.message(&twice, Rank(0)).persistent(0..2).request(1).map(drop));
    let dead = send(&epoch, 1, 1);
    assert!(matches!(dead, Err(Error::RankDied { rank: Rank(1), .. })), "{dead:?}");
    assert!(send(&epoch, 2, 1)? > 0, "other parts are sound");
    drop(epoch);
    let asserted = Assertions { concurrent_am: true, ..Assertions::default() };
    let epoch = window.lock_all_with(asserted)?;
    poisoned(send(&epoch, 0, 1));
    survivors.barrier()?;
    if me == Rank(2) {
        let part = window.part(Rank(0))?;
        assert_eq!(part.get(0)?, part.get(1)? + 1, "the change is half done");
        part.set(0, part.get(1)?)?;
        window.heal(Rank(0))?;
    }
    survivors.barrier()?;
    drop(epoch);
    let epoch = window.lock_all()?;
    for _ in 0..100 {
        send(&epoch, 0, 1)?;
    }
    drop(epoch);
    survivors.barrier()?;
    if me == Rank(0) {
        assert_eq!(window.local().get(0)?, window.local().get(1)?);
    }
    survivors.barrier()
}

#[test]
fn a_part_is_poisoned_by_a_death_inside_a_handler_and_healed() {
    let launcher = Launcher::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, "rank")
        .env("HITHER_RMA_MEDIUM", "auto")
        .ranks(4)
        .survive(true)
        .output(Output::Capture)
        .timeout(Duration::from_secs(60));
    let outcome = launcher.start().unwrap().wait().unwrap();
    assert_eq!(outcome.ranks[1], Exit::Signal(9), "{}", outcome.summary());
    for rank in [0, 2, 3] {
        let said = String::from_utf8_lossy(&outcome.stderr[rank]);
        assert_eq!(outcome.ranks[rank], Exit::Code(0), "rank {rank}: {said}");
    }
}
