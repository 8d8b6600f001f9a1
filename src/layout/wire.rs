//! Layouts as bytes, for packets.
//!
//! ```text
//! layout  = kind u8 (0: none) | bounds set u8 | lower, extent, first offset: signed | node
//! node    = 0                                          no bytes at all; only for a whole layout
//!         | 1 len                                      one run
//!         | 2 count stride(signed) len                 Runs
//!         | 3 count stride(signed) node                Repeat
//!         | 4 n (offset(signed, to the one before) len) x n          Blocks
//!         | 5 n (offset(signed, to the one before) node) x n         List
//!         | 6 index                                    the index'th node of form 3, 4 or 5 that
//!                                                      ended before this place, once more
//! ```
//! Numbers are LEB128, signed ones zigzag first. Form 6 keeps a layout that uses a part many times
//! as small on the wire as it is in memory.
//!
//! Whoever reads one trusts nothing in it: it is built anew by the constructors of `node`,
//! which check all sums, products and depths and refuse what is empty.

use super::describe::{Bounds, Layout};
use super::kind::Kind;
use super::node::{Form, Node, Placed, offset};
use crate::base::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Most levels read: deeper than any that the writer can make.
const MAX_LEVELS: usize = 64;

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "a layout in a packet", why: why.into() }
}

impl Layout {
    /// Appends the layout's wire form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bytes = &self.0.bytes;
        out.push(self.kind().map_or(0, |kind| kind as u8));
        out.push(u8::from(self.0.bounds.set));
        signed(out, self.0.bounds.lower);
        signed(out, self.extent());
        signed(out, bytes.offset);
        if bytes.is_empty() {
            out.push(0);
        } else {
            Writer { out, seen: HashMap::new() }.node(&bytes.node);
        }
    }

    /// Reads a layout that [`Layout::encode`] wrote and that has at most `most` bytes of data.
    ///
    /// # Errors
    /// [`Error::Incompatible`] or [`Error::InvalidArgument`] for anything that is no such layout;
    /// what is read is safe to use whoever wrote it.
    pub fn decode(bytes: &[u8], most: usize) -> Result<Layout> {
        let mut reader = Reader { bytes, seen: Vec::new() };
        let kind = match reader.byte()? {
            0 => None,
            raw => Some(Kind::from_raw(raw)?),
        };
        let set = match reader.byte()? {
            0 => false,
            1 => true,
            other => return Err(bad(format!("the bounds are marked by {other}"))),
        };
        let (lower, extent, first) = (reader.signed()?, reader.signed()?, reader.signed()?);
        let bounds = Bounds::new(lower, offset(lower.checked_add(extent))?, set)?;
        let placed = match reader.bytes.first() {
            Some(0) => {
                reader.byte()?;
                Placed::empty()
            }
            _ => reader.node(0)?.moved(first)?,
        };
        if !reader.bytes.is_empty() {
            return Err(bad(format!("{} bytes follow it", reader.bytes.len())));
        }
        if placed.node.size > most {
            return Err(bad(format!("{} bytes of data, more than {most}", placed.node.size)));
        }
        if kind.is_some_and(|kind| placed.node.unit < kind.size()) {
            return Err(bad("its runs are no whole elements"));
        }
        Ok(Layout::new(placed, bounds, kind))
    }
}

fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: isize) {
    number(out, ((value << 1) ^ (value >> (isize::BITS - 1))) as usize);
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// The nodes of forms 3 to 5 that are written, by address.
    seen: HashMap<*const Node, usize>,
}

impl Writer<'_> {
    fn node(&mut self, node: &Arc<Node>) {
        if let Some(&index) = self.seen.get(&Arc::as_ptr(node)) {
            self.out.push(6);
            number(self.out, index);
            return;
        }
        match &node.form {
            Form::Runs { count: 1, len, .. } => {
                self.out.push(1);
                return number(self.out, *len);
            }
            Form::Runs { count, stride, len } => {
                self.out.push(2);
                number(self.out, *count);
                signed(self.out, *stride);
                return number(self.out, *len);
            }
            Form::Repeat { count, stride, inner } => {
                self.out.push(3);
                number(self.out, *count);
                signed(self.out, *stride);
                self.node(inner);
            }
            Form::Blocks(blocks) => {
                self.out.push(4);
                number(self.out, blocks.len());
                let mut last = 0;
                for (i, block) in blocks.iter().enumerate() {
                    signed(self.out, block.offset - last);
                    last = block.offset;
                    let end = blocks.get(i + 1).map_or(node.size, |next| next.packed);
                    number(self.out, end - block.packed);
                }
            }
            Form::List(items) => {
                self.out.push(5);
                number(self.out, items.len());
                let mut last = 0;
                for item in items {
                    signed(self.out, item.offset - last);
                    last = item.offset;
                    self.node(&item.node);
                }
            }
        }
        self.seen.insert(Arc::as_ptr(node), self.seen.len());
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    seen: Vec<Placed>,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.bytes.split_first().ok_or_else(|| bad("it ends too early"))?;
        self.bytes = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<usize> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = usize::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(bad("a number has more than 64 bits"))
    }

    fn signed(&mut self) -> Result<isize> {
        let raw = self.number()?;
        Ok((raw >> 1) as isize ^ -((raw & 1) as isize))
    }

    /// A number that is not 0.
    fn some(&mut self) -> Result<usize> {
        match self.number()? {
            0 => Err(bad("a part of it is empty")),
            n => Ok(n),
        }
    }

    /// How many parts follow: each takes two bytes at least, so what is allocated for them is in
    /// proportion to the bytes received.
    fn parts(&mut self) -> Result<usize> {
        let n = self.some()?;
        if n > self.bytes.len() / 2 {
            return Err(bad(format!("{n} parts in {} bytes", self.bytes.len())));
        }
        Ok(n)
    }

    fn node(&mut self, level: usize) -> Result<Placed> {
        if level == MAX_LEVELS {
            return Err(bad(format!("it nests more than {MAX_LEVELS} deep")));
        }
        let placed = match self.byte()? {
            1 => return Placed::run(self.some()?),
            2 => {
                let (count, stride) = (self.some()?, self.signed()?);
                return Placed::run(self.some()?)?.repeat(count, stride);
            }
            3 => {
                let (count, stride) = (self.some()?, self.signed()?);
                self.node(level + 1)?.repeat(count, stride)?
            }
            form @ (4 | 5) => {
                let n = self.parts()?;
                let mut parts = Vec::with_capacity(n);
                let mut at: isize = 0;
                for _ in 0..n {
                    at = offset(at.checked_add(self.signed()?))?;
                    let node =
                        if form == 4 { Placed::run(self.some()?)? } else { self.node(level + 1)? };
                    parts.push(node.moved(at));
                }
                Placed::list(parts)?
            }
            6 => {
                let index = self.number()?;
                let seen = self.seen.get(index).cloned();
                return seen.ok_or_else(|| bad(format!("it names a part {index} it has not")));
            }
            form => return Err(bad(format!("it has a part of form {form}"))),
        };
        self.seen.push(placed.clone());
        Ok(placed)
    }
}
