//! What a change of the eager threshold between two nodes takes (paper 000 fig. 12), from asking for
//! it to the end of the old queue pair, while messages go on: both ranks send and receive messages of
//! a size and sleep in between, until the threshold covers them; then larger ones. Beside it, what a
//! small message takes to the other rank and back by the same queue pair.

use super::net;
use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Point, Row};
use crate::bench::stats::summarise;
use crate::bench::suite;
use hither::link::NetworkCounters;
use hither::{Error, Job, Op, Rank, Result};
use std::time::{Duration, Instant};

/// Name of the part that runs inside the jobs.
pub const PART: &str = "net-switch-part";

/// Logarithms of the sizes that come one after the other.
const EXPONENTS: [u32; 4] = [14, 16, 18, 20];

/// What is beside the bytes of a message as thresholds count them.
const HEADER: usize = 64;

/// Time that a transfer overlaps with, and after which a threshold that does not come is given up.
const NAP: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Round trips that are averaged.
const TRIPS: u32 = 200;

/// All jobs of it.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let jobs = if options.least {
        1
    } else if options.quick {
        3
    } else {
        9
    };
    let part = suite::find(PART)?;
    let mut rounds = vec![Vec::new(); EXPONENTS.len()];
    for _ in 0..jobs {
        let rows = jobs::measure_between(part, 2, options)?;
        for (rounds, row) in rounds.iter_mut().zip(rows) {
            rounds.push((row.value, row.floor));
        }
    }
    let row = |(exponent, rounds): (&u32, &Vec<_>)| {
        let size = 1usize << exponent;
        heading(size).row(2, summarise(rounds), None)
    };
    Ok(EXPONENTS.iter().zip(&rounds).map(row).collect())
}

fn heading(size: usize) -> Heading {
    let figure = "Between nodes: time of a switch by threshold";
    Heading {
        bench: net::BENCH,
        what: "switch of the eager threshold".into(),
        size,
        limit: "a small message and its answer",
        unit: "µs",
        goal: Goal::None,
        point: Some(Point::new(figure, "by queue pairs", "bytes", size as f64)),
    }
}

fn counters(job: &Job) -> Result<NetworkCounters> {
    let counters = job.link().network_counters();
    counters.ok_or_else(|| Error::invalid("bench", "this one needs ranks on two nodes"))
}

/// The part inside one job.
pub fn part(crew: &Crew, _: Effort) -> Result<Vec<Row>> {
    let job = crew.job()?;
    let mut rows = Vec::new();
    for exponent in EXPONENTS {
        let size = 1usize << exponent;
        let before = counters(job)?;
        raise(job, size - HEADER)?;
        let now = counters(job)?;
        let spent = now.switch_nanoseconds - before.switch_nanoseconds;
        let mut all = [now.switches - before.switches, spent];
        job.team().allreduce(Op::Sum, &mut all)?;
        let switch = all[1] as f64 / all[0].max(1) as f64 / 1e3;
        let trip = round_trip(job)?;
        rows.push(heading(size).row(crew.size(), summarise(&[(switch, trip)]), None));
    }
    Ok(if crew.leads() { rows } else { vec![] })
}

/// Sends and receives messages of a size until they go with their data both ways, and the change is
/// complete.
fn raise(job: &Job, size: usize) -> Result<()> {
    let (team, partner) = (job.team(), Rank(1 - job.rank().0));
    let end = Instant::now() + PATIENCE;
    let mut settled = 0;
    loop {
        let receive = team.irecv(partner, 1, vec![0u8; size])?;
        let send = team.isend(partner, 1, vec![0u8; size])?;
        std::thread::sleep(NAP);
        receive.wait()?;
        send.wait()?;
        let now = counters(job)?;
        // The side that has asked learns last that it is over.
        let mut all = [u32::from(now.eager_threshold >= size as u64)];
        team.allreduce(Op::Sum, &mut all)?;
        settled = if all == [2] { settled + 1 } else { 0 };
        if settled > 3 {
            return Ok(());
        }
        if Instant::now() > end {
            let why = format!("the threshold does not rise to {size} bytes: {now:?}");
            return Err(Error::invalid("bench", why));
        }
    }
}

/// Microseconds of a small message and its answer.
fn round_trip(job: &Job) -> Result<f64> {
    let (team, partner) = (job.team(), Rank(1 - job.rank().0));
    let begin = Instant::now();
    for _ in 0..TRIPS {
        let mut got = [0u64];
        if job.rank().0 == 0 {
            team.send(partner, 2, &[1u64])?;
            team.recv(partner, 2, &mut got)?;
        } else {
            team.recv(partner, 2, &mut got)?;
            team.send(partner, 2, &[1u64])?;
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS))
}
