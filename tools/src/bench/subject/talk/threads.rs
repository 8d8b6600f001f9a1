//! The same number of pairs, once as threads of two ranks and once as processes, nobody bound:
//! what sharing a process costs.
//!
//! ```text
//! threads     rank 0  { t0  t1 }        processes   rank 0   rank 2
//!                       |   |                         |        |
//!             rank 1  { t0  t1 }                    rank 1   rank 3
//! ```
//! Each pair sends so many messages one way and gets one answer, again and again. Threads share the
//! rank's connections, or have an endpoint each; or the threads of one rank talk to a rank each.

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row, Unit};
use crate::bench::stats::{median, summarise};
use crate::bench::suite;
use hither::topo::Bind;
use hither::{Error, Rank, Result, Team};
use std::sync::Barrier;
use std::time::Instant;

/// The part of threads, by their number.
pub const THREADS: [(&str, u32); 3] =
    [("p2p-1-thread-part", 1), ("p2p-2-threads-part", 2), ("p2p-4-threads-part", 4)];
/// The part of threads with an endpoint each, by their number.
pub const ENDPOINTS: [(&str, u32); 3] =
    [("p2p-1-endpoint-part", 1), ("p2p-2-endpoints-part", 2), ("p2p-4-endpoints-part", 4)];
/// The part of threads of one rank that talk to a rank each, by their number.
pub const STARS: [(&str, u32); 2] = [("p2p-2-peers-part", 2), ("p2p-4-peers-part", 4)];
/// The part of ranks whose messages are funneled through their own threads.
pub const FUNNELED: &str = "p2p-funneled-part";
/// The part of processes.
pub const PROCESSES: &str = "p2p-processes-part";

/// Nanoseconds of the longest batch.
const LONGEST: f64 = 1e8;

/// Messages before an answer.
const WINDOWS: [(&str, u64); 2] = [("round trips", 1), ("message rate", 64)];

/// One pair's side: `turns` times `window` messages and an answer.
fn play(team: &Team, (peer, tag): (Rank, u32), leads: bool, turns: u64, window: u64) -> Result<()> {
    let mut word = [0u64];
    for turn in 0..turns {
        if leads {
            (0..window).try_for_each(|i| team.send(peer, tag, &[turn ^ (i << 32)]))?;
            team.recv(peer, tag, &mut word)?;
        } else {
            for i in 0..window {
                team.recv(peer, tag, &mut word)?;
                if word != [turn ^ (i << 32)] {
                    return Err(Error::invalid("bench", "threads got each other's messages"));
                }
            }
            team.send(peer, tag, &[turn])?;
        }
    }
    if leads && word != [turns - 1] {
        return Err(Error::invalid("bench", "a thread got another's answer"));
    }
    Ok(())
}

/// Who talks to whom.
#[derive(Clone, Copy, PartialEq)]
enum Whom {
    /// Every second rank to the next one.
    Pairs,
    /// The threads of rank 0 to a rank each.
    Star,
}

impl Whom {
    /// The peer and the tag of a rank's thread, and whether it leads.
    fn of(self, rank: u32, thread: u32) -> ((Rank, u32), bool) {
        match (self, rank) {
            (Whom::Pairs, _) => ((Rank(rank ^ 1), thread + 1), rank.is_multiple_of(2)),
            (Whom::Star, 0) => ((Rank(thread + 1), 1), true),
            (Whom::Star, _) => ((Rank(0), 1), false),
        }
    }
}

/// All threads of this rank (none: the one that calls), by the teams that they send by; nanoseconds
/// from when all of them are there until all ranks are through.
fn batch(crew: &Crew, whom: Whom, threads: &[Team], turns: u64, window: u64) -> Result<f64> {
    let team = crew.job()?.team();
    let go = Barrier::new(threads.len() + 1);
    // The ranks' own threads begin together, and let those of each rank go.
    let begin = || -> Result<Instant> {
        let together = team.barrier();
        let start = Instant::now();
        go.wait();
        together.map(|()| start)
    };
    let start = if threads.is_empty() {
        let start = begin()?;
        let (with, leads) = whom.of(crew.rank(), 0);
        play(team, with, leads, turns, window)?;
        start
    } else {
        std::thread::scope(|scope| {
            let one = |(thread, own): (u32, _)| {
                let (go, (with, leads)) = (&go, whom.of(crew.rank(), thread));
                move || {
                    go.wait();
                    play(own, with, leads, turns, window)
                }
            };
            let all: Vec<_> = (0u32..).zip(threads).map(|own| scope.spawn(one(own))).collect();
            let start = begin()?;
            let ended = all.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::invalid("bench", "a thread panicked")))
            });
            ended.collect::<Result<Vec<()>>>().map(|_| start)
        })?
    };
    team.barrier()?;
    let mut took = [start.elapsed().as_nanos() as f64];
    team.broadcast(Rank(0), &mut took)?;
    Ok(took[0])
}

