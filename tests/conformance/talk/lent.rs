//! Messages of middle size, where they go by buffers of their sender's: at the edges of the sizes of buffers,
//! more of them than there are buffers, and never asked for.

use super::{next, pattern, previous};
use crate::Written;
use hither::{Any, Job, Result};
use std::time::Duration;

pub const CASES: &[Written] = &[
    ("talk_lent_edges", edges),
    ("talk_lent_run_out", run_out),
    ("talk_lent_left_lying", left_lying),
    ("talk_lent_memory_goes_back", goes_back),
];

fn seed(rank: hither::Rank, i: usize) -> u64 {
    u64::from(rank.0) * 1000 + i as u64
}

/// Around every size of buffers and every limit, each in all ways of sending.
fn edges(job: &Job) -> Result<()> {
    let team = job.team();
    let mut sizes = vec![1023, 1024, 1025, 7031, 7032, 7033];
    for exponent in 11..=19 {
        let edge = 1usize << exponent;
        sizes.extend([edge - 65, edge - 1, edge, edge + 1, edge + 64]);
    }
    for (i, &len) in sizes.iter().enumerate() {
        let (data, want) =
            (pattern(seed(team.rank(), i), len), pattern(seed(previous(job), i), len));
        let mut into = [vec![0u8; len], vec![0u8; len + 1], vec![0u8; len]];
        let [first, second, third] = &mut into;
        team.exchange(|scope| {
            scope.irecv(previous(job), 1, first)?;
            scope.isend(next(job), 1, &data)?;
            scope.issend(next(job), 2, &data)?;
            let status = team.recv(previous(job), 2, second)?;
            assert_eq!(status.bytes, len);
            Ok(())
        })?;
        team.sendrecv(next(job), 3, &data, previous(job), 3, third)?;
        second.truncate(len);
        assert!(into.iter().all(|it| *it == want), "{len} bytes");
    }
    team.barrier()
}

/// More than there are buffers of any size, before anybody asks for one; received from the end on, so that
/// the oldest buffer comes back last; then as many again.
fn run_out(job: &Job) -> Result<()> {
    let team = job.team();
    let messages = 600;
    for (round, len) in [2000usize, 7000, 20_000, 60_000, 300_000].into_iter().enumerate() {
        let count = messages / (1 + len / 16_000);
        let tag = |i: usize| (round * 1000 + i) as u32;
        let mut sends = Vec::new();
        let at_first = team.message_counters()?.lent;
        for i in 0..count {
            sends.push(team.isend(next(job), tag(i), pattern(seed(team.rank(), i), len))?);
        }
        team.barrier()?;
        let mut into = vec![0u8; len];
        for i in (0..count).rev() {
            let status = team.recv(previous(job), tag(i), &mut into)?;
            assert_eq!((status.bytes, status.source), (len, previous(job)));
            assert!(into == pattern(seed(previous(job), i), len), "{i} of {len} bytes");
        }
        for send in sends {
            send.wait()?;
        }
        let before = team.message_counters()?;
        for i in 0..20 {
            let data = pattern(seed(team.rank(), i), len);
            team.sendrecv(next(job), 7, &data, previous(job), 7, &mut into)?;
            assert!(into == pattern(seed(previous(job), i), len));
        }
        let now = team.message_counters()?;
        // Where they are lent: unless the receiver was there first, which has them copied to where it wants them.
        // (Beyond the eager limit they may be announced, whichever is faster.)
        if before.lent > at_first && len <= 16 << 10 {
            let others = now.announced - before.announced;
            assert!(others < 20, "buffers came back: {before:?}, {now:?}");
        }
        team.barrier()?;
    }
    Ok(())
}

/// Messages that are looked for, dropped, cut off, and never received.
fn left_lying(job: &Job) -> Result<()> {
    let all = job.team();
    for round in 0..10 {
        let team = all.split(Some(0), all.rank().0)?.expect("all are in it");
        let len = 3000 + 5000 * round;
        let data = pattern(seed(team.rank(), round), len);
        let mut sends = Vec::new();
        for tag in 0..6 {
            sends.push(team.isend(next(job), tag, data.clone())?);
        }
        let mut into = vec![0u8; len];
        assert_eq!(team.probe::<u8>(previous(job), 1)?.bytes, len);
        drop(team.mprobe::<u8>(Any, 1)?);
        let short = team.recv(previous(job), 2, &mut into[..len - 1]);
        assert!(matches!(short, Err(hither::Error::Truncated { .. })), "{short:?}");
        let odd = team.recv(previous(job), 3, &mut vec![0u64; len / 8 + 1]);
        assert!(odd.is_err(), "bytes are no words: {odd:?}");
        team.mprobe::<u8>(previous(job), 4)?.recv(&mut into)?;
        assert!(into == pattern(seed(previous(job), round), len));
        // 0 and 5 go with the team.
        all.barrier()?;
        drop(sends);
        drop(team);
        all.sendrecv(next(job), 9, &data, previous(job), 9, &mut into)?;
        assert!(into == pattern(seed(previous(job), round), len));
    }
    all.barrier()
}

/// Memory of buffers that are not needed is given back, and had again.
fn goes_back(job: &Job) -> Result<()> {
    let team = job.team();
    let short = std::env::var("HITHER_EAGER_AGE").is_ok();
    for round in 0..3 {
        let data = pattern(seed(team.rank(), round), 30_000);
        let mut into = vec![0u8; data.len()];
        for _ in 0..50 {
            team.sendrecv(next(job), 1, &data, previous(job), 1, &mut into)?;
            assert!(into == pattern(seed(previous(job), round), data.len()));
        }
        team.barrier()?;
        for _ in 0..if short { 20_000 } else { 0 } {
            for _ in 0..64 {
                team.iprobe::<u8>(Any, 9999)?;
            }
            if team.message_counters()?.lent_bytes == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        team.barrier()?;
        if short {
            let now = team.message_counters()?;
            assert_eq!(now.lent_bytes, 0, "{now:?}");
        }
    }
    Ok(())
}
