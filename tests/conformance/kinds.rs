//! Kinds of windows: where parts lie, how large they are, what displacements count.

use super::Written;
use hither::rma::info::Medium;
use hither::rma::{Flavour, Info, Memory, Model};
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
    ("windows_on_parts_of_the_team", on_split_teams),
];

pub(super) fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

pub(super) fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

pub(super) fn direct<T: hither::Datum>(window: &Window<T>) -> bool {
    window.info().medium == Medium::Auto && !window.team().spans_nodes()
}

/// Everybody writes to, and reads from, every element of everybody's part, in turn.
pub(super) fn exercise(
    job: &Job,
    window: &Window<u64>,
    len_of: impl Fn(Rank) -> usize,
) -> Result<()> {
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
    let two = Window::<u64>::builder(job.team());
    let two = if job.team().spans_nodes() { two.allocate(0)? } else { two.allocate_shared(0)? };
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

pub(super) fn is_last(job: &Job) -> bool {
    job.rank().0 + 1 == job.size()
}

fn unannounced_sizes(job: &Job) -> Result<()> {
    let len = 10 + usize::from(is_last(job));
    only_last_differs(job, "allocate", Window::<u16>::builder(job.team()).allocate(len));
    if !job.team().spans_nodes() {
        only_last_differs(job, "shared", Window::<u16>::builder(job.team()).allocate_shared(len));
    }
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
    let build = || Window::<u8>::builder(job.team()).info(promise.clone());
    only_last_differs(job, "allocate", build().different_sizes().allocate(len));
    if !job.team().spans_nodes() {
        only_last_differs(job, "shared", build().different_sizes().allocate_shared(len));
    }
    only_last_differs(job, "create", build().create(Memory::private(vec![0; len])));
    build().different_sizes().allocate(8)?.free()
}

fn broken_same_unit(job: &Job) -> Result<()> {
    let promise = Info { same_disp_unit: true, ..Info::default() };
    let unit = if is_last(job) { 4 } else { 2 };
    let build = || Window::<u16>::builder(job.team()).info(promise.clone()).unit(unit);
    only_last_differs(job, "allocate", build().allocate(8));
    only_last_differs(job, "create", build().create(Memory::private(vec![0; 8])));
    job.team().barrier()
}

fn hints_differ(job: &Job) -> Result<()> {
    let changes: [(&str, &str); 11] = [
        ("accumulate_ordering", "none"),
        ("accumulate_ops", "same_op"),
        ("mpi_accumulate_granularity", "8"),
        ("same_size", "true"),
        ("same_disp_unit", "true"),
        ("no_locks", "true"),
        ("alloc_shared_noncontig", "true"),
        ("am_ordering", "none"),
        ("am_ordering", "diffop"),
        ("am_buf_interleave_am_detach", "false"),
        ("am_user_buf_0", "4096"),
    ];
    for (key, value) in changes {
        let mut info = Info::default();
        if is_last(job) {
            assert!(info.set(key, value)?);
        }
        only_last_differs(job, key, Window::<u8>::builder(job.team()).info(info).allocate(1));
        let mut info = Info::default();
        assert!(info.set(key, value)?);
        let window = Window::<u8>::builder(job.team()).info(info.clone()).allocate(1)?;
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
    let near = job.node_team();
    let windows = [
        (Flavour::Allocate, Window::<u32>::allocate(team, 6)?, 24, 4),
        (Flavour::Shared, Window::builder(near).unit(8).allocate_shared(6)?, 24, 8),
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

/// Whether the job is on several nodes: then shared windows are refused, but among the ranks of one.
pub(super) fn lies_apart(job: &Job) -> Result<bool> {
    if !job.team().spans_nodes() {
        return Ok(false);
    }
    let refused = Window::<u64>::builder(job.team()).allocate_shared(4);
    assert!(matches!(refused, Err(Error::Misuse { .. })), "{refused:?}");
    let near = job.node_team();
    let (me, size) = (near.rank(), near.size());
    let window = Window::<u64>::builder(near).allocate_shared(4)?;
    window.local().write(0, &[u64::from(me.0); 4])?;
    near.barrier()?;
    let right = Rank((me.0 + 1) % size);
    if direct(&window) {
        assert_eq!(window.query(right)?.get(3)?, u64::from(right.0));
    }
    window.free()?;
    Ok(true)
}

fn shared_contiguous(job: &Job) -> Result<()> {
    if lies_apart(job)? {
        return Ok(());
    }
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
    if lies_apart(job)? {
        return Ok(());
    }
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
    if lies_apart(job)? {
        return Ok(());
    }
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
    let shared = Window::<u64>::builder(job.node_team()).allocate_shared(1)?;
    assert!(shared.query(Rank(job.size())).is_err());
    shared.free()?;
    window.free()
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
        match Window::builder(&team).different_sizes() {
            one if team.spans_nodes() => one.allocate(len_of(me))?,
            one => one.allocate_shared(len_of(me))?,
        },
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
