//! Teams on several nodes, with ranks that are threads and a network of queues between them: every
//! collective against what it should come to, in both forms, and messages of all sizes.

use crate::base::{Deadline, Result};
use crate::coll::each;
use crate::link::core::Core;
use crate::link::far::hub::Hub;
use crate::p2p::Endpoint;
use crate::topo::{Map, Placement};
use crate::{Job, Op, Rank, Source, Tag, Team};
use std::sync::Arc;

/// Ranks, nodes, and which are on which.
const SHAPES: [(u32, u32, &str); 8] = [
    (2, 2, "block"),
    (3, 2, "cyclic"),
    (4, 2, "block"),
    (5, 3, "block"),
    (5, 2, "cyclic:2"),
    (6, 3, "3,1,2"),
    (7, 3, "cyclic"),
    (8, 4, "block"),
];

fn placed(ranks: u32, nodes: u32, map: &str) -> Placement {
    let places = map.parse::<Map>().unwrap().places(ranks, Some(nodes));
    Placement::of(places.unwrap(), 0).unwrap()
}

fn on_nodes(
    (ranks, nodes, map): (u32, u32, &str),
    body: impl Fn(&Job) -> Result<()> + Send + Sync,
) {
    let hub = Arc::new(Hub::default());
    let connect = |node: &Arc<crate::shm::node::Node>| {
        let joined = hub.join(node);
        node.look_beyond(joined.clone());
        Core::of(node)?.reach_far(joined);
        Ok(())
    };
    let ends = Job::threads_placed(placed(ranks, nodes, map), connect, |job| {
        body(&job)?;
        job.finish()
    });
    for (rank, end) in ends.unwrap().into_iter().enumerate() {
        end.unwrap_or_else(|e| panic!("rank {rank} of {ranks} on {nodes} nodes, {map}: {e}"));
    }
}

fn word(rank: u32, i: usize) -> u64 {
    u64::from(rank) * 1_000_003 + i as u64
}

fn words(rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|i| word(rank, i)).collect()
}

/// Maps x -> a x + c: the order of ranks shows.
fn then([a, c]: [u32; 2], [b, d]: [u32; 2]) -> [u32; 2] {
    [a.wrapping_mul(b), c.wrapping_mul(b).wrapping_add(d)]
}

fn map(rank: u32, i: usize) -> [u32; 2] {
    [rank * 2 + 3, rank + i as u32]
}

fn composed(ranks: std::ops::Range<u32>, i: usize) -> [u32; 2] {
    ranks.map(|rank| map(rank, i)).reduce(then).unwrap_or([0; 2])
}

