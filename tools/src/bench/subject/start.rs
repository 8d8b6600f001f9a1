//! How long a job takes from the command to its first barrier, beside fork and exec of as many
//! processes of the same program.

use crate::bench::floor::spawn::fork_exec;
use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::summarise;
use crate::bench::suite;
use hither::{Job, Rank, Result};
use rustix::time::{ClockId, clock_gettime};

/// Name of the part that runs inside the jobs.
pub const PART: &str = "start-part";

/// Milliseconds on the clock that all processes of the node share.
pub fn now() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

/// The part inside one job: when its first barrier was over.
pub fn part() -> Result<Vec<Row>> {
    let job = Job::init()?;
    job.team().barrier()?;
    let end = now();
    let heading = Heading {
        bench: PART,
        what: String::new(),
        size: 0,
        limit: "",
        unit: "ms",
        goal: Goal::None,
        point: None,
    };
    let row = heading.row(job.size(), summarise(&[(end, end)]), None);
    let leads = job.rank() == Rank(0);
    job.finish()?;
    Ok(if leads { vec![row] } else { vec![] })
}

/// `start`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let rounds = if options.quick { 3 } else { 15 };
    let mut rows = Vec::new();
    for ranks in [2, 8] {
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let begin = now();
            let end = jobs::measure(suite::find(PART)?, ranks, options)?;
            let job = end.first().map_or(0.0, |row| row.value) - begin;
            let floor = fork_exec(ranks, || jobs::program(&["bench", "--begun"]))?;
            pairs.push((job, floor.as_secs_f64() * 1e3));
        }
        let heading = Heading {
            bench: "start",
            what: "from the command to the first barrier".into(),
            size: 0,
            limit: "fork + exec",
            unit: "ms",
            goal: if ranks == 8 { Goal::Above(10.0) } else { Goal::None },
            point: None,
        };
        rows.push(heading.row(ranks, summarise(&pairs), None));
    }
    Ok(rows)
}
