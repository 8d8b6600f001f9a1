//! All that jobs of several nodes are for.

use hither::coll::each;
use hither::rma::Memory;
use hither::{Any, Job, Op, Rank, Result, Team, Window};

/// Maps x -> a x + c, one after the other: the order of ranks shows.
fn then([a, c]: [u64; 2], [b, d]: [u64; 2]) -> [u64; 2] {
    [a.wrapping_mul(b), c.wrapping_mul(b).wrapping_add(d)]
}

/// Messages, collectives and windows where ranks are on these nodes: a list with commas.
pub fn everything(job: Job, nodes: &str) -> Result<String> {
    let nodes: Vec<u32> = nodes.split(',').map(|node| node.parse().expect("a node")).collect();
    let (team, me, size) = (job.team(), job.rank().0, job.size());
    assert_eq!(size as usize, nodes.len());
    let near: Vec<u32> =
        (0..size).filter(|&rank| nodes[rank as usize] == nodes[me as usize]).collect();
    let mut in_node = vec![0; near.len()];
    job.node_team().allgather(&[me], &mut in_node)?;
    assert_eq!(in_node, near, "neighbours, in the order of their ranks");

    let map = |rank: u32| [u64::from(rank) * 2 + 3, u64::from(rank)];
    let composed = |ranks: std::ops::Range<u32>| ranks.map(map).reduce(then);
    let mut data = [map(me)];
    team.allreduce(each(then), &mut data)?;
    assert_eq!(Some(data[0]), composed(0..size));
    data = [map(me)];
    team.scan(each(then), &mut data)?;
    assert_eq!(Some(data[0]), composed(0..me + 1));
    data = [map(me)];
    team.exscan(each(then), &mut data)?;
    assert_eq!(data[0], composed(0..me).unwrap_or(map(me)));
    let ranks: Vec<u32> = (0..size).collect();
    for root in team.ranks() {
        let leads = root.0 == me;
        let mut sum = [[0; 2]];
        team.reduce(root, each(then), &[map(me)], &mut sum)?;
        assert!(!leads || Some(sum[0]) == composed(0..size));
        let mut all = vec![0; if leads { ranks.len() } else { 0 }];
        team.gather(root, &[me], &mut all)?;
        assert!(!leads || all == ranks);
        let mut own = [0];
        team.scatter(root, &all, &mut own)?;
        assert_eq!(own, [me]);
        let mut said = [root.0 * u32::from(leads)];
        team.broadcast(root, &mut said)?;
        assert_eq!(said, [root.0]);
    }
    let mut all = vec![0; ranks.len()];
    team.allgather(&[me], &mut all)?;
    assert_eq!(all, ranks);
    let to: Vec<u32> = ranks.iter().map(|rank| me * 100 + rank).collect();
    team.alltoall(&to, &mut all)?;
    assert!(ranks.iter().all(|rank| all[*rank as usize] == rank * 100 + me));

    // Small and large, with whom in turn.
    for distance in 1..size {
        let (to, from) = (Rank((me + distance) % size), (me + size - distance) % size);
        for len in [1, 30_000] {
            let sent = team.isend(to, 3, vec![me; len])?;
            let mut got = vec![0u32; len];
            let status = team.recv(Any, 3, &mut got)?;
            assert_eq!(status.source, Rank(from));
            assert!(got.iter().all(|value| *value == from));
            sent.wait()?;
            team.barrier()?;
        }
    }

    // Everybody writes, adds and reads everywhere.
    let window = Window::<u64>::allocate(team, ranks.len() + 1)?;
    let epoch = window.lock_all()?;
    for target in team.ranks() {
        epoch.put(target, me as usize, &[u64::from(me * 10 + target.0)])?;
        epoch.accumulate(target, ranks.len(), Op::Sum, &[1])?;
    }
    epoch.flush_all()?;
    team.barrier()?;
    for target in team.ranks() {
        let mut got = vec![0; ranks.len() + 1];
        epoch.get(target, 0, &mut got)?;
        epoch.flush(target)?;
        let wrote = |rank: &u32| u64::from(rank * 10 + target.0);
        assert_eq!(got.pop(), Some(u64::from(size)));
        assert!(got.into_iter().eq(ranks.iter().map(wrote)));
    }
    epoch.unlock_all()?;
    window.free()?;
    let window = Window::<u64>::builder(team).dynamic()?;
    let attached = window.attach(&Memory::private(vec![0u64; ranks.len()]))?;
    let mut addresses = vec![0; ranks.len()];
    team.allgather(&[attached.address], &mut addresses)?;
    let epoch = window.lock_all()?;
    for target in team.ranks() {
        let at = addresses[target.index()] as usize;
        epoch.put(target, at + 8 * me as usize, &[u64::from(me)])?;
    }
    epoch.flush_all()?;
    team.barrier()?;
    let mut got = vec![0; ranks.len()];
    let near_one = Rank(near[near.len() - 1]);
    epoch.get(near_one, addresses[near_one.index()] as usize, &mut got)?;
    epoch.flush(near_one)?;
    assert!(got.into_iter().eq((0..size).map(u64::from)));
    epoch.unlock_all()?;
    team.barrier()?;
    window.detach(attached)?;
    window.free()?;
    // Of both nodes, backwards, and what goes on after it.
    let back = team.split(Some(me % 2), size - me)?.expect("everybody takes part");
    go_on(&back)?;
    go_on(team)?;
    job.finish()?;
    Ok("all of it".into())
}

/// All that a team is for.
pub fn go_on(team: &Team) -> Result<()> {
    let size = u64::from(team.size());
    let me = u64::from(team.rank().0);
    let next = Rank((team.rank().0 + 1) % team.size());
    let mut sum = [me];
    team.allreduce(Op::Sum, &mut sum)?;
    assert_eq!(sum, [size * (size - 1) / 2]);
    let sent = team.isend(next, 5, vec![me; 1000])?;
    let mut got = vec![0u64; 1000];
    team.recv(Rank((team.rank().0 + team.size() - 1) % team.size()), 5, &mut got)?;
    assert!(got.iter().all(|&value| value == (me + size - 1) % size));
    sent.wait()?;
    let window = Window::<u64>::allocate(team, 4)?;
    let epoch = window.lock_all()?;
    for target in team.ranks() {
        epoch.accumulate(target, 3, Op::Sum, &[me])?;
    }
    epoch.unlock_all()?;
    team.barrier()?;
    assert_eq!(window.local().get(3)?, size * (size - 1) / 2);
    window.free()
}
