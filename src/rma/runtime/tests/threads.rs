//! Several threads of each rank on the pools of its one engine: what waits for a lock, a fence or a
//! post never keeps others from ending what that waits for.

use super::net::{Action, Dice, W, World};
use super::programs::limits;
use crate::rma::runtime::{FenceFlags, Issuing, Limits, LockFlags, LockKind, Trouble, WindowId};
use std::collections::{HashSet, VecDeque};
use std::task::Poll;

/// Two threads of two ranks, with the least of everything: `b` has asked for what the other rank
/// has, while `a` holds what the other rank wants and needs an object to go on.
#[test]
fn who_waits_for_a_lock_keeps_nobody_from_ending_his() {
    for issuing in [Issuing::Eager, Issuing::Adaptive, Issuing::Delayed] {
        let limits = Limits { targets: 1, operations: 2, outstanding: 1, ..tiny(issuing) };
        let mut world = World::new(4, 1, 1, &limits, &[W]);
        let locked = |world: &mut World, rank: u32, target: u32| {
            world.lock(rank, target, LockKind::Exclusive);
            world.finish(rank, |engine, port| engine.locked(port, W, target)).unwrap();
        };
        locked(&mut world, 0, 2);
        locked(&mut world, 1, 3);
        // Thread b of rank 0 wants what rank 1 holds, and that what thread a of rank 0 holds.
        let ask = |world: &mut World, rank: u32, target: u32| {
            world.call(rank, |engine, port| {
                engine.lock(port, W, target, LockKind::Exclusive, LockFlags::default()).is_pending()
            })
        };
        for _ in 0..20 {
            assert!(ask(&mut world, 0, 3) && ask(&mut world, 1, 2));
            world.sweep();
        }
        // Thread a goes on, takes another lock, and ends.
        for value in 0..5 {
            world.finish_operate(0, 2, Action::Put, (0, value));
        }
        locked(&mut world, 0, 1);
        world.finish_operate(0, 1, Action::Put, (0, 7));
        world.unlock(0, 1).unwrap();
        world.unlock(0, 2).unwrap();
        // Now the others.
        locked(&mut world, 1, 2);
        world.finish_operate(1, 2, Action::Put, (0, 9));
        world.unlock(1, 2).unwrap();
        world.unlock(1, 3).unwrap();
        locked(&mut world, 0, 3);
        world.unlock(0, 3).unwrap();
        world.settle();
    }
}

fn tiny(issuing: Issuing) -> Limits {
    Limits { origins: 1, slots: 1, visits: 1, small: 64, issuing, ..Limits::default() }
}

/// A fence epoch and an access epoch that wait for the others keep nothing from a thread whose lock
/// these wait for.
#[test]
fn epochs_that_wait_for_others_leave_room_for_those_that_do_not() {
    let limits = Limits { targets: 2, operations: 4, outstanding: 2, ..tiny(Issuing::Adaptive) };
    let (locks, fences, posts) = (WindowId(1), WindowId(2), WindowId(3));
    let mut world = World::new(3, 1, 1, &limits, &[locks, fences, posts]);
    let flags = FenceFlags::default();
    world
        .finish(0, |engine, port| {
            engine.lock(port, locks, 2, LockKind::Shared, LockFlags::default())
        })
        .unwrap();
    world.finish(0, |engine, port| engine.locked(port, locks, 2)).unwrap();
    world.finish(0, |engine, port| engine.fence(port, fences, flags)).unwrap();
    world.finish(0, |engine, _| engine.start(posts, &[1, 2], false)).unwrap();
    // As many as there is room for, and none of the others has called anything.
    for turn in 0..40 {
        let target = 1 + turn % 2;
        let _ = world.operate(0, fences, target, Action::Put, (0, 1), 1);
        let _ = world.operate(0, posts, target, Action::Put, (0, 1), 0);
        world.sweep();
    }
    for value in 0..9 {
        for _ in 0..100 {
            if world.operate(0, locks, 2, Action::Put, (0, value), 0).is_ready() {
                break;
            }
            world.sweep();
        }
        assert_eq!(world.given(0, 2, locks), value + 1, "no room for who waits for nobody");
    }
    world.finish(0, |engine, port| engine.unlock(port, locks, 2)).unwrap();
    assert_eq!(world.performed(0, 2, locks), 9);
}

