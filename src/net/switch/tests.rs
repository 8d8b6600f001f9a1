//! Two sides, channels that keep their own order but not each other's, sends that complete late:
//! every interleaving of small cases, and random ones of large.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    Control(Control),
    Data(u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Side {
    switch: Switch,
    /// What it wants as soon as it may.
    wishes: VecDeque<Option<Class>>,
    /// Queue pairs that it has: their classes, and whether they are connected.
    pairs: BTreeMap<u32, (Class, bool)>,
    /// Sends that have not completed, by way.
    under_way: BTreeMap<u32, u32>,
    data: u8,
    sent: u8,
    came: u8,
    held: VecDeque<u8>,
    switched: u8,
    refused: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    sides: [Side; 2],
    /// What is on the way from each side, by connection; datagrams are 0.
    ways: [BTreeMap<u32, VecDeque<Message>>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Want(usize),
    Data(usize),
    /// The first by this connection arrives at side `i`; whether it promises, and whether a queue
    /// pair can be made.
    Arrive(usize, u32, bool, bool),
    Complete(usize, u32),
}

fn key(way: Way) -> u32 {
    match way {
        Way::Datagrams => 0,
        Way::Pair(number) => number,
    }
}

fn way(key: u32) -> Way {
    if key == 0 { Way::Datagrams } else { Way::Pair(key) }
}

impl World {
    fn new(wishes: [&[Option<u8>]; 2], data: u8) -> World {
        let side = |i: usize| Side {
            switch: Switch::new(i == 0),
            wishes: wishes[i].iter().map(|wish| wish.map(|e| Class::new(e).unwrap())).collect(),
            pairs: BTreeMap::new(),
            under_way: BTreeMap::new(),
            data,
            sent: 0,
            came: 0,
            held: VecDeque::new(),
            switched: 0,
            refused: 0,
        };
        World { sides: [side(0), side(1)], ways: [BTreeMap::new(), BTreeMap::new()] }
    }

    fn steps(&self, refusals: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for i in 0..2 {
            let side = &self.sides[i];
            if !side.wishes.is_empty() && side.switch.is_free() {
                steps.push(Step::Want(i));
            }
            if side.data > 0 {
                steps.push(Step::Data(i));
            }
            for (by, messages) in &self.ways[1 - i] {
                match messages.front() {
                    None => {}
                    Some(Message::Control(_)) if refusals => {
                        for (can, opens) in [(true, true), (true, false), (false, true)] {
                            steps.push(Step::Arrive(i, *by, can, opens));
                        }
                    }
                    Some(_) => steps.push(Step::Arrive(i, *by, true, true)),
                }
            }
            for (by, count) in &side.under_way {
                if *count > 0 {
                    steps.push(Step::Complete(i, *by));
                }
            }
        }
        steps
    }

    fn post(&mut self, i: usize, by: Way, message: Message) {
        let side = &mut self.sides[i];
        if let Way::Pair(number) = by {
            assert!(side.pairs[&number].1, "sent by a queue pair that is not connected");
        }
        side.switch.sent(by);
        *side.under_way.entry(key(by)).or_default() += 1;
        self.ways[i].entry(key(by)).or_default().push_back(message);
    }

    fn step(&mut self, step: Step) {
        let mut out = Vec::new();
        let (i, opens) = match step {
            Step::Want(i) => {
                let side = &mut self.sides[i];
                let wish = side.wishes[0];
                if !side.switch.want(wish, 0, &mut out) {
                    // From datagrams to datagrams.
                    assert_eq!((wish, side.switch.sends_by()), (None, Way::Datagrams));
                    side.wishes.pop_front();
                }
                (i, true)
            }
            Step::Data(i) => {
                let side = &mut self.sides[i];
                side.data -= 1;
                side.sent += 1;
                let (by, message) = (side.switch.sends_by(), Message::Data(side.sent));
                self.post(i, by, message);
                (i, true)
            }
            Step::Complete(i, by) => {
                let side = &mut self.sides[i];
                let count = side.under_way.get_mut(&by).unwrap();
                *count -= 1;
                if *count == 0 {
                    side.under_way.remove(&by);
                }
                side.switch.completed(way(by), &mut out);
                (i, true)
            }
            Step::Arrive(i, by, can, opens) => {
                let messages = self.ways[1 - i].get_mut(&by).unwrap();
                let message = messages.pop_front().unwrap();
                if messages.is_empty() {
                    self.ways[1 - i].remove(&by);
                }
                let side = &mut self.sides[i];
                assert!(by == 0 || side.pairs.contains_key(&by), "came by what was closed: {by}");
                match message {
                    Message::Data(number) => match side.switch.arrived(way(by)) {
                        Arrival::Deliver => {
                            side.came += 1;
                            assert_eq!(side.came, number);
                        }
                        Arrival::Hold => side.held.push_back(number),
                        Arrival::Unknown => panic!("{by}: {side:?}"),
                    },
                    Message::Control(control) => {
                        let (bytes, used) = control.encode();
                        assert_eq!(Control::decode(&bytes[..used]), Ok(control));
                        let wish = side.wishes.front().copied().flatten();
                        let taken = side.switch.receive(&control, way(by), wish, |_| can, &mut out);
                        assert_eq!(taken, Ok(()), "{side:?}");
                    }
                }
                (i, opens)
            }
        };
        let mut actions: VecDeque<Action> = out.into();
        while let Some(action) = actions.pop_front() {
            let side = &mut self.sides[i];
            match action {
                Action::Open { number, class } => {
                    assert!(actions.is_empty());
                    let address = [i as u8 + 1, number as u8];
                    if opens {
                        assert_eq!(side.pairs.insert(number, (class, false)), None);
                    }
                    let mut out = Vec::new();
                    side.switch.opened(opens.then_some(&address), &mut out);
                    actions.extend(out);
                }
                Action::Connect { number, peer } => {
                    assert_eq!(peer.end_point(), [2 - i as u8, number as u8]);
                    side.pairs.get_mut(&number).unwrap().1 = true;
                }
                Action::Send { by, control } => self.post(i, by, Message::Control(control)),
                Action::Use { by, class } => {
                    assert_eq!((side.switch.sends_by(), side.switch.class()), (by, class));
                    let fits =
                        |wish: &Option<Class>| *wish == class || (wish.is_some() && *wish <= class);
                    while side.wishes.front().is_some_and(fits) {
                        side.wishes.pop_front();
                    }
                }
                Action::Release => {
                    for number in std::mem::take(&mut side.held) {
                        side.came += 1;
                        assert_eq!(side.came, number);
                    }
                }
                Action::Close { number, class } => {
                    assert_eq!(side.pairs.remove(&number).map(|pair| pair.0), Some(class));
                    assert!(!side.under_way.contains_key(&number), "closed before it was drained");
                    // Nothing of the peer's is lost in it, nor sent into it later.
                    assert!(!self.ways[1 - i].contains_key(&number));
                    assert_ne!(self.sides[1 - i].switch.sends_by(), Way::Pair(number));
                }
                Action::Switched { .. } => side.switched += 1,
                Action::Refused => side.refused += 1,
            }
        }
    }

    fn check_end(&self) {
        let numbers = self.sides.each_ref().map(|side| side.switch.number);
        assert_eq!(numbers[0], numbers[1]);
        for (i, side) in self.sides.iter().enumerate() {
            let peer = &self.sides[1 - i];
            assert_eq!((side.sent, side.held.len()), (peer.came, 0));
            assert_eq!(side.switch.sends_by(), peer.switch.sends_by());
            assert_eq!(side.switch.arrived(peer.switch.sends_by()), Arrival::Deliver);
            // What is used is there, and nothing else is.
            let pairs: Vec<u32> = side.pairs.keys().copied().collect();
            let used: Vec<u32> =
                Some(key(side.switch.sends_by())).filter(|k| *k > 0).into_iter().collect();
            assert_eq!(pairs, used, "{side:?}");
            assert!(side.wishes.is_empty() || side.refused > 0);
            assert!(side.switch.connections.len() <= 2);
        }
        assert_eq!(u32::from(self.sides[0].switched + self.sides[1].switched), numbers[0]);
    }
}

fn explore(start: World, refusals: bool, most: usize) -> usize {
    let mut seen = HashSet::from([start.clone()]);
    let mut left = vec![start];
    while let Some(world) = left.pop() {
        let steps = world.steps(refusals);
        if steps.is_empty() {
            world.check_end();
        }
        for step in steps {
            let mut next = world.clone();
            next.step(step);
            if seen.len() < most && seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn every_interleaving_of_one_change_loses_nothing() {
    let mut states = 0;
    for wishes in [[&[Some(14)][..], &[]], [&[], &[Some(14)]], [&[Some(14)], &[Some(16)]]] {
        states += explore(World::new(wishes, 1), false, 60_000);
        states += explore(World::new(wishes, 0), true, 60_000);
    }
    assert!(states > 5_000, "only {states} states: the search is blind");
}

#[test]
fn a_pair_is_made_and_given_back_for_datagrams() {
    let wishes = [Some(14), Some(18), None];
    let mut world = World::new([&wishes, &[]], 6);
    while let Some(step) = world.steps(false).first() {
        world.step(*step);
    }
    world.check_end();
    assert_eq!(world.sides[0].switched, 3);
    assert_eq!(world.sides[0].switch.sends_by(), Way::Datagrams);
    assert!(world.sides.iter().all(|side| side.pairs.is_empty()));
}

#[test]
fn packets_of_other_connections_or_by_other_ways_are_errors() {
    let mut switch = Switch::new(true);
    let class = Class::new(14).unwrap();
    let control = |packet, number, bytes: &[u8]| Control::new(packet, number, bytes).unwrap();
    let mut out = Vec::new();
    let request = Packet::HandshakeReq { class };
    for (number, by) in [(0, Way::Datagrams), (2, Way::Datagrams), (1, Way::Pair(1))] {
        let before = switch.clone();
        let wrong = switch.receive(&control(request, number, b""), by, None, |_| true, &mut out);
        assert_eq!((wrong, out.len()), (Err(Wrong::Connection { number }), 0));
        assert_eq!(switch, before);
    }
    let early = control(Packet::ConnEst, 1, b"");
    let wrong = switch.receive(&early, Way::Datagrams, None, |_| true, &mut out);
    assert!(matches!(wrong, Err(Wrong::Packet(_))));
    // A queue pair was asked for, and datagrams are answered.
    assert!(switch.want(Some(class), 0, &mut out));
    let agreed = control(Packet::HandshakeRep { agreed: Some((class, true)) }, 1, b"");
    switch.receive(&agreed, Way::Datagrams, None, |_| true, &mut out).unwrap();
    switch.opened(Some(b"me"), &mut out);
    let answer = control(Packet::ConnRep { ready: true }, 1, b"");
    let wrong = switch.receive(&answer, Way::Datagrams, None, |_| true, &mut out);
    assert_eq!(wrong, Err(Wrong::Medium));
    assert_eq!(switch.arrived(Way::Pair(7)), Arrival::Unknown);
    out.clear();
    switch.abandon(&mut out);
    assert_eq!(out, [Action::Close { number: 1, class }]);
    assert!(!switch.want(Some(class), 0, &mut out));
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Wish(usize, Option<u8>),
    Data(usize),
    /// Any of the steps that are possible.
    Any(prop::sample::Index, bool, bool),
}

fn turn() -> impl Strategy<Value = Turn> {
    let odds = || prop::bool::weighted(0.95);
    prop_oneof![
        1 => (0..2usize, prop::option::weighted(0.7, 10u8..20)).prop_map(|(i, class)| Turn::Wish(i, class)),
        4 => (0..2usize).prop_map(Turn::Data),
        16 => (any::<prop::sample::Index>(), odds(), odds()).prop_map(|(i, a, b)| Turn::Any(i, a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Long runs with data under way all the time, changes to and fro at any time from either side,
    /// connections that overtake each other, sends that complete late.
    #[test]
    fn no_message_is_lost_or_overtaken_whenever_what_happens(
        turns in prop::collection::vec(turn(), 1..400),
        refusals: bool,
    ) {
        let mut world = World::new([&[], &[]], 0);
        for turn in turns {
            match turn {
                Turn::Wish(i, class) => {
                    let class = class.map(|class| Class::new(class).unwrap());
                    world.sides[i].wishes.push_back(class);
                }
                Turn::Data(i) => {
                    if world.sides[i].sent < 250 {
                        world.sides[i].data += 1;
                        world.step(Step::Data(i));
                    }
                }
                Turn::Any(index, can, opens) => {
                    let steps = world.steps(false);
                    if !steps.is_empty() {
                        world.step(match steps[index.index(steps.len())] {
                            Step::Arrive(i, by, ..) if refusals => Step::Arrive(i, by, can, opens),
                            step => step,
                        });
                    }
                }
            }
        }
        while let Some(step) = world.steps(false).last() {
            world.step(*step);
        }
        world.check_end();
    }
}
