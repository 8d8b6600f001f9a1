//! Windows over memory that members bring along, and what becomes of memory when windows go.

use super::Written;
use super::kinds::{direct, exercise, is_last, next, previous};
use hither::rma::Memory;
use hither::{Error, Job, Op, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("create_over_shared_memory", create_shared),
    ("create_over_parts_of_one_memory", create_parts),
    ("create_over_private_memory", create_private),
    ("create_over_raw_memory", create_raw),
    ("create_over_mixed_memory", create_mixed),
    ("create_without_memory", create_empty),
    ("memory_outlives_its_handle_in_a_window", memory_kept),
    ("memory_comes_back", memory_back),
    ("two_windows_over_one_memory", two_windows),
    ("windows_of_every_kind_give_everything_back", everything_back),
    ("too_large_of_every_kind", too_large),
    ("free_with_operations_in_flight", free_in_flight),
    ("drop_with_operations_in_flight", drop_in_flight),
];

fn create_shared(job: &Job) -> Result<()> {
    let len_of = |rank: Rank| 10 + 1000 * (rank.index() % 3);
    let memory = Memory::<u64>::shared(job.team(), len_of(job.rank()))?;
    let address = memory.as_ptr().addr() as u64;
    assert!(memory.is_shared());
    let window = Window::builder(job.team()).create(memory)?;
    exercise(job, &window, len_of)?;
    if direct(&window) {
        let mut addresses = vec![0; job.size() as usize];
        job.team().allgather(&[address], &mut addresses)?;
        for rank in job.team().ranks() {
            let there = window.part(rank)?.as_ptr().addr() as u64;
            assert_eq!(there, addresses[rank.index()], "not at one address everywhere");
        }
    }
    window.free()
}

fn create_parts(job: &Job) -> Result<()> {
    let memory = Memory::<u64>::shared(job.team(), 300)?;
    memory.write(0, &[9; 300])?;
    let middle = memory.part(100, 200)?;
    let window = Window::builder(job.team()).create(middle)?;
    assert_eq!(window.len(), 100);
    exercise(job, &window, |_| 100)?;
    let mut all = vec![0; 300];
    memory.read(0, &mut all)?;
    assert!(all[..100].iter().chain(&all[200..]).all(|v| *v == 9), "written beside the part");
    window.free()
}

fn create_private(job: &Job) -> Result<()> {
    let memory = Memory::private(vec![5u64; 40 + job.rank().index()]);
    assert!(!memory.is_shared());
    let window = Window::builder(job.team()).create(memory)?;
    exercise(job, &window, |rank| 40 + rank.index())?;
    if job.size() > 1 {
        assert!(matches!(window.part(next(job)), Err(Error::Misuse { .. })));
    }
    window.free()
}

fn create_raw(job: &Job) -> Result<()> {
    let mut mine = vec![1u64; 64];
    // SAFETY: the vector outlives the window, which is freed below, and is not touched meanwhile.
    let memory = unsafe { Memory::raw(mine.as_mut_ptr(), mine.len())? };
    let window = Window::builder(job.team()).create(memory)?;
    exercise(job, &window, |_| 64)?;
    let epoch = window.lock_all()?;
    epoch.put(next(job), 63, &[u64::from(job.rank().0) + 50])?;
    epoch.flush_all()?;
    epoch.unlock_all()?;
    window.free()?;
    assert_eq!(mine[63], u64::from(previous(job).0) + 50);
    Ok(())
}

fn create_mixed(job: &Job) -> Result<()> {
    let memory = match job.rank().0 % 3 {
        0 => Memory::shared(job.team(), 33)?,
        1 => Memory::private(vec![0u64; 33]),
        _ => Memory::private(Vec::new()),
    };
    let len_of = |rank: Rank| if rank.0 % 3 < 2 { 33 } else { 0 };
    let window = Window::builder(job.team()).create(memory)?;
    exercise(job, &window, len_of)?;
    let epoch = window.lock_all()?;
    for target in job.team().ranks().filter(|rank| len_of(*rank) > 0) {
        for _ in 0..50 {
            epoch.accumulate(target, 5, Op::Sum, &[1, 1])?;
        }
        epoch.flush(target)?;
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    if len_of(job.rank()) > 0 {
        // On top of what the last turn put there.
        let first = window.local().get(5)?;
        let origin = next(job);
        let last = if job.size() == 1 { job.rank() } else { origin };
        let put = u64::from(last.0) << 48 | u64::from(job.rank().0) << 32 | 6;
        assert_eq!(first - put, 50 * u64::from(job.size()));
    }
    window.free()
}

fn create_empty(job: &Job) -> Result<()> {
    let window = Window::builder(job.team()).create(Memory::<u64>::shared(job.team(), 0)?)?;
    exercise(job, &window, |_| 0)?;
    window.free()?;
    let one = Memory::<u64>::shared(job.team(), 512)?;
    // Its end is where other memory begins.
    let window = Window::builder(job.team()).create(one.part(512, 512)?)?;
    exercise(job, &window, |_| 0)?;
    window.free()
}

fn memory_kept(job: &Job) -> Result<()> {
    let before = in_use(job)?;
    let memory = Memory::<u64>::shared(job.team(), 1000)?;
    memory.write(0, &[3; 1000])?;
    let window = Window::builder(job.team()).create(memory)?;
    // Others' memory must not take its place.
    let other = Memory::<u64>::shared(job.team(), 1000)?;
    other.write(0, &[4; 1000])?;
    let epoch = window.lock_all()?;
    let mut there = [0; 1000];
    epoch.get(next(job), 0, &mut there)?;
    epoch.unlock_all()?;
    assert_eq!(there, [3; 1000]);
    drop(other);
    window.free()?;
    assert_back(job, before)
}

fn memory_back(job: &Job) -> Result<()> {
    let memory = Memory::private(vec![0u64; 5]);
    let window = Window::builder(job.team()).create(memory)?;
    let epoch = window.lock_all()?;
    epoch.put(next(job), 2, &[8 + u64::from(job.rank().0)])?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    let memory = window.memory().expect("it was created");
    window.free()?;
    let values = memory.into_vec().expect("nobody else has it");
    assert_eq!(values, [0, 0, 8 + u64::from(previous(job).0), 0, 0]);
    Ok(())
}

fn two_windows(job: &Job) -> Result<()> {
    let before = in_use(job)?;
    let memory = Memory::<u64>::shared(job.team(), 100)?;
    let one = Window::builder(job.team()).create(memory.clone())?;
    let two = Window::builder(job.team()).create(memory.part(50, 100)?)?;
    drop(memory);
    let epoch = one.lock_all()?;
    epoch.put(next(job), 60, &[77])?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    one.free()?;
    assert_eq!(two.local().get(10)?, 77);
    exercise(job, &two, |_| 50)?;
    two.free()?;
    assert_back(job, before)
}

/// Memory in use while nobody makes or frees windows.
pub(super) fn in_use(job: &Job) -> Result<(u64, u64)> {
    job.team().barrier()?;
    let use_now = (job.node().symmetric_in_use()?, job.node().commons_in_use()?);
    job.team().barrier()?;
    Ok(use_now)
}

/// Windows are freed by the last member that drops them, which may be a little later.
pub(super) fn assert_back(job: &Job, before: (u64, u64)) -> Result<()> {
    job.team().barrier()?;
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let now = (job.node().symmetric_in_use()?, job.node().commons_in_use()?);
        if now == before {
            break;
        }
        assert!(std::time::Instant::now() < limit, "{now:?} in use, {before:?} before");
        std::thread::yield_now();
    }
    job.team().barrier()
}

