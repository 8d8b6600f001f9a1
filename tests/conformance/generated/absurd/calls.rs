//! Calls on one window between two others, which must stay as they are.

use super::super::super::support::random::Random;
use super::arguments::{CALLS, LEN, NEW, OLD, info, must, number, typed};
use super::layouts::layout;
use hither::{
    Assertions, Attached, Compare, Epoch, Handler, Job, LockKind, Memory, Op, Rank, Result, Shape,
    SignalOp, Window,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parts {
    Allocate,
    Joined,
    Private,
    Mixed,
    Dynamic,
    Unit,
}

pub const PARTS: [Parts; 6] =
    [Parts::Allocate, Parts::Joined, Parts::Private, Parts::Mixed, Parts::Dynamic, Parts::Unit];

/// A window under test, and what is absurd about it.
struct Bench<'b> {
    job: &'b Job,
    window: Window<u64>,
    words: Window<u64>,
    handler: Handler<u64, u64, u64>,
    memory: Option<Memory<u64>>,
    /// Where the parts begin in a dynamic window.
    addresses: Vec<u64>,
    /// Elements per displacement.
    per_start: usize,
    parts: Parts,
    packets: bool,
}

impl Bench<'_> {
    /// The displacement of a target's element.
    fn start(&self, target: Rank, element: usize) -> usize {
        match self.addresses.get(target.index()) {
            Some(address) => (*address as usize).wrapping_add(element.wrapping_mul(8)),
            None => element,
        }
    }

    /// Whether `count` elements from displacement `element` on are there.
    fn is_inside(&self, target: Rank, element: usize, count: usize) -> bool {
        let first = element.checked_mul(self.per_start);
        let end = first.and_then(|first| first.checked_add(count));
        // Wrapping displacements of a dynamic window may come to lie inside.
        target.0 < self.job.size() && end.is_some_and(|end| end <= LEN)
    }

    /// Whether the oracle knows: an address that is no element's may be another one's.
    fn is_known(&self, element: usize) -> bool {
        self.parts != Parts::Dynamic || element <= LEN
    }
}

pub fn run(job: &Job, packets: bool, parts: Parts, seed: u64) -> Result<()> {
    let team = job.team();
    let before = Window::<u64>::allocate(team, 512)?;
    fill(&before)?;
    let builder = Window::<u64>::builder(team).info(info(packets));
    let mut memory = None;
    let mut addresses = Vec::new();
    let private = parts == Parts::Private || parts == Parts::Mixed && job.rank().0 % 2 == 1;
    let brought = || match private {
        true => Ok(Memory::private(vec![OLD; LEN])),
        false => Memory::shared(team, LEN),
    };
    let window = match parts {
        Parts::Allocate => builder.allocate(LEN)?,
        Parts::Joined => builder.allocate_shared(LEN)?,
        Parts::Unit => builder.unit(16).allocate(LEN)?,
        Parts::Private | Parts::Mixed => builder.create(memory.insert(brought()?).clone())?,
        Parts::Dynamic => {
            let window = builder.dynamic()?;
            let attached = window.attach(memory.insert(brought()?))?;
            addresses = vec![0; job.size() as usize];
            team.allgather(&[attached.address], &mut addresses)?;
            window
        }
    };
    match &memory {
        Some(memory) => memory.write(0, &[OLD; LEN])?,
        None => window.local().write(0, &[OLD; LEN])?,
    }
    let after = Window::<u64>::allocate(team, 512)?;
    fill(&after)?;
    let words = Window::<u64>::builder(team).info(info(packets)).allocate(4)?;
    let per_start = if parts == Parts::Unit { 2 } else { 1 };
    let handler = window.register(1, |_| ())?;
    let bench = Bench { job, window, words, handler, memory, addresses, per_start, parts, packets };
    team.barrier()?;

    let mut random = Random::new(seed << 8 | u64::from(job.rank().0));
    let epoch = bench.window.lock_all()?;
    let signals = bench.words.lock_all()?;
    for _ in 0..CALLS {
        operation(&bench, &epoch, &signals, &mut random);
    }
    for _ in 0..CALLS / 3 {
        shaped(&bench, &epoch, &mut random);
    }
    // Operations that are away may be refused late.
    typed("flush_all", epoch.flush_all());
    epoch.unlock_all()?;
    signals.unlock_all()?;
    team.barrier()?;
    for _ in 0..CALLS / 3 {
        synchronisation(&bench, &mut random);
        direct(&bench, &mut random);
    }
    team.barrier()?;

    let mut own = vec![0; LEN];
    match &bench.memory {
        Some(memory) => memory.read(0, &mut own)?,
        None => bench.window.local().read(0, &mut own)?,
    }
    assert!(own.iter().all(|v| [OLD, NEW, 9].contains(v)), "the part has {own:?}");
    for guard in [&before, &after] {
        let mut all = vec![0; guard.len()];
        guard.local().read(0, &mut all)?;
        assert!(all.iter().all(|v| *v == 0xabcd), "another window was written to");
    }
    team.barrier()
}

