//! One message, untyped and checked: what it moves, and where.
//!
//! ```text
//!             one segment at the origin          the same at the target (figure 6.4 of paper 001)
//!   input     count x layout, B bytes packed --> N x target's layout,  N = B / its size
//!   output    count x layout, B bytes packed <-- N x target's layout
//!             segment s lies s * count extents on, on either side
//! ```
//! Everything that can be wrong with a message and is known at the origin is found here, before
//! anything is sent or changed. Whoever carries a plan out does so without checks of sizes.

use super::entry::Entry;
use crate::base::{Error, Rank, Result};
use crate::layout::{Layout, Shape};
use crate::rma::core::Core;
use crate::rma::kind::{Place, Span};
use std::sync::Arc;

const WHAT: &str = "an active message";

/// Where the handler of a message runs, if the target's part is not mapped at the origin. Where it
/// is, the origin always runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Where it is cheaper, by sizes and measured costs.
    #[default]
    Auto,
    /// At the target.
    Target,
    /// At the origin, on a fetched copy of the persistent part that is written back afterwards.
    Origin,
}

/// What a program says of a message, not checked.
#[derive(Debug)]
pub(crate) struct Asked<'m> {
    /// How many segments.
    pub segments: usize,
    /// Where the input is.
    pub input: Given<'m>,
    /// Where the output goes.
    pub output: Given<'m>,
    /// An entry of the input at the target.
    pub target_input: &'m Layout,
    /// An entry of the output at the target.
    pub target_output: &'m Layout,
    /// Displacement of the persistent part.
    pub displacement: usize,
    /// The persistent part, around the displacement.
    pub persistent: Shape<'m>,
    /// Where the counts of a message with variable output go: one for each segment, in entries of
    /// the origin's output.
    pub counts: Option<Counts>,
    /// Where the handler runs.
    pub placement: Placement,
}

/// Memory of the origin and what one segment of a message is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'m> {
    /// Where the shape of the first segment is applied.
    pub at: *mut u8,
    /// How many bytes there are from there on; not known of addresses, which are believed.
    pub room: Option<usize>,
    /// One segment.
    pub segment: Shape<'m>,
}

/// Where counts go: as many as the message has segments, valid until it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts(pub *mut usize);

/// Segments one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'m> {
    /// One of them.
    pub shape: Shape<'m>,
    /// Its bytes, as packed.
    pub bytes: usize,
    /// Bytes from one to the next.
    pub stride: isize,
}

/// Segments in the origin's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'m> {
    /// Where the first one's shape is applied.
    pub at: *mut u8,
    /// What they are.
    pub segments: Segments<'m>,
}

/// The persistent part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistent<'m> {
    /// Where the displacement lies.
    pub place: Place<u8>,
    /// The displacement.
    pub displacement: usize,
    /// What belongs to it, around the displacement.
    pub shape: Shape<'m>,
    /// The bytes of the target's part that it lies in, from the displacement on.
    pub lower: isize,
    /// One past the last of them.
    pub upper: isize,
}

/// A checked message.
#[derive(Debug)]
pub(crate) struct Plan<'m> {
    /// What runs.
    pub handler: &'m Arc<Entry>,
    /// On whose part.
    pub target: Rank,
    /// How many segments; none is a message too, that calls nothing.
    pub segments: usize,
    /// The origin's input.
    pub input: Side<'m>,
    /// The origin's output.
    pub output: Side<'m>,
    /// The input as the handler gets it.
    pub target_input: Segments<'m>,
    /// The output as the handler makes it.
    pub target_output: Segments<'m>,
    /// What the handler works on.
    pub persistent: Persistent<'m>,
    /// Where the counts of a vector handler go, if anywhere.
    pub counts: Option<Counts>,
    /// Entries of the origin's output to one of the target's: what counts are multiplied by.
    pub scale: usize,
    /// The input looks alike on both sides: the handler may work on the origin's.
    pub same_input: bool,
    /// The output looks alike on both sides.
    pub same_output: bool,
    /// Where the handler runs.
    pub placement: Placement,
    /// Other messages on the target may run meanwhile.
    pub concurrent: bool,
    /// The target is locked exclusively.
    pub exclusive: bool,
}

