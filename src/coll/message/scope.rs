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
use crate::p2p::{Borrowed, Buffer, Endpoint, Mode, Place, Records};
use std::cell::{Cell, RefCell};
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
    Going(Borrowed),
    /// It was sent at once: there is nothing to wait for.
    Sent,
    /// It was waited for.
    Ended,
}

thread_local! {
    /// Memory of the thread's last exchange, for the next one.
    static SPARE: Cell<(Vec<State>, Records)> = const { Cell::new((Vec::new(), Records::new())) };
}

/// Most sends and receives for which memory is kept so.
const SPARE_MOST: usize = 64;

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
        // None while the thread ends.
        let (begun, records) = SPARE.try_with(Cell::take).unwrap_or_default();
        let all = All { team: self, begun: begun.into(), records: records.into() };
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
        Ok(self.keep(request.map_or(State::Sent, State::Going), 0))
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
        buffer: Buffer,
        unit: usize,
    ) -> Result<Exchanged<'scope, 'env>> {
        let pattern = self.all.team.pattern(from, tag)?;
        let endpoint = self.all.team.messages(WHAT)?;
        let record = self.all.records.borrow_mut().keep(buffer);
        // SAFETY: as in `send`; and `All` keeps the record.
        let request = unsafe { Borrowed::receive(endpoint, &pattern, record) };
        Ok(self.keep(State::Going(request), unit))
    }

    /// Begins to receive into the beginning of `into`; see [`Team::irecv`].
    pub fn irecv<T: Datum>(
        &'scope self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &'env mut [T],
    ) -> Result<Exchanged<'scope, 'env>> {
        // SAFETY: borrowed for 'env, for nobody else.
        let buffer = unsafe { buffer(into.as_mut_ptr(), into.len()) };
        self.receive(from.into(), tag.into(), buffer, size_of::<T>())
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
        let buffer = Buffer::new(place, layout_code(shape.layout), 1);
        self.receive(from.into(), tag.into(), buffer, size_of::<T>())
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
        for (at, state) in self.begun.borrow().iter().enumerate() {
            if let State::Going(request) = state
                && !request.is_over()
            {
                request.attend(endpoint);
                last[usize::from(request.pattern().is_none())] = Some(at);
            }
        }
        // Most likely the others are over then: those who came first are the first to get messages. Where ranks
        // share cores one long wait is the sooner one to give its core up.
        let mut early = last
            .map(|at| at.filter(|_| endpoint.waits_awake()))
            .map(|at| at.map(|at| (at, self.end(at, 0).map(drop))));
        let mut at = 0;
        while let Some(going) = self.next_going(endpoint, at, &mut first) {
            let ended = early.iter_mut().find_map(|it| it.take_if(|(last, _)| *last == going));
            let ended = ended.map_or_else(|| self.end(going, 0).map(drop), |(_, ended)| ended);
            first = first.and(ended);
            at = going + 1;
        }
        first
    }

    /// Ends those from `at` on that are over, up to the first one that is not, or that was waited for: which one
    /// that is. The first error goes to `first`.
    fn next_going(&self, endpoint: &Endpoint, at: usize, first: &mut Result<()>) -> Option<usize> {
        let mut begun = self.begun.borrow_mut();
        let members = self.team.size();
        for (going, state) in begun.iter_mut().enumerate().skip(at) {
            match state {
                State::Sent => {}
                State::Going(request) => match request.arrived(endpoint) {
                    // What is usual, looked at where it is.
                    Some(arrived) if arrived.rank < members => *state = State::Ended,
                    Some(arrived) => {
                        *first = std::mem::replace(first, Ok(()))
                            .and(self.team.status(arrived, 0).map(drop));
                        *state = State::Ended;
                    }
                    None => return Some(going),
                },
                State::Ended => return Some(going),
            }
        }
        None
    }

    /// What came of one that is over, and that nobody waited for.
    #[inline]
    fn conclude(&self, request: &Borrowed, unit: usize) -> Result<Option<Status>> {
        let arrived = request.outcome(self.team.member.endpoint()?)?;
        match request.pattern() {
            Some(_) => self.team.status(arrived, unit).map(Some),
            None => Ok(None),
        }
    }

    /// Waits for one, if nobody has.
    fn end(&self, at: usize, unit: usize) -> Result<Option<Status>> {
        let mut all = self.begun.borrow_mut();
        let Some(state) = all.get_mut(at) else { return Ok(None) };
        let State::Going(request) = std::mem::replace(state, State::Ended) else {
            return Ok(None);
        };
        drop(all);
        if request.is_over() {
            return self.conclude(&request, unit);
        }
        // Should it panic, the request is given up before the borrow ends.
        let held = Held { all: self, request: &request };
        let endpoint = self.team.messages(WHAT)?;
        let (told, pattern) = (Told::default(), request.pattern());
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
        let (mut begun, mut records) = (self.begun.take(), self.records.take());
        for state in &begun {
            if let State::Going(request) = state {
                drop(Held { all: self, request });
            }
        }
        begun.clear();
        // Nobody knows any of them now.
        records.clear(SPARE_MOST);
        if begun.capacity() <= SPARE_MOST {
            let _ = SPARE.try_with(|spare| spare.set((begun, records)));
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
        let Some(State::Going(request)) = begun.get(self.at) else {
            return endpoint.progress().map(|()| true);
        };
        request.asked_for(endpoint);
        endpoint.progress()?;
        Ok(request.is_over())
    }
}
