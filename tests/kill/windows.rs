//! Workloads on windows, with points at which a rank holds something or is inside something.

use super::fuse::at;
use super::messages;
use hither::{Compare, Located, LockKind, Memory, Op, Rank, Result, SignalOp, Team, Window};

/// A workload on windows.
pub struct Work {
    pub name: &'static str,
    /// Where a rank can be told to die.
    pub points: &'static [&'static str],
    /// It needs parts that are mapped.
    pub mapped: bool,
    pub run: fn(&Team, u32) -> Result<()>,
}

pub const WORKS: &[Work] = &[
    Work {
        name: "fence",
        points: &["in a fence epoch", "between fences"],
        mapped: false,
        run: fence,
    },
    Work { name: "active", points: &["inside a handler"], mapped: true, run: active },
    Work { name: "handlers", points: messages::POINTS, mapped: false, run: messages::messages },
    Work {
        name: "windows",
        points: &["before creating", "with a window"],
        mapped: false,
        run: windows,
    },
    Work { name: "atomics", points: &["in a lock_all epoch"], mapped: false, run: atomics },
    Work {
        name: "locks",
        points: &[
            "holding an exclusive lock",
            "half through a change",
            "holding a shared lock",
            "holding all locks",
            "holding locks of all parts",
        ],
        mapped: false,
        run: locks,
    },
    Work { name: "signals", points: &["after a signal"], mapped: false, run: signals },
    Work { name: "groups", points: GROUPS, mapped: false, run: groups },
    Work { name: "groups-ring", points: GROUPS, mapped: false, run: ring },
    Work { name: "groups-pairs", points: GROUPS, mapped: false, run: pairs },
    Work { name: "large", points: &["between large accumulates"], mapped: false, run: large },
    Work { name: "stripes", points: &[], mapped: true, run: stripes },
];

/// Points of epochs of groups.
const GROUPS: &[&str] =
    &["before post", "after post", "in an access epoch", "after complete", "between groups"];

fn next(team: &Team) -> Rank {
    Rank((team.rank().0 + 1) % team.size())
}

fn fence(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 1000)?;
    let mut epoch = window.fence()?;
    for round in 0..rounds {
        epoch.put(next(team), 0, &[u64::from(round); 1000])?;
        at("in a fence epoch");
        epoch.next()?;
        assert_eq!(window.local().get(999)?, u64::from(round));
        at("between fences");
        epoch.next()?;
    }
    epoch.end()
}

/// A lock per target, taken by all: the victim often dies holding one or waiting for one.
fn active(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 2)?;
    let add = window.register::<u64, u64>(1, |call| {
        // Two words that must stay equal: half-done is visible.
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + 1);
        at("inside a handler");
        std::hint::spin_loop();
        let _ = call.persistent.set(1, old + 1);
        call.output[0] = old;
    })?;
    let epoch = window.lock_all()?;
    let mut seen = [0];
    for round in 0..rounds {
        for target in team.ranks() {
            epoch.am(&add, target, 0..2, &[1], &mut seen)?;
        }
        if round % 64 == 63 {
            team.barrier()?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()?;
    assert_eq!(window.local().get(0)?, window.local().get(1)?);
    team.barrier()
}

fn windows(team: &Team, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        at("before creating");
        let window = Window::<u32>::allocate(team, 1_000_000)?;
        assert_eq!(window.local().get(999_999)?, 0, "a fresh window is not zero");
        window.local().set(999_999, round)?;
        at("with a window");
        window.free()?;
    }
    Ok(())
}

/// Each signals its successor and waits for its predecessor: nobody waits for who is dead.
fn signals(team: &Team, rounds: u32) -> Result<()> {
    let (data, words) = (Window::<u64>::allocate(team, 64)?, Window::<u64>::allocate(team, 1)?);
    let (epoch, signal) = (data.lock_all()?, words.lock_all()?);
    for round in (1..=rounds).map(u64::from) {
        epoch.put_signal(next(team), 0, &[round; 64], &signal, 0, SignalOp::Set, round)?;
        at("after a signal");
        let seen = words.wait_until(0, Compare::Ge, round)?;
        assert!(data.local().get(63)? >= seen, "a signal came before its data");
    }
    epoch.unlock_all()?;
    signal.unlock_all()?;
    team.barrier()
}

