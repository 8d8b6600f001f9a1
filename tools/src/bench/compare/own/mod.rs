//! hither's side: `hither bench own BATCH BATCHES NAME:BYTES ...` as a rank of a job measures the
//! same loops as the programs of `benches/peers`, with the limits beside them, and says so in the
//! same lines.

mod applications;
mod collectives;
pub mod floors;
mod messages;
mod onesided;
mod overhead;
mod sums;

use super::workload::{self, Group, Measure, Workload};
use crate::bench::crew::{Crew, Order};
use crate::bench::duel::{self, Effort, Side};
use crate::bench::meter::Meter;
use crate::bench::stats::median;
use crate::bench::subject::{memory, start};
use hither::{Error, Job, Op, Rank, Result};
use std::cell::Cell;

/// Arguments of `hither bench own`.
#[derive(clap::Args)]
pub struct Args {
    /// Nanoseconds of a batch
    batch: f64,
    /// Batches
    batches: usize,
    /// What to measure: NAME:BYTES
    items: Vec<String>,
}

/// What every rank does for `n` turns of a workload's loop.
type Run<'a> = Box<dyn FnMut(u64) -> Result<()> + 'a>;

/// A loop as a side: rank 0 is timed.
struct Loop<'a>(Run<'a>);

/// Where a loop puts how many operations its last run had.
type Counted<'a> = &'a Cell<f64>;

impl Side for Loop<'_> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| (self.0)(count))
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (self.0)(count)
    }
}

/// Windows of some messages of so many bytes still have room in a machine's memory.
const LARGEST: usize = 1 << 28;

fn parse(item: &str) -> Result<(&'static Workload, usize)> {
    let wrong = || Error::invalid("bench own", format!("\"{item}\" is not NAME:BYTES"));
    let (name, size) = item.split_once(':').ok_or_else(wrong)?;
    let (_, workload) = workload::find(name).ok_or_else(wrong)?;
    let size = size.parse().map_err(|_| wrong())?;
    if size > LARGEST {
        let why = format!("\"{item}\": BYTES are {LARGEST} at most");
        return Err(Error::invalid("bench own", why));
    }
    Ok((workload, size))
}

/// Runs a rank.
pub fn run(args: &Args) -> Result<()> {
    let items = args.items.iter().map(|item| parse(item)).collect::<Result<Vec<_>>>()?;
    if items.iter().any(|(workload, _)| workload.group == Group::Start) {
        return begin();
    }
    let crew = Crew::new(Job::init()?)?;
    let effort = Effort { rounds: args.batches.max(1), batch: args.batch, singles: 0 };
    for ((workload, size), item) in items.iter().zip(&args.items) {
        if crew.leads() {
            println!("@ {item}");
        }
        let task = Item { crew: &crew, workload, size: *size, effort, item };
        if let Some(figures) = task.measure()? {
            let text: Vec<String> = figures.iter().map(|x| format!("{x:.6e}")).collect();
            println!("= {item} {}", text.join(" "));
        }
    }
    crew.finish()
}

/// Joins a job, and says when its first barrier was over and what memory that took.
fn begin() -> Result<()> {
    memory::figures()?;
    let before = memory::figures()?;
    let job = Job::init()?;
    job.team().barrier()?;
    let end = start::now();
    let mut grown = [memory::figures()?[1] - before[1]];
    job.team().allreduce(Op::Max, &mut grown)?;
    if job.rank() == Rank(0) {
        println!("@ start:0\n= start:0 {end:.6}\n@ memory:0\n= memory:0 {:.1}", grown[0]);
    }
    job.finish()
}

/// What is measured, by whom and for how long.
struct Item<'a> {
    crew: &'a Crew,
    workload: &'static Workload,
    size: usize,
    effort: Effort,
    /// As it was asked for.
    item: &'a str,
}

fn make(crew: &Crew, workload: &Workload, size: usize) -> Result<Run<'static>> {
    match workload.group {
        Group::Messages | Group::Pairs | Group::Bandwidth => {
            messages::make(crew, workload.name, size)
        }
        Group::OneSided => onesided::make(crew, workload.name, size),
        Group::Sums => sums::make(crew, workload.name, size),
        Group::Collectives => collectives::make(crew, workload.name, size),
        _ => Err(unknown(workload.name)),
    }
}

