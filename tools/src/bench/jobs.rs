//! Measuring jobs: this program, started as ranks, that hand their rows back as JSON.

use super::row::Row;
use super::suite::Bench;
use hither::topo::Bind;
use hither::world::launch::Hosts;
use hither::world::{Launcher, Output};
use hither::{Error, Result};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What was asked for on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// As short as possible; then also quick.
    pub least: bool,
    /// One core per rank.
    pub bind: Bind,
    /// Ranks, if given.
    pub ranks: Option<u32>,
}

/// Where the ranks of a measuring job are.
enum Place<'a> {
    /// On so many nodes that this machine is taken for.
    Nodes(u32),
    /// On hosts by these names, one on each.
    Hosts(&'a str),
}

/// A job that takes longer than this is ended.
const LIMIT: Duration = Duration::from_secs(300);
/// The same between hosts, whose devices may be emulated.
const LIMIT_AWAY: Duration = Duration::from_secs(1200);

/// The file of this program.
pub fn own_path() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Error::os("looking for this program's file", e))
}

/// A command that runs this program.
pub fn program(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(own_path()?);
    command.args(args);
    Ok(command)
}

/// Runs a benchmark as a job of `ranks` ranks; its rows.
pub fn measure(bench: &Bench, ranks: u32, options: &Options) -> Result<Vec<Row>> {
    measure_with(bench, ranks, options, &[])
}

/// The same, with more settings than the benchmark's own.
pub fn measure_with(
    bench: &Bench,
    ranks: u32,
    options: &Options,
    settings: &[(&str, &str)],
) -> Result<Vec<Row>> {
    measure_in(bench, ranks, &Place::Nodes(1), options, settings)
}

/// Runs a benchmark as a job of a rank on each of several emulated nodes.
pub fn measure_between(bench: &Bench, nodes: u32, options: &Options) -> Result<Vec<Row>> {
    measure_in(bench, nodes, &Place::Nodes(nodes), options, &[])
}

/// Runs a benchmark as a job of a rank on each of two hosts, with more settings than its own.
pub fn measure_between_hosts(
    bench: &Bench,
    hosts: &str,
    options: &Options,
    settings: &[(&str, &str)],
) -> Result<Vec<Row>> {
    measure_in(bench, 2, &Place::Hosts(hosts), options, settings)
}

fn measure_in(
    bench: &Bench,
    ranks: u32,
    place: &Place<'_>,
    options: &Options,
    settings: &[(&str, &str)],
) -> Result<Vec<Row>> {
    let mut args = vec!["bench", bench.name, "--worker"];
    if options.least {
        args.push("--least");
    } else if options.quick {
        args.push("--quick");
    }
    let mut launcher = Launcher::new(own_path()?)
        .args(args)
        .ranks(ranks)
        .bind(options.bind)
        .output(Output::Capture);
    launcher = match place {
        Place::Nodes(nodes) => launcher.nodes(*nodes).timeout(LIMIT),
        Place::Hosts(names) => {
            let agent = [own_path()?.into_os_string(), "agent".into()];
            launcher.hosts(Hosts::list(names)?).agent(agent).timeout(LIMIT_AWAY)
        }
    };
    for (name, value) in bench.settings.iter().chain(settings) {
        launcher = launcher.env(name, value);
    }
    let outcome = launcher.start()?.wait()?;
    if outcome.code() != 0 {
        let said = |text: &Vec<u8>| String::from_utf8_lossy(text).trim().to_owned();
        let words: Vec<String> =
            outcome.stderr.iter().map(said).filter(|text| !text.is_empty()).collect();
        return Err(Error::Misuse {
            what: "a measuring job",
            why: format!("{}: {}", outcome.summary(), words.join("; ")),
        });
    }
    let text = outcome.stdout.first().map(|out| String::from_utf8_lossy(out).into_owned());
    text.unwrap_or_default()
        .lines()
        .map(|line| {
            serde_json::from_str(line)
                .map_err(|e| Error::invalid("a measuring job's result", format!("{e}: {line}")))
        })
        .collect()
}
