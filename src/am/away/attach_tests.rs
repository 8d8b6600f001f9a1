//! Attached buffers: who waits for one is woken by what it waits for; many of them, filled to the
//! last byte; windows of which some parts are mapped.

use super::ending_tests::Gate;
use super::port::found;
use super::settings::Settings;
use super::tests::{count, counter, send, window};
use crate::am::budget::Budget;
use crate::am::room::Room;
use crate::am::{Call, Placement};
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Deadline, Rank};
use crate::link::service::doorbell;
use crate::rma::{Info, LockKind, Window};
use crate::shm::park::Pace;
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Bytes of a unit that an origin accounts for beside input and output: each may have to begin at
/// the next 64.
const BESIDE: usize = 2 * 63;

/// Waits for `done` on this process's bell as if it could only be woken: asleep until it rings.
/// Two other calls wait as well, so that the bell is rung for whatever is news to calls.
fn rung_when(window: &Window<u64>, done: &(dyn Fn() -> bool + Sync), cause: impl FnOnce()) {
    const PATIENT: Pace =
        Pace { spins: 0, yields: 0, slice: Duration::from_secs(3600), ..Pace::SHARED };
    let (core, node) = (window.core(), window.core().block.team.node());
    let remote = core.remote().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let limit = Deadline::after(Duration::from_secs(20));
            let poll = || done().then_some(());
            let woken = doorbell(node, node.slot()).wait(PATIENT, limit, "a bell", poll, || Ok(()));
            over.store(true, Ordering::Release);
            woken
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let over = &mut || over.load(Ordering::Acquire).then_some(Ok(()));
                remote.drive("a test", over).unwrap();
            });
        }
        cause();
        assert!(sleeper.join().unwrap().is_ok(), "nobody rang");
    });
}

