//! `stencil3d`: the 3D stencil of paper 000 (§2.3, figures 1 and 7), by size of its messages: with
//! the default limit of what is sent eagerly, with limits that somebody tuned by hand, and with
//! those that the library finds while it runs.
//!
//! ```text
//! job   default   64 KiB   256 KiB   1 MiB   dynamic   default   64 KiB ...      for each size
//!                 |<---- by hand ---->|
//! ```
//! What jobs are held against is the best of the tuned ones: the one whose steps take the shortest
//! time at that size.

mod block;
mod grid;
pub mod step;

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Point, Row};
use crate::bench::stats::{median, quantile, summarise};
use crate::bench::subject::variants::Variant;
use crate::bench::suite;
use hither::{Error, Result};
use step::{FIGURES, HELD, STEP};

type Part = fn(&Crew, Effort) -> Result<Vec<Row>>;

/// The parts inside the jobs, by the size of their messages: each job has one size, as a program
/// has one.
pub const PARTS: [(&str, usize, Part); 7] = [
    ("stencil3d-8k-part", 8 << 10, step::part::<{ 8 << 10 }>),
    ("stencil3d-32k-part", 32 << 10, step::part::<{ 32 << 10 }>),
    ("stencil3d-64k-part", 64 << 10, step::part::<{ 64 << 10 }>),
    ("stencil3d-128k-part", 128 << 10, step::part::<{ 128 << 10 }>),
    ("stencil3d-256k-part", 256 << 10, step::part::<{ 256 << 10 }>),
    ("stencil3d-512k-part", 512 << 10, step::part::<{ 512 << 10 }>),
    ("stencil3d-1m-part", 1 << 20, step::part::<{ 1 << 20 }>),
];
/// Those of a quick run.
const QUICK: [usize; 3] = [1, 3, 5];

const MODES: [Variant; 5] = [
    Variant { name: "default", settings: &[("HITHER_EAGER", "fixed")] },
    Variant {
        name: "fixed at 64 KiB",
        settings: &[("HITHER_EAGER", "fixed"), ("HITHER_EAGER_LIMIT", "64K")],
    },
    Variant {
        name: "fixed at 256 KiB",
        settings: &[("HITHER_EAGER", "fixed"), ("HITHER_EAGER_LIMIT", "256K")],
    },
    Variant {
        name: "fixed at 1 MiB",
        settings: &[("HITHER_EAGER", "fixed"), ("HITHER_EAGER_LIMIT", "1M")],
    },
    // Not only where nobody can copy alone, as by default: then there would be nothing to adapt here.
    Variant { name: "dynamic", settings: &[("HITHER_EAGER", "always")] },
];
const TUNED: std::ops::Range<usize> = 1..4;
const DYNAMIC: usize = 4;

/// Share of the best tuned setting's memory that adapting may hold (paper 000: a quarter less).
const MEMORY: f64 = 0.75;

/// A core for each rank, if there are cores for 2, 4 or 8.
fn ranks() -> u32 {
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
    [8, 4].into_iter().find(|n| *n <= cores).unwrap_or(2) as u32
}

/// Figures of one mode at one size: of each round, in the order of [`FIGURES`].
type Rounds = Vec<Vec<f64>>;

fn column(rounds: &Rounds, figure: usize) -> Vec<f64> {
    rounds.iter().map(|round| round[figure]).collect()
}

/// `stencil3d`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let ranks = options.ranks.unwrap_or_else(ranks);
    let rounds = match (options.least, options.quick) {
        (true, _) => 1,
        (_, true) => 3,
        _ => 7,
    };
    let parts: Vec<_> =
        if options.quick { QUICK.iter().map(|at| PARTS[*at]).collect() } else { PARTS.to_vec() };
    let mut rows = Vec::new();
    let mut verdicts = Vec::new();
    for (name, size, _) in parts {
        let mut modes: [Rounds; MODES.len()] = std::array::from_fn(|_| Vec::new());
        for _ in 0..rounds {
            for (mode, own) in MODES.iter().zip(&mut modes) {
                let rows = jobs::measure_with(suite::find(name)?, ranks, options, mode.settings)?;
                if rows.len() != FIGURES.len() {
                    return Err(Error::invalid("bench", "a job returned too few figures"));
                }
                own.push(rows.iter().map(|row| row.value).collect());
            }
        }
        report((size, ranks), &modes, &mut rows, &mut verdicts);
    }
    rows.extend(verdicts);
    Ok(rows)
}

