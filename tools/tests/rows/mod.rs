//! Rows of `hither bench --json`, and what is true of all of them.

// Each program that is made of this uses a part of it.
#![allow(dead_code)]

use serde_json::Value;
use std::process::{Command, Output};

/// Runs `hither bench`.
pub fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hither"))
        .arg("bench")
        .args(args)
        .output()
        .expect("the command starts")
}

/// The rows of a quick run.
pub fn rows(names: &[&str]) -> Vec<Value> {
    rows_of(&[names, &["--quick"]].concat())
}

/// The rows of a run.
pub fn rows_of(args: &[&str]) -> Vec<Value> {
    let output = bench(&[args, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// A number of a row.
pub fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row} is not a number"))
}

/// Whether a row says consistent things.
pub fn check(row: &Value) {
    for field in ["bench", "what", "unit", "limit", "goal"] {
        assert!(row[field].is_string(), "{field} of {row}");
    }
    let (value, floor) = (number(row, "value"), number(row, "floor"));
    let ratio = number(row, "ratio");
    // Of shares, memory and changes there may be none.
    let some = !["%", "KiB", ""].contains(&row["unit"].as_str().unwrap_or_default());
    assert!(value >= 0.0 && floor > 0.0 && (value > 0.0 || !some), "{row}");
    assert!((ratio - value / floor).abs() <= 1e-9 * ratio, "{row}");
    assert!(number(row, "size") >= 0.0 && number(row, "rounds") >= 1.0, "{row}");
    assert!(number(row, "spread") >= 0.0, "{row}");
    let asked = row["goal"] != "";
    assert_eq!(row["holds"].is_boolean(), asked, "a verdict exactly where there is a goal: {row}");
    assert!(row["p99"].is_null() || number(row, "p99") > 0.0, "{row}");
}
