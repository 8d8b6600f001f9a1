//! Collectives against serial oracles.

use super::Written;
use hither::{Error, Job, Numeric, Op, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("barrier_orders_stores", barrier_orders_stores),
    ("broadcast_every_root_and_size", broadcast),
    ("allgather_sizes", allgather),
    ("allreduce_types_ops_sizes", allreduce),
    ("reduce_every_root", reduce),
    ("mixed_sequence", mixed_sequence),
    ("split_colours_and_keys", split),
    ("splits_are_reclaimed", splits_are_reclaimed),
    ("bad_arguments", bad_arguments),
    ("agree_spreads_failure", agree),
    ("shrink_without_deaths", shrink),
    ("members_leave_at_different_moments", endings),
];

/// Lengths in bytes around every boundary of the algorithms: board, piece.
const SIZES: [usize; 12] = [0, 1, 8, 55, 56, 57, 1000, 16383, 16384, 16385, 32768, 3 * 16384 + 40];

fn pattern(rank: u32, index: usize) -> u8 {
    (u64::from(rank) * 131 + index as u64 * 7 + (index as u64 >> 8)) as u8
}

fn barrier_orders_stores(job: &Job) -> Result<()> {
    let team = job.team();
    let window = Window::<u64>::allocate(team, 1)?;
    for step in 1..=200u64 {
        window.local().set(0, step * 10 + u64::from(team.rank().0))?;
        team.barrier()?;
        for rank in team.ranks() {
            let seen = window.part(rank)?.get(0)?;
            assert_eq!(seen, step * 10 + u64::from(rank.0), "step {step}");
        }
        team.barrier()?;
    }
    Ok(())
}

fn broadcast(job: &Job) -> Result<()> {
    let team = job.team();
    for root in team.ranks() {
        for size in SIZES {
            let mut data: Vec<u8> = (0..size).map(|i| pattern(team.rank().0, i)).collect();
            team.broadcast(root, &mut data)?;
            for (i, &byte) in data.iter().enumerate() {
                assert_eq!(byte, pattern(root.0, i), "root {root}, size {size}, byte {i}");
            }
        }
    }
    Ok(())
}

fn allgather(job: &Job) -> Result<()> {
    let team = job.team();
    for size in SIZES {
        let mine: Vec<u8> = (0..size).map(|i| pattern(team.rank().0, i)).collect();
        let mut all = vec![0xffu8; size * team.size() as usize];
        team.allgather(&mine, &mut all)?;
        for rank in 0..team.size() {
            for i in 0..size {
                let got = all[rank as usize * size + i];
                assert_eq!(got, pattern(rank, i), "size {size}, rank {rank}, byte {i}");
            }
        }
    }
    Ok(())
}

fn serial<T: Numeric>(ranks: u32, op: Op, value: impl Fn(u32) -> T) -> T {
    (1..ranks).fold(value(0), |acc, rank| T::combine(op, acc, value(rank)))
}

/// A number for a byte. Between nodes what a node has comes together first, and rounding shows the
/// order: there, powers of two, of which sums and products are exact.
fn number(job: &Job, byte: u8, rounded: f64) -> f64 {
    if !job.team().spans_nodes() {
        return rounded;
    }
    let power = f64::from(1 << (byte % 4)) / 4.0;
    if byte.is_multiple_of(3) { -power } else { power }
}

fn allreduce_of<T: Numeric>(job: &Job, value: impl Fn(u32, usize) -> T) -> Result<()> {
    let team = job.team();
    for op in Op::ALL {
        if !T::KIND.allows(op) {
            assert!(team.allreduce(op, &mut [value(0, 0)]).is_err(), "{op:?} on {:?}", T::KIND);
            continue;
        }
        for bytes in [8, 56, 64, 16384, 40000] {
            let len = bytes / size_of::<T>();
            let mut data: Vec<T> = (0..len).map(|i| value(team.rank().0, i)).collect();
            team.allreduce(op, &mut data)?;
            for (i, got) in data.iter().enumerate() {
                let want = serial(team.size(), op, |rank| value(rank, i));
                assert_eq!(*got, want, "{op:?}, {len} elements, element {i}");
            }
        }
    }
    Ok(())
}

fn allreduce(job: &Job) -> Result<()> {
    allreduce_of::<u8>(job, pattern)?;
    allreduce_of::<i16>(job, |rank, i| i16::from(pattern(rank, i)) * 100 - 9000)?;
    allreduce_of::<u32>(job, |rank, i| u32::from(pattern(rank, i)).wrapping_mul(0x9e37_79b9))?;
    allreduce_of::<i64>(job, |rank, i| i64::from(pattern(rank, i)) - 128)?;
    allreduce_of::<f32>(job, |rank, i| {
        let byte = pattern(rank, i);
        number(job, byte, (f32::from(byte) * 0.37 - 11.0).into()) as f32
    })?;
    allreduce_of::<f64>(job, |rank, i| {
        let byte = pattern(rank, i);
        number(job, byte, f64::from(byte) * 1e-3 + 1.0)
    })
}

fn reduce(job: &Job) -> Result<()> {
    let team = job.team();
    let value = |rank, i| {
        let byte = pattern(rank, i);
        number(job, byte, f64::from(byte) * 0.1)
    };
    for root in team.ranks() {
        for len in [0, 1, 7, 2048, 2049, 5000] {
            let mine: Vec<f64> = (0..len).map(|i| value(team.rank().0, i)).collect();
            let mut result = vec![-1.0; if team.rank() == root { len } else { 3 }];
            team.reduce(root, Op::Sum, &mine, &mut result)?;
            if team.rank() == root {
                for (i, got) in result.iter().enumerate() {
                    let want = serial(team.size(), Op::Sum, |rank| value(rank, i));
                    assert_eq!(*got, want, "root {root}, {len} elements, element {i}");
                }
            } else {
                assert_eq!(result, vec![-1.0; 3], "a result elsewhere than at the root");
            }
        }
    }
    Ok(())
}

