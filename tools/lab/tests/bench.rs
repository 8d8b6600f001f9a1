//! `hither bench net --lab`: hither beside perftest in two guests. Where this machine cannot have guests
//! the command says so, and that is looked at instead.

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use support::{alone, hither, not_tried};

fn bench(change: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    // It finds the laboratory's program beside itself, as it was built with this test.
    let mut command = Command::new(hither());
    change(command.args(["bench", "net", "--lab", "--least", "--json"])).output().unwrap()
}

#[test]
fn every_row_has_a_figure_of_both() {
    let _alone = alone();
    let output = bench(|command| command);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("cannot have guests") {
        assert!(!output.status.success() && output.stdout.is_empty(), "{errors}");
        return not_tried(&errors);
    }
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 19, "{text}");
    for row in &rows {
        let number = |field: &str| row[field].as_f64().unwrap();
        let (value, floor, ratio) = (number("value"), number("floor"), number("ratio"));
        assert!(value > 0.0 && floor > 0.0, "{row}");
        assert!((ratio - value / floor).abs() <= 1e-9 * ratio, "{row}");
        assert_eq!(row["holds"].is_boolean(), row["goal"] != "", "{row}");
    }
    let programs: BTreeSet<&str> = rows.iter().map(|row| row["limit"].as_str().unwrap()).collect();
    let wanted = [
        "ib_atomic_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_send_bw",
        "ib_send_bw -c UD",
        "ib_send_lat",
        "ib_send_lat -c UD",
        "ib_write_bw",
        "ib_write_bw -t 1",
    ];
    assert_eq!(programs.into_iter().collect::<Vec<_>>(), wanted);
}

#[test]
fn where_no_guests_are_to_be_had_it_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let path: &Path = empty.path();
    let output = bench(|command| command.env("XDG_CACHE_HOME", path).env("PATH", path));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(errors.contains("apt-get") && errors.contains("cannot have guests"), "{errors}");
}
