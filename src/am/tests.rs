//! Credit and buffers together: some origins, one target, everything in between in any order.
//!
//! ```text
//!   origin 0: messages, Credit --- FIFO ---+                      +--- runs units in any order
//!   origin 1: messages, Credit --- FIFO ---+--> target: Buffers --+
//!        ^                                                        |
//!        +------------------------- FIFO -------------------------+
//! ```
//! The memory is an array of owners: a place that is handed out twice shows at once.

use super::body::{Place, Request};
use super::buffers::{Answer, BufferId, Buffers, GRAIN, Where, rounded};
use super::credit::{Credit, Need, Next};
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};

#[derive(Clone, Debug)]
struct Job {
    fixed: u64,
    segment: u64,
    segments: u64,
}

#[derive(Clone, Debug)]
struct Script {
    jobs: Vec<Job>,
    most: u64,
    /// Only the oldest message may send.
    strict: bool,
    exclusive: bool,
    tells_behind: bool,
}

#[derive(Clone, Debug)]
struct Plan {
    system: u64,
    promised: u64,
    buffers: Vec<u64>,
    scripts: Vec<Script>,
    /// Exclusive locks are held one at a time, alone.
    locks: bool,
}

enum Up {
    Unit { place: Place, release: bool },
    Request(Request<'static>),
}

enum Down {
    Done(Place),
    Answer(Answer),
}

struct Message {
    number: u64,
    job: Job,
    left: u64,
}

struct Origin {
    script: Script,
    credit: Credit,
    waiting: Vec<Message>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    begun: bool,
    over: bool,
    dead: bool,
    never: Vec<Job>,
    sent: u64,
}

/// Memory that a place may lie in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Memory {
    System(u32),
    StandIn(u32),
    Buffer(BufferId),
}

struct World {
    origins: Vec<Origin>,
    target: Buffers,
    buffers: Vec<BufferId>,
    live: Vec<(u32, Place, Memory, u64)>,
    taken: HashSet<(Memory, u64)>,
    locks: bool,
}

impl World {
    fn new(plan: &Plan) -> World {
        let mut target = Buffers::new(plan.system, plan.promised);
        let buffers = plan.buffers.iter().map(|&bytes| target.attach(bytes)).collect();
        let origins = plan.scripts.iter().map(|script| {
            let jobs = script.jobs.iter().enumerate();
            let waiting = jobs.map(|(i, job)| Message {
                number: i as u64,
                job: job.clone(),
                left: job.segments,
            });
            Origin {
                waiting: waiting.collect(),
                script: script.clone(),
                credit: Credit::new(plan.system, plan.promised),
                up: VecDeque::new(),
                down: VecDeque::new(),
                begun: false,
                over: false,
                dead: false,
                never: Vec::new(),
                sent: 0,
            }
        });
        let origins = origins.collect();
        World { origins, target, buffers, live: vec![], taken: HashSet::new(), locks: plan.locks }
    }

    /// Whether origin `i` holds what it needs to send, or gets it now.
    fn begin(&mut self, i: usize) -> bool {
        if self.origins[i].begun {
            return true;
        }
        let alone = self.origins[i].script.exclusive;
        let conflicts = self.origins.iter().any(|other| {
            other.begun && !other.over && !other.dead && (alone || other.script.exclusive)
        });
        if self.locks && conflicts {
            return false;
        }
        let origin = &mut self.origins[i];
        origin.begun = true;
        origin.credit.exclusive(alone);
        true
    }

