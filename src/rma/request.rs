//! Requests: operations that go on after the call that began them.
//!
//! ```text
//!              the result comes            it is taken
//!   Waiting --------------------> Done ------------------> Taken
//!      |  poll, test: looks and makes progress; wait: until it has come
//!      +- drop: the result is thrown away when it comes
//! ```
//! A request owns its buffers, or whatever carries the operation out does: dropping or leaking one
//! does not leave memory behind that something may still write to. Operations on mapped memory are
//! done when they begin.

use super::remote::{Remote, Ticket};
use crate::base::{Error, Result, reentry};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// An operation that was begun, and its result `R`. See the [module](self).
///
/// It is a future too; whatever runtime polls it. Dropping it does not undo the operation, and
/// does not wait: flush and the end of the epoch complete it at the target.
#[must_use = "without the request the result is lost; flush to complete the operation"]
pub struct Request<R> {
    state: State<R>,
}

enum State<R> {
    Done(Result<R>),
    Waiting(Waiting<R>),
    Going(Box<dyn Going<R>>),
    Taken,
}

/// An operation of a room above that goes on. Dropping it forgets the result.
pub(crate) trait Going<R>: Send + Sync {
    /// The result, if it has come. If not: makes progress, and wakes `waker` once it is worth
    /// asking again. Not called again after a result.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<R>>;

    /// As [`Going::poll`], but waits.
    fn wait(self: Box<Self>) -> Result<R>;
}

struct Waiting<R> {
    remote: Arc<dyn Remote>,
    ticket: Ticket,
    /// Makes the result from the bytes that come.
    finish: fn(Vec<u8>) -> Result<R>,
    /// Whether the ticket is used up.
    over: bool,
}

impl<R> Waiting<R> {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<R>> {
        let come = self.remote.poll(self.ticket, waker).transpose()?;
        self.over = true;
        Some(come.and_then(self.finish))
    }
}

impl<R> Drop for Waiting<R> {
    fn drop(&mut self) {
        if !self.over {
            self.remote.abandon(self.ticket);
        }
    }
}

impl<R> Request<R> {
    pub(crate) fn done(value: R) -> Request<R> {
        Request { state: State::Done(Ok(value)) }
    }

    /// An operation of a room above.
    pub(crate) fn going(going: Box<dyn Going<R>>) -> Request<R> {
        Request { state: State::Going(going) }
    }

    pub(super) fn later(
        remote: Arc<dyn Remote>,
        ticket: Ticket,
        finish: fn(Vec<u8>) -> Result<R>,
    ) -> Request<R> {
        Request { state: State::Waiting(Waiting { remote, ticket, finish, over: false }) }
    }

    /// Waits for the result.
    ///
    /// Notices a dead target and takes the team's deadline.
    ///
    /// # Errors
    /// What became of the operation; [`Error::Misuse`] if the request was awaited before.
    pub fn wait(mut self) -> Result<R> {
        if !matches!(self.state, State::Done(_)) {
            reentry::refuse_inside("Request::wait")?;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Done(result) => result,
            State::Waiting(mut waiting) => {
                waiting.over = true;
                waiting.remote.wait(waiting.ticket).and_then(waiting.finish)
            }
            State::Going(going) => going.wait(),
            State::Taken => Err(taken()),
        }
    }

    /// Whether the result is there, or was taken.
    fn look(&mut self, waker: Option<&Waker>) -> bool {
        let come = match &mut self.state {
            State::Waiting(waiting) => waiting.poll(waker),
            State::Going(going) => going.poll(waker),
            State::Done(_) | State::Taken => return true,
        };
        match come {
            Some(result) => {
                self.state = State::Done(result);
                true
            }
            None => false,
        }
    }

    /// Whether [`Request::wait`] would return at once. Makes progress; does not block.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the request was awaited before. What became of the operation, `wait`
    /// tells.
    pub fn test(&mut self) -> Result<bool> {
        match self.state {
            State::Taken => Err(taken()),
            State::Done(_) => Ok(true),
            State::Waiting(_) | State::Going(_) => {
                reentry::refuse_inside("Request::test")?;
                Ok(self.look(None))
            }
        }
    }
}

// A result is handed out by value only, so nothing relies on where it lies.
impl<R> Unpin for Request<R> {}

impl<R> Future for Request<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        if !matches!(self.state, State::Done(_)) {
            reentry::refuse_inside("a request")?;
        }
        if !self.look(Some(context.waker())) {
            return Poll::Pending;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Done(result) => Poll::Ready(result),
            _ => Poll::Ready(Err(taken())),
        }
    }
}

impl<R> fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Done(_) => "done",
            State::Waiting(_) | State::Going(_) => "waiting",
            State::Taken => "taken",
        };
        f.debug_struct("Request").field("state", &state).finish()
    }
}

#[cold]
fn taken() -> Error {
    let why = "its result was already taken; do not poll it again".into();
    Error::Misuse { what: "a request", why }
}
