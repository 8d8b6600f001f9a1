//! `hither doctor`: tries out what hither needs of the system, and says what is missing and what
//! to do about it.

mod machine;
mod memory;
mod settings;
mod system;

use hither::{Error, Result};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `hither doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Try to read a word of another process (the probe starts itself with this)
    #[arg(long, hide = true, value_name = "PID:ADDRESS")]
    probe_read: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Works, with less of something.
    Note,
    /// Jobs will fail.
    Problem,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    topic: &'static str,
    state: State,
    text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { topic, state: State::Ok, text: text.into(), advice: None }
    }

    fn note(topic: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { topic, state: State::Note, text: text.into(), advice: Some(advice.into()) }
    }

    fn problem(topic: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { topic, state: State::Problem, text: text.into(), advice: Some(advice.into()) }
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    system: String,
    usable: bool,
    findings: Vec<Finding>,
    settings: Vec<settings::Row>,
}

fn report() -> Report {
    let (rows, bad_settings) = settings::check();
    let mut findings = machine::check();
    findings.extend(memory::check());
    findings.extend(system::check());
    findings.extend(bad_settings);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        system: system::name(),
        usable: findings.iter().all(|finding| finding.state != State::Problem),
        findings,
        settings: rows,
    }
}

fn render(report: &Report) -> String {
    let mut lines = vec![format!("hither {} on {}", report.version, report.system), String::new()];
    for Finding { topic, state, text, advice } in &report.findings {
        let mark = match state {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "PROBLEM",
        };
        lines.push(format!("{mark:<8} {topic:<14} {text}"));
        lines.extend(advice.iter().map(|advice| format!("{:<23} -> {advice}", "")));
    }
    lines.push(String::new());
    lines.push("settings (* = set in the environment; others three in a line)".into());
    let (set, others): (Vec<_>, Vec<_>) = report.settings.iter().partition(|row| row.set);
    let value = |row: &settings::Row| match row.value.as_str() {
        "" => "(none)".to_string(),
        value => value.to_string(),
    };
    for row in set {
        lines.push(format!("* {:<27} {:<12} {}", row.name, value(row), row.unit));
    }
    for row in others.chunks(3) {
        let cells: Vec<String> =
            row.iter().map(|row| format!("{:<27} {:<9}", row.name, value(row))).collect();
        lines.push(format!("  {}", cells.join(" ").trim_end()));
    }
    lines.push(String::new());
    let problems = report.findings.iter().filter(|f| f.state == State::Problem).count();
    lines.push(match problems {
        0 => "hither works on this machine.".into(),
        1 => "1 problem keeps hither from working on this machine.".into(),
        n => format!("{n} problems keep hither from working on this machine."),
    });
    lines.join("\n")
}

/// Runs `hither doctor`: exit code 1 if something makes hither unusable.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(target) = &args.probe_read {
        return system::read_other(target);
    }
    let report = report();
    if args.json {
        let text = serde_json::to_string(&report).map_err(|e| Error::os("writing JSON", e))?;
        println!("{text}");
    } else {
        println!("{}", render(&report));
    }
    Ok(if report.usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
