//! `hither bench`: figures beside the raw limit, measured in the same run.
//!
//! ```text
//! suite    which benchmarks there are            floor/    raw limits, one file each
//! jobs     this program started as ranks         subject/  the library's sides
//! duel     two sides, interleaved A B A B ...    crew      ranks that measure, and their orders
//! row, stats, meter, clock, steps, table         block     shared memory for the limits
//! plot     the sweeps as curves, for --plot        pages     buffers that begin with a page
//! overhead the post-work-wait method
//! hosts/   between two machines, or virtual ones, beside perftest
//! compare/ the same workloads on hither and on its peers
//! ```
//! The command starts a job for each benchmark; its ranks, bound to cores, measure both sides
//! in the same processes, and rank 0 hands the rows back.

mod block;
mod clock;
mod compare;
mod crew;
mod duel;
mod floor;
mod hosts;
mod jobs;
mod meter;
mod overhead;
mod pages;
mod plot;
mod row;
mod stats;
mod steps;
mod subject;
mod suite;
mod table;

use hither::topo::Bind;
use hither::{Error, Result};
use std::process::ExitCode;

/// Arguments of `hither bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// What to measure: names, "all" (the default), or "list" to see the names
    names: Vec<String>,
    /// Ranks that measure; most benchmarks are meant for 2
    #[arg(short = 'n', long)]
    ranks: Option<u32>,
    /// One JSON object per row instead of a table
    #[arg(long)]
    json: bool,
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Shorter still: whether all runs, not how fast
    #[arg(long, hide = true)]
    least: bool,
    /// Bind each rank to a core, or leave it to the system
    #[arg(long, value_parser = ["core", "none"], default_value = "core")]
    bind: String,
    /// Also write the sweeps as curves into this directory (index.html, and an SVG for each)
    #[arg(long, value_name = "DIR")]
    plot: Option<std::path::PathBuf>,
    /// Of net: between these two machines, a rank on each, beside perftest's programs
    #[arg(long, value_name = "A,B")]
    hosts: Option<String>,
    /// The same between two virtual machines with Soft-RoCE, which hither-lab boots
    #[arg(long, conflicts_with = "hosts")]
    lab: bool,
    /// Takes part in a measuring job
    #[arg(long, hide = true)]
    worker: bool,
    /// Says that the process has begun, and ends
    #[arg(long, hide = true)]
    begun: bool,
}

/// What is not measured by ranks beside their limits.
#[derive(clap::Subcommand)]
enum Other {
    /// Measure the same workloads on hither and on every peer that is installed, in turn
    Compare(compare::Args),
    /// Show which peers are here, or have them installed
    Peers(compare::install::Args),
    /// A rank of a job that is compared
    #[command(hide = true)]
    Own(compare::own::Args),
    /// Becomes a program that ends with the process that starts it
    #[command(hide = true)]
    Tied(hosts::tied::Args),
}

/// Runs `hither bench`.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.other {
        Some(Other::Compare(args)) => return compare::run(args),
        Some(Other::Peers(args)) => return compare::install::run(args),
        Some(Other::Own(args)) => return compare::own::run(args).map(|()| ExitCode::SUCCESS),
        Some(Other::Tied(args)) => return hosts::tied::run(args),
        None => {}
    }
    if args.begun {
        print!(".");
        return Ok(ExitCode::SUCCESS);
    }
    if args.names.iter().any(|name| name == "list") {
        for bench in suite::ALL.iter().filter(|bench| !bench.about.is_empty()) {
            println!("{:18}{}", bench.name, bench.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.worker {
        return work(args);
    }
    if cfg!(debug_assertions) {
        eprintln!("hither: this is a debug build; its figures say little");
    }
    measure(args)
}

/// A rank of a measuring job.
fn work(args: &Args) -> Result<ExitCode> {
    let effort = match (args.least, args.quick) {
        (true, _) => duel::Effort::LEAST,
        (_, true) => duel::Effort::QUICK,
        _ => duel::Effort::FULL,
    };
    let [name] = args.names.as_slice() else {
        return Err(Error::invalid("bench --worker", "wants exactly one benchmark"));
    };
    for row in suite::work(suite::find(name)?, effort)? {
        println!("{}", table::json(&row));
    }
    Ok(ExitCode::SUCCESS)
}

/// The command: one job after the other, and the report.
fn measure(args: &Args) -> Result<ExitCode> {
    let bind = if args.bind == "none" { Bind::None } else { Bind::Core };
    let quick = args.quick || args.least;
    let options = jobs::Options { quick, least: args.least, bind, ranks: args.ranks };
    let away = args.lab || args.hosts.is_some();
    if away && (args.names != [hosts::BENCH] || args.ranks.is_some_and(|ranks| ranks != 2)) {
        let why = "only net is measured between hosts, by a rank on each: hither bench net";
        return Err(Error::invalid("--hosts, --lab", why));
    }
    let mut rows = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for bench in suite::select(&args.names)? {
        if !args.json {
            let about = if away { "between two machines, beside perftest" } else { bench.about };
            eprintln!("{}: {about} ...", bench.name);
        }
        let measured = match (bench.kind, &args.hosts) {
            (_, Some(hosts)) => hosts::run(hosts, &options),
            _ if args.lab => hosts::lab::run(&options),
            (suite::Kind::Outside(run), _) => run(&options),
            _ => jobs::measure(bench, options.ranks.unwrap_or(2), &options),
        };
        match measured {
            Ok(new) => {
                if args.json {
                    new.iter().for_each(|row| println!("{}", table::json(row)));
                }
                rows.extend(new);
            }
            // The others are still worth having.
            Err(error) => {
                eprintln!("hither: {}: {error}", bench.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    if !args.json {
        println!("{}", table::table(&rows));
    }
    // Where there are other machines around it, they have said so.
    if args.hosts.is_some() {
        hosts::tell_absent(&rows);
    }
    if let Some(dir) = &args.plot {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let page = plot::report(dir, &rows, &format!("hither {}", command.join(" ")))?;
        eprintln!("curves: {}", page.display());
    }
    Ok(code)
}
