//! The origin's side: messages wait in line, go out as credit allows, and are done with their last
//! note.
//!
//! ```text
//!   issue --> lineup, per target: who must not overtake whom --> credit: is there room?
//!                                                                  | unit, or a reservation
//!   noted <-- Done, Granted, Refused                               v
//!     |  place is free, result lands                      body --- operate --> engine
//!     +--> done: the call, the request or the flush is told
//! ```
//! One unit's stream goes to a target at a time; several units are under way (pipelining, paper 001
//! §6.4.1). All of this runs under one lock, after each look into the inboxes. Memory: a peer for
//! each target with something under way, a message for each that is not done.

use super::message::{Message, Waiting};
use super::spent::{Spends, Spent};
use super::why::{GONE, UNPREPARED, failed};
use crate::am::body::{MORE_HEAD, Note, Place, Request, UNIT_HEAD, Unit, Work};
use crate::am::credit::{Credit, Need, Next};
use crate::am::order::Lineup;
use crate::base::{Error, Rank, Result};
use crate::rma::foreign::Outgoing;
use crate::rma::info::{AmOrdering, UserBuffers};
use std::collections::HashMap;
use std::task::{Poll, Waker};

/// Peers kept that have nothing under way.
const IDLE_PEERS: usize = 64;

/// What is under way to one target.
#[derive(Debug)]
struct Peer {
    credit: Credit,
    lineup: Lineup<u64>,
    /// Messages in the line.
    unsent: usize,
    /// Messages that are not done, but for those that were given up.
    outstanding: usize,
    /// The message whose unit is being sent.
    streaming: Option<u64>,
    /// A body that is to be sent next, if `full`.
    body: Vec<u8>,
    full: bool,
    /// There may be something to send.
    work: bool,
    /// An epoch was given up: nothing is sent until the next message.
    dormant: bool,
    /// The target is locked exclusively.
    exclusive: bool,
    /// What went wrong and has not been told.
    trouble: Option<Error>,
}

/// What has been done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub messages: u64,
    pub units: u64,
    pub asked: u64,
    pub unasked: u64,
    pub bytes: u64,
    pub at_origin: u64,
    pub strays: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Client {
    system: u64,
    promised: UserBuffers,
    wanted: AmOrdering,
    interleave: bool,
    peers: HashMap<u32, Peer>,
    messages: HashMap<u64, Message>,
    next: u64,
    woken: Vec<Waker>,
    ready: Vec<u64>,
    spent: Spent,
    pub done: Done,
}

impl Spends for Client {
    fn spent(&mut self) -> &mut Spent {
        &mut self.spent
    }
}

impl Client {
    pub fn new(system: u64, promised: UserBuffers, wanted: AmOrdering, interleave: bool) -> Client {
        Client {
            system,
            promised,
            wanted,
            interleave,
            peers: HashMap::new(),
            messages: HashMap::new(),
            next: 0,
            woken: Vec::new(),
            ready: Vec::new(),
            spent: Spent::default(),
            done: Done::default(),
        }
    }

    fn peer(&mut self, target: Rank) -> &mut Peer {
        let (system, promised, wanted) = (self.system, self.promised.get(target), self.wanted);
        self.peers.entry(target.0).or_insert_with(|| Peer {
            credit: Credit::new(system, promised),
            lineup: Lineup::new(wanted),
            unsent: 0,
            outstanding: 0,
            streaming: None,
            body: Vec::new(),
            full: false,
            work: false,
            dormant: false,
            exclusive: false,
            trouble: None,
        })
    }

    /// Takes a message; its number.
    pub fn add(&mut self, mut message: Message, exclusive: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        message.mark.message = id;
        self.done.messages += u64::from(message.work == Work::Run);
        let peer = self.peer(message.target);
        if exclusive != peer.exclusive {
            peer.exclusive = exclusive;
            peer.credit.exclusive(exclusive);
        }
        peer.lineup.push(message.mark, id);
        peer.unsent += 1;
        peer.outstanding += 1;
        (peer.work, peer.dormant) = (true, false);
        self.messages.insert(id, message);
        id
    }

