//! `hither demo` from outside: the built binary at several numbers of ranks, with good inputs and
//! bad ones, and with ranks that are killed.

use hither::world::{Exit, Launcher, Outcome, Output};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const HITHER: &str = env!("CARGO_BIN_EXE_hither");

/// Runs `hither demo` with arguments; exit code, standard output, standard error.
fn demo(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(HITHER).arg("demo").args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// As the README says: `cargo run --release -- demo`, from the root.
#[test]
fn cargo_run_at_the_root_finds_one_program_and_it_is_hither() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let asked = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(asked).current_dir(root).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let taken = all["workspace_default_members"].as_array().unwrap();
    let packages = all["packages"].as_array().unwrap().iter();
    let targets = packages
        .filter(|package| taken.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap());
    let programs: Vec<&Value> = targets
        .filter(|target| target["kind"].as_array().unwrap().contains(&"bin".into()))
        .map(|target| &target["name"])
        .collect();
    assert_eq!(programs, ["hither"]);
}

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// A file of its own for each test, removed afterwards.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("hither-demo-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn everything_validates_at_1_2_4_and_8_ranks() {
    everything_validates(&[
        ("1", "1", "block"),
        ("2", "1", "block"),
        ("4", "1", "block"),
        ("8", "1", "block"),
    ]);
}

#[test]
fn everything_validates_on_2_and_4_nodes() {
    everything_validates(&[("8", "2", "block"), ("8", "4", "block")]);
}

#[test]
fn everything_validates_where_ranks_of_a_node_do_not_follow_each_other() {
    everything_validates(&[("4", "2", "cyclic"), ("3", "2", "1,2")]);
}

/// Started by MPICH's launcher, where that is installed; it forks what is for other hosts.
#[test]
fn everything_validates_as_ranks_of_mpiexec() {
    let version = Command::new("mpiexec").arg("--version").output();
    if !version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HYDRA")) {
        println!("there is no mpiexec of MPICH on this machine: not checked");
        return;
    }
    let hosts = ["-launcher", "fork", "-hosts", "one,two", "-ppn", "2"];
    let in_turn = ["-launcher", "fork", "-hosts", "one,two", "-ppn", "1"];
    for (ranks, before) in [("4", &[][..]), ("4", &hosts[..]), ("4", &in_turn[..])] {
        let output = Command::new("mpiexec")
            .args(before)
            .args(["-n", ranks, HITHER, "demo", "--json", "--scale", "0", "--roots", "1"])
            .args(["--queries", "2000", "--size", "61x53", "--sweeps", "9"])
            .env("MPIEXEC_TIMEOUT", "300")
            .stdin(std::process::Stdio::null())
            .output()
            .expect("starting mpiexec");
        let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "{before:?}: {err}");
        let rows = rows(&String::from_utf8_lossy(&out));
        // A graph in 3 formulations, a genome, a grid with 2 synchronisations; by rank 0 alone.
        assert_eq!(rows.len(), 3 + 1 + 2, "{err}");
        for row in rows {
            assert_eq!(row["validated"], true, "{row}");
            assert_eq!(row["ranks"].as_u64().map(|r| r.to_string()).as_deref(), Some(ranks));
        }
    }
}

/// At numbers of ranks and nodes, and with a map of them.
fn everything_validates(jobs: &[(&str, &str, &str)]) {
    for &(ranks, nodes, map) in jobs {
        // Between nodes each step of a search is a round trip.
        let roots = if nodes == "1" { "6" } else { "1" };
        let (code, out, err) = demo(&[
            "--json",
            "-n",
            ranks,
            "--nodes",
            nodes,
            "--map",
            map,
            "--scale",
            "9",
            "--roots",
            roots,
            "--queries",
            "3000",
            "--size",
            "61x53",
            "--size",
            "17x19x23",
            "--sweeps",
            "9",
            "--both-strands",
        ]);
        assert_eq!(code, 0, "{ranks} ranks on {nodes} nodes, {map}: {err}");
        let rows = rows(&out);
        let mut seen = BTreeSet::new();
        for row in &rows {
            assert_eq!(row["validated"], true, "{row}");
            assert_eq!(row["ranks"].as_u64().map(|r| r.to_string()).as_deref(), Some(ranks));
            assert!(row["seconds"].as_f64().is_some_and(|s| s > 0.0), "{row}");
            let text = |key: &str| row[key].as_str().expect("a text").to_owned();
            let rate = match text("workload").as_str() {
                "graph" => "teps",
                "genome" => "queries_per_s",
                _ => "cells_per_s",
            };
            assert!(row[rate].as_f64().is_some_and(|r| r > 0.0), "{row}");
            seen.insert((text("workload"), text("formulation"), text("input")));
        }
        assert_eq!(seen.len(), rows.len());
        // 2 graphs in 3 formulations, 1 genome, 2 grids with 2 synchronisations.
        assert_eq!(rows.len(), 6 + 1 + 4, "{out}");
        // The known facts about the inputs that ship.
        let graph = &rows[0];
        assert_eq!(
            (graph["vertices"].as_u64(), graph["edges"].as_u64()),
            (Some(26_518), Some(65_369))
        );
        let genome = rows.iter().find(|row| row["workload"] == "genome").expect("a genome row");
        assert_eq!(genome["bases"], 48_502);
        assert_eq!(genome["queries"], 6_000);
    }
}

