//! The `hither` command: run jobs, demo, bench, topo, doctor. One file per subcommand.

mod bench;
mod collectives;
mod demo;
mod doctor;
mod run;
mod topo;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Shared-memory-first communication between the processes of one node.
#[derive(Parser)]
#[command(name = "hither", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the ranks of a job and wait for them
    Run(run::Args),
    /// Start ranks on this host for a launcher on another one, which runs this by itself
    #[command(hide = true)]
    Agent,
    /// Compute on real data: graph search, genome search, stencil
    Demo(demo::Args),
    /// Measure latencies and rates beside the raw limits of this machine
    Bench(bench::Args),
    /// Show cores, caches, NUMA nodes, and where ranks would be bound
    Topo(topo::Args),
    /// Show which algorithm carries out which collective
    Collectives(collectives::Args),
    /// Check whether this machine has what hither needs
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    // Usage errors end here, with exit code 2.
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Agent => hither::world::launch::serve_as_agent().map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Topo(args) => topo::run(args),
        Command::Collectives(args) => collectives::run(args),
        Command::Doctor(args) => doctor::run(args),
    };
    result.unwrap_or_else(|error| {
        // One write: several ranks may have to say something at the same time.
        let _ = std::io::stderr().write_all(format!("hither: {error}\n").as_bytes());
        match error {
            hither::Error::InvalidArgument { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    })
}
