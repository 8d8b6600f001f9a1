//! Ranks that fork without an exec: the child is no rank. It keeps nobody alive, disturbs nobody,
//! and is told so. The ranks are this test's own executable.

#[path = "support/mod.rs"]
mod support;

use hither::base::Slot;
use hither::rma::LockKind;
use hither::rma::Memory;
use hither::shm::node::Node;
use hither::world::{Exit, Launcher, Output};
use hither::{Deadline, Error, Job, LockAllEpoch, Op, Rank, Result, Window};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::processes::until;
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// Number of the descriptor of a node's memory.
const MEMORY: &str = "HITHER_TEST_MEMORY";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = match role.as_str() {
        "mortal" => mortal(),
        "rank" => Job::init().and_then(rank),
        "threads" => Job::threads(3, rank).and_then(|all| all.into_iter().collect()),
        other => panic!("no role {other}"),
    };
    ranks::ends(&role, played.map(|()| String::new()))
}

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Forks; 0 in the child.
fn fork() -> i32 {
    // SAFETY: the child uses memory and locks of its only thread; the C library keeps its own
    // allocator usable.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    child
}

/// Runs the rest of a child: its exit code says whether it panicked.
fn live(body: impl FnOnce()) -> ! {
    let code = i32::from(catch_unwind(AssertUnwindSafe(body)).is_err());
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}

/// The exit code of a child; its signal plus 128 if it was killed.
fn reap(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for this process's own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// Joins as slot 1, forks a child that lives on, and is killed.
fn mortal() -> Result<()> {
    let fd: i32 = std::env::var(MEMORY).unwrap().parse().unwrap();
    // SAFETY: the parent left it open for this process.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let node = Node::attach(fd, Slot(1), limit())?;
    node.await_all(limit())?;
    let child = fork();
    if child == 0 {
        loop {
            // SAFETY: no preconditions.
            unsafe { libc::pause() };
        }
    }
    println!("\nchild {child}");
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    unreachable!("killed");
}

/// No launcher looks after the process, so only its record lock tells that it is gone.
#[test]
fn a_child_does_not_keep_a_dead_rank_alive() {
    let fd = Node::create_memory(2, 1 << 21).unwrap();
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
    let mut mortal = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, "mortal")
        .env(MEMORY, fd.as_raw_fd().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let node = Node::attach(fd, Slot(0), limit()).unwrap();
    node.await_all(limit()).unwrap();
    let lines = BufReader::new(mortal.stdout.take().unwrap()).lines();
    let told = lines
        .map(|line| line.unwrap())
        .find_map(|line| line.strip_prefix("child ").map(|pid| pid.parse::<i32>().unwrap()));
    let child = told.expect("the child's number");
    mortal.wait().unwrap();
    until("the death is never noticed", || node.probe(Slot(1)));
    let error = node.check([Slot(1)].into_iter(), "a test").unwrap_err();
    assert!(matches!(error, Error::RankDied { rank: Rank(1), .. }), "{error}");
    // SAFETY: a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0, "the child has lived on");
    node.leave();
}

fn refused<R: std::fmt::Debug>(what: &str, result: Result<R>) {
    assert!(matches!(result, Err(Error::Forked { .. })), "{what}: {result:?}");
}

/// One rank of three. Rank 1 forks children that do what children may not.
fn rank(job: Job) -> Result<()> {
    let me = job.rank();
    let team = job.team().clone();
    let window = Window::<u64>::allocate(&team, 64)?;
    let memory = Memory::<u64>::shared(&team, 64)?;
    window.local().set(0, 100 + u64::from(me.0))?;
    team.barrier()?;
    if me == Rank(1) {
        let epoch = window.lock_all()?;
        epoch.put(Rank(0), 2, &[5])?;
        epoch.flush(Rank(0))?;
        let child = fork();
        if child == 0 {
            // Caught here too: what is dropped afterwards is to be dropped in any case.
            let done = catch_unwind(AssertUnwindSafe(|| misbehave(&job, &window, epoch)));
            live(|| {
                drop(window);
                drop(memory);
                refused("finish", job.finish());
                done.unwrap();
            });
        }
        assert_eq!(reap(child), 0, "the child's report is above");
        epoch.unlock_all()?;
    }
    team.barrier()?;
    drop(memory);
    go_on(me, &team, &window)?;
    job.finish()
}

/// What children may not do.
fn misbehave(job: &Job, window: &Window<u64>, epoch: LockAllEpoch<'_, u64>) {
    let team = job.team();
    assert_eq!(window.local().get(0).unwrap(), 101, "a child may read");
    // On mapped parts it is the flush that says so, by packets it may be the operation.
    let put = epoch.put(Rank(0), 0, &[666]);
    assert!(matches!(put, Ok(()) | Err(Error::Forked { .. })), "{put:?}");
    let many = epoch.accumulate(Rank(0), 0, Op::Sum, &[7; 64]);
    assert!(matches!(many, Ok(()) | Err(Error::Forked { .. })), "{many:?}");
    refused("flush", epoch.flush(Rank(0)));
    refused("barrier", team.barrier());
    refused("window", Window::<u64>::allocate(team, 1));
    refused("memory", Memory::<u64>::shared(team, 1));
    refused("lock", window.lock(Rank(0), LockKind::Shared));
    refused("send", job.link().try_send(Slot(0), 1, 0, &[1]));
    refused("poll", job.link().poll(|_| ()));
    refused("shrink", team.shrink());
    refused("init", Job::init().map(drop));
    refused("threads", Job::threads(1, |_| ()));
    assert_eq!(job.deaths(), 0);
    // Also what a new thread does, which nobody has marked.
    std::thread::scope(|scope| {
        let calls = || {
            refused("barrier of a thread", team.barrier());
            refused("flush of a thread", epoch.flush(Rank(0)));
            refused("memory of a thread", Memory::<u64>::shared(team, 1));
        };
        scope.spawn(calls).join().unwrap();
    });
    // A child of the child is none either.
    let again = fork();
    if again == 0 {
        live(|| refused("barrier of a grandchild", team.barrier()));
    }
    assert_eq!(reap(again), 0);
}

/// What works only if no child has had a part in it.
fn go_on(me: Rank, team: &hither::Team, window: &Window<u64>) -> Result<()> {
    team.barrier()?;
    assert_eq!(window.local().get(0)?, 100 + u64::from(me.0), "written by a child");
    for round in 0..20u64 {
        let epoch = window.fence()?;
        epoch.put(Rank((me.0 + 1) % 3), 1, &[round])?;
        epoch.end()?;
        assert_eq!(window.local().get(1)?, round);
        let other = Window::<u64>::allocate(team, 8)?;
        other.free()?;
    }
    team.barrier()
}

fn launched(role: &str, ranks: u32, medium: &str) {
    let launcher = Launcher::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_RMA_MEDIUM", medium)
        .ranks(ranks)
        .output(Output::Capture)
        .timeout(Duration::from_secs(100));
    let outcome = launcher.start().unwrap().wait().unwrap();
    for rank in 0..ranks as usize {
        let said = String::from_utf8_lossy(&outcome.stderr[rank]);
        assert_eq!(outcome.ranks[rank], Exit::Code(0), "{medium}, rank {rank}: {said}");
    }
}

#[test]
fn a_child_is_told_and_disturbs_nobody() {
    for medium in ["auto", "packets"] {
        launched("rank", 3, medium);
    }
}

#[test]
fn a_child_of_ranks_that_are_threads_is_told_and_disturbs_nobody() {
    for medium in ["auto", "packets"] {
        launched("threads", 1, medium);
    }
}
