//! What the two ends of a message say to each other, as bytes.
//!
//! ```text
//!  origin                                                    target
//!   Unit  ---- operation ---->  More ---->  More ---->       staged at its place, then run
//!          <---- note ----  Done  <---- Done (last)          what came of it, in pieces
//!   Reserve ---------------->                                when there is room:
//!          <---- Granted, or Refused if there never will be
//!   Withdraw --------------->                                it goes without
//!   Release ---------------->                                the space is given up
//!
//!  request  0 version u8 | what u8 | flags u8 | work u8 | handler, unit or space u32
//!   unit    8 message u64 | 16 unit u32 | segments u32 | 24 first segment u64
//!          32 space u32 | described u32 | 40 position u64 | 48 bytes of the place u64
//!          56 at u64 | 64 span u64 | 72 input u64 | 80 output u64 | 88 data
//!   more    8 message u64 | 16 position u64 | 24 data
//!   reserve 8 ticket u64 | 16 least u64 | 24 most u64        withdraw 8 ticket u64
//!  note     0 version u8 | what u8 | flags u8 | status u8 | unit, rank or reason u32 | 8 message or ticket u64
//!   done   16 position u64 | 24 reason u32 | 0 u32 | 32 data
//!   granted (space u32 | 0 u32 | bytes u64) ...
//!   refused 16 largest u64 | 24 attached u64
//! ```
//! A unit is some consecutive segments of a message, complete in itself: it can be run when all of
//! it has come. Its content is a stream, a description of the message (layouts) and then the
//! input as packed; its result is one too, counts and then the output ([`super::pack`]). What does
//! not fit into the first packet follows in further ones.
//!
//! Requests travel as bodies of the one-sided engine's operations, where the first byte tells them
//! from units of one-sided operations; notes travel back in messages that are always absorbed.
//! Numbers are little-endian; what is well-formed has exactly one form. Whoever reads one trusts
//! nothing in it.

use super::buffers::GRAIN;
use super::pack::Form;
use crate::base::{Error, Result};
use crate::rma::foreign::FIRST as VERSION;

/// Bytes before a unit's data: the longest head of all.
pub(crate) const UNIT_HEAD: usize = 88;
/// Bytes before the data of [`Request::More`].
pub(crate) const MORE_HEAD: usize = 24;
/// Bytes before the data of [`Note::Done`].
pub(crate) const DONE_HEAD: usize = 32;

const UNIT: u8 = 1;
const MORE: u8 = 2;
const RESERVE: u8 = 3;
const RELEASE: u8 = 4;
const WITHDRAW: u8 = 5;

const DONE: u8 = 1;
const GRANTED: u8 = 2;
const REFUSED: u8 = 3;

const VECTOR: u8 = 1;
const CONCURRENT: u8 = 2;
const LAST_HERE: u8 = 4;
const ENDS: u8 = 8;

const PACKED: u8 = 1;
const LAST: u8 = 2;

const ALL: u8 = 1;

/// Bytes of a space in [`Note::Granted`].
const SPACE: usize = 16;

/// Where at its target a unit is staged, input and output. The origin chooses it, from what it
/// knows to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Which space, see [`super::buffers`].
    pub space: u32,
    /// Where in it.
    pub position: u64,
    /// How much of it. Both are multiples of [`GRAIN`].
    pub bytes: u64,
}

/// What is done with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Its handler is run.
    Run,
    /// The part's version and the persistent range are sent to the origin, which will run the
    /// handler itself on the copy.
    Fetch,
    /// The input is the version that the copy had and the persistent range as the handler left it;
    /// stored if the part has the same version still.
    Store,
}

/// One unit of a message, or the first of the packets that bring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit<'a> {
    /// The origin's number of the message.
    pub message: u64,
    /// Counts the units of the message.
    pub unit: u32,
    /// Index of the handler.
    pub handler: u32,
    /// What is done with it.
    pub work: Work,
    /// The handler says how much output each segment has.
    pub vector: bool,
    /// It may run at the same time as others.
    pub concurrent: bool,
    /// Nothing more will be sent into this space.
    pub release: bool,
    /// No unit of this message follows.
    pub ends: bool,
    /// Where it is staged.
    pub place: Place,
    /// Persistent range: displacement in the part, or an address in a dynamic window.
    pub at: u64,
    /// Bytes from the first to the last of that range.
    pub span: u64,
    /// First segment.
    pub first: u64,
    /// Number of segments. 0 unless it is run; also 0, with no place and nothing in it, where the
    /// origin gives up a message half-way and only tells that it ends.
    pub segments: u32,
    /// Bytes of input, as packed.
    pub input: u64,
    /// Bytes of output if all segments are full, as packed.
    pub output: u64,
    /// Bytes of description at the beginning of the stream; 0 if it is the one that an earlier unit
    /// of the message brought.
    pub described: u32,
    /// The stream's first bytes.
    pub data: &'a [u8],
}

