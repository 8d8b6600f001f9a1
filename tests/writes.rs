//! Puts and gets on parts on other nodes that devices carry out: that they do, in every kind of epoch;
//! that nothing lands before an epoch gives access nor after its end; that calls keep their order across
//! both ways; and what becomes of them when somebody gives up or dies.

use hither::world::{Simulation, VirtualNetwork};
use hither::{Error, Info, Job, LockKind, Medium, Op, Rank, Result, Window};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

/// Elements of what devices carry out: more than `HITHER_NET_PUT_FROM` has bytes.
const LARGE: usize = 5000;

fn counter(window: &Window<u64>, name: &str) -> u64 {
    let all = window.packet_counters();
    all.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

fn by_device(window: &Window<u64>) -> (u64, u64) {
    (counter(window, "puts_by_queue_pair"), counter(window, "gets_by_queue_pair"))
}

fn content(from: Rank, seed: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| (i << 20) ^ (seed << 8) ^ u64::from(from.0)).collect()
}

/// Puts and gets until devices do both: queue pairs come with traffic.
fn warm(window: &Window<u64>, peer: Rank) -> Result<()> {
    for _ in 0..1000 {
        let (puts, gets) = by_device(window);
        let epoch = window.lock(peer, LockKind::Shared)?;
        epoch.get(peer, 0, &mut [0; LARGE])?;
        epoch.put(peer, 0, &[0; LARGE])?;
        epoch.unlock()?;
        let after = by_device(window);
        if after.0 > puts && after.1 > gets {
            return Ok(());
        }
    }
    panic!("no device ever puts and gets");
}

