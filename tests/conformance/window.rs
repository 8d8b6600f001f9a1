//! Windows, epochs and one-sided operations against oracles.

use super::Written;
use hither::{Element, Error, Job, Op, Rank, Result, Window};
use std::collections::BTreeSet;

pub const CASES: &[Written] = &[
    ("put_and_get_every_length", put_and_get),
    ("accumulate_types_and_ops", accumulate),
    ("fetch_and_op_hands_out_each_ticket_once", tickets),
    ("compare_and_swap_as_a_lock", cas_lock),
    ("fence_separates_phases", fence_phases),
    ("dropping_a_fence_epoch_closes_it", fence_drop),
    ("out_of_bounds_and_bad_targets", errors),
    ("empty_and_huge_windows", extremes),
    ("disagreement_is_everybody's_error", disagreement),
    ("windows_are_zero_and_reclaimed", reclaimed),
    ("same_address_everywhere", same_address),
    ("threads_of_a_rank", threads),
    ("elements_do_not_tear", tearing),
];

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

fn put_and_get(job: &Job) -> Result<()> {
    let lengths = [0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 4096, 70_001];
    let window = Window::<u8>::allocate(job.team(), 80_000)?;
    let mut epoch = window.fence()?;
    for (round, len) in lengths.into_iter().enumerate() {
        for start in [0, 1, 5, 64] {
            let fill = |rank: Rank, i: usize| (rank.0 as usize * 31 + i * 3 + round) as u8;
            let data: Vec<u8> = (0..len).map(|i| fill(job.rank(), i)).collect();
            epoch.put(next(job), start, &data)?;
            epoch.next()?;
            let mut back = vec![0u8; len];
            epoch.get(next(job), start, &mut back)?;
            assert_eq!(back, data);
            let mut mine = vec![0u8; len];
            window.local().read(start, &mut mine)?;
            let want: Vec<u8> = (0..len).map(|i| fill(previous(job), i)).collect();
            assert_eq!(mine, want, "{len} bytes at {start}");
            epoch.next()?;
        }
    }
    epoch.end()
}

fn accumulate_of<T: Element>(job: &Job, value: impl Fn(u32) -> T, ops: &[Op]) -> Result<()> {
    const LEN: usize = 19;
    let window = Window::<T>::allocate(job.team(), LEN)?;
    for &op in ops.iter().filter(|op| T::KIND.allows(**op)) {
        let initial = value(11);
        window.local().write(0, &[initial; LEN])?;
        let mut epoch = window.fence()?;
        for target in job.team().ranks() {
            epoch.accumulate(target, 2, op, &[value(job.rank().0); LEN - 4])?;
        }
        epoch.next()?;
        let want = (0..job.size()).fold(initial, |acc, rank| T::combine(op, acc, value(rank)));
        for i in 0..LEN {
            let got = window.local().get(i)?;
            let inside = (2..LEN - 2).contains(&i);
            if op == Op::Replace && inside {
                let any = (0..job.size()).any(|rank| got == value(rank));
                assert!(any, "{got:?} was put by nobody");
            } else {
                assert_eq!(got, if inside { want } else { initial }, "{op:?}, element {i}");
            }
        }
        epoch.end()?;
    }
    Ok(())
}

fn accumulate(job: &Job) -> Result<()> {
    // Values for which every order of the origins gives the same result.
    accumulate_of::<u8>(job, |r| 3 + 2 * r as u8, &Op::ALL)?;
    accumulate_of::<i8>(job, |r| 5 - 3 * r as i8, &Op::ALL)?;
    accumulate_of::<u16>(job, |r| 1000 + r as u16, &Op::ALL)?;
    accumulate_of::<i16>(job, |r| -7 * r as i16, &Op::ALL)?;
    accumulate_of::<u32>(job, |r| 0x8000_0001 ^ r, &Op::ALL)?;
    accumulate_of::<i32>(job, |r| r as i32 - 3, &Op::ALL)?;
    accumulate_of::<u64>(job, |r| u64::from(r) << 40 | 1, &Op::ALL)?;
    accumulate_of::<i64>(job, |r| -i64::from(r), &Op::ALL)?;
    let float = [Op::Sum, Op::Product, Op::Min, Op::Max, Op::Replace, Op::NoOp];
    accumulate_of::<f32>(job, |r| (r % 4) as f32 * 0.5 + 1.0, &float[..1])?;
    accumulate_of::<f32>(job, |r| r as f32 - 2.5, &float[2..])?;
    accumulate_of::<f64>(job, |r| f64::from(1u32 << (r % 8)), &float)
}

