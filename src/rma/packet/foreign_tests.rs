//! The seam to the room above: what it issues arrives in order and within epochs, what it says
//! comes back, refusals are told, and nothing is run once a window is gone.

use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Rank, Result};
use crate::rma::foreign::{FIRST, Foreign, NOBODY, Outgoing};
use crate::rma::runtime::{Fault, Sent};
use crate::rma::{Info, LockKind, Medium, Window};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
struct State {
    to_issue: VecDeque<(Rank, Vec<u8>)>,
    to_answer: VecDeque<(Rank, Vec<u8>)>,
    arrived: HashMap<Rank, u64>,
    answered: u64,
    issued: u64,
    refused: u64,
    given_up: u64,
    dropped: Vec<String>,
    abandoned: Vec<Rank>,
    failed: Option<crate::Error>,
}

/// Answers everything by the same bytes; refuses what is empty.
#[derive(Debug, Default)]
struct Echo {
    state: Mutex<State>,
    busy: AtomicBool,
    closed: AtomicBool,
}

impl Echo {
    fn issue(&self, to: Rank, number: u64, padding: usize) {
        let mut body = vec![FIRST];
        body.extend(number.to_le_bytes());
        body.resize(body.len() + padding, 7);
        let mut state = self.state.lock().unwrap();
        state.issued += 1;
        state.to_issue.push_back((to, body));
        self.busy.store(true, Ordering::SeqCst);
    }
}

impl Foreign for Echo {
    fn arrived(&self, origin: Rank, body: &[u8]) -> std::result::Result<(), Fault> {
        assert!(!self.closed.load(Ordering::SeqCst), "something arrives at a closed window");
        if body.len() == 1 {
            return Err(Fault { code: 99, details: [1, 2, 3] });
        }
        let mut state = self.state.lock().unwrap();
        let number = u64::from_le_bytes(body[1..9].try_into().unwrap());
        let last = state.arrived.insert(origin, number).unwrap_or(0);
        assert_eq!(number, last + 1, "lost, doubled or out of order");
        state.to_answer.push_back((origin, body.to_vec()));
        self.busy.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn noted(&self, _from: Rank, body: &[u8]) {
        assert_eq!(body[0], FIRST);
        self.state.lock().unwrap().answered += 1;
    }

    fn refused(&self, _target: Rank, fault: Fault) {
        assert!([99, NOBODY].contains(&fault.code), "{fault:?}");
        let mut state = self.state.lock().unwrap();
        state.refused += 1;
        state.issued -= 1;
    }

    fn dropped(&self, _target: Rank, _body: &[u8], error: &crate::Error) {
        let mut state = self.state.lock().unwrap();
        state.issued -= 1;
        state.dropped.push(error.to_string());
    }

    fn abandoned(&self, target: Rank, _error: &crate::Error) {
        self.state.lock().unwrap().abandoned.push(target);
    }

    fn died(&self, _rank: Rank) {}

    fn busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    fn pump(&self, out: &mut dyn Outgoing) -> bool {
        let mut state = self.state.lock().unwrap();
        let mut did = false;
        while let Some((to, body)) = state.to_answer.pop_front() {
            if out.note(to, &body) == Sent::Full {
                state.to_answer.push_front((to, body));
                break;
            }
            did = true;
        }
        while let Some((to, body)) = state.to_issue.pop_front() {
            match out.operate(to, &body) {
                Poll::Pending => {
                    state.to_issue.push_front((to, body));
                    break;
                }
                Poll::Ready(Ok(())) => {
                    out.push(to);
                    did = true;
                }
                Poll::Ready(Err(error)) => {
                    state.issued -= 1;
                    state.failed = Some(error);
                }
            }
        }
        let left = !state.to_answer.is_empty() || !state.to_issue.is_empty();
        self.busy.store(left, Ordering::SeqCst);
        out.wake(Waker::noop().clone());
        did
    }

    fn idle(&self, _target: Option<Rank>, _ends: bool) -> Result<bool> {
        let mut state = self.state.lock().unwrap();
        let done = state.answered == state.issued;
        match state.failed.take() {
            Some(error) if done => Err(error),
            failed => {
                state.failed = failed;
                Ok(done)
            }
        }
    }

    fn awaited(&self, _target: Option<Rank>) -> Vec<Rank> {
        vec![Rank(1)]
    }

    fn give_up(
        &self,
        _target: Option<Rank>,
        _error: &crate::Error,
        _open: bool,
        _out: &mut dyn Outgoing,
    ) {
        self.state.lock().unwrap().given_up += 1;
    }

    fn due(&self) -> bool {
        false
    }

    fn run_due(&self) -> bool {
        false
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("echoes", self.state.lock().unwrap().answered)]
    }
}

fn window(team: &crate::Team) -> Window<u64> {
    let info = Info { medium: Medium::Packets, ..Info::default() };
    Window::<u64>::builder(team).info(info).allocate(8).unwrap()
}

