//! A connected queue pair of software: states, patience, and what moves between posts, frames and
//! completions. It is fed with bytes and the time, and asked for bytes.

use super::completions::Completions;
use super::frame::{Frame, HEADER, Kind};
use super::receives::Receives;
use super::requester::Requester;
use super::responder::{Ends, Responder, Taken};
use super::{Shared, count};
use crate::base::{Error, Result};
use crate::net::provider::{
    Completion, Event, Opcode, PostError, RcOptions, Receive, Refused, State, Status, Time, Work,
};
use std::sync::Arc;
use std::time::Duration;

/// How often a peer that waits for a receive is told so.
pub const BUSY_EVERY: Duration = Duration::from_millis(5);

/// The queues of a queue pair.
pub struct Ports {
    pub shared: Arc<Shared>,
    pub sends: Arc<Completions>,
    pub receives: Arc<Receives>,
    pub completions: Arc<Completions>,
}

/// See the module.
pub struct Core {
    pub number: u32,
    pub state: State,
    ports: Ports,
    options: RcOptions,
    requester: Requester,
    responder: Responder,
    /// Bytes of a frame that has not come whole, or waits.
    requests: Vec<u8>,
    answers: Vec<u8>,
    /// A request waits for a receive.
    waits: bool,
    told: Time,
    /// When the peer last gave a sign, or had last nothing to answer.
    heard: Time,
    busy: Option<Time>,
    ping: Option<Time>,
    unsent_ping: bool,
    /// Why it failed while nothing was posted: the next post says so.
    cause: Status,
}

impl Core {
    pub fn new(number: u32, ports: Ports, options: RcOptions, sizes: [u32; 3]) -> Core {
        let [depth, pieces, inline] = sizes;
        Core {
            number,
            state: State::Init,
            ports,
            options,
            requester: Requester::new(number, depth, pieces, inline),
            responder: Responder::default(),
            requests: Vec::new(),
            answers: Vec::new(),
            waits: false,
            told: Time(0),
            heard: Time(0),
            busy: None,
            ping: None,
            unsent_ping: false,
            cause: Status::Flushed,
        }
    }