    /// Origin `i` sends what it can of the `pick`th message that may send; whether anything
    /// happened.
    fn send(&mut self, i: usize, pick: usize) -> bool {
        if self.origins[i].dead || self.origins[i].over || !self.begin(i) {
            return false;
        }
        let origin = &mut self.origins[i];
        if origin.waiting.is_empty() {
            let idle = origin.credit.under_way() == 0 && origin.credit.is_quiet();
            if !idle || !origin.up.is_empty() {
                return false;
            }
            origin.credit.exclusive(false);
            origin.over = true;
            origin.flush_outgoing();
            return true;
        }
        let pick = if origin.script.strict { 0 } else { pick % origin.waiting.len() };
        let behind = origin.waiting.iter().enumerate().filter(|(at, _)| *at != pick);
        let behind = behind.map(|(_, m)| m.job.fixed + m.job.segment * m.left).sum::<u64>();
        let message = &mut origin.waiting[pick];
        let need = Need {
            message: message.number,
            fixed: message.job.fixed,
            segment: message.job.segment,
            segments: message.left,
            most: origin.script.most,
            behind: if origin.script.tells_behind { behind } else { 0 },
        };
        let number = message.number;
        let done = match origin.credit.next(&need) {
            Next::Send { place, segments, release } => {
                assert!((1..=message.left).contains(&segments));
                let holds = message.job.fixed + message.job.segment * segments;
                assert!(place.bytes >= holds.max(1) && place.bytes < holds.max(1) + GRAIN);
                let least = rounded(message.job.fixed + message.job.segment);
                assert!(place.bytes <= rounded(origin.script.most).max(least), "{place:?}");
                message.left -= segments;
                let finished = message.left == 0;
                origin.flush_outgoing();
                origin.up.push_back(Up::Unit { place, release });
                origin.sent += 1;
                finished
            }
            Next::Reserve(request) => {
                origin.flush_outgoing();
                origin.up.push_back(Up::Request(request));
                return true;
            }
            Next::Wait => {
                origin.flush_outgoing();
                return false;
            }
            Next::Never { .. } => {
                origin.never.push(message.job.clone());
                true
            }
        };
        if done {
            origin.waiting.remove(pick);
            origin.credit.finish(number, !origin.waiting.is_empty());
            origin.flush_outgoing();
        }
        true
    }

    /// The target takes the next message of origin `i`.
    fn take(&mut self, i: usize) -> bool {
        let Some(up) = self.origins[i].up.pop_front() else { return false };
        let origin = i as u32;
        match up {
            Up::Unit { place, release } => {
                let at = self.target.enter(origin, place, release);
                let at = at.unwrap_or_else(|e| panic!("overdrawn by {origin}: {e:?} {place:?}"));
                let (memory, offset) = match at {
                    Where::System(offset) => (Memory::System(origin), offset),
                    Where::StandIn(offset) => (Memory::StandIn(origin), offset),
                    Where::Buffer(id, offset) => (Memory::Buffer(id), offset),
                };
                for grain in (offset..offset + place.bytes).step_by(GRAIN as usize) {
                    assert!(self.taken.insert((memory, grain)), "{memory:?} {grain} twice");
                }
                self.live.push((origin, place, memory, offset));
            }
            Up::Request(Request::Reserve { ticket, least, most, all }) => {
                self.target.reserve(origin, ticket, least, most, all).unwrap();
            }
            Up::Request(Request::Withdraw { ticket }) => self.target.withdraw(origin, ticket),
            Up::Request(Request::Release { space }) => self.target.release(origin, space).unwrap(),
            Up::Request(other) => panic!("{other:?}"),
        }
        self.answers();
        true
    }

    /// The target finishes one of the units that are there.
    fn run(&mut self, pick: usize) -> bool {
        if self.live.is_empty() {
            return false;
        }
        let (origin, place, memory, offset) = self.live.remove(pick % self.live.len());
        for grain in (offset..offset + place.bytes).step_by(GRAIN as usize) {
            assert!(self.taken.remove(&(memory, grain)));
        }
        self.target.leave(origin, place);
        self.origins[origin as usize].down.push_back(Down::Done(place));
        self.answers();
        true
    }

    fn answers(&mut self) {
        for answer in self.target.answers() {
            let (Answer::Granted { origin, .. } | Answer::Refused { origin, .. }) = &answer;
            let origin = *origin as usize;
            self.origins[origin].down.push_back(Down::Answer(answer));
        }
    }

