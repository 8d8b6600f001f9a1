//! `hither bench compare`: the same workloads on hither and on every peer that is installed,
//! interleaved in one run, and a report.
//!
//! ```text
//! workload  what is measured            peer/    who is compared, and how their programs are run
//! own/      hither's side and limits    lines    what programs say; crashes and hangs
//! rounds    groups, and settings        child    a program that may hang
//! turns     who is next                 machine  near or far, whole or shared, now
//! cell      what counts of a figure     install  what a package manager offers
//! report/   tables, curves, raw values
//! ```

mod cell;
mod child;
pub mod install;
mod lines;
mod machine;
pub mod own;
mod peer;
mod report;
mod rounds;
mod turns;
mod workload;

pub use peer::on_path;

use hither::{Error, Result};
use machine::Machine;
use peer::Gasnet;
use rounds::{Effort, Results};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use workload::{Cast, Group};

/// Least nanoseconds of a batch with fewer cores than ranks: it has to outlast some turns of the
/// scheduler, which take some milliseconds each, or what is measured is whose turn it was.
const TURNS: f64 = 2e7;

/// Arguments of `hither bench compare`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure: messages, pairs, bandwidth, onesided, sums, collectives, overhead, halo, graph,
    /// genome, start; all unless given
    groups: Vec<String>,
    /// Fewer sizes, fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Shorter still: whether all runs, not how fast
    #[arg(long, hide = true)]
    least: bool,
    /// Write the report into this directory: report.html, a picture of each diagram, report.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also put a summary into this README, between the marks that it has for that
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// Where GASNet-EX is installed (configure --prefix), to compare it too
    #[arg(long, value_name = "DIR")]
    gasnet: Option<PathBuf>,
    /// Rounds of all contestants
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Ranks of the larger jobs, 0 for none; twice as many as cores unless given. Only with more ranks
    /// than cores are they held against what is asked of such
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1024))]
    crowd: Option<u32>,
    /// Largest job whose start and memory are measured
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u32).range(2..=1024))]
    most: u32,
    /// Seconds for which a peer's program may say nothing before it counts as hung
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// Seconds in all for further turns, so that all contestants have been measured while the cores were in
    /// the same state: as far from each other, and as much by themselves
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    settle: u64,
}

impl Args {
    fn effort(&self) -> Effort {
        let patience = Duration::from_secs(self.patience);
        let effort = |rounds, batch, batches| Effort {
            rounds: self.rounds.map_or(rounds, usize::from),
            batch,
            batches,
            patience,
            quick: self.quick || self.least,
        };
        match (self.least, self.quick) {
            (true, _) => effort(1, 1e4, 2),
            // Several windows of large messages at least: in less, what adapts has not.
            (_, true) => effort(3, 5e6, 3),
            _ => effort(7, 5e6, 5),
        }
    }

    fn groups(&self) -> Result<Vec<Group>> {
        if self.groups.is_empty() {
            return Ok(Group::ALL.to_vec());
        }
        let group = |name: &String| {
            Group::ALL.into_iter().find(|group| group.name() == name).ok_or_else(|| {
                let names = Group::ALL.map(Group::name).join(", ");
                Error::invalid("bench compare", format!("there is no \"{name}\", only {names}"))
            })
        };
        self.groups.iter().map(group).collect()
    }

    /// What is measured on a machine of so many cores.
    fn parts(&self, cores: u32) -> Result<Vec<(Group, Cast)>> {
        let crowd = self.crowd.unwrap_or((2 * cores).clamp(4, 64));
        let mut parts = Vec::new();
        for group in self.groups()? {
            let sizes: Vec<u32> = match group {
                Group::Start if self.effort().quick => vec![2, 8],
                Group::Start => vec![2, 4, 8, 16, 32, 64],
                // As many pairs as have cores.
                Group::Pairs => vec![(cores & !1).max(2), crowd & !1],
                // Time that another rank takes is no overhead.
                Group::Overhead => vec![2],
                _ => vec![2, crowd],
            };
            let most = if group == Group::Start { self.most } else { u32::MAX };
            let first = sizes[0];
            let sizes = sizes.iter().enumerate().filter(|(at, ranks)| {
                // A larger job that is not larger has been measured.
                **ranks <= most && (*at == 0 || **ranks > first)
            });
            let sizes = sizes.map(|(_, ranks)| ranks);
            parts.extend(sizes.map(|&ranks| (group, Cast { ranks, cores })));
        }
        Ok(parts)
    }
}

