//! Epochs of groups in random programs, with members that die, notice it at different times, and
//! give up: each post belongs to one access epoch, whatever happens to others.

use super::net::{Action, Dice, W, World};
use super::programs::limits;
use crate::rma::runtime::{Issuing, Limits, Trouble};
use std::collections::HashMap;
use std::task::Poll;

/// Where a rank is in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Post,
    Start,
    /// So many operations are left.
    Access(u64),
    Complete,
    Wait,
}

#[derive(Debug)]
struct Member {
    round: usize,
    at: At,
    /// Of the present access epoch: what is left of the round's after giving up.
    targets: Vec<u32>,
    complete_begun: bool,
}

struct Run {
    world: World,
    members: Vec<Member>,
    /// By round and origin.
    targets: Vec<Vec<Vec<u32>>>,
    /// By (origin, target, round) when it was completed: operations given, if there were any in it.
    given: HashMap<(u32, u32, usize), Option<u64>>,
    touched: HashMap<(u32, u32), bool>,
    /// Who has not noticed which death.
    unaware: Vec<(u32, u32)>,
    deaths: u64,
    hasty: bool,
    seed: u64,
    gave_up: u64,
    failed_waits: u64,
}

impl Run {
    fn new(seed: u64, size: u32, deaths: u64, hasty: bool) -> Run {
        let mut dice = Dice::new(seed);
        let limits = limits(&mut dice, seed.is_multiple_of(4));
        let room = if seed.is_multiple_of(3) { 1 } else { 8 };
        let mut world = World::new(size, room, seed, &limits, &[W]);
        world.net.exposed = vec![W];
        world.net.dropping = deaths > 0 || hasty;
        let rounds = 2 + dice.below(5) as usize;
        let mut some = || (0..size).filter(|_| dice.one_in(2)).collect::<Vec<u32>>();
        let targets: Vec<Vec<Vec<u32>>> =
            (0..rounds).map(|_| (0..size).map(|_| some()).collect()).collect();
        let member =
            |_| Member { round: 0, at: At::Post, targets: Vec::new(), complete_begun: false };
        Run {
            world,
            members: (0..size).map(member).collect(),
            targets,
            given: HashMap::new(),
            touched: HashMap::new(),
            unaware: Vec::new(),
            deaths,
            hasty,
            seed,
            gave_up: 0,
            failed_waits: 0,
        }
    }

    fn origins(&self, rank: u32, round: usize) -> Vec<u32> {
        let of = &self.targets[round];
        (0..of.len() as u32).filter(|origin| of[*origin as usize].contains(&rank)).collect()
    }

    fn is_over(&self, rank: u32) -> bool {
        self.world.net.dead[rank as usize]
            || self.members[rank as usize].round == self.targets.len()
    }

    fn dies(&mut self, rank: u32) {
        self.world.net.dead[rank as usize] = true;
        let others = (0..self.world.net.size).filter(|other| *other != rank);
        self.unaware.extend(others.map(|other| (other, rank)));
    }

    /// Somebody notices a death, once it has taken what the dead had sent.
    fn notice(&mut self, which: usize) {
        let (rank, dead) = self.unaware.swap_remove(which);
        if !self.world.net.dead[rank as usize] {
            self.world.take_all(dead, rank);
            self.world.call(rank, |engine, port| engine.peer_dead(port, W, dead));
        }
    }

