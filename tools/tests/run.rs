//! `hither run`: output, exit codes, signals, and that nothing stays behind. The ranks are shell
//! scripts, or this test's own executable with a role in the environment.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::processes::{marked, until};
use support::signals::interruptible;

const ROLE: &str = "HITHER_TEST_ROLE";
const MARK: &str = "HITHER_TEST_MARK";
const LINE: usize = 5000;

/// The entry of ranks that a shell script is too slow for.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let rank = std::env::var("HITHER_RANK").unwrap_or_default();
    let letter = |n: usize| rank.repeat(n);
    let mut out = std::io::stdout().lock();
    match role.as_str() {
        // Lines in two halves, each written by itself.
        "lines" => {
            for _ in 0..200 {
                for half in [letter(LINE / 2), letter(LINE / 2) + "\n"] {
                    out.write_all(half.as_bytes()).unwrap();
                    out.flush().unwrap();
                }
            }
        }
        "huge" => out.write_all((letter(5 << 20) + "\nend").as_bytes()).unwrap(),
        "binary" => {
            let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
            out.write_all(&all).unwrap();
        }
        other => panic!("no role {other}"),
    }
    out.flush().unwrap();
    std::process::exit(0);
}

fn hither(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.arg("run").args(options).arg("--").args(program).stdin(Stdio::null());
    command
}

fn script(options: &[&str], text: &str) -> Command {
    hither(options, &["sh", "-c", text])
}

fn with_role(options: &[&str], role: &str) -> Command {
    let exe = std::env::current_exe().unwrap();
    let mut command = hither(options, &[exe.to_str().unwrap(), "--exact", "role", "--nocapture"]);
    command.env(ROLE, role);
    command
}

fn done(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A job under way, with its launcher, its output, and the mark of all its processes.
struct Job {
    launcher: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    mark: String,
}

impl Job {
    /// Starts it and waits until every rank has said "ready".
    fn start(name: &str, ranks: u32, options: &[&str], text: &str) -> Job {
        let mark = format!("{name}-{}", std::process::id());
        let count = ranks.to_string();
        let options = [&["-n", &count], options].concat();
        let mut command = script(&options, text);
        let command = interruptible(command.env(MARK, &mark));
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let mut job = Job { launcher, lines, mark };
        for _ in 0..ranks {
            assert_eq!(job.line().as_deref(), Some("ready"));
        }
        job
    }

    fn line(&mut self) -> Option<String> {
        self.lines.next().and_then(|l| l.ok())
    }

    fn signal(&self, signal: i32) {
        kill(self.launcher.id() as i32, signal);
    }

    /// Waits for the launcher; returns its exit code (or minus its signal) and its messages.
    fn end(mut self) -> (i32, String) {
        // To the end: until the last writer has closed the pipe.
        for line in &mut self.lines {
            line.unwrap();
        }
        let mut messages = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
        let status = self.launcher.wait().unwrap();
        until("processes are left behind", || marked(MARK, &self.mark).is_empty());
        (status.code().unwrap_or_else(|| -status.signal().unwrap()), messages)
    }
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory involved.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

#[test]
fn exit_codes_and_messages_tell_who_failed_first() {
    let (code, out, err) = done(&mut script(&["-n", "3"], "echo $HITHER_RANK/$HITHER_SIZE"));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines.as_slice(), err.as_str()), (0, ["0/3", "1/3", "2/3"].as_slice(), ""));

    let (code, _, err) = done(&mut script(&["-n", "2"], "exit $((HITHER_RANK * 41))"));
    assert_eq!(code, 41);
    assert!(err.starts_with("hither: rank 1 (pid ") && err.contains("exit code 41"), "{err}");

    let kill_one = "if [ $HITHER_RANK = 2 ]; then kill -KILL $$; fi; exec sleep 600";
    let (code, _, err) = done(&mut script(&["-n", "3"], kill_one));
    assert_eq!(code, 137);
    let message = err.lines().next().unwrap();
    assert!(message.starts_with("hither: rank 2 (pid "), "{err}");
    assert!(message.ends_with(") was killed by signal 9 (SIGKILL); ending the job"), "{err}");
}

#[test]
fn survivors_go_on_when_asked() {
    let text = "if [ $HITHER_RANK = 0 ]; then kill -SEGV $$; fi; \
                while kill -0 $PPID && [ ! -e $FLAG ]; do :; done; echo on";
    let flag = std::env::temp_dir().join(format!("hither-flag-{}", std::process::id()));
    let mut command = script(&["-n", "3", "--survive"], text);
    let job = command.env("FLAG", &flag).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = job.spawn().unwrap();
    let mut message = String::new();
    let mut errors = BufReader::new(job.stderr.take().unwrap());
    errors.read_line(&mut message).unwrap();
    assert!(
        message.ends_with("was killed by signal 11 (SIGSEGV); the others go on\n"),
        "{message}"
    );
    std::fs::write(&flag, "").unwrap();
    let out = job.wait_with_output().unwrap();
    std::fs::remove_file(&flag).unwrap();
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), b"on\non\n".as_slice()));
}

