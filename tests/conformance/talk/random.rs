//! Random traffic against an oracle.
//!
//! Every ordered pair of members has a script that both sides know: messages with tags and sizes.
//! The receiver chooses, at random, whom and which tag it asks for, or any of both, and knows from
//! the scripts which message it must get: the earliest of the source that says, with a tag that it
//! asked for. What it gets must be that, byte for byte.

use super::pattern;
use crate::Written;
use crate::support::random::Random;
use hither::{Any, Job, Rank, Result, Source, Tag, Team};
use std::collections::VecDeque;

pub const CASES: &[Written] = &[
    ("talk_random", |job| play(job, job.team(), 1, 600)),
    ("talk_random_small", |job| play(job, job.team(), 2, 0)),
    ("talk_random_batches", batches),
    ("talk_random_four_threads", four_threads),
    ("talk_random_four_endpoints", four_endpoints),
];

const TAGS: u64 = 3;
const MESSAGES: usize = 150;

#[derive(Clone, Copy, Debug)]
struct Planned {
    tag: u32,
    size: usize,
    synchronous: bool,
}

/// Sizes of all classes, small ones more often.
fn size(random: &mut Random, large: u64) -> usize {
    let most = match random.below(1000) {
        part if part < large / 6 => 400_000,
        part if part < large / 2 => 20_000,
        part if part < 800 => 64,
        _ => 3000,
    };
    random.below(most + 1) as usize
}

fn script(from: u32, to: u32, salt: u64, large: u64) -> Vec<Planned> {
    let mut random = Random::new(salt << 40 | u64::from(from) << 20 | u64::from(to));
    let one = |_| Planned {
        tag: random.below(TAGS) as u32,
        size: size(&mut random, large),
        synchronous: random.below(10) == 0,
    };
    (0..MESSAGES).map(one).collect()
}

fn content(from: u32, to: u32, number: usize, size: usize) -> Vec<u8> {
    pattern(u64::from(from) << 40 | u64::from(to) << 20 | number as u64, size)
}

fn play(job: &Job, team: &Team, salt: u64, large: u64) -> Result<()> {
    let (me, size) = (team.rank().0, team.size());
    let mut random = Random::new(salt << 32 | u64::from(me));
    let mut to_send: Vec<(u32, usize)> =
        (0..size).flat_map(|to| (0..MESSAGES).map(move |i| (to, i))).collect();
    // Mixes the targets and keeps each one's order.
    to_send.sort_by_key(|&(to, i)| (i as u64 * 1000 / MESSAGES as u64, (to + me) % size));
    let scripts: Vec<Vec<Planned>> = (0..size).map(|to| script(me, to, salt, large)).collect();
    let mut expected: Vec<VecDeque<(usize, Planned)>> = (0..size)
        .map(|from| script(from, me, salt, large).into_iter().enumerate().collect())
        .collect();
    let mut under_way = Vec::new();
    let mut to_send = to_send.into_iter();
    let mut left = MESSAGES * size as usize;
    let mut buffer = vec![0u8; 400_001];
    loop {
        for _ in 0..1 + random.below(8) {
            let Some((to, i)) = to_send.next() else { break };
            let Planned { tag, size, synchronous } = scripts[to as usize][i];
            let data = content(me, to, i, size);
            under_way.push(if synchronous {
                team.issend(Rank(to), tag, data)?
            } else {
                team.isend(Rank(to), tag, data)?
            });
        }
        // As long as this rank has not sent everything, another may wait for what it will send.
        let all_sent = to_send.len() == 0;
        for _ in 0..1 + random.below(12) {
            if left == 0 {
                break;
            }
            let (source, tag) = choose(&mut random, &expected);
            if !all_sent && team.iprobe::<u8>(source, tag)?.is_none() {
                continue;
            }
            receive(team, source, tag, &mut expected, &mut buffer)?;
            left -= 1;
        }
        if all_sent && left == 0 {
            break;
        }
    }
    for request in under_way {
        request.wait()?;
    }
    if std::ptr::eq(team, job.team()) {
        assert!(team.iprobe::<u8>(Any, Any)?.is_none(), "a message too many");
    }
    team.barrier()
}

