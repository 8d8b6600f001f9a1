//! Flows of a few processes over a simulated network, in one thread and in virtual time: random
//! traffic, queue pairs that come, go and are cut, receivers that are slow.

use super::LONGEST;
use super::NetworkCounters;
use super::bare::Bare;
use crate::base::Rank;
use crate::base::adapt::{Class, Limits};
use crate::link::{MAX_MESSAGE, Push};
use crate::net::fault::{FaultDevice, Plan};
use crate::net::promotion::{Settings, When};
use crate::net::provider::Device;
use crate::net::sim::{Network, Parameters};
use crate::shm::ring::Label;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const SILENCE: Duration = Duration::from_secs(20);

pub(super) struct Process {
    pub ends: Bare,
    /// Sent to, and come from, each peer on each flow.
    sent: HashMap<(u32, usize), u32>,
    come: HashMap<(u32, usize), u32>,
    /// Whether messages have ever gone by a queue pair.
    pairs: usize,
}

pub(super) struct World {
    pub processes: Vec<Process>,
    dice: u64,
}

/// What is different from world to world.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    seed: u64,
    pub processes: u32,
    pub policy: Settings,
    plan: Plan,
    limits: Limits,
}

impl World {
    pub fn new(rules: &Rules) -> World {
        let parameters = Parameters { seed: rules.seed, ..Parameters::default() };
        let network = Network::new(parameters);
        let process = |rank: u32| {
            let plan = Plan { seed: rules.seed ^ u64::from(rank), ..rules.plan };
            let device: Arc<dyn Device> = FaultDevice::over(network.device(Bare::COOKIE), plan);
            let times = [SILENCE, Duration::from_millis(500)];
            let Rules { processes, policy, limits, .. } = *rules;
            let ends = Bare::with_limits(device, Rank(rank), processes, policy, limits, times);
            let (sent, come) = (HashMap::new(), HashMap::new());
            Process { ends: ends.unwrap(), sent, come, pairs: 0 }
        };
        let processes = (0..rules.processes).map(process).collect();
        World { processes, dice: rules.seed | 1 }
    }

