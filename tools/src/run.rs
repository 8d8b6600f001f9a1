//! `hither run`: start the ranks of a job, forward their output and signals, report how they
//! ended.

use hither::topo::Map;
use hither::world::launch::{self, Hosts, Launcher};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Where ranks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Bind {
    /// Each rank on a core of its own, neighbours close together, as far as there are CPUs
    Core,
    /// Each rank on a core of its own, spread over the machine
    Spread,
    /// Wherever the system puts them
    None,
}

impl From<Bind> for hither::topo::Bind {
    fn from(bind: Bind) -> Self {
        match bind {
            Bind::Core => hither::topo::Bind::Core,
            Bind::Spread => hither::topo::Bind::Spread,
            Bind::None => hither::topo::Bind::None,
        }
    }
}

const AFTER: &str = "\
Exit code: 0 if all ranks returned 0; else that of the first rank that failed, 128 plus the signal
if one killed it; 124 if the time was up. With --survive, ranks killed by a signal do not count as
long as some rank returned 0.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT are passed on to the ranks;
a second SIGINT or SIGTERM kills them. Rank 0 has the standard input unless that is a terminal or
ranks are on other hosts, the others have none. HITHER_RANK and HITHER_SIZE are set for every rank.";

/// Arguments of `hither run`.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: u32,
    /// Number of nodes that this machine is to be taken for: ranks of different ones share no memory.
    /// As many as the map names, or one, unless given
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub nodes: Option<u32>,
    /// Which ranks are on which node: block (consecutive ones, as equal as they can be), cyclic (one
    /// on each node in turn), cyclic:4 (blocks of 4 in turn), or the ranks on each node, as 3,1,4
    #[arg(long, value_name = "MAP", default_value = "block")]
    pub map: Map,
    /// Machines to run on, a node each: names with, if wanted, a number of ranks, as a,b:4,c. Where
    /// there are numbers they are filled in order, else ranks are spread as --map says
    #[arg(long, value_name = "HOSTS", conflicts_with = "nodes")]
    pub hosts: Option<String>,
    /// The same from a file, a host a line: "b", "b:4" or "b slots=4"; # begins a comment
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "hosts"])]
    pub hostfile: Option<PathBuf>,
    /// Command that runs others on hosts; HITHER_RSH, or ssh, unless given
    #[arg(long, value_name = "COMMAND")]
    pub rsh: Option<OsString>,
    /// What the network between nodes is bound to on each: an address, an interface, or a subnet as
    /// 10.1.0.0/16; HITHER_NET_ADDRESS unless given, else the address by which a host was reached
    #[arg(long, value_name = "ADDRESS")]
    pub net_address: Option<String>,
    /// A variable of the ranks' environment: NAME=VALUE, or NAME for its value here (on other hosts
    /// only HITHER_* are passed on otherwise). Can be given again
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Bind ranks to cores
    #[arg(long, value_enum, default_value = "core")]
    pub bind: Bind,
    /// Put "[rank] " before every line of output
    #[arg(long)]
    pub label: bool,
    /// Let the others go on when a rank dies
    #[arg(long)]
    pub survive: bool,
    /// End the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let time = Duration::try_from_secs_f64(value).map_err(|e| e.to_string())?;
    if time.is_zero() { Err("must be more than 0".into()) } else { Ok(time) }
}

/// The hosts that the command line names.
fn hosts(args: &Args) -> hither::Result<Option<Hosts>> {
    if let Some(list) = &args.hosts {
        return Hosts::list(list).map(Some);
    }
    let Some(file) = &args.hostfile else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|e| {
        hither::Error::invalid("hostfile", format!("cannot read {}: {e}", file.display()))
    })?;
    Hosts::file(&text).map(Some)
}

/// Runs `hither run`.
pub fn run(args: &Args) -> hither::Result<ExitCode> {
    let [program, rest @ ..] = args.program.as_slice() else {
        return Err(hither::Error::invalid("hither run", "which program?"));
    };
    // Before any thread exists.
    let signals = launch::take_signals()?;
    let mut launcher = Launcher::new(program)
        .args(rest)
        .ranks(args.ranks)
        .map(args.map.clone())
        .bind(args.bind.into())
        .label(args.label)
        .survive(args.survive)
        .forward_signals(signals);
    if let Some(nodes) = args.nodes {
        launcher = launcher.nodes(nodes);
    }
    if let Some(limit) = args.timeout {
        launcher = launcher.timeout(limit);
    }
    if let Some(hosts) = hosts(args)? {
        let own = std::env::current_exe().map_err(|e| hither::Error::os("finding hither", e))?;
        launcher = launcher.hosts(hosts).agent([own.into_os_string(), "agent".into()]);
    }
    if let Some(rsh) = &args.rsh {
        launcher = launcher.rsh(rsh);
    }
    if let Some(address) = &args.net_address {
        launcher = launcher.net_address(address);
    }
    for variable in &args.env {
        let bytes = variable.as_bytes();
        if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
            let (name, value) = (OsStr::from_bytes(&bytes[..at]), &bytes[at + 1..]);
            launcher = launcher.env(name, OsStr::from_bytes(value));
        } else if let Some(value) = std::env::var_os(variable) {
            launcher = launcher.env(variable, value);
        }
    }
    let outcome = launcher.start()?.wait()?;
    Ok(ExitCode::from(outcome.code()))
}
