//! Operations with a shape at the target, whatever reaches it.

use super::away::Operands;
use super::direct::carry_out;
use super::transfer::Action;
use crate::base::{Error, Rank, Result, stores};
use crate::layout::{Datum, Kind, Op, Shape};
use crate::rma::Window;
use crate::rma::kind::{Place, Span};
use crate::rma::remote::{Landing, Memory, Operation};

impl<T: Datum> Window<T> {
    /// Carries an operation out on the bytes of `there` around displacement `start` of `target`.
    ///
    /// # Errors
    /// Before anything is changed: [`Error::OutOfBounds`] if a byte lies outside of the target's
    /// part; [`Error::InvalidArgument`] if the sides do not have the same number of bytes, or, for
    /// updates, not elements of the same kind, or if those are not aligned at the target.
    pub(super) fn shaped(
        &self,
        what: &'static str,
        (target, start, there): (Rank, usize, Shape<'_>),
        operands: Operands<'_>,
    ) -> Result<()> {
        let bytes = there.size()?;
        let operands = Operands { bytes, shape: Some(there), ..operands };
        check_sides(what, &operands)?;
        let (lower, upper) = there.true_bounds()?;
        let span = Span { lower, upper, align: 1 };
        let place = self.core().place_span(what, target, start, span)?;
        let address = match place {
            Place::Here(at) => at.addr(),
            // Parts begin where elements may lie; in a dynamic window this is the address.
            Place::Away(at) => at as usize,
        };
        if operands.kind.is_some_and(|kind| !there.is_aligned(address, kind.align())) {
            return Err(misaligned::<T>(what));
        }
        match place {
            Place::Away(at) => self.away(what, target, at, operands).map(drop),
            Place::Here(at) => {
                let Operands { action, kind, bytes, shape, origin, compare, landing } = operands;
                let operation = Operation {
                    what,
                    target,
                    at: 0,
                    bytes,
                    shape,
                    action,
                    kind,
                    element: size_of::<T>().max(1),
                    origin,
                    compare,
                    landing,
                };
                stores::note();
                // SAFETY: `place_span` checked the bounds of the shape; whoever made the memories
                // those of theirs (`within`); the sizes are equal.
                unsafe { carry_out(&self.domain(), &operation, at) }
            }
        }
    }
}

fn check_sides(what: &'static str, operands: &Operands<'_>) -> Result<()> {
    let Operands { action, bytes, shape, origin, landing, .. } = operands;
    let result = match landing {
        Landing::Here(memory) => Some(memory),
        _ => None,
    };
    let reads_only = *action == Action::GetAccumulate(Op::NoOp) && origin.bytes == 0;
    let sends = *action != Action::Get && !reads_only;
    if sends && origin.bytes != *bytes {
        return Err(differ(what, "origin", origin.bytes, *bytes));
    }
    if let Some(result) = result.filter(|result| result.bytes != *bytes) {
        return Err(differ(what, "result", result.bytes, *bytes));
    }
    let Some(kind) = operands.kind else { return Ok(()) };
    let sides = [*shape, origin.shape, result.and_then(|result| result.shape)];
    for side in sides.into_iter().flatten().filter(|side| side.layout.size() > 0) {
        if side.layout.kind() != Some(kind) {
            return Err(other_kind(what, kind, side.layout.kind()));
        }
    }
    Ok(())
}

/// The bytes of `shape` in a memory of `bytes` bytes.
///
/// # Errors
/// [`Error::InvalidArgument`] if they do not lie in it.
pub(super) fn within<'m>(
    what: &'static str,
    memory: Memory<'m>,
    shape: Shape<'m>,
) -> Result<Memory<'m>> {
    let (lower, upper) = shape.true_bounds()?;
    let bytes = memory.bytes;
    if lower < 0 || upper as usize > bytes {
        let why = format!(
            "the layout covers bytes {lower}..{upper} of this rank's memory, which has {bytes}"
        );
        return Err(Error::invalid(what, why));
    }
    Ok(memory.shaped(shape, shape.size()?))
}

#[cold]
fn misaligned<T>(what: &'static str) -> Error {
    let why = format!(
        "the layout puts elements at the target where they are not at multiples of {} bytes; \
         accumulates update whole, aligned elements",
        align_of::<T>()
    );
    Error::invalid(what, why)
}

#[cold]
fn differ(what: &'static str, side: &str, here: usize, there: usize) -> Error {
    let why = format!("{here} bytes of {side} for {there} bytes at the target: want as many");
    Error::invalid(what, why)
}

#[cold]
fn other_kind(what: &'static str, want: Kind, got: Option<Kind>) -> Error {
    let got = got.map_or("elements of several kinds, or only bytes".into(), |k| format!("{k:?}"));
    let why = format!("the window's elements are {want:?}, the layout's {got}: want the same");
    Error::invalid(what, why)
}
