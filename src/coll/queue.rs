//! Calls that were begun and do not block.
//!
//! ```text
//! begin --> queue of the team --> the first runs --> done: result to its request, next one
//!             (in order of beginning)     ^
//!                                         | asked again by: test and wait of any request of the
//!                                         | team, a collective that blocks (which finishes all
//!                                         | that were begun before it), every other wait of
//!                                         | this process (Node::help_while_waiting)
//! ```
//! One call of a team is under way at a time, so the steps of all members have the same numbers,
//! as in calls that block. A call owns its buffers and holds the team's memory, but not its
//! membership: when the last handle of the team and the last request are gone, what was not done
//! is given up, and the others are told.

use super::call::Call;
use super::core::{Core, Place};
use super::sign::Sign;
use super::step::Course;
use super::team::{Member, Team};
use crate::base::request::Going;
use crate::base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::{Deadline, Error, Request, Result, forked};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Unsuccessful looks between two at who is still alive.
const CHECK_EVERY: u32 = 1024;

/// What a team has under way in this process.
#[derive(Debug, Default)]
pub(super) struct Queue {
    calls: Mutex<VecDeque<Waiting>>,
    /// Calls not done. Written with `calls` locked.
    pending: AtomicU32,
    /// Where the first waits; see [`Place`].
    at: Arc<AtomicU64>,
    /// Looks in vain.
    looks: AtomicU32,
    /// Whether other waits of this process know of the team.
    known: AtomicBool,
}

/// A call without its types: its steps, at the end of which its result is where its request looks.
type Steps = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A call in the queue.
struct Waiting {
    sign: Sign,
    steps: Steps,
    outcome: Arc<dyn Fail>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.sign.what.name())
    }
}

/// Where a request finds its result.
struct Outcome<R> {
    ready: AtomicBool,
    result: Mutex<Option<Result<R>>>,
}

impl<R> Outcome<R> {
    fn set(&self, result: Result<R>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.ready.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Result<R>> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where a call ends without success.
trait Fail: Send + Sync {
    fn fail(&self, error: Error);
}

impl<R: Send> Fail for Outcome<R> {
    fn fail(&self, error: Error) {
        self.set(Err(error));
    }
}

impl Waiting {
    /// Goes on. Not called again after it is ready.
    fn go_on(&mut self, core: &Core) -> Poll<()> {
        let mut context = Context::from_waker(Waker::noop());
        // A user's operation runs in there, in whatever call of this process asks.
        let asked = catch_unwind(AssertUnwindSafe(|| self.steps.as_mut().poll(&mut context)));
        let error = match asked {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => {
                core.note_through();
                return Poll::Ready(());
            }
            Ok(Poll::Ready(Err(error))) => error,
            Err(_) => Error::Misuse {
                what: self.sign.what.during(),
                why: "the operation that was given panicked; its team cannot be used any more"
                    .into(),
            },
        };
        self.outcome.fail(core.failed(error, Duration::ZERO, self.sign.what.during()));
        Poll::Ready(())
    }
}

impl Team {
    /// Begins a call that does not block; `make` gives what it does.
    pub(super) fn begin<R, F>(
        &self,
        sign: Sign,
        make: impl FnOnce(Call<'static>) -> F,
    ) -> Result<Request<R>>
    where
        R: Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        let during = sign.what.during();
        let member = &self.member;
        let busy = member.enter(during)?;
        member.intact(during)?;
        member.make_known()?;
        let queue = &member.queue;
        let call = Call::new(Course::polled(member.core.clone(), sign, queue.at.clone()));
        let outcome = Arc::new(Outcome { ready: AtomicBool::new(false), result: Mutex::new(None) });
        let (call, there) = (make(call), outcome.clone());
        let steps = Box::pin(async move {
            there.set(Ok(call.await?));
            Ok(())
        });
        {
            let mut calls = queue.lock();
            calls.push_back(Waiting { sign, steps, outcome: outcome.clone() });
            member.count(&calls);
        }
        drop(busy);
        member.go_on();
        Ok(Request::going(Box::new(Begun { team: self.clone(), during, outcome })))
    }
}

/// A call's request.
struct Begun<R> {
    team: Team,
    during: &'static str,
    outcome: Arc<Outcome<R>>,
}

impl<R: Send + 'static> Going<R> for Begun<R> {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<R>> {
        let member = &*self.team.member;
        if !self.outcome.ready.load(Ordering::Acquire) {
            if let Err(error) = forked::refuse_forked(self.during) {
                return Some(Err(error));
            }
            member.go_on();
            if let Err(error) = member.look_around(self.during) {
                member.fail_all(&error);
            }
        }
        let come = self.outcome.take();
        if come.is_none()
            && let Some(waker) = waker
        {
            // Nobody else goes on with it: it is to be asked again as soon as others had their
            // turn.
            waker.wake_by_ref();
        }
        come
    }

