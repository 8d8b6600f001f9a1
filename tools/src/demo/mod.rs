//! `hither demo`: computes on real data at several ranks, checks every result, and reports rates.
//!
//! The command starts the ranks as copies of itself; where it already is a rank of a job (under
//! `hither run`) it takes part in that one.
//!
//! ```text
//!   graph     breadth-first search: accumulates, active messages, origin-side atomics
//!   genome    remote search: queries as active messages on a distributed index
//!   stencil   halo exchange with computation: fences, flush and barrier
//! ```

pub mod genome;
pub mod graph;
mod input;
mod progress;
mod random;
mod report;
mod slices;
pub mod stencil;
pub mod threads;
mod work;
mod worker;

use crate::run::Bind;
use hither::topo::Map;
use hither::world::{Launcher, Output, launch};
use hither::{Error, Job, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Workload {
    /// Breadth-first search on an edge list and on a generated Kronecker graph
    Graph,
    /// Remote search for words of 20 bases in a genome
    Genome,
    /// Jacobi iteration with halo exchange in two and three dimensions
    Stencil,
}

/// Arguments of `hither demo`.
#[derive(clap::Args)]
pub struct Args {
    /// What to run; everything unless given
    #[arg(value_enum)]
    workloads: Vec<Workload>,
    /// Number of ranks; one for each core, at least 2, unless given
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Option<u32>,
    /// Number of nodes that this machine is to be taken for: ranks of different ones share no memory.
    /// As many as the map names, or one, unless given
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=2048))]
    nodes: Option<u32>,
    /// Which ranks are on which node: block (consecutive ones, as equal as they can be), cyclic (one
    /// on each node in turn), cyclic:4 (blocks of 4 in turn), or the ranks on each node, as 3,1,4
    #[arg(long, value_name = "MAP", default_value = "block")]
    map: Map,
    /// One JSON object a line for each workload and formulation, instead of the table
    #[arg(long)]
    json: bool,
    /// Edge list (as published by SNAP) instead of the one that ships
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Genome in FASTA instead of the one that ships
    #[arg(long, value_name = "FILE")]
    genome: Option<PathBuf>,
    /// The generated graph has 2^SCALE vertices and 16 times as many edges; 0 for none
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=30))]
    scale: u32,
    /// Roots to search from
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    roots: u32,
    /// Also search with threads of one process, without the library, and report the ratio
    #[arg(long)]
    threads_baseline: bool,
    /// Queries in the genome
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    queries: u64,
    /// Look for each query on the opposite strand too
    #[arg(long)]
    both_strands: bool,
    /// Cells of the grid, as 1024x1024 or 96x96x96; repeat for several
    #[arg(long, value_name = "SIZE", value_parser = stencil::parse_size)]
    size: Vec<[usize; 3]>,
    /// Sweeps over the grid
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    sweeps: u32,
    /// Seed of everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bind ranks to cores
    #[arg(long, value_enum, default_value = "core")]
    bind: Bind,
    /// When a rank dies, go on with the others and repeat what it was part of
    #[arg(long)]
    survive: bool,
    /// This process is a rank.
    #[arg(long, hide = true)]
    worker: bool,
}

impl Args {
    fn wants(&self, workload: Workload) -> bool {
        self.workloads.is_empty() || self.workloads.contains(&workload)
    }

    /// Opens the inputs that are needed.
    fn options(&self) -> Result<worker::Plan> {
        let graph = if self.wants(Workload::Graph) {
            let text = match &self.graph {
                Some(path) => input::Text::open("--graph", path)?,
                None => input::Text::shipped("--graph", "p2p-Gnutella24.txt", graph::GNUTELLA),
            };
            Some(graph::Options {
                text,
                scale: (self.scale > 0).then_some(self.scale),
                roots: self.roots as usize,
                seed: self.seed,
                baseline: self.threads_baseline,
            })
        } else {
            None
        };
        let genome = if self.wants(Workload::Genome) {
            let text = match &self.genome {
                Some(path) => input::Text::open("--genome", path)?,
                None => input::Text::shipped("--genome", "lambda_virus.fa", genome::LAMBDA),
            };
            let both_strands = self.both_strands;
            Some(genome::Options { text, queries: self.queries, both_strands, seed: self.seed })
        } else {
            None
        };
        let stencil = self.wants(Workload::Stencil).then(|| {
            let usual = vec![[1, 1024, 1024], [96, 96, 96]];
            let sizes = if self.size.is_empty() { usual } else { self.size.clone() };
            stencil::Options { sizes, sweeps: self.sweeps as usize }
        });
        Ok(worker::Plan { graph, genome, stencil, json: self.json, survive: self.survive })
    }
}

/// Runs `hither demo`.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Before anything is started: a file that is not there is reported once.
    let plan = args.options()?;
    if args.worker || Job::was_launched() {
        return worker::run(&plan);
    }
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get() as u32);
    let signals = launch::take_signals()?;
    let program = std::env::current_exe().map_err(|e| Error::os("finding this program", e))?;
    let arguments = std::env::args_os().skip(1);
    let launcher = Launcher::new(program)
        .args(arguments)
        .arg("--worker")
        .ranks(args.ranks.unwrap_or(cores.max(2)))
        .map(args.map.clone())
        .bind(args.bind.into())
        .survive(args.survive)
        // The ranks see the terminal, so that progress is shown where there is one.
        .output(Output::Inherit)
        .forward_signals(signals);
    let launcher = match args.nodes {
        Some(nodes) => launcher.nodes(nodes),
        None => launcher,
    };
    let outcome = launcher.start()?.wait()?;
    Ok(ExitCode::from(outcome.code()))
}
