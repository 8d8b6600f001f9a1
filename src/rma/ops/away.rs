//! Operations on parts that this process does not reach itself.
//!
//! Out of line, so that the operations on mapped parts stay short enough to be inlined.

use super::transfer::Action;
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::{Datum, Kind, Op, Shape};
use crate::rma::Window;
use crate::rma::accumulate::Element;
use crate::rma::remote::{Landing, Memory, Operation, Remote, Ticket};
use std::sync::Arc;

/// The operands of an operation besides its target's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands<'m> {
    /// What is done.
    pub action: Action,
    /// Kind of the elements, unless only bytes matter.
    pub kind: Option<Kind>,
    /// Bytes at the target.
    pub bytes: usize,
    /// How they lie there, if not one after the other.
    pub shape: Option<Shape<'m>>,
    /// What is sent.
    pub origin: Memory<'m>,
    /// What a compare-and-swap expects.
    pub compare: Memory<'m>,
    /// Where the result goes.
    pub landing: Landing<'m>,
}

impl<'m> Operands<'m> {
    /// Contiguous elements and no result.
    pub fn send<T: Datum>(action: Action, kind: Option<Kind>, values: &'m [T]) -> Operands<'m> {
        Operands {
            action,
            kind,
            bytes: size_of_val(values),
            shape: None,
            origin: Memory::of(values),
            compare: Memory::NONE,
            landing: Landing::Nothing,
        }
    }
}

impl<T: Datum> Window<T> {
    /// Hands an operation at `at` of `target`'s part (as [`Window::place`] named it) to whatever
    /// reaches that part.
    #[cold]
    pub(crate) fn away(
        &self,
        what: &'static str,
        target: Rank,
        at: u64,
        operands: Operands<'_>,
    ) -> Result<Option<Ticket>> {
        reentry::refuse_inside(what)?;
        let Operands { action, kind, bytes, shape, origin, compare, landing } = operands;
        let element = size_of::<T>().max(1);
        let operation = Operation {
            what,
            target,
            at,
            bytes,
            shape,
            action,
            kind,
            element,
            origin,
            compare,
            landing,
        };
        self.remote(what, target)?.post(&operation)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn put_away(&self, target: Rank, at: u64, values: &[T]) -> Result<()> {
        let operands = Operands::send(Action::Put, None, values);
        self.away("put", target, at, operands).map(drop)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn get_away(&self, target: Rank, at: u64, into: &mut [T]) -> Result<()> {
        let bytes = size_of_val(into);
        let landing = Landing::Here(Memory::of_mut(into));
        let operands = Operands::send::<T>(Action::Get, None, &[]);
        self.away("get", target, at, Operands { bytes, landing, ..operands }).map(drop)
    }

    /// What reaches parts that are away.
    pub(crate) fn remote(&self, what: &'static str, target: Rank) -> Result<&Arc<dyn Remote>> {
        self.core().remote().ok_or_else(|| Error::Misuse {
            what,
            why: format!("rank {target}'s part is not mapped, and the window has no packet path"),
        })
    }
}

impl<T: Element> Window<T> {
    #[cold]
    #[inline(never)]
    pub(super) fn accumulate_away(
        &self,
        target: Rank,
        at: u64,
        op: Op,
        values: &[T],
    ) -> Result<()> {
        let operands = Operands::send(Action::Accumulate(op), Some(T::KIND), values);
        self.away("accumulate", target, at, operands).map(drop)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn get_accumulate_away(
        &self,
        what: &'static str,
        target: Rank,
        at: u64,
        op: Op,
        values: &[T],
        result: &mut [T],
    ) -> Result<()> {
        let bytes = size_of_val(result);
        let landing = Landing::Here(Memory::of_mut(result));
        let operands = Operands::send(Action::GetAccumulate(op), Some(T::KIND), values);
        self.away(what, target, at, Operands { bytes, landing, ..operands }).map(drop)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn swap_away(&self, target: Rank, at: u64, expected: T, new: T) -> Result<T> {
        let (values, expected, mut old) = ([new], [expected], [new]);
        let landing = Landing::Here(Memory::of_mut(&mut old));
        let compare = Memory::of(&expected);
        let operands = Operands::send(Action::CompareSwap, Some(T::KIND), &values);
        let operands = Operands { compare, landing, ..operands };
        self.away("compare_and_swap", target, at, operands)?;
        Ok(old[0])
    }
}