#[test]
fn what_is_issued_arrives_in_order_and_is_waited_for() {
    crate::Job::threads(3, |job| {
        let window = window(job.team());
        let echo = Arc::new(Echo::default());
        let remote = window.core().remote().unwrap().clone();
        remote.attach(echo.clone());
        job.team().barrier().unwrap();
        let mut numbers = [0u64; 3];
        let mut issue = |to: u32, padding: usize| {
            numbers[to as usize] += 1;
            echo.issue(Rank(to), numbers[to as usize], padding);
        };
        // Long ones and short ones mixed, to everybody, in each kind of epoch.
        let most = remote.most_body() - 9;
        for round in 0..20 {
            let epoch = window.lock_all().unwrap();
            for to in 0..3 {
                issue(to, 0);
                issue(to, most);
                issue(to, 600 * (round % 3));
            }
            epoch.put(Rank(0), 0, &[1]).unwrap();
            epoch.flush_all().unwrap();
            assert!(echo.idle(None, false).unwrap());
            issue((job.rank().0 + 1) % 3, 100);
            epoch.unlock_all().unwrap();
            assert!(echo.idle(None, false).unwrap());

            let lock = window.lock(Rank(1), LockKind::Exclusive).unwrap();
            issue(1, most);
            lock.unlock().unwrap();
            assert!(echo.idle(None, false).unwrap());

            let fence = window.fence().unwrap();
            issue(2, 1000);
            issue(0, 1);
            fence.end().unwrap();
            assert!(echo.idle(None, false).unwrap());
        }
        // Without an epoch nothing goes out, and that is told.
        issue(0, 0);
        let error = remote.drive("a test", &mut || match echo.idle(None, false) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        assert!(matches!(error, Err(crate::Error::Misuse { .. })), "{error:?}");
        assert!(window.packet_counters().iter().any(|(name, n)| *name == "echoes" && *n > 0));
        job.team().barrier().unwrap();
        window.free().unwrap();
        assert!(echo.closed.load(Ordering::SeqCst));
        assert_eq!(echo.state.lock().unwrap().given_up, 0);
    })
    .unwrap();
}

#[test]
fn what_the_target_refuses_is_told_at_once_and_by_the_flush() {
    crate::Job::threads(2, |job| {
        let window = window(job.team());
        let echo = Arc::new(Echo::default());
        window.core().remote().unwrap().attach(echo.clone());
        job.team().barrier().unwrap();
        let epoch = window.lock_all().unwrap();
        if job.rank() == Rank(0) {
            echo.state.lock().unwrap().issued += 1;
            echo.state.lock().unwrap().to_issue.push_back((Rank(1), vec![FIRST]));
            echo.busy.store(true, Ordering::SeqCst);
            let told = epoch.flush(Rank(1));
            assert!(matches!(told, Err(crate::Error::Incompatible { .. })), "{told:?}");
            assert_eq!(echo.state.lock().unwrap().refused, 1);
        }
        epoch.unlock_all().unwrap();
        // Where nobody performs them they are refused, too.
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

#[test]
fn where_nobody_performs_them_they_are_refused_and_that_is_heard() {
    crate::Job::threads(2, |job| {
        let window = window(job.team());
        let echo = Arc::new(Echo::default());
        if job.rank() == Rank(0) {
            window.core().remote().unwrap().attach(echo.clone());
        }
        job.team().barrier().unwrap();
        let epoch = window.lock_all().unwrap();
        if job.rank() == Rank(0) {
            echo.issue(Rank(1), 1, 0);
            let told = epoch.flush(Rank(1));
            assert!(matches!(told, Err(crate::Error::Misuse { .. })), "{told:?}");
            assert_eq!(echo.state.lock().unwrap().refused, 1);
        }
        epoch.unlock_all().unwrap();
        job.team().barrier().unwrap();
        window.free().unwrap();
    })
    .unwrap();
}

/// A thread that finds somebody on the seam may let others send: the agent must know by then.
#[test]
fn nobody_is_found_on_the_seam_before_the_agent_knows() {
    crate::Job::threads(1, |job| {
        let window = window(job.team());
        let remote = window.core().remote().unwrap().clone();
        let agent = super::agent::Agent::of(job.team().node()).unwrap();
        let entered = agent.enter().unwrap();
        std::thread::scope(|scope| {
            let attaches: Vec<_> =
                (0..2).map(|_| scope.spawn(|| remote.attach(Arc::new(Echo::default())))).collect();
            for _ in 0..100 {
                assert!(remote.attached().is_none(), "the agent cannot know: its lock is held");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(entered);
            let found: Vec<_> = attaches.into_iter().map(|thread| thread.join().unwrap()).collect();
            let there = remote.attached().unwrap();
            assert!(found.iter().all(|one| Arc::ptr_eq(one, there)), "one for all");
        });
        window.free().unwrap();
    })
    .unwrap();
}