impl<'m> Segments<'m> {
    fn new(shape: Shape<'m>, segments: usize) -> Result<Segments<'m>> {
        Ok(Segments::bounded(shape, segments)?.0)
    }

    /// Also tells the bounds of all of them, so that nothing overflows from here on.
    fn bounded(shape: Shape<'m>, segments: usize) -> Result<(Segments<'m>, (isize, isize))> {
        let bounds = times(shape, segments)?.true_bounds()?;
        let stride = if segments > 1 { times(shape, 1)?.layout.extent() } else { 0 };
        let stride = stride.saturating_mul(isize::try_from(shape.count).unwrap_or(isize::MAX));
        Ok((Segments { shape, bytes: shape.size()?, stride }, bounds))
    }

    /// `count` segments as one shape: some of those that the plan was made for.
    pub fn together(&self, count: usize) -> Shape<'m> {
        // The plan looked at the product for all of them.
        Shape { layout: self.shape.layout, count: self.shape.count.saturating_mul(count) }
    }

    /// Lowest and one past the highest byte of `count` segments, from where the first one's shape
    /// is applied.
    pub fn bounds(&self, count: usize) -> Result<(isize, isize)> {
        self.together(count).true_bounds()
    }

    /// Whether the bytes of both lie at the same places.
    fn same(&self, other: &Segments<'_>) -> bool {
        let alike = |a: Shape<'_>, b: Shape<'_>| {
            a.count == b.count && a.layout.same(b.layout)
                || a.single() == b.single() && a.single().is_some()
        };
        self.bytes == other.bytes
            && self.stride == other.stride
            && (self.bytes == 0 || alike(self.shape, other.shape))
    }
}

impl Side<'_> {
    /// Where the shape of segment `index` is applied.
    pub fn segment(&self, index: usize) -> *mut u8 {
        self.at.wrapping_offset(self.segments.stride.wrapping_mul(index.cast_signed()))
    }
}

/// `count` copies of a shape, one after the other.
pub(super) fn times(shape: Shape<'_>, count: usize) -> Result<Shape<'_>> {
    let all = shape.count.checked_mul(count).ok_or_else(|| {
        Error::invalid(WHAT, format!("{count} segments of {} entries are too many", shape.count))
    })?;
    Ok(Shape { layout: shape.layout, count: all })
}

/// The bounds of a shape, moved outwards to multiples of an element's size.
pub(super) fn whole_elements<T>(shape: Shape<'_>) -> Result<(isize, isize)> {
    whole(shape, size_of::<T>())
}

pub(super) fn whole(shape: Shape<'_>, size: usize) -> Result<(isize, isize)> {
    let size = size.max(1).cast_signed();
    let (lower, upper) = shape.true_bounds()?;
    Ok((lower.div_euclid(size) * size, upper.saturating_add(size - 1).div_euclid(size) * size))
}

impl<'m> Plan<'m> {
    /// Checks a message. The target is a member; the epoch covers it, and asserts that messages may
    /// run at the same time, or has locked it exclusively.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the sides do not go together, if the handler cannot take what
    /// the layouts describe, or if they describe what lies outside of the origin's memory;
    /// [`Error::OutOfBounds`] if the persistent part lies outside of the target's.
    pub fn new(
        core: &Core,
        handler: &'m Arc<Entry>,
        target: Rank,
        asked: Asked<'m>,
        (concurrent, exclusive): (bool, bool),
    ) -> Result<Plan<'m>> {
        let segments = asked.segments;
        let input = side("input", &asked.input, segments)?;
        let output = side("output", &asked.output, segments)?;
        let target_input = opposite("input", &input.segments, asked.target_input, segments)?;
        let target_output = opposite("output", &output.segments, asked.target_output, segments)?;
        let vector = handler.is_vector();
        if asked.counts.is_some() && !vector {
            let why = "its handler's output is not variable, so there are no counts";
            return Err(Error::invalid(WHAT, why));
        }
        let scale = if vector { scale(&output.segments, target_output.shape.layout)? } else { 1 };
        handler.check(
            target_input.together(segments),
            target_output.together(segments),
            asked.persistent,
        )?;
        let (element, align) = handler.persistent_element();
        let (lower, upper) = whole(asked.persistent, element)?;
        let span = Span { lower, upper, align };
        let place = core.place_span(WHAT, target, asked.displacement, span)?;
        Ok(Plan {
            same_input: input.segments.same(&target_input) && handler.input_aligned(input.at),
            same_output: output.segments.same(&target_output) && handler.output_aligned(output.at),
            handler,
            target,
            segments,
            input,
            output,
            target_input,
            target_output,
            persistent: Persistent {
                place,
                displacement: asked.displacement,
                shape: asked.persistent,
                lower,
                upper,
            },
            counts: asked.counts,
            scale,
            placement: asked.placement,
            concurrent,
            exclusive,
        })
    }
}