#[test]
fn who_detaches_a_buffer_is_woken_when_the_last_unit_leaves_it() {
    let gate = Arc::new(Gate::default());
    let step = Barrier::new(2);
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 64, Info::default());
        let before = gate.clone();
        let slow = move |call: Call<'_, u64, u64, u64>| {
            before.pass();
            count(call);
        };
        let handler = window.register(7, slow).unwrap();
        let buffer = (job.rank() == Rank(0)).then(|| window.attach_buffer(400_000).unwrap());
        job.team().barrier().unwrap();
        if job.rank() == Rank(1) {
            let epoch = window.lock_all().unwrap();
            let input = vec![3; 20_000];
            let message = epoch.message(&handler, Rank(0)).persistent(0..64).input(&input);
            let request = message.placement(Placement::Target).request(1).unwrap();
            while counter(&window, "am_units_sent") == 0 {
                std::thread::yield_now();
            }
            // It is the last thing that this rank says before the other one is through.
            step.wait();
            assert_eq!(request.wait().unwrap(), [0]);
            step.wait();
            epoch.unlock_all().unwrap();
        } else {
            step.wait();
            let away = found(&**window.core().remote().unwrap()).unwrap();
            while counter(&window, "am_handlers_running") == 0 {
                std::thread::yield_now();
            }
            let id = buffer.as_ref().unwrap().there.as_ref().unwrap().1;
            away.server().buffers.detach(id);
            let gone = || away.server().buffers.detached(id).is_ok();
            rung_when(&window, &gone, || gate.open());
            window.detach_buffer(buffer.as_ref().unwrap()).unwrap();
            step.wait();
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Buffers of all sizes, none of them a multiple of what is accounted, by the fullest messages that
/// fit; every origin has its turn.
#[test]
fn many_buffers_of_odd_sizes_are_filled_to_the_last_byte() {
    crate::Job::threads(3, |job| {
        let window = window(job.team(), 64, Info::default());
        // Elements of a byte, whose sum says whether all have come.
        let sum = |call: Call<'_, u64, u8, u8>| {
            let all: u64 = call.input.iter().map(|&byte| u64::from(byte)).sum();
            let was = call.persistent.get(0).unwrap();
            call.persistent.set(0, was + all).unwrap();
            call.output.fill(call.input[call.input.len() - 1]);
        };
        let handler = window.register(7, sum).unwrap();
        // Behind the system buffers, which have half of these.
        let sizes = [65_537, 65_599, 70_001, 99_999, 131_071, 262_145];
        let mut buffers = Vec::new();
        if job.rank() == Rank(0) {
            buffers.extend(sizes.map(|bytes| window.attach_buffer(bytes).unwrap()));
        }
        job.team().barrier().unwrap();
        let mut expected = 0u64;
        for kind in [LockKind::Shared, LockKind::Exclusive] {
            for size in sizes {
                let fits = size / 64 * 64 - BESIDE - 1;
                for len in [fits, fits - 1, fits - 63] {
                    let byte = (len % 251) as u8;
                    expected += 2 * len as u64 * u64::from(byte);
                    if job.rank() == Rank(0) {
                        continue;
                    }
                    let lock = window.lock(Rank(0), kind).unwrap();
                    let (input, mut output) = (vec![byte; len], [0]);
                    let message = lock.message(&handler, Rank(0)).persistent(0..1).input(&input);
                    let message = message.placement(Placement::Target).output(&mut output);
                    message.run().unwrap_or_else(|e| panic!("{len} of {size}, {kind:?}: {e}"));
                    assert_eq!(output, [byte]);
                    lock.unlock().unwrap();
                }
            }
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            assert_eq!(window.local().get(0).unwrap(), expected);
            for buffer in &buffers {
                window.detach_buffer(buffer).unwrap();
            }
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Messages that take their room in the system buffer to its last byte, whatever its size.
#[test]
fn the_system_buffer_is_filled_to_the_last_byte() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let target = Rank(1 - job.rank().0);
        let system = found(&**window.core().remote().unwrap()).unwrap().settings.system as usize;
        let most = (system - BESIDE) / 16;
        for len in [most, most - 1, most - 7, most - 8] {
            let (input, mut output) = (vec![5; len], vec![u64::MAX; len]);
            send(&epoch, &handler, target, 0..64, (1, &input), &mut output).unwrap();
            assert!(output.iter().all(|value| value % 100_000 == 0));
        }
        let (input, mut output) = (vec![5; most + 1], vec![0; most + 1]);
        let larger = send(&epoch, &handler, target, 0..64, (1, &input), &mut output);
        assert!(matches!(larger, Err(crate::Error::InvalidArgument { .. })), "{larger:?}");
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// What a hint promises lies in no attached buffer here, but in memory that stands in for it.
#[test]
fn a_promise_of_an_odd_size_is_filled_to_the_last_byte() {
    crate::Job::threads(2, |job| {
        let promised = 70_001usize;
        let mut info = Info::default();
        assert!(info.set("am_user_buf_0", &promised.to_string()).unwrap());
        let window = window(job.team(), 64, info);
        let last = |call: Call<'_, u64, u8, u8>| call.output[0] = call.input[call.input.len() - 1];
        let handler = window.register(7, last).unwrap();
        let epoch = window.lock_all().unwrap();
        // As it is accounted, to the next 64.
        let most = promised.next_multiple_of(64) - BESIDE - 1;
        for len in (most - 130..=most).rev() {
            let (mut input, mut output) = (vec![0; len], [0]);
            input[len - 1] = (len % 251) as u8 + 1;
            let message = epoch.message(&handler, Rank(0)).persistent(0..1).input(&input);
            message.placement(Placement::Target).output(&mut output).run().unwrap();
            assert_eq!(output, [input[len - 1]]);
        }
        assert_eq!(counter(&window, "am_reservations"), 0);
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Of such a window the block of shared memory synchronises; what goes by packets is heard of
/// flushes only, also of the hint that lets buffers be kept beyond them.
#[test]
fn mixed_windows_keep_buffers_beyond_flushes_and_give_them_back_at_the_end() {
    for detach in ["false", "true"] {
        crate::Job::threads(3, |job| {
            let mut info = Info::default();
            assert!(info.set("am_buf_interleave_am_detach", detach).unwrap());
            let builder = Window::<u64>::builder(job.team()).info(info);
            let memory = if job.rank() == Rank(0) {
                crate::rma::Memory::private(vec![0u64; 64])
            } else {
                crate::rma::Memory::shared(job.team(), 64).unwrap()
            };
            let window = builder.create(memory).unwrap();
            let handler = window.register(7, count).unwrap();
            let sizes = [150_000, 60_001, 99_999];
            let buffers = (job.rank() == Rank(0))
                .then(|| sizes.map(|bytes| window.attach_buffer(bytes).unwrap()));
            job.team().barrier().unwrap();
            let input = vec![3u64; 4000];
            for turn in [1, 2, 1] {
                if job.rank() == Rank(turn) {
                    let lock = window.lock(Rank(0), LockKind::Exclusive).unwrap();
                    for _ in 0..3 {
                        let message = lock.message(&handler, Rank(0)).persistent(0..64);
                        message.input(&input).placement(Placement::Target).post().unwrap();
                        lock.flush().unwrap();
                    }
                    lock.unlock().unwrap();
                    // The other part is mapped, and messages on it need no room.
                    let other = Rank(3 - turn);
                    let lock = window.lock(other, LockKind::Exclusive).unwrap();
                    let message = lock.message(&handler, other).persistent(0..64);
                    message.input(&input).post().unwrap();
                    lock.unlock().unwrap();
                }
                job.team().barrier().unwrap();
            }
            if let Some(buffers) = buffers {
                assert_eq!(window.local().get(3).unwrap(), 9 * 4000);
                for buffer in &buffers {
                    window.detach_buffer(buffer).unwrap();
                }
            }
            job.team().barrier().unwrap();
            window.free().unwrap();
        })
        .unwrap();
    }
}

/// A window keeps what its room takes of the total, and not all that it could have claimed.
#[test]
fn windows_keep_of_the_total_what_they_take() {
    crate::Job::threads(2, |job| {
        let budget = job.node().attachment(|| Ok(Budget::default())).unwrap();
        let settings = Settings::read().unwrap();
        assert_eq!(budget.claimed(), 0);
        let mut windows = Vec::new();
        let mut expected = 0;
        for _ in 0..3 {
            let window = window(job.team(), 8, Info::default());
            window.register(1, count).unwrap();
            windows.push(window);
            let half = (settings.total - expected) / 2;
            let takes = Room::of(settings.system, half, 2).bytes(2);
            assert!(takes < half, "a test needs a total of which something is left");
            expected += takes;
            assert_eq!(budget.claimed(), expected);
        }
        job.team().barrier().unwrap();
        for window in windows {
            window.free().unwrap();
        }
        assert_eq!(budget.claimed(), 0);
    })
    .unwrap();
}
