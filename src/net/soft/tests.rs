//! Two queue pairs joined by streams of bytes that come in any portions, late, and sometimes spoiled:
//! what was posted completes once, and no room in a completion queue is lost.

use super::Shared;
use super::completions::Completions;
use super::core::{Core, Ports};
use super::receives::Receives;
use crate::net::memory::Memory;
use crate::net::provider::*;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const ROOM: u32 = 100;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

struct Side {
    core: Core,
    queue: Arc<Completions>,
    region: Region,
    /// What was posted and has not completed: whether it must.
    posted: HashMap<u64, bool>,
    requests: VecDeque<u8>,
    answers: VecDeque<u8>,
}

impl Side {
    fn new(number: u32) -> Side {
        let shared: Arc<Shared> = Arc::default();
        let queue = Arc::new(Completions::new(ROOM, None));
        let memory = Memory::zeroed(200_000).unwrap();
        let region = shared.keys.register(&memory, Access::ALL).unwrap();
        let ports = Ports {
            shared,
            sends: queue.clone(),
            receives: Arc::new(Receives::new(20, 2, 0, None)),
            completions: queue.clone(),
        };
        let options = RcOptions {
            patience: Duration::from_secs(5),
            receiver_patience: Duration::from_secs(5),
            keepalive: Some(Duration::from_secs(3)),
        };
        let core = Core::new(number, ports, options, [30, 2, 64]);
        let (requests, answers) = (VecDeque::new(), VecDeque::new());
        Side { core, queue, region, posted: HashMap::new(), requests, answers }
    }

    fn post(&mut self, peer: &RemoteRegion, id: u64, now: Time, dice: &mut Dice) {
        let length = match dice.below(8) {
            0 => dice.below(70_000),
            1 => 0,
            _ => dice.below(100),
        } as u32;
        let pieces = [self.region.local(dice.below(100), length).unwrap()];
        let word = [self.region.local(1024, 8).unwrap()];
        // Some where there is nothing, some with another key.
        let mut to = peer.at(dice.below(100) * 8);
        if dice.below(60) == 0 {
            to.address += peer.length;
        }
        let immediate = (dice.below(3) == 0).then_some(7);
        let data = Data::Pieces(&pieces);
        let operation = match dice.below(7) {
            0 | 1 => Operation::Send { data, immediate },
            2 => Operation::Write { data: Data::Inline(&[b"inline"]), to, immediate },
            3 => Operation::Write { data, to, immediate },
            4 => Operation::Read { into: &pieces, from: to },
            5 => Operation::FetchAdd { into: word[0], at: to, add: 3 },
            _ => Operation::CompareSwap { into: word[0], at: to, compare: 0, swap: 1 },
        };
        let signalled = dice.below(2) == 0;
        let fenced = dice.below(5) == 0;
        let work = Work { signalled, fenced, ..Work::new(id, operation) };
        match self.core.post(&[work], now) {
            Ok(()) => assert_eq!(self.posted.insert(id, signalled), None),
            Err(refused) => assert!(matches!(refused.why, PostError::Full | PostError::NotReady)),
        }
    }

    fn receive(&mut self, id: u64, dice: &mut Dice) {
        let length = if dice.below(10) == 0 { 50 } else { 100_000 };
        let pieces = [self.region.local(0, 10).unwrap(), self.region.local(10, length).unwrap()];
        match self.core.receive(&[Receive { id, pieces: &pieces }]) {
            Ok(()) => assert_eq!(self.posted.insert(id, true), None),
            Err(refused) => assert_eq!(refused.why, PostError::Full),
        }
    }

    fn poll(&mut self) {
        let mut some = [Completion::NONE; 7];
        let count = self.queue.poll(&mut some);
        for done in &some[..count] {
            let posted = self.posted.remove(&done.id);
            assert!(posted.is_some(), "{done:?} was not posted, or came twice");
            let wanted = done.status != Status::Success || posted == Some(true);
            assert!(wanted, "{done:?} is not signalled");
        }
    }

    /// Everything ends, and nothing is missing.
    fn end(mut self) {
        self.core.fail(Status::Flushed);
        while !self.queue.is_empty() {
            self.poll();
        }
        let missing = self.posted.values().filter(|must| **must).count();
        assert_eq!(missing, 0, "completions are missing");
        assert!((0..ROOM).all(|_| self.queue.take_room()), "room was lost");
        assert!(!self.queue.take_room(), "there is too much room");
    }
}

/// Moves a portion.
fn portion(from: &mut VecDeque<u8>, dice: &mut Dice) -> Vec<u8> {
    let most = if dice.below(3) == 0 { 100_000 } else { 50 };
    let count = (dice.below(most) as usize).min(from.len());
    let mut bytes: Vec<u8> = from.drain(..count).collect();
    if count > 0 && dice.below(700) == 0 {
        bytes[dice.below(count as u64) as usize] ^= 1 << dice.below(8);
    }
    bytes
}

fn take(out: &mut VecDeque<u8>, emit: impl FnOnce(&mut Vec<u8>)) {
    if out.len() < 200_000 {
        let mut bytes = Vec::new();
        emit(&mut bytes);
        out.extend(bytes);
    }
}

fn step(sides: &mut [Side; 2], id: u64, now: Time, dice: &mut Dice) {
    let [one, other] = sides;
    let (one, other) = if dice.below(2) == 0 { (one, other) } else { (other, one) };
    match dice.below(12) {
        0 | 1 => one.post(&other.region.remote(), id, now, dice),
        2 => one.receive(id, dice),
        3 => one.poll(),
        4 => one.core.tick(now),
        5 | 6 => take(&mut one.requests, |out| one.core.emit_requests(out, 1000)),
        7 => take(&mut one.answers, |out| one.core.emit_answers(out, 1000)),
        8 | 9 if !other.core.waits() => {
            other.core.feed_requests(&portion(&mut one.requests, dice), now);
        }
        10 => other.core.feed_answers(&portion(&mut one.answers, dice), now),
        11 if dice.below(400) == 0 => one.core.fail(Status::Flushed),
        _ => one.core.retry(now),
    }
}

fn run(seed: u64) -> u32 {
    let mut dice = Dice(seed);
    let mut now = Time(1);
    let mut sides = [Side::new(1), Side::new(2)];
    sides.iter_mut().for_each(|side| side.core.connect(now).unwrap());
    let mut resets = 0;
    for id in 0..6000 {
        now = now.plus(Duration::from_micros(dice.below(2000)));
        step(&mut sides, id, now, &mut dice);
        let failed = sides.iter().any(|side| side.core.state == State::Error);
        if failed && dice.below(20) == 0 {
            resets += 1;
            for side in &mut sides {
                side.core.reset();
                side.posted.clear();
                side.requests.clear();
                side.answers.clear();
                side.core.connect(now).unwrap();
            }
        }
    }
    sides.into_iter().for_each(Side::end);
    resets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn what_is_posted_completes_once_and_no_room_is_lost(seed in any::<u64>()) {
        run(seed);
    }
}

#[test]
fn the_runs_above_do_fail_and_go_on() {
    let resets: u32 = (0..10).map(run).sum();
    assert!(resets > 10, "{resets}");
}
