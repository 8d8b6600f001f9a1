//! The target's side by itself: what comes is made up, what goes out is looked at. Well-formed and
//! senseless requests of several origins in any order must neither panic nor reach beyond a
//! place, nor hold memory without bound, nor be noticed by an origin that behaves.

use super::super::describe::{self, Described, Kept};
use super::super::run;
use super::super::why::NO_ROOM;
use super::*;
use crate::am::body::{Note as Said, Place, Status, Unit, Work};
use crate::am::buffers::{GRAIN, GUARANTEED, SYSTEM};
use crate::am::{Call, VectorCall};
use crate::layout::Layout;
use crate::rma::core::Core;
use crate::rma::foreign::Outgoing;
use crate::rma::runtime::Sent;
use crate::rma::{Info, Medium, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::any::Any;
use std::task::{Poll, Waker};

/// As much as a packet brings.
const MOST: usize = 512;
/// Elements of the part.
const PART: usize = 16;

/// Where notes go. Of every `period` notes one finds no room.
struct Notes {
    said: Vec<(Rank, Vec<u8>)>,
    count: u32,
    period: u32,
}

impl Outgoing for Notes {
    fn operate(&mut self, _: Rank, _: &[u8]) -> Poll<Result<()>> {
        panic!("a target issues nothing")
    }
    fn push(&mut self, _: Rank) {}
    fn note(&mut self, to: Rank, body: &[u8]) -> Sent {
        assert!(body.len() <= MOST, "a note of {} bytes", body.len());
        self.count += 1;
        if self.count.is_multiple_of(self.period) {
            return Sent::Full;
        }
        self.said.push((to, body.to_vec()));
        Sent::Yes
    }
    fn wake(&mut self, _: Waker) {}
    fn later(&mut self, _: Box<dyn Any + Send>) {}

    fn ring(&mut self) {}
}

/// A server, and the part that it runs units on.
struct Bench<'w> {
    core: &'w Arc<Core>,
    server: Server,
    out: Notes,
    request: Vec<u8>,
}

impl<'w> Bench<'w> {
    fn new(window: &'w Window<u64>, room: Room, promised: u64) -> Bench<'w> {
        let core = window.core();
        let wanted = AmOrdering::default();
        let mut server = Server::new(core.handlers().clone(), promised, wanted, 0.8);
        server.furnish(room);
        let out = Notes { said: Vec::new(), count: 0, period: u32::MAX };
        Bench { core, server, out, request: Vec::new() }
    }

    fn send(&mut self, origin: u32, request: &Request<'_>) -> Result<bool, Fault> {
        request.encode(&mut self.request);
        self.server.arrived(Rank(origin), &self.request)
    }

    /// Runs one unit, if one may be run.
    fn run(&mut self) -> bool {
        let Some((turn, job)) = self.server.take() else { return false };
        let outcome = run::run(self.core, Rank(0), &job);
        self.server.finish(turn, job, outcome);
        true
    }

    /// Sends what there is to be sent.
    fn pump(&mut self) {
        while self.server.has_notes() {
            if !self.server.pump(&mut self.out, MOST) && self.out.period == 1 {
                break;
            }
        }
        self.server.spent().drain().for_each(drop);
    }

    /// What an origin was told since the last time.
    fn told(&mut self, origin: u32) -> Vec<Vec<u8>> {
        let all = std::mem::take(&mut self.out.said);
        let (mine, others) = all.into_iter().partition(|(to, _)| to.0 == origin);
        self.out.said = others;
        let mine: Vec<(Rank, Vec<u8>)> = mine;
        mine.into_iter().map(|(_, body)| body).collect()
    }
}

/// Handler 1 sums its input up and adds it to the first persistent element; handler 2 tells some
/// of its input, as much as it says.
fn window(team: &crate::Team) -> Window<u64> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    let window = Window::<u64>::builder(team).info(info).allocate(PART).unwrap();
    let sum = |call: Call<'_, u64, u64, u64>| {
        let sum = call.input.iter().fold(0u64, |sum, input| sum.wrapping_add(*input));
        let was = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, was.wrapping_add(sum));
        call.output.fill(sum);
    };
    let some = |call: VectorCall<'_, u64, u32, u32>| {
        let most = call.output.len() / call.segments.max(1);
        for (i, input) in call.input.iter().enumerate().take(call.counts.len()) {
            call.counts[i] = *input as usize;
            let filled = (*input as usize).min(most);
            call.output[i * most..i * most + filled].fill(i as u32);
        }
    };
    window.register(1, sum).unwrap();
    window.register_vector(2, some).unwrap();
    window
}

