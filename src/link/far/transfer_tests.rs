//! Reads and writes of peers' memory over a simulated network, beside messages: queue pairs that are cut or given
//! up, sources that are taken back, transfers that are stopped.

use super::Flow;
use super::bare::Bare;
use super::kept::{Kept, Registered};
use super::tests::{World, plain, rules};
use super::transfer::{ABREAST, Copying, Copyings, Direction, Outcome, Transfer, Update};
use crate::base::Rank;
use crate::base::sync::{AtomicU32, Ordering};
use crate::net::fault::Plan;
use crate::net::memory::Memory;
use crate::net::promotion::When;
use crate::net::provider::{Access, Remote};
use crate::net::sim::{Network, Parameters};
use proptest::prelude::*;
use std::sync::Arc;

const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;

const MESSAGES: usize = Flow::Messages as usize;

fn content(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length() as usize];
    assert!(memory.read(0, &mut bytes));
    bytes
}

/// A transfer that goes on, or has ended.
struct Asked {
    seed: u32,
    /// Where bytes are to come, and who has it while nothing is under way.
    into: Memory,
    owners: usize,
    exposed: Option<Registered>,
    transfer: Arc<Transfer>,
    told: Arc<AtomicU32>,
    /// What was in the memory when it was over.
    left: Option<Vec<u8>>,
}

impl Asked {
    /// Has the first of two copy so much from or to the second one's memory; nothing if there is no
    /// way.
    fn begin(
        world: &mut World,
        ends: [usize; 2],
        direction: Direction,
        seed: u32,
        length: usize,
    ) -> Option<Asked> {
        let [mover, owner] = ends;
        let (into, data) = (Memory::zeroed(length).unwrap(), Memory::zeroed(length).unwrap());
        assert!(data.write(0, &content(seed, length)));
        let (here, there, access) = match direction {
            Direction::Read => (&into, &data, Access::REMOTE_READ),
            Direction::Write => (&data, &into, Access::REMOTE_WRITE),
        };
        let pairs = world.processes[owner].ends.outlet.pairs();
        let exposed = pairs.register(there, access).unwrap();
        let owners = Arc::strong_count(into.owner());
        let Bare { outlet, flows, .. } = &mut world.processes[mover].ends;
        let told: Arc<AtomicU32> = Arc::default();
        let tell = told.clone();
        let transfer = Arc::new(Transfer::new(move || {
            tell.fetch_add(1, Ordering::Relaxed);
        }));
        let there = exposed.remote();
        let copying =
            Copying::begin(outlet.pairs(), transfer.clone(), direction, here, there).unwrap();
        let refused = flows[MESSAGES].copy(outlet, Rank(owner as u32), copying);
        let exposed = Some(exposed);
        let asked = Asked { seed, into, owners, exposed, transfer, told, left: None };
        refused.is_none().then_some(asked)
    }

    /// After the end nothing comes any more; by a write that failed not once its memory is registered
    /// no more.
    fn look_again(&self) {
        assert!(self.left.as_ref().is_some_and(|left| *left == bytes(&self.into)));
    }

