//! `overhead`: the time that a transfer keeps a program from computing, and the share that it
//! leaves it (paper 002, figures 3 to 6), by size: of one-sided transfers here, of sends and
//! receives in [`messages`].
//!
//! ```text
//! rank 0    post; work; wait    timed, [`overhead`](crate::bench::overhead) says how much work
//! rank 1    its side of the transfer, then it waits in a fence, where it makes progress
//! ```
//! Work is a chain of operations, counted: what it takes is told by the same work alone, so that a
//! core that others use as well makes both slower, not the difference larger.
//!
//! Reading the clock counts as transfer and not as overhead. Where the transfer takes no more than
//! some hundred nanoseconds, availability comes out too high by that; the overhead does not.

pub mod messages;

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::overhead::{Method, Outcome, Run};
use crate::bench::row::{Point, Row};
use crate::bench::stats::median;
use crate::bench::subject::variants::{self, Sweep, Table, Variant};
use hither::{LockAllEpoch, Rank, Result, Window};
use std::hint::black_box;
use std::time::Instant;

/// The part inside the jobs.
pub const PART: &str = "overhead-part";

const MEDIA: &[Variant] = &[
    Variant { name: "direct", settings: &[] },
    Variant { name: "packets", settings: &[("HITHER_RMA_MEDIUM", "packets")] },
    Variant {
        name: "packets, no thread",
        settings: &[("HITHER_RMA_MEDIUM", "packets"), ("HITHER_PROGRESS", "calls")],
    },
];

/// `overhead`: jobs that move data in each of the ways.
pub fn overhead(options: &Options) -> Result<Vec<Row>> {
    let sweep = Sweep { bench: "overhead", part: PART, ranks: 2, variants: MEDIA };
    let mut rows = variants::run(&sweep, options)?;
    rows.extend(messages::run(options)?);
    Ok(rows)
}

const PEER: Rank = Rank(1);
/// Bytes of the largest transfer.
const MOST: usize = 1 << 22;
/// Transfers of which the median is taken.
const REPEATS: usize = 9;
/// Times that the last amount of work is done beside a transfer and alone, in turn: the difference is some hundred
/// nanoseconds of several hundred thousand.
const PAIRS: usize = 37;
/// Transfers before anything is timed.
const COLD: usize = 10;

/// Operations of the work that take a nanosecond.
struct Pace(f64);

/// A chain of so many operations, each of which needs the one before.
fn work(operations: u64) {
    let mut x = 1.0f64;
    for _ in 0..operations {
        x = black_box(x * 0.999 + 0.1);
    }
}

impl Pace {
    fn measure() -> Pace {
        const OPERATIONS: u64 = 200_000;
        let times: Vec<f64> = (0..9)
            .map(|_| {
                let start = Instant::now();
                work(OPERATIONS);
                start.elapsed().as_nanos() as f64
            })
            .collect();
        Pace(OPERATIONS as f64 / median(&times).max(1.0))
    }

    fn work(&self, nanoseconds: f64) {
        work((nanoseconds * self.0) as u64);
    }
}

/// One kind of transfer.
trait Transfer {
    /// Name of its rows.
    fn name(&self) -> &'static str;
    /// Rank 0, not timed: waits until rank 1 is where it should be when this one begins.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }
    /// Rank 0: begins one, computes, and waits for it.
    fn lead(&mut self, bytes: usize, work: &mut dyn FnMut()) -> Result<()>;
    /// Rank 1: its side.
    fn follow(&mut self, bytes: usize) -> Result<()>;
}

/// A put; its flush is the wait.
struct Put<'a>(&'a LockAllEpoch<'a, u8>, Vec<u8>);

