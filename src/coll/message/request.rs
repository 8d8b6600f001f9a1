//! Sends and receives that go on after the call that began them, and own their buffers.
//!
//! ```text
//!   isend(buffer) -> SendRequest ---- wait ---> the buffer
//!   irecv(buffer) -> ReceiveRequest - wait ---> the buffer, and what came
//! ```
//! Dropping or leaking a request leaves no memory behind that somebody may still read or write: it
//! stays with the library until the message is over. Nothing goes on by itself but what the other
//! side does: calls of this library (any that wait, or `test`) do this side's part.

use super::super::Team;
use super::blocking::buffer;
use super::name::{Source, Status, Tag};
use super::{Told, code};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::Datum;
use crate::p2p::{Buffer, Going, Mode, Owned, Pattern, Place, Record};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Memory that a send can own.
///
/// # Safety
/// `first` and `len` name initialised elements, which stay where they are when the value is moved,
/// and which nobody changes as long as the value is not accessed.
pub unsafe trait SendBuffer: Send + 'static {
    /// What it consists of.
    type Item: Datum;
    /// Address of the first element.
    fn first(&self) -> *const Self::Item;
    /// Number of elements.
    fn count(&self) -> usize;
}

/// Memory that a receive can own.
///
/// # Safety
/// As for [`SendBuffer`]; the elements may be written through `first_mut`, and nobody reads them
/// as long as the value is not accessed.
pub unsafe trait ReceiveBuffer: SendBuffer {
    /// Address of the first element.
    fn first_mut(&mut self) -> *mut Self::Item;
}

macro_rules! buffer {
    ($type:ty) => {
        // SAFETY: an owner of elements on the heap.
        unsafe impl<T: Datum> SendBuffer for $type {
            type Item = T;
            fn first(&self) -> *const T {
                self.as_ptr()
            }
            fn count(&self) -> usize {
                self.len()
            }
        }
    };
}
buffer!(Vec<T>);
buffer!(Box<[T]>);
buffer!(Arc<[T]>);

// SAFETY: the only owner of its elements.
unsafe impl<T: Datum> ReceiveBuffer for Vec<T> {
    fn first_mut(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
}

// SAFETY: as above.
unsafe impl<T: Datum> ReceiveBuffer for Box<[T]> {
    fn first_mut(&mut self) -> *mut T {
        self.as_mut_ptr()
    }
}

/// A request that can be waited for together with others.
pub trait Pending {
    /// Whether [`wait`](SendRequest::wait) would return at once. Makes progress; does not block.
    ///
    /// # Errors
    /// What keeps messages from going on at all; what became of this one, `wait` tells.
    fn test(&mut self) -> Result<bool>;

    /// The team it belongs to.
    fn team(&self) -> &Team;

    /// Whether it is over, without making progress.
    fn is_over(&self) -> bool;

    /// If whoever has to do its part is gone, ends it.
    ///
    /// # Errors
    /// The death of a member, where any source was asked for.
    #[doc(hidden)]
    fn tend(&self, told: &Told) -> Result<()>;
}

/// A send that goes on.
#[must_use = "wait for it to learn what became of the message"]
pub struct SendRequest<B: SendBuffer> {
    team: Team,
    going: Going<B>,
}

/// A receive that goes on.
#[must_use = "wait for it to get the message"]
pub struct ReceiveRequest<B: ReceiveBuffer> {
    team: Team,
    going: Going<B>,
    pattern: Pattern,
}

/// What became of a receive that was to be cancelled.
#[derive(Debug)]
pub enum Cancelled<B> {
    /// No message had come; none will go here.
    Withdrawn(B),
    /// A message had come before.
    Received(B, Status),
}

impl Team {
    /// Begins to send `data` (a `Vec`, `Box` or `Arc` of elements, or shared
    /// [`Memory`](crate::Memory)); the request gives it back. Does not wait for the receiver, but
    /// copies a large message if the receiver told where to; and for one that may be about to take it, or that is far
    /// behind with many, it waits some microseconds (32 at most; hardly ever where that was in vain).
    ///
    /// # Errors
    /// Those of [`Team::send`], but [`Error::TimedOut`].
    pub fn isend<B: SendBuffer>(&self, to: Rank, tag: u32, data: B) -> Result<SendRequest<B>> {
        self.begin_send("isend", to, tag, data, Mode::Standard)
    }

    /// As [`Team::isend`]; the request is over only once the receive that takes it has begun.
    pub fn issend<B: SendBuffer>(&self, to: Rank, tag: u32, data: B) -> Result<SendRequest<B>> {
        self.begin_send("issend", to, tag, data, Mode::Synchronous)
    }

    fn begin_send<B: SendBuffer>(
        &self,
        what: &'static str,
        to: Rank,
        tag: u32,
        data: B,
        mode: Mode,
    ) -> Result<SendRequest<B>> {
        let endpoint = self.messages(what)?;
        let element = code::<B::Item>();
        let letter = self.letter(to, tag, element)?;
        let len = data.count() * size_of::<B::Item>();
        // SAFETY: the buffer stays with the record until it is done, as its trait promises.
        let place = unsafe { Place::flat(data.first().cast_mut().cast(), len) };
        let owned = Owned::new(Record::new(Buffer::new(place, element, 1)), data);
        let going = Going::send(endpoint, &letter, owned, mode)?;
        Ok(SendRequest { team: self.clone(), going })
    }

