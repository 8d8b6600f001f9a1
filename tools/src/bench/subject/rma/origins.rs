//! Several origins at one target: locks that all want, and accumulates on the same, on
//! overlapping, on different and on random elements.
//!
//! All ranks do the same number of operations at once, and a batch ends when the last one is
//! through: its time is that of `ranks` times as many operations, done by all together.

use super::against_raw;
use super::epochs::Sync;
use super::operation::Operation;
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_until};
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::mutex::RobustMutex;
use crate::bench::floor::sum::{PrivateSum, add_racing};
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Point, Unit};
use hither::rma::LockKind;
use hither::{Op, Rank, Result, Window};
use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Where rank 0 sees that the others are through.
struct Finish {
    area: Area,
    rank: u32,
    size: u32,
    batches: u64,
}

impl Finish {
    fn new(crew: &Crew) -> Result<Finish> {
        let area = crew.block().take(crew.size() as usize * APART)?;
        Ok(Finish { area, rank: crew.rank(), size: crew.size(), batches: 0 })
    }

    fn reached(&mut self) -> Result<()> {
        self.batches += 1;
        let mine = self.area.word(self.rank as usize * APART);
        mine.store(self.batches, Release);
        if self.rank != 0 {
            return Ok(());
        }
        let batches = self.batches;
        (1..self.size).try_for_each(|rank| {
            let theirs = self.area.word(rank as usize * APART);
            spin_until(|| theirs.load(Acquire) >= batches)
        })
    }
}

/// What one rank does `count` times, with a number that differs each time.
trait Task {
    fn run(&mut self, count: u64) -> Result<()>;
}

/// A task that all ranks do at once. An operation of the side is one of the leader's.
struct Together<T> {
    task: T,
    finish: Finish,
    /// Whether the others take part.
    all: bool,
}

impl<T: Task> Together<T> {
    fn new(crew: &Crew, task: T, all: bool) -> Result<Together<T>> {
        Ok(Together { task, finish: Finish::new(crew)?, all })
    }
}

impl<T: Task> Side for Together<T> {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        meter.batch(|| {
            self.task.run(count)?;
            if self.all { self.finish.reached() } else { Ok(()) }
        })
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        if !self.all {
            return Ok(());
        }
        self.task.run(count)?;
        self.finish.reached()
    }
}

/// Lock, put 8 B, unlock; the part of rank 0.
struct LockPut {
    window: Window<u64>,
    kind: LockKind,
}

impl Task for LockPut {
    fn run(&mut self, count: u64) -> Result<()> {
        for i in 0..count {
            let lock = self.window.lock(Rank(0), self.kind)?;
            lock.put(Rank(0), 0, &[i])?;
            lock.unlock()?;
        }
        Ok(())
    }
}

/// Robust mutex, store, unlock.
struct MutexStore {
    mutex: RobustMutex,
    area: Area,
}

impl Task for MutexStore {
    fn run(&mut self, count: u64) -> Result<()> {
        let word = self.area.word(0);
        for i in 0..count {
            self.mutex.with(|| word.store(i, Relaxed));
        }
        Ok(())
    }
}

/// `locks`: alone, and contended by all.
pub fn locks() -> Vec<Case> {
    let mut cases = Vec::new();
    for sync in [Sync::LockShared, Sync::LockExclusive] {
        let what = format!("{}, put, unlock, uncontended", sync.name());
        let setup = against_raw(Operation::Put, sync, 8, 1);
        let goal = Goal::AtMost(1.3);
        cases.push(Case::latency("locks", what, 8, sync.limit(), goal, setup));
    }
    for (name, kind) in [("shared", LockKind::Shared), ("exclusive", LockKind::Exclusive)] {
        let setup = move |crew: &Crew| {
            let window = Window::allocate(crew.job()?.team(), 1)?;
            let mutex = MutexStore { mutex: RobustMutex::new(crew)?, area: crew.block().take(64)? };
            Ok(Pair {
                subject: Box::new(Together::new(crew, LockPut { window, kind }, true)?),
                floor: Box::new(Together::new(crew, mutex, true)?),
            })
        };
        let what = format!("lock {name}, put, unlock, contended by all");
        let goal = Goal::AtMost(1.3);
        let case = Case::latency("locks", what, 8, "contended robust mutex", goal, setup);
        cases.push(Case { tail: false, ..case });
    }
    cases
}

