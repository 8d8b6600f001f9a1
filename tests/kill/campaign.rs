//! A campaign of kills: starts a job, kills a random rank at a random moment or at a point of its
//! work, and judges how the others ended and what is left. Shared by the kill tests of the library
//! and of the demo.

use crate::support::options::Options;
use crate::support::processes::marked;
use crate::support::random::Random;
use hither::world::{Exit, Launcher, Outcome, Output};
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable that marks every process of one run.
const MARK: &str = "HITHER_KILL_TEST_MARK";

/// What is started over and over.
pub struct Campaign {
    /// The program.
    pub program: PathBuf,
    /// What is done until somebody dies.
    pub works: Vec<Work>,
    /// Arguments that ask the ranks to go on after a death.
    pub survive: Vec<String>,
    /// Exit code of a rank that ended with a typed error.
    pub typed: u8,
    /// Whether the works end by themselves, with results that need every rank. Then a kill may come
    /// when the victim has given its part and is only leaving, which hurts nobody.
    pub ends: bool,
    /// Longest time after which the kill strikes.
    pub longest: Duration,
    /// Kills, unless the command line says otherwise.
    pub kills: u64,
}

/// A workload.
pub struct Work {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Settings in its environment.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Points at which the victim can be told to die. Such a rank gets the arguments
    /// [`VICTIM`] `RANK POINT PASSES`, dies by SIGKILL when it comes to the point for the given
    /// time, and says [`MISSED`] if it does not come there.
    pub points: Vec<&'static str>,
}

/// See [`Work::points`].
pub const VICTIM: &str = "--victim";
/// See [`Work::points`].
pub const MISSED: &str = "never came to the point at which to die";

/// How a kill is done.
enum Strike {
    /// From outside, after some time.
    After(Duration),
    /// By the victim itself, when it passes a point for the given time.
    At(&'static str, u64),
}

impl std::fmt::Display for Strike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Strike::After(moment) => write!(f, "after {moment:?}"),
            Strike::At(point, times) => write!(f, "at \"{point}\", passing it {times} times"),
        }
    }
}

impl Campaign {
    /// Runs the campaign with the options of the command line; exits with 1 if anything failed.
    pub fn run(self) {
        let options = Options::read(&["--kills", "--seed"]);
        let kills = options.number("--kills").unwrap_or(self.kills);
        let seed = options.number("--seed").unwrap_or_else(|| std::process::id().into());
        let filter = options.word();
        let chosen = |name: &str| filter.is_none_or(|f| name.contains(f));
        let works: Vec<_> = self.works.iter().filter(|work| chosen(&work.name)).collect();
        assert!(!works.is_empty(), "no workload is called {filter:?}");
        let mut random = Random::new(seed);
        println!("seed {seed}");
        let before = shared_files();
        let (mut passed, mut failed, mut late) = (0, 0, 0);
        // So that every point has its turn, and others in the next run.
        let mut turn = random.below(1 << 20) as usize;
        for kill in 0..kills {
            let work = works[kill as usize % works.len()];
            turn += usize::from((kill as usize).is_multiple_of(works.len()));
            let survive = random.below(2) == 0;
            let ranks = [2, 3, 4, 8][random.below(4) as usize];
            // Some strike while the job is being wired up, most while it works.
            let longest = self.longest.as_micros() as u64;
            let longest = if kill % 4 == 0 { longest.min(15_000) } else { longest };
            let moment = Duration::from_micros(random.below(longest));
            let victim = random.below(u64::from(ranks)) as u32;
            let mark = format!("{}-{kill}", std::process::id());
            // Of a workload with points, most deaths are at one of them.
            let strike = if work.points.is_empty() || turn.is_multiple_of(4) {
                Strike::After(moment)
            } else {
                Strike::At(work.points[turn % work.points.len()], random.below(25) + 1)
            };
            let outcome = self.strike(work, ranks, survive, victim, &strike, &mark);
            if outcome.ranks.get(victim as usize) == Some(&Exit::Code(0))
                || (self.ends && !survive && finished(&outcome, victim))
            {
                late += 1;
            }
            let mut faults = self.judge(&outcome, victim, survive);
            faults.extend(marked(MARK, &mark).into_iter().map(|p| format!("process left: {p:?}")));
            if faults.is_empty() {
                passed += 1;
                continue;
            }
            failed += 1;
            let asked = if survive { ", to be survived" } else { "" };
            println!("FAILED kill {kill}: {}, rank {victim} of {ranks} {strike}{asked}", work.name);
            for fault in faults {
                println!("    {fault}");
            }
            for (rank, text) in outcome.stderr.iter().enumerate() {
                println!("    rank {rank}: {}", String::from_utf8_lossy(text).trim_end());
            }
        }
        let after = shared_files();
        if after != before {
            failed += 1;
            println!("FAILED shared directories changed: {before:?} -> {after:?}");
        }
        if late * 4 > kills {
            failed += 1;
            println!("FAILED {late} of {kills} kills came after the end: nothing was tested");
        }
        println!("\n{passed} passed, {failed} failed");
        if failed > 0 {
            std::process::exit(1);
        }
    }

