//! Teams larger than boards and lanes have room for, and members that leave, with ranks that are
//! threads.

use crate::coll::each;
use crate::{Error, Job, Op, Rank, Result, Team};
use std::time::Duration;

/// More than 64 lanes, so that receivers have their turns.
const MANY: u32 = 70;

#[test]
fn large_teams_exchange_in_turns() {
    let ends = Job::threads(MANY, |job| {
        let team = job.team();
        let (me, n) = (team.rank().0, MANY as usize);
        let block = |from: u32, to: u32, len: usize| -> Vec<u16> {
            (0..len).map(|i| (from * 100 + to) as u16 + i as u16).collect()
        };
        for len in [1, 200] {
            let to: Vec<u16> = (0..MANY).flat_map(|rank| block(me, rank, len)).collect();
            let from: Vec<u16> = (0..MANY).flat_map(|rank| block(rank, me, len)).collect();
            let mut data = to.clone();
            team.alltoall_in_place(&mut data)?;
            assert_eq!(data, from);
            let mut apart = vec![0; data.len()];
            team.alltoall(&to, &mut apart)?;
            assert_eq!(apart, from);
            let counts = vec![len; n];
            let begun = team.ialltoallv(to, &counts, &counts)?;
            assert_eq!(begun.wait()?, from);
            let root = Rank(MANY / 2);
            let all: Vec<u16> = (0..MANY).flat_map(|rank| block(root.0, rank, len)).collect();
            let mut mine = vec![0; len];
            team.scatter(root, &all, &mut mine)?;
            assert_eq!(mine, block(root.0, me, len));
            // Maps x -> a x + c: the order of ranks shows.
            let map = |rank: u32, i: usize| [rank * 2 + 3, rank + i as u32];
            let then = |[a, c]: [u32; 2], [b, d]: [u32; 2]| {
                [a.wrapping_mul(b), c.wrapping_mul(b).wrapping_add(d)]
            };
            let data: Vec<[u32; 2]> = (0..len * n).map(|i| map(me, i)).collect();
            let whole = |i| (1..MANY).fold(map(0, i), |sum, rank| then(sum, map(rank, i)));
            let mut block = vec![[0; 2]; len];
            team.reduce_scatter_block(each(then), &data, &mut block)?;
            for (i, got) in block.iter().enumerate() {
                assert_eq!(*got, whole(me as usize * len + i));
            }
            let mut scanned = data[..len].to_vec();
            team.scan(each(then), &mut scanned)?;
            for (i, got) in scanned.iter().enumerate() {
                assert_eq!(*got, (1..=me).fold(map(0, i), |sum, rank| then(sum, map(rank, i))));
            }
        }
        let mut sum = [1u64];
        team.allreduce(Op::Sum, &mut sum)?;
        assert_eq!(sum, [u64::from(MANY)]);
        job.finish()
    });
    ends.unwrap().into_iter().for_each(|end| end.unwrap());
}

/// A collective, and how it went at a member.
type Made = fn(&Team) -> Result<()>;

/// Each on four members, in some of which some are through before others have begun.
const ALL: [(&str, Made); 9] = [
    ("barrier", |team| team.barrier()),
    ("ibarrier", |team| team.ibarrier()?.wait()),
    ("broadcast", |team| team.broadcast(Rank(0), &mut [1u64; 3])),
    ("a long broadcast", |team| team.broadcast(Rank(0), &mut [1u64; 40_000])),
    ("allreduce", |team| team.allreduce(Op::Sum, &mut [1u64])),
    ("a long allreduce", |team| team.allreduce(Op::Sum, &mut [1u64; 40_000])),
    ("reduce", |team| team.reduce(Rank(3), Op::Sum, &[1u64; 500], &mut [0; 500])),
    ("scan", |team| team.scan(Op::Sum, &mut [1u64; 500])),
    ("alltoall", |team| team.alltoall(&[1u64; 400], &mut [0; 400])),
];

/// Long enough that those who wait look who is there.
const LATE: Duration = Duration::from_millis(150);

#[test]
fn who_leaves_when_it_is_through_is_not_missed() {
    for (name, made) in ALL {
        for late in [0, 2, 3] {
            let ends = Job::threads(4, |job| {
                job.team().allreduce(Op::Max, &mut [1u8])?;
                if job.rank() == Rank(late) {
                    std::thread::sleep(LATE);
                }
                // And leaves, without a word to the others.
                made(job.team())
            });
            for (rank, end) in ends.unwrap().into_iter().enumerate() {
                end.unwrap_or_else(|error| panic!("{name}, {late} late, rank {rank}: {error}"));
            }
        }
    }
}

#[test]
fn who_leaves_instead_is_missed() {
    for (name, made) in ALL {
        let ends = Job::threads(4, |job| {
            job.team().allreduce(Op::Max, &mut [1u8])?;
            if job.rank() == Rank(1) {
                return Ok(());
            }
            // What is sent to who has left may be under way before that is known.
            made(job.team())?;
            job.team().barrier()
        });
        let ends = ends.unwrap();
        for rank in [0, 2, 3] {
            let end = &ends[rank];
            let told = matches!(end, Err(Error::RankLeft { rank: Rank(1), .. }));
            assert!(told, "{name}, rank {rank}: {end:?}");
        }
    }
}

/// A death counts as reported only to whom an error reached: one that is dropped, as a message has
/// come after all, is found again by the next wait.
#[test]
fn a_death_is_reported_until_somebody_is_told() {
    use crate::coll::message::Told;
    let living = std::sync::Barrier::new(3);
    let ends = Job::threads(4, |job| {
        let team = job.team().clone();
        team.barrier()?;
        if team.rank() == Rank(3) {
            // Dies: a job that a panic takes away does not say that it leaves.
            drop(team);
            let dies = std::panic::AssertUnwindSafe(move || {
                let _job = job;
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(std::panic::catch_unwind(dies).is_err());
            return Ok(());
        }
        while !team.node().probe(team.slot_of(Rank(3))?) {
            std::thread::yield_now();
        }
        let told = Told::default();
        let check = || team.member.check_any("a test", &told);
        // Nobody is told of the first three.
        let mut found: Vec<_> = (0..3).map(|_| (check(), told.pass(&team, Ok(())))).collect();
        found.push((told.pass(&team, check()), Ok(())));
        let quiet = check();
        // Nobody is alone before all have looked.
        living.wait();
        for (found, _) in found {
            assert!(matches!(found, Err(Error::RankDied { rank: Rank(3), .. })), "{found:?}");
        }
        quiet
    });
    ends.unwrap().into_iter().for_each(|end| end.unwrap());
}

/// Two threads that were inside at a time would lose one of the steps that they count.
#[test]
fn of_threads_in_one_teams_collectives_all_but_one_are_refused() {
    let ends = Job::threads(1, |job| {
        let team = job.team();
        let before = team.member.core.number();
        let done: u32 = std::thread::scope(|scope| {
            let call = || (0..20_000).map(|_| team.barrier()).map(counted).sum::<u32>();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(done > 0);
        assert_eq!(team.member.core.number().wrapping_sub(before), done);
        // One after the other they all may.
        std::thread::scope(|scope| scope.spawn(|| team.barrier()).join().unwrap())?;
        team.barrier()
    });
    ends.unwrap().into_iter().for_each(|end| end.unwrap());
}

fn counted(end: crate::base::Result<()>) -> u32 {
    match end {
        Ok(()) => 1,
        Err(Error::Misuse { .. }) => 0,
        Err(other) => panic!("{other}"),
    }
}
