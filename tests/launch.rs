//! Launching from a program: real processes. The ranks are this test's own executable, started
//! with a role in the environment.

#[path = "support/mod.rs"]
mod support;

use hither::base::settings;
use hither::boot;
use hither::shm::node::Node;
use hither::shm::segment::STATE_READY;
use hither::topo::Bind;
use hither::world::{Exit, Launcher, Outcome, Output};
use hither::{Deadline, Error, Rank, Result};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::processes::{marked, until};
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
const MARK: &str = "HITHER_TEST_MARK";

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    ranks::ends(&role, play(&role).map(|()| String::new()))
}

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn no_memory() -> Result<rustix::fd::OwnedFd> {
    Err(Error::boot("a launcher brings the memory along"))
}

fn play(role: &str) -> Result<()> {
    let rank: u32 = settings::RANK.number()? as u32;
    match role {
        // Everybody tells everybody something.
        "exchange" => {
            let mut boot = boot::from_environment(limit())?;
            assert_eq!(boot.rank(), Rank(rank));
            for round in 0..3u8 {
                boot.put("k", &[rank as u8, round])?;
                boot.fence(limit())?;
                for other in 0..boot.size() {
                    let value = boot.get(Rank(other), "k", limit())?;
                    assert_eq!(value, Some(vec![other as u8, round]));
                }
                boot.fence(limit())?;
            }
            let fd = boot.node_memory(&no_memory, limit())?;
            let node = Node::attach(fd, hither::base::Slot(rank as u16), limit())?;
            node.await_all(limit())?;
            node.leave();
            Ok(())
        }
        // Rank 1 never joins, and lives on.
        "absent" if rank == 1 => {
            std::io::stdin().read_line(&mut String::new()).ok();
            loop {
                std::thread::park();
            }
        }
        "absent" => {
            let mut boot = boot::from_environment(limit())?;
            boot.fence(Deadline::after(Duration::from_millis(200)))
        }
        "killed-in-fence" if rank == 1 => ranks::die(),
        "gone-in-fence" if rank == 1 => Ok(()),
        "killed-in-fence" | "gone-in-fence" => boot::from_environment(limit())?.fence(limit()),
        // The second initialisation is refused.
        "twice" => {
            let _first = boot::from_environment(limit())?;
            boot::from_environment(limit()).map(|_| ())
        }
        // A child that has the variable but not the socket.
        "stale" => {
            let _first = boot::from_environment(limit())?;
            let exe = std::env::current_exe().map_err(|e| Error::os("current_exe", e))?;
            let mut child = Command::new(exe);
            child.args(["--exact", "role", "--nocapture"]).env(ROLE, "twice");
            let out = child.stdout(Stdio::null()).output().map_err(|e| Error::os("spawn", e))?;
            Err(Error::boot(String::from_utf8_lossy(&out.stderr).into_owned()))
        }
        // All join, rank 1 is killed, the others see the cause in shared memory.
        "killed-when-ready" | "exit-when-ready" => {
            let mut boot = boot::from_environment(limit())?;
            let fd = boot.node_memory(&no_memory, limit())?;
            let node = Node::attach(fd, hither::base::Slot(rank as u16), limit())?;
            node.await_all(limit())?;
            boot.fence(limit())?;
            if rank == 1 {
                assert_eq!(node.rank_slot(node.slot()).state.load(Ordering::Acquire), STATE_READY);
                if role == "exit-when-ready" {
                    std::process::exit(0);
                }
                ranks::die();
            }
            let slot = hither::base::Slot(1);
            // Only the launcher's mark counts here, not this process's own finding.
            let patience = limit();
            while node.rank_slot(slot).cause.load(Ordering::Acquire) == 0 || !node.is_dead(slot) {
                assert!(!patience.passed(), "the launcher has not marked rank 1");
                std::thread::yield_now();
            }
            node.check([slot].into_iter(), "test")
        }
        // Ranks as threads, for only some of which there is room.
        "crowded" => {
            use rustix::process::{Resource, Rlimit, setrlimit};
            let segment = hither::shm::segment::Areas::new(64, settings::HEAP_SIZE.bytes()?)?;
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
            let room = Some(pages * 4096 + segment.length + (32 << 20));
            setrlimit(Resource::As, Rlimit { current: room, maximum: room })
                .map_err(|e| Error::os("setrlimit", e))?;
            hither::Job::threads(64, |_| panic!("a rank runs")).map(drop)
        }
        // A launcher in a program, to be killed.
        "launcher" | "forking-launcher" => {
            let job = Launcher::new("sh")
                .args(["-c", "sleep 600 & echo ready; wait"])
                .ranks(3)
                .bind(Bind::None)
                .start()?;
            // SAFETY: the child only sleeps.
            if role == "forking-launcher" && unsafe { libc::fork() } == 0 {
                loop {
                    // SAFETY: no preconditions.
                    unsafe { libc::pause() };
                }
            }
            println!("started");
            job.wait().map(|_| ())
        }
        other => panic!("no role {other}"),
    }
}

