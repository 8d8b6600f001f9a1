//! Figures 8.2 to 8.6: who runs what packets bring, and how that gets along with computing, with
//! messages between two, with collectives.
//!
//! ```text
//! origin runs               nobody at the target
//! thread of the library     sleeps until packets come                (the paper's INT-ASYNC)
//! program's calls           whatever the target calls runs them      (NON-ASYNC)
//! thread of the program     calls, all the time                      (EXT-ASYNC)
//! ```

use super::work::{Search, TARGET as PART, in_flight};
use super::{PACKETS, run, setting};
use crate::bench::crew::Crew;
use crate::bench::duel::Effort;
use crate::bench::jobs::Options;
use crate::bench::row::{Point, Row};
use crate::bench::subject::variants::{Table, Variant};
use hither::am::Placement;
use hither::rma::{Info, LockKind};
use hither::{Deadline, Op, Rank, Result, Window};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Parts inside the jobs.
pub const LATENCY: &str = "am-latency-part";
/// See [`LATENCY`].
pub const OVERLAP: &str = "am-overlap-part";
/// See [`LATENCY`].
pub const MIXED: &str = "am-mixed-part";
/// See [`LATENCY`].
pub const STENCIL: &str = "am-stencil-part";

const CALLS: (&str, &str) = ("HITHER_PROGRESS", "calls");
/// Tells a part that it is to have a thread that calls the library.
const POLLS: (&str, &str) = ("BENCH_POLLS", "1");
const WHO: &[Variant] = &[
    Variant { name: "origin runs", settings: &[] },
    Variant { name: "thread of the library", settings: &[PACKETS] },
    Variant { name: "program's calls", settings: &[PACKETS, CALLS] },
    Variant { name: "thread of the program", settings: &[PACKETS, CALLS, POLLS] },
];

/// `am-latency`: figures 8.2 and 8.3.
pub fn latency(options: &Options) -> Result<Vec<Row>> {
    run("am-latency", LATENCY, 2, WHO, options)
}

/// `am-overlap`: figure 8.4.
pub fn overlap(options: &Options) -> Result<Vec<Row>> {
    run("am-overlap", OVERLAP, 2, WHO, options)
}

/// `am-mixed`: figure 8.5.
pub fn mixed(options: &Options) -> Result<Vec<Row>> {
    run("am-mixed", MIXED, 3, WHO, options)
}

/// `am-stencil`: figure 8.6.
pub fn stencil(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ranks: &[u32] = if options.quick { &[4] } else { &[4, 9] };
    for &ranks in ranks {
        rows.extend(run("am-stencil", STENCIL, ranks, WHO, options)?);
    }
    Ok(rows)
}

/// Runs `body`, and beside it, where the variant says so, a thread that calls the library all the
/// time.
fn beside<R>(crew: &Crew, body: impl FnOnce() -> Result<R>) -> Result<R> {
    let window = Window::<u64>::allocate(crew.job()?.team(), 1)?;
    if setting(POLLS.0) == 0.0 {
        return body();
    }
    let (window, over) = (&window, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let own = Rank(crew.rank());
        let poller = scope.spawn(move || -> Result<()> {
            let epoch = window.lock(own, LockKind::Shared)?;
            while !over.load(Relaxed) {
                epoch.flush()?;
                std::thread::yield_now();
            }
            epoch.unlock()
        });
        let done = body();
        over.store(true, Relaxed);
        let polled = poller.join().unwrap_or(Ok(()));
        done.and_then(|done| polled.map(|()| done))
    })
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

