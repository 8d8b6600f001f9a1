//! Every form of the operations: fetching accumulates, layouts, requests.

use super::Written;
use hither::layout::Cursor;
use hither::{
    Datum, Element, Error, Job, Layout, Located, Numeric, Op, Order, Rank, Request, Result, Shape,
    Window,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

pub const CASES: &[Written] = &[
    ("get_accumulate_hands_out_each_value_once", get_accumulate_tickets),
    ("get_accumulate_reads_and_replaces", get_accumulate_forms),
    ("values_with_an_index", located),
    ("logical_operations", logical),
    ("layouts_put_and_get", layouts_put_and_get),
    ("layouts_of_one_side_only", layouts_one_side),
    ("layouts_may_overlap_at_the_target", layouts_overlap),
    ("layouts_with_negative_displacements", layouts_negative),
    ("layouts_out_of_bounds_write_nothing", layouts_out_of_bounds),
    ("layouts_that_do_not_fit", layouts_misfits),
    ("layouts_of_many_pieces", layouts_large),
    ("accumulate_layout_loses_nothing", accumulate_layouts),
    ("get_accumulate_layout_fetches_what_was_there", get_accumulate_layouts),
    ("requests_wait_test_await_and_leak", requests),
    ("requests_of_accumulates", accumulate_requests),
];

pub(super) fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

pub(super) fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

pub(super) fn read<T: Datum + Default>(window: &Window<T>) -> Vec<T> {
    let mut all = vec![T::default(); window.len()];
    window.local().read(0, &mut all).unwrap();
    all
}

fn get_accumulate_tickets(job: &Job) -> Result<()> {
    const ROUNDS: usize = 40;
    let lengths = [1, 2, 33, 700];
    let window = Window::<u64>::allocate(job.team(), 800)?;
    let mine = Window::<u64>::allocate(job.team(), job.size() as usize * 700 * ROUNDS)?;
    let mut epoch = window.fence()?;
    for len in lengths {
        let mut got = Vec::new();
        for _ in 0..ROUNDS {
            let mut old = vec![0; len];
            epoch.get_accumulate(Rank(0), 5, Op::Sum, &vec![1; len], &mut old)?;
            got.extend(old);
        }
        // What each origin got for each element goes to rank 0, who looks for gaps.
        let mut all = mine.fence()?;
        all.put(Rank(0), job.rank().index() * got.len(), &got)?;
        all.next()?;
        epoch.next()?;
        if job.rank() == Rank(0) {
            let all = read(&mine);
            for element in 0..len {
                let takers = (0..job.size() as usize * ROUNDS).map(|i| all[i * len + element]);
                let mut taken: Vec<u64> = takers.collect();
                taken.sort_unstable();
                let want: Vec<u64> = (0..taken.len() as u64).collect();
                assert_eq!(taken, want, "element {element} of {len}");
            }
            window.local().write(0, &[0; 800])?;
        }
        all.end()?;
        epoch.next()?;
    }
    epoch.end()
}

fn get_accumulate_forms(job: &Job) -> Result<()> {
    let window = Window::<i32>::allocate(job.team(), 20)?;
    let start: Vec<i32> = (0..20).map(|i| i * 10 + job.rank().0 as i32).collect();
    window.local().write(0, &start)?;
    let mut epoch = window.fence()?;
    let theirs = |i: i32| i * 10 + next(job).0 as i32;
    let mut old = [0; 4];
    epoch.get_accumulate(next(job), 3, Op::NoOp, &[], &mut old)?;
    assert_eq!(old, [theirs(3), theirs(4), theirs(5), theirs(6)]);
    epoch.get_accumulate(next(job), 3, Op::NoOp, &[9; 4], &mut old)?;
    assert_eq!(old, [theirs(3), theirs(4), theirs(5), theirs(6)]);
    epoch.get_accumulate(next(job), 4, Op::Replace, &[-1, -2, -3, -4], &mut old)?;
    assert_eq!(old, [theirs(4), theirs(5), theirs(6), theirs(7)]);
    epoch.get_accumulate(next(job), 5, Op::Max, &[0, 0], &mut old[..2])?;
    assert_eq!(old[..2], [-2, -3]);
    epoch.get_accumulate(next(job), 0, Op::Sum, &[], &mut [])?;
    epoch.get_accumulate(next(job), 20, Op::Sum, &[], &mut [])?;
    let bad = epoch.get_accumulate(next(job), 0, Op::Sum, &[1, 2, 3], &mut old);
    assert!(matches!(bad, Err(Error::InvalidArgument { .. })), "{bad:?}");
    let bad = epoch.get_accumulate(next(job), 18, Op::Sum, &[1; 4], &mut old);
    assert!(matches!(bad, Err(Error::OutOfBounds { .. })), "{bad:?}");
    let bad = epoch.get_accumulate(next(job), 0, Op::MinLoc, &[1; 4], &mut old);
    assert!(matches!(bad, Err(Error::InvalidArgument { .. })), "{bad:?}");
    epoch.next()?;
    assert_eq!(read(&window)[3..9], [start[3], -1, 0, 0, -4, start[8]]);
    epoch.end()
}

fn located_of<V, I>(job: &Job, make: impl Fn(u32, usize) -> Located<V, I>) -> Result<()>
where
    Located<V, I>: Element,
    V: Copy,
    I: Copy,
{
    const LEN: usize = 50;
    for op in [Op::MinLoc, Op::MaxLoc] {
        let window = Window::<Located<V, I>>::allocate(job.team(), LEN)?;
        let begin: Vec<_> = (0..LEN).map(|i| make(0, i)).collect();
        window.local().write(0, &begin)?;
        let mut epoch = window.fence()?;
        let mine: Vec<_> = (0..LEN).map(|i| make(job.rank().0, i)).collect();
        for target in job.team().ranks() {
            // Singly and together: both ways into the atomic domain.
            epoch.accumulate(target, 0, op, &mine[..LEN - 1])?;
            epoch.fetch_and_op(target, LEN - 1, op, mine[LEN - 1])?;
        }
        epoch.next()?;
        for (i, first) in begin.iter().enumerate() {
            let fold = |all, rank| Numeric::combine(op, all, make(rank, i));
            let want = (0..job.size()).fold(*first, fold);
            assert_eq!(window.local().get(i)?, want, "{op:?}, element {i}");
        }
        let last = window.local().get(0)?;
        let was = epoch.compare_and_swap(job.rank(), 0, last, make(7, 7))?;
        assert_eq!(was, last);
        assert_eq!(epoch.compare_and_swap(job.rank(), 0, make(8, 8), last)?, make(7, 7));
        epoch.end()?;
    }
    Ok(())
}

fn located(job: &Job) -> Result<()> {
    // Equal values now and then, so that the index decides.
    let value = |rank: u32, i: usize| (rank as usize * 7 + i * 5) % 6;
    located_of(job, |r, i| Located { value: value(r, i) as f32, index: -(r as i32) })?;
    located_of(job, |r, i| Located { value: value(r, i) as i32 - 3, index: r as i32 })?;
    located_of(job, |r, i| Located { value: value(r, i) as u32, index: r as i32 })?;
    located_of(job, |r, i| Located { value: value(r, i) as f64 - 2.5, index: i64::from(r) })?;
    located_of(job, |r, i| Located { value: value(r, i) as i64 - 3, index: -i64::from(r) })?;
    located_of(job, |r, i| Located { value: value(r, i) as u64, index: i64::from(r) })
}

fn logical(job: &Job) -> Result<()> {
    let window = Window::<u16>::allocate(job.team(), 3)?;
    window.local().write(0, &[300, 0, 0])?;
    let mut epoch = window.fence()?;
    let mine = job.rank().0 as u16 * 256;
    for target in job.team().ranks() {
        epoch.accumulate(target, 0, Op::LogicalAnd, &[mine + 256])?;
        epoch.accumulate(target, 1, Op::LogicalOr, &[mine])?;
        epoch.fetch_and_op(target, 2, Op::LogicalXor, mine + 256)?;
    }
    epoch.next()?;
    let ranks = job.size() as u16;
    assert_eq!(read(&window), [1, u16::from(ranks > 1), ranks % 2]);
    epoch.end()
}

/// Layouts of 48 elements of 4 bytes, of many forms, and how many copies make 48.
fn layouts() -> Vec<(&'static str, Layout, usize)> {
    let one = Layout::of::<u32>();
    let pairs = [(0, 2), (5, 1), (3, 2), (9, 3)];
    let plane = one.subarray(&[6, 10], &[4, 6], &[1, 3], Order::C).unwrap();
    let cube = one.subarray(&[7, 5, 4], &[4, 3, 2], &[2, 1, 0], Order::Fortran).unwrap();
    let member = one.vector(3, 1, 2).unwrap();
    let mixed = [(0, 1, one.contiguous(2).unwrap()), (44, 2, member), (12, 4, one.clone())];
    let column = one.vector(6, 1, 8).unwrap().resized(0, 4).unwrap();
    vec![
        ("element", one.clone(), 48),
        ("contiguous", one.contiguous(16).unwrap(), 3),
        ("vector", one.vector(4, 3, 5).unwrap(), 4),
        ("hvector", one.hvector(12, 2, 12).unwrap(), 2),
        ("backwards", one.hvector(6, 2, -12).unwrap().hindexed(&[(60, 1)]).unwrap(), 4),
        ("indexed", one.indexed(&pairs).unwrap(), 6),
        ("hindexed", one.hindexed(&[(40, 3), (0, 1), (16, 2)]).unwrap(), 8),
        ("subarray", plane, 2),
        ("subarray in Fortran's order", cube, 2),
        ("structure", Layout::structure(&mixed).unwrap(), 4),
        ("columns of a matrix", column, 8),
        ("nested", one.vector(2, 1, 3).unwrap().hvector(3, 2, 44).unwrap(), 4),
    ]
}

/// The bytes of a shape in packed order, one by one.
fn places(shape: Shape<'_>) -> Vec<usize> {
    let mut cursor = Cursor::new(shape).unwrap();
    let mut places = Vec::new();
    while let Some(piece) = cursor.next_piece(usize::MAX) {
        let first = usize::try_from(piece.offset).unwrap();
        places.extend(first..first + piece.len);
    }
    places
}

fn bytes_of(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

const ROOM: usize = 700;

fn layouts_put_and_get(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), ROOM)?;
    let all = layouts();
    let mut epoch = window.fence()?;
    for (round, (name, there, copies)) in all.iter().enumerate() {
        for (other, here, here_copies) in [&all[(round * 5 + 1) % all.len()], &all[round]] {
            let fill = |rank: Rank, i: usize| (rank.0 << 20) + (round * 1000 + i) as u32 + 1;
            let values = |rank: Rank| (0..ROOM).map(|i| fill(rank, i)).collect::<Vec<_>>();
            window.local().write(0, &[0; ROOM])?;
            epoch.next()?;
            let (there, here) = (there.times(*copies), here.times(*here_copies));
            epoch.put_layout(next(job), 7, there, &values(job.rank()), here)?;
            epoch.next()?;
            let from = bytes_of(&values(previous(job)));
            let mut want = vec![0; ROOM * 4];
            for (to, of) in places(there).into_iter().zip(places(here)) {
                want[to + 28] = from[of];
            }
            let got = bytes_of(&read(&window));
            assert!(got == want, "{other} put to {name}");
            let mut back = vec![7; ROOM];
            epoch.get_layout(next(job), 7, there, &mut back, here)?;
            let mut want = bytes_of(&[7; ROOM]);
            let mine = bytes_of(&values(job.rank()));
            places(here).into_iter().for_each(|of| want[of] = mine[of]);
            assert!(bytes_of(&back) == want, "{other} from {name}");
            epoch.next()?;
        }
    }
    epoch.end()
}

