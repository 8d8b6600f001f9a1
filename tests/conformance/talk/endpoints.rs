//! Endpoints of their own, and messages that one thread alone handles.

use super::{next, previous};
use crate::Written;
use hither::{Any, Error, Job, Rank, Result, Team};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub const CASES: &[Written] = &[
    ("endpoints_do_not_meet", apart),
    ("endpoints_used_by_any_thread", crosswise),
    ("endpoints_end_and_begin_again", again),
    ("endpoints_are_inherited", inherited),
    ("endpoints_are_bounded", bounded),
    ("endpoints_make_progress_in_other_waits", helped),
    ("endpoints_funneled", funneled),
    ("endpoints_funneled_futures", funneled_futures),
];

/// The same tag and peers on all: each message comes where it was sent.
fn apart(job: &Job) -> Result<()> {
    let all = job.team().endpoints(3)?;
    for (i, team) in all.iter().enumerate().rev() {
        team.send(next(job), 7, &[i as u64])?;
    }
    job.team().send(next(job), 7, &[99u64])?;
    for (i, team) in all.iter().enumerate() {
        let mut got = [0u64];
        assert_eq!(team.recv(Any, Any, &mut got)?.source, previous(job));
        assert_eq!(got, [i as u64]);
        assert!(team.iprobe::<u64>(Any, Any)?.is_none(), "a message too many");
    }
    let mut got = [0u64];
    job.team().recv(Any, Any, &mut got)?;
    assert_eq!(got, [99]);
    assert!(job.team().endpoints(0)?.is_empty());
    job.team().barrier()
}

/// Thread i of each rank sends to endpoint i + 1 of the next rank, and receives by its own.
fn crosswise(job: &Job) -> Result<()> {
    const THREADS: usize = 4;
    let all = job.team().endpoints(THREADS)?;
    let all = &all;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|i| {
                scope.spawn(move || -> Result<()> {
                    let (own, other) = (&all[i], &all[(i + 1) % THREADS]);
                    for turn in 0..200u32 {
                        let len = [1usize, 100, 30_000][turn as usize % 3];
                        let sent = other.isend(next(job), 1, vec![turn; len])?;
                        let mut got = vec![0u32; len];
                        own.recv(previous(job), 1, &mut got)?;
                        assert!(got.iter().all(|&value| value == turn), "thread {i}, turn {turn}");
                        sent.wait()?;
                    }
                    // Collectives of each endpoint are its own.
                    let mut sum = [1u64];
                    own.allreduce(hither::Op::Sum, &mut sum)?;
                    assert_eq!(sum, [u64::from(job.size())]);
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })?;
    job.team().barrier()
}

/// Numbers are used again, and what was left behind is not received by who comes after.
fn again(job: &Job) -> Result<()> {
    for round in 0..20u64 {
        let all = job.team().endpoints(2)?;
        for team in &all {
            team.send(next(job), 3, &[round])?;
            // Left behind.
            team.send(next(job), 4, &[1000 + round])?;
            let mut got = [0u64];
            team.recv(previous(job), 3, &mut got)?;
            assert_eq!(got, [round]);
        }
    }
    let one = &job.team().endpoints(1)?[0];
    one.barrier()?;
    assert!(one.iprobe::<u64>(Any, Any)?.is_none(), "what was sent in another team's time");
    one.barrier()
}

/// A team that is split off uses its parent's endpoint; an endpoint of an endpoint is one more.
fn inherited(job: &Job) -> Result<()> {
    let parent = job.team().endpoints(1)?.remove(0);
    let child = parent.split(Some(0), job.rank().0)?.expect("a team");
    let nested = parent.endpoints(1)?.remove(0);
    for (i, team) in [&parent, &child, &nested, job.team()].into_iter().enumerate() {
        team.send(next(job), 1, &[i as u64])?;
    }
    for (i, team) in [&parent, &child, &nested, job.team()].into_iter().enumerate() {
        let mut got = [0u64];
        team.recv(previous(job), 1, &mut got)?;
        assert_eq!(got, [i as u64]);
    }
    // Funneled together with the parent, as the endpoint is the same.
    let only = parent.funnel()?;
    assert!(matches!(child.funnel(), Err(Error::Misuse { .. })));
    let nested_too = nested.funnel()?;
    drop((only, nested_too));
    drop(child.funnel()?);
    job.team().barrier()
}

fn bounded(job: &Job) -> Result<()> {
    if job.size() > 2 {
        return Ok(());
    }
    let all = job.team().endpoints(63)?;
    let one_more = job.team().endpoints(1);
    assert!(matches!(one_more, Err(Error::Exhausted { limit: 63, .. })), "{one_more:?}");
    for (i, team) in all.iter().enumerate() {
        team.send(next(job), 0, &[i])?;
    }
    for (i, team) in all.iter().enumerate() {
        let mut got = [0usize];
        team.recv(previous(job), 0, &mut got)?;
        assert_eq!(got, [i]);
    }
    drop(all);
    job.team().barrier()?;
    assert_eq!(job.team().endpoints(2)?.len(), 2);
    job.team().barrier()
}

/// A thread that waits for something else does what a peer waits for at an endpoint.
fn helped(job: &Job) -> Result<()> {
    let endpoint = &job.team().endpoints(1)?[0];
    let mut got = vec![0u8; 300_000];
    let posted = endpoint.irecv(previous(job), 1, vec![0u8; 300_000])?;
    let sent = endpoint.isend(next(job), 1, vec![7u8; 300_000])?;
    if job.rank() == Rank(0) {
        // Everybody else waits for this in the barrier, where nobody calls the endpoint.
        got = posted.wait()?.0;
        sent.wait()?;
        job.team().barrier()?;
    } else {
        job.team().barrier()?;
        got.copy_from_slice(&posted.wait()?.0);
        sent.wait()?;
    }
    assert!(got.iter().all(|&byte| byte == 7));
    job.team().barrier()
}

fn misused<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Misuse { .. })), "{result:?}");
}

