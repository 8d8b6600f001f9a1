//! Epochs that end badly: who waits is told, what was thrown away is not waited for, and the next
//! epoch works.

use super::tests::{count, counter, send, window};
use crate::am::Placement;
use crate::base::{Error, Rank, Result};
use crate::rma::{Epoch, Info, LockKind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Holds handlers up until it is opened.
#[derive(Default)]
pub(super) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    pub fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// For waits that are to end by their deadline.
const SHORT: Duration = Duration::from_millis(300);

fn timed_out<T: std::fmt::Debug>(result: Result<T>, late: &[Rank]) {
    match result {
        Err(Error::TimedOut { missing, .. }) => assert_eq!(missing, late),
        other => panic!("{other:?} instead of a passed deadline"),
    }
}

type Count = crate::am::Handler<u64, u64, u64>;

fn post(epoch: &Epoch<'_, u64>, handler: &Count, target: Rank, input: &[u64]) {
    let message = epoch.message(handler, target).persistent(0..64).segments(input.len());
    message.input(input).placement(Placement::Target).post().unwrap();
}

/// Posted, requested and waited for, small and of many units: none of it outlives an access epoch
/// whose target has not posted, and the next epoch with it has all its room.
#[test]
fn an_access_epoch_works_after_one_that_timed_out() {
    crate::Job::threads(2, |job| {
        let team = job.team().with_deadline(SHORT);
        let window = window(&team, 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let buffer = window.attach_buffer(100_000).unwrap();
        job.team().barrier().unwrap();
        let target = Rank(1);
        for round in 0..3 {
            if job.rank() == Rank(0) {
                let long = vec![3; [1, 500, 4000][round]];
                let epoch = window.start(&[target]).unwrap();
                post(&epoch, &handler, target, &[3]);
                let message = epoch.message(&handler, target).persistent(0..64);
                let message = message.segments(long.len()).input(&long);
                let request = message.placement(Placement::Target).request(1).unwrap();
                if round == 1 {
                    let mut output = [0; 2];
                    let ran = send(&epoch, &handler, target, 0..64, (2, &[5, 5]), &mut output);
                    timed_out(ran, &[]);
                }
                timed_out(epoch.complete(), &[target]);
                // It is over already: nobody is there any more who could end it.
                timed_out(request.wait(), &[target]);
                assert_eq!(counter(&window, "am_messages_under_way"), 0);
            }
            job.team().barrier().unwrap();
            // Twice: nothing is left that would count in the first one's stead.
            for _ in 0..2 {
                if job.rank() == target {
                    window.post(&[Rank(0)]).unwrap().wait().unwrap();
                } else {
                    let epoch = window.start(&[target]).unwrap();
                    let (input, mut output) = (vec![4; 3000], vec![u64::MAX; 3000]);
                    send(&epoch, &handler, target, 0..64, (3000, &input), &mut output).unwrap();
                    assert!(output.iter().enumerate().all(|(i, o)| o % 100_000 == i as u64));
                    let (input, mut output) = (vec![6; 6000], vec![u64::MAX; 6000]);
                    send(&epoch, &handler, target, 0..64, (1, &input), &mut output).unwrap();
                    post(&epoch, &handler, target, &[2; 300]);
                    epoch.complete().unwrap();
                }
            }
            job.team().barrier().unwrap();
        }
        if job.rank() == target {
            let local = window.local();
            let counts = [2, 3, 4, 5, 6].map(|at| local.get(at).unwrap());
            assert_eq!(counts, [6 * 300, 0, 6 * 3000, 0, 6 * 6000]);
            window.detach_buffer(&buffer).unwrap();
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// One target of two has posted: what is meant for it is done, what is meant for the other is not.
#[test]
fn targets_that_have_posted_get_all_that_was_meant_for_them() {
    crate::Job::threads(3, |job| {
        // Who waits for the origin waits longer than that for the other target.
        let limit = if job.rank() == Rank(0) { SHORT } else { Duration::from_secs(60) };
        let team = job.team().with_deadline(limit);
        let window = window(&team, 64, Info::default());
        let handler = window.register(7, count).unwrap();
        job.team().barrier().unwrap();
        let me = job.rank();
        if me == Rank(0) {
            let epoch = window.start(&[Rank(1), Rank(2)]).unwrap();
            for target in [Rank(1), Rank(2)] {
                post(&epoch, &handler, target, &[3; 700]);
            }
            timed_out(epoch.complete(), &[Rank(2)]);
        } else if me == Rank(1) {
            window.post(&[Rank(0)]).unwrap().wait().unwrap();
            assert_eq!(window.local().get(3).unwrap(), 700);
        }
        job.team().barrier().unwrap();
        if me == Rank(0) {
            let epoch = window.start(&[Rank(1), Rank(2)]).unwrap();
            for target in [Rank(1), Rank(2)] {
                post(&epoch, &handler, target, &[4; 700]);
            }
            epoch.complete().unwrap();
        } else {
            window.post(&[Rank(0)]).unwrap().wait().unwrap();
            let local = window.local();
            let before = if me == Rank(1) { 700 } else { 0 };
            assert_eq!((local.get(3).unwrap(), local.get(4).unwrap()), (before, 700));
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// A lock that is not granted in time: the engine keeps what it was given, and it runs once the
/// lock comes, before what the next epoch sends.
#[test]
fn a_lock_epoch_works_after_one_that_timed_out() {
    crate::Job::threads(3, |job| {
        let team = job.team().with_deadline(SHORT);
        let window = window(&team, 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let me = job.rank();
        let mut held = (me == Rank(1)).then(|| {
            let held = window.lock(Rank(2), LockKind::Exclusive).unwrap();
            held.put(Rank(2), 0, &[0]).unwrap();
            held.flush().unwrap();
            held
        });
        job.team().barrier().unwrap();
        if me == Rank(0) {
            let lock = window.lock(Rank(2), LockKind::Shared).unwrap();
            post(&lock, &handler, Rank(2), &[3]);
            let message = lock.message(&handler, Rank(2)).persistent(0..64).input(&[3]);
            let request = message.placement(Placement::Target).request(1).unwrap();
            timed_out(lock.unlock(), &[Rank(2)]);
            timed_out(request.wait(), &[Rank(2)]);
        }
        job.team().barrier().unwrap();
        if let Some(held) = held.take() {
            held.unlock().unwrap();
        }
        drop(held);
        job.team().barrier().unwrap();
        if me == Rank(0) {
            for round in 0..3 {
                let lock = window.lock(Rank(2), LockKind::Exclusive).unwrap();
                let mut output = [u64::MAX];
                send(&lock, &handler, Rank(2), 0..64, (1, &[4]), &mut output).unwrap();
                assert_eq!(output, [round * 100_000]);
                lock.unlock().unwrap();
            }
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// The end of an epoch gives up a handler that takes too long: later ones wait for their own
/// messages only, and nothing lands in memory that has been given back.
#[test]
fn a_handler_that_takes_too_long_holds_up_its_own_epoch_only() {
    let gate = Arc::new(Gate::default());
    crate::Job::threads(3, |job| {
        let team = job.team().with_deadline(SHORT);
        let window = window(&team, 64, Info::default());
        let before = gate.clone();
        let slow = move |call: crate::am::Call<'_, u64, u64, u64>| {
            if call.target == Rank(1) {
                before.pass();
            }
            count(call);
        };
        let handler = window.register(7, slow).unwrap();
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            let epoch = window.lock_all().unwrap();
            post(&epoch, &handler, Rank(1), &[3]);
            let message = epoch.message(&handler, Rank(1)).persistent(0..64).input(&[3]);
            let request = message.placement(Placement::Target).request(1).unwrap();
            timed_out(epoch.unlock_all(), &[Rank(1)]);
            timed_out(request.wait(), &[Rank(1)]);
            let epoch = window.lock_all().unwrap();
            let mut output = [u64::MAX];
            send(&epoch, &handler, Rank(2), 0..64, (1, &[4]), &mut output).unwrap();
            assert_eq!(output, [0]);
            epoch.unlock_all().unwrap();
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            gate.open();
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            let epoch = window.lock_all().unwrap();
            let mut output = [u64::MAX];
            send(&epoch, &handler, Rank(1), 0..64, (1, &[3]), &mut output).unwrap();
            assert_eq!(output, [2 * 100_000], "behind those that were given up");
            epoch.unlock_all().unwrap();
            assert_eq!(counter(&window, "am_messages_under_way"), 0);
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Units that wait behind a long one when their handler is deregistered do not run.
#[test]
fn units_of_a_deregistered_handler_end_before_they_run() {
    let gate = Arc::new(Gate::default());
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 64, Info::default());
        let before = gate.clone();
        let slow = move |call: crate::am::Call<'_, u64, u64, u64>| {
            before.pass();
            count(call);
        };
        let handler = window.register(7, slow).unwrap();
        job.team().barrier().unwrap();
        let mut requests = Vec::new();
        let epoch = (job.rank() == Rank(0)).then(|| window.lock_all().unwrap());
        if let Some(epoch) = &epoch {
            for _ in 0..3 {
                let message = epoch.message(&handler, Rank(1)).persistent(0..64).input(&[3]);
                requests.push(message.placement(Placement::Target).request(1).unwrap());
            }
            epoch.flush_local(Rank(1)).unwrap();
        } else {
            // The first one runs, the others are there.
            let here = |name| counter(&window, name);
            while here("am_units_waiting") < 2 || here("am_handlers_running") != 1 {
                std::thread::yield_now();
            }
        }
        window.deregister(7).unwrap();
        job.team().barrier().unwrap();
        gate.open();
        for (i, request) in requests.drain(..).enumerate() {
            match request.wait() {
                Ok(output) => assert!(i == 0 && output == [0]),
                Err(Error::Misuse { why, .. }) => {
                    assert!(i > 0 && why.contains("no handler 7 (any more)"), "{i}: {why}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        drop(epoch);
        job.team().barrier().unwrap();
        let ran = u64::from(job.rank() == Rank(1));
        assert_eq!(window.local().get(3).unwrap(), ran);
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Where elements lie in between is known before anything is sent: of dynamic windows only, as the
/// parts and units of others are multiples of the elements' alignment.
#[test]
fn misaligned_persistent_parts_are_refused_at_the_origin() {
    crate::Job::threads(2, |job| {
        let info = Info { medium: crate::rma::Medium::Packets, ..Info::default() };
        let builder = crate::rma::Window::<u64>::builder(job.team()).info(info);
        let window = builder.dynamic().unwrap();
        let handler = window.register(7, count).unwrap();
        let attached = window.attach(&crate::rma::Memory::private(vec![0u64; 64])).unwrap();
        let mut there = [0; 2];
        job.team().allgather(&[attached.address], &mut there).unwrap();
        let epoch = window.lock_all().unwrap();
        for target in [Rank(0), Rank(1)] {
            let one = crate::layout::Layout::of::<u64>();
            let base = there[target.index()];
            for start in [1, 4, 7, 8, 9] {
                let shape = one.times(2);
                let message = epoch.message(&handler, target);
                let message = message.persistent_layout(base as usize + start, shape).input(&[1]);
                match message.output(&mut [0]).run() {
                    Ok(()) => assert_eq!(start, 8),
                    Err(Error::InvalidArgument { why, .. }) => {
                        assert!(start != 8 && why.contains("not at a multiple of 8"), "{why}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert_eq!(counter(&window, "am_messages"), 2);
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}