fn layouts_one_side(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), ROOM)?;
    let plain = Layout::of::<u32>();
    let mut epoch = window.fence()?;
    for (name, layout, copies) in &layouts() {
        let values: Vec<u32> = (0..48).map(|i| i + 100 * job.rank().0).collect();
        epoch.put_layout(next(job), 0, layout.times(*copies), &values, plain.times(48))?;
        epoch.next()?;
        let mut back = [0; 48];
        epoch.get_layout(next(job), 0, layout.times(*copies), &mut back, plain.times(48))?;
        assert_eq!(back[..], values, "{name}");
        // Gathered by the origin from a contiguous target, and scattered there.
        epoch.next()?;
        epoch.put(next(job), 0, &values)?;
        epoch.next()?;
        let mut spread = vec![0; ROOM];
        let shape = layout.times(*copies);
        epoch.get_layout(next(job), 0, plain.times(48), &mut spread, shape)?;
        let (spread, values) = (bytes_of(&spread), bytes_of(&values));
        places(shape).into_iter().zip(values).for_each(|(at, v)| assert_eq!(spread[at], v));
        epoch.next()?;
    }
    epoch.end()
}

fn layouts_overlap(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), 16)?;
    let one = Layout::of::<u32>();
    let mut epoch = window.fence()?;
    let twice = one.indexed(&[(0, 4), (2, 4), (1, 1)])?;
    let values: Vec<u32> = (1..10).collect();
    epoch.put_layout(next(job), 3, twice.times(1), &values, one.times(9))?;
    epoch.next()?;
    assert_eq!(read(&window)[2..10], [0, 1, 9, 5, 6, 7, 8, 0]);
    let same = one.hvector(9, 1, 0)?;
    epoch.next()?;
    epoch.put_layout(next(job), 15, same.times(1), &values, one.times(9))?;
    epoch.next()?;
    assert_eq!(read(&window)[15], 9);
    epoch.end()
}