/// Which elements the origins update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    /// All the same.
    Same,
    /// Each origin its own.
    Disjoint,
    /// Each begins half its length after the one before.
    Overlapping,
    /// A random one each time.
    Random,
    /// The same of a window in which other parts have none.
    RandomOfOne,
}

impl Elements {
    fn is_random(self) -> bool {
        matches!(self, Elements::Random | Elements::RandomOfOne)
    }
}

/// Elements that random updates choose from: 64 MiB, more than the caches hold.
const FIELD: usize = 8 << 20;
/// Elements in a cache line.
const LINE: usize = 8;

/// Accumulates of `values` on rank 0's part.
struct Sums {
    window: Window<f64>,
    values: Vec<f64>,
    at: usize,
}

/// The first of `count` elements of this rank.
fn first(crew: &Crew, count: usize, elements: Elements) -> usize {
    match elements {
        Elements::Disjoint => crew.rank() as usize * count,
        Elements::Overlapping => crew.rank() as usize * count / 2,
        Elements::Same | Elements::Random | Elements::RandomOfOne => 0,
    }
}

impl Sums {
    fn new(crew: &Crew, bytes: usize, elements: Elements) -> Result<Sums> {
        let count = bytes / 8;
        let size = crew.size() as usize;
        let at = first(crew, count, elements);
        let window = Window::allocate(crew.job()?.team(), count * size)?;
        Ok(Sums { window, values: vec![1.0; count], at })
    }
}

impl Task for Sums {
    fn run(&mut self, count: u64) -> Result<()> {
        let epoch = self.window.lock_all()?;
        for _ in 0..count {
            epoch.accumulate(Rank(0), self.at, Op::Sum, black_box(&self.values))?;
        }
        epoch.flush(Rank(0))?;
        epoch.unlock_all()
    }
}

/// The loop of an accumulate over private memory, by each rank on its own.
struct Loops(PrivateSum);

impl Task for Loops {
    fn run(&mut self, count: u64) -> Result<()> {
        self.0.lead(count, &mut Meter::whole())
    }
}

/// The loop of an accumulate over shared memory without a lock or an atomic: updates get lost where
/// ranks meet, which costs no less. What the memory itself takes for elements that all have.
struct BareSums {
    area: Area,
    at: usize,
    values: Vec<f64>,
}

impl BareSums {
    fn new(crew: &Crew, bytes: usize, elements: Elements) -> Result<BareSums> {
        let at = first(crew, bytes / 8, elements);
        let area = crew.block().take(bytes * crew.size() as usize)?;
        area.collapse();
        Ok(BareSums { area, at, values: vec![1.0; bytes / 8] })
    }
}

impl Task for BareSums {
    fn run(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let to = self.area.bytes(8 * self.at, 8 * self.values.len());
            // SAFETY: in bounds of the area by `bytes`; the other ranks do the same.
            unsafe { add_racing(to.cast(), black_box(&self.values)) };
        }
        Ok(())
    }
}

/// Accumulates of one word.
struct Word {
    window: Window<u64>,
    elements: Elements,
    state: u32,
    /// Whether every page was touched: where huge pages are put together, the pages of all
    /// processes go, so only what is touched after all have set up stays mapped.
    mapped: bool,
}

