//! What is refused, and that nothing has happened then; what goes wrong in handlers.

use crate::Written;
use hither::{Error, Job, Layout, LockKind, Op, Rank, Request, Result, Window};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub const CASES: &[Written] = &[
    ("am_sides_must_go_together", sides),
    ("am_persistent_layouts_are_checked", persistent),
    ("am_types_are_named_in_a_mismatch", types),
    ("am_deregistration", deregistration),
    ("am_handlers_of_other_windows", foreign),
    ("am_panic_amid_segments", panics),
    ("am_counts_are_checked", counts),
    ("am_refuses_every_call_inside", inside),
    ("am_refuses_messages_inside", messages_inside),
    ("am_without_segments_calls_nothing", nothing),
    ("am_functions_with_context", functions),
    ("am_threads_of_a_rank", threads),
    ("am_large_segments_are_staged_in_units", staged),
];

fn invalid<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    match result {
        Err(error @ Error::InvalidArgument { .. }) => {
            let text = error.to_string();
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
        other => panic!("{other:?} instead of: {part}"),
    }
}

fn misuse<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    match result {
        Err(error @ Error::Misuse { .. }) => {
            let text = error.to_string();
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
        other => panic!("{other:?} instead of: {part}"),
    }
}

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn sides(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let called = Arc::new(AtomicU64::new(0));
    let count = called.clone();
    let touch = window.register::<u32, u32>(1, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    })?;
    let (one, to) = (Layout::of::<u32>(), next(job));
    let epoch = window.lock_all()?;
    let message = || epoch.message(&touch, to).persistent(0..1);
    let mut out = [0u32; 6];
    invalid(message().segments(4).input(&[0; 6]).run(), "6 elements of input do not divide");
    invalid(message().segments(4).output(&mut out).run(), "6 elements of output do not divide");
    invalid(message().segments(0).input(&[1]).run(), "do not divide into 0");
    let segment = one.times(4);
    invalid(message().segments(2).input(&[0; 6]).input_layout(segment).run(), "which has 24");
    let below = one.hindexed(&[(-4, 1)])?;
    invalid(message().input(&[0; 6]).input_layout(below.times(1)).run(), "bytes -4..0");
    let triple = one.contiguous(3)?;
    invalid(message().input(&[0; 4]).input_there(&triple).run(), "no whole number");
    let signed = Layout::of::<i32>();
    invalid(message().input(&[0; 4]).input_there(&signed).run(), "U32 at the origin, I32");
    let back = one.resized(0, -4)?;
    invalid(message().input(&[0; 4]).input_there(&back).run(), "goes backwards");
    let bytes = Layout::of::<[u32; 0x1000]>();
    let far = bytes.resized(0, 1 << 60)?;
    invalid(message().segments(1 << 8).input_layout(far.times(1 << 8)).run(), "2^61");
    invalid(message().segments(usize::MAX).output_layout(one.times(usize::MAX)).run(), "many");
    invalid(message().output(&mut out).post(), "there is no output");
    invalid(message().output(&mut out).request(1), "there is no output");
    let (start, end) = (5, 3);
    invalid(message().persistent(start..end).run(), "ends before it starts");
    assert!(matches!(message().request(1 << 50), Err(Error::OutOfMemory { .. })));
    epoch.unlock_all()?;
    assert_eq!(called.load(Ordering::Relaxed), 0, "nothing of that has run");
    job.team().barrier()
}

