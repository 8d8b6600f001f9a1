//! The body of an operation message: one unit of an operation, complete in itself.
//!
//! ```text
//!  0 version u8 | action u8 | op u8 | kind u8 | form u8 | 0 x 3
//!  8 element u32 | length of the shape u32
//! 16 at u64                      bytes from the part's beginning, or an address
//! 24 bytes u32 | 0 u32           of this unit, at the target
//! 32 shape                       by form, see below
//!    data                        put, accumulates: the elements; compare-and-swap: expected, new
//!
//! form 0  contiguous             no shape: the bytes at `at`
//! form 1  layout                 count u64 | position u64 | layout (see `layout::wire`)
//!                                the bytes from packed position `position` on of `count` copies
//! form 2  pieces                 (offset to the end of the one before, signed | length) ...
//! ```
//! All numbers are little-endian; those of pieces are LEB128, signed ones zigzag first. A layout
//! that takes little room travels with every unit of its operation; of a larger one each unit
//! brings only the pieces that it touches, so no shape is too large to send.
//!
//! Whoever reads one trusts nothing in it.

use crate::base::{Error, Result};
use crate::layout::{Kind, Op};
use crate::rma::ops::transfer::Action;

/// Bytes before the shape.
pub(super) const HEADER: usize = 32;
const VERSION: u8 = 1;

const _: () = assert!(HEADER == 4 + 4 + 4 + 4 + 8 + 4 + 4);

/// How the bytes of a unit lie at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// One after the other.
    Contiguous,
    /// As copies of a layout, from a packed position on.
    Layout { count: u64, position: u64, wire: &'a [u8] },
    /// In these pieces.
    Pieces(&'a [u8]),
}

/// One unit of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit<'a> {
    pub action: Action,
    /// Of accumulates and compare-and-swap.
    pub kind: Option<Kind>,
    /// Bytes of an element, for errors.
    pub element: u32,
    pub at: u64,
    /// Bytes at the target.
    pub bytes: u32,
    pub form: Form<'a>,
    pub data: &'a [u8],
}

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "a one-sided operation in a packet", why: why.into() }
}

/// What of a unit does not depend on its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub action: Action,
    pub kind: Option<Kind>,
    pub element: u32,
    pub at: u64,
}

impl Head {
    /// Begins a unit in `out`, which is emptied. Shape and data are to follow, then
    /// [`Head::finish`].
    pub fn begin(&self, out: &mut Vec<u8>, form: u8) {
        let (action, op) = match self.action {
            Action::Put => (0, Op::Replace),
            Action::Get => (1, Op::NoOp),
            Action::Accumulate(op) => (2, op),
            Action::GetAccumulate(op) => (3, op),
            Action::CompareSwap => (4, Op::Replace),
        };
        let kind = self.kind.map_or(0, |kind| kind as u8);
        let mut head = [0; HEADER];
        head[..5].copy_from_slice(&[VERSION, action, op as u8, kind, form]);
        head[8..12].copy_from_slice(&self.element.to_le_bytes());
        head[16..24].copy_from_slice(&self.at.to_le_bytes());
        out.clear();
        out.extend_from_slice(&head);
    }

    /// Fills in the length of the shape, which has been appended to `out`, and the bytes.
    pub fn finish(out: &mut [u8], shape: usize, bytes: usize) {
        out[12..16].copy_from_slice(&(shape as u32).to_le_bytes());
        out[24..28].copy_from_slice(&(bytes as u32).to_le_bytes());
    }
}

/// Appends a number in LEB128.
fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number in LEB128 and steps over it.
fn read_number(from: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = from.split_first() else {
            return Err(bad("a number ends early"));
        };
        *from = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            break;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(bad("a number is too long"))
}

/// Most bytes that [`PieceWriter::push`] appends.
pub(super) const PIECE_ROOM: usize = 20;

/// Writes pieces.
#[derive(Debug, Default)]
pub(super) struct PieceWriter {
    end: i64,
}

