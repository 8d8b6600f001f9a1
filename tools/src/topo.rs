//! `hither topo`.

use std::process::ExitCode;

/// Arguments of `hither topo`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `hither topo`.
pub fn run(_args: &Args) -> hither::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
