//! Remote search.
mod fasta;
mod index;
mod kmer;
mod queries;
mod serial;

/// The genome that ships.
pub const LAMBDA: &[u8] = include_bytes!("../../../../data/lambda_virus.fa");
