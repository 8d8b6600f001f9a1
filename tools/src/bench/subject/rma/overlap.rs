//! What the other side's business costs: computing while operations are under way (paper 001,
//! table 4.1, and paper 004), targets that are late (004), several origins (004).
//!
//! ```text
//! t      an epoch of operations alone                       share of the computing that cost
//! T      the same with computing of length t between the    nothing:   (2 t - T) / t
//!        last operation and the end of the epoch
//! ```

use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::row::{Point, Row};
use crate::bench::subject::variants::{self, Sweep, Table, Variant};
use hither::rma::LockKind;
use hither::{Rank, Result, Window};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Parts inside the jobs.
pub const OVERLAP: &str = "overlap-part";
/// See [`OVERLAP`].
pub const SKEW: &str = "skew-part";
/// See [`OVERLAP`].
pub const ORIGINS: &str = "origins-part";

const MEDIA: &[Variant] = &[
    Variant { name: "direct", settings: &[] },
    Variant { name: "packets", settings: &[("HITHER_RMA_MEDIUM", "packets")] },
    Variant {
        name: "packets, no thread",
        settings: &[("HITHER_RMA_MEDIUM", "packets"), ("HITHER_PROGRESS", "calls")],
    },
];

fn sweep(
    bench: &'static str,
    part: &'static str,
    ranks: u32,
    variants: &'static [Variant],
) -> Sweep {
    Sweep { bench, part, ranks, variants }
}

/// `overlap`: table 4.1 of paper 001 and the overlap test of paper 004.
pub fn overlap(options: &Options) -> Result<Vec<Row>> {
    variants::run(&sweep("overlap", OVERLAP, 2, &MEDIA[..2]), options)
}

/// `skew`: the process-skew test of paper 004.
pub fn skew(options: &Options) -> Result<Vec<Row>> {
    variants::run(&sweep("skew", SKEW, 2, MEDIA), options)
}

/// `origins`: the multi-origin test of paper 004.
pub fn origins(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ranks: &[u32] = if options.quick { &[2, 3] } else { &[2, 3, 4, 5, 8] };
    for &ranks in ranks {
        rows.extend(variants::run(&sweep("origins", ORIGINS, ranks, &MEDIA[..2]), options)?);
    }
    Ok(rows)
}

/// Computes for as long.
fn compute(time: Duration) {
    let start = Instant::now();
    let mut x = 1.0f64;
    while start.elapsed() < time {
        for _ in 0..200 {
            x = black_box(x * 0.999 + 0.1);
        }
    }
}

/// Which synchronisation.
#[derive(Clone, Copy)]
enum Epoch {
    Lock,
    Fence,
    Pscw,
}

/// One epoch of `operations` puts of `values` to rank 1, with computing before its end.
fn epoch(
    crew: &Crew,
    window: &Window<u8>,
    kind: Epoch,
    (operations, values): (u64, &[u8]),
    computing: Duration,
) -> Result<()> {
    let puts = |epoch: &hither::Epoch<'_, u8>| -> Result<()> {
        (0..operations).try_for_each(|_| epoch.put(Rank(1), 0, values))?;
        compute(computing);
        Ok(())
    };
    match (kind, crew.rank()) {
        (Epoch::Lock, 0) => {
            let lock = window.lock(Rank(1), LockKind::Exclusive)?;
            puts(&lock)?;
            lock.unlock()
        }
        (Epoch::Fence, rank) => {
            let fence = window.fence()?;
            if rank == 0 {
                puts(&fence)?;
            }
            fence.end()
        }
        (Epoch::Pscw, 0) => {
            let access = window.start(&[Rank(1)])?;
            puts(&access)?;
            access.complete()
        }
        (Epoch::Pscw, 1) => window.post(&[Rank(0)])?.wait(),
        _ => Ok(()),
    }
}

/// Inside a job: how much of the computing is hidden.
pub fn overlap_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Computing hidden behind 64 puts, by size (001, table 4.1; 004)";
    let mut table = Table::new(crew, effort)?;
    let most = 1 << 17;
    let window = Window::<u8>::allocate(crew.job()?.team(), most)?;
    let values = vec![1; most];
    for (name, kind) in [("lock", Epoch::Lock), ("fence", Epoch::Fence), ("pscw", Epoch::Pscw)] {
        for shift in 10..=17 {
            let puts = (64, &values[..1 << shift]);
            let alone = table.time(|_| epoch(crew, &window, kind, puts, Duration::ZERO))?;
            let computing = Duration::from_nanos(alone as u64);
            let both = table.time(|_| epoch(crew, &window, kind, puts, computing))?;
            let hidden = ((2.0 * alone - both) / alone).clamp(0.0, 1.0) * 100.0;
            let point = Point::new(FIGURE, name, "bytes", f64::from(1 << shift));
            // Never quite 0: a row stands beside another variant's.
            let what = format!("{name}, 64 puts, computing hidden");
            table.add(what, 1 << shift, "%", hidden.max(0.01), point);
        }
    }
    Ok(table.rows())
}

/// Inside a job: an origin's lock, put, unlock on a target that computes meanwhile.
pub fn skew_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Put under a lock to a target that is late (004, process skew)";
    let mut table = Table::new(crew, effort)?;
    let window = Window::<u8>::allocate(crew.job()?.team(), 1024)?;
    // A second table, for its meetings inside what the first one times.
    let inner = Table::new(crew, effort)?;
    for late in [0u64, 10, 20, 50, 100, 200, 500, 1000] {
        let mut spent = (Duration::ZERO, 0);
        table.time(|_| {
            if crew.leads() {
                let start = Instant::now();
                let lock = window.lock(Rank(1), LockKind::Exclusive)?;
                lock.put(Rank(1), 0, &[1; 1024])?;
                lock.unlock()?;
                spent = (spent.0 + start.elapsed(), spent.1 + 1);
            } else if crew.rank() == 1 {
                compute(Duration::from_micros(late));
            }
            inner.meet()
        })?;
        let each = spent.0.as_secs_f64() * 1e6 / f64::from(spent.1.max(1));
        let what = format!("lock, put, unlock; the target computes for {late} µs");
        let point = Point::new(FIGURE, "", "µs of computing at the target", late as f64);
        table.add(what, 1024, "µs", each, point);
    }
    Ok(table.rows())
}

/// Inside a job: all ranks but the target put into stretches of their own.
pub fn origins_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Bandwidth of several origins to one target, puts of 64 KiB (004)";
    const BYTES: usize = 64 << 10;
    let mut table = Table::new(crew, effort)?;
    let origins = crew.size() - 1;
    let window = Window::<u8>::allocate(crew.job()?.team(), BYTES * crew.size() as usize)?;
    let values = vec![1; BYTES];
    let at = crew.rank() as usize * BYTES;
    let epoch = window.lock_all()?;
    let time = table.time(|_| {
        if crew.rank() == origins {
            return Ok(());
        }
        (0..16).try_for_each(|_| epoch.put(Rank(origins), at, &values))?;
        epoch.flush(Rank(origins))
    })?;
    epoch.unlock_all()?;
    let bandwidth = 16.0 * BYTES as f64 * f64::from(origins) / time;
    let point = Point::new(FIGURE, "", "origins", origins.into());
    table.add(format!("{origins} origins, one target"), BYTES, "GB/s", bandwidth, point);
    Ok(table.rows())
}