/// The tuned mode with the shortest step.
fn best(modes: &[Rounds]) -> usize {
    let time = |mode: &usize| median(&column(&modes[*mode], STEP));
    TUNED.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(TUNED.start)
}

/// What `figure` of a mode is beside that of another. A share or an amount of less than one unit
/// is nothing to make a ratio to: it counts as one.
fn beside(modes: &[Rounds], figure: usize, own: usize, other: usize) -> Vec<(f64, f64)> {
    let least = if FIGURES[figure].1 == "µs" { f64::MIN_POSITIVE } else { 1.0 };
    let floors = column(&modes[other], figure).into_iter().map(|floor| floor.max(least));
    column(&modes[own], figure).into_iter().zip(floors).collect()
}

/// The distance of a figure's quartiles, as a share of the figure.
fn noise(values: &[f64]) -> f64 {
    let distance = quantile(values, 0.75) - quantile(values, 0.25);
    distance / median(values).max(f64::MIN_POSITIVE)
}

fn report(
    (size, ranks): (usize, u32),
    modes: &[Rounds],
    rows: &mut Vec<Row>,
    verdicts: &mut Vec<Row>,
) {
    let best = best(modes);
    let row = |what: String, figure: usize, own: usize, point: Option<Point>| {
        let heading = Heading {
            bench: "stencil3d",
            what,
            size,
            limit: "best by hand",
            unit: FIGURES[figure].1,
            goal: Goal::None,
            point,
        };
        heading.row(ranks, summarise(&beside(modes, figure, own, best)), None)
    };
    for (figure, (what, _)) in FIGURES.into_iter().enumerate() {
        for (own, mode) in MODES.iter().enumerate() {
            let title = format!("3D stencil: {what}, by size of its messages (000, figures 1, 7)");
            let point = Point::new(title, mode.name, "bytes", size as f64);
            rows.push(row(format!("{what}, {}", mode.name), figure, own, Some(point)));
        }
    }
    let name = MODES[best].name;
    let mut time = row(format!("verdict: step, dynamic against {name}"), STEP, DYNAMIC, None);
    // Within noise: that of the two beside each other, and of the tuned one from job to job.
    let noise = noise(&column(&modes[best], STEP)).max(2.0 * time.spread);
    time.judge(Goal::AtMost(1.0 + (noise * 100.0).ceil() / 100.0));
    let what = format!("verdict: pool memory held, dynamic against {name}");
    let mut memory = row(what, HELD, DYNAMIC, None);
    memory.judge(Goal::AtMost(MEMORY));
    verdicts.extend([time, memory]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modes whose steps take so long, and that hold so much, in three rounds.
    fn modes(figures: [(f64, f64); 5]) -> Vec<Rounds> {
        let rounds = |(time, memory): (f64, f64)| {
            let round = |noise: f64| {
                let mut round = vec![1.0; FIGURES.len()];
                (round[STEP], round[HELD]) = (time * noise, memory);
                round
            };
            vec![round(0.98), round(1.0), round(1.02)]
        };
        figures.into_iter().map(rounds).collect()
    }

    fn judge(figures: [(f64, f64); 5]) -> Vec<(String, Option<bool>)> {
        let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
        report((1024, 2), &modes(figures), &mut rows, &mut verdicts);
        assert_eq!(rows.len(), FIGURES.len() * MODES.len());
        verdicts.into_iter().map(|row| (row.what, row.holds)).collect()
    }

    #[test]
    fn adapting_is_held_against_the_best_tuned_setting() {
        let tuned = [(90.0, 64.0), (80.0, 256.0), (85.0, 1024.0)];
        let with = |dynamic| [(50.0, 0.0), tuned[0], tuned[1], tuned[2], dynamic];
        let good = judge(with((80.5, 100.0)));
        assert!(good[0].0.contains("fixed at 256 KiB"), "{}", good[0].0);
        assert_eq!((good[0].1, good[1].1), (Some(true), Some(true)));
        let bad = judge(with((84.0, 250.0)));
        assert_eq!((bad[0].1, bad[1].1), (Some(false), Some(false)));
    }

    #[test]
    fn nothing_is_less_than_something() {
        let figures = [(9.0, 0.0), (9.0, 0.0), (8.0, 4.0), (9.0, 0.0), (8.0, 0.0)];
        assert_eq!(judge(figures)[1].1, Some(true));
    }
}
