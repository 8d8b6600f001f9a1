//! Eager thresholds that change while messages are under way: every message is what was sent,
//! whichever way it went, and what is counted says that thresholds did change.
//!
//! Sleeps stand for computation: no case depends on how long anything takes, but some go on until
//! what they are about has happened.

use super::{next, pattern, previous};
use crate::support::random::Random;
use crate::{Written, brief};
use hither::{Any, Job, Rank, Result, Team, Window};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("talk_switch_happens", happens),
    ("talk_switch_boundaries", boundaries),
    ("talk_switch_phases", |job| phases(job.team(), 0)),
    ("talk_switch_four_threads", four_threads),
    ("talk_switch_unexpected", unexpected),
    ("talk_switch_memory_goes_back", goes_back),
    ("talk_switch_then_blocking", blocking),
    ("talk_both_copy", both_copy),
    ("talk_posted_ones_need_no_calls", posted),
];

/// Whether thresholds have to change: each rank is a process that copies no other's memory, or it
/// is wanted everywhere; and none is lent instead.
fn has_to(team: &Team) -> Result<bool> {
    let is = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    let apart = has_apart(team)?;
    Ok(!is("HITHER_EAGER", "adaptive") && std::env::var_os("HITHER_EAGER").is_some()
        || apart && is("HITHER_CMA", "0") && is("HITHER_LEND_LIMIT", "0"))
}

/// Whether ranks are processes.
fn has_apart(team: &Team) -> Result<bool> {
    let mut processes = [u64::from(std::process::id()); 1];
    team.allreduce(hither::Op::Min, &mut processes)?;
    Ok(!all(team, processes[0] == u64::from(std::process::id()))?)
}

/// Messages whose two sides wait for nothing else go in pieces where that is sooner, even if the one or
/// the other sleeps until they meet.
fn both_copy(job: &Job) -> Result<()> {
    const MANY: u64 = 20;
    let team = job.team();
    let is = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    let private = vec![team.rank().0 as u8; 1 << 20];
    let mut into = vec![0u8; 1 << 20];
    let before = team.message_counters()?;
    for round in 0..MANY {
        let (odd, peer) = (team.rank().0 % 2 == 1, Rank(team.rank().0 ^ 1));
        if peer.0 >= team.size() {
            break;
        }
        if round % 3 == u64::from(odd) {
            std::thread::sleep(Duration::from_millis(2));
        }
        if odd {
            team.recv(peer, 9, &mut into)?;
            assert!(into.iter().all(|byte| *byte == peer.0 as u8), "round {round}");
        } else {
            team.send(peer, 9, &private)?;
        }
    }
    let now = team.message_counters()?;
    let processes = has_apart(team)?;
    let odd = team.rank().0 % 2 == 1;
    if processes && odd && is("HITHER_CMA", "slow") {
        assert!(now.streamed - before.streamed > MANY / 2, "{before:?} {now:?}");
    }
    if processes && odd && is("HITHER_CMA", "halves") {
        assert!(now.halved - before.halved > MANY / 2, "{before:?} {now:?}");
    }
    team.barrier()
}

/// Once receives are posted for messages that have been announced, and one of them was asked for, their
/// sends end, whatever their receiver does: more of them than it has buffers for.
fn posted(job: &Job) -> Result<()> {
    const MANY: u32 = 20;
    const BYTES: usize = 256 << 10;
    let (team, me) = (job.team(), job.rank());
    let peer = Rank(me.0 ^ 1);
    let reached = !has_apart(team)? || std::env::var("HITHER_CMA").as_deref() != Ok("0");
    let window = Window::<u64>::allocate(team, 1)?;
    let there = peer.0 < team.size() && job.link().node().is_local(team.slot_of(peer)?);
    if there && reached {
        let epoch = window.lock_all()?;
        if me.0 % 2 == 0 {
            let data: Vec<Vec<u8>> =
                (0..MANY).map(|i| pattern(seed(me, 1, i as usize), BYTES)).collect();
            team.exchange(|scope| {
                (0..MANY).zip(&data).try_for_each(|(i, data)| scope.isend(peer, i, data).map(drop))
            })?;
            epoch.put(peer, 0, &[1])?;
            epoch.flush(peer)?;
        } else {
            let mut data = vec![vec![0u8; BYTES]; MANY as usize];
            // They come in order.
            team.probe::<u8>(peer, MANY - 1)?;
            let end = Instant::now() + brief(60_000);
            team.exchange(|scope| {
                let posted = (0..MANY).zip(&mut data).map(|(i, data)| scope.irecv(peer, i, data));
                let posted = posted.collect::<Result<Vec<_>>>()?;
                posted[0].test()?;
                let mut over = [0];
                while over == [0] {
                    assert!(
                        Instant::now() < end,
                        "their sender waits for a call of their receiver's"
                    );
                    std::thread::yield_now();
                    epoch.get(me, 0, &mut over)?;
                    epoch.flush(me)?;
                }
                Ok(())
            })?;
            for (i, data) in data.iter().enumerate() {
                assert!(*data == pattern(seed(peer, 1, i), BYTES), "message {i}");
            }
        }
        epoch.unlock_all()?;
    }
    team.barrier()?;
    window.free()
}