    /// Makes the present call of a rank; whether it is over.
    fn attempt(&mut self, rank: u32) -> bool {
        if self.is_over(rank) {
            return false;
        }
        let (seed, mortal) = (self.seed, self.deaths > 0);
        let Member { round, at, .. } = self.members[rank as usize];
        let check = |result: &Result<(), Trouble>| match result {
            Ok(()) => {}
            Err(Trouble::Dead(_)) if mortal => {}
            Err(trouble) => panic!("{at:?} of rank {rank}: {trouble:?}, seed {seed}"),
        };
        match at {
            At::Post => {
                let origins = self.origins(rank, round);
                let said = self.world.net.said(rank, W);
                (said.exposed, said.exposure) = (origins.clone(), round as u64 + 1);
                let done = self.world.call(rank, |e, port| e.post(port, W, &origins, false));
                assert_eq!(done, Poll::Ready(Ok(())), "seed {seed}");
                let member = &mut self.members[rank as usize];
                member.targets = self.targets[round][rank as usize].clone();
                member.at = At::Start;
            }
            At::Start => {
                let targets = self.members[rank as usize].targets.clone();
                match self.world.call(rank, |e, _| e.start(W, &targets, false)) {
                    Poll::Pending => return false,
                    Poll::Ready(done) => assert_eq!(done, Ok(()), "seed {seed}"),
                }
                targets.iter().for_each(|to| _ = self.touched.insert((rank, *to), false));
                let operations = self.world.net.dice.below(6);
                self.members[rank as usize].at = At::Access(operations);
            }
            At::Access(0) => self.members[rank as usize].at = At::Complete,
            At::Access(left) => {
                let targets = self.members[rank as usize].targets.clone();
                if let Some(&to) =
                    targets.get(self.world.net.dice.below(targets.len() as u64) as usize)
                {
                    let action = if left % 2 == 0 { Action::Put } else { Action::Add };
                    self.world.padding = if left == 3 { 100 } else { 0 };
                    let done = self.world.operate(rank, W, to, action, (0, 1), round as u64 + 1);
                    match done {
                        Poll::Pending => return self.maybe_hurries(rank),
                        Poll::Ready(Ok(_)) => _ = self.touched.insert((rank, to), true),
                        Poll::Ready(Err(trouble)) => check(&Err(trouble)),
                    }
                }
                self.members[rank as usize].at = At::Access(left - 1);
            }
            At::Complete => return self.complete(rank, round, &check),
            At::Wait => {
                let Poll::Ready(done) = self.world.call(rank, |e, port| e.wait(port, W)) else {
                    return false;
                };
                check(&done);
                for origin in self.origins(rank, round) {
                    if let (Ok(()), Some(given)) = (done, self.given.get(&(origin, rank, round))) {
                        let performed = self.world.performed(origin, rank, W);
                        assert!(given.is_none_or(|given| performed == given), "seed {seed}");
                    } else {
                        let missing = "an exposure ended before an origin's access";
                        assert!(done.is_err(), "{missing}, seed {seed}");
                    }
                }
                self.failed_waits += u64::from(done.is_err());
                self.world.net.said(rank, W).exposed.clear();
                let member = &mut self.members[rank as usize];
                (member.round, member.at) = (round + 1, At::Post);
            }
        }
        true
    }

    /// An operation that finds no room waits for a target's post, perhaps: a program with a
    /// deadline goes on to the end of the epoch.
    fn maybe_hurries(&mut self, rank: u32) -> bool {
        let hurries = self.world.net.dice.one_in(400);
        if hurries {
            self.members[rank as usize].at = At::Complete;
        }
        hurries
    }

    fn complete(&mut self, rank: u32, round: usize, check: &dyn Fn(&Result<(), Trouble>)) -> bool {
        let targets = self.members[rank as usize].targets.clone();
        if !std::mem::replace(&mut self.members[rank as usize].complete_begun, true) {
            for &to in &targets {
                let given = self.touched[&(rank, to)].then(|| self.world.given(rank, to, W));
                self.given.insert((rank, to, round), given);
            }
        }
        let done = self.world.call(rank, |e, port| e.complete(port, W));
        let late = match done {
            Poll::Pending if self.hasty && self.world.net.dice.one_in(12) => {
                self.gave_up += 1;
                let late = self.world.call(rank, |e, port| e.give_up(port, W));
                assert!(late.iter().all(|rank| targets.contains(rank)), "seed {}", self.seed);
                late
            }
            Poll::Pending => return false,
            Poll::Ready(done) => {
                check(&done);
                Vec::new()
            }
        };
        for to in &late {
            self.given.remove(&(rank, *to, round));
        }
        let member = &mut self.members[rank as usize];
        member.complete_begun = false;
        member.at = if late.is_empty() { At::Wait } else { At::Start };
        member.targets = late;
        true
    }

    fn run(mut self) -> Run {
        let size = self.world.net.size;
        let mut die_at: Vec<u64> =
            (0..self.deaths).map(|_| self.world.net.dice.below(600)).collect();
        let (mut turn, mut idle) = (0, 0);
        while (0..size).any(|rank| !self.is_over(rank)) {
            turn += 1;
            let rank = self.world.net.dice.below(size.into()) as u32;
            let alive = self.world.net.dead.iter().filter(|dead| !**dead).count();
            if die_at.contains(&turn) && alive > 1 && !self.world.net.dead[rank as usize] {
                self.dies(rank);
                die_at.retain(|at| *at != turn);
            }
            if !self.unaware.is_empty() && self.world.net.dice.one_in(20) {
                let which = self.world.net.dice.below(self.unaware.len() as u64) as usize;
                self.notice(which);
            }
            if self.world.net.dead[rank as usize] {
                continue;
            }
            let moved = if self.world.net.dice.one_in(3) {
                self.attempt(rank)
            } else {
                self.world.step(rank);
                false
            };
            idle = if moved { 0 } else { idle + 1 };
            if idle > 2000 && self.unaware.is_empty() {
                idle = 0;
                self.try_all();
            }
        }
        while !self.unaware.is_empty() {
            self.notice(0);
        }
        self.world.settle();
        self
    }

