//! A message at its origin, from the call that issues it until all its units are done.
//!
//! ```text
//!   segments   0 ............ next ............. segments
//!              in units sent    still to be sent
//!   flights    units of which the last note has not come: what of their result has come
//! ```
//! It refers to the caller's memory only as long as the caller lets it: a call that gives up takes
//! input and output away, and what has been begun is ended without them.

use super::describe::Described;
use super::landing::{Flight, Landing};
use super::memory::gather;
use crate::am::body::{Place, Unit, Work};
use crate::am::entry::Entry;
use crate::am::order::Mark;
use crate::am::plan::{Plan, Segments};
use crate::base::{Error, Rank};
use crate::layout::{Layout, Shape};
use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

/// Segments of the origin, owned.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub at: *mut u8,
    layout: Layout,
    count: usize,
    /// Bytes of a segment, as packed.
    bytes: usize,
}

impl Owned {
    fn of(at: *mut u8, segments: &Segments<'_>) -> Owned {
        let Shape { layout, count } = segments.shape;
        Owned { at, layout: layout.clone(), count, bytes: segments.bytes }
    }

    /// So many segments.
    pub fn all(&self, segments: usize) -> Shape<'_> {
        self.layout.times(self.count.saturating_mul(segments))
    }
}

/// Where the input comes from.
#[derive(Debug)]
pub(super) enum Input {
    /// The caller's memory.
    There(Owned),
    /// As packed; of all segments from this one on.
    Here { bytes: Vec<u8>, from: usize },
}

/// Who waits for a message.
#[derive(Debug)]
pub(super) enum Waiting {
    /// The call, which asks for it.
    Call,
    /// Nobody: it is completed with others.
    Nobody,
    /// A request; what it brought along, and whom to wake.
    Request { parcel: Box<dyn Any + Send + Sync>, waker: Option<Waker> },
    /// It was given up.
    Given,
}

/// A unit whose stream is being sent.
#[derive(Debug)]
pub(super) struct Stream {
    pub unit: u32,
    pub position: usize,
    pub total: usize,
    pub first: usize,
    /// What comes before the input.
    pub description: Vec<u8>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Message {
    pub target: Rank,
    pub mark: Mark,
    pub entry: Arc<Entry>,
    pub work: Work,
    pub concurrent: bool,
    pub described: Arc<Described>,
    /// Segments of the message, and how many of them are in units.
    pub segments: usize,
    pub next: usize,
    pub units: u32,
    /// Staging that a unit takes, and each of its segments.
    pub need: (u64, u64),
    /// Most staging of a unit.
    pub most: u64,
    pub stream: Option<Stream>,
    pub flights: Vec<Flight>,
    pub input: Input,
    pub landing: Option<Landing>,
    pub failure: Option<Error>,
    pub waiting: Waiting,
    /// Its first unit has been sent, its last has not.
    pub begun: bool,
    /// It is in the line of those to be sent.
    pub lined: bool,
    /// Nothing of it is outstanding.
    pub done: bool,
    /// Nobody will ask for its result, though what a request brought along is in use.
    pub forgotten: bool,
    /// Who waits may have the error; what was begun goes on without.
    pub over: bool,
    /// The ends of epochs do not wait for it any more.
    pub forsaken: bool,
    /// Another message ran between fetching and storing.
    pub stale: bool,
    /// Not one of its segments fits into any buffer of the target.
    pub too_large: bool,
    /// Bytes of input and output of a segment, as packed.
    pub each: (usize, usize),
}

/// What became of a message.
#[derive(Debug)]
pub(super) struct Outcome {
    pub failure: Option<Error>,
    /// What the request brought along.
    pub waiting: Waiting,
    pub stale: bool,
    pub too_large: bool,
    /// The message, if it is done: its handler is the program's, to be dropped without locks.
    pub _spent: Option<Message>,
}

// SAFETY: the addresses are those of the call that issues it, or of what it brought along; they
// are accessed with the client's lock held, by one thread at a time.
unsafe impl Send for Message {}

impl Message {
    /// A message that runs a handler.
    pub fn new(plan: &Plan<'_>, at: u64, described: Described, need: (u64, u64)) -> Message {
        let output = Owned::of(plan.output.at, &plan.output.segments);
        let span = plan.persistent.upper.abs_diff(plan.persistent.lower) as u64;
        Message {
            target: plan.target,
            mark: Mark { message: 0, handler: plan.handler.index(), at, span },
            entry: plan.handler.clone(),
            work: Work::Run,
            concurrent: plan.concurrent,
            described: Arc::new(described),
            segments: plan.segments,
            next: 0,
            units: 0,
            need,
            most: 0,
            stream: None,
            flights: Vec::new(),
            input: Input::There(Owned::of(plan.input.at, &plan.input.segments)),
            landing: Some(Landing { output, counts: plan.counts, scale: plan.scale }),
            failure: None,
            waiting: Waiting::Call,
            begun: false,
            lined: true,
            done: false,
            forgotten: false,
            over: false,
            forsaken: false,
            stale: false,
            too_large: false,
            each: (plan.input.segments.bytes, plan.output.segments.bytes),
        }
    }

