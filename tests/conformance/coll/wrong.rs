//! Calls that do not match are a typed error at every member, whoever finds out first; and
//! arguments that cannot be are refused before anybody waits.

use super::super::Written;
use hither::coll::{Parts, each, slices};
use hither::{Error, Job, Op, Rank, Result, Team};

pub const CASES: &[Written] = &[
    ("coll/wrong_calls_that_differ", calls_that_differ),
    ("coll/wrong_lengths_at_the_root", lengths_at_the_root),
    ("coll/wrong_arguments", arguments),
    ("coll/wrong_communication_in_an_operation", communication),
];

type Call = fn(&Team) -> Result<()>;

/// Pairs of calls: rank 0 makes the first, the others the second.
const PAIRS: [(&str, Call, Call); 10] = [
    ("kind", Team::barrier, |t| t.broadcast(Rank(0), &mut [0u8; 8])),
    ("kind, large", |t| t.broadcast(Rank(0), &mut [0u8; 50_000]), Team::barrier),
    ("kind, small", |t| t.allreduce(Op::Sum, &mut [1u64]), |t| t.scan(Op::Sum, &mut [1u64])),
    ("length", |t| t.allreduce(Op::Sum, &mut [1u64]), |t| t.allreduce(Op::Sum, &mut [1u64; 2])),
    (
        "length and algorithm",
        |t| t.broadcast(Rank(0), &mut [0u8; 56]),
        |t| t.broadcast(Rank(0), &mut [0u8; 57]),
    ),
    (
        "pieces",
        |t| t.broadcast(Rank(0), &mut [0u8; 16384]),
        |t| t.broadcast(Rank(0), &mut [0u8; 16385]),
    ),
    ("root", |t| t.broadcast(Rank(0), &mut [0u8; 8]), |t| t.broadcast(Rank(1), &mut [0u8; 8])),
    ("operation", |t| t.allreduce(Op::Min, &mut [1u64]), |t| t.allreduce(Op::Max, &mut [1u64])),
    ("type", |t| t.allreduce(Op::Min, &mut [1u64]), |t| t.allreduce(Op::Min, &mut [1i64])),
    (
        "begun and not",
        |t| t.ibarrier()?.wait(),
        |t| t.ibroadcast(Rank(0), vec![0u8; 100])?.wait().map(|_| ()),
    ),
];

fn calls_that_differ(job: &Job) -> Result<()> {
    if job.size() == 1 {
        return Ok(());
    }
    for (what, first, second) in PAIRS {
        let team = job.team().split(Some(0), 0)?.expect("a colour");
        let call = if team.rank() == Rank(0) { first } else { second };
        // Whoever was not asked by one who differs may get through this one, not the next few.
        let mut result = call(&team);
        for _ in 0..5 {
            result = result.and_then(|()| team.barrier());
        }
        match result {
            Err(Error::Mismatch { a, a_has, b, b_has, .. }) => {
                assert!(a != b && a_has != b_has, "{what}: {a} {a_has}, {b} {b_has}");
            }
            // Those on a node where nobody saw the other call hear only that somebody gave up.
            Err(Error::Misuse { .. }) if team.spans_nodes() => {}
            other => panic!("{what}: {other:?}"),
        }
        let again = team.barrier();
        match again {
            Err(Error::Mismatch { .. }) => {}
            Err(Error::Misuse { .. }) if team.spans_nodes() => {}
            other => panic!("{what}: it stays: {other:?}"),
        }
        job.team().barrier()?;
        // The members are still there.
        let again = team.shrink()?;
        again.barrier()?;
    }
    Ok(())
}

fn lengths_at_the_root(job: &Job) -> Result<()> {
    let n = job.size() as usize;
    if n == 1 {
        return Ok(());
    }
    let team = job.team().split(Some(0), job.rank().0)?.expect("a colour");
    let root = Rank(0);
    let counts = vec![3; n];
    // The last rank has one element more than the root expects.
    let len = 3 + usize::from(team.rank().index() == n - 1);
    let result = team.gatherv(root, &vec![1u8; len], &mut vec![0; 3 * n], &counts);
    let result = result.and_then(|()| team.barrier());
    match result {
        Err(Error::Mismatch { a, b, .. }) => {
            assert!((team.rank(), a, b) == (root, Rank(n as u32 - 1), root));
        }
        Err(Error::Misuse { .. }) => assert_ne!(team.rank(), root),
        other => panic!("{other:?}"),
    }
    let team = team.shrink()?;
    let to: Vec<usize> = vec![2; n];
    let mut from = to.clone();
    if team.rank() == root {
        from[n - 1] = 5;
    }
    let mut recv = vec![0u8; from.iter().sum()];
    let result = team.alltoallv(&vec![1u8; 2 * n], &to, &mut recv, &from);
    assert!(result.and_then(|()| team.barrier()).is_err());
    job.team().barrier()
}

fn arguments(job: &Job) -> Result<()> {
    let team = job.team();
    let n = team.size() as usize;
    let beyond = Rank(team.size());
    let refused = |result: Result<()>| match result {
        Err(Error::InvalidArgument { .. }) => {}
        other => panic!("{other:?}"),
    };
    refused(team.gather(beyond, &[1u8], &mut []));
    refused(team.scatter(beyond, &[], &mut [1u8]));
    refused(team.ibroadcast(beyond, [1u8]).map(|_| ()));
    refused(team.allgather(&[1u8; 3], &mut [0; 2]));
    refused(team.alltoall(&vec![1u8; n], &mut vec![0; n + 1]));
    refused(team.allgatherv(&[1u8], &mut [0; 9], &[1usize; 0]));
    refused(team.allgatherv(&[1u8], &mut vec![0; n - 1], &vec![1; n]));
    refused(team.allgatherv(&[1u8; 2], &mut vec![0; n], &vec![1; n]));
    let starts = vec![usize::MAX; n];
    refused(team.allgatherv(&[1u8], &mut vec![0; n], Parts::at(&vec![1; n], &starts)));
    refused(team.allreduce(Op::BitAnd, &mut [1.0f64]));
    refused(team.allreduce(slices(3, |_: &mut [u8], _: &[u8]| ()), &mut [1u8; 4]));
    refused(team.allreduce(slices(0, |_: &mut [u8], _: &[u8]| ()), &mut [1u8; 4]));
    refused(team.scan(slices(20_000, |_: &mut [u8], _: &[u8]| ()), &mut [1u8; 20_000]));
    refused(team.reduce_scatter_block(Op::Sum, &vec![1u8; n + 1], &mut [0]));
    if n > 1 {
        refused(team.alltoall_in_place(&mut vec![1u8; n + 1]));
    }
    // Nothing of that has begun anything.
    team.barrier()
}

/// An operation that communicates could wait for itself.
fn communication(job: &Job) -> Result<()> {
    let team = job.team();
    let inner = team.clone();
    let op = each(move |a: u64, b: u64| {
        assert!(matches!(inner.barrier(), Err(Error::Misuse { .. })));
        a + b
    });
    let mut data = [1u64; 20];
    team.allreduce(&op, &mut data)?;
    assert_eq!(data, [u64::from(team.size()); 20]);
    Ok(())
}