fn tickets(job: &Job) -> Result<()> {
    const EACH: u64 = 500;
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let epoch = window.lock_all()?;
    let mine: Result<Vec<u64>> =
        (0..EACH).map(|_| epoch.fetch_and_op(Rank(0), 0, Op::Sum, 1)).collect();
    let mine = mine?;
    assert!(mine.is_sorted(), "one origin's tickets grow");
    epoch.unlock_all()?;
    let mut all = vec![0u64; (EACH * u64::from(job.size())) as usize];
    job.team().allgather(&mine, &mut all)?;
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    assert_eq!(distinct.last(), Some(&(all.len() as u64 - 1)));
    Ok(())
}

fn cas_lock(job: &Job) -> Result<()> {
    let window = Window::<u32>::allocate(job.team(), 2)?;
    let epoch = window.lock_all()?;
    let me = job.rank().0 + 1;
    for _ in 0..200 {
        while epoch.compare_and_swap(Rank(0), 0, 0, me)? != 0 {
            std::thread::yield_now();
        }
        let mut count = [0u32];
        epoch.get(Rank(0), 1, &mut count)?;
        epoch.put(Rank(0), 1, &[count[0] + 1])?;
        epoch.flush(Rank(0))?;
        assert_eq!(epoch.compare_and_swap(Rank(0), 0, me, 0)?, me);
    }
    job.team().barrier()?;
    let mut count = [0u32];
    epoch.get(Rank(0), 1, &mut count)?;
    assert_eq!(count, [200 * job.size()]);
    epoch.unlock_all()?;
    job.team().barrier()
}

fn fence_phases(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let mut epoch = window.fence()?;
    for phase in 1..=100u64 {
        epoch.put(next(job), 0, &[phase])?;
        epoch.next()?;
        assert_eq!(window.local().get(0)?, phase);
        epoch.next()?;
    }
    epoch.end()
}

fn fence_drop(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    {
        let epoch = window.fence()?;
        epoch.put(next(job), 0, &[42])?;
    }
    assert_eq!(window.local().get(0)?, 42);
    job.team().barrier()
}

