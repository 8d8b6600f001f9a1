//! Window metadata: what each form takes in every process, and what finding a target's entry adds
//! to an operation (paper 001, figures 3.10 and 3.11).
//!
//! A machine with a million ranks is not at hand. What a process keeps for a window of so many is
//! built all the same, and measured; those rows say "simulated". Rates are those of a real put to
//! a real rank, whose entry is looked up among as many as the row says.

use crate::bench::crew::Crew;
use crate::bench::duel::{Case, Pair, Side};
use crate::bench::floor::perfect::Perfect;
use crate::bench::jobs::{self, Options};
use crate::bench::meter::Meter;
use crate::bench::row::{Goal, Heading, Point, Row, Unit};
use crate::bench::stats::summarise;
use crate::bench::subject::memory::allocated;
use crate::bench::suite;
use hither::rma::directory::cache::LINES;
use hither::rma::directory::homes::Homes;
use hither::rma::directory::{Directory, Entry};
use hither::rma::info::{Info, Medium};
use hither::{Job, Op, Rank, Result, Window};
use std::hint::black_box;

/// Name of the part that runs inside the jobs.
pub const PART: &str = "window-memory-part";
const MEMORY: &str = "window-memory";
const RATE: &str = "window-rate";
/// Ranks of a node in the simulation of a copy per node, the paper's.
const PER_NODE: usize = 16;
/// Windows made to see what one takes: enough that what the allocator keeps of freed memory does
/// not count.
const WINDOWS: usize = 512;
/// Puts to a target before the next one's turn, the paper's.
const BATCH: u64 = 10;
/// Elements worked on.
const WORDS: usize = 4096;

/// An entry without a pattern.
fn irregular(rank: u32) -> Entry {
    let mixed = rank.wrapping_mul(0x9e37_79b9) ^ rank >> 7;
    Entry {
        offset: u64::from(mixed) % (WORDS as u64 - 64),
        bytes: 4096,
        unit: 1 + mixed % 8,
        reach: 0,
    }
}

/// Bases that follow each other, and units that differ between odd and even ranks.
fn patterned(rank: u32) -> Entry {
    let unit = 4 << (rank % 2);
    Entry { offset: u64::from(rank) * 4096, bytes: 4096, unit, reach: 0 }
}

/// A kind of window, and the elements of its parts by rank.
type Shape = (&'static str, fn(u32) -> usize);

/// Windows made to see what they take.
const SHAPES: [Shape; 4] = [
    ("symmetric window, whole", |_| 64),
    ("window of odd and even sizes, whole", |rank| 64 << (rank % 2)),
    ("window whose first part is smaller, whole", |rank| if rank == 0 { 8 } else { 64 }),
    ("irregular window, whole", |rank| irregular(rank).offset as usize % 512),
];

/// The part inside one job: private bytes of a window of each shape, the largest over the
/// processes.
pub fn part() -> Result<Vec<Row>> {
    let job = Job::init()?;
    let team = job.team();
    let mut rows = Vec::new();
    for (name, size) in SHAPES {
        let make = || {
            let builder = Window::<u64>::builder(team);
            // The usual way for the usual window: that is the one with a goal.
            let builder = if name == SHAPES[0].0 { builder } else { builder.different_sizes() };
            builder.allocate(size(job.rank().0))
        };
        // Whatever is made once is made now.
        drop(make()?);
        let mut windows = Vec::with_capacity(WINDOWS);
        let before = allocated();
        for _ in 0..WINDOWS {
            windows.push(make()?);
        }
        let heap = (allocated() - before) / WINDOWS as f64;
        let mut bytes = [heap + size_of::<Window<u64>>() as f64];
        team.allreduce(Op::Max, &mut bytes)?;
        rows.push(heading(name, "", 0.0).row(job.size(), summarise(&[(bytes[0], bytes[0])]), None));
    }
    let leads = job.rank() == Rank(0);
    job.finish()?;
    Ok(if leads { rows } else { vec![] })
}

fn heading(series: &str, limit: &'static str, ranks: f64) -> Heading {
    Heading {
        bench: MEMORY,
        what: series.to_owned(),
        size: 0,
        limit,
        unit: "B",
        goal: Goal::None,
        point: Some(Point::new("Window metadata per process (001, 3.10)", series, "ranks", ranks)),
    }
}

/// `window-memory`.
pub fn memory(options: &Options) -> Result<Vec<Row>> {
    const TABLE: &str = "a table in each process";
    let table = |ranks: u32| size_of::<Entry>() as f64 * f64::from(ranks);
    let mut rows = Vec::new();
    let real: &[u32] = if options.quick { &[2, 4] } else { &[2, 4, 8, 16, 32, 64] };
    for &ranks in real {
        let measured = jobs::measure(suite::find(PART)?, ranks, options)?;
        for (row, (name, _)) in measured.iter().zip(SHAPES) {
            let mut heading = heading(name, TABLE, ranks.into());
            heading.goal = if name == SHAPES[0].0 { Goal::Value(512.0) } else { Goal::None };
            rows.push(heading.row(ranks, summarise(&[(row.value, table(ranks))]), None));
        }
    }
    let most = if options.quick { 12 } else { 20 };
    for shift in 1..=most {
        let ranks = 1u32 << shift;
        for (series, bytes, goal) in simulated(ranks) {
            let mut heading = heading(series, TABLE, ranks.into());
            heading.what += ", simulated";
            heading.goal = goal;
            rows.push(heading.row(ranks, summarise(&[(bytes, table(ranks))]), None));
        }
    }
    Ok(rows)
}

/// What a process keeps for a window of `ranks` in each form: the structures themselves, built.
fn simulated(ranks: u32) -> Vec<(&'static str, f64, Goal)> {
    // At most this, whatever the ranks: what a cache of 32 lines and a share take.
    let flat = Goal::Value(4096.0);
    let private: Vec<Entry> = (0..ranks).map(irregular).collect();
    let private = size_of_val(&*private) as f64;
    let alike = Directory::of(ranks, |_| irregular(0));
    let computed = Directory::of(ranks, patterned);
    let cached = Directory::fetched(ranks, LINES).private_bytes();
    let share = Homes::new(ranks, 1).share() as usize * size_of::<Entry>();
    let bare = size_of::<Directory>() + size_of::<Homes>();
    vec![
        ("local table", private, Goal::None),
        ("node's share of one table for 16", private / PER_NODE as f64, Goal::None),
        ("same on all", alike.private_bytes() as f64, Goal::Value(512.0)),
        ("computed", computed.private_bytes() as f64, Goal::Value(1100.0)),
        ("directory", (bare + share) as f64, flat),
        ("directory + cache of 32", (bare + share + cached) as f64, flat),
    ]
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// A table of this process's own.
    Local,
    /// The node's one table.
    Node,
    /// A pattern.
    Computed,
    /// The entry's home, every time.
    Home,
    /// The same, through the library's cache.
    Cached,
    /// The same, through a cache with a perfect hash.
    Perfect,
    /// The entry's home as from another node: by a get that its process answers.
    Remote,
    /// The same, through the library's cache.
    RemoteCached,
}

impl Scheme {
    const ALL: [Scheme; 8] = [
        Scheme::Local,
        Scheme::Node,
        Scheme::Computed,
        Scheme::Home,
        Scheme::Cached,
        Scheme::Perfect,
        Scheme::Remote,
        Scheme::RemoteCached,
    ];

    fn name(self) -> &'static str {
        match self {
            Scheme::Local => "local table",
            Scheme::Node => "node's table",
            Scheme::Computed => "computed",
            Scheme::Home => "directory",
            Scheme::Cached => "directory + cache",
            Scheme::Perfect => "directory + perfect hash",
            Scheme::Remote => "directory by packets",
            Scheme::RemoteCached => "directory by packets + cache",
        }
    }
}

