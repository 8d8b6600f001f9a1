//! Endpoints with a thread each, all at work at the same time: with ranks of the same node and of
//! others, which they reach by connections that they share.

use super::{next, pattern, previous};
use crate::{Written, brief};
use hither::{Any, Cancelled, Error, Job, Op, Pending, Rank, Result, SendRequest, Team, wait_all};
use std::sync::Barrier;

pub const CASES: &[Written] = &[
    ("endpoints_busy_everybody_to_everybody", everybody),
    ("endpoints_busy_any_source", any_source),
    ("endpoints_busy_collectives_and_splits", collectives),
    ("endpoints_busy_one_lies_idle", idle),
    ("endpoints_busy_one_is_funneled_and_away", away),
    ("endpoints_busy_given_up", given_up),
];

/// Sizes in bytes: short, eager, in pieces or read.
const SIZES: [usize; 6] = [3, 200, 5_000, 40_000, 9, 300_000];

/// Runs `body` in a thread for each of `teams`, with its number.
fn each(teams: &[Team], body: impl Fn(usize, &Team) -> Result<()> + Sync) -> Result<()> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            teams.iter().enumerate().map(|(i, team)| scope.spawn(move || body(i, team))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })
}

/// What message number `turn` of a rank at an endpoint is, the other way by another length.
fn message(from: Rank, to: Rank, endpoint: usize, turn: usize) -> Vec<u8> {
    let seed = [from.index(), to.index(), endpoint, turn];
    let seed = seed.into_iter().fold(7, |sum, part| sum * 1009 + part as u64);
    pattern(seed, SIZES[(turn + from.index() + endpoint) % SIZES.len()] + turn % 5)
}

fn finish(mut sent: Vec<SendRequest<Vec<u8>>>) -> Result<()> {
    let mut all: Vec<&mut dyn Pending> =
        sent.iter_mut().map(|one| one as &mut dyn Pending).collect();
    wait_all(&mut all)
}

/// Each thread sends to all ranks by its endpoint, and receives what theirs send: all of it, in order.
fn everybody(job: &Job) -> Result<()> {
    const TURNS: usize = 12;
    let all = job.team().endpoints(3)?;
    let me = job.rank();
    each(&all, |endpoint, team| {
        let mut sent = Vec::new();
        for turn in 0..TURNS {
            for to in team.ranks() {
                sent.push(team.isend(to, 1, message(me, to, endpoint, turn))?);
            }
            for from in team.ranks() {
                let expected = message(from, me, endpoint, turn);
                let mut got = vec![0u8; expected.len()];
                let status = team.recv(from, 1, &mut got)?;
                assert_eq!((status.source, status.bytes), (from, expected.len()));
                assert!(got == expected, "{from} to {me}, endpoint {endpoint}, turn {turn}");
            }
        }
        finish(sent)
    })?;
    // Nothing has come where it does not belong.
    for team in all.iter().chain([job.team()]) {
        assert!(team.iprobe::<u8>(Any, Any)?.is_none(), "a message too many");
    }
    job.team().barrier()
}

/// From any source, found by probes, each source's in order; no other endpoint's.
fn any_source(job: &Job) -> Result<()> {
    const TURNS: usize = 15;
    let all = job.team().endpoints(2)?;
    let me = job.rank();
    each(&all, |endpoint, team| {
        let mut sent = Vec::new();
        for turn in 0..TURNS {
            for to in team.ranks() {
                let tag = turn as u32;
                sent.push(team.isend(to, tag, message(me, to, endpoint, turn))?);
            }
        }
        let mut come = vec![0; team.size() as usize];
        for count in 0..TURNS * team.size() as usize {
            let (status, got) = if count % 2 == 0 {
                let found = team.probe::<u8>(Any, Any)?;
                let mut got = vec![0u8; found.bytes];
                (team.recv(found.source, found.tag, &mut got)?, got)
            } else {
                let found = team.mprobe::<u8>(Any, Any)?;
                let mut got = vec![0u8; found.status().bytes];
                (found.recv(&mut got)?, got)
            };
            let turn = come[status.source.index()];
            assert_eq!(status.tag, turn as u32, "from {} at {endpoint}", status.source);
            assert!(got == message(status.source, me, endpoint, turn));
            come[status.source.index()] += 1;
        }
        assert!(come.iter().all(|&count| count == TURNS), "{come:?}");
        finish(sent)
    })?;
    job.team().barrier()
}

/// Collectives and splits of each endpoint's team, and messages of the teams that come of it.
fn collectives(job: &Job) -> Result<()> {
    let all = job.team().endpoints(3)?;
    let size = u64::from(job.size());
    each(&all, |endpoint, team| {
        for turn in 0..6u64 {
            let mut sum = [turn + endpoint as u64];
            team.allreduce(Op::Sum, &mut sum)?;
            assert_eq!(sum, [size * (turn + endpoint as u64)]);
            // Odd and even ranks apart, or all backwards.
            let (color, key) = match turn % 2 {
                0 => (team.rank().0 % 2, team.rank().0),
                _ => (0, team.size() - team.rank().0),
            };
            let part = team.split(Some(color), key)?.expect("a team");
            let (to, from) = (part.rank().0 + 1, part.rank().0 + part.size() - 1);
            let (to, from) = (Rank(to % part.size()), Rank(from % part.size()));
            // The same tag at all: contexts and endpoints tell them apart.
            let mark = |rank: Rank| [turn, endpoint as u64, u64::from(rank.0)];
            let sent = part.isend(to, 9, mark(part.rank()).to_vec())?;
            team.send(next(job), 9, &[turn])?;
            let mut got = [0u64; 3];
            part.recv(from, 9, &mut got)?;
            assert_eq!(got, mark(from));
            let mut got = [0u64];
            team.recv(previous(job), 9, &mut got)?;
            assert_eq!(got, [turn]);
            sent.wait()?;
            part.barrier()?;
        }
        Ok(())
    })?;
    job.team().barrier()
}