fn launch(role: &str, ranks: u32) -> Launcher {
    Launcher::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .ranks(ranks)
        .output(Output::Capture)
        .timeout(Duration::from_secs(60))
}

fn run(launcher: Launcher) -> Outcome {
    launcher.start().unwrap().wait().unwrap()
}

fn said(outcome: &Outcome, rank: usize) -> String {
    String::from_utf8_lossy(&outcome.stderr[rank]).into_owned()
}

#[test]
fn ranks_wire_themselves_up_and_share_memory() {
    for ranks in [1, 2, 5] {
        let outcome = run(launch("exchange", ranks));
        assert_eq!(outcome.code(), 0, "{} {}", outcome.summary(), said(&outcome, 0));
        assert_eq!(outcome.notes, Vec::<String>::new());
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let outcome = run(launch("absent", 3).grace(Duration::from_millis(100)));
    assert_eq!(outcome.code(), 3);
    let text = said(&outcome, outcome.first_failure.unwrap() as usize);
    // With rank 1 those are named that were late themselves.
    let (_, missing) = text.split_once("still missing: rank ").expect(&text);
    assert!(missing.trim().split(", ").any(|rank| rank == "1"), "{text}");
}

#[test]
fn ranks_that_end_before_a_fence_are_named_with_the_cause() {
    let outcome = run(launch("killed-in-fence", 3));
    assert_eq!(outcome.ranks[1], Exit::Signal(9));
    assert_eq!(outcome.code(), 137, "{}", outcome.summary());
    for rank in [0, 2] {
        let text = said(&outcome, rank);
        assert!(text.contains("rank 1 died (it was killed by signal 9 (SIGKILL))"), "{text}");
    }
    let outcome = run(launch("gone-in-fence", 3));
    assert_eq!((outcome.ranks[1], outcome.code()), (Exit::Code(0), 3));
    assert!(said(&outcome, 0).contains("rank 1 died (it ended with exit code 0)"));
}

#[test]
fn a_second_initialisation_and_a_stale_variable_are_refused() {
    for role in ["twice", "stale"] {
        let outcome = run(launch(role, 1));
        let text = said(&outcome, 0);
        assert_eq!(outcome.code(), 3, "{text}");
        assert!(
            text.contains("HITHER_LAUNCH_FD is") && text.contains("initialised twice"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_started_is_refused() {
    let sh = || Launcher::new("sh").args(["-c", "exit 0"]).output(Output::Capture);
    for ranks in [0, 4097, 65536, u32::MAX] {
        let refused = sh().ranks(ranks).start().map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        let refused = hither::Job::threads(ranks, |_| ()).map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    let programs = [Launcher::new("/nowhere/at/all"), Launcher::new("s\0h"), sh().arg("a\0b")];
    let odd = [sh().env("a=b\0", "c"), sh().env("a", "\0")];
    for launcher in programs.into_iter().chain(odd) {
        let refused = launcher.start().map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    // Times that no clock reaches, and memory beyond all addresses.
    for heap in [0, 1, u64::MAX] {
        let late = "test $HITHER_RANK = 0 && exit 3; sleep 0.1";
        let launcher = Launcher::new("sh").args(["-c", late]).ranks(2).heap_size(heap);
        let launcher = launcher.grace(Duration::MAX).timeout(Duration::MAX);
        assert_eq!(run(launcher.output(Output::Capture)).code(), 3);
    }
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    let launcher = launch("crowded", 1).env("HITHER_HEAP_SIZE", "2M");
    let text = said(&run(launcher), 0);
    assert!(text.contains("starting a rank's thread failed"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn a_second_process_of_one_rank_is_refused() {
    let exe = std::env::current_exe().unwrap();
    let both =
        format!("'{0}' --exact role --nocapture && '{0}' --exact role --nocapture", exe.display());
    let launcher =
        Launcher::new("sh").args(["-c", &both]).env(ROLE, "exchange").output(Output::Capture);
    let outcome = run(launcher);
    assert_eq!(outcome.code(), 3);
    let text = said(&outcome, 0);
    assert!(text.contains("has joined as rank 0 already"), "{text}");
}

#[test]
fn the_cause_of_a_death_stands_in_shared_memory() {
    for survive in [false, true] {
        let outcome = run(launch("killed-when-ready", 3).survive(survive));
        for rank in [0, 2] {
            let text = said(&outcome, rank);
            assert!(text.contains("rank 1 died (killed by signal 9 (SIGKILL))"), "{text}");
        }
        let go_on = outcome.notes[0].ends_with("the others go on");
        assert_eq!(go_on, survive, "{:?}", outcome.notes);
    }
    let outcome = run(launch("exit-when-ready", 2));
    let text = said(&outcome, 0);
    assert!(text.contains("it ended with exit code 0 without leaving"), "{text}");
}

#[test]
fn a_rank_can_be_killed_and_the_others_are_ended() {
    let job = Launcher::new("sleep").arg("600").ranks(3).output(Output::Capture);
    let job = job.grace(Duration::from_millis(50)).start().unwrap();
    assert!(job.pid(2).is_some() && job.pid(3).is_none());
    assert!(job.kill(2, libc::SIGKILL));
    assert!(!job.kill(3, libc::SIGKILL));
    let outcome = job.wait().unwrap();
    assert_eq!(outcome.ranks, [Exit::Signal(15), Exit::Signal(15), Exit::Signal(9)]);
    assert_eq!(outcome.first_failure, Some(2));
    assert!(outcome.notes[0].starts_with("rank 2 (pid "), "{:?}", outcome.notes);
    assert!(outcome.notes[0].ends_with("was killed by signal 9 (SIGKILL); ending the job"));
}

#[test]
fn who_ignores_sigterm_is_killed_and_a_stopped_rank_ends_too() {
    let script = "trap '' TERM; [ $HITHER_RANK = 1 ] && exit 7; kill -STOP $$; while :; do :; done";
    let launcher = Launcher::new("sh").args(["-c", script]).ranks(2).output(Output::Capture);
    let outcome = run(launcher.grace(Duration::from_millis(50)));
    assert_eq!(outcome.ranks, [Exit::Signal(9), Exit::Code(7)]);
    assert_eq!(outcome.code(), 7);
}

#[test]
fn dropping_a_job_ends_it_with_all_that_it_started() {
    let mark = format!("drop-{}", std::process::id());
    let launcher = Launcher::new("sh").args(["-c", "sleep 600 & sleep 600 & wait"]);
    let job = launcher.env(MARK, &mark).ranks(4).output(Output::Capture).start().unwrap();
    until("the ranks have not started", || {
        marked(MARK, &mark).iter().filter(|p| p.1 == "sleep").count() == 8
    });
    drop(job);
    until("processes are left behind", || marked(MARK, &mark).is_empty());
}

#[test]
fn what_a_rank_leaves_in_its_group_ends_with_it_and_does_not_hold_the_job_up() {
    let mark = format!("group-{}", std::process::id());
    let launcher = Launcher::new("sh").args(["-c", "sleep 600 & echo started"]).env(MARK, &mark);
    let outcome = run(launcher.ranks(2).output(Output::Capture));
    assert_eq!((outcome.code(), outcome.stdout[1].as_slice()), (0, b"started\n".as_slice()));
    until("processes are left behind", || marked(MARK, &mark).is_empty());
}

#[test]
fn a_daemon_that_keeps_the_pipes_open_does_not_hold_the_job_up() {
    let mark = format!("daemon-{}", std::process::id());
    // Field 6 is the session: the daemon has one of its own once setsid has happened.
    let wait = "until [ \"$(cut -d' ' -f6 /proc/$!/stat)\" = $! ]; do :; done";
    let script = format!("setsid sleep 600 & {wait}; echo x");
    let launcher = Launcher::new("sh").args(["-c", &script]).env(MARK, &mark);
    let outcome = run(launcher.output(Output::Capture).timeout(Duration::from_secs(30)));
    assert_eq!((outcome.code(), outcome.stdout[0].as_slice()), (0, b"x\n".as_slice()));
    // It left its group on purpose; it is this test's to end.
    marked(MARK, &mark).iter().for_each(|p| kill(p.0));
}

/// Starts a program that is a launcher; returns once its three ranks run.
fn start_launcher(role: &str, mark: &str) -> std::process::Child {
    let mut launcher = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env(settings::RANK.name, "0")
        .env(MARK, mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let wanted = lines.map_while(|l| l.ok()).filter(|l| l == "ready" || l == "started");
    assert_eq!(wanted.take(4).count(), 4);
    launcher
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_end_of_the_launching_process_is_the_end_of_everything() {
    let mark = format!("launcher-{}", std::process::id());
    let mut launcher = start_launcher("launcher", &mark);
    launcher.kill().unwrap();
    assert_eq!(launcher.wait().unwrap().signal(), Some(9));
    until("processes are left behind", || marked(MARK, &mark).is_empty());
}

#[test]
fn a_killed_guardian_is_replaced_by_one_that_knows_all_groups() {
    let mark = format!("guardian-{}", std::process::id());
    let mut launcher = start_launcher("launcher", &mark);
    let guardian = || marked(MARK, &mark).into_iter().find(|p| p.1 == "hither-guardian");
    until("no guardian", || guardian().is_some());
    let (first, _) = guardian().unwrap();
    kill(first);
    until("no second guardian", || guardian().is_some_and(|(pid, _)| pid != first));
    assert!(launcher.try_wait().unwrap().is_none(), "the job goes on");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    until("processes are left behind", || marked(MARK, &mark).is_empty());
}

#[test]
fn a_process_forked_by_the_launching_one_keeps_nothing_alive() {
    let mark = format!("forking-{}", std::process::id());
    let mut launcher = start_launcher("forking-launcher", &mark);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    // All but the forked process itself, which is no rank.
    until("processes are left behind", || marked(MARK, &mark).len() == 1);
    kill(marked(MARK, &mark)[0].0);
}