/// Finding entries of one target after the other, and (or not) putting 8 B there.
struct Access {
    scheme: Scheme,
    targets: Vec<u32>,
    /// Operations on a target before the next one's turn.
    batch: u64,
    puts: Option<Window<u64>>,
    table: Vec<Entry>,
    /// All entries in the last rank's part: the node's table, or all homes' shares.
    shared: Window<u64>,
    home: Rank,
    directory: Directory,
    perfect: Perfect,
    /// Where among the targets the next batch begins.
    position: u64,
}

impl Access {
    fn new(crew: &Crew, scheme: Scheme, ranks: u32, batch: u64, puts: bool) -> Result<Access> {
        let team = crew.job()?.team();
        let table: Vec<Entry> = (0..ranks).map(irregular).collect();
        let away = matches!(scheme, Scheme::Remote | Scheme::RemoteCached);
        let medium = if away { Medium::Packets } else { Medium::Auto };
        let info = Info { medium, ..Info::default() };
        let shared = Window::<u64>::builder(team).info(info);
        let shared = shared.allocate(table.len() * Entry::WORDS)?;
        let home = Rank(crew.size() - 1);
        if team.rank() == home {
            for (rank, entry) in table.iter().enumerate() {
                shared.local().write(rank * Entry::WORDS, &entry.to_words())?;
            }
        }
        let puts = if puts { Some(Window::allocate(team, WORDS)?) } else { None };
        team.barrier()?;
        // Each once, in an order that no prefetcher knows: an odd factor permutes.
        let targets = (0..ranks).map(|i| i.wrapping_mul(0x9e37_79b1) & (ranks - 1)).collect();
        let directory = match scheme {
            Scheme::Computed => Directory::of(ranks, patterned),
            _ => Directory::fetched(ranks, LINES),
        };
        let perfect = Perfect::new();
        let position = 0;
        Ok(Access {
            scheme,
            targets,
            batch,
            puts,
            table,
            shared,
            home,
            directory,
            perfect,
            position,
        })
    }
}