/// All collectives on one team.
fn exercise(team: &Team, len: usize) -> Result<()> {
    let (me, size) = (team.rank().0, team.size());
    let n = size as usize;
    let mine = words(me, len);
    let all: Vec<u64> = (0..size).flat_map(|rank| words(rank, len)).collect();
    team.barrier()?;
    team.ibarrier()?.wait()?;
    for root in [0, size / 2, size - 1].map(Rank) {
        let mut data = if team.rank() == root { words(root.0, len) } else { vec![0; len] };
        let begun = team.ibroadcast(root, data.clone())?;
        team.broadcast(root, &mut data)?;
        assert_eq!(data, words(root.0, len));
        assert_eq!(begun.wait()?, data);

        let leads = team.rank() == root;
        let mut gathered = if leads { vec![0; len * n] } else { Vec::new() };
        team.gather(root, &mine, &mut gathered)?;
        let expected = if leads { all.clone() } else { Vec::new() };
        assert_eq!(gathered, expected);
        assert_eq!(team.igather(root, mine.clone())?.wait()?, expected);

        let dealt = if leads { all.clone() } else { Vec::new() };
        let mut part = vec![0; len];
        team.scatter(root, &dealt, &mut part)?;
        assert_eq!(part, mine);
        assert_eq!(team.iscatter(root, dealt.clone(), len)?.wait()?, mine);

        // A length for each: rank r has r + 1 and sometimes nothing.
        let counts: Vec<usize> = (0..n).map(|r| if r % 3 == 1 { 0 } else { r + len }).collect();
        let own = words(me, counts[me as usize]);
        let total: usize = counts.iter().sum();
        let flat: Vec<u64> = (0..size).flat_map(|r| words(r, counts[r as usize])).collect();
        let mut gathered = if leads { vec![0; total] } else { Vec::new() };
        team.gatherv(root, &own, &mut gathered, &counts)?;
        assert_eq!(gathered, if leads { flat.clone() } else { Vec::new() });
        let mut part = vec![0; own.len()];
        team.scatterv(root, if leads { &flat } else { &[] }, &counts, &mut part)?;
        assert_eq!(part, own);
        let mut everything = vec![0; total];
        team.allgatherv(&own, &mut everything, &counts)?;
        assert_eq!(everything, flat);

        let mut sum = vec![0u64; len];
        team.reduce(root, Op::Sum, &mine, &mut sum)?;
        let expected: Vec<u64> = (0..len).map(|i| (0..size).map(|r| word(r, i)).sum()).collect();
        if leads {
            assert_eq!(sum, expected);
        }
        let maps: Vec<[u32; 2]> = (0..len).map(|i| map(me, i)).collect();
        let reduced = team.ireduce(root, each(then), maps)?.wait()?;
        if leads {
            (0..len).for_each(|i| assert_eq!(reduced[i], composed(0..size, i)));
        }
    }
    let mut gathered = vec![0; len * n];
    team.allgather(&mine, &mut gathered)?;
    assert_eq!(gathered, all);
    assert_eq!(team.iallgather(mine.clone())?.wait()?, all);

    let to: Vec<u64> = (0..size).flat_map(|r| words(me * 100 + r, len)).collect();
    let from: Vec<u64> = (0..size).flat_map(|r| words(r * 100 + me, len)).collect();
    let mut came = vec![0; len * n];
    team.alltoall(&to, &mut came)?;
    assert_eq!(came, from);
    let mut data = to.clone();
    team.alltoall_in_place(&mut data)?;
    assert_eq!(data, from);
    assert_eq!(team.ialltoall(to)?.wait()?, from);

    let maps: Vec<[u32; 2]> = (0..len).map(|i| map(me, i)).collect();
    let mut sum = maps.clone();
    team.allreduce(each(then), &mut sum)?;
    let mut scanned = maps.clone();
    team.scan(each(then), &mut scanned)?;
    let mut before = maps.clone();
    team.exscan(each(then), &mut before)?;
    assert_eq!(team.iscan(each(then), maps.clone())?.wait()?, scanned);
    for i in 0..len {
        assert_eq!(sum[i], composed(0..size, i));
        assert_eq!(scanned[i], composed(0..me + 1, i));
        assert_eq!(before[i], if me == 0 { maps[i] } else { composed(0..me, i) });
    }
    let blocks: Vec<[u32; 2]> = (0..len * n).map(|i| map(me, i)).collect();
    let mut block = vec![[0; 2]; len];
    team.reduce_scatter_block(each(then), &blocks, &mut block)?;
    for (i, got) in block.iter().enumerate() {
        assert_eq!(*got, composed(0..size, me as usize * len + i));
    }
    let mut one = [1u64];
    team.allreduce(Op::Sum, &mut one)?;
    assert_eq!(one, [u64::from(size)]);
    Ok(())
}

#[test]
fn collectives_of_teams_on_several_nodes_come_to_what_they_should() {
    for shape in SHAPES {
        on_nodes(shape, |job| {
            for len in [0, 1, 7, 3000] {
                exercise(job.team(), len)?;
            }
            exercise(job.node_team(), 5)
        });
    }
}

