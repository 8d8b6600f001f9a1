//! `hither bench`.

use std::process::ExitCode;

/// Arguments of `hither bench`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `hither bench`.
pub fn run(_args: &Args) -> hither::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
