//! Reads of peers' memory over a simulated network, beside messages: queue pairs that are cut or given
//! up, sources that are taken back, transfers that are stopped.

use super::Flow;
use super::bare::Bare;
use super::tests::{World, plain, rules};
use super::transfer::{ABREAST, Reading, Readings, Registered, Transfer};
use crate::base::Rank;
use crate::base::sync::{AtomicU32, Ordering};
use crate::net::fault::Plan;
use crate::net::memory::Memory;
use crate::net::promotion::When;
use crate::net::provider::{Access, Remote};
use crate::net::sim::{Network, Parameters};
use proptest::prelude::*;
use std::sync::Arc;

const MESSAGES: usize = Flow::Messages as usize;

fn content(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length() as usize];
    assert!(memory.read(0, &mut bytes));
    bytes
}

/// A read that goes on, or has ended.
struct Asked {
    seed: u32,
    into: Memory,
    source: Option<Registered>,
    transfer: Arc<Transfer>,
    told: Arc<AtomicU32>,
    /// What was in the memory when it was over.
    left: Option<Vec<u8>>,
}

impl Asked {
    /// Has `reader` read so much of `owner`'s; nothing if there is no way.
    fn begin(world: &mut World, ends: [usize; 2], seed: u32, length: usize) -> Option<Asked> {
        let [reader, owner] = ends;
        let (into, data) = (Memory::zeroed(length).unwrap(), Memory::zeroed(length).unwrap());
        assert!(data.write(0, &content(seed, length)));
        let pairs = world.processes[owner].ends.outlet.pairs();
        let source = pairs.register(&data, Access::REMOTE_READ).unwrap();
        let Bare { outlet, flows, .. } = &mut world.processes[reader].ends;
        let told: Arc<AtomicU32> = Arc::default();
        let tell = told.clone();
        let transfer = Arc::new(Transfer::new(move || {
            tell.fetch_add(1, Ordering::Relaxed);
        }));
        let memory = outlet.pairs().register(&into, Access::LOCAL_WRITE).unwrap();
        let reading = Reading::new(transfer.clone(), memory, source.remote());
        let refused = flows[MESSAGES].read(outlet, Rank(owner as u32), reading);
        let asked = Asked { seed, into, source: Some(source), transfer, told, left: None };
        refused.is_none().then_some(asked)
    }

    /// After the end nothing comes any more.
    fn look_again(&self) {
        assert!(self.left.as_ref().is_some_and(|left| *left == bytes(&self.into)));
    }

    /// Looks at it; whether it is over.
    fn look(&mut self) -> bool {
        if self.left.is_some() {
            return true;
        }
        let Some(well) = self.transfer.outcome() else {
            assert_eq!(self.told.load(Ordering::Relaxed), 0);
            return false;
        };
        assert_eq!(self.told.load(Ordering::Relaxed), 1, "it ends once");
        assert_eq!(Arc::strong_count(self.into.owner()), 1, "somebody has the memory");
        let now = bytes(&self.into);
        assert!(!well || now == content(self.seed, now.len()), "other bytes have come");
        self.left = Some(now);
        true
    }
}

fn all_over(world: &mut World, asked: &mut [Asked]) {
    for _ in 0..100_000 {
        let over = asked.iter_mut().filter_map(|it| it.look().then_some(())).count();
        if over == asked.len() {
            return;
        }
        (0..world.processes.len()).for_each(|rank| world.sleep(rank, 1_000_000));
    }
    panic!("a transfer does not end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_read_is_right_or_has_failed_and_everything_ends(rules in rules()) {
        // Everybody who can has queue pairs, so that there is something to read by.
        let mut rules = rules;
        rules.policy = plain(When::Traffic, 1, Plan::default()).policy;
        let mut world = World::new(&rules);
        let count = rules.processes;
        let mut asked: Vec<Asked> = Vec::new();
        for step in 0..150 {
            let from = world.roll(count) as usize;
            let to = (from + 1 + world.roll(count - 1) as usize) % count as usize;
            match world.roll(10) {
                0..=2 => (0..=world.roll(60)).for_each(|_| {
                    world.send(from, to, MESSAGES, 100);
                }),
                3..=5 => {
                    let length = [0, 1, 5000, 300_000, 1_200_000][world.roll(5) as usize];
                    asked.extend(Asked::begin(&mut world, [from, to], step, length));
                }
                6 => while world.take(from, MESSAGES) {},
                7 if !asked.is_empty() && world.roll(4) == 0 => {
                    let which = world.roll(asked.len() as u32) as usize;
                    if world.roll(2) == 0 {
                        asked[which].transfer.stop();
                    } else {
                        asked[which].source = None;
                    }
                }
                _ => {
                    let most = [1_000, 100_000, 20_000_000][world.roll(3) as usize];
                    world.sleep(from, most);
                }
            }
            asked.iter_mut().for_each(|it| {
                it.look();
            });
        }
        all_over(&mut world, &mut asked);
        world.finish();
        asked.iter().for_each(Asked::look_again);
    }
}

