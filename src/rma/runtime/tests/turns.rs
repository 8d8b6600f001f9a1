//! Streams of locks of all sorts on the same targets: nobody who stands in line is overtaken without
//! a bound, and lock-all epochs wait for nobody who waits for them.

use super::net::{Action, Dice, W, World};
use super::programs::{limits, pick};
use crate::rma::runtime::{Issuing, Limits, LockFlags, LockKind, Trouble};
use std::collections::{HashMap, VecDeque};
use std::task::Poll;

/// A rank whose lock-all epochs follow each other, with one operation at the target each.
#[derive(Default)]
struct Visitor {
    opened: bool,
    given: bool,
    epochs: u32,
}

impl Visitor {
    /// Goes on as far as it can.
    fn enter(&mut self, world: &mut World, rank: u32, target: u32) {
        for _ in 0..4 {
            self.opened = self.opened
                || world.call(rank, |engine, port| engine.lock_all(port, W, false)).is_ready();
            if self.opened && !self.given {
                self.given = world.operate(rank, W, target, Action::Put, (0, 1), 0).is_ready();
            }
            world.call(rank, |engine, port| engine.push(port, W, target));
            while world.sweep() {}
        }
    }

    /// It holds the target's lock.
    fn is_inside(&self, world: &World, rank: u32, target: u32) -> bool {
        self.given && world.performed(rank, target, W) == world.given(rank, target, W)
    }

    fn leave(&mut self, world: &mut World, rank: u32) {
        world.finish(rank, |engine, port| engine.unlock_all(port, W)).unwrap();
        *self = Visitor { epochs: self.epochs + 1, ..Visitor::default() };
    }
}

/// One of two lock-all epochs is always open at the target, and an exclusive query in line.
#[test]
fn lock_all_epochs_that_overlap_do_not_starve_an_exclusive_lock() {
    let (others, first, second, target) = ([0, 1], 2, 3, 4);
    // Objects for all, or for one that waits only; locks one by one, or of all members at once.
    for (origins, targets) in [(8, 8), (1, 8), (8, 1), (1, 1)] {
        let limits = Limits { origins, targets, issuing: Issuing::Eager, ..Limits::default() };
        let mut world = World::new(5, 64, 1, &limits, &[W]);
        let mut visitors = [Visitor::default(), Visitor::default()];
        visitors[0].enter(&mut world, others[0], target);
        assert!(visitors[0].is_inside(&world, others[0], target));
        // With one object for targets, the call itself waits for the grant.
        let lock = |world: &mut World, rank: u32| {
            let kind = LockKind::Exclusive;
            let open = world.call(rank, |engine, port| {
                engine.lock(port, W, target, kind, LockFlags::default())
            });
            while world.sweep() {}
            open.is_ready()
        };
        let mut writers = [(second, false), (first, false)].to_vec();
        for (rank, open) in writers.iter_mut().rev() {
            *open = lock(&mut world, *rank);
        }
        while let Some((writer, open)) = writers.last_mut() {
            *open = *open || lock(&mut world, *writer);
            let writer = *writer;
            if *open && world.call(writer, |engine, port| engine.locked(port, W, target)).is_ready()
            {
                world.unlock(writer, target).unwrap();
                writers.pop();
                continue;
            }
            // Each comes in before the other leaves, if it is let in.
            for (at, rank) in others.into_iter().enumerate() {
                visitors[at].enter(&mut world, rank, target);
                if visitors[1 - at].is_inside(&world, others[1 - at], target) {
                    visitors[1 - at].leave(&mut world, others[1 - at]);
                    while world.sweep() {}
                }
            }
            let epochs = visitors[0].epochs + visitors[1].epochs;
            assert!(epochs < 12, "{epochs} epochs went before one that waits: {limits:?}");
        }
        for (visitor, rank) in visitors.iter_mut().zip(others) {
            visitor.enter(&mut world, rank, target);
            visitor.leave(&mut world, rank);
        }
        world.settle();
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Beside others or not.
    Lock(u32, LockKind, bool),
    Locked(u32),
    Unlock(u32),
    LockAll,
    UnlockAll,
    Put(u32),
    Flush(u32),
}

/// The next epoch of one rank: one part, or all, or several parts one after the other, which are
/// shared then.
fn epoch(dice: &mut Dice, targets: u32, alls: u64) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    if dice.below(10) < alls {
        steps.push_back(Step::LockAll);
        for _ in 0..dice.below(4) {
            let target = dice.below(targets.into()) as u32;
            steps.push_back(Step::Put(target));
            if dice.one_in(2) {
                steps.push_back(Step::Flush(target));
            }
        }
        steps.push_back(Step::UnlockAll);
    } else if dice.one_in(2) {
        let mut parts: Vec<u32> = (0..targets).collect();
        for at in (1..parts.len()).rev() {
            parts.swap(at, dice.below(at as u64 + 1) as usize);
        }
        for (at, &target) in parts.iter().enumerate() {
            steps.push_back(Step::Lock(target, LockKind::Shared, at > 0));
            for _ in 0..dice.below(2) {
                steps.push_back(Step::Put(target));
            }
        }
        steps.extend(parts.into_iter().map(Step::Unlock));
    } else {
        let target = dice.below(targets.into()) as u32;
        let kind = pick(dice, &[LockKind::Shared, LockKind::Exclusive, LockKind::Exclusive]);
        steps.push_back(Step::Lock(target, kind, false));
        if dice.one_in(2) {
            steps.push_back(Step::Locked(target));
        }
        for _ in 0..dice.below(3) {
            steps.push_back(Step::Put(target));
        }
        steps.push_back(Step::Unlock(target));
    }
    steps
}

