//! The normal form of a layout: which runs of bytes, in which order.
//!
//! ```text
//! Runs    count x len bytes, stride apart         ###....###....###
//! Blocks  runs of any length at any place         ##..#####...#
//! Repeat  count copies of a node, stride apart    <node>...<node>...<node>
//! List    nodes at any place                      <a>..<b>......<c>
//! ```
//! Nested strides stay nested strides: their size does not depend on what they count. Runs that
//! follow each other without a gap are one, and lists at equal distances are repeats.
//!
//! Invariants, kept by the constructors here, by which everything else does without checks:
//! - the first byte in packed order lies at offset 0 of its node; whoever holds a node holds the
//!   offset beside it;
//! - nothing inside a node is empty, and only [`Node::empty`] is empty altogether;
//! - offsets of bytes and packed sizes are at most [`FAR`] in magnitude, so sums of two of them do
//!   not overflow;
//! - at most [`MAX_DEPTH`] nodes lie on the way to a byte.

use crate::base::{Error, Result};
use std::sync::Arc;

/// Most nodes on the way to a byte, after normalisation.
pub(super) const MAX_DEPTH: usize = 24;
/// Largest offset and packed size.
pub(super) const FAR: usize = 1 << 61;
/// Alignments larger than this are not told apart.
const MAX_GRAIN: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Runs { count: usize, stride: isize, len: usize },
    Blocks(Box<[Block]>),
    Repeat { count: usize, stride: isize, inner: Arc<Node> },
    List(Box<[Item]>),
}

/// A run, which ends where the next one begins in packed order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub offset: isize,
    pub packed: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub offset: isize,
    pub packed: usize,
    pub node: Arc<Node>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub form: Form,
    /// Bytes in packed form.
    pub size: usize,
    /// Offset of the lowest byte: 0 or less.
    pub low: isize,
    /// One past the offset of the highest byte.
    pub high: isize,
    /// Largest power of two, up to 64, that divides the offsets of all runs.
    pub grain: usize,
    /// Largest power of two, up to 64, that divides the lengths of all runs.
    pub unit: usize,
    /// Number of runs.
    pub runs: usize,
    /// Nodes on the way to the deepest byte, this one included.
    pub depth: usize,
}

/// A node and where its first byte lies.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub offset: isize,
    pub node: Arc<Node>,
}

pub(super) fn too_large() -> Error {
    Error::invalid("a layout", "an offset or a size in it exceeds 2^61 bytes")
}

/// An error unless `value` is an offset that layouts may hold.
pub(super) fn offset(value: Option<isize>) -> Result<isize> {
    value.filter(|v| v.unsigned_abs() <= FAR).ok_or_else(too_large)
}

/// An error unless `value` is a size that layouts may hold.
pub(super) fn size(value: Option<usize>) -> Result<usize> {
    value.filter(|v| *v <= FAR).ok_or_else(too_large)
}

/// `index * stride`, as an offset.
pub(super) fn scaled(index: usize, stride: isize) -> Result<isize> {
    offset(isize::try_from(index).ok().and_then(|index| index.checked_mul(stride)))
}

fn grain(offset: isize) -> usize {
    if offset == 0 { MAX_GRAIN } else { (1 << offset.trailing_zeros().min(6)).min(MAX_GRAIN) }
}

impl Node {
    pub fn empty() -> Node {
        let form = Form::Blocks(Box::new([]));
        Node { form, size: 0, low: 0, high: 0, grain: 64, unit: 64, runs: 0, depth: 1 }
    }

    /// A single run; `len` is not 0.
    fn run(len: usize) -> Result<Node> {
        Node::runs(1, 0, len)
    }

    /// `count` and `len` are not 0.
    fn runs(count: usize, stride: isize, len: usize) -> Result<Node> {
        let stride = if count == 1 { 0 } else { stride };
        let span = scaled(count - 1, stride)?;
        let len_signed = offset(isize::try_from(len).ok())?;
        Ok(Node {
            form: Form::Runs { count, stride, len },
            size: size(count.checked_mul(len))?,
            low: span.min(0),
            high: offset(Some(span.max(0) + len_signed))?,
            grain: grain(stride),
            unit: grain(len_signed),
            runs: count,
            depth: 1,
        })
    }

    /// Whether both are the same, as far as that is cheap to see.
    fn same(a: &Arc<Node>, b: &Arc<Node>) -> bool {
        let runs = |node: &Node| match node.form {
            Form::Runs { count, stride, len } => Some((count, stride, len)),
            _ => None,
        };
        Arc::ptr_eq(a, b) || (runs(a).is_some() && runs(a) == runs(b))
    }

    /// The length if it is a single run.
    pub fn single(&self) -> Option<usize> {
        match self.form {
            Form::Runs { count: 1, len, .. } => Some(len),
            _ => None,
        }
    }
}

impl Placed {
    pub fn empty() -> Placed {
        Placed { offset: 0, node: Arc::new(Node::empty()) }
    }

    /// One run at offset 0.
    pub fn run(len: usize) -> Result<Placed> {
        if len == 0 {
            return Ok(Placed::empty());
        }
        Ok(Placed { offset: 0, node: Arc::new(Node::run(len)?) })
    }

