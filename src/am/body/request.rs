//! What an origin asks of a target.

use super::{Place, bad, flag, head, numbers, pair, read_head, u32_at, u64_at};
use crate::am::buffers::GRAIN;
use crate::base::Result;

/// Bytes before a unit's data: the longest head of all.
pub(crate) const UNIT_HEAD: usize = 88;
/// Bytes before the data of [`Request::More`].
pub(crate) const MORE_HEAD: usize = 24;

const UNIT: u8 = 1;
const MORE: u8 = 2;
const RESERVE: u8 = 3;
const RELEASE: u8 = 4;
const WITHDRAW: u8 = 5;

const VECTOR: u8 = 1;
const CONCURRENT: u8 = 2;
const LAST_HERE: u8 = 4;
const ENDS: u8 = 8;

const ALL: u8 = 1;

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

const _: () = {
    assert!(UNIT_HEAD == 8 + 10 * 8);
    assert!(MORE_HEAD == 8 + 2 * 8);
    assert!(Work::Run as u8 == 0 && Work::Fetch as u8 == 1 && Work::Store as u8 == 2);
};
