//! Layouts: which bytes of a piece of memory an operation moves, and in which order.
//!
//! A layout says the same as an MPI derived datatype (MPI-3.1 chapter 4): a sequence of elements
//! at byte displacements from where it is applied. It can be built from element types by the
//! constructors of that chapter, nested at will. The *packed order* is the order of the elements
//! in the sequence; displacements may go up and down, be negative, and even repeat.

use super::datum::Datum;
use super::kind::Kind;
use super::node::{Placed, offset, scaled, size};
use crate::base::{Error, Result};
use std::sync::Arc;

/// In which order the elements of an array of several dimensions follow each other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last dimension is contiguous.
    C,
    /// The first dimension is contiguous.
    Fortran,
}

/// A description of non-contiguous data. Immutable; cloning it copies a pointer.
///
/// The description is normalised as it is built: nested strides take the same little memory
/// whatever they count, and neighbouring runs of bytes become one.
///
/// ```
/// use hither::Layout;
/// // A column of a matrix of 10 rows and 8 columns, that another column follows 8 bytes on.
/// let column = Layout::of::<f64>().vector(10, 1, 8)?.resized(0, 8)?;
/// assert_eq!((column.size(), column.extent(), column.true_extent()), (80, 8, 584));
/// # Ok::<(), hither::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layout(pub(super) Arc<Description>);

#[derive(Debug)]
pub(super) struct Description {
    pub bytes: Placed,
    pub bounds: Bounds,
    pub kind: Option<Kind>,
}

/// Lower and upper bound. Those that `resized` set hide those that follow from the elements
/// (MPI-3.1 §4.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub lower: isize,
    pub upper: isize,
    pub set: bool,
}

impl Bounds {
    /// What an empty layout has: it contributes nothing to others.
    const NONE: Bounds = Bounds { lower: 0, upper: 0, set: false };

    pub fn new(lower: isize, upper: isize, set: bool) -> Result<Bounds> {
        Ok(Bounds { lower: offset(Some(lower))?, upper: offset(Some(upper))?, set })
    }

    fn moved(self, by: isize) -> Result<Bounds> {
        let lower = offset(self.lower.checked_add(by))?;
        Ok(Bounds { lower, upper: offset(self.upper.checked_add(by))?, set: self.set })
    }

    /// Of `count` copies, `stride` apart; `count` is not 0.
    fn repeated(self, count: usize, stride: isize) -> Result<Bounds> {
        let span = scaled(count - 1, stride)?;
        let lower = offset(self.lower.checked_add(span.min(0)))?;
        Ok(Bounds { lower, upper: offset(self.upper.checked_add(span.max(0)))?, set: self.set })
    }

    fn joined(self, other: Bounds) -> Bounds {
        match (self.set, other.set) {
            (true, false) => self,
            (false, true) => other,
            _ => Bounds {
                lower: self.lower.min(other.lower),
                upper: self.upper.max(other.upper),
                set: self.set,
            },
        }
    }
}

impl Layout {
    /// One element.
    pub fn of<T: Datum>() -> Layout {
        const {
            // Updates go over the bytes in elements of the kind.
            let whole = match T::ELEMENT {
                Some(kind) => size_of::<T>().is_multiple_of(kind.size()),
                None => true,
            };
            assert!(whole, "Datum::ELEMENT names a kind that the type is not made of");
        }
        let upper = isize::try_from(size_of::<T>()).unwrap_or(isize::MAX);
        Layout(Arc::new(Description {
            // Types of more than 2^61 bytes cannot exist.
            bytes: Placed::run(size_of::<T>()).unwrap_or_else(|_| Placed::empty()),
            bounds: Bounds { lower: 0, upper, set: false },
            kind: T::ELEMENT,
        }))
    }

    pub(super) fn new(bytes: Placed, bounds: Bounds, kind: Option<Kind>) -> Layout {
        Layout(Arc::new(Description { bytes, bounds, kind }))
    }

    fn has_nothing(&self) -> bool {
        self.0.bytes.is_empty() && !self.0.bounds.set
    }

    /// Blocks of `len` copies, each block at a byte displacement: what all constructors come to.
    fn blocks(
        &self,
        blocks: impl Iterator<Item = Result<(isize, usize)>> + Clone,
    ) -> Result<Layout> {
        let extent = self.extent();
        let part = |block: Result<(isize, usize)>| {
            let (at, len) = block?;
            self.0.bytes.repeat(len, extent)?.moved(at)
        };
        let mut bounds: Option<Bounds> = None;
        for block in blocks.clone() {
            let (at, len) = block?;
            if len > 0 && !self.has_nothing() {
                let these = self.0.bounds.repeated(len, extent)?.moved(at)?;
                bounds = Some(bounds.map_or(these, |all| all.joined(these)));
            }
        }
        let bytes = Placed::list(blocks.map(part))?;
        Ok(Layout::new(bytes, bounds.unwrap_or(Bounds::NONE), self.0.kind))
    }

