//! Sends and receives with borrowed buffers: they end before the borrow does.
//!
//! As with `std::thread::scope`, what is begun inside is waited for at the end, so no reference to
//! a buffer is left behind, whatever becomes of the handles.

use super::super::Team;
use super::blocking::{buffer, bytes, shaped};
use super::name::{Source, Status, Tag};
use super::{Told, code, layout_code};
use crate::base::{Error, Rank, Result};
use crate::layout::{Datum, Shape};
use crate::p2p::{Borrowed, Buffer, Mode, Pattern, Place, Record, Records};
use std::cell::RefCell;
use std::marker::PhantomData;

const WHAT: &str = "exchange";

/// Where sends and receives with borrowed buffers begin; see [`Team::exchange`]. One thread's.
pub struct Exchange<'scope, 'env: 'scope> {
    all: &'scope All<'env>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// What was begun in an exchange. Nothing of it is left when this is dropped.
struct All<'env> {
    team: &'env Team,
    begun: RefCell<Vec<State>>,
    /// Of its receives: dropped when nothing is left.
    records: RefCell<Records>,
}

/// What became of one of those that were begun.
enum State {
    /// It goes on, or is over and nobody was told.
    Going(Begun),
    /// It was sent at once: there is nothing to wait for.
    Sent,
    /// It was waited for.
    Ended,
}

struct Begun {
    request: Borrowed,
    /// Of a receive.
    pattern: Option<Pattern>,
}

/// A send or receive inside of an exchange. Dropping it leaves it to the end of the exchange.
pub struct Exchanged<'scope, 'env> {
    all: &'scope All<'env>,
    at: usize,
    unit: usize,
}

impl Team {
    /// Runs `f`, in which sends and receives with borrowed buffers can be begun, and waits for all
    /// of them.
    ///
    /// ```
    /// # hither::Job::threads(2, |job| {
    /// let (team, other) = (job.team(), hither::Rank(1 - job.rank().0));
    /// let (mine, mut theirs) = ([job.rank().0; 1000], [0; 1000]);
    /// team.exchange(|scope| {
    ///     scope.irecv(other, 7, &mut theirs)?;
    ///     scope.isend(other, 7, &mine)?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(theirs, [other.0; 1000]);
    /// # team.barrier()
    /// # })?.into_iter().collect::<hither::Result<Vec<()>>>()?;
    /// # Ok::<(), hither::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of `f`; else the first one of what was begun in it and not waited for.
    pub fn exchange<'env, R>(
        &'env self,
        f: impl for<'scope> FnOnce(&'scope Exchange<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        self.messages(WHAT)?;
        let all = All { team: self, begun: RefCell::default(), records: RefCell::default() };
        let scope = Exchange { all: &all, _scope: PhantomData, _env: PhantomData };
        let result = f(&scope)?;
        all.wait_all()?;
        Ok(result)
    }
}

impl<'scope, 'env> Exchange<'scope, 'env> {
    fn keep(&'scope self, state: State, unit: usize) -> Exchanged<'scope, 'env> {
        let mut begun = self.all.begun.borrow_mut();
        begun.push(state);
        Exchanged { all: self.all, at: begun.len() - 1, unit }
    }

    fn send(
        &'scope self,
        to: Rank,
        tag: u32,
        element: u8,
        place: Place,
        mode: Mode,
    ) -> Result<Exchanged<'scope, 'env>> {
        let letter = self.all.team.letter(to, tag, element)?;
        let endpoint = self.all.team.messages(WHAT)?;
        // SAFETY: `All` is not gone before it has ended all that was begun, and the place is
        // borrowed for longer.
        let request = unsafe { Borrowed::send(endpoint, &letter, place, mode)? };
        let state =
            request.map_or(State::Sent, |request| State::Going(Begun { request, pattern: None }));
        Ok(self.keep(state, 0))
    }

    fn send_flat<T: Datum>(
        &'scope self,
        to: Rank,
        tag: u32,
        data: &'env [T],
        mode: Mode,
    ) -> Result<Exchanged<'scope, 'env>> {
        let data = bytes(data);
        // SAFETY: borrowed for 'env, and only read.
        let place = unsafe { Place::flat(data.as_ptr().cast_mut(), data.len()) };
        self.send(to, tag, code::<T>(), place, mode)
    }

    /// Begins to send `data`; see [`Team::isend`].
    pub fn isend<T: Datum>(
        &'scope self,
        to: Rank,
        tag: u32,
        data: &'env [T],
    ) -> Result<Exchanged<'scope, 'env>> {
        self.send_flat(to, tag, data, Mode::Standard)
    }

    /// As [`Exchange::isend`], over only when the receive has begun.
    pub fn issend<T: Datum>(
        &'scope self,
        to: Rank,
        tag: u32,
        data: &'env [T],
    ) -> Result<Exchanged<'scope, 'env>> {
        self.send_flat(to, tag, data, Mode::Synchronous)
    }

    /// As [`Exchange::isend`], of the bytes of `shape` in `data`.
    pub fn isend_layout<T: Datum>(
        &'scope self,
        to: Rank,
        tag: u32,
        data: &'env [T],
        shape: Shape<'_>,
    ) -> Result<Exchanged<'scope, 'env>> {
        // SAFETY: borrowed for 'env, and only read.
        let place = unsafe { shaped(WHAT, data.as_ptr().cast_mut(), data.len(), shape)? };
        self.send(to, tag, layout_code(shape.layout), place, Mode::Standard)
    }