struct Run {
    world: World,
    programs: Vec<VecDeque<Step>>,
    targets: u32,
    /// By target: who stands in line, and how often each other has gone before it since.
    line: Vec<HashMap<u32, HashMap<u32, u32>>>,
    /// By target: who has held it when it was last looked at.
    held: Vec<Vec<u32>>,
    worst: u32,
}

impl Run {
    fn attempt(&mut self, rank: u32) -> bool {
        let Some(&step) = self.programs[rank as usize].front() else { return false };
        let world = &mut self.world;
        let answer: Poll<Result<(), Trouble>> = match step {
            Step::Lock(target, kind, beside) => {
                let flags = LockFlags { beside, ..LockFlags::default() };
                world.call(rank, |engine, port| engine.lock(port, W, target, kind, flags))
            }
            Step::Locked(target) => world
                .call(rank, |engine, port| engine.locked(port, W, target))
                .map(|told| told.map(|_| ())),
            Step::Unlock(target) => world.call(rank, |engine, port| engine.unlock(port, W, target)),
            Step::LockAll => world.call(rank, |engine, port| engine.lock_all(port, W, false)),
            Step::UnlockAll => world.call(rank, |engine, port| engine.unlock_all(port, W)),
            Step::Flush(target) => world.call(rank, |engine, port| engine.flush(port, W, target)),
            Step::Put(target) => world
                .operate(rank, W, target, Action::Put, (0, 1), 0)
                .map(|given| given.map(|_| ())),
        };
        let Poll::Ready(result) = answer else { return false };
        assert_eq!(result, Ok(()), "{step:?} of rank {rank}");
        self.programs[rank as usize].pop_front();
        true
    }

    /// Holds what has changed at a target against the bound.
    fn look(&mut self, target: u32) {
        let engine = &self.world.engines[target as usize];
        let window = &engine.windows[&W];
        let (exclusive, mut holders) = window.queries.holders();
        holders.extend(exclusive);
        let (line, held) = (&mut self.line[target as usize], &mut self.held[target as usize]);
        for new in holders.iter().filter(|rank| !held.contains(rank)) {
            line.remove(new);
            for (rank, before) in line.iter_mut() {
                let times = before.entry(*new).or_insert(0);
                *times += 1;
                self.worst = self.worst.max(*times);
                assert!(*times <= 4, "{new} has gone before {rank} {times} times at {target}");
            }
        }
        *held = holders;
        for rank in 0..self.world.net.size {
            let object = window.table.origin(&engine.shared.pools, rank).is_some();
            if (object || window.queries.in_crowd(rank)) && !held.contains(&rank) {
                line.entry(rank).or_default();
            } else {
                line.remove(&rank);
            }
        }
    }

    fn run(&mut self, dice: &mut Dice, epochs: usize, alls: u64, seed: u64) {
        let size = self.world.net.size;
        let (mut begun, mut idle) = (0, 0);
        while begun < epochs || self.programs.iter().any(|program| !program.is_empty()) {
            let rank = dice.below(size.into()) as u32;
            if self.programs[rank as usize].is_empty() && begun < epochs {
                self.programs[rank as usize] = epoch(dice, self.targets, alls);
                begun += 1;
            }
            idle = if self.attempt(rank) { 0 } else { idle + 1 };
            // What a rank does changes its own lock only.
            self.look(rank);
            self.world.step(rank);
            self.look(rank);
            assert!(idle < 40_000, "nobody goes on, seed {seed}: {:?}", self.programs);
        }
        self.world.settle();
    }
}

#[test]
fn nobody_is_overtaken_without_a_bound_whatever_locks_meet() {
    let (mut crowded, mut wide, mut worst) = (0, 0, 0);
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let size = 3 + dice.below(6) as u32;
        let limits = limits(&mut dice, seed.is_multiple_of(3));
        let room = 1 + dice.below(3) as usize;
        let mut run = Run {
            world: World::new(size, room, seed, &limits, &[W]),
            programs: vec![VecDeque::new(); size as usize],
            targets: 1 + dice.below(3) as u32,
            line: vec![HashMap::new(); size as usize],
            held: vec![Vec::new(); size as usize],
            worst: 0,
        };
        let alls = pick(&mut dice, &[3, 6, 9]);
        run.run(&mut dice, 80, alls, seed);
        crowded += run.world.total(|c| c.queries_crowded);
        wide += run.world.total(|c| c.wide_switches);
        worst = worst.max(run.worst);
    }
    assert!(crowded > 200 && wide > 50 && worst >= 2, "{crowded} {wide} {worst}");
}
