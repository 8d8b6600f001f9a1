//! Two sides over a channel that keeps the order, under every interleaving of small cases and
//! under random ones of large.

use super::*;
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};

/// What goes from one side to the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    Packet(Packet),
    /// A large eager message, into the receiver's pool of this class, with its number.
    Data(Class, u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Side {
    handshake: Handshake,
    /// What it wants as soon as it may.
    wishes: VecDeque<Class>,
    /// Classes of pools that the peer has joined, each as often as it has.
    joined: Vec<Class>,
    /// What it sends by.
    uses: Option<Class>,
    /// Data messages to be sent yet, and the number of the next one to come.
    data: u8,
    sent: u8,
    came: u8,
    /// Actions of a kind, to be compared at the end.
    switched: u8,
    refused: u8,
    closed: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    sides: [Side; 2],
    /// What is on the way from side `i`.
    ways: [VecDeque<Message>; 2],
}

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Want(usize),
    Data(usize),
    /// What comes first arrives at side `i`; whether it promises a pool, and whether it gets one.
    Arrive(usize, bool, bool),
}

impl World {
    fn new(ways: Ways, wishes: [&[u8]; 2], data: u8) -> World {
        let side = |i: usize| Side {
            handshake: Handshake::new(ways, i == 0),
            wishes: wishes[i].iter().map(|e| Class::new(*e).unwrap()).collect(),
            joined: Vec::new(),
            uses: None,
            data,
            sent: 0,
            came: 0,
            switched: 0,
            refused: 0,
            closed: 0,
        };
        World { sides: [side(0), side(1)], ways: [VecDeque::new(), VecDeque::new()] }
    }

    /// Steps that change something; with or without refusals.
    fn steps(&self, refusals: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for i in 0..2 {
            let side = &self.sides[i];
            if !side.wishes.is_empty() && side.handshake.is_free() {
                steps.push(Step::Want(i));
            }
            if side.data > 0 && side.uses.is_some() {
                steps.push(Step::Data(i));
            }
            match self.ways[1 - i].front() {
                None => {}
                Some(Message::Packet(_)) if refusals => {
                    for (can, joined) in [(true, true), (true, false), (false, true)] {
                        steps.push(Step::Arrive(i, can, joined));
                    }
                }
                Some(_) => steps.push(Step::Arrive(i, true, true)),
            }
        }
        steps
    }

    fn step(&mut self, step: Step) {
        let mut out = Vec::new();
        let (i, joins) = match step {
            Step::Want(i) => {
                let class = self.sides[i].wishes[0];
                assert!(self.sides[i].handshake.want(class, 0, &mut out));
                assert!(!self.sides[i].handshake.want(class, 0, &mut out));
                (i, true)
            }
            Step::Data(i) => {
                let side = &mut self.sides[i];
                side.data -= 1;
                side.sent += 1;
                let message = Message::Data(side.uses.unwrap(), side.sent);
                self.ways[i].push_back(message);
                return;
            }
            Step::Arrive(i, can, joins) => {
                let message = self.ways[1 - i].pop_front().unwrap();
                let side = &mut self.sides[i];
                match message {
                    Message::Data(class, number) => {
                        // The pool is there, and it is the one that both believe in.
                        assert!(side.joined.contains(&class), "{class}: {side:?}");
                        side.came += 1;
                        assert_eq!(side.came, number);
                        return;
                    }
                    Message::Packet(packet) => {
                        assert_eq!(Packet::decode(packet.encode()), Some(packet));
                        let wish = side.wishes.front().copied();
                        let taken = side.handshake.receive(packet, wish, |_| can, &mut out);
                        assert_eq!(taken, Ok(()), "{side:?}");
                    }
                }
                (i, joins)
            }
        };
        let mut actions: VecDeque<Action> = out.into();
        while let Some(action) = actions.pop_front() {
            let side = &mut self.sides[i];
            match action {
                Action::Send(packet) => self.ways[i].push_back(Message::Packet(packet)),
                Action::JoinPool(class) => {
                    assert!(actions.is_empty());
                    if joins {
                        side.joined.push(class);
                    }
                    let mut out = Vec::new();
                    side.handshake.pool(joins, &mut out);
                    actions.extend(out);
                }
                Action::LeavePool(class) => {
                    let at = side.joined.iter().position(|joined| *joined == class);
                    side.joined.swap_remove(at.expect("a pool that was joined"));
                }
                Action::Use(class) => {
                    assert_eq!(side.handshake.sends(), Some(class));
                    side.uses = Some(class);
                    // What it wanted is had, as the estimator would find.
                    while side.wishes.front().is_some_and(|wish| *wish <= class) {
                        side.wishes.pop_front();
                    }
                }
                Action::CloseOld => side.closed += 1,
                Action::Switched { class, .. } => {
                    assert_eq!(side.handshake.sends(), Some(class));
                    side.switched += 1;
                }
                Action::Refused => side.refused += 1,
            }
        }
    }

