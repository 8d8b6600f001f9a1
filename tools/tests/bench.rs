//! `hither bench --quick --json`: every row has its fields and says consistent things. Times are
//! never judged.

mod rows;

use rows::{bench, check, number, rows};
use serde_json::Value;

#[test]
fn comparisons_inside_a_job_give_well_formed_rows() {
    for name in ["atomics", "am", "barrier"] {
        let rows = rows(&[name]);
        assert!(!rows.is_empty());
        for row in &rows {
            // Active messages are a group of benchmarks.
            let bench = row["bench"].as_str().expect("a name");
            let of_group = bench.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
            assert!(bench == name || of_group, "{bench}");
            let ranks = number(row, "ranks");
            assert!(ranks == 2.0 || of_group && ranks > 2.0, "{row}");
            check(row);
        }
    }
}

/// What is counted is the same each time, so, unlike times, it can be judged: these are some twice as many as a
/// build with debug assertions takes. Only of operations that wait for nobody, who may have no core here.
#[cfg(target_arch = "x86_64")]
#[test]
fn small_operations_take_few_instructions() {
    let rows = rows(&["instructions"]);
    rows.iter().for_each(check);
    for (what, most) in [
        ("put: put, flush", 250.0),
        ("get: get, flush", 200.0),
        ("atomics: fetch_and_op sum", 250.0),
        ("atomics: compare_and_swap", 250.0),
        ("am: returns a result", 900.0),
    ] {
        let row = rows.iter().find(|row| row["what"] == what).expect(what);
        let (value, floor) = (number(row, "value"), number(row, "floor"));
        assert!(value >= 3.0 && value <= most, "{row}");
        assert!(floor >= 2.0 && row["unit"] == "instr", "{row}");
    }
    for waits in
        ["barrier: barrier", "allreduce: sum", "lane: one-way latency", "p2p: one-way latency"]
    {
        assert!(rows.iter().any(|row| row["what"] == waits), "{waits}");
    }
}

#[test]
fn several_names_come_in_their_order() {
    let rows = rows(&["allreduce", "get"]);
    rows.iter().for_each(check);
    assert_eq!(rows[0]["bench"], "allreduce");
    assert_eq!(rows.last().expect("rows")["bench"], "get");
    assert!(rows.iter().any(|row| row["size"] == 65536));
}

#[test]
fn benchmarks_that_start_jobs_give_well_formed_rows() {
    let rows = rows(&["start", "node-memory"]);
    rows.iter().for_each(check);
    let of = |bench: &str| rows.iter().filter(|row| row["bench"] == bench).count();
    assert_eq!(of("start"), 2);
    assert_eq!(of("node-memory"), 6);
    let allocated = rows.iter().filter(|row| row["what"] == "allocated");
    let kib: Vec<f64> = allocated.map(|row| number(row, "value")).collect();
    assert!(kib[0] > 0.0 && kib[1] <= 1.25 * kib[0], "{kib:?} KiB of 2 and of 16 ranks");
}

#[test]
fn window_metadata_stays_small_and_is_found_in_every_form() {
    let rows = rows(&["window-memory", "window-rate"]);
    rows.iter().for_each(check);
    let memory = |series: &str| -> Vec<f64> {
        let of = |row: &&Value| row["bench"] == "window-memory" && row["point"]["series"] == series;
        rows.iter().filter(of).map(|row| number(row, "value")).collect()
    };
    let (table, directory) = (memory("local table"), memory("directory + cache of 32"));
    assert!(table.len() > 5 && directory.len() == table.len());
    // Bytes, not times: these are the same on every machine.
    assert!(table.last() > directory.last(), "a table grows");
    assert_eq!(directory[0], directory[directory.len() - 1], "a directory does not");
    // The allocator rounds, so not quite the same: but nothing grows with the ranks.
    let whole = memory("symmetric window, whole");
    assert!(whole.len() == 2 && (whole[0] - whole[1]).abs() < 16.0, "{whole:?}");
}

#[test]
fn one_sided_operations_run_under_every_synchronisation() {
    for bench in ["rma", "rma-packets"] {
        let rows = rows(&[bench]);
        rows.iter().for_each(check);
        // Latency and rate of ten operations under five synchronisations.
        assert_eq!(rows.len(), 2 * 5 * 10, "{bench}");
    }
}

#[test]
fn sweeps_become_curves() {
    let dir = tempfile::tempdir().expect("a directory");
    let plots = dir.path().join("plots");
    let output = bench(&["skew", "--quick", "--plot", plots.to_str().expect("UTF-8")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let page = std::fs::read_to_string(plots.join("index.html")).expect("a page");
    assert!(page.contains("process skew") && page.contains("<polyline"), "{page}");
    assert!(page.contains("bench skew --quick"), "the command");
}

#[test]
fn the_table_names_its_columns_and_goals() {
    let output = bench(&["allreduce", "--quick"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.contains("ratio") && text.contains("goal ≤ 1.3x"), "{text}");
}

#[test]
fn unknown_names_are_refused_and_list_names_them_all() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"));
    let output = bench(&["list"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for name in [
        "p2p",
        "net",
        "collectives",
        "overhead",
        "stencil3d",
        "rma",
        "locks",
        "issue",
        "window-memory",
        "put",
        "am",
        "barrier",
        "start",
        "idle",
        "node-memory",
        "oversub",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
    }
    assert!(!text.contains("-part"), "parts are not for the user");
}
