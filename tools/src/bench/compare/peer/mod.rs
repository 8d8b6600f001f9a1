//! Who is compared: what is installed, its version, its settings, and how its programs are run.
//!
//! ```text
//! mpi    MPICH, Open MPI, OpenSHMEM: programs of our own (benches/peers/*.c), compiled when they are needed
//! ucx    UCX: its own program, ucx_perftest
//! gasnet GASNet-EX: programs of our own (benches/peers/gasnet), where a build of it is pointed to
//! native iceoryx2, Lamellar: programs of our own, built once (benches/peers/rust)
//! hither this program, started by itself
//! ```

pub mod gasnet;
mod hither;
mod mpi;
pub mod native;
mod ucx;

use super::lines::{self, Outcome};
use super::workload::{Cast, Group, Task};
use crate::bench::subject::start::now;
use ::hither::Result;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use gasnet::Gasnet;

/// One way to run a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As the report calls it.
    pub name: String,
    /// Arguments of its launcher.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
}

impl Setting {
    /// What it does by itself.
    pub fn usual() -> Setting {
        Setting { name: "as installed".into(), args: Vec::new(), env: Vec::new() }
    }

    /// With launcher's arguments, which are its name.
    fn with_args(args: &str) -> Setting {
        let list = args.split_whitespace().map(str::to_owned).collect();
        Setting { name: args.to_owned(), args: list, env: Vec::new() }
    }

    /// With variables, as `A=1 B=2`, which is its name.
    fn with_env(env: &str) -> Setting {
        let list = env.split_whitespace().filter_map(|pair| pair.split_once('='));
        let env_of = list.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Setting { name: env.to_owned(), args: Vec::new(), env: env_of }
    }
}

/// What a contestant is to measure in one start.
pub struct Order<'a> {
    /// Tasks of one group and one number of ranks.
    pub tasks: &'a [Task],
    /// Which setting.
    pub setting: &'a Setting,
    /// Nanoseconds of a batch.
    pub batch: f64,
    /// Batches of each workload, of which the median is taken.
    pub batches: usize,
    /// How long a program may say nothing.
    pub patience: Duration,
    /// Whether there are more ranks than cores.
    pub crowded: bool,
}

impl Order<'_> {
    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.tasks.first().map_or(2, |task| task.ranks)
    }

    /// What every program takes before the items.
    fn effort(&self) -> [String; 2] {
        [format!("{:.0}", self.batch), self.batches.to_string()]
    }
}

