//! Both queues against lists that are walked, and the table against the standard library's.

use super::pattern::Form;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// What the queues must do, done the plain way: everything in lists, in the order in which it
/// came.
#[derive(Default)]
struct Oracle {
    posted: Vec<(Pattern, u64)>,
    unexpected: Vec<(Envelope, u64)>,
}

impl Oracle {
    fn find(&self, pattern: &Pattern) -> Option<usize> {
        self.unexpected.iter().position(|(envelope, _)| pattern.takes(envelope))
    }

    fn receiver(&self, envelope: &Envelope) -> Option<usize> {
        self.posted.iter().position(|(pattern, _)| pattern.takes(envelope))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post(Pattern),
    /// So many with one pattern, as a window has them.
    PostSeveral(Pattern, usize),
    Arrive(Envelope),
    Probe(Pattern),
    Take(Pattern),
    HasRival(Pattern),
    /// Of those that were ever posted, counted from the latest.
    Cancel(usize),
    /// Likewise of messages.
    Discard(usize),
    RemoveSource(Slot),
    RemoveContext(u32),
}

/// Both side by side; every step is checked.
struct Pair {
    real: Matching<u64, u64>,
    oracle: Oracle,
    next: u64,
    posted: Vec<(Key, u64)>,
    inserted: Vec<(Key, u64)>,
}

fn from_end<T: Copy>(list: &[T], back: usize) -> Option<T> {
    list.len().checked_sub(back + 1).map(|at| list[at])
}

impl Pair {
    fn new(seed: [u64; 2]) -> Pair {
        Pair {
            real: Matching::with_seed(Seed::from(seed)),
            oracle: Oracle::default(),
            next: 0,
            posted: Vec::new(),
            inserted: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        if let Step::PostSeveral(pattern, many) = step {
            return (0..many).for_each(|_| self.step(Step::Post(pattern)));
        }
        self.next += 1;
        let id = self.next;
        match step {
            Step::Post(pattern) => match self.oracle.find(&pattern) {
                Some(at) => {
                    let (envelope, message) = self.oracle.unexpected.remove(at);
                    assert_eq!(self.real.post(pattern, id), Post::Matched(id, envelope, message));
                }
                None => {
                    let Post::Waiting(key) = self.real.post(pattern, id) else {
                        panic!("{pattern:?} has taken what it does not take");
                    };
                    self.posted.push((key, id));
                    self.oracle.posted.push((pattern, id));
                }
            },
            Step::PostSeveral(..) => {}
            Step::Arrive(envelope) => match self.oracle.receiver(&envelope) {
                Some(at) => {
                    let (_, receive) = self.oracle.posted.remove(at);
                    let key = self.posted.iter().find(|(_, id)| *id == receive).unwrap().0;
                    assert_eq!(self.real.arrive(&envelope), Arrive::Matched(key, receive));
                }
                None => {
                    assert_eq!(self.real.arrive(&envelope), Arrive::Unexpected);
                    self.inserted.push((self.real.insert(envelope, id), id));
                    self.oracle.unexpected.push((envelope, id));
                }
            },
            Step::Probe(pattern) => {
                let want = self.oracle.find(&pattern).map(|at| self.oracle.unexpected[at]);
                let found = self.real.probe(&pattern).map(|(envelope, id)| (*envelope, *id));
                assert_eq!(found, want);
            }
            Step::Take(pattern) => {
                let want = self.oracle.find(&pattern).map(|at| self.oracle.unexpected.remove(at));
                assert_eq!(self.real.take(&pattern), want);
            }
            Step::HasRival(pattern) => {
                let want = self.oracle.posted.iter().any(|(p, _)| p.overlaps(&pattern));
                assert_eq!(self.real.has_rival(&pattern), want, "{pattern:?}");
            }
            Step::Cancel(back) => {
                let Some((key, id)) = from_end(&self.posted, back) else { return };
                let at = self.oracle.posted.iter().position(|(_, posted)| *posted == id);
                assert_eq!(self.real.posted_mut(key).copied(), at.map(|_| id));
                assert_eq!(self.real.unexpected_mut(key), None);
                assert_eq!(self.real.discard(key), None);
                assert_eq!(self.real.cancel(key), at.map(|at| self.oracle.posted.remove(at).1));
            }
            Step::Discard(back) => {
                let Some((key, id)) = from_end(&self.inserted, back) else { return };
                let at = self.oracle.unexpected.iter().position(|(_, kept)| *kept == id);
                assert_eq!(self.real.unexpected_mut(key).copied(), at.map(|_| id));
                assert_eq!(self.real.posted_mut(key), None);
                assert_eq!(self.real.cancel(key), None);
                let want = at.map(|at| self.oracle.unexpected.remove(at));
                assert_eq!(self.real.discard(key), want);
            }
            Step::RemoveSource(source) => {
                let removed = self.real.remove_source(source);
                self.removed(removed, |p| p.source == Some(source), |e| e.source == source);
            }
            Step::RemoveContext(context) => {
                let removed = self.real.remove_context(context);
                self.removed(removed, |p| p.context == context, |e| e.context == context);
            }
        }
        assert_eq!(self.real.posted_len(), self.oracle.posted.len());
        assert_eq!(self.real.unexpected_len(), self.oracle.unexpected.len());
        self.shown();
    }

    /// What is shown of the queues is what is in them.
    fn shown(&self) {
        let (posted, unexpected) = (&self.oracle.posted, &self.oracle.unexpected);
        let shown = self.real.shown();
        assert_eq!(shown.is_clear(None), posted.is_empty() && unexpected.is_empty());
        let wild = posted.iter().any(|(pattern, _)| pattern.source.is_none());
        // Slots that share a count with no other of the steps'.
        for source in [0, 1, 2, u16::MAX].map(Slot) {
            let concerned = wild
                || posted.iter().any(|(pattern, _)| pattern.source == Some(source))
                || unexpected.iter().any(|(envelope, _)| envelope.source == source);
            assert_eq!(shown.is_clear(Some(source)), !concerned, "{source:?}");
        }
    }

    fn removed(
        &mut self,
        removed: Removed<u64, u64>,
        posted: impl Fn(&Pattern) -> bool,
        unexpected: impl Fn(&Envelope) -> bool,
    ) {
        let receives: Vec<_> = self.oracle.posted.extract_if(.., |(p, _)| posted(p)).collect();
        let messages: Vec<_> =
            self.oracle.unexpected.extract_if(.., |(e, _)| unexpected(e)).collect();
        assert!(removed.posted.iter().map(|(_, p, id)| (*p, *id)).eq(receives));
        assert!(removed.unexpected.iter().map(|(_, e, id)| (*e, *id)).eq(messages));
        assert!(removed.posted.iter().all(|(key, _, id)| self.posted.contains(&(*key, *id))));
        assert!(removed.unexpected.iter().all(|(key, _, id)| self.inserted.contains(&(*key, *id))));
    }

    /// Takes everything out in the order that the oracle says; nothing may be left anywhere.
    fn empty(mut self) {
        while let Some((envelope, _)) = self.oracle.unexpected.first().copied() {
            let pattern = Pattern { context: envelope.context, source: None, tag: None };
            self.step(Step::Take(pattern));
        }
        while let Some((pattern, _)) = self.oracle.posted.last().copied() {
            let source = pattern.source.unwrap_or(Slot(0));
            let tag = pattern.tag.unwrap_or(0);
            self.step(Step::Arrive(Envelope { context: pattern.context, source, tag }));
        }
        assert_eq!(self.real.posted.lists() + self.real.unexpected.lists(), 0);
        assert_eq!(self.real.by_source.as_ref().map_or(0, Table::len), 0);
        assert_eq!(self.real.posted().count() + self.real.unexpected().count(), 0);
    }
}

/// Few contexts, sources and tags, so that everything meets everything; also the highest ones.
fn envelope() -> impl Strategy<Value = Envelope> {
    let tag = prop_oneof![4 => 0u32..3, 1 => Just(u32::MAX)];
    let source = prop_oneof![4 => 0u16..3, 1 => Just(u16::MAX)];
    (0u32..2, source, tag).prop_map(|(context, source, tag)| Envelope {
        context,
        source: Slot(source),
        tag,
    })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (envelope(), 0..8u8).prop_map(|(envelope, wild)| Pattern {
        context: envelope.context,
        source: (wild & 1 == 0 || wild > 5).then_some(envelope.source),
        tag: (wild & 2 == 0 || wild > 5).then_some(envelope.tag),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => pattern().prop_map(Step::Post),
        1 => (pattern(), 2..6usize).prop_map(|(pattern, many)| Step::PostSeveral(pattern, many)),
        10 => envelope().prop_map(Step::Arrive),
        3 => pattern().prop_map(Step::Probe),
        3 => pattern().prop_map(Step::Take),
        3 => pattern().prop_map(Step::HasRival),
        3 => (0..12usize).prop_map(Step::Cancel),
        3 => (0..12usize).prop_map(Step::Discard),
        1 => (0u16..3).prop_map(|slot| Step::RemoveSource(Slot(slot))),
        1 => (0u32..2).prop_map(Step::RemoveContext),
    ]
}

fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 512 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn both_queues_do_what_lists_do(
        seed: [u64; 2],
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 400 }),
    ) {
        let mut pair = Pair::new(seed);
        for step in steps {
            pair.step(step);
        }
        pair.empty();
    }

