//! The calls: issuing a message, waiting for it, requests, and where it runs.

use super::describe::{self, Described};
use super::landing::bad;
use super::message::{Message, Outcome, Waiting};
use super::{Away, WHAT, attached, place};
use crate::am::body::{DONE_HEAD, UNIT_HEAD};
use crate::am::buffers::GRAIN;
use crate::am::place::Site;
use crate::am::plan::Plan;
use crate::base::{Error, Rank, Result};
use crate::rma::core::Core;
use crate::rma::kind::Place;
use crate::rma::remote::Remote;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// Input that is copied, so that the call need not wait until it is sent.
const COPIED: usize = 64 << 10;
/// Messages that may wait to be sent to one target; those that issue more wait.
const UNSENT: usize = 64;

/// What keeps a request's output and counts: the plan's addresses lie in it. Whoever carries the
/// message out owns it until it is done, and gives it back then.
pub(crate) type Parcel = Box<dyn Any + Send + Sync>;

/// How long a call waits for its message.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Until it is done: output and counts are there.
    Wait,
    /// Until the input has been read. Output and counts, if there are any, lie at addresses that
    /// stay valid until the message is completed by a flush or the end of the epoch.
    Post,
    /// As `Post`; what is told later brings this back.
    Request(Parcel),
}

/// What became of a message that was issued.
#[derive(Debug)]
pub(crate) enum Issued {
    /// The call may return: `Wait`, `Post`.
    Done,
    /// A request has begun.
    Begun(Box<dyn Pending>),
}

/// A message that was begun with a request. Dropping it forgets the message, which is carried out
/// all the same.
pub(crate) trait Pending: Debug + Send + Sync {
    /// What keeps output and counts, if the message is done. If not: makes progress, and wakes
    /// `waker` once it is worth asking again. After a result it is not asked again.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<Parcel>>;

    /// As [`Pending::poll`], but waits. Notices dead peers, takes the team's deadline.
    fn wait(self: Box<Self>) -> Result<Parcel>;
}

/// Carries out a message on a part that is not mapped here.
///
/// # Errors
/// What is wrong with it; what became of it, for [`Mode::Wait`].
pub(crate) fn issue(core: &Arc<Core>, plan: Plan<'_>, mode: Mode) -> Result<Issued> {
    let Place::Away(at) = plan.persistent.place else {
        let why = "the part is mapped; run the handler here".into();
        return Err(Error::Misuse { what: WHAT, why });
    };
    let (Some(remote), Some(away)) = (core.remote(), attached(core)?) else {
        return Err(no_path(plan.target));
    };
    let described = Described::of(&plan);
    let need = described.need(plan.handler, plan.handler.is_vector())?;
    let mut size = Vec::new();
    described.encode(&mut size);
    if size.len() > describe::MOST {
        let why = format!(
            "its layouts take {} bytes to describe, more than {}; use regular ones, or an index in \
             the input",
            size.len(),
            describe::MOST
        );
        return Err(Error::invalid(WHAT, why));
    }
    let at = at.wrapping_add_signed(plan.persistent.lower as i64);
    let exclusive = plan.exclusive;
    let mut message = Message::new(&plan, at, described, need);
    message.most = away.most_staging(&message, size.len());
    let call = Call { away: &away, remote: &**remote };
    if let Some(done) = place::run_here(core, &call, &plan, &message, &mode) {
        done?;
        return Ok(match mode {
            Mode::Request(parcel) => Issued::Begun(Box::new(Ready(Some(parcel)))),
            Mode::Wait | Mode::Post => Issued::Done,
        });
    }
    match mode {
        Mode::Wait => {
            let begun = Instant::now();
            let sizes = place::sizes(&plan, &message);
            call.wait(message, exclusive)?;
            away.took(plan.handler.index(), Site::Target, sizes, begun);
            Ok(Issued::Done)
        }
        Mode::Post => {
            message.waiting = Waiting::Nobody;
            call.post(message, exclusive)?;
            Ok(Issued::Done)
        }
        Mode::Request(parcel) => {
            message.waiting = Waiting::Request { parcel, waker: None };
            let id = call.post(message, exclusive)?;
            let asked = Asked { away: away.clone(), remote: remote.clone(), id, over: false };
            Ok(Issued::Begun(Box::new(asked)))
        }
    }
}

#[cold]
fn no_path(target: Rank) -> Error {
    let why = format!("rank {target}'s part is not mapped, and the window has no packet path");
    Error::Misuse { what: WHAT, why }
}

/// A call that issues messages.
pub(super) struct Call<'c> {
    pub away: &'c Away,
    remote: &'c dyn Remote,
}

