//! `hither bench`: figures beside the raw limit, measured in the same run.
//!
//! ```text
//! suite    which benchmarks there are            floor/    raw limits, one file each
//! duel     two sides, interleaved A B A B ...    subject/  the library's sides
//! crew     ranks that measure, and their orders  row, stats, table: results
//! ```

#[allow(dead_code)]
mod block;
mod clock;
mod crew;
mod duel;
#[allow(dead_code)]
mod floor;
mod meter;
#[allow(dead_code)] // Goals and some limits belong to sides that come with the library's parts.
mod row;
mod stats;
mod subject;
mod table;

use hither::Result;
use std::process::ExitCode;

/// Arguments of `hither bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure; "all" or "list"
    names: Vec<String>,
    /// One JSON object per row
    #[arg(long)]
    json: bool,
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
}

/// Runs `hither bench`.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.names.iter().any(|n| n != "all" && n != "limits") {
        println!("limits   the raw limits of this machine");
        return Ok(ExitCode::SUCCESS);
    }
    let effort = if args.quick { duel::Effort::QUICK } else { duel::Effort::FULL };
    let fd = block::Block::create()?;
    let rows = std::thread::scope(|scope| {
        let other = scope.spawn(|| limits(&fd, 1, effort));
        let rows = limits(&fd, 0, effort);
        other.join().unwrap_or_else(|_| Ok(Vec::new())).and(rows)
    })?;
    if args.json {
        rows.iter().for_each(|row| println!("{}", table::json(row)));
    } else {
        println!("{}", table::table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

/// One rank's part in measuring the limits, on a thread of its own core.
fn limits(fd: &rustix::fd::OwnedFd, rank: u32, effort: duel::Effort) -> Result<Vec<row::Row>> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(rank as usize);
    // Without it the figures are less steady, no more.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
    let crew = crew::Crew::bare(rank, 2, block::Block::map(fd)?)?;
    let mut rows = Vec::new();
    for case in subject::limits::cases() {
        rows.extend(duel::run(&crew, &case, effort)?);
    }
    Ok(rows)
}