impl PieceWriter {
    /// Appends a piece.
    pub fn push(&mut self, out: &mut Vec<u8>, offset: i64, len: usize) {
        let step = offset.wrapping_sub(self.end);
        number(out, ((step << 1) ^ (step >> 63)) as u64);
        number(out, len as u64);
        self.end = offset.wrapping_add(len as i64);
    }
}

/// Reads pieces: offsets in bytes from `at`, and lengths.
#[derive(Clone, Debug)]
pub(super) struct PieceReader<'a> {
    rest: &'a [u8],
    end: i64,
}

impl<'a> PieceReader<'a> {
    pub fn new(pieces: &'a [u8]) -> PieceReader<'a> {
        PieceReader { rest: pieces, end: 0 }
    }

    fn read(&mut self) -> Result<(i64, usize)> {
        let step = read_number(&mut self.rest)?;
        let step = (step >> 1) as i64 ^ -((step & 1) as i64);
        let len = read_number(&mut self.rest)?;
        let offset = self.end.checked_add(step);
        let end = offset.and_then(|offset| offset.checked_add(i64::try_from(len).ok()?));
        match (offset, end) {
            (Some(offset), Some(end)) => {
                self.end = end;
                Ok((offset, len as usize))
            }
            _ => Err(bad("a piece lies beyond all memory")),
        }
    }
}

impl Iterator for PieceReader<'_> {
    type Item = Result<(i64, usize)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
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

impl<'a> Unit<'a> {
    /// Reads a unit.
    ///
    /// # Errors
    /// [`Error::Incompatible`] for anything but what [`Head`] and the writers above produce, as
    /// far as it can be told without the layout and the memory.
    pub fn decode(body: &'a [u8]) -> Result<Unit<'a>> {
        if body.len() < HEADER {
            return Err(bad(format!("{} bytes are no unit", body.len())));
        }
        let (head, rest) = body.split_at(HEADER);
        if head[0] != VERSION || head[5..8] != [0; 3] || head[28..32] != [0; 4] {
            return Err(bad(format!("version {}, or a field is set that must be 0", head[0])));
        }
        let op = Op::from_raw(head[2])?;
        let action = match head[1] {
            0 => Action::Put,
            1 => Action::Get,
            2 => Action::Accumulate(op),
            3 => Action::GetAccumulate(op),
            4 => Action::CompareSwap,
            other => return Err(bad(format!("there is no action {other}"))),
        };
        let kind = match head[3] {
            0 => None,
            raw => Some(Kind::from_raw(raw)?),
        };
        let (element, shape) = (u32_at(head, 8), u32_at(head, 12) as usize);
        let (at, bytes) = (u64_at(head, 16), u32_at(head, 24));
        if shape > rest.len() || element == 0 || bytes as usize > super::MOST_UNIT {
            return Err(bad(format!("shape {shape}, element {element}, bytes {bytes}")));
        }
        let (shape, data) = rest.split_at(shape);
        let form = match head[4] {
            0 if shape.is_empty() => Form::Contiguous,
            1 if shape.len() > 16 => Form::Layout {
                count: u64_at(shape, 0),
                position: u64_at(shape, 8),
                wire: &shape[16..],
            },
            2 => Form::Pieces(shape),
            form => return Err(bad(format!("form {form} with a shape of {}", shape.len()))),
        };
        let unit = Unit { action, kind, element, at, bytes, form, data };
        unit.check(op)?;
        Ok(unit)
    }

    fn check(&self, op: Op) -> Result<()> {
        let bytes = self.bytes as usize;
        let size = self.kind.map(Kind::size);
        let whole = size.is_some_and(|size| bytes.is_multiple_of(size));
        let allowed = self.kind.is_some_and(|kind| kind.allows(op));
        let fits = match self.action {
            Action::Put => self.data.len() == bytes,
            Action::Get => self.data.is_empty(),
            Action::Accumulate(_) => whole && allowed && self.data.len() == bytes,
            // Without operands where nothing is updated.
            Action::GetAccumulate(Op::NoOp) => {
                whole && allowed && (self.data.is_empty() || self.data.len() == bytes)
            }
            Action::GetAccumulate(_) => whole && allowed && self.data.len() == bytes,
            Action::CompareSwap => {
                size == Some(bytes) && self.data.len() == 2 * bytes && self.form == Form::Contiguous
            }
        };
        if fits {
            return Ok(());
        }
        Err(bad(format!(
            "{:?} of {bytes} bytes of {:?} with {} bytes of data",
            self.action,
            self.kind,
            self.data.len()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::packet::dice::Dice;

    fn build(head: Head, form: Form<'_>, bytes: usize, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (number, shape): (u8, Vec<u8>) = match form {
            Form::Contiguous => (0, Vec::new()),
            Form::Layout { count, position, wire } => {
                (1, [&count.to_le_bytes()[..], &position.to_le_bytes(), wire].concat())
            }
            Form::Pieces(pieces) => (2, pieces.to_vec()),
        };
        head.begin(&mut out, number);
        out.extend_from_slice(&shape);
        out.extend_from_slice(data);
        Head::finish(&mut out, shape.len(), bytes);
        out
    }

    fn samples() -> Vec<Vec<u8>> {
        let head = |action, kind| Head { action, kind, element: 8, at: 4096 };
        let mut pieces = Vec::new();
        let mut writer = PieceWriter::default();
        for (offset, len) in [(0, 8), (64, 16), (-32, 8)] {
            writer.push(&mut pieces, offset, len);
        }
        let wire = [1, 2, 3];
        let layout = Form::Layout { count: 7, position: 24, wire: &wire };
        let u64s = Some(Kind::U64);
        vec![
            build(head(Action::Put, None), Form::Contiguous, 5, b"hello"),
            build(head(Action::Get, None), Form::Pieces(&pieces), 32, &[]),
            build(head(Action::Accumulate(Op::Sum), u64s), layout, 16, &[7; 16]),
            build(head(Action::GetAccumulate(Op::NoOp), u64s), Form::Contiguous, 64, &[]),
            build(head(Action::CompareSwap, u64s), Form::Contiguous, 8, &[9; 16]),
        ]
    }

    #[test]
    fn units_survive_the_wire() {
        for body in samples() {
            let unit = Unit::decode(&body).unwrap();
            let head =
                Head { action: unit.action, kind: unit.kind, element: unit.element, at: unit.at };
            assert_eq!(build(head, unit.form, unit.bytes as usize, unit.data), body);
        }
    }

    #[test]
    fn pieces_survive_the_wire() {
        let all = [(0, 8), (i64::MAX / 4, 3), (-1 << 61, 1 << 20), (5, 1), (6, 0)];
        let (mut out, mut writer) = (Vec::new(), PieceWriter::default());
        for (offset, len) in all {
            let before = out.len();
            writer.push(&mut out, offset, len);
            assert!(out.len() - before <= PIECE_ROOM);
        }
        let read: Vec<_> = PieceReader::new(&out).map(Result::unwrap).collect();
        assert_eq!(read, all);
    }

    #[test]
    fn whatever_arrives_is_refused_or_harmless() {
        let mut dice = Dice::new(7);
        let samples = samples();
        let (mut good, mut refused) = (0, 0);
        for round in 0..200_000 {
            let mut body = samples[round % samples.len()].clone();
            if round % 5 == 0 {
                let length = dice.below(80) as usize;
                body = (0..length).map(|_| dice.below(256) as u8).collect();
            } else {
                for _ in 0..1 + dice.below(3) {
                    let at = dice.below(body.len() as u64) as usize;
                    body[at] = dice.below(256) as u8;
                }
                body.truncate(body.len() - dice.below(2) as usize * dice.below(9) as usize);
            }
            match Unit::decode(&body) {
                Ok(unit) => {
                    good += 1;
                    if let Form::Pieces(pieces) = unit.form {
                        assert!(PieceReader::new(pieces).count() <= pieces.len());
                    }
                }
                Err(_) => refused += 1,
            }
        }
        assert!(good > 1000 && refused > 1000, "{good} {refused}");
    }
}