/// A pattern that some message to come fits.
fn choose(random: &mut Random, expected: &[VecDeque<(usize, Planned)>]) -> (Source, Tag) {
    loop {
        let from = random.below(expected.len() as u64) as usize;
        let queue = &expected[from];
        if queue.is_empty() {
            continue;
        }
        let tag = queue[random.below(queue.len() as u64) as usize].1.tag;
        let source = Source::Rank(Rank(from as u32));
        return match random.below(4) {
            0 => (source, Tag::Any),
            1 => (Source::Any, Tag::Exactly(tag)),
            2 => (Source::Any, Tag::Any),
            _ => (source, Tag::Exactly(tag)),
        };
    }
}

fn receive(
    team: &Team,
    source: Source,
    tag: Tag,
    expected: &mut [VecDeque<(usize, Planned)>],
    buffer: &mut [u8],
) -> Result<()> {
    let status = team.recv(source, tag, buffer)?;
    let from = status.source.0;
    if let Source::Rank(rank) = source {
        assert_eq!(rank, status.source);
    }
    let queue = &mut expected[from as usize];
    let fits = |planned: &Planned| match tag {
        Tag::Exactly(tag) => planned.tag == tag,
        Tag::Any => true,
    };
    let at = queue.iter().position(|(_, planned)| fits(planned)).expect("a message too many");
    let (number, planned) = queue.remove(at).expect("it was found");
    assert_eq!((status.tag, status.bytes), (planned.tag, planned.size), "{from}: {number}");
    let want = content(from, team.rank().0, number, planned.size);
    assert!(buffer[..planned.size] == want[..], "message {number} of {from} came changed");
    Ok(())
}

/// Receives posted ahead, in another order than they are waited for.
fn batches(job: &Job) -> Result<()> {
    let team = job.team();
    let (me, size) = (team.rank().0, team.size());
    let mut random = Random::new(77 + u64::from(me));
    for round in 0..12u64 {
        let mut receives = Vec::new();
        for from in 0..size {
            for (i, planned) in script(from, me, round, 500).into_iter().take(24).enumerate() {
                let room = planned.size + random.below(3) as usize;
                let tag = planned.tag;
                receives.push((from, i, planned, team.irecv(Rank(from), tag, vec![0u8; room])?));
            }
        }
        if round.is_multiple_of(2) {
            team.barrier()?;
        }
        let mut sends = Vec::new();
        for i in 0..24 {
            for step in 0..size {
                let to = (me + step) % size;
                let planned = script(me, to, round, 500)[i];
                sends.push(team.isend(Rank(to), planned.tag, content(me, to, i, planned.size))?);
            }
        }
        while !receives.is_empty() {
            let at = random.below(receives.len() as u64) as usize;
            let (from, i, planned, request) = receives.swap_remove(at);
            let (buffer, status) = request.wait()?;
            assert_eq!((status.source.0, status.bytes), (from, planned.size), "{i}");
            assert!(buffer[..planned.size] == content(from, me, i, planned.size)[..]);
        }
        sends.into_iter().try_for_each(|send| send.wait().map(drop))?;
    }
    team.barrier()
}

/// Four threads of each rank at a time: each with a team of its own, and all on one with tags of
/// their own.
fn four_threads(job: &Job) -> Result<()> {
    let teams: Result<Vec<Team>> = (0..4)
        .map(|_| job.team().split(Some(0), job.rank().0).map(|team| team.expect("a team")))
        .collect();
    let teams = teams?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = teams
            .iter()
            .enumerate()
            .map(|(number, team)| {
                scope.spawn(move || {
                    play(job, team, 10 + number as u64, 300)?;
                    talk_in(job.team(), number as u32)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })?;
    job.team().barrier()
}

/// The same with an endpoint for each thread, funneled.
fn four_endpoints(job: &Job) -> Result<()> {
    let endpoints = job.team().endpoints(4)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = endpoints
            .iter()
            .enumerate()
            .map(|(number, team)| {
                scope.spawn(move || {
                    let _only = team.funnel()?;
                    play(job, team, 20 + number as u64, 300)?;
                    talk_in(team, number as u32)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })?;
    job.team().barrier()
}

fn talk_in(team: &Team, thread: u32) -> Result<()> {
    let (me, size) = (team.rank().0, team.size());
    for i in 0..300u32 {
        let to = Rank((me + i) % size);
        let from = Rank((me + size - i % size) % size);
        let len = [1usize, 8, 100, 3000, 30_000][i as usize % 5];
        let sent = team.isend(to, thread, vec![i ^ thread; len])?;
        let mut got = vec![0u32; len];
        team.recv(from, thread, &mut got)?;
        assert!(got.iter().all(|&value| value == i ^ thread), "thread {thread}, message {i}");
        sent.wait()?;
    }
    Ok(())
}
