//! Joining without a launcher, in real processes: by a named rendezvous, also when processes are
//! killed while they gather, and by a caller-supplied allgather. The processes are this test's
//! own executable, started with a role in the environment.

#[path = "support/mod.rs"]
mod support;

use hither::boot::{FromAllgather, Rendezvous};
use hither::{Deadline, Error, Job, Op, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::processes::until;

const ROLE: &str = "HITHER_TEST_ROLE";
const DIRECTORY: &str = "HITHER_RENDEZVOUS_DIR";

/// The entry of the started processes; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    let outcome = match words[0] {
        "meet" => meet(number(1), Duration::from_millis(number(2).into())),
        "gather" => gather(number(1), number(2)),
        other => panic!("no role {other}"),
    };
    if let Err(e) = &outcome {
        eprintln!("{e}");
    }
    std::process::exit(if outcome.is_ok() { 0 } else { 3 });
}

/// Joins "test" as one of `size`, computes something with all, and leaves.
fn meet(size: u32, limit: Duration) -> Result<()> {
    let boot = Rendezvous::join("test", size, Deadline::after(limit))?;
    work(Job::builder().bootstrap(boot).heap_size(1 << 24).init()?, size)
}

fn work(job: Job, size: u32) -> Result<()> {
    let mut ranks = [u64::from(job.rank().0)];
    job.team().allreduce(Op::Sum, &mut ranks)?;
    assert_eq!(ranks[0], u64::from(size * (size - 1) / 2));
    job.finish()
}

/// An allgather through files in the directory, which is what these processes have in common.
fn gather(rank: u32, size: u32) -> Result<()> {
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let mut round = 0;
    let allgather = move |own: &[u8]| {
        round += 1;
        let name = |rank: u32| directory.join(format!("{round}.{rank}"));
        let fresh = directory.join(format!("fresh.{rank}"));
        std::fs::write(&fresh, own).map_err(|e| Error::os("write", e))?;
        std::fs::rename(&fresh, name(rank)).map_err(|e| Error::os("rename", e))?;
        let wait = |rank: u32| {
            until("a rank is missing", || name(rank).exists());
            std::fs::read(name(rank)).map_err(|e| Error::os("read", e))
        };
        (0..size).map(wait).collect()
    };
    let boot = FromAllgather::new(rank, size, allgather)?;
    work(Job::builder().bootstrap(boot).heap_size(1 << 24).init()?, size)
}

fn start(directory: &Path, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process; `Err` with what it said if it failed.
fn end(child: Child) -> std::result::Result<(), String> {
    let out = child.wait_with_output().unwrap();
    if out.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&out.stderr).into_owned())
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("hither-test-").tempdir().unwrap()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn processes_meet_under_a_name_and_leave_nothing() {
    let dir = scratch();
    for size in [1, 2, 5, 2] {
        let role = format!("meet {size} 30000");
        let all: Vec<Child> = (0..size).map(|_| start(dir.path(), &role)).collect();
        for child in all {
            assert_eq!(end(child), Ok(()));
        }
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn a_stale_socket_of_a_killed_leader_is_no_obstacle() {
    let dir = scratch();
    let mut leader = start(dir.path(), "meet 3 30000");
    until("no leader", || dir.path().join("test.sock").exists());
    leader.kill().unwrap();
    leader.wait().unwrap();
    assert!(!is_empty(dir.path()), "a killed process cannot remove its socket");
    let all: Vec<Child> = (0..3).map(|_| start(dir.path(), "meet 3 30000")).collect();
    for child in all {
        assert_eq!(end(child), Ok(()));
    }
    assert!(is_empty(dir.path()));
}

/// Sockets that a process has open: a leader has the one it listens on, and one for each caller.
fn sockets(child: &Child) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// A leader of four is killed when `now` says so of it, after two others have been started; then
/// two more come.
fn kill_leader(now: impl Fn(&Child) -> bool) {
    let dir = scratch();
    let mut leader = start(dir.path(), "meet 4 30000");
    until("no leader", || dir.path().join("test.sock").exists());
    let mut all: Vec<Child> = (0..2).map(|_| start(dir.path(), "meet 4 30000")).collect();
    until("not in the lobby", || now(&leader));
    leader.kill().unwrap();
    leader.wait().unwrap();
    all.extend((0..2).map(|_| start(dir.path(), "meet 4 30000")));
    for child in all {
        assert_eq!(end(child), Ok(()));
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn the_lobby_elects_another_leader_when_the_first_is_killed() {
    kill_leader(|leader| sockets(leader) == 3);
}

#[test]
fn a_leader_can_be_killed_at_any_moment() {
    for step in 0..10 {
        // Moments spread over the others' arrival, not a wait for anything.
        let moment = Instant::now() + Duration::from_micros(step * 800);
        kill_leader(|_| Instant::now() >= moment);
    }
}

#[test]
fn the_missing_are_counted_when_time_is_up() {
    let dir = scratch();
    let err = end(start(dir.path(), "meet 3 100")).unwrap_err();
    assert!(err.contains("rendezvous \"test\": 1 of 3 processes came within"), "{err}");
    assert!(is_empty(dir.path()));
}

#[test]
fn processes_join_through_an_allgather_of_their_own() {
    for size in [1, 2, 4] {
        let dir = scratch();
        let role = |rank| format!("gather {rank} {size}");
        let all: Vec<Child> = (0..size).map(|r| start(dir.path(), &role(r))).collect();
        for child in all {
            assert_eq!(end(child), Ok(()));
        }
    }
}