/// Inside a job: one message by size, and several of four bytes.
pub fn latency_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const ONE: &str = "A message between fences, by size (001, 8.2)";
    const MANY: &str = "Messages of 4 bytes between fences, by number (001, 8.3)";
    let mut table = Table::new(crew, effort)?;
    let window = Window::<u8>::allocate(crew.job()?.team(), 1 << 16)?;
    let handler = window.register::<u8, u8>(1, |call| {
        // In bounds: the message names as many bytes as it brings.
        let _ = call.persistent.write(0, call.input);
    })?;
    let _buffer = window.attach_buffer(256 << 10)?;
    let values = vec![1u8; 1 << 16];
    let sends = crew.rank() == 1;
    beside(crew, || {
        let epoch = |messages: u64, bytes: usize| {
            table.time(|_| {
                let fence = window.fence()?;
                if sends {
                    for _ in 0..messages {
                        let message = fence.message(&handler, PART).persistent(0..bytes);
                        message.input(&values[..bytes]).placement(Placement::Target).post()?;
                    }
                }
                fence.end()
            })
        };
        let mut figures = Vec::new();
        for shift in [2, 4, 6, 8, 10, 12, 14, 16] {
            figures.push((ONE, "bytes", 1 << shift, 1 << shift, epoch(1, 1 << shift)?));
        }
        for messages in [1, 4, 16, 64, 256, 1024] {
            figures.push((MANY, "messages", messages as usize, 4, epoch(messages, 4)?));
        }
        for (figure, axis, x, bytes, time) in figures {
            let what = format!("between fences, {x} {axis}");
            table.add(what, bytes, "µs", time / 1e3, Point::new(figure, "", axis, x as f64));
        }
        Ok(())
    })?;
    Ok(table.rows())
}

/// Inside a job: how much of what the target computes is hidden behind messages that it gets.
pub fn overlap_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "The target's computing hidden behind messages (001, 8.4)";
    let mut table = Table::new(crew, effort)?;
    let search = Search::new(crew, Info::default())?;
    let queries = Search::queries(10, 1);
    let sends = crew.rank() == 1;
    let inner = Table::new(crew, effort)?;
    beside(crew, || {
        for passive in [true, false] {
            for messages in [10u64, 100, 400] {
                let epoch = |computing: Duration| {
                    table.time(|_| {
                        if passive {
                            if sends {
                                let lock = search.window.lock(PART, LockKind::Exclusive)?;
                                in_flight(messages, 32, |_| search.send(&lock, &queries))?;
                                lock.unlock()?;
                            } else {
                                compute(computing);
                            }
                            return inner.meet();
                        }
                        let fence = search.window.fence()?;
                        if sends {
                            in_flight(messages, 32, |_| search.send(&fence, &queries))?;
                        } else {
                            compute(computing);
                        }
                        fence.end()
                    })
                };
                let alone = epoch(Duration::ZERO)?;
                let both = epoch(Duration::from_nanos(alone as u64))?;
                let hidden = ((2.0 * alone - both) / alone).clamp(0.0, 1.0) * 100.0;
                let name = if passive { "exclusive lock" } else { "fence" };
                let point = Point::new(FIGURE, name, "messages", messages as f64);
                let what = format!("{name}, {messages} messages, computing hidden");
                // Never quite 0: a row stands beside another variant's.
                table.add(what, queries.len(), "%", hidden.max(0.01), point);
            }
        }
        Ok(())
    })?;
    Ok(table.rows())
}

/// Inside a job: rank 1 sends active messages to rank 0, to which rank 2 sends other messages, or
/// with which all have collectives.
pub fn mixed_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "Active messages beside other traffic of their target (001, 8.5)";
    let mut table = Table::new(crew, effort)?;
    let job = crew.job()?.clone();
    let search = Search::new(crew, Info::default())?;
    let queries = Search::queries(10, 1);
    let inner = Table::new(crew, effort)?;
    let slot = |rank: u32| job.team().slot_of(Rank(rank));
    let (receiver, sender) = (slot(0)?, slot(2)?);
    // What has arrived and has not been asked for.
    let mut waiting = 0u64;
    beside(crew, || {
        for (name, beside) in [("alone", 0u8), ("with messages", 1), ("with all-reduces", 2)] {
            // Where nobody but calls of the target runs handlers, a collective that it waits in
            // does not, and each message takes milliseconds.
            let most = if beside == 2 { 2 } else { 3 };
            for messages in [10u64, 100, 400].into_iter().take(most) {
                let mut spent = (Duration::ZERO, 0u32);
                table.time(|_| {
                    let start = Instant::now();
                    if crew.rank() == 1 {
                        let lock = search.window.lock(PART, LockKind::Shared)?;
                        in_flight(messages, 32, |_| search.send(&lock, &queries))?;
                        lock.unlock()?;
                        spent = (spent.0 + start.elapsed(), spent.1 + 1);
                    }
                    match (beside, crew.rank()) {
                        (1, 2) => {
                            for _ in 0..messages {
                                job.link().send(receiver, 0, 0, &[1; 64], Deadline::NEVER)?;
                            }
                        }
                        (1, 0) => {
                            let link = job.link();
                            let check = || link.node().check([sender].into_iter(), "a benchmark");
                            while waiting < messages {
                                let came = link.recv_wait(Deadline::NEVER, check, |_| ())?;
                                waiting += came as u64;
                            }
                            waiting -= messages;
                        }
                        (2, _) => {
                            for _ in 0..messages.div_ceil(10) {
                                job.team().allreduce(Op::Sum, &mut [1u64])?;
                            }
                        }
                        _ => {}
                    }
                    inner.meet()
                })?;
                let mut each = [spent.0.as_secs_f64() * 1e6 / f64::from(spent.1.max(1))];
                job.team().broadcast(Rank(1), &mut each)?;
                let point = Point::new(FIGURE, name, "messages", messages as f64);
                let what = format!("{messages} active messages {name}, time of their origin");
                table.add(what, queries.len(), "µs", each[0], point);
            }
        }
        Ok(())
    })?;
    Ok(table.rows())
}

