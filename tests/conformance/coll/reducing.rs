//! Reductions and scans: predefined operations, a user's that does not commute, and one on bytes
//! whose elements' type is known to it alone.

use super::super::Written;
use super::{Space, pattern};
use hither::coll::{Operation, each, slices};
use hither::{Datum, Job, Located, Op, Result};
use std::fmt::Debug;

pub const CASES: &[Written] = &[
    ("coll/reduce_sums", sums),
    ("coll/reduce_located", located),
    ("coll/reduce_in_order", in_order),
    ("coll/reduce_units_of_bytes", units),
];

fn sums(job: &Job) -> Result<()> {
    // Between nodes what a node has comes together first: there without rounding.
    let step = if job.team().spans_nodes() { 0.125 } else { 0.1 };
    let value = |rank: u32, i: usize| f64::from(pattern(rank, 3, i)) * step - 7.0;
    reductions(job, Op::Sum, 0.0, value, &lengths(8))?;
    let value = |rank: u32, i: usize| u16::from(pattern(rank, 5, i)).wrapping_mul(300);
    reductions(job, Op::BitXor, 0, value, &[28, 29, 8192, 8193])?;
    // The last rank's and the first's.
    reductions(job, Op::Replace, 0, value, &[3, 9000])?;
    reductions(job, Op::NoOp, 0, value, &[3, 9000])
}

fn located(job: &Job) -> Result<()> {
    let value = |rank: u32, i: usize| Located {
        value: i64::from(pattern(rank, 1, i) % 5),
        index: i64::from(rank * 100) + i as i64,
    };
    let zero = Located { value: 0, index: 0 };
    reductions(job, Op::MinLoc, zero, value, &[1, 3, 4, 1500])?;
    reductions(job, Op::MaxLoc, zero, value, &[1, 3, 4, 1500])
}

/// Maps x -> a x + c, one after the other: associative, and nothing else.
fn then(first: [u64; 2], second: [u64; 2]) -> [u64; 2] {
    let [a, c] = first;
    let [b, d] = second;
    [a.wrapping_mul(b), c.wrapping_mul(b).wrapping_add(d)]
}

fn map(rank: u32, i: usize) -> [u64; 2] {
    [u64::from(pattern(rank, 2, i)) * 2 + 3, u64::from(pattern(rank, 4, i)) + 1]
}

fn in_order(job: &Job) -> Result<()> {
    reductions(job, each(then), [0; 2], map, &lengths(16))
}

/// The same maps as bytes, in units of 16.
fn units(job: &Job) -> Result<()> {
    let read = |bytes: &[u8]| -> [u64; 2] {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        [word(0), word(8)]
    };
    let op = slices(16, move |into: &mut [u8], from: &[u8]| {
        assert!(into.len().is_multiple_of(16) && into.len() == from.len());
        for (into, from) in into.chunks_mut(16).zip(from.chunks(16)) {
            let [a, c] = then(read(into), read(from));
            into[..8].copy_from_slice(&a.to_le_bytes());
            into[8..].copy_from_slice(&c.to_le_bytes());
        }
    });
    let value = |rank: u32, i: usize| map(rank, i / 16)[i % 16 / 8].to_le_bytes()[i % 8];
    reductions(job, op, 0u8, value, &[0, 16, 48, 64, 16384, 16400, 50_000 / 16 * 16])
}

/// Numbers of elements around the boundaries of the algorithms.
fn lengths(size: usize) -> Vec<usize> {
    [0, 1, 56 / size, 56 / size + 1, 130, 16384 / size - 1, 16384 / size + 1, 40_000 / size].into()
}