    fn try_all(&mut self) {
        for _ in 0..400 {
            self.world.sweep();
            let over = (0..self.world.net.size).filter(|rank| self.attempt(*rank)).count();
            if over > 0 {
                return;
            }
        }
        for (rank, member) in self.members.iter().enumerate() {
            let engine = &self.world.engines[rank];
            eprintln!("{rank} dead: {}, {member:?}", self.world.net.dead[rank]);
            eprintln!("    {:?}", engine.windows[&W].access);
            eprintln!("    {:?}", engine.windows[&W].posts);
            eprintln!("    {:?}", engine.windows[&W].exposure);
        }
        panic!("deadlock, seed {}, {:?}", self.seed, self.world.engines[0].limits());
    }
}

const SEEDS: u64 = 600;

#[test]
fn ranks_that_give_up_at_deadlines_and_try_again_lose_nothing() {
    let mut gave_up = 0;
    for seed in 0..SEEDS {
        let run = Run::new(seed, 2 + (seed % 4) as u32, 0, true).run();
        assert_eq!(run.failed_waits, 0);
        gave_up += run.gave_up;
    }
    assert!(gave_up > SEEDS, "{gave_up}");
}

#[test]
fn deaths_that_are_noticed_at_different_times_end_every_epoch() {
    let (mut failed, mut strays) = (0, 0);
    for seed in 0..SEEDS {
        let run = Run::new(seed, 2 + (seed % 5) as u32, 1 + seed % 3, seed % 2 == 0).run();
        failed += run.failed_waits;
        strays += run.world.total(|counters| counters.strays);
    }
    assert!(failed > SEEDS, "{failed}, {strays}");
}

fn post(world: &mut World, rank: u32, origins: &[u32]) {
    world.finish(rank, |engine, port| engine.post(port, W, origins, false)).unwrap();
}

fn start(world: &mut World, rank: u32, targets: &[u32]) {
    world.finish(rank, |engine, _| engine.start(W, targets, false)).unwrap();
}

fn world(size: u32) -> World {
    let limits = Limits { issuing: Issuing::Adaptive, ..Limits::default() };
    let mut world = World::new(size, 8, 1, &limits, &[W]);
    world.net.dropping = true;
    world
}

#[test]
fn a_late_post_of_an_epoch_that_was_given_up_is_not_taken_for_the_next() {
    let mut world = world(4);
    start(&mut world, 0, &[1, 2, 3]);
    post(&mut world, 2, &[0]);
    while world.sweep() {}
    let token = world.finish_operate(0, 1, Action::Get, (0, 0)).unwrap();
    world.finish_operate(0, 2, Action::Put, (0, 5));
    world.kill(3, &[W]);
    let done = world.finish(0, |engine, port| engine.complete(port, W));
    assert_eq!(done, Err(Trouble::Dead(3)));
    assert_eq!(world.net.results[0][&token], Err(Trouble::Dead(3)));
    // Who had posted has all of it.
    world.finish(2, |engine, port| engine.wait(port, W)).unwrap();
    assert_eq!(world.net.part(2, W).cells[0], 5);
    // The next epoch, which the late one is on the way to.
    start(&mut world, 0, &[1]);
    world.finish_operate(0, 1, Action::Put, (0, 6));
    post(&mut world, 1, &[0]);
    let done = world.finish(1, |engine, port| engine.wait(port, W));
    assert_eq!(done, Err(Trouble::Dead(3)));
    assert_eq!(world.net.part(1, W).cells[0], 0);
    post(&mut world, 1, &[0]);
    world.finish(0, |engine, port| engine.complete(port, W)).unwrap();
    world.finish(1, |engine, port| engine.wait(port, W)).unwrap();
    assert_eq!(world.net.part(1, W).cells[0], 6);
    world.settle();
}

#[test]
fn an_access_given_up_at_a_deadline_ends_by_itself() {
    let mut world = world(3);
    start(&mut world, 0, &[1, 2]);
    world.finish_operate(0, 1, Action::Put, (0, 1));
    world.finish_operate(0, 2, Action::Put, (0, 2));
    post(&mut world, 1, &[0]);
    while world.sweep() {}
    assert!(world.call(0, |engine, port| engine.complete(port, W)).is_pending());
    assert_eq!(world.call(0, |engine, port| engine.give_up(port, W)), [2]);
    world.finish(1, |engine, port| engine.wait(port, W)).unwrap();
    post(&mut world, 2, &[0]);
    while world.sweep() {}
    assert!(world.call(2, |engine, port| engine.wait(port, W)).is_pending());
    assert_eq!((world.net.part(1, W).cells[0], world.net.part(2, W).cells[0]), (1, 0));
    start(&mut world, 0, &[2]);
    world.finish_operate(0, 2, Action::Put, (0, 3));
    world.finish(0, |engine, port| engine.complete(port, W)).unwrap();
    world.finish(2, |engine, port| engine.wait(port, W)).unwrap();
    assert_eq!(world.net.part(2, W).cells[0], 3);
    world.settle();
}