    pub fn roll(&mut self, below: u32) -> u32 {
        self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.dice >> 33) % u64::from(below)) as u32
    }

    /// As the edge does; when something is due.
    fn progress(&mut self, rank: usize) -> u64 {
        let Process { ends, pairs, .. } = &mut self.processes[rank];
        ends.look();
        *pairs = (*pairs).max(ends.queue_pairs());
        ends.tick()
    }

    /// Lets time pass for a process, at most `most` nanoseconds.
    pub fn sleep(&mut self, rank: usize, most: u64) {
        let next = self.progress(rank);
        self.processes[rank].ends.sleep(next, most);
    }

    pub fn meet(&mut self, from: usize, to: usize, flow: usize) {
        let address = self.processes[to].ends.address();
        let Bare { outlet, flows, .. } = &mut self.processes[from].ends;
        flows[flow].meet(outlet, Rank(to as u32), &address).unwrap();
    }

    /// Sends one message; whether there was room.
    pub fn send(&mut self, from: usize, to: usize, flow: usize, size: usize) -> bool {
        self.meet(from, to, flow);
        let Process { ends: Bare { outlet, flows, .. }, sent, .. } = &mut self.processes[from];
        let number = sent.entry((to as u32, flow)).or_default();
        let label = Label::new(1, u64::from(*number)).unwrap();
        let first = (from as u32, *number, flow as u32);
        let first = [first.0, first.1, first.2].map(u32::to_le_bytes).concat();
        let rest = vec![*number as u8; size];
        let to = Rank(to as u32);
        match flows[flow].send(outlet, (to, 0), label, [&first, &rest]).expect("the peer is there")
        {
            Push::Sent => *number += 1,
            Push::Full => return false,
        }
        true
    }

    /// Asks for a larger eager threshold.
    pub fn widen(&mut self, from: usize, to: usize, exponent: u8) {
        self.meet(from, to, 0);
        let Bare { outlet, flows, .. } = &mut self.processes[from].ends;
        flows[0].widen(outlet, Rank(to as u32), Class::new(exponent).unwrap());
    }

    /// The largest message that goes at once.
    pub fn eager(&self, from: usize, to: usize) -> usize {
        self.processes[from].ends.flows[0].eager(Rank(to as u32))
    }

    /// Takes a message that has come, and looks at it.
    pub fn take(&mut self, rank: usize, flow: usize) -> bool {
        let Process { ends: Bare { outlet, flows, .. }, come, .. } = &mut self.processes[rank];
        let Some((from, label, bytes)) = flows[flow].take(outlet, 0) else { return false };
        let from = from.0;
        let number = come.entry((from, flow)).or_default();
        let first = [from, *number, flow as u32].map(u32::to_le_bytes).concat();
        assert_eq!(bytes.get()[..12], first, "from {from} to {rank} on {flow}");
        assert!(bytes.get()[12..].iter().all(|byte| *byte == *number as u8));
        assert_eq!(label.unwrap().imm(), u64::from(*number));
        *number += 1;
        true
    }

    /// Sends messages of so many bytes one way, which are taken as they come; how often there was no
    /// room.
    pub fn stream(&mut self, ends: (usize, usize), flow: usize, size: usize, count: u32) -> u32 {
        let ((from, to), mut waits) = (ends, 0);
        for _ in 0..count {
            while !self.send(from, to, flow, size) {
                self.sleep(from, 100_000);
                self.sleep(to, 100_000);
                while self.take(to, flow) {}
                waits += 1;
                assert!(waits < 1_000_000, "there is never room again");
            }
        }
        waits
    }

    fn all_come(&self) -> bool {
        self.processes.iter().enumerate().all(|(from, process)| {
            process.sent.iter().all(|((to, flow), sent)| {
                let come = &self.processes[*to as usize].come;
                come.get(&(from as u32, *flow)).copied().unwrap_or_default() == *sent
            })
        })
    }

    /// Random traffic, then until all is there.
    fn run(&mut self, steps: u32) {
        let count = self.processes.len() as u32;
        for _ in 0..steps {
            let from = self.roll(count) as usize;
            let to = (from + 1 + self.roll(count - 1) as usize) % count as usize;
            // Some pairs of processes talk more.
            let flow = self.roll(6).saturating_sub(3) as usize;
            match self.roll(10) {
                0..=4 => {
                    // Of messages some are too long for their queue pair.
                    let most = if flow == 0 { self.eager(from, to) + 1 } else { MAX_MESSAGE };
                    let sizes = [0, 8, 100, 3000, MAX_MESSAGE - 12, most - 13, most - 12];
                    let size = sizes[self.roll(7) as usize].min(LONGEST - 12);
                    for _ in 0..=self.roll(if size > MAX_MESSAGE { 6 } else { 80 }) {
                        if !self.send(from, to, flow, size) {
                            break;
                        }
                    }
                }
                5..=6 => (0..self.roll(120)).for_each(|_| {
                    self.take(from, flow);
                }),
                7 if self.roll(2) == 0 => {
                    let exponent = 13 + self.roll(9) as u8;
                    self.widen(from, to, exponent);
                }
                7 => {
                    let said = if self.roll(2) == 0 { "0" } else { "1" };
                    assert!(self.processes[from].ends.hints().hint("in_kernel", said).is_applied());
                }
                _ => {
                    let most = [1_000, 100_000, 20_000_000][self.roll(3) as usize];
                    self.sleep(from, most);
                }
            }
        }
        self.finish();
    }

    pub fn finish(&mut self) {
        let drained = |process: &Process| process.ends.is_drained();
        for _ in 0..20_000 {
            for rank in 0..self.processes.len() {
                for flow in 0..3 {
                    while self.take(rank, flow) {}
                }
                self.sleep(rank, 1_000_000);
            }
            if self.all_come() && self.processes.iter().all(drained) {
                return;
            }
        }
        let state: Vec<_> =
            self.processes.iter().map(|process| (&process.sent, &process.come)).collect();
        panic!("not everything comes: {state:?}");
    }
}

pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let when = prop_oneof![Just(When::Traffic), Just(When::Kernel)];
    let policy = (when, 1usize..6, 1u32..40, 20u64..2000).prop_map(|(when, limit, after, age)| {
        Settings { when, limit, after, age: age * 1_000_000 }
    });
    let faults = prop_oneof![
        Just(Plan::default()),
        (0u32..100, 0u32..100, 0u32..100, 0u32..200).prop_map(|(drop, duplicate, reorder, cut)| {
            Plan { drop, duplicate, reorder, cut, ..Plan::default() }
        }),
    ];
    let limits =
        (0usize..4, 15u32..27, 1u32..40, 1u64..2000).prop_map(|(pools, bytes, buffers, age)| {
            Limits { pools, bytes: 1 << bytes, buffers, age: age * 1_000_000 }
        });
    let all = (any::<u64>(), 2u32..5, policy, faults, limits);
    all.prop_map(|(seed, processes, policy, plan, limits)| Rules {
        seed,
        processes,
        policy,
        plan,
        limits,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_come_once_and_in_order_whatever_carries_them(rules in rules()) {
        World::new(&rules).run(400);
    }
}

pub(super) fn plain(when: When, after: u32, plan: Plan) -> Rules {
    let policy = Settings { when, limit: 8, after, ..Settings::default() };
    Rules { seed: 1, processes: 2, policy, plan, limits: Limits::default() }
}

#[test]
fn much_traffic_gets_a_queue_pair_little_does_not_and_idle_ones_go() {
    let mut world = World::new(&plain(When::Traffic, 50, Plan::default()));
    (0..10).for_each(|_| assert!(world.send(0, 1, 0, 8)));
    world.finish();
    assert_eq!(world.processes[0].pairs, 0);
    world.stream((0, 1), 0, 8, 200);
    world.finish();
    assert_eq!((world.processes[0].pairs, world.processes[1].pairs), (1, 1));
    for _ in 0..2_000 {
        world.sleep(0, 20_000_000);
        world.sleep(1, 20_000_000);
    }
    let open = |world: &World, rank: usize| world.processes[rank].ends.outlet.pairs().count_open();
    assert_eq!((open(&world, 0), open(&world, 1)), (0, 0));
    // And they come again.
    world.stream((1, 0), 0, 8, 200);
    world.finish();
    assert_eq!(open(&world, 0), 1);
}

#[test]
fn a_sender_learns_of_room_though_nothing_comes_back() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    assert!(world.send(0, 1, 0, 8));
    world.finish();
    let waits = world.stream((0, 1), 0, 8, 10_000);
    world.finish();
    // Without word of room it would wait until the queue pair is given up for lack of use.
    assert!(waits > 0 && waits < 200 && world.processes[0].pairs == 1, "{waits} waits");
    // Nobody was found to send more than there is room for: the queue pair is the one of the start.
    assert!(world.processes[0].ends.flows[0].is_hot(Rank(1)));
}

#[test]
fn small_messages_share_sends_where_many_are_under_way_and_no_others() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    assert!(world.send(0, 1, 0, 8));
    world.finish();
    let counts = |world: &World| {
        let counters = world.processes[0].ends.outlet.pairs().counts.with(0, 0, (0, 0));
        (counters.by_pairs, counters.sends_by_pairs)
    };
    // One at a time goes by itself.
    let before = counts(&world);
    for _ in 0..100 {
        assert!(world.send(0, 1, 0, 8));
        world.finish();
    }
    let alone = counts(&world);
    assert_eq!((alone.0 - before.0, alone.1 - before.1), (100, 100));
    world.stream((0, 1), 0, 8, 2_000);
    world.finish();
    let (messages, sends) = (counts(&world).0 - alone.0, counts(&world).1 - alone.1);
    assert_eq!(messages, 2_000);
    assert!(sends <= messages / 8, "{sends} sends");
    // Long ones among them keep their place.
    (0..400).for_each(|i| {
        world.stream((0, 1), 0, if i % 5 == 0 { 3_000 } else { 9 }, 1);
    });
    world.finish();
}

#[test]
fn the_kernel_region_gets_one_at_once() {
    let mut world = World::new(&plain(When::Kernel, 1, Plan::default()));
    world.stream((0, 1), 0, 8, 100);
    world.finish();
    assert_eq!(world.processes[0].pairs, 0);
    let region = world.processes[0].ends.hints.kernel_region();
    assert!(world.send(0, 1, 0, 8));
    drop(region);
    world.finish();
    assert_eq!(world.processes[0].pairs, 1);
}

