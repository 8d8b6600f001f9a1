//! What is refused, and what is left afterwards.

use super::{next, previous};
use crate::Written;
use hither::{Any, Error, Job, Layout, Rank, Result};
use std::time::Duration;

pub const CASES: &[Written] = &[
    ("talk_truncation", truncation),
    ("talk_element_size", element_size),
    ("talk_bad_arguments", arguments),
    ("talk_deadlines", deadlines),
    ("talk_not_inside_handlers", handlers),
];

fn truncation(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [10usize, 2000, 100_000] {
        for first in [true, false] {
            let receive = first.then(|| team.irecv(previous(job), 1, vec![7u32; size - 1]));
            team.barrier()?;
            let send = team.isend(next(job), 1, vec![1u32; size])?;
            let error = match receive {
                Some(receive) => receive?.wait().map(drop).unwrap_err(),
                None => team.recv(previous(job), 1, &mut vec![7u32; size - 1]).unwrap_err(),
            };
            let (bytes, have) = (4 * size as u64, 4 * size as u64 - 4);
            match error {
                Error::Truncated { from, tag: 1, sent, room } => {
                    assert_eq!((from, sent, room), (previous(job), bytes, have));
                }
                other => panic!("{other}"),
            }
            send.wait()?;
            // It is gone, and nothing else is disturbed.
            assert!(team.iprobe::<u8>(Any, Any)?.is_none());
            team.barrier()?;
        }
    }
    team.barrier()
}

fn element_size(job: &Job) -> Result<()> {
    let team = job.team();
    for size in [4usize, 100_000] {
        let send = team.isend(next(job), 1, vec![1u32; size])?;
        let error = team.recv(previous(job), 1, &mut vec![0u64; size]).unwrap_err();
        assert!(matches!(error, Error::ElementSize { element: 4, expected: 8, .. }), "{error}");
        send.wait()?;
        let send = team.isend(next(job), 1, vec![1f32; size + 1])?;
        let error = team.recv(previous(job), 1, &mut vec![[0f32; 2]; size]).unwrap_err();
        assert!(matches!(error, Error::ElementSize { expected: 8, .. }), "{error}");
        send.wait()?;
        // Arrays are received as their elements, and the other way round.
        let send = team.isend(next(job), 1, vec![[1f64, 2.0]; size])?;
        let mut got = vec![0f64; 2 * size];
        team.recv(previous(job), 1, &mut got)?;
        assert!(got.chunks(2).all(|pair| pair == [1.0, 2.0]));
        send.wait()?;
    }
    team.barrier()
}

fn arguments(job: &Job) -> Result<()> {
    let team = job.team();
    let beyond = Rank(job.size());
    assert!(matches!(team.send(beyond, 0, &[1u8]), Err(Error::InvalidArgument { .. })));
    assert!(matches!(team.isend(beyond, 0, vec![1u8]), Err(Error::InvalidArgument { .. })));
    assert!(matches!(team.recv(beyond, 0, &mut [1u8]), Err(Error::InvalidArgument { .. })));
    assert!(team.iprobe::<u8>(Rank(u32::MAX), Any).is_err());
    let wide = Layout::of::<u32>().vector(3, 1, 2)?;
    assert!(team.send_layout(next(job), 0, &[0u32; 4], wide.times(1)).is_err());
    assert!(team.recv_layout(next(job), 0, &mut [0u32; 4], wide.times(1)).is_err());
    team.barrier()
}

/// Waits end; buffers are the caller's again, and what comes later goes elsewhere.
fn deadlines(job: &Job) -> Result<()> {
    let team = job.team();
    let hasty = team.with_deadline(Duration::from_millis(20));
    for size in [4usize, 100_000] {
        let mut buffer = vec![1u32; size];
        let error = hasty.recv(previous(job), 1, &mut buffer).unwrap_err();
        match error {
            Error::TimedOut { missing, .. } => assert_eq!(missing, [previous(job)]),
            other => panic!("{other}"),
        }
        assert!(hasty.recv(Any, 1, &mut buffer).is_err());
        assert!(hasty.probe::<u8>(Any, 1).is_err());
        assert!(hasty.irecv(previous(job), 1, vec![0u32; size])?.wait().is_err());
        let error = hasty.ssend(next(job), 7, &buffer).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        team.barrier()?;
        let send = team.isend(next(job), 1, vec![5u32; size])?;
        team.recv(previous(job), 1, &mut buffer)?;
        assert_eq!(buffer, vec![5; size]);
        send.wait()?;
        // A large message that was given up is announced still: receiving it says so.
        let received = team.recv(previous(job), 7, &mut buffer);
        match received {
            Ok(_) => assert!(size < 1000, "its sender has taken it back"),
            Err(error) => assert!(matches!(error, Error::PeerFailed { .. }), "{error}"),
        }
        team.barrier()?;
    }
    team.barrier()
}

fn handlers(job: &Job) -> Result<()> {
    let team = job.team().clone();
    let window = hither::Window::<u64>::allocate(job.team(), 1)?;
    let handler = window.register::<u64, u64>(1, move |call| {
        let misuse = |error: Error| u64::from(matches!(error, Error::Misuse { .. }));
        call.output[0] = team.send(Rank(0), 0, &[1u8]).map_err(misuse).unwrap_err()
            + team.recv(Rank(0), 0, &mut [1u8]).map_err(misuse).unwrap_err()
            + team.iprobe::<u8>(Any, Any).map_err(misuse).unwrap_err();
    })?;
    let mut refused = [0];
    let epoch = window.lock_all()?;
    epoch.am(&handler, job.rank(), 0..1, &[0], &mut refused)?;
    epoch.unlock_all()?;
    assert_eq!(refused, [3]);
    window.free()?;
    job.team().barrier()
}
