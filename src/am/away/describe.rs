//! What a target has to know of a message besides its units' heads: how everything lies.
//!
//! ```text
//!  0 displacement u64 | 8 offset of the displacement in the persistent range i64
//! 16 three times, persistent, input, output:  count u64 | bytes u32 | wire form of the layout
//! ```
//! Input and output are those of one segment, as the handler gets them. It travels once, at the
//! beginning of the stream of the message's first unit.
//!
//! A unit of n segments is staged like this, every part at a multiple of 64 bytes:
//! ```text
//!  | input of n segments | output of n segments | counts, if the output is variable |
//! ```

use crate::am::buffers::{GRAIN, rounded};
use crate::am::entry::Entry;
use crate::am::plan::{Plan, Segments};
use crate::base::{Error, Result};
use crate::layout::{Layout, Shape};

/// Most bytes of a description.
pub(super) const MOST: usize = 1 << 20;
/// Largest layout taken, in bytes of data.
const MOST_DATA: usize = usize::MAX >> 4;

/// Some copies of a layout, owned.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub layout: Layout,
    pub count: usize,
}

impl Kept {
    fn of(shape: Shape<'_>) -> Kept {
        Kept { layout: shape.layout.clone(), count: shape.count }
    }

    pub fn shape(&self) -> Shape<'_> {
        self.layout.times(self.count)
    }

    /// `segments` of them.
    pub fn times(&self, segments: usize) -> Shape<'_> {
        self.layout.times(self.count.saturating_mul(segments))
    }

    /// Bytes of one, as packed.
    pub fn bytes(&self) -> usize {
        self.layout.size().saturating_mul(self.count)
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// The displacement that the message names.
    pub displacement: u64,
    /// Where that lies in the persistent range.
    pub zero: i64,
    pub persistent: Kept,
    pub input: Kept,
    pub output: Kept,
}

/// Where the parts of a unit lie in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Staging {
    /// Where the input's shape is applied.
    pub input: usize,
    /// Where the output's shape is applied.
    pub output: usize,
    /// Where the counts are.
    pub counts: usize,
    /// All of it.
    pub bytes: usize,
}

/// A part of a place: where the shape is applied, and the bytes.
fn part(shape: Shape<'_>, element: usize) -> Result<(usize, usize)> {
    let (low, high) = shape.true_bounds()?;
    let lead = rounded(low.min(0).unsigned_abs() as u64) as usize;
    let end = high.max(0).unsigned_abs().next_multiple_of(element.max(1));
    Ok((lead, rounded((lead + end) as u64) as usize))
}

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "the description of an active message", why: why.into() }
}

impl Described {
    /// What is to be known of a plan whose persistent range lies away.
    pub fn of(plan: &Plan<'_>) -> Described {
        let of = |segments: &Segments<'_>| Kept::of(segments.shape);
        Described {
            displacement: plan.persistent.displacement as u64,
            zero: -(plan.persistent.lower as i64),
            persistent: Kept::of(plan.persistent.shape),
            input: of(&plan.target_input),
            output: of(&plan.target_output),
        }
    }

    /// Appends the description to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.displacement.to_le_bytes());
        out.extend_from_slice(&self.zero.to_le_bytes());
        for kept in [&self.persistent, &self.input, &self.output] {
            out.extend_from_slice(&(kept.count as u64).to_le_bytes());
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            kept.layout.encode(out);
            let bytes = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        }
    }

    /// Reads a description.
    ///
    /// # Errors
    /// [`Error::Incompatible`], [`Error::InvalidArgument`]: it is none. What is read is safe to
    /// use, whoever wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Described> {
        let mut rest = bytes;
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at_checked(n).ok_or_else(|| bad("it ends early"))?;
            rest = tail;
            Ok::<&[u8], Error>(head)
        };
        let number = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let displacement = number(take(8)?);
        let zero = number(take(8)?).cast_signed();
        let mut kept = || {
            let count = usize::try_from(number(take(8)?)).map_err(|_| bad("too many entries"))?;
            let len = number(take(4)?) as usize;
            let layout = Layout::decode(take(len)?, MOST_DATA)?;
            layout.times(count).true_bounds()?;
            Ok::<Kept, Error>(Kept { layout, count })
        };
        let described =
            Described { displacement, zero, persistent: kept()?, input: kept()?, output: kept()? };
        if rest.is_empty() { Ok(described) } else { Err(bad("something follows it")) }
    }

    /// Where the parts of a unit of `segments` segments lie.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond all memory.
    pub fn staging(&self, entry: &Entry, vector: bool, segments: usize) -> Result<Staging> {
        let (input, output) = element_sizes(entry);
        let (inputs, outputs) = (self.input.times(segments), self.output.times(segments));
        let overflows = self.input.count.checked_mul(segments).is_none()
            || self.output.count.checked_mul(segments).is_none();
        if overflows {
            return Err(Error::invalid("an active message", "its segments are too many"));
        }
        let (input, input_end) = part(inputs, input)?;
        let (output, output_bytes) = part(outputs, output)?;
        let counts = input_end + output_bytes;
        let bytes = counts + if vector { segments * size_of::<usize>() } else { 0 };
        let bytes = rounded(bytes.max(1) as u64) as usize;
        Ok(Staging { input, output: input_end + output, counts, bytes })
    }

    /// Bytes of staging that any number of segments takes at most: of a unit, and of each of its
    /// segments.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond all memory.
    pub fn need(&self, entry: &Entry, vector: bool) -> Result<(u64, u64)> {
        let sizes = element_sizes(entry);
        let (mut fixed, mut segment) = (0, 0);
        for (kept, element) in [(&self.input, sizes.0), (&self.output, sizes.1)] {
            let (low, high) = kept.shape().true_bounds()?;
            let hull = high.max(0).unsigned_abs() + low.min(0).unsigned_abs();
            let extent = kept.layout.extent().unsigned_abs().saturating_mul(kept.count);
            segment += hull.max(extent) as u64;
            if hull > 0 {
                let gap = kept.shape().single().is_none_or(|(offset, _)| offset != 0);
                let leads = low < 0 || kept.layout.extent() < 0;
                fixed += GRAIN - 1;
                fixed += if leads { GRAIN - 1 } else { 0 };
                fixed += if gap { element as u64 } else { 0 };
            }
        }
        if vector {
            fixed += GRAIN - 1;
            segment += size_of::<usize>() as u64;
        }
        Ok((fixed, segment))
    }
}

fn element_sizes(entry: &Entry) -> (usize, usize) {
    let (_, input, output) = entry.elements();
    (input.size(), output.size())
}