/// A contestant.
pub trait Peer {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its version, as it tells it.
    fn version(&self) -> &str;
    /// What measures on it.
    fn measured_by(&self) -> &'static str;
    /// The settings that are tried, the usual one first.
    fn settings(&self, group: Group, crowded: bool) -> Vec<Setting>;
    /// Whether it can do a group at all in jobs of so many ranks; else why not.
    fn can(&self, group: Group, cast: Cast) -> std::result::Result<(), &'static str>;
    /// Measures. Every task gets an outcome.
    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>>;
    /// The command of an order, for the report.
    fn command(&self, order: &Order<'_>) -> String;
}

/// A peer that cannot be compared.
#[derive(Debug)]
pub struct Absent {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub why: String,
}

/// hither and every peer there is, `gasnet` if that was pointed to; and those there are not. Programs are
/// compiled in `place`.
pub fn find(place: &Path, gasnet: Option<Gasnet>) -> (Vec<Box<dyn Peer>>, Vec<Absent>) {
    let mut found: Vec<Box<dyn Peer>> = vec![Box::new(hither::Own)];
    let mut absent = Vec::new();
    for kind in mpi::Kind::ALL {
        match mpi::Mpi::find(kind, place) {
            Ok(peer) => found.push(Box::new(peer)),
            Err(why) => absent.push(Absent { name: kind.name(), why }),
        }
    }
    match ucx::Ucx::find() {
        Ok(peer) => found.push(Box::new(peer)),
        Err(why) => absent.push(Absent { name: ucx::NAME, why }),
    }
    match gasnet {
        Some(peer) => found.push(Box::new(peer)),
        None => absent.push(Absent { name: gasnet::NAME, why: gasnet::UNKNOWN.to_owned() }),
    }
    let home = native::home();
    for kind in native::Kind::ALL {
        match native::Native::find(kind, home.as_deref()) {
            Ok(peer) => found.push(Box::new(peer)),
            Err(why) => absent.push(Absent { name: kind.name(), why }),
        }
    }
    (found, absent)
}

/// The sources of the programs.
const SOURCES: &[(&str, &str)] = &[
    ("common.h", include_str!("../../../../../benches/peers/common.h")),
    ("library.h", include_str!("../../../../../benches/peers/library.h")),
    ("signals.h", include_str!("../../../../../benches/peers/signals.h")),
    ("messages", include_str!("../../../../../benches/peers/messages.c")),
    ("onesided", include_str!("../../../../../benches/peers/onesided.c")),
    ("sums", include_str!("../../../../../benches/peers/sums.c")),
    ("collectives", include_str!("../../../../../benches/peers/collectives.c")),
    ("overhead", include_str!("../../../../../benches/peers/overhead.c")),
    ("bfs", include_str!("../../../../../benches/peers/bfs.c")),
    ("genome", include_str!("../../../../../benches/peers/genome.c")),
    ("genome.fa", include_str!("../../../../../data/lambda_virus.fa")),
    ("random.h", include_str!("../../../../../benches/peers/random.h")),
    ("halo", include_str!("../../../../../benches/peers/halo.c")),
    ("shmem", include_str!("../../../../../benches/peers/shmem.c")),
    ("start", include_str!("../../../../../benches/peers/start.c")),
    ("private.h", include_str!("../../../../../benches/peers/private.h")),
];

/// The source of a program.
#[cfg(test)]
pub fn source(program: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(name, _)| *name == program).map(|(_, text)| *text)
}

/// The file of a program on the search path.
pub fn on_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| {
        file.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// Runs a program that says figures in lines. What it says of its start, which is when that was over,
/// becomes the time since the command was made.
fn timed(
    order: &Order<'_>,
    command: impl Fn(&[Task]) -> Result<Command>,
) -> Result<Vec<(Task, Outcome)>> {
    let begun = Cell::new(0.0);
    let made = |left: &[Task]| {
        let command = command(left);
        begun.set(now());
        command
    };
    let mut outcomes = lines::run(order.tasks, order.patience, made)?;
    for (task, outcome) in &mut outcomes {
        if let (Ok(figure), "start") = (outcome, task.workload().name) {
            figure.value -= begun.get();
        }
    }
    Ok(outcomes)
}

/// A command as one would type it, with the programs' folders left out.
fn typed(command: &Command) -> String {
    let base = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy().into_owned();
        match word.strip_prefix('/') {
            Some(rest) => rest.rsplit('/').next().unwrap_or_default().to_owned(),
            None => word,
        }
    };
    let env = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(base);
    env.chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_their_names_say() {
        let setting = Setting::with_args("--mca osc sm");
        assert_eq!(setting.args, ["--mca", "osc", "sm"]);
        let setting = Setting::with_env("A=1 B=2,3");
        assert_eq!(setting.env[1], ("B".to_owned(), "2,3".to_owned()));
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("/usr/bin/mpiexec");
        command.args(["-n", "2", "/tmp/x/messages", "put:8"]).env("UCX_TLS", "posix");
        assert_eq!(typed(&command), "UCX_TLS=posix mpiexec -n 2 messages put:8");
    }

    #[test]
    fn programs_are_found_on_the_path_only() {
        assert!(on_path("sh").is_some());
        assert!(on_path("no-such-program-at-all").is_none());
    }
}