fn described(elements: [(usize, Layout); 3], displacement: u64, zero: i64) -> Vec<u8> {
    let [persistent, input, output] = elements.map(|(count, layout)| Kept { layout, count });
    let mut bytes = Vec::new();
    Described { displacement, zero, persistent, input, output }.encode(&mut bytes);
    bytes
}

/// A unit of handler 1 with one segment of one number, at a place of 128 bytes.
fn adds(message: u64, space: u32, position: u64) -> (Unit<'static>, Vec<u8>) {
    let word = || (1, Layout::of::<u64>());
    let description = described([word(), word(), word()], 0, 0);
    let unit = Unit {
        message,
        unit: 0,
        handler: 1,
        work: Work::Run,
        vector: false,
        concurrent: false,
        release: false,
        ends: true,
        place: Place { space, position, bytes: 128 },
        at: 0,
        span: 8,
        first: 0,
        segments: 1,
        input: 8,
        output: 8,
        described: description.len() as u32,
        data: &[],
    };
    (unit, description)
}

fn whole(bench: &mut Bench<'_>, origin: u32, unit: Unit<'static>, stream: &[u8]) -> bool {
    bench.send(origin, &Request::Unit(Unit { data: stream, ..unit })).unwrap()
}

/// What a behaving origin expects of a unit of handler 1: that all went well.
fn expect_sum(bench: &mut Bench<'_>, origin: u32, message: u64, sum: u64) {
    let told = bench.told(origin);
    assert_eq!(told.len(), 1, "{told:?}");
    let Said::Done { message: of, unit: 0, status, position: 0, last: true, data, .. } =
        Said::decode(&told[0]).unwrap()
    else {
        panic!("another note")
    };
    assert_eq!((of, status, data), (message, Status::Done, &sum.to_le_bytes()[..]));
}

#[test]
fn without_memory_a_unit_fails_alone_and_the_account_holds() {
    crate::Job::threads(1, |job| {
        let window = window(job.team());
        // No system gives so much.
        for room in [Room { own: 1 << 60, shared: 0 }, Room { own: 0, shared: 1 << 60 }] {
            let bench = &mut Bench::new(&window, room, 1 << 60);
            let spaces = match room.shared {
                0 => vec![SYSTEM, GUARANTEED],
                shared => {
                    let reserve = Request::Reserve { ticket: 0, least: 256, most: 256, all: false };
                    bench.send(3, &reserve).unwrap();
                    bench.pump();
                    let told = bench.told(3);
                    let granted = Said::decode(&told[0]).unwrap();
                    let Said::Granted { spaces, .. } = granted else { panic!("{granted:?}") };
                    let (space, bytes) = spaces.iter().next().unwrap();
                    assert!(bytes == 256 && shared > 256);
                    vec![space]
                }
            };
            for (message, space) in (0..4).flat_map(|round| {
                spaces.iter().map(move |space| (u64::from(*space) * 10 + round, *space))
            }) {
                let (unit, mut stream) = adds(message, space, 0);
                stream.extend(7u64.to_le_bytes());
                // In three packets: what follows is swallowed.
                let (first, rest) = stream.split_at(10);
                let (second, third) = rest.split_at(rest.len() - 3);
                assert!(!whole(bench, 3, unit, first));
                let mut position = first.len() as u64;
                for data in [second, third] {
                    let more = Request::More { message, unit: 0, position, data };
                    assert_eq!(bench.send(3, &more), Ok(false));
                    position += data.len() as u64;
                }
                assert!(!bench.run(), "there is nothing to run");
                bench.pump();
                let told = bench.told(3);
                let [done] = &told[..] else { panic!("{told:?}") };
                let done = Said::decode(done).unwrap();
                let Said::Done { status, last: true, .. } = done else { panic!("{done:?}") };
                assert_eq!(status, Status::Failed { why: NO_ROOM });
                // The place is free again, or it could not be taken again in the next round.
            }
            assert_eq!(bench.server.done.no_memory, 4 * spaces.len() as u64);
            // Where there is memory, messages go on.
            let id = bench.server.buffers.attach(4096);
            let block = Block::new("a test", 4096).unwrap();
            let attached = Attached { first: block.first(), _block: Some(block) };
            bench.server.attached.insert(id, attached);
            if room.shared == 0 {
                let reserve = Request::Reserve { ticket: 1, least: 128, most: 128, all: false };
                bench.send(3, &reserve).unwrap();
                bench.pump();
                let told = bench.told(3);
                let Said::Granted { spaces, .. } = Said::decode(&told[0]).unwrap() else {
                    panic!("{told:?}")
                };
                let (space, _) = spaces.iter().next().unwrap();
                let (unit, mut stream) = adds(99, space, 0);
                stream.extend(7u64.to_le_bytes());
                assert!(whole(bench, 3, unit, &stream));
                assert!(bench.run());
                bench.pump();
                expect_sum(bench, 3, 99, 7);
            }
        }
        window.free().unwrap();
    })
    .unwrap();
}

