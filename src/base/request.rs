//! Requests: operations that go on after the call that began them.
//!
//! ```text
//!              the result comes            it is taken
//!   Going ----------------------> Done ------------------> Taken
//!      |  poll, test: looks and makes progress; wait: until it has come
//!      +- drop: the result is thrown away when it comes
//! ```
//! A request owns its buffers, or whatever carries the operation out does: dropping or leaking one
//! does not leave memory behind that something may still write to. One-sided operations on mapped
//! memory are done when they begin.

use super::error::{Error, Result};
use super::reentry;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// An operation that was begun, and its result `R`. The module says what becomes of it when it is dropped.
///
/// It is a future too; whatever runtime polls it. Dropping it does not undo the operation, and
/// does not wait: of one-sided operations flush and the end of the epoch complete it at the target,
/// a collective goes on in the later calls of this process.
#[must_use = "without the request the result is lost"]
pub struct Request<R> {
    state: State<R>,
}

enum State<R> {
    Done(Result<R>),
    Going(Box<dyn Going<R>>),
    Taken,
}

/// An operation that goes on, as the room that carries it out sees it. Dropping it forgets the
/// result.
pub(crate) trait Going<R>: Send + Sync {
    /// The result, if it has come. If not: makes progress, and wakes `waker` once it is worth
    /// asking again. Not called again after a result.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<R>>;

    /// As [`Going::poll`], but waits.
    fn wait(self: Box<Self>) -> Result<R>;
}

impl<R> Request<R> {
    pub(crate) fn done(value: R) -> Request<R> {
        Request { state: State::Done(Ok(value)) }
    }

    /// An operation that goes on.
    pub(crate) fn going(going: Box<dyn Going<R>>) -> Request<R> {
        Request { state: State::Going(going) }
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
            State::Going(going) => going.wait(),
            State::Taken => Err(taken()),
        }
    }

    /// Whether the result is there, or was taken.
    fn look(&mut self, waker: Option<&Waker>) -> bool {
        let come = match &mut self.state {
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
            State::Going(_) => {
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
            State::Going(_) => "waiting",
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
