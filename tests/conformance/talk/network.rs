//! What is counted of the connections to other nodes, and that they change as it says.

use crate::Written;
use hither::{Job, Rank, Result};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[("talk_promotions_are_counted", promotions)];

/// Who talks to another node by datagrams gets a queue pair, and goes on by it.
fn promotions(job: &Job) -> Result<()> {
    let Some(before) = job.link().network_counters() else {
        return job.team().barrier();
    };
    // On another node, whether ranks follow each other or are dealt out, unless it is this one.
    let partner = Rank(job.size() - 1 - job.rank().0);
    if job.link().node().is_local(job.team().slot_of(partner)?) {
        return job.team().barrier();
    }
    let end = Instant::now() + Duration::from_secs(60);
    // Where queue pairs are cut, or few, others may have got them.
    let given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let sure = !given("HITHER_NET_FAULTS") && !given("HITHER_NET_PAIR_LIMIT");
    for round in 0u32.. {
        let now = job.link().network_counters().expect("there are other nodes");
        assert!(now.by_pairs >= before.by_pairs && now.datagrams >= before.datagrams);
        let done = now.promotions > 0 && now.by_pairs > before.by_pairs;
        assert!(done || !sure || Instant::now() < end, "no queue pair after {round}: {now:?}");
        let (mine, mut other) = ([u32::from(done || !sure && round > 500)], [0u32]);
        job.team().sendrecv(partner, 1, &mine, partner, 1, &mut other)?;
        if mine == [1] && other == [1] {
            break;
        }
    }
    let now = job.link().network_counters().expect("there are other nodes");
    // It was asked for by datagrams, and each change has an end.
    assert!(now.datagrams > 0 && now.switches <= now.promotions + now.returns, "{now:?}");
    job.team().barrier()
}