/// What an origin may have a target keep for it has an end, and what comes out of turn is refused;
/// what is within bounds still goes.
#[test]
fn what_an_origin_may_have_kept_is_bounded() {
    crate::Job::threads(1, |job| {
        let window = window(job.team());
        let bench = &mut Bench::new(&window, Room { own: 1 << 20, shared: 0 }, 0);
        let far = |described| {
            let (unit, _) = adds(1, SYSTEM, 0);
            Request::Unit(Unit { described, data: &[0], ..unit })
        };
        assert_eq!(bench.send(1, &far(describe::MOST as u32 + 1)), Err(fault(6)));
        assert_eq!(bench.send(2, &far(describe::MOST as u32)), Ok(false));

        // Parts of messages that go on after them.
        let begin = |bench: &mut Bench<'_>, message: u64, number: u32| {
            let (unit, mut stream) = adds(message, SYSTEM, 0);
            stream.extend(7u64.to_le_bytes());
            let unit = Unit { unit: number, ends: false, data: &[], ..unit };
            let came = bench.send(3, &Request::Unit(Unit { data: &stream, ..unit }));
            if came.is_ok() {
                assert!(bench.run());
                bench.pump();
            }
            came
        };
        for message in 0..MOST_OPEN as u64 {
            assert_eq!(begin(bench, message, 0), Ok(true), "{message}");
        }
        assert_eq!(begin(bench, 1000, 0), Err(fault(40)));
        assert_eq!(begin(bench, 0, 1), Ok(true), "one that has begun goes on");
        let (unit, stream) = adds(0, SYSTEM, 0);
        let place = Place { bytes: 0, ..unit.place };
        let nothing = Unit { segments: 0, input: 0, output: 0, described: 0, ..unit };
        let ends = Unit { unit: 2, place, ..nothing };
        assert_eq!(bench.send(3, &Request::Unit(ends)), Ok(false));
        assert_eq!(begin(bench, 1000, 0), Ok(true), "there is room for one again");

        // Bytes of a stream follow each other.
        let (first, rest) = stream.split_at(10);
        assert!(!whole(bench, 4, unit, first));
        for position in [0, 9, 11, u64::MAX] {
            let more = Request::More { message: 0, unit: 0, position, data: rest };
            assert_eq!(bench.send(4, &more), Err(fault(5)), "{position}");
        }
        let more = Request::More { message: 0, unit: 0, position: 10, data: rest };
        assert_eq!(bench.send(4, &more), Ok(false));
        let position = stream.len() as u64;
        let more = Request::More { message: 0, unit: 0, position, data: &7u64.to_le_bytes() };
        assert_eq!(bench.send(4, &more), Ok(true));
        window.free().unwrap();
    })
    .unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes as they are, but for the first, which says whose they are.
    Noise(Vec<u8>),
    Unit(Unit<'static>, Vec<u8>),
    More {
        message: u64,
        unit: u32,
        position: Option<u64>,
        data: Vec<u8>,
    },
    Reserve {
        ticket: u64,
        least: u64,
        more: u64,
        all: bool,
    },
    Withdraw(u64),
    Release(u32),
    Died,
    Run,
    Pump(u32),
    /// The origin that behaves sends a unit.
    Behave,
}