    #[test]
    fn the_table_does_what_the_standard_one_does(
        seed: [u64; 2],
        steps in prop::collection::vec((0u32..40, 0u8..3), 1..400),
    ) {
        let mut table = Table::new(Seed::from(seed));
        let mut model = HashMap::new();
        for (tag, what) in steps {
            let name = Name::context(tag);
            match what {
                0 => {
                    let place = table.entry(&name);
                    *table.at_mut(place) += 1u32;
                    *model.entry(tag).or_insert(0u32) += 1;
                }
                1 => {
                    let place = table.find(&name);
                    prop_assert_eq!(place.is_some(), model.remove(&tag).is_some());
                    place.into_iter().for_each(|place| table.remove(place));
                }
                _ => prop_assert_eq!(table.find(&name).map(|p| table.at(p)), model.get(&tag)),
            }
            prop_assert_eq!(table.len(), model.len());
        }
        for (tag, value) in &model {
            prop_assert_eq!(table.find(&Name::context(*tag)).map(|p| table.at(p)), Some(value));
        }
    }
}

/// A generator of its own: the same run everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }

    fn envelope(&mut self, tags: u64) -> Envelope {
        Envelope {
            context: self.below(3) as u32,
            source: Slot(self.below(6) as u16),
            tag: self.below(tags) as u32,
        }
    }

    fn pattern(&mut self, tags: u64) -> Pattern {
        let Envelope { context, source, tag } = self.envelope(tags);
        let wild = self.below(10);
        let source = (wild > 1).then_some(source);
        let tag = (wild != 1 && wild != 2).then_some(tag);
        Pattern { context, source, tag }
    }
}

