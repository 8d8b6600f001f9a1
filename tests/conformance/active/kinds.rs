//! Messages on windows of every kind.

use crate::Written;
use crate::kinds::lies_apart;
use hither::rma::Memory;
use hither::{Error, Info, Job, Layout, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("am_on_shared_windows", shared),
    ("am_with_other_units", units),
    ("am_on_parts_of_different_sizes", sizes),
    ("am_on_memory_that_was_brought", brought),
    ("am_on_private_memory", private),
    ("am_on_dynamic_windows", dynamic),
];

/// Elements that messages work on.
const COUNT: usize = 4;

/// Every rank sends to every other one, at a displacement of its own; then each looks at its part
/// through `own`.
fn exercise(
    job: &Job,
    window: &Window<u64>,
    start: impl Fn(Rank) -> usize,
    own: impl Fn(usize) -> Result<u64>,
) -> Result<()> {
    let add = window.register::<u64, u64>(1, |call| {
        for i in 0..call.persistent.len() {
            let old = call.persistent.get(i).unwrap_or(u64::MAX);
            let _ = call.persistent.set(i, old + call.input[0]);
        }
        call.output[0] = call.persistent.len() as u64;
    })?;
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let word = Layout::of::<u64>();
    for target in job.team().ranks() {
        let (at, value) = (start(target), u64::from(job.rank().0) + 1);
        let mut count = [0];
        epoch.am(&add, target, at..at + COUNT, &[value], &mut count)?;
        assert_eq!(count, [COUNT as u64]);
        // Every second element, and the first one again.
        let half = word.resized(0, 16)?;
        let message = epoch.message(&add, target).persistent_layout(at, half.times(COUNT / 2));
        message.input(&[value]).output(&mut count).run()?;
        assert_eq!(count, [COUNT as u64 - 1], "from the first to the last that is named");
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let all = u64::from(job.size()) * u64::from(job.size() + 1) / 2;
    for i in 0..COUNT {
        let times = if i + 1 < COUNT { 2 } else { 1 };
        assert_eq!(own(i)?, times * all, "element {i}");
    }
    job.team().barrier()
}

fn shared(job: &Job) -> Result<()> {
    if lies_apart(job)? {
        return Ok(());
    }
    for alloc_shared_noncontig in [false, true] {
        let info = Info { alloc_shared_noncontig, ..Info::default() };
        let window = Window::<u64>::builder(job.team()).info(info).allocate_shared(10)?;
        exercise(job, &window, |_| 5, |i| window.local().get(5 + i))?;
        window.free()?;
    }
    Ok(())
}

fn units(job: &Job) -> Result<()> {
    for unit in [8, 16, 24] {
        let window = Window::<u64>::builder(job.team()).unit(unit).allocate(40)?;
        let at = 48 / unit;
        exercise(job, &window, |_| at, |i| window.local().get(6 + i))?;
        let touch = window.register::<u64, u64>(2, |_| {})?;
        let epoch = window.lock_all()?;
        let beyond = epoch.message(&touch, job.rank()).persistent(320 / unit - 1..9999);
        assert!(beyond.run().is_err());
        epoch.unlock_all()?;
        window.free()?;
    }
    Ok(())
}

fn sizes(job: &Job) -> Result<()> {
    let len = |rank: Rank| 10 + 100 * (rank.index() % 3);
    let builder = Window::<u64>::builder(job.team()).different_sizes();
    let window = builder.allocate(len(job.rank()))?;
    let start = |rank| len(rank) - COUNT;
    exercise(job, &window, start, |i| window.local().get(start(job.rank()) + i))?;
    window.free()
}

fn brought(job: &Job) -> Result<()> {
    let memory = Memory::<u64>::shared(job.team(), 30 + job.rank().index())?;
    let window = Window::builder(job.team()).create(memory)?;
    exercise(job, &window, |rank| rank.index(), |i| window.local().get(job.rank().index() + i))?;
    window.free()
}

fn private(job: &Job) -> Result<()> {
    let window = Window::builder(job.team()).create(Memory::private(vec![0u64; 20]))?;
    exercise(job, &window, |_| 3, |i| window.local().get(3 + i))?;
    window.free()
}

fn dynamic(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 50)?;
    let attached = window.attach(&memory)?;
    let mut there = vec![0u64; job.size() as usize];
    job.team().allgather(&[attached.address], &mut there)?;
    let start = |rank: Rank| there[rank.index()] as usize + 8 * 7;
    let own = |i: usize| {
        let mut got = [0];
        memory.read(7 + i, &mut got).map(|()| got[0])
    };
    exercise(job, &window, start, own)?;
    let touch = window.register::<u64, u64>(2, |_| {})?;
    let epoch = window.lock_all()?;
    let odd = start(job.rank()) + 1;
    let odd = epoch.message(&touch, job.rank()).persistent(odd..odd + 1).run();
    assert!(matches!(odd, Err(Error::InvalidArgument { .. })), "{odd:?}");
    job.team().barrier()?;
    window.detach(attached)?;
    job.team().barrier()?;
    let gone =
        epoch.message(&touch, job.rank()).persistent(start(job.rank())..start(job.rank()) + 1);
    let gone = gone.run();
    assert!(gone.is_err(), "{gone:?}");
    epoch.unlock_all()?;
    window.free()
}
