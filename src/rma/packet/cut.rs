//! Cutting an operation into units: the origin's side of [`body`](super::body).
//!
//! Each unit fits a packet, holds whole elements, and is packed straight from the origin's memory,
//! so an operation of any size and shape takes one packet's worth of room at the origin and at
//! the target (paper 001 §3.4.3: streaming in units of fixed size).

use super::body::{HEADER, Head, PIECE_ROOM, PieceWriter};
use super::{MOST_BODY, MOST_UNIT};
use crate::base::{Error, Result};
use crate::layout::{Cursor, Op};
use crate::rma::ops::transfer::Action;
use crate::rma::remote::{Memory, Operation};

/// Largest wire form of a layout that travels with every unit.
const MOST_WIRE: usize = 512;

/// How the target's bytes are named.
enum Naming<'o> {
    Contiguous,
    /// Number of copies and wire form, with room for the position after the number.
    Layout(Vec<u8>),
    Pieces(Box<Cursor<'o>>),
}

/// An operation that is being cut.
pub(super) struct Cutter<'o> {
    operation: &'o Operation<'o>,
    naming: Naming<'o>,
    origin: Option<Cursor<'o>>,
    /// Whether the origin's elements travel.
    sends: bool,
    position: usize,
}

/// A part of an operation: which of its packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub position: usize,
    pub bytes: usize,
}

impl<'o> Cutter<'o> {
    /// Begins. Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the sides do not fit each other.
    pub fn new(operation: &'o Operation<'o>) -> Result<Cutter<'o>> {
        let bytes = operation.bytes;
        let swap = operation.action == Action::CompareSwap;
        let sends = match operation.action {
            Action::Get => false,
            Action::GetAccumulate(Op::NoOp) => operation.origin.bytes > 0,
            Action::Put | Action::Accumulate(_) | Action::GetAccumulate(_) => true,
            Action::CompareSwap => true,
        };
        let shape = operation.shape.filter(|shape| shape.layout.size() > 0);
        let single = shape.and_then(|shape| shape.single());
        let fits = (!sends || operation.origin.bytes == bytes)
            && shape.map_or(Ok(bytes), |shape| shape.size())? == bytes
            && (!swap || operation.compare.bytes == bytes && shape.is_none())
            && operation.element > 0;
        if !fits {
            let sent = operation.origin.bytes;
            let why = format!("the origin has {sent} bytes, the target's part of it {bytes}");
            return Err(Error::invalid(operation.what, why));
        }
        let naming = match (shape, single) {
            (None, _) | (_, Some((0, _))) => Naming::Contiguous,
            (Some(shape), _) => {
                let mut wire = Vec::new();
                wire.extend_from_slice(&(shape.count as u64).to_le_bytes());
                wire.extend_from_slice(&[0; 8]);
                shape.layout.encode(&mut wire);
                if wire.len() <= MOST_WIRE {
                    Naming::Layout(wire)
                } else {
                    Naming::Pieces(Box::new(Cursor::new(shape)?))
                }
            }
        };
        let origin = match operation.origin.shape {
            Some(shape) if sends => Some(Cursor::new(shape)?),
            _ => None,
        };
        Ok(Cutter { operation, naming, origin, sends, position: 0 })
    }

    /// Writes the next unit into `out`, which is emptied; nothing once all are written.
    ///
    /// # Errors
    /// None that [`Cutter::new`] would not have reported.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Cut>> {
        let operation = self.operation;
        let left = operation.bytes - self.position;
        if left == 0 {
            return Ok(None);
        }
        let size = operation.kind.map_or(operation.element, |kind| kind.size());
        let grain = if size <= MOST_UNIT / 2 { size } else { 1 };
        // What is only moved need not end with a whole element.
        let whole = |room: usize| if left <= room { left } else { room / grain * grain };
        let head = Head {
            action: operation.action,
            kind: operation.kind,
            element: u32::try_from(operation.element).unwrap_or(u32::MAX),
            at: operation.at,
        };
        let bytes = match &mut self.naming {
            Naming::Contiguous => {
                let head = Head { at: head.at.wrapping_add(self.position as u64), ..head };
                head.begin(out, 0);
                whole(MOST_UNIT)
            }
            Naming::Layout(wire) => {
                wire[8..16].copy_from_slice(&(self.position as u64).to_le_bytes());
                head.begin(out, 1);
                out.extend_from_slice(wire);
                whole(MOST_UNIT - wire.len())
            }
            Naming::Pieces(cursor) => {
                head.begin(out, 2);
                let mut writer = PieceWriter::default();
                let mut bytes = 0;
                loop {
                    let data = if self.sends { bytes } else { 0 };
                    let room = (MOST_BODY - data).saturating_sub(out.len() + PIECE_ROOM);
                    let room = if self.sends { room } else { room.min(1) * (MOST_UNIT - bytes) };
                    let Some(piece) = cursor.next_piece(room / grain * grain) else { break };
                    writer.push(out, piece.offset as i64, piece.len);
                    bytes += piece.len;
                }
                bytes
            }
        };
        let shape = out.len() - HEADER;
        Head::finish(out, shape, bytes);
        if operation.action == Action::CompareSwap {
            append(out, &operation.compare, None, 0, bytes);
        }
        if self.sends {
            append(out, &operation.origin, self.origin.as_mut(), self.position, bytes);
        }
        debug_assert!(out.len() <= MOST_BODY && bytes > 0);
        let cut = Cut { position: self.position, bytes };
        self.position += bytes;
        Ok(Some(cut))
    }
}

/// Appends the next `bytes` bytes of `memory`: those from `position` on, or those of the cursor.
fn append(
    out: &mut Vec<u8>,
    memory: &Memory<'_>,
    cursor: Option<&mut Cursor<'_>>,
    position: usize,
    bytes: usize,
) {
    let start = out.len();
    let mut copy = |offset: isize, len: usize| {
        // SAFETY: a `Memory` stands for readable private memory: `bytes` bytes from `at` on, or
        // all pieces of its shape; `position + bytes` lies within.
        let from = unsafe { std::slice::from_raw_parts(memory.at.offset(offset), len) };
        out.extend_from_slice(from);
    };
    match cursor {
        None => copy(position as isize, bytes),
        Some(cursor) => {
            let mut left = bytes;
            while let Some(piece) = cursor.next_piece(left) {
                copy(piece.offset, piece.len);
                left -= piece.len;
            }
        }
    }
    debug_assert_eq!(out.len() - start, bytes);
}

/// Writes what was fetched to its place in `memory`: the packed bytes from `position` on.
///
/// # Safety
/// `memory` was made for writing, and is not accessed by others meanwhile.
///
/// # Errors
/// [`Error::InvalidArgument`] if they do not lie in it.
pub(super) unsafe fn land(memory: &Memory<'_>, position: usize, data: &[u8]) -> Result<()> {
    if position + data.len() > memory.bytes {
        let why = format!("{} bytes do not fit {}", position + data.len(), memory.bytes);
        return Err(Error::invalid("the result of an operation", why));
    }
    let put = |offset: isize, from: &[u8]| {
        // SAFETY: inside the memory, see above and below; private, so it does not overlap `from`.
        unsafe { memory.at.offset(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    };
    match memory.shape {
        None => put(position as isize, data),
        Some(shape) => {
            let mut cursor = Cursor::at(shape, position)?;
            let mut rest = data;
            while let Some(piece) = cursor.next_piece(rest.len()) {
                let (now, later) = rest.split_at(piece.len);
                put(piece.offset, now);
                rest = later;
            }
        }
    }
    Ok(())
}