/// Messages that each rank has sent to an endpoint where nobody receives.
const LEFT: usize = 1500;

fn leave(job: &Job, team: &Team, sent: &mut Vec<SendRequest<Vec<u8>>>) -> Result<()> {
    for turn in 0..LEFT {
        let len = if turn % 100 == 99 { 60_000 } else { 100 };
        sent.push(team.isend(next(job), 1, pattern(turn as u64, len))?);
    }
    Ok(())
}

fn fetch(job: &Job, team: &Team) -> Result<()> {
    for turn in 0..LEFT {
        let expected = pattern(turn as u64, if turn % 100 == 99 { 60_000 } else { 100 });
        let mut got = vec![0u8; expected.len()];
        team.recv(previous(job), 1, &mut got)?;
        assert!(got == expected, "turn {turn}");
    }
    Ok(())
}

/// Round trips by another endpoint and by the process's own.
fn converse(job: &Job, teams: [&Team; 2]) -> Result<()> {
    for turn in 0..60u64 {
        for team in teams {
            let sent = team.isend(next(job), 2, vec![turn; 1 + 40 * turn as usize])?;
            let mut got = vec![0u64; 1 + 40 * turn as usize];
            team.recv(previous(job), 2, &mut got)?;
            assert!(got.iter().all(|&word| word == turn));
            sent.wait()?;
        }
    }
    Ok(())
}

/// What goes to an endpoint at which nobody receives holds up nothing else.
fn idle(job: &Job) -> Result<()> {
    let all = job.team().endpoints(2)?;
    let mut sent = Vec::new();
    leave(job, &all[0], &mut sent)?;
    converse(job, [&all[1], job.team()])?;
    job.team().barrier()?;
    fetch(job, &all[0])?;
    finish(sent)?;
    job.team().barrier()
}

/// The same where every other rank's endpoint belongs to a thread that is in no call: nobody may look
/// after it there.
fn away(job: &Job) -> Result<()> {
    let all = job.team().endpoints(2)?;
    let (begun, over, funneled) = (&Barrier::new(2), &Barrier::new(2), &all[0]);
    let away = job.size() > 1 && job.rank().0.is_multiple_of(2);
    std::thread::scope(|scope| {
        let owner = away.then(|| {
            let owner = scope.spawn(move || {
                let only = funneled.funnel();
                begun.wait();
                over.wait();
                only.and_then(|_only| fetch(job, funneled))
            });
            begun.wait();
            owner
        });
        let mut sent = Vec::new();
        let left = if away || job.size() == 1 { Ok(()) } else { leave(job, funneled, &mut sent) };
        let conversed = left.and_then(|()| converse(job, [&all[1], job.team()]));
        // Everybody's has to be over before somebody receives.
        let conversed = conversed.and_then(|()| job.team().barrier());
        let fetched = owner.map_or(Ok(()), |owner| {
            over.wait();
            owner.join().expect("the owner")
        });
        conversed.and(fetched)?;
        finish(sent)
    })?;
    job.team().barrier()
}

/// Receives that end by the limit, and requests that are cancelled, at one endpoint; others go on.
fn given_up(job: &Job) -> Result<()> {
    let all = job.team().endpoints(2)?;
    each(&all, |endpoint, team| {
        if endpoint == 0 {
            let short = team.with_deadline(brief(50));
            let missed = short.recv(previous(job), 5, &mut [0u8; 8]);
            assert!(matches!(missed, Err(Error::TimedOut { .. })), "{missed:?}");
            for size in [8, 400_000] {
                let receive = team.irecv(Any, 6, vec![3u8; size])?;
                let Cancelled::Withdrawn(buffer) = receive.cancel()? else {
                    panic!("nothing came")
                };
                assert_eq!(buffer, vec![3; size]);
                // Nobody waits for the send, nor for the first receive.
                drop(team.irecv(previous(job), 8, vec![0u8; size])?);
                (0..2u8).try_for_each(|i| team.isend(next(job), 8, vec![i; size]).map(drop))?;
                let mut got = vec![0u8; size];
                team.recv(previous(job), 8, &mut got)?;
                assert!(got.iter().all(|&byte| byte == 1));
            }
        } else {
            for turn in 0..100u64 {
                team.send(next(job), 5, &[turn])?;
                let mut got = [0u64];
                team.recv(previous(job), 5, &mut got)?;
                assert_eq!(got, [turn]);
            }
        }
        Ok(())
    })?;
    job.team().barrier()
}
