//! How messages end at their origin: by the last of their notes, by a death, or because what they
//! belong to is given up.
//!
//! ```text
//!   the call gives up          cut_off   its memory is not touched any more; what was begun goes on
//!   the epoch's end does       give_up   callers are told at once; what was begun goes on if it can
//!   the engine throws away     dropped   the unit counts as never sent, its message fails
//!   no epoch, or a death in it strand    nothing more is sent until the next message
//!   the target is gone         fail_all  nothing comes back
//! ```
//! What goes on by itself has no caller and lands nowhere. The ends of later epochs do not wait for
//! it, but its room at the target is known to be in use until its notes have come.

use super::client::{Client, concerns};
use super::message::{Message, Waiting};
use super::why::{GONE, UNPREPARED, failed};
use crate::am::body::{Note, Request};
use crate::base::{Error, Rank, Result};
use crate::rma::foreign::Outgoing;

impl Client {
    /// The memory of the call that issued a message goes: what has been begun is ended without it.
    pub fn cut_off(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.done {
            return self.remove(id);
        }
        let target = message.target;
        let awaited = message.is_awaited();
        message.end_loan();
        self.spent.waiting(message.leave());
        if let (true, Some(peer)) = (awaited, self.peers.get_mut(&target.0)) {
            peer.outstanding -= 1;
            peer.work = true;
        }
        self.settle(id);
    }

    /// Nobody will ask for the result of a request. What it brought along stays until it is done.
    pub fn forget(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.done {
            return self.remove(id);
        }
        if message.over {
            return self.spent.waiting(message.leave());
        }
        message.forgotten = true;
        if let Waiting::Request { waker, .. } = &mut message.waiting
            && let Some(waker) = waker.take()
        {
            self.spent.keep(waker);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(message) = self.messages.remove(&id) {
            self.spent.message(message);
        }
    }

    /// Looks whether a message has been sent, or is done, and does what is to be done then.
    pub(super) fn settle(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let Some(peer) = self.peers.get_mut(&message.target.0) else { return };
        if message.lined && message.is_sent() {
            message.lined = false;
            peer.lineup.remove(id);
            peer.unsent -= 1;
            peer.credit.finish(id, peer.unsent > 0);
            peer.work = true;
            self.news = true;
        }
        if message.done || !message.is_done() {
            return;
        }
        if message.is_awaited() {
            peer.outstanding -= 1;
        }
        message.done = true;
        self.news = true;
        let keep = match &mut message.waiting {
            Waiting::Call => true,
            Waiting::Request { waker, .. } => {
                self.woken.extend(waker.take());
                !message.forgotten
            }
            Waiting::Nobody | Waiting::Given => false,
        };
        if !keep && let Some(mut message) = self.messages.remove(&id) {
            let told = matches!(message.waiting, Waiting::Given);
            if let (Some(error), false) = (message.failure.take(), told) {
                peer.trouble.get_or_insert(error);
            }
            self.spent.message(message);
        }
    }

    /// A message is not waited for any more: who waits is told `error`, and what has been begun is
    /// ended without the caller's memory.
    fn abandon(&mut self, id: u64, error: &Error) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.done || !message.is_awaited() {
            return;
        }
        message.end_loan();
        match &mut message.waiting {
            Waiting::Nobody => message.waiting = Waiting::Given,
            Waiting::Request { .. } if message.forgotten => self.spent.waiting(message.leave()),
            Waiting::Request { waker, .. } => {
                self.woken.extend(waker.take());
                message.over = true;
            }
            _ => message.over = true,
        }
        message.failure.get_or_insert_with(|| again(error));
        if let Some(peer) = self.peers.get_mut(&message.target.0) {
            peer.outstanding -= 1;
            peer.work = true;
        }
        self.news = true;
        self.settle(id);
    }

    fn messages_to(&self, which: impl Fn(&Message) -> bool) -> Vec<u64> {
        let of = |(id, message): (&u64, &Message)| which(message).then_some(*id);
        let mut all: Vec<u64> = self.messages.iter().filter_map(of).collect();
        all.sort_unstable();
        all
    }

