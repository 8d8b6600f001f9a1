//! Where a target's elements are, and how they are reached.
//!
//! A displacement `start` of a target lies `start * unit` bytes into its part. Windows whose parts
//! are all alike and mapped are handled by [`Window::place`](super::super::Window) with arithmetic
//! alone; this is the general case.

use super::dynamic::Attachments;
use crate::base::{Error, Offset, Rank, Result};
use crate::rma::block::{REACH_MAPPED, REACH_PRIVATE};
use crate::rma::core::{Core, Own};
use crate::rma::directory::Directory;
use crate::shm::region::locate;
use std::sync::Arc;

/// Where elements of a target are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<T> {
    /// At this address of this process.
    Here(*mut T),
    /// In memory that this process cannot or shall not touch: packets reach it. Bytes from the
    /// beginning of the target's part, or the address in a dynamic window.
    Away(u64),
}

/// How the parts of a window are found.
#[derive(Debug)]
pub(crate) enum Parts {
    /// All have these many bytes and this unit, at the same offset of every stride: nothing is
    /// looked up.
    Uniform {
        /// Bytes of each part.
        bytes: usize,
        /// Bytes per displacement.
        unit: usize,
    },
    /// Each has its record in the window's block; the directory spares looking there where the
    /// records follow a pattern.
    Table(Box<Directory>),
    /// What the owners have attached at the moment: see `kind::dynamic`.
    Dynamic(Arc<Attachments>),
}

/// What is known of one member's part, by value: what a record says, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Address in this process, unless it is away.
    pub first: Option<*mut u8>,
    /// Bytes of the part.
    pub bytes: usize,
    /// Bytes per displacement.
    pub unit: usize,
}

/// Bytes `lower..upper` around a displacement, and the alignment of the displacement itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub lower: isize,
    pub upper: isize,
    pub align: usize,
}

impl Span {
    /// `count` elements of a type, from the displacement on.
    pub fn of<T>(count: usize) -> Option<Span> {
        let upper = isize::try_from(count.checked_mul(size_of::<T>())?).ok()?;
        Some(Span { lower: 0, upper, align: align_of::<T>() })
    }
}

impl Core {
    /// The part of a member.
    #[inline]
    pub fn part_of(&self, what: &'static str, target: Rank) -> Result<Part> {
        let size = self.block.team.size();
        if target.0 >= size {
            let why = format!("target {target} is not a rank of a team of {size}");
            return Err(Error::invalid(what, why));
        }
        if target == self.block.team.rank() && !matches!(self.parts, Parts::Dynamic(_)) {
            let Own { first, bytes, unit } = self.own;
            // By packets too, so that whatever happens to a part happens in one order.
            let first = if self.packets { None } else { Some(first) };
            return Ok(Part { first, bytes, unit });
        }
        match self.parts {
            Parts::Uniform { bytes, unit } if self.packets => Ok(Part { first: None, bytes, unit }),
            Parts::Uniform { bytes, unit } if !self.block.is_here(target.0) => {
                Ok(Part { first: None, bytes, unit })
            }
            Parts::Uniform { bytes, unit } => {
                let slot = self.block.team.slot_of(target)?;
                let at = self.block.team.node().areas().heap(slot).0 + self.block.heap;
                Ok(Part { first: self.mapped(Offset(at), bytes)?, bytes, unit })
            }
            Parts::Dynamic(_) => Ok(Part { first: None, bytes: 0, unit: 1 }),
            Parts::Table(ref directory) => {
                // What is the same on all nodes does not say where a part lies on this one.
                let near = self.block.spans && self.block.is_here(target.0);
                let computed = if near { None } else { directory.computed(target.0) };
                let entry = match computed {
                    Some(entry) => entry,
                    None if near => self.block.info(target.0).entry(),
                    None => self.block.entry(target.0),
                };
                let (Ok(bytes), unit) = (usize::try_from(entry.bytes), entry.unit as usize) else {
                    return Err(damaged());
                };
                let first = match entry.reach {
                    REACH_MAPPED => self.mapped(Offset(entry.offset), bytes)?,
                    REACH_PRIVATE => None,
                    _ => return Err(damaged()),
                };
                Ok(Part { first, bytes, unit })
            }
        }
    }

