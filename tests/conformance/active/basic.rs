//! What single messages do.

use crate::Written;
use hither::{Assertions, Error, Job, Op, Rank, Result, Window};

pub const CASES: &[Written] = &[
    ("am_input_persistent_output", buffers),
    ("am_serialised_per_target", serialised),
    ("am_concurrent_when_asserted", concurrent),
    ("am_panic_reaches_the_origin_only", panics),
    ("am_may_not_communicate", reentry),
    ("am_registration_errors", registration),
    ("am_bounds", bounds),
    ("am_own_order_is_kept", order),
];

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn buffers(job: &Job) -> Result<()> {
    let window = Window::<f64>::allocate(job.team(), 100)?;
    for i in 0..100 {
        window.local().set(i, i as f64 + 1000.0 * f64::from(job.rank().0))?;
    }
    let scale = window.register::<f64, f64>(9, |call| {
        for (i, factor) in call.input.iter().enumerate() {
            let old = call.persistent.get(i).unwrap_or(f64::NAN);
            call.output[i] = old * factor + call.start as f64;
            let _ = call.persistent.set(i, -old);
        }
    })?;
    let mut epoch = window.fence()?;
    let mut out = [0.0; 5];
    epoch.am(&scale, next(job), 10..15, &[1.0, 2.0, 3.0, 4.0, 5.0], &mut out)?;
    let base = 1000.0 * f64::from(next(job).0);
    for (i, got) in out.iter().enumerate() {
        assert_eq!(*got, (base + 10.0 + i as f64) * (i as f64 + 1.0) + 10.0);
    }
    epoch.next()?;
    for i in 0..100 {
        let original = i as f64 + 1000.0 * f64::from(job.rank().0);
        let changed = (10..15).contains(&i);
        assert_eq!(window.local().get(i)?, if changed { -original } else { original });
    }
    epoch.am(&scale, next(job), 3..3, &[], &mut [])?;
    epoch.end()
}

