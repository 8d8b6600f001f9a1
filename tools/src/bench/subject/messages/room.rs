//! Figures 7.6 to 7.10: what asking for room at the target costs, and who need not ask; what packing
//! variable output saves.

use super::work::{Absolute, INTEGERS, MOST, Search, TARGET as PART, WORD, counter, in_flight};
use super::{PACKETS, run};
use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::row::{Point, Row};
use crate::bench::subject::variants::{Table, Variant};
use hither::rma::{Info, LockKind};
use hither::{Datum, Rank, Result, Window};

/// Parts inside the jobs.
pub const ROOM: &str = "am-room-part";
/// See [`ROOM`].
pub const CONTENTION: &str = "am-contention-part";
/// See [`ROOM`].
pub const VECTOR: &str = "am-vector-part";

/// Bytes that the target attaches.
const ATTACHED: usize = 32 << 20;
/// The system buffers of the paper.
const SYSTEM: (&str, &str) = ("HITHER_AM_SYSTEM_BUFFER", "8192");
const SMALL: &[Variant] =
    &[super::ORIGIN, Variant { name: "target runs", settings: &[PACKETS, SYSTEM] }];
const PACKING: &[Variant] = &[
    super::ORIGIN,
    Variant { name: "never packed", settings: &[PACKETS, ("HITHER_AM_PACK", "0")] },
    Variant { name: "packed below 0.5", settings: &[PACKETS, ("HITHER_AM_PACK", "0.5")] },
    Variant { name: "packed below 0.8", settings: &[PACKETS, ("HITHER_AM_PACK", "0.8")] },
    Variant { name: "always packed", settings: &[PACKETS, ("HITHER_AM_PACK", "1")] },
];

/// `am-room`: figures 7.6 and 7.7.
pub fn room(options: &Options) -> Result<Vec<Row>> {
    run("am-room", ROOM, 2, SMALL, options)
}

/// `am-contention`: figures 7.8 and 7.9.
pub fn contention(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ranks: &[u32] = if options.quick { &[3] } else { &[2, 3, 5] };
    for &ranks in ranks {
        rows.extend(run("am-contention", CONTENTION, ranks, SMALL, options)?);
    }
    Ok(rows)
}

/// `am-vector`: figure 7.10.
pub fn vector(options: &Options) -> Result<Vec<Row>> {
    run("am-vector", VECTOR, 2, PACKING, options)
}

/// The hint that so many bytes are there for each origin.
fn promised(bytes: u64) -> Info {
    let mut info = Info::default();
    info.am_user_buffers.set(PART, bytes);
    info
}

/// Measures what the origin does again and again: its time in µs, and how often each asked for room.
fn asking<T: Datum>(
    crew: &Crew,
    table: &mut Table<'_>,
    window: &Window<T>,
    mut go: impl FnMut() -> Result<()>,
) -> Result<(f64, f64)> {
    let sends = crew.rank() == 1;
    let (before, mut count) = (counter(window, "am_reservations"), 0);
    let time = table.time(|_| {
        if !sends {
            return Ok(());
        }
        count += 1;
        go()
    })?;
    let asked = counter(window, "am_reservations") - before;
    let mut each = [asked / f64::from(count.max(1))];
    crew.job()?.team().broadcast(Rank(1), &mut each)?;
    // Never quite 0: a row stands beside another variant's.
    Ok((time / 1e3, each[0].max(1e-3)))
}

/// Inside a job: latency by length, and rate by number, of messages that ask, ask once, or need not.
pub fn room_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    let mut table = Table::new(crew, effort)?;
    for (name, info, kind) in [
        ("shared lock", Info::default(), LockKind::Shared),
        ("exclusive lock", Info::default(), LockKind::Exclusive),
        ("promised room", promised(ATTACHED as u64), LockKind::Shared),
    ] {
        search_room(crew, &mut table, (name, info.clone(), kind))?;
        absolute_room(crew, &mut table, (name, info, kind))?;
    }
    for (name, interleaved) in [("may be detached", true), ("will not be detached", false)] {
        flushed_room(crew, &mut table, name, interleaved)?;
    }
    Ok(table.rows())
}