fn adapts() -> bool {
    std::env::var("HITHER_EAGER").as_deref() != Ok("fixed")
}

fn seed(from: Rank, round: usize, i: usize) -> u64 {
    u64::from(from.0) << 40 | (round as u64) << 8 | i as u64
}

/// One round of a ring: `sizes` messages to the next rank, posted, some time, waited for.
fn overlap(team: &Team, tag: u32, round: usize, sizes: &[usize], time: Duration) -> Result<()> {
    let (me, size) = (team.rank(), team.size());
    let to = Rank((me.0 + 1) % size);
    let from = Rank((me.0 + size - 1) % size);
    let mut sends = Vec::new();
    for (i, len) in sizes.iter().enumerate() {
        sends.push(team.isend(to, tag, pattern(seed(me, round, i), *len))?);
    }
    let mut receives = Vec::new();
    for len in sizes {
        receives.push(team.irecv(from, tag, vec![0u8; *len])?);
    }
    std::thread::sleep(time);
    for (i, receive) in receives.into_iter().enumerate() {
        let (got, status) = receive.wait()?;
        assert_eq!((status.bytes, status.source), (sizes[i], from), "round {round}, message {i}");
        assert!(got == pattern(seed(from, round, i), sizes[i]), "round {round}, message {i}");
    }
    for (i, send) in sends.into_iter().enumerate() {
        assert!(send.wait()? == pattern(seed(me, round, i), sizes[i]), "a send's own data");
    }
    Ok(())
}

/// Whether all members say so.
fn all(team: &Team, mine: bool) -> Result<bool> {
    let mut all = [u64::from(mine)];
    team.allreduce(hither::Op::Min, &mut all)?;
    Ok(all[0] == 1)
}

fn happens(job: &Job) -> Result<()> {
    let team = job.team();
    if job.size() == 1 {
        return overlap(team, 1, 0, &[100_000; 4], Duration::ZERO);
    }
    let before = team.message_counters()?;
    let has_to = has_to(team)?;
    for round in 0..if has_to { 2000 } else { 30 } {
        overlap(team, 1, round, &[30_000; 2], Duration::from_millis(1))?;
        let now = team.message_counters()?;
        // Where both ask at the same time, one switch moves both, and one of them counts it.
        if all(team, now.eager_threshold > 0 && now.pooled > before.pooled)? {
            assert!(now.eager_threshold >= 30_000 && now.pool_bytes_peak >= 32 << 10, "{now:?}");
            assert!(now.switching_ns >= now.longest_switch_ns && now.pool_buffers_made > 0);
            return Ok(());
        }
    }
    if !has_to {
        return team.barrier();
    }
    panic!("no threshold has changed: {:?}", team.message_counters()?)
}

/// Sizes around every class, while thresholds go up.
fn boundaries(job: &Job) -> Result<()> {
    let team = job.team();
    for exponent in 12..21 {
        let class = 1usize << exponent;
        let mut sizes = Vec::new();
        for middle in [class, class + 1024 - 64, class + 1024, class - 64] {
            sizes.extend([middle - 1, middle, middle + 1]);
        }
        for round in 0..3 {
            overlap(team, 2, round, &sizes, Duration::from_micros(300))?;
        }
    }
    team.barrier()
}