    fn strike(
        &self,
        work: &Work,
        ranks: u32,
        survive: bool,
        victim: u32,
        strike: &Strike,
        mark: &str,
    ) -> Outcome {
        let extra = if survive { &self.survive[..] } else { &[] };
        let mut launcher = Launcher::new(&self.program)
            .args(&work.arguments)
            .args(extra)
            .ranks(ranks)
            .env(MARK, mark)
            .output(Output::Capture)
            .survive(survive)
            // Whoever is still there after this has not noticed by itself.
            .grace(Duration::from_secs(30))
            .timeout(Duration::from_secs(120));
        for (key, value) in &work.settings {
            launcher = launcher.env(key, value);
        }
        if let Strike::At(point, times) = strike {
            launcher = launcher.args([VICTIM, &victim.to_string(), point, &times.to_string()]);
        }
        let running = launcher.start().expect("starting the job");
        if let Strike::After(moment) = strike {
            std::thread::sleep(*moment);
            running.kill(victim, 9);
        }
        running.wait().expect("the end of the job")
    }

    /// What is wrong with how the ranks ended.
    fn judge(&self, outcome: &Outcome, victim: u32, survive: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if outcome.timed_out {
            faults.push("the job hung".into());
        }
        let struck = outcome.ranks.get(victim as usize) == Some(&Exit::Signal(9));
        let text = |rank: usize| String::from_utf8_lossy(&outcome.stderr[rank]);
        if text(victim as usize).contains(MISSED) {
            faults.push(format!("the victim {MISSED}"));
        }
        // A death during the wiring ends it for all, also where deaths are to be survived; ranks
        // that give it up are gone for the others, which may name them instead.
        let early = (0..outcome.ranks.len()).any(|rank| text(rank).contains("wiring"));
        for (rank, exit) in outcome.ranks.iter().enumerate() {
            let said = text(rank);
            let named =
                said.contains(&format!("rank {victim} died")) || (early && said.contains("died"));
            let fine = match *exit {
                Exit::Signal(9) => rank == victim as usize,
                Exit::Code(0) => survive || !struck || (self.ends && finished(outcome, victim)),
                Exit::Code(code) => code == self.typed && named && (!survive || early),
                _ => false,
            };
            if !fine {
                faults.push(format!("rank {rank} {exit}"));
            }
            if said.contains("panicked") {
                faults.push(format!("rank {rank} panicked"));
            }
        }
        faults
    }
}

/// Whether all ranks but the victim ended well.
fn finished(outcome: &Outcome, victim: u32) -> bool {
    let mut others = (0..).zip(&outcome.ranks).filter(|&(rank, _)| rank != victim);
    others.all(|(_, exit)| *exit == Exit::Code(0))
}

/// Names in the directories in which a careless library leaves things.
fn shared_files() -> Vec<String> {
    let mut names: Vec<String> = ["/dev/shm", "/dev/mqueue"]
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten().map(|e| e.path().display().to_string()))
        .collect();
    names.sort();
    names
}