/// Runs `count` lookups, and puts.
#[inline(always)]
fn run(
    (targets, batch, puts, first): (&[u32], u64, Option<&Window<u64>>, u64),
    count: u64,
    meter: &mut Meter,
    mut find: impl FnMut(u32) -> Result<Entry>,
) -> Result<()> {
    let mask = targets.len() - 1;
    // The last batch may be shorter.
    let operations = |i: u64| batch.min(count - i * batch);
    let Some(window) = puts else {
        return meter.run(count.div_ceil(batch), |i| {
            let target = targets[(first + i) as usize & mask];
            for _ in 0..operations(i) {
                // Not the entry as a whole: that would send it through memory.
                let entry = find(black_box(target))?;
                black_box(entry.offset ^ entry.bytes ^ u64::from(entry.unit));
            }
            Ok(())
        });
    };
    let epoch = window.lock_all()?;
    meter.run(count.div_ceil(batch), |i| {
        let target = targets[(first + i) as usize & mask];
        for k in 0..operations(i) {
            let entry = find(black_box(target))?;
            let at = entry.offset + k * u64::from(entry.unit);
            epoch.put(Rank(1), at as usize % WORDS, &[i])?;
        }
        Ok(())
    })?;
    epoch.unlock_all()
}

impl Side for Access {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let how = (&*self.targets, self.batch, self.puts.as_ref(), self.position);
        self.position += count.div_ceil(self.batch);
        let (table, home) = (&self.table, self.home);
        let epoch = self.shared.lock_all()?;
        let get = |rank: u32| {
            let mut words = [0; Entry::WORDS];
            epoch.get(home, rank as usize * Entry::WORDS, &mut words)?;
            Ok(Entry::from_words(words))
        };
        match self.scheme {
            Scheme::Local => run(how, count, meter, |rank| Ok(table[rank as usize]))?,
            Scheme::Node => {
                let view = self.shared.part(home)?;
                run(how, count, meter, |rank| {
                    let mut words = [0; Entry::WORDS];
                    view.read(rank as usize * Entry::WORDS, &mut words)?;
                    Ok(Entry::from_words(words))
                })?;
            }
            Scheme::Home | Scheme::Remote => run(how, count, meter, get)?,
            Scheme::Computed | Scheme::Cached | Scheme::RemoteCached => {
                let directory = &self.directory;
                run(how, count, meter, |rank| directory.entry(rank, &get))?;
            }
            Scheme::Perfect => {
                let perfect = &mut self.perfect;
                run(how, count, meter, |rank| perfect.entry(rank, get))?;
            }
        }
        epoch.unlock_all()
    }
}

fn against(
    scheme: Scheme,
    limit: Scheme,
    ranks: u32,
    batch: u64,
    puts: bool,
) -> impl Fn(&Crew) -> Result<Pair> {
    move |crew| {
        Ok(Pair {
            subject: Box::new(Access::new(crew, scheme, ranks, batch, puts)?),
            floor: Box::new(Access::new(crew, limit, ranks, batch, puts)?),
        })
    }
}

/// `window-rate`.
pub fn rate() -> Vec<Case> {
    let limit = Scheme::Local.name();
    let mut cases = Vec::new();
    // What fits the cache, found again and again. The goal's hit: an access to a window whose
    // entries are read from the node's table is the direct one.
    let near =
        |scheme: &Scheme| !matches!(scheme, Scheme::Local | Scheme::Remote | Scheme::RemoteCached);
    for scheme in Scheme::ALL.into_iter().filter(near) {
        let what = format!("{}, put, 16 targets", scheme.name());
        if matches!(scheme, Scheme::Cached | Scheme::Computed) {
            let setup = against(scheme, Scheme::Node, 16, 1, true);
            let limit = Scheme::Node.name();
            cases.push(Case::latency(RATE, &*what, 8, limit, Goal::AtMost(1.2), setup));
        }
        let put = against(scheme, Scheme::Local, 16, 1, true);
        cases.push(Case::latency(RATE, what, 8, limit, Goal::None, put));
        let what = format!("{}, lookup alone, 16 targets", scheme.name());
        let bare = against(scheme, Scheme::Local, 16, 1, false);
        cases.push(Case::latency(RATE, what, 0, limit, Goal::None, bare));
    }
    // A miss on every lookup: what the construction costs.
    for scheme in [Scheme::Cached, Scheme::Perfect] {
        let setup = against(scheme, Scheme::Local, 1024, 1, false);
        let what = format!("{}, lookup alone, every one a miss", scheme.name());
        cases.push(Case::latency(RATE, what, 0, limit, Goal::None, setup));
    }
    for scheme in Scheme::ALL {
        for shift in [1, 2, 3, 4, 5, 6, 8, 10, 13, 16] {
            let ranks = 1u32 << shift;
            let point = Point::new(
                "Rate of puts by where metadata is found (001, 3.11)",
                scheme.name(),
                "ranks (simulated)",
                ranks.into(),
            );
            let what = format!("{}, batches of 10, {ranks} targets (simulated)", scheme.name());
            let setup = against(scheme, Scheme::Local, ranks, BATCH, true);
            cases.push(
                Case::latency(RATE, what, 8, limit, Goal::None, setup)
                    .counted_in(Unit::MillionPerSecond)
                    .on(point),
            );
        }
    }
    cases
}
