//! Targets of active messages by packets, as separate processes: several threads of handlers, floods
//! through small buffers, no memory, nothing to do, and progress by calls only. The ranks are this
//! test's own executable.

#[path = "support/mod.rs"]
mod support;

use hither::world::{Exit, Launcher, Output};
use hither::{
    Assertions, Call, Epoch, Error, Handler, Info, Job, Medium, Placement, Rank, Result, Window,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::ranks;

const ROLE: &str = "HITHER_TEST_ROLE";
/// Long enough for everything but a wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// The entry of the started ranks; as a test of its own it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = Job::init().and_then(|job| match role.as_str() {
        "beside" => beside(&job),
        "flood" => flood(&job),
        "memory" => memory(&job),
        "idle" => idle(&job),
        "calls" => calls(&job),
        "barrier" => barrier(&job),
        "windows" => windows(&job),
        other => panic!("no role {other}"),
    });
    ranks::ends(&role, played.map(|()| String::new()))
}

fn start(role: &str, ranks: u32, settings: &[(&str, &str)]) {
    let mut launcher = Launcher::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env("HITHER_RMA_MEDIUM", "auto")
        .ranks(ranks)
        .output(Output::Capture)
        .timeout(2 * PATIENCE);
    for (name, value) in settings {
        launcher = launcher.env(name, value);
    }
    let outcome = launcher.start().unwrap().wait().unwrap();
    for (rank, exit) in outcome.ranks.iter().enumerate() {
        let said = String::from_utf8_lossy(&outcome.stderr[rank]);
        assert_eq!(*exit, Exit::Code(0), "{role} {settings:?}, rank {rank}: {said}");
    }
}

fn window(job: &Job, elements: usize) -> Result<Window<u64>> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    Window::<u64>::builder(job.team()).info(info).allocate(elements)
}

/// Elements that all ranks map: to tell each other something without packets.
fn flags(job: &Job) -> Result<Window<u64>> {
    Window::<u64>::allocate(job.team(), 4)
}