/// Remote search: figures 7.6 a and b, and 7.7.
fn search_room(
    crew: &Crew,
    table: &mut Table<'_>,
    (name, info, kind): (&str, Info, LockKind),
) -> Result<()> {
    const LATENCY: &str = "Latency of a message by segments, search (001, 7.6 a)";
    const ASKED: &str = "Questions for room of a message by segments, search (001, 7.6 b)";
    const RATE: &str = "Messages of 100 segments by number in an epoch (001, 7.7)";
    let search = Search::new(crew, info)?;
    let buffer = search.window.attach_buffer(ATTACHED)?;
    for segments in [10usize, 50, 100, 200, 500, 1000, 2000] {
        let (queries, mut output) = (Search::queries(segments, 1), vec![0; segments * WORD]);
        let (time, asked) = asking(crew, table, &search.window, || {
            let epoch = search.window.lock(PART, kind)?;
            search.ask(&epoch, &queries, &mut output)?;
            epoch.unlock()
        })?;
        let what = format!("{name}, {segments} segments");
        let point = |figure| Point::new(figure, name, "segments", segments as f64);
        table.add(what.clone(), segments * WORD, "µs", time, point(LATENCY));
        table.add(what, segments * WORD, "questions", asked, point(ASKED));
    }
    for messages in [1u64, 10, 100, 1000] {
        let queries = Search::queries(100, 1);
        let time = table.time(|_| {
            if crew.rank() != 1 {
                return Ok(());
            }
            let epoch = search.window.lock(PART, kind)?;
            in_flight(messages, 256, |_| search.send(&epoch, &queries))?;
            epoch.unlock()
        })?;
        let point = Point::new(RATE, name, "messages in an epoch", messages as f64);
        let what = format!("{name}, {messages} messages in an epoch");
        table.add(what, 100 * WORD, "k/s", messages as f64 * 1e6 / time, point);
    }
    crew.job()?.team().barrier()?;
    search.window.detach_buffer(&buffer)
}

/// Absolute values: figures 7.6 c and d.
fn absolute_room(
    crew: &Crew,
    table: &mut Table<'_>,
    (name, info, kind): (&str, Info, LockKind),
) -> Result<()> {
    const LATENCY: &str = "Latency of a message by segments, absolute values (001, 7.6 c)";
    const ASKED: &str = "Questions for room of a message by segments, absolute values (001, 7.6 d)";
    let absolute = Absolute::new(crew, info)?;
    let buffer = absolute.window.attach_buffer(ATTACHED)?;
    for segments in [1usize, 10, 50, 100, 200, 500] {
        let input: Vec<i32> = (0..segments * INTEGERS).map(|i| -(i as i32)).collect();
        let mut output = vec![0; input.len()];
        let (time, asked) = asking(crew, table, &absolute.window, || {
            let epoch = absolute.window.lock(PART, kind)?;
            absolute.ask(&epoch, &input, &mut output)?;
            epoch.unlock()
        })?;
        let what = format!("absolute values, {name}, {segments} segments");
        let point = |figure| Point::new(figure, name, "segments", segments as f64);
        table.add(what.clone(), size_of_val(&input[..]), "µs", time, point(LATENCY));
        table.add(what, size_of_val(&input[..]), "questions", asked, point(ASKED));
    }
    crew.job()?.team().barrier()?;
    absolute.window.detach_buffer(&buffer)
}

/// Two messages with a flush between them: figures 7.6 e and f.
fn flushed_room(crew: &Crew, table: &mut Table<'_>, name: &str, interleaved: bool) -> Result<()> {
    const LATENCY: &str = "Two messages with a flush between them (001, 7.6 e)";
    const ASKED: &str = "Questions for room of two messages with a flush between (001, 7.6 f)";
    let info = Info { am_buf_interleave_am_detach: interleaved, ..Info::default() };
    let search = Search::new(crew, info)?;
    let buffer = search.window.attach_buffer(ATTACHED)?;
    for segments in [500usize, 1000, 2000] {
        let (queries, mut output) = (Search::queries(segments, 1), vec![0; segments * WORD]);
        let (time, asked) = asking(crew, table, &search.window, || {
            let epoch = search.window.lock(PART, LockKind::Exclusive)?;
            search.ask(&epoch, &queries, &mut output)?;
            epoch.flush()?;
            search.ask(&epoch, &queries, &mut output)?;
            epoch.unlock()
        })?;
        let what = format!("two messages of {segments} segments, buffers {name}");
        let point = |figure| Point::new(figure, name, "segments", segments as f64);
        table.add(what.clone(), segments * WORD, "µs", time, point(LATENCY));
        table.add(what, segments * WORD, "questions", asked, point(ASKED));
    }
    crew.job()?.team().barrier()?;
    search.window.detach_buffer(&buffer)
}

