//! `instructions`: how many an operation takes, and how many its limit does. What does not vary from run to run, as
//! times do; where a goal is missed it says whether more is done than has to be.
//!
//! The cases are those of the other benchmarks, of small operations. Whoever is waited for is ahead, since counting
//! slows down the one that is counted: waits end with their first poll. Loops of the benchmark are counted, too,
//! on both sides; and counts are of the program as it was compiled.

use super::{active, coll, link, talk, window};
use crate::bench::crew::{Crew, Order};
use crate::bench::duel::{self, Case, Effort, Side, batch};
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::summarise;
use crate::bench::steps;
use hither::Result;

/// Whoever waits does so awake: to be woken takes instructions, too.
pub const SETTINGS: &[(&str, &str)] = &[("HITHER_SPIN", "4000000000")];

/// Operations before the first count, after which connections are what they stay.
const WARMING: u64 = 2000;
/// Operations of the two counts whose difference tells.
const FEW: u64 = 4;
const MANY: u64 = 20;
/// Such differences at most, until one comes a second time.
const ROUNDS: usize = 200;
/// How much two may differ that are the same.
const SAME: f64 = 0.01;

/// Small operations. Of rates of messages it is the sender that is counted.
fn cases() -> Vec<Case> {
    let all = [
        window::put,
        window::get,
        window::atomics,
        active::cases,
        coll::barrier,
        coll::allreduce,
        link::lane,
        talk::pair_cases,
    ];
    all.into_iter().flat_map(|cases| cases()).filter(|it| it.heading.size <= 8).collect()
}

/// Instructions of one operation of a side, as one difference of counts says.
fn difference(
    crew: &Crew,
    sides: &mut [Box<dyn Side>; 2],
    side: usize,
    per_operation: f64,
) -> Result<f64> {
    let mut counted = |count| {
        crew.order(Order::Batch { side, count })?;
        let (_, steps) = steps::count(|| sides[side].lead(count, &mut Meter::whole()))?;
        crew.completed()?;
        Ok::<_, hither::Error>(steps as f64)
    };
    let (few, many) = (counted(FEW)?, counted(MANY)?);
    Ok((many - few) / (MANY - FEW) as f64 / per_operation)
}

/// What several differences say: the smallest that there is twice, nearly. One that somebody had to be waited for
/// in, who had no core just then, is any.
fn settled(figures: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.iter().copied().filter(|figure| *figure > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.windows(2).find(|two| two[1] - two[0] <= SAME * two[0]).map(|two| two[0])
}

fn one(
    crew: &Crew,
    sides: &mut [Box<dyn Side>; 2],
    side: usize,
    per_operation: f64,
) -> Result<f64> {
    let mut figures = Vec::new();
    while figures.len() < ROUNDS {
        figures.push(difference(crew, sides, side, per_operation)?);
        if let Some(figure) = settled(&figures) {
            return Ok(figure);
        }
    }
    let why = "counts differ each time, as somebody is waited for who has no core; run it while nothing else runs";
    Err(hither::Error::invalid("instructions", why))
}

fn lead(crew: &Crew, case: &Case, sides: &mut [Box<dyn Side>; 2]) -> Result<Row> {
    for side in [0, 1] {
        batch(crew, sides, side, WARMING, &mut Meter::whole())?;
    }
    let both = (one(crew, sides, 0, case.steps)?, one(crew, sides, 1, case.steps)?);
    let bench = "instructions";
    let what = format!("{}: {}", case.heading.bench, case.heading.what);
    let heading = Heading { bench, what, unit: "instr", goal: Goal::None, ..case.heading.clone() };
    Ok(heading.row(crew.size(), summarise(&[both]), None))
}

/// `instructions`.
pub fn run(crew: &Crew, _: Effort) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if !steps::COUNTS {
        if crew.leads() {
            eprintln!("instructions: they can be counted on x86-64 processors only");
        }
        return Ok(rows);
    }
    for case in cases() {
        let pair = (case.setup)(crew)?;
        let mut sides = [pair.subject, pair.floor];
        if crew.leads() {
            let row = lead(crew, &case, &mut sides);
            rows.push(crew.conclude(row)?);
        } else {
            duel::follow(crew, &mut sides)?;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_count_that_comes_twice_is_it() {
        assert_eq!(settled(&[]), None);
        assert_eq!(settled(&[120.0]), None);
        assert_eq!(settled(&[120.0, 4000.0, -300.0, -300.0]), None);
        assert_eq!(settled(&[4000.0, 120.5, 4001.0, 120.0]), Some(120.0));
    }

    #[test]
    fn cases_are_small_operations() {
        let cases = cases();
        assert!(cases.len() > 10 && cases.iter().all(|case| case.heading.size <= 8));
    }
}