/// Messages per second of all pairs, in millions, for each window.
fn part(crew: &Crew, effort: Effort, whom: Whom, threads: &[Team]) -> Result<Vec<Row>> {
    if whom == Whom::Pairs && !crew.size().is_multiple_of(2) {
        return Err(Error::invalid("bench p2p", "it wants an even number of ranks"));
    }
    // Long beside the time in which the system finds a core for each thread.
    let wanted = (effort.batch * 500.0).min(LONGEST);
    let pairs = match whom {
        Whom::Pairs => f64::from(crew.size() / 2) * threads.len().max(1) as f64,
        Whom::Star => f64::from(crew.size() - 1),
    };
    let mut rows = Vec::new();
    for (what, window) in WINDOWS {
        let mut turns = 16;
        loop {
            let mut took = batch(crew, whom, threads, turns, window)?.max(1.0);
            if took >= wanted / 2.0 {
                // What comes first also connects: only again it tells. All ranks have rank 0's time.
                took = batch(crew, whom, threads, turns, window)?.max(1.0);
            }
            if took >= wanted / 2.0 || turns >= 1 << 24 {
                break;
            }
            turns = (turns as f64 * (wanted / took).clamp(1.5, 8.0)) as u64;
        }
        let times: Result<Vec<f64>> =
            (0..3).map(|_| batch(crew, whom, threads, turns, window)).collect();
        let messages = pairs * turns as f64 * if window == 1 { 1.0 } else { window as f64 };
        let rate = Unit::MillionPerSecond.figure(median(&times?), messages, 8);
        let heading = Heading {
            bench: "p2p",
            what: what.to_owned(),
            size: 8,
            limit: "",
            unit: Unit::MillionPerSecond.name(),
            goal: Goal::None,
            point: None,
        };
        rows.push(heading.row(crew.size(), summarise(&[(rate, rate)]), None));
    }
    Ok(if crew.leads() { rows } else { Vec::new() })
}

/// Inside a job: `N` threads of each rank.
pub fn threads_part<const N: usize>(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    part(crew, effort, Whom::Pairs, &vec![crew.job()?.team().clone(); N])
}

/// The same, with an endpoint each.
pub fn endpoints_part<const N: usize>(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    part(crew, effort, Whom::Pairs, &crew.job()?.team().endpoints(N)?)
}

/// Inside a job: the threads of rank 0, as many as there are others, and each other rank's own.
pub fn star_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let threads = if crew.leads() { crew.size() as usize - 1 } else { 0 };
    part(crew, effort, Whom::Star, &vec![crew.job()?.team().clone(); threads])
}

/// Inside a job: the ranks' own threads alone, and nobody else may.
pub fn funneled_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let _only = crew.job()?.team().funnel()?;
    part(crew, effort, Whom::Pairs, &[])
}

/// Inside a job: the ranks' own threads alone.
pub fn processes_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    part(crew, effort, Whom::Pairs, &[])
}

/// What is held against what.
struct Comparison {
    part: &'static str,
    /// Ranks of that.
    of: u32,
    /// What its rows say behind what they are.
    about: String,
    against: &'static str,
    /// Ranks of the other.
    ranks: u32,
    limit: &'static str,
}

fn comparisons() -> Vec<Comparison> {
    let own = THREADS.map(|(part, threads)| (part, threads, "thread(s)"));
    let endpoints = ENDPOINTS.map(|(part, threads)| (part, threads, "thread(s) with endpoints"));
    let processes = |(part, threads, kind)| Comparison {
        part,
        of: 2,
        about: format!("2 ranks of {threads} {kind}"),
        against: PROCESSES,
        ranks: 2 * threads,
        limit: "as many processes",
    };
    let mut all: Vec<_> = own.into_iter().chain(endpoints).map(processes).collect();
    all.extend(STARS.map(|(part, threads)| Comparison {
        part,
        of: threads + 1,
        about: format!("{threads} threads of a rank, a peer each"),
        against: PROCESSES,
        ranks: 2 * threads,
        limit: "as many processes",
    }));
    all.push(Comparison {
        part: FUNNELED,
        of: 2,
        about: "funneled".into(),
        against: PROCESSES,
        ranks: 2,
        limit: "any thread may call",
    });
    all
}

/// Both in turn, for each comparison.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let rounds = match (options.least, options.quick) {
        (true, _) => 1,
        (_, true) => 3,
        _ => 5,
    };
    let options = Options { bind: Bind::None, ..*options };
    let few = || Error::invalid("bench", "a job returned too few figures");
    let mut rows = Vec::new();
    for Comparison { part, of, about, against, ranks, limit } in comparisons() {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            figures[0].push(jobs::measure(suite::find(part)?, of, &options)?);
            figures[1].push(jobs::measure(suite::find(against)?, ranks, &options)?);
        }
        for (at, (what, _)) in WINDOWS.into_iter().enumerate() {
            let pairs: Option<Vec<(f64, f64)>> = figures[0]
                .iter()
                .zip(&figures[1])
                .map(|(own, other)| Some((own.get(at)?.value, other.get(at)?.value)))
                .collect();
            let heading = Heading {
                bench: "p2p",
                what: format!("{what}, {about}"),
                size: 8,
                limit,
                unit: Unit::MillionPerSecond.name(),
                goal: Goal::None,
                point: None,
            };
            rows.push(heading.row(of, summarise(&pairs.ok_or_else(few)?), None));
        }
    }
    Ok(rows)
}
