//! Messages by packets between the ranks of a job of threads, held against what their handlers
//! would have done at once.

use crate::am::{Call, Handler, Placement, VectorCall};
use crate::base::{Error, Rank, Result};
use crate::layout::Op;
use crate::rma::{Assertions, Epoch, Info, LockKind, Medium, Window};
use std::ops::Range;

pub(super) fn window(team: &crate::Team, elements: usize, info: Info) -> Window<u64> {
    let info = Info { medium: Medium::Packets, ..info };
    Window::<u64>::builder(team).info(info).allocate(elements).unwrap()
}

pub(super) fn counter(window: &Window<u64>, name: &str) -> u64 {
    let counters = window.packet_counters();
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

/// Counts each input in the persistent element that it names; tells what was there, and the
/// segment.
pub(super) fn count(call: Call<'_, u64, u64, u64>) {
    let each = call.input.len() / call.segments;
    for (i, input) in call.input.iter().enumerate() {
        let at = (*input % call.persistent.len() as u64) as usize;
        let was = call.persistent.get(at).unwrap();
        call.persistent.set(at, was + 1).unwrap();
        if let Some(output) = call.output.get_mut(i) {
            *output = was * 100_000 + (call.segment_offset + i / each) as u64;
        }
    }
}

pub(super) fn send(
    epoch: &Epoch<'_, u64>,
    handler: &Handler<u64, u64, u64>,
    target: Rank,
    persistent: Range<usize>,
    (segments, input): (usize, &[u64]),
    output: &mut [u64],
) -> Result<()> {
    let message = epoch.message(handler, target).persistent(persistent).segments(segments);
    message.input(input).placement(Placement::Target).output(output).run()
}

#[test]
fn one_message_after_the_other() {
    crate::Job::threads(3, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let me = job.rank().0 as usize;
        let target = Rank((job.rank().0 + 1) % 3);
        for round in 0..200u64 {
            let mut output = [u64::MAX];
            send(&epoch, &handler, target, 8 * me..8 * me + 8, (1, &[3]), &mut output).unwrap();
            assert_eq!(output, [round * 100_000]);
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        let origin = (me + 2) % 3;
        assert_eq!(window.local().get(8 * origin + 3).unwrap(), 200);
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn many_segments_go_in_many_units() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 16, Info::default());
        let handler = window.register(1, count).unwrap();
        let lock = window.lock(Rank(1), LockKind::Shared).unwrap();
        if job.rank() == Rank(0) {
            for (segments, each) in [(1, 1), (1, 500), (10_000, 3), (100, 100), (7, 2000)] {
                let input: Vec<u64> = (0..segments * each).map(|i| i as u64 % 16).collect();
                let mut output = vec![u64::MAX; input.len()];
                send(&lock, &handler, Rank(1), 0..16, (segments, &input), &mut output).unwrap();
                for (i, output) in output.iter().enumerate() {
                    assert_eq!(output % 100_000, (i / each) as u64, "{segments} {each} {i}");
                }
            }
            assert!(counter(&window, "am_units_sent") > 50);
        }
        lock.unlock().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn too_long_segments_are_refused_until_there_is_a_buffer() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 16, Info::default());
        let handler = window.register(1, count).unwrap();
        let input = vec![5; 40_000];
        let mut output = vec![0; 40_000];
        for attached in [false, true] {
            job.team().barrier().unwrap();
            let buffer = attached.then(|| window.attach_buffer(700_000).unwrap());
            job.team().barrier().unwrap();
            let epoch = window.lock_all().unwrap();
            for segments in [1, 1, 2] {
                let target = Rank(1 - job.rank().0);
                match send(&epoch, &handler, target, 0..16, (segments, &input), &mut output) {
                    Ok(()) => assert!(attached),
                    Err(Error::InvalidArgument { .. }) => assert!(!attached),
                    Err(other) => panic!("{other}"),
                }
            }
            epoch.unlock_all().unwrap();
            job.team().barrier().unwrap();
            if let Some(buffer) = buffer {
                assert_eq!(window.local().get(5).unwrap(), 120_000);
                window.detach_buffer(&buffer).unwrap();
            }
        }
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn variable_output_comes_back_packed_or_whole() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 16, Info::default());
        let fill = |call: VectorCall<'_, u64, u64, u64>| {
            let most = call.output.len() / call.segments;
            for (i, input) in call.input.iter().enumerate() {
                let count = (*input as usize).min(most);
                call.counts[i] = count;
                call.output[i * most..i * most + count].fill((call.segment_offset + i) as u64);
            }
        };
        let handler = window.register_vector::<u64, u64>(1, fill).unwrap();
        let epoch = window.lock_all().unwrap();
        let target = Rank(1 - job.rank().0);
        for most in [1usize, 10, 300] {
            for fill in 0..4 {
                let segments = 1000 / most + 3;
                let count = |i: usize| [0, most, i % (most + 1), most / 2][fill] as u64;
                let input: Vec<u64> = (0..segments).map(count).collect();
                let mut output = vec![u64::MAX; segments * most];
                let mut counts = vec![usize::MAX; segments];
                let message = epoch.message(&handler, target).persistent(0..16);
                let message = message.segments(segments).input(&input);
                message
                    .placement(Placement::Target)
                    .output(&mut output, &mut counts)
                    .run()
                    .unwrap();
                for i in 0..segments {
                    assert_eq!(counts[i] as u64, input[i]);
                    let there = &output[i * most..i * most + counts[i]];
                    assert!(there.iter().all(|value| *value == i as u64), "{most} {fill} {i}");
                }
            }
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        assert!(counter(&window, "am_packed") > 0 && counter(&window, "am_whole") > 0);
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn panics_are_told_with_their_text() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 16, Info::default());
        let picky = |call: Call<'_, u64, u64, u64>| {
            assert!(call.input[0] != 3, "no threes here");
            call.output[0] = 1;
        };
        let handler = window.register(1, picky).unwrap();
        let epoch = window.lock_all().unwrap();
        for input in [1, 3, 2, 3] {
            let mut output = [0];
            let target = Rank(1 - job.rank().0);
            match send(&epoch, &handler, target, 0..16, (1, &[input]), &mut output) {
                Ok(()) => assert!(input != 3 && output == [1]),
                Err(Error::HandlerPanicked { index: 1, message, .. }) => {
                    assert!(input == 3 && message.contains("no threes here"), "{message}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn posted_messages_are_completed_by_flushes_and_ends_of_epochs() {
    crate::Job::threads(3, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let me = u64::from(job.rank().0);
        let post = |epoch: &Epoch<'_, u64>, target, len: usize| {
            let input = vec![me; len];
            let message = epoch.message(&handler, Rank(target)).persistent(0..64).segments(len);
            message.input(&input).placement(Placement::Target).post().unwrap();
        };
        // One is larger than what is copied.
        let lens = [20, 1, 300, 20_000];
        for _ in 0..10 {
            let epoch = window.lock_all().unwrap();
            for len in lens {
                (0..3).for_each(|target| post(&epoch, target, len));
            }
            epoch.flush_all().unwrap();
            post(&epoch, (job.rank().0 + 1) % 3, 5);
            epoch.unlock_all().unwrap();
            let fence = window.fence().unwrap();
            (0..3).for_each(|target| post(&fence, target, 10));
            fence.end().unwrap();
            let lock = window.lock(Rank(2), LockKind::Exclusive).unwrap();
            (0..9).for_each(|_| post(&lock, 2, 7));
            lock.unlock().unwrap();
        }
        job.team().barrier().unwrap();
        let all: usize = lens.iter().sum::<usize>() + 10;
        let after = usize::from(job.rank() == Rank(2)) * 63;
        for rank in 0..3 {
            let next = usize::from((rank + 1) % 3 == job.rank().0 as usize) * 5;
            let want = 10 * (all + next + after);
            assert_eq!(window.local().get(rank).unwrap(), want as u64, "{rank}");
        }
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn requests_bring_output_and_can_be_dropped() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let target = Rank(1 - job.rank().0);
        let request = |segments: usize| {
            let input: Vec<u64> = (0..segments as u64).collect();
            let message = epoch.message(&handler, target).persistent(0..64).segments(segments);
            message.input(&input).placement(Placement::Target).request(1).unwrap()
        };
        for _ in 0..20 {
            drop(request(500));
            let (first, second) = (request(3), request(900));
            let second = second.wait().unwrap();
            assert_eq!(second.len(), 900);
            assert!(second.iter().enumerate().all(|(i, value)| value % 100_000 == i as u64));
            assert_eq!(first.wait().unwrap().len(), 3);
            let mut asked = request(10);
            while !asked.test().unwrap() {
                std::thread::yield_now();
            }
            asked.wait().unwrap();
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Every rank floods one target through a buffer of one segment.
#[test]
fn a_buffer_of_one_segment_serves_everybody() {
    crate::Job::threads(8, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let segment = 6000;
        let room = segment * 16 + 256;
        let buffer = (job.rank() == Rank(0)).then(|| window.attach_buffer(room).unwrap());
        job.team().barrier().unwrap();
        let epoch = window.lock_all().unwrap();
        let input = vec![u64::from(job.rank().0); segment * 3];
        let mut output = vec![0; segment * 3];
        for _ in 0..5 {
            send(&epoch, &handler, Rank(0), 0..64, (3, &input), &mut output).unwrap();
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        if let Some(buffer) = buffer {
            for rank in 0..8 {
                assert_eq!(window.local().get(rank).unwrap(), 5 * 3 * segment as u64);
            }
            window.detach_buffer(&buffer).unwrap();
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Everybody floods everybody, small messages and such that need the buffers.
#[test]
fn floods_all_ways_end() {
    crate::Job::threads(8, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let buffer = window.attach_buffer(100_000).unwrap();
        job.team().barrier().unwrap();
        let epoch = window.lock_all().unwrap();
        let me = u64::from(job.rank().0);
        for round in 0..20 {
            for target in 0..8 {
                let len = [3, 40, 5000, 300][(round + target as usize) % 4];
                let input = vec![me; len];
                let message = epoch.message(&handler, Rank(target)).persistent(0..64);
                let segments = if len == 5000 { 1 } else { len };
                let message = message.segments(segments).input(&input);
                message.placement(Placement::Target).post().unwrap();
            }
        }
        epoch.flush_all().unwrap();
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        for rank in 0..8 {
            assert_eq!(window.local().get(rank).unwrap(), 5 * (3 + 40 + 5000 + 300));
        }
        window.detach_buffer(&buffer).unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn at_the_origin_it_is_as_at_the_target() {
    crate::Job::threads(3, |job| {
        let window = window(job.team(), 64, Info::default());
        let handler = window.register(7, count).unwrap();
        let epoch = window.lock_all().unwrap();
        let me = u64::from(job.rank().0);
        let rounds = 100;
        for placement in [Placement::Origin, Placement::Auto] {
            for round in 0..rounds {
                let input = [me, me];
                let mut output = [0; 2];
                let message = epoch.message(&handler, Rank(1)).persistent(0..8).segments(2);
                let message = message.input(&input).placement(placement).output(&mut output);
                message.run().unwrap();
                let offset = if placement == Placement::Auto { 2 * rounds } else { 0 };
                let was = offset + 2 * round;
                assert_eq!(output, [was * 100_000, (was + 1) * 100_000 + 1], "{placement:?}");
            }
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        assert!(counter(&window, "am_run_at_origin") >= 1);
        if job.rank() == Rank(1) {
            for rank in 0..3 {
                assert_eq!(window.local().get(rank).unwrap(), 4 * rounds);
            }
            assert!(counter(&window, "am_fetched") > 0 && counter(&window, "am_stored") > 0);
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn handlers_that_update_atomically_end_up_at_the_target() {
    crate::Job::threads(2, |job| {
        let window = window(job.team(), 8, Info::default());
        let add = |call: Call<'_, u64, u64, u64>| {
            call.output[0] = call.persistent.fetch_and_op(0, Op::Sum, call.input[0]).unwrap();
        };
        let handler = window.register(7, add).unwrap();
        let epoch = window.lock_all().unwrap();
        let rounds = 60;
        for _ in 0..rounds {
            let mut output = [0];
            epoch.am(&handler, Rank(0), 0..1, &[1], &mut output).unwrap();
            epoch.fetch_and_op(Rank(0), 0, Op::Sum, 1000).unwrap();
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        if job.rank() == Rank(0) {
            assert_eq!(window.local().get(0).unwrap(), 2 * rounds * 1001);
        }
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// Every combination of hints: nothing is lost, and nothing waits for ever.
#[test]
fn every_combination_of_hints_serves() {
    for bits in 0..16u64 {
        crate::Job::threads(2, |job| {
            let mut info = Info::default();
            let names = ["sameop", "diffop", "sameam"];
            let wanted: Vec<&str> =
                (0..3).filter(|i| bits >> i & 1 != 0).map(|i| names[i]).collect();
            let wanted = if wanted.is_empty() { "none".into() } else { wanted.join(",") };
            assert!(info.set("am_ordering", &wanted).unwrap());
            if bits & 8 != 0 {
                assert!(info.set("am_buf_interleave_am_detach", "false").unwrap());
                assert!(info.set("am_user_buf_0", "50000").unwrap());
            }
            let window = window(job.team(), 64, info);
            let first = window.register(1, count).unwrap();
            let second = window.register(2, count).unwrap();
            let buffers = [60_000, 200_000].map(|bytes| window.attach_buffer(bytes).unwrap());
            job.team().barrier().unwrap();
            let target = Rank(1 - job.rank().0);
            for round in 0..4 {
                let concurrent =
                    Assertions { concurrent_am: round % 2 == 1, ..Assertions::default() };
                let kind = if round < 2 { LockKind::Exclusive } else { LockKind::Shared };
                let lock = window.lock_with(target, kind, concurrent).unwrap();
                for i in 0..12 {
                    let len = [4, 6000, 300, 17][i % 4];
                    let input = vec![9 + round as u64 * u64::from(round % 2 == 1); len];
                    let handler = if i % 3 == 0 { &first } else { &second };
                    let message = lock.message(handler, target).persistent(0..64);
                    let message = message.segments(if len == 6000 { 1 } else { len });
                    message.input(&input).placement(Placement::Target).post().unwrap();
                    if i == 6 {
                        lock.flush().unwrap();
                    }
                }
                lock.unlock().unwrap();
            }
            job.team().barrier().unwrap();
            assert_eq!(window.local().get(9).unwrap(), 2 * 3 * (4 + 6000 + 300 + 17), "{bits}");
            for buffer in &buffers {
                window.detach_buffer(buffer).unwrap();
            }
            window.free().unwrap();
        })
        .unwrap();
    }
}
