//! Walking over the runs of a shape in packed order, from any position on, in bounded steps.

use super::describe::Shape;
use super::node::{Form, MAX_DEPTH, Node};
use crate::base::{Error, Result};

/// Some contiguous bytes of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in bytes from where the shape is applied.
    pub offset: isize,
    /// Bytes.
    pub len: usize,
}

/// Several runs of a shape of the same length, at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comb {
    /// Offset of the first in bytes from where the shape is applied.
    pub offset: isize,
    /// Bytes from one to the next.
    pub stride: isize,
    /// Bytes of each.
    pub len: usize,
    /// How many.
    pub count: usize,
}

/// Where a walk stands inside a node: at copy or item `index` of it.
#[derive(Clone, Copy, Debug)]
struct Frame<'l> {
    node: Option<&'l Node>,
    base: isize,
    index: usize,
}

/// A walk over the contiguous pieces of a shape in packed order.
///
/// Its state is of constant size, whatever the shape. A step costs a few instructions in the
/// innermost node, and moving to a position costs a division or a binary search per level.
#[derive(Clone, Debug)]
pub struct Cursor<'l> {
    shape: Shape<'l>,
    size: usize,
    /// Packed position of the next byte.
    position: usize,
    /// Where that byte lies, and how much of its run is left.
    offset: isize,
    left: usize,
    /// Which copy of the layout.
    copy: usize,
    depth: usize,
    frames: [Frame<'l>; MAX_DEPTH],
}