#[test]
fn who_is_to_have_one_gets_it_before_anything_is_sent() {
    let mut world = World::new(&plain(When::Kernel, 1, Plan::default()));
    world.meet(0, 1, 2);
    let promote = |world: &mut World| {
        let Bare { outlet, flows, .. } = &mut world.processes[0].ends;
        flows[2].promote(outlet, Rank(1))
    };
    assert!(!promote(&mut world));
    let mut tries = 0;
    while !promote(&mut world) {
        world.sleep(0, 100_000);
        world.sleep(1, 100_000);
        tries += 1;
        assert!(tries < 1000, "it never comes");
    }
    assert!(world.processes[0].ends.flows[2].is_hot(Rank(1)));
    assert_eq!(world.processes[0].ends.outlet.pairs().policy().connections(), 1);
    assert!(world.send(0, 1, 2, 100));
    world.finish();
}

#[test]
fn a_peer_that_never_has_queue_pairs_refuses_and_is_not_asked_again() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    let policy = Settings { when: When::Never, ..Settings::default() };
    *world.processes[1].ends.outlet.pairs().policy() =
        crate::net::promotion::Promotion::new(policy);
    world.stream((0, 1), 0, 8, 300);
    world.finish();
    assert_eq!((world.processes[0].pairs, world.processes[1].pairs), (0, 0));
}

#[test]
fn what_fails_again_and_again_is_not_tried_for_ever() {
    let plan = Plan { cut: 1000, ..Plan::default() };
    let mut world = World::new(&plain(When::Traffic, 1, plan));
    world.stream((0, 1), 0, 100, 2_000);
    world.finish();
    assert!(world.processes[0].pairs > 0, "there were some");
    assert_eq!(world.processes[0].ends.outlet.pairs().policy().connections(), 0);
}

#[test]
fn a_receiver_that_takes_nothing_stops_its_sender_on_one_flow_only() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    let mut count = 0;
    for _ in 0..2_000 {
        count += u32::from(world.send(0, 1, 0, 100));
        world.sleep(0, 50_000);
        world.sleep(1, 50_000);
    }
    assert!(!world.send(0, 1, 0, 100));
    assert!(count < 1_000, "{count} messages wait");
    world.stream((0, 1), 1, 100, 500);
    world.finish();
}

/// Sends messages of so many bytes and has the threshold widened to a class, until it is.
fn widened(world: &mut World, exponent: u8, size: usize) -> NetworkCounters {
    let mut tries = 0;
    while world.eager(0, 1) < size + 12 {
        world.widen(0, 1, exponent);
        world.stream((0, 1), 0, size.min(MAX_MESSAGE - 12), 1);
        world.sleep(0, 100_000);
        world.sleep(1, 100_000);
        while world.take(1, 0) {}
        tries += 1;
        assert!(tries < 1_000, "the threshold is {}", world.eager(0, 1));
    }
    world.stream((0, 1), 0, size, 100);
    world.finish();
    counters(world, 0)
}

fn counters(world: &World, rank: usize) -> NetworkCounters {
    let pairs = world.processes[rank].ends.outlet.pairs();
    pairs.counts.with(0, 0, pairs.stock_bytes())
}

#[test]
fn thresholds_rise_with_messages_under_way_and_their_pools_go_with_the_queue_pairs() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    for (step, exponent) in [14u8, 16, 18, 20].into_iter().enumerate() {
        let size = (1usize << exponent) - 12;
        let counts = widened(&mut world, exponent, size);
        let class = Class::new(exponent).unwrap();
        assert_eq!(counts.eager_threshold, class.threshold());
        // The first one may have been the first queue pair at all.
        assert!(counts.thresholds as usize >= step, "{counts:?}");
        let received = counters(&world, 1);
        assert!(received.pool_bytes >= class.threshold(), "{received:?}");
    }
    for _ in 0..2_000 {
        world.sleep(0, 20_000_000);
        world.sleep(1, 20_000_000);
    }
    let open = |rank: usize| world.processes[rank].ends.outlet.pairs().count_open();
    assert_eq!((open(0), open(1)), (0, 0));
    assert_eq!((counters(&world, 0).pool_bytes, counters(&world, 1).pool_bytes), (0, 0));
    assert_eq!(world.eager(0, 1), MAX_MESSAGE);
}