/// What an origin asks of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// A unit.
    Unit(Unit<'a>),
    /// More of a unit's stream.
    More {
        /// As in the unit.
        message: u64,
        /// As in the unit.
        unit: u32,
        /// Where in the stream.
        position: u64,
        /// The bytes from there on; not none.
        data: &'a [u8],
    },
    /// Room in the attached buffers.
    Reserve {
        /// Comes back with the answer.
        ticket: u64,
        /// At least so many bytes, in one piece; not 0.
        least: u64,
        /// No more than so many.
        most: u64,
        /// All that is free now, without waiting, in as many pieces as it is.
        all: bool,
    },
    /// A reservation is not needed, whether it has been met or not.
    Withdraw {
        /// As in the reservation.
        ticket: u64,
    },
    /// A space is not needed any more.
    Release {
        /// Which.
        space: u32,
    },
}

/// What became of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It was done; the data is its result.
    Done,
    /// The handler panicked; the data is the text.
    Panicked,
    /// A rank died in a message on this part.
    Poisoned {
        /// Which one.
        culprit: u32,
    },
    /// The target has no such handler.
    Unknown,
    /// Another message ran on the part since the copy was fetched: nothing was stored.
    Stale,
    /// The target could not do it.
    Failed {
        /// Why, in the target's numbers.
        why: u32,
    },
}

/// What a target tells an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note<'a> {
    /// About a unit.
    Done {
        /// As in the unit.
        message: u64,
        /// As in the unit.
        unit: u32,
        /// Whether it was done.
        status: Status,
        /// In which form the output is.
        form: Form,
        /// Where in the result's stream the data belongs.
        position: u64,
        /// Nothing more comes about this unit, its place is free. Of a unit that was not done
        /// this is all there is.
        last: bool,
        /// Bytes of the stream.
        data: &'a [u8],
    },
    /// A reservation was met.
    Granted {
        /// As in the reservation.
        ticket: u64,
        /// What the origin has now: one space; any number if it asked for all.
        spaces: Spaces<'a>,
    },
    /// A reservation cannot be met, now or later.
    Refused {
        /// As in the reservation.
        ticket: u64,
        /// Most bytes that can be had in one piece.
        largest: u64,
        /// Bytes attached altogether.
        attached: u64,
    },
}

/// Spaces in a [`Note::Granted`]: their numbers and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spaces<'a>(&'a [u8]);

/// Appends a space to the bytes that [`Spaces::new`] takes.
pub(crate) fn put_space(out: &mut Vec<u8>, space: u32, bytes: u64) {
    out.extend_from_slice(&space.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&bytes.to_le_bytes());
}

impl<'a> Spaces<'a> {
    /// The spaces that [`put_space`] wrote.
    pub fn new(bytes: &'a [u8]) -> Result<Spaces<'a>> {
        let whole = bytes.len().is_multiple_of(SPACE);
        if !whole || bytes.chunks_exact(SPACE).any(|space| space[4..8] != [0; 4]) {
            return Err(bad("spaces that are none"));
        }
        Ok(Spaces(bytes))
    }

    /// Numbers and sizes.
    pub fn iter(self) -> impl Iterator<Item = (u32, u64)> + 'a {
        self.0.chunks_exact(SPACE).map(|space| (u32_at(space, 0), u64_at(space, 8)))
    }
}

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "an active message in a packet", why: why.into() }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// Begins `out`, which is emptied.
fn head(out: &mut Vec<u8>, what: u8, flags: u8, byte: u8, word: u32) {
    out.clear();
    out.extend_from_slice(&[VERSION, what, flags, byte]);
    out.extend_from_slice(&word.to_le_bytes());
}