fn persistent(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 8)?;
    let touch = window.register::<u64, u64>(1, |call| {
        call.output[0] = call.persistent.len() as u64 * 100 + call.start as u64;
    })?;
    let (one, to) = (Layout::of::<u64>(), next(job));
    let epoch = window.lock_all()?;
    let mut out = [0u64];
    let mut run = |start: usize, layout: &Layout, count: usize| {
        let shape = layout.times(count);
        let message = epoch.message(&touch, to).persistent_layout(start, shape);
        message.output(&mut out).run().map(|()| out[0])
    };
    let bounds = |result: Result<u64>| {
        assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
    };
    assert_eq!(run(1, &one, 7)?, 701);
    bounds(run(1, &one, 8));
    bounds(run(9, &one, 1));
    bounds(run(usize::MAX, &one, 1));
    let every_third = one.resized(0, 24)?;
    assert_eq!(run(0, &every_third, 3)?, 700);
    bounds(run(0, &every_third, 4));
    let back = one.resized(0, -8)?;
    assert_eq!(run(7, &back, 8)?, 807);
    bounds(run(7, &back, 9));
    // Half an element: the view has the whole one.
    let half = Layout::of::<u32>().hindexed(&[(4, 1)])?;
    assert_eq!(run(7, &half, 1)?, 107);
    let whole = epoch.message(&touch, to).persistent(8..9).output(&mut [0]).run();
    assert!(matches!(whole, Err(Error::OutOfBounds { .. })), "{whole:?}");
    let nobody = epoch.message(&touch, Rank(job.size())).output(&mut [0]).run();
    assert!(nobody.is_err());
    epoch.unlock_all()?;
    job.team().barrier()
}

fn types(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let last = job.rank().0 == job.size() - 1;
    let alone = job.size() == 1;
    let check = |result: Result<()>, what: &str, names: [&str; 2]| match result {
        Ok(()) => assert!(alone),
        Err(error @ Error::Mismatch { .. }) => {
            let text = error.to_string();
            assert!(last && text.contains(what), "{text}");
            names.iter().for_each(|name| assert!(text.contains(name), "{name} not in {text}"));
        }
        Err(Error::PeerFailed { .. }) => assert!(!last),
        Err(other) => panic!("{other:?}"),
    };
    let result = if last {
        window.register::<f32, u8>(1, |_| {}).map(drop)
    } else {
        window.register::<[u64; 3], u8>(1, |_| {}).map(drop)
    };
    check(result, "input type", ["[u64; 3] (24 bytes)", "f32 (4 bytes)"]);
    let result = if last {
        window.register::<u8, i64>(2, |_| {}).map(drop)
    } else {
        window.register::<u8, u8>(2, |_| {}).map(drop)
    };
    check(result, "output type", ["u8 (1 bytes)", "i64 (8 bytes)"]);
    let result = if last {
        window.register_vector::<u8, u8>(3, |_| {}).map(drop)
    } else {
        window.register::<u8, u8>(3, |_| {}).map(drop)
    };
    check(result, "what is done", ["register_vector", "register"]);
    let result = if last {
        window.register_untyped(4, false, |_| {}).map(drop)
    } else {
        window.register::<u8, u8>(4, |_| {}).map(drop)
    };
    check(result, "what is done", ["register_untyped", "register"]);
    for index in 1..=4 {
        let there = window.untyped_handler(index).is_some();
        assert_eq!(there, alone, "{index} after a failed registration");
    }
    job.team().barrier()
}

fn deregistration(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let held = Arc::new(());
    let inside = held.clone();
    let first = window.register::<u64, u64>(7, move |call| {
        let _ = &inside;
        call.output[0] = 1;
    })?;
    misuse(window.deregister(8), "no handler is registered under index 8");
    let last = job.rank().0 == job.size() - 1;
    let differs = window.deregister(if last { 7 } else { 6 });
    assert_eq!(differs.is_ok(), job.size() == 1);
    if job.size() > 1 {
        assert!(window.handler::<u64, u64>(7).is_some(), "it stays");
        window.deregister(7)?;
    }
    assert!(window.handler::<u64, u64>(7).is_none());
    let epoch = window.lock_all()?;
    let mut out = [0];
    misuse(epoch.am(&first, next(job), 0..1, &[], &mut out), "has been deregistered");
    misuse(epoch.message(&first, next(job)).post(), "has been deregistered");
    epoch.unlock_all()?;
    let second = window.register::<u64, u64>(7, |call| call.output[0] = 2)?;
    assert_eq!((first.index(), second.index()), (7, 7));
    let epoch = window.lock_all()?;
    misuse(epoch.am(&first, next(job), 0..1, &[], &mut out), "has been deregistered");
    epoch.am(&second, next(job), 0..1, &[], &mut out)?;
    assert_eq!(out, [2]);
    epoch.unlock_all()?;
    drop(first);
    assert_eq!(Arc::strong_count(&held), 1, "the closure has gone");
    job.team().barrier()
}

