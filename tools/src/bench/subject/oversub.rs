//! More ranks than cores: what operations cost at 4 ranks on 2 cores, beside the same at 2.
//!
//! Every rank works with its right neighbour. A batch ends with a barrier, and the figure is the
//! batch's time over the number of operations: what the slowest rank saw, whoever had the cores.

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::{median, summarise};
use crate::bench::suite;
use hither::am::Call;
use hither::{Deadline, Error, Op, Rank, Result, Window};
use std::time::Instant;

/// Name of the part that runs inside the jobs.
pub const PART: &str = "oversub-part";

/// One batch on every rank; the leader's time per operation in nanoseconds.
fn batch(crew: &Crew, count: u64, mut op: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let team = crew.job()?.team();
    team.barrier()?;
    let start = Instant::now();
    (0..count).try_for_each(&mut op)?;
    team.barrier()?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// The median of some batches that take about 20 ms.
fn figure(crew: &Crew, mut op: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let team = crew.job()?.team();
    let mut count = [64u64];
    loop {
        let mut took = [batch(crew, count[0], &mut op)?];
        team.broadcast(Rank(0), &mut took)?;
        let total = took[0] * count[0] as f64;
        if total > 1e7 || count[0] > 1 << 24 {
            break;
        }
        count[0] = (count[0] as f64 * (2e7 / total.max(1.0)).clamp(2.0, 16.0)) as u64;
    }
    let mut figures = Vec::new();
    for _ in 0..5 {
        figures.push(batch(crew, count[0], &mut op)?);
    }
    Ok(median(&figures))
}

/// The part inside one job: every operation's figure as a row of its own.
pub fn part(crew: &Crew, _: Effort) -> Result<Vec<Row>> {
    let team = crew.job()?.team();
    let right = Rank((crew.rank() + 1) % crew.size());
    let window = Window::<u64>::allocate(team, 8)?;
    let handler = window.register(1, |call: Call<'_, u64, u64, u64>| {
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + call.input[0]);
        call.output[0] = old;
    })?;
    let mut rows = Vec::new();
    let mut add = |what: &str, size, value: f64| {
        let heading = Heading {
            bench: PART,
            what: what.into(),
            size,
            limit: "",
            unit: "ns",
            goal: Goal::None,
            point: None,
        };
        rows.push(heading.row(crew.size(), summarise(&[(value, value)]), None));
    };
    add("barrier", 0, figure(crew, |_| team.barrier())?);
    add("allreduce", 8, figure(crew, |i| team.allreduce(Op::Sum, &mut [i]))?);
    let epoch = window.lock_all()?;
    let put = figure(crew, |i| {
        epoch.put(right, 0, &[i])?;
        epoch.flush(right)
    })?;
    add("put, flush", 8, put);
    add("fetch_and_op", 8, figure(crew, |_| epoch.fetch_and_op(right, 1, Op::Sum, 1).map(drop))?);
    let mut output = [0];
    let call = figure(crew, |_| epoch.am(&handler, right, 2..3, &[1], &mut output))?;
    add("active message", 8, call);
    // Everybody at rank 0: the lock changes hands among sleepers.
    let call = figure(crew, |_| epoch.am(&handler, Rank(0), 3..4, &[1], &mut output))?;
    add("active message, all on one", 8, call);
    epoch.unlock_all()?;
    add("8 B to the right neighbour", 8, neighbours(crew, right)?);
    Ok(if crew.leads() { rows } else { vec![] })
}

/// Every rank sends to its right neighbour and receives from its left one.
fn neighbours(crew: &Crew, right: Rank) -> Result<f64> {
    let (link, team) = (crew.job()?.link(), crew.job()?.team());
    let right = team.slot_of(right)?;
    let left = team.slot_of(Rank((crew.rank() + crew.size() - 1) % crew.size()))?;
    let check = || link.node().check([left].into_iter(), "a benchmark");
    let mut waiting = 0;
    figure(crew, |i| {
        link.send(right, 0, 0, &i.to_ne_bytes(), Deadline::NEVER)?;
        while waiting == 0 {
            waiting += link.recv_wait(Deadline::NEVER, check, |_| ())?;
        }
        waiting -= 1;
        Ok(())
    })
}

/// `oversub`: jobs of 4 and of 2 ranks in turn.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let rounds = if options.quick { 1 } else { 5 };
    let part = suite::find(PART)?;
    let mut few = Vec::new();
    let mut many = Vec::new();
    for _ in 0..rounds {
        many.push(jobs::measure(part, 4, options)?);
        few.push(jobs::measure(part, 2, options)?);
    }
    let first = few.first().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    for (k, row) in first.iter().enumerate() {
        let pairs: Option<Vec<(f64, f64)>> = many
            .iter()
            .zip(&few)
            .map(|(many, few)| Some((many.get(k)?.value, few.get(k)?.value)))
            .collect();
        let pairs =
            pairs.ok_or_else(|| Error::invalid("bench", "a job returned too few figures"))?;
        let heading = Heading {
            bench: "oversub",
            what: row.what.clone(),
            size: row.size,
            limit: "2 ranks on 2 cores",
            unit: "ns",
            goal: Goal::AtMost(3.0),
            point: None,
        };
        rows.push(heading.row(4, summarise(&pairs), None));
    }
    Ok(rows)
}