fn numbers(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Two words in the place of one number.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl<'a> Request<'a> {
    /// Writes the request to `out`, which is emptied.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Request::Unit(unit) => {
                let flags = flag(unit.vector, VECTOR)
                    | flag(unit.concurrent, CONCURRENT)
                    | flag(unit.release, LAST_HERE)
                    | flag(unit.ends, ENDS);
                let place = unit.place;
                head(out, UNIT, flags, unit.work as u8, unit.handler);
                let sizes = [unit.at, unit.span, unit.input, unit.output];
                numbers(out, &[unit.message, pair(unit.unit, unit.segments), unit.first]);
                numbers(out, &[pair(place.space, unit.described), place.position, place.bytes]);
                numbers(out, &sizes);
                out.extend_from_slice(unit.data);
            }
            Request::More { message, unit, position, data } => {
                head(out, MORE, 0, 0, unit);
                numbers(out, &[message, position]);
                out.extend_from_slice(data);
            }
            Request::Reserve { ticket, least, most, all } => {
                head(out, RESERVE, flag(all, ALL), 0, 0);
                numbers(out, &[ticket, least, most]);
            }
            Request::Withdraw { ticket } => {
                head(out, WITHDRAW, 0, 0, 0);
                numbers(out, &[ticket]);
            }
            Request::Release { space } => head(out, RELEASE, 0, 0, space),
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`Error::Incompatible`] for anything that [`Request::encode`] does not make of a request
    /// that makes sense, as far as that shows without knowing handler and window.
    pub fn decode(body: &'a [u8]) -> Result<Request<'a>> {
        let (what, flags, byte, word) = read_head(body)?;
        let refuse = || bad(format!("request {what}, flags {flags:#x}, {} bytes", body.len()));
        let plain = byte == 0 && (flags == 0 || what == RESERVE && flags == ALL);
        match what {
            UNIT if body.len() >= UNIT_HEAD => {
                let unit = read_unit(body, flags, byte, word).ok_or_else(refuse)?;
                if unit.sound() { Ok(Request::Unit(unit)) } else { Err(refuse()) }
            }
            MORE if plain && body.len() > MORE_HEAD => {
                let (message, position) = (u64_at(body, 8), u64_at(body, 16));
                Ok(Request::More { message, unit: word, position, data: &body[MORE_HEAD..] })
            }
            RESERVE if plain && word == 0 && body.len() == 32 => {
                let (ticket, least, most) = (u64_at(body, 8), u64_at(body, 16), u64_at(body, 24));
                if least == 0 || least > most {
                    return Err(bad(format!("a reservation of {least} to {most} bytes")));
                }
                Ok(Request::Reserve { ticket, least, most, all: flags == ALL })
            }
            WITHDRAW if plain && word == 0 && body.len() == 16 => {
                Ok(Request::Withdraw { ticket: u64_at(body, 8) })
            }
            RELEASE if plain && body.len() == 8 => Ok(Request::Release { space: word }),
            _ => Err(refuse()),
        }
    }
}

fn read_head(body: &[u8]) -> Result<(u8, u8, u8, u32)> {
    match *body {
        [VERSION, what, flags, byte, ..] if body.len() >= 8 => {
            Ok((what, flags, byte, u32_at(body, 4)))
        }
        _ => Err(bad(format!("{} bytes that begin with {:?}", body.len(), body.first()))),
    }
}

/// `body` has room for the head.
fn read_unit(body: &[u8], flags: u8, work: u8, handler: u32) -> Option<Unit<'_>> {
    let work = match work {
        0 => Work::Run,
        1 => Work::Fetch,
        2 => Work::Store,
        _ => return None,
    };
    if flags & !(VECTOR | CONCURRENT | LAST_HERE | ENDS) != 0 {
        return None;
    }
    Some(Unit {
        message: u64_at(body, 8),
        unit: u32_at(body, 16),
        handler,
        work,
        vector: flags & VECTOR != 0,
        concurrent: flags & CONCURRENT != 0,
        release: flags & LAST_HERE != 0,
        ends: flags & ENDS != 0,
        place: Place {
            space: u32_at(body, 32),
            position: u64_at(body, 40),
            bytes: u64_at(body, 48),
        },
        at: u64_at(body, 56),
        span: u64_at(body, 64),
        first: u64_at(body, 24),
        segments: u32_at(body, 20),
        input: u64_at(body, 72),
        output: u64_at(body, 80),
        described: u32_at(body, 36),
        data: &body[UNIT_HEAD..],
    })
}