fn eventually(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn counter(window: &Window<u64>, name: &str) -> u64 {
    let counters = window.packet_counters();
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

/// Adds the number of inputs to the persistent element that each names; tells what was there.
fn count(call: Call<'_, u64, u64, u64>) {
    for (i, input) in call.input.iter().enumerate() {
        let at = (*input % call.persistent.len() as u64) as usize;
        let was = call.persistent.get(at).unwrap_or(0);
        let _ = call.persistent.set(at, was + 1);
        if let Some(output) = call.output.get_mut(i) {
            *output = was;
        }
    }
}

fn ask(epoch: &Epoch<'_, u64>, handler: &Handler<u64, u64, u64>, to: Rank) -> Result<u64> {
    let mut output = [0];
    let message = epoch.message(handler, to).persistent(0..1).input(&[0]);
    message.placement(Placement::Target).output(&mut output).run().map(|()| output[0])
}

/// Handlers inside at the moment, and most at a time.
static INSIDE: AtomicU64 = AtomicU64::new(0);
static TOGETHER: AtomicU64 = AtomicU64::new(0);
/// Who runs alone may go on.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// One message that runs alone, and behind it three that may run together: they must, though all
/// threads but one were asleep when the first one ended.
fn beside(job: &Job) -> Result<()> {
    let (window, flags) = (window(job, 8)?, flags(job)?);
    let alone = window.register::<u64, u64>(1, |_| {
        let begun = Instant::now();
        while OPEN.load(Ordering::Acquire) == 0 && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    })?;
    let together = window.register::<u64, u64>(2, |_| {
        let inside = INSIDE.fetch_add(1, Ordering::AcqRel) + 1;
        TOGETHER.fetch_max(inside, Ordering::AcqRel);
        let begun = Instant::now();
        while TOGETHER.load(Ordering::Acquire) < 3 && begun.elapsed() < PATIENCE / 2 {
            std::thread::yield_now();
        }
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    })?;
    job.team().barrier()?;
    match job.rank().0 {
        0 => {
            let epoch = window.lock_all()?;
            let message = epoch.message(&alone, Rank(1)).persistent(0..1).input(&[1]);
            message.placement(Placement::Target).run()?;
            epoch.unlock_all()?;
        }
        1 => {
            eventually("the first one runs", || Ok(counter(&window, "am_handlers_running") == 1))?;
            flags.local().set(0, 1)?;
            eventually("the others wait", || Ok(counter(&window, "am_units_waiting") == 3))?;
            OPEN.store(1, Ordering::Release);
            eventually("all have run", || Ok(flags.part(Rank(2))?.get(0)? == 1))?;
            assert_eq!(TOGETHER.load(Ordering::Acquire), 3, "they did not run at the same time");
        }
        _ => {
            eventually("the first one runs", || Ok(flags.part(Rank(1))?.get(0)? == 1))?;
            let asserted = Assertions { concurrent_am: true, ..Assertions::default() };
            let epoch = window.lock_all_with(asserted)?;
            for at in 1..4 {
                let message = epoch.message(&together, Rank(1)).persistent(at..at + 1).input(&[1]);
                message.placement(Placement::Target).post()?;
            }
            epoch.unlock_all()?;
            flags.local().set(0, 1)?;
        }
    }
    job.team().barrier()?;
    window.free()
}

#[test]
fn threads_that_slept_run_what_may_run_beside_others() {
    start("beside", 3, &[("HITHER_AM_THREADS", "3")]);
}

/// Every rank floods rank 0, whose one attached buffer has room for one segment.
fn flood(job: &Job) -> Result<()> {
    const SEGMENT: usize = 6000;
    let window = window(job, 64)?;
    let handler = window.register(7, count)?;
    let room = SEGMENT * 16 + 256;
    let buffer = if job.rank() == Rank(0) { Some(window.attach_buffer(room)?) } else { None };
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let me = u64::from(job.rank().0);
    let (large, small) = (vec![me; SEGMENT * 2], vec![me; 100]);
    let mut output = vec![0; large.len()];
    for _ in 0..4 {
        for _ in 0..20 {
            let message = epoch.message(&handler, Rank(0)).persistent(0..64).segments(100);
            message.input(&small).placement(Placement::Target).post()?;
        }
        let message = epoch.message(&handler, Rank(0)).persistent(0..64).segments(2);
        message.input(&large).placement(Placement::Target).output(&mut output).run()?;
    }
    epoch.flush_all()?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    if let Some(buffer) = buffer {
        for rank in 0..job.team().size() as usize {
            let want = 4 * (20 * small.len() + large.len()) as u64;
            assert_eq!(window.local().get(rank)?, want, "of rank {rank}");
        }
        assert_eq!(counter(&window, "am_units_waiting") + counter(&window, "am_no_memory"), 0);
        window.detach_buffer(&buffer)?;
    }
    job.team().barrier()?;
    window.free()
}

#[test]
fn everybody_floods_a_buffer_of_one_segment() {
    start("flood", 4, &[]);
    start("flood", 8, &[]);
}

#[test]
fn floods_end_with_more_threads() {
    start("flood", 4, &[("HITHER_AM_THREADS", "3")]);
}

#[test]
fn floods_end_by_calls_only() {
    start("flood", 4, &[("HITHER_PROGRESS", "calls")]);
}

/// With eight ranks each has 256 bytes at each target to itself, and all of them share 32 KiB.
#[test]
fn floods_end_where_system_buffers_are_shared() {
    start("flood", 8, &[("HITHER_AM_SYSTEM_TOTAL", "8K")]);
    let none = [("HITHER_AM_SYSTEM_TOTAL", "256"), ("HITHER_AM_SYSTEM_BUFFER", "2K")];
    start("flood", 4, &none);
}

/// Windows, each with messages of everybody to everybody: all of them together keep to what a
/// process has for origins that do not ask, and every one has room for a whole system buffer.
fn windows(job: &Job) -> Result<()> {
    const WINDOWS: usize = 6;
    let (system, total) = (2048, 8192);
    // Rank 0 can offer less than the others, as it has one of its own.
    let own = job.team().split(Some(u32::from(job.rank() == Rank(0))), 0)?.expect("a colour");
    let own = if job.rank() == Rank(0) {
        let info = Info { medium: Medium::Packets, ..Info::default() };
        let window = Window::<u64>::builder(&own).info(info).allocate(1)?;
        let handler = window.register::<u64, u64>(7, count)?;
        Some((window, handler))
    } else {
        None
    };
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let window = window(job, 4)?;
        let handler = window.register::<u64, u64>(7, count)?;
        windows.push((window, handler));
    }
    // With as much output nearly a whole system buffer.
    let (input, mut output) = ([0; 110], [0; 110]);
    for round in 0..3 {
        let small = [round];
        for (window, handler) in &windows {
            let epoch = window.lock_all()?;
            for to in job.team().ranks() {
                let message = epoch.message(handler, to).persistent(0..4).input(&input);
                message.placement(Placement::Target).output(&mut output).run()?;
                for _ in 0..20 {
                    let message = epoch.message(handler, to).persistent(0..4).input(&small);
                    message.placement(Placement::Target).post()?;
                }
            }
            epoch.unlock_all()?;
        }
    }
    job.team().barrier()?;
    let (first, _) = &windows[0];
    let most = counter(first, "am_system_bytes_most");
    assert!(most > 0 && most <= total + (WINDOWS + 1) as u64 * system, "{most}");
    assert_eq!(counter(first, "am_units_waiting") + counter(first, "am_no_memory"), 0);
    job.team().barrier()?;
    // What windows took comes back when they go: the next one has as much as the first one had.
    for (window, _) in windows.into_iter().chain(own) {
        window.free()?;
    }
    let window = window(job, 4)?;
    let handler = window.register::<u64, u64>(7, count)?;
    let epoch = window.lock_all()?;
    for to in job.team().ranks() {
        ask(&epoch, &handler, to)?;
    }
    assert_eq!(counter(&window, "am_reservations"), 0, "it has room of its own");
    epoch.unlock_all()?;
    job.team().barrier()?;
    window.free()
}

#[test]
fn all_windows_together_keep_to_the_room_of_a_process() {
    let settings = [("HITHER_AM_SYSTEM_TOTAL", "8K"), ("HITHER_AM_SYSTEM_BUFFER", "2K")];
    start("windows", 4, &settings);
}

/// The target may not have more memory than it has: a message fails, others do not.
fn memory(job: &Job) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let window = window(job, 8)?;
    let handler = window.register(7, count)?;
    let epoch = window.lock_all()?;
    let before = getrlimit(Resource::As);
    let limit = |current| setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
    if job.rank() == Rank(1) {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        limit(Some(pages * 4096 + (16 << 20)));
    }
    job.team().barrier()?;
    if job.rank() == Rank(0) {
        for _ in 0..5 {
            let error = ask(&epoch, &handler, Rank(1)).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains("no memory"), "{error}");
        }
        // To itself it can send.
        ask(&epoch, &handler, Rank(0))?;
    }
    job.team().barrier()?;
    if job.rank() == Rank(1) {
        assert_eq!(counter(&window, "am_no_memory"), 5);
        limit(before.current);
    }
    job.team().barrier()?;
    if job.rank() == Rank(0) {
        for round in 0..1000 {
            assert_eq!(ask(&epoch, &handler, Rank(1))?, round);
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    window.free()
}

#[test]
fn a_target_without_memory_fails_a_message_and_goes_on() {
    // The system buffer is what it has no memory for.
    let settings = [("HITHER_AM_SYSTEM_BUFFER", "256M"), ("HITHER_AM_SYSTEM_TOTAL", "1G")];
    start("memory", 2, &settings);
}

/// Times that each thread of the library in this process has gone to sleep.
fn sleeps() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let name = read("comm").trim().to_owned();
        let status = read("status");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        let count = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
        if let (Some(count), true) = (count, name.starts_with("hither-")) {
            all.push((name, count));
        }
    }
    all.sort();
    all
}

