//! Inside a job: steps of the stencil, timed (paper 000 §2.3).
//!
//! ```text
//! irecv * 6, isend * 6 | sweep over the block | wait for all | allreduce
//! |<- initialisation ->|<---- computing ----->|<--- wait --->|
//! |<----------------------- step --------------------------->|
//!
//! communication: the same without the sweep.   overlap: (communication + computing - step)
//! computing: the sweep alone.                            as a share of communication, 0 to 1
//! ```
//! Times are means over the ranks. The all-reduce is not timed: it keeps the ranks together. Every
//! message has the number of its step and its sender at both ends, and is looked at.

use super::block::Block;
use super::grid::{DIRECTIONS, Grid};
use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::{median, summarise};
use hither::{Error, Op, Rank, Result, Team};
use std::time::Instant;

/// What a job reports: names and units, in this order.
pub const FIGURES: [(&str, &str); 9] = [
    ("step", "µs"),
    ("communication", "µs"),
    ("computing", "µs"),
    ("overlap", "%"),
    ("initialisation", "µs"),
    ("wait", "µs"),
    ("pool memory held", "KiB"),
    ("pool memory, most", "KiB"),
    ("changes of thresholds", ""),
];
/// Where the time of a step is among them.
pub const STEP: usize = 0;
/// Where the memory is.
pub const HELD: usize = 6;

/// Steps before anything is timed, in which thresholds may settle.
const SETTLE: usize = 60;

/// One direction's messages.
struct Face {
    direction: usize,
    peer: Rank,
    out: Vec<u8>,
    into: Vec<u8>,
}

/// A rank's part of the stencil.
struct Stencil<'t> {
    team: &'t Team,
    faces: Vec<Face>,
    block: Block,
    step: u32,
}

/// Nanoseconds of one step.
#[derive(Clone, Copy, Default)]
struct Times {
    initialisation: f64,
    computing: f64,
    wait: f64,
}

/// Written at both ends of a message.
fn stamp(step: u32, sender: Rank, direction: usize) -> [u8; 8] {
    (u64::from(step) << 32 | u64::from(sender.0) << 8 | direction as u64).to_ne_bytes()
}