/// Long: queues fill to some hundred entries and empty again, several times over.
#[test]
fn a_long_run_does_what_lists_do() {
    let rounds = if cfg!(miri) { 400 } else { 60_000 };
    let mut random = Random(5);
    let mut pair = Pair::new([7, 9]);
    for round in 0..rounds {
        // The tide: posts lead for a while, then arrivals do.
        let posts = if round / 1500 % 2 == 0 { 7 } else { 3 };
        let tags = if round / 700 % 3 == 0 { 200 } else { 12 };
        let step = match random.below(64) {
            0..2 if random.below(10) < posts => Step::PostSeveral(random.pattern(tags), 8),
            0..40 if random.below(10) < posts => Step::Post(random.pattern(tags)),
            0..40 => Step::Arrive(random.envelope(tags)),
            40..48 => Step::Probe(random.pattern(tags)),
            48..52 => Step::Take(random.pattern(tags)),
            52..56 => Step::HasRival(random.pattern(tags)),
            56..60 => Step::Cancel(random.below(300) as usize),
            60..63 => Step::Discard(random.below(300) as usize),
            _ if random.below(100) == 0 => Step::RemoveSource(Slot(random.below(6) as u16)),
            _ if random.below(200) == 0 => Step::RemoveContext(random.below(3) as u32),
            _ => continue,
        };
        pair.step(step);
        // The lists of what is gone would make the oracle's side slow.
        if pair.posted.len() > 4000 {
            pair.posted.retain(|(_, id)| pair.oracle.posted.iter().any(|(_, p)| p == id));
        }
        if pair.inserted.len() > 4000 {
            pair.inserted.retain(|(_, id)| pair.oracle.unexpected.iter().any(|(_, p)| p == id));
        }
    }
    pair.empty();
}