    /// Looks at it; whether it is over.
    fn look(&mut self) -> bool {
        if self.left.is_some() {
            return true;
        }
        let Some(outcome) = self.transfer.outcome() else {
            assert_eq!(self.told.load(Ordering::Relaxed), 0);
            return false;
        };
        assert_eq!(self.told.load(Ordering::Relaxed), 1, "it ends once");
        if outcome == Outcome::Failed {
            self.exposed = None;
        }
        // Of a write its owner has registered the memory.
        let owners = if self.exposed.is_some() { self.owners } else { 1 };
        assert!(Arc::strong_count(self.into.owner()) <= owners, "somebody has the memory");
        let (now, well) = (bytes(&self.into), outcome == Outcome::Done);
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
    fn what_is_copied_is_right_or_has_failed_and_everything_ends(rules in rules()) {
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
                    let length = [0, 1, 1000, 5000, 300_000, 1_200_000][world.roll(6) as usize];
                    let way = [Direction::Read, Direction::Write][world.roll(2) as usize];
                    asked.extend(Asked::begin(&mut world, [from, to], way, step, length));
                }
                6 => while world.take(from, MESSAGES) {},
                7 if !asked.is_empty() && world.roll(4) == 0 => {
                    let which = world.roll(asked.len() as u32) as usize;
                    if world.roll(2) == 0 {
                        asked[which].transfer.stop();
                    } else {
                        asked[which].exposed = None;
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

/// Has a process update a word of a peer; nothing if there is no way.
fn update(
    world: &mut World,
    [from, to]: [usize; 2],
    update: Update,
    there: Remote,
) -> Option<Arc<Transfer>> {
    let Bare { outlet, flows, .. } = &mut world.processes[from].ends;
    let (word, transfer) = (outlet.pairs().bounces().word()?, Arc::new(Transfer::new(|| {})));
    let copying = Copying::update(transfer.clone(), update, word, there);
    flows[MESSAGES].copy(outlet, Rank(to as u32), copying).is_none().then_some(transfer)
}

/// Lets time pass until all are over; how they have ended.
fn outcomes(world: &mut World, all: &[Arc<Transfer>]) -> Vec<Outcome> {
    for _ in 0..100_000 {
        let over: Vec<_> = all.iter().filter_map(|transfer| transfer.outcome()).collect();
        if over.len() == all.len() {
            return over;
        }
        (0..world.processes.len()).for_each(|rank| world.sleep(rank, 1_000_000));
    }
    panic!("an update does not end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of updates beside messages and reads, while queue pairs fail: those that are done have been
    /// carried out once, those that count as stopped never, and the others once or never.
    #[test]
    fn updates_are_carried_out_once_or_never_or_have_failed(rules in rules()) {
        let mut rules = rules;
        rules.policy = plain(When::Traffic, 1, Plan::default()).policy;
        let mut world = World::new(&rules);
        let word = Memory::zeroed(8).unwrap();
        let exposed = world.processes[1].ends.outlet.pairs().register(&word, Access::ALL).unwrap();
        let (mut all, mut asked) = (Vec::new(), Vec::new());
        for step in 0..200 {
            match world.roll(10) {
                0..=1 => drop(world.send(0, 1, MESSAGES, 100)),
                2..=6 => all.extend(update(&mut world, [0, 1], Update::Add(1), exposed.remote())),
                7 => asked.extend(Asked::begin(&mut world, [0, 1], READ, step, 300_000)),
                8 if world.roll(3) == 0 => {
                    let Bare { outlet, flows, .. } = &mut world.processes[0].ends;
                    flows[MESSAGES].break_off(outlet, Rank(1));
                }
                _ => {
                    let most = [1_000, 100_000, 20_000_000][world.roll(3) as usize];
                    (0..2).for_each(|rank| world.sleep(rank, most));
                }
            }
        }
        let ends = outcomes(&mut world, &all);
        all_over(&mut world, &mut asked);
        world.finish();
        let count = |outcome| ends.iter().filter(|end| **end == outcome).count() as u64;
        let (done, failed) = (count(Outcome::Done), count(Outcome::Failed));
        let now = word.load(0).unwrap();
        prop_assert!((done..=done + failed).contains(&now), "{now}: {done} done, {failed} failed");
        let mut seen: Vec<u64> =
            all.iter().filter(|it| it.is_done()).map(|transfer| transfer.old()).collect();
        seen.sort_unstable();
        prop_assert!(seen.windows(2).all(|two| two[0] < two[1]), "one value was found twice");
        prop_assert!(seen.last().is_none_or(|last| *last < now));
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
    for (seed, length) in
        [0, 1, 1024, 1025, 262_143, 262_144, 262_145, 5_000_000].into_iter().enumerate()
    {
        let ways = [([0, 1], READ), ([1, 0], READ), ([0, 1], WRITE), ([1, 0], WRITE)];
        let all = ways.map(|(ends, way)| {
            Asked::begin(&mut world, ends, way, seed as u32, length).expect("there is a queue pair")
        });
        let mut all = Vec::from(all);
        all_over(&mut world, &mut all);
        assert!(all.iter().all(|it| it.transfer.is_done()), "{length} bytes");
    }
    assert!(world.processes[0].ends.is_hot(Rank(1)) && world.processes[1].ends.is_hot(Rank(0)));
}

#[test]
fn without_a_queue_pair_nothing_is_begun() {
    let mut world = World::new(&plain(When::Never, 1, Plan::default()));
    assert!(world.send(0, 1, MESSAGES, 8));
    world.finish();
    assert!(Asked::begin(&mut world, [0, 1], WRITE, 1, 100_000).is_none());
}

#[test]
fn a_wrong_key_or_place_fails_the_transfer_and_messages_go_on() {
    for (wrong, way) in (0..3).flat_map(|wrong| [(wrong, READ), (wrong, WRITE)]) {
        let mut world = paired();
        let length = 600_000;
        let data = Memory::zeroed(length).unwrap();
        let pairs = world.processes[1].ends.outlet.pairs();
        let exposed = pairs.register(&data, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
        let Remote { address, key } = exposed.remote();
        let there = match wrong {
            0 => Remote { address, key: key ^ 1 << 25 },
            // Its last part is not there.
            1 => Remote { address: address + 1, key },
            _ => Remote { address: u64::MAX - 5, key },
        };
        let here = Memory::zeroed(length).unwrap();
        let Bare { outlet, flows, .. } = &mut world.processes[0].ends;
        let memory = outlet.pairs().register(&here, way.access()).unwrap();
        let transfer = Arc::new(Transfer::new(|| {}));
        let copying = Copying::new(transfer.clone(), way, memory, there);
        assert!(flows[MESSAGES].copy(outlet, Rank(1), copying).is_none());
        world.stream((0, 1), MESSAGES, 100, 300);
        world.stream((1, 0), MESSAGES, 100, 300);
        world.finish();
        assert_eq!(transfer.outcome(), Some(Outcome::Failed));
    }
}

#[test]
fn an_update_that_the_peer_refuses_counts_as_never_begun_and_so_do_those_behind_it() {
    let mut world = paired();
    let word = Memory::zeroed(8).unwrap();
    let pairs = world.processes[1].ends.outlet.pairs();
    let exposed = pairs.register(&word, Access::ALL).unwrap();
    let there = exposed.remote();
    let wrong = Remote { key: there.key ^ 1 << 25, ..there };
    let add = |add| Update::Add(add);
    let swap = Update::CompareSwap { compare: 5, swap: 7 };
    let asked = [(add(5), there), (swap, there), (add(1), wrong), (add(1), there)];
    let all = asked.map(|(what, there)| update(&mut world, [0, 1], what, there).unwrap());
    let (done, stopped) = (Outcome::Done, Outcome::Stopped);
    assert_eq!(outcomes(&mut world, &all), [done, done, stopped, stopped]);
    assert_eq!((all[0].old(), all[1].old(), word.load(0)), (0, 5, Some(7)));
    world.stream((0, 1), MESSAGES, 100, 300);
    world.finish();
    assert_eq!(word.load(0), Some(7));
}

#[test]
fn a_transfer_that_is_stopped_ends_early_and_breaks_nothing() {
    let mut world = paired();
    let mut all = vec![
        Asked::begin(&mut world, [0, 1], READ, 1, 50_000_000).unwrap(),
        Asked::begin(&mut world, [0, 1], WRITE, 2, 50_000_000).unwrap(),
        Asked::begin(&mut world, [0, 1], READ, 3, 600_000).unwrap(),
        Asked::begin(&mut world, [0, 1], WRITE, 4, 600_000).unwrap(),
    ];
    world.sleep(0, 10_000);
    all[0].transfer.stop();
    all[1].transfer.stop();
    all_over(&mut world, &mut all);
    let outcomes: Vec<_> = all.iter().filter_map(|it| it.transfer.outcome()).collect();
    let (stopped, done) = (Outcome::Stopped, Outcome::Done);
    assert_eq!(outcomes, [stopped, stopped, done, done]);
    assert!(world.processes[0].ends.is_hot(Rank(1)));
    all.iter().for_each(Asked::look_again);
}

#[test]
fn a_queue_pair_that_is_broken_off_ends_its_transfers_at_once() {
    let mut world = paired();
    let all = [READ, WRITE].map(|way| Asked::begin(&mut world, [0, 1], way, 5, 9_000_000).unwrap());
    world.sleep(0, 10_000);
    let Bare { outlet, flows, .. } = &mut world.processes[0].ends;
    flows[MESSAGES].break_off(outlet, Rank(1));
    for mut asked in all {
        assert!(asked.look() && !asked.transfer.is_done());
    }
    world.stream((0, 1), MESSAGES, 100, 300);
    world.finish();
}

#[test]
fn no_more_is_under_way_than_may_be() {
    let kept = Kept::new(Network::new(Parameters::default()).device(Bare::COOKIE), 0);
    let memory = Memory::zeroed(100).unwrap();
    let large = Memory::zeroed(10 << 20).unwrap();
    let copying = |memory: &Memory| {
        let registered = kept.register(memory, READ.access()).unwrap();
        let there = Remote { address: 0, key: 1 };
        Copying::new(Arc::new(Transfer::new(|| {})), READ, registered, there)
    };
    let mut copyings = Copyings::default();
    copyings.add(copying(&large));
    copyings.add(copying(&memory));
    let mut parts = Vec::new();
    while let Some(part) = copyings.next(u64::MAX) {
        assert_eq!(part.there.address, parts.len() as u64 * u64::from(part.here.length));
        copyings.posted(part.copying, part.here.length);
        parts.push(part.copying);
    }
    assert_eq!(parts, [1; ABREAST as usize]);
    assert!(!copyings.have_more());
    copyings.completed(1);
    assert!(copyings.have_more() && copyings.next(u64::MAX).is_some());
    // What a device takes at once may be less.
    assert_eq!(copyings.next(1000).unwrap().here.length, 1000);
}