    /// Origin `i` hears the next thing.
    fn hear(&mut self, i: usize) -> bool {
        let origin = &mut self.origins[i];
        let Some(down) = origin.down.pop_front() else { return false };
        if origin.dead {
            return true;
        }
        match down {
            Down::Done(place) => origin.credit.done(place).unwrap(),
            Down::Answer(Answer::Granted { ticket, spaces, .. }) => {
                origin.credit.granted(ticket, spaces.into_iter()).unwrap();
            }
            Down::Answer(Answer::Refused { ticket, largest, .. }) => {
                origin.credit.refused(ticket, largest).unwrap();
            }
        }
        origin.flush_outgoing();
        true
    }

    fn die(&mut self, i: usize) {
        let origin = &mut self.origins[i];
        origin.dead = true;
        origin.up.clear();
        self.target.died(i as u32);
        self.answers();
    }

    /// Any one thing that can happen.
    fn step(&mut self, dice: u32) -> bool {
        let (what, i) = (dice % 4, (dice / 4) as usize % self.origins.len());
        let pick = (dice / 64) as usize;
        match what {
            0 => self.send(i, pick),
            1 => self.take(i),
            2 => self.run(pick),
            _ => self.hear(i),
        }
    }

    /// Everything that can happen, once.
    fn round(&mut self) -> bool {
        let mut any = false;
        for i in 0..self.origins.len() {
            for pick in 0..self.origins[i].waiting.len().max(1) {
                any |= self.send(i, pick);
            }
            any |= self.take(i);
            any |= self.run(i);
            any |= self.hear(i);
        }
        any
    }

    /// Until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.round() {
                return;
            }
        }
        panic!("it goes on for ever");
    }

    /// Everything was sent, ran, and was given back.
    fn check_over(&mut self) {
        for origin in self.origins.iter().filter(|origin| !origin.dead) {
            let left = origin.waiting.len();
            assert!(origin.over, "{left} messages wait for ever: {:?}", origin.credit);
        }
        assert!(self.live.is_empty() && self.taken.is_empty());
        for id in &self.buffers {
            self.target.detach(*id);
            assert_eq!(self.target.detached(*id), Ok(()));
        }
        assert!((0..self.origins.len()).all(|origin| self.target.is_idle(origin as u32)));
    }
}

