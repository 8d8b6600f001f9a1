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

use crate::am::buffers::GRAIN;
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

/// A size as it is accounted, if there can be as much.
fn whole(bytes: usize) -> Result<usize> {
    bytes.checked_next_multiple_of(GRAIN as usize).ok_or_else(too_large)
}

/// A part of a place: where the shape is applied, and the bytes.
fn part(shape: Shape<'_>, element: usize) -> Result<(usize, usize)> {
    let (low, high) = shape.true_bounds()?;
    let lead = whole(low.min(0).unsigned_abs())?;
    let end = high.max(0).unsigned_abs().checked_next_multiple_of(element.max(1));
    let all = end.and_then(|end| lead.checked_add(end)).ok_or_else(too_large)?;
    Ok((lead, whole(all)?))
}

#[cold]
fn too_large() -> Error {
    Error::invalid("an active message", "its segments reach beyond all memory")
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
        // The layouts may be anybody's: what wraps around would fit into any place.
        let counts = input_end.checked_add(output_bytes).ok_or_else(too_large)?;
        let counted = if vector { segments.checked_mul(size_of::<usize>()) } else { Some(0) };
        let bytes =
            counted.and_then(|counted| counts.checked_add(counted)).ok_or_else(too_large)?;
        // Where the output's shape is applied lies in what it takes.
        Ok(Staging { input, output: input_end + output, counts, bytes: whole(bytes.max(1))? })
    }

    /// Bytes of staging that any number of segments takes at most: of a unit, and of each of its
    /// segments.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond all memory.
    pub fn need(&self, entry: &Entry, vector: bool) -> Result<(u64, u64)> {
        let sizes = element_sizes(entry);
        let (mut fixed, mut segment) = (0, 0u64);
        for (kept, element) in [(&self.input, sizes.0), (&self.output, sizes.1)] {
            let (low, high) = kept.shape().true_bounds()?;
            let hull = high.max(0).unsigned_abs().saturating_add(low.min(0).unsigned_abs());
            let extent = kept.layout.extent().unsigned_abs().saturating_mul(kept.count);
            segment = segment.saturating_add(hull.max(extent) as u64);
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
            segment = segment.saturating_add(size_of::<usize>() as u64);
        }
        Ok((fixed, segment))
    }
}

fn element_sizes(entry: &Entry) -> (usize, usize) {
    let (_, input, output) = entry.elements();
    (input.size(), output.size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::{Medium, Window};

    /// Two bytes as far apart as layouts let them be, on one side of the beginning or on both.
    fn wide() -> Vec<Layout> {
        let byte = Layout::of::<u8>();
        let apart = |low, high| byte.hindexed(&[(low, 1), (high, 1)]);
        let most = (0..isize::BITS).map(|shift| isize::MAX >> shift);
        let most = most.into_iter().find(|&far| apart(0, far).is_ok()).unwrap();
        let ends = [(0, most), (-most / 2, most / 2), (0, most / 2)];
        ends.map(|(low, high)| apart(low, high).unwrap()).into()
    }

    #[test]
    fn no_layouts_make_places_that_wrap_around() {
        crate::Job::threads(1, |job| {
            let info = crate::Info { medium: Medium::Packets, ..crate::Info::default() };
            let window = Window::<u8>::builder(job.team()).info(info).allocate(8).unwrap();
            window.register_vector::<u8, u8>(7, |_| {}).unwrap();
            let entry = Entry::find(window.core(), 7).unwrap();
            let kept = |layout: &Layout, count| Kept { layout: layout.clone(), count };
            let small = [Layout::of::<u8>()];
            for (input, output) in wide().iter().chain(&small).flat_map(|input| {
                wide().into_iter().chain(small.clone()).map(move |output| (input.clone(), output))
            }) {
                for (count, segments) in [(1, 1), (1, 2), (2, 1), (3, 1000), (1, u32::MAX as usize)]
                {
                    let (inputs, outputs) = (kept(&input, count), kept(&output, 1));
                    let persistent = kept(&small[0], 1);
                    let all = Described {
                        displacement: 0,
                        zero: 0,
                        persistent,
                        input: inputs,
                        output: outputs,
                    };
                    // Neither panics. What is told is as much as each part takes.
                    let need = all.need(&entry, true);
                    let Ok(staging) = all.staging(&entry, true, segments) else { continue };
                    let hull = |kept: &Kept| {
                        let (low, high) = kept.times(segments).true_bounds().unwrap();
                        high as i128 - low as i128
                    };
                    let least = hull(&all.input) + hull(&all.output) + 8 * segments as i128;
                    assert!(staging.bytes as i128 >= least, "{staging:?} of {least}");
                    assert!(staging.input <= staging.bytes && staging.output <= staging.bytes);
                    assert!(staging.counts <= staging.bytes);
                    if segments == 1 {
                        let (fixed, segment) = need.unwrap();
                        let told = i128::from(fixed) + i128::from(segment);
                        assert!(told + 64 >= staging.bytes as i128, "{told} for {staging:?}");
                    }
                }
            }
        })
        .unwrap();
    }
}
