//! Jobs on several nodes in one process: what goes between them, who dies, and what cannot be.

use hither::topo::Map;
use hither::world::{Simulation, VirtualNetwork};
use hither::{Error, Job, Op, Rank, Result, Window};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

fn sum_and_put(job: Job) -> Result<(u32, u64)> {
    let mut sum = [job.rank().0];
    job.team().allreduce(Op::Sum, &mut sum)?;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let next = Rank((job.rank().0 + 1) % job.size());
    let epoch = window.fence()?;
    epoch.put(next, 0, &[u64::from(job.rank().0) + 100])?;
    epoch.end()?;
    let came = window.local().get(0)?;
    window.free()?;
    job.finish()?;
    Ok((sum[0], came))
}

#[test]
fn ranks_of_any_nodes_reach_each_other() {
    let slow = VirtualNetwork {
        latency: Duration::from_millis(2),
        jitter: Duration::from_millis(3),
        bandwidth: 10_000_000,
        ..VirtualNetwork::default()
    };
    for (ranks, nodes, map) in [(1, 1, "block"), (4, 2, "cyclic"), (5, 3, "2,1,2")] {
        let simulation = Simulation::new(ranks, nodes).map(map.parse::<Map>().unwrap());
        let all = simulation.network(slow).run(sum_and_put).unwrap();
        for (rank, result) in (0..ranks).zip(all) {
            let before = u64::from((rank + ranks - 1) % ranks);
            assert_eq!(result.unwrap(), (ranks * (ranks - 1) / 2, before + 100));
        }
    }
}

#[test]
fn a_rank_that_dies_is_noticed_on_other_nodes() {
    let seen = Mutex::new(Vec::new());
    let end = catch_unwind(AssertUnwindSafe(|| {
        Simulation::new(3, 3).run(|job| {
            job.team().barrier().unwrap();
            assert_ne!(job.rank(), Rank(1), "on purpose");
            seen.lock().unwrap().push(job.team().barrier());
        })
    }));
    assert!(end.is_err(), "the panic goes on in the caller");
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 2);
    // One of them may hear of it from the other.
    assert!(seen.iter().all(Result::is_err), "{seen:?}");
    let died = |error: &Error| matches!(error, Error::RankDied { rank: Rank(1), .. });
    assert!(seen.iter().flat_map(|end| end.as_ref().err()).any(died), "{seen:?}");
}

#[test]
fn what_cannot_be_is_an_error() {
    for (ranks, nodes) in [(0, 1), (2, 0), (2, 3), (u32::MAX, 2)] {
        assert!(Simulation::new(ranks, nodes).run(|_| ()).is_err(), "{ranks} on {nodes}");
    }
    let narrow = VirtualNetwork { datagram: 10, ..VirtualNetwork::default() };
    assert!(Simulation::new(2, 2).network(narrow).run(|_| ()).is_err());
}
