//! The forms with a length for each member, zero among them, packed and with gaps.

use super::super::Written;
use super::{Space, filled};
use hither::coll::Parts;
use hither::{Job, Result};

pub const CASES: &[Written] = &[
    ("coll/gatherv", gatherv),
    ("coll/scatterv", scatterv),
    ("coll/allgatherv", allgatherv),
    ("coll/alltoallv", alltoallv),
];

/// Lengths of a round; every kind of size meets every rank.
fn lengths(ranks: u32, round: usize) -> Vec<usize> {
    const KINDS: [usize; 9] = [0, 1, 40, 47, 48, 49, 300, 16_385, 40_000];
    (0..ranks as usize)
        .map(|rank| match round {
            0 => 0,
            1 => 5,
            _ => KINDS[(rank * 5 + round * 2) % KINDS.len()],
        })
        .collect()
}

const ROUNDS: usize = 8;

/// Starts with gaps of three elements, in reverse order of ranks.
fn starts(counts: &[usize]) -> Vec<usize> {
    let mut next = 3;
    let mut starts = vec![0; counts.len()];
    for rank in (0..counts.len()).rev() {
        starts[rank] = next;
        next += counts[rank] + 3;
    }
    starts
}

fn room(counts: &[usize]) -> usize {
    counts.iter().sum::<usize>() + 3 * counts.len() + 3
}

/// A buffer with `block(rank)` at the starts and 9 in the gaps.
fn spread(counts: &[usize], block: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let mut all = vec![9; room(counts)];
    for (rank, start) in starts(counts).into_iter().enumerate() {
        all[start..start + counts[rank]].copy_from_slice(&block(rank as u32));
    }
    all
}

fn gatherv(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().index(), team.size());
    for root in team.ranks() {
        for round in 0..ROUNDS {
            let counts = lengths(n, round);
            let block = |rank: u32| filled(rank, round, counts[rank as usize]);
            let mine = block(me as u32);
            let leads = team.rank() == root;
            let mut all = vec![9; room(&counts)];
            let begins = starts(&counts);
            team.gatherv(root, &mine, &mut all, Parts::at(&counts, &begins))?;
            let want = if leads { spread(&counts, block) } else { vec![9; all.len()] };
            assert!(all == want, "root {root}, round {round}");
            let known = if leads { &counts[..] } else { &[] };
            let begun = team.igatherv(root, mine, known)?.wait()?;
            let want: Vec<u8> = (0..n).filter(|_| leads).flat_map(block).collect();
            assert!(begun == want, "begun, root {root}, round {round}");
        }
    }
    Ok(())
}

fn scatterv(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().index(), team.size());
    for root in team.ranks() {
        for round in 0..ROUNDS {
            let counts = lengths(n, round);
            let block = |rank: u32| filled(rank, round, counts[rank as usize]);
            let leads = team.rank() == root;
            let (all, begins) = (spread(&counts, block), starts(&counts));
            let mut mine = vec![0; counts[me]];
            team.scatterv(root, &all, Parts::at(&counts, &begins), &mut mine)?;
            assert!(mine == block(me as u32), "root {root}, round {round}");
            let packed: Vec<u8> = (0..n).filter(|_| leads).flat_map(block).collect();
            let known = if leads { &counts[..] } else { &[] };
            let begun = team.iscatterv(root, packed, known, counts[me])?.wait()?;
            assert!(begun == block(me as u32), "begun, root {root}, round {round}");
        }
    }
    Ok(())
}

fn allgatherv(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    for mapped in [false, true] {
        let mut space = Space::new(team, mapped, 400_000, 0u8)?;
        for round in 0..ROUNDS {
            let counts = lengths(n, round);
            let block = |rank: u32| filled(rank, round, counts[rank as usize]);
            let begins = starts(&counts);
            let all = space.filled(&vec![9; room(&counts)]);
            team.allgatherv(&block(me), all, Parts::at(&counts, &begins))?;
            assert!(*all == spread(&counts, block), "round {round}");
            let begun = team.iallgatherv(block(me), &counts)?.wait()?;
            assert!(begun == (0..n).flat_map(block).collect::<Vec<_>>(), "begun, round {round}");
        }
    }
    Ok(())
}

fn alltoallv(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    for round in 0..ROUNDS {
        let len = |from: u32, to: u32| lengths(n, round + from as usize)[to as usize];
        let block = |from: u32, to: u32| filled(from * 40 + to, round, len(from, to));
        let to: Vec<usize> = (0..n).map(|rank| len(me, rank)).collect();
        let from: Vec<usize> = (0..n).map(|rank| len(rank, me)).collect();
        let send = spread(&to, |rank| block(me, rank));
        let mut recv = vec![9; room(&from)];
        let begins = (starts(&to), starts(&from));
        let parts = (Parts::at(&to, &begins.0), Parts::at(&from, &begins.1));
        team.alltoallv(&send, parts.0, &mut recv, parts.1)?;
        assert!(recv == spread(&from, |rank| block(rank, me)), "round {round}");
        let packed: Vec<u8> = (0..n).flat_map(|rank| block(me, rank)).collect();
        let begun = team.ialltoallv(packed, &to, &from)?.wait()?;
        let want: Vec<u8> = (0..n).flat_map(|rank| block(rank, me)).collect();
        assert!(begun == want, "begun, round {round}");
    }
    Ok(())
}