    /// `count` copies, each where the one before ends (its extent).
    pub fn contiguous(&self, count: usize) -> Result<Layout> {
        self.hvector(1, count, 0)
    }

    /// `count` blocks of `block` copies, the blocks `stride` extents apart.
    pub fn vector(&self, count: usize, block: usize, stride: isize) -> Result<Layout> {
        self.hvector(count, block, offset(stride.checked_mul(self.extent()))?)
    }

    /// As [`Layout::vector`], with the stride in bytes.
    pub fn hvector(&self, count: usize, block: usize, stride: isize) -> Result<Layout> {
        let one = self.0.bytes.repeat(block, self.extent())?;
        let bytes = one.repeat(count, stride)?;
        let bounds = if count == 0 || block == 0 || self.has_nothing() {
            Bounds::NONE
        } else {
            self.0.bounds.repeated(block, self.extent())?.repeated(count, stride)?
        };
        Ok(Layout::new(bytes, bounds, self.0.kind))
    }

    /// Blocks of `length` copies at `displacement` extents: `(displacement, length)`.
    pub fn indexed(&self, blocks: &[(isize, usize)]) -> Result<Layout> {
        let extent = self.extent();
        self.blocks(blocks.iter().map(|&(at, len)| {
            // A block without elements is nowhere.
            let at = if len == 0 { 0 } else { offset(at.checked_mul(extent))? };
            Ok((at, len))
        }))
    }

    /// As [`Layout::indexed`], with displacements in bytes.
    pub fn hindexed(&self, blocks: &[(isize, usize)]) -> Result<Layout> {
        self.blocks(blocks.iter().map(|&(at, len)| Ok((if len == 0 { 0 } else { at }, len))))
    }

    /// Blocks of different layouts: `(displacement in bytes, number of copies, layout)`.
    ///
    /// The extent ends with the last byte; where the next structure of an array begins later (a
    /// compiler's padding), say so by [`Layout::resized`].
    pub fn structure(members: &[(isize, usize, Layout)]) -> Result<Layout> {
        let mut bounds: Option<Bounds> = None;
        let mut kinds = None;
        let mut parts = Vec::with_capacity(members.len());
        for (at, count, layout) in members.iter().filter(|member| member.1 > 0) {
            if layout.has_nothing() {
                continue;
            }
            let these = layout.0.bounds.repeated(*count, layout.extent())?.moved(*at)?;
            bounds = Some(bounds.map_or(these, |all| all.joined(these)));
            if !layout.0.bytes.is_empty() {
                parts.push(layout.0.bytes.repeat(*count, layout.extent())?.moved(*at));
                let kind = layout.0.kind;
                kinds = Some(kinds.map_or(kind, |all| if all == kind { kind } else { None }));
            }
        }
        let bytes = Placed::list(parts)?;
        Ok(Layout::new(bytes, bounds.unwrap_or(Bounds::NONE), kinds.flatten()))
    }

    /// The part of an array of `sizes` elements that begins at `starts` and has `subsizes`
    /// elements, in every dimension. Lower bound and extent are those of the whole array.
    pub fn subarray(
        &self,
        sizes: &[usize],
        subsizes: &[usize],
        starts: &[usize],
        order: Order,
    ) -> Result<Layout> {
        const WHAT: &str = "Layout::subarray";
        let dimensions = sizes.len();
        if dimensions == 0 || subsizes.len() != dimensions || starts.len() != dimensions {
            let why = "want as many sizes as sub-sizes and starts, and at least one";
            return Err(Error::invalid(WHAT, why));
        }
        let inside = |d: usize| starts[d].checked_add(subsizes[d]).is_some_and(|e| e <= sizes[d]);
        if let Some(d) = (0..dimensions).find(|&d| !inside(d)) {
            let (start, len, size) = (starts[d], subsizes[d], sizes[d]);
            let why =
                format!("dimension {d}: {len} elements from {start} on, of an array of {size}");
            return Err(Error::invalid(WHAT, why));
        }
        let fastest_first = |k: usize| match order {
            Order::C => dimensions - 1 - k,
            Order::Fortran => k,
        };
        let mut bytes = self.0.bytes.clone();
        let mut stride = self.extent();
        for d in (0..dimensions).map(fastest_first) {
            bytes = bytes.repeat(subsizes[d], stride)?.moved(scaled(starts[d], stride)?)?;
            stride = scaled(sizes[d], stride)?;
        }
        Ok(Layout::new(bytes, Bounds::new(0, stride, true)?, self.0.kind))
    }