/// Runs `body` on two ranks on two nodes, in a window whose parts they reach by devices.
fn two(
    network: VirtualNetwork,
    body: impl Fn(&Job, &Window<u64>, Rank) -> Result<()> + Send + Sync,
) {
    let results = Simulation::new(2, 2).network(network).run(|job| {
        let peer = Rank(1 - job.rank().0);
        let window = Window::<u64>::allocate(job.team(), 4 * LARGE)?;
        warm(&window, peer)?;
        job.team().barrier()?;
        body(&job, &window, peer)?;
        job.team().barrier()?;
        window.free()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

fn local(window: &Window<u64>, start: usize, count: usize) -> Vec<u64> {
    (start..start + count).map(|i| window.local().get(i).unwrap()).collect()
}

#[test]
fn every_kind_of_epoch_has_them_done_by_devices_and_complete_with_its_end() {
    two(VirtualNetwork::default(), |job, window, peer| {
        let (me, team) = (job.rank(), job.team());
        let check = |seed| {
            assert!(local(window, 0, LARGE) == content(peer, seed, LARGE), "round {seed}");
        };
        let before = by_device(window);
        for round in 0..3 {
            let epoch = window.fence()?;
            epoch.put(peer, 0, &content(me, 4 * round, LARGE))?;
            epoch.end()?;
            check(4 * round);
            team.barrier()?;
            let epoch = window.lock(peer, LockKind::Exclusive)?;
            epoch.put(peer, 0, &content(me, 4 * round + 1, LARGE))?;
            epoch.unlock()?;
            team.barrier()?;
            check(4 * round + 1);
            team.barrier()?;
            let epoch = window.lock_all()?;
            epoch.put(peer, 0, &content(me, 4 * round + 2, LARGE))?;
            epoch.flush(peer)?;
            team.barrier()?;
            check(4 * round + 2);
            let mut back = vec![0; LARGE];
            epoch.get(peer, 0, &mut back)?;
            assert!(back == content(me, 4 * round + 2, LARGE));
            epoch.unlock_all()?;
            team.barrier()?;
            let exposure = window.post(&[peer])?;
            let epoch = window.start(&[peer])?;
            epoch.put(peer, 0, &content(me, 4 * round + 3, LARGE))?;
            epoch.complete()?;
            exposure.wait()?;
            check(4 * round + 3);
            team.barrier()?;
        }
        let after = by_device(window);
        assert_eq!((after.0 - before.0, after.1 - before.1), (12, 3));
        Ok(())
    });
}

#[test]
fn nothing_lands_before_the_target_has_exposed_its_part() {
    two(VirtualNetwork::default(), |job, window, peer| {
        for round in 0..20u64 {
            if job.rank() == Rank(0) {
                let epoch = window.start(&[peer])?;
                epoch.put(peer, 0, &content(Rank(0), round, LARGE))?;
                epoch.complete()?;
            } else {
                let mine = content(Rank(7), round, LARGE);
                for (i, &value) in mine.iter().enumerate() {
                    window.local().set(i, value)?;
                }
                std::thread::sleep(Duration::from_millis(round % 4));
                assert!(local(window, 0, LARGE) == mine, "it came before the post");
                let exposure = window.post(&[peer])?;
                exposure.wait()?;
                assert!(local(window, 0, LARGE) == content(Rank(0), round, LARGE));
            }
        }
        Ok(())
    });
}

/// Everybody, near and far, adds one to all elements of one part, which it gets and puts whole: a put
/// that is late, or early, loses somebody's.
#[test]
fn what_is_done_under_an_exclusive_lock_is_seen_by_the_next_who_has_it() {
    const TURNS: u64 = 40;
    let results = Simulation::new(4, 2).run(|job| {
        let (team, target) = (job.team(), Rank(0));
        let window = Window::<u64>::allocate(team, LARGE)?;
        for _ in 0..TURNS {
            let epoch = window.lock(target, LockKind::Exclusive)?;
            let mut all = vec![0; LARGE];
            epoch.get(target, 0, &mut all)?;
            assert!(all.iter().all(|value| *value == all[0]), "somebody else is at work");
            all.iter_mut().for_each(|value| *value += 1);
            epoch.put(target, 0, &all)?;
            epoch.unlock()?;
        }
        team.barrier()?;
        if job.rank() == target {
            assert!(local(&window, 0, LARGE).iter().all(|value| *value == 4 * TURNS));
        }
        let mut most = [by_device(&window).0];
        team.allreduce(Op::Max, &mut most)?;
        assert!(most[0] > 0, "no device had anything to do");
        window.free()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

#[test]
fn calls_keep_their_order_whichever_way_they_go() {
    two(VirtualNetwork::default(), |job, window, peer| {
        let me = job.rank();
        for round in 0..10 {
            let epoch = window.lock(peer, LockKind::Shared)?;
            let mine = content(me, round, LARGE);
            // Small, large, small; an update before and behind; a get of all.
            epoch.put(peer, 3, &[1, 2, 3])?;
            epoch.accumulate(peer, 10, Op::Sum, &[1000; 20])?;
            epoch.put(peer, 0, &mine)?;
            epoch.accumulate(peer, 0, Op::Sum, &[1; 7])?;
            epoch.put(peer, 9, &[77])?;
            let mut back = vec![0; LARGE];
            epoch.get(peer, 0, &mut back)?;
            epoch.put(peer, 100, &[5])?;
            epoch.unlock()?;
            let mut want = mine;
            want[..7].iter_mut().for_each(|value| *value += 1);
            want[9] = 77;
            assert!(back == want, "round {round}");
        }
        Ok(())
    });
}

#[test]
fn small_ones_layouts_and_windows_that_are_for_packets_go_by_packets() {
    two(VirtualNetwork::default(), |job, window, peer| {
        let before = by_device(window);
        let epoch = window.lock(peer, LockKind::Shared)?;
        epoch.put(peer, 0, &[1; 2000])?;
        epoch.accumulate(peer, 0, Op::Sum, &[1; LARGE])?;
        epoch.get(peer, 0, &mut [0; 500])?;
        epoch.unlock()?;
        let info = Info { medium: Medium::Packets, ..Info::default() };
        let other = Window::<u64>::builder(job.team()).info(info).allocate(LARGE)?;
        let epoch = other.lock(peer, LockKind::Shared)?;
        epoch.put(peer, 0, &[1; LARGE])?;
        epoch.unlock()?;
        assert_eq!(by_device(window), before);
        other.free()
    });
}

#[test]
fn private_memory_is_reached_by_devices_too() {
    two(VirtualNetwork::default(), |job, window, peer| {
        let (me, team) = (job.rank(), job.team());
        let before = by_device(window);
        let memory = hither::Memory::private(vec![0; 2 * LARGE]);
        let brought = Window::<u64>::builder(team).create(memory)?;
        for round in 0..5 {
            let epoch = brought.lock(peer, LockKind::Exclusive)?;
            epoch.put(peer, LARGE, &content(me, round, LARGE))?;
            let mut back = vec![0; LARGE];
            epoch.get(peer, LARGE, &mut back)?;
            assert!(back == content(me, round, LARGE));
            epoch.unlock()?;
        }
        let after = by_device(window);
        assert!(after.0 > before.0 && after.1 > before.1);
        brought.free()
    });
}

/// A put of a second is given up after a fraction: its memory is the caller's at once, and once the
/// epoch is over nothing lands any more, whatever the network still has of it.
#[test]
fn who_gives_up_has_its_memory_back_and_nothing_lands_after_the_epoch() {
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    let results = Simulation::new(2, 2).network(slow).run(|job| {
        let (peer, size) = (Rank(1 - job.rank().0), 1_000_000);
        let hasty = job.team().with_deadline(Duration::from_millis(300));
        let window = Window::<u64>::allocate(&hasty, size)?;
        warm(&window, peer)?;
        job.team().barrier()?;
        if job.rank() == Rank(0) {
            let epoch = window.lock(peer, LockKind::Exclusive)?;
            let mut data = vec![7; size];
            let error = epoch.put(peer, 0, &data).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            data.fill(9);
            drop(data);
            // The end may find no time either; the lock is given back all the same.
            let _ = epoch.unlock();
            job.team().barrier()?;
        } else {
            job.team().barrier()?;
            let patient = || loop {
                match window.lock(Rank(1), LockKind::Exclusive) {
                    Ok(epoch) => return epoch,
                    Err(Error::TimedOut { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            };
            let epoch = patient();
            let _ = epoch.recovered_from();
            let before = local(&window, 0, size);
            std::thread::sleep(Duration::from_millis(1500));
            assert!(before == local(&window, 0, size), "something landed late");
            assert!(before.iter().all(|value| [0, 7].contains(value)), "from other memory");
            let _ = epoch.unlock();
        }
        job.team().barrier()?;
        // And it goes on.
        warm(&window, peer)?;
        job.team().barrier()?;
        drop(window);
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_target_that_dies_ends_what_is_being_written_to_it() {
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    let seen = Mutex::new(None);
    let end = catch_unwind(AssertUnwindSafe(|| {
        Simulation::new(2, 2).network(slow).run(|job| {
            let (peer, size) = (Rank(1 - job.rank().0), 4_000_000);
            let window = Window::<u64>::allocate(job.team(), size).unwrap();
            warm(&window, peer).unwrap();
            job.team().barrier().unwrap();
            if job.rank() == Rank(1) {
                std::thread::sleep(Duration::from_millis(100));
                panic!("on purpose");
            }
            let epoch = window.lock_all().unwrap();
            let put = epoch.put(peer, 0, &vec![7; size]);
            let ended = put.and_then(|()| epoch.unlock_all());
            *seen.lock().unwrap() = Some(ended);
        })
    }));
    assert!(end.is_err(), "the panic goes on in the caller");
    let seen = seen.into_inner().unwrap().expect("the call has returned");
    assert!(matches!(seen, Err(Error::RankDied { rank: Rank(1), .. })), "{seen:?}");
}
