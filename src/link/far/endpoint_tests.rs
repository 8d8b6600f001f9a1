//! Endpoints over one connection: each takes its own messages in order, whichever way they came, one
//! that takes none is overdue and stops the others no longer once somebody takes its messages, and what
//! no endpoint is there for is thrown away.

use super::bare::Bare;
use super::inboxes::{INBOX, bit};
use super::tests::{World, plain, rules};
use super::{Flow, LONGEST, word};
use crate::base::Rank;
use crate::link::{KINDS, MAX_MESSAGE, Push};
use crate::net::fault::Plan;
use crate::net::promotion::When;
use crate::shm::ring::Label;
use proptest::prelude::*;
use std::collections::HashMap;

const MESSAGES: usize = Flow::Messages as usize;

/// Endpoints that are open in all processes.
const OPEN: [u8; 4] = [0, 1, 5, 63];

/// Processes, and what has gone and come from whom by which endpoint.
struct Place {
    world: World,
    sent: HashMap<(usize, usize, u8), u32>,
    come: HashMap<(usize, usize, u8), u32>,
}

impl Place {
    fn new(world: World) -> Place {
        let mut place = Place { world, sent: HashMap::new(), come: HashMap::new() };
        for process in &mut place.world.processes {
            OPEN.into_iter().for_each(|endpoint| process.ends.flows[MESSAGES].open(endpoint));
        }
        place
    }

    fn send(&mut self, from: usize, to: usize, endpoint: u8, size: usize) -> bool {
        self.world.meet(from, to, MESSAGES);
        let number = self.sent.entry((from, to, endpoint)).or_default();
        let label = Label::new(KINDS, u64::from(*number)).unwrap();
        let rest = vec![*number as u8; size];
        let Bare { outlet, flows, .. } = &mut self.world.processes[from].ends;
        let to = (Rank(to as u32), endpoint);
        let push = flows[MESSAGES].send(outlet, to, label, [&[endpoint], &rest]);
        let sent = push.expect("the peer is there") == Push::Sent;
        *number += u32::from(sent);
        sent
    }

    fn take(&mut self, rank: usize, endpoint: u8) -> bool {
        let Bare { outlet, flows, .. } = &mut self.world.processes[rank].ends;
        let Some((from, label, bytes)) = flows[MESSAGES].take(outlet, endpoint) else {
            return false;
        };
        let number = self.come.entry((from.index(), rank, endpoint)).or_default();
        let label = label.expect("everything makes sense");
        assert_eq!(label.imm(), u64::from(*number), "from {from} to {rank} at {endpoint}");
        let (first, rest) = bytes.get().split_first().unwrap();
        assert_eq!(*first, endpoint);
        assert!(rest.iter().all(|byte| *byte == *number as u8));
        *number += 1;
        true
    }

    fn overdue(&mut self, rank: usize) -> u64 {
        self.world.processes[rank].ends.flows[MESSAGES].take_changes().1
    }

    /// As calls of one endpoint do, when they look: its own messages, and what is overdue.
    fn look(&mut self, rank: usize, endpoint: u8) {
        while self.take(rank, endpoint) {}
        let overdue = self.overdue(rank);
        for other in OPEN.into_iter().filter(|other| overdue & bit(*other) != 0) {
            while self.take(rank, other) {}
        }
    }

