//! Windows, memory and collective calls that cannot be.

use super::super::super::support::random::Random;
use super::arguments::{CALLS, LEN, NEW, OLD, info, must, number};
use hither::{Attached, Datum, Error, Job, Memory, Op, Rank, Result, Window};

/// Windows that cannot be: every rank gets an error, and the next window is in order.
pub fn windows(job: &Job, packets: bool) -> Result<()> {
    let team = job.team();
    let builder = || Window::<u64>::builder(team).info(info(packets));
    for len in [usize::MAX, usize::MAX / 8, usize::MAX / 8 + 1, isize::MAX as usize, 1 << 58] {
        for builder in [builder(), builder().different_sizes()] {
            must("allocate", false, builder.clone().allocate(len));
            must("allocate_shared", false, builder.allocate_shared(len));
        }
    }
    for unit in [0, 1, 7, 1 << 32, 1 << 60, usize::MAX, usize::MAX - 7] {
        must("a unit", false, builder().unit(unit).allocate(8));
        let memory = Memory::private(vec![1; 8]);
        must("a unit of brought memory", false, builder().unit(unit).create(memory));
    }
    // The largest unit that there is: only displacement 0 is inside.
    let window = builder().unit((1 << 32) - 8).allocate(8)?;
    let epoch = window.lock_all()?;
    epoch.put(Rank(0), 0, &[3])?;
    must("put", false, epoch.put(Rank(0), 1, &[3]));
    must("put", false, epoch.put(Rank(0), usize::MAX, &[3]));
    epoch.unlock_all()?;
    window.free()?;
    let none = builder().allocate(0)?;
    assert!(none.is_empty());
    must("put into nothing", false, none.lock_all()?.put(Rank(0), 0, &[1]));
    must("put of nothing", true, none.lock_all()?.put(Rank(0), 0, &[]));
    none.free()
}

/// Elements that have no bytes: nothing can be said about them, so windows do not have them.
pub fn empty_types(job: &Job, packets: bool) -> Result<()> {
    fn refused<T: Datum + std::fmt::Debug>(job: &Job, packets: bool, one: T) -> Result<()> {
        let team = job.team();
        let builder = || Window::<T>::builder(team).info(info(packets));
        let refusals = [
            builder().allocate(4).map(drop),
            builder().allocate(0).map(drop),
            builder().unit(8).allocate(usize::MAX).map(drop),
            builder().allocate_shared(4).map(drop),
            builder().different_sizes().allocate(4).map(drop),
            builder().create(Memory::private(vec![one; 3])).map(drop),
            builder().dynamic().map(drop),
        ];
        for refusal in refusals {
            match refusal {
                Err(Error::InvalidArgument { why, .. }) => {
                    assert!(why.contains("no bytes"), "{why}")
                }
                other => panic!("{other:?}"),
            }
        }
        let mut all = vec![one; 5 * job.size() as usize];
        team.allgather(&[one; 5], &mut all)?;
        team.broadcast(Rank(0), &mut [one; 3])
    }
    refused::<[u8; 0]>(job, packets, [])?;
    refused::<[u64; 0]>(job, packets, [])?;
    refused::<[[u64; 0]; 9]>(job, packets, [[]; 9])?;
    // Far too aligned for memory that comes in pages.
    #[derive(Clone, Copy, Debug)]
    #[repr(C, align(8192))]
    struct Far([u64; 1024]);
    // SAFETY: an array of plain numbers without padding.
    unsafe impl Datum for Far {}
    must("a page of 8 KiB", false, Window::<Far>::builder(job.team()).allocate(1));
    must("a page of 8 KiB", false, Memory::<Far>::shared(job.team(), 1));
    Ok(())
}

/// Memory that programs bring along.
pub fn memory(job: &Job) -> Result<()> {
    let team = job.team();
    let mut random = Random::new(7 + u64::from(job.rank().0));
    for len in [usize::MAX, usize::MAX / 8, 1 << 61, 1 << 50] {
        must("Memory::shared", false, Memory::<u64>::shared(team, len));
    }
    let none = Memory::<u64>::shared(team, 0)?;
    assert!(none.is_empty());
    let memories = [Memory::shared(team, LEN)?, Memory::private(vec![OLD; LEN])];
    for memory in &memories {
        for _ in 0..CALLS {
            let (at, end) = (number(&mut random), number(&mut random));
            must("Memory::part", at <= end && end <= LEN, memory.part(at, end));
            let good = at.checked_add(2).is_some_and(|end| end <= LEN);
            must("Memory::write", good, memory.write(at, &[NEW; 2]));
            must("Memory::read", good, memory.read(at, &mut [0; 2]));
        }
    }
    let window = Window::<u64>::builder(team).dynamic()?;
    must("attach nothing", false, window.attach(&none));
    must("attach nothing", false, window.attach(&memories[0].part(3, 3)?));
    let attached = window.attach(&memories[0])?;
    must("attach twice", false, window.attach(&memories[0].part(3, 5)?));
    let part = Attached { bytes: attached.bytes - 8, ..attached };
    must("detach a part", false, window.detach(part));
    window.detach(attached)?;
    must("detach twice", false, window.detach(attached));
    window.free()
}

/// Collective calls with roots that there are not, and results of other lengths. All ranks fail
/// in the same way, before anybody waits.
pub fn collectives(job: &Job) -> Result<()> {
    let team = job.team();
    for root in [job.size(), u32::MAX, job.size() + 65536] {
        must("broadcast", false, team.broadcast(Rank(root), &mut [0u8; 100]));
        must("reduce", false, team.reduce(Rank(root), Op::Sum, &[1u32], &mut [0]));
    }
    for len in [0, 1, job.size() as usize * 3 - 1, job.size() as usize * 3 + 1] {
        must("allgather", false, team.allgather(&[1u8; 3], &mut vec![0; len]));
    }
    must("allreduce", false, team.allreduce(Op::MaxLoc, &mut [1.0f64]));
    must("allreduce", false, team.allreduce(Op::BitAnd, &mut [1.0f32]));
    team.broadcast::<u64>(Rank(0), &mut [])?;
    team.allgather::<u64>(&[], &mut [])?;
    let split = team.split(Some(u32::MAX), u32::MAX - job.rank().0)?.expect("a team");
    assert_eq!((split.size(), split.rank().0), (job.size(), job.size() - 1 - job.rank().0));
    assert!(team.split(None, 0)?.is_none());
    must("slot_of", false, team.slot_of(Rank(u32::MAX)));
    must("slot_of", false, split.slot_of(Rank(job.size())));
    for peer in [hither::base::Slot(u16::MAX), hither::base::Slot(job.size() as u16)] {
        must("send", false, job.link().try_send(peer, 1, 0, &[]));
        must("promote", false, job.link().promote(peer));
        assert!(!job.link().is_hot(peer));
    }
    let own = hither::base::Slot(job.rank().0 as u16);
    must("a kind", false, job.link().try_send(own, u8::MAX, 0, &[]));
    must("a number", false, job.link().try_send(own, 1, u64::MAX, &[]));
    must("a message", false, job.link().try_send(own, 1, 0, &vec![0; 1 << 20]));
    team.barrier()
}