#[test]
fn a_threshold_that_is_refused_leaves_the_queue_pair_which_can_still_go() {
    let limits = Limits { pools: 0, ..Limits::default() };
    let policy = Settings { when: When::Traffic, limit: 1, after: 1, age: 1 << 50 };
    let plan = Plan::default();
    let mut world = World::new(&Rules { seed: 1, processes: 3, policy, plan, limits });
    world.stream((0, 1), 0, 8, 100);
    world.finish();
    for _ in 0..100 {
        world.widen(0, 1, 16);
        world.stream((0, 1), 0, 8, 1);
        world.sleep(0, 100_000);
        world.sleep(1, 100_000);
    }
    world.finish();
    assert_eq!((counters(&world, 0).refusals, world.eager(0, 1)), (1, MAX_MESSAGE));
    assert!(world.processes[0].ends.flows[0].is_hot(Rank(1)));
    // Someone else is to have its place, which this side alone can give up.
    for _ in 0..2 {
        world.stream((0, 2), 0, 8, 2_000);
        world.finish();
    }
    let hot = |peer| world.processes[0].ends.flows[0].is_hot(Rank(peer));
    assert_eq!((hot(1), hot(2)), (false, true));
}

#[test]
fn what_is_too_long_for_the_queue_pair_goes_by_datagrams_in_its_place() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    world.stream((0, 1), 0, 8, 100);
    world.finish();
    assert!(world.processes[0].ends.flows[0].is_hot(Rank(1)));
    for size in [MAX_MESSAGE - 11, 40_000, LONGEST - 12, 8] {
        let waits = world.stream((0, 1), 0, size, 3) + world.stream((0, 1), 0, 8, 3);
        // Not until the queue pair is given up since nothing goes by it.
        assert!(waits < 2_000, "{waits} waits for {size} bytes");
    }
    world.finish();
    assert!(world.processes[0].ends.flows[0].is_hot(Rank(1)));
}

#[test]
fn who_takes_nothing_keeps_no_buffer_from_the_messages_of_others() {
    let limits = Limits { buffers: 2, ..Limits::default() };
    let mut world =
        World::new(&Rules { processes: 3, limits, ..plain(When::Traffic, 1, Plan::default()) });
    let size = 60_000;
    for from in [0, 2] {
        let mut tries = 0;
        while world.eager(from, 1) < size + 12 && tries < 1_000 {
            world.widen(from, 1, 16);
            world.stream((from, 1), 0, 8, 1);
            (0..3).for_each(|rank| world.sleep(rank, 100_000));
            tries += 1;
        }
        world.finish();
    }
    let mut sent = [0; 3];
    for _ in 0..2_000 {
        for from in [0, 2] {
            sent[from] += u32::from(world.send(from, 1, 0, size));
        }
        (0..3).for_each(|rank| world.sleep(rank, 1_000_000));
    }
    // As many as one queue pair may have there that nobody took.
    assert!(sent[0] >= 60 && sent[2] >= 60, "{sent:?}");
    for rank in 0..3 {
        assert_eq!(counters(&world, rank).failures, 0, "of {rank}");
    }
    assert!(counters(&world, 1).pool_bytes_peak <= 2 * ((1 << 16) + 1024));
    world.finish();
}

#[test]
fn messages_that_lie_in_buffers_of_a_queue_that_is_no_more_spoil_none_of_the_next_one() {
    let mut world = World::new(&plain(When::Traffic, 1, Plan::default()));
    let size = 60_000;
    widened(&mut world, 16, size);
    for _ in 0..3 {
        // They stay where they came, while the queue pair goes.
        (0..2).for_each(|_| assert!(world.send(0, 1, 0, size)));
        let mut rounds = 0;
        while world.processes[0].ends.outlet.pairs().count_open()
            + world.processes[1].ends.outlet.pairs().count_open()
            > 0
        {
            world.sleep(0, 20_000_000);
            world.sleep(1, 20_000_000);
            rounds += 1;
            assert!(rounds < 10_000, "it is never given up");
        }
        let mut tries = 0;
        while world.eager(0, 1) < size + 12 {
            world.widen(0, 1, 16);
            world.sleep(0, 100_000);
            world.sleep(1, 100_000);
            tries += 1;
            assert!(tries < 1_000, "it does not come again");
        }
        for _ in 0..20 {
            // The old ones are taken among the new ones.
            world.send(0, 1, 0, size);
            world.sleep(0, 100_000);
            world.sleep(1, 100_000);
            world.take(1, 0);
        }
        world.finish();
    }
}