    /// Where the bytes of `span` around displacement `start` of `target` are, for an operation. The
    /// address is that of the displacement, which itself may lie outside of the span.
    ///
    /// On several nodes packets synchronise the members: what is here is so once the open epoch gives
    /// access to it, for which this waits.
    pub fn place_span(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        span: Span,
    ) -> Result<Place<u8>> {
        let place = self.find_span(what, target, start, span)?;
        if self.block.spans && matches!(place, Place::Here(_)) {
            self.reach(what, target)?;
        }
        Ok(place)
    }

    /// Waits until the open epoch of a window on several nodes gives access to a part on this node.
    pub fn reach(&self, what: &'static str, target: Rank) -> Result<()> {
        self.remote().map_or(Ok(()), |remote| remote.reach(what, target))
    }

    fn find_span(
        &self,
        what: &'static str,
        target: Rank,
        start: usize,
        span: Span,
    ) -> Result<Place<u8>> {
        if matches!(self.parts, Parts::Dynamic(_)) {
            return self.place_attached(what, target, start, span);
        }
        let part = self.part_of(what, target)?;
        let Some(at) = inside(part, start, span) else {
            return Err(outside(what, target, start, span, part));
        };
        match part.first {
            None => Ok(Place::Away(at as u64)),
            Some(first) => {
                let here = first.wrapping_add(at);
                if here.addr().is_multiple_of(span.align) {
                    Ok(Place::Here(here))
                } else {
                    Err(misaligned(what, start, part.unit, span.align))
                }
            }
        }
    }

    /// The address of a range of the segment; none where packets are to be used.
    fn mapped(&self, at: Offset, bytes: usize) -> Result<Option<*mut u8>> {
        if self.packets {
            return Ok(None);
        }
        let node = self.block.team.node();
        locate(node.mapping(), at, bytes as u64, 1).map(|first| Some(first.as_ptr()))
    }
}

/// Offset of displacement `start` in the part, if the span around it lies inside.
fn inside(part: Part, start: usize, span: Span) -> Option<usize> {
    let at = start.checked_mul(part.unit)?;
    let from = at.checked_add_signed(span.lower)?;
    let to = at.checked_add_signed(span.upper)?;
    (from <= to && to <= part.bytes).then_some(at)
}

#[cold]
fn outside(what: &'static str, rank: Rank, start: usize, span: Span, part: Part) -> Error {
    let unit = part.unit.max(1);
    let end = start.saturating_add(span.upper.max(0).unsigned_abs().div_ceil(unit));
    Error::OutOfBounds {
        what,
        rank,
        start: start as u64,
        end: end as u64,
        len: (part.bytes / unit) as u64,
    }
}

#[cold]
pub(super) fn misaligned(what: &'static str, start: usize, unit: usize, align: usize) -> Error {
    let why = format!(
        "displacement {start} in units of {unit} bytes is not at a multiple of {align} bytes, \
         which the elements need; use other displacements or another unit"
    );
    Error::invalid(what, why)
}

#[cold]
pub(crate) fn damaged() -> Error {
    Error::Incompatible {
        what: "the record of a window's part",
        why: "some process has overwritten it; end the job".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(bytes: usize, unit: usize) -> Part {
        Part { first: None, bytes, unit }
    }

    #[test]
    fn sums_that_do_not_fit_are_outside() {
        let span = Span { lower: 0, upper: 8, align: 8 };
        assert_eq!(inside(part(64, 8), 7, span), Some(56));
        assert_eq!(inside(part(64, 8), 8, span), None);
        assert_eq!(inside(part(64, 8), usize::MAX, span), None);
        assert_eq!(inside(part(64, 8), usize::MAX / 8 + 1, span), None);
        assert_eq!(inside(part(usize::MAX, 1), usize::MAX - 7, span), None);
        assert!(Span::of::<u64>(usize::MAX / 4).is_none());
        assert!(Span::of::<u64>(usize::MAX / 17).is_some());
    }

    proptest! {
        #[test]
        fn agrees_with_wide_arithmetic(
            bytes in 0usize..300,
            unit in 1usize..20,
            start in prop_oneof![0usize..40, Just(usize::MAX), Just(usize::MAX / 3)],
            lower in -50isize..50,
            length in 0isize..60,
        ) {
            let span = Span { lower, upper: lower + length, align: 1 };
            let at = start as i128 * unit as i128;
            let (from, to) = (at + lower as i128, at + (lower + length) as i128);
            let want = from >= 0 && to <= bytes as i128;
            let got = inside(part(bytes, unit), start, span);
            prop_assert_eq!(got, want.then_some(at as usize));
        }
    }
}
