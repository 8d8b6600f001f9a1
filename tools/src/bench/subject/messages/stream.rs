//! Figures 6.7 to 6.11: how many segments go in a unit, how large system buffers are, what order and
//! exclusion cost.

use super::work::{Absolute, INTEGERS, Search, TARGET as PART, WORD, in_flight};
use super::{BOTH, PACKETS, by_setting, run, setting};
use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::row::{Point, Row};
use crate::bench::subject::variants::{Table, Variant};
use hither::am::Placement;
use hither::rma::{AmOrdering, Info, LockKind};
use hither::{Assertions, Result, Window};

/// Parts inside the jobs.
pub const UNITS: &str = "am-units-part";
/// See [`UNITS`].
pub const BUFFERS: &str = "am-buffers-part";
/// See [`UNITS`].
pub const ORDER: &str = "am-order-part";
/// See [`UNITS`].
pub const CONCURRENCY: &str = "am-concurrency-part";

/// Segments of a message, as in the paper.
const SEGMENTS: usize = 100;
/// Messages in flight where rates are measured.
const FLIGHT: usize = 32;

/// By bytes of input, 20 for a segment of the search, 400 for one of the absolute values.
const BY_UNIT: &[&[Variant]] =
    by_setting!("HITHER_AM_UNIT": "200" "400" "800" "1200" "2000" "4000" "6400");
const BY_BUFFER: &[&[Variant]] =
    by_setting!("HITHER_AM_SYSTEM_BUFFER": "1024" "2048" "4096" "8192" "16384" "32768" "65536");
const AT_TARGETS: &[Variant] = &[
    Variant { name: "2 KiB", settings: &[PACKETS, ("HITHER_AM_SYSTEM_BUFFER", "2048")] },
    Variant { name: "8 KiB", settings: &[PACKETS, ("HITHER_AM_SYSTEM_BUFFER", "8192")] },
    Variant { name: "32 KiB", settings: &[PACKETS, ("HITHER_AM_SYSTEM_BUFFER", "32768")] },
];
const EXCLUSION: &[Variant] = &[
    super::ORIGIN,
    super::TARGET,
    Variant { name: "target runs, 2 threads", settings: &[PACKETS, ("HITHER_AM_THREADS", "2")] },
];

/// `am-units`: figure 6.7.
pub fn units(options: &Options) -> Result<Vec<Row>> {
    let each = BY_UNIT.iter().map(|variants| run("am-units", UNITS, 2, variants, options));
    each.collect::<Result<Vec<_>>>().map(|rows| rows.concat())
}

/// `am-buffers`: figures 6.8 and 6.9.
pub fn buffers(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for variants in BY_BUFFER {
        rows.extend(run("am-buffers", BUFFERS, 2, variants, options)?);
    }
    let ranks: &[u32] = if options.quick { &[3] } else { &[2, 3, 5, 8] };
    for &ranks in ranks {
        rows.extend(run("am-buffers", CONCURRENCY, ranks, AT_TARGETS, options)?);
    }
    Ok(rows)
}

/// `am-order`: figure 6.10.
pub fn order(options: &Options) -> Result<Vec<Row>> {
    run("am-order", ORDER, 2, BOTH, options)
}

/// `am-concurrency`: figure 6.11.
pub fn concurrency(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ranks: &[u32] = if options.quick { &[3] } else { &[2, 3, 5, 8] };
    for &ranks in ranks {
        rows.extend(run("am-concurrency", CONCURRENCY, ranks, EXCLUSION, options)?);
    }
    Ok(rows)
}

/// Inside a job: latency and rate with one size of units.
pub fn units_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const LATENCY: &str = "A message of 100 segments, by segments in a unit (001, 6.7 a, c)";
    const RATE: &str = "Messages of 100 segments, by segments in a unit (001, 6.7 b, d)";
    let mut table = Table::new(crew, effort)?;
    let unit = setting("HITHER_AM_UNIT");
    let sends = crew.rank() == 1;
    if unit <= 2000.0 {
        let search = Search::new(crew, Info::default())?;
        let (queries, mut output) = (Search::queries(SEGMENTS, 1), vec![0; SEGMENTS * WORD]);
        let latency = table.time(|_| {
            if !sends {
                return Ok(());
            }
            let epoch = search.window.lock(PART, LockKind::Shared)?;
            search.ask(&epoch, &queries, &mut output)?;
            epoch.unlock()
        })?;
        let rate = table.time(|_| {
            if !sends {
                return Ok(());
            }
            let epoch = search.window.lock_all()?;
            in_flight(100, FLIGHT, |_| search.send(&epoch, &queries))?;
            epoch.unlock_all()
        })?;
        let x = unit / WORD as f64;
        let point = |figure| Point::new(figure, "remote search", "segments in a unit", x);
        let what = format!("remote search, units of {x}");
        table.add(what.clone(), SEGMENTS * WORD, "µs", latency / 1e3, point(LATENCY));
        table.add(what, SEGMENTS * WORD, "k/s", 100.0 * 1e6 / rate, point(RATE));
    }
    if unit >= 400.0 {
        let absolute = Absolute::new(crew, Info::default())?;
        let (input, mut output) = (vec![-1; SEGMENTS * INTEGERS], vec![0; SEGMENTS * INTEGERS]);
        let latency = table.time(|_| {
            if !sends {
                return Ok(());
            }
            let epoch = absolute.window.lock(PART, LockKind::Shared)?;
            absolute.ask(&epoch, &input, &mut output)?;
            epoch.unlock()
        })?;
        let rate = table.time(|_| {
            if !sends {
                return Ok(());
            }
            let epoch = absolute.window.lock_all()?;
            in_flight(20, 8, |_| absolute.send(&epoch, &input))?;
            epoch.unlock_all()
        })?;
        let x = unit / (4 * INTEGERS) as f64;
        let point = |figure| Point::new(figure, "absolute values", "segments in a unit", x);
        let what = format!("absolute values, units of {x}");
        table.add(what.clone(), 4 * input.len(), "µs", latency / 1e3, point(LATENCY));
        table.add(what, 4 * input.len(), "k/s", 20.0 * 1e6 / rate, point(RATE));
    }
    Ok(table.rows())
}

