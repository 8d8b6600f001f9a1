//! Private memory of a process that takes part in a job, for growing jobs: what `smaps_rollup`
//! counts as private after joining, less what it counted before. Nobody communicates.

use crate::bench::jobs::{self, Options};
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::{median, summarise};
use crate::bench::suite;
use hither::{Error, Job, Op, Rank, Result};

/// Name of the part that runs inside the jobs.
pub const PART: &str = "memory-part";

/// Private resident bytes of this process in KiB: pages that nobody else maps.
pub fn private_kib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .map_err(|e| Error::os("reading smaps_rollup", e))?;
    Ok(sum_private(&text))
}

fn sum_private(rollup: &str) -> f64 {
    rollup
        .lines()
        .filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
        .sum()
}

/// The part inside one job.
pub fn part() -> Result<Vec<Row>> {
    let before = private_kib()?;
    let job = Job::init()?;
    let mut kib = [private_kib()? - before];
    // What is asked of one process is asked of the largest.
    job.team().allreduce(Op::Max, &mut kib)?;
    let heading = Heading {
        bench: PART,
        what: String::new(),
        size: 0,
        limit: "",
        unit: "KiB",
        goal: Goal::None,
        point: None,
    };
    let row = heading.row(job.size(), summarise(&[(kib[0], kib[0])]), None);
    let leads = job.rank() == Rank(0);
    job.finish()?;
    Ok(if leads { vec![row] } else { vec![] })
}

/// `memory`.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let sizes: &[u32] = if options.quick { &[2, 8] } else { &[2, 4, 8, 16, 32, 64] };
    let rounds = if options.quick { 1 } else { 3 };
    let figure = |ranks| -> Result<f64> {
        let mut values = Vec::new();
        for _ in 0..rounds {
            let rows = jobs::measure(suite::find(PART)?, ranks, options)?;
            values.extend(rows.first().map(|row| row.value));
        }
        Ok(median(&values))
    };
    let mut rows = Vec::new();
    let mut smallest = None;
    for &ranks in sizes {
        let value = figure(ranks)?;
        let floor = *smallest.get_or_insert(value);
        let heading = Heading {
            bench: "memory",
            what: "private memory of the largest process".into(),
            size: 0,
            limit: "2 ranks",
            unit: "KiB",
            goal: Goal::Both(1.01, 256.0),
            point: None,
        };
        let mut summary = summarise(&[(value, floor)]);
        summary.rounds = rounds;
        rows.push(heading.row(ranks, summary, None));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_lines_are_summed_and_others_not() {
        let text = "55 rollup\nRss: 90 kB\nPrivate_Clean:   12 kB\nPrivate_Dirty:  30 kB\n\
                    Private_Hugetlb: 7 kB\n";
        assert_eq!(sum_private(text), 42.0);
        assert!(private_kib().unwrap() > 0.0);
    }
}