    /// Messages to `target` that have not been sent.
    pub fn unsent(&self, target: Rank) -> usize {
        self.peers.get(&target.0).map_or(0, |peer| peer.unsent)
    }

    /// Has a look at a message; nothing if it has been forgotten.
    pub fn get(&mut self, id: u64) -> Option<&mut Message> {
        self.messages.get_mut(&id)
    }

    /// A message that is done, which is forgotten then.
    pub fn take(&mut self, id: u64) -> Option<Message> {
        let done = self.messages.get(&id).is_some_and(|message| message.done);
        if done { self.messages.remove(&id) } else { None }
    }

    /// The memory of the call that issued a message goes: what has been begun is ended without it.
    pub fn cut_off(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.done {
            return self.drop(id);
        }
        if matches!(message.waiting, Waiting::Given) {
            return;
        }
        let target = message.target;
        self.spent.waiting(message.cut_short());
        if let Some(peer) = self.peers.get_mut(&target.0) {
            peer.outstanding -= 1;
            peer.work = true;
        }
        self.settle(id);
    }

    /// Nobody will ask for the result of a request. What it brought along stays until it is done.
    pub fn forget(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.done {
            return self.drop(id);
        }
        message.forgotten = true;
        if let Waiting::Request { waker, .. } = &mut message.waiting
            && let Some(waker) = waker.take()
        {
            self.spent.keep(waker);
        }
    }

    fn drop(&mut self, id: u64) {
        if let Some(message) = self.messages.remove(&id) {
            self.spent.message(message);
        }
    }

    /// Looks whether a message has been sent, or is done, and does what is to be done then.
    fn settle(&mut self, id: u64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let Some(peer) = self.peers.get_mut(&message.target.0) else { return };
        if message.lined && message.is_sent() {
            message.lined = false;
            peer.lineup.remove(id);
            peer.unsent -= 1;
            peer.credit.finish(id, peer.unsent > 0);
            peer.work = true;
        }
        if message.done || !message.is_done() {
            return;
        }
        message.done = true;
        if !matches!(message.waiting, Waiting::Given) {
            peer.outstanding -= 1;
        }
        let keep = match &mut message.waiting {
            Waiting::Call => true,
            Waiting::Request { waker, .. } => {
                self.woken.extend(waker.take());
                !message.forgotten
            }
            Waiting::Nobody => false,
            Waiting::Given => false,
        };
        if !keep && let Some(mut message) = self.messages.remove(&id) {
            let told = matches!(message.waiting, Waiting::Given);
            if let (Some(error), false) = (message.failure.take(), told) {
                peer.trouble.get_or_insert(error);
            }
            self.spent.message(message);
        }
    }

