//! Calls that do not block: many at a time, in any order of waiting, dropped, beside calls that
//! block, other teams and one-sided traffic.

use super::super::Written;
use super::super::support::random::Random;
use super::filled;
use hither::coll::each;
use hither::rma::Request;
use hither::{Compare, Error, Job, LockKind, Op, Rank, Result, SignalOp, Team, Window};
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub const CASES: &[Written] = &[
    ("coll/begun_random_sequences", random_sequences),
    ("coll/begun_two_teams_crosswise", crosswise),
    ("coll/begun_progress_in_other_waits", other_waits),
    ("coll/begun_progress_in_lock_waits", locks_wait),
    ("coll/begun_tests_and_futures", tests_and_futures),
    ("coll/begun_and_dropped", dropped),
    ("coll/begun_threads_with_a_team_each", threads),
    ("coll/begun_with_a_panicking_operation", panicking),
];

/// A request with what it must bring.
struct Open {
    request: Request<Vec<u8>>,
    want: Vec<u8>,
    step: usize,
}

impl Open {
    fn close(self) -> Result<()> {
        assert!(self.request.wait()? == self.want, "step {}", self.step);
        Ok(())
    }
}

/// The next call of a sequence that is the same on all ranks; a request if it does not block.
fn call(team: &Team, random: &mut Random, step: usize) -> Result<Option<Open>> {
    const SIZES: [usize; 7] = [0, 3, 56, 57, 2000, 16384, 40_000];
    let (me, n) = (team.rank().0, team.size());
    let root = Rank(random.below(n.into()) as u32);
    let size = SIZES[random.below(SIZES.len() as u64) as usize];
    let kind = random.below(14);
    let mine = filled(me, step, size);
    let add = |a: u8, b: u8| a.wrapping_add(b);
    let sum = |end: u32| -> Vec<u8> {
        (1..end).fold(filled(0, step, size), |sum, rank| {
            sum.iter().zip(filled(rank, step, size)).map(|(a, b)| add(*a, b)).collect()
        })
    };
    let together = || -> Vec<u8> { (0..n).flat_map(|rank| filled(rank, step, size)).collect() };
    let (request, want) = match kind {
        0 => {
            let done = team.ibarrier()?;
            done.wait()?;
            return Ok(None);
        }
        1 => {
            team.barrier()?;
            return Ok(None);
        }
        2 => {
            let mut data = mine;
            team.allreduce(Op::Sum, &mut data)?;
            assert!(data == sum(n), "step {step}");
            return Ok(None);
        }
        3 => {
            let mut data = mine;
            team.broadcast(root, &mut data)?;
            assert!(data == filled(root.0, step, size), "step {step}");
            return Ok(None);
        }
        4 | 5 => (team.ibroadcast(root, mine)?, filled(root.0, step, size)),
        6 | 7 => (team.iallreduce(each(add), mine)?, sum(n)),
        8 => (team.iscan(Op::Sum, mine)?, sum(me + 1)),
        9 => (team.iallgather(mine)?, together()),
        10 => {
            let want = if team.rank() == root { together() } else { vec![] };
            (team.igather(root, mine)?, want)
        }
        11 => {
            let all = if team.rank() == root { together() } else { vec![] };
            (team.iscatter(root, all, size)?, mine)
        }
        12 => {
            let want = if team.rank() == root { sum(n) } else { mine.clone() };
            (team.ireduce(root, Op::Sum, mine)?, want)
        }
        _ => {
            let send: Vec<u8> = (0..n).flat_map(|to| filled(me * 9 + to, step, size)).collect();
            let want = (0..n).flat_map(|from| filled(from * 9 + me, step, size)).collect();
            (team.ialltoall(send)?, want)
        }
    };
    Ok(Some(Open { request, want, step }))
}

fn random_sequences(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank();
    let window = Window::<u64>::allocate(team, 4)?;
    let epoch = window.lock_all()?;
    for seed in 0..6 {
        let mut calls = Random::new(seed);
        // What each rank does beside the calls is its own affair.
        let mut own = Random::new(seed << 20 | u64::from(me.0) << 8 | 1);
        let mut open = VecDeque::new();
        let mut added = 0u64;
        for step in 0..120 {
            open.extend(call(team, &mut calls, step)?);
            if own.below(3) == 0 {
                let target = Rank(own.below(team.size().into()) as u32);
                epoch.fetch_and_op(target, 0, Op::Sum, 1)?;
                added += 1;
            }
            while open.len() > own.below(12) as usize {
                let at = own.below(open.len() as u64) as usize;
                let mut one: Open = open.swap_remove_back(at).expect("one is open");
                match own.below(4) {
                    0 => drop(one),
                    1 => {
                        while !one.request.test()? {
                            std::thread::yield_now();
                        }
                        one.close()?;
                    }
                    _ => one.close()?,
                }
            }
        }
        open.into_iter().try_for_each(Open::close)?;
        let mut sums = [added, 0];
        team.barrier()?;
        sums[1] = epoch.fetch_and_op(me, 0, Op::Replace, 0)?;
        team.allreduce(Op::Sum, &mut sums)?;
        assert_eq!(sums[0], sums[1], "one-sided updates between the collectives");
        team.barrier()?;
    }
    epoch.unlock_all()
}