impl Origin {
    fn flush_outgoing(&mut self) {
        while let Some(request) = self.credit.outgoing() {
            self.up.push_back(Up::Request(request));
        }
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let job = (0u64..100, 0u64..900, 1u64..12).prop_map(|(fixed, segment, segments)| Job {
        fixed,
        segment,
        segments,
    });
    let script = (prop::collection::vec(job, 1..8), 64u64..2000, any::<[bool; 3]>());
    let script = script.prop_map(|(jobs, most, [strict, exclusive, tells_behind])| Script {
        jobs,
        most,
        strict,
        exclusive,
        tells_behind,
    });
    let sizes = (0u64..1500, prop_oneof![Just(0u64), 100u64..1500]);
    let buffers = prop::collection::vec(0u64..3000, 0..4);
    (sizes, buffers, prop::collection::vec(script, 1..5), any::<bool>()).prop_map(
        |((system, promised), buffers, scripts, locks)| Plan {
            system,
            promised,
            buffers,
            scripts,
            locks,
        },
    )
}

/// Most bytes that a unit of an origin can ever have in one piece.
fn room(plan: &Plan) -> u64 {
    let attached = plan.buffers.iter().map(|bytes| bytes / GRAIN * GRAIN).max().unwrap_or(0);
    rounded(plan.system).max(rounded(plan.promised)).max(attached)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fits_gets_room_and_gives_it_back(
        plan in plans(),
        dice in prop::collection::vec(any::<u32>(), 0..300),
    ) {
        let mut world = World::new(&plan);
        for dice in dice {
            world.step(dice);
        }
        world.settle();
        world.check_over();
        for (origin, script) in world.origins.iter().zip(&plan.scripts) {
            let hopeless = script.jobs.iter().filter(|job| {
                rounded((job.fixed + job.segment).max(1)) > room(&plan)
            });
            prop_assert_eq!(origin.never.len(), hopeless.count(), "wrongly given up");
        }
    }

    #[test]
    fn the_death_of_an_origin_frees_its_room(
        plan in plans(),
        dice in prop::collection::vec(any::<u32>(), 0..200),
        deaths in prop::collection::vec((0usize..200, any::<prop::sample::Index>()), 1..3),
    ) {
        let mut world = World::new(&plan);
        for (at, dice) in dice.iter().enumerate() {
            for (_, who) in deaths.iter().filter(|(when, _)| *when == at) {
                world.die(who.index(plan.scripts.len()));
            }
            world.step(*dice);
        }
        for (_, who) in &deaths {
            world.die(who.index(plan.scripts.len()));
        }
        world.settle();
        world.check_over();
    }

    #[test]
    fn buffers_come_and_go(
        plan in plans(),
        dice in prop::collection::vec(any::<u32>(), 0..200),
        changes in prop::collection::vec((0usize..200, any::<bool>(), any::<u16>()), 0..6),
    ) {
        let mut world = World::new(&plan);
        for (at, dice) in dice.iter().enumerate() {
            for (_, attach, which) in changes.iter().filter(|(when, ..)| *when == at) {
                let which = usize::from(*which);
                if *attach {
                    world.buffers.push(world.target.attach(which as u64 % 3000));
                } else if !world.buffers.is_empty() {
                    world.target.detach(world.buffers[which % world.buffers.len()]);
                }
                world.answers();
            }
            world.step(*dice);
        }
        world.settle();
        world.check_over();
    }
}

/// The first `busy` origins never run out of messages, and the target never lets one of them come to
/// rest as long as anything else can happen: its units leave only while there are two of them.
fn endless(plan: &Plan, busy: usize, mut until: impl FnMut(&mut World) -> bool) {
    let mut world = World::new(plan);
    for number in 1000..11_000 {
        for (origin, script) in world.origins.iter_mut().zip(&plan.scripts).take(busy) {
            while origin.waiting.len() < script.jobs.len() {
                let job = script.jobs[0].clone();
                let number = number * 100 + origin.waiting.len() as u64;
                origin.waiting.push(Message { number, left: job.segments, job });
            }
        }
        let mut any = false;
        for i in 0..world.origins.len() {
            for pick in 0..world.origins[i].waiting.len().max(1) {
                any |= world.send(i, pick);
            }
            while world.take(i) {}
            let its = world.live.iter().enumerate().filter(|(_, live)| live.0 as usize == i);
            let its: Vec<usize> = its.map(|(at, _)| at).collect();
            if its.len() > usize::from(i < busy) {
                any |= world.run(its[0]);
            }
            any |= world.hear(i);
        }
        if !any {
            world.run(0);
        }
        if until(&mut world) {
            return;
        }
    }
    panic!("somebody starves");
}

fn many(job: Job, count: usize) -> Script {
    let jobs = vec![job; count];
    Script { jobs, most: 256, strict: false, exclusive: false, tells_behind: true }
}

#[test]
fn a_large_message_is_not_starved_by_small_ones_of_its_origin() {
    let small = Job { fixed: 0, segment: 64, segments: 1 };
    let mut script = many(small, 20);
    script.jobs.push(Job { fixed: 0, segment: 1024, segments: 1 });
    for buffers in [vec![], vec![1024]] {
        let scripts = vec![script.clone()];
        let plan = Plan { system: 1024, promised: 0, buffers, scripts, locks: false };
        endless(&plan, 1, |world| {
            world.origins[0].waiting.iter().all(|message| message.job.segment == 64)
        });
    }
}

#[test]
fn a_large_message_is_not_starved_by_other_origins() {
    let small = Job { fixed: 0, segment: 64, segments: 3 };
    let large = many(Job { fixed: 0, segment: 2048, segments: 2 }, 3);
    // The small ones find room in what is promised to them, or in what they are granted.
    for (promised, busy) in [(0, 1), (512, 1), (512, 2)] {
        let mut scripts = vec![many(small.clone(), 30); busy];
        scripts.push(large.clone());
        let plan = Plan { system: 128, promised, buffers: vec![2048], scripts, locks: false };
        endless(&plan, busy, |world| world.origins[busy].over);
    }
}

#[test]
fn a_buffer_can_be_detached_from_under_a_steady_stream() {
    for promised in [0, 512] {
        let scripts = vec![many(Job { fixed: 0, segment: 64, segments: 3 }, 30)];
        let plan = Plan { system: 0, promised, buffers: vec![4096; 2], scripts, locks: false };
        let mut used = 0;
        endless(&plan, 1, |world| {
            let buffer = world.buffers[0];
            used += world.live.iter().filter(|live| live.2 == Memory::Buffer(buffer)).count();
            if used > 100 {
                world.target.detach(buffer);
            }
            used > 100 && world.target.detached(buffer).is_ok()
        });
    }
}

#[test]
fn what_was_attached_meanwhile_is_found() {
    let mut credit = Credit::new(128, 0);
    let need =
        |message, segment| Need { message, fixed: 0, segment, segments: 1, most: 4096, behind: 0 };
    let mut ask = |message, largest| {
        let asked = credit.next(&need(message, 256));
        let Next::Reserve(Request::Reserve { ticket, least: 256, .. }) = asked else {
            panic!("{asked:?}");
        };
        credit.refused(ticket, largest).unwrap();
        credit.next(&need(message, 256))
    };
    let never = Next::Never { least: 256, largest: 64, private: 128 };
    // The second message asks although the first was told that there is too little.
    assert_eq!(ask(1, 64), never);
    assert_eq!(ask(2, 64), never);
    assert!(matches!(credit.next(&need(3, 128)), Next::Send { .. }));
}

#[test]
fn an_exclusive_lock_asks_once() {
    let job = Job { fixed: 0, segment: 64, segments: 100 };
    let script = Script { exclusive: true, ..many(job, 50) };
    let plan = Plan {
        system: 256,
        promised: 0,
        buffers: vec![1024, 512],
        scripts: vec![script],
        locks: true,
    };
    let mut world = World::new(&plan);
    let mut asked = 0;
    let is_asking = |up: &&Up| matches!(up, Up::Request(Request::Reserve { .. }));
    loop {
        // All that there is room for, before any of it runs.
        let mut any = false;
        loop {
            any |= world.send(0, 0);
            asked += world.origins[0].up.iter().filter(is_asking).count();
            if world.origins[0].up.is_empty() && world.origins[0].down.is_empty() {
                break;
            }
            while world.take(0) {}
            while world.hear(0) {}
        }
        if !any && !world.run(0) {
            break;
        }
    }
    world.check_over();
    assert_eq!(asked, 1);
}

#[test]
fn what_is_promised_needs_no_asking() {
    let script = many(Job { fixed: 0, segment: 64, segments: 10 }, 30);
    let scripts = vec![script.clone(), script];
    let plan =
        Plan { system: 0, promised: 20 << 10, buffers: vec![32 << 10], scripts, locks: false };
    let mut world = World::new(&plan);
    for i in 0..2 {
        while world.send(i, 0) {}
        let asks = |up: &Up| matches!(up, Up::Request(_));
        assert!(world.origins[i].waiting.is_empty() && !world.origins[i].up.iter().any(asks));
        while world.take(i) {}
    }
    // The first has its promise in the buffer, the other one beside it.
    let stands_in = |memory: &Memory| matches!(memory, Memory::StandIn(_));
    assert!(world.live.iter().all(|(origin, _, memory, _)| stands_in(memory) == (*origin == 1)));
    world.settle();
    world.check_over();
}