fn fill(window: &Window<u64>) -> Result<()> {
    window.local().write(0, &vec![0xabcd; window.len()])
}

/// A rank, mostly one that there is.
fn rank(job: &Job, random: &mut Random) -> Rank {
    let size = job.size();
    Rank(match random.below(8) {
        0 => size,
        1 => u32::MAX - random.below(3) as u32,
        2 => size + 65536,
        _ => random.below(size.into()) as u32,
    })
}

fn operation(
    bench: &Bench<'_>,
    epoch: &Epoch<'_, u64>,
    signals: &Epoch<'_, u64>,
    random: &mut Random,
) {
    let target = rank(bench.job, random);
    let element = number(random);
    let start = bench.start(target, element);
    let count = [0, 1, 2, 5, LEN, LEN + 1, 3000][random.below(7) as usize];
    let good = bench.is_inside(target, element, count);
    let one = bench.is_inside(target, element, 1);
    let known = bench.is_known(element);
    let check = |what: &str, good: bool, result: Result<()>| {
        let what = format!("{what} of {count} at {element} of {target}, {:?}", bench.parts);
        if known {
            must(&what, good, result)
        } else {
            typed(&what, result)
        };
    };
    // An empty range is nowhere attached, or in what is.
    let known_if_empty = bench.parts != Parts::Dynamic || count > 0;
    let mut buffer = vec![1u64; count + 16];
    let values = vec![NEW; count];
    match random.below(11) {
        0 if known_if_empty => check("put", good, epoch.put(target, start, &values)),
        1 if known_if_empty => {
            let into = &mut buffer[8..8 + count];
            check("get", good, epoch.get(target, start, into));
            assert!(into.iter().all(|v| [1, OLD, NEW, 9].contains(v)));
        }
        2 if known_if_empty => {
            check("accumulate", good, epoch.accumulate(target, start, Op::Replace, &values));
        }
        3 if known_if_empty => {
            let into = &mut buffer[8..8 + count];
            let result = epoch.get_accumulate(target, start, Op::NoOp, &[], into);
            check("get_accumulate", good, result);
        }
        4 => {
            let old = epoch.fetch_and_op(target, start, Op::Replace, NEW);
            check("fetch_and_op", one, old.map(drop));
        }
        5 => {
            let old = epoch.compare_and_swap(target, start, OLD, 9);
            check("compare_and_swap", one, old.map(drop));
        }
        6 => {
            // A number of elements that no memory holds.
            let many = number(random);
            let request = epoch.get_request(target, start, many);
            if many > LEN {
                must("get_request of too many", false, request.map(drop));
            } else if let Some(request) = typed("get_request", request) {
                assert_eq!(typed("its wait", request.wait()).map(|v| v.len()), Some(many));
            }
        }
        7 => {
            let result = epoch.get_accumulate_request(target, start, Op::Replace, &values);
            if let Some(request) = typed("get_accumulate_request", result) {
                typed("its wait", request.wait());
            }
        }
        8 => {
            let index = number(random);
            let result = epoch.put_signal(target, start, &values, signals, index, SignalOp::Add, 1);
            if index >= 4 || (!good && known) {
                must("put_signal", false, result);
            } else {
                typed("put_signal", result);
            }
        }
        9 => {
            // More or fewer values than results.
            let result = epoch.get_accumulate(target, start, Op::Sum, &[0; 3], &mut [0; 2]);
            must("get_accumulate of 3 for 2", false, result);
            must("MinLoc", false, epoch.accumulate(target, start, Op::MinLoc, &values));
        }
        _ => {
            let (from, to) = (number(random), number(random));
            let result = epoch.am(&bench.handler, target, from..to, &[], &mut []);
            if bench.parts == Parts::Allocate && !bench.packets {
                let good = target.0 < bench.job.size() && from <= to && to <= LEN;
                must("an active message", good, result);
            } else {
                typed("an active message", result);
            }
        }
    }
    let margins = buffer[..8].iter().chain(&buffer[8 + count..]);
    assert!(margins.copied().all(|v| v == 1), "something was written beside the buffer");
}