/// Checks the origin's side of a buffer.
fn side<'m>(name: &str, given: &Given<'m>, segments: usize) -> Result<Side<'m>> {
    let (all, (lower, upper)) = Segments::bounded(given.segment, segments)?;
    if let Some(room) = given.room
        && (lower < 0 || upper.unsigned_abs() > room)
    {
        let why = format!(
            "{segments} segments of {name} cover bytes {lower}..{upper} of this rank's memory, \
             which has {room}"
        );
        return Err(Error::invalid(WHAT, why));
    }
    Ok(Side { at: given.at, segments: all })
}

/// What lies at the target for each of the origin's segments.
fn opposite<'m>(
    name: &str,
    origin: &Segments<'_>,
    entry: &'m Layout,
    segments: usize,
) -> Result<Segments<'m>> {
    if std::ptr::eq(origin.shape.layout, entry) && origin.bytes > 0 {
        let Segments { bytes, stride, .. } = *origin;
        return Ok(Segments { shape: entry.times(origin.shape.count), bytes, stride });
    }
    let kinds = (origin.shape.layout.kind(), entry.kind());
    if let (Some(here), Some(there)) = kinds
        && here != there
        && origin.bytes > 0
    {
        let why =
            format!("the {name}'s elements are {here:?} at the origin, {there:?} at the target");
        return Err(Error::invalid(WHAT, why));
    }
    let count = match (origin.bytes, entry.size()) {
        (0, _) => 0,
        (bytes, size) if size > 0 && bytes % size == 0 => bytes / size,
        (bytes, size) => {
            let why = format!(
                "a segment's {name} has {bytes} bytes, which is no whole number of the target's \
                 entries of {size} bytes"
            );
            return Err(Error::invalid(WHAT, why));
        }
    };
    Segments::new(entry.times(count), segments)
}

