//! Large messages between nodes that their receivers read out of their senders' memory: that it is
//! done, what is not read, and what becomes of it when either side changes its mind.

use hither::world::{Simulation, VirtualNetwork};
use hither::{Any, Error, Job, Layout, Op, Rank, Result};
use std::time::Duration;

const SIZES: [usize; 5] = [32 << 10, 100_001, 1 << 20, (1 << 20) + 1, 5_000_000];

fn content(from: Rank, seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| ((i * (2 * seed + 3)) >> 3) as u8 ^ from.0 as u8).collect()
}

fn fetched(job: &Job) -> u64 {
    job.team().message_counters().expect("counters").fetched
}

/// Exchanges messages until both read them.
fn warm(job: &Job, peer: Rank) -> Result<()> {
    let team = job.team();
    let region = job.kernel_region()?;
    for _ in 0..1000 {
        let (data, mut came) = (vec![1u8; 40_000], vec![0u8; 40_000]);
        team.sendrecv(peer, 9, &data, peer, 9, &mut came)?;
        let mut all = [fetched(job)];
        team.allreduce(Op::Min, &mut all)?;
        if all[0] > 0 {
            drop(region);
            return Ok(());
        }
    }
    panic!("no message is ever read");
}

/// Runs `body` on two ranks on two nodes that read each other's messages.
fn two(network: VirtualNetwork, body: impl Fn(&Job, Rank) -> Result<()> + Send + Sync) {
    let results = Simulation::new(2, 2).network(network).run(|job| {
        let peer = Rank(1 - job.rank().0);
        warm(&job, peer)?;
        body(&job, peer)?;
        job.team().barrier()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// One message each way.
fn exchange(job: &Job, peer: Rank, seed: usize, size: usize) -> Result<()> {
    let team = job.team();
    let sent = team.isend(peer, 1, content(job.rank(), seed, size))?;
    let mut came = vec![0xee; size + 3];
    let status = team.recv(peer, 1, &mut came)?;
    assert_eq!(status.bytes, size);
    assert!(came[..size] == content(peer, seed, size), "{size} bytes came changed");
    assert_eq!(came[size..], [0xee; 3]);
    sent.wait().map(drop)
}

#[test]
fn large_messages_are_read_both_ways_at_once() {
    two(VirtualNetwork::default(), |job, peer| {
        let before = job.team().message_counters()?;
        for (seed, size) in SIZES.into_iter().cycle().take(20).enumerate() {
            exchange(job, peer, seed, size)?;
        }
        let after = job.team().message_counters()?;
        assert_eq!((after.fetched - before.fetched, after.streamed), (20, before.streamed));
        Ok(())
    });
}

#[test]
fn many_are_read_at_a_time_and_in_any_order() {
    two(VirtualNetwork::default(), |job, peer| {
        let (team, count) = (job.team(), 30u32);
        let before = fetched(job);
        let data = |from, tag: u32| content(from, tag as usize, 40_000 + 9000 * tag as usize);
        let sends: Vec<_> = (0..count)
            .map(|tag| team.isend(peer, tag, data(job.rank(), tag)))
            .collect::<Result<_>>()?;
        for tag in (0..count).rev() {
            let mut came = vec![0; data(peer, tag).len()];
            team.recv(Any, tag, &mut came)?;
            assert!(came == data(peer, tag), "message {tag} came changed");
        }
        sends.into_iter().try_for_each(|sent| sent.wait().map(drop))?;
        assert_eq!(fetched(job) - before, u64::from(count));
        Ok(())
    });
}

#[test]
fn what_does_not_lie_together_comes_in_pieces() {
    two(VirtualNetwork::default(), |job, peer| {
        let (team, size) = (job.team(), 50_000);
        let strided = Layout::of::<u8>().vector(size, 1, 2)?;
        let data = content(job.rank(), 1, size);
        let spread: Vec<u8> = data.iter().flat_map(|&byte| [byte, 0xdd]).collect();
        for (apart_here, apart_there) in [(true, false), (false, true)] {
            let before = job.team().message_counters()?;
            let mut came = vec![0xee; 2 * size];
            team.exchange(|scope| {
                match apart_there {
                    true => scope.irecv_layout(peer, 2, &mut came, strided.times(1))?,
                    false => scope.irecv(peer, 2, &mut came)?,
                };
                match apart_here {
                    true => scope.isend_layout(peer, 2, &spread, strided.times(1))?,
                    false => scope.isend(peer, 2, &data)?,
                };
                Ok(())
            })?;
            let came: Vec<u8> = match apart_there {
                true => came.chunks(2).map(|pair| pair[0]).collect(),
                false => came[..size].to_vec(),
            };
            assert!(came == content(peer, 1, size), "it came changed");
            let after = job.team().message_counters()?;
            assert_eq!((after.fetched, after.streamed), (before.fetched, before.streamed + 1));
        }
        Ok(())
    });
}

#[test]
fn messages_that_are_too_long_are_dropped_and_those_behind_them_are_read() {
    two(VirtualNetwork::default(), |job, peer| {
        let team = job.team();
        for round in 0..3 {
            let sent = team.isend(peer, 3, content(job.rank(), round, 200_000))?;
            let mut short = vec![0xeeu8; 100_000];
            let error = team.recv(peer, 3, &mut short).unwrap_err();
            assert!(matches!(error, Error::Truncated { sent: 200_000, .. }), "{error}");
            assert!(short.iter().all(|byte| *byte == 0xee));
            sent.wait()?;
            let before = fetched(job);
            exchange(job, peer, round, 300_000)?;
            assert_eq!(fetched(job), before + 1);
        }
        Ok(())
    });
}

#[test]
fn a_sender_that_gives_up_takes_its_memory_back() {
    two(VirtualNetwork::default(), |job, peer| {
        let team = job.team();
        if job.rank() == Rank(0) {
            let hasty = team.with_deadline(Duration::from_millis(30));
            let mut data = vec![7u8; 500_000];
            let error = hasty.send(peer, 4, &data).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            data.fill(9);
            drop(data);
            team.barrier()?;
        } else {
            team.barrier()?;
            let error = team.recv(peer, 4, &mut vec![0u8; 500_000]).unwrap_err();
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
        }
        (0..5).try_for_each(|seed| exchange(job, peer, seed, 400_000))
    });
}

#[test]
fn a_sender_that_gives_up_while_it_is_read_is_read_no_more() {
    // A second for each message.
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    two(slow, |job, peer| {
        let (team, size) = (job.team(), 8_000_000);
        if job.rank() == Rank(0) {
            let hasty = team.with_deadline(Duration::from_millis(300));
            let error = hasty.send(peer, 6, &content(job.rank(), 1, size)).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        } else {
            let error = team.recv(peer, 6, &mut vec![0u8; size]).unwrap_err();
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
        }
        team.barrier()?;
        exchange(job, peer, 3, 50_000)
    });
}

#[test]
fn a_receiver_that_gives_up_has_its_memory_back() {
    // A second for each message.
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    two(slow, |job, peer| {
        let (team, size) = (job.team(), 8_000_000);
        if job.rank() == Rank(0) {
            // Its receiver has begun, so nobody notices.
            team.send(peer, 5, &content(job.rank(), 1, size))?;
            team.send(peer, 5, &content(job.rank(), 2, 100_000))?;
        } else {
            team.probe::<u8>(peer, 5)?;
            let hasty = team.with_deadline(Duration::from_millis(200));
            let mut came = vec![0u8; size];
            let error = hasty.recv(peer, 5, &mut came).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            let left = came.clone();
            let mut next = vec![0u8; 100_000];
            team.recv(peer, 5, &mut next)?;
            assert!(next == content(peer, 2, 100_000) && came == left);
        }
        team.barrier()?;
        exchange(job, peer, 3, 50_000)
    });
}
