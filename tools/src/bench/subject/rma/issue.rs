//! When operations leave, on the packet path: the figures of paper 001, chapters 3 and 4.
//!
//! ```text
//! 3.12  the two fence algorithms             3.15  bounded laziness against delayed issuing
//! 3.13  the lock with the first operation,   4.2   one operation by size
//!       or ahead of it                       4.3   many operations under a lock
//! 3.14  operations sent before the lock      4.4   many operations under post-start
//!       is granted
//! ```

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::row::{Point, Row};
use crate::bench::subject::variants::{self, Sweep, Table, Variant};
use hither::rma::LockKind;
use hither::rma::info::{Info, Medium};
use hither::{Op, Rank, Result, Window};

/// Parts inside the jobs.
pub const SINGLE: &str = "issue-single-part";
/// See [`SINGLE`].
pub const MANY: &str = "issue-many-part";
/// See [`SINGLE`].
pub const ALL_TO_ALL: &str = "issue-all-part";
/// See [`SINGLE`].
pub const FENCES: &str = "fences-part";
/// See [`SINGLE`].
pub const LOCKS: &str = "lock-messages-part";
/// See [`SINGLE`].
pub const SPECULATION: &str = "speculation-part";

const PACKETS: (&str, &str) = ("HITHER_RMA_MEDIUM", "packets");

const ISSUING: &[Variant] = &[
    Variant { name: "delayed", settings: &[PACKETS, ("HITHER_RMA_ISSUING", "delayed")] },
    Variant { name: "eager", settings: &[PACKETS, ("HITHER_RMA_ISSUING", "eager")] },
    Variant { name: "adaptive", settings: &[PACKETS, ("HITHER_RMA_ISSUING", "adaptive")] },
];

const FENCE: &[Variant] = &[
    Variant { name: "barrier", settings: &[("HITHER_RMA_REDUCE_TEAMS", "0")] },
    Variant { name: "reduce-scatter", settings: &[("HITHER_RMA_REDUCE_TEAMS", "1024")] },
];

/// `issue`: figures 4.2 to 4.4 and 3.15.
pub fn issue(options: &Options) -> Result<Vec<Row>> {
    let sweep = |part, ranks| Sweep { bench: "issue", part, ranks, variants: ISSUING };
    let mut rows = variants::run(&sweep(SINGLE, 2), options)?;
    rows.extend(variants::run(&sweep(MANY, 2), options)?);
    let ranks: &[u32] = if options.quick { &[2, 4] } else { &[2, 4, 8] };
    for &ranks in ranks {
        rows.extend(variants::run(&sweep(ALL_TO_ALL, ranks), options)?);
    }
    Ok(rows)
}

/// `fences`: figure 3.12.
pub fn fences(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ranks: &[u32] = if options.quick { &[2, 4] } else { &[2, 4, 8, 16] };
    for &ranks in ranks {
        let sweep = Sweep { bench: "fences", part: FENCES, ranks, variants: FENCE };
        rows.extend(variants::run(&sweep, options)?);
    }
    Ok(rows)
}

/// Figure 4.2: one put under an exclusive lock, by size.
pub fn single(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "One put under a lock, by size (001, 4.2)";
    let mut table = Table::new(crew, effort)?;
    let most = 1 << 18;
    let window = Window::<u8>::allocate(crew.job()?.team(), most)?;
    let values = vec![1; most];
    for shift in 0..=18 {
        let bytes = 1usize << shift;
        let nanoseconds = table.time(|_| {
            if !crew.leads() {
                return Ok(());
            }
            let lock = window.lock(Rank(1), LockKind::Exclusive)?;
            lock.put(Rank(1), 0, &values[..bytes])?;
            lock.unlock()
        })?;
        let point = Point::new(FIGURE, "", "bytes", bytes as f64);
        table.add("lock, put, unlock".into(), bytes, "µs", nanoseconds / 1e3, point);
    }
    Ok(table.rows())
}