#[test]
fn the_same_matches_are_found_at_every_number_of_ranks() {
    let matches: BTreeSet<u64> = ["1", "3", "5"]
        .iter()
        .map(|ranks| {
            let (code, out, err) = demo(&["genome", "--json", "-n", ranks, "--queries", "2000"]);
            assert_eq!(code, 0, "{err}");
            rows(&out)[0]["matches"].as_u64().expect("a number")
        })
        .collect();
    assert_eq!(matches.len(), 1, "{matches:?}");
}

#[test]
fn a_repetitive_genome_returns_all_its_matches() {
    // A word with thousands of positions: more than fit an answer.
    let mut fasta = b">repeats\n".to_vec();
    fasta.extend(b"ACGTACGTAC\n".repeat(500));
    fasta.extend(b">poly\n");
    fasta.extend([b'a'; 3000]);
    let file = File::new("repeats.fa", &fasta);
    let arguments = ["genome", "--json", "-n", "3", "--queries", "500", "--genome", file.path()];
    let (code, out, err) = demo(&arguments);
    assert_eq!(code, 0, "{err}");
    let row = &rows(&out)[0];
    assert_eq!(row["validated"], true);
    assert!(row["matches"].as_u64().is_some_and(|m| m > 100_000), "{row}");
    assert!(err.contains("2 records"), "{err}");
}

#[test]
fn graphs_with_headers_gaps_and_long_paths_validate() {
    // A path has as many levels as vertices, and numbers with gaps need more than an array.
    let path: String = (0..700u64).map(|v| format!("{}\t{}\r\n", v * 977, (v + 1) * 977)).collect();
    let files = [
        (File::new("path.txt", path.as_bytes()), 701, 700, false),
        (File::new("header.txt", b"4 3\n0 1\n1 2\n2 3\n"), 4, 3, true),
        (File::new("far.txt", b"18446744073709551615 7\n"), 2, 1, false),
    ];
    for (file, vertices, edges, header) in &files {
        let arguments = ["graph", "--json", "-n", "3", "--scale", "0", "--roots", "3", "--graph"];
        let (code, out, err) = demo(&[&arguments[..], &[file.path()]].concat());
        assert_eq!(code, 0, "{err}");
        let rows = rows(&out);
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row["validated"], true, "{row}");
            assert_eq!(row["vertices"], *vertices);
            assert_eq!(row["edges"], *edges);
        }
        assert_eq!(err.contains("for a header"), *header, "{err}");
    }
}