    /// Nothing can happen any more: then all is settled.
    fn check_end(&self, refusals: bool) {
        for (i, side) in self.sides.iter().enumerate() {
            let peer = &self.sides[1 - i];
            assert_eq!(side.handshake.state, State::Idle, "{self:?}");
            assert!(side.handshake.peer_has_moved());
            assert_eq!(side.handshake.sends(), side.uses);
            assert_eq!(side.handshake.sends(), peer.handshake.receives(), "{self:?}");
            // No pool is kept for nobody, and none is missing.
            assert_eq!(side.joined, Vec::from_iter(side.handshake.receives()));
            assert_eq!(side.sent, peer.came);
            assert_eq!(side.closed, peer.closed);
            assert_eq!(side.handshake.is_refused(), side.refused > 0);
            assert!(side.refused <= 1);
            assert!(side.wishes.is_empty() || side.handshake.is_refused());
            if !refusals {
                assert_eq!(side.refused, 0);
                assert!(side.data == 0 || side.uses.is_none());
            }
            if side.handshake.ways == Ways::Paired {
                assert_eq!(side.handshake.sends(), side.handshake.receives());
            }
        }
        assert_eq!(self.sides[0].switched + self.sides[1].switched, self.sides[0].closed);
    }
}

/// Goes through every interleaving; how many states there were.
fn explore(start: World, refusals: bool) -> usize {
    let mut seen = HashSet::from([start.clone()]);
    let mut left = vec![start];
    while let Some(world) = left.pop() {
        let steps = world.steps(refusals);
        if steps.is_empty() {
            world.check_end(refusals);
        }
        for step in steps {
            let mut next = world.clone();
            next.step(step);
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn every_interleaving_ends_in_agreement() {
    let mut states = 0;
    for ways in [Ways::Each, Ways::Paired] {
        for wishes in [[&[14][..], &[]], [&[14], &[14]], [&[14], &[16]], [&[14, 18], &[16]]] {
            for turned in [wishes, [wishes[1], wishes[0]]] {
                states += explore(World::new(ways, turned, 2), false);
                states += explore(World::new(ways, turned, 1), true);
            }
        }
    }
    assert!(states > 5_000, "only {states} states: the search is blind");
}

#[test]
fn one_way_moves_one_direction_and_costs_one_pool() {
    let mut world = World::new(Ways::Each, [&[17], &[]], 0);
    while let Some(step) = world.steps(false).first() {
        world.step(*step);
    }
    let [a, b] = &world.sides;
    assert_eq!((a.uses, b.uses), (Class::new(17), None));
    assert_eq!((a.joined.len(), b.joined.len()), (0, 1));
    assert_eq!((a.switched, b.switched), (1, 0));
}

#[test]
fn if_both_want_both_get_the_larger_class() {
    for wishes in [[&[14], &[17]], [&[17], &[14]]] {
        let mut world = World::new(Ways::Each, wishes.map(|wish: &[u8; 1]| &wish[..]), 0);
        // Both ask before either has heard of the other.
        world.step(Step::Want(0));
        world.step(Step::Want(1));
        while let Some(step) = world.steps(false).first() {
            world.step(*step);
        }
        assert_eq!(world.sides.each_ref().map(|side| side.uses), [Class::new(17); 2]);
        assert_eq!(world.sides[0].switched + world.sides[1].switched, 1);
    }
}

#[test]
fn who_was_refused_never_asks_again() {
    let mut world = World::new(Ways::Each, [&[17], &[]], 0);
    world.step(Step::Want(0));
    world.step(Step::Arrive(1, false, true));
    world.step(Step::Arrive(0, true, true));
    assert_eq!((world.sides[0].refused, world.sides[0].handshake.is_free()), (1, false));
    assert!(!world.sides[0].handshake.want(Class::SMALLEST, 0, &mut Vec::new()));
    // The other side may: it was not refused. The first one's wish is then part of its answer.
    assert_eq!(world.sides[0].wishes.pop_front(), Class::new(17));
    world.sides[1].wishes.push_back(Class::new(15).unwrap());
    while let Some(step) = world.steps(false).first() {
        world.step(*step);
    }
    assert_eq!(world.sides[1].uses, Class::new(15));
}

#[test]
fn packets_out_of_place_are_errors_and_change_nothing() {
    let class = Class::new(15).unwrap();
    let packets = [
        Packet::HandshakeRep { agreed: None },
        Packet::HandshakeRep { agreed: Some((class, true)) },
        Packet::ConnReq { moves: None },
        Packet::ConnReq { moves: Some(false) },
        Packet::ConnRep { ready: true },
        Packet::ConnEst,
        Packet::ConnEstAck,
    ];
    let mut out = Vec::new();
    let mut idle = Handshake::new(Ways::Each, true);
    for packet in packets {
        let before = idle.clone();
        let error = idle.receive(packet, None, |_| true, &mut out).unwrap_err();
        assert_eq!(error.packet, packet);
        assert!(error.to_string().contains("no switch is under way"));
        assert_eq!((idle.clone(), out.len()), (before, 0));
    }
    // An answer with a smaller class than was asked for.
    idle.want(Class::new(16).unwrap(), 0, &mut out);
    let smaller = Packet::HandshakeRep { agreed: Some((class, false)) };
    assert!(idle.receive(smaller, None, |_| true, &mut out).is_err());
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Wish(usize, u8),
    Data(usize),
    Arrive(usize, bool, bool),
    Want(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let odds = || prop::bool::weighted(0.93);
    prop_oneof![
        1 => (0..2usize, 10u8..20).prop_map(|(i, class)| Turn::Wish(i, class)),
        6 => (0..2usize).prop_map(Turn::Data),
        8 => (0..2usize, odds(), odds()).prop_map(|(i, a, b)| Turn::Arrive(i, a, b)),
        3 => (0..2usize).prop_map(Turn::Want),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Long runs with data under way all the time and wishes that come at any time, larger or
    /// smaller than what is there; then all is let run out.
    #[test]
    fn no_message_is_lost_whenever_what_happens(
        paired: bool,
        turns in prop::collection::vec(turn(), 1..250),
    ) {
        let mut world = World::new(if paired { Ways::Paired } else { Ways::Each }, [&[], &[]], 0);
        for turn in turns {
            let step = match turn {
                Turn::Wish(i, class) => {
                    world.sides[i].wishes.push_back(Class::new(class).unwrap());
                    continue;
                }
                Turn::Data(i) if world.sides[i].uses.is_some() => {
                    world.sides[i].data += 1;
                    Step::Data(i)
                }
                Turn::Arrive(i, can, joins) if !world.ways[1 - i].is_empty() => {
                    Step::Arrive(i, can, joins)
                }
                Turn::Want(i) if world.sides[i].handshake.is_free() => {
                    if world.sides[i].wishes.is_empty() {
                        continue;
                    }
                    Step::Want(i)
                }
                _ => continue,
            };
            world.step(step);
        }
        while let Some(step) = world.steps(false).last() {
            world.step(*step);
        }
        world.check_end(true);
    }

    /// A side whose peer dies at any moment keeps no pool for it.
    #[test]
    fn the_death_of_a_peer_leaves_no_pool_behind(
        paired: bool,
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let ways = if paired { Ways::Paired } else { Ways::Each };
        let mut world = World::new(ways, [&[12, 14, 16], &[13, 15]], 3);
        for choice in choices {
            let steps = world.steps(true);
            if steps.is_empty() {
                break;
            }
            world.step(steps[choice.index(steps.len())]);
        }
        for side in &mut world.sides {
            let mut out = Vec::new();
            side.handshake.abandon(&mut out);
            let mut left: Vec<Action> = side.joined.iter().map(|c| Action::LeavePool(*c)).collect();
            for action in out {
                let at = left.iter().position(|other| *other == action);
                prop_assert!(at.is_some(), "{:?}: {:?}", action, side);
                left.swap_remove(at.unwrap());
            }
            prop_assert_eq!(left, vec![]);
            prop_assert!(!side.handshake.is_free());
            prop_assert_eq!(side.handshake.sends().or(side.handshake.receives()), None);
        }
    }
}
