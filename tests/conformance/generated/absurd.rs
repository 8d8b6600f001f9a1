//! Calls with absurd arguments: every public call of windows, with ranks, displacements, counts,
//! ranges and layouts drawn from the edges of their types. A call must end with a typed error or
//! do what it says; it must not panic, and it must not touch anything that it does not name.
//!
//! ```text
//! | guard window | parts: every element 5, 7 or 9 | guard window |
//!                           | buffer of the origin: margin, elements, margin |
//! ```
//! For contiguous ranges an oracle says which calls must succeed and which must fail.

use super::super::support::random::Random;
use super::super::{Case, Written};
use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{
    Assertions, Attached, Compare, Datum, Epoch, Error, Handler, Job, Layout, LockKind, Memory, Op,
    Order, Rank, Result, Shape, SignalOp, Window,
};

/// Calls of one case.
const CALLS: usize = 250;
/// Elements of a part.
const LEN: usize = 40;
/// What parts hold at first, and what is put into them.
const OLD: u64 = 5;
const NEW: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    Allocate,
    Joined,
    Private,
    Mixed,
    Dynamic,
    Unit,
}

const PARTS: [Parts; 6] =
    [Parts::Allocate, Parts::Joined, Parts::Private, Parts::Mixed, Parts::Dynamic, Parts::Unit];

pub fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for way in ["direct", "packets"] {
        for parts in PARTS {
            for seed in 0..3 {
                all.push(Case {
                    name: format!("gen/absurd/{way}/{parts:?}/{seed}").to_lowercase(),
                    run: Box::new(move |job| run(job, way == "packets", parts, seed)),
                });
            }
        }
        all.push(Case {
            name: format!("gen/absurd/{way}/windows"),
            run: Box::new(move |job| windows(job, way == "packets")),
        });
        all.push(Case {
            name: format!("gen/absurd/{way}/empty_types"),
            run: Box::new(move |job| empty_types(job, way == "packets")),
        });
    }
    let others: [Written; 3] =
        [("layouts", layouts), ("memory", memory), ("collectives", collectives)];
    all.extend(
        others
            .into_iter()
            .map(|(name, run)| Case { name: format!("gen/absurd/{name}"), run: Box::new(run) }),
    );
    all
}

fn info(packets: bool) -> Info {
    let medium = if packets { Medium::Packets } else { Medium::Auto };
    Info { medium, ..Info::default() }
}

/// Numbers at which something may overflow, and small ones.
fn number(random: &mut Random) -> usize {
    let edges = [0, 1, 63, 64, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 60, 1 << 61, 1 << 62];
    let pick = |random: &mut Random, from: &[usize]| from[random.below(from.len() as u64) as usize];
    match random.below(6) {
        0..=2 => random.below(2 * LEN as u64) as usize,
        3 => pick(random, &edges).wrapping_sub(random.below(3) as usize),
        4 => usize::MAX - random.below(70) as usize,
        _ => (isize::MAX as usize).wrapping_add(random.below(5) as usize).wrapping_sub(2),
    }
}

fn signed(random: &mut Random) -> isize {
    match random.below(4) {
        0 | 1 => random.below(200) as isize - 100,
        2 => isize::MIN.wrapping_add(random.below(9) as isize),
        _ => number(random) as isize,
    }
}

/// An error that says what was wrong with the arguments.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument { .. }
            | Error::OutOfBounds { .. }
            | Error::Misuse { .. }
            | Error::OutOfMemory { .. }
    )
}

/// Whatever comes of a call, as long as a refusal is typed.
fn typed<R>(what: &str, result: Result<R>) -> Option<R> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(is_refusal(&error), "{what} gave another error: {error:?}");
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn must<R: std::fmt::Debug>(what: &str, good: bool, result: Result<R>) -> Option<R> {
    assert_eq!(result.is_ok(), good, "{what} gave {result:?}");
    typed(what, result)
}

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