fn layouts() -> impl Strategy<Value = (usize, Layout)> {
    let word = Layout::of::<u64>();
    let backwards = word.vector(3, 1, -2).unwrap();
    let gaps = word.vector(2, 2, 5).unwrap();
    let apart = word.hindexed(&[(8, 1), (1 << 40, 1)]).unwrap();
    let far = word.hindexed(&[(0, 1), ((1 << 61) - 16, 1)]).unwrap();
    let none = word.contiguous(0).unwrap();
    let one = prop_oneof![
        8 => Just(word),
        4 => Just(Layout::of::<u32>()),
        2 => Just(gaps),
        1 => Just(backwards),
        1 => Just(apart),
        1 => Just(far),
        1 => Just(none),
        1 => Just(Layout::of::<u8>()),
    ];
    let count = prop_oneof![9 => 0usize..5, 1 => Just(usize::MAX / 8), 1 => 1000usize..3000];
    (count, one)
}

/// Mostly small, sometimes beyond everything.
fn numbers(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..most, 1 => Just(u64::MAX), 1 => Just(u64::MAX / 2), 1 => any::<u64>()]
}

fn grains(most: u64) -> impl Strategy<Value = u64> {
    numbers(most).prop_map(|n| (n % (1 << 57)) * GRAIN)
}

fn units() -> impl Strategy<Value = Step> {
    let description = prop_oneof![
        8 => ([layouts(), layouts(), layouts()], numbers(4), -9i64..9)
            .prop_map(|(elements, displacement, zero)| described(elements, displacement, zero)),
        2 => Just({
            let word = || (1, Layout::of::<u64>());
            described([word(), word(), word()], 0, 0)
        }),
        1 => prop::collection::vec(any::<u8>(), 0..80),
        2 => Just(Vec::new()),
    ];
    let names = (0u64..3, 0u32..3, 0u32..4, 0u8..4, any::<[bool; 4]>());
    let place = (0u32..6, grains(40), grains(20));
    let sizes = (numbers(200), numbers(200), numbers(3), 0u32..4, numbers(70), numbers(70));
    (names, place, sizes, description, 0usize..200, prop::bool::weighted(0.7)).prop_map(
        |(names, place, sizes, description, sent, fits)| {
            let (message, unit, handler, work, [vector, concurrent, release, ends]) = names;
            let (space, position, bytes) = place;
            let (at, span, first, segments, input, output) = sizes;
            let work = [Work::Run, Work::Run, Work::Fetch, Work::Store][usize::from(work)];
            let run = work == Work::Run;
            // As large as the layouts say: it may be run then.
            let (input, output) = match Described::decode(&description) {
                Ok(of) if fits && run => {
                    let times = |bytes: usize| bytes.wrapping_mul(segments as usize) as u64;
                    (times(of.input.bytes()), times(of.output.bytes()))
                }
                _ if fits && work == Work::Fetch => (0, span.wrapping_add(8)),
                _ if fits && work == Work::Store => (span.wrapping_add(8), 0),
                _ => (input, output),
            };
            let described = if run { description.len() as u32 } else { 0 };
            let mut stream = if run { description } else { Vec::new() };
            stream.resize(stream.len() + input.min(3000) as usize, 1);
            stream.truncate(sent.max(1));
            let place = Place { space, position, bytes };
            let unit = Unit {
                message,
                unit,
                handler,
                work,
                vector: vector && run,
                concurrent,
                release,
                ends,
                place,
                at,
                span,
                first,
                segments: if run { segments } else { 0 },
                input,
                output,
                described,
                data: &[],
            };
            Step::Unit(unit, stream)
        },
    )
}