fn layouts_negative(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), 16)?;
    let one = Layout::of::<u32>();
    let around = one.indexed(&[(-3, 2), (2, 1)])?;
    assert_eq!((around.lower_bound(), around.extent()), (-12, 24));
    let mut epoch = window.fence()?;
    epoch.put_layout(next(job), 5, around.times(2), &[1, 2, 3, 4, 5, 6], one.times(6))?;
    epoch.next()?;
    assert_eq!(read(&window), [0, 0, 1, 2, 0, 0, 0, 3, 4, 5, 0, 0, 0, 6, 0, 0]);
    let bad = epoch.put_layout(next(job), 2, around.times(1), &[1, 2, 3], one.times(3));
    assert!(matches!(bad, Err(Error::OutOfBounds { .. })), "{bad:?}");
    let bad = epoch.put_layout(next(job), 5, one.times(3), &[1, 2, 3], around.times(1));
    assert!(matches!(bad, Err(Error::InvalidArgument { .. })), "{bad:?}");
    epoch.end()
}

fn layouts_out_of_bounds(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), 32)?;
    let one = Layout::of::<u32>();
    let values = [5; 32];
    let mut epoch = window.fence()?;
    let far = one.indexed(&[(0, 3), (30, 3)])?;
    let strided = one.vector(8, 1, 4)?;
    let over = |shape: Shape<'_>, start: usize| {
        let count = shape.size().unwrap() / 4;
        let put = epoch.put_layout(next(job), start, shape, &values, one.times(count));
        assert!(matches!(put, Err(Error::OutOfBounds { .. })), "{put:?}");
        let mut into = values;
        let get = epoch.get_layout(next(job), start, shape, &mut into, one.times(count));
        assert!(matches!(get, Err(Error::OutOfBounds { .. })), "{get:?}");
        let add =
            epoch.accumulate_layout(next(job), start, shape, Op::Sum, &values, one.times(count));
        assert!(matches!(add, Err(Error::OutOfBounds { .. })), "{add:?}");
    };
    over(far.times(1), 0);
    over(strided.times(1), 4);
    over(strided.times(2), 0);
    over(one.times(1), 32);
    over(one.times(1), usize::MAX);
    over(one.times(1), usize::MAX / 4 + 1);
    let none = epoch.put_layout(Rank(job.size()), 0, one.times(1), &values, one.times(1));
    assert!(matches!(none, Err(Error::InvalidArgument { .. })), "{none:?}");
    epoch.put_layout(next(job), 3, strided.times(1), &values, one.times(8))?;
    epoch.put_layout(next(job), 32, one.times(0), &values, one.times(0))?;
    epoch.next()?;
    let want: Vec<u32> = (0..32).map(|i| if i % 4 == 3 { 5 } else { 0 }).collect();
    assert_eq!(read(&window), want);
    epoch.end()
}

