//! Kinds of windows: where parts lie, how large they are, what displacements count, what comes and
//! goes.

use super::Written;
use hither::rma::info::Medium;
use hither::rma::{Attached, Flavour, Info, Memory, Model};
use hither::{Error, Job, Op, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("sizes_that_differ_by_rank", differing_sizes),
    ("sizes_of_zero_on_some_ranks", zero_sizes),
    ("all_sizes_zero", all_zero),
    ("sizes_that_differ_need_to_be_announced", unannounced_sizes),
    ("units_in_bytes", byte_units),
    ("units_larger_than_an_element", large_units),
    ("units_that_differ_by_rank", differing_units),
    ("units_that_cannot_be", bad_units),
    ("displacements_that_overflow", overflowing),
    ("promises_of_same_size_are_checked", broken_same_size),
    ("promises_of_same_unit_are_checked", broken_same_unit),
    ("hints_must_agree", hints_differ),
    ("kinds_must_agree", kinds_differ),
    ("attributes_of_every_kind", attributes),
    ("shared_parts_follow_each_other", shared_contiguous),
    ("shared_parts_apart", shared_apart),
    ("shared_with_one_part_only", shared_one_part),
    ("queries_of_windows_that_are_not_shared", query_misuse),
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
    ("attach_and_detach", attach_detach),
    ("attach_what_cannot_be", attach_misuse),
    ("operations_beside_attachments", beside_attachments),
    ("thousands_of_attachments", many_attachments),
    ("attachments_come_and_go_under_operations", churn),
    ("attached_private_memory", attached_private),
    ("attached_memory_outlives_its_handle", attached_kept),
    ("free_with_operations_in_flight", free_in_flight),
    ("drop_with_operations_in_flight", drop_in_flight),
    ("windows_on_parts_of_the_team", on_split_teams),
];

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

fn direct<T: hither::Datum>(window: &Window<T>) -> bool {
    window.info().medium == Medium::Auto
}

/// Everybody writes to, and reads from, every element of everybody's part, in turn.
fn exercise(job: &Job, window: &Window<u64>, len_of: impl Fn(Rank) -> usize) -> Result<()> {
    let mut epoch = window.fence()?;
    let value = |from: Rank, to: Rank, i: usize| {
        u64::from(from.0) << 48 | u64::from(to.0) << 32 | (i as u64 + 1)
    };
    for turn in 0..job.size() {
        let target = Rank((job.rank().0 + turn) % job.size());
        let origin = Rank((job.rank().0 + job.size() - turn) % job.size());
        let len = len_of(target);
        let data: Vec<u64> = (0..len).map(|i| value(job.rank(), target, i)).collect();
        epoch.put(target, 0, &data)?;
        epoch.next()?;
        let mut back = vec![0; len];
        epoch.get(target, 0, &mut back)?;
        let mine: Vec<u64> =
            (0..len_of(job.rank())).map(|i| value(origin, job.rank(), i)).collect();
        let mut here = vec![0; mine.len()];
        if window.attributes().flavour != Flavour::Dynamic {
            window.local().read(0, &mut here)?;
            assert_eq!(here, mine, "turn {turn}");
        }
        epoch.next()?;
        assert_eq!(back, data, "turn {turn}");
        assert!(epoch.put(target, len, &[1]).is_err(), "beyond {len}");
        assert!(epoch.get(target, len, &mut [1]).is_err(), "beyond {len}");
        epoch.put(target, len, &[])?;
        epoch.next()?;
    }
    epoch.end()
}

fn differing_sizes(job: &Job) -> Result<()> {
    let len_of = |rank: Rank| 3 + 700 * rank.index();
    let window =
        Window::<u64>::builder(job.team()).different_sizes().allocate(len_of(job.rank()))?;
    assert_eq!(window.len(), len_of(job.rank()));
    for rank in job.team().ranks() {
        assert_eq!(window.len_of(rank)?, len_of(rank));
    }
    exercise(job, &window, len_of)?;
    window.free()
}