fn run(job: &Job, packets: bool, parts: Parts, seed: u64) -> Result<()> {
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

/// A layout that may be anything, if there is one like that.
fn layout(random: &mut Random) -> Option<Layout> {
    let mut layout = match random.below(4) {
        0 => Layout::of::<u8>(),
        1 => Layout::of::<[u32; 3]>(),
        _ => Layout::of::<u64>(),
    };
    for _ in 0..random.below(4) {
        layout = typed("a layout", built(&layout, random))?;
    }
    Some(layout)
}

fn built(of: &Layout, random: &mut Random) -> Result<Layout> {
    let many: Vec<(isize, usize)> =
        (0..random.below(4)).map(|_| (signed(random), number(random))).collect();
    match random.below(8) {
        0 => of.contiguous(number(random)),
        1 => of.vector(number(random), number(random), signed(random)),
        2 => of.hvector(number(random), number(random), signed(random)),
        3 => of.indexed(&many),
        4 => of.hindexed(&many),
        5 => {
            let members: Vec<_> = many.iter().map(|&(at, n)| (at, n, of.clone())).collect();
            Layout::structure(&members)
        }
        6 => {
            let mut three = || [number(random), number(random), number(random)];
            of.subarray(&three(), &three(), &three(), Order::Fortran)
        }
        _ => of.resized(signed(random), signed(random)),
    }
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

/// Windows that cannot be: every rank gets an error, and the next window is in order.
fn windows(job: &Job, packets: bool) -> Result<()> {
    let team = job.team();
    let builder = || Window::<u64>::builder(team).info(info(packets));
    for len in [usize::MAX, usize::MAX / 8, usize::MAX / 8 + 1, isize::MAX as usize, 1 << 58] {
        for builder in [builder(), builder().different_sizes()] {
            must("allocate", false, builder.clone().allocate(len));
            must("allocate_shared", false, builder.allocate_shared(len));
        }
    }
    for unit in [0, 1, 7, 1 << 32, 1 << 60, usize::MAX, usize::MAX - 7] {
        must("a unit", false, builder().unit(unit).allocate(8));
        let memory = Memory::private(vec![1; 8]);
        must("a unit of brought memory", false, builder().unit(unit).create(memory));
    }
    // The largest unit that there is: only displacement 0 is inside.
    let window = builder().unit((1 << 32) - 8).allocate(8)?;
    let epoch = window.lock_all()?;
    epoch.put(Rank(0), 0, &[3])?;
    must("put", false, epoch.put(Rank(0), 1, &[3]));
    must("put", false, epoch.put(Rank(0), usize::MAX, &[3]));
    epoch.unlock_all()?;
    window.free()?;
    let none = builder().allocate(0)?;
    assert!(none.is_empty());
    must("put into nothing", false, none.lock_all()?.put(Rank(0), 0, &[1]));
    must("put of nothing", true, none.lock_all()?.put(Rank(0), 0, &[]));
    none.free()
}

/// Elements that have no bytes: nothing can be said about them, so windows do not have them.
fn empty_types(job: &Job, packets: bool) -> Result<()> {
    fn refused<T: Datum + std::fmt::Debug>(job: &Job, packets: bool, one: T) -> Result<()> {
        let team = job.team();
        let builder = || Window::<T>::builder(team).info(info(packets));
        let refusals = [
            builder().allocate(4).map(drop),
            builder().allocate(0).map(drop),
            builder().unit(8).allocate(usize::MAX).map(drop),
            builder().allocate_shared(4).map(drop),
            builder().different_sizes().allocate(4).map(drop),
            builder().create(Memory::private(vec![one; 3])).map(drop),
            builder().dynamic().map(drop),
        ];
        for refusal in refusals {
            match refusal {
                Err(Error::InvalidArgument { why, .. }) => {
                    assert!(why.contains("no bytes"), "{why}")
                }
                other => panic!("{other:?}"),
            }
        }
        let mut all = vec![one; 5 * job.size() as usize];
        team.allgather(&[one; 5], &mut all)?;
        team.broadcast(Rank(0), &mut [one; 3])
    }
    refused::<[u8; 0]>(job, packets, [])?;
    refused::<[u64; 0]>(job, packets, [])?;
    refused::<[[u64; 0]; 9]>(job, packets, [[]; 9])?;
    // Far too aligned for memory that comes in pages.
    #[derive(Clone, Copy, Debug)]
    #[repr(C, align(8192))]
    struct Far([u64; 1024]);
    // SAFETY: an array of plain numbers without padding.
    unsafe impl Datum for Far {}
    must("a page of 8 KiB", false, Window::<Far>::builder(job.team()).allocate(1));
    must("a page of 8 KiB", false, Memory::<Far>::shared(job.team(), 1));
    Ok(())
}

/// Layouts alone: what they say of themselves must agree with a walk over them.
fn layouts(job: &Job) -> Result<()> {
    use hither::layout::Cursor;
    let mut random = Random::new(99 + u64::from(job.rank().0));
    let mut walked = 0;
    for _ in 0..2000 {
        let Some(layout) = layout(&mut random) else { continue };
        let shape = layout.times(number(&mut random));
        let Some(mut cursor) = typed("Cursor::new", Cursor::new(shape)) else { continue };
        let (Ok(size), Ok((low, high))) = (shape.size(), shape.true_bounds()) else {
            panic!("a cursor over a shape without size: {shape:?}")
        };
        typed("Cursor::at", Cursor::at(shape, number(&mut random)));
        let mut seen = 0;
        for _ in 0..50 {
            let Some(piece) = cursor.next_piece(number(&mut random)) else { break };
            assert!(piece.offset >= low && piece.offset + piece.len as isize <= high);
            seen += piece.len;
            assert_eq!(cursor.position(), seen);
        }
        assert!(seen <= size);
        walked += 1;
        let mut small = [0u8; 64];
        typed("pack", Cursor::new(shape)?.pack(&[1; 64], number(&mut random), &mut small));
        typed("unpack", Cursor::new(shape)?.unpack(&mut small, number(&mut random), &[1; 64]));
        let mut wire = Vec::new();
        layout.encode(&mut wire);
        let back = Layout::decode(&wire, usize::MAX)?;
        assert_eq!((back.size(), back.extent()), (layout.size(), layout.extent()));
    }
    assert!(walked > 100, "hardly any layout could be made");
    let mut deep = Layout::of::<u64>();
    let mut depth = 0;
    // Ends with an error before anything overflows.
    while let Ok(deeper) = deep.resized(0, 8 << depth.min(50)).and_then(|l| l.vector(2, 1, 3)) {
        deep = deeper;
        depth += 1;
        assert!(depth < 1000, "layouts of any depth");
    }
    Ok(())
}

/// Memory that programs bring along.
fn memory(job: &Job) -> Result<()> {
    let team = job.team();
    let mut random = Random::new(7 + u64::from(job.rank().0));
    for len in [usize::MAX, usize::MAX / 8, 1 << 61, 1 << 50] {
        must("Memory::shared", false, Memory::<u64>::shared(team, len));
    }
    let none = Memory::<u64>::shared(team, 0)?;
    assert!(none.is_empty());
    let memories = [Memory::shared(team, LEN)?, Memory::private(vec![OLD; LEN])];
    for memory in &memories {
        for _ in 0..CALLS {
            let (at, end) = (number(&mut random), number(&mut random));
            must("Memory::part", at <= end && end <= LEN, memory.part(at, end));
            let good = at.checked_add(2).is_some_and(|end| end <= LEN);
            must("Memory::write", good, memory.write(at, &[NEW; 2]));
            must("Memory::read", good, memory.read(at, &mut [0; 2]));
        }
    }
    let window = Window::<u64>::builder(team).dynamic()?;
    must("attach nothing", false, window.attach(&none));
    must("attach nothing", false, window.attach(&memories[0].part(3, 3)?));
    let attached = window.attach(&memories[0])?;
    must("attach twice", false, window.attach(&memories[0].part(3, 5)?));
    let part = Attached { bytes: attached.bytes - 8, ..attached };
    must("detach a part", false, window.detach(part));
    window.detach(attached)?;
    must("detach twice", false, window.detach(attached));
    window.free()
}

/// Collective calls with roots that there are not, and results of other lengths. All ranks fail
/// in the same way, before anybody waits.
fn collectives(job: &Job) -> Result<()> {
    let team = job.team();
    for root in [job.size(), u32::MAX, job.size() + 65536] {
        must("broadcast", false, team.broadcast(Rank(root), &mut [0u8; 100]));
        must("reduce", false, team.reduce(Rank(root), Op::Sum, &[1u32], &mut [0]));
    }
    for len in [0, 1, job.size() as usize * 3 - 1, job.size() as usize * 3 + 1] {
        must("allgather", false, team.allgather(&[1u8; 3], &mut vec![0; len]));
    }
    must("allreduce", false, team.allreduce(Op::MaxLoc, &mut [1.0f64]));
    must("allreduce", false, team.allreduce(Op::BitAnd, &mut [1.0f32]));
    team.broadcast::<u64>(Rank(0), &mut [])?;
    team.allgather::<u64>(&[], &mut [])?;
    let split = team.split(Some(u32::MAX), u32::MAX - job.rank().0)?.expect("a team");
    assert_eq!((split.size(), split.rank().0), (job.size(), job.size() - 1 - job.rank().0));
    assert!(team.split(None, 0)?.is_none());
    must("slot_of", false, team.slot_of(Rank(u32::MAX)));
    must("slot_of", false, split.slot_of(Rank(job.size())));
    for peer in [hither::base::Slot(u16::MAX), hither::base::Slot(job.size() as u16)] {
        must("send", false, job.link().try_send(peer, 1, 0, &[]));
        must("promote", false, job.link().promote(peer));
        assert!(!job.link().is_hot(peer));
    }
    let own = hither::base::Slot(job.rank().0 as u16);
    must("a kind", false, job.link().try_send(own, u8::MAX, 0, &[]));
    must("a number", false, job.link().try_send(own, 1, u64::MAX, &[]));
    must("a message", false, job.link().try_send(own, 1, 0, &vec![0; 1 << 20]));
    team.barrier()
}