impl Word {
    fn new(crew: &Crew, elements: Elements) -> Result<Word> {
        let team = crew.job()?.team();
        let window = match elements {
            Elements::Random => Window::allocate(team, FIELD)?,
            Elements::RandomOfOne => {
                let len = if crew.rank() == 0 { FIELD } else { 0 };
                Window::builder(team).different_sizes().allocate(len)?
            }
            _ => Window::allocate(team, 1)?,
        };
        Ok(Word { window, elements, state: crew.rank() + 1, mapped: !elements.is_random() })
    }
}

#[inline(always)]
fn random(state: &mut u32) -> usize {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state as usize >> 7 & (FIELD - 1)
}

impl Task for Word {
    fn run(&mut self, count: u64) -> Result<()> {
        let epoch = self.window.lock_all()?;
        if !self.mapped {
            for at in (0..FIELD).step_by(LINE) {
                epoch.accumulate(Rank(0), at, Op::Sum, &[0])?;
            }
            self.mapped = true;
        }
        for _ in 0..count {
            let at = if self.elements.is_random() { random(&mut self.state) } else { 0 };
            epoch.accumulate(Rank(0), at, Op::Sum, &[1])?;
        }
        epoch.flush(Rank(0))?;
        epoch.unlock_all()
    }
}

/// Bare fetch_add, by all.
struct BareWord {
    area: Area,
    elements: Elements,
    state: u32,
    mapped: bool,
}

impl BareWord {
    fn new(crew: &Crew, elements: Elements) -> Result<BareWord> {
        let len = if elements.is_random() { FIELD } else { 1 };
        let area = crew.block().take(8 * len)?;
        if elements.is_random() {
            area.collapse();
        }
        let mapped = !elements.is_random();
        Ok(BareWord { area, elements, state: crew.rank() + 1, mapped })
    }
}

impl Task for BareWord {
    fn run(&mut self, count: u64) -> Result<()> {
        if !self.mapped {
            for at in (0..FIELD).step_by(LINE) {
                // Of nothing would be turned into a load, which maps a page for reading only.
                self.area.word(8 * at).fetch_add(1, Relaxed);
            }
            self.mapped = true;
        }
        for _ in 0..count {
            let at = if self.elements.is_random() { random(&mut self.state) } else { 0 };
            black_box(self.area.word(8 * at).fetch_add(1, AcqRel));
        }
        Ok(())
    }
}