impl<'l> Cursor<'l> {
    /// A walk from the beginning.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the shape's offsets or size exceed 2^61 bytes.
    pub fn new(shape: Shape<'l>) -> Result<Cursor<'l>> {
        // Everything between the bounds can be added up without checks.
        shape.true_bounds()?;
        let mut cursor = Cursor {
            shape,
            size: shape.size()?,
            position: 0,
            offset: 0,
            left: 0,
            copy: 0,
            depth: 0,
            frames: [Frame { node: None, base: 0, index: 0 }; MAX_DEPTH],
        };
        cursor.place();
        Ok(cursor)
    }

    /// A walk from a packed position on.
    ///
    /// # Errors
    /// As for [`Cursor::new`] and [`Cursor::seek`].
    pub fn at(shape: Shape<'l>, position: usize) -> Result<Cursor<'l>> {
        let mut cursor = Cursor::new(shape)?;
        cursor.seek(position)?;
        Ok(cursor)
    }

    /// Bytes of the whole shape, as packed.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Packed position of the next byte.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes still to come.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.size - self.position
    }

    /// Moves to a packed position, forwards or backwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond the end.
    pub fn seek(&mut self, position: usize) -> Result<()> {
        if position > self.size {
            let why = format!("position {position} lies beyond the {} bytes there are", self.size);
            return Err(Error::invalid("Cursor::seek", why));
        }
        self.position = position;
        self.place();
        Ok(())
    }

    /// The next contiguous bytes, at most `most` of them; nothing at the end or if `most` is 0.
    #[inline]
    pub fn next_piece(&mut self, most: usize) -> Option<Piece> {
        if self.left == 0 && !self.advance() {
            return None;
        }
        let len = self.left.min(most);
        if len == 0 {
            return None;
        }
        let piece = Piece { offset: self.offset, len };
        self.position += len;
        self.left -= len;
        self.offset += len as isize;
        Some(piece)
    }

    /// The next runs, if several of the same length at equal distances come next that have at most
    /// `most` bytes together. If not, [`Cursor::next_piece`] says what comes.
    #[inline]
    pub fn next_comb(&mut self, most: usize) -> Option<Comb> {
        if self.left == 0 && !self.advance() {
            return None;
        }
        let frame = self.frames.get_mut(self.depth.checked_sub(1)?)?;
        let &Form::Runs { count, stride, len } = &frame.node?.form else { return None };
        let count = (count - frame.index).min(most / len);
        if self.left < len || count < 2 {
            return None;
        }
        frame.index += count - 1;
        self.position += count * len;
        self.left = 0;
        Some(Comb { offset: self.offset, stride, len, count })
    }

    /// Finds the run of `position`.
    fn place(&mut self) {
        self.depth = 0;
        self.left = 0;
        if self.position == self.size {
            return;
        }
        if let Some((offset, len)) = self.shape.single() {
            self.copy = self.shape.count - 1;
            self.offset = offset + self.position as isize;
            self.left = len - self.position;
            return;
        }
        let layout = self.shape.layout;
        self.copy = self.position / layout.size();
        let base = layout.0.bytes.offset + self.copy as isize * layout.extent();
        self.descend(&layout.0.bytes.node, base, self.position % layout.size());
    }

    /// Goes down from `node` at `base` to the run of its byte `rest`.
    fn descend(&mut self, mut node: &'l Node, mut base: isize, mut rest: usize) {
        loop {
            let frame = &mut self.frames[self.depth];
            self.depth += 1;
            let index;
            let next = match &node.form {
                Form::Runs { stride, len, .. } => {
                    index = rest / len;
                    let within = rest % len;
                    self.offset = base + index as isize * stride + within as isize;
                    self.left = len - within;
                    None
                }
                Form::Blocks(blocks) => {
                    index = blocks.partition_point(|block| block.packed <= rest) - 1;
                    let end = blocks.get(index + 1).map_or(node.size, |block| block.packed);
                    let within = rest - blocks[index].packed;
                    self.offset = base + blocks[index].offset + within as isize;
                    self.left = end - rest;
                    None
                }
                Form::Repeat { stride, inner, .. } => {
                    index = rest / inner.size;
                    Some((&**inner, base + index as isize * stride, rest % inner.size))
                }
                Form::List(items) => {
                    index = items.partition_point(|item| item.packed <= rest) - 1;
                    let item = &items[index];
                    Some((&*item.node, base + item.offset, rest - item.packed))
                }
            };
            *frame = Frame { node: Some(node), base, index };
            match next {
                Some(inner) => (node, base, rest) = inner,
                None => return,
            }
        }
    }

    /// Goes on to the next run; false at the end.
    fn advance(&mut self) -> bool {
        while self.depth > 0 {
            let frame = &mut self.frames[self.depth - 1];
            let Some(node) = frame.node else { break };
            frame.index += 1;
            let (base, index) = (frame.base, frame.index);
            match &node.form {
                Form::Runs { count, stride, len } if index < *count => {
                    self.offset = base + index as isize * stride;
                    self.left = *len;
                    return true;
                }
                Form::Blocks(blocks) if index < blocks.len() => {
                    let end = blocks.get(index + 1).map_or(node.size, |block| block.packed);
                    self.offset = base + blocks[index].offset;
                    self.left = end - blocks[index].packed;
                    return true;
                }
                Form::Repeat { count, stride, inner } if index < *count => {
                    self.descend(inner, base + index as isize * stride, 0);
                    return true;
                }
                Form::List(items) if index < items.len() => {
                    self.descend(&items[index].node, base + items[index].offset, 0);
                    return true;
                }
                _ => self.depth -= 1,
            }
        }
        if self.position == self.size {
            return false;
        }
        let layout = self.shape.layout;
        self.copy += 1;
        let base = layout.0.bytes.offset + self.copy as isize * layout.extent();
        self.descend(&layout.0.bytes.node, base, 0);
        true
    }

    /// Copies the next bytes of the shape, applied at byte `zero` of `memory`, to `into`; returns
    /// how many, which is less than asked for only at the end.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a byte lies outside of `memory`; `into` may then hold some
    /// of those before it.
    pub fn pack(&mut self, memory: &[u8], zero: usize, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(piece) = self.next_piece(into.len() - done) {
            let from = range(piece, zero, memory.len())?;
            into[done..done + piece.len].copy_from_slice(&memory[from]);
            done += piece.len;
        }
        Ok(done)
    }

    /// Copies `from` to the next bytes of the shape, applied at byte `zero` of `memory`; returns
    /// how many, which is less than there are only at the end.
    ///
    /// # Errors
    /// As for [`Cursor::pack`].
    pub fn unpack(&mut self, memory: &mut [u8], zero: usize, from: &[u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(piece) = self.next_piece(from.len() - done) {
            let to = range(piece, zero, memory.len())?;
            memory[to].copy_from_slice(&from[done..done + piece.len]);
            done += piece.len;
        }
        Ok(done)
    }
}

fn range(piece: Piece, zero: usize, len: usize) -> Result<std::ops::Range<usize>> {
    zero.checked_add_signed(piece.offset)
        .and_then(|start| Some(start..start.checked_add(piece.len)?))
        .filter(|range| range.end <= len)
        .ok_or_else(|| {
            let (from, to) = (piece.offset, piece.offset + piece.len as isize);
            let why =
                format!("bytes {from}..{to} from byte {zero} on lie outside the {len} there are");
            Error::invalid("a layout applied to memory", why)
        })
}
