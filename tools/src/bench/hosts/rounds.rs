//! The library and a program of perftest in turn, by two ranks on two machines.
//!
//! ```text
//! rank 0 (leads)                            rank 1 (follows)
//!   order: batch, count           --->        follow(count)
//!   lead(count), timed           <--->
//!   order: perftest, count        --->        the server's part (see perftest)
//!   the client's part, its figure
//!   order: end                    --->        the next comparison
//! ```
//! As [`duel`] does it inside one machine, but orders are messages: of what is measured
//! nothing is under way then.

use super::cases::Case;
use super::perftest::{Here, Test};
use crate::bench::duel::{self, Effort, Side};
use crate::bench::meter::Meter;
use crate::bench::row::{Heading, Row};
use crate::bench::stats::summarise;
use hither::{Error, Job, Rank, Result};
use std::sync::Arc;

/// Tag of orders; the sides have others.
const ORDER: u32 = 0x4f52;

const BATCH: u64 = 1;
const PERFTEST: u64 = 2;
const END: u64 = 3;

/// Operations before those that are timed: a queue pair may be gone, and memory is cold.
const WARM: u64 = 4;

/// Fewest and most operations of a program of perftest.
const FEW: u64 = 5;
const MANY: u64 = 1 << 20;

/// How often a program is started for one figure: datagrams of UD may be lost, and then it never
/// ends; another program may have taken its port meanwhile.
const ATTEMPTS: u32 = 3;

/// All comparisons, inside a job of two ranks. Collective; the rows come out on rank 0.
pub fn run(job: &Arc<Job>, cases: &[Case], effort: Effort) -> Result<Vec<Row>> {
    if job.size() != 2 {
        return Err(Error::invalid("bench", "this one is measured by two ranks"));
    }
    let here = Here::new(job)?;
    let mut rows = Vec::new();
    for case in cases {
        let absent = here.lacks(&case.test)?;
        let side = (case.make)(job, case.size)?;
        let mut comparison = Comparison { job, case, here: &here, side };
        if job.rank() == Rank(0) {
            let row = comparison.lead(effort, absent);
            // Also after an error: the other one must not wait for ever.
            let end = comparison.order(END, 0);
            rows.push(row?);
            end?;
        } else {
            comparison.follow()?;
        }
    }
    Ok(rows)
}

struct Comparison<'a> {
    job: &'a Arc<Job>,
    case: &'a Case,
    here: &'a Here,
    side: Box<dyn Side>,
}

impl Comparison<'_> {
    fn order(&self, what: u64, count: u64) -> Result<()> {
        self.job.team().send(Rank(1), ORDER, &[what, count])
    }

    fn follow(&mut self) -> Result<()> {
        loop {
            let mut order = [0u64; 2];
            self.job.team().recv(Rank(0), ORDER, &mut order)?;
            match order {
                [BATCH, count] => self.side.follow(count)?,
                [PERFTEST, count] => self.here.serve(&self.case.test, self.case.size, count)?,
                _ => return Ok(()),
            }
        }
    }

    fn lead(&mut self, effort: Effort, absent: Option<String>) -> Result<Row> {
        let count = duel::fitting(effort, (WARM, FEW), |count| self.batch(count))?;
        let mut rounds = Vec::with_capacity(effort.rounds);
        for round in 0..effort.rounds {
            let mut pair = [0.0; 2];
            // Who goes first alternates.
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                pair[side] = match (side, &absent) {
                    (0, _) => self.subject(count)?,
                    (_, None) => self.perftest(count.clamp(FEW, MANY))?,
                    (_, Some(_)) => 0.0,
                };
            }
            rounds.push((pair[0], pair[1]));
        }
        let Case { what, size, unit, goal, test: Test(limit), .. } = *self.case;
        let (what, unit) = (what.to_owned(), unit.name());
        let heading = Heading { bench: super::BENCH, what, size, limit, unit, goal, point: None };
        let mut row = heading.row(2, summarise(&rounds), None);
        if let Some(why) = absent {
            row.limit = format!("{limit}: {why}");
            row.holds = None;
        }
        Ok(row)
    }

    /// Nanoseconds of a batch of the library's side.
    fn batch(&mut self, count: u64) -> Result<f64> {
        let mut meter = Meter::whole();
        self.order(BATCH, count)?;
        self.side.lead(count, &mut meter)?;
        Ok(meter.nanoseconds())
    }

    /// The library's figure.
    fn subject(&mut self, count: u64) -> Result<f64> {
        self.batch(WARM)?;
        let took = self.batch(count)?;
        Ok(self.case.unit.figure(took, count as f64 * self.case.steps, self.case.size))
    }

    /// perftest's figure.
    fn perftest(&self, count: u64) -> Result<f64> {
        let Case { test, size, unit, .. } = self.case;
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            self.order(PERFTEST, count)?;
            match self.here.ask(test, *size, count)? {
                Ok(nanoseconds) => return Ok(unit.figure(nanoseconds, 1.0, *size)),
                Err(said) => why = said,
            }
        }
        Err(Error::invalid("perftest", format!("{} failed {ATTEMPTS} times: {why}", test.0)))
    }
}
