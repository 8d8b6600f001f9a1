//! The turn on a mapped part where it is not as it nearly always is: somebody else has it, somebody
//! waits for it, the part is poisoned. Each case holds on until the lock itself shows that it is so.
//! Deaths need processes, which `tests/poison.rs` has.

use super::{Call, Placement};
use crate::base::sync::Ordering;
use crate::base::{Error, Rank, Result, Slot};
use crate::rma::{Assertions, LockAllEpoch, Medium, Window};
use crate::shm::lock::Sole;
use crate::{Handler, Info, Job};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// Long enough for everything but a wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// The input of a message that stays inside until somebody stands in line behind it.
const STAYS: u64 = 1;

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::yield_now();
    }
}

/// Runs a test that hangs where something is wrong.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (over, ended) = mpsc::channel();
    let run = std::thread::spawn(move || {
        test();
        let _ = over.send(());
    });
    if ended.recv_timeout(2 * PATIENCE).is_err() {
        assert!(run.is_finished(), "somebody waits for ever");
    }
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

type Count = Handler<u64, u64, u64>;

/// A window whose messages add one to element 0, by reading it, maybe staying, and writing it; the
/// output is what was there.
fn window(job: &Job, medium: Medium) -> Result<(Arc<Window<u64>>, Count)> {
    let info = Info { medium, ..Info::default() };
    let window = Arc::new(Window::<u64>::builder(job.team()).info(info).allocate(1)?);
    let (own, me): (Weak<Window<u64>>, Slot) = (Arc::downgrade(&window), window.node().slot());
    let add = move |call: Call<'_, u64, u64, u64>| {
        let was = call.persistent.get(0).unwrap_or(0);
        if let Some(window) = own.upgrade()
            && call.input.contains(&STAYS)
        {
            let lock = &window.line(call.target).am_lock;
            eventually("somebody stands in line", || {
                lock.holder() == Some(me) && !lock.is_alone(me)
            });
        }
        let _ = call.persistent.set(0, was + 1);
        call.output.fill(was);
    };
    let handler = window.register::<u64, u64>(7, add)?;
    job.team().barrier()?;
    Ok((window, handler))
}

/// By the short way, or in two segments, which goes the long way.
fn send(
    epoch: &LockAllEpoch<'_, u64>,
    count: &Count,
    to: Rank,
    input: u64,
    short: bool,
) -> Result<u64> {
    let mut was = [0; 2];
    if short {
        epoch.am(count, to, 0..1, &[input], &mut was[..1])?;
    } else {
        let message = epoch.message(count, to).persistent(0..1).segments(2);
        message.input(&[input, 0]).output(&mut was).run()?;
    }
    Ok(was[0])
}

fn inside(window: &Window<u64>, target: Rank, who: Rank) -> bool {
    window.line(target).am_lock.holder() == Some(Slot(who.0 as u16))
}

/// Rank 0 is inside on rank 2's part; rank 1 comes, finds the lock taken, stands in line, and has it
/// handed on when rank 0 gives it back.
#[test]
fn who_finds_it_taken_stands_in_line_and_has_it_handed_on() {
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        in_time(move || {
            let ends = Job::threads(3, |job| {
                let (window, count) = window(&job, Medium::Auto).unwrap();
                let (target, lock) = (Rank(2), &window.line(Rank(2)).am_lock);
                let epoch = window.lock_all().unwrap();
                match job.rank() {
                    Rank(0) => {
                        let was = send(&epoch, &count, target, STAYS, first).unwrap();
                        assert_eq!(was, 0);
                    }
                    Rank(1) => {
                        eventually("rank 0 is inside", || inside(&window, target, Rank(0)));
                        let was = send(&epoch, &count, target, 0, second).unwrap();
                        assert!(was > 0, "while rank 0 was inside");
                    }
                    _ => {}
                }
                epoch.unlock_all().unwrap();
                job.team().barrier().unwrap();
                assert!(lock.is_free());
                job.team().barrier().unwrap();
            });
            ends.unwrap();
        });
    }
}