fn foreign(job: &Job) -> Result<()> {
    let one = Window::<u64>::allocate(job.team(), 1)?;
    let two = Window::<u64>::allocate(job.team(), 1)?;
    let typed = one.register::<u64, u64>(1, |_| {})?;
    let vector = one.register_vector::<u64, u64>(2, |_| {})?;
    let epoch = two.lock_all()?;
    misuse(epoch.message(&typed, next(job)).run(), "registered on another window");
    misuse(epoch.message(&vector, next(job)).post(), "registered on another window");
    misuse(epoch.message(&vector, next(job)).request(1), "registered on another window");
    epoch.unlock_all()?;
    assert!(one.handler::<u64, u64>(2).is_none(), "its output is variable");
    assert!(one.vector_handler::<u64, u64>(2).is_some());
    assert!(one.vector_handler::<u64, u32>(2).is_none(), "other types");
    // An epoch that does not cover the target.
    let epoch = one.lock(Rank(0), LockKind::Shared)?;
    if job.size() > 1 {
        misuse(epoch.message(&typed, Rank(1)).run(), "covers rank 0 only");
    }
    epoch.unlock()?;
    job.team().barrier()
}

fn panics(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let fussy = window.register::<u64, u64>(4, |call| {
        for s in 0..call.segments {
            assert!(call.input[s] != 13, "segment {} has {}", call.segment_offset + s, 13);
            let _ = call.persistent.fetch_and_op(0, Op::Sum, call.input[s]);
        }
    })?;
    // Ranks may be threads of one process.
    let hook = (job.rank().0 == 0).then(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        hook
    });
    job.team().barrier()?;
    let epoch = window.lock_all()?;
    let result = epoch.message(&fussy, Rank(0)).persistent(0..1).segments(3).input(&[1, 13, 1]);
    let result = result.run();
    job.team().barrier()?;
    if let Some(hook) = hook {
        std::panic::set_hook(hook);
    }
    match result {
        Err(Error::HandlerPanicked { index: 4, target: Rank(0), message }) => {
            assert_eq!(message, "segment 1 has 13");
        }
        other => panic!("{other:?}"),
    }
    epoch.message(&fussy, Rank(0)).persistent(0..1).segments(2).input(&[5, 6]).run()?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    assert_eq!(window.part(Rank(0)).map_or(Ok(0), |part| part.get(0))? % 12, 0);
    job.team().barrier()
}

fn counts(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let boastful = window.register_vector::<usize, u16>(1, |mut call| {
        for s in 0..call.segments {
            call.counts[s] = call.input[s];
            call.output_of(s).fill(s as u16 + 1);
        }
    })?;
    let epoch = window.lock_all()?;
    let mut out = [0u16; 6];
    let mut counts = [9; 3];
    let send = |input: &[usize; 3], out: &mut [u16; 6], counts: &mut [usize]| {
        epoch.message(&boastful, next(job)).segments(3).input(input).output(out, counts).run()
    };
    send(&[2, 0, 1], &mut out, &mut counts)?;
    assert_eq!((counts, &out[..2], out[4]), ([2, 0, 1], &[1, 1][..], 3));
    misuse(send(&[2, 3, 1], &mut out, &mut counts), "counted 3 entries of output in segment 1");
    misuse(send(&[usize::MAX, 0, 1], &mut out, &mut counts), "has room for 2");
    invalid(send(&[0; 3], &mut out, &mut [0; 2]), "2 counts for 3 segments");
    let answer = epoch.message(&boastful, next(job)).segments(3).input(&[1, 2, 0]).request(2)?;
    let answer = answer.wait()?;
    assert_eq!(answer.counts, [1, 2, 0]);
    assert_eq!((answer.segment(0), answer.segment(1)), (&[1][..], &[2, 2][..]));
    assert!(answer.segment(2).is_empty() && answer.segment(3).is_empty());
    let words = Layout::of::<u16>();
    let pairs = words.contiguous(2)?;
    let pieces = epoch.message(&boastful, next(job)).segments(3).input(&[1, 1, 0]);
    let pieces = pieces.output(&mut out, &mut counts);
    let pieces = pieces.output_layout(pairs.times(1)).output_there(&words);
    invalid(pieces.run(), "whole number of the origin's");
    epoch.unlock_all()?;
    job.team().barrier()
}

