//! Updates of single elements on parts on other nodes that devices carry out: in one domain with those by
//! packets, of in-node origins and of the target itself; once, or reported, where queue pairs fail; and
//! what becomes of them when somebody dies.

#[path = "support/mod.rs"]
mod support;

use hither::rma::LockKind;
use hither::world::Launcher;
use hither::{Error, Job, Op, Rank, Result, Window};
use std::time::Duration;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";

/// Whose part is updated, on the second of two nodes: by two of the first and one of the second.
const TARGET: Rank = Rank(3);
const RANKS: usize = 4;
/// Elements that long accumulates work on; each rank has one of its own behind them.
const SHARED: usize = 4096;
const ROUNDS: u64 = 300;

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    ranks::ends(&role, play(&role))
}

fn counter(window: &Window<u64>, name: &str) -> u64 {
    let all = window.packet_counters();
    all.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

fn by_device(window: &Window<u64>) -> u64 {
    counter(window, "updates_by_queue_pair")
}

/// Updates until a device does it, or as often as would do; they change nothing.
fn warm(window: &Window<u64>) -> Result<()> {
    let epoch = window.lock_all()?;
    for _ in 0..5000 {
        if by_device(window) > 0 {
            break;
        }
        match epoch.fetch_and_op(TARGET, 0, Op::Sum, 0) {
            Ok(_) | Err(Error::Uncertain { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    epoch.unlock_all()
}

/// Everybody adds to the same elements in every way there is, all at the same time.
fn together(window: &Window<u64>, me: Rank) -> Result<()> {
    let epoch = window.lock_all()?;
    let ones = vec![1; SHARED];
    for round in 0..ROUNDS {
        let at = (7 * round as usize + 1) % SHARED;
        // Single ones, by the shortest way that each has.
        epoch.fetch_and_op(TARGET, 0, Op::Sum, 1)?;
        epoch.fetch_and_op(TARGET, at, Op::Sum, 1)?;
        // By packets from afar.
        epoch.accumulate(TARGET, 0, Op::Sum, &[1])?;
        epoch.get_accumulate(TARGET, at, Op::Sum, &[1, 1], &mut [0; 2])?;
        // What long ones gain by plain instructions is what a device must never meet.
        if round.is_multiple_of(4) {
            epoch.accumulate(TARGET, 0, Op::Sum, &ones)?;
        }
        let mut seen = epoch.fetch_and_op(TARGET, 1, Op::NoOp, 0)?;
        loop {
            let old = epoch.compare_and_swap(TARGET, 1, seen, seen + 1)?;
            if old == seen {
                break;
            }
            seen = old;
        }
        if me == TARGET {
            window.local().fetch_and_op(0, Op::Sum, 1)?;
        }
    }
    epoch.unlock_all()
}

fn check_together(window: &Window<u64>) -> Result<()> {
    let mut want = vec![0; SHARED];
    for _ in 0..RANKS {
        for round in 0..ROUNDS {
            let at = (7 * round as usize + 1) % SHARED;
            want[0] += 2;
            want[1] += 1;
            want[at] += 2;
            want[at + 1] += 1;
            if round.is_multiple_of(4) {
                want.iter_mut().for_each(|element| *element += 1);
            }
        }
    }
    want[0] += ROUNDS;
    for (i, want) in want.into_iter().enumerate() {
        assert_eq!(window.local().get(i)?, want, "element {i}");
    }
    Ok(())
}

/// Counts in an element of its own: each update finds what the one before has left, also behind one of
/// which it was not known. How many of those there were.
fn count(window: &Window<u64>, me: Rank, rounds: u64) -> Result<u64> {
    let (own, mut expected, mut uncertain) = (SHARED + me.index(), 0, 0);
    let epoch = window.lock_all()?;
    for round in 0..rounds {
        let done = match round % 2 {
            0 => epoch.fetch_and_op(TARGET, own, Op::Sum, 1),
            _ => epoch.compare_and_swap(TARGET, own, expected, expected + 1),
        };
        // What fails queue pairs.
        epoch.put(TARGET, 0, &[round])?;
        match done {
            Ok(old) => {
                assert_eq!(old, expected, "round {round}");
                expected += 1;
            }
            Err(Error::Uncertain { rank: TARGET, .. }) => {
                uncertain += 1;
                let mut now = [0];
                epoch.get(TARGET, own, &mut now)?;
                assert!(now[0] == expected || now[0] == expected + 1, "{now:?}, not {expected}");
                expected = now[0];
            }
            Err(error) => return Err(error),
        }
    }
    epoch.unlock_all()?;
    Ok(uncertain)
}

fn play(role: &str) -> Result<String> {
    let job = Job::init()?;
    let (team, me) = (job.team(), job.rank());
    let window = Window::<u64>::allocate(team, SHARED + RANKS)?;
    if me.0 < 2 {
        warm(&window)?;
    }
    team.barrier()?;
    let before = by_device(&window);
    let said = match role {
        "together" => {
            together(&window, me)?;
            team.barrier()?;
            if me == TARGET {
                check_together(&window)?;
            }
            // A few were on their way there before the first was told that devices may.
            assert!(me.0 >= 2 || by_device(&window) - before >= ROUNDS, "by packets");
            "all of them".into()
        }
        "auto" => {
            together(&window, me)?;
            team.barrier()?;
            if me == TARGET {
                check_together(&window)?;
            }
            assert_eq!(by_device(&window), 0, "it gains nothing");
            "all of them".into()
        }
        "cut" => {
            let uncertain = count(&window, me, 4 * ROUNDS)?;
            let failed = counter(&window, "queue_pair_failures");
            assert!(uncertain <= failed, "{uncertain} of {failed}");
            let mut all = [failed, uncertain];
            team.allreduce(Op::Sum, &mut all)?;
            assert!(me.0 >= 2 || by_device(&window) > before, "by packets");
            format!("all of them but {} of {} that failed", all[1], all[0])
        }
        "origin dies" => {
            if me == Rank(0) {
                count(&window, me, 50)?;
                let epoch = window.lock_all()?;
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    ranks::die()
                });
                loop {
                    epoch.fetch_and_op(TARGET, 0, Op::Sum, 1)?;
                }
            }
            // The others find out somewhere; what they had done by then counts.
            let _ = count(&window, me, ROUNDS);
            let rest = team.shrink()?;
            rest.barrier()?;
            if me == TARGET {
                let now = window.local().get(0)?;
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(window.local().get(0)?, now, "something has landed late");
            }
            rest.barrier()?;
            "went on".into()
        }
        "target dies" => {
            if me == TARGET {
                std::thread::sleep(Duration::from_millis(30));
                ranks::die();
            }
            let error = loop {
                let done = window.lock(TARGET, LockKind::Shared).and_then(|epoch| {
                    epoch.fetch_and_op(TARGET, SHARED + me.index(), Op::Sum, 1)?;
                    epoch.unlock()
                });
                if let Err(error) = done {
                    break error;
                }
            };
            assert!(matches!(error, Error::RankDied { rank: TARGET, .. }), "{error}");
            team.shrink()?.barrier()?;
            "went on".into()
        }
        other => panic!("no role {other}"),
    };
    if !role.ends_with("dies") {
        window.free()?;
        job.finish()?;
    }
    Ok(said)
}

fn job(role: &str) -> Launcher {
    ranks::launcher()
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_NET_TIMEOUT", "2")
        .env("HITHER_NET_PAIR_AFTER", "3")
        .env("HITHER_WAIT_TIMEOUT", "60")
        .ranks(RANKS as u32)
        .nodes(2)
        .timeout(Duration::from_secs(150))
}

fn played(role: &str, launcher: Launcher, victim: Option<usize>, expected: &str) {
    let outcome = ranks::run(launcher);
    for rank in (0..RANKS).filter(|rank| Some(*rank) != victim) {
        let said = ranks::said(&outcome, rank);
        let complaint = String::from_utf8_lossy(&outcome.stderr[rank]);
        assert!(said.contains(expected), "{role}: rank {rank}: {said} {complaint}");
        println!("{role}: rank {rank}: {said}");
    }
}

#[test]
fn devices_packets_neighbours_and_the_target_update_the_same_elements() {
    played("together", job("together").env("HITHER_NET_ATOMICS", "always"), None, "all of them");
}

#[test]
fn where_devices_gain_nothing_packets_do_it() {
    played("auto", job("auto"), None, "all of them");
}

#[test]
fn what_fails_with_its_queue_pair_is_done_once_or_reported() {
    let launcher = job("cut").env("HITHER_NET_ATOMICS", "always");
    played("cut", launcher.env("HITHER_NET_FAULTS", "cut=5,seed=3"), None, "all of them but");
}

#[test]
fn nothing_of_an_origin_that_died_lands_late() {
    let launcher = job("origin dies").env("HITHER_NET_ATOMICS", "always").survive(true);
    played("origin dies", launcher, Some(0), "went on");
}

#[test]
fn a_target_that_dies_is_reported_as_dead() {
    let launcher = job("target dies").env("HITHER_NET_ATOMICS", "always").survive(true);
    played("target dies", launcher, Some(TARGET.index()), "went on");
}