/// Two processes with a queue pair.
fn paired() -> World {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    world.stream((0, 1), MESSAGES, 8, 20);
    world.finish();
    assert!(world.processes[0].ends.is_hot(Rank(1)));
    world
}

#[test]
fn a_transfer_is_whole_and_its_queue_pair_lives() {
    let mut world = paired();
    for (seed, length) in [0, 1, 262_143, 262_144, 262_145, 5_000_000].into_iter().enumerate() {
        let both = [[0, 1], [1, 0]].map(|ends| {
            Asked::begin(&mut world, ends, seed as u32, length).expect("there is a queue pair")
        });
        let mut both = Vec::from(both);
        all_over(&mut world, &mut both);
        assert!(both.iter().all(|it| it.transfer.outcome() == Some(true)), "{length} bytes");
    }
    assert!(world.processes[0].ends.is_hot(Rank(1)) && world.processes[1].ends.is_hot(Rank(0)));
}

#[test]
fn without_a_queue_pair_nothing_is_begun() {
    let mut world = World::new(&plain(When::Never, 1, Plan::default()));
    assert!(world.send(0, 1, MESSAGES, 8));
    world.finish();
    assert!(Asked::begin(&mut world, [0, 1], 1, 100_000).is_none());
}

#[test]
fn a_wrong_key_or_place_fails_the_transfer_and_messages_go_on() {
    for wrong in 0..3 {
        let mut world = paired();
        let length = 600_000;
        let data = Memory::zeroed(length).unwrap();
        let pairs = world.processes[1].ends.outlet.pairs();
        let source = pairs.register(&data, Access::REMOTE_READ).unwrap();
        let Remote { address, key } = source.remote();
        let from = match wrong {
            0 => Remote { address, key: key ^ 1 << 25 },
            // Its last part is not there.
            1 => Remote { address: address + 1, key },
            _ => Remote { address: u64::MAX - 5, key },
        };
        let into = Memory::zeroed(length).unwrap();
        let Bare { outlet, flows, .. } = &mut world.processes[0].ends;
        let memory = outlet.pairs().register(&into, Access::LOCAL_WRITE).unwrap();
        let transfer = Arc::new(Transfer::new(|| {}));
        let reading = Reading::new(transfer.clone(), memory, from);
        assert!(flows[MESSAGES].read(outlet, Rank(1), reading).is_none());
        world.stream((0, 1), MESSAGES, 100, 300);
        world.stream((1, 0), MESSAGES, 100, 300);
        world.finish();
        assert_eq!(transfer.outcome(), Some(false));
    }
}

#[test]
fn a_transfer_that_is_stopped_ends_early_and_breaks_nothing() {
    let mut world = paired();
    let mut all = vec![
        Asked::begin(&mut world, [0, 1], 1, 50_000_000).unwrap(),
        Asked::begin(&mut world, [0, 1], 2, 600_000).unwrap(),
        Asked::begin(&mut world, [0, 1], 3, 600_000).unwrap(),
    ];
    world.sleep(0, 10_000);
    all[0].transfer.stop();
    all[1].transfer.stop();
    all_over(&mut world, &mut all);
    let outcomes: Vec<_> = all.iter().map(|it| it.transfer.outcome()).collect();
    assert_eq!(outcomes, [Some(false), Some(false), Some(true)]);
    assert!(world.processes[0].ends.is_hot(Rank(1)));
}

#[test]
fn no_more_is_under_way_than_may_be() {
    let device = Network::new(Parameters::default()).device(Bare::COOKIE);
    let memory = Memory::zeroed(100).unwrap();
    let large = Memory::zeroed(10 << 20).unwrap();
    let reading = |memory: &Memory| {
        let registered = Registered::new(&*device, memory, Access::LOCAL_WRITE).unwrap();
        let from = Remote { address: 0, key: 1 };
        Reading::new(Arc::new(Transfer::new(|| {})), registered, from)
    };
    let mut readings = Readings::default();
    readings.add(reading(&large));
    readings.add(reading(&memory));
    let mut parts = Vec::new();
    while let Some((number, into, from)) = readings.next(u64::MAX) {
        assert_eq!(from.address, parts.len() as u64 * u64::from(into.length));
        readings.posted(number, into.length);
        parts.push(number);
    }
    assert_eq!(parts, [1; ABREAST as usize]);
    assert!(!readings.have_more());
    readings.came(1);
    assert!(readings.have_more() && readings.next(u64::MAX).is_some());
    // What a device takes at once may be less.
    assert_eq!(readings.next(1000).unwrap().1.length, 1000);
}