fn atomics(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 4)?;
    let epoch = window.lock_all()?;
    for round in 0..rounds {
        let target = Rank(round % team.size());
        epoch.accumulate(target, 0, Op::Sum, &[1, 1])?;
        epoch.fetch_and_op(target, 2, Op::Max, u64::from(round))?;
        at("in a lock_all epoch");
        epoch.flush(target)?;
        if round % 256 == 255 {
            team.barrier()?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()
}

/// Large accumulates among small ones: the victim often dies in the middle of one, and the others
/// must go on updating the same elements.
fn large(team: &Team, rounds: u32) -> Result<()> {
    const LEN: usize = 20_000;
    let window = Window::<u64>::allocate(team, LEN)?;
    let epoch = window.lock_all()?;
    let ones = vec![1u64; LEN];
    for round in 0..rounds {
        let target = Rank(round % team.size());
        let before = epoch.fetch_and_op(target, 77, Op::NoOp, 0)?;
        epoch.accumulate(target, 0, Op::Sum, &ones)?;
        at("between large accumulates");
        epoch.accumulate(target, 77, Op::Sum, &[1])?;
        epoch.flush(target)?;
        let after = epoch.fetch_and_op(target, 77, Op::NoOp, 0)?;
        assert!(after >= before + 2, "an update of a living rank was lost");
        if round % 32 == 31 {
            team.barrier()?;
        }
    }
    epoch.unlock_all()?;
    team.barrier()
}

/// Pairs, which are always updated under the locks of accumulates: of mapped memory by their
/// origins, and of private memory that the same locks protect by the target, for packets. At most
/// moments the victim has such a lock, for which packets wait then; the others go on with the living.
fn stripes(team: &Team, rounds: u32) -> Result<()> {
    const LEN: usize = 10_000;
    type Pair = Located<i64, i64>;
    let window = Window::<Pair>::builder(team).dynamic()?;
    let mapped = Memory::<Pair>::shared(team, LEN)?;
    let private = Memory::private(vec![pair_of(0, 0); LEN]);
    let mine = [window.attach(&mapped)?.address, window.attach(&private)?.address];
    let mut all = vec![0; 2 * team.size() as usize];
    team.allgather(&mine, &mut all)?;
    let me = i64::from(team.rank().0);
    let epoch = window.lock_all()?;
    let (mut died, mut last) = (None, i64::from(rounds));
    for round in 1.. {
        if round > last {
            break;
        }
        let values = vec![pair_of(round, me); LEN];
        for target in team.ranks() {
            let places = [all[2 * target.index()] as usize, all[2 * target.index() + 1] as usize];
            let done: Result<()> = places.iter().try_for_each(|&place| {
                epoch.accumulate(target, place, Op::MaxLoc, &values)?;
                epoch.flush(target)?;
                let mut there = [pair_of(0, 0)];
                epoch.get(target, place + 16 * (LEN - 1), &mut there)?;
                assert!(there[0].value >= round, "an update was lost: {there:?}");
                Ok(())
            });
            match done {
                Err(error) if error.is_death() => {
                    // They go on for a while.
                    last = last.min(round + 20);
                    died = Some(error);
                }
                other => other?,
            }
        }
    }
    unless_dead(epoch.unlock_all())?;
    died.map_or_else(|| team.barrier(), Err)
}

fn pair_of(value: i64, index: i64) -> Located<i64, i64> {
    Located { value, index }
}

/// Two words that change together under exclusive locks.
fn locks(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 4)?;
    for round in 0..rounds {
        let target = Rank(round.wrapping_mul(7).wrapping_add(team.rank().0) % team.size());
        match round % 4 {
            0 | 1 => {
                let epoch = window.lock(target, LockKind::Exclusive)?;
                at("holding an exclusive lock");
                let mut words = [0; 2];
                epoch.get(target, 0, &mut words)?;
                if words[0] != words[1] {
                    // Only where somebody was lost in the middle, and only until it is repaired.
                    let lost = epoch.recovered_from();
                    assert!(lost.is_some(), "half a change and nobody lost: {words:?}");
                    epoch.put(target, 1, &[words[0]])?;
                }
                epoch.put(target, 0, &[words[0] + 1])?;
                epoch.flush_local()?;
                at("half through a change");
                epoch.put(target, 1, &[words[0] + 1])?;
                // The target's death is its business.
                unless_dead(epoch.unlock())?;
            }
            2 => {
                let epoch = window.lock(target, LockKind::Shared)?;
                at("holding a shared lock");
                let mut words = [0; 2];
                epoch.get(target, 0, &mut words)?;
                let lost = epoch.recovered_from();
                assert!(words[0] == words[1] || lost.is_some(), "half a change: {words:?}");
                epoch.accumulate(target, 2, Op::Sum, &[1])?;
                unless_dead(epoch.unlock())?;
            }
            _ if round % 8 == 3 => {
                let epoch = window.lock_all()?;
                at("holding all locks");
                epoch.accumulate(target, 2, Op::Sum, &[1])?;
                unless_dead(epoch.unlock_all())?;
            }
            _ => {
                let locks: Result<Vec<_>> =
                    team.ranks().map(|rank| window.lock(rank, LockKind::Shared)).collect();
                let locks = locks?;
                at("holding locks of all parts");
                for epoch in locks {
                    unless_dead(epoch.unlock())?;
                }
            }
        }
        if round % 32 == 31 {
            team.barrier()?;
        }
    }
    team.barrier()
}