    /// Begins to receive into the elements that `into` has (a `Vec` or `Box`, or shared
    /// [`Memory`](crate::Memory)); the request gives it back. Never waits.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Misuse`] as for [`Team::recv`].
    pub fn irecv<B: ReceiveBuffer>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        mut into: B,
    ) -> Result<ReceiveRequest<B>> {
        let endpoint = self.messages("irecv")?;
        let pattern = self.pattern(from.into(), tag.into())?;
        let (first, count) = (into.first_mut(), into.count());
        // SAFETY: as in `begin_send`.
        let record = Record::new(unsafe { buffer(first, count) });
        let going = Going::receive(endpoint, &pattern, Owned::new(record, into));
        Ok(ReceiveRequest { team: self.clone(), going, pattern })
    }
}

impl<B: SendBuffer> SendRequest<B> {
    /// Waits until the message was sent (or, if synchronous, until its receive has begun), and
    /// gives the buffer back. Takes the team's deadline.
    ///
    /// # Errors
    /// Those of [`Team::send`]; the buffer stays with the library if the message still goes on.
    pub fn wait(self) -> Result<B> {
        reentry::refuse_inside("SendRequest::wait")?;
        self.going.wait(self.team.deadline(), "send", || Ok(()))?;
        self.result()
    }

    fn check(&self, _: &Told) -> Result<()> {
        Ok(())
    }

    fn result(&self) -> Result<B> {
        let (outcome, buffer) = self.going.finish();
        outcome?;
        buffer.ok_or_else(taken)
    }
}

impl<B: ReceiveBuffer> ReceiveRequest<B> {
    /// Waits for the message; the buffer, and what came. Takes the team's deadline.
    ///
    /// # Errors
    /// Those of [`Team::recv`]. After [`Error::TimedOut`], and after the death of a member where
    /// any source was asked for, the receive is withdrawn.
    pub fn wait(self) -> Result<(B, Status)> {
        let (outcome, buffer) = self.end();
        let status = outcome?;
        Ok((buffer.ok_or_else(taken)?, status))
    }

    /// As [`ReceiveRequest::wait`]; the buffer comes back with an error too, unless the message
    /// still goes on.
    pub fn end(self) -> (Result<Status>, Option<B>) {
        const WHAT: &str = "ReceiveRequest::wait";
        if let Err(error) = reentry::refuse_inside(WHAT) {
            return (Err(error), None);
        }
        let told = Told::default();
        let check = || self.team.check_for(&self.pattern, WHAT, &told);
        if let Err(error) = self.going.wait(self.team.deadline(), WHAT, check) {
            if let Some(buffer) = self.going.cancel() {
                return (told.pass(&self.team, Err(error)), Some(buffer));
            }
            // A message came after all; its copy goes on.
            if !self.going.is_over() {
                return (told.pass(&self.team, Err(error)), None);
            }
        }
        self.parts()
    }

    fn parts(&self) -> (Result<Status>, Option<B>) {
        let (outcome, buffer) = self.going.finish();
        let status = outcome.and_then(|arrived| self.team.status(arrived, size_of::<B::Item>()));
        (status, buffer)
    }

    fn result(&self) -> Result<(B, Status)> {
        let (status, buffer) = self.parts();
        let status = status?;
        Ok((buffer.ok_or_else(taken)?, status))
    }

    fn check(&self, told: &Told) -> Result<()> {
        self.team.check_for(&self.pattern, "a receive", told)
    }

    /// Takes the receive back, or gets the message that came before.
    ///
    /// # Errors
    /// Those of [`ReceiveRequest::wait`], if a message had come.
    pub fn cancel(self) -> Result<Cancelled<B>> {
        match self.going.cancel() {
            Some(buffer) => Ok(Cancelled::Withdrawn(buffer)),
            None => self.wait().map(|(buffer, status)| Cancelled::Received(buffer, status)),
        }
    }
}

