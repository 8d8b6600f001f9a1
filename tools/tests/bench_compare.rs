//! `hither bench compare`, with whatever peers are installed, with none, and with one made of shell
//! scripts that crashes and hangs. Times are never judged.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn compare(args: &[&str], out: &Path, path: Option<&Path>) -> (Output, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.args(["bench", "compare", "--least", "--crowd", "0", "--out"]).arg(out).args(args);
    if let Some(path) = path {
        // Nor programs for peers that were built once.
        command.env("PATH", path).env("XDG_CACHE_HOME", path);
    }
    let output = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = std::fs::read_to_string(out.join("report.json")).expect("raw values");
    let lines = serde_json::from_str::<Value>(&text).expect("JSON");
    (output, lines.as_array().expect("lines").clone())
}

fn entry<'v>(line: &'v Value, whose: &str) -> Option<&'v Value> {
    line["entries"].as_array().expect("entries").iter().find(|e| e["contestant"] == whose)
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|x| x > 0.0)
}

#[test]
fn without_peers_hither_is_held_against_the_floors() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let out = dir.path().join("out");
    let (output, lines) = compare(&["messages", "onesided"], &out, Some(&empty));
    assert!(lines.len() > 20);
    for line in &lines {
        assert!(positive(&entry(line, "hither").expect("ours")["value"]), "{line}");
        assert!(line["best"].is_null() && line["direct"].is_null(), "{line}");
        let has_floor = match line["workload"].as_str().expect("a name") {
            "signal-bandwidth" => false,
            "signal" => line["size"] == 8,
            _ => true,
        };
        assert_eq!(positive(&line["floor_ratio"]), has_floor, "{line}");
        assert_eq!(positive(&line["limit"]), has_floor, "{line}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("put, flush") && text.contains("instruction + fence"), "{text}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("MPICH: left out") && page.contains("<polyline"), "{page}");
}

#[test]
fn every_peer_that_is_installed_has_figures_or_reasons() {
    let dir = tempfile::tempdir().expect("a directory");
    let (output, lines) = compare(&["collectives", "start"], &dir.path().join("out"), None);
    let names = String::from_utf8_lossy(&output.stderr);
    for line in &lines {
        assert!(positive(&entry(line, "hither").expect("ours")["value"]), "{line}");
        for other in line["entries"].as_array().expect("entries") {
            assert!(positive(&other["value"]) || other["failed"].is_string(), "{line}");
        }
    }
    for peer in ["MPICH", "Open MPI", "UCX", "GASNet-EX: left out", "iceoryx2", "Lamellar"] {
        assert!(names.contains(peer), "{names}");
    }
}

fn script(dir: &Path, name: &str, text: &str) {
    let file = dir.join(name);
    std::fs::write(&file, text).expect("a script");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("its mode");
}

/// A compiler that compiles nothing.
const COMPILER: &str = "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho > \"$2\"\n";
/// A launcher that measures nothing, crashes in one workload, hangs in another and does not know a
/// third.
const LAUNCHER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo "HYDRA build details:"; echo "    Version:   9.9"; exit; fi
for item in "$@"; do case $item in
rate:128) echo "@ $item"; echo "out of luck" >&2; exit 3;;
request:*) echo "@ $item"; while :; do :; done;;
latency:0) echo "? $item";;
latency:*|latency-still:*|rate:*) echo "@ $item"; echo "= $item 5.5";;
esac; done
"#;

#[test]
fn a_peer_that_crashes_or_hangs_is_reported_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let fake = dir.path().join("fake");
    std::fs::create_dir(&fake).expect("a directory");
    script(&fake, "mpicc.mpich", COMPILER);
    script(&fake, "mpiexec.mpich", LAUNCHER);
    // One that does not compile.
    script(&fake, "mpicc.openmpi", "#!/bin/sh\necho 'no such header: error' >&2; exit 1\n");
    script(&fake, "mpiexec.openmpi", "#!/bin/sh\necho 'mpiexec (Open MPI) 9.8'\n");
    let args = ["messages", "--patience", "3"];
    let (_, lines) = compare(&args, &dir.path().join("out"), Some(&fake));
    let (mut figures, mut reasons) = (0, Vec::new());
    for line in &lines {
        assert!(positive(&entry(line, "hither").expect("ours")["value"]), "{line}");
        let mpich = entry(line, "MPICH").expect("the fake");
        if mpich["value"] == 5.5 {
            figures += 1;
            assert_eq!(line["best"]["peer"], "MPICH");
        } else {
            reasons.push(format!("{} {}", line["workload"], mpich["failed"]));
        }
        let why = entry(line, "Open MPI").expect("the other")["failed"].to_string();
        assert!(why.contains("no such header"), "{why}");
    }
    assert_eq!(figures, lines.len() - 3, "{reasons:?}");
    let told = |what: &str, why: &str| reasons.iter().any(|r| r.contains(what) && r.contains(why));
    assert!(told("rate", "out of luck") && told("request", "hung"), "{reasons:?}");
    assert!(told("latency", "no such workload"), "{reasons:?}");
}

#[test]
fn peers_are_listed_and_nothing_is_installed_unasked() {
    let bench = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
        command.arg("bench").args(args).output().expect("the command starts")
    };
    let output = bench(&["peers"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(
        ["hither", "MPICH", "Open MPI", "UCX", "GASNet-EX", "iceoryx2", "Lamellar"]
            .iter()
            .all(|name| text.contains(name)),
        "{text}"
    );
    assert!(!bench(&["peers", "--yes"]).status.success(), "of nothing");
    assert_eq!(bench(&["compare", "nonsense"]).status.code(), Some(2));
}
