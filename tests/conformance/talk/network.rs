//! What is counted of the connections to other nodes, and that they change as it says.

use crate::{Written, brief};
use hither::{Error, Job, Rank, Result};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("talk_promotions_are_counted", promotions),
    ("talk_thresholds_rise_between_nodes", thresholds),
];

/// On another node, whether ranks follow each other or are dealt out, unless it is this one.
fn partner(job: &Job) -> Result<Option<Rank>> {
    let partner = Rank(job.size() - 1 - job.rank().0);
    let near = job.link().node().is_local(job.team().slot_of(partner)?);
    Ok((!near).then_some(partner))
}

/// Whether nothing is in the way of queue pairs: where they are cut, or few, others may have got them.
fn sure() -> bool {
    let given = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !given("HITHER_NET_FAULTS") && !given("HITHER_NET_PAIR_LIMIT")
}

/// Who talks to another node by datagrams gets a queue pair, and goes on by it.
fn promotions(job: &Job) -> Result<()> {
    let Some(before) = job.link().network_counters() else {
        return job.team().barrier();
    };
    let Some(partner) = partner(job)? else { return job.team().barrier() };
    let end = Instant::now() + brief(60_000);
    let sure = sure();
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
    let changes = now.promotions + now.returns + now.thresholds;
    assert!(now.datagrams > 0 && now.switches <= changes, "{now:?}");
    job.team().barrier()
}

/// Large messages that overlap with something else come to go with their data, by queue pairs whose
/// thresholds rise with their sizes; and all of them come, in order, whichever way they went.
fn thresholds(job: &Job) -> Result<()> {
    if job.link().network_counters().is_none() {
        return job.team().barrier();
    }
    let Some(partner) = partner(job)? else { return job.team().barrier() };
    let (team, me, sure) = (job.team(), job.rank().0, sure());
    let end = Instant::now() + brief(60_000);
    let words = |size: usize, round: u32, from: u32| {
        (0..size as u32 / 4).map(move |i| i ^ round << 8 ^ from << 24)
    };
    let mut round = 0u32;
    for size in [12_000usize, 60_000, 200_000] {
        for since in 0u32.. {
            let out: Vec<u32> = words(size, round, me).collect();
            let receive = team.irecv(partner, 1, vec![0u32; size / 4])?;
            let behind = team.irecv(partner, 1, vec![0u32])?;
            // The small one must not overtake the other.
            let (large, small) =
                (team.isend(partner, 1, out)?, team.isend(partner, 1, vec![round])?);
            // What does not take half as long as the transfer does not overlap with it.
            std::thread::sleep(Duration::from_millis(2 << (since / 64).min(7)));
            let ((data, _), (after, _)) = (receive.wait()?, behind.wait()?);
            large.wait()?;
            small.wait()?;
            assert!(data.into_iter().eq(words(size, round, partner.0)), "round {round}");
            assert_eq!(after, [round]);
            round += 1;
            let now = job.link().network_counters().expect("there are other nodes");
            let done = now.eager_threshold >= size as u64;
            assert!(done || !sure || Instant::now() < end, "{size} B after {since}: {now:?}");
            let (mine, mut other) = ([u32::from(done || !sure && since > 100)], [0u32]);
            team.sendrecv(partner, 2, &mine, partner, 2, &mut other)?;
            if mine == [1] && other == [1] {
                break;
            }
        }
    }
    // Thresholds are those of tagged messages: the link's own are as long as they were.
    let (slot, long) = (team.slot_of(partner)?, [0; hither::link::MAX_MESSAGE + 1]);
    let refused = job.link().try_send(slot, 1, 0, &long);
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    let now = job.link().network_counters().expect("there are other nodes");
    // From one queue pair to another; memory for it at the receiver.
    assert!(!sure || now.thresholds > 0 && now.pool_bytes_peak > 0, "{now:?}");
    team.barrier()
}