/// Messages grow and shrink, overlap and do not.
fn phases(team: &Team, salt: u64) -> Result<()> {
    let mut random = Random::new(salt + 5);
    for round in 0..60 {
        let largest = [10_000u64, 40_000, 150_000, 600_000, 9000][round / 4 % 5];
        let count = 1 + random.below(5);
        let sizes: Vec<usize> = (0..count).map(|_| random.below(largest) as usize).collect();
        let time = if round / 20 == 1 { 0 } else { random.below(400) };
        overlap(team, 3 + salt as u32, round, &sizes, Duration::from_micros(time))?;
    }
    team.barrier()
}

fn four_threads(job: &Job) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|salt| scope.spawn(move || phases_in(job.team(), salt))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })?;
    job.team().barrier()
}

/// As [`phases`], without collectives, which four threads cannot do in one team.
fn phases_in(team: &Team, thread: u64) -> Result<()> {
    let mut random = Random::new(thread + 50);
    for round in 0..40 {
        let largest = [10_000u64, 40_000, 150_000, 9000][(round / 3 + thread as usize) % 4];
        let sizes: Vec<usize> = (0..3).map(|_| random.below(largest) as usize).collect();
        let time = Duration::from_micros(random.below(300));
        overlap(team, 20 + thread as u32, round, &sizes, time)?;
    }
    Ok(())
}

/// More messages than there are buffers, before anybody asks for one; then by probes and in another
/// order, some never.
fn unexpected(job: &Job) -> Result<()> {
    let team = job.team();
    for round in 0..20 {
        let len = 9000 + round * 1500;
        let mut sends = Vec::new();
        for i in 0..12u32 {
            let data = pattern(seed(team.rank(), round, i as usize), len);
            sends.push((i, team.isend(next(job), 100 + i, data)?));
        }
        team.barrier()?;
        let check = |i: u32, got: &[u8]| {
            let want = pattern(seed(previous(job), round, i as usize), len);
            assert!(got == want, "round {round}, message {i}");
        };
        let mut into = vec![0u8; len];
        for i in [11, 3, 7] {
            assert_eq!(team.probe::<u8>(previous(job), 100 + i)?.bytes, len);
            team.mprobe::<u8>(Any, 100 + i)?.recv(&mut into)?;
            check(i, &into);
        }
        // Dropped: its sender may be told, if it waits.
        drop(team.mprobe::<u8>(previous(job), 105)?);
        let short = team.recv(previous(job), 106, &mut into[..len - 1]);
        assert!(matches!(short, Err(hither::Error::Truncated { .. })), "{short:?}");
        for i in [0, 1, 2, 4, 8, 9, 10] {
            let status = team.recv(Any, 100 + i, &mut into)?;
            assert_eq!(status.source, previous(job));
            check(i, &into);
        }
        for (i, send) in sends {
            let sent = send.wait();
            assert!(sent.is_ok() || i == 5, "{sent:?}");
        }
        team.barrier()?;
    }
    Ok(())
}

/// Buffers that are not needed are freed, where they may be.
fn goes_back(job: &Job) -> Result<()> {
    let team = job.team();
    for round in 0..40 {
        overlap(team, 4, round, &[20_000; 4], Duration::from_millis(1))?;
    }
    team.barrier()?;
    let short = std::env::var("HITHER_EAGER_AGE").is_ok();
    for _ in 0..if adapts() && short { 20_000 } else { 0 } {
        for _ in 0..64 {
            team.iprobe::<u8>(Any, 9999)?;
        }
        let now = team.message_counters()?;
        assert!(now.pool_bytes <= now.pool_bytes_peak);
        if now.pool_bytes == 0 {
            assert_eq!(now.pool_buffers_made, now.pool_buffers_freed);
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    team.barrier()?;
    if adapts() && short {
        let now = team.message_counters()?;
        assert_eq!(now.pool_bytes, 0, "{now:?}");
    }
    // And they are made anew.
    for round in 0..20 {
        overlap(team, 4, round, &[20_000; 4], Duration::from_millis(1))?;
    }
    team.barrier()
}

/// Programs that wait at once, after thresholds went up.
fn blocking(job: &Job) -> Result<()> {
    let team = job.team();
    let mut into = vec![0u8; 50_000];
    for round in 0..100 {
        let data = pattern(seed(team.rank(), round, 0), into.len());
        team.sendrecv(next(job), 5, &data, previous(job), 5, &mut into)?;
        assert!(into == pattern(seed(previous(job), round, 0), into.len()), "round {round}");
    }
    team.barrier()
}