impl Unit<'_> {
    /// Bytes of the stream; nothing if there cannot be so many.
    pub fn stream(&self) -> Option<u64> {
        self.input.checked_add(u64::from(self.described))
    }

    fn sound(&self) -> bool {
        let place = self.place;
        let grains = place.position.is_multiple_of(GRAIN) && place.bytes.is_multiple_of(GRAIN);
        let placed = grains && place.position.checked_add(place.bytes).is_some();
        let closes = self.segments == 0 && self.work == Work::Run;
        let empty = place.bytes == 0 && self.stream() == Some(0) && self.output == 0;
        let persistent = self.at.checked_add(self.span).is_some();
        let segments = self.first.checked_add(u64::from(self.segments)).is_some();
        let fits = self.stream().is_some_and(|bytes| self.data.len() as u64 <= bytes);
        let work = match self.work {
            Work::Run => !closes || empty && self.ends && !self.vector,
            Work::Fetch => self.segments == 0 && !self.vector && self.input == 0,
            Work::Store => self.segments == 0 && !self.vector && self.output == 0,
        };
        placed && persistent && segments && fits && work && (place.bytes > 0) != closes
    }
}

impl<'a> Note<'a> {
    /// Writes the note to `out`, which is emptied.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Note::Done { message, unit, status, form, position, last, data } => {
                let flags = flag(form == Form::Packed, PACKED) | flag(last, LAST);
                let (status, detail) = match status {
                    Status::Done => (0, 0),
                    Status::Panicked => (1, 0),
                    Status::Poisoned { culprit } => (2, culprit),
                    Status::Unknown => (3, 0),
                    Status::Stale => (4, 0),
                    Status::Failed { why } => (5, why),
                };
                head(out, DONE, flags, status, unit);
                numbers(out, &[message, position, u64::from(detail)]);
                out.extend_from_slice(data);
            }
            Note::Granted { ticket, spaces } => {
                head(out, GRANTED, 0, 0, 0);
                numbers(out, &[ticket]);
                out.extend_from_slice(spaces.0);
            }
            Note::Refused { ticket, largest, attached } => {
                head(out, REFUSED, 0, 0, 0);
                numbers(out, &[ticket, largest, attached]);
            }
        }
    }

    /// Reads a note.
    ///
    /// # Errors
    /// [`Error::Incompatible`] for anything that [`Note::encode`] does not make of a note that
    /// makes sense.
    pub fn decode(body: &'a [u8]) -> Result<Note<'a>> {
        let (what, flags, byte, word) = read_head(body)?;
        let plain = flags == 0 && byte == 0 && word == 0;
        match what {
            DONE if body.len() >= DONE_HEAD && flags & !(PACKED | LAST) == 0 => {
                let (message, position) = (u64_at(body, 8), u64_at(body, 16));
                let (detail, last, data) =
                    (u32_at(body, 24), flags & LAST != 0, &body[DONE_HEAD..]);
                let status = match byte {
                    0 => Status::Done,
                    1 => Status::Panicked,
                    2 => Status::Poisoned { culprit: detail },
                    3 => Status::Unknown,
                    4 => Status::Stale,
                    5 => Status::Failed { why: detail },
                    other => return Err(bad(format!("a unit has the status {other}"))),
                };
                let detailed = matches!(status, Status::Poisoned { .. } | Status::Failed { .. });
                let result = status == Status::Done;
                let text = result || matches!(status, Status::Panicked | Status::Failed { .. });
                if u32_at(body, 28) != 0
                    || detail != 0 && !detailed
                    || !result && (!last || flags & PACKED != 0 || position != 0)
                    || !text && !data.is_empty()
                    || position.checked_add(data.len() as u64).is_none()
                {
                    return Err(bad(format!(
                        "{} bytes about a unit that is {status:?}",
                        body.len()
                    )));
                }
                let form = if flags & PACKED != 0 { Form::Packed } else { Form::Whole };
                Ok(Note::Done { message, unit: word, status, form, position, last, data })
            }
            GRANTED if plain && body.len() >= 16 => {
                Ok(Note::Granted { ticket: u64_at(body, 8), spaces: Spaces::new(&body[16..])? })
            }
            REFUSED if plain && body.len() == 32 => Ok(Note::Refused {
                ticket: u64_at(body, 8),
                largest: u64_at(body, 16),
                attached: u64_at(body, 24),
            }),
            _ => Err(bad(format!("note {what}, flags {flags:#x}, {} bytes", body.len()))),
        }
    }
}

const _: () = {
    assert!(UNIT_HEAD == 8 + 10 * 8);
    assert!(MORE_HEAD == 8 + 2 * 8);
    assert!(DONE_HEAD == 8 + 3 * 8);
    assert!(Work::Run as u8 == 0 && Work::Fetch as u8 == 1 && Work::Store as u8 == 2);
};

#[cfg(test)]
mod tests;
