//! What tests in guests have in common. Not all use all of it.

#![allow(dead_code)]

use hither_lab::{Error, Lab, Options, Output, Program};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything may take that takes seconds on a machine with nothing else to do.
pub const LONG: Duration = Duration::from_secs(240);

/// Laboratories are large: the tests have one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn boot(options: &Options) -> Option<Lab> {
    let agent = Some(PathBuf::from(env!("CARGO_BIN_EXE_hither-lab")));
    match Lab::boot(&Options { agent, ..options.clone() }) {
        Ok(lab) => Some(lab),
        Err(Error::Unavailable(why)) => {
            not_tried(&why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Not by print, which the test harness keeps to itself.
pub fn not_tried(why: &str) {
    let text = format!("NOT TRIED, no guests on this machine: {why}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

pub fn guests(guests: usize) -> Options {
    Options { guests, ..Options::default() }
}

pub fn done(lab: &Lab, guest: usize, program: &Program) -> Output {
    lab.run(guest, program).unwrap().wait().unwrap()
}

pub fn shell(lab: &Lab, guest: usize, line: &str) -> Output {
    done(lab, guest, &Program::shell(line))
}

/// What a line writes that has to succeed.
pub fn said(lab: &Lab, guest: usize, line: &str) -> String {
    let output = shell(lab, guest, line);
    assert_eq!(output.code, 0, "{line}: {output:?}");
    output.stdout.trim().to_owned()
}

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Has something of the workspace built for tests. As a part of the whole workspace: then crates have the
/// features that `cargo test --workspace` gives them, which has built it all already, and nothing is built
/// once more.
fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--workspace", "--quiet"]).args(arguments);
    cargo.current_dir(here().join("../.."));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    cargo
}

/// The command that runs jobs, built as this test was: with a test that starts it.
pub fn hither() -> PathBuf {
    let mut build = cargo(&["--test", "run"]);
    assert!(build.status().unwrap().success());
    PathBuf::from(env!("CARGO_BIN_EXE_hither-lab")).with_file_name("hither")
}

/// A program of the library's tests, built in the same way: `--lib`, or `--test` and a name.
pub fn tests(which: &[&str]) -> PathBuf {
    let mut build = cargo(&["--message-format=json"]);
    let output = build.args(which).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let wanted = *which.get(1).unwrap_or(&"hither");
        let test = message["profile"]["test"].as_bool()? && message["target"]["name"] == wanted;
        test.then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(executable).expect("the tests that were built")
}
