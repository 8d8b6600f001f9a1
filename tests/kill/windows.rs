//! Workloads on windows, with points at which a rank holds something or is inside something.

use super::fuse::at;
use hither::{Compare, LockKind, Op, Rank, Result, SignalOp, Team, Window};

/// A workload on windows.
pub struct Work {
    pub name: &'static str,
    /// Where a rank can be told to die.
    pub points: &'static [&'static str],
    pub run: fn(&Team, u32) -> Result<()>,
}

pub const WORKS: &[Work] = &[
    Work { name: "fence", points: &["in a fence epoch", "between fences"], run: fence },
    Work { name: "active", points: &["inside a handler"], run: active },
    Work { name: "windows", points: &["before creating", "with a window"], run: windows },
    Work { name: "atomics", points: &["in a lock_all epoch"], run: atomics },
    Work {
        name: "locks",
        points: &[
            "holding an exclusive lock",
            "half through a change",
            "holding a shared lock",
            "holding all locks",
            "holding locks of all parts",
        ],
        run: locks,
    },
    Work { name: "signals", points: &["after a signal"], run: signals },
    Work {
        name: "groups",
        points: &["after post", "in an access epoch", "after complete", "between groups"],
        run: groups,
    },
    Work { name: "large", points: &["between large accumulates"], run: large },
];

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

/// Everybody exposes to everybody: a death concerns all.
fn groups(team: &Team, rounds: u32) -> Result<()> {
    let window = Window::<u64>::allocate(team, 2 * team.size() as usize)?;
    let everybody: Vec<Rank> = team.ranks().collect();
    let mine = 2 * team.rank().index();
    for round in 1..=u64::from(rounds) {
        let exposure = window.post(&everybody)?;
        at("after post");
        let epoch = window.start(&everybody)?;
        for &target in &everybody {
            epoch.put(target, mine, &[round, round])?;
            at("in an access epoch");
        }
        epoch.complete()?;
        at("after complete");
        exposure.wait()?;
        for word in 0..2 * team.size() as usize {
            assert_eq!(window.local().get(word)?, round, "what an origin put and completed");
        }
        at("between groups");
    }
    team.barrier()
}
