//! What the ranks of the cases do.

use super::messages;
use hither::rma::{Assertions, Memory, Request};
use hither::{Error, Job, LockKind, Op, Rank, Result, Window};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Runs a case as one of its ranks; says so if it went well.
pub fn rank(name: &str) {
    let job = Job::init().expect("joining the job");
    let me = job.rank();
    if name == "settings_differ" && me == Rank(1) {
        // SAFETY: no other thread of this process reads or writes the environment now.
        unsafe { std::env::set_var("HITHER_RMA_REDUCE_TEAMS", "0") };
    }
    let done = match name {
        "flood_all_to_all" => flood_all_to_all(&job),
        "large_both_ways" => large_both_ways(&job),
        "many_threads" => many_threads(&job),
        "window_dropped_under_fire" => window_dropped_under_fire(&job),
        "who_dropped_the_window_is_named" => who_dropped_the_window_is_named(&job),
        "target_dies_under_fire" => target_dies_under_fire(&job),
        "groups_end_after_a_death" => messages::groups_end_after_a_death(&job),
        "fences_end_after_a_death" => messages::fences_end_after_a_death(&job),
        "a_shrunk_team_goes_on" => a_shrunk_team_goes_on(&job),
        "who_waits_for_a_lock_answers" => who_waits_for_a_lock_answers(&job),
        "futures_let_windows_go" => futures_let_windows_go(&job),
        "windows_come_and_go" => windows_come_and_go(&job),
        "settings_differ" => settings_differ(&job),
        "memory_stays_flat" => memory_stays_flat(&job),
        other => panic!("no case {other}"),
    };
    done.unwrap_or_else(|e| panic!("{name}, rank {me}: {e}"));
    if !name.contains("_die") && !name.contains("_death") && name != "a_shrunk_team_goes_on" {
        job.finish().expect("leaving the job");
    }
    println!("well");
}

/// One rank has another bound: all are told which one, and no window comes of it.
fn settings_differ(job: &Job) -> Result<()> {
    let error = Window::<u64>::allocate(job.team(), 1).expect_err("a refusal").to_string();
    assert!(error.contains("rank 1"), "{error}");
    assert!(error.contains("HITHER_RMA_REDUCE_TEAMS") || job.rank() != Rank(1), "{error}");
    job.team().barrier()
}

fn others(job: &Job) -> impl Iterator<Item = Rank> + Clone {
    let me = job.rank();
    job.team().ranks().filter(move |rank| *rank != me)
}

/// Everybody sends to everybody as fast as it can, and reads in between.
fn flood_all_to_all(job: &Job) -> Result<()> {
    const ROUNDS: u64 = 20_000;
    let window = Window::<u64>::allocate(job.team(), 64)?;
    let epoch = window.fence()?;
    for round in 0..ROUNDS {
        for target in job.team().ranks() {
            epoch.accumulate(target, (round % 64) as usize, Op::Sum, &[round])?;
        }
        if round % 1000 == 0 {
            for target in others(job) {
                let mut seen = [0; 64];
                epoch.get(target, 0, &mut seen)?;
                epoch.fetch_and_op(target, 0, Op::NoOp, 0)?;
            }
        }
    }
    epoch.end()?;
    let mut sum = 0;
    for index in 0..64 {
        sum += window.local().get(index)?;
    }
    assert_eq!(sum, u64::from(job.size()) * (0..ROUNDS).sum::<u64>());
    window.free()
}

/// Rank 1 holds a lock for which all others wait, each in its way, and wants answers of all of them.
fn who_waits_for_a_lock_answers(job: &Job) -> Result<()> {
    const EACH: u64 = 800;
    let locked = Window::<u64>::allocate(job.team(), 1)?;
    let asked = Window::<u64>::builder(job.team()).create(Memory::private([0]))?;
    let (holder, part) = (Rank(1), Rank(0));
    // What rank 1 holds, and what the others want.
    let ways = [
        (Some(LockKind::Exclusive), Some(LockKind::Exclusive)),
        (Some(LockKind::Exclusive), Some(LockKind::Shared)),
        (Some(LockKind::Exclusive), None),
        (Some(LockKind::Shared), Some(LockKind::Exclusive)),
        (None, Some(LockKind::Exclusive)),
    ];
    for (round, (held, wanted)) in (1u64..).zip(ways) {
        let take = |kind: Option<LockKind>| -> Result<Box<dyn FnOnce() -> Result<()> + '_>> {
            Ok(match kind {
                Some(kind) => {
                    let epoch = locked.lock(part, kind)?;
                    Box::new(move || epoch.unlock())
                }
                None => {
                    let epoch = locked.lock_all()?;
                    Box::new(move || epoch.unlock_all())
                }
            })
        };
        if job.rank() != holder {
            job.team().barrier()?;
            take(wanted)?()?;
        } else {
            let unlock = take(held)?;
            job.team().barrier()?;
            let epoch = asked.lock_all()?;
            for _ in 0..EACH {
                for target in others(job) {
                    epoch.fetch_and_op(target, 0, Op::Sum, 1)?;
                }
            }
            for target in others(job) {
                assert_eq!(epoch.fetch_and_op(target, 0, Op::NoOp, 0)?, round * EACH);
            }
            epoch.unlock_all()?;
            unlock()?;
        }
        job.team().barrier()?;
    }
    asked.free()?;
    locked.free()
}

