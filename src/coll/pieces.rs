//! Larger data through each member's pieces: write the piece of the coming phase, synchronise,
//! read the others' pieces. The two halves of the pieces make one barrier per piece enough (see
//! `block`).
//!
//! Data for single members lie in lanes, one for each receiver, side by side in a piece:
//!
//! ```text
//! | lane 0              | lane 1              | ...          each a multiple of 64 bytes
//! ```
//! Where there are more receivers than lanes of a useful size, they have their turns.

use super::block::PIECE;
use super::core::Core;
use crate::base::copy::opaque_copy;
use crate::base::long::{Kind, long_copy_in};
use std::ops::Range;

impl Core {
    /// Copies bytes into this member's piece for the coming phase, from byte `at` of it on.
    pub fn show_piece(&self, at: usize, bytes: &[u8]) {
        let (at, len) = within(at, bytes.len());
        let to = self.block.piece(self.rank, self.coming());
        // SAFETY: inside this member's own piece of PIECE bytes; nobody reads it between the end
        // of phase coming - 2 and the barrier of `coming` (see the module `block`).
        unsafe { long_copy_in(Kind::Piece, to.add(at), bytes.as_ptr(), len) };
    }

    /// Copies bytes out of a member's piece of a phase that this member has synchronised.
    pub fn look_piece(&self, rank: u32, phase: u32, at: usize, into: &mut [u8]) {
        let (at, len) = within(at, into.len());
        let from = self.block.piece(rank, phase);
        // SAFETY: inside a piece of PIECE bytes whose owner wrote it before the barrier of
        // `phase` and does not write it again before this member enters phase + 1.
        unsafe { opaque_copy(into.as_mut_ptr(), from.add(at), len) };
    }

    /// Calls `with` on bytes of a member's piece of the phase that this member has synchronised
    /// last.
    pub fn with_piece(
        &self,
        rank: u32,
        phase: u32,
        range: Range<usize>,
        with: &mut dyn FnMut(&[u8]),
    ) {
        let (at, len) = within(range.start, range.len());
        let from = self.block.piece(rank, phase);
        // SAFETY: inside a piece of PIECE bytes whose owner wrote it before the barrier of
        // `phase` and leaves it alone until this member enters the next one, which it does not
        // do while `with` runs; so nobody writes it for the life of the slice.
        with(unsafe { std::slice::from_raw_parts(from.add(at), len) });
    }

    /// Copies bytes into this member's result piece, from byte `at` of it on.
    pub fn show_result(&self, at: usize, bytes: &[u8]) {
        let (at, len) = within(at, bytes.len());
        let to = self.block.result(self.rank);
        // SAFETY: the result piece is this member's own; readers of the previous results have
        // finished before they entered the phase that this member has synchronised last.
        unsafe { long_copy_in(Kind::Piece, to.add(at), bytes.as_ptr(), len) };
    }

    /// Copies bytes out of a member's result piece, after the barrier behind its writing.
    pub fn look_result(&self, rank: u32, at: usize, into: &mut [u8]) {
        let (at, len) = within(at, into.len());
        let from = self.block.result(rank);
        // SAFETY: inside the result piece; the owner wrote it before the barrier that this member
        // has passed and writes it again only after this member has entered the next phase.
        unsafe { opaque_copy(into.as_mut_ptr(), from.add(at), len) };
    }
}

/// Keeps a range within a piece; callers cut data so that this changes nothing.
fn within(at: usize, len: usize) -> (usize, usize) {
    let at = at.min(PIECE);
    (at, len.min(PIECE - at))
}

/// How a piece is divided among receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Lanes in a piece.
    pub count: usize,
    /// Bytes of a lane.
    pub stride: usize,
    /// Bytes of data in a lane, whole units.
    pub room: usize,
}

/// Least bytes of a lane.
const LEAST: usize = 256;

impl Lanes {
    /// For so many receivers, data in units of `unit` bytes behind a head of `head`.
    pub fn new(receivers: usize, unit: usize, head: usize) -> Lanes {
        let least = (unit + head).next_multiple_of(64).max(LEAST);
        let count = receivers.min(PIECE / least).max(1);
        let stride = PIECE / count / 64 * 64;
        Lanes { count, stride, room: (stride - head) / unit * unit }
    }

    /// Turns in which so many receivers are served.
    pub fn turns(&self, receivers: usize) -> usize {
        receivers.div_ceil(self.count)
    }

    /// Rounds of each turn for at most so many bytes to each.
    pub fn rounds(&self, most: usize) -> usize {
        most.div_ceil(self.room)
    }

    /// What goes in a round of data that lie at `range`.
    pub fn cut(&self, range: Range<usize>, round: usize) -> Range<usize> {
        cut(range, round, self.room)
    }
}

/// Part `index` of a range that is cut into parts of `room`.
pub(super) fn cut(range: Range<usize>, index: usize, room: usize) -> Range<usize> {
    let start = range.start.saturating_add(index.saturating_mul(room)).min(range.end);
    start..start.saturating_add(room).min(range.end)
}

/// Elements of `len` bytes in units that a member combines.
pub(super) fn share(rank: u32, members: u32, len: usize, unit: usize) -> Range<usize> {
    let (rank, members, units) = (rank as usize, members as usize, len / unit);
    let at = |rank: usize| (units as u128 * rank as u128 / members as u128) as usize * unit;
    at(rank)..at(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_fit_and_hold_something(
            receivers in 1usize..70_000, unit in 1usize..=PIECE, head in 0usize..2,
        ) {
            let head = if unit + 8 > PIECE { 0 } else { head * 8 };
            let lanes = Lanes::new(receivers, unit, head);
            prop_assert!(lanes.count >= 1 && lanes.count <= receivers);
            prop_assert!(lanes.count * lanes.stride <= PIECE);
            prop_assert!(lanes.room >= unit && lanes.room.is_multiple_of(unit));
            prop_assert!(lanes.room + head <= lanes.stride && lanes.stride.is_multiple_of(64));
            prop_assert!(lanes.turns(receivers) * lanes.count >= receivers);
        }

        #[test]
        fn cuts_and_shares_cover_everything_once(
            start in 0usize..1000, len in 0usize..100_000, room in 1usize..20_000,
            members in 1u32..40, unit in 1usize..50,
        ) {
            let range = start..start + len;
            let mut at = start;
            for index in 0..len.div_ceil(room) {
                let part = cut(range.clone(), index, room);
                prop_assert_eq!(part.start, at);
                prop_assert!(!part.is_empty() && part.len() <= room);
                at = part.end;
            }
            prop_assert_eq!(at, range.end);
            prop_assert!(cut(range.clone(), len.div_ceil(room), room).is_empty());
            let len = len / unit * unit;
            let mut at = 0;
            for rank in 0..members {
                let part = share(rank, members, len, unit);
                prop_assert_eq!(part.start, at);
                prop_assert!(part.len().is_multiple_of(unit));
                prop_assert!(part.len() <= (len / unit).div_ceil(members as usize) * unit);
                at = part.end;
            }
            prop_assert_eq!(at, len);
        }
    }
}