/// Different collectives in one pseudo-random sequence, the same on all ranks: their phases
/// must not disturb each other.
fn mixed_sequence(job: &Job) -> Result<()> {
    let team = job.team();
    let mut state = 0x1234_5678_9abc_def0u64;
    for step in 0..400u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let size = SIZES[(state >> 33) as usize % 9];
        let root = Rank((state >> 20) as u32 % team.size());
        match (state >> 60) % 4 {
            0 => team.barrier()?,
            1 => {
                let mut data = vec![(step as u8).wrapping_add(team.rank().0 as u8); size];
                team.broadcast(root, &mut data)?;
                assert!(data.iter().all(|&b| b == (step as u8).wrapping_add(root.0 as u8)));
            }
            2 => {
                let mut data = vec![u64::from(team.rank().0) + step; size / 8 + 1];
                team.allreduce(Op::Max, &mut data)?;
                assert!(data.iter().all(|&v| v == u64::from(team.size()) - 1 + step));
            }
            _ => {
                let mine = vec![step as u8 ^ team.rank().0 as u8; size];
                let mut all = vec![0; size * team.size() as usize];
                team.allgather(&mine, &mut all)?;
                for (i, &byte) in all.iter().enumerate() {
                    assert_eq!(byte, step as u8 ^ (i / size) as u8, "step {step}");
                }
            }
        }
    }
    Ok(())
}

fn split(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank().0;
    // Halves by parity, in reverse order.
    let half = team.split(Some(me % 2), team.size() - me)?.expect("every rank has a colour");
    let members: Vec<u32> = (0..team.size()).filter(|r| r % 2 == me % 2).rev().collect();
    assert_eq!(half.size() as usize, members.len());
    assert_eq!(members[half.rank().index()], me);
    let mut all = vec![0u32; members.len()];
    half.allgather(&[me], &mut all)?;
    assert_eq!(all, members);
    let window = Window::<u32>::allocate(&half, 4)?;
    let next = Rank((half.rank().0 + 1) % half.size());
    let mut epoch = window.fence()?;
    epoch.put(next, 1, &[me + 100])?;
    epoch.next()?;
    let before = members[(half.rank().0 + half.size() - 1) as usize % members.len()];
    assert_eq!(window.local().get(1)?, before + 100);
    epoch.end()?;
    // Some stay out; and a split of a split.
    let some = team.split((me != 0).then_some(7), 0)?;
    assert_eq!(some.is_some(), me != 0);
    if let Some(some) = some {
        assert_eq!((some.rank().0, some.size()), (me - 1, team.size() - 1));
        some.barrier()?;
    }
    let alone = half.split(Some(half.rank().0), 0)?.expect("a colour each");
    assert_eq!(alone.size(), 1);
    alone.barrier()?;
    let mut one = [5u64];
    alone.allreduce(Op::Sum, &mut one)?;
    assert_eq!(one, [5]);
    Ok(())
}

fn splits_are_reclaimed(job: &Job) -> Result<()> {
    let team = job.team();
    let first = team.split(Some(0), 0)?.expect("a colour");
    let before = job.node().commons_in_use()?;
    drop(first);
    for i in 0..100 {
        let again = team.split(Some(i), 0)?.expect("a colour");
        again.barrier()?;
    }
    team.barrier()?;
    let last = team.split(Some(0), 0)?.expect("a colour");
    last.barrier()?;
    // The members of a dropped team may still be on their way out of it when another returns.
    assert!(job.node().commons_in_use()? <= 2 * before + (1 << 20), "blocks pile up");
    Ok(())
}

fn bad_arguments(job: &Job) -> Result<()> {
    let team = job.team();
    let beyond = Rank(team.size());
    assert!(matches!(team.broadcast(beyond, &mut [0u8]), Err(Error::InvalidArgument { .. })));
    assert!(matches!(
        team.reduce(beyond, Op::Sum, &[1u8], &mut [0]),
        Err(Error::InvalidArgument { .. })
    ));
    assert!(matches!(team.allgather(&[1u8; 3], &mut []), Err(Error::InvalidArgument { .. })));
    team.barrier()
}

fn agree(job: &Job) -> Result<()> {
    let team = job.team();
    assert_eq!(team.agree("a test", Ok(7))?, 7);
    let last = Rank(team.size() - 1);
    let mine =
        if team.rank() == last { Err(Error::invalid("a test", "on purpose")) } else { Ok(()) };
    match team.agree("a test", mine) {
        Err(Error::InvalidArgument { .. }) => assert_eq!(team.rank(), last),
        Err(Error::PeerFailed { rank, .. }) => assert_eq!(rank, last),
        other => panic!("{other:?}"),
    }
    team.barrier()
}

fn shrink(job: &Job) -> Result<()> {
    let team = job.team();
    let same = team.split(Some(1), team.rank().0)?.expect("a colour");
    let survivors = same.shrink()?;
    assert_eq!((survivors.rank(), survivors.size()), (team.rank(), team.size()));
    assert!(matches!(same.shrink(), Err(Error::Misuse { .. })), "a second membership");
    let again = survivors.shrink()?;
    again.barrier()?;
    survivors.barrier()
}

/// Ranks end at different moments after their last collective: nobody may take that for a
/// failure of the others.
fn endings(job: &Job) -> Result<()> {
    let team = job.team();
    for round in 0..300 {
        let part = team.split(Some(0), round)?.expect("a colour");
        part.barrier()?;
        drop(part);
    }
    Ok(())
}