/// Large puts and gets that cross each other.
fn large_both_ways(job: &Job) -> Result<()> {
    const LEN: usize = 1 << 17;
    let window = Window::<u64>::allocate(job.team(), LEN * job.size() as usize)?;
    let me = u64::from(job.rank().0);
    let values: Vec<u64> = (0..LEN as u64).map(|i| i << 8 | me).collect();
    let mut epoch = window.fence()?;
    for target in job.team().ranks() {
        epoch.put(target, LEN * job.rank().index(), &values)?;
    }
    epoch.next()?;
    let mut back = vec![0; LEN];
    for target in job.team().ranks() {
        for origin in job.team().ranks() {
            epoch.get(target, LEN * origin.index(), &mut back)?;
            assert!(back.iter().zip(0u64..).all(|(v, i)| *v == i << 8 | u64::from(origin.0)));
        }
    }
    epoch.end()?;
    window.free()
}

/// Many threads of each process wait for answers at the same time.
fn many_threads(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let epoch = window.lock_all()?;
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (epoch, ranks) = (&epoch, job.team().ranks());
            scope.spawn(move || {
                for round in 0..2000u64 {
                    for target in ranks.clone() {
                        epoch.fetch_and_op(target, thread, Op::Sum, round).expect("an update");
                    }
                }
                epoch.flush_all().expect("a flush");
            });
        }
    });
    epoch.unlock_all()?;
    job.team().barrier()?;
    let want = u64::from(job.size()) * (0..2000).sum::<u64>();
    for thread in 0..6 {
        assert_eq!(window.local().get(thread)?, want);
    }
    window.free()
}

/// Rank 1 drops the window while the others send to it; they get errors and go on.
fn window_dropped_under_fire(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 16)?;
    let stays = Window::<u64>::allocate(job.team(), 1)?;
    if job.rank() == Rank(1) {
        std::thread::sleep(Duration::from_millis(20));
        drop(window);
    } else {
        let epoch = window.lock_all()?;
        let began = Instant::now();
        let error = loop {
            let posted = (0..100)
                .try_for_each(|i| epoch.accumulate(Rank(1), i % 16, Op::Sum, &[1]))
                .and_then(|()| epoch.get(Rank(1), 0, &mut [0; 16]))
                .and_then(|()| epoch.flush(Rank(1)));
            if let Err(error) = posted {
                break error;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no error came");
        };
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
        assert!(error.to_string().contains("dropped"), "{error}");
        let other = Rank(2 - job.rank().0);
        epoch.accumulate(other, 0, Op::Sum, &[1])?;
        epoch.flush(other)?;
    }
    let epoch = stays.fence()?;
    epoch.accumulate(Rank(1), 0, Op::Sum, &[1])?;
    epoch.end()?;
    assert!(job.rank() != Rank(1) || stays.local().get(0)? == 3);
    stays.free()
}