    fn wait(self: Box<Self>) -> Result<R> {
        let member = &*self.team.member;
        let outcome = &self.outcome;
        let over = || outcome.ready.load(Ordering::Acquire);
        member.finish_until(over, self.team.deadline(), self.during)?;
        outcome.take().unwrap_or_else(|| {
            let why = "its result was already taken".into();
            Err(Error::Misuse { what: "a request", why })
        })
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Whether calls are under way. One load.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }
}

impl Member {
    /// Goes on with what was begun, as far as that is possible now. Does not block.
    fn go_on(&self) {
        let queue = &self.queue;
        if queue.is_idle() || forked::is_forked() {
            return;
        }
        let mut calls = match queue.calls.try_lock() {
            Ok(calls) => calls,
            Err(TryLockError::Poisoned(calls)) => calls.into_inner(),
            // Somebody else does.
            Err(TryLockError::WouldBlock) => return,
        };
        let before = queue.place();
        let mut done = false;
        while let Some(call) = calls.front_mut() {
            let step = match self.intact("a collective that was begun") {
                Ok(()) => call.go_on(&self.core),
                Err(error) => {
                    call.outcome.fail(error);
                    Poll::Ready(())
                }
            };
            if step.is_pending() {
                break;
            }
            calls.pop_front();
            self.count(&calls);
            done = true;
        }
        drop(calls);
        if done || queue.place() != before {
            // Other threads of this process may sleep for a request that is done, or where
            // nothing will happen any more.
            self.core.cell(Place::from_raw(before)).notify();
        }
    }

    /// Says how many calls there are, which are locked. The node counts the queues that have some.
    fn count(&self, calls: &VecDeque<Waiting>) {
        let before = self.queue.pending.load(Ordering::Relaxed);
        let now = calls.len() as u32;
        if (before == 0) != (now == 0) {
            self.block.node.pending(now > 0);
        }
        self.queue.pending.store(now, Ordering::Release);
    }

    /// Ends all that was begun, because of a failure of which the team learns.
    fn fail_all(&self, error: &Error) {
        self.core.note_failure(error);
        self.go_on();
    }

    /// Now and then: whether all members are alive and in the same call.
    fn look_around(&self, during: &'static str) -> Result<()> {
        let looks = self.queue.looks.fetch_add(1, Ordering::Relaxed);
        if looks % CHECK_EVERY == CHECK_EVERY - 1 { self.core.check(during) } else { Ok(()) }
    }

    /// Goes on with what was begun until `over`.
    pub(super) fn finish_until(
        &self,
        over: impl Fn() -> bool,
        deadline: Deadline,
        during: &'static str,
    ) -> Result<()> {
        let queue = &self.queue;
        forked::refuse_forked(during)?;
        while !over() {
            self.go_on();
            let at = queue.place();
            let cell = self.core.cell(Place::from_raw(at));
            let moved = || {
                self.go_on();
                (over() || queue.place() != at).then_some(())
            };
            let check = || self.core.check(during);
            if let Err(error) = self.block.node.wait(cell, deadline, during, moved, check) {
                self.fail_all(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Finishes what was begun before a call that blocks.
    #[cold]
    pub(super) fn finish_begun(&self, deadline: Deadline, during: &'static str) -> Result<()> {
        self.finish_until(|| self.queue.is_idle(), deadline, during)
    }

    /// Has every wait of this process go on with this team's calls.
    fn make_known(self: &Arc<Self>) -> Result<()> {
        if self.queue.known.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let node = &self.block.node;
        let mut fresh = false;
        let known = node.attachment(|| {
            fresh = true;
            Ok(Known::default())
        })?;
        if fresh {
            let all = Arc::downgrade(&known);
            node.help_while_waiting(move |_| {
                if let Some(known) = all.upgrade() {
                    known.go_on();
                }
            })?;
        }
        known.add(self);
        Ok(())
    }

    /// Gives up what was begun: nobody can ask for it any more.
    pub(super) fn abandon_begun(&mut self) {
        let calls = self.queue.lock();
        if !calls.is_empty() && !forked::is_forked() {
            self.core.give_up();
            self.block.node.pending(false);
        }
    }
}

/// The teams of an attachment that have begun calls.
#[derive(Default)]
struct Known(Mutex<Vec<Weak<Member>>>);

impl Known {
    fn add(&self, member: &Arc<Member>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(member));
    }

    fn go_on(&self) {
        // Somebody else is at it, or this thread is: a wait within one.
        let Ok(all) = self.0.try_lock() else { return };
        let mut gone = Vec::new();
        for one in all.iter() {
            if let Some(member) = one.upgrade() {
                member.go_on();
                // If its last handle went meanwhile, it ends when nothing is locked any more.
                gone.push(member);
            }
        }
        drop(all);
    }
}