    /// One that fetches the persistent range with its version, or stores changes of it, to or from
    /// `bytes`.
    pub fn of_range(run: &Message, work: Work, bytes: &mut [u8]) -> Message {
        let layout = Layout::of::<u8>();
        let whole = |count| Owned {
            at: bytes.as_ptr().cast_mut(),
            layout: layout.clone(),
            count,
            bytes: count,
        };
        let len = bytes.len();
        let (input, output) = if work == Work::Store { (len, 0) } else { (0, len) };
        Message {
            target: run.target,
            mark: run.mark,
            entry: run.entry.clone(),
            work,
            concurrent: run.concurrent,
            described: run.described.clone(),
            segments: 1,
            next: 0,
            units: 0,
            need: (len as u64, 0),
            most: len as u64,
            stream: None,
            flights: Vec::new(),
            input: Input::There(whole(input)),
            landing: Some(Landing { output: whole(output), counts: None, scale: 1 }),
            failure: None,
            waiting: Waiting::Call,
            begun: false,
            lined: true,
            done: false,
            forgotten: false,
            over: false,
            forsaken: false,
            stale: false,
            too_large: false,
            each: (input, output),
        }
    }

    /// Whether its output is variable.
    pub fn vector(&self) -> bool {
        self.work == Work::Run && self.entry.is_vector()
    }

    /// Bytes of input and of output of a segment, as packed.
    pub fn bytes_each(&self) -> (usize, usize) {
        self.each
    }

    /// Bytes of input that have not been read.
    pub fn unread(&self) -> usize {
        let sending = self.stream.as_ref().map_or(0, |stream| stream.total - stream.position);
        match self.input {
            Input::There(_) => sending + (self.segments - self.next).saturating_mul(self.each.0),
            Input::Here { .. } => 0,
        }
    }

    /// Reads all the input that has not been read: the caller's memory is not needed for it any
    /// more.
    pub fn read_input(&mut self) {
        let from = self.stream.as_ref().map_or(self.next, |stream| stream.first);
        let each = self.each.0;
        let mut bytes = Vec::with_capacity((self.segments - from).saturating_mul(each));
        if let Input::There(owned) = &self.input {
            let (position, len) = (from * each, (self.segments - from) * each);
            // SAFETY: the caller lends the memory still. Its bounds were looked at.
            let read =
                unsafe { gather(owned.at, owned.all(self.segments), position, len, &mut bytes) };
            debug_assert!(read.is_ok() && bytes.len() == len);
            self.input = Input::Here { bytes, from };
        }
    }

    /// The caller's memory goes: nothing more is begun, nothing more lands.
    pub fn end_loan(&mut self) {
        self.segments = self.next;
        self.read_input();
        self.landing = None;
    }

    /// Whether somebody waits for it: its caller, a request, or the end of an epoch.
    pub fn is_awaited(&self) -> bool {
        !self.done && !self.over && !matches!(self.waiting, Waiting::Given)
    }