impl Call<'_> {
    /// Waits until `message` is done.
    fn wait(&self, message: Message, exclusive: bool) -> Result<()> {
        let outcome = self.until_done(message, exclusive)?;
        outcome.failure.map_or(Ok(()), Err)
    }

    /// Waits until `message` is done; what became of it.
    pub fn until_done(&self, message: Message, exclusive: bool) -> Result<Outcome> {
        let id = self.away.client().add(message, exclusive);
        self.away.stir();
        // The caller's memory is not touched any more when this returns, however it does.
        let mut under_way = UnderWay { away: self.away, id, over: false };
        let mut done = None;
        self.remote.drive(WHAT, &mut || {
            done = self.away.client().take(id);
            done.is_some().then_some(Ok(()))
        })?;
        under_way.over = true;
        done.ok_or_else(|| bad("it was forgotten".into()))
    }

    /// Waits until the input of `message` has been read; its number.
    fn post(&self, mut message: Message, exclusive: bool) -> Result<u64> {
        let target = message.target;
        if message.unread() <= COPIED {
            message.read_input();
        }
        if self.away.client().unsent(target) >= UNSENT {
            self.remote.drive(WHAT, &mut || {
                let unsent = self.away.client().unsent(target);
                (unsent < UNSENT).then_some(Ok(()))
            })?;
        }
        let streams = message.unread() > 0;
        let id = self.away.client().add(message, exclusive);
        self.away.stir();
        if !streams {
            self.remote.look()?;
            return Ok(id);
        }
        let mut under_way = UnderWay { away: self.away, id, over: false };
        self.remote.drive(WHAT, &mut || {
            let mut client = self.away.client();
            let read = client.get(id).is_none_or(|message| message.unread() == 0);
            read.then_some(Ok(()))
        })?;
        under_way.over = true;
        Ok(id)
    }
}

/// A message that refers to the caller's memory.
struct UnderWay<'a> {
    away: &'a Away,
    id: u64,
    over: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.away.client_alone().cut_off(self.id);
            self.away.stir();
        }
    }
}

/// A message that was done when its call returned.
#[derive(Debug)]
struct Ready(Option<Parcel>);

impl Pending for Ready {
    fn poll(&mut self, _: Option<&Waker>) -> Option<Result<Parcel>> {
        let taken = || bad("its result was taken".into());
        Some(self.0.take().ok_or_else(taken))
    }

    fn wait(mut self: Box<Self>) -> Result<Parcel> {
        self.poll(None).unwrap_or_else(|| unreachable!())
    }
}

/// See [`Pending`].
#[derive(Debug)]
struct Asked {
    away: Arc<Away>,
    remote: Arc<dyn Remote>,
    id: u64,
    over: bool,
}

impl Asked {
    /// What became of the message, if that is known. The engine's lock may be held: nothing of the
    /// program's is dropped.
    fn done(&mut self) -> Option<Outcome> {
        let outcome = self.away.client().take(self.id)?;
        self.over = true;
        Some(outcome)
    }
}

/// What a request's message has come to.
fn result(outcome: Outcome) -> Result<Parcel> {
    match (outcome.failure, outcome.waiting) {
        (None, Waiting::Request { parcel, .. }) => Ok(parcel),
        (Some(error), _) => Err(error),
        (None, _) => Err(bad("its request is gone".into())),
    }
}

impl Pending for Asked {
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<Parcel>> {
        let threaded = match self.remote.look() {
            Ok(threaded) => threaded,
            Err(error) => return Some(Err(error)),
        };
        if let Some(waker) = waker {
            // Cloned and dropped without locks: it is the program's.
            let mut waker = Some(waker.clone());
            if let Some(message) = self.away.client_alone().get(self.id)
                && let Waiting::Request { waker: there, .. } = &mut message.waiting
            {
                std::mem::swap(there, &mut waker);
            }
        }
        // Asked after the waker is there, or nobody might wake it.
        let result = self.done().map(result);
        if let (None, Some(waker), false) = (&result, waker, threaded) {
            waker.wake_by_ref();
        }
        result
    }

    fn wait(mut self: Box<Self>) -> Result<Parcel> {
        let remote = self.remote.clone();
        let mut done = None;
        remote.drive("Request::wait", &mut || {
            done = self.done();
            done.is_some().then_some(Ok(()))
        })?;
        done.map_or_else(|| Err(bad("it was forgotten".into())), result)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.over {
            self.away.client_alone().forget(self.id);
        }
    }
}

impl Away {
    /// Most staging of a unit: whole segments, input and output no more than a packet each (or what
    /// the setting says), and twice in the system buffer, so that units are sent while others run.
    fn most_staging(&self, message: &Message, description: usize) -> u64 {
        let (fixed, segment) = message.need;
        let (input, output) = message.bytes_each();
        let fit = |room: usize, each: usize| room.checked_div(each).unwrap_or(usize::MAX);
        let segments = if self.settings.unit > 0 {
            fit(self.settings.unit as usize, input.max(output))
        } else {
            let first = self.most - UNIT_HEAD;
            let room = if description < first { first - description } else { first };
            let twice = (self.system() / 2).saturating_sub(fixed) as usize;
            fit(room, input)
                .min(fit(self.most - DONE_HEAD, output))
                .min(fit(twice, segment as usize))
        };
        let segments = segments.clamp(1, message.segments.max(1)) as u64;
        segments.saturating_mul(segment).saturating_add(fixed).saturating_add(GRAIN)
    }
}
