//! Handlers that run on fetched copies, beside others that change the same part.

use super::tests::{count, counter, window};
use crate::am::{Call, Placement};
use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::base::{Error, Rank};
use crate::layout::Op;
use crate::rma::{Assertions, Info};
use std::sync::Arc;

/// Reads all, and writes the first element.
fn first_of_all(call: Call<'_, u64, u64, u64>) {
    let all: u64 = (1..call.persistent.len()).map(|i| call.persistent.get(i).unwrap()).sum();
    let was = call.persistent.get(0).unwrap();
    call.persistent.set(0, was + 1).unwrap();
    call.output.fill(all);
}

/// One rank sends messages that run at it and change one element, a second one accumulates to the
/// others, a third one puts: nothing of either is lost.
#[test]
fn what_others_do_to_elements_that_a_handler_leaves_alone_stays() {
    for placement in [Placement::Origin, Placement::Auto] {
        crate::Job::threads(4, |job| {
            let window = window(job.team(), 512, Info::default());
            let handler = window.register(7, first_of_all).unwrap();
            let epoch = window.lock_all().unwrap();
            let rounds = 1500u64;
            match job.rank().0 {
                1 => {
                    let mut seen = 0;
                    for _ in 0..rounds {
                        let mut out = [0];
                        let message = epoch.message(&handler, Rank(0)).persistent(0..512);
                        message.placement(placement).output(&mut out).run().unwrap();
                        assert!(out[0] >= seen, "what was there is gone: {} < {seen}", out[0]);
                        seen = out[0];
                    }
                    assert!(counter(&window, "am_run_at_origin") > 0, "{placement:?}");
                }
                2 => {
                    for i in 0..rounds {
                        let at = 1 + i as usize % 255;
                        epoch.accumulate(Rank(0), at, Op::Sum, &[1]).unwrap();
                        epoch.flush_all().unwrap();
                    }
                }
                3 => {
                    for i in 0..rounds {
                        epoch.put(Rank(0), 256 + i as usize % 256, &[i]).unwrap();
                        epoch.flush_all().unwrap();
                    }
                }
                _ => {}
            }
            epoch.unlock_all().unwrap();
            job.team().barrier().unwrap();
            if job.rank() == Rank(0) {
                let local = window.local();
                assert_eq!(local.get(0).unwrap(), rounds, "each message once");
                let all: u64 = (1..256).map(|i| local.get(i).unwrap()).sum();
                assert_eq!(all, rounds, "{placement:?}: accumulates are lost");
                for i in rounds - 256..rounds {
                    assert_eq!(local.get(256 + i as usize % 256).unwrap(), i, "{placement:?}");
                }
            }
            job.team().barrier().unwrap();
            window.free().unwrap();
        })
        .unwrap();
    }
}