/// Figures 4.3 and 4.4: many puts of 8 B in an epoch.
pub fn many(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const LOCKED: &str = "Puts of 8 B under a lock, by number (001, 4.3)";
    const POSTED: &str = "Puts of 8 B under post-start-complete-wait, by number (001, 4.4)";
    let mut table = Table::new(crew, effort)?;
    let window = Window::<u64>::allocate(crew.job()?.team(), 1)?;
    for shift in 0..=14 {
        let operations = 1u64 << shift;
        let locked = table.time(|_| {
            if !crew.leads() {
                return Ok(());
            }
            let lock = window.lock(Rank(1), LockKind::Exclusive)?;
            (0..operations).try_for_each(|i| lock.put(Rank(1), 0, &[i]))?;
            lock.unlock()
        })?;
        let posted = table.time(|_| match crew.rank() {
            0 => {
                let access = window.start(&[Rank(1)])?;
                (0..operations).try_for_each(|i| access.put(Rank(1), 0, &[i]))?;
                access.complete()
            }
            1 => window.post(&[Rank(0)])?.wait(),
            _ => Ok(()),
        })?;
        for (figure, what, nanoseconds) in [(LOCKED, "lock", locked), (POSTED, "start", posted)] {
            let what = format!("{what}, {operations} puts");
            let point = Point::new(figure, "", "operations", operations as f64);
            table.add(what, 8, "µs", nanoseconds / 1e3, point);
        }
    }
    Ok(table.rows())
}

/// One fence epoch in which every rank puts `operations` runs to every other one.
fn all_to_all(
    crew: &Crew,
    table: &Table<'_>,
    window: &Window<u8>,
    operations: u64,
    values: &[u8],
) -> Result<f64> {
    let mut fence = window.fence()?;
    let time = table.time(|_| {
        for _ in 0..operations {
            for step in 1..crew.size() {
                let target = Rank((crew.rank() + step) % crew.size());
                fence.put(target, 0, values)?;
            }
        }
        fence.next()
    })?;
    fence.end()?;
    // Operations of all ranks together per time.
    let all = operations as f64 * f64::from(crew.size()) * f64::from(crew.size() - 1);
    Ok(all * 1e3 / time)
}

/// Figure 3.15: message rate of an all-to-all by size, by number of operations, by ranks.
pub fn everybody(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let mut table = Table::new(crew, effort)?;
    let most = 1 << 16;
    let window = Window::<u8>::allocate(crew.job()?.team(), most)?;
    let values = vec![1; most];
    let ranks = crew.size();
    if ranks == 2 {
        for shift in (3..=16).step_by(1) {
            let bytes = 1usize << shift;
            let rate = all_to_all(crew, &table, &window, 1, &values[..bytes])?;
            let figure = "All-to-all of one put in a fence epoch, by size (001, 3.15a)";
            let point = Point::new(figure, "", "bytes", bytes as f64);
            table.add("all-to-all, 1 put".into(), bytes, "M/s", rate, point);
        }
        for shift in 0..=12 {
            let operations = 1u64 << shift;
            let rate = all_to_all(crew, &table, &window, operations, &values[..8])?;
            let figure = "All-to-all of 8 B in a fence epoch, by operations (001, 3.15b)";
            let point = Point::new(figure, "", "operations", operations as f64);
            table.add(format!("all-to-all, {operations} puts"), 8, "M/s", rate, point);
        }
    }
    for operations in [1, 256] {
        let rate = all_to_all(crew, &table, &window, operations, &values[..8])?;
        let figure = "All-to-all of 8 B in a fence epoch, by ranks (001, 3.15c)";
        let series = format!("{operations} operations");
        let point = Point::new(figure, series, "ranks", ranks.into());
        let what = format!("all-to-all, {operations} puts, {ranks} ranks");
        table.add(what, 8, "M/s", rate, point);
    }
    Ok(table.rows())
}

/// Figure 3.12: fence epochs in which every rank has 1,000 operations for every other one:
/// accumulates by packets alone (a), mixed with puts that are made directly (b), and none.
pub fn fence_algorithms(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const OPERATIONS: u64 = 1000;
    let mut table = Table::new(crew, effort)?;
    let team = crew.job()?.team();
    let info = Info { medium: Medium::Packets, ..Info::default() };
    let packets = Window::<u64>::builder(team).info(info).allocate(8)?;
    let direct = Window::<u64>::allocate(team, 8)?;
    let ranks = crew.size();
    for (figure, operations, mixed) in [
        ("Fence epochs of 1,000 accumulates to everybody (001, 3.12a)", OPERATIONS, false),
        ("Fence epochs of accumulates and direct puts (001, 3.12b)", OPERATIONS, true),
        ("Empty fence epochs by packets", 0, false),
    ] {
        let (mut fence, mut near) = (packets.fence()?, direct.fence()?);
        let time = table.time(|_| {
            for i in 0..operations {
                for step in 1..ranks {
                    let target = Rank((crew.rank() + step) % ranks);
                    let at = (i % 8) as usize;
                    if mixed && i % 2 == 1 {
                        near.put(target, at, &[i])?;
                    } else {
                        fence.accumulate(target, at, Op::Sum, &[1])?;
                    }
                }
            }
            if mixed {
                near.next()?;
            }
            fence.next()
        })?;
        fence.end()?;
        near.end()?;
        let point = Point::new(figure, "", "ranks", ranks.into());
        let what = if mixed { "accumulates and puts" } else { "accumulates" };
        let what = format!("fence epoch, {operations} {what} to everybody, {ranks} ranks");
        table.add(what, 8, "µs", time / 1e3, point);
    }
    Ok(table.rows())
}