    fn ends(&self) -> Ends<'_> {
        Ends {
            shared: &self.ports.shared,
            receives: &self.ports.receives,
            completions: &self.ports.completions,
            number: self.number,
        }
    }

    /// `Init` to `Ready`.
    pub fn connect(&mut self, now: Time) -> Result<()> {
        if self.state != State::Init {
            return Err(Error::Misuse {
                what: "connecting a queue pair",
                why: format!("it is in {:?} and not in Init; reset it first", self.state),
            });
        }
        self.state = State::Ready;
        self.heard = now;
        if self.options.keepalive.is_some() {
            self.ask(now);
        }
        Ok(())
    }

    fn ask(&mut self, now: Time) {
        self.ping = Some(now);
        self.unsent_ping = true;
    }

    pub fn post(&mut self, works: &[Work<'_>], now: Time) -> Result<(), Refused> {
        for (posted, work) in works.iter().enumerate() {
            let idle = self.requester.is_idle();
            let result = match self.state {
                State::Ready => self.requester.post(work, &self.ports.sends),
                State::Error => {
                    let flushed = self.requester.flush(work, self.cause, &self.ports.sends);
                    if flushed.is_ok() {
                        self.cause = Status::Flushed;
                    }
                    flushed
                }
                State::Init | State::Reset => Err(PostError::NotReady),
            };
            result.map_err(|why| Refused { posted, why })?;
            if idle {
                self.heard = now;
            }
        }
        Ok(())
    }

    pub fn receive(&mut self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        if self.ports.receives.is_shared() {
            return Err(Refused { posted: 0, why: PostError::Unsupported });
        }
        self.ports.receives.post(receives, Some(&self.ports.completions))?;
        if self.state == State::Error {
            self.flush_receives();
        }
        Ok(())
    }

    fn flush_receives(&self) {
        for receive in self.ports.receives.drain() {
            let completion = Completion {
                id: receive.id,
                queue_pair: self.number,
                opcode: Opcode::Receive,
                status: Status::Flushed,
                ..Completion::NONE
            };
            self.ports.completions.push(completion, false);
        }
    }

    /// Appends requests to send until `out` has `limit` bytes or there are none.
    pub fn emit_requests(&mut self, out: &mut Vec<u8>, limit: usize) {
        if self.state != State::Ready {
            return;
        }
        if self.unsent_ping {
            self.unsent_ping = false;
            out.extend_from_slice(&Frame::new(Kind::Ping, 0).encode());
        }
        if let Err(cause) = self.requester.emit(&self.ports.shared.keys, out, limit) {
            self.fail(cause);
        }
    }

    /// Appends answers to send; those that say why this end failed in the error state too.
    pub fn emit_answers(&mut self, out: &mut Vec<u8>, limit: usize) {
        self.responder.emit(&self.ports.shared.keys, out, limit);
    }

    /// Whether a request waits for a receive: feed no more requests, but [`Core::retry`].
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Takes bytes of the peer's requests.
    pub fn feed_requests(&mut self, bytes: &[u8], now: Time) {
        let mut kept = std::mem::take(&mut self.requests);
        feed(&mut kept, bytes, |bytes| self.take_requests(bytes, now));
        keep(&mut self.requests, kept);
    }

    /// Tries again what waits for a receive.
    pub fn retry(&mut self, now: Time) {
        if self.waits {
            self.feed_requests(&[], now);
        }
    }

    fn take_requests(&mut self, bytes: &[u8], now: Time) -> usize {
        let mut used = 0;
        self.waits = false;
        while self.state == State::Ready || self.state == State::Init {
            let (frame, payload) = match split(&bytes[used..]) {
                Split::Frame(frame, payload) if frame.is_request() => (frame, payload),
                Split::Short => break,
                _ => {
                    self.nonsense();
                    break;
                }
            };
            let mut responder = std::mem::take(&mut self.responder);
            let taken = responder.take(&frame, payload, &self.ends());
            self.responder = responder;
            match taken {
                Taken::Done => used += HEADER + payload.len(),
                Taken::Wait => {
                    self.waits = true;
                    if now >= self.told.plus(BUSY_EVERY) || self.told == Time(0) {
                        self.told = now;
                        self.responder.say_busy();
                    }
                    break;
                }
                Taken::Refused => {
                    self.fail(Status::Flushed);
                    break;
                }
                Taken::Nonsense => {
                    self.nonsense();
                    break;
                }
            }
        }
        // Nothing more is taken from who is not believed, or has been refused.
        if self.state == State::Error { bytes.len() } else { used }
    }

    /// Takes bytes of answers to requests of this end.
    pub fn feed_answers(&mut self, bytes: &[u8], now: Time) {
        let mut kept = std::mem::take(&mut self.answers);
        feed(&mut kept, bytes, |bytes| self.take_answers(bytes, now));
        keep(&mut self.answers, kept);
    }

    fn take_answers(&mut self, bytes: &[u8], now: Time) -> usize {
        let mut used = 0;
        while self.state == State::Ready {
            let (frame, payload) = match split(&bytes[used..]) {
                Split::Frame(frame, payload) => (frame, payload),
                Split::Short => break,
                Split::Nonsense => {
                    self.nonsense();
                    break;
                }
            };
            used += HEADER + payload.len();
            self.heard = now;
            match frame.kind {
                Kind::Busy => {
                    self.busy.get_or_insert(now);
                }
                Kind::Pong => self.ping = None,
                _ => self.busy = None,
            }
            let keys = &self.ports.shared.keys;
            match self.requester.answer(&frame, payload, keys, &self.ports.sends) {
                Ok(Ok(())) => {}
                Ok(Err(cause)) => self.fail(cause),
                Err(_) => self.nonsense(),
            }
        }
        if self.state == State::Error { bytes.len() } else { used }
    }

    fn nonsense(&mut self) {
        count(&self.ports.shared.malformed);
        self.fail(Status::RetryExceeded);
    }

    /// The medium took bytes of this end: the peer lives, though it has not answered.
    pub fn moved(&mut self, now: Time) {
        self.heard = now;
    }

    /// When [`Core::tick`] is to be called; none if nothing can run out.
    pub fn deadline(&self) -> Option<Time> {
        if self.waits && self.state != State::Error {
            return Some(self.told.plus(BUSY_EVERY));
        }
        if self.state != State::Ready {
            return None;
        }
        let mut first = Time::NEVER;
        if !self.requester.is_idle() {
            first = self.heard.plus(self.options.patience);
        }
        if let Some(busy) = self.busy {
            first = first.min(busy.plus(self.options.receiver_patience));
        }
        match (self.ping, self.options.keepalive) {
            (Some(since), _) => first = first.min(since.plus(self.options.patience)),
            (None, Some(every)) => first = first.min(self.heard.plus(every)),
            (None, None) => {}
        }
        (first != Time::NEVER).then_some(first)
    }

    /// Looks at the time.
    pub fn tick(&mut self, now: Time) {
        self.retry(now);
        if self.state != State::Ready {
            return;
        }
        let over = |since: Time, patience| now >= since.plus(patience);
        if self.busy.is_some_and(|since| over(since, self.options.receiver_patience)) {
            self.fail(Status::ReceiverNotReady);
        } else if !self.requester.is_idle() && over(self.heard, self.options.patience)
            || self.ping.is_some_and(|since| over(since, self.options.patience))
        {
            self.fail(Status::RetryExceeded);
        } else if let (None, Some(every)) = (self.ping, self.options.keepalive)
            && over(self.heard, every)
        {
            self.ask(now);
        }
    }

    /// To `Error`: what was posted completes, the first operation with `cause`.
    pub fn fail(&mut self, cause: Status) {
        if self.state == State::Error {
            return;
        }
        self.state = State::Error;
        if self.requester.is_idle() {
            self.cause = cause;
        }
        self.requester.fail(cause, &self.ports.sends);
        let mut responder = std::mem::take(&mut self.responder);
        responder.fail(&self.ends());
        self.responder = responder;
        self.flush_receives();
        self.clear();
        self.ports.shared.events.push(Event::QueuePairFailed(self.number));
    }

    fn clear(&mut self) {
        self.requests = Vec::new();
        self.answers = Vec::new();
        (self.waits, self.unsent_ping) = (false, false);
        (self.busy, self.ping) = (None, None);
        self.told = Time(0);
    }

    /// To `Init`: everything is forgotten.
    pub fn reset(&mut self) {
        self.requester.forget(&self.ports.sends);
        self.responder.forget(&self.ports.completions);
        let own = self.ports.receives.drain().len();
        self.ports.completions.give_room(own as u32);
        self.clear();
        self.cause = Status::Flushed;
        self.ports.sends.forget(self.number);
        self.ports.completions.forget(self.number);
        self.state = State::Init;
    }
}