/// Takes the death of a target for success: whoever depends on it learns it otherwise.
fn unless_dead(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_death() => Ok(()),
        other => other,
    }
}

/// One epoch of each sort: to `origins`, and to `targets`, on which `round` is put.
fn exchange(window: &Window<u64>, origins: &[Rank], targets: &[Rank], round: u64) -> Result<()> {
    let mine = 2 * window.team().rank().index();
    at("before post");
    let exposure = window.post(origins)?;
    at("after post");
    let epoch = window.start(targets)?;
    for &target in targets {
        epoch.put(target, mine, &[round, round])?;
        at("in an access epoch");
    }
    epoch.complete()?;
    at("after complete");
    exposure.wait()?;
    for origin in origins {
        for word in [2 * origin.index(), 2 * origin.index() + 1] {
            assert_eq!(window.local().get(word)?, round, "what an origin put and completed");
        }
    }
    at("between groups");
    Ok(())
}

/// Everybody exposes to everybody: a death concerns all.
fn groups(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 2 * team.size() as usize)?;
    let everybody: Vec<Rank> = team.ranks().collect();
    for round in 1..=u64::from(rounds) {
        exchange(&window, &everybody, &everybody, round)?;
    }
    team.barrier()
}

/// Each exposes to its predecessor and accesses its successor: a death is passed on around the ring, by
/// those who do not go on because of it.
fn ring(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 2 * team.size() as usize)?;
    let previous = Rank((team.rank().0 + team.size() - 1) % team.size());
    for round in 1..=u64::from(rounds) {
        exchange(&window, &[previous], &[next(team)], round)?;
    }
    team.barrier()
}

/// Everybody with a partner: a death concerns the partner only. The others go on till they have
/// heard of it, and then all the living use the same window in one group.
fn pairs(team: &Team, rounds: u32) -> Result<()> {
    let (size, me) = (team.size(), team.rank());
    let partner = Rank(if me.0 ^ 1 < size { me.0 ^ 1 } else { me.0 });
    let window = Window::<u64>::allocate(team, 2 * size as usize)?;
    let node = team.node();
    let alive = |rank: &Rank| team.slot_of(*rank).is_ok_and(|slot| !node.is_dead(slot));
    let widowed = (1..=u64::from(rounds)).find_map(|round| {
        // Both stop in the same round, so a partner is told by what is put.
        let stops = u64::from(!team.ranks().all(|rank| alive(&rank)));
        let done = pair(&window, partner, round, stops);
        match done {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) if !error.is_death() || alive(&partner) => Some(Err(error)),
            // The partner is dead, or its death was known before this round could begin.
            Err(_) => Some(Ok(())),
        }
    });
    let Some(heard) = widowed else { return team.barrier() };
    heard?;
    let living: Vec<Rank> = team.ranks().filter(alive).collect();
    assert!(living.len() < size as usize && living.contains(&me), "who lives");
    for round in 1..=50 {
        // Of what the partner put last, nothing may remain to be mistaken for this.
        let exposure = window.post(&living)?;
        let epoch = window.start(&living)?;
        for &target in &living {
            epoch.put(target, 2 * me.index(), &[u64::MAX - round, round])?;
        }
        epoch.complete()?;
        exposure.wait()?;
        for origin in &living {
            assert_eq!(window.local().get(2 * origin.index())?, u64::MAX - round);
        }
    }
    team.barrier()
}

/// A round of two partners; whether one of them stops.
fn pair(window: &Window<u64>, partner: Rank, round: u64, stops: u64) -> Result<bool> {
    let mine = 2 * window.team().rank().index();
    at("before post");
    let exposure = window.post(&[partner])?;
    at("after post");
    let epoch = window.start(&[partner])?;
    epoch.put(partner, mine, &[round, stops])?;
    at("in an access epoch");
    epoch.complete()?;
    at("after complete");
    exposure.wait()?;
    let theirs = 2 * partner.index();
    assert_eq!(window.local().get(theirs)?, round, "what a partner put and completed");
    at("between groups");
    Ok(stops + window.local().get(theirs + 1)? > 0)
}
