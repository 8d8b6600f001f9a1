//! Operations that arrive while somebody is at work on the same elements, and does not get on.

use super::cut::Cutter;
use super::execute::{self, Progress};
use crate::layout::{Kind, Layout, Op};
use crate::rma::info::{Info, Medium};
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Landing, Memory, Operation, OwnPart};
use crate::shm::bias::Way;
use crate::{Job, LockKind, Rank, Result, Window};
use std::task::Poll;
use std::time::Duration;

#[derive(Debug)]
struct Part {
    first: *mut u64,
    len: usize,
}

// SAFETY: used by one thread.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl OwnPart for Part {
    fn with(&self, at: u64, bytes: u64, run: &mut dyn FnMut(*mut u8)) -> Result<(), u64> {
        assert!(at + bytes <= 8 * self.len as u64);
        run(self.first.cast::<u8>().wrapping_add(at as usize));
        Ok(())
    }

    fn whole(&self) -> Option<(std::ptr::NonNull<u8>, usize)> {
        None
    }
}

/// Each element is updated once, and its old value told, however often the unit stops on its way.
#[test]
fn an_operation_goes_on_where_it_stopped() {
    Job::threads(1, |job| {
        let len = 16 << 10;
        let window = Window::<u64>::allocate(job.team(), len).unwrap();
        let (core, me) = (window.core(), job.rank());
        let domain = crate::rma::accumulate::Domain::new(&core.block, &Info::default())
            .with_patience(Duration::from_micros(50));
        assert!(domain.turn(Way::Locked));
        let first = window.local().as_ptr();
        let part = Part { first, len };
        let many = Layout::of::<u64>().vector(12, 1, 1300).unwrap();
        let wide = many.times(1);
        let values: Vec<u64> = (0..1200).map(|i| i + 1).collect();
        for (at, bytes, shape) in [(0, 9600, None), (1500 * 8, 9600, None), (0, 96, Some(wide))] {
            for fetch in [false, true] {
                for held in 0..len / 512 {
                    // SAFETY: nobody else uses the part.
                    let there = unsafe { std::slice::from_raw_parts_mut(first, len) };
                    there.iter_mut().zip(7u64..).for_each(|(to, value)| *to = value);
                    let before = there.to_vec();
                    let operation = Operation {
                        what: "a test",
                        target: me,
                        at,
                        bytes,
                        shape,
                        action: match fetch {
                            true => Action::GetAccumulate(Op::Sum),
                            false => Action::Accumulate(Op::Sum),
                        },
                        kind: Some(Kind::U64),
                        element: 8,
                        origin: Memory::of(&values[..bytes / 8]),
                        compare: Memory::NONE,
                        landing: Landing::Nothing,
                    };
                    let mut body = Vec::new();
                    let cut = Cutter::new(&operation).unwrap().next(&mut body).unwrap().unwrap();
                    let count = cut.bytes / 8;
                    let (mut answer, mut progress) = (Vec::new(), Progress::default());
                    let mut perform = |answer: &mut Vec<u8>| {
                        execute::perform(&part, &domain, me, &body, answer, &mut progress)
                    };
                    let guard = domain.hold(me, first.wrapping_add(held * 512).cast());
                    let mut done = perform(&mut answer);
                    if done.is_pending() {
                        assert!(answer.is_empty());
                        assert!(perform(&mut answer).is_pending(), "it is held yet");
                    }
                    drop(guard);
                    if done.is_pending() {
                        done = perform(&mut answer);
                    }
                    assert_eq!(done, Poll::Ready(Ok(())));
                    let mut want = before.clone();
                    let place = |i: usize| match shape {
                        Some(_) => i * 1300,
                        None => at as usize / 8 + i,
                    };
                    for i in 0..count {
                        want[place(i)] += values[i];
                    }
                    // SAFETY: as above.
                    let now = unsafe { std::slice::from_raw_parts(first, len) };
                    assert!(now == want, "{at} {bytes} {held}");
                    if fetch {
                        let told = answer.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b));
                        assert!(told.eq((0..count).map(|i| before[place(i)])), "{held}");
                    }
                }
            }
        }
    })
    .unwrap();
}

/// A process whose elements are locked, and stay so, goes on with everything else.
#[test]
fn who_holds_elements_does_not_stop_the_packets_of_the_process() {
    Job::threads(3, |job| -> Result<()> {
        let info = Info { medium: Medium::Packets, ..Info::default() };
        let window = Window::<u64>::builder(job.team()).info(info).allocate(64)?;
        let me = job.rank();
        let (locked, origin) = (Rank(0), Rank(1));
        job.team().barrier()?;
        let guard = (me == locked).then(|| {
            assert!(window.core().domain.turn(Way::Locked));
            window.core().domain.hold(me, window.local().as_ptr().cast())
        });
        job.team().barrier()?;
        if me == origin {
            // Of eight elements: under the lock. Sent, not waited for.
            let all = window.lock_all()?;
            all.accumulate(locked, 0, Op::Sum, &[3; 8])?;
            all.flush_local(locked)?;
            let mut request = all.get_accumulate_request(locked, 8, Op::Sum, &[1u64; 8])?;
            assert!(!request.test()?, "the elements are locked");
            job.team().barrier()?;
            job.team().barrier()?;
            let old = request.wait()?;
            assert_eq!(old, [0; 8]);
            all.unlock_all()?;
        } else {
            job.team().barrier()?;
            if me == locked {
                // Its own operations elsewhere go on.
                for _ in 0..50 {
                    let epoch = window.lock(Rank(2), LockKind::Exclusive)?;
                    epoch.accumulate(Rank(2), 0, Op::Sum, &[1])?;
                    epoch.unlock()?;
                }
            }
            drop(guard);
            job.team().barrier()?;
        }
        job.team().barrier()?;
        let mut got = [0; 16];
        let epoch = window.lock(locked, LockKind::Shared)?;
        epoch.get(locked, 0, &mut got)?;
        epoch.unlock()?;
        assert_eq!((got[..8].to_vec(), got[8..].to_vec()), (vec![3; 8], vec![1; 8]));
        job.team().barrier()
    })
    .unwrap();
}