/// Every call that may wait for others is refused inside a handler.
fn inside(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let other = Arc::new(Window::<u64>::allocate(job.team(), 1)?);
    let (team, inner) = (job.team().clone(), other.clone());
    let request: Arc<Mutex<Option<Request<Vec<u64>>>>> = Arc::default();
    let begun = request.clone();
    let nosy = window.register::<u64, u64>(1, move |call| {
        let mut failed: Vec<(&str, String)> = Vec::new();
        macro_rules! refused {
            ($($name:literal: $call:expr),+ $(,)?) => { $(
                match $call {
                    Err(Error::Misuse { .. }) => {}
                    other => failed.push(($name, format!("{:?}", other.map(drop)))),
                }
            )+ };
        }
        let (me, free) = (Rank(0), inner.unguarded());
        let none = hither::Assertions::default();
        refused! {
            "barrier": team.barrier(),
            "allocate": Window::<u8>::allocate(&team, 1),
            "lock": inner.lock(me, LockKind::Shared),
            "lock_all": inner.lock_all(),
            "fence": inner.fence(),
            "post": inner.post(&[me]),
            "start": inner.start(&[me]),
            "wait_until": inner.wait_until(0, hither::Compare::Eq, 0),
            "register": inner.register::<u8, u8>(9, |_| {}),
            "deregister": inner.deregister(9),
            "heal": inner.heal(me),
            "unguarded epoch": free.epoch(me),
            "unguarded fence": free.fence(none),
            "unguarded post": free.post(&[me], none),
            "unguarded start": free.start(&[me], none),
            "unguarded lock": free.lock(me, LockKind::Exclusive, none),
            "unguarded unlock": free.unlock(me),
            "unguarded lock_all": free.lock_all(none),
            "unguarded unlock_all": free.unlock_all(),
            "unguarded complete": free.complete(),
            "unguarded wait": free.wait(),
            "unguarded test": free.test(),
        }
        let taken = begun.lock().ok().and_then(|mut begun| begun.take());
        if let Some(mut request) = taken {
            // Done already, or it would have to communicate.
            if !matches!(request.test(), Ok(true) | Err(Error::Misuse { .. })) {
                failed.push(("request", "went on".into()));
            }
        }
        assert!(failed.is_empty(), "not refused: {failed:?}");
        call.output[0] = 1;
    })?;
    // The other window has an epoch open, so that nothing is refused for want of one.
    let epoch = other.lock_all()?;
    let pending = epoch.get_request(next(job), 0, 1)?;
    *request.lock().expect("nobody panics with it") = Some(pending);
    let messages = window.lock_all()?;
    let mut out = [0];
    messages.am(&nosy, next(job), 0..1, &[], &mut out)?;
    messages.unlock_all()?;
    assert_eq!(out, [1]);
    epoch.unlock_all()?;
    job.team().barrier()?;
    // The request in it, if the handler ran elsewhere.
    drop(request.lock().expect("nobody panics with it").take());
    window.deregister(1)
}