/// Gives `take` what was kept and `bytes`, in whole frames, and keeps what it does not use. Of `bytes`
/// only a frame that came in parts is copied.
fn feed(kept: &mut Vec<u8>, bytes: &[u8], mut take: impl FnMut(&[u8]) -> usize) {
    let mut rest = bytes;
    while !kept.is_empty() {
        let (more, later) = rest.split_at(missing(kept).min(rest.len()));
        kept.extend_from_slice(more);
        rest = later;
        if missing(kept) == 0 {
            let used = take(kept);
            kept.drain(..used);
            if used == 0 {
                break;
            }
        } else if rest.is_empty() {
            break;
        }
    }
    let used = if kept.is_empty() { take(rest) } else { 0 };
    kept.extend_from_slice(&rest[used..]);
}

/// Bytes that the first frame of `bytes` lacks, as far as they say.
fn missing(bytes: &[u8]) -> usize {
    match bytes.first_chunk::<HEADER>() {
        None => HEADER - bytes.len(),
        // What is no header is complete: whoever takes it finds that out.
        Some(header) => Frame::decode(header)
            .map_or(0, |frame| (HEADER + frame.length as usize).saturating_sub(bytes.len())),
    }
}

/// Keeps what is left; an empty one gives its memory back if it was large.
fn keep(place: &mut Vec<u8>, kept: Vec<u8>) {
    if !kept.is_empty() || kept.capacity() <= 4096 {
        *place = kept;
    }
}

enum Split<'a> {
    Frame(Frame, &'a [u8]),
    Short,
    Nonsense,
}

fn split(bytes: &[u8]) -> Split<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Split::Short };
    match Frame::decode(header) {
        None => Split::Nonsense,
        Some(frame) => match rest.get(..frame.length as usize) {
            Some(payload) => Split::Frame(frame, payload),
            None => Split::Short,
        },
    }
}