impl Transfer for Put<'_> {
    fn name(&self) -> &'static str {
        "put; work; flush"
    }

    fn lead(&mut self, bytes: usize, work: &mut dyn FnMut()) -> Result<()> {
        self.0.put(PEER, 0, &self.1[..bytes])?;
        work();
        self.0.flush(PEER)
    }

    fn follow(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// A get with a request.
struct Get<'a>(&'a LockAllEpoch<'a, u8>);

impl Transfer for Get<'_> {
    fn name(&self) -> &'static str {
        "get_request; work; wait"
    }

    fn lead(&mut self, bytes: usize, work: &mut dyn FnMut()) -> Result<()> {
        let request = self.0.get_request(PEER, 0, bytes)?;
        work();
        request.wait().map(|data| drop(black_box(data)))
    }

    fn follow(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// One transfer, with so many nanoseconds of work: what rank 0 took for it. Collective.
fn transfer_once(
    crew: &Crew,
    table: &Table<'_>,
    transfer: &mut dyn Transfer,
    bytes: usize,
    work: impl Fn(),
) -> Result<f64> {
    let mut took = 0.0;
    table.meet()?;
    if crew.leads() {
        transfer.ready()?;
        let start = Instant::now();
        transfer.lead(bytes, &mut || work())?;
        took = start.elapsed().as_nanos() as f64;
    } else if crew.rank() == PEER.0 {
        transfer.follow(bytes)?;
    }
    table.meet()?;
    Ok(took)
}

/// Goes through the method with one transfer of so many bytes. Collective.
fn measure(
    crew: &Crew,
    table: &Table<'_>,
    transfer: &mut dyn Transfer,
    (bytes, repeats): (usize, usize),
) -> Result<Outcome> {
    let team = crew.job()?.team();
    let pace = Pace::measure();
    let mut run = Run::new(Method::PAPER);
    // A first iteration that meets cold pages would pass for a long transfer, and hide the work
    // of many others.
    let mut warm = false;
    loop {
        // Rank 0 has the curve; less than nothing ends it.
        let mut amount = [run.next().unwrap_or(-1.0)];
        team.broadcast(Rank(0), &mut amount)?;
        if amount[0] < 0.0 {
            break;
        }
        let mut times = Vec::with_capacity(repeats);
        let cold = if std::mem::replace(&mut warm, true) { 0 } else { COLD };
        for round in 0..cold + repeats {
            let took = transfer_once(crew, table, transfer, bytes, || pace.work(amount[0]))?;
            if round >= cold {
                times.push(took);
            }
        }
        if crew.leads() {
            run.add(amount[0], median(&times));
        }
    }
    let mut beyond = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let last = run.last_work();
        let took = transfer_once(crew, table, transfer, bytes, || pace.work(last))?;
        if crew.leads() {
            let start = Instant::now();
            pace.work(last);
            beyond.push(took - start.elapsed().as_nanos() as f64);
        }
    }
    if !crew.leads() {
        return Ok(Outcome { transfer: 0.0, overhead: 0.0, availability: 0.0 });
    }
    run.finish(median(&beyond))
}

/// Titles of the two diagrams.
struct Titles {
    overhead: &'static str,
    availability: &'static str,
}

/// Every transfer by size.
fn sweep(
    crew: &Crew,
    effort: Effort,
    transfers: &mut [&mut dyn Transfer],
    titles: &Titles,
) -> Result<Vec<Row>> {
    let mut table = Table::new(crew, effort)?;
    let quick = effort.rounds < Effort::FULL.rounds;
    // In a quick run fewer sizes, 1 MiB among them.
    let step = if quick { 5 } else { 2 };
    for transfer in transfers {
        for shift in (10..=22).step_by(step) {
            let outcome = measure(crew, &table, &mut **transfer, (1 << shift, REPEATS))?;
            let name = transfer.name();
            let at = |figure: &str| Point::new(figure, name, "bytes", f64::from(1u32 << shift));
            // Never quite 0: a row stands beside another variant's.
            let overhead = (outcome.overhead / 1e3).max(1e-3);
            let availability = (outcome.availability * 100.0).max(0.01);
            table.add(format!("{name}, overhead"), 1 << shift, "µs", overhead, at(titles.overhead));
            let what = format!("{name}{AVAILABILITY}");
            table.add(what, 1 << shift, "%", availability, at(titles.availability));
        }
    }
    Ok(table.rows())
}

/// What rows of availability end with.
const AVAILABILITY: &str = ", availability";

/// Inside a job: one-sided transfers.
pub fn part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let titles = Titles {
        overhead: "Overhead of one-sided transfers, by size (002, figures 3 and 5)",
        availability: "Application availability of one-sided transfers, by size (002, figures 4 and 6)",
    };
    let window = Window::<u8>::allocate(crew.job()?.team(), MOST)?;
    let epoch = window.lock_all()?;
    let rows =
        sweep(crew, effort, &mut [&mut Put(&epoch, vec![1; MOST]), &mut Get(&epoch)], &titles)?;
    epoch.unlock_all()?;
    Ok(rows)
}