/// Units that would be run, if it were not for at most one thing. Without them hardly any of what
/// is made up gets as far as a handler.
fn nearly() -> impl Strategy<Value = Step> {
    let wrong = prop::option::of((0usize..8, numbers(300)));
    let sent = prop_oneof![3 => Just(usize::MAX), 1 => 0usize..200];
    (0u64..3, 0u64..8, prop::bool::ANY, wrong, sent).prop_map(
        |(message, grain, system, wrong, sent)| {
            let space = if system { SYSTEM } else { GUARANTEED };
            let (mut unit, mut stream) = adds(message, space, grain % 4 * GRAIN);
            match wrong {
                Some((0, other)) => unit.handler = other as u32,
                Some((1, other)) => unit.place.position = other,
                Some((2, other)) => unit.place.bytes = other,
                Some((3, other)) => unit.at = other,
                Some((4, other)) => unit.span = other,
                Some((5, other)) => unit.input = other,
                Some((6, other)) => unit.output = other,
                Some((_, other)) => unit.segments = other as u32,
                None => {}
            }
            stream.extend(grain.to_le_bytes());
            stream.truncate(sent.max(1));
            Step::Unit(unit, stream)
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let step = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..150).prop_map(Step::Noise),
        20 => units(),
        8 => nearly(),
        8 => (0u64..3, 0u32..3, prop::option::weighted(0.2, numbers(300)), prop::collection::vec(any::<u8>(), 1..300))
            .prop_map(|(message, unit, position, data)| Step::More { message, unit, position, data }),
        6 => (0u64..4, numbers(3000), numbers(3000), any::<bool>())
            .prop_map(|(ticket, least, more, all)| Step::Reserve { ticket, least, more, all }),
        2 => (0u64..4).prop_map(Step::Withdraw),
        2 => (0u32..6).prop_map(Step::Release),
        1 => Just(Step::Died),
        8 => Just(Step::Run),
        6 => (1u32..9).prop_map(Step::Pump),
        4 => Just(Step::Behave),
    ];
    prop::collection::vec((0u32..3, step), 1..80)
}

/// The origin that behaves.
const GOOD: u32 = 9;
/// Bytes around the attached buffer, which nobody may touch.
const MARGIN: usize = 1 << 12;
const MARK: u8 = 0xa5;

/// Everything that `bench` holds has bounds.
fn check_bounds(bench: &Bench<'_>, places: usize) {
    let server = &bench.server;
    let arriving: usize = server.origins.values().map(|own| own.arriving.len()).sum();
    let held = arriving + server.queue.len() + server.queue.running() + server.replies.len();
    assert!(held <= places, "{held} units in {places} places");
    assert!(server.origins.values().all(|own| own.open.len() <= MOST_OPEN));
    assert!(server.notes.len() <= 4, "{} answers for 4 origins", server.notes.len());
    let descriptions = server.origins.values().flat_map(|own| own.arriving.values());
    let bytes: usize = descriptions.map(|arriving| arriving.description.len()).sum();
    assert!(bytes <= 3 * 400, "{bytes} bytes of descriptions of 3 origins");
}

