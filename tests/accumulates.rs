//! Long accumulates on parts on other nodes that their origin carries out under the exclusive lock: that
//! it does, and only where the window's hint lets it; that they are those of the library at the target;
//! that nothing is done twice or lost where queue pairs fail; and what becomes of them when somebody gives
//! up or dies.

#[path = "support/mod.rs"]
mod support;

use hither::layout::Located;
use hither::rma::Element;
use hither::world::{Simulation, VirtualNetwork};
use hither::{Error, Info, Job, LockKind, Op, Rank, Result, Window};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;
use support::random::Random;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";

/// Elements of what origins carry out: more than `HITHER_NET_ACCUMULATE_FROM` has bytes, in several blocks.
const LONG: usize = 40_001;

fn counter<T: Element>(window: &Window<T>, name: &str) -> u64 {
    let all = window.packet_counters();
    all.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

fn by_origin<T: Element>(window: &Window<T>) -> u64 {
    counter(window, "accumulates_by_queue_pair")
}

fn hinted() -> Info {
    Info { locks_cover_owner: true, ..Info::default() }
}

/// Accumulates that change nothing, until this origin carries one out: queue pairs come with traffic.
fn warm(window: &Window<u64>, target: Rank) -> Result<()> {
    let before = by_origin(window);
    for _ in 0..1000 {
        let epoch = window.lock(target, LockKind::Exclusive)?;
        epoch.accumulate(target, 0, Op::Sum, &[0; LONG])?;
        epoch.unlock()?;
        if by_origin(window) > before {
            return Ok(());
        }
    }
    panic!("no origin ever carries one out");
}

/// Runs `body` on two ranks on two nodes, in a window whose parts they reach by devices.
fn two(
    network: VirtualNetwork,
    body: impl Fn(&Job, &Window<u64>, Rank) -> Result<()> + Send + Sync,
) {
    let results = Simulation::new(2, 2).network(network).run(|job| {
        let peer = Rank(1 - job.rank().0);
        let window = Window::<u64>::builder(job.team()).info(hinted()).allocate(4 * LONG)?;
        warm(&window, peer)?;
        job.team().barrier()?;
        body(&job, &window, peer)?;
        job.team().barrier()?;
        window.free()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// The same random updates under exclusive locks of a window with the hint and of one without: the same
/// results, and the same elements in the end.
fn agree<T: Element + PartialEq + Debug>(
    job: &Job,
    peer: Rank,
    operations: &[Op],
    value: impl Fn(u64) -> T,
) -> Result<()> {
    let team = job.team();
    let with = Window::<T>::builder(team).info(hinted()).allocate(2 * LONG)?;
    let without = Window::<T>::allocate(team, 2 * LONG)?;
    let mut random = Random::new(7 + u64::from(job.rank().0));
    for round in 0..40 {
        let op = operations[random.below(operations.len() as u64) as usize];
        // From what is just long enough to all of it; some in one block, some in many.
        let least = (64 << 10) / size_of::<T>();
        let count = match round {
            0..3 => [least, 2 * LONG, (256 << 10) / size_of::<T>()][round].min(2 * LONG),
            _ => least + random.below((2 * LONG - least) as u64) as usize,
        };
        let at = random.below((2 * LONG - count + 1) as u64) as usize;
        let values: Vec<T> = (0..count).map(|_| value(random.next())).collect();
        let fetches = random.below(2) == 0 || op == Op::NoOp;
        let mut found = [vec![value(0); count], vec![value(0); count]];
        for (window, found) in [&with, &without].into_iter().zip(&mut found) {
            let epoch = window.lock(peer, LockKind::Exclusive)?;
            // In order with what goes by packets.
            epoch.put(peer, at, &values[..3])?;
            match fetches {
                true => epoch.get_accumulate(peer, at, op, &values, found)?,
                false => epoch.accumulate(peer, at, op, &values)?,
            }
            epoch.accumulate(peer, at + count - 1, op_again(op), &values[..1])?;
            epoch.unlock()?;
        }
        assert!(found[0] == found[1], "round {round}: results of {op:?} of {count} at {at}");
    }
    team.barrier()?;
    for i in 0..2 * LONG {
        let (one, other) = (with.local().get(i)?, without.local().get(i)?);
        assert_eq!(one, other, "element {i} of {}", std::any::type_name::<T>());
    }
    assert!(by_origin(&with) > 30, "by packets");
    team.barrier()?;
    with.free()?;
    without.free()
}

/// What a window with the usual hints lets follow.
fn op_again(op: Op) -> Op {
    if op == Op::NoOp { Op::Replace } else { op }
}

#[test]
fn origins_do_what_targets_would() {
    two(VirtualNetwork::default(), |job, _, peer| {
        let all = [Op::Sum, Op::Product, Op::Min, Op::Max, Op::BitAnd, Op::BitOr, Op::BitXor];
        let ends = [Op::Replace, Op::NoOp];
        agree::<u64>(job, peer, &[&all[..], &ends].concat(), |x| x)?;
        agree::<i16>(job, peer, &[&all[..], &ends].concat(), |x| x as i16)?;
        agree::<u8>(job, peer, &[&all[..], &ends].concat(), |x| x as u8)?;
        let float = |x: u64| (x % 2000) as f64 / 7.0 - 100.0;
        agree::<f64>(job, peer, &[Op::Sum, Op::Min, Op::Max, Op::Replace, Op::NoOp], float)?;
        agree::<f32>(job, peer, &[Op::Sum, Op::Product, Op::Replace], |x| float(x) as f32)?;
        let located = |x: u64| Located { value: float(x), index: x as i64 };
        agree::<Located<f64, i64>>(job, peer, &[Op::MinLoc, Op::MaxLoc, Op::Replace], located)
    });
}

/// Two on each node, the owner too, each under its own exclusive lock.
#[test]
fn what_anybody_adds_under_the_lock_is_there_in_the_end() {
    const TURNS: u64 = 30;
    let results = Simulation::new(4, 2).run(|job| {
        let (team, me, target) = (job.team(), job.rank(), Rank(1));
        let window = Window::<u64>::builder(team).info(hinted()).allocate(LONG)?;
        let ones = vec![1; LONG];
        let mut seen = 0;
        for turn in 0..TURNS {
            let epoch = window.lock(target, LockKind::Exclusive)?;
            if me == target && turn % 2 == 0 {
                for i in 0..LONG {
                    let old = window.local().get(i)?;
                    window.local().set(i, old + 1)?;
                }
            } else if turn % 3 == 0 {
                let mut old = vec![0; LONG];
                epoch.get_accumulate(target, 0, Op::Sum, &ones, &mut old)?;
                assert!(old.iter().all(|value| *value == old[0] && *value >= seen));
                seen = old[0];
            } else {
                epoch.accumulate(target, 0, Op::Sum, &ones)?;
            }
            epoch.unlock()?;
        }
        team.barrier()?;
        if me == target {
            for i in 0..LONG {
                assert_eq!(window.local().get(i)?, 4 * TURNS, "element {i}");
            }
        }
        let mut most = [by_origin(&window)];
        team.allreduce(Op::Max, &mut most)?;
        assert!(most[0] > 0, "no origin had anything to do");
        window.free()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// Threads of one process in one epoch, on the same elements: one that carries its accumulates out itself,
/// and others whose operations the target carries out.
#[test]
fn threads_of_an_epoch_lose_nothing_of_each_other() {
    const TURNS: u64 = 25;
    two(VirtualNetwork::default(), |_, window, peer| {
        let ones = vec![1; LONG];
        let epoch = window.lock(peer, LockKind::Exclusive)?;
        std::thread::scope(|scope| {
            let long = [(); 2].map(|()| {
                scope.spawn(|| {
                    (0..TURNS).try_for_each(|_| epoch.accumulate(peer, 0, Op::Sum, &ones))
                })
            });
            let short = scope.spawn(|| -> Result<u64> {
                for turn in 0..40 * TURNS {
                    epoch.accumulate(peer, turn as usize % 9, Op::Sum, &[1; 2])?;
                    epoch.fetch_and_op(peer, LONG - 1, Op::Sum, 1)?;
                }
                Ok(40 * TURNS)
            });
            long.into_iter().try_for_each(|thread| thread.join().unwrap())?;
            let done = short.join().unwrap()?;
            let mut all = vec![0; LONG];
            epoch.get(peer, 0, &mut all)?;
            let sum: u64 = all.iter().sum();
            assert_eq!(sum, LONG as u64 * 2 * TURNS + 3 * done);
            assert_eq!(all[LONG - 1], 2 * TURNS + done);
            Ok::<_, Error>(())
        })?;
        epoch.unlock()
    });
}

#[test]
fn what_others_may_meet_or_is_short_or_lies_apart_goes_to_the_target() {
    two(VirtualNetwork::default(), |job, window, peer| {
        let before = by_origin(window);
        let ones = vec![1; LONG];
        let epoch = window.lock(peer, LockKind::Shared)?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.unlock()?;
        let epoch = window.lock_all()?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.unlock_all()?;
        let epoch = window.fence()?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.end()?;
        let exposure = window.post(&[peer])?;
        let epoch = window.start(&[peer])?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.complete()?;
        exposure.wait()?;
        let epoch = window.lock(peer, LockKind::Exclusive)?;
        epoch.accumulate(peer, 0, Op::Sum, &ones[..8000])?;
        epoch.unlock()?;
        // After a lock of another kind, and in a window without the hint.
        let plain = Window::<u64>::allocate(job.team(), LONG)?;
        let epoch = plain.lock(peer, LockKind::Exclusive)?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.unlock()?;
        plain.free()?;
        assert_eq!(by_origin(window), before);
        let epoch = window.lock(peer, LockKind::Exclusive)?;
        epoch.accumulate(peer, 0, Op::Sum, &ones)?;
        epoch.unlock()?;
        assert_eq!(by_origin(window), before + 1);
        job.team().barrier()?;
        for i in (0..LONG).step_by(7) {
            assert_eq!(window.local().get(i)?, if i < 8000 { 6 } else { 5 }, "element {i}");
        }
        Ok(())
    });
}

/// One that takes seconds is given up after a fraction: nothing lands once the lock is somebody else's.
#[test]
fn nothing_lands_after_the_epoch_of_one_that_was_given_up() {
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    let results = Simulation::new(2, 2).network(slow).run(|job| {
        let (peer, size) = (Rank(1 - job.rank().0), 1_000_000);
        let hasty = job.team().with_deadline(Duration::from_millis(500));
        let window = Window::<u64>::builder(&hasty).info(hinted()).allocate(size)?;
        warm(&window, peer)?;
        job.team().barrier()?;
        if job.rank() == Rank(0) {
            let epoch = window.lock(peer, LockKind::Exclusive)?;
            let mut data = vec![7; size];
            let error = epoch.accumulate(peer, 0, Op::Sum, &data).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            data.fill(9);
            drop(data);
            // The end may find no time either; the lock is given back all the same.
            let _ = epoch.unlock();
            job.team().barrier()?;
        } else {
            job.team().barrier()?;
            let epoch = loop {
                match window.lock(Rank(1), LockKind::Exclusive) {
                    Ok(epoch) => break epoch,
                    Err(Error::TimedOut { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            };
            let now =
                || -> Vec<u64> { (0..size).map(|i| window.local().get(i).unwrap()).collect() };
            let before = now();
            std::thread::sleep(Duration::from_millis(1500));
            assert!(before == now(), "something landed late");
            assert!(before.iter().all(|value| [0, 7].contains(value)), "from other memory");
            assert!(before.contains(&0), "all of it was there in time");
            let _ = epoch.unlock();
        }
        job.team().barrier()?;
        drop(window);
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_target_that_dies_ends_it() {
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    let seen = Mutex::new(None);
    let end = catch_unwind(AssertUnwindSafe(|| {
        Simulation::new(2, 2).network(slow).run(|job| {
            let (peer, size) = (Rank(1 - job.rank().0), 2_000_000);
            let window = Window::<u64>::builder(job.team()).info(hinted()).allocate(size).unwrap();
            warm(&window, peer).unwrap();
            job.team().barrier().unwrap();
            if job.rank() == Rank(1) {
                std::thread::sleep(Duration::from_millis(300));
                panic!("on purpose");
            }
            let epoch = window.lock(peer, LockKind::Exclusive).unwrap();
            let done = epoch.accumulate(peer, 0, Op::Sum, &vec![7; size]);
            *seen.lock().unwrap() = Some(done.and_then(|()| epoch.unlock()));
        })
    }));
    assert!(end.is_err(), "the panic goes on in the caller");
    let seen = seen.into_inner().unwrap().expect("the call has returned");
    assert!(matches!(seen, Err(Error::RankDied { rank: Rank(1), .. })), "{seen:?}");
}

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    ranks::ends(&role, count_while_queue_pairs_fail())
}

fn count_while_queue_pairs_fail() -> Result<String> {
    const TURNS: u64 = 150;
    let job = Job::init()?;
    let (team, me, target) = (job.team(), job.rank(), Rank(3));
    let window = Window::<u64>::builder(team).info(hinted()).allocate(LONG)?;
    let ones = vec![1; LONG];
    for turn in 0..TURNS {
        let epoch = window.lock(target, LockKind::Exclusive)?;
        if turn % 2 == 0 {
            epoch.accumulate(target, 0, Op::Sum, &ones)?;
        } else {
            let mut old = vec![0; LONG];
            epoch.get_accumulate(target, 0, Op::Sum, &ones, &mut old)?;
            assert!(old.iter().all(|value| *value == old[0]), "turn {turn}: not one at a time");
        }
        epoch.unlock()?;
    }
    team.barrier()?;
    if me == target {
        for i in 0..LONG {
            assert_eq!(window.local().get(i)?, 4 * TURNS, "element {i}");
        }
    }
    let mut all = [by_origin(&window), counter(&window, "queue_pair_failures")];
    team.allreduce(Op::Sum, &mut all)?;
    window.free()?;
    job.finish()?;
    Ok(format!("{} by origins, {} failed", all[0], all[1]))
}

/// Queue pairs that fail often are not made again: whether one fails just then is chance.
#[test]
fn each_is_done_once_whatever_fails() {
    for seed in 1..=20 {
        let launcher = ranks::launcher()
            .args(["role", "--exact", "--nocapture"])
            .env(ROLE, "count")
            .env("HITHER_NET_PAIR_AFTER", "3")
            .env("HITHER_NET_FAULTS", format!("cut=20,seed={seed}"))
            .env("HITHER_WAIT_TIMEOUT", "100")
            .ranks(4)
            .nodes(2)
            .timeout(Duration::from_secs(200));
        let outcome = ranks::run(launcher);
        assert!(ranks::well(&outcome));
        let said = ranks::said(&outcome, 0);
        println!("{said}");
        if seed >= 3 && said.contains(" by origins") && !said.contains(" 0 failed") {
            return;
        }
    }
    panic!("nothing ever failed");
}
