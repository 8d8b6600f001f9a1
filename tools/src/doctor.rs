//! `hither doctor`.

use std::process::ExitCode;

/// Arguments of `hither doctor`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `hither doctor`.
pub fn run(_args: &Args) -> hither::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