fn serialised(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let add = window.register::<u64, u64>(1, |call| {
        let old = call.persistent.get(0).unwrap_or(0);
        // Give others every chance to interleave.
        std::thread::yield_now();
        let _ = call.persistent.set(0, old + call.input[0]);
        call.output[0] = old;
    })?;
    let epoch = window.lock_all()?;
    for target in job.team().ranks() {
        for _ in 0..100 {
            epoch.am(&add, target, 0..1, &[1], &mut [0])?;
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    assert_eq!(window.local().get(0)?, 100 * u64::from(job.size()));
    job.team().barrier()
}

fn concurrent(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    // Waits inside the handler until every rank is inside one on rank 0: possible only if they
    // run at the same time.
    let size = u64::from(job.size());
    let meet = window.register::<u64, u64>(1, move |call| {
        let _ = call.persistent.fetch_and_op(0, Op::Sum, 1);
        while call.persistent.get(0).is_ok_and(|n| n < size) {
            std::thread::yield_now();
        }
        call.output[0] = 1;
    })?;
    let asserted = Assertions { concurrent_am: true, ..Assertions::default() };
    let epoch = window.lock_all_with(asserted)?;
    let mut out = [0];
    epoch.am(&meet, Rank(0), 0..1, &[], &mut out)?;
    assert_eq!(out, [1]);
    epoch.unlock_all()?;
    job.team().barrier()
}

fn panics(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let fussy = window.register::<u64, u64>(4, |call| {
        assert!(call.input[0] != 13, "thirteen is refused");
        let _ = call.persistent.fetch_and_op(0, Op::Sum, call.input[0]);
    })?;
    let epoch = window.lock_all()?;
    let target = Rank(0);
    if job.rank().0 == job.size() - 1 {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = epoch.am(&fussy, target, 0..1, &[13], &mut []);
        std::panic::set_hook(hook);
        match result {
            Err(Error::HandlerPanicked { index: 4, target: Rank(0), message }) => {
                assert_eq!(message, "thirteen is refused");
            }
            other => panic!("{other:?}"),
        }
    }
    for _ in 0..50 {
        epoch.am(&fussy, target, 0..1, &[1], &mut [])?;
    }
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mut sum = [0];
    let epoch = window.lock_all()?;
    epoch.get(target, 0, &mut sum)?;
    epoch.unlock_all()?;
    assert_eq!(sum, [50 * u64::from(job.size())]);
    job.team().barrier()
}

fn reentry(job: &Job) -> Result<()> {
    let window = std::sync::Arc::new(Window::<u64>::allocate(job.team(), 1)?);
    let team = job.team().clone();
    let nested = window.register::<u64, u64>(1, move |call| {
        let refused = matches!(team.barrier(), Err(Error::Misuse { .. }));
        call.output[0] = u64::from(refused);
    })?;
    let epoch = window.lock_all()?;
    let mut out = [0];
    epoch.am(&nested, next(job), 0..1, &[], &mut out)?;
    assert_eq!(out, [1], "a collective inside a handler was not refused");
    epoch.unlock_all()?;
    job.team().barrier()
}

fn registration(job: &Job) -> Result<()> {
    let one = Window::<u64>::allocate(job.team(), 1)?;
    let two = Window::<u64>::allocate(job.team(), 1)?;
    let handler = one.register::<u64, u64>(5, |_| {})?;
    assert!(matches!(one.register::<u64, u64>(5, |_| {}), Err(Error::Misuse { .. })));
    assert!(one.handler::<u64, u64>(5).is_some());
    assert!(one.handler::<u32, u64>(5).is_none(), "other types");
    assert!(one.handler::<u64, u64>(6).is_none());
    let foreign = two.lock_all()?.am(&handler, Rank(0), 0..1, &[], &mut []);
    assert!(matches!(foreign, Err(Error::Misuse { .. })), "{foreign:?}");
    let index = if job.rank().0 == job.size() - 1 { 8 } else { 7 };
    let result = one.register::<u64, u64>(index, |_| {});
    assert_eq!(result.is_ok(), job.size() == 1, "different indices");
    let again = one.register::<u64, u64>(7, |_| {});
    assert!(again.is_ok(), "a failed registration leaves the index free");
    job.team().barrier()
}

fn bounds(job: &Job) -> Result<()> {
    let window = Window::<u16>::allocate(job.team(), 10)?;
    let touch =
        window.register::<u8, u8>(1, |call| call.output[0] = call.persistent.len() as u8)?;
    let epoch = window.lock_all()?;
    let mut out = [0];
    assert!(epoch.am(&touch, next(job), 5..11, &[], &mut out).is_err());
    assert!(epoch.am(&touch, Rank(job.size()), 0..1, &[], &mut out).is_err());
    assert_eq!(out, [0]);
    epoch.am(&touch, next(job), 5..10, &[], &mut out)?;
    assert_eq!(out, [5]);
    epoch.unlock_all()?;
    window.free()
}

/// Messages from one origin to one target run in the order in which they were issued.
fn order(job: &Job) -> Result<()> {
    let size = job.size() as usize;
    let window = Window::<u64>::allocate(job.team(), size)?;
    let follow = window.register::<u64, u64>(1, |call| {
        let [origin, step] = call.input else { return };
        let at = *origin as usize;
        let last = call.persistent.get(at).unwrap_or(u64::MAX);
        call.output[0] = u64::from(last + 1 == *step);
        let _ = call.persistent.set(at, *step);
    })?;
    let epoch = window.lock_all()?;
    for step in 1..=300u64 {
        for target in job.team().ranks() {
            let mut in_order = [0];
            let input = [u64::from(job.rank().0), step];
            epoch.am(&follow, target, 0..size, &input, &mut in_order)?;
            assert_eq!(in_order, [1], "step {step} at {target}");
        }
    }
    epoch.unlock_all()?;
    job.team().barrier()
}