fn errors(job: &Job) -> Result<()> {
    let window = Window::<f64>::allocate(job.team(), 10)?;
    let epoch = window.lock_all()?;
    let beyond = Rank(job.size());
    let far = usize::MAX;
    assert!(matches!(epoch.put(next(job), 8, &[0.0; 3]), Err(Error::OutOfBounds { len: 10, .. })));
    assert!(matches!(epoch.put(next(job), far, &[0.0; 3]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(epoch.get(next(job), 10, &mut [0.0]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(epoch.get(beyond, 0, &mut [0.0]), Err(Error::InvalidArgument { .. })));
    assert!(epoch.accumulate(Rank(u32::MAX), 0, Op::Sum, &[1.0]).is_err());
    assert!(matches!(
        epoch.accumulate(next(job), 0, Op::BitOr, &[1.0]),
        Err(Error::InvalidArgument { .. })
    ));
    assert!(epoch.fetch_and_op(next(job), 10, Op::Sum, 1.0).is_err());
    assert!(epoch.compare_and_swap(next(job), far, 1.0, 1.0).is_err());
    assert!(window.local().get(10).is_err());
    assert!(window.local().slice(4, 3).is_err());
    assert!(window.local().slice(4, 11).is_err());
    epoch.put(next(job), 10, &[])?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    let untouched = (0..10).all(|i| window.local().get(i).is_ok_and(|v| v == 0.0));
    assert!(untouched, "a refused operation wrote something");
    job.team().barrier()
}

fn extremes(job: &Job) -> Result<()> {
    let empty = Window::<u64>::allocate(job.team(), 0)?;
    let mut epoch = empty.fence()?;
    assert!(epoch.put(next(job), 0, &[1]).is_err());
    epoch.put(next(job), 0, &[])?;
    epoch.next()?;
    epoch.end()?;
    for len in [usize::MAX, usize::MAX / 8, 1 << 50] {
        let error = Window::<u64>::allocate(job.team(), len).unwrap_err();
        let numbers = matches!(error, Error::OutOfMemory { wanted, .. } if wanted >= 1 << 50);
        assert!(numbers || matches!(error, Error::PeerFailed { .. }), "{error}");
    }
    // Larger than the machine's memory, but within the address space: an error with numbers, not
    // a signal; and the job goes on.
    let per_rank = job.node().areas().stride / 8;
    if let Err(error) = Window::<u64>::allocate(job.team(), per_rank as usize) {
        let known = matches!(error, Error::OutOfMemory { .. } | Error::PeerFailed { .. });
        assert!(known, "{error}");
    }
    job.team().barrier()
}

fn disagreement(job: &Job) -> Result<()> {
    let odd_one = Rank(job.size() - 1);
    let len = if job.rank() == odd_one && job.size() > 1 { 11 } else { 10 };
    match Window::<u32>::allocate(job.team(), len) {
        Ok(_) => assert_eq!(job.size(), 1),
        Err(Error::Mismatch { b, .. }) => assert_eq!(b, odd_one),
        Err(Error::PeerFailed { rank, .. }) => assert_eq!(rank, odd_one),
        Err(error) => panic!("{error}"),
    }
    let result = if job.rank() == odd_one && job.size() > 1 {
        Window::<i32>::allocate(job.team(), 10).map(|_| ())
    } else {
        Window::<u32>::allocate(job.team(), 10).map(|_| ())
    };
    assert_eq!(result.is_ok(), job.size() == 1);
    job.team().barrier()
}

fn reclaimed(job: &Job) -> Result<()> {
    for round in 0..60u64 {
        let window = Window::<u64>::allocate(job.team(), 40_000)?;
        let view = window.local();
        for i in [0, 511, 512, 39_999] {
            assert_eq!(view.get(i)?, 0, "round {round}: a fresh window is not zero");
            view.set(i, u64::MAX)?;
        }
        window.free()?;
    }
    job.team().barrier()?;
    assert!(job.node().symmetric_in_use()? <= 2 * 40_000 * 8 + 8192, "windows pile up");
    job.team().barrier()
}

fn same_address(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 3)?;
    let mine = window.part(Rank(0))?.as_ptr() as u64;
    let mut theirs = [mine];
    job.team().broadcast(Rank(0), &mut theirs)?;
    assert_eq!(theirs[0], mine);
    Ok(())
}

fn threads(job: &Job) -> Result<()> {
    const EACH: u64 = 2000;
    let window = Window::<u64>::allocate(job.team(), 4)?;
    let epoch = window.lock_all()?;
    let handler = window.register::<u64, u64>(1, |call| {
        // Not atomic: correct only because messages on one target are serialised.
        let old = call.persistent.get(0).unwrap_or(0);
        let _ = call.persistent.set(0, old + call.input[0]);
        call.output[0] = old;
    })?;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| -> Result<()> {
                for i in 0..EACH {
                    let target = Rank((i % u64::from(job.size())) as u32);
                    epoch.accumulate(target, 1, Op::Sum, &[1])?;
                    epoch.am(&handler, target, 2..3, &[1], &mut [0])?;
                }
                Ok(())
            });
        }
    });
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut sums = [window.local().get(1)?, window.local().get(2)?];
    job.team().allreduce(Op::Sum, &mut sums)?;
    assert_eq!(sums, [3 * EACH * u64::from(job.size()); 2]);
    Ok(())
}

/// Writers store words of equal halves; no reader may ever see unequal ones.
fn tearing(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let epoch = window.lock_all()?;
    for i in 0..3000u64 {
        let half = i << 3 | u64::from(job.rank().0);
        epoch.put(Rank(0), 0, &[half << 32 | half])?;
        let mut seen = [0u64];
        epoch.get(Rank(0), 0, &mut seen)?;
        assert_eq!(seen[0] >> 32, seen[0] & 0xffff_ffff, "torn: {:#x}", seen[0]);
    }
    epoch.unlock_all()?;
    job.team().barrier()
}