fn layouts_misfits(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), 32)?;
    let (one, bytes) = (Layout::of::<u32>(), Layout::of::<u8>());
    let mut values = [1; 8];
    let epoch = window.fence()?;
    let bad = |result: Result<()>| {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
    };
    bad(epoch.put_layout(next(job), 0, one.times(4), &values, one.times(5)));
    bad(epoch.get_layout(next(job), 0, one.times(5), &mut values, one.times(4)));
    bad(epoch.put_layout(next(job), 0, one.times(9), &values, one.times(9)));
    bad(epoch.accumulate_layout(next(job), 0, bytes.times(4), Op::Sum, &values, one.times(1)));
    bad(epoch.accumulate_layout(next(job), 0, one.times(1), Op::Sum, &values, bytes.times(4)));
    let shifted = one.hindexed(&[(2, 1)])?;
    bad(epoch.accumulate_layout(next(job), 0, shifted.times(1), Op::Sum, &values, one.times(1)));
    let uneven = one.hvector(3, 1, 6)?;
    bad(epoch.accumulate_layout(next(job), 0, uneven.times(1), Op::Sum, &values, one.times(3)));
    bad(epoch.accumulate_layout(next(job), 0, one.times(1), Op::MaxLoc, &values, one.times(1)));
    // Bytes that are only moved may lie anywhere.
    epoch.put_layout(next(job), 0, uneven.times(1), &values, shifted.times(3))?;
    epoch.put_layout(next(job), 0, bytes.times(5), &values, bytes.times(5))?;
    epoch.end()
}

