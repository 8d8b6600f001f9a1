//! A rank dies inside a handler: the part it worked on is poisoned, until somebody has repaired and
//! healed it; other parts go on. Somebody may be in line for the part at that moment. The ranks are
//! this test's own executable.

#[path = "support/mod.rs"]
mod support;

use hither::world::{Exit, Launcher, Output};
use hither::{Assertions, Error, Job, LockAllEpoch, Rank, Result, Window};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// The input that is fatal.
const FATAL: u64 = 666;

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = match role.as_str() {
        "rank" => play(),
        way => queued(way == "short"),
    };
    ranks::ends(&role, played.map(|()| String::new()))
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
            ranks::die();
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

/// Whether a thread sleeps, as the system tells it.
fn sleeps(process: u64, thread: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
    // Behind the name, which is in parentheses.
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
}

/// Rank 1 dies inside on rank 0's part when rank 2 is asleep in line for it: `short` by the short way
/// of messages, else by that in segments.
fn queued(short: bool) -> Result<()> {
    let job = Job::init()?;
    let (me, target) = (job.rank(), Rank(0));
    let window = Window::<u64>::allocate(job.team(), 1)?;
    // Of rank 2: its process and the thread that sends, once it is about to.
    let about = Arc::new(Window::<u64>::allocate(job.team(), 2)?);
    let seen = Arc::downgrade(&about);
    let add = window.register::<u64, u64>(1, move |call| {
        let was = call.persistent.get(0).unwrap_or(0);
        if call.input.contains(&FATAL) {
            // Rank 1 is inside now, and says so.
            let _ = seen.upgrade().and_then(|about| about.local().set(0, 1).ok());
            let begun = Instant::now();
            let waits = || {
                let about = seen.upgrade()?;
                let part = about.part(Rank(2)).ok()?;
                Some((part.get(0).ok()?, part.get(1).ok()?)).filter(|(process, _)| *process > 0)
            };
            while !waits().is_some_and(|(process, thread)| sleeps(process, thread)) {
                assert!(begun.elapsed() < Duration::from_secs(30), "nobody stands in line");
            }
            ranks::die();
        }
        let _ = call.persistent.set(0, was + 1);
        call.output.fill(was);
    })?;
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let send = |input: u64| {
        let mut was = [0; 2];
        if short {
            return epoch.am(&add, target, 0..1, &[input], &mut was[..1]);
        }
        let message = epoch.message(&add, target).persistent(0..1).segments(2);
        message.input(&[input, 0]).output(&mut was).run()
    };
    let inside = Instant::now();
    match me {
        Rank(1) => return send(FATAL),
        Rank(2) => {
            // Not before rank 1 is inside.
            let own = about.local();
            own.set(1, rustix::thread::gettid().as_raw_nonzero().get() as u64)?;
            while about.part(Rank(1))?.get(0)? == 0 {
                assert!(inside.elapsed() < Duration::from_secs(30), "rank 1 is not there");
            }
            own.set(0, std::process::id().into())?;
            poisoned(send(1));
        }
        _ => {}
    }
    let survivors = job.team().shrink()?;
    poisoned(send(1));
    survivors.barrier()?;
    if me == Rank(2) {
        assert_eq!(window.part(target)?.get(0)?, 0, "rank 1 was about to change it");
        window.heal(target)?;
    }
    survivors.barrier()?;
    (0..10).try_for_each(|_| send(1))?;
    survivors.barrier()?;
    if me == target {
        assert!(window.local().get(0)? >= 20);
    }
    survivors.barrier()
}

#[test]
fn who_is_in_line_behind_one_that_dies_is_told() {
    for role in ["short", "long"] {
        start(role, 3);
    }
}

#[test]
fn a_part_is_poisoned_by_a_death_inside_a_handler_and_healed() {
    start("rank", 4);
}

fn start(role: &str, ranks: u32) {
    let launcher = Launcher::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_RMA_MEDIUM", "auto")
        .ranks(ranks)
        .survive(true)
        .output(Output::Capture)
        .timeout(Duration::from_secs(60));
    let outcome = launcher.start().unwrap().wait().unwrap();
    assert_eq!(outcome.ranks[1], Exit::Signal(9), "{}", outcome.summary());
    for rank in (0..ranks as usize).filter(|rank| *rank != 1) {
        let said = String::from_utf8_lossy(&outcome.stderr[rank]);
        assert_eq!(outcome.ranks[rank], Exit::Code(0), "{role}, rank {rank}: {said}");
    }
}
