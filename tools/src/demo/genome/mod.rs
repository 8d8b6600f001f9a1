//! Remote search: queries of 20 bases looked up in a genome that is distributed over the ranks.

pub mod contest;
mod fasta;
mod index;
mod kmer;
mod queries;
mod search;
mod serial;

use super::input::Text;
use super::report::Row;
use super::work::{Context, Stop, agree};
use hither::Result;

/// The genome that ships: phage lambda, NC_001416.1.
pub const LAMBDA: &[u8] = include_bytes!("../../../../data/lambda_virus.fa");

/// What to look for, and where.
pub struct Options {
    /// The genome.
    pub text: Text,
    /// Number of queries of all ranks together.
    pub queries: u64,
    /// Whether each query is also looked for on the opposite strand.
    pub both_strands: bool,
    /// Seed of the queries.
    pub seed: u64,
}

/// Collective: runs the workload.
pub fn run(context: &Context<'_>, options: &Options) -> Result<Vec<Row>, Stop> {
    let genome = agree(context.team, fasta::parse(&options.text))?;
    if genome.records > 1 {
        let records = genome.records;
        let note = format!("{records} records, searched as one text with gaps between them");
        context.progress.note(&format!("{}: {note}", options.text.name()));
    }
    Ok(vec![search::run(context, options, &genome)?])
}