    /// Everything to a target fails.
    fn fail_all(&mut self, target: Rank, error: &dyn Fn() -> Error) {
        let Some(peer) = self.peers.get_mut(&target.0) else { return };
        peer.credit.lost();
        (peer.full, peer.streaming, peer.work) = (false, None, false);
        let of = |(id, message): (&u64, &Message)| (message.target == target).then_some(*id);
        let all: Vec<u64> = self.messages.iter().filter_map(of).collect();
        for id in all {
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
            self.fail_all(from, &|| super::message::bad(text.clone()));
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
                let peer = self.peer(from);
                if let Some(place) = place {
                    peer.credit.done(place)?;
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

    /// Whether there may be something to send or to tell.
    pub fn is_busy(&self) -> bool {
        let told = self.woken.is_empty() && self.spent.is_empty();
        !told || self.peers.values().any(|peer| peer.work && !peer.dormant)
    }

    /// Sends what can be sent; whether anything.
    pub fn pump(&mut self, out: &mut dyn Outgoing, most: usize) -> bool {
        let works = |(rank, peer): (&u32, &Peer)| (peer.work && !peer.dormant).then_some(*rank);
        let ranks: Vec<u32> = self.peers.iter().filter_map(works).collect();
        let mut sent = false;
        for rank in ranks {
            sent |= self.pump_peer(Rank(rank), out, most);
        }
        for waker in self.woken.drain(..) {
            out.wake(waker);
        }
        sent
    }

    fn pump_peer(&mut self, target: Rank, out: &mut dyn Outgoing, most: usize) -> bool {
        let mut sent = false;
        while let Some(peer) = self.peers.get_mut(&target.0) {
            if !peer.full {
                peer.work = false;
                if !self.fill(target, most) {
                    break;
                }
                continue;
            }
            peer.work = true;
            match out.operate(target, &peer.body) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {
                    peer.full = false;
                    sent = true;
                }
                Poll::Ready(Err(error)) => {
                    self.fail_all(target, &|| again(&error));
                    break;
                }
            }
        }
        if sent {
            out.push(target);
        }
        sent
    }

    /// Makes the next body for a target; whether there is one.
    fn fill(&mut self, target: Rank, most: usize) -> bool {
        let Some(peer) = self.peers.get_mut(&target.0) else { return false };
        if let Some(request) = peer.credit.outgoing() {
            request.encode(&mut peer.body);
            peer.full = true;
            return true;
        }
        if let Some(id) = peer.streaming {
            let message = self.messages.get_mut(&id);
            let Some((message, (unit, position))) =
                message.and_then(|message| message.sending().map(|at| (message, at)))
            else {
                peer.streaming = None;
                return self.fill(target, most);
            };
            Request::More { message: id, unit, position, data: &[] }.encode(&mut peer.body);
            message.send(most - MORE_HEAD, &mut peer.body);
            peer.full = true;
            if message.stream.is_none() {
                peer.streaming = None;
                self.settle(id);
            }
            return true;
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(peer.lineup.ready());
        let made = ready.iter().any(|&id| self.fill_from(target, id, most));
        self.ready = ready;
        // Failing may have something to say.
        made || self.peers.get_mut(&target.0).is_some_and(|peer| {
            let request = peer.credit.outgoing();
            if let Some(request) = &request {
                request.encode(&mut peer.body);
                peer.full = true;
            }
            request.is_some()
        })
    }

    /// Makes the next body out of a message that may go; whether there is one.
    fn fill_from(&mut self, target: Rank, id: u64, most: usize) -> bool {
        let Some(peer) = self.peers.get_mut(&target.0) else { return false };
        let Some(message) = self.messages.get_mut(&id) else { return false };
        if message.next == message.segments {
            let closes = message.begun;
            if closes {
                message.begun = false;
                Request::Unit(closing(id, message)).encode(&mut peer.body);
                peer.full = true;
            }
            self.settle(id);
            return closes;
        }
        let (fixed, segment) = message.need;
        let segments = (message.segments - message.next) as u64;
        let need = Need { message: id, fixed, segment, segments, most: message.most, behind: 0 };
        match peer.credit.next(&need) {
            Next::Send { place, segments, release } => {
                self.done.units += 1;
                self.done.unasked += u64::from(place.space <= crate::am::buffers::GUARANTEED);
                let head = message.unit(id, place, segments as usize, release);
                self.done.bytes += head.input;
                Request::Unit(head).encode(&mut peer.body);
                message.send(most - UNIT_HEAD, &mut peer.body);
                peer.full = true;
                peer.streaming = message.stream.is_some().then_some(id);
                self.settle(id);
                true
            }
            Next::Reserve(request) => {
                self.done.asked += 1;
                request.encode(&mut peer.body);
                peer.full = true;
                true
            }
            Next::Wait => false,
            Next::Never { least, largest, private } => {
                message.fail(too_small(target, least, largest, private));
                self.settle(id);
                self.fill_from(target, id, most)
            }
        }
    }

    /// Whether everything at `target` is done. At the end of an epoch (`ends`), and where buffers
    /// may be detached after it, the room there is given up first.
    pub fn idle(&mut self, target: Option<Rank>, ends: bool) -> Result<bool> {
        let concerns = |rank: &u32| target.is_none_or(|target| target.0 == *rank);
        let mut idle = true;
        for (_, peer) in self.peers.iter_mut().filter(|(rank, _)| concerns(rank)) {
            if peer.dormant {
                continue;
            }
            if peer.outstanding > 0 || peer.unsent > 0 || peer.full {
                idle = false;
                continue;
            }
            if ends && peer.exclusive {
                peer.exclusive = false;
                peer.credit.exclusive(false);
            } else if ends || self.interleave {
                peer.credit.surrender();
            }
            if !peer.credit.is_idle() {
                peer.work = true;
                idle = false;
            }
        }
        if !idle {
            return Ok(false);
        }
        let mut peers = self.peers.iter_mut().filter(|(rank, _)| concerns(rank));
        if let Some(error) = peers.find_map(|(_, peer)| peer.trouble.take()) {
            return Err(error);
        }
        if ends && self.peers.len() > IDLE_PEERS {
            self.peers.retain(|_, peer| {
                peer.unsent > 0 || peer.outstanding > 0 || peer.full || !peer.credit.is_idle()
            });
        }
        Ok(true)
    }

    /// The end of an epoch is not waited for any more.
    pub fn give_up(&mut self, target: Option<Rank>) {
        let concerns = |rank: Rank| target.is_none_or(|target| target == rank);
        let of = |(id, message): (&u64, &Message)| concerns(message.target).then_some(*id);
        let all: Vec<u64> = self.messages.iter().filter_map(of).collect();
        for id in all {
            let Some(message) = self.messages.get_mut(&id) else { continue };
            match message.waiting {
                Waiting::Nobody => self.cut_off(id),
                Waiting::Request { .. } if !message.done => {
                    let why = "the epoch was ended while it waited; flush before".to_owned();
                    message.fail(Error::Misuse { what: "an active message", why });
                    self.settle(id);
                }
                _ => {}
            }
        }
        for (rank, peer) in &mut self.peers {
            if concerns(Rank(*rank)) && (peer.unsent > 0 || peer.full || !peer.credit.is_idle()) {
                peer.dormant = true;
            }
        }
    }

    /// Peers, messages.
    pub fn held(&self) -> (u64, u64) {
        (self.peers.len() as u64, self.messages.len() as u64)
    }
}

/// Tells the target that nothing more comes of a message.
fn closing(id: u64, message: &Message) -> Unit<'static> {
    Unit {
        message: id,
        unit: message.units,
        handler: message.entry.index(),
        work: Work::Run,
        vector: false,
        concurrent: false,
        release: false,
        ends: true,
        place: Place { space: 0, position: 0, bytes: 0 },
        at: 0,
        span: 0,
        first: 0,
        segments: 0,
        input: 0,
        output: 0,
        described: 0,
        data: &[],
    }
}

/// The same error for one more message.
#[cold]
fn again(error: &Error) -> Error {
    match error {
        Error::RankDied { rank, cause, during } => {
            Error::RankDied { rank: *rank, cause: cause.clone(), during }
        }
        Error::Misuse { what, why } => Error::Misuse { what, why: why.clone() },
        other => Error::invalid("an active message", other.to_string()),
    }
}

#[cold]
fn too_small(target: Rank, least: u64, largest: u64, private: u64) -> Error {
    let why = format!(
        "one segment takes {least} bytes of staging at rank {target}, where the largest attached \
         buffer has {largest} and the system buffer {private}; attach a larger one there \
         (Window::attach_buffer), or make segments smaller"
    );
    Error::invalid("an active message", why)
}