/// Handlers that write are tried at the origin, too, where what they change is stored.
#[test]
fn handlers_that_write_are_tried_at_the_origin() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let (input, rounds) = (vec![3; 2000], 1000);
        if job.rank() == Rank(1) {
            for round in 0..rounds {
                let mut output = vec![0; 2000];
                let message = epoch.message(&handler, Rank(0)).persistent(0..8).input(&input);
                message.output(&mut output).run().unwrap();
                assert_eq!(output[0], round * 2000 * 100_000);
            }
            let (here, there) =
                (counter(&window, "am_chosen_origin"), counter(&window, "am_chosen_target"));
            assert_eq!(here + there, rounds);
            assert!(here > 0 && there > 0, "{here} here, {there} there");
            assert_eq!(counter(&window, "am_run_at_origin"), here);
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            assert_eq!(window.local().get(3).unwrap(), rounds * 2000);
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// A copy that fits nowhere at the target: the message runs there, and that is counted.
#[test]
fn copies_that_are_too_large_send_the_message_to_the_target() {
    crate::Job::threads(2, |job| {
        let elements = 20_000;
        let window = window(job.team(), elements, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let target = Rank(1 - job.rank().0);
        for round in 0..3 {
            let mut output = [u64::MAX];
            let message = epoch.message(&handler, target).persistent(0..elements).input(&[9]);
            message.placement(Placement::Origin).output(&mut output).run().unwrap();
            assert_eq!(output, [round * 100_000]);
        }
        assert_eq!(counter(&window, "am_copies_too_large"), 3);
        assert_eq!(counter(&window, "am_run_at_origin"), 0);
        // A segment that does not fit is another matter.
        let (input, mut output) = (vec![9; 20_000], vec![0; 20_000]);
        let message = epoch.message(&handler, target).persistent(0..elements).input(&input);
        let refused = message.placement(Placement::Origin).output(&mut output).run();
        match refused {
            Err(Error::InvalidArgument { why, .. }) => {
                assert!(why.contains("one segment"), "{why}")
            }
            other => panic!("{other:?}"),
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Who changes the part while a handler is at work on a copy of it, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Nobody,
    /// Another origin's message, run at the target or at that origin, alone or beside others.
    Another(Placement, bool),
    /// A message of the target's own.
    Target(bool),
}

/// A handler runs on a copy, and meanwhile another message changes the same element: the copy is
/// not stored, the handler runs again on a fresh one, and neither change is lost.
#[test]
fn a_copy_that_another_message_has_overtaken_is_not_stored() {
    let ways = [
        Meanwhile::Nobody,
        Meanwhile::Another(Placement::Target, false),
        Meanwhile::Another(Placement::Target, true),
        Meanwhile::Another(Placement::Origin, false),
        Meanwhile::Target(false),
        Meanwhile::Target(true),
    ];
    for meanwhile in ways {
        // Runs of the handler so far; whether the other message has run.
        let (runs, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        crate::Job::threads(3, |job| {
            let window = window(job.team(), 8, Info::default());
            let (counted, released) = (runs.clone(), over.clone());
            let slowly = window
                .register(1, move |call: Call<'_, u64, u64, u64>| {
                    let was = call.persistent.get(0).unwrap();
                    if call.input[0] == 1 {
                        counted.fetch_add(1, Ordering::AcqRel);
                        while meanwhile != Meanwhile::Nobody && !released.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                    }
                    call.persistent.set(0, was + call.input[0]).unwrap();
                    call.output.fill(was);
                })
                .unwrap();
            let concurrent =
                matches!(meanwhile, Meanwhile::Another(_, true) | Meanwhile::Target(true));
            let assertions = Assertions { concurrent_am: concurrent, ..Assertions::default() };
            let other = match meanwhile {
                Meanwhile::Nobody => None,
                Meanwhile::Another(..) => Some(Rank(2)),
                Meanwhile::Target(_) => Some(Rank(0)),
            };
            let mut output = [u64::MAX];
            if job.rank() == Rank(1) {
                let epoch = window.lock_all().unwrap();
                let message = epoch.message(&slowly, Rank(0)).persistent(0..8).input(&[1]);
                message.placement(Placement::Origin).output(&mut output).run().unwrap();
                epoch.unlock_all().unwrap();
                let overtaken = u32::from(other.is_some());
                assert_eq!(output, [u64::from(overtaken) * 10], "{meanwhile:?}");
                assert_eq!(runs.load(Ordering::Acquire), 1 + overtaken, "{meanwhile:?}");
                assert_eq!(counter(&window, "am_run_at_origin"), 1, "{meanwhile:?}");
            } else if Some(job.rank()) == other {
                while runs.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                let epoch = window.lock_all_with(assertions).unwrap();
                let placement = match meanwhile {
                    Meanwhile::Another(placement, _) => placement,
                    _ => Placement::Auto,
                };
                let message = epoch.message(&slowly, Rank(0)).persistent(0..8).input(&[10]);
                message.placement(placement).output(&mut output).run().unwrap();
                epoch.unlock_all().unwrap();
                assert_eq!(output, [0], "{meanwhile:?}");
                over.store(true, Ordering::Release);
            }
            job.team().barrier().unwrap();
            if job.rank() == Rank(0) {
                let all = if other.is_some() { 11 } else { 1 };
                assert_eq!(window.local().get(0).unwrap(), all, "{meanwhile:?}");
            }
            job.team().barrier().unwrap();
            window.free().unwrap();
        })
        .unwrap();
    }
}