fn zero_sizes(job: &Job) -> Result<()> {
    for odd in [0, 1] {
        let len_of = |rank: Rank| if rank.0 % 2 == odd { 0 } else { 5000 };
        let window =
            Window::<u64>::builder(job.team()).different_sizes().allocate(len_of(job.rank()))?;
        assert_eq!(window.is_empty(), len_of(job.rank()) == 0);
        exercise(job, &window, len_of)?;
        window.free()?;
    }
    Ok(())
}

fn all_zero(job: &Job) -> Result<()> {
    let one = Window::<u64>::builder(job.team()).different_sizes().allocate(0)?;
    let two = Window::<u64>::builder(job.team()).allocate_shared(0)?;
    for window in [one, two] {
        exercise(job, &window, |_| 0)?;
        window.free()?;
    }
    Ok(())
}

/// Only the last rank's call differs: it gets the reason, the others hear that it failed.
fn only_last_differs<T>(job: &Job, what: &str, outcome: Result<T>) {
    let odd_one = Rank(job.size() - 1);
    match outcome {
        Ok(_) => assert_eq!(job.size(), 1, "{what}"),
        Err(Error::Mismatch { a, b, .. }) => {
            assert_eq!((a, b, job.rank()), (Rank(0), odd_one, odd_one), "{what}");
        }
        Err(Error::PeerFailed { rank, .. }) => {
            assert_eq!(rank, odd_one, "{what}");
            assert_ne!(job.rank(), odd_one, "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn is_last(job: &Job) -> bool {
    job.rank().0 + 1 == job.size()
}

fn unannounced_sizes(job: &Job) -> Result<()> {
    let len = 10 + usize::from(is_last(job));
    only_last_differs(job, "allocate", Window::<u16>::builder(job.team()).allocate(len));
    only_last_differs(job, "shared", Window::<u16>::builder(job.team()).allocate_shared(len));
    job.team().barrier()
}

fn byte_units(job: &Job) -> Result<()> {
    let window = Window::<u8>::builder(job.team()).unit(1).allocate(4096)?;
    let wide = Window::<u32>::builder(job.team()).unit(4).allocate(1024)?;
    assert_eq!((window.attributes().unit, wide.attributes().unit), (1, 4));
    let mut epoch = wide.fence()?;
    epoch.put(next(job), 1023, &[7])?;
    epoch.next()?;
    assert_eq!(wide.local().get(1023)?, 7);
    assert!(epoch.put(next(job), 1024, &[7]).is_err());
    epoch.end()?;
    window.free()?;
    wide.free()
}

fn large_units(job: &Job) -> Result<()> {
    const RECORD: usize = 24;
    let window = Window::<u32>::builder(job.team()).unit(RECORD).allocate(6 * 100)?;
    let mut epoch = window.fence()?;
    for record in [0, 1, 50, 99] {
        epoch.put(next(job), record, &[job.rank().0 + 1, record as u32])?;
        epoch.next()?;
        let mut there = [0; 3];
        window.local().read(record * RECORD / 4, &mut there)?;
        assert_eq!(there, [previous(job).0 + 1, record as u32, 0]);
        epoch.next()?;
    }
    epoch.put(next(job), 99, &[1; 6])?;
    assert!(matches!(epoch.put(next(job), 99, &[1; 7]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(epoch.put(next(job), 100, &[1]), Err(Error::OutOfBounds { .. })));
    epoch.put(next(job), 100, &[])?;
    epoch.end()?;
    window.free()
}

fn differing_units(job: &Job) -> Result<()> {
    let unit_of = |rank: Rank| 8 * (1 + rank.index() % 3);
    let window = Window::<u64>::builder(job.team()).unit(unit_of(job.rank())).allocate(60)?;
    assert_eq!(window.attributes().unit, unit_of(job.rank()));
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        let last = 480 / unit_of(target) - 1;
        let step = unit_of(target) / 8;
        epoch.accumulate(target, last, Op::Sum, &[1])?;
        epoch.accumulate(target, 1, Op::Sum, &vec![1; step])?;
        assert!(epoch.accumulate(target, last + 1, Op::Sum, &[1]).is_err());
        assert!(epoch.fetch_and_op(target, last + 1, Op::Sum, 1).is_err());
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let step = unit_of(job.rank()) / 8;
    let all = u64::from(job.size());
    for i in 0..60 {
        let want = if (step..2 * step).contains(&i) || i == 60 - step { all } else { 0 };
        assert_eq!(window.local().get(i)?, want, "element {i} of units of {step}");
    }
    window.free()
}

fn bad_units(job: &Job) -> Result<()> {
    for unit in [0, 1, 4, 12, 1 << 33] {
        let error = Window::<u64>::builder(job.team()).unit(unit).allocate(4).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{unit}: {error}");
        let error = Window::<u64>::builder(job.team()).unit(unit).allocate_shared(4).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{unit}: {error}");
    }
    let unit = if is_last(job) { 3 } else { 8 };
    match Window::<u64>::builder(job.team()).unit(unit).allocate(4) {
        Err(Error::InvalidArgument { .. }) => assert!(is_last(job)),
        Err(Error::PeerFailed { rank, .. }) => assert_eq!(rank.0 + 1, job.size()),
        other => panic!("{other:?}"),
    }
    job.team().barrier()
}

fn overflowing(job: &Job) -> Result<()> {
    let plain = Window::<u64>::allocate(job.team(), 16)?;
    let units = Window::<u64>::builder(job.team()).unit(24).allocate(15)?;
    let sizes = Window::<u64>::builder(job.team()).different_sizes().allocate(16)?;
    for window in [plain, units, sizes] {
        let epoch = window.lock_all()?;
        for start in [usize::MAX, usize::MAX / 8, usize::MAX / 8 + 1, usize::MAX / 24 + 1, 1 << 60]
        {
            for target in [job.rank(), next(job)] {
                assert!(epoch.put(target, start, &[1]).is_err(), "{start}");
                assert!(epoch.put(target, start, &[]).is_err(), "{start}");
                assert!(epoch.get(target, start, &mut [1, 2]).is_err(), "{start}");
                assert!(epoch.compare_and_swap(target, start, 0, 1).is_err(), "{start}");
            }
        }
        assert!(epoch.put(Rank(job.size()), 0, &[1]).is_err());
        epoch.unlock_all()?;
        window.free()?;
    }
    Ok(())
}

fn broken_same_size(job: &Job) -> Result<()> {
    let promise = Info { same_size: true, ..Info::default() };
    let len = if is_last(job) { 9 } else { 8 };
    let build = || Window::<u8>::builder(job.team()).info(promise);
    only_last_differs(job, "allocate", build().different_sizes().allocate(len));
    only_last_differs(job, "shared", build().different_sizes().allocate_shared(len));
    only_last_differs(job, "create", build().create(Memory::private(vec![0; len])));
    build().different_sizes().allocate(8)?.free()
}

fn broken_same_unit(job: &Job) -> Result<()> {
    let promise = Info { same_disp_unit: true, ..Info::default() };
    let unit = if is_last(job) { 4 } else { 2 };
    let build = || Window::<u16>::builder(job.team()).info(promise).unit(unit);
    only_last_differs(job, "allocate", build().allocate(8));
    only_last_differs(job, "create", build().create(Memory::private(vec![0; 8])));
    job.team().barrier()
}

fn hints_differ(job: &Job) -> Result<()> {
    let changes: [(&str, &str); 6] = [
        ("accumulate_ordering", "none"),
        ("accumulate_ops", "same_op"),
        ("same_size", "true"),
        ("same_disp_unit", "true"),
        ("no_locks", "true"),
        ("alloc_shared_noncontig", "true"),
    ];
    for (key, value) in changes {
        let mut info = Info::default();
        if is_last(job) {
            assert!(info.set(key, value)?);
        }
        only_last_differs(job, key, Window::<u8>::builder(job.team()).info(info).allocate(1));
        let mut info = Info::default();
        assert!(info.set(key, value)?);
        let window = Window::<u8>::builder(job.team()).info(info).allocate(1)?;
        assert_eq!(Info { medium: info.medium, ..window.info() }, info);
        window.free()?;
    }
    Ok(())
}

fn kinds_differ(job: &Job) -> Result<()> {
    let builder = Window::<u8>::builder(job.team());
    let outcome = if is_last(job) { builder.allocate_shared(8) } else { builder.allocate(8) };
    let alone = job.size() == 1;
    assert_eq!(outcome.is_ok(), alone);
    drop(outcome);
    let builder = Window::<u8>::builder(job.team());
    let outcome = if is_last(job) { builder.dynamic() } else { builder.allocate(0) };
    only_last_differs(job, "dynamic", outcome);
    let builder = Window::<u8>::builder(job.team());
    let builder = if is_last(job) { builder.different_sizes() } else { builder };
    only_last_differs(job, "sizes", builder.allocate(8));
    job.team().barrier()
}

fn attributes(job: &Job) -> Result<()> {
    let team = job.team();
    let memory = Memory::<u32>::shared(team, 6)?;
    let base = memory.as_ptr().addr();
    let windows = [
        (Flavour::Allocate, Window::<u32>::allocate(team, 6)?, 24, 4),
        (Flavour::Shared, Window::builder(team).unit(8).allocate_shared(6)?, 24, 8),
        (Flavour::Create, Window::builder(team).unit(12).create(memory)?, 24, 12),
        (Flavour::Dynamic, Window::builder(team).dynamic()?, 0, 1),
    ];
    for (flavour, window, size, unit) in windows {
        let found = window.attributes();
        assert_eq!((found.flavour, found.model), (flavour, Model::Unified));
        assert_eq!((found.size, found.unit), (size, unit), "{flavour:?}");
        match flavour {
            Flavour::Dynamic => assert_eq!(found.base, 0),
            Flavour::Create => assert_eq!(found.base, base),
            _ => assert_eq!(found.base, window.local().as_ptr().addr()),
        }
        assert_eq!(window.memory().is_some(), flavour == Flavour::Create);
        window.free()?;
    }
    Ok(())
}

fn shared_contiguous(job: &Job) -> Result<()> {
    let len_of = |rank: Rank| [5, 0, 1200, 3][rank.index() % 4];
    let window =
        Window::<u64>::builder(job.team()).different_sizes().allocate_shared(len_of(job.rank()))?;
    exercise(job, &window, len_of)?;
    if direct(&window) {
        let all = window.query_all()?;
        let mut before = 0;
        for rank in job.team().ranks() {
            let part = window.query(rank)?;
            assert_eq!(part.len(), len_of(rank));
            assert_eq!(part.as_ptr(), all.as_ptr().wrapping_add(before));
            before += part.len();
        }
        assert_eq!(all.len(), before);
        job.team().barrier()?;
        window.local().write(0, &vec![u64::from(job.rank().0) + 7; len_of(job.rank())])?;
        job.team().barrier()?;
        let mut seen = vec![0; all.len()];
        all.read(0, &mut seen)?;
        let want: Vec<u64> =
            job.team().ranks().flat_map(|rank| vec![u64::from(rank.0) + 7; len_of(rank)]).collect();
        assert_eq!(seen, want);
    }
    window.free()
}

fn shared_apart(job: &Job) -> Result<()> {
    let info = Info { alloc_shared_noncontig: true, ..Info::default() };
    let len_of = |rank: Rank| 100 + rank.index();
    let window = Window::<u64>::builder(job.team())
        .info(info)
        .different_sizes()
        .allocate_shared(len_of(job.rank()))?;
    exercise(job, &window, len_of)?;
    assert_eq!(window.local().as_ptr().addr() % 4096, 0, "a part does not begin a page");
    assert!(matches!(window.query_all(), Err(Error::Misuse { .. })));
    if direct(&window) {
        assert_eq!(window.query(next(job))?.len(), len_of(next(job)));
    }
    window.free()
}

fn shared_one_part(job: &Job) -> Result<()> {
    let owner = Rank(job.size() / 2);
    let len = if job.rank() == owner { 777 } else { 0 };
    let window = Window::<u64>::builder(job.team()).different_sizes().allocate_shared(len)?;
    if direct(&window) {
        let found = window.query(None)?;
        assert_eq!(found.len(), 777);
        assert_eq!(found.as_ptr(), window.query(owner)?.as_ptr());
        assert_eq!(window.query_all()?.len(), 777);
        found.fetch_and_op(776, Op::Sum, 1)?;
        job.team().barrier()?;
        assert_eq!(found.get(776)?, u64::from(job.size()));
        job.team().barrier()?;
    }
    exercise(job, &window, |rank| if rank == owner { 777 } else { 0 })?;
    window.free()
}

fn query_misuse(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    assert!(matches!(window.query(job.rank()), Err(Error::Misuse { .. })));
    assert!(matches!(window.query_all(), Err(Error::Misuse { .. })));
    let shared = Window::<u64>::builder(job.team()).allocate_shared(1)?;
    assert!(shared.query(Rank(job.size())).is_err());
    shared.free()?;
    window.free()
}

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
fn in_use(job: &Job) -> Result<(u64, u64)> {
    job.team().barrier()?;
    let use_now = (job.node().symmetric_in_use()?, job.node().commons_in_use()?);
    job.team().barrier()?;
    Ok(use_now)
}

/// Windows are freed by the last member that drops them, which may be a little later.
fn assert_back(job: &Job, before: (u64, u64)) -> Result<()> {
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
            Window::builder(team).allocate_shared(1000)?,
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
    if job.size() > 1 {
        let all = Window::<u64>::builder(team).allocate_shared(part);
        known(all.unwrap_err());
    }
    assert_back(job, before)
}

fn exchange(job: &Job, attached: Attached) -> Result<Vec<usize>> {
    let mut all = vec![0u64; job.size() as usize];
    job.team().allgather(&[attached.address], &mut all)?;
    Ok(all.into_iter().map(|address| address as usize).collect())
}

fn attach_detach(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 50)?;
    let epoch = window.lock_all()?;
    for round in 0..5u64 {
        let attached = window.attach(&memory)?;
        assert_eq!(attached.bytes, 400);
        let there = exchange(job, attached)?;
        epoch.put(next(job), there[next(job).index()] + 8 * 7, &[round + 100])?;
        epoch.accumulate(next(job), there[next(job).index()] + 8 * 7, Op::Sum, &[1])?;
        epoch.flush_all()?;
        job.team().barrier()?;
        let mut got = [0];
        memory.read(7, &mut got)?;
        assert_eq!(got, [round + 101]);
        let mut got = [0; 2];
        epoch.get(next(job), there[next(job).index()] + 8 * 6, &mut got)?;
        assert_eq!(got, [0, round + 101]);
        job.team().barrier()?;
        window.detach(attached)?;
        assert!(matches!(window.detach(attached), Err(Error::Misuse { .. })));
        job.team().barrier()?;
        let refused = epoch.put(next(job), there[next(job).index()], &[1]);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        job.team().barrier()?;
    }
    epoch.unlock_all()?;
    window.free()
}

fn attach_misuse(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 64)?;
    let part = |from, to| memory.part(from, to);
    let middle = window.attach(&part(16, 32)?)?;
    for (from, to) in [(16, 32), (0, 64), (0, 17), (31, 64), (20, 21), (0, 32), (16, 64)] {
        let refused = window.attach(&part(from, to)?);
        assert!(matches!(refused, Err(Error::Misuse { .. })), "{from}..{to}: {refused:?}");
    }
    let low = window.attach(&part(0, 16)?)?;
    let high = window.attach(&part(32, 64)?)?;
    assert!(matches!(window.attach(&part(5, 5)?), Err(Error::InvalidArgument { .. })));
    let wrong = Attached { bytes: 8, ..middle };
    assert!(matches!(window.detach(wrong), Err(Error::Misuse { .. })));
    for attached in [middle, low, high] {
        window.detach(attached)?;
    }
    let fixed = Window::<u64>::allocate(job.team(), 1)?;
    assert!(matches!(fixed.attach(&memory), Err(Error::Misuse { .. })));
    assert!(matches!(fixed.detach(low), Err(Error::Misuse { .. })));
    fixed.free()?;
    window.free()
}

fn beside_attachments(job: &Job) -> Result<()> {
    let window = Window::<u32>::builder(job.team()).dynamic()?;
    let memory = Memory::<u32>::shared(job.team(), 100)?;
    let one = window.attach(&memory.part(10, 20)?)?;
    window.attach(&memory.part(20, 30)?)?;
    let there = exchange(job, one)?;
    let epoch = window.lock_all()?;
    for target in [job.rank(), next(job)] {
        let first = there[target.index()];
        epoch.put(target, first, &[1; 10])?;
        epoch.put(target, first + 40, &[2; 10])?;
        epoch.put(target, first + 36, &[])?;
        for (start, count) in
            [(first - 4, 1), (first - 4, 11), (first, 11), (first + 76, 2), (first + 80, 1), (0, 1)]
        {
            assert!(epoch.put(target, start, &vec![9; count]).is_err(), "{count} at {start:#x}");
        }
        assert!(epoch.put(target, first + 2, &[9]).is_err(), "not aligned");
        assert!(epoch.put(target, usize::MAX - 3, &[9, 9]).is_err());
    }
    assert!(epoch.put(Rank(job.size()), there[0], &[9]).is_err());
    epoch.flush_all()?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut all = [0; 100];
    memory.read(0, &mut all)?;
    let want = |i| match i {
        10..20 => 1,
        20..30 => 2,
        _ => 0,
    };
    assert!((0..100).all(|i| all[i] == want(i)), "{all:?}");
    window.free()
}

fn many_attachments(job: &Job) -> Result<()> {
    const COUNT: usize = 3000;
    let before = in_use(job)?;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 4 * COUNT)?;
    // In an order that puts rows before, between and behind others.
    let place = |k: usize| (k * 7919) % COUNT;
    let attach = |k: usize| window.attach(&memory.part(4 * place(k), 4 * place(k) + 2)?);
    let mut all: Vec<Attached> = (0..COUNT).map(attach).collect::<Result<_>>()?;
    let base = exchange(job, Attached { address: memory.as_ptr().addr() as u64, bytes: 0 })?;
    let epoch = window.lock_all()?;
    let target = next(job);
    for k in (0..COUNT).step_by(37) {
        let at = base[target.index()] + 32 * k;
        epoch.put(target, at, &[k as u64, job.rank().0.into()])?;
        assert!(epoch.put(target, at + 16, &[1]).is_err(), "between two attachments");
    }
    epoch.flush_all()?;
    job.team().barrier()?;
    for k in (0..COUNT).step_by(37) {
        let mut got = [0; 4];
        memory.read(4 * k, &mut got)?;
        assert_eq!(got, [k as u64, previous(job).0.into(), 0, 0]);
    }
    job.team().barrier()?;
    for attached in all.drain(..COUNT / 2) {
        window.detach(attached)?;
    }
    job.team().barrier()?;
    for k in (0..COUNT).step_by(41) {
        let refused = epoch.put(target, base[target.index()] + 32 * place(k), &[1]).is_err();
        assert_eq!(refused, k < COUNT / 2, "attachment {k}");
    }
    epoch.unlock_all()?;
    // The rest goes with the window.
    window.free()?;
    drop(memory);
    assert_back(job, before)
}

/// Every rank attaches and detaches one half of its memory over and over, while others use the
/// other half, which stays.
fn churn(job: &Job) -> Result<()> {
    const ROUNDS: usize = 400;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 2048)?;
    let attached = window.attach(&memory.part(0, 1024)?)?;
    let there = exchange(job, attached)?;
    std::thread::scope(|scope| -> Result<()> {
        let own = scope.spawn(|| -> Result<()> {
            let mut coming: Vec<Attached> = Vec::new();
            for round in 0..ROUNDS {
                for k in 0..8 {
                    let at = 1024 + (round * 13 + k * 127) % 1016;
                    match window.attach(&memory.part(at, at + 3)?) {
                        Ok(attached) => coming.push(attached),
                        Err(Error::Misuse { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                while coming.len() > 4 {
                    window.detach(coming.swap_remove(round % coming.len()))?;
                }
            }
            coming.into_iter().try_for_each(|attached| window.detach(attached))
        });
        let epoch = window.lock_all()?;
        for round in 0..ROUNDS {
            for target in job.team().ranks() {
                let at = there[target.index()] + 8 * (round % 1024);
                epoch.accumulate(target, at, Op::Sum, &[1])?;
            }
        }
        epoch.unlock_all()?;
        own.join().expect("the thread that attaches")
    })?;
    job.team().barrier()?;
    let mut sums = vec![0; 1024];
    memory.read(0, &mut sums)?;
    assert!(sums[..ROUNDS].iter().all(|sum| *sum == u64::from(job.size())));
    assert!(sums[ROUNDS..].iter().all(|sum| *sum == 0));
    window.free()
}

fn attached_private(job: &Job) -> Result<()> {
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::private(vec![0u64; 20]);
    let attached = window.attach(&memory)?;
    let there = exchange(job, attached)?;
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        epoch.accumulate(target, there[target.index()] + 8, Op::Sum, &[1, 2])?;
        assert!(epoch.put(target, there[target.index()] + 160, &[1]).is_err());
    }
    epoch.put(next(job), there[next(job).index()], &[7])?;
    epoch.flush_all()?;
    let mut back = [0];
    epoch.get(next(job), there[next(job).index()], &mut back)?;
    assert_eq!(back, [7]);
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut got = [0; 4];
    memory.read(0, &mut got)?;
    let all = u64::from(job.size());
    assert_eq!(got, [7, all, 2 * all, 0]);
    job.team().barrier()?;
    window.detach(attached)?;
    assert_eq!(memory.into_vec().expect("detached").len(), 20);
    window.free()
}

fn attached_kept(job: &Job) -> Result<()> {
    let before = in_use(job)?;
    let window = Window::<u64>::builder(job.team()).dynamic()?;
    let memory = Memory::<u64>::shared(job.team(), 600)?;
    memory.write(0, &[6; 600])?;
    let there = exchange(job, window.attach(&memory)?)?;
    drop(memory);
    // What came free would be taken by these.
    let others = [Memory::<u64>::shared(job.team(), 600)?, Memory::shared(job.team(), 600)?];
    let epoch = window.lock_all()?;
    let mut got = [0; 600];
    epoch.get(next(job), there[next(job).index()], &mut got)?;
    assert_eq!(got, [6; 600]);
    epoch.unlock_all()?;
    drop(others);
    window.free()?;
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

fn on_split_teams(job: &Job) -> Result<()> {
    let color = job.rank().0 % 2;
    let key = job.size() - job.rank().0;
    let team = job.team().split(Some(color), key)?.expect("a colour");
    let len_of = |rank: Rank| 10 + rank.index();
    let me = team.rank();
    let right = Rank((me.0 + 1) % team.size());
    let windows = [
        Window::<u64>::allocate(&team, 10)?,
        Window::builder(&team).different_sizes().allocate(len_of(me))?,
        Window::builder(&team).different_sizes().allocate_shared(len_of(me))?,
        Window::builder(&team).create(Memory::shared(&team, len_of(me))?)?,
        Window::builder(&team).create(Memory::private(vec![0; len_of(me)]))?,
    ];
    for (i, window) in windows.into_iter().enumerate() {
        let last = if i == 0 { 9 } else { len_of(right) - 1 };
        let mut epoch = window.fence()?;
        epoch.put(right, last, &[u64::from(job.rank().0) + 1])?;
        assert!(epoch.put(right, last + 1, &[1]).is_err());
        epoch.next()?;
        let want = u64::from(job.rank().0) + 1;
        let mut got = [0];
        epoch.get(right, last, &mut got)?;
        assert_eq!(got, [want]);
        epoch.end()?;
        window.free()?;
    }
    job.team().barrier()
}