fn layouts_large(job: &Job) -> Result<()> {
    const ROWS: usize = 300;
    const COLUMNS: usize = 200;
    let window = Window::<u32>::allocate(job.team(), ROWS * COLUMNS)?;
    let one = Layout::of::<u32>();
    // A transposed copy: columns at the target from rows at the origin.
    let column = one.vector(ROWS, 1, COLUMNS as isize)?.resized(0, 4)?;
    let mine: Vec<u32> = (0..(ROWS * COLUMNS) as u32).map(|i| i ^ job.rank().0 << 24).collect();
    let mut epoch = window.fence()?;
    let there = column.times(COLUMNS);
    epoch.put_layout(next(job), 0, there, &mine, one.times(ROWS * COLUMNS))?;
    epoch.next()?;
    let got = read(&window);
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let want = (column * ROWS + row) as u32 ^ previous(job).0 << 24;
            assert_eq!(got[row * COLUMNS + column], want, "row {row}, column {column}");
        }
    }
    let mut back = vec![0; ROWS * COLUMNS];
    epoch.get_layout(next(job), 0, there, &mut back, one.times(ROWS * COLUMNS))?;
    assert!(back == mine);
    // A list too long for one packet.
    let blocks: Vec<(isize, usize)> = (0..6000).map(|i| (i * 10 + i % 3, 2)).collect();
    let list = one.indexed(&blocks)?;
    epoch.next()?;
    epoch.put_layout(next(job), 0, list.times(1), &mine, one.times(12000))?;
    epoch.next()?;
    let got = read(&window);
    for (i, (at, _)) in blocks.iter().enumerate() {
        let want = |k: usize| (2 * i + k) as u32 ^ previous(job).0 << 24;
        assert_eq!(got[*at as usize..*at as usize + 2], [want(0), want(1)], "block {i}");
    }
    epoch.end()
}