    pub fn is_empty(&self) -> bool {
        self.node.size == 0
    }

    /// The same, `by` further on.
    pub fn moved(&self, by: isize) -> Result<Placed> {
        if self.is_empty() {
            return Ok(Placed::empty());
        }
        let at = offset(self.offset.checked_add(by))?;
        self.at(at)
    }

    /// The node with its first byte at `at`.
    fn at(&self, at: isize) -> Result<Placed> {
        offset(at.checked_add(self.node.low))?;
        offset(at.checked_add(self.node.high))?;
        Ok(Placed { offset: at, node: self.node.clone() })
    }

    /// `count` copies, `stride` apart.
    pub fn repeat(&self, count: usize, stride: isize) -> Result<Placed> {
        if count == 0 || self.is_empty() {
            return Ok(Placed::empty());
        }
        if count == 1 {
            return Ok(self.clone());
        }
        let continues = |times: usize, step: isize| {
            isize::try_from(times).ok().and_then(|n| n.checked_mul(step)) == Some(stride)
        };
        let times = |inner: usize| size(inner.checked_mul(count));
        let node = match &self.node.form {
            Form::Runs { count: 1, len, .. } if isize::try_from(*len) == Ok(stride) => {
                Node::run(times(*len)?)?
            }
            Form::Runs { count: 1, len, .. } => Node::runs(count, stride, *len)?,
            Form::Runs { count: n, stride: step, len } if continues(*n, *step) => {
                Node::runs(times(*n)?, *step, *len)?
            }
            Form::Repeat { count: n, stride: step, inner } if continues(*n, *step) => {
                copies(inner, times(*n)?, *step)?
            }
            _ => copies(&self.node, count, stride)?,
        };
        Placed { offset: 0, node: Arc::new(node) }.at(self.offset)
    }

    /// The parts one after the other.
    pub fn list(parts: impl IntoIterator<Item = Result<Placed>>) -> Result<Placed> {
        let mut kept: Vec<Placed> = Vec::new();
        for part in parts {
            let part = part?;
            if part.is_empty() {
                continue;
            }
            // A run that goes on where the last one ended belongs to it.
            if let (Some(last), Some(len)) = (kept.last_mut(), part.node.single())
                && let Some(before) = last.node.single()
                && last.offset.checked_add_unsigned(before) == Some(part.offset)
            {
                last.node = Arc::new(Node::run(size(before.checked_add(len))?)?);
                continue;
            }
            kept.push(part);
        }
        let Some(first) = kept.first().cloned() else { return Ok(Placed::empty()) };
        if kept.len() == 1 {
            return Ok(first);
        }
        let stride = offset(kept[1].offset.checked_sub(first.offset))?;
        let regular = kept.windows(2).all(|two| {
            two[0].offset.checked_add(stride) == Some(two[1].offset)
                && Node::same(&two[0].node, &two[1].node)
        });
        if regular {
            return first.repeat(kept.len(), stride);
        }
        Placed { offset: 0, node: Arc::new(sequence(&kept, first.offset)?) }.at(first.offset)
    }
}

/// `count` copies of `inner`; `count` is not 0 and `inner` not empty.
fn copies(inner: &Arc<Node>, count: usize, stride: isize) -> Result<Node> {
    let span = scaled(count - 1, stride)?;
    Ok(Node {
        size: size(inner.size.checked_mul(count))?,
        low: offset(inner.low.checked_add(span.min(0)))?,
        high: offset(inner.high.checked_add(span.max(0)))?,
        grain: inner.grain.min(grain(stride)),
        unit: inner.unit,
        // Runs are not empty, so there are no more of them than bytes.
        runs: size(inner.runs.checked_mul(count))?,
        depth: deeper(inner.depth)?,
        form: Form::Repeat { count, stride, inner: inner.clone() },
    })
}

/// `parts`, none of them empty, relative to the first one's offset.
fn sequence(parts: &[Placed], origin: isize) -> Result<Node> {
    let mut node = Node::empty();
    let mut items = Vec::with_capacity(parts.len());
    for part in parts {
        let at = offset(part.offset.checked_sub(origin))?;
        items.push(Item { offset: at, packed: node.size, node: part.node.clone() });
        node.size = size(node.size.checked_add(part.node.size))?;
        node.runs += part.node.runs;
        node.low = node.low.min(offset(at.checked_add(part.node.low))?);
        node.high = node.high.max(offset(at.checked_add(part.node.high))?);
        node.grain = node.grain.min(part.node.grain).min(grain(at));
        node.unit = node.unit.min(part.node.unit);
        node.depth = node.depth.max(part.node.depth);
    }
    if parts.iter().all(|part| part.node.single().is_some()) {
        let block = |item: &Item| Block { offset: item.offset, packed: item.packed };
        node.form = Form::Blocks(items.iter().map(block).collect());
    } else {
        node.form = Form::List(items.into());
        node.depth = deeper(node.depth)?;
    }
    Ok(node)
}

fn deeper(depth: usize) -> Result<usize> {
    if depth < MAX_DEPTH {
        return Ok(depth + 1);
    }
    let why = format!("it nests more than {MAX_DEPTH} deep; describe it with fewer levels");
    Err(Error::invalid("a layout", why))
}
