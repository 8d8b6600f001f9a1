//! Random programs on random limits, with every completion checked, with and without deaths.

use super::net::{Action, CELLS, Dice, World};
use super::programs::{
    ADDED_CELL, Call, EXCLUSIVE_CELL, EXPOSED, FENCED, LOCKED, WINDOWS, limits, pick, programs,
};
use crate::rma::runtime::{LockFlags, LockKind, Trouble, WindowId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Poll;

#[derive(Default)]
struct Runner {
    calls: VecDeque<Call>,
    /// The present call has been made before.
    begun: bool,
    /// Operations that give data, and have not been waited for.
    tokens: Vec<(WindowId, u32, u64)>,
    got: Option<u64>,
    /// Locks open.
    locks: HashSet<u32>,
    /// Locks that count as held.
    held: HashMap<u32, LockKind>,
    increments: Vec<u32>,
    adds: Vec<(WindowId, u32)>,
}

struct Run {
    world: World,
    runners: Vec<Runner>,
    /// Operations given when the access epoch was started, and when it was completed, by (origin,
    /// target).
    completed: HashMap<(u32, u32), VecDeque<(u64, u64)>>,
    started: HashMap<(u32, u32), u64>,
    deaths: bool,
    seed: u64,
}

impl Run {
    fn new(seed: u64, size: u32, tiny: bool, deaths: bool) -> Run {
        let mut dice = Dice::new(seed);
        let room = if tiny { 1 } else { pick(&mut dice, &[1, 2, 64]) };
        let limits = limits(&mut dice, tiny);
        let programs = programs(&mut dice, size);
        let mut world = World::new(size, room, seed, &limits, &WINDOWS);
        world.net.fenced = vec![FENCED];
        world.net.exposed = vec![EXPOSED];
        world.net.dropping = deaths;
        world.net.busy = pick(&mut dice, &[0, 0, 2, 30]);
        let runner = |calls: Vec<Call>| Runner { calls: calls.into(), ..Runner::default() };
        let runners = programs.into_iter().map(runner).collect();
        Run { world, runners, completed: HashMap::new(), started: HashMap::new(), deaths, seed }
    }

    /// All operations of `rank` on `target` are done there.
    fn check_done(&mut self, rank: u32, target: u32, window: WindowId) {
        let given = self.world.given(rank, target, window);
        if !self.world.net.dead[target as usize] {
            assert_eq!(self.world.performed(rank, target, window), given, "seed {}", self.seed);
        }
        self.check_data(rank, Some(target), window);
    }

    /// The data that `rank` wants is here.
    fn check_data(&mut self, rank: u32, target: Option<u32>, window: WindowId) {
        let results = &self.world.net.results[rank as usize];
        self.runners[rank as usize].tokens.retain(|(of, to, token)| {
            let concerned = *of == window && target.is_none_or(|target| target == *to);
            let here = results.contains_key(token);
            assert!(here || !concerned, "data has not come");
            !concerned
        });
    }

    /// Notes what a call promises from its first attempt on.
    fn begin(&mut self, rank: u32, call: &Call) {
        let size = self.world.net.size;
        let runner = &mut self.runners[rank as usize];
        if std::mem::replace(&mut runner.begun, true) {
            return;
        }
        match call {
            Call::Unlock(target) => {
                runner.held.remove(target);
            }
            Call::Fence(_) => {
                let given = (0..size).map(|to| (to, self.world.given(rank, to, FENCED)));
                let given = given.collect();
                let said = self.world.net.said(rank, FENCED);
                said.fences += 1;
                said.given_before.push(given);
            }
            Call::Post(origins) => {
                self.world.net.said(rank, EXPOSED).exposed = origins.clone();
            }
            Call::Start(_) => {
                for to in 0..size {
                    self.started.insert((rank, to), self.world.given(rank, to, EXPOSED));
                }
            }
            Call::Complete(_) => {
                for to in 0..size {
                    let given = self.world.given(rank, to, EXPOSED);
                    let started = self.started.get(&(rank, to)).copied().unwrap_or(0);
                    if call.of(to) {
                        let both = (started, given);
                        self.completed.entry((rank, to)).or_default().push_back(both);
                    }
                }
            }
            _ => {}
        }
    }

    /// Makes the present call of a rank; whether it is over.
    fn attempt(&mut self, rank: u32) -> bool {
        let Some(call) = self.runners[rank as usize].calls.front().cloned() else { return false };
        self.begin(rank, &call);
        let world = &mut self.world;
        let mut given = None;
        let fences = world.net.said(rank, FENCED).fences;
        let open = |target: &u32, runner: &Runner| runner.locks.contains(target);
        let runner = &self.runners[rank as usize];
        let answer: Poll<Result<(), Trouble>> = match &call {
            Call::Lock(to, kind) => world.call(rank, |engine, port| {
                engine.lock(port, LOCKED, *to, *kind, LockFlags::default())
            }),
            Call::Locked(to, _) if open(to, runner) => world
                .call(rank, |engine, port| engine.locked(port, LOCKED, *to))
                .map(|result| result.map(|_| ())),
            Call::Unlock(to) if open(to, runner) => {
                world.call(rank, |engine, port| engine.unlock(port, LOCKED, *to))
            }
            Call::Locked(..) | Call::Unlock(_) => Poll::Ready(Ok(())),
            Call::LockAll => world.call(rank, |engine, port| engine.lock_all(port, LOCKED, false)),
            Call::UnlockAll => world.call(rank, |engine, port| engine.unlock_all(port, LOCKED)),
            Call::Flush(to) => world.call(rank, |engine, port| engine.flush(port, LOCKED, *to)),
            Call::FlushAll => world.call(rank, |engine, port| engine.flush_all(port, LOCKED)),
            Call::FlushLocal(to) => {
                world.call(rank, |engine, port| engine.flush_local(port, LOCKED, *to))
            }
            Call::FlushLocalAll => {
                world.call(rank, |engine, port| engine.flush_local_all(port, LOCKED))
            }
            Call::Push(to) => {
                world.call(rank, |engine, port| engine.push(port, LOCKED, *to));
                Poll::Ready(Ok(()))
            }
            Call::Operate(window, to, action, cell, padding) => {
                world.padding = *padding;
                let epoch = if *window == FENCED { fences } else { 0 };
                let answer = world.operate(rank, *window, *to, *action, (*cell, 1), epoch);
                world.padding = 0;
                answer.map(|result| {
                    result.map(|token| given = token.map(|token| (*window, *to, token)))
                })
            }
            Call::PutBack(to) => match runner
                .got
                .and_then(|token| world.net.results[rank as usize].get(&token).copied())
            {
                Some(Ok(value)) => world
                    .operate(rank, LOCKED, *to, Action::Put, (EXCLUSIVE_CELL, value + 1), 0)
                    .map(|result| result.map(|_| ())),
                _ => Poll::Ready(Err(Trouble::Dead(*to))),
            },
            Call::Fence(flags) => {
                world.call(rank, |engine, port| engine.fence(port, FENCED, *flags))
            }
            Call::Post(ranks) => {
                world.call(rank, |engine, port| engine.post(port, EXPOSED, ranks, false))
            }
            Call::Start(ranks) => world.call(rank, |engine, _| engine.start(EXPOSED, ranks, false)),
            Call::Complete(_) => world.call(rank, |engine, port| engine.complete(port, EXPOSED)),
            Call::Wait(_) => world.call(rank, |engine, port| engine.wait(port, EXPOSED)),
        };
        let Poll::Ready(result) = answer else { return false };
        let runner = &mut self.runners[rank as usize];
        runner.begun = false;
        runner.calls.pop_front();
        self.check(rank, &call, result, given);
        true
    }

    /// Checks what a finished call has promised.
    fn check(
        &mut self,
        rank: u32,
        call: &Call,
        result: Result<(), Trouble>,
        given: Option<(WindowId, u32, u64)>,
    ) {
        let size = self.world.net.size;
        let mut fault = false;
        match result {
            Ok(()) => {}
            Err(Trouble::Remote(..)) => fault = true,
            Err(Trouble::Dead(_)) if self.deaths => {
                if let Call::Unlock(target) = call {
                    self.runners[rank as usize].locks.remove(target);
                }
                // The others of the group have completed or given up all the same.
                if !matches!(call, Call::Wait(_)) {
                    return;
                }
            }
            // A fence that could not be made leaves no epoch.
            Err(Trouble::Misuse(_)) if self.deaths && matches!(call, Call::Operate(..)) => return,
            Err(trouble) => panic!("{call:?} of rank {rank}: {trouble:?}, seed {}", self.seed),
        }
        let runner = &mut self.runners[rank as usize];
        if let Some(token) = given {
            runner.tokens.push(token);
            runner.got = Some(token.2);
        }
        match call {
            Call::Operate(window, to, action, ..) => {
                assert!(!fault);
                if *action == Action::Add {
                    runner.adds.push((*window, *to));
                }
            }
            Call::PutBack(to) => runner.increments.push(*to),
            Call::Lock(to, _) => {
                runner.locks.insert(*to);
            }
            Call::Locked(to, kind) if runner.locks.contains(to) => {
                runner.held.insert(*to, *kind);
                self.check_exclusion(*to);
            }
            Call::Unlock(to) => {
                runner.locks.remove(to);
                self.check_done(rank, *to, LOCKED);
            }
            Call::Flush(to) => self.check_done(rank, *to, LOCKED),
            Call::UnlockAll | Call::FlushAll => {
                for to in 0..size {
                    self.check_done(rank, to, LOCKED);
                }
            }
            Call::FlushLocal(to) => self.check_data(rank, Some(*to), LOCKED),
            Call::FlushLocalAll => self.check_data(rank, None, LOCKED),
            Call::Fence(_) => {
                let number = self.world.net.said(rank, FENCED).fences as usize - 1;
                for from in 0..size {
                    let before = self.world.net.said(from, FENCED).given_before.get(number);
                    let before = before.and_then(|given| given.get(&rank)).copied().unwrap_or(0);
                    assert!(self.world.performed(from, rank, FENCED) >= before);
                }
                self.check_data(rank, None, FENCED);
            }
            Call::Complete(_) => self.check_data(rank, None, EXPOSED),
            Call::Wait(origins) => {
                for from in origins {
                    let dead = self.world.net.dead[*from as usize];
                    let given = self.completed.entry((*from, rank)).or_default().pop_front();
                    assert!(dead || given.is_some(), "wait ended before complete");
                    let done = self.world.performed(*from, rank, EXPOSED);
                    // What is given up may have been dropped.
                    let all = given.is_some_and(|(started, given)| {
                        done == given || started == given && self.deaths
                    });
                    assert!(dead || all || result.is_err(), "an operation is missing");
                }
                self.world.net.said(rank, EXPOSED).exposed.clear();
            }
            _ => {}
        }
    }

    fn check_exclusion(&self, target: u32) {
        let live = |(rank, _): &(usize, &Runner)| !self.world.net.dead[*rank];
        let kinds: Vec<LockKind> = (self.runners.iter().enumerate().filter(live))
            .filter_map(|(_, runner)| runner.held.get(&target).copied())
            .collect();
        let exclusive = kinds.contains(&LockKind::Exclusive);
        assert!(!exclusive || kinds.len() == 1, "seed {}: {kinds:?} of {target}", self.seed);
    }

    fn done(&self) -> bool {
        let over =
            |(rank, runner): (usize, &Runner)| runner.calls.is_empty() || self.world.net.dead[rank];
        self.runners.iter().enumerate().all(over)
    }

    fn run(mut self) -> World {
        let size = self.world.net.size;
        let mut idle = 0;
        let dies_at = if self.deaths { self.world.net.dice.below(2000) } else { u64::MAX };
        let mut turn = 0u64;
        while !self.done() {
            let rank = self.world.net.dice.below(size.into()) as u32;
            turn += 1;
            if turn == dies_at {
                self.world.kill(rank, &WINDOWS);
                self.runners[rank as usize].held.clear();
            }
            if self.world.net.dead[rank as usize] {
                continue;
            }
            let attempt = self.world.net.dice.one_in(3);
            if attempt && self.attempt(rank) {
                idle = 0;
                continue;
            }
            if !attempt {
                self.world.step(rank);
            }
            if self.world.net.dice.one_in(20) {
                let to = self.world.net.dice.below(size.into()) as u32;
                let window = pick(&mut self.world.net.dice, &WINDOWS);
                self.world.note(rank, to, window);
            }
            idle += 1;
            if idle > 3000 {
                self.try_all();
                idle = 0;
            }
        }
        self.world.settle();
        if !self.deaths {
            self.check_sums();
            self.world.check_notes();
        }
        self.world
    }

    /// With nothing finished for long: every rank gets every chance, then it is a deadlock.
    fn try_all(&mut self) {
        for _ in 0..400 {
            self.world.sweep();
            let mut over = false;
            for rank in 0..self.world.net.size {
                over |= !self.world.net.dead[rank as usize] && self.attempt(rank);
            }
            if over {
                return;
            }
        }
        for (rank, runner) in self.runners.iter().enumerate() {
            eprintln!("rank {rank} {:?}: {:?}", self.world.net.dead[rank], runner.calls.front());
            let engine = &self.world.engines[rank];
            for id in engine.shared.pools.targets.ids() {
                eprintln!("    {:?}", engine.shared.pools.targets[id]);
            }
            for id in engine.shared.pools.origins.ids() {
                eprintln!("    {:?}", engine.shared.pools.origins[id]);
            }
            eprintln!("    outstanding {}", engine.shared.outstanding);
            eprintln!("    {:?}", engine.windows[&LOCKED].queries);
            eprintln!("    {:?}", engine.windows[&LOCKED].all);
            eprintln!("    {:?}", engine.windows[&FENCED].fence);
        }
        panic!("deadlock, seed {}, {:?}", self.seed, self.world.engines[0].limits());
    }

    fn check_sums(&mut self) {
        for target in 0..self.world.net.size {
            for window in WINDOWS {
                let adds = self.runners.iter().flat_map(|runner| &runner.adds);
                let adds = adds.filter(|add| **add == (window, target)).count() as u64;
                let cells: [u64; CELLS] = self.world.net.part(target, window).cells;
                assert_eq!(cells[ADDED_CELL as usize], adds, "seed {}", self.seed);
                if window == LOCKED {
                    let increments = self.runners.iter().flat_map(|runner| &runner.increments);
                    let increments = increments.filter(|to| **to == target).count() as u64;
                    let got = cells[EXCLUSIVE_CELL as usize];
                    assert_eq!(got, increments, "seed {}: an update was lost", self.seed);
                }
            }
        }
    }
}

#[derive(Default)]
struct Seen(crate::rma::runtime::Counters);

impl Seen {
    fn add(&mut self, world: &World) {
        let sum = &mut self.0;
        for engine in &world.engines {
            let c = engine.counters();
            sum.clean_ups += c.clean_ups;
            sum.drains += c.drains;
            sum.speculated += c.speculated;
            sum.operations_discarded += c.operations_discarded;
            sum.queries_crowded += c.queries_crowded;
            sum.wide_switches += c.wide_switches;
            sum.single_messages += c.single_messages;
            sum.piggybacked += c.piggybacked;
        }
    }

    /// Everything that the programs are there to try has happened.
    fn check(&self) {
        let sum = &self.0;
        for (name, count) in [
            ("clean_ups", sum.clean_ups),
            ("drains", sum.drains),
            ("speculated", sum.speculated),
            ("operations_discarded", sum.operations_discarded),
            ("queries_crowded", sum.queries_crowded),
            ("wide_switches", sum.wide_switches),
            ("single_messages", sum.single_messages),
            ("piggybacked", sum.piggybacked),
        ] {
            assert!(count > 10, "{name} hardly happened: {sum:?}");
        }
    }
}

/// Programs per test.
const SEEDS: u64 = 400;

#[test]
fn random_programs_do_what_they_say() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        let size = 1 + (seed % 6) as u32;
        seen.add(&Run::new(seed, size, false, false).run());
    }
    seen.check();
}

#[test]
fn the_smallest_pools_are_enough() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        let size = 2 + (seed % 4) as u32;
        seen.add(&Run::new(seed, size, true, false).run());
    }
    assert!(seen.0.clean_ups > 100 && seen.0.wide_switches > 10, "{:?}", seen.0);
}

#[test]
fn the_death_of_a_rank_ends_every_wait() {
    for seed in 0..SEEDS {
        let size = 2 + (seed % 5) as u32;
        Run::new(seed, size, seed.is_multiple_of(3), true).run();
    }
}