fn accumulate_layouts(job: &Job) -> Result<()> {
    const ROUNDS: u32 = 10;
    let window = Window::<u32>::allocate(job.team(), ROOM)?;
    let all = layouts();
    let mut epoch = window.fence()?;
    for (round, (name, there, copies)) in all.iter().enumerate() {
        let (other, here, here_copies) = &all[(round * 7 + 2) % all.len()];
        let (there, here) = (there.times(*copies), here.times(*here_copies));
        window.local().write(0, &[0; ROOM])?;
        epoch.next()?;
        let values: Vec<u32> = (0..ROOM as u32).collect();
        for target in job.team().ranks() {
            for _ in 0..ROUNDS {
                epoch.accumulate_layout(target, 2, there, Op::Sum, &values, here)?;
            }
        }
        epoch.next()?;
        let mut want = vec![0; ROOM];
        for (to, of) in places(there).into_iter().zip(places(here)).step_by(4) {
            want[to / 4 + 2] += values[of / 4] * ROUNDS * job.size();
        }
        assert!(read(&window) == want, "{other} added to {name}");
        epoch.next()?;
    }
    epoch.end()
}

fn get_accumulate_layouts(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), ROOM)?;
    let all = layouts();
    let mut epoch = window.fence()?;
    for (round, (name, there, copies)) in all.iter().enumerate() {
        let pick = |step: usize| {
            let (_, layout, copies) = &all[(round * step + 3) % all.len()];
            layout.times(*copies)
        };
        let (there, here, into_shape) = (there.times(*copies), pick(5), pick(7));
        let begin: Vec<u32> = (0..ROOM as u32).map(|i| i * 3 + job.rank().0).collect();
        window.local().write(0, &begin)?;
        epoch.next()?;
        let values: Vec<u32> = (0..ROOM as u32).map(|i| i + 1).collect();
        let mut into = vec![u32::MAX; ROOM];
        let op = if round % 2 == 0 { Op::Sum } else { Op::Replace };
        let target = next(job);
        epoch.get_accumulate_layout(target, 1, there, op, &values, here, &mut into, into_shape)?;
        epoch.next()?;
        let (mut want, mut want_into) = (begin, vec![u32::MAX; ROOM]);
        let sides = places(there).into_iter().zip(places(here)).zip(places(into_shape));
        for ((to, of), back) in sides.step_by(4) {
            let to = to / 4 + 1;
            want_into[back / 4] = to as u32 * 3 + target.0;
            want[to] = u32::combine(op, want[to], values[of / 4]);
        }
        assert!(into == want_into, "fetched from {name}");
        assert!(read(&window) == want, "{op:?} to {name}");
        let read_only = (&[][..], Layout::of::<u32>());
        let (none, one) = (read_only.0, read_only.1.times(0));
        epoch.get_accumulate_layout(target, 1, there, Op::NoOp, none, one, &mut into, here)?;
        epoch.next()?;
    }
    epoch.end()
}

/// A runtime that sleeps until it is woken.
fn block_on<R>(future: impl Future<Output = R>) -> R {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park_timeout(Duration::from_secs(60));
    }
}