/// Ranks wait for calls of two teams in different orders.
fn crosswise(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank().0;
    let other = team.split(Some(0), team.size() - me)?.expect("a colour");
    for round in 0..100 {
        let size = [8, 100, 40_000][round % 3];
        let first = team.iallreduce(Op::Max, filled(me, round, size))?;
        let second = other.ibroadcast(Rank(0), filled(me, round, size))?;
        let third = team.ibarrier()?;
        let source = team.size() - 1;
        if (me as usize + round).is_multiple_of(2) {
            first.wait()?;
            assert!(second.wait()? == filled(source, round, size));
            third.wait()?;
        } else {
            third.wait()?;
            assert!(second.wait()? == filled(source, round, size));
            first.wait()?;
        }
        // A call of one team that blocks, behind one of the other that is begun.
        let begun = other.ibarrier()?;
        team.barrier()?;
        begun.wait()?;
    }
    Ok(())
}

/// Rank 0 needs the others' help with a call of many pieces, while they wait for its signal.
fn other_waits(job: &Job) -> Result<()> {
    let team = job.team();
    let window = Window::<u64>::allocate(team, 2)?;
    let epoch = window.lock_all()?;
    for round in 1..=20usize {
        let data = filled(team.rank().0, round, 300_000);
        let request = team.ibroadcast(Rank(0), data)?;
        let want = filled(0, round, 300_000);
        if team.rank() == Rank(0) {
            assert!(request.wait()? == want);
            for target in team.ranks().skip(1) {
                epoch.put_signal(target, 0, &[7], &epoch, 1, SignalOp::Set, round as u64)?;
                epoch.flush(target)?;
            }
        } else {
            window.wait_until(1, Compare::Ge, round as u64)?;
            assert!(request.wait()? == want);
        }
        team.barrier()?;
    }
    epoch.unlock_all()
}

/// Rank 0 needs the others' help with a call of many pieces while they wait for its lock: in line
/// for it, and for its readers to go.
fn locks_wait(job: &Job) -> Result<()> {
    let team = job.team();
    let window = Window::<u64>::allocate(team, 2)?;
    for round in 0..6usize {
        let held = match round % 3 {
            0 => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let begin = || team.ibroadcast(Rank(0), filled(team.rank().0, round, 300_000));
        let want = filled(0, round, 300_000);
        if team.rank() == Rank(0) {
            let epoch = window.lock(Rank(0), held)?;
            team.barrier()?;
            assert!(begin()?.wait()? == want);
            epoch.unlock()?;
        } else {
            team.barrier()?;
            let request = begin()?;
            if round % 3 == 2 {
                window.lock_all()?.unlock_all()?;
            } else {
                window.lock(Rank(0), LockKind::Exclusive)?.unlock()?;
            }
            assert!(request.wait()? == want);
        }
        team.barrier()?;
    }
    Ok(())
}

fn tests_and_futures(job: &Job) -> Result<()> {
    let team = job.team();
    let me = team.rank().0;
    for round in 0..50 {
        let mut tested = team.iallgather([me, round])?;
        let awaited = team.iscan(Op::Sum, [1u32])?;
        let both = async {
            let mine = awaited.await?;
            Ok::<_, Error>(mine)
        };
        let mut both = pin!(both);
        let mut context = Context::from_waker(Waker::noop());
        let scanned = loop {
            match both.as_mut().poll(&mut context) {
                Poll::Ready(result) => break result?,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        assert_eq!(scanned, [me + 1]);
        assert!(tested.test()?, "it was begun before one that is done");
        let all = tested.wait()?;
        assert!(all.chunks(2).zip(0..).all(|(got, rank)| *got == [rank, round]));
    }
    Ok(())
}

/// Requests are dropped at once; the calls go on all the same.
fn dropped(job: &Job) -> Result<()> {
    let team = job.team();
    for round in 0..50 {
        drop(team.ibroadcast(Rank(0), filled(0, round, 70_000))?);
        drop(team.ibarrier()?);
        let mut sum = [1u64];
        team.allreduce(Op::Sum, &mut sum)?;
        assert_eq!(sum, [u64::from(team.size())]);
    }
    // A team that goes while something is under way: nobody hangs.
    let short = team.split(Some(1), 0)?.expect("a colour");
    // Others may have given it up before this rank begins.
    drop(short.ibarrier());
    drop(short);
    team.barrier()
}

/// Threads of a rank, each with a team of its own, at the same time.
fn threads(job: &Job) -> Result<()> {
    let team = job.team();
    let teams: Vec<Team> =
        (0..3).map(|_| Ok(team.split(Some(0), 0)?.expect("a colour"))).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let works: Vec<_> = teams
            .iter()
            .enumerate()
            .map(|(number, team)| {
                scope.spawn(move || -> Result<()> {
                    let mut calls = Random::new(number as u64 + 77);
                    let mut open = VecDeque::new();
                    for step in 0..100 {
                        open.extend(call(team, &mut calls, step)?);
                        if open.len() > 4 {
                            open.pop_front().map_or(Ok(()), Open::close)?;
                        }
                    }
                    open.into_iter().try_for_each(Open::close)
                })
            })
            .collect();
        works.into_iter().try_for_each(|work| work.join().expect("a thread"))
    })
}

/// A user's operation that panics in a call that was begun: an error for everybody, not a crash.
fn panicking(job: &Job) -> Result<()> {
    let team = job.team().split(Some(3), 0)?.expect("a colour");
    if team.size() == 1 {
        return Ok(());
    }
    let bad = each(|a: u8, b: u8| if a == b { std::panic::panic_any("on purpose") } else { a });
    let request = team.iallreduce(bad, vec![1; 100]);
    assert!(request.and_then(Request::wait).is_err());
    assert!(team.barrier().is_err(), "the team cannot be used any more");
    job.team().barrier()
}
