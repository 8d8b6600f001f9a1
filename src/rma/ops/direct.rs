//! Carrying out an operation on mapped memory, by the origin itself.
//!
//! ```text
//!  target   |=====|   |==|    |=======|      pieces of its shape, in packed order
//!  origin   |==|  |=====|  |======|          pieces of the origin's shape
//!  steps     --  --- --     -- ----          what both sides have contiguous
//! ```
//! The target's, the origin's and the result's pieces are walked through side by side; nothing is
//! packed in between.

use super::transfer::Action;
use crate::base::long::{Kind, long_copy_in};
use crate::base::{Error, Result};
use crate::layout::{Comb, Cursor, Shape};
use crate::rma::accumulate::Domain;
use crate::rma::remote::{Landing, Memory, Operation};
use crate::shm::copy::{copy_in, copy_out};

/// Contiguous bytes ahead, of one of the memories that take part.
struct Side<'s> {
    at: *mut u8,
    left: usize,
    /// Where displacement 0 lies, and the pieces to come.
    zero: *mut u8,
    cursor: Option<Cursor<'s>>,
}

impl<'s> Side<'s> {
    fn new(at: *mut u8, bytes: usize, shape: Option<Shape<'s>>) -> Result<Side<'s>> {
        match shape.map(|shape| (shape, shape.single())) {
            None => Ok(Side { at, left: bytes, zero: at, cursor: None }),
            Some((_, Some((offset, left)))) => {
                Ok(Side { at: at.wrapping_offset(offset), left, zero: at, cursor: None })
            }
            Some((shape, None)) => {
                Ok(Side { at, left: 0, zero: at, cursor: Some(Cursor::new(shape)?) })
            }
        }
    }

    fn of(memory: &Memory<'s>) -> Result<Side<'s>> {
        Side::new(memory.at, memory.bytes, memory.shape)
    }

    /// How many contiguous bytes are ahead; 0 at the end.
    #[inline]
    fn ahead(&mut self) -> usize {
        if self.left == 0
            && let Some(piece) = self.cursor.as_mut().and_then(|c| c.next_piece(usize::MAX))
        {
            self.at = self.zero.wrapping_offset(piece.offset);
            self.left = piece.len;
        }
        self.left
    }

    /// The next runs, if several of the same length at equal distances come next.
    #[inline]
    fn comb(&mut self, most: usize) -> Option<(*mut u8, Comb)> {
        if self.left > 0 {
            return None;
        }
        let comb = self.cursor.as_mut()?.next_comb(most)?;
        Some((self.zero.wrapping_offset(comb.offset), comb))
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let at = self.at;
        self.at = at.wrapping_add(bytes);
        self.left -= bytes;
        at
    }
}

/// Copies the bytes of one shape around `from` to those of another one around `to`, in packed
/// order: all in memory of this process's own.
///
/// Cost: the copy, and a few instructions per piece that both have contiguous.
///
/// # Errors
/// [`Error::InvalidArgument`] if the shapes do not have the same number of bytes, after as many as
/// the shorter one has.
///
/// # Safety
/// The bytes of the shapes around `from` may be read, those around `to` written; they do not
/// overlap, and nobody else writes the former or accesses the latter meanwhile.
pub(crate) unsafe fn reshape(
    from: *const u8,
    here: Shape<'_>,
    to: *mut u8,
    there: Shape<'_>,
) -> Result<()> {
    let mut source = Side::new(from.cast_mut(), 0, Some(here))?;
    let mut sink = Side::new(to, 0, Some(there))?;
    // SAFETY: the caller's; each piece lies within its shape.
    let copy = |to: *mut u8, from: *mut u8, n| unsafe { to.copy_from_nonoverlapping(from, n) };
    loop {
        if let Some(teeth) = sink.comb(source.ahead()) {
            let dense = source.take(teeth.1.len * teeth.1.count);
            each_tooth(teeth, dense, copy);
            continue;
        }
        if let Some(teeth) = source.comb(sink.ahead()) {
            let dense = sink.take(teeth.1.len * teeth.1.count);
            each_tooth(teeth, dense, |from, to, n| copy(to, from, n));
            continue;
        }
        match (source.ahead(), sink.ahead()) {
            (0, 0) => return Ok(()),
            (n, m) => {
                let n = some(n.min(m))?;
                copy(sink.take(n), source.take(n), n);
            }
        }
    }
}

/// Copies runs between a comb and contiguous bytes; `copy` gets the comb's address first.
#[inline(always)]
fn each_tooth(
    (first, comb): (*mut u8, Comb),
    dense: *mut u8,
    copy: impl Fn(*mut u8, *mut u8, usize),
) {
    let (mut at, mut dense) = (first, dense);
    // Lengths that are known make the copies single loads and stores.
    macro_rules! each {
        ($len:expr) => {
            for _ in 0..comb.count {
                copy(at, dense, $len);
                at = at.wrapping_offset(comb.stride);
                dense = dense.wrapping_add($len);
            }
        };
    }
    match comb.len {
        1 => each!(1),
        2 => each!(2),
        4 => each!(4),
        8 => each!(8),
        len => each!(len),
    }
}

/// Carries `operation` out on the target's memory, in which its displacement lies at `at`.
///
/// # Errors
/// What the domain reports.
///
/// # Safety
/// The bytes of the operation's shape around `at` lie in the target's mapped part. Its memories
/// are private, and long enough for their shapes; together with the target's shape they have the
/// same number of bytes, where the action uses them.
pub(super) unsafe fn carry_out(
    domain: &Domain,
    operation: &Operation<'_>,
    at: *mut u8,
) -> Result<()> {
    let Operation { target, action, bytes, .. } = *operation;
    let mut there = Side::new(at, bytes, operation.shape)?;
    let mut origin = Side::of(&operation.origin)?;
    let mut result = match &operation.landing {
        Landing::Here(memory) => Side::of(memory)?,
        _ => Side::of(&Memory::NONE)?,
    };
    loop {
        // Runs at equal distances on one side, and contiguous bytes on the other.
        match action {
            Action::Put => {
                if let Some(teeth) = there.comb(origin.ahead()) {
                    let dense = origin.take(teeth.1.len * teeth.1.count);
                    // SAFETY: as below, for each run.
                    each_tooth(teeth, dense, |to, from, n| unsafe { copy_in(to, from, n) });
                    continue;
                }
                if let Some(teeth) = origin.comb(there.ahead()) {
                    let dense = there.take(teeth.1.len * teeth.1.count);
                    // SAFETY: as below, for each run.
                    each_tooth(teeth, dense, |from, to, n| unsafe { copy_in(to, from, n) });
                    continue;
                }
            }
            Action::Get => {
                if let Some(teeth) = there.comb(result.ahead()) {
                    let dense = result.take(teeth.1.len * teeth.1.count);
                    // SAFETY: as below, for each run.
                    each_tooth(teeth, dense, |from, to, n| unsafe { copy_out(to, from, n) });
                    continue;
                }
                if let Some(teeth) = result.comb(there.ahead()) {
                    let dense = there.take(teeth.1.len * teeth.1.count);
                    // SAFETY: as below, for each run.
                    each_tooth(teeth, dense, |to, from, n| unsafe { copy_out(to, from, n) });
                    continue;
                }
            }
            Action::Accumulate(op) => {
                if let Some(kind) = operation.kind
                    && let Some(teeth) = there.comb(origin.ahead())
                {
                    let dense = origin.take(teeth.1.len * teeth.1.count);
                    // SAFETY: as below, for each run.
                    unsafe { domain.update_teeth(target, kind, op, teeth, dense)? };
                    continue;
                }
            }
            _ => {}
        }
        let ahead = there.ahead();
        if ahead == 0 {
            return Ok(());
        }
        // SAFETY: as many bytes are ahead on each side that the action uses; the target's lie in
        // its part, the others in private memory, so nothing overlaps.
        unsafe {
            match (action, operation.kind) {
                (Action::Put, _) => {
                    let n = ahead.min(origin.ahead());
                    long_copy_in(Kind::Part, there.take(n), origin.take(n), some(n)?);
                }
                (Action::Get, _) => {
                    let n = ahead.min(result.ahead());
                    copy_out(result.take(n), there.take(n), some(n)?);
                }
                (Action::Accumulate(op), Some(kind)) => {
                    let n = ahead.min(origin.ahead());
                    let count = some(n)? / kind.size();
                    domain.update(target, kind, op, there.take(n), count, origin.take(n), None)?;
                }
                (Action::GetAccumulate(op), Some(kind)) => {
                    // An operation without operands (`NoOp`) looks at none; its result stands in.
                    let operands = operation.origin.bytes > 0;
                    let n = ahead.min(result.ahead());
                    let n = if operands { n.min(origin.ahead()) } else { n };
                    let count = some(n)? / kind.size();
                    let into = result.take(n);
                    let from = if operands { origin.take(n) } else { into };
                    domain.update(target, kind, op, there.take(n), count, from, Some(into))?;
                }
                (Action::CompareSwap, Some(kind)) => {
                    let n = some(ahead.min(result.ahead()).min(origin.ahead()))?;
                    let (new, into) = (origin.take(n), result.take(n));
                    let expected = operation.compare.at;
                    domain.update_if_equal(target, kind, there.take(n), expected, new, into)?;
                }
                _ => return Err(Error::invalid(operation.what, "it names no kind of elements")),
            }
        }
    }
}

/// The memories end together; should one end early, this says so instead of going on for ever.
#[inline]
fn some(bytes: usize) -> Result<usize> {
    if bytes > 0 { Ok(bytes) } else { Err(Error::invalid("an operation", "its sides differ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use proptest::prelude::*;

    const BYTES: usize = 48;

    /// Layouts of 48 bytes, and where they lie.
    fn layouts() -> impl Strategy<Value = (Layout, Vec<usize>)> {
        let combs = (0usize..10, 0usize..5).prop_map(|(which, gap)| {
            let len = [1, 2, 3, 4, 6, 8, 12, 16, 24, 48][which];
            let stride = len + gap;
            let layout = Layout::of::<u8>().contiguous(len).unwrap();
            let layout = layout.hvector(BYTES / len, 1, stride as isize).unwrap();
            (layout, (0..BYTES).map(|k| k / len * stride + k % len).collect())
        });
        let blocks = proptest::collection::vec((0usize..4, 1usize..9), 1..40).prop_map(|runs| {
            let (mut at, mut left) = (0, BYTES);
            let mut blocks = Vec::new();
            for (gap, len) in runs.into_iter().chain([(1, BYTES)]) {
                let len = len.min(left);
                if len == 0 {
                    break;
                }
                blocks.push(((at + gap) as isize, len));
                (at, left) = (at + gap + len, left - len);
            }
            // Some the other way round in packed order.
            let mut order: Vec<usize> = (0..blocks.len()).collect();
            if order.len().is_multiple_of(2) {
                order.reverse();
            }
            let sorted: Vec<(isize, usize)> = order.iter().map(|&i| blocks[i]).collect();
            let starts = |(at, len): &(isize, usize)| *at as usize..*at as usize + len;
            let places = sorted.iter().flat_map(starts).collect();
            (Layout::of::<u8>().hindexed(&sorted).unwrap(), places)
        });
        prop_oneof![combs, blocks]
    }

    proptest! {
        #[test]
        fn reshaping_moves_each_byte_to_its_place(from in layouts(), to in layouts()) {
            let source: Vec<u8> = (0..400).map(|i| (i % 251) as u8).collect();
            let mut sink = vec![255u8; 400];
            // SAFETY: all places are below 400.
            let done = unsafe {
                reshape(source.as_ptr(), from.0.times(1), sink.as_mut_ptr(), to.0.times(1))
            };
            prop_assert!(done.is_ok());
            let mut want = vec![255u8; 400];
            from.1.iter().zip(&to.1).for_each(|(a, b)| want[*b] = source[*a]);
            prop_assert_eq!(sink, want);
        }
    }

    #[test]
    fn shapes_that_differ_in_size_are_refused() {
        let byte = Layout::of::<u8>();
        let (source, mut sink) = ([1u8; 8], [0u8; 8]);
        for (from, to) in [(8, 7), (7, 8), (0, 1), (1, 0)] {
            // SAFETY: both have 8 bytes.
            let done = unsafe {
                reshape(source.as_ptr(), byte.times(from), sink.as_mut_ptr(), byte.times(to))
            };
            assert!(done.is_err(), "{from} {to}");
        }
    }
}
