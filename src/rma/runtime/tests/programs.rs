//! Random programs: what each rank calls, such that it may.

use super::net::{Action, Dice};
use crate::rma::runtime::{FenceFlags, Issuing, Limits, LockKind, WindowId};

/// Lock epochs are on this one,
pub const LOCKED: WindowId = WindowId(1);
/// fences on this,
pub const FENCED: WindowId = WindowId(2);
/// exposure epochs on this.
pub const EXPOSED: WindowId = WindowId(3);
pub const WINDOWS: [WindowId; 3] = [LOCKED, FENCED, EXPOSED];

/// Counted up by read and write under exclusive locks only.
pub const EXCLUSIVE_CELL: u32 = 7;
/// Counted up by accumulates.
pub const ADDED_CELL: u32 = 6;

#[derive(Clone, Debug)]
pub enum Call {
    Lock(u32, LockKind),
    /// Waits for the grant, from which on the lock is held against all others.
    Locked(u32, LockKind),
    Unlock(u32),
    LockAll,
    UnlockAll,
    Flush(u32),
    FlushAll,
    FlushLocal(u32),
    FlushLocalAll,
    Push(u32),
    Operate(WindowId, u32, Action, u32, usize),
    /// Writes what the last get gave, plus one.
    PutBack(u32),
    Fence(FenceFlags),
    Post(Vec<u32>),
    Start(Vec<u32>),
    Complete(Vec<u32>),
    Wait(Vec<u32>),
}

impl Call {
    /// Whether the group of the call has this rank.
    pub fn of(&self, rank: u32) -> bool {
        matches!(self, Call::Complete(group) if group.contains(&rank))
    }
}

pub fn pick<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.below(of.len() as u64) as usize]
}

pub fn limits(dice: &mut Dice, tiny: bool) -> Limits {
    if tiny {
        let issuing = pick(dice, &[Issuing::Eager, Issuing::Delayed, Issuing::Adaptive]);
        return Limits {
            targets: 1,
            origins: 1,
            operations: 2,
            outstanding: 1,
            slots: 1,
            visits: 1,
            small: 64,
            issuing,
            eager_operations: 2,
            ..Limits::default()
        };
    }
    Limits {
        targets: pick(dice, &[1, 2, 3, 256]),
        origins: pick(dice, &[1, 2, 128]),
        operations: pick(dice, &[2, 3, 5, 6, 9, 1024]),
        small: 64,
        outstanding: pick(dice, &[1, 2, 7, 256]),
        slots: pick(dice, &[1, 3, 64]),
        visits: pick(dice, &[1, 2, 16]),
        issuing: pick(dice, &[Issuing::Eager, Issuing::Delayed, Issuing::Adaptive]),
        eager_operations: pick(dice, &[1, 3, 64]),
        eager_bytes: pick(dice, &[100, 16 << 10]),
        speculate: pick(dice, &[0, 1, 1024]),
        reduce_teams: pick(dice, &[0, 64]),
    }
}

/// Some operations of one epoch, on targets from `targets`.
fn operations(dice: &mut Dice, window: WindowId, targets: &[u32], most: u64, out: &mut Vec<Call>) {
    for _ in 0..dice.below(most + 1) {
        if targets.is_empty() {
            return;
        }
        let target = pick(dice, targets);
        let padding = if dice.one_in(6) { 100 } else { 0 };
        let action = match dice.below(12) {
            0..6 => Action::Put,
            6..9 => Action::Add,
            9..11 => Action::Get,
            _ => Action::Fail,
        };
        let cell = match action {
            Action::Add => ADDED_CELL,
            _ => dice.below(5) as u32,
        };
        out.push(Call::Operate(window, target, action, cell, padding));
        if window == LOCKED {
            match dice.below(24) {
                0 => out.push(Call::Flush(target)),
                1 => out.push(Call::FlushLocal(target)),
                2 => out.push(Call::FlushAll),
                3 => out.push(Call::FlushLocalAll),
                4 => out.push(Call::Push(target)),
                _ => {}
            }
        }
    }
}