#[test]
fn the_time_limit_ends_the_job() {
    let (code, _, err) = done(&mut script(&["-n", "2", "--timeout", "0.1"], "exec sleep 600"));
    assert_eq!((code, err.as_str()), (124, "hither: the job's time (100ms) is up; ending it\n"));
}

#[test]
fn wrong_usage_ends_with_code_2() {
    for options in [&["-n", "0"][..], &[], &["-n", "x"], &["-n", "1", "--timeout", "0"]] {
        assert_eq!(done(&mut hither(options, &["true"])).0, 2, "{options:?}");
    }
    assert_eq!(done(&mut hither(&["-n", "1"], &[])).0, 2);
    let (code, _, err) = done(&mut hither(&["-n", "2"], &["/no/such/program"]));
    assert_eq!(code, 2);
    assert!(err.starts_with("hither: program: cannot start \"/no/such/program\""), "{err}");
}

#[test]
fn maps_that_cannot_be_are_refused_with_what_can() {
    for (options, advice) in [
        (&["-n", "3", "--map", "by-node"][..], "cyclic:4"),
        (&["-n", "3", "--map", "2,2"], "sum up"),
        (&["-n", "3", "--nodes", "2", "--map", "1,1,1"], "leave the number of nodes out"),
        (&["-n", "3", "--nodes", "2", "--map", "cyclic:3"], "at most 2"),
    ] {
        let (code, out, err) = done(&mut hither(options, &["true"]));
        assert!(code != 0 && out.is_empty() && err.contains(advice), "{options:?}: {code} {err}");
    }
    let (code, _, err) = done(&mut script(&["-n", "3", "--map", "2,1"], "exit 0"));
    assert_eq!(code, 0, "{err}");
}

#[test]
fn rank_0_has_the_input_and_the_others_have_none() {
    let mut command = hither(&["-n", "3", "--label"], &["cat"]);
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    job.stdin.take().unwrap().write_all(b"to whom\n").unwrap();
    let out = job.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), b"[0] to whom\n".as_slice()));
}

#[test]
fn lines_are_never_torn_apart() {
    for options in [&["-n", "4"][..], &["-n", "4", "--label"]] {
        let (code, out, _) = done(&mut with_role(options, "lines"));
        assert_eq!(code, 0);
        let mut full = [0; 4];
        for line in out.lines() {
            let label = line.strip_prefix('[').and_then(|l| l.split_once("] "));
            let text = label.map_or(line, |(_, text)| text);
            if text.len() == LINE {
                let first = text.as_bytes()[0];
                assert!(text.bytes().all(|b| b == first), "mixed: {line}");
                assert!(label.is_none_or(|(rank, _)| rank.as_bytes() == [first]), "{line}");
                full[usize::from(first - b'0')] += 1;
            } else {
                // The test harness's own few words.
                assert!(text.len() < 40, "a part of a line: {line}");
            }
        }
        assert_eq!(full, [200; 4]);
    }
}

#[test]
fn huge_lines_unfinished_lines_and_binary_output_come_through() {
    let (code, out, _) = done(&mut with_role(&["-n", "2"], "huge"));
    assert_eq!(code, 0);
    for rank in ["0", "1"] {
        assert_eq!(out.matches(rank).count(), (5 << 20) + usize::from(rank == "1") * 2, "{rank}");
    }
    assert_eq!(out.lines().filter(|l| *l == "end").count(), 2, "on lines of their own");

    let out = with_role(&["-n", "1"], "binary").output().unwrap().stdout;
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert!(out.ends_with(&all));
}

#[test]
fn ranks_learn_that_nobody_reads_their_output_any_more() {
    let mut command = hither(&["-n", "2"], &["yes"]);
    let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0u8; 4];
    job.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let out = job.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(141));
    assert!(String::from_utf8_lossy(&out.stderr).contains("signal 13 (SIGPIPE)"));
}

#[test]
fn signals_are_passed_on() {
    let text = "trap 'echo one' USR1; trap 'exit 5' TERM; echo ready; while :; do :; done";
    let mut job = Job::start("signals", 3, &[], text);
    job.signal(libc::SIGUSR1);
    for _ in 0..3 {
        assert_eq!(job.line().as_deref(), Some("one"));
    }
    job.signal(libc::SIGTERM);
    assert_eq!(job.end(), (5, String::new()));
}

#[test]
fn an_interrupt_ends_ranks_and_the_second_one_kills_them() {
    let job = Job::start("interrupt", 2, &[], "echo ready; exec sleep 600");
    job.signal(libc::SIGINT);
    assert_eq!(job.end(), (130, String::new()));

    let text = "trap 'echo no' INT; echo ready; while :; do :; done";
    let mut job = Job::start("interrupts", 2, &[], text);
    job.signal(libc::SIGINT);
    for _ in 0..2 {
        assert_eq!(job.line().as_deref(), Some("no"));
    }
    job.signal(libc::SIGINT);
    assert_eq!(job.end().0, 137);
}

