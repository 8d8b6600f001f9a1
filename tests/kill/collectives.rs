//! Workloads of collectives of every kind, with points between their steps.

use super::fuse::at;
use super::windows::Work;
use hither::coll::each;
use hither::{Op, Rank, Result, Team};

pub const WORKS: &[Work] = &[
    Work {
        name: "collectives",
        points: &["between collectives", "inside an operation"],
        mapped: true,
        run: collectives,
    },
    Work {
        name: "collectives begun",
        points: &["with collectives begun", "between waits", "inside an operation"],
        mapped: true,
        run: begun,
    },
];

/// Adds, and is a point to die at: in the middle of a collective.
fn add(a: u32, b: u32) -> u32 {
    at("inside an operation");
    a.wrapping_add(b)
}

fn root(team: &Team, round: u32) -> Rank {
    Rank(round % team.size())
}

/// Small and large by turns.
fn len(round: u32) -> usize {
    [1, 14, 15, 300, 4097, 20_000][round as usize % 6]
}

/// The sum of what ranks below `end` have in a round.
fn sum(end: u32, round: u32) -> u32 {
    (0..end).map(|rank| rank + round).sum()
}

fn collectives(team: &Team, rounds: u32) -> Result<()> {
    let (me, n) = (team.rank().0, team.size());
    for round in 0..rounds {
        let (root, len) = (root(team, round), len(round / 11));
        let mine = vec![me + round; len];
        let mut data = mine.clone();
        let mut all = vec![me + round; len * n as usize];
        let by_rank =
            |all: &[u32]| all.chunks(len).zip(0..).all(|(got, r)| *got == vec![r + round; len]);
        match round % 11 {
            0 => {
                team.broadcast(root, &mut data)?;
                assert!(data == vec![root.0 + round; len]);
            }
            1 => {
                team.gather(root, &mine, &mut all)?;
                assert!(team.rank() != root || by_rank(&all));
            }
            2 => {
                team.scatter(root, &all, &mut data)?;
                assert!(data == vec![root.0 + round; len]);
            }
            3 => {
                team.allgather(&mine, &mut all)?;
                assert!(by_rank(&all));
            }
            4 => {
                team.alltoall_in_place(&mut all)?;
                assert!(by_rank(&all));
            }
            5 => {
                let counts: Vec<usize> = (0..n as usize).map(|rank| rank * 10).collect();
                let mine = vec![me + round; counts[me as usize]];
                let mut all = vec![0; counts.iter().sum()];
                team.allgatherv(&mine, &mut all, &counts)?;
                team.gatherv(root, &mine, &mut all, &counts)?;
                let last = n - 1;
                assert!(all.last().is_none_or(|value| *value == last + round));
            }
            6 => {
                team.allreduce(each(add), &mut data)?;
                assert!(data == vec![sum(n, round); len]);
            }
            7 => {
                team.reduce_in_place(root, each(add), &mut data)?;
                assert!(team.rank() != root || data == vec![sum(n, round); len]);
            }
            8 => {
                team.reduce_scatter_block(each(add), &all, &mut data)?;
                assert!(data == vec![sum(n, round); len]);
            }
            9 => {
                team.scan(each(add), &mut data)?;
                assert!(data == vec![sum(me + 1, round); len]);
            }
            _ => {
                team.exscan(Op::Sum, &mut data)?;
                assert!(me == 0 || data == vec![sum(me, round); len]);
            }
        }
        at("between collectives");
    }
    Ok(())
}

fn begun(team: &Team, rounds: u32) -> Result<()> {
    let (me, n) = (team.rank().0, team.size());
    for round in 0..rounds {
        let (root, len) = (root(team, round), len(round));
        let mine = vec![me + round; len];
        let first = team.ibroadcast(root, mine.clone())?;
        let second = team.iallreduce(each(add), mine.clone())?;
        let third = team.ialltoall(vec![me + round; len * n as usize])?;
        drop(team.iallgather(mine.clone())?);
        let last = team.iscan(Op::Sum, mine)?;
        at("with collectives begun");
        assert!(last.wait()? == vec![sum(me + 1, round); len]);
        at("between waits");
        assert!(first.wait()? == vec![root.0 + round; len]);
        assert!(second.wait()? == vec![sum(n, round); len]);
        let all = third.wait()?;
        assert!(all.chunks(len).zip(0..).all(|(got, r)| *got == vec![r + round; len]));
        team.barrier()?;
    }
    Ok(())
}
