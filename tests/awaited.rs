//! Requests awaited by a program that sleeps until it is woken.

use hither::{Any, Error, Job, Rank};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Lets a thread go on, and counts.
struct Bell {
    thread: Thread,
    rung: AtomicU32,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell { thread: std::thread::current(), rung: AtomicU32::new(0) })
    }

    fn rung(&self) -> u32 {
        self.rung.load(Ordering::Acquire)
    }
}

/// Awaits as a runtime does that has nothing else to do: asleep until it is woken. The result,
/// how often it asked, and how often it was woken: also for an end that came while it asked.
fn sleep_on<F: Future>(future: F) -> (F::Output, u32, u32) {
    let (bell, mut future) = (Bell::new(), pin!(future));
    let waker = Waker::from(bell.clone());
    for polls in 1.. {
        let rung = bell.rung();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, polls, bell.rung());
        }
        while bell.rung() == rung {
            std::thread::park();
        }
    }
    unreachable!()
}

#[test]
fn a_program_that_sleeps_is_woken_once_for_each_request() {
    Job::threads(2, |job| {
        let (team, peer) = (job.team(), Rank(1 - job.rank().0));
        for size in [1usize, 1000, 100_000] {
            for round in 0..20u64 {
                if job.rank() == Rank(0) {
                    let request = team.irecv(peer, 1, vec![0u64; size]).unwrap();
                    let (got, polls, rung) = sleep_on(request);
                    assert_eq!(got.unwrap().0, vec![round; size]);
                    assert!(rung <= 1 && polls <= rung + 1, "{polls} polls, woken {rung}");
                    team.send(peer, 2, &[round]).unwrap();
                } else {
                    // Sometimes the other one sleeps by then.
                    std::thread::sleep(std::time::Duration::from_millis(round % 4));
                    let (sent, polls, rung) =
                        sleep_on(team.issend(peer, 1, vec![round; size]).unwrap());
                    assert_eq!(sent.unwrap().len(), size);
                    assert!(rung <= 1 && polls <= rung + 1, "{polls} polls, woken {rung}");
                    team.recv(peer, 2, &mut [0u64]).unwrap();
                }
            }
        }
    })
    .unwrap();
}

#[test]
fn a_program_that_sleeps_learns_that_its_peer_has_left() {
    for any in [false, true] {
        Job::threads(2, |job| {
            if job.rank() == Rank(0) {
                let team = job.team();
                let request = match any {
                    true => team.irecv(Any, 1, vec![0u64; 1]),
                    false => team.irecv(Rank(1), 1, vec![0u64; 1]),
                };
                let (got, ..) = sleep_on(request.unwrap());
                let error = got.unwrap_err();
                let gone = matches!(error, Error::RankLeft { .. } | Error::RankDied { .. });
                assert!(gone, "{error}");
            }
        })
        .unwrap();
    }
}

#[test]
fn a_waker_goes_with_its_request_or_with_the_next_one() {
    Job::threads(2, |job| {
        let (team, peer) = (job.team(), Rank(1 - job.rank().0));
        let bells = [Bell::new(), Bell::new()];
        let mut request = Box::pin(team.irecv(peer, 1, vec![0u64]).unwrap());
        for bell in &bells {
            let waker = Waker::from(bell.clone());
            assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(bells.each_ref().map(Arc::strong_count), [1, 2]);
        drop(request);
        assert_eq!(bells.each_ref().map(Arc::strong_count), [1, 1]);
        team.barrier().unwrap();
        // The receive goes on all the same, and takes this.
        team.ssend(peer, 1, &[1u64]).unwrap();
        team.barrier().unwrap();
        assert_eq!(bells.each_ref().map(|bell| bell.rung()), [0, 0]);
    })
    .unwrap();
}
