//! `hither collectives`: which algorithm carries out which call.

use hither::Result;
use hither::coll::What;
use hither::coll::select::{Row, Table, size_text};
use std::process::ExitCode;

/// Arguments of `hither collectives`.
#[derive(clap::Args)]
pub struct Args {
    /// Members of the team
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// The rows themselves, as HITHER_COLL writes them, instead of what they come to
    #[arg(long)]
    rows: bool,
}

/// Runs `hither collectives`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let table = Table::of_settings()?;
    if args.rows {
        table.rows().iter().for_each(|row| println!("{}", line(row)));
        return Ok(ExitCode::SUCCESS);
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let ranks = args.ranks.unwrap_or(cpus);
    let cores = ranks <= cpus;
    let room = if cores { "a core for each" } else { "who share cores" };
    println!("{ranks} members, {room}; bytes of the data, or of one member's block\n");
    for what in What::ALL.into_iter().filter(|what| what.is_chosen()) {
        let ranges: Vec<String> = table
            .ranges(what, ranks, cores)
            .into_iter()
            .map(|((low, high), how)| match (low, high) {
                (0, u64::MAX) => how.name().to_owned(),
                (low, u64::MAX) => format!("{} from {}", how.name(), size_text(low)),
                (low, high) if low == high => format!("{} at {}", how.name(), size_text(low)),
                (low, high) => format!("{} {}-{}", how.name(), size_text(low), size_text(high)),
            })
            .collect();
        println!("{:<22}{}", what.name(), ranges.join(", "));
    }
    println!(
        "\ndirect: where the data lie in the node's memory; else what would come next in the table"
    );
    Ok(ExitCode::SUCCESS)
}

fn line(row: &Row) -> String {
    let cores = match row.cores {
        None => "",
        Some(true) => "  where every rank has a core",
        Some(false) => "  where ranks share cores",
    };
    let from = if row.set { "  (HITHER_COLL)" } else { "" };
    format!("{row}{cores}{from}")
}
