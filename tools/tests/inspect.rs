//! `hither topo` and `hither doctor` as a user runs them.

use serde_json::Value;
use std::process::{Command, Output};

fn hither(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.args(args);
    for name in ["HITHER_TOPOLOGY", "HITHER_HEAP_SIZE", "HITHER_SPIN"] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn findings<'a>(report: &'a Value, state: &str) -> Vec<&'a str> {
    let all = report["findings"].as_array().unwrap();
    all.iter().filter(|f| f["state"] == state).map(|f| f["text"].as_str().unwrap()).collect()
}

#[test]
fn doctor_finds_this_machine_usable_and_lists_every_setting() {
    let output = hither(&["doctor", "--json"], &[]);
    let report = json(&output);
    assert_eq!(findings(&report, "problem"), Vec::<&str>::new());
    assert!(output.status.success());
    assert_eq!(report["usable"], true);
    let rows = report["settings"].as_array().unwrap();
    assert_eq!(rows.len(), hither::base::settings::TABLE.len());
    assert!(rows.iter().all(|row| !row["doc"].as_str().unwrap().is_empty()));
}

#[test]
fn doctor_fails_on_values_that_cannot_be_used_and_remarks_on_misspelt_names() {
    let env = [
        ("HITHER_HEAP_SIZE", "banana"),
        ("HITHER_SPIN", "many"),
        ("HITHER_TOPOLOGY", "2x2"),
        ("HITHER_HEAPSIZE", "1G"),
    ];
    let output = hither(&["doctor", "--json"], &env);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    let problems = findings(&report, "problem");
    for name in
        ["HITHER_HEAP_SIZE: \"banana\"", "HITHER_SPIN: \"many\"", "HITHER_TOPOLOGY: \"2x2\""]
    {
        assert!(problems.iter().any(|text| text.contains(name)), "{name}: {problems:?}");
    }
    assert_eq!(problems.len(), 3, "{problems:?}");
    let notes = findings(&report, "note");
    assert!(notes.contains(&"HITHER_HEAPSIZE is not a setting"), "{notes:?}");
}

#[test]
fn doctor_notices_too_little_address_space_and_too_few_files() {
    let program = env!("CARGO_BIN_EXE_hither");
    for (limit, topic) in [("-v 4000000", "addresses"), ("-n 32", "limits")] {
        let script = format!("ulimit {limit}; exec {program} doctor --json");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{limit}");
        let report = json(&output);
        let all = report["findings"].as_array().unwrap();
        let found = all.iter().find(|f| f["topic"] == topic).unwrap();
        assert_eq!(found["state"], "problem", "{found}");
        assert!(found["advice"].as_str().unwrap().contains("ulimit"), "{found}");
    }
}

#[test]
fn doctor_fits_a_screen_and_tells_what_to_do() {
    let output = hither(&["doctor"], &[("HITHER_HEAP_SIZE", "oops")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() <= 48, "{text}");
    assert!(text.contains("PROBLEM  settings"), "{text}");
    assert!(text.contains("* HITHER_HEAP_SIZE"), "{text}");
    assert!(text.trim_end().ends_with("hither from working on this machine."), "{text}");
}

#[test]
fn topo_takes_its_machine_from_the_option_or_the_environment() {
    let option = hither(&["topo", "--synthetic", "2x1x2x4x1", "--json"], &[]);
    let environment = hither(&["topo", "--json"], &[("HITHER_TOPOLOGY", "2x1x2x4x1")]);
    assert!(option.status.success());
    assert_eq!(json(&option), json(&environment));
    assert_eq!(json(&option)["cores"], 16);
    assert_eq!(json(&option)["ranks"], 16);
    let bad = hither(&["topo", "--synthetic", "2x1"], &[]);
    assert_eq!(bad.status.code(), Some(2));
    let text = String::from_utf8(bad.stderr).unwrap();
    assert!(text.contains("--synthetic: \"2x1\" has 2 part(s)"), "{text}");
    assert_eq!(hither(&["topo", "--ranks", "0"], &[]).status.code(), Some(2));
}

#[test]
fn topo_shows_what_an_inherited_affinity_leaves() {
    let all = json(&hither(&["topo", "--json"], &[]));
    let first = all["cpus"].as_array().unwrap().iter().find(|c| c["allowed"] == true).unwrap();
    let cpu = first["cpu"].as_u64().unwrap() as u32;
    let child = std::thread::spawn(move || {
        let one: hither::topo::CpuSet = [cpu].into_iter().collect();
        one.apply().unwrap();
        hither(&["topo", "--json", "-n", "2"], &[])
    });
    let one = json(&child.join().unwrap());
    assert_eq!(one["allowed_cores"], 1);
    assert_eq!(one["oversubscribed"], true);
    assert_eq!(one["bound"], false);
    let allowed = one["cpus"].as_array().unwrap().iter().filter(|c| c["allowed"] == true);
    assert_eq!(allowed.count(), 1);
}

#[test]
fn topo_writes_a_picture_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.svg");
    let args = ["topo", "--synthetic", "1x2x1x2x2", "--svg", file.to_str().unwrap()];
    assert!(hither(&args, &[]).status.success());
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.trim_start().starts_with("<svg") && picture.contains("NUMA node 1"));
    let nowhere = hither(&["topo", "--svg", "/nonexistent/machine.svg"], &[]);
    assert_eq!(nowhere.status.code(), Some(1));
    let text = String::from_utf8(nowhere.stderr).unwrap();
    assert!(text.contains("writing the picture failed"), "{text}");
}
