//! Messages of several cells: what both rings do between claim and commit, and on acquire.

use super::cell::{Cell, MORE_BYTES, cells_for};
use super::payload::Payload;
use super::position::Position;
use super::received::Scratch;
use super::tag::{COMMITTED, Label, MIDDLE, Tag};
use super::{damaged, largest};
use crate::base::sync::Ordering;
use crate::base::{Result, Slot};

/// The cell `k` places after `at`, in a lap of these cells.
#[inline(always)]
pub(super) fn cell(cells: &[Cell], at: Position, k: usize) -> &Cell {
    let index = at.index() + k;
    // Also the bounds check: positions are validated where they are read from shared memory.
    &cells[if index < cells.len() { index } else { index - cells.len() }]
}

/// Writes a message of `n` cells at `at` and commits it.
///
/// The tag of the first cell is stored last, with Release: a consumer that sees it sees all of
/// the message, and a producer that dies before leaves nothing that looks like one.
///
/// # Safety
/// The caller owns the `n` cells at `at` as their producer, and `n == cells_for(payload.size())`.
#[inline(always)]
pub(super) unsafe fn write(
    cells: &[Cell],
    at: Position,
    owner: Slot,
    n: usize,
    label: Label,
    payload: impl Payload,
) {
    // The first cell comes last: a consumer that waits reads its line all the time, so it should
    // be taken from it once, not twice.
    if n > 1 {
        let tag = Tag::new(at, MIDDLE, owner, n);
        for (k, part) in payload.rest().chunks(MORE_BYTES).enumerate() {
            let cell = cell(cells, at, k + 1);
            // A cell behind the end of the lap carries the lap the message began in plus one.
            let tag = if at.index() + k + 1 < cells.len() { tag } else { tag.next_lap() };
            cell.tag.store(tag.0, Ordering::Relaxed);
            // SAFETY: the caller owns the cells.
            unsafe { cell.put_more(part) };
        }
    }
    let first = cell(cells, at, 0);
    // SAFETY: as above.
    unsafe { first.put_first(label, payload) };
    first.tag.store(Tag::new(at, COMMITTED, owner, n).0, Ordering::Release);
}

/// Validates the committed message at `at`, whose tag was read with Acquire, and copies it into
/// `scratch`. Returns its label and its bytes there.
#[inline(always)]
pub(super) fn read<'s>(
    what: &'static str,
    cells: &[Cell],
    at: Position,
    tag: Tag,
    scratch: &'s mut Scratch,
) -> Result<(Label, &'s [u8])> {
    let n = tag.cells();
    // SAFETY: the tag is committed in this lap: the producer is done with the cells, and the
    // consumer, which runs this, has not published a head behind them.
    let (label, len) = unsafe { cell(cells, at, 0).take_first(scratch) };
    if n == 0 || n > largest(cells.len()) || cells_for(len) != n {
        return Err(damaged(what, format!("{tag:?} at {at:?} has {len} bytes")));
    }
    for k in 1..n {
        let cell = cell(cells, at, k);
        let found = Tag(cell.tag.load(Ordering::Relaxed));
        let want = tag.with(MIDDLE);
        let want = if at.index() + k < cells.len() { want } else { want.next_lap() };
        if found != want {
            return Err(damaged(what, format!("cell {k} of {tag:?} at {at:?} is {found:?}")));
        }
        // SAFETY: as above; n <= MAX_CELLS.
        unsafe { cell.take_more(scratch, k) };
    }
    // SAFETY: those of `n` cells were copied, which are no fewer.
    Ok((label, unsafe { scratch.bytes(len) }))
}