fn everything_back(job: &Job) -> Result<()> {
    let team = job.team();
    let before = in_use(job)?;
    for round in 0..10usize {
        let sizes = |builder: hither::rma::WindowBuilder<'_, u64>| {
            let len = (job.rank().index() * 37 + round * 1000) % 5000;
            builder.different_sizes().allocate(len)
        };
        let memory = Memory::shared(team, 100 * round)?;
        let dynamic = Window::<u64>::builder(team).dynamic()?;
        let attached = Memory::<u64>::shared(team, 10)?;
        dynamic.attach(&attached)?;
        let windows = [
            Window::allocate(team, 100 * round)?,
            sizes(Window::builder(team))?,
            Window::builder(job.node_team()).allocate_shared(1000)?,
            Window::builder(team).create(memory)?,
            Window::builder(team).create(Memory::private(vec![0; 7]))?,
            dynamic,
        ];
        for (i, window) in windows.into_iter().enumerate() {
            if (i + round) % 2 == 0 { window.free()? } else { drop(window) }
        }
    }
    assert_back(job, before)
}

fn too_large(job: &Job) -> Result<()> {
    let team = job.team();
    let before = in_use(job)?;
    let len = 1usize << 50;
    let known = |error: Error| {
        let numbers = matches!(error, Error::OutOfMemory { wanted, .. } if wanted >= 1 << 34);
        assert!(numbers || matches!(error, Error::PeerFailed { .. }), "{error}");
    };
    known(Window::<u64>::builder(team).allocate(len).unwrap_err());
    known(Window::<u64>::builder(team).allocate_shared(len).unwrap_err());
    known(Memory::<u64>::shared(team, len).unwrap_err());
    known(Memory::<u64>::shared(team, usize::MAX).unwrap_err());
    // Too large on one rank only.
    let mine = if is_last(job) { len } else { 1 };
    let one = Window::<u64>::builder(team).different_sizes().allocate(mine);
    known(one.unwrap_err());
    // Each fits, all together do not.
    let part = (job.node().areas().stride / 8) as usize;
    if job.node_team().size() > 1 {
        let all = Window::<u64>::builder(job.node_team()).allocate_shared(part);
        known(all.unwrap_err());
    }
    assert_back(job, before)
}

/// Freeing is collective: what others have begun before they free is done before anybody's free
/// returns.
fn free_in_flight(job: &Job) -> Result<()> {
    for round in 0..20u64 {
        let memory = Memory::<u64>::shared(job.team(), 100)?;
        let window = Window::builder(job.team()).create(memory.clone())?;
        let epoch = window.lock_all()?;
        for k in 0..200 {
            epoch.accumulate(next(job), (k % 100) as usize, Op::Sum, &[round])?;
        }
        epoch.unlock_all()?;
        window.free()?;
        let mut sums = vec![0; 100];
        memory.read(0, &mut sums)?;
        assert_eq!(sums, vec![2 * round; 100]);
    }
    Ok(())
}

/// Dropping is not: a member may be gone while others still use its part.
fn drop_in_flight(job: &Job) -> Result<()> {
    for round in 0..20u64 {
        let memory = Memory::<u64>::shared(job.team(), 64)?;
        memory.write(0, &[round; 64])?;
        let window = Window::builder(job.team()).create(memory)?;
        if !direct(&window) {
            // A part that its owner has dropped cannot be reached by packets.
            return window.free();
        }
        job.team().barrier()?;
        if (u64::from(job.rank().0) + round) % 2 == 0 {
            drop(window);
            continue;
        }
        let epoch = window.lock_all()?;
        for target in job.team().ranks() {
            let mut there = [0; 64];
            epoch.get(target, 0, &mut there)?;
            assert_eq!(there, [round; 64], "rank {target}'s part has gone");
        }
        epoch.unlock_all()?;
    }
    job.team().barrier()
}