#[test]
fn bad_files_are_refused_once_with_name_and_line() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("word.txt", b"0 1\n2 x\n3 4\n", "word.txt, line 2: \"x\" is not a vertex number"),
        ("column.txt", b"# c\n\n5\n", "column.txt, line 3: holds one column"),
        ("minus.txt", b"0 1\n0 -1\n", "minus.txt, line 2: vertex number -1 is negative"),
        ("large.txt", b"0 99999999999999999999\n", "large.txt, line 1: vertex number 9999"),
        ("none.txt", b"# nothing\n", "none.txt: holds no edges"),
        ("loop.txt", b"1 1\n", "loop.txt: no edge joins two different vertices"),
        ("empty.txt", b"", "empty.txt: is empty"),
        ("list.gz", b"\x1f\x8b\x08\x00abc", "list.gz: is compressed (gzip)"),
        ("binary.txt", b"0 1\n\x7fELF\x00\x01 2\n", "binary.txt, line 2: holds the byte 0x7f"),
    ];
    for (name, content, want) in cases {
        let file = File::new(name, content);
        let (code, out, err) = demo(&["graph", "--json", "-n", "3", "--graph", file.path()]);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {err}");
        assert_eq!(err.matches(want).count(), 1, "{name}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
    let genomes: [(&str, &[u8], &str); 3] = [
        ("bare.fa", b"ACGT\n", "bare.fa, line 1: holds no FASTA header"),
        ("letter.fa", b">x\nACGT\nAC!T\n", "letter.fa, line 3: '!' is not a letter"),
        ("title.fa", b">x\n", "title.fa: holds no bases"),
    ];
    for (name, content, want) in genomes {
        let file = File::new(name, content);
        let (code, out, err) = demo(&["genome", "-n", "2", "--genome", file.path()]);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {err}");
        assert_eq!(err.matches(want).count(), 1, "{name}: {err}");
    }
    let (code, _, err) = demo(&["graph", "--graph", "/nonexistent/graph.txt"]);
    assert_eq!(code, 2);
    assert_eq!(err.matches("/nonexistent/graph.txt").count(), 1, "{err}");
    let (code, _, err) = demo(&["stencil", "--size", "2x2", "-n", "8"]);
    assert_eq!(code, 2);
    assert_eq!(err.matches("too few for 8 ranks").count(), 1, "{err}");
}

#[test]
fn the_table_is_for_people() {
    let (code, out, err) = demo(&["stencil", "-n", "2", "--size", "40x30", "--sweeps", "3"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("40x30") && out.contains("cells/s") && out.contains("bit-equal"), "{out}");
    // No progress bars where nobody looks.
    assert_eq!(err, "");
}

#[test]
fn it_takes_part_in_a_job_that_is_already_there() {
    let arguments =
        ["run", "-n", "3", "--", HITHER, "demo", "stencil", "--json", "--size", "30x30"];
    let output = Command::new(HITHER).args(arguments).output().expect("it starts");
    assert!(output.status.success());
    let rows = rows(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["ranks"] == 3 && row["validated"] == true));
}

/// Starts four ranks, kills one after `delay`, and returns how the job ended.
fn killed(victim: u32, delay: Duration, survive: bool) -> Outcome {
    let mut arguments = vec!["demo", "--worker", "--json", "--scale", "11", "--roots", "16"];
    arguments.extend(["--queries", "20000", "--size", "200x200", "--size", "30x30x30"]);
    if survive {
        arguments.push("--survive");
    }
    let running = Launcher::new(HITHER)
        .args(arguments)
        .ranks(4)
        .survive(survive)
        .output(Output::Capture)
        .grace(Duration::from_secs(60))
        .timeout(Duration::from_secs(120))
        .start()
        .expect("it starts");
    // Not to wait for anything: to hit another moment each time.
    std::thread::sleep(delay);
    let _ = running.kill(victim, 9);
    let outcome = running.wait().expect("it can be waited for");
    assert!(!outcome.timed_out, "a survivor hangs: rank {victim} killed after {delay:?}");
    outcome
}

const MOMENTS: u32 = 8;

#[test]
fn survivors_of_a_killed_rank_end_with_an_error_that_says_so() {
    for moment in 0..MOMENTS {
        let victim = moment % 4;
        let outcome = killed(victim, Duration::from_millis(u64::from(moment * 67)), false);
        if outcome.ranks.iter().all(|exit| exit.ok()) {
            // It was over before.
            continue;
        }
        for rank in (0..4u32).filter(|&r| r != victim) {
            let err = String::from_utf8_lossy(&outcome.stderr[rank as usize]).into_owned();
            let exit = outcome.ranks[rank as usize];
            assert!(!err.contains("panicked"), "rank {rank}: {err}");
            // A rank that was through before the victim died ends well; one that heard of it late
            // names the rank it waited for, which had left with the error.
            let dead = [" died (", " died inside an active message"];
            let named = err.starts_with("hither: rank ") && dead.iter().any(|e| err.contains(e));
            let well = exit.ok() || matches!(exit, Exit::Code(1)) && named;
            assert!(well, "rank {rank} {exit}: {err}");
        }
    }
}

#[test]
fn survivors_of_a_killed_rank_go_on_if_asked_to() {
    for moment in 0..MOMENTS {
        let victim = moment % 4;
        let outcome = killed(victim, Duration::from_millis(u64::from(moment * 61)), true);
        let errors: Vec<_> = outcome.stderr.iter().map(|e| String::from_utf8_lossy(e)).collect();
        // Before the job is wired up there is nothing to go on with.
        if errors.iter().any(|e| e.contains("wiring the job up")) {
            continue;
        }
        for rank in (0..4u32).filter(|&r| r != victim) {
            let exit = outcome.ranks[rank as usize];
            assert!(exit.ok(), "rank {rank} {exit}, {victim} killed: {errors:?}");
        }
        // The lowest survivor reports, unless the victim did and was killed after that.
        let lowest = u32::from(victim == 0);
        let printed = |rank: u32| String::from_utf8_lossy(&outcome.stdout[rank as usize]);
        let reporter = if printed(lowest).is_empty() { victim } else { lowest };
        let rows = rows(&printed(reporter));
        assert_eq!(rows.len(), 6 + 1 + 4, "{errors:?}");
        assert!(rows.iter().all(|row| row["validated"] == true));
    }
}
