//! What a rank costs that waits: processor time of a rank blocked in a barrier for a second,
//! beside the second of a core that it would burn if it spun.

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::row::{Goal, Heading, Row};
use crate::bench::stats::summarise;
use hither::{Rank, Result};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

fn processor_time() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

/// `idle`. Rank 0 sleeps outside the library, rank 1 waits for it.
pub fn run(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let team = crew.job()?.team();
    let sleep = Duration::from_secs(1);
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds.div_ceil(10) {
        team.barrier()?;
        let start = std::time::Instant::now();
        let before = processor_time();
        if crew.leads() {
            std::thread::sleep(sleep);
        }
        team.barrier()?;
        let mut spent = [processor_time() - before, start.elapsed().as_secs_f64() * 1e3];
        team.broadcast(Rank(1), &mut spent)?;
        rounds.push((spent[0], spent[1]));
    }
    let heading = Heading {
        bench: "idle",
        what: "processor time of a rank in a barrier".into(),
        size: 0,
        limit: "spinning for as long",
        unit: "ms",
        goal: Goal::AtMost(0.01),
        point: None,
    };
    Ok(if crew.leads() { vec![heading.row(crew.size(), summarise(&rounds), None)] } else { vec![] })
}
