//! What moves data without changing it, with one length for all.

use super::super::Written;
use super::{LARGEST, SIZES, Space, filled, pattern};
use hither::{Job, Result};

pub const CASES: &[Written] = &[
    ("coll/broadcast", broadcast),
    ("coll/gather", gather),
    ("coll/scatter", scatter),
    ("coll/allgather", allgather),
    ("coll/alltoall", alltoall),
    ("coll/wide_elements", wide),
    ("coll/again_and_again", again),
];

fn broadcast(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank().0;
    for mapped in [false, true] {
        let mut space = Space::new(team, mapped, LARGEST, 0u8)?;
        for root in team.ranks() {
            for (round, size) in SIZES.into_iter().enumerate() {
                let want = filled(root.0, round, size);
                let data = space.filled(&filled(me, round, size));
                team.broadcast(root, data)?;
                assert!(*data == want, "root {root}, {size} bytes");
                let begun = team.ibroadcast(root, filled(me, round, size))?;
                assert!(begun.wait()? == want, "begun, root {root}, {size} bytes");
            }
        }
    }
    Ok(())
}

/// Everybody's data one after the other.
fn together(ranks: u32, round: usize, each: usize) -> Vec<u8> {
    (0..ranks).flat_map(|rank| filled(rank, round, each)).collect()
}

fn gather(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    for mapped in [false, true] {
        let mut input = Space::new(team, mapped, LARGEST, 0u8)?;
        let mut output = Space::new(team, mapped, LARGEST * n as usize, 0u8)?;
        for root in team.ranks() {
            for (round, each) in SIZES.into_iter().enumerate() {
                let leads = team.rank() == root;
                let want = together(n, round, each);
                let mine = input.filled(&filled(me, round, each));
                let all = output.filled(&vec![9; if leads { want.len() } else { 3 }]);
                team.gather(root, mine, all)?;
                assert!(if leads { *all == want } else { *all == [9; 3] }, "{root}, {each}");
                let begun = team.igather(root, filled(me, round, each))?.wait()?;
                assert!(begun == if leads { want.clone() } else { vec![] }, "begun {each}");
                let mut data = if leads { vec![0; want.len()] } else { mine.to_vec() };
                if leads {
                    data[me as usize * each..(me as usize + 1) * each].copy_from_slice(mine);
                }
                team.gather_in_place(root, &mut data)?;
                assert!(data == if leads { want } else { mine.to_vec() }, "in place {each}");
            }
        }
    }
    Ok(())
}

fn scatter(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    for mapped in [false, true] {
        let mut input = Space::new(team, mapped, LARGEST * n as usize, 0u8)?;
        for root in team.ranks() {
            for (round, each) in SIZES.into_iter().enumerate() {
                let leads = team.rank() == root;
                // Block r is what rank r would have in this round.
                let all = together(n, round, each);
                let want = filled(me, round, each);
                let mut mine = vec![0; each];
                let source = input.filled(if leads { &all } else { &[] });
                team.scatter(root, source, &mut mine)?;
                assert!(mine == want, "root {root}, {each} bytes");
                let source = if leads { all.clone() } else { vec![] };
                assert!(team.iscatter(root, source, each)?.wait()? == want, "begun {each}");
                let mut data = if leads { all.clone() } else { vec![0; each] };
                team.scatter_in_place(root, &mut data)?;
                assert!(data == if leads { all } else { want }, "in place {each}");
            }
        }
    }
    Ok(())
}

fn allgather(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    for mapped in [false, true] {
        let mut output = Space::new(team, mapped, LARGEST * n as usize, 0u8)?;
        for (round, each) in SIZES.into_iter().enumerate() {
            let want = together(n, round, each);
            let mine = filled(me, round, each);
            let all = output.filled(&vec![9; want.len()]);
            team.allgather(&mine, all)?;
            assert!(*all == want, "{each} bytes");
            assert!(team.iallgather(mine.clone())?.wait()? == want, "begun, {each} bytes");
            let mut start = vec![0; want.len()];
            start[me as usize * each..(me as usize + 1) * each].copy_from_slice(&mine);
            let all = output.filled(&start);
            team.allgather_in_place(all)?;
            assert!(*all == want, "in place, {each} bytes");
        }
    }
    Ok(())
}