/// Plays the steps; what was done, by the server's count.
fn play(window: &Window<u64>, steps: &[(u32, Step)]) -> Done {
    let attached = 4096;
    let room = Room { own: 2048, shared: if steps.len().is_multiple_of(2) { 2048 } else { 0 } };
    let bench = &mut Bench::new(window, room, 512);
    let mut memory = vec![MARK; attached + 2 * MARGIN];
    let first = memory.as_mut_ptr().wrapping_add(MARGIN);
    let first = first.wrapping_add(first.align_offset(GRAIN as usize));
    let lead = first.addr() - memory.as_ptr().addr();
    let id = bench.server.buffers.attach(attached as u64);
    bench.server.attached.insert(id, Attached { first, _block: None });
    let places = (4 * (2048 + 512) + attached + 2048) / GRAIN as usize;
    let mut sent = 0u64;
    for (origin, step) in steps {
        match step {
            Step::Noise(bytes) => {
                let mut bytes = bytes.clone();
                if let Some(first) = bytes.first_mut() {
                    *first = crate::rma::foreign::FIRST;
                }
                let _ = bench.server.arrived(Rank(*origin), &bytes);
            }
            Step::Unit(unit, stream) => {
                let len = stream.len().min(unit.stream().unwrap_or(0) as usize);
                let _ = bench.send(*origin, &Request::Unit(Unit { data: &stream[..len], ..*unit }));
            }
            Step::More { message, unit, position, data } => {
                // Mostly what comes next.
                let own = bench.server.origins.get(origin);
                let due = own.and_then(|own| own.arriving.get(&(*message, *unit)));
                let position = position.or(due.map(|unit| unit.received)).unwrap_or(0);
                let left = due.map_or(data.len() as u64, |unit| unit.total - unit.received);
                let data = &data[..data.len().min(left.max(1) as usize)];
                let more = Request::More { message: *message, unit: *unit, position, data };
                let _ = bench.send(*origin, &more);
            }
            Step::Reserve { ticket, least, more, all } => {
                let most = least.saturating_add(*more);
                let (ticket, least, all) = (*ticket, *least, *all);
                let _ = bench.send(*origin, &Request::Reserve { ticket, least, most, all });
            }
            Step::Withdraw(ticket) => {
                let _ = bench.send(*origin, &Request::Withdraw { ticket: *ticket });
            }
            Step::Release(space) => {
                let _ = bench.send(*origin, &Request::Release { space: *space });
            }
            Step::Died => bench.server.died(Rank(*origin)),
            Step::Run => {
                bench.run();
            }
            Step::Pump(period) => {
                bench.out.period = (*period).max(2);
                bench.server.pump(&mut bench.out, MOST);
            }
            Step::Behave => {
                let (unit, mut stream) = adds(sent, SYSTEM, 0);
                stream.extend((1000 + sent).to_le_bytes());
                assert!(whole(bench, GOOD, unit, &stream));
                while bench.run() {}
                bench.out.period = u32::MAX;
                bench.pump();
                expect_sum(bench, GOOD, sent, 1000 + sent);
                sent += 1;
            }
        }
        check_bounds(bench, places);
    }
    // Everybody who misbehaved goes; nothing of them stays.
    while bench.run() {}
    (0..3).for_each(|origin| bench.server.died(Rank(origin)));
    bench.out.period = u32::MAX;
    bench.pump();
    let held = bench.server.held();
    assert_eq!((held.1, held.2), (0, 0), "units are left");
    assert!((0..3).all(|origin| bench.server.buffers.is_idle(origin)), "places are left");
    bench.server.buffers.detach(id);
    assert_eq!(bench.server.buffers.detached(id), Ok(()), "attached memory is lent out still");
    let around = [&memory[..lead], &memory[lead + attached..]];
    assert!(around.iter().all(|bytes| bytes.iter().all(|byte| *byte == MARK)), "out of bounds");
    Done { units: bench.server.done.units - sent, ..bench.server.done }
}

#[test]
fn whatever_arrives_nothing_breaks_and_nobody_else_notices() {
    crate::Job::threads(1, |job| {
        let window = window(job.team());
        let config = Config { failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let all = std::cell::Cell::new([0; 5]);
        let played = runner.run(&steps(), |steps| {
            let done = play(&window, &steps);
            let some = [done.units, done.fetched, done.stored, done.granted, done.refused];
            all.set(std::array::from_fn(|i| all.get()[i] + some[i]));
            Ok(())
        });
        played.unwrap_or_else(|failure| panic!("{failure}"));
        // Senseless as they are, some come as far as everything goes.
        assert!(all.get().iter().all(|count| *count > 0), "{all:?}");
        window.free().unwrap();
    })
    .unwrap();
}
