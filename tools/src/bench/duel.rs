//! Two sides measured next to each other: A B A B ..., so that whatever else happens on the
//! machine happens to both.

use super::clock;
use super::crew::{Crew, Order};
use super::meter::Meter;
use super::row::{Goal, Heading, Point, Row, Unit};
use super::stats::summarise;
use hither::Result;

/// One way to do what a benchmark measures. Every rank holds its own part.
pub trait Side {
    /// Rank 0: does `count` operations and times them.
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()>;

    /// The other ranks: take part in a batch of `count` operations. Nothing to do where the
    /// leader works alone.
    fn follow(&mut self, count: u64) -> Result<()> {
        let _ = count;
        Ok(())
    }
}

/// The two sides of a comparison.
pub struct Pair {
    /// The library.
    pub subject: Box<dyn Side>,
    /// The raw limit.
    pub floor: Box<dyn Side>,
}

/// Sets up a rank's part of the two sides. Collective.
pub type Setup = Box<dyn Fn(&Crew) -> Result<Pair>>;

/// One comparison.
pub struct Case {
    /// What it is.
    pub heading: Heading,
    /// What its figures are counted in.
    pub unit: Unit,
    /// Counted operations per operation of a side: 2 where a round trip is two messages.
    pub steps: f64,
    /// Whether to report the 99th percentile of single operations.
    pub tail: bool,
    /// Makes the sides.
    pub setup: Setup,
}

impl Case {
    /// A comparison of latencies.
    pub fn latency(
        bench: &'static str,
        what: impl Into<String>,
        size: usize,
        limit: &'static str,
        goal: Goal,
        setup: impl Fn(&Crew) -> Result<Pair> + 'static,
    ) -> Case {
        let what = what.into();
        let unit = Unit::Nanoseconds;
        let heading = Heading { bench, what, size, limit, unit: unit.name(), goal, point: None };
        Case { heading, unit, steps: 1.0, tail: true, setup: Box::new(setup) }
    }

    /// Counts in another unit. Rates are measured in whole batches, so they have no tail.
    pub fn counted_in(mut self, unit: Unit) -> Case {
        self.unit = unit;
        self.heading.unit = unit.name();
        self.tail = false;
        self
    }

    /// The figure is one of a sweep.
    pub fn on(mut self, point: Point) -> Case {
        self.heading.point = Some(point);
        self
    }