    fn finish(&mut self) {
        for _ in 0..20_000 {
            for rank in 0..self.world.processes.len() {
                OPEN.into_iter().for_each(|endpoint| while self.take(rank, endpoint) {});
                self.world.sleep(rank, 1_000_000);
            }
            let all = self
                .sent
                .iter()
                .all(|(key, sent)| self.come.get(key).copied().unwrap_or_default() == *sent);
            if all && self.world.processes.iter().all(|process| process.ends.is_drained()) {
                return;
            }
        }
        panic!("not everything comes: {:?} of {:?}", self.come, self.sent);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn each_endpoint_has_its_messages_once_and_in_order(rules in rules()) {
        let mut place = Place::new(World::new(&rules));
        let count = rules.processes;
        for _ in 0..300 {
            let from = place.world.roll(count) as usize;
            let to = (from + 1 + place.world.roll(count - 1) as usize) % count as usize;
            let endpoint = OPEN[place.world.roll(4) as usize];
            match place.world.roll(10) {
                0..=4 => {
                    let most = place.world.eager(from, to);
                    let sizes = [0, 8, 100, 3000, MAX_MESSAGE - 1, most - 1];
                    let size = sizes[place.world.roll(6) as usize].min(LONGEST - 1);
                    for _ in 0..=place.world.roll(if size > MAX_MESSAGE { 6 } else { 80 }) {
                        // Messages of several endpoints share sends.
                        let other = OPEN[place.world.roll(4) as usize];
                        if !place.send(from, to, if size > 8 { endpoint } else { other }, size) {
                            break;
                        }
                    }
                }
                5..=6 => (0..place.world.roll(120)).for_each(|_| {
                    place.take(from, endpoint);
                }),
                7 => {
                    let exponent = 13 + place.world.roll(9) as u8;
                    place.world.widen(from, to, exponent);
                }
                _ => {
                    let most = [1_000, 100_000, 20_000_000][place.world.roll(3) as usize];
                    place.world.sleep(from, most);
                }
            }
        }
        place.finish();
    }
}

/// Two processes of which one sends by two endpoints, and nobody looks at one of them: how many
/// messages of the other one come. `helps`: whoever looks takes what is overdue.
fn beside_a_slow_one(when: When, size: usize, helps: bool) -> u32 {
    let mut place = Place::new(World::new(&plain(when, 1, Plan::default())));
    assert!(place.send(0, 1, 5, 8));
    place.finish();
    for _ in 0..10 * INBOX {
        place.send(0, 1, 1, size);
        place.send(0, 1, 5, size);
        place.world.sleep(0, 20_000);
        place.world.sleep(1, 20_000);
        if helps { place.look(1, 5) } else { while place.take(1, 5) {} }
    }
    let come = place.come[&(0, 1, 5)];
    place.finish();
    come
}

#[test]
fn one_at_which_nobody_looks_stops_the_others_until_somebody_takes_what_is_overdue() {
    for when in [When::Never, When::Traffic] {
        for size in [8, 5000] {
            let (alone, helped) =
                (beside_a_slow_one(when, size, false), beside_a_slow_one(when, size, true));
            // A line, or what a queue pair may have under way, and what has company or is kept.
            assert!(alone < 5 * INBOX as u32, "{alone} by {when:?}, {size} bytes");
            let gain = helped.saturating_sub(alone);
            assert!(gain > 3 * INBOX as u32, "{helped} of {alone} by {when:?}, {size} bytes");
        }
    }
}

/// Messages by a queue pair that wait for a datagram are in nobody's line; once it is there they may be
/// all that the peer may send. Whoever they are for is seen to then, though none comes any more.
#[test]
fn what_waited_for_a_datagram_is_seen_to_when_the_peer_may_send_nothing_more() {
    for size in [8, 5000] {
        let plan = Plan { seed: 1, drop: 300, ..Plan::default() };
        let mut place = Place::new(World::new(&plain(When::Traffic, 1, plan)));
        let mut exhausted = 0;
        for _ in 0..4000 {
            // In bursts, so that a queue pair is full before what it follows has come.
            while place.send(0, 1, 1, size) {}
            place.world.sleep(0, 100_000);
            place.world.sleep(1, 100_000);
            let flow = &place.world.processes[1].ends.flows[MESSAGES];
            exhausted += u32::from(flow.is_exhausted());
            assert!(!flow.is_exhausted() || flow.sees_to_all(), "{size} bytes");
            place.look(1, 5);
        }
        assert!(exhausted > 0, "the queue pair is never full with {size} bytes");
        place.finish();
    }
}

#[test]
fn what_is_for_no_endpoint_here_is_thrown_away_and_counted() {
    for when in [When::Never, When::Traffic] {
        let mut place = Place::new(World::new(&plain(when, 1, Plan::default())));
        assert!(place.send(0, 1, 5, 8));
        place.finish();
        let senseless = |place: &Place| place.world.processes[1].ends.flows[MESSAGES].senseless();
        // No endpoint; one that is not open; one that programs cannot send to themselves.
        for (endpoint, kind) in [(64, KINDS), (62, KINDS), (5, 1)] {
            let before = senseless(&place);
            let Bare { outlet, flows, .. } = &mut place.world.processes[0].ends;
            let (to, label) = ((Rank(1), endpoint), Label::new(kind, 0).unwrap());
            assert!(word::decode(word::encode(endpoint, label)).is_none_or(|it| it.0 == 62));
            let push = flows[MESSAGES].send(outlet, to, label, [b"made up", &[]]);
            assert_eq!(push, Some(Push::Sent));
            assert!(place.send(0, 1, 5, 8));
            while place.come[&(0, 1, 5)] < place.sent[&(0, 1, 5)] {
                place.world.sleep(0, 100_000);
                place.world.sleep(1, 100_000);
                place.take(1, 5);
            }
            assert_eq!(senseless(&place), before + 1);
            // It stands in line for whoever comes, and is nothing to anybody.
            let Bare { outlet, flows, .. } = &mut place.world.processes[1].ends;
            let came = flows[MESSAGES].take(outlet, 0);
            assert!(came.is_some_and(|(from, label, _)| from == Rank(0) && label.is_none()));
        }
        place.finish();
    }
}
