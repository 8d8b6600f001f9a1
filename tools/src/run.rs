//! `hither run`: start the ranks of a job, forward their output and signals, report how they
//! ended.

use hither::topo::Map;
use hither::world::launch::{self, Launcher};
use std::ffi::OsString;
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
a second SIGINT or SIGTERM kills them. Rank 0 has the standard input unless that is a terminal, the
others have none. HITHER_RANK and HITHER_SIZE are set for every rank.";

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
    let outcome = launcher.start()?.wait()?;
    Ok(ExitCode::from(outcome.code()))
}