/// Lock epochs of one rank.
fn lock_phase(dice: &mut Dice, size: u32, several: bool, out: &mut Vec<Call>) {
    let everyone: Vec<u32> = (0..size).collect();
    for _ in 0..1 + dice.below(3) {
        let kind = if dice.one_in(2) { LockKind::Shared } else { LockKind::Exclusive };
        match dice.below(4) {
            0 if !several => {
                out.push(Call::LockAll);
                operations(dice, LOCKED, &everyone, 12, out);
                out.push(Call::UnlockAll);
            }
            0 => {
                // Several at a time, in one order.
                let some: Vec<u32> = everyone.iter().copied().filter(|_| dice.one_in(2)).collect();
                for target in &some {
                    out.push(Call::Lock(*target, kind));
                    if dice.one_in(3) {
                        out.push(Call::Locked(*target, kind));
                    }
                    if dice.one_in(2) {
                        operations(dice, LOCKED, &[*target], 3, out);
                    }
                }
                operations(dice, LOCKED, &some, 8, out);
                out.extend(some.iter().rev().map(|target| Call::Unlock(*target)));
            }
            1 => {
                let target = pick(dice, &everyone);
                out.push(Call::Lock(target, LockKind::Exclusive));
                if dice.one_in(2) {
                    out.push(Call::Locked(target, LockKind::Exclusive));
                }
                out.push(Call::Operate(LOCKED, target, Action::Get, EXCLUSIVE_CELL, 0));
                out.push(Call::FlushLocal(target));
                out.push(Call::PutBack(target));
                operations(dice, LOCKED, &[target], 4, out);
                out.push(Call::Unlock(target));
            }
            _ => {
                let target = pick(dice, &everyone);
                out.push(Call::Lock(target, kind));
                if dice.one_in(4) {
                    out.push(Call::Locked(target, kind));
                }
                operations(dice, LOCKED, &[target], 6, out);
                out.push(Call::Unlock(target));
            }
        }
    }
}

pub fn programs(dice: &mut Dice, size: u32) -> Vec<Vec<Call>> {
    let mut programs = vec![Vec::new(); size as usize];
    let everyone: Vec<u32> = (0..size).collect();
    // Taking several locks in an order of one's own does not go with lock_all, in which the
    // order is the library's.
    let several = dice.one_in(2);
    for _ in 0..2 + dice.below(4) {
        match dice.below(3) {
            0 => {
                for program in &mut programs {
                    lock_phase(dice, size, several, program);
                }
            }
            1 => {
                let fences = 1 + dice.below(4);
                for _ in 0..fences {
                    let empty = dice.one_in(5);
                    for program in &mut programs {
                        program.push(Call::Fence(FenceFlags::default()));
                        if empty {
                            let no_precede = FenceFlags { no_precede: true, no_succeed: false };
                            program.push(Call::Fence(no_precede));
                        }
                        operations(dice, FENCED, &everyone, 8, program);
                    }
                }
                for program in &mut programs {
                    let last = FenceFlags { no_precede: false, no_succeed: true };
                    program.push(Call::Fence(last));
                }
            }
            _ => {
                // Who operates on whom.
                let mut targets = vec![Vec::new(); size as usize];
                let mut origins = vec![Vec::new(); size as usize];
                for from in 0..size {
                    for to in 0..size {
                        if dice.one_in(2) {
                            targets[from as usize].push(to);
                            origins[to as usize].push(from);
                        }
                    }
                }
                for rank in 0..size as usize {
                    let program = &mut programs[rank];
                    program.push(Call::Post(origins[rank].clone()));
                    program.push(Call::Start(targets[rank].clone()));
                    operations(dice, EXPOSED, &targets[rank], 8, program);
                    program.push(Call::Complete(targets[rank].clone()));
                    program.push(Call::Wait(origins[rank].clone()));
                }
            }
        }
    }
    programs
}