/// `accumulates`: by size against a private loop; several origins against one; words against
/// bare atomics.
pub fn accumulates() -> Vec<Case> {
    const BENCH: &str = "accumulates";
    let mut cases = Vec::new();
    for shift in 3..=22 {
        let bytes = 1usize << shift;
        let setup = move |crew: &Crew| {
            let sums = Sums::new(crew, bytes, Elements::Same)?;
            Ok(Pair {
                subject: Box::new(Together::new(crew, sums, false)?),
                floor: Box::new(PrivateSum::new(bytes)),
            })
        };
        let goal = if bytes == 1 << 20 { Goal::AtMost(1.1) } else { Goal::None };
        let point =
            Point::new("Accumulate (sum of f64) by size", "one origin", "bytes", bytes as f64);
        let case = Case::latency(BENCH, "f64, one origin", bytes, "private loop", goal, setup);
        cases.push(Case { tail: false, ..case }.on(point));
    }
    for (name, elements) in [
        ("disjoint", Elements::Disjoint),
        ("overlapping by half", Elements::Overlapping),
        ("the same", Elements::Same),
    ] {
        for bytes in [8usize, 512, 32 << 10, 1 << 20, 4 << 20] {
            let setup = move |crew: &Crew| {
                let sums = |all| Together::new(crew, Sums::new(crew, bytes, elements)?, all);
                Ok(Pair { subject: Box::new(sums(true)?), floor: Box::new(sums(false)?) })
            };
            // Every rank's operations in the time of the leader's: at two ranks, 1.1 times as
            // long is 1.8 times the throughput.
            let goal = if bytes == 1 << 20 && elements != Elements::Same {
                Goal::AtMost(1.11)
            } else {
                Goal::None
            };
            let what = format!("f64, all origins, {name}; as many each");
            let case = Case::latency(BENCH, what, bytes, "one origin alone", goal, setup);
            cases.push(Case { tail: false, ..case });
        }
    }
    // What the memory takes for elements of others, whoever locks what.
    for (name, elements) in
        [("overlapping by half", Elements::Overlapping), ("the same", Elements::Same)]
    {
        for bytes in [32usize << 10, 1 << 20, 4 << 20] {
            let setup = move |crew: &Crew| {
                let loops = |all| Together::new(crew, BareSums::new(crew, bytes, elements)?, all);
                Ok(Pair { subject: Box::new(loops(true)?), floor: Box::new(loops(false)?) })
            };
            let what = format!("f64, racing loops of all ranks, {name}; as many each");
            let case = Case::latency(BENCH, what, bytes, "one rank alone", Goal::None, setup);
            cases.push(Case { tail: false, ..case });
        }
    }
    // The library's beside those, with the locks and the order that nothing is lost by.
    for (name, elements) in
        [("overlapping by half", Elements::Overlapping), ("the same", Elements::Same)]
    {
        for bytes in [32usize << 10, 1 << 20, 4 << 20] {
            let setup = move |crew: &Crew| {
                let sums = Together::new(crew, Sums::new(crew, bytes, elements)?, true)?;
                let bare = Together::new(crew, BareSums::new(crew, bytes, elements)?, true)?;
                Ok(Pair { subject: Box::new(sums), floor: Box::new(bare) })
            };
            let what = format!("f64, all origins, {name}");
            let limit = "racing loops of all";
            let case = Case::latency(BENCH, what, bytes, limit, Goal::AtMost(1.1), setup);
            cases.push(Case { tail: false, ..case });
        }
    }
    // What the machine gives two ranks that have nothing to do with each other.
    for bytes in [32usize << 10, 1 << 20, 4 << 20] {
        let setup = move |crew: &Crew| {
            let loops = |all| Together::new(crew, Loops(PrivateSum::new(bytes)), all);
            Ok(Pair { subject: Box::new(loops(true)?), floor: Box::new(loops(false)?) })
        };
        let what = "f64, private loops of all ranks; as many each";
        let case = Case::latency(BENCH, what, bytes, "one rank alone", Goal::None, setup);
        cases.push(Case { tail: false, ..case });
    }
    for (name, limit, elements, all) in [
        ("all origins, the same word", "contended fetch_add", Elements::Same, true),
        ("all origins, random words of 64 MiB", "random fetch_add", Elements::Random, true),
        ("one origin, random words of 64 MiB", "random fetch_add", Elements::Random, false),
        (
            "one origin, random words of 64 MiB, other parts empty",
            "random fetch_add",
            Elements::RandomOfOne,
            false,
        ),
    ] {
        let setup = move |crew: &Crew| {
            let (word, bare) = (Word::new(crew, elements)?, BareWord::new(crew, elements)?);
            Ok(Pair {
                subject: Box::new(Together::new(crew, word, all)?),
                floor: Box::new(Together::new(crew, bare, all)?),
            })
        };
        let what = format!("u64, {name}");
        let case = Case::latency(BENCH, what, 8, limit, Goal::AtMost(1.3), setup);
        cases.push(Case { tail: false, ..case });
    }
    // The same by one origin, in one epoch, for the figure above it.
    let setup = against_raw(Operation::Accumulate, Sync::LockAll, 8, super::MANY);
    cases.push(
        Case::latency(BENCH, "u64, one origin", 8, "fetch_add", Goal::AtLeast(0.77), setup)
            .counted_in(Unit::MillionPerSecond),
    );
    let setup = against_raw(Operation::AccumulateVector, Sync::LockAll, 512, 1);
    let what = "u64, every other word, one origin";
    cases.push(Case::latency(BENCH, what, 512, "fetch_add of words", Goal::None, setup));
    cases
}