/// Threads of handlers with nothing to do do nothing.
fn idle(job: &Job) -> Result<()> {
    let window = window(job, 8)?;
    let handler = window.register(7, count)?;
    let epoch = window.lock_all()?;
    let target = Rank(1 - job.rank().0);
    for round in 0..20 {
        assert_eq!(ask(&epoch, &handler, target)?, round);
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    // Until all of them have found that there is nothing more.
    std::thread::sleep(Duration::from_millis(200));
    let (begun, before) = (Instant::now(), sleeps());
    std::thread::sleep(Duration::from_secs(2));
    let (after, slices) = (sleeps(), begun.elapsed().as_millis() as u64 / 64);
    let names =
        |all: &[(String, u64)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    let handlers = names(&after).iter().filter(|name| name.starts_with("hither-handler")).count();
    assert_eq!(handlers, 3, "{after:?}");
    for ((name, after), (_, before)) in after.iter().zip(&before) {
        // The other one looks for deaths after each slice of its sleep.
        let most = if name.starts_with("hither-handler") { 0 } else { slices + 2 };
        assert!(after - before <= most, "{name} was awake {} times", after - before);
    }
    job.team().barrier()?;
    window.free()
}

#[test]
fn threads_without_work_sleep() {
    start("idle", 2, &[("HITHER_AM_THREADS", "3")]);
}

/// Messages that this process has run.
static RUN: AtomicU64 = AtomicU64::new(0);
/// Most that one call runs.
const MOST: u64 = 64;

/// One call of the target runs what has come, but not without end, and what came of it leaves in
/// the same call.
fn calls(job: &Job) -> Result<()> {
    const POSTED: u64 = 120;
    let (window, flags) = (window(job, 8)?, flags(job)?);
    let handler = window.register::<u64, u64>(7, |call| {
        RUN.fetch_add(1, Ordering::AcqRel);
        call.output.fill(call.input[0]);
    })?;
    let epoch = window.lock_all()?;
    // Told and heard without packets.
    let tell = |word| flags.local().set(0, word);
    let hear = |what, word| {
        let other = Rank(1 - job.rank().0);
        eventually(what, || Ok(flags.part(other)?.get(0)? >= word))
    };
    if job.rank() == Rank(0) {
        ask(&epoch, &handler, Rank(1))?;
        tell(1)?;
        hear("the other one makes no calls", 1)?;
        let message = |input: &[u64; 1]| {
            let message = epoch.message(&handler, Rank(1)).persistent(0..1);
            message.input(input).placement(Placement::Target).request(1)
        };
        let mut one = message(&[5])?;
        tell(2)?;
        eventually("the result of the only call", || one.test())?;
        assert_eq!(one.wait()?, [5]);
        tell(3)?;
        hear("the other one makes no calls", 2)?;
        let many = (0..POSTED).map(|i| message(&[i])).collect::<Result<Vec<_>>>()?;
        tell(4)?;
        for (i, request) in many.into_iter().enumerate() {
            assert_eq!(request.wait()?, [i as u64]);
        }
    } else {
        eventually("the first one", || {
            epoch.flush_all()?;
            Ok(flags.part(Rank(0))?.get(0)? == 1)
        })?;
        tell(1)?;
        hear("one is sent", 2)?;
        assert_eq!(RUN.load(Ordering::Acquire), 1);
        epoch.flush_all()?;
        assert_eq!(RUN.load(Ordering::Acquire), 2);
        hear("its result", 3)?;
        tell(2)?;
        hear("many are sent", 4)?;
        let (mut run, mut most) = (2, 0);
        while run < POSTED + 2 {
            epoch.flush_all()?;
            let now = RUN.load(Ordering::Acquire);
            most = most.max(now - run);
            run = now;
        }
        assert!((2..=MOST).contains(&most), "{most} handlers in one call");
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    window.free()
}

#[test]
fn by_calls_results_leave_with_the_call_that_ran_them() {
    start("calls", 2, &[("HITHER_PROGRESS", "calls")]);
}

/// Who waits in a collective serves others meanwhile.
fn barrier(job: &Job) -> Result<()> {
    let window = window(job, 8)?;
    let handler = window.register(7, count)?;
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    for turn in 0..job.team().size() {
        if job.rank() == Rank(turn) {
            for target in job.team().ranks() {
                for round in 0..30 {
                    let was = ask(&epoch, &handler, target)?;
                    assert_eq!(was, u64::from(turn) * 30 + round);
                }
            }
        }
        match turn % 3 {
            0 => job.team().barrier()?,
            1 => job.team().broadcast(Rank(turn), &mut [0u64])?,
            _ => drop(job.team().allreduce(hither::Op::Sum, &mut [1u64])?),
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    window.free()
}

#[test]
fn who_waits_in_a_collective_serves_others() {
    start("barrier", 4, &[("HITHER_PROGRESS", "calls")]);
}