impl<'t> Stencil<'t> {
    fn new(team: &'t Team, bytes: usize) -> Stencil<'t> {
        let (grid, rank) = (Grid::new(team.size()), team.rank());
        let faces: Vec<Face> = (0..DIRECTIONS)
            .filter_map(|direction| {
                let peer = grid.neighbour(rank, direction)?;
                Some(Face { direction, peer, out: vec![1; bytes], into: vec![0; bytes] })
            })
            .collect();
        let block = Block::new(bytes, faces.len());
        Stencil { team, faces, block, step: 0 }
    }

    /// One step, with its sweep or without.
    fn step(&mut self, computes: bool) -> Result<Times> {
        self.step += 1;
        let rank = self.team.rank();
        for face in &mut self.faces {
            let stamp = stamp(self.step, rank, face.direction);
            let end = face.out.len() - stamp.len();
            face.out[..stamp.len()].copy_from_slice(&stamp);
            face.out[end..].copy_from_slice(&stamp);
        }
        let (block, faces) = (&mut self.block, &mut self.faces);
        let times = self.team.exchange(|scope| {
            let start = Instant::now();
            let mut sends = Vec::with_capacity(DIRECTIONS);
            for face in faces {
                // The neighbour sends in the direction that is opposite for it.
                scope.irecv(face.peer, (face.direction ^ 1) as u32, &mut face.into)?;
                sends.push((face.peer, face.direction, &face.out));
            }
            for (peer, direction, out) in sends {
                scope.isend(peer, direction as u32, out)?;
            }
            let begun = start.elapsed();
            if computes {
                block.sweep();
            }
            let computed = start.elapsed();
            scope.wait_all()?;
            let over = start.elapsed();
            Ok(Times {
                initialisation: begun.as_nanos() as f64,
                computing: (computed - begun).as_nanos() as f64,
                wait: (over - computed).as_nanos() as f64,
            })
        })?;
        for face in &self.faces {
            let want = stamp(self.step, face.peer, face.direction ^ 1);
            let end = face.into.len() - want.len();
            if face.into[..want.len()] != want || face.into[end..] != want {
                return Err(Error::invalid("bench stencil3d", "a neighbour's face is wrong"));
            }
        }
        self.team.allreduce(Op::Sum, &mut [self.block.middle()])?;
        Ok(times)
    }

    /// The mean of so many steps.
    fn steps(&mut self, count: usize, computes: bool) -> Result<Times> {
        let mut sum = Times::default();
        for _ in 0..count {
            let step = self.step(computes)?;
            sum.initialisation += step.initialisation;
            sum.computing += step.computing;
            sum.wait += step.wait;
        }
        let count = count as f64;
        Ok(Times {
            initialisation: sum.initialisation / count,
            computing: sum.computing / count,
            wait: sum.wait / count,
        })
    }

    /// The mean of so many sweeps alone.
    fn sweeps(&mut self, count: usize) -> Result<f64> {
        let mut sum = 0.0;
        for _ in 0..count {
            let start = Instant::now();
            self.block.sweep();
            sum += start.elapsed().as_nanos() as f64;
            self.team.allreduce(Op::Sum, &mut [self.block.middle()])?;
        }
        Ok(sum / count as f64)
    }
}

/// Steps of messages of `BYTES` bytes.
pub fn part<const BYTES: usize>(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let team = crew.job()?.team();
    let mut stencil = Stencil::new(team, BYTES);
    if stencil.faces.is_empty() {
        return Err(Error::invalid("bench stencil3d", "it wants at least 2 ranks"));
    }
    let settle = if effort.rounds <= Effort::LEAST.rounds { SETTLE / 3 } else { SETTLE };
    let start = Instant::now();
    stencil.steps(settle, true)?;
    // As many for all: rank 0 has the clock.
    let took = start.elapsed().as_nanos() as f64 / settle as f64;
    let mut count = [(effort.batch * 30.0 / took).clamp(4.0, 1000.0) as u64];
    team.broadcast(Rank(0), &mut count)?;
    let (count, rounds) = (count[0] as usize, effort.rounds.clamp(2, 7));
    // Phases one after the other: messages without computing would tell the library that nothing
    // overlaps, and are another program.
    let with: Result<Vec<Times>> = (0..rounds).map(|_| stencil.steps(count, true)).collect();
    let counters = team.message_counters()?;
    let alone: Result<Vec<f64>> = (0..rounds).map(|_| stencil.sweeps(count)).collect();
    stencil.steps(settle / 4, false)?;
    let without: Result<Vec<Times>> = (0..rounds).map(|_| stencil.steps(count, false)).collect();
    let (with, without) = (with?, without?);
    let of = |times: &[Times], what: fn(&Times) -> f64| {
        median(&times.iter().map(what).collect::<Vec<f64>>())
    };
    let whole = |times: &Times| times.initialisation + times.computing + times.wait;
    let mut figures = [
        of(&with, whole),
        of(&without, whole),
        median(&alone?),
        of(&with, |times| times.initialisation),
        of(&with, |times| times.wait),
        counters.pool_bytes as f64 / 1024.0,
        counters.pool_bytes_peak as f64 / 1024.0,
        counters.switches as f64,
    ];
    team.allreduce(Op::Sum, &mut figures)?;
    let [step, communication, computing, initialisation, wait, held, most, changes] = figures;
    let overlap = ((communication + computing - step) / communication).clamp(0.0, 1.0) * 100.0;
    let mean = 1.0 / 1e3 / f64::from(team.size());
    let values = [
        step * mean,
        communication * mean,
        computing * mean,
        overlap,
        initialisation * mean,
        wait * mean,
        held,
        most,
        changes,
    ];
    let row = |((what, unit), value): ((&str, &'static str), f64)| {
        let heading = Heading {
            bench: "stencil3d",
            what: what.to_owned(),
            size: BYTES,
            limit: "",
            unit,
            goal: Goal::None,
            point: None,
        };
        heading.row(crew.size(), summarise(&[(value, value)]), None)
    };
    let rows = FIGURES.into_iter().zip(values).map(row).collect();
    Ok(if crew.leads() { rows } else { Vec::new() })
}