/// Cores that this process may use.
fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get()) as u32
}

/// A folder for compiled programs, which goes away with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Place> {
        let path = std::env::temp_dir().join(format!("hither-compare-{}", std::process::id()));
        // Nobody else's folder is used: if there is one of that name, this fails.
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| Error::os("making a folder for peers' programs", e))?;
        Ok(Place(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `hither bench compare`.
pub fn run(args: &Args) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        eprintln!("hither: this is a debug build; its figures say little");
    }
    let cores = cores();
    let parts = args.parts(cores)?;
    let effort = args.effort();
    let place = Place::new()?;
    let gasnet = |dir: &PathBuf| Gasnet::find(dir)?.compiled(place.path());
    let gasnet = args.gasnet.as_ref().map(gasnet).transpose()?;
    let (peers, absent) = peer::find(place.path(), gasnet);
    for peer in &peers {
        eprintln!("{} {}: {}", peer.name(), peer.version(), peer.measured_by());
    }
    for peer in &absent {
        eprintln!("{}: left out: {}", peer.name, peer.why);
    }
    let settle = if args.least { 0 } else { args.settle };
    let machine = Machine::new(Duration::from_secs(settle));
    let mut results = Results { machine, ..Results::default() };
    let turns = |&(group, cast): &_| workload::by_turn(group, cast, effort.quick).len();
    let mut ahead: usize = parts.iter().map(turns).sum();
    for (at, &part) in parts.iter().enumerate() {
        let (group, cast) = part;
        ahead -= turns(&part);
        eprintln!("{}/{}: {}, {} ranks ...", at + 1, parts.len(), group.name(), cast.ranks);
        let crowded = cast.crowded() && !args.least;
        let batch = if crowded { (effort.batch * 10.0).max(TURNS) } else { effort.batch };
        rounds::run(&peers, part, Effort { batch, ..effort }, ahead, &mut results);
    }
    let named: Vec<(&str, String, &str)> = peers
        .iter()
        .map(|peer| (peer.name(), peer.version().to_owned(), peer.measured_by()))
        .collect();
    let (contestants, absent, results) = (&named[..], &absent[..], &results);
    let report = report::Report { contestants, absent, results, effort, cores };
    println!("{}", report.summary());
    if let Some(dir) = &args.out {
        eprintln!("report: {}", report.write(dir)?.display());
    }
    if let Some(readme) = &args.readme {
        report.write_into(readme)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parts(line: &str, cores: u32) -> Vec<(Group, u32, bool)> {
        let words = std::iter::once("compare").chain(line.split_whitespace());
        let parts = <Line as clap::Parser>::parse_from(words).args.parts(cores).unwrap();
        parts.into_iter().map(|(group, cast)| (group, cast.ranks, cast.crowded())).collect()
    }

    #[test]
    fn larger_jobs_are_crowded_only_where_cores_are_fewer() {
        use Group::{Messages, Pairs, Start};
        assert_eq!(parts("messages", 2), [(Messages, 2, false), (Messages, 4, true)]);
        assert_eq!(parts("messages", 8), [(Messages, 2, false), (Messages, 16, true)]);
        assert_eq!(parts("messages --crowd 4", 8), [(Messages, 2, false), (Messages, 4, false)]);
        assert_eq!(parts("messages", 1), [(Messages, 2, true), (Messages, 4, true)]);
        assert_eq!(parts("messages --crowd 0", 1), [(Messages, 2, true)]);
        assert_eq!(parts("pairs", 9), [(Pairs, 8, false), (Pairs, 18, true)]);
        assert_eq!(parts("pairs --crowd 4", 8), [(Pairs, 8, false)]);
        assert_eq!(parts("start --quick --most 4", 2), [(Start, 2, false)]);
    }

    #[test]
    fn folders_go_away() {
        let place = Place::new().unwrap();
        let path = place.path().to_owned();
        std::fs::write(path.join("x"), "x").unwrap();
        drop(place);
        assert!(!path.exists());
    }
}