/// Inside a job: each rank has a square of a grid, sends its edges to its neighbours, whose handlers
/// take them in, and computes a step.
pub fn stencil_part(crew: &Crew, effort: Effort) -> Result<Vec<Row>> {
    const FIGURE: &str = "A step of a stencil whose edges go as active messages (001, 8.6)";
    let mut table = Table::new(crew, effort)?;
    let across = crew.size().isqrt();
    let (row, column) = (crew.rank() / across, crew.rank() % across);
    beside(crew, || {
        for side in [16usize, 64, 256] {
            let wide = side + 2;
            let window = Window::<f64>::allocate(crew.job()?.team(), wide * wide)?;
            // The message's segments are the edge's elements; the persistent range begins at the
            // first of the frame's, and each further one lies `stride` on.
            let handler = window.register::<f64, f64>(1, move |call| {
                let stride = if call.persistent.len() > wide { wide } else { 1 };
                for (at, value) in call.input.iter().enumerate() {
                    // In bounds: the message names the whole edge of the frame.
                    let _ = call.persistent.set(at * stride, *value);
                }
            })?;
            let mut square = vec![0.0; wide * wide];
            let mut next = square.clone();
            let local = window.local();
            let time = table.time(|step| {
                let fence = window.fence()?;
                let edge = |first: usize, stride: usize| -> Vec<f64> {
                    (0..side).map(|at| square[first + at * stride]).collect()
                };
                let send = |to: u32, values: &[f64], first: usize, stride: usize| {
                    let range = first..first + (side - 1) * stride + 1;
                    let message = fence.message(&handler, Rank(to)).persistent(range);
                    message.input(values).placement(Placement::Target).post()
                };
                if row > 0 {
                    let to = crew.rank() - across;
                    send(to, &edge(wide + 1, 1), (side + 1) * wide + 1, 1)?;
                }
                if row + 1 < across {
                    send(crew.rank() + across, &edge(side * wide + 1, 1), 1, 1)?;
                }
                if column > 0 {
                    send(crew.rank() - 1, &edge(wide + 1, wide), wide + side + 1, wide)?;
                }
                if column + 1 < across {
                    send(crew.rank() + 1, &edge(wide + side, wide), wide, wide)?;
                }
                fence.end()?;
                local.read(0, &mut next)?;
                for y in 1..=side {
                    for x in 1..=side {
                        let at = y * wide + x;
                        let (up, down) = (next[at - wide], next[at + wide]);
                        let around = up + down + next[at - 1] + next[at + 1];
                        square[at] = 0.25 * around + step as f64 * 1e-9;
                    }
                }
                local.write(0, &square)
            })?;
            let name = format!("{across} x {across} ranks");
            let point = Point::new(FIGURE, name, "elements along a rank's square", side as f64);
            let what = format!("a step, {across} x {across} ranks, {side} x {side} each");
            table.add(what, side * 8, "µs", time / 1e3, point);
        }
        Ok(())
    })?;
    Ok(table.rows())
}