    /// The end of an epoch is not waited for any more, because of `error`. What there is to tell
    /// the target, if there is room, is told before the epoch goes; unless another one is `open`,
    /// the rest has to wait for the next message.
    pub fn give_up(
        &mut self,
        target: Option<Rank>,
        error: &Error,
        open: bool,
        (out, most): (&mut dyn Outgoing, usize),
    ) {
        for id in self.messages_to(|message| concerns(target, message.target.0)) {
            self.abandon(id, error);
            let Some(message) = self.messages.get_mut(&id).filter(|m| !m.forsaken) else {
                continue;
            };
            message.forsaken = true;
            let (target, units) = (message.target, message.flights.len() as u64);
            self.peer(target).forsaken += units;
        }
        let ranks = self.peers.keys().copied().filter(|rank| concerns(target, *rank));
        for rank in ranks.collect::<Vec<u32>>() {
            let peer = self.peer(Rank(rank));
            // The end of the epoch has told its error.
            peer.trouble = None;
            if peer.dormant {
                continue;
            }
            self.take_back(Rank(rank), error);
            let peer = self.peer(Rank(rank));
            if std::mem::take(&mut peer.exclusive) {
                peer.credit.exclusive(false);
            } else {
                peer.credit.surrender();
            }
            self.pump_peer(Rank(rank), out, most);
            let peer = self.peer(Rank(rank));
            peer.dormant = !open && peer.has_left();
        }
        self.tell(out);
    }

    /// A unit for which the engine had no room yet is not begun any more.
    fn take_back(&mut self, target: Rank, error: &Error) {
        let peer = self.peer(target);
        let Ok(Request::Unit(unit)) = Request::decode(&peer.body) else { return };
        if !peer.full || unit.place.bytes == 0 {
            return;
        }
        let (message, number) = (unit.message, unit.unit);
        if unit.release {
            peer.credit.unreleased(unit.place.space);
        }
        peer.full = false;
        self.unsent_unit(target, message, number, error);
    }

    /// What is said for `target` finds no epoch any more: messages that are not sent fail.
    pub fn strand(&mut self, target: Rank, error: &Error) {
        if !self.peers.contains_key(&target.0) {
            return;
        }
        for id in self.messages_to(|message| message.target == target && message.lined) {
            let Some(message) = self.messages.get(&id) else { continue };
            let untold = matches!(message.waiting, Waiting::Nobody) && message.is_awaited();
            if untold {
                self.peer(target).trouble.get_or_insert_with(|| again(error));
            }
            self.abandon(id, error);
        }
        self.take_back(target, error);
        let peer = self.peer(target);
        peer.dormant = peer.has_left();
    }

    /// The engine has thrown away an operation that it had not sent, as its epoch will never be one
    /// with `target`; [`Client::strand`] follows.
    pub fn dropped(&mut self, target: Rank, body: &[u8], error: &Error) {
        let Ok(request) = Request::decode(body) else { return };
        match request {
            // A head without a place only tells that its message ends.
            Request::Unit(unit) if unit.place.bytes > 0 => {
                self.unsent_unit(target, unit.message, unit.unit, error);
                if unit.release {
                    self.peer(target).credit.unreleased(unit.place.space);
                }
            }
            Request::Reserve { ticket, .. } => self.peer(target).credit.unasked(ticket),
            Request::More { message, unit, .. } if !self.is_flying(message, unit) => {}
            _ => self.peer(target).again.push_back(body.to_vec()),
        }
    }

    fn is_flying(&self, id: u64, unit: u32) -> bool {
        let message = self.messages.get(&id);
        message.is_some_and(|message| message.flights.iter().any(|flight| flight.unit == unit))
    }