/// Inside a job: all but the target send, and compete for a buffer or have room promised.
pub fn contention_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const SHARED: &str = "Several origins that compete for room (001, 7.9)";
    const LOCKED: &str = "Several origins that compete for an exclusive lock (001, 7.8)";
    const MESSAGES: u64 = 50;
    // What an origin's messages in flight take at the target.
    const WANTED: u64 = 256 << 10;
    let mut table = Table::new(crew, effort)?;
    let origins = crew.size() - 1;
    let queries = Search::queries(200, 1);
    for (figure, name, promise, kind) in [
        (SHARED, "nothing promised", 0, LockKind::Shared),
        (SHARED, "three quarters promised", WANTED * 3 / 4, LockKind::Shared),
        (SHARED, "all promised", WANTED, LockKind::Shared),
        (LOCKED, "nothing promised", 0, LockKind::Exclusive),
    ] {
        let info = if promise > 0 { promised(promise) } else { Info::default() };
        let search = Search::new(crew, info)?;
        let buffer = search.window.attach_buffer(WANTED as usize * origins as usize)?;
        let time = table.time(|_| {
            if crew.leads() {
                return Ok(());
            }
            let epoch = search.window.lock(PART, kind)?;
            in_flight(MESSAGES, 24, |_| search.send(&epoch, &queries))?;
            epoch.unlock()
        })?;
        let rate = f64::from(origins) * MESSAGES as f64 * 1e6 / time;
        let point = Point::new(figure, name, "origins", origins.into());
        let lock = if kind == LockKind::Shared { "shared" } else { "exclusive" };
        let what = format!("{origins} origins, {lock} lock, {name}");
        table.add(what, queries.len(), "k/s", rate, point);
        crew.job()?.team().barrier()?;
        search.window.detach_buffer(&buffer)?;
    }
    Ok(table.rows())
}

/// Inside a job: messages by how much of their output there is.
pub fn vector_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const RATE: &str = "Messages with variable output, by how much there is (001, 7.10 a)";
    const BYTES: &str = "Bytes that come back, by how much output there is (001, 7.10 b)";
    const SEGMENTS: usize = 100;
    let mut table = Table::new(crew, effort)?;
    let search = Search::new(crew, Info::default())?;
    let _buffer = search.window.attach_buffer(1 << 20)?;
    let each = SEGMENTS * MOST * WORD;
    for variable in [false, true] {
        for hits in 1..=MOST {
            let queries = Search::queries(SEGMENTS, hits);
            let (mut output, mut counts) = (vec![0; each], vec![0; SEGMENTS]);
            let mut sent = counter(&search.window, "am_output_bytes");
            let mut count = [0u64];
            let time = table.time(|_| {
                count[0] += 1;
                if crew.rank() != 1 {
                    return Ok(());
                }
                let epoch = search.window.lock_all()?;
                if variable {
                    search.ask_several(&epoch, &queries, &mut output, &mut counts)?;
                } else {
                    search.ask_whole(&epoch, &queries, &mut output)?;
                }
                epoch.unlock_all()
            })?;
            sent = counter(&search.window, "am_output_bytes") - sent;
            let percent = (hits * 100 / MOST) as f64;
            let name = if variable { "variable" } else { "fixed" };
            let point = |figure| Point::new(figure, name, "% of the output", percent);
            let what = format!("{name} output, {percent} % there");
            table.add(what.clone(), each, "k/s", 1e6 / time, point(RATE));
            let bytes = (sent / count[0].max(1) as f64).max(1e-3);
            table.add(what, each, "B", bytes, point(BYTES));
        }
    }
    Ok(table.rows())
}