fn poisoned<R: std::fmt::Debug>(result: Result<R>, culprit: u32) {
    let told = matches!(
        result,
        Err(Error::WindowPoisoned { target: Rank(0), culprit: Rank(c) }) if c == culprit
    );
    assert!(told, "{result:?}");
}

/// As in the moment in which a part is poisoned already and nobody knows of a death yet.
#[test]
fn a_poisoned_part_is_refused_and_nobody_keeps_its_turn() {
    in_time(|| {
        let ends = Job::threads(2, |job| {
            let (window, count) = window(&job, Medium::Auto).unwrap();
            let line = window.line(Rank(0));
            if job.rank() == Rank(1) {
                line.poison.store(6, Ordering::Relaxed);
                let epoch = window.lock_all().unwrap();
                for short in [true, false, true] {
                    poisoned(send(&epoch, &count, Rank(0), 0, short), 5);
                    assert!(line.am_lock.is_free());
                }
                assert_eq!(send(&epoch, &count, Rank(1), 0, true).unwrap(), 0, "another part");
                epoch.unlock_all().unwrap();

                // One that takes no turn does not give back that of another thread of its process.
                let asserted = Assertions { concurrent_am: true, ..Assertions::default() };
                let epoch = window.lock_all_with(asserted).unwrap();
                let me = window.node().slot();
                assert!(line.am_lock.take_alone(Sole::of(me)));
                for short in [true, false] {
                    poisoned(send(&epoch, &count, Rank(0), 0, short), 5);
                    assert!(line.am_lock.is_alone(me));
                }
                assert!(line.am_lock.release_alone(Sole::of(me)));
                epoch.unlock_all().unwrap();

                window.heal(Rank(0)).unwrap();
                let epoch = window.lock_all().unwrap();
                for (was, short) in [true, false, true].into_iter().enumerate() {
                    let seen = send(&epoch, &count, Rank(0), 0, short).unwrap();
                    // The one in two segments adds two, or one if both came in a call.
                    assert!(seen >= was as u64, "{seen} at {was}");
                }
                epoch.unlock_all().unwrap();
            }
            job.team().barrier().unwrap();
        });
        ends.unwrap();
    });
}

/// By packets the target finds the poison, whoever is to run the handler.
#[test]
fn a_poisoned_part_is_refused_by_its_process_too() {
    in_time(|| {
        let ends = Job::threads(2, |job| {
            let (window, count) = window(&job, Medium::Packets).unwrap();
            let line = window.line(Rank(0));
            if job.rank() == Rank(1) {
                for (assertions, was) in [
                    (Assertions::default(), 0),
                    (Assertions { concurrent_am: true, ..Assertions::default() }, 4),
                ] {
                    line.poison.store(6, Ordering::Relaxed);
                    let epoch = window.lock_all_with(assertions).unwrap();
                    for short in [true, false] {
                        poisoned(send(&epoch, &count, Rank(0), 0, short), 5);
                    }
                    let message = || epoch.message(&count, Rank(0)).persistent(0..1).input(&[0]);
                    for placement in [Placement::Target, Placement::Origin] {
                        let mut output = [0];
                        let message = message().placement(placement).output(&mut output);
                        poisoned(message.run(), 5);
                    }
                    poisoned(message().request(1).and_then(|request| request.wait()), 5);
                    assert!(line.am_lock.is_free());
                    assert_eq!(
                        send(&epoch, &count, Rank(1), 0, true).unwrap(),
                        was,
                        "another part"
                    );

                    window.heal(Rank(0)).unwrap();
                    assert_eq!(send(&epoch, &count, Rank(0), 0, true).unwrap(), was);
                    for placement in [Placement::Target, Placement::Origin, Placement::Origin] {
                        let mut output = [0];
                        message().placement(placement).output(&mut output).run().unwrap();
                        assert!(output[0] > was, "{placement:?}");
                    }
                    for _ in 0..3 {
                        send(&epoch, &count, Rank(1), 0, true).unwrap();
                    }
                    epoch.unlock_all().unwrap();
                }
            }
            job.team().barrier().unwrap();
            Arc::into_inner(window).map(Window::free).transpose().unwrap();
        });
        ends.unwrap();
    });
}