/// How many of the origin's entries one of the target's makes.
fn scale(origin: &Segments<'_>, entry: &Layout) -> Result<usize> {
    let (here, there) = (origin.shape.layout.size(), entry.size());
    if origin.bytes == 0 {
        return Ok(1);
    }
    if !there.is_multiple_of(here) {
        let why = format!(
            "its output is variable, and an entry of {there} bytes at the target is no whole \
             number of the origin's of {here} bytes, in which it is counted"
        );
        return Err(Error::invalid(WHAT, why));
    }
    Ok(there / here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(layout: &Layout, count: usize, of: usize) -> Segments<'_> {
        Segments::new(layout.times(count), of).expect("small")
    }

    #[test]
    fn a_segment_becomes_a_whole_number_of_entries() {
        let (word, triple) = (Layout::of::<u32>(), Layout::of::<[u32; 3]>());
        let strided = word.resized(0, 16).unwrap();
        let here = segments(&strided, 6, 5);
        assert_eq!((here.bytes, here.stride), (24, 96));
        let there = opposite("input", &here, &triple, 5).unwrap();
        assert_eq!((there.shape.count, there.bytes, there.stride), (2, 24, 24));
        assert!(opposite("input", &segments(&word, 4, 5), &triple, 5).is_err());
        // Nothing becomes nothing, whatever the entry.
        let none = opposite("input", &segments(&word, 0, 5), &triple, 5).unwrap();
        assert_eq!((none.shape.count, none.bytes), (0, 0));
        let empty = word.contiguous(0).unwrap();
        assert!(opposite("input", &segments(&word, 1, 5), &empty, 5).is_err());
        assert_eq!(opposite("input", &segments(&empty, 3, 5), &empty, 5).unwrap().bytes, 0);
        // Elements of other kinds, unless one is bytes of no kind.
        assert!(opposite("input", &here, &Layout::of::<f32>(), 5).is_err());
        assert!(opposite("input", &here, &Layout::of::<u128>(), 5).is_err());
        assert!(opposite("input", &segments(&word, 4, 5), &Layout::of::<u128>(), 5).is_ok());
    }

    #[test]
    fn sides_are_the_same_if_their_bytes_are() {
        let (word, pair) = (Layout::of::<u32>(), Layout::of::<[u32; 2]>());
        let gaps = |extent| word.resized(0, extent).unwrap();
        let (second, third) = (gaps(8), gaps(12));
        assert!(segments(&word, 4, 3).same(&segments(&pair, 2, 3)));
        assert!(segments(&second, 4, 3).same(&segments(&gaps(8), 4, 3)));
        assert!(!segments(&second, 4, 3).same(&segments(&third, 4, 3)));
        assert!(!segments(&second, 4, 3).same(&segments(&word, 4, 3)));
        // Single runs at other places, and with other distances between segments.
        let moved = word.hindexed(&[(4, 1)]).unwrap().resized(0, 4).unwrap();
        assert!(!segments(&word, 1, 3).same(&segments(&moved, 1, 3)));
        assert!(!segments(&word, 1, 3).same(&segments(&second, 1, 3)));
        assert!(segments(&word, 1, 1).same(&segments(&second, 1, 1)), "there is no distance");
    }

    #[test]
    fn counts_are_told_in_entries_of_the_origin() {
        let (word, pair) = (Layout::of::<u32>(), Layout::of::<[u32; 2]>());
        assert_eq!(scale(&segments(&word, 4, 1), &pair).unwrap(), 2);
        assert_eq!(scale(&segments(&word, 4, 1), &word).unwrap(), 1);
        assert!(scale(&segments(&pair, 4, 1), &word).is_err());
        assert_eq!(scale(&segments(&word, 0, 1), &word).unwrap(), 1);
    }

    #[test]
    fn bounds_grow_to_whole_elements() {
        let byte = Layout::of::<u8>();
        let at = |offset| byte.hindexed(&[(offset, 3)]).unwrap();
        let bounds = |offset| whole_elements::<u32>(at(offset).times(1)).unwrap();
        assert_eq!(bounds(0), (0, 4));
        assert_eq!(bounds(1), (0, 4));
        assert_eq!(bounds(2), (0, 8));
        assert_eq!(bounds(-1), (-4, 4));
        assert_eq!(bounds(-3), (-4, 0));
        assert_eq!(bounds(-5), (-8, 0));
        assert_eq!(whole_elements::<u32>(at(7).times(0)).unwrap(), (0, 0));
    }

    #[test]
    fn sides_lie_in_their_memory() {
        let word = Layout::of::<u32>();
        let given = |room, segment| Given { at: std::ptr::dangling_mut(), room, segment };
        let strided = word.resized(0, 8).unwrap();
        assert!(side("input", &given(Some(44), strided.times(3)), 2).is_ok());
        assert!(side("input", &given(Some(43), strided.times(3)), 2).is_err());
        assert!(side("input", &given(Some(0), strided.times(3)), 0).is_ok());
        let before = word.hindexed(&[(-4, 1)]).unwrap();
        assert!(side("input", &given(Some(100), before.times(1)), 1).is_err());
        assert!(side("input", &given(None, before.times(1)), 1).is_ok(), "an address is believed");
        for (count, segments) in [(usize::MAX, 2), (1 << 40, 1 << 40), (1 << 60, 1)] {
            assert!(side("input", &given(None, word.times(count)), segments).is_err());
        }
    }
}
