//! Memory that stays registered between large messages: that it is used again, that it leads to what is
//! there now, and that who gives a message up still has its memory to itself.

use hither::world::{Simulation, VirtualNetwork};
use hither::{Any, Error, Job, Memory, Op, Rank, Result};
use std::collections::BTreeSet;
use std::time::Duration;

fn content(from: Rank, seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| ((i * (2 * seed + 3)) >> 3) as u8 ^ from.0 as u8).collect()
}

fn again(job: &Job) -> u64 {
    job.link().network_counters().expect("there is another node").registrations_used_again
}

fn fetched(job: &Job) -> u64 {
    job.team().message_counters().expect("counters").fetched
}

/// Runs `body` on two ranks on two nodes that read each other's messages.
fn two(network: VirtualNetwork, body: impl Fn(&Job, Rank) -> Result<()> + Send + Sync) {
    let results = Simulation::new(2, 2).network(network).run(|job| {
        let (peer, team) = (Rank(1 - job.rank().0), job.team());
        let region = job.kernel_region()?;
        let mut all = [0];
        while all[0] == 0 {
            let (data, mut came) = (vec![1u8; 40_000], vec![0u8; 40_000]);
            team.sendrecv(peer, 9, &data, peer, 9, &mut came)?;
            all = [fetched(&job)];
            team.allreduce(Op::Min, &mut all)?;
        }
        drop(region);
        body(&job, peer)?;
        job.team().barrier()?;
        job.finish()
    });
    results.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// All of the memory, for calls that give it back when they give up. Not while anything else is.
#[allow(clippy::mut_from_ref)]
fn slice(memory: &Memory<u8>) -> &mut [u8] {
    // SAFETY: its elements, which nobody else has at that time.
    unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) }
}

/// One message each way, from and to shared memory.
fn exchange(job: &Job, peer: Rank, seed: usize, from: &Memory<u8>, to: &Memory<u8>) -> Result<()> {
    let (team, size) = (job.team(), from.len());
    from.write(0, &content(job.rank(), seed, size))?;
    let sent = team.isend(peer, 1, from.clone())?;
    team.irecv(peer, 1, to.clone())?.wait()?;
    let mut came = vec![0; size];
    to.read(0, &mut came)?;
    assert!(came == content(peer, seed, size), "{size} bytes came changed");
    sent.wait().map(drop)
}

#[test]
fn what_was_sent_once_is_found_registered_the_next_time() {
    two(VirtualNetwork::default(), |job, peer| {
        let from = Memory::<u8>::shared(job.team(), 3 << 20)?;
        let to = Memory::<u8>::shared(job.team(), 3 << 20)?;
        let (before, read) = (again(job), fetched(job));
        for seed in 0..10 {
            exchange(job, peer, seed, &from, &to)?;
        }
        assert_eq!(fetched(job) - read, 10);
        // Both sides' memory, but for the first time.
        assert_eq!(again(job) - before, 2 * 9);
        // Parts of it are known with it.
        exchange(job, peer, 11, &from.part(5, 100_000)?, &to.part(77_777, 177_772)?)?;
        assert_eq!(again(job) - before, 2 * 10);
        let (from, to) = (Memory::private(vec![0; 100_000]), Memory::private(vec![0; 100_000]));
        exchange(job, peer, 12, &from, &to)?;
        exchange(job, peer, 13, &from, &to)?;
        assert_eq!(again(job) - before, 2 * 10, "nobody knows what the program does with its own");
        Ok(())
    });
}

#[test]
fn memory_that_goes_and_comes_again_is_registered_anew() {
    two(VirtualNetwork::default(), |job, peer| {
        let mut places = BTreeSet::new();
        for seed in 0..40 {
            let size = 50_000 + seed % 3 * 200_000;
            let from = Memory::<u8>::shared(job.team(), size)?;
            let to = Memory::<u8>::shared(job.team(), size)?;
            let before = again(job);
            exchange(job, peer, seed, &from, &to)?;
            assert_eq!(again(job), before, "it was never registered as it is");
            places.insert(from.as_ptr().addr());
        }
        assert!(places.len() < 20, "memory is not given back: {} places", places.len());
        Ok(())
    });
}

#[test]
fn many_that_share_pages_are_under_way_at_once() {
    two(VirtualNetwork::default(), |job, peer| {
        let (team, count, size) = (job.team(), 24, 30_001);
        let from = Memory::<u8>::shared(team, count * size)?;
        let to = Memory::<u8>::shared(team, count * size)?;
        for round in 0..5 {
            let part = |memory: &Memory<u8>, i| memory.part(i * size, (i + 1) * size);
            let sends = (0..count).map(|i| {
                let part = part(&from, i)?;
                part.write(0, &content(job.rank(), i + round, size))?;
                team.isend(peer, i as u32, part)
            });
            let sends = sends.collect::<Result<Vec<_>>>()?;
            let receives = (0..count).rev().map(|i| team.irecv(peer, i as u32, part(&to, i)?));
            for receive in receives.collect::<Result<Vec<_>>>()? {
                receive.wait()?;
            }
            sends.into_iter().try_for_each(|sent| sent.wait().map(drop))?;
            for i in 0..count {
                let mut came = vec![0; size];
                part(&to, i)?.read(0, &mut came)?;
                assert!(came == content(peer, i + round, size), "message {i} came changed");
            }
        }
        Ok(())
    });
}

#[test]
fn who_gives_up_while_it_is_read_has_its_memory_to_itself() {
    // A second for each message.
    let slow = VirtualNetwork { bandwidth: 8_000_000, ..VirtualNetwork::default() };
    two(slow, |job, peer| {
        let (team, size) = (job.team(), 8_000_000);
        let memory = Memory::<u8>::shared(team, size)?;
        if job.rank() == Rank(0) {
            memory.write(0, &content(job.rank(), 1, size))?;
            let hasty = team.with_deadline(Duration::from_millis(300));
            let error = hasty.send(peer, 6, slice(&memory)).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            // Somebody who still read would take this for the message.
            memory.write(0, &vec![0xbb; size])?;
        } else {
            let error = team.irecv(peer, 6, memory.clone())?.wait().unwrap_err();
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
        }
        team.barrier()?;
        exchange(job, peer, 3, &memory.part(0, 50_000)?, &memory.part(60_000, 110_000)?)?;
        if job.rank() == Rank(1) {
            let hasty = team.with_deadline(Duration::from_millis(200));
            team.probe::<u8>(peer, 7)?;
            let error = hasty.recv(Any, 7, slice(&memory)).unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            memory.write(0, &vec![0xcc; size])?;
            team.barrier()?;
            let mut left = vec![0; size];
            memory.read(0, &mut left)?;
            assert!(left.iter().all(|byte| *byte == 0xcc), "something came late");
        } else {
            team.isend(peer, 7, memory.clone())?.wait()?;
            team.barrier()?;
        }
        exchange(job, peer, 4, &memory.part(0, 50_000)?, &memory.part(60_000, 110_000)?)
    });
}