/// Every reduction of data `value(rank, index)` of each length, against a loop over the ranks.
fn reductions<T, O>(
    job: &Job,
    op: O,
    zero: T,
    value: impl Fn(u32, usize) -> T,
    lens: &[usize],
) -> Result<()>
where
    T: Datum + PartialEq + Debug,
    O: Operation<T> + Clone + 'static,
{
    let team = job.team();
    let (me, n) = (team.rank().0, team.size());
    let data = |rank: u32, len: usize| -> Vec<T> { (0..len).map(|i| value(rank, i)).collect() };
    let most = lens.iter().copied().max().unwrap_or(0);
    for mapped in [false, true] {
        let mut space = Space::new(team, mapped, most, zero)?;
        for &len in lens {
            let context = format!("{len} elements, mapped: {mapped}");
            // What ranks before `end` have together.
            let until = |end: u32| {
                let mut sum = data(0, len);
                (1..end).for_each(|rank| op.combine(&mut sum, &data(rank, len)));
                sum
            };
            let (whole, mine) = (until(n), data(me, len));
            let buffer = space.filled(&mine);
            team.allreduce(op.clone(), buffer)?;
            assert!(*buffer == whole, "allreduce, {context}");
            assert!(team.iallreduce(op.clone(), mine.clone())?.wait()? == whole, "{context}");
            for root in team.ranks() {
                let leads = team.rank() == root;
                let buffer = space.filled(&mine);
                team.reduce_in_place(root, op.clone(), buffer)?;
                let want = if leads { &whole } else { &mine };
                assert!(*buffer == *want, "reduce to {root} in place, {context}");
                let mut result = vec![zero; if leads { len } else { 2 }];
                team.reduce(root, op.clone(), space.filled(&mine), &mut result)?;
                assert!(if leads { result == whole } else { result == [zero; 2] }, "{context}");
                let begun = team.ireduce(root, op.clone(), mine.clone())?.wait()?;
                assert!(begun == *want, "begun reduce to {root}, {context}");
            }
            let buffer = space.filled(&mine);
            team.scan(op.clone(), buffer)?;
            assert!(*buffer == until(me + 1), "scan, {context}");
            assert!(team.iscan(op.clone(), mine.clone())?.wait()? == *buffer, "{context}");
            let buffer = space.filled(&mine);
            team.exscan(op.clone(), buffer)?;
            let want = if me == 0 { mine.clone() } else { until(me) };
            assert!(*buffer == want, "exscan, {context}");
            assert!(team.iexscan(op.clone(), mine.clone())?.wait()? == want, "{context}");
            blocks(job, &op, zero, &mine, &whole)?;
        }
    }
    Ok(())
}

/// Reductions whose result is dealt out.
fn blocks<T, O>(job: &Job, op: &O, zero: T, mine: &[T], whole: &[T]) -> Result<()>
where
    T: Datum + PartialEq + Debug,
    O: Operation<T> + Clone + 'static,
{
    let team = job.team();
    let (me, n) = (team.rank().index(), team.size() as usize);
    let units = whole.len() / op.unit();
    let each = units / n * op.unit();
    let mut block = vec![zero; each];
    let data = &mine[..each * n];
    team.reduce_scatter_block(op.clone(), data, &mut block)?;
    assert!(block == whole[me * each..(me + 1) * each], "blocks of {each}");
    let begun = team.ireduce_scatter_block(op.clone(), data.to_vec())?.wait()?;
    assert!(begun == block, "begun, blocks of {each}");
    // Rank r gets r parts of a triangle, rank 0 nothing, and the last what is left.
    let part = units / (n * (n + 1) / 2);
    let mut counts: Vec<usize> = (0..n).map(|rank| rank * part * op.unit()).collect();
    counts[n - 1] = whole.len() - counts[..n - 1].iter().sum::<usize>();
    let start: usize = counts[..me].iter().sum();
    let mut block = vec![zero; counts[me]];
    team.reduce_scatter(op.clone(), mine, &counts, &mut block)?;
    assert!(block == whole[start..start + counts[me]], "blocks of {counts:?}");
    let begun = team.ireduce_scatter(op.clone(), mine.to_vec(), &counts)?.wait()?;
    assert!(begun == block, "begun, blocks of {counts:?}");
    Ok(())
}