/// Whoever stands in line is overtaken by each other once, whatever these do.
#[test]
fn nobody_in_line_is_overtaken_without_a_bound() {
    for (size, origins, kinds) in [(8u32, 1, 1), (30, 4, 1), (30, 4, 3), (60, 1, 2)] {
        let limits = Limits { origins, ..tiny(Issuing::Eager) };
        for seed in 0..6 {
            let mut world = World::new(size, 4, seed, &limits, &[W]);
            let mut dice = Dice::new(seed + 77);
            let target = 0;
            // Per rank: asked at this count of grants; none while it does not want it.
            let mut asked: Vec<Option<u64>> = vec![None; size as usize];
            let mut holds = vec![false; size as usize];
            let (mut grants, mut worst) = (0u64, 0);
            while grants < 40 * u64::from(size) {
                let rank = 1 + dice.below(u64::from(size) - 1) as u32;
                let at = rank as usize;
                // Some are slow: they are not to lose for that.
                let slow = rank.is_multiple_of(7) && !dice.one_in(20);
                if slow {
                    world.step(target);
                } else if holds[at] {
                    let done = world.call(rank, |engine, port| engine.unlock(port, W, target));
                    holds[at] = done.is_pending();
                } else {
                    let exclusive = kinds == 1 || !dice.one_in(kinds);
                    let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
                    if asked[at].is_none() {
                        world.lock(rank, target, kind);
                        // In line once its query has been taken.
                        world.take_all(rank, target);
                        asked[at] = Some(grants);
                    }
                    let got = world.call(rank, |engine, port| engine.locked(port, W, target));
                    if got.is_ready() {
                        let since = asked[at].take().unwrap();
                        worst = worst.max(grants - since);
                        grants += 1;
                        holds[at] = true;
                    }
                }
                world.step(rank);
                world.step(target);
            }
            // Those before in line, and each other once more; shared ones are told in any order.
            let bound = 3 * u64::from(size) + 2;
            assert!(worst <= bound, "{worst} others went before one of {size}");
            assert!(world.engines[0].counters().queries_crowded > 100);
        }
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(WindowId, u32, LockKind),
    Operate(WindowId, u32, Action),
    Unlock(WindowId, u32),
    LockAll(WindowId),
    UnlockAll(WindowId),
    Fence(WindowId, FenceFlags),
    Post(WindowId),
    Start(WindowId),
    Complete(WindowId),
    Wait(WindowId),
}

/// Common windows, for locks in one order.
const LOCKS: [WindowId; 2] = [WindowId(1), WindowId(2)];
/// Of a thread of every rank: for locks of all parts, fences, and groups.
fn own(thread: usize) -> [WindowId; 3] {
    [0, 1, 2].map(|kind| WindowId(10 + 3 * thread as u64 + kind))
}

fn programs(dice: &mut Dice, size: u32, threads: usize) -> Vec<Vec<VecDeque<Step>>> {
    let mut all = vec![vec![VecDeque::new(); threads]; size as usize];
    for thread in 0..threads {
        let [every, fences, posts] = own(thread);
        for _ in 0..3 {
            let kind = dice.below(4);
            for program in &mut all {
                let program = &mut program[thread];
                let operations = |dice: &mut Dice, window, program: &mut VecDeque<Step>| {
                    for _ in 0..dice.below(6) {
                        let action = if dice.one_in(3) { Action::Add } else { Action::Put };
                        program.push_back(Step::Operate(
                            window,
                            dice.below(size.into()) as u32,
                            action,
                        ));
                    }
                };
                match kind {
                    0 | 1 => {
                        // Locks of both windows, in order; the last window with the first.
                        let mut held = Vec::new();
                        for window in LOCKS {
                            for target in 0..size {
                                if !dice.one_in(2) {
                                    continue;
                                }
                                let exclusive = dice.one_in(2);
                                let kind =
                                    if exclusive { LockKind::Exclusive } else { LockKind::Shared };
                                program.push_back(Step::Lock(window, target, kind));
                                held.push((window, target));
                                for _ in 0..dice.below(4) {
                                    let &(window, target) =
                                        &held[dice.below(held.len() as u64) as usize];
                                    program.push_back(Step::Operate(window, target, Action::Put));
                                }
                            }
                        }
                        program.extend(held.iter().map(|(w, target)| Step::Unlock(*w, *target)));
                    }
                    2 if dice.one_in(2) => {
                        program.push_back(Step::LockAll(every));
                        operations(dice, every, program);
                        program.push_back(Step::UnlockAll(every));
                    }
                    2 => {}
                    _ => {
                        program.push_back(Step::Fence(fences, FenceFlags::default()));
                        operations(dice, fences, program);
                        let last = FenceFlags { no_precede: false, no_succeed: true };
                        program.push_back(Step::Fence(fences, last));
                        program.push_back(Step::Post(posts));
                        program.push_back(Step::Start(posts));
                        operations(dice, posts, program);
                        program.push_back(Step::Complete(posts));
                        program.push_back(Step::Wait(posts));
                    }
                }
            }
        }
    }
    all
}

struct Run {
    world: World,
    programs: Vec<Vec<VecDeque<Step>>>,
    /// Locks of each rank, whichever thread's: two threads of a rank want one one after the other.
    taken: Vec<HashSet<(WindowId, u32)>>,
    /// The present lock of a thread counts in `taken`.
    mine: Vec<Vec<bool>>,
}

impl Run {
    fn attempt(&mut self, rank: u32, thread: usize) -> bool {
        let at = rank as usize;
        let Some(&step) = self.programs[at][thread].front() else { return false };
        let world = &mut self.world;
        let everyone: Vec<u32> = (0..world.net.size).collect();
        let answer: Poll<Result<(), Trouble>> = match step {
            Step::Lock(window, target, kind) => {
                if !self.mine[at][thread] && !self.taken[at].insert((window, target)) {
                    return false;
                }
                self.mine[at][thread] = true;
                world.call(rank, |engine, port| {
                    engine.lock(port, window, target, kind, LockFlags::default())
                })
            }
            Step::Unlock(window, target) => {
                let done = world.call(rank, |engine, port| engine.unlock(port, window, target));
                if done.is_ready() {
                    self.taken[at].remove(&(window, target));
                }
                done
            }
            Step::Operate(window, target, action) => world
                .operate(rank, window, target, action, (0, 1), 1)
                .map(|given| given.map(|_| ())),
            Step::LockAll(window) => {
                world.call(rank, |engine, port| engine.lock_all(port, window, false))
            }
            Step::UnlockAll(window) => {
                world.call(rank, |engine, port| engine.unlock_all(port, window))
            }
            Step::Fence(window, flags) => {
                world.call(rank, |engine, port| engine.fence(port, window, flags))
            }
            Step::Post(window) => {
                world.call(rank, |engine, port| engine.post(port, window, &everyone, false))
            }
            Step::Start(window) => {
                world.call(rank, |engine, _| engine.start(window, &everyone, false))
            }
            Step::Complete(window) => {
                world.call(rank, |engine, port| engine.complete(port, window))
            }
            Step::Wait(window) => world.call(rank, |engine, port| engine.wait(port, window)),
        };
        let Poll::Ready(result) = answer else { return false };
        assert_eq!(result, Ok(()), "{step:?} of thread {thread} of rank {rank}");
        self.mine[at][thread] = false;
        self.programs[at][thread].pop_front();
        true
    }

    fn run(mut self, threads: usize, seed: u64) -> World {
        let size = self.world.net.size;
        let mut idle = 0;
        while self.programs.iter().flatten().any(|program| !program.is_empty()) {
            let rank = self.world.net.dice.below(size.into()) as u32;
            let thread = self.world.net.dice.below(threads as u64) as usize;
            if self.attempt(rank, thread) {
                idle = 0;
            }
            self.world.step(rank);
            idle += 1;
            if idle > 2000 {
                let mut over = false;
                for _ in 0..300 {
                    self.world.sweep();
                    for rank in 0..size {
                        for thread in 0..threads {
                            over |= self.attempt(rank, thread);
                        }
                    }
                    if over {
                        break;
                    }
                }
                if !over {
                    for (rank, programs) in self.programs.iter().enumerate() {
                        let next: Vec<_> = programs.iter().map(|program| program.front()).collect();
                        eprintln!("rank {rank}: {next:?}");
                        let engine = &self.world.engines[rank];
                        eprintln!("    {:?} {:?}", engine.shared.waiting, engine.shared.open);
                        for id in engine.shared.pools.targets.ids() {
                            eprintln!("    {:?}", engine.shared.pools.targets[id]);
                        }
                        for window in LOCKS {
                            let window = &engine.windows[&window];
                            eprintln!("    {:?} {:?}", window.asking, window.queries);
                        }
                    }
                    panic!("deadlock, seed {seed}, {:?}", self.world.engines[0].limits());
                }
                idle = 0;
            }
        }
        self.world.settle();
        self.world
    }
}

#[test]
fn threads_of_ranks_with_the_smallest_pools_end_whatever_their_order() {
    let mut crowded = 0;
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let size = 2 + dice.below(4) as u32;
        let threads = 2 + dice.below(3) as usize;
        let limits = limits(&mut dice, !seed.is_multiple_of(3));
        let programs = programs(&mut dice, size, threads);
        let mut windows = LOCKS.to_vec();
        (0..threads).for_each(|thread| windows.extend(own(thread)));
        let room = 1 + dice.below(3) as usize;
        let mut run = Run {
            world: World::new(size, room, seed, &limits, &windows),
            programs,
            taken: vec![HashSet::new(); size as usize],
            mine: vec![vec![false; threads]; size as usize],
        };
        run.world.net.busy = seed % 4 * 2;
        let world = run.run(threads, seed);
        crowded += world.total(|c| c.queries_crowded);
    }
    assert!(crowded > 100, "{crowded}");
}
