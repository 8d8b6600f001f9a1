//! Two virtual machines with Soft-RoCE around the comparison: `hither-lab` boots them, and in one of
//! them this program measures on both and hands its rows out, a line each.

use super::tied;
use crate::bench::compare::on_path;
use crate::bench::jobs::{Options, own_path};
use crate::bench::row::Row;
use hither::base::settings::{HOST_TIMEOUT, NET_PROVIDER, NET_TIMEOUT, Setting, for_others};
use hither::{Error, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The laboratory's program.
const PROGRAM: &str = "hither-lab";
/// Its exit code where a machine cannot have guests; it says itself why.
const UNAVAILABLE: i32 = 77;
/// Seconds after which it gives up.
const LIMIT: &str = "2400";
/// What comes before a line of the first guest's.
const LABEL: &str = "[g0] ";

/// In guests, unless the user has set them: what takes seconds may take minutes on a busy machine.
const PATIENT: [(&Setting, &str); 3] =
    [(&NET_PROVIDER, super::VERBS), (&NET_TIMEOUT, "60"), (&HOST_TIMEOUT, "60")];

fn wrong(why: impl Into<String>) -> Error {
    Error::invalid("bench --lab", why)
}

/// The laboratory's program, beside this one or where programs are.
fn program() -> Result<PathBuf> {
    let beside = own_path()?.with_file_name(PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    on_path(PROGRAM).ok_or_else(|| {
        wrong(format!("{PROGRAM} is not beside this program; cargo build -p {PROGRAM} builds it"))
    })
}

/// What guests are to run, and how the laboratory is called for it.
fn command(options: &Options) -> Result<Command> {
    let mut command = tied::command(program()?)?;
    command.args(["run", "-n", "2", "--on", "0", "--timeout", LIMIT]);
    for (name, value) in for_others() {
        let value = value.into_string();
        let value = value.map_err(|_| wrong(format!("{} is not text", name.display())))?;
        command.arg("--env").arg(format!("{}={value}", name.display()));
    }
    for (setting, value) in PATIENT.iter().filter(|(setting, _)| !setting.is_set()) {
        command.arg("--env").arg(format!("{}={value}", setting.name));
    }
    command.arg("--").arg(own_path()?);
    command.args(["bench", super::BENCH, "--hosts", "g0,g1", "--json", "--bind", "none"]);
    if options.least {
        command.arg("--least");
    } else if options.quick {
        command.arg("--quick");
    }
    Ok(command)
}

/// All of it in guests.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let mut command = command(options)?;
    // What goes on, and why not, is for people as it comes.
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut lab = command.spawn().map_err(|e| Error::os("starting hither-lab", e))?;
    let mut rows = Ok(Vec::new());
    if let Some(output) = lab.stdout.take() {
        let lines = BufReader::new(output).lines().map_while(std::io::Result::ok);
        // To its end, whatever it says: it must not be stopped by a pipe.
        for line in lines {
            rows = rows.and_then(|mut rows: Vec<Row>| {
                rows.push(row(&line)?);
                Ok(rows)
            });
        }
    }
    let status = lab.wait().map_err(|e| Error::os("waiting for hither-lab", e))?;
    match status.code() {
        Some(0) => rows,
        Some(UNAVAILABLE) => Err(wrong("this machine cannot have guests, as said above")),
        _ => Err(wrong(format!("{PROGRAM} failed, as said above ({status})"))),
    }
}

/// A row out of a line.
fn row(line: &str) -> Result<Row> {
    let text = line.strip_prefix(LABEL).unwrap_or(line);
    serde_json::from_str(text).map_err(|e| wrong(format!("no row but \"{line}\": {e}")))
}
