//! `hither run`: start the ranks of a job, forward their output and signals, report how they
//! ended.

use std::ffi::OsString;
use std::process::ExitCode;

/// Where ranks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Bind {
    /// Each rank on a core of its own, as far as there are cores
    Core,
    /// Wherever the system puts them
    None,
}

/// Arguments of `hither run`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: u32,
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
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// Runs `hither run`.
pub fn run(args: &Args) -> hither::Result<ExitCode> {
    let mut command = std::process::Command::new(&args.program[0]);
    let status = command.args(&args.program[1..]).status();
    let status = status.map_err(|e| hither::Error::os("starting the program", e))?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}