/// Also those on parts that are free, in an epoch that the handler has got hold of.
fn messages_inside(job: &Job) -> Result<()> {
    let target = next(job);
    // A handler outlives every borrow.
    let other: &'static Window<u64> = Box::leak(Box::new(Window::allocate(job.team(), 1)?));
    let inner =
        other.register::<u64, u64>(1, |call| call.persistent.set(0, 1).expect("a store"))?;
    let epoch = Arc::new(Mutex::new(Some(other.lock_all()?)));
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let shared = epoch.clone();
    let nosy = window.register::<u64, u64>(1, move |call| {
        let shared = shared.lock().expect("nobody panics with it");
        let shared = shared.as_ref().expect("an epoch");
        let plain = shared.am(&inner, target, 0..1, &[], &mut []);
        let built = shared.message(&inner, target).persistent(0..1).run();
        let refused = |result| matches!(result, Err(Error::Misuse { .. }));
        call.output[0] = u64::from(refused(plain)) + 2 * u64::from(refused(built));
    })?;
    let messages = window.lock_all()?;
    let mut out = [0];
    messages.am(&nosy, target, 0..1, &[], &mut out)?;
    messages.unlock_all()?;
    assert_eq!(out, [3]);
    job.team().barrier()?;
    window.deregister(1)?;
    let epoch = epoch.lock().expect("nobody panics with it").take();
    epoch.expect("an epoch").unlock_all()?;
    job.team().barrier()?;
    assert_eq!(other.local().get(0)?, 0);
    job.team().barrier()
}

fn nothing(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let never = window.register::<u64, u64>(1, |_| panic!("called"))?;
    let never_counts = window.register_vector::<u64, u64>(2, |_| panic!("called"))?;
    let epoch = window.lock_all()?;
    epoch.message(&never, next(job)).segments(0).run()?;
    epoch.message(&never, next(job)).segments(0).persistent(0..1).post()?;
    assert_eq!(epoch.message(&never, next(job)).segments(0).request(3)?.wait()?, []);
    let answer = epoch.message(&never_counts, next(job)).segments(0).request(3)?.wait()?;
    assert_eq!((answer.segments(), answer.output.len()), (0, 0));
    let wrong = epoch.message(&never, next(job)).segments(0).persistent(0..2).run();
    assert!(matches!(wrong, Err(Error::OutOfBounds { .. })), "{wrong:?}");
    epoch.unlock_all()?;
    job.team().barrier()
}

unsafe extern "C-unwind" fn add(
    input: *const std::ffi::c_void,
    input_count: usize,
    input_layout: *const Layout,
    persistent: *mut std::ffi::c_void,
    persistent_count: usize,
    _persistent_layout: *const Layout,
    output: *mut std::ffi::c_void,
    output_count: usize,
    _output_layout: *const Layout,
    segments: usize,
    segment_offset: usize,
    counts: *mut usize,
    context: *mut std::ffi::c_void,
) {
    // SAFETY: as registered and issued below: u64 everywhere; the context is an AtomicU64.
    unsafe {
        assert_eq!((input_count, persistent_count, output_count), (2, 1, 1));
        assert_eq!((*input_layout).size(), 8);
        (*context.cast::<AtomicU64>()).fetch_add(segments as u64, Ordering::Relaxed);
        for s in 0..segments {
            let values = input.cast::<u64>().add(2 * s);
            let sum = persistent.cast::<u64>();
            sum.write(sum.read() + values.read() + values.add(1).read());
            output.cast::<u64>().add(s).write((segment_offset + s) as u64);
            if !counts.is_null() {
                counts.add(s).write(1);
            }
        }
    }
}