    /// The same bytes with another lower bound and extent: where a copy begins, and how far on
    /// the next one does.
    pub fn resized(&self, lower_bound: isize, extent: isize) -> Result<Layout> {
        let upper = offset(lower_bound.checked_add(extent))?;
        let bounds = Bounds::new(lower_bound, upper, true)?;
        Ok(Layout::new(self.0.bytes.clone(), bounds, self.0.kind))
    }

    /// Bytes of data, as packed.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.bytes.node.size
    }

    /// Where the layout begins, in bytes from where it is applied.
    #[inline]
    pub fn lower_bound(&self) -> isize {
        self.0.bounds.lower
    }

    /// How far on the next of several copies lies, in bytes.
    #[inline]
    pub fn extent(&self) -> isize {
        self.0.bounds.upper - self.0.bounds.lower
    }

    /// The lowest byte of data, in bytes from where the layout is applied.
    #[inline]
    pub fn true_lower_bound(&self) -> isize {
        self.0.bytes.offset + self.0.bytes.node.low
    }

    /// Bytes from the lowest to the highest byte of data.
    #[inline]
    pub fn true_extent(&self) -> usize {
        (self.0.bytes.node.high - self.0.bytes.node.low) as usize
    }

    /// The kind of its elements, if they are all of one and predefined operations apply to it.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        self.0.kind
    }

    /// Contiguous runs of bytes, as far as neighbours were found to be such.
    #[inline]
    pub fn runs(&self) -> usize {
        self.0.bytes.node.runs
    }

    /// Whether copies of both, one after the other, put the same bytes at the same places, as far
    /// as that is seen by comparing normal forms: layouts that were described in the same way are
    /// the same. Cost: a comparison of two numbers and of the description, none for clones.
    pub fn same(&self, other: &Layout) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let (a, b) = (&self.0.bytes, &other.0.bytes);
        self.extent() == other.extent()
            && a.offset == b.offset
            && (Arc::ptr_eq(&a.node, &b.node) || a.node == b.node)
    }

    /// `count` copies, each an extent further on: what operations take.
    #[inline]
    pub fn times(&self, count: usize) -> Shape<'_> {
        Shape { layout: self, count }
    }
}

/// Some copies of a layout, each an extent further on than the one before.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'l> {
    /// The layout.
    pub layout: &'l Layout,
    /// How many copies.
    pub count: usize,
}

impl Shape<'_> {
    /// Bytes of data, as packed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond 2^61.
    #[inline]
    pub fn size(&self) -> Result<usize> {
        size(self.layout.size().checked_mul(self.count))
    }

    /// Offsets of the lowest byte of data and of one past the highest; both 0 if there is none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond 2^61.
    pub fn true_bounds(&self) -> Result<(isize, isize)> {
        self.size()?;
        let bytes = &self.layout.0.bytes;
        if self.count == 0 || bytes.is_empty() {
            return Ok((0, 0));
        }
        let span = scaled(self.count - 1, self.layout.extent())?;
        let low = offset(self.layout.true_lower_bound().checked_add(span.min(0)))?;
        let high = offset(bytes.offset.checked_add(bytes.node.high))?;
        Ok((low, offset(high.checked_add(span.max(0)))?))
    }

    /// The length of the single run that it is, and its offset; nothing if it is several.
    #[inline]
    pub fn single(&self) -> Option<(isize, usize)> {
        let bytes = &self.layout.0.bytes;
        let len = bytes.node.single()?;
        let dense = self.count == 1 || isize::try_from(len) == Ok(self.layout.extent());
        let whole = len.checked_mul(self.count)?;
        (dense && self.count > 0).then_some((bytes.offset, whole))
    }

    /// Whether every run lies at a multiple of `to`, a power of two up to 64, if displacement 0
    /// lies at the address `base`.
    pub fn is_aligned(&self, base: usize, to: usize) -> bool {
        let bytes = &self.layout.0.bytes;
        if self.count == 0 || bytes.is_empty() {
            return true;
        }
        let mask = to - 1;
        let first = base.wrapping_add_signed(bytes.offset);
        let copies = self.count == 1 || (self.layout.extent() as usize) & mask == 0;
        first & mask == 0 && bytes.node.grain >= to && copies
    }
}