const LOCKING: &[Variant] = &[
    Variant {
        name: "lock with the first operation",
        settings: &[PACKETS, ("HITHER_RMA_ISSUING", "delayed")],
    },
    Variant {
        name: "lock ahead, speculating",
        settings: &[PACKETS, ("HITHER_RMA_ISSUING", "eager")],
    },
    Variant {
        name: "lock ahead, not speculating",
        settings: &[PACKETS, ("HITHER_RMA_ISSUING", "eager"), ("HITHER_RMA_SPECULATE", "0")],
    },
];

macro_rules! speculating {
    ($($count:literal),+) => {
        &[$(Variant {
            name: $count,
            settings: &[
                PACKETS,
                ("HITHER_RMA_ISSUING", "eager"),
                ("HITHER_RMA_SPECULATE", $count),
            ],
        }),+]
    };
}

const SPECULATING: &[Variant] =
    speculating!("0", "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024");

/// `lock-messages`: figures 3.13 and 3.14.
pub fn lock_messages(options: &Options) -> Result<Vec<Row>> {
    let sweep = |part, variants| Sweep { bench: "lock-messages", part, ranks: 2, variants };
    let mut rows = variants::run(&sweep(LOCKS, LOCKING), options)?;
    // What varies here is the horizontal axis, not the curve.
    for mut row in variants::run(&sweep(SPECULATION, SPECULATING), options)? {
        let count = row.what.split(':').next().and_then(|count| count.parse::<f64>().ok());
        if let (Some(point), Some(count)) = (&mut row.point, count) {
            // One more, so that none has a place on an axis of doublings.
            (point.x, point.series) = (count + 1.0, "1,024 puts under a shared lock".to_owned());
        }
        row.limit = "none speculative".to_owned();
        rows.push(row);
    }
    Ok(rows)
}

/// Epochs of puts under a lock of one kind; their time in nanoseconds.
fn locked(
    crew: &Crew,
    table: &Table<'_>,
    window: &Window<u8>,
    (kind, operations): (LockKind, u64),
    values: &[u8],
) -> Result<f64> {
    table.time(|_| {
        if !crew.leads() {
            return Ok(());
        }
        let lock = window.lock(Rank(1), kind)?;
        (0..operations).try_for_each(|_| lock.put(Rank(1), 0, values))?;
        lock.unlock()
    })
}

/// Figure 3.13: one and several puts under a lock, by size.
pub fn locks(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let mut table = Table::new(crew, effort)?;
    let most = 1 << 18;
    let window = Window::<u8>::allocate(crew.job()?.team(), most)?;
    let values = vec![1; most];
    for (figure, operations) in [
        ("32 puts under a lock, by size (001, 3.13a)", 32),
        ("One put under a lock: its query ahead or with it (001, 3.13b)", 1),
    ] {
        for shift in 3..=18 {
            let bytes = 1usize << shift;
            let what = (LockKind::Exclusive, operations);
            let time = locked(crew, &table, &window, what, &values[..bytes])?;
            let point = Point::new(figure, "", "bytes", bytes as f64);
            table.add(format!("lock, {operations} puts, unlock"), bytes, "µs", time / 1e3, point);
        }
    }
    Ok(table.rows())
}

/// Figure 3.14: many puts under a shared lock that is granted at once.
pub fn speculation(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const OPERATIONS: u64 = 1024;
    let mut table = Table::new(crew, effort)?;
    let window = Window::<u8>::allocate(crew.job()?.team(), 8)?;
    let what = (LockKind::Shared, OPERATIONS);
    let time = locked(crew, &table, &window, what, &[1; 8])?;
    let figure = "Operations sent before the lock is granted (001, 3.14)";
    let axis = "operations sent ahead, + 1";
    let rate = OPERATIONS as f64 * 1e3 / time;
    table.add("puts".into(), 8, "M/s", rate, Point::new(figure, "", axis, 1.0));
    Ok(table.rows())
}