/// Names of one place would make every search a walk: whatever regular names there are, and
/// whatever the seed, they spread.
#[test]
fn regular_names_spread_over_the_table() {
    // The last name before the table grows: it is at its fullest.
    let count = 4096u32;
    type Shape = fn(u32) -> (u32, u16, u32);
    let shapes: [Shape; 6] = [
        |i| (1, 0, i),
        |i| (1, 0, i << 20),
        |i| (1, 0, i.reverse_bits()),
        |i| (1, (i & 63) as u16, i >> 6),
        |i| (i, 3, 5),
        |i| (i << 16, (i & 1) as u16, 1 << 31),
    ];
    for seed in 0..64u64 {
        let mut random = Random(seed);
        let seed = [0; 2].map(|_: u64| random.below(u64::MAX));
        for (which, shape) in shapes.iter().enumerate() {
            let mut table = Table::<u32>::new(Seed::from(seed));
            for i in 0..count {
                let (context, source, tag) = shape(i);
                let envelope = Envelope { context, source: Slot(source), tag };
                let place = table.entry(&Name::of(Form::Exact, &envelope));
                *table.at_mut(place) = i;
            }
            assert_eq!(table.len(), count as usize);
            let longest = table.longest();
            assert!(longest < 96, "shape {which}, seed {seed:?}: {longest} steps");
        }
    }
}

#[test]
fn a_receive_gets_the_earlier_message_whichever_list_finds_it() {
    let mut matching = Matching::new();
    let e = |source, tag| Envelope { context: 7, source: Slot(source), tag };
    for (id, envelope) in [e(1, 1), e(2, 2), e(1, 2), e(2, 1)].into_iter().enumerate() {
        assert_eq!(matching.arrive(&envelope), Arrive::<()>::Unexpected);
        matching.insert(envelope, id);
    }
    let p = |source: Option<u16>, tag| Pattern { context: 7, source: source.map(Slot), tag };
    assert_eq!(matching.probe(&p(None, Some(2))), Some((&e(2, 2), &1)));
    assert_eq!(matching.take(&p(Some(2), None)), Some((e(2, 2), 1)));
    assert_eq!(matching.take(&p(None, Some(2))), Some((e(1, 2), 2)));
    assert_eq!(matching.take(&p(None, None)), Some((e(1, 1), 0)));
    assert_eq!(matching.post(p(Some(2), Some(1)), ()), Post::Matched((), e(2, 1), 3));
    assert_eq!(matching.take(&p(None, None)), None);
    // Other contexts are other worlds.
    matching.insert(e(1, 1), 9);
    assert_eq!(matching.take(&Pattern { context: 8, source: None, tag: None }), None);
}

#[test]
fn in_steady_state_nothing_grows() {
    let mut matching = Matching::<u32, u32>::new();
    let sizes =
        |m: &Matching<u32, u32>| [m.posted.sizes(), m.unexpected.sizes(), (m.contexts.places(), 0)];
    let mut settled = None;
    for round in 0..200u32 {
        for i in 0..50 {
            // Tags are never used again.
            let envelope = Envelope { context: 1, source: Slot(2), tag: round * 50 + i };
            let Envelope { context, source, tag } = envelope;
            matching.post(Pattern { context, source: Some(source), tag: Some(tag) }, tag);
            matching.insert(Envelope { source: Slot(3), ..envelope }, i);
        }
        for i in 0..50 {
            let envelope = Envelope { context: 1, source: Slot(2), tag: round * 50 + 49 - i };
            assert!(matches!(matching.arrive(&envelope), Arrive::Matched(..)));
            let any = Pattern { context: 1, source: (i % 2 == 0).then_some(Slot(3)), tag: None };
            assert_eq!(matching.take(&any).map(|(_, id)| id), Some(i));
        }
        assert_eq!(*settled.get_or_insert(sizes(&matching)), sizes(&matching));
    }
}