fn alltoall(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    // The block from a rank to another.
    let block = |from: u32, to: u32, round: usize, each: usize| filled(from * 40 + to, round, each);
    for mapped in [false, true] {
        let mut input = Space::new(team, mapped, LARGEST * n as usize, 0u8)?;
        for (round, each) in SIZES.into_iter().enumerate() {
            let send: Vec<u8> = (0..n).flat_map(|to| block(me, to, round, each)).collect();
            let want: Vec<u8> = (0..n).flat_map(|from| block(from, me, round, each)).collect();
            let mut recv = vec![9; want.len()];
            let source = input.filled(&send);
            team.alltoall(source, &mut recv)?;
            assert!(recv == want, "{each} bytes");
            assert!(team.ialltoall(send.clone())?.wait()? == want, "begun, {each} bytes");
            team.alltoall_in_place(source)?;
            assert!(*source == want, "in place, {each} bytes");
        }
    }
    Ok(())
}

/// Large private data so often that all ways are tried that they may take (see `coll::ways`), mixed with data in the
/// node's memory, which take one of their own.
fn again(job: &Job) -> Result<()> {
    const EACH: usize = 33_000;
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    let mut mapped = Space::new(team, true, EACH, 0u8)?;
    for round in 0..24 {
        let root = hither::Rank(round as u32 % n);
        let leads = me == root.0;
        let (mine, want) = (filled(me, round, EACH), filled(root.0, round, EACH));
        let mut own = mine.clone();
        let data = if round % 5 == 4 { mapped.filled(&mine) } else { &mut own[..] };
        team.broadcast(root, data)?;
        assert!(*data == want, "broadcast {round}");

        let all = together(n, round, EACH);
        let mut gathered = vec![9; if leads { all.len() } else { 0 }];
        team.gather(root, &mine, &mut gathered)?;
        assert!(gathered == if leads { &all[..] } else { &[] }, "gather {round}");
        gathered = vec![9; all.len()];
        team.allgather(&mine, &mut gathered)?;
        assert!(gathered == all, "allgather {round}");

        let mut dealt = vec![9; EACH];
        team.scatter(root, if leads { &all } else { &[] }, &mut dealt)?;
        assert!(dealt == mine, "scatter {round}");
        let send: Vec<u8> = (0..n).flat_map(|to| filled(me * 40 + to, round, EACH)).collect();
        let want: Vec<u8> = (0..n).flat_map(|from| filled(from * 40 + me, round, EACH)).collect();
        gathered.fill(9);
        if round % 3 == 0 {
            gathered = team.ialltoall(send)?.wait()?;
        } else {
            team.alltoall(&send, &mut gathered)?;
        }
        assert!(gathered == want, "alltoall {round}");
    }
    Ok(())
}

/// Elements that are no power of two, aligned ones, and none at all.
fn wide(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank().0;
    let triple = |rank: u32, i: usize| [pattern(rank, 0, i), pattern(rank, 1, i), rank as u8];
    for len in [0, 1, 18, 19, 6000] {
        let mine: Vec<[u8; 3]> = (0..len).map(|i| triple(me, i)).collect();
        let mut all = vec![[0; 3]; len * team.size() as usize];
        team.allgather(&mine, &mut all)?;
        for (at, got) in all.iter().enumerate() {
            assert_eq!(*got, triple((at / len) as u32, at % len));
        }
        let wide = |rank: u32, i: usize| u128::from(rank) << 100 | i as u128;
        let mut data: Vec<u128> = (0..len).map(|i| wide(me, i)).collect();
        let add = hither::coll::each(|a: u128, b: u128| a.wrapping_add(b));
        team.allreduce(add, &mut data)?;
        let n = u128::from(team.size());
        for (i, got) in data.iter().enumerate() {
            assert_eq!(*got, (n * (n - 1) / 2) << 100 | (n * i as u128), "element {i} of {len}");
        }
        let mut nothing = vec![[0u8; 0]; len];
        team.broadcast(hither::Rank(0), &mut nothing)?;
        team.allgather_in_place(&mut vec![[0u8; 0]; len * team.size() as usize])?;
    }
    Ok(())
}