    /// Each operation of a side is a round trip, of which the figure is half.
    pub fn one_way(mut self) -> Case {
        self.steps = 2.0;
        self
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of A B.
    pub rounds: usize,
    /// Nanoseconds of one batch.
    pub batch: f64,
    /// Single operations for the tail.
    pub singles: u64,
}

impl Effort {
    /// For figures.
    pub const FULL: Effort = Effort { rounds: 41, batch: 1e6, singles: 100_000 };
    /// For a first look.
    pub const QUICK: Effort = Effort { rounds: 9, batch: 1e5, singles: 2_000 };
    /// To see that all runs.
    pub const LEAST: Effort = Effort { rounds: 2, batch: 1e4, singles: 100 };
}

/// Runs one comparison. Collective; the row comes out on rank 0.
pub fn run(crew: &Crew, case: &Case, effort: Effort) -> Result<Option<Row>> {
    let pair = (case.setup)(crew)?;
    let mut sides = [pair.subject, pair.floor];
    if crew.leads() {
        let row = lead(crew, case, effort, &mut sides);
        crew.conclude(row).map(Some)
    } else {
        follow(crew, &mut sides)?;
        Ok(None)
    }
}

/// The others' part of a comparison: whatever batches the leader orders.
pub fn follow(crew: &Crew, sides: &mut [Box<dyn Side>; 2]) -> Result<()> {
    while let Order::Batch { side, count } = crew.next()? {
        sides[side % 2].follow(count)?;
        crew.complete();
    }
    Ok(())
}

/// One batch of a side, on all ranks; nanoseconds.
pub fn batch(
    crew: &Crew,
    sides: &mut [Box<dyn Side + '_>],
    side: usize,
    count: u64,
    meter: &mut Meter,
) -> Result<f64> {
    crew.order(Order::Batch { side, count })?;
    sides[side].lead(count, meter)?;
    crew.completed()?;
    Ok(meter.nanoseconds())
}

/// Finds how many operations fill a batch; warms up on the way.
pub fn calibrate(
    crew: &Crew,
    sides: &mut [Box<dyn Side>],
    side: usize,
    effort: Effort,
) -> Result<u64> {
    calibrate_from(crew, sides, side, effort, (16, 4))
}

/// The same for what takes long: the first count that is tried, and the least.
pub fn calibrate_from(
    crew: &Crew,
    sides: &mut [Box<dyn Side + '_>],
    side: usize,
    effort: Effort,
    (first, least): (u64, u64),
) -> Result<u64> {
    fitting(effort, (first, least), |count| batch(crew, sides, side, count, &mut Meter::whole()))
}

/// The same with whatever runs a batch of so many operations and says how many nanoseconds it took.
pub fn fitting(
    effort: Effort,
    (first, least): (u64, u64),
    mut batch: impl FnMut(u64) -> Result<f64>,
) -> Result<u64> {
    let mut count = first;
    loop {
        let mut took = batch(count)?.max(1.0);
        if took >= effort.batch / 3.0 {
            // What comes first also maps memory and fills caches: only again it tells.
            took = batch(count)?.max(1.0);
        }
        if took >= effort.batch / 3.0 || count > 1 << 30 {
            let wanted = count as f64 * effort.batch / took;
            return Ok((wanted as u64).clamp(least, 1 << 30));
        }
        let more = count as f64 * (effort.batch / took).clamp(1.5, 8.0);
        count = (more as u64).max(count + 1);
    }
}

fn lead(crew: &Crew, case: &Case, effort: Effort, sides: &mut [Box<dyn Side>; 2]) -> Result<Row> {
    let counts = [calibrate(crew, sides, 0, effort)?, calibrate(crew, sides, 1, effort)?];
    let figure = |nanoseconds: f64, side: usize| {
        case.unit.figure(nanoseconds, counts[side] as f64 * case.steps, case.heading.size)
    };
    let mut rounds = Vec::with_capacity(effort.rounds);
    for round in 0..effort.rounds {
        let mut pair = [0.0; 2];
        // Who goes first alternates: neither side always profits from the other's warmth.
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let took = batch(crew, sides, side, counts[side], &mut Meter::whole())?;
            pair[side] = figure(took, side);
        }
        rounds.push((pair[0], pair[1]));
    }
    let mut p99 = None;
    if case.tail {
        let mut meter = Meter::each();
        // At most 50 ms of them.
        let count = counts[0].saturating_mul((5e7 / effort.batch) as u64).min(effort.singles);
        batch(crew, sides, 0, count.max(100), &mut meter)?;
        let scale = clock::nanoseconds_per_tick() / case.steps;
        p99 = meter.percentile(99.0).map(|ticks| ticks * scale);
    }
    Ok(case.heading.row(crew.size(), summarise(&rounds), p99))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::block::Block;

    /// Runs `check` on every rank of a crew of threads without a job.
    pub fn with_crew(size: u32, check: impl Fn(Crew) + Sync) {
        let fd = Block::create().unwrap();
        std::thread::scope(|scope| {
            for rank in 0..size {
                let (fd, check) = (&fd, &check);
                scope.spawn(move || {
                    check(Crew::bare(rank, size, Block::map(fd).unwrap()).unwrap());
                });
            }
        });
    }

    /// Runs batches of one side, both as a whole and one by one, on `size` threads.
    pub fn exercise<S: Side + 'static>(size: u32, make: impl Fn(&Crew) -> Result<S> + Sync) {
        with_crew(size, |crew| {
            let mut side = make(&crew).unwrap();
            for count in [1, 2, 1000, 777] {
                if crew.leads() {
                    crew.order(Order::Batch { side: 0, count }).unwrap();
                    side.lead(count, &mut Meter::whole()).unwrap();
                    crew.completed().unwrap();
                    crew.order(Order::Batch { side: 0, count }).unwrap();
                    side.lead(count, &mut Meter::each()).unwrap();
                    crew.completed().unwrap();
                } else {
                    for _ in 0..2 {
                        assert_eq!(crew.next().unwrap(), Order::Batch { side: 0, count });
                        side.follow(count).unwrap();
                        crew.complete();
                    }
                }
            }
        });
    }

    struct Count(u64);
    impl Side for Count {
        fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
            meter.run(count, |i| {
                self.0 = std::hint::black_box(self.0 + i);
                Ok(())
            })
        }
    }

    struct Fails;
    impl Side for Fails {
        fn lead(&mut self, _: u64, _: &mut Meter) -> Result<()> {
            Err(hither::Error::invalid("a side", "that fails"))
        }
    }

    #[test]
    fn a_comparison_gives_one_row_on_the_leader() {
        let effort = Effort { rounds: 3, batch: 1e4, singles: 10 };
        with_crew(3, |crew| {
            let case = Case::latency("b", "w", 8, "l", Goal::AtMost(1.5), |_| {
                Ok(Pair { subject: Box::new(Count(0)), floor: Box::new(Count(0)) })
            });
            let row = run(&crew, &case, effort).unwrap();
            assert_eq!(row.is_some(), crew.leads());
            if let Some(row) = row {
                assert_eq!((row.ranks, row.rounds, row.size), (3, 3, 8));
                assert!(row.value > 0.0 && row.ratio == row.value / row.floor);
                assert!(row.p99.is_some() && row.holds == Some(row.value <= 1.5 * row.floor));
            }
        });
    }

    #[test]
    fn an_error_of_the_leader_releases_the_others() {
        with_crew(2, |crew| {
            let case = Case::latency("b", "w", 8, "l", Goal::None, |_| {
                Ok(Pair { subject: Box::new(Fails), floor: Box::new(Count(0)) })
            });
            let result = run(&crew, &case, Effort::QUICK);
            // The follower ends either way; the leader reports.
            assert_eq!(result.is_err(), crew.leads());
        });
    }
}