    /// A unit never was sent, and its message fails.
    fn unsent_unit(&mut self, target: Rank, id: u64, unit: u32, error: &Error) {
        let message = self.messages.get_mut(&id).filter(|message| message.target == target);
        let Some(message) = message else { return };
        let forsaken = message.forsaken;
        message.fail(again(error));
        let Some(place) = message.unsent(unit) else { return };
        let peer = self.peer(target);
        // The place was this unit's: it is what the target does not know.
        let _ = peer.credit.done(place);
        peer.forsaken -= u64::from(forsaken);
        if peer.streaming == Some(id) {
            peer.streaming = None;
        }
        // What comes next of the same message is of no use without it.
        let next = match Request::decode(&peer.body) {
            Ok(Request::Unit(next)) if peer.full && next.message == id => Some(next.unit),
            Ok(Request::More { message, unit, .. }) if peer.full && message == id => Some(unit),
            _ => None,
        };
        if let Some(next) = next {
            peer.full = false;
            self.unsent_unit(target, id, next, error);
        }
        self.settle(id);
    }

    /// Everything to a target fails.
    fn fail_all(&mut self, target: Rank, error: &dyn Fn() -> Error) {
        let Some(peer) = self.peers.get_mut(&target.0) else { return };
        peer.credit.lost();
        peer.again.clear();
        (peer.full, peer.streaming, peer.work, peer.forsaken) = (false, None, false, 0);
        for id in self.messages_to(|message| message.target == target) {
            if let Some(message) = self.messages.get_mut(&id).filter(|message| !message.done) {
                message.fail(error());
                message.drop_all();
            }
            self.settle(id);
        }
        // What finishing them would have told the target is of no use.
        if let Some(peer) = self.peers.get_mut(&target.0) {
            peer.credit.lost();
        }
    }

    /// A member is gone.
    pub fn died(&mut self, target: Rank, error: &dyn Fn() -> Error) {
        self.fail_all(target, error);
    }

    /// The target refused something in a way that leaves nothing to hope for.
    pub fn refused(&mut self, target: Rank, why: u64) {
        let error = || failed(target, u32::MAX, if why == 0 { GONE } else { why as u32 + 1000 });
        self.fail_all(target, &error);
    }

    /// The target has nobody there to take messages: see [`crate::rma::foreign::NOBODY`].
    pub fn unprepared(&mut self, target: Rank) {
        self.fail_all(target, &|| failed(target, u32::MAX, UNPREPARED));
    }

    /// A note has come.
    pub fn noted(&mut self, from: Rank, body: &[u8]) {
        if let Err(error) = self.take_note(from, body) {
            let text = error.to_string();
            self.fail_all(from, &|| super::landing::bad(text.clone()));
        }
    }

    fn take_note(&mut self, from: Rank, body: &[u8]) -> Result<()> {
        match Note::decode(body)? {
            Note::Done { message: id, unit, status, form, position, last, data } => {
                let message = self.messages.get_mut(&id).filter(|message| message.target == from);
                let Some(message) = message else {
                    self.done.strays += 1;
                    return Ok(());
                };
                let place = message.noted(unit, (status, form), position, last, data)?;
                let forsaken = message.forsaken;
                let peer = self.peer(from);
                if let Some(place) = place {
                    peer.credit.done(place)?;
                    peer.forsaken -= u64::from(forsaken);
                    peer.work = true;
                }
                self.settle(id);
                Ok(())
            }
            Note::Granted { ticket, spaces } => {
                let peer = self.peer(from);
                peer.work = true;
                peer.credit.granted(ticket, spaces.iter())
            }
            Note::Refused { ticket, largest, .. } => {
                let peer = self.peer(from);
                peer.work = true;
                peer.credit.refused(ticket, largest)
            }
        }
    }

    /// Wakes who may be waiting for what has happened.
    pub(super) fn tell(&mut self, out: &mut dyn Outgoing) {
        for waker in self.woken.drain(..) {
            out.wake(waker);
        }
        if std::mem::take(&mut self.news) {
            out.ring();
        }
    }
}

/// The same error for one more message.
#[cold]
fn again(error: &Error) -> Error {
    match error {
        Error::RankDied { rank, cause, during } => {
            Error::RankDied { rank: *rank, cause: cause.clone(), during }
        }
        Error::TimedOut { during, waited, missing } => {
            Error::TimedOut { during, waited: *waited, missing: missing.clone() }
        }
        Error::Misuse { what, why } => Error::Misuse { what, why: why.clone() },
        other => Error::invalid("an active message", other.to_string()),
    }
}