/// Inside a job: rate with one size of system buffers.
pub fn buffers_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Messages of 100 segments, by size of the system buffer (001, 6.8)";
    let mut table = Table::new(crew, effort)?;
    let search = Search::new(crew, Info::default())?;
    let _buffer = search.window.attach_buffer(1 << 20)?;
    let queries = Search::queries(SEGMENTS, 1);
    let rate = table.time(|_| {
        if crew.rank() != 1 {
            return Ok(());
        }
        let epoch = search.window.lock_all()?;
        in_flight(100, FLIGHT, |_| search.send(&epoch, &queries))?;
        epoch.unlock_all()
    })?;
    let size = setting("HITHER_AM_SYSTEM_BUFFER");
    let point = Point::new(FIGURE, "", "bytes", size);
    let what = format!("remote search, system buffers of {size} B");
    table.add(what, SEGMENTS * WORD, "k/s", 100.0 * 1e6 / rate, point);
    Ok(table.rows())
}

/// Inside a job: large and small messages in turn.
pub fn order_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Large and small messages in turn, by order (001, 6.10)";
    let mut table = Table::new(crew, effort)?;
    for (name, am_ordering) in [
        ("strict", AmOrdering::default()),
        ("relaxed", AmOrdering { same_op: false, diff_op: false, same_am: false }),
    ] {
        for large in [8usize << 10, 32 << 10, 128 << 10] {
            let info = Info { am_ordering, ..Info::default() };
            let window: Window<u8> = Window::builder(crew.job()?.team()).info(info).allocate(64)?;
            let handler = window.register::<u8, u8>(1, |mut call| {
                for segment in 0..call.segments {
                    let sum = call.input_of(segment).iter().fold(0u8, |a, b| a.wrapping_add(*b));
                    call.output_of(segment).fill(sum);
                }
            })?;
            // Room for one large segment at a time, beside the system buffer.
            let buffer = window.attach_buffer(large + 4096)?;
            let sizes = [vec![1u8; large], vec![1u8; WORD]];
            crew.job()?.team().barrier()?;
            let time = table.time(|_| {
                if crew.rank() != 1 {
                    return Ok(());
                }
                let epoch = window.lock_all()?;
                in_flight(64, FLIGHT, |number| {
                    let input = &sizes[number as usize % 2];
                    let message = epoch.message(&handler, PART).persistent(0..64).input(input);
                    message.placement(Placement::Target).request(WORD)
                })?;
                epoch.unlock_all()
            })?;
            let point = Point::new(FIGURE, name, "bytes", large as f64);
            let what = format!("{name}: {large} B and 20 B in turn");
            table.add(what, large, "k/s", 64.0 * 1e6 / time, point);
            crew.job()?.team().barrier()?;
            window.detach_buffer(&buffer)?;
        }
    }
    Ok(table.rows())
}

/// Inside a job: all ranks but the target send.
pub fn concurrency_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Several origins, one target (001, 6.9 and 6.11)";
    const MESSAGES: u64 = 50;
    let mut table = Table::new(crew, effort)?;
    let origins = crew.size() - 1;
    let search = Search::new(crew, Info::default())?;
    let _buffer = search.window.attach_buffer(1 << 20)?;
    let queries = Search::queries(SEGMENTS, 1);
    for (name, concurrent_am) in [("one at a time", false), ("concurrent", true)] {
        let assertions = Assertions { concurrent_am, ..Assertions::default() };
        let time = table.time(|_| {
            if crew.leads() {
                return Ok(());
            }
            let epoch = search.window.lock_all_with(assertions)?;
            in_flight(MESSAGES, FLIGHT, |_| search.send(&epoch, &queries))?;
            epoch.unlock_all()
        })?;
        let rate = f64::from(origins) * MESSAGES as f64 * 1e6 / time;
        let point = Point::new(FIGURE, name, "origins", origins.into());
        table.add(format!("{origins} origins, {name}"), SEGMENTS * WORD, "k/s", rate, point);
    }
    Ok(table.rows())
}