macro_rules! pending {
    ($request:ident, $buffer:ident, $output:ty) => {
        impl<B: $buffer> Pending for $request<B> {
            fn test(&mut self) -> Result<bool> {
                reentry::refuse_inside("a request")?;
                let over = self.going.test()?;
                if !over && self.team.node().death_mark() > 0 {
                    self.tend_now()?;
                }
                Ok(over || self.going.is_over())
            }
            fn tend(&self, told: &Told) -> Result<()> {
                self.going.mourn()?;
                self.check(told)
            }
            fn team(&self) -> &Team {
                &self.team
            }
            fn is_over(&self) -> bool {
                self.going.is_over()
            }
        }

        impl<B: $buffer> $request<B> {
            /// [`Pending::tend`] of a call that returns its error.
            fn tend_now(&self) -> Result<()> {
                let told = Told::default();
                told.pass(&self.team, self.tend(&told))
            }

            /// Whether [`wait`](Self::wait) would return at once. Makes progress; does not block.
            ///
            /// # Errors
            /// What keeps messages from going on at all; what became of this one, `wait` tells.
            pub fn test(&mut self) -> Result<bool> {
                Pending::test(self)
            }
        }

        // The result is handed out by value only, so nothing relies on where it lies.
        impl<B: $buffer> Unpin for $request<B> {}

        /// Polled, it makes progress. If it is not over then, its waker is woken once, by whatever
        /// call of this process ends it; while requests are awaited, a thread of the library waits
        /// for them, asleep unless something comes.
        impl<B: $buffer> Future for $request<B> {
            type Output = Result<$output>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                if !Pending::test(&mut *self)? {
                    // Asked for before it is left to itself: whether its peer lives.
                    self.tend_now()?;
                    if !self.going.is_over() && !self.going.keep_waker(context.waker()) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(self.result())
            }
        }

        impl<B: $buffer> std::fmt::Debug for $request<B> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let over = self.going.is_over();
                f.debug_struct(stringify!($request)).field("over", &over).finish()
            }
        }
    };
}
pending!(SendRequest, SendBuffer, B);
pending!(ReceiveRequest, ReceiveBuffer, (B, Status));

/// Whether one of the requests is over, and which. Makes progress; does not block.
///
/// # Errors
/// Those of [`Pending::test`].
pub fn test_any(requests: &mut [&mut dyn Pending]) -> Result<Option<usize>> {
    for (at, request) in requests.iter_mut().enumerate() {
        if request.test()? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Waits until one of the requests is over: which. `None` if there are none. Takes the deadline of
/// the first one's team.
///
/// # Errors
/// Those of [`Pending::test`]; [`Error::TimedOut`].
pub fn wait_any(requests: &mut [&mut dyn Pending]) -> Result<Option<usize>> {
    const WHAT: &str = "wait_any";
    let Some(first) = requests.first() else { return Ok(None) };
    let (team, deadline) = (first.team().clone(), first.team().deadline());
    let endpoint = team.messages(WHAT)?;
    // The program waits for all of them from now on.
    if let Some(at) = test_any(requests)? {
        return Ok(Some(at));
    }
    let find = || requests.iter().position(|request| request.is_over());
    let tended = Tended::default();
    let check = || tended.tend(requests);
    tended.pass(requests, endpoint.await_any(deadline, WHAT, find, check)).map(Some)
}

/// Whether all of the requests are over: sends, receives, persistent ones, in any mix. Makes
/// progress; does not block. What became of each, its own `wait` tells, which then returns at once.
///
/// # Errors
/// Those of [`Pending::test`].
pub fn test_all(requests: &mut [&mut dyn Pending]) -> Result<bool> {
    let mut all = true;
    for request in requests {
        all &= request.test()?;
    }
    Ok(all)
}

/// Waits until all of the requests are over: sends, receives, persistent ones, in any mix, in
/// whatever order they end. What became of each, its own `wait` tells, which then returns at once.
/// Takes the deadline of the first one's team.
///
/// # Errors
/// Those of [`Pending::test`]; [`Error::TimedOut`]; the death of a member, where any source was
/// asked for. The requests are as they were, and can be waited for again.
pub fn wait_all(requests: &mut [&mut dyn Pending]) -> Result<()> {
    const WHAT: &str = "wait_all";
    let Some(first) = requests.first() else { return Ok(()) };
    let (team, deadline) = (first.team().clone(), first.team().deadline());
    let endpoint = team.messages(WHAT)?;
    // The program waits for all of them from now on.
    if test_all(requests)? {
        return Ok(());
    }
    // Those before are over, and stay so.
    let begin = std::cell::Cell::new(0);
    let find = || {
        let rest = &requests[begin.get()..];
        let ended = rest.iter().take_while(|request| request.is_over()).count();
        begin.set(begin.get() + ended);
        (begin.get() == requests.len()).then_some(())
    };
    let tended = Tended::default();
    let check = || tended.tend(requests);
    tended.pass(requests, endpoint.await_any(deadline, WHAT, find, check))
}

/// What a wait for several has found of deaths, and which of them.
#[derive(Default)]
struct Tended {
    told: Told,
    at: Cell<usize>,
}

impl Tended {
    fn tend(&self, requests: &[&mut dyn Pending]) -> Result<()> {
        requests.iter().enumerate().try_for_each(|(at, request)| {
            self.at.set(at);
            request.tend(&self.told)
        })
    }

    fn pass<T>(&self, requests: &[&mut dyn Pending], outcome: Result<T>) -> Result<T> {
        match requests.get(self.at.get()) {
            Some(request) => self.told.pass(request.team(), outcome),
            None => outcome,
        }
    }
}

#[cold]
fn taken() -> Error {
    let why = "its result was already taken; do not poll it again".into();
    Error::Misuse { what: "a request", why }
}
