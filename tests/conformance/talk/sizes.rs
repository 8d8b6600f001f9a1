//! Every size at which a message travels in another way, and its neighbours, in either order of
//! sender and receiver.

use super::{next, pattern, previous};
use crate::Written;
use hither::{Job, Layout, Memory, Result};

pub const CASES: &[Written] = &[
    ("talk_sizes_blocking", blocking),
    ("talk_sizes_receive_first", receive_first),
    ("talk_sizes_send_first", send_first),
    ("talk_sizes_synchronous", synchronous),
    ("talk_sizes_shared_memory", shared),
    ("talk_sizes_layouts", layouts),
];

/// Boundaries: cells of the ring, what one short message holds, buffers, chunks of a copy.
const CLASSES: [usize; 14] =
    [1, 8, 40, 48, 96, 512, 4096, 7032, 7048, 8192, 65536, 262_144, 1 << 20, (2 << 20) + 5];

fn sizes() -> impl Iterator<Item = usize> {
    [0].into_iter().chain(CLASSES.into_iter().flat_map(|class| [class - 1, class, class + 1]))
}

fn check(job: &Job, size: usize, got: &[u8], tag: u64) {
    let seed = u64::from(previous(job).0) << 32 | tag;
    assert!(got[..size] == pattern(seed, size)[..], "{size} bytes came changed");
    assert!(got[size..].iter().all(|&byte| byte == 0xee), "{size} bytes: more was written");
}

fn mine(job: &Job, size: usize, tag: u64) -> Vec<u8> {
    pattern(u64::from(job.rank().0) << 32 | tag, size)
}

fn blocking(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate() {
        let data = mine(job, size, tag as u64);
        let mut into = vec![0xee; size + 3];
        // In a ring of blocking calls somebody has to begin; alone, nobody receives meanwhile.
        let sent = if job.size() > 1 && job.rank().0.is_multiple_of(2) {
            team.send(next(job), tag as u32, &data)?;
            None
        } else {
            Some(team.isend(next(job), tag as u32, data)?)
        };
        let status = team.recv(previous(job), tag as u32, &mut into)?;
        sent.map(|sent| sent.wait()).transpose()?;
        assert_eq!((status.source, status.tag), (previous(job), tag as u32));
        assert_eq!((status.elements, status.bytes), (size, size));
        check(job, size, &into, tag as u64);
    }
    team.barrier()
}

fn receive_first(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate() {
        let receive = team.irecv(previous(job), tag as u32, vec![0xee; size + 3])?;
        team.barrier()?;
        let sent = team.isend(next(job), tag as u32, mine(job, size, tag as u64))?;
        let (into, status) = receive.wait()?;
        assert_eq!(sent.wait()?, mine(job, size, tag as u64));
        assert_eq!(status.bytes, size);
        check(job, size, &into, tag as u64);
    }
    team.barrier()
}

fn send_first(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate() {
        let data: std::sync::Arc<[u8]> = mine(job, size, tag as u64).into();
        let sent = team.isend(next(job), tag as u32, data.clone())?;
        team.barrier()?;
        assert_eq!(team.probe::<u8>(previous(job), tag as u32)?.bytes, size);
        let mut into = vec![0xee; size + 3];
        team.recv(previous(job), tag as u32, &mut into)?;
        check(job, size, &into, tag as u64);
        assert_eq!(sent.wait()?[..], data[..]);
    }
    team.barrier()
}

fn synchronous(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate() {
        let mut sent = team.issend(next(job), tag as u32, mine(job, size, tag as u64))?;
        team.barrier()?;
        assert!(!sent.test()?, "nobody has received it yet");
        team.barrier()?;
        let mut into = vec![0xee; size + 3];
        team.recv(previous(job), tag as u32, &mut into)?;
        sent.wait()?;
        check(job, size, &into, tag as u64);
    }
    team.barrier()
}

/// From and to memory that every rank has mapped.
fn shared(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate().filter(|(_, size)| *size > 0) {
        for (from_shared, to_shared) in [(true, true), (true, false), (false, true)] {
            let data = mine(job, size, tag as u64);
            let memory = Memory::<u8>::shared(team, size)?;
            memory.write(0, &data)?;
            let target = Memory::<u8>::shared(team, size)?;
            let mut private = vec![0xee; size];
            if to_shared {
                let receive = team.irecv(previous(job), 3, target.clone())?;
                let sent = team.isend(next(job), 3, data)?;
                receive.wait()?;
                sent.wait()?;
                target.read(0, &mut private)?;
            } else {
                let sent = team.isend(next(job), 3, memory.clone())?;
                team.recv(previous(job), 3, &mut private)?;
                sent.wait()?;
            }
            check(job, size, &private, tag as u64);
            let _ = from_shared;
        }
    }
    team.barrier()
}

/// Every second element, at one side, the other, and both.
fn layouts(job: &Job) -> Result<()> {
    let team = job.team();
    for (tag, size) in sizes().enumerate().filter(|(_, size)| *size > 0) {
        let strided = Layout::of::<u8>().vector(size, 1, 2)?;
        let data = mine(job, size, tag as u64);
        let spread: Vec<u8> = data.iter().flat_map(|&byte| [byte, 0xdd]).collect();
        for (send, receive) in [(true, false), (false, true), (true, true)] {
            let mut into = vec![0xee; 2 * size];
            team.exchange(|scope| {
                if receive {
                    scope.irecv_layout(previous(job), tag as u32, &mut into, strided.times(1))?;
                } else {
                    scope.irecv(previous(job), tag as u32, &mut into)?;
                }
                if send {
                    scope.isend_layout(next(job), tag as u32, &spread, strided.times(1))?;
                } else {
                    scope.isend(next(job), tag as u32, &data)?;
                }
                Ok(())
            })?;
            if receive {
                assert!(into.chunks(2).all(|pair| pair[1] == 0xee), "gaps were written");
                into = into.chunks(2).map(|pair| pair[0]).collect();
                into.resize(size + 1, 0xee);
            }
            check(job, size, &into, tag as u64);
        }
    }
    team.barrier()
}