#[test]
fn parts_of_a_team_on_several_nodes_are_teams_too() {
    for shape in SHAPES {
        on_nodes(shape, |job| {
            let ranks = job.size();
            let team = job.team();
            let me = team.rank().0;
            // Backwards, so that the members of a node do not follow each other in order.
            let back = team.split(Some(0), ranks - me)?.expect("everybody takes part");
            assert_eq!(back.rank(), Rank(ranks - 1 - me));
            exercise(&back, 3)?;
            // Every other one; and again of that.
            let half = team.split(Some(me % 2), me)?.expect("everybody takes part");
            exercise(&half, 9)?;
            let quarter = half.split((half.rank().0 % 2 == 0).then_some(7), 0)?;
            match quarter {
                Some(quarter) => exercise(&quarter, 2)?,
                None => assert_eq!(half.rank().0 % 2, 1),
            }
            // Interleaved: the order of the new ranks goes back and forth between nodes.
            let mixed = team.split(Some(1), me % 2 * 100 + me)?.expect("everybody takes part");
            exercise(&mixed, 4)?;
            exercise(team, 1)
        });
    }
}

#[test]
fn messages_of_all_sizes_reach_other_nodes() {
    on_nodes((4, 2, "cyclic"), |job| {
        let team = job.team();
        let (me, size) = (team.rank().0, team.size());
        for len in [0usize, 1, 5, 47, 48, 49, 500, 4000, 5000, 70_000, 1 << 20] {
            for distance in 1..size {
                let (to, from) = ((me + distance) % size, (me + size - distance) % size);
                let data: Vec<u8> = (0..len).map(|i| (i as u32 * 7 + me) as u8).collect();
                let sending = team.isend(Rank(to), 5, data.clone())?;
                let mut came = vec![0u8; len];
                let status = team.recv(Source::Rank(Rank(from)), Tag::Exactly(5), &mut came)?;
                assert_eq!((status.source, status.bytes), (Rank(from), len));
                assert!(came.iter().enumerate().all(|(i, &b)| b == (i as u32 * 7 + from) as u8));
                sending.wait()?;
                // Before its receive is posted, and synchronously.
                let sending = team.issend(Rank(to), 6, data)?;
                team.barrier()?;
                let (came, _) = team.irecv(Source::Any, Tag::Exactly(6), vec![0u8; len])?.wait()?;
                assert_eq!(came.len(), len);
                sending.wait()?;
                team.barrier()?;
            }
        }
        Ok(())
    });
}

#[test]
fn calls_that_differ_between_nodes_are_an_error() {
    let hub = Arc::new(Hub::default());
    let connect = |node: &Arc<crate::shm::node::Node>| {
        let joined = hub.join(node);
        node.look_beyond(joined.clone());
        Core::of(node)?.reach_far(joined);
        Ok(())
    };
    let ends = Job::threads_placed(placed(4, 2, "block"), connect, |job| {
        let team = job.team().with_deadline(std::time::Duration::from_secs(20));
        // The ranks of one node make another call than those of the other.
        if team.rank().0 < 2 { team.barrier() } else { team.allreduce(Op::Sum, &mut [1u64; 4]) }
    });
    let errors = ends.unwrap().into_iter().filter(Result::is_err).count();
    assert!(errors >= 1, "nobody noticed");
}

#[test]
fn what_nobody_has_to_say_beside_the_calls_is_dropped() {
    use super::aside::{About, hear, say};
    let soon = || Deadline::after(std::time::Duration::from_secs(20));
    on_nodes((2, 2, "block"), |job| {
        let endpoint = Arc::new(Endpoint::of(job.node())?);
        let (team, other) = (77, Rank(1 - job.rank().0));
        let to = job.node().placement().slot_of(other).unwrap();
        // Longer ones of all kinds, around those that may come.
        for bytes in [21, 0, 3000, 7032, 20, 7033, 1 << 20, 1] {
            say(&endpoint, to, About::Calls, (team, job.rank().0), vec![bytes as u8; bytes])?;
        }
        let mut heard = Vec::new();
        while heard.len() < 3 {
            endpoint.progress()?;
            let came = hear(&endpoint, About::Calls, team, 20, soon(), "a test")?;
            heard.extend(came);
        }
        for ((from, bytes), length) in heard.into_iter().zip([0, 20, 1]) {
            assert_eq!((from, bytes), (other.0, vec![length as u8; length]));
        }
        job.team().barrier()
    });
}
