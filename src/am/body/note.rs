//! What a target tells an origin.

use super::{bad, flag, head, numbers, read_head, u32_at, u64_at};
use crate::am::pack::Form;
use crate::base::Result;

/// Bytes before the data of [`Note::Done`].
pub(crate) const DONE_HEAD: usize = 32;

const DONE: u8 = 1;
const GRANTED: u8 = 2;
const REFUSED: u8 = 3;

const PACKED: u8 = 1;
const LAST: u8 = 2;

/// Bytes of a space in [`Note::Granted`].
const SPACE: usize = 16;

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
pub(crate) struct Spaces<'a>(&'a [[u8; SPACE]]);

/// Appends a space to the bytes that [`Spaces::new`] takes.
pub(crate) fn put_space(out: &mut Vec<u8>, space: u32, bytes: u64) {
    out.extend_from_slice(&space.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&bytes.to_le_bytes());
}

impl<'a> Spaces<'a> {
    /// The spaces that [`put_space`] wrote.
    pub fn new(bytes: &'a [u8]) -> Result<Spaces<'a>> {
        let (spaces, rest) = bytes.as_chunks::<SPACE>();
        if !rest.is_empty() || spaces.iter().any(|space| space[4..8] != [0; 4]) {
            return Err(bad("spaces that are none"));
        }
        Ok(Spaces(spaces))
    }

    /// Numbers and sizes.
    pub fn iter(self) -> impl Iterator<Item = (u32, u64)> + 'a {
        self.0.iter().map(|space| (u32_at(space, 0), u64_at(space, 8)))
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
                out.extend_from_slice(spaces.0.as_flattened());
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

const _: () = assert!(DONE_HEAD == 8 + 3 * 8);