/// Rank 1 drops windows in which the others wait for it, and has no other by which to answer them.
fn who_dropped_the_window_is_named(job: &Job) -> Result<()> {
    type Wait = fn(&Window<u64>) -> Result<()>;
    let waits: [(&str, Wait); 6] = [
        ("post", |window| window.post(&[Rank(1)])?.wait()),
        ("start", |window| window.start(&[Rank(1)])?.complete()),
        ("fence", |window| window.fence()?.end()),
        ("operations in a fence", |window| {
            let epoch = window.fence()?;
            epoch.accumulate(Rank(1), 0, Op::Sum, &[1; 16])?;
            epoch.end()
        }),
        ("lock", |window| {
            let epoch = window.lock(Rank(1), LockKind::Exclusive)?;
            epoch.put(Rank(1), 0, &[7])?;
            epoch.unlock()
        }),
        ("lock_all", |window| {
            let epoch = window.lock_all()?;
            epoch.get(Rank(1), 0, &mut [0])?;
            epoch.unlock_all()
        }),
    ];
    for (what, wait) in waits {
        let window = Window::<u64>::allocate(job.team(), 16)?;
        if job.rank() == Rank(1) {
            drop(window);
        } else {
            // What comes before the other's end succeeds.
            let error = loop {
                if let Err(error) = wait(&window) {
                    break error;
                }
            };
            let text = error.to_string();
            assert!(matches!(error, Error::Misuse { .. }), "{what}: {text}");
            assert!(text.contains("rank 1 has dropped the window"), "{what}: {text}");
            assert!(text.contains("Window::free"), "{what}: {text}");
        }
        job.team().barrier()?;
    }
    Ok(())
}

/// After a death in the middle of epochs the survivors make a window of theirs, and use it while the
/// old one is still there.
fn a_shrunk_team_goes_on(job: &Job) -> Result<()> {
    let me = job.rank();
    let old = Window::<u64>::allocate(job.team(), 16)?;
    let fence = old.fence();
    if me == Rank(1) {
        // SAFETY: ends this process.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let ended = fence.and_then(|fence| {
        let given = fence.accumulate(Rank(1), 0, Op::Sum, &[1]);
        given.and(fence.end())
    });
    let error = ended.expect_err("a member has died");
    assert!(error.is_death(), "{error}");
    let team = job.team().shrink()?;
    let (size, rank) = (team.size(), team.rank());
    let new = Window::<u64>::allocate(&team, 16)?;
    for round in 0..20 {
        let epoch = new.fence()?;
        for target in team.ranks() {
            epoch.accumulate(target, 0, Op::Sum, &[1])?;
        }
        epoch.end()?;
        let (to, from) = (Rank((rank.0 + 1) % size), Rank((rank.0 + size - 1) % size));
        let exposure = new.post(&[from])?;
        let access = new.start(&[to])?;
        access.put(to, 1, &[round])?;
        access.complete()?;
        exposure.wait()?;
        assert_eq!(new.local().get(1)?, round);
        let lock = new.lock(to, LockKind::Exclusive)?;
        lock.accumulate(to, 2, Op::Sum, &[1])?;
        lock.unlock()?;
        // In the old one locks go on.
        let other = Rank([2, 1, 3, 0][me.index()]);
        let lock = old.lock(other, LockKind::Exclusive)?;
        lock.accumulate(other, 3, Op::Sum, &[1])?;
        lock.unlock()?;
    }
    team.barrier()?;
    let part = new.local();
    assert_eq!([part.get(0)?, part.get(2)?, old.local().get(3)?], [20 * u64::from(size), 20, 20]);
    team.barrier()
}

/// Rank 1 is killed while the others send to it.
fn target_dies_under_fire(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1 << 12)?;
    let epoch = window.lock_all()?;
    if job.rank() == Rank(1) {
        std::thread::sleep(Duration::from_millis(30));
        // SAFETY: ends this process.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let mut large = vec![0; 1 << 12];
    let began = Instant::now();
    let error = loop {
        let posted = (0..500)
            .try_for_each(|i| epoch.accumulate(Rank(1), i, Op::Sum, &[1]))
            .and_then(|()| epoch.get(Rank(1), 0, &mut large))
            .and_then(|()| epoch.flush(Rank(1)));
        if let Err(error) = posted {
            break error;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no error came");
    };
    assert!(error.is_death(), "{error}");
    // The living go on.
    let other = Rank([2, 1, 3, 0][job.rank().index()]);
    epoch.accumulate(other, 0, Op::Sum, &[1])?;
    epoch.flush(other)?;
    job.team().shrink()?.barrier()
}

type Owned = (Window<u64>, Request<Vec<u64>>);

/// What a future that is woken owns: it goes where it is woken, in the thread that makes progress,
/// which does not mind the panic.
struct Owner {
    owned: Mutex<Option<Owned>>,
    woken: AtomicBool,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.owned.lock().unwrap().take());
        self.woken.store(true, Ordering::Release);
        panic!("of a future, which is no business of the others");
    }
}

