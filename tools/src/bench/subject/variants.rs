//! The same measurement in jobs with different settings, in turn: A B C A B C ..., so that
//! whatever else happens on the machine happens to all. Each variant is a curve; what it is
//! compared with is the first one.

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Point, Row};
use crate::bench::stats::summarise;
use crate::bench::suite;
use hither::{Assertions, Error, Rank, Result, Window};
use std::time::Instant;

/// One set of settings.
pub struct Variant {
    /// Name of its curve.
    pub name: &'static str,
    /// What it sets.
    pub settings: &'static [(&'static str, &'static str)],
}

/// One diagram, measured by a part.
pub struct Sweep {
    /// The benchmark that the rows belong to.
    pub bench: &'static str,
    /// Name of the part that runs inside the jobs.
    pub part: &'static str,
    /// Ranks of the jobs.
    pub ranks: u32,
    /// The variants; the first is what the others are compared with.
    pub variants: &'static [Variant],
}

/// Runs the part with each variant in turn; rows of the part come out once for each variant.
pub fn run(sweep: &Sweep, options: &Options) -> Result<Vec<Row>> {
    let rounds = if options.quick { 1 } else { 5 };
    let part = suite::find(sweep.part)?;
    let mut figures: Vec<Vec<Vec<Row>>> = sweep.variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (variant, figures) in sweep.variants.iter().zip(&mut figures) {
            figures.push(jobs::measure_with(part, sweep.ranks, options, variant.settings)?);
        }
    }
    let few = || Error::invalid("bench", "a job returned too few figures");
    let mut rows = Vec::new();
    let first = figures.first().and_then(|rounds| rounds.first()).cloned().unwrap_or_default();
    for (variant, own) in sweep.variants.iter().zip(&figures) {
        for (k, row) in first.iter().enumerate() {
            let value = |round: &Vec<Row>| round.get(k).map(|row| row.value);
            let pairs: Option<Vec<(f64, f64)>> =
                own.iter().zip(&figures[0]).map(|(a, b)| Some((value(a)?, value(b)?))).collect();
            let mut new = row.clone();
            let summary = summarise(&pairs.ok_or_else(few)?);
            new.bench = sweep.bench.to_owned();
            new.what = format!("{}: {}", variant.name, row.what);
            new.limit = sweep.variants[0].name.to_owned();
            (new.value, new.floor) = (summary.value, summary.floor);
            new.ratio = if summary.floor > 0.0 { summary.value / summary.floor } else { 0.0 };
            (new.spread, new.rounds) = (summary.spread, summary.rounds);
            if let Some(point) = &mut new.point {
                let inner = std::mem::take(&mut point.series);
                let gap = if inner.is_empty() { "" } else { ", " };
                point.series = format!("{}{gap}{inner}", variant.name);
            }
            rows.push(new);
        }
    }
    Ok(rows)
}

/// What a part measures one after the other.
pub struct Table<'c> {
    crew: &'c Crew,
    /// Whose fences the ranks meet at: unlike a barrier of the team they look after packets, so
    /// that a target that waits answers, also where no thread does that for it.
    meeting: Window<u64>,
    rows: Vec<Row>,
    batches: usize,
    /// Nanoseconds that one figure should take.
    wanted: f64,
}

impl<'c> Table<'c> {
    /// An empty one.
    pub fn new(crew: &'c Crew, effort: Effort) -> Result<Table<'c>> {
        let meeting = Window::allocate(crew.job()?.team(), 1)?;
        Ok(Table { crew, meeting, rows: Vec::new(), batches: 5, wanted: effort.batch * 10.0 })
    }

    /// Waits for all ranks. Collective.
    pub fn meet(&self) -> Result<()> {
        self.meeting.unguarded().fence(Assertions::default())
    }

    /// The median time in nanoseconds of one call of `op`, by all ranks together: calls are
    /// counted on rank 0, and all ranks make as many. Collective.
    pub fn time(&self, mut op: impl FnMut(u64) -> Result<()>) -> Result<f64> {
        let team = self.crew.job()?.team();
        let mut batch = |count: u64| -> Result<f64> {
            self.meet()?;
            let start = Instant::now();
            (0..count).try_for_each(&mut op)?;
            self.meet()?;
            let mut took = [start.elapsed().as_nanos() as f64];
            team.broadcast(Rank(0), &mut took)?;
            Ok(took[0])
        };
        let mut count = 1;
        loop {
            let took = batch(count)?.max(1.0);
            if took >= self.wanted / 4.0 || count >= 1 << 24 {
                let factor = (self.wanted / self.batches as f64 / took).max(1.0 / count as f64);
                count = ((count as f64 * factor) as u64).max(1);
                break;
            }
            count = (count as f64 * (self.wanted / took).clamp(2.0, 8.0)).ceil() as u64;
        }
        let figures: Result<Vec<f64>> =
            (0..self.batches).map(|_| Ok(batch(count)? / count as f64)).collect();
        Ok(crate::bench::stats::median(&figures?))
    }

    /// Adds a figure.
    pub fn add(&mut self, what: String, size: usize, unit: &'static str, value: f64, point: Point) {
        let heading = Heading {
            bench: "",
            what,
            size,
            limit: "",
            unit,
            goal: Goal::None,
            point: Some(point),
        };
        self.rows.push(heading.row(self.crew.size(), summarise(&[(value, value)]), None));
    }

    /// The rows, on rank 0.
    pub fn rows(self) -> Vec<Row> {
        if self.crew.leads() { self.rows } else { Vec::new() }
    }
}
