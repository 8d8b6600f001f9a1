//! Workloads on windows, with points at which a rank holds something or is inside something.

use super::fuse::at;
use hither::{Op, Rank, Result, Team, Window};

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