/// The last window goes in the progress thread, which ends with it and is started again.
fn futures_let_windows_go(job: &Job) -> Result<()> {
    let mut in_thread = 0;
    for _ in 0..30 {
        let window = Window::<u64>::allocate(job.team(), 512)?;
        job.team().barrier()?;
        if job.rank() == Rank(0) {
            window.unguarded().lock_all(Assertions::default())?;
            let mut request = window.unguarded().epoch(Rank(1))?.get_request(Rank(1), 0, 512)?;
            let owner = Owner { owned: Mutex::new(None), woken: AtomicBool::new(false) };
            let owner = Arc::new(owner);
            let waker = Waker::from(owner.clone());
            let mut owned = owner.owned.lock().unwrap();
            let polled = Pin::new(&mut request).poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                *owned = Some((window, request));
                drop(owned);
                in_thread += 1;
                let began = Instant::now();
                while !owner.woken.load(Ordering::Acquire) {
                    assert!(began.elapsed() < Duration::from_secs(60), "the future never wakes");
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
        job.team().barrier()?;
    }
    assert!(job.rank() != Rank(0) || in_thread > 0, "every answer came at once");
    Ok(())
}

/// The first window starts what the last one ends, many times over.
fn windows_come_and_go(job: &Job) -> Result<()> {
    for round in 0..60 {
        let window = Window::<u32>::allocate(job.team(), 4)?;
        let second =
            (round % 3 == 0).then(|| Window::<u32>::allocate(job.team(), 4)).transpose()?;
        for window in second.iter().chain([&window]) {
            let epoch = window.fence()?;
            for target in job.team().ranks() {
                epoch.accumulate(target, 1, Op::Sum, &[round])?;
            }
            epoch.end()?;
            assert_eq!(window.local().get(1)?, job.size() * round);
        }
        drop(window);
        job.team().barrier()?;
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "the progress thread has ended");
    Ok(())
}

/// One epoch posts very many operations to a target that is seldom in the library. Neither side's
/// memory grows with their number: what is under way is bounded by pools and inboxes.
fn memory_stays_flat(job: &Job) -> Result<()> {
    let operations: u64 = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };
    /// More than the pools and both inboxes, far less than the operations would take.
    const ROOM: u64 = 8 << 20;
    let window = Window::<u64>::allocate(job.team(), 64)?;
    let done = Window::<u64>::allocate(job.team(), 1)?;
    let epoch = window.lock_all()?;
    if job.rank() == Rank(0) {
        let mut warm = 0;
        for i in 0..operations {
            epoch.accumulate(Rank(1), (i % 64) as usize, Op::Sum, &[1])?;
            if i == operations / 100 {
                warm = resident();
            }
        }
        let grown = resident().saturating_sub(warm);
        let counters = window.packet_counters();
        let value = |name| counters.iter().find(|(n, _)| *n == name).expect("a counter").1;
        // The defaults of HITHER_RMA_OPERATIONS and HITHER_RMA_OUTSTANDING.
        assert!(value("most_operations") <= 1024, "{counters:?}");
        assert!(value("most_outstanding") <= 1024, "{counters:?}");
        assert!(value("pool_bytes") < 4 << 20, "{counters:?}");
        assert!(value("blocked") > 0, "the target was not slow: {counters:?}");
        epoch.flush(Rank(1))?;
        println!("     {operations} operations: {grown} bytes more than after 1 % of them");
        assert!(grown < ROOM, "memory grew by {grown} bytes");
        let epoch = done.lock_all()?;
        epoch.put(Rank(1), 0, &[1])?;
        epoch.flush(Rank(1))?;
    } else {
        let before = resident();
        let began = Instant::now();
        // Long enough for the origin to find that nothing is taken, whatever else the machine does.
        std::thread::sleep(Duration::from_secs(2));
        while done.local().get(0)? == 0 {
            // Busy elsewhere; a call now and then.
            std::thread::sleep(Duration::from_micros(200));
            epoch.flush_all()?;
            assert!(began.elapsed() < Duration::from_secs(250), "it takes for ever");
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < ROOM, "the target's memory grew by {grown} bytes");
        let sum: u64 = (0..64).map(|i| window.local().get(i)).sum::<Result<u64>>()?;
        assert_eq!(sum, operations);
    }
    epoch.unlock_all()?;
    job.team().barrier()
}

/// Bytes of physical memory at the most so far.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}
