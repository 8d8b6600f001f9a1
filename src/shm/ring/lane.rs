//! The lane: a ring of cells from one producer to one consumer, whose sides are `lane_sender` and
//! `lane_receiver`.
//!
//! ```text
//! line 0      head   published by the consumer, now and then; `space` to wait on it
//! line 2      grant  generation << 1 | revoked;  `start`: where the next producer begins;
//!             `longer`: from which lap on laps are of all cells
//! line 4..    cells
//! ```
//! The producer keeps its place to itself; the consumer finds the next message by the lap in its
//! cell's tag. So a message of up to 48 bytes moves exactly one cache line, and no atomic
//! read-modify-write is needed. The first cell's tag is stored last: a producer that dies while
//! it writes leaves nothing that the consumer could see, and nothing to clean up.
//!
//! # Several in a cell
//!
//! How long a line takes is what short messages cost, so a stream of them shares lines:
//!
//! * A message whose label, length and first word (in which the layer above has rank and tag) are those of the
//!   cell's first one leaves only what it has behind that word: five messages of 8 bytes and their words make
//!   a cell.
//! * Another one of up to 24 bytes may have the half that one of up to 16 leaves free.
//!
//! ```text
//! producer                            consumer, behind the first message of a cell
//!   first message; tag = committed      tag of the next cell?  then that of this one:
//!   ...                                   says of more?          take the next of those
//!   another one; tag says so              it does not, but the next is there: go on to that
//!   next cell; its tag = committed        neither: nothing has come
//! ```
//! Who finds the next cell's tag written sees all that was written before, so also what has come to this one.
//! The consumer counts the cell as free only once it has gone on.
//!
//! # Growing
//!
//! A stream moves several times as many messages where it does not come back to a line soon: with 252 cells a
//! lap 9 M of 512 B a second, with 8188 16 M. But so many for every connection would be much memory. So a
//! lap has [`SHORT_CELLS`] until a message has found no room, or twice as much has gone through as the lane can
//! hold, and there is memory; then laps are of all cells, from the beginning of the next one on, which the producer
//! says in `longer` before its first message in that lap.
//!
//! ```text
//!   lap L-1   [ 0 .................. 251 ]
//!   lap L     [ 0 .................. 251 | 252 ....................... 8187 ]    longer = L
//! ```
//! The consumer looks at `longer` when it comes to the end of a short lap: if that is lap L or a later one, it has
//! seen a message that was sent after the word was written. Into lap L the producer may write up to the cell at
//! which the consumer is in lap L-1, as always, and beyond 251 once that has come to lap L.
//!
//! # Changing hands
//!
//! A lane lies in the memory of its consumer, who may take it back without the producer's help.
//! Beside the lane this takes a word in the *producer's* own memory, `sending`, which no other
//! process writes (in the lane it would be written by a former producer that wakes up late, and
//! so hide what the present one does):
//!
//! ```text
//! producer, for each message                 consumer
//!   sending = 1                                grant |= revoked
//!   light_fence                                heavy_fence
//!   grant as it was granted?                   sending == 0, or the producer is dead?
//!     no:  sending = 0; never again              then the producer will never again write here:
//!     yes: write; sending = 0 (Release)          drain what is there, move `start` to a fresh
//!                                                lap, and let somebody else have the lane
//! ```
//! Either the producer sees the revocation, or the consumer sees `sending`. The next producer
//! gets another generation, so the former one never takes the grant for its own. It begins at a
//! fresh lap, so nothing that is left in the cells looks like its messages, and the pages of the
//! cells (but not the first, which holds the control lines) may be given back in between: zeros
//! look like nothing, too.

use super::cell::Cell;
use crate::base::sync::AtomicU64;
#[cfg(all(test, not(loom)))]
use crate::base::sync::Ordering;
use crate::shm::park::WaitCell;

/// Cells of a lane, and of a lap of one that has not grown.
pub const LANE_CELLS: usize = 8188;
pub const SHORT_CELLS: usize = 252;

pub(super) const WHAT: &str = "a lane";

#[repr(C, align(128))]
pub(super) struct HeadLine {
    pub(super) head: AtomicU64,
    pub(super) space: WaitCell,
}

#[repr(C, align(128))]
pub(super) struct GrantLine {
    pub(super) grant: AtomicU64,
    pub(super) start: AtomicU64,
    /// `1 << 32 | lap`: the first of the long laps; 0 while there is none.
    pub(super) longer: AtomicU64,
}

/// A lane as it lies in shared memory. All zeros is a lane never granted.
#[repr(C)]
pub struct LaneMemory<const N: usize = LANE_CELLS, const S: usize = SHORT_CELLS> {
    pub(super) head: HeadLine,
    pub(super) grant: GrantLine,
    pub(super) cells: [Cell; N],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    type Lane = LaneMemory;
    assert!(offset_of!(Lane, grant) == 128 && offset_of!(Lane, cells) == 256);
    assert!(offset_of!(HeadLine, space) == 8 && offset_of!(GrantLine, start) == 8);
    assert!(offset_of!(GrantLine, longer) == 16);
    assert!(size_of::<LaneMemory>() as u64 == crate::shm::segment::LANE_BYTES);
    let short = offset_of!(Lane, cells) + SHORT_CELLS * size_of::<Cell>();
    assert!(short as u64 == crate::shm::segment::SHORT_LANE_BYTES);
};

#[cfg(not(loom))]
// SAFETY: repr(C); atomics, and cell bodies owned by tag and head; all bit patterns valid.
unsafe impl<const N: usize, const S: usize> crate::shm::region::SharedLayout for LaneMemory<N, S> {}

impl<const N: usize, const S: usize> LaneMemory<N, S> {
    /// A lane in private memory, for tests and measurements.
    pub fn new() -> Self {
        LaneMemory {
            head: HeadLine { head: AtomicU64::new(0), space: WaitCell::new() },
            grant: GrantLine {
                grant: AtomicU64::new(0),
                start: AtomicU64::new(0),
                longer: AtomicU64::new(0),
            },
            cells: std::array::from_fn(|_| Cell::new()),
        }
    }

    /// The cells of a lap of so many.
    #[inline(always)]
    pub(super) fn lap(&self, cells: usize) -> &[Cell] {
        self.cells.get(..cells).unwrap_or(&self.cells)
    }

    /// Rung when the consumer has published room, and when it has revoked the grant.
    pub fn space(&self) -> &WaitCell {
        &self.head.space
    }
}

impl<const N: usize, const S: usize> Default for LaneMemory<N, S> {
    fn default() -> Self {
        LaneMemory::new()
    }
}

/// Which grant of a lane is meant: producer and consumer must mean the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(pub(super) u32);

impl Generation {
    /// Bits by which a generation is told from others in a message.
    pub const BITS: u32 = 24;

    /// The low [`Generation::BITS`] bits.
    pub fn low_bits(self) -> u64 {
        u64::from(self.0) & ((1 << Self::BITS) - 1)
    }
}

#[cfg(all(test, not(loom)))]
impl<const N: usize, const S: usize> LaneMemory<N, S> {
    /// Overwrites a tag or, from place N on, a control word.
    pub(super) fn overwrite(&self, place: usize, value: u64) {
        match place.checked_sub(N) {
            None => self.cells[place].tag.store(value, Ordering::Relaxed),
            Some(_) => self.head.head.store(value, Ordering::Relaxed),
        }
    }
}