#[test]
fn the_job_stops_and_goes_on_with_its_launcher() {
    let job = Job::start("stop", 2, &[], "echo ready; exec sleep 600");
    let ranks = || -> Vec<i32> {
        let all = marked(MARK, &job.mark).into_iter();
        all.filter(|p| p.1 == "sleep").map(|p| p.0).collect()
    };
    until("sleep has not started", || ranks().len() == 2);
    let pids = ranks();
    let launcher = job.launcher.id() as i32;
    job.signal(libc::SIGTSTP);
    let all = || pids.iter().chain([&launcher]);
    until("not stopped", || all().all(|p| state(*p) == Some('T')));
    job.signal(libc::SIGCONT);
    until("still stopped", || all().all(|p| state(*p) != Some('T')));
    job.signal(libc::SIGTERM);
    assert_eq!(job.end().0, 143);
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    let mut command = Command::new("sh");
    let text =
        "trap '' HUP; exec \"$0\" run -n 1 -- sh -c 'kill -HUP $PPID; kill -HUP $$; echo on'";
    command.args(["-c", text, env!("CARGO_BIN_EXE_hither")]);
    assert_eq!(done(&mut command), (0, "on\n".into(), String::new()));
}

#[test]
fn more_ranks_than_the_usual_limit_of_descriptors_allows() {
    let mut command = Command::new("sh");
    let text = "ulimit -Sn 128; exec \"$0\" run -n 100 -- sh -c 'ulimit -Sn'";
    command.args(["-c", text, env!("CARGO_BIN_EXE_hither")]);
    let (code, out, err) = done(&mut command);
    assert_eq!((code, out.as_str()), (0, "128\n".repeat(100).as_str()), "{err}");
}

#[test]
fn ranks_start_with_the_signal_mask_of_the_launcher_s_parent() {
    let (_, out, _) = done(&mut script(&["-n", "1"], "grep SigBlk /proc/self/status"));
    let (_, own, _) = done(Command::new("sh").args(["-c", "grep SigBlk /proc/self/status"]));
    assert_eq!(out, own);
}

#[test]
fn a_killed_launcher_takes_everything_with_it() {
    let text = "sleep 600 & sh -c 'sleep 600; :' & echo ready; wait";
    for _ in 0..3 {
        let job = Job::start("killed", 4, &[], text);
        job.signal(libc::SIGKILL);
        assert_eq!(job.end().0, -9);
    }
}

#[test]
fn a_launcher_killed_at_any_moment_of_the_start_leaves_nothing() {
    for step in 0..24 {
        let mark = format!("start-{step}-{}", std::process::id());
        let mut command = script(&["-n", "4"], "sleep 600 & sh -c 'sleep 600; :' & wait");
        let mut launcher = command.env(MARK, &mark).spawn().unwrap();
        // Moments spread over the start, not a wait for anything.
        let moment = Instant::now() + Duration::from_micros(step * 700);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        until("processes are left behind", || marked(MARK, &mark).is_empty());
    }
}

#[test]
fn a_killed_guardian_is_replaced() {
    let job = Job::start("guardian", 2, &[], "sleep 600 & echo ready; wait");
    let guardian = || marked(MARK, &job.mark).into_iter().find(|p| p.1 == "hither-guardian");
    until("no guardian", || guardian().is_some());
    let (first, _) = guardian().unwrap();
    kill(first, libc::SIGKILL);
    until("no second guardian", || guardian().is_some_and(|(pid, _)| pid != first));
    job.signal(libc::SIGKILL);
    assert_eq!(job.end().0, -9);
}

#[test]
fn terminal_signals_do_not_reach_the_guardian() {
    // As from a terminal: to the launcher's whole process group.
    let mut command = script(&["-n", "1"], "echo ready; exec sleep 600");
    let mark = format!("group-{}", std::process::id());
    command.env(MARK, &mark).process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut job = command.spawn().unwrap();
    let mut ready = [0u8; 6];
    job.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let guardian = || marked(MARK, &mark).into_iter().find(|p| p.1 == "hither-guardian");
    until("no guardian", || guardian().is_some());
    let guardian = guardian().unwrap().0;
    kill(guardian, libc::SIGTERM);
    kill(guardian, libc::SIGINT);
    kill(-(job.id() as i32), libc::SIGUSR2);
    assert_eq!(job.wait().unwrap().code(), Some(128 + libc::SIGUSR2));
    until("processes are left behind", || marked(MARK, &mark).is_empty());
}

#[test]
fn memory_and_files_are_gone_after_any_end() {
    let shm = || -> Vec<String> {
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.contains("hither")).collect()
    };
    let before = shm();
    let job = Job::start("memory", 3, &[], "echo ready; exec sleep 600");
    job.signal(libc::SIGKILL);
    job.end();
    assert_eq!(shm(), before);
}