fn requests(job: &Job) -> Result<()> {
    const LEN: usize = 5000;
    let window = Window::<u64>::allocate(job.team(), LEN)?;
    let pattern = |rank: Rank| (0..LEN as u64).map(|i| i << 8 | u64::from(rank.0)).collect();
    let (mine, theirs): (Vec<u64>, Vec<u64>) = (pattern(job.rank()), pattern(next(job)));
    let mut epoch = window.fence()?;
    epoch.put_request(job.rank(), 0, &mine)?.wait()?;
    epoch.next()?;
    assert_eq!(epoch.get_request(next(job), 0, LEN)?.wait()?, theirs);
    let mut several: Vec<Request<Vec<u64>>> =
        (0..20).map(|i| epoch.get_request(next(job), i, i)).collect::<Result<_>>()?;
    for (i, request) in several.iter_mut().enumerate() {
        let begun = Instant::now();
        while !request.test()? {
            assert!(begun.elapsed() < Duration::from_secs(60), "request {i} does not end");
            std::thread::yield_now();
        }
        assert!(request.test()?);
    }
    for (i, request) in several.into_iter().enumerate() {
        assert_eq!(request.wait()?, theirs[i..2 * i]);
    }
    let both = async {
        let (first, second) =
            (epoch.get_request(next(job), 1, 2)?, epoch.get_request(next(job), 7, 900)?);
        Ok::<_, Error>((second.await?, first.await?))
    };
    let (second, first) = block_on(both)?;
    assert_eq!((&first[..], &second[..]), (&theirs[1..3], &theirs[7..907]));
    let mut again = epoch.get_request(next(job), 0, 1)?;
    block_on(&mut again)?;
    assert!(matches!(block_on(&mut again), Err(Error::Misuse { .. })));
    assert!(again.test().is_err() && again.wait().is_err());
    // Nothing writes to what is dropped or forgotten, and both leave the window usable.
    drop(epoch.get_request(next(job), 0, LEN)?);
    std::mem::forget(epoch.get_request(next(job), 0, LEN)?);
    assert!(matches!(epoch.get_request(next(job), 1, LEN), Err(Error::OutOfBounds { .. })));
    assert!(matches!(epoch.get_request(next(job), 1, usize::MAX), Err(Error::OutOfBounds { .. })));
    assert_eq!(epoch.get_request(next(job), LEN, 0)?.wait()?, Vec::<u64>::new());
    epoch.next()?;
    assert_eq!(read(&window), mine);
    epoch.end()
}

fn accumulate_requests(job: &Job) -> Result<()> {
    let window = Window::<i64>::allocate(job.team(), 600)?;
    let mut epoch = window.fence()?;
    for target in job.team().ranks() {
        epoch.accumulate_request(target, 100, Op::Sum, &[2; 500])?.wait()?;
        block_on(epoch.accumulate_request(target, 0, Op::Min, &[-i64::from(job.rank().0)])?)?;
    }
    epoch.next()?;
    let total = 2 * i64::from(job.size());
    let lowest = 1 - i64::from(job.size());
    assert_eq!(read(&window)[100..], [total; 500]);
    assert_eq!(window.local().get(0)?, lowest);
    epoch.next()?;
    let request = epoch.get_accumulate_request(next(job), 100, Op::Replace, &[7; 500])?;
    assert_eq!(request.wait()?, [total; 500]);
    epoch.next()?;
    assert_eq!(read(&window)[100..], [7; 500]);
    let request = epoch.get_accumulate_request(next(job), 99, Op::NoOp, &[0; 2])?;
    assert_eq!(block_on(request)?, [0, 7]);
    let bad = epoch.get_accumulate_request(next(job), 0, Op::MinLoc, &[1]);
    assert!(matches!(bad, Err(Error::InvalidArgument { .. })), "{bad:?}");
    epoch.end()
}