    /// Who waited for it: it has no caller any more.
    pub fn leave(&mut self) -> Waiting {
        self.over = false;
        std::mem::replace(&mut self.waiting, Waiting::Given)
    }

    /// What became of it, for who waits.
    pub fn outcome(&mut self) -> Outcome {
        let (stale, too_large) = (self.stale, self.too_large);
        let (failure, waiting) = (self.failure.take(), self.leave());
        Outcome { failure, waiting, stale, too_large, _spent: None }
    }

    /// A unit was never sent; its place, if it was begun.
    pub fn unsent(&mut self, unit: u32) -> Option<Place> {
        let at = self.flights.iter().position(|flight| flight.unit == unit)?;
        self.stream.take_if(|stream| stream.unit == unit);
        // The first one would have told the target of the message.
        self.begun &= unit > 0;
        Some(self.flights.swap_remove(at).place)
    }

    /// It has failed: nothing more is begun.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.segments = self.next;
    }

    /// Nothing of what has been begun will come back.
    pub fn drop_all(&mut self) {
        (self.stream, self.begun) = (None, false);
        self.flights.clear();
        self.segments = self.next;
    }

    /// Whether it has sent all that it will.
    pub fn is_sent(&self) -> bool {
        self.next == self.segments && self.stream.is_none() && !self.begun
    }

    /// Whether nothing of it is outstanding.
    pub fn is_done(&self) -> bool {
        self.is_sent() && self.flights.is_empty()
    }

    /// The head of a unit of `segments` segments at `place`, and its stream.
    pub fn unit(&mut self, id: u64, place: Place, segments: usize, release: bool) -> Unit<'static> {
        let (first, number) = (self.next, self.units);
        self.next += segments;
        self.units += 1;
        let ends = self.next == self.segments;
        let mut description = Vec::new();
        if number == 0 && self.work == Work::Run {
            self.described.encode(&mut description);
        }
        self.begun = !ends;
        let run = self.work == Work::Run;
        let head = Unit {
            message: id,
            unit: number,
            handler: self.entry.index(),
            work: self.work,
            vector: self.vector(),
            concurrent: self.concurrent,
            release,
            ends,
            place,
            at: self.mark.at,
            span: self.mark.span,
            first: if run { first as u64 } else { 0 },
            segments: if run { segments as u32 } else { 0 },
            input: (segments * self.each.0) as u64,
            output: (segments * self.each.1) as u64,
            described: description.len() as u32,
            data: &[],
        };
        self.flights.push(Flight::new(number, place, first, segments));
        let total = description.len() + head.input as usize;
        self.stream = Some(Stream { unit: number, position: 0, total, first, description });
        head
    }

    /// Where its stream stands: the unit and the position.
    pub fn sending(&self) -> Option<(u32, u64)> {
        self.stream.as_ref().map(|stream| (stream.unit, stream.position as u64))
    }

    /// Appends the next bytes of the stream to `out`, at most `most` of them; ends it if that was
    /// all.
    pub fn send(&mut self, most: usize, out: &mut Vec<u8>) {
        let Some(stream) = &mut self.stream else { return };
        let len = (stream.total - stream.position).min(most);
        let lead = &stream.description[stream.position.min(stream.description.len())..];
        let lead = &lead[..lead.len().min(len)];
        out.extend_from_slice(lead);
        let rest = len - lead.len();
        if rest > 0 {
            let skipped = stream.position + lead.len() - stream.description.len();
            match &self.input {
                Input::There(owned) => {
                    let position = stream.first * owned.bytes + skipped;
                    // SAFETY: the caller lends the memory until all is read. Bounds were looked at.
                    let read =
                        unsafe { gather(owned.at, owned.all(self.next), position, rest, out) };
                    debug_assert!(read.is_ok());
                }
                Input::Here { bytes, from } => {
                    let position = (stream.first - from) * self.each.0 + skipped;
                    out.extend_from_slice(&bytes[position..position + rest]);
                }
            }
        }
        stream.position += len;
        if stream.position == stream.total {
            self.stream = None;
        }
    }
}
