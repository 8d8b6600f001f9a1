//! Jobs of several emulated nodes. Deaths: whoever waits for the dead learns of it, those who are
//! left agree on a team, and go on with messages, collectives and windows. Ranks that leave. And
//! ranks of a node that do not follow each other, or that are more here than there.

#[path = "support/mod.rs"]
mod support;

use hither::rma::LockKind;
use hither::topo::Map;
use hither::{Any, Assertions, Error, Job, Op, Pending, Rank, Result, Team, Window};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use support::everything::{everything, go_on};
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// The node of each rank, as a list with commas.
const NODES: &str = "HITHER_TEST_NODES";
/// Who dies.
const VICTIM: &str = "HITHER_TEST_VICTIM";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let victim = std::env::var(VICTIM).ok().and_then(|text| text.parse().ok()).map(Rank);
    let played = match role.as_str() {
        "everything" => Job::init()
            .and_then(|job| everything(job, &std::env::var(NODES).expect("where the ranks are"))),
        role => play(role, victim.expect("who dies")),
    };
    ranks::ends(&role, played)
}

/// Calls `work` again and again until it fails because of a death, or because of what others did
/// when they learned of it.
fn until_somebody_dies(mut work: impl FnMut() -> Result<()>) {
    loop {
        match work() {
            Ok(()) => {}
            Err(Error::RankDied { .. } | Error::PeerFailed { .. } | Error::Misuse { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes progress until a request is over, or somebody in the team is gone: whoever has its part in
/// it may have given up because of that.
fn finish(team: &Team, request: &mut dyn Pending) -> Result<()> {
    let slots: Vec<_> = team.ranks().map(|rank| team.slot_of(rank)).collect::<Result<_>>()?;
    for turn in 1u32.. {
        if request.test()? {
            break;
        }
        if turn.is_multiple_of(256) {
            team.node().check(slots.iter().copied(), "talking")?;
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// A collective that some are through with before others have begun, after which all leave without
/// a word: `victim` is late, or does not make the call at all.
fn leave(role: &str, job: &Job, victim: Rank) -> Result<String> {
    let team = job.team();
    let (stays_away, call) = match role.strip_prefix("without ") {
        Some(call) => (true, call),
        None => (false, role),
    };
    team.barrier()?;
    if job.rank() == victim {
        if stays_away {
            return Ok("left".into());
        }
        std::thread::sleep(Duration::from_millis(400));
    }
    let made = match call {
        "leave after barrier" => team.barrier(),
        "leave after broadcast" => team.broadcast(Rank(0), &mut [1u64; 3]),
        "leave after scan" => team.scan(Op::Sum, &mut [1u64; 3]),
        other => panic!("no role {other}"),
    };
    match made.and_then(|()| if stays_away { team.barrier() } else { Ok(()) }) {
        Err(Error::RankLeft { rank, .. }) if stays_away && rank == victim => Ok("missed".into()),
        Ok(()) if stays_away => Ok("nobody missed".into()),
        made => made.map(|()| "through".into()),
    }
}

/// Told by the victim that it has what it will die with, which takes it some time yet.
const HELD: u32 = 9;

/// Tells the others, gives them time to stand in line, and dies.
fn tell_and_die(job: &Job) -> Result<()> {
    for rank in job.team().ranks().filter(|rank| *rank != job.rank()) {
        job.team().send(rank, HELD, &[1u8])?;
    }
    std::thread::sleep(Duration::from_millis(200));
    ranks::die()
}

/// The victim dies with the lock of a part on its own node, which it has changed without packets,
/// while the others, near and far, wait for that lock.
fn direct_lock(job: &Job, victim: Rank) -> Result<String> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let target = Rank(0);
    let mut told = 0;
    if job.rank() == victim {
        let epoch = window.lock(target, LockKind::Exclusive)?;
        let sent = |window: &Window<u64>| {
            let all = window.packet_counters();
            all.iter().find(|(name, _)| *name == "operations_sent").map(|(_, sent)| *sent)
        };
        let before = sent(&window);
        epoch.put(target, 0, &[40])?;
        epoch.fetch_and_op(target, 0, Op::Sum, 2)?;
        assert_eq!(sent(&window), before, "it is on the same node");
        tell_and_die(job)?;
    }
    job.team().recv(victim, HELD, &mut [0u8])?;
    for round in 0..10 {
        let epoch = window.lock(target, LockKind::Exclusive)?;
        match epoch.recovered_from() {
            Some(lost) if round == 0 && lost == victim => told += 1,
            None => {}
            lost => panic!("round {round}: lost {lost:?}"),
        }
        let mut values = [0; 2];
        epoch.get(target, 0, &mut values)?;
        assert_eq!(values[0], 42, "what the victim has written");
        epoch.put(target, 1, &[values[1] + 1])?;
        epoch.unlock()?;
    }
    let rest = job.team().shrink()?;
    let mut all = [told];
    rest.allreduce(Op::Sum, &mut all)?;
    assert_eq!(all, [1], "the first to be granted it is told");
    if job.rank() == target {
        assert_eq!(window.local().get(1)?, 10 * u64::from(rest.size()));
    }
    go_on(&rest).map(|()| format!("{} go on", rest.size()))
}

/// The victim dies inside a handler that it runs itself on a part of its own node: whoever sends a
/// message there learns of it, near or far, until the part is healed.
fn direct_message(job: &Job, victim: Rank) -> Result<String> {
    let (team, target) = (job.team(), Rank(1));
    let window = Window::<u64>::allocate(team, 2)?;
    let dies = Arc::new(AtomicBool::new(false));
    let here = dies.clone();
    let add = window.register::<u64, u64>(1, move |call| {
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + 1);
        if here.load(Ordering::Relaxed) {
            ranks::die();
        }
        let _ = call.persistent.set(1, old + 1);
    })?;
    // Locks nothing: what is tried is the turn.
    let epoch = window.lock_all_with(Assertions { no_check: true, ..Assertions::default() })?;
    epoch.am(&add, target, 0..2, &[], &mut [])?;
    team.barrier()?;
    if job.rank() == victim {
        dies.store(true, Ordering::Relaxed);
        let _ = epoch.am(&add, target, 0..2, &[], &mut []);
        unreachable!("it runs the handler itself");
    }
    until_poisoned(|| epoch.am(&add, target, 0..2, &[], &mut []), target, victim);
    let _ = epoch.unlock_all();
    let rest = team.shrink()?;
    if job.rank() == target {
        assert_eq!(window.local().get(0)?, window.local().get(1)? + 1, "half done");
        window.local().set(0, window.local().get(1)?)?;
        window.heal(target)?;
    } else if job.rank().0.is_multiple_of(2) {
        // The ranks of the two nodes take turns.
        assert!(matches!(window.heal(target), Err(Error::Misuse { .. })), "it is elsewhere");
    }
    rest.barrier()?;
    let epoch = window.lock(target, LockKind::Shared)?;
    epoch.am(&add, target, 0..2, &[], &mut [])?;
    epoch.unlock()?;
    go_on(&rest).map(|()| format!("{} go on", rest.size()))
}

fn until_poisoned(mut send: impl FnMut() -> Result<()>, part: Rank, by: Rank) {
    loop {
        match send() {
            Ok(()) => {}
            Err(Error::WindowPoisoned { target, culprit }) if (target, culprit) == (part, by) => {
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn play(role: &str, victim: Rank) -> Result<String> {
    let job = Job::init()?;
    if role.contains("leave after") {
        return leave(role, &job, victim);
    }
    let team = job.team();
    let me = job.rank();
    let next = Rank((me.0 + 1) % job.size());
    let mut rounds = 0;
    let mut dies = || {
        rounds += 1;
        if me == victim && rounds == 20 {
            ranks::die();
        }
    };
    match role {
        "direct lock" => return direct_lock(&job, victim),
        "direct message" => return direct_message(&job, victim),
        "barrier" => until_somebody_dies(|| {
            dies();
            team.barrier()
        }),
        "allreduce" => until_somebody_dies(|| {
            dies();
            team.allreduce(Op::Sum, &mut [1u64; 500])
        }),
        "talk" => until_somebody_dies(|| {
            dies();
            let sent = team.isend(next, 1, vec![me.0; 20_000])?;
            // From anybody: one who lives may have given up because of somebody else's death.
            team.recv(Any, 1, &mut vec![0u32; 20_000])?;
            sent.wait().map(drop)
        }),
        "read" => {
            until_somebody_dies(|| {
                let mut sent = team.isend(next, 1, vec![me.0; 1 << 20])?;
                let mut came = team.irecv(Any, 1, vec![0u32; 1 << 20])?;
                // Some of both is under way.
                (0..20 * (me.0 + 1)).try_for_each(|_| came.test().map(drop))?;
                dies();
                finish(team, &mut came)?;
                let (data, status) = came.wait()?;
                assert!(data.iter().all(|word| *word == status.source.0), "a message came changed");
                finish(team, &mut sent)?;
                sent.wait().map(drop)
            });
            assert!(team.message_counters()?.fetched > 0, "nothing was read");
        }
        "endpoints" => endpoints(team, victim)?,
        "lock" => {
            let window = Window::<u64>::allocate(team, 8)?;
            until_somebody_dies(|| {
                let epoch = window.lock(victim, LockKind::Exclusive)?;
                epoch.accumulate(victim, 0, Op::Sum, &[1])?;
                dies();
                epoch.unlock().map(drop)
            });
        }
        "fence" => {
            let window = Window::<u64>::allocate(team, 8)?;
            let mut epoch = window.fence()?;
            until_somebody_dies(|| {
                epoch.put(next, 1, &[7])?;
                dies();
                epoch.next()
            });
            drop(epoch);
        }
        other => panic!("no role {other}"),
    }
    let rest = team.shrink()?;
    go_on(&rest).map(|()| format!("{} go on", rest.size()))
}

/// Threads with an endpoint each: of one the victim sends nothing, by the others all talk until it dies.
fn endpoints(team: &Team, victim: Rank) -> Result<()> {
    let all = team.endpoints(3)?;
    let (me, rounds) = (team.rank(), &AtomicU32::new(0));
    let next = Rank((me.0 + 1) % team.size());
    let waits = |own: &Team| {
        let silent = own.recv(victim, 9, &mut [0u32]);
        let told = matches!(silent, Err(Error::RankDied { rank, .. }) if rank == victim);
        assert!(told, "{silent:?}");
    };
    let talks = |own: &Team| {
        until_somebody_dies(|| {
            let round = rounds.fetch_add(1, Ordering::Relaxed);
            let len = [10usize, 20_000][round as usize % 2];
            let mut sent = own.isend(next, 1, vec![me.0; len])?;
            let (data, status) = own.irecv(Any, 1, vec![0u32; 20_000])?.wait()?;
            assert!(data[..status.elements].iter().all(|word| *word == status.source.0));
            if me == victim && round > 40 {
                ranks::die();
            }
            finish(own, &mut sent)?;
            sent.wait().map(drop)
        });
    };
    std::thread::scope(|scope| {
        if me != victim {
            scope.spawn(|| waits(&all[0]));
        }
        all[1..].iter().for_each(|own| {
            scope.spawn(|| talks(own));
        });
    });
    Ok(())
}

/// Plays a role in a job of four: what each but the victim is to say.
fn played(role: &str, nodes: u32, victim: u32, expected: &str) {
    played_on(role, nodes, "block", victim, expected);
}

fn played_on(role: &str, nodes: u32, map: &str, victim: u32, expected: &str) {
    let launcher = ranks::launcher()
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(VICTIM, victim.to_string())
        .env("HITHER_NET_TIMEOUT", "2")
        .env("HITHER_NET_PAIR_AFTER", "8")
        .env("HITHER_WAIT_TIMEOUT", "60")
        .ranks(4)
        .nodes(nodes)
        .map(map.parse::<Map>().expect("a map"))
        .survive(true)
        .timeout(Duration::from_secs(150));
    let outcome = ranks::run(launcher);
    for rank in (0..4).filter(|&rank| rank != victim as usize) {
        let said = ranks::said(&outcome, rank);
        let complaint = String::from_utf8_lossy(&outcome.stderr[rank]);
        let what = format!("{role} on {nodes} nodes without {victim}: rank {rank}");
        assert!(said.contains(expected), "{what}: {said} {complaint}");
    }
}

/// Plays everything with a map; `nodes` are those of the ranks.
fn mapped(map: &str, count: Option<u32>, nodes: &str) {
    let ranks = nodes.split(',').count() as u32;
    let launcher = ranks::launcher()
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, "everything")
        .env(NODES, nodes)
        .env("HITHER_WAIT_TIMEOUT", "60")
        .ranks(ranks)
        .map(map.parse::<Map>().expect("a map"))
        .timeout(Duration::from_secs(150));
    let launcher = count.into_iter().fold(launcher, |launcher, count| launcher.nodes(count));
    let outcome = ranks::run(launcher);
    assert!(ranks::well(&outcome), "{map}");
    for rank in 0..ranks as usize {
        assert!(ranks::said(&outcome, rank).contains("all of it"), "{map}: rank {rank}");
    }
}

#[test]
fn ranks_of_nodes_in_turn() {
    mapped("cyclic", Some(2), "0,1,0,1,0");
    mapped("cyclic:2", Some(3), "0,0,1,1,2,2,0");
}

#[test]
fn nodes_of_different_sizes() {
    mapped("1,3,2", None, "0,1,1,1,2,2");
}

#[test]
fn a_map_for_other_ranks_or_nodes_is_refused() {
    for (ranks, nodes, map) in [(3, 2, "2,2"), (4, 3, "2,2"), (2, 3, "cyclic"), (6, 3, "cyclic:3")]
    {
        let map: Map = map.parse().expect("a map");
        let started = ranks::launcher().ranks(ranks).nodes(nodes).map(map.clone()).start();
        assert!(matches!(started, Err(Error::InvalidArgument { .. })), "{ranks} {nodes} {map}");
    }
}

#[test]
fn deaths_where_ranks_of_nodes_are_in_turn() {
    played_on("allreduce", 2, "cyclic", 1, "3 go on");
    played_on("fence", 2, "cyclic", 2, "3 go on");
}

fn survived(role: &str, nodes: u32, victim: u32) {
    played(role, nodes, victim, "3 go on");
}

#[test]
fn who_leaves_when_it_is_through_is_not_missed() {
    for (nodes, late) in [(4, 2), (2, 2), (2, 1)] {
        for call in ["barrier", "broadcast", "scan"] {
            played(&format!("leave after {call}"), nodes, late, "through");
        }
    }
}

#[test]
fn who_leaves_instead_is_missed() {
    for (nodes, absent) in [(4, 2), (2, 0), (2, 1)] {
        played("without leave after barrier", nodes, absent, "missed");
    }
}

#[test]
fn deaths_in_collectives() {
    survived("barrier", 2, 3);
    survived("barrier", 4, 0);
    survived("allreduce", 2, 0);
    survived("allreduce", 2, 1);
}

#[test]
fn deaths_between_messages() {
    survived("talk", 2, 2);
    survived("talk", 4, 1);
}

#[test]
fn deaths_while_threads_wait_at_endpoints() {
    survived("endpoints", 2, 2);
    survived("endpoints", 4, 1);
}

#[test]
fn deaths_while_messages_are_read() {
    (0..4).for_each(|victim| survived("read", 4, victim));
}

#[test]
fn deaths_in_epochs() {
    survived("lock", 2, 3);
    survived("lock", 2, 0);
    survived("fence", 2, 1);
    survived("fence", 4, 2);
}

#[test]
fn who_dies_with_a_lock_taken_by_packets_and_used_without() {
    played_on("direct lock", 2, "block", 1, "3 go on");
    played_on("direct lock", 2, "cyclic", 2, "3 go on");
}

#[test]
fn who_dies_in_a_handler_on_its_own_node() {
    played_on("direct message", 2, "cyclic", 3, "3 go on");
}