impl Item<'_> {
    /// The medians of the workload, of its limit, if it has one, and of its floor, if that is another; on the
    /// leader.
    fn measure(&self) -> Result<Option<Vec<f64>>> {
        match self.workload.group {
            Group::Overhead => return overhead::measure(self),
            Group::Halo => return applications::halo(self),
            Group::Graph => return applications::graph(self),
            Group::Genome => return applications::genome(self),
            _ => {}
        }
        self.time(make(self.crew, self.workload, self.size)?)
    }

    /// Says what was computed, as programs of others do.
    fn prove(&self, proof: u64) {
        if self.crew.leads() {
            println!("# {} {proof:016x}", self.item);
        }
    }

    /// The same of a loop.
    fn time(&self, run: Run<'_>) -> Result<Option<Vec<f64>>> {
        let mut sides: Vec<Box<dyn Side + '_>> = vec![Box::new(Loop(run))];
        for floor in floors::make(self.crew, self.workload.name, self.size)? {
            sides.push(floor);
        }
        self.time_sides(sides, &[])
    }

    /// The same of sides that there are, of which the first ones count their operations themselves.
    fn time_sides(
        &self,
        mut sides: Vec<Box<dyn Side + '_>>,
        counted: &[Counted<'_>],
    ) -> Result<Option<Vec<f64>>> {
        let crew = self.crew;
        if !crew.leads() {
            while let Order::Batch { side, count } = crew.next()? {
                let at = side % sides.len();
                sides[at].follow(count)?;
                crew.complete();
            }
            return Ok(None);
        }
        let medians = self.lead(&mut sides, counted);
        crew.conclude(medians).map(Some)
    }

    fn lead(&self, sides: &mut [Box<dyn Side + '_>], counted: &[Counted<'_>]) -> Result<Vec<f64>> {
        let (crew, workload, effort) = (self.crew, self.workload, self.effort);
        let counts_from = workload.least.map_or((16, 4), |least| (least, least));
        let mut counts = Vec::new();
        for side in 0..sides.len() {
            counts.push(duel::calibrate_from(crew, sides, side, effort, counts_from)?);
        }
        let mut figures = vec![Vec::new(); sides.len()];
        for side in self.order(sides.len()) {
            let took = duel::batch(crew, sides, side, counts[side], &mut Meter::whole())?.max(1.0);
            let turns = || workload.operations(counts[side], self.size, crew.size());
            let operations = counted.get(side).map_or_else(turns, |counted| counted.get());
            figures[side].push(match workload.measure {
                Measure::Of(unit) => unit.figure(took, operations, self.size),
                Measure::Percent | Measure::Milliseconds | Measure::Kibibytes => took,
            });
        }
        let medians: Vec<f64> = figures.iter().map(|each| median(each)).collect();
        let (mut limits, mut floor) = (&medians[1..], None);
        if let (Some(_), Some((last, others))) =
            (floors::floor_name(workload.name), limits.split_last())
        {
            (limits, floor) = (others, Some(*last));
        }
        let less = workload.measure.less_is_better();
        let limit = limits.iter().copied().reduce(|a, b| if less { a.min(b) } else { a.max(b) });
        Ok(medians[..1].iter().copied().chain(limit).chain(floor).collect())
    }

    /// Which side has each batch. They take turns where what one leaves behind is nothing to the others: not
    /// where it fills the caches, or decides where the system has put ranks that share cores.
    fn order(&self, sides: usize) -> Vec<usize> {
        let rounds = self.effort.rounds;
        let apart = self.crew.shares_cores() || self.workload.group == Group::Bandwidth;
        let place = |i: usize| if apart { i / rounds } else { i % sides };
        (0..rounds * sides).map(place).collect()
    }
}

/// A workload that a group's part does not know.
fn unknown(name: &str) -> Error {
    Error::invalid("bench own", format!("there is no loop for {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_workload_or_has_no_room_is_refused() {
        assert!(
            parse("bandwidth:1048576")
                .is_ok_and(|(it, size)| it.name == "bandwidth" && size == 1 << 20)
        );
        for senseless in
            ["bandwidth", "nonsense:8", "bandwidth:-5", "bandwidth:x", "bandwidth:268435457"]
        {
            assert!(parse(senseless).is_err(), "{senseless}");
        }
    }
}
