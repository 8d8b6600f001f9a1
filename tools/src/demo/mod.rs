//! `hither demo`.

use std::process::ExitCode;

/// Arguments of `hither demo`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `hither demo`.
pub fn run(_args: &Args) -> hither::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
