//! `hither bench net --hosts`: over this machine by two names, whose ranks have no RDMA device and so
//! nothing beside them; with devices it is tried in virtual machines (`tools/lab/tests/bench.rs`).

mod rows;

use rows::number;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs the command, with a remote shell that runs its command line here.
fn between(args: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let shell = directory.path().join("rsh");
    std::fs::write(&shell, "#!/bin/sh\nexec sh -c \"$2\"\n").unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.args(["bench", "--least", "--bind", "none"]).args(args);
    command.env("HITHER_RSH", &shell).env("HITHER_NET_PROVIDER", "sockets");
    command.env_remove("HITHER_NET_ADDRESS").output().unwrap()
}

#[test]
fn without_a_device_there_is_nothing_beside_the_rows() {
    let output = between(&["net", "--json", "--hosts", "localhost,127.0.0.1"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 19, "{text}");
    for row in &rows {
        assert!(row["bench"] == "net" && number(row, "ranks") == 2.0, "{row}");
        assert!(number(row, "value") > 0.0, "{row}");
        assert!(number(row, "floor") == 0.0 && row["holds"].is_null(), "{row}");
        let limit = row["limit"].as_str().unwrap();
        let why = ": HITHER_NET_PROVIDER is sockets, perftest needs verbs";
        assert!(limit.starts_with("ib_") && limit.ends_with(why), "{row}");
        assert!(errors.contains(&format!("not compared with {limit}")), "{errors}");
    }
    let asked = rows.iter().filter(|row| row["goal"] != "").count();
    assert_eq!(asked, 8, "what is asked is still said: {text}");
}

#[test]
fn what_cannot_be_measured_between_hosts_is_refused() {
    let refused = |args: &[&str], why: &str| {
        let output = between(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{args:?}: {errors}");
        assert!(output.stdout.is_empty() || !args.contains(&"--json"), "{args:?}");
    };
    for hosts in ["localhost", "localhost,", "localhost,a,b", "localhost:2,a"] {
        refused(&["net", "--json", "--hosts", hosts], "is not two hosts");
    }
    refused(&["put", "--json", "--hosts", "localhost,127.0.0.1"], "only net");
    refused(&["--lab"], "only net");
    refused(&["net", "--lab", "--ranks", "4"], "a rank on each");
    refused(&["net", "--lab", "--hosts", "a,b"], "cannot be used with");
}
