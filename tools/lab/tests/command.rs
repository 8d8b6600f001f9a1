//! The `hither-lab` command: labels, verdict, exit codes; what is left of it when it is killed; what
//! it says where there is nothing to be had.

#[path = "../../../tests/support/processes.rs"]
mod processes;

use processes::{marked, until};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

const UNAVAILABLE: i32 = 77;
/// In the environment of the laboratory's processes, to find them by.
const MARK: &str = "HITHER_LAB_TEST_MARK";

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Nothing where this machine cannot have guests.
fn done(arguments: &[&str]) -> Option<(i32, String, String)> {
    let (code, out, err) = texts(lab(arguments).output().unwrap());
    if code == UNAVAILABLE {
        not_tried(&err);
        return None;
    }
    Some((code, out, err))
}

/// Not by print, which the test harness keeps to itself.
fn not_tried(why: &str) {
    let text = format!("NOT TRIED, no guests on this machine: {why}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

fn texts(output: Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn guests_are_labelled_and_the_worst_counts() {
    let line = "echo here; echo $GIVEN >&2; exit $((LAB_GUEST * 5))";
    let arguments = ["run", "-n", "2", "--env", "GIVEN=there", "--", "sh", "-c", line];
    let Some((code, out, err)) = done(&arguments) else { return };
    assert_eq!(code, 5, "{out} {err}");
    for guest in ["g0", "g1"] {
        assert!(out.contains(&format!("[{guest}] here\n")), "{out}");
        assert!(err.contains(&format!("[{guest}] there\n")), "{err}");
    }
    assert!(err.contains("g0: exit code 0") && err.contains("g1: exit code 5"), "{err}");
    assert!(err.trim_end().ends_with("lab: FAILED"), "{err}");
    let Some((code, out, err)) = done(&["run", "-n", "1", "--on", "0", "hostname"]) else { return };
    assert_eq!((code, &*out), (0, "[g0] g0\n"));
    assert!(err.trim_end().ends_with("lab: passed"), "{err}");
}

#[test]
fn nothing_is_left_of_a_laboratory_that_is_killed() {
    let mark = std::process::id().to_string();
    let mut command = lab(&["run", "-n", "2", "--", "sh", "-c", "echo up; sleep 1000"]);
    command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(UNAVAILABLE), "{output:?}");
        return not_tried(&texts(output).2);
    }
    assert!(line.ends_with("up\n"), "{line}");
    assert!(marked(MARK, &mark).len() >= 3, "two emulators and their parent");
    child.kill().unwrap();
    child.wait().unwrap();
    until("all its processes to end", || marked(MARK, &mark).is_empty());
}

#[test]
fn where_nothing_is_to_be_had_it_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let cache = empty.path().join("cache");
    let mut fetch = lab(&["fetch"]);
    fetch.env("XDG_CACHE_HOME", &cache).env("PATH", empty.path());
    let (code, _, err) = texts(fetch.output().unwrap());
    assert_eq!(code, UNAVAILABLE, "{err}");
    assert!(err.contains("no laboratory here") && err.contains("apt-get"), "{err}");

    // Tools that are there, and a registry that is not.
    let apt = "#!/bin/sh\n[ $1 = --version ] || { echo E: no net >&2; exit 100; }\n";
    let path = empty.path().join("apt-get");
    std::fs::write(&path, apt).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut fetch = lab(&["fetch"]);
    fetch.env("XDG_CACHE_HOME", &cache);
    fetch.env("PATH", format!("{}:{path}", empty.path().display()));
    let (code, _, err) = texts(fetch.output().unwrap());
    assert_eq!(code, UNAVAILABLE, "{err}");
    let left: Vec<_> = std::fs::read_dir(cache.join("hither-lab")).unwrap().flatten().collect();
    let left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "lock" || name == "packages"), "{left:?}");
    assert!(std::fs::read_dir(cache.join("hither-lab/packages/partial")).unwrap().next().is_none());
}
