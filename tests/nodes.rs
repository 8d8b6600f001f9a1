//! Deaths in jobs of several emulated nodes: whoever waits for the dead learns of it, those who are
//! left agree on a team, and go on with messages, collectives and windows. And ranks that leave.

#[path = "support/mod.rs"]
mod support;

use hither::rma::LockKind;
use hither::{Any, Error, Job, Op, Rank, Result, Team, Window};
use std::time::Duration;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// Who dies.
const VICTIM: &str = "HITHER_TEST_VICTIM";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let victim = std::env::var(VICTIM).ok().and_then(|text| text.parse().ok()).map(Rank);
    let code = match play(&role, victim.expect("who dies")) {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(error) => {
            eprintln!("{role}: {error}");
            3
        }
    };
    std::process::exit(code);
}

fn die() -> ! {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    unreachable!("killed");
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
            die();
        }
    };
    match role {
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

/// All that a team is for.
fn go_on(team: &Team) -> Result<()> {
    let size = u64::from(team.size());
    let me = u64::from(team.rank().0);
    let next = Rank((team.rank().0 + 1) % team.size());
    let mut sum = [me];
    team.allreduce(Op::Sum, &mut sum)?;
    assert_eq!(sum, [size * (size - 1) / 2]);
    let sent = team.isend(next, 5, vec![me; 1000])?;
    let mut got = vec![0u64; 1000];
    team.recv(Rank((team.rank().0 + team.size() - 1) % team.size()), 5, &mut got)?;
    assert!(got.iter().all(|&value| value == (me + size - 1) % size));
    sent.wait()?;
    let window = Window::<u64>::allocate(team, 4)?;
    let epoch = window.lock_all()?;
    for target in team.ranks() {
        epoch.accumulate(target, 3, Op::Sum, &[me])?;
    }
    epoch.unlock_all()?;
    team.barrier()?;
    assert_eq!(window.local().get(3)?, size * (size - 1) / 2);
    window.free()
}

/// Plays a role in a job of four: what each but the victim is to say.
fn played(role: &str, nodes: u32, victim: u32, expected: &str) {
    let launcher = ranks::launcher()
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(VICTIM, victim.to_string())
        .env("HITHER_NET_TIMEOUT", "2")
        .env("HITHER_WAIT_TIMEOUT", "60")
        .ranks(4)
        .nodes(nodes)
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
fn deaths_in_epochs() {
    survived("lock", 2, 3);
    survived("lock", 2, 0);
    survived("fence", 2, 1);
    survived("fence", 4, 2);
}