/// Operations with layouts, at the target and at the origin.
fn shaped(bench: &Bench<'_>, epoch: &Epoch<'_, u64>, random: &mut Random) {
    let target = rank(bench.job, random);
    let start = bench.start(target, number(random));
    let (Some(there), Some(here)) = (layout(random), layout(random)) else { return };
    let copies = |random: &mut Random| if random.below(2) == 0 { 1 } else { number(random) };
    let (there, here) = (there.times(copies(random)), here.times(copies(random)));
    // Half of them fit at least each other.
    let here = if random.below(2) == 0 { there } else { here };
    let mut buffer = [1u64; 16 + LEN];
    let values = [NEW; LEN];
    let into = &mut buffer[8..8 + LEN];
    // Layouts may name the same bytes so many times that going over them takes years.
    let is_short = |shape: &Shape<'_>| shape.size().is_ok_and(|size| size <= 1 << 16);
    let whole = |shape: &Shape<'_>| shape.is_aligned(0, 8) && shape.layout.size().is_multiple_of(8);
    if !is_short(&there) && !is_short(&here) {
        return;
    }
    match random.below(4) {
        // Whole elements: halves of values would be other values.
        0 | 2 if !whole(&there) || !whole(&here) => {}
        0 => {
            typed("put_layout", epoch.put_layout(target, start, there, &values, here));
        }
        1 => {
            typed("get_layout", epoch.get_layout(target, start, there, into, here));
        }
        2 => {
            let result = epoch.accumulate_layout(target, start, there, Op::Replace, &values, here);
            typed("accumulate_layout", result);
        }
        _ => {
            let result =
                epoch.get_accumulate_layout(target, start, there, Op::NoOp, &[], here, into, here);
            typed("get_accumulate_layout", result);
        }
    }
    let margins = buffer[..8].iter().chain(&buffer[8 + LEN..]);
    assert!(margins.copied().all(|v| v == 1), "something was written beside the buffer");
}

/// Opening and closing for ranks that there are not, several times, and in the wrong order.
fn synchronisation(bench: &Bench<'_>, random: &mut Random) {
    let (window, free) = (&bench.window, bench.window.unguarded());
    let size = bench.job.size();
    let target = rank(bench.job, random);
    let bad = target.0 >= size;
    let plain = Assertions::default();
    let kind = if random.below(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
    match random.below(10) {
        0 => {
            if let Some(epoch) = must("lock", !bad, window.lock(target, kind)) {
                assert!(bad || epoch.target() == target);
                typed("another target", epoch.get(Rank(target.0 ^ 1), 0, &mut [0]));
                typed("flush", epoch.flush());
            }
        }
        1 => {
            let group = [Rank(0), target, Rank(0)];
            must("post to one twice", false, window.post(&group));
            must("start to one twice", false, window.start(&group));
        }
        2 if bad => {
            must("post", false, window.post(&[target]));
            must("start", false, window.start(&[Rank(0), target]));
        }
        3 => {
            must("unlock", false, free.unlock(target));
            must("complete", false, free.complete());
            must("wait", false, free.wait());
            must("test", false, free.test());
        }
        4 => {
            must("flush", false, free.flush(target));
            must("flush_local", false, free.flush_local(target));
            must("flush_all", false, free.flush_all());
        }
        5 => {
            must("epoch", false, free.epoch(target));
        }
        6 => {
            if must("unguarded lock", !bad, free.lock(target, kind, plain)).is_some() {
                must("a second lock", false, free.lock(target, kind, plain));
                must("unlock", true, free.unlock(target));
            }
        }
        7 => {
            must("unlock_all", false, free.unlock_all());
        }
        _ => {
            typed("post to nobody", window.post(&[]).and_then(|epoch| epoch.wait()));
            typed("start to nobody", window.start(&[]).and_then(|epoch| epoch.complete()));
        }
    }
}

/// What needs no epoch.
fn direct(bench: &Bench<'_>, random: &mut Random) {
    let window = &bench.window;
    let target = rank(bench.job, random);
    let bad = target.0 >= bench.job.size();
    let (at, end) = (number(random), number(random));
    let len = window.len();
    let view = window.local();
    match random.below(10) {
        0 => must("View::get", at < len, view.get(at)).map(drop),
        1 => must("View::set", at < len, view.set(at, NEW)),
        2 => {
            let good = at.checked_add(3).is_some_and(|end| end <= len);
            must("View::write", good, view.write(at, &[NEW; 3]));
            must("View::read", good, view.read(at, &mut [0; 3]))
        }
        3 => must("View::slice", at <= end && end <= len, view.slice(at, end)).map(drop),
        4 => must("View::fetch_and_op", at < len, view.fetch_and_op(at, Op::NoOp, 0)).map(drop),
        5 => must("compare_and_swap", at < len, view.compare_and_swap(at, 1, 2)).map(drop),
        6 if bad => must("part", false, window.part(target)).map(drop),
        7 => must("len_of", !bad, window.len_of(target)).map(drop),
        8 => must("wait_until", at < len, window.wait_until(at, Compare::Ge, 0)).map(drop),
        _ => {
            typed("query", window.query(target));
            typed("query_all", window.query_all());
            let nothing = Attached { address: at as u64, bytes: end as u64 };
            must("detach", false, window.detach(nothing));
            if bad {
                must("heal", false, window.heal(target));
            }
            assert!(
                bench.packets || bench.parts != Parts::Allocate || window.part(Rank(0)).is_ok()
            );
            None
        }
    };
}