    fn receive(
        &'scope self,
        from: Source,
        tag: Tag,
        record: Record,
        unit: usize,
    ) -> Result<Exchanged<'scope, 'env>> {
        let pattern = self.all.team.pattern(from, tag)?;
        let endpoint = self.all.team.messages(WHAT)?;
        let record = self.all.records.borrow_mut().keep(record);
        // SAFETY: as in `send`; and `All` keeps the record.
        let request = unsafe { Borrowed::receive(endpoint, &pattern, record) };
        Ok(self.keep(State::Going(Begun { request, pattern: Some(pattern) }), unit))
    }

    /// Begins to receive into the beginning of `into`; see [`Team::irecv`].
    pub fn irecv<T: Datum>(
        &'scope self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &'env mut [T],
    ) -> Result<Exchanged<'scope, 'env>> {
        // SAFETY: borrowed for 'env, for nobody else.
        let record = Record::new(unsafe { buffer(into.as_mut_ptr(), into.len()) });
        self.receive(from.into(), tag.into(), record, size_of::<T>())
    }

    /// As [`Exchange::irecv`], into the bytes of `shape` in `into`.
    pub fn irecv_layout<T: Datum>(
        &'scope self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &'env mut [T],
        shape: Shape<'_>,
    ) -> Result<Exchanged<'scope, 'env>> {
        // SAFETY: as above.
        let place = unsafe { shaped(WHAT, into.as_mut_ptr(), into.len(), shape)? };
        let record = Record::new(Buffer::new(place, layout_code(shape.layout), 1));
        self.receive(from.into(), tag.into(), record, size_of::<T>())
    }

    /// Waits for everything that was begun so far.
    ///
    /// # Errors
    /// The first one; the others are waited for all the same.
    pub fn wait_all(&self) -> Result<()> {
        self.all.wait_all()
    }
}

impl All<'_> {
    fn wait_all(&self) -> Result<()> {
        let endpoint = self.team.messages(WHAT)?;
        let (mut first, mut last) = (Ok(()), [None; 2]);
        let count = self.begun.borrow().len();
        for (at, state) in self.begun.borrow().iter().enumerate() {
            if let State::Going(begun) = state
                && !begun.request.is_over()
            {
                begun.request.attend(endpoint);
                last[usize::from(begun.pattern.is_none())] = Some(at);
            }
        }
        // Most likely the others are over then: those who came first are the first to get messages. Where ranks
        // share cores one long wait is the sooner one to give its core up.
        let mut early = last
            .map(|at| at.filter(|_| endpoint.waits_awake()))
            .map(|at| at.map(|at| (at, self.end(at, 0).map(drop))));
        for at in 0..count {
            let ended = early.iter_mut().find_map(|it| it.take_if(|(last, _)| *last == at));
            let ended = ended.map_or_else(|| self.end(at, 0).map(drop), |(_, ended)| ended);
            first = first.and(ended);
        }
        first
    }

    /// Waits for one, if nobody has.
    fn end(&self, at: usize, unit: usize) -> Result<Option<Status>> {
        let mut all = self.begun.borrow_mut();
        let Some(state) = all.get_mut(at) else { return Ok(None) };
        if let State::Going(begun) = state
            && begun.request.is_over()
        {
            let arrived = begun.request.outcome(self.team.member.endpoint()?);
            let receives = begun.pattern.is_some();
            *state = State::Ended;
            drop(all);
            let arrived = arrived?;
            return receives.then(|| self.team.status(arrived, unit)).transpose();
        }
        let State::Going(Begun { request, pattern }) = std::mem::replace(state, State::Ended)
        else {
            return Ok(None);
        };
        drop(all);
        // Should it panic, the request is given up before the borrow ends.
        let held = Held { all: self, request: &request };
        let endpoint = self.team.messages(WHAT)?;
        let told = Told::default();
        let check = || pattern.map_or(Ok(()), |pattern| self.team.check_for(&pattern, WHAT, &told));
        let ended = request.end(endpoint, self.team.deadline(), WHAT, check);
        let ended = told.pass(self.team, ended);
        std::mem::forget(held);
        match pattern {
            Some(_) => self.team.status(ended?, unit).map(Some),
            None => ended.map(|_| None),
        }
    }
}

/// Gives a request up if it is not ended.
struct Held<'a, 'env> {
    all: &'a All<'env>,
    request: &'a Borrowed,
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        if let Ok(endpoint) = self.all.team.member.endpoint() {
            self.request.give_up(endpoint);
        }
    }
}

impl Drop for All<'_> {
    fn drop(&mut self) {
        // After an error or a panic in `f`: nothing may be left that knows the buffers.
        for state in self.begun.take() {
            if let State::Going(begun) = state {
                drop(Held { all: self, request: &begun.request });
            }
        }
    }
}

impl Exchanged<'_, '_> {
    /// Waits for its end: what came, of a receive; of a send, the message's place in the order is
    /// all there is to know.
    ///
    /// # Errors
    /// Those of [`Team::send`] and [`Team::recv`]; [`Error::Misuse`] if it was waited for before.
    pub fn wait(self) -> Result<Option<Status>> {
        if matches!(self.all.begun.borrow().get(self.at), None | Some(State::Ended)) {
            let why = "it was waited for before, with all of the exchange".into();
            return Err(Error::Misuse { what: WHAT, why });
        }
        self.all.end(self.at, self.unit)
    }

    /// Whether [`Exchanged::wait`] would return at once. Makes progress; does not block.
    pub fn test(&self) -> Result<bool> {
        let endpoint = self.all.team.messages(WHAT)?;
        let begun = self.all.begun.borrow();
        let Some(State::Going(begun)) = begun.get(self.at) else {
            return endpoint.progress().map(|()| true);
        };
        begun.request.asked_for(endpoint);
        endpoint.progress()?;
        Ok(begun.request.is_over())
    }
}
