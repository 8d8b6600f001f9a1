//! Places in an endless sequence of cells, of which a ring holds the last lap.

/// `lap << 32 | index`: a place in a ring, and how often the ring had been filled before. Kept
/// packed rather than as a running count so that rings need not have a power of two of cells,
/// and nothing divides. After 2^32 laps positions repeat; a process would have to stand still
/// between two instructions for all of those (days at full rate) to be deceived by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Position(pub u64);

impl Position {
    /// The start of a lap.
    pub fn of_lap(lap: u32) -> Position {
        Position(u64::from(lap) << 32)
    }

    /// Laps before this one.
    #[inline(always)]
    pub fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Index of the cell.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// The lap as cells carry it: counted from 1, because fresh memory is zero.
    #[inline(always)]
    pub(super) fn tag_lap(self) -> u32 {
        self.lap().wrapping_add(1)
    }

    /// The position `n <= cells` further on in a ring of `cells` cells.
    #[inline(always)]
    pub(super) fn plus(self, n: usize, cells: usize) -> Position {
        let index = self.index() + n;
        if index < cells {
            Position(self.0 + n as u64)
        } else {
            Position(u64::from(self.lap().wrapping_add(1)) << 32 | (index - cells) as u64)
        }
    }

    /// The position one cell before this one, in a ring of `cells` cells.
    #[inline(always)]
    pub(super) fn before(self, cells: usize) -> Position {
        if self.index() > 0 {
            Position(self.0 - 1)
        } else {
            Position(u64::from(self.lap().wrapping_sub(1)) << 32 | (cells - 1) as u64)
        }
    }

    /// The same cell, one lap on.
    #[inline(always)]
    pub(super) fn next_lap(self) -> Position {
        Position(self.0.wrapping_add(1 << 32))
    }

    /// Cells from `earlier` to here; negative if `earlier` is later.
    #[inline(always)]
    pub(super) fn since(self, earlier: Position, cells: usize) -> i64 {
        let laps = self.lap().wrapping_sub(earlier.lap()) as i32;
        i64::from(laps) * cells as i64 + self.index() as i64 - earlier.index() as i64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn distances_and_steps_agree_across_laps_and_their_wraparound() {
        for start in [0, 1, u32::MAX - 1, u32::MAX] {
            let origin = Position::of_lap(start).plus(3, 7);
            let mut at = origin;
            let mut walked = 0;
            for step in [1, 7, 2, 6, 5, 7, 3, 4, 1, 1] {
                at = at.plus(step, 7);
                walked += step as i64;
                assert!(at.index() < 7);
                assert_eq!(at.since(origin, 7), walked);
                assert_eq!(at.before(7).plus(1, 7), at);
                assert_eq!(at.since(at.before(7), 7), 1);
                assert_eq!(origin.since(at, 7), -walked);
            }
        }
    }
}