/// Another thread's calls are errors, as long as the guard lives; this thread's are not.
fn funneled(job: &Job) -> Result<()> {
    let endpoint = job.team().endpoints(1)?.remove(0);
    for team in [&endpoint, job.team()] {
        let only = team.funnel()?;
        misused(team.funnel());
        let mut receive = team.irecv(previous(job), 1, vec![0u32; 5])?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                misused(team.send(next(job), 1, &[1u32]));
                misused(team.recv(Any, Any, &mut [0u32]));
                misused(team.iprobe::<u32>(Any, Any));
                misused(team.isend(next(job), 1, vec![1u32]).map(drop));
                misused(team.funnel().map(drop));
                misused(hither::Pending::test(&mut receive));
                // Gives the receive up.
                misused(receive.wait());
            });
            other.join().expect("the other thread");
        });
        for size in [1usize, 3000, 100_000] {
            let sent = team.isend(next(job), 2, vec![9u32; size])?;
            let mut got = vec![0u32; size];
            team.recv(previous(job), 2, &mut got)?;
            assert_eq!(got, vec![9; size]);
            sent.wait()?;
        }
        team.barrier()?;
        drop(only);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| -> Result<()> {
                team.send(next(job), 3, &[5u32])?;
                team.recv(previous(job), 3, &mut [0u32]).map(drop)
            });
            other.join().expect("the other thread")
        })?;
    }
    job.team().barrier()
}

/// No thread of the library's waits for them.
fn funneled_futures(job: &Job) -> Result<()> {
    let team: &Team = &job.team().endpoints(1)?.remove(0);
    let _only = team.funnel()?;
    for size in [1usize, 100_000] {
        let mut receive = pin!(team.irecv(previous(job), 1, vec![0u32; size])?);
        let mut send = pin!(team.isend(next(job), 1, vec![5u32; size])?);
        let mut context = Context::from_waker(Waker::noop());
        let (got, _) = loop {
            if let Poll::Ready(got) = receive.as_mut().poll(&mut context) {
                break got?;
            }
            std::thread::yield_now();
        };
        assert_eq!(got, vec![5; size]);
        while send.as_mut().poll(&mut context).is_pending() {
            std::thread::yield_now();
        }
    }
    team.barrier()
}