fn functions(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let runs = Box::leak(Box::new(AtomicU64::new(0)));
    let context: *mut std::ffi::c_void = std::ptr::from_mut(runs).cast();
    // SAFETY: `add` keeps to its arguments; the context stays for ever.
    let (plain, counted) = unsafe {
        (
            window.register_function(1, false, add, context)?,
            window.register_function(2, true, add, context)?,
        )
    };
    assert!(!plain.is_vector() && counted.is_vector());
    let one = Layout::of::<u64>();
    let input: Vec<u64> = (0..20).collect();
    let (mut output, mut counts) = (vec![99u64; 10], vec![99usize; 10]);
    let mut message = hither::RawMessage {
        input: input.as_ptr().cast(),
        input_segment: one.times(2),
        output: output.as_mut_ptr().cast(),
        output_segment: one.times(1),
        segments: 10,
        input_there: &one,
        output_there: &one,
        displacement: job.rank().0 as usize % 2,
        persistent: one.times(1),
        counts: std::ptr::null_mut(),
        placement: hither::Placement::Auto,
    };
    let epoch = window.lock_all()?;
    // SAFETY: the vectors are as long as said, and live on.
    unsafe {
        epoch.am_raw(&plain, next(job), &message)?;
        message.counts = counts.as_mut_ptr();
        invalid(epoch.am_raw(&plain, next(job), &message), "there are no counts");
        epoch.am_raw(&counted, next(job), &message)?;
    }
    epoch.unlock_all()?;
    assert_eq!(output, (0..10).collect::<Vec<u64>>());
    assert_eq!(counts, [1; 10]);
    job.team().barrier()?;
    let sums = window.local().get(0)? + window.local().get(1)?;
    assert_eq!(sums, 2 * (0..20).sum::<u64>());
    job.team().barrier()
}

fn threads(job: &Job) -> Result<()> {
    let window = Window::<u64>::allocate(job.team(), 1)?;
    let add = window.register::<u64, u64>(1, |call| {
        let old = call.persistent.get(0).unwrap_or(0);
        std::thread::yield_now();
        let _ = call.persistent.set(0, old + call.input.iter().sum::<u64>());
        call.output.fill(old);
    })?;
    let epoch = window.lock_all()?;
    std::thread::scope(|scope| -> Result<()> {
        let work = || -> Result<()> {
            for step in 0..30 {
                let to = Rank((job.rank().0 + step) % job.size());
                let message = epoch.message(&add, to).persistent(0..1).segments(2).input(&[1, 2]);
                if step % 2 == 0 {
                    message.output(&mut [0; 2]).run()?;
                } else {
                    message.request(1)?.wait()?;
                }
            }
            Ok(())
        };
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    epoch.unlock_all()?;
    job.team().barrier()?;
    let mine = window.local().get(0)?;
    let mut all = [mine];
    job.team().allreduce(Op::Sum, &mut all)?;
    assert_eq!(all[0], u64::from(job.size()) * 3 * 30 * 3);
    job.team().barrier()
}

/// More than fits into the staging at once: several calls, in order, with the right offsets.
fn staged(job: &Job) -> Result<()> {
    const EACH: usize = 1000;
    let window = Window::<u64>::allocate(job.team(), 2)?;
    let follow = window.register::<u64, u64>(1, |mut call| {
        for s in 0..call.segments {
            let at = call.persistent.get(0).unwrap_or(u64::MAX);
            let segment = (call.segment_offset + s) as u64;
            assert_eq!(at, segment, "segments come in order");
            let _ = call.persistent.set(0, segment + 1);
            let input: u64 = call.input_of(s).iter().sum();
            call.output_of(s).fill(input + segment);
        }
    })?;
    let segments = 40;
    let one = Layout::of::<u64>();
    let gaps = one.resized(0, 16)?;
    let target = Rank(job.rank().0);
    let input: Vec<u64> = (0..2 * EACH * segments).map(|i| (i as u64 + 1) % 2).collect();
    let mut output = vec![7u64; 2 * EACH * segments];
    let epoch = window.lock(target, LockKind::Exclusive)?;
    let message = epoch.message(&follow, target).persistent(0..1).segments(segments);
    let message = message.input(&input).input_layout(gaps.times(EACH)).input_there(&one);
    let message = message.output(&mut output).output_layout(gaps.times(EACH)).output_there(&one);
    message.run()?;
    epoch.unlock()?;
    assert_eq!(window.local().get(0)?, segments as u64);
    for (at, got) in output.iter().enumerate() {
        let want = (EACH + at / (2 * EACH)) as u64;
        assert_eq!(*got, if at % 2 == 0 { want } else { 7 }, "{at}");
    }
    job.team().barrier()
}
