//! Messages of two to ten cells, written into a lane and read from it without being put together elsewhere,
//! if they do not reach beyond the end of a lap. They look as all messages of several cells do; others
//! are [`message`](super::message)'s.

use super::cell::{Cell, FIRST_BYTES, HEAD, MORE_BYTES, REST, WORDS, capacity, cells_for};
use super::payload::{Headed, Payload, copy_short};
use super::position::Position;
use super::received::InPlace;
use super::tag::{COMMITTED, Label, MIDDLE, Tag};
use crate::base::Slot;
use crate::base::sync::Ordering;

/// Most cells of such a message.
pub(super) const MOST: usize = 10;
/// Most bytes of one.
pub const SEVERAL_BYTES: usize = capacity(MOST);
/// Its bytes in the first cell, behind the first word.
const BEHIND_HEAD: usize = FIRST_BYTES - 8;

/// The cells that a message of `n` cells at `at` would have in a lap of these, if it may be one of several.
#[inline(always)]
pub(super) fn stretch(cells: &[Cell], at: Position, n: usize) -> Option<(&Cell, &[Cell])> {
    if !(2..=MOST).contains(&n) {
        return None;
    }
    cells.get(at.index()..at.index() + n)?.split_first()
}

/// Writes a message of those cells, and commits it, as [`message::write`](super::message::write) does, but by
/// stores of 16 bytes wherever they can be aligned: how many stores there are to lines that another core has
/// counts for more than what is stored.
///
/// # Safety
/// The caller owns the cells as their producer, and the payload takes as many.
#[inline(always)]
pub(super) unsafe fn write(
    (first, further): (&Cell, &[Cell]),
    (at, owner): (Position, Slot),
    label: Label,
    payload: Headed<'_>,
) {
    let n = further.len() + 1;
    let tag = Tag::new(at, MIDDLE, owner, n);
    // Not an iterator of pieces: what it keeps on the stack is read back only once the stores before have left
    // the store buffer, where those wait that go to the other core's lines.
    let mut from = payload.1.as_ptr().wrapping_add(BEHIND_HEAD);
    let mut left = payload.1.len() - BEHIND_HEAD;
    for cell in further {
        // SAFETY: the caller owns the cells; so many bytes of the data are left, and fit.
        unsafe {
            if left >= MORE_BYTES {
                cell.put_pairs(0, tag.0, from, MORE_BYTES);
            } else {
                cell.tag.store(tag.0, Ordering::Relaxed);
                cell.put_more(std::slice::from_raw_parts(from, left));
            }
        }
        left = left.saturating_sub(MORE_BYTES);
        from = from.wrapping_add(MORE_BYTES);
    }
    // SAFETY: as above; the data have more bytes than that.
    unsafe {
        first.put_label(label, payload.size());
        first.put_pairs(HEAD, payload.0, payload.1.as_ptr(), BEHIND_HEAD);
    }
    first.tag.store(Tag::new(at, COMMITTED, owner, n).0, Ordering::Release);
}

/// A received message of several cells, where its producer put it: the consumer's until it goes on.
#[derive(Clone, Copy)]
pub struct Several<'a> {
    first: &'a Cell,
    further: &'a [Cell],
    /// What the tags of the further ones must be.
    tag: Tag,
    label: Label,
    len: usize,
}

impl<'a> Several<'a> {
    /// The message whose first cell has `tag`; `None` if it says of itself what cannot be.
    ///
    /// # Safety
    /// The tag was acquired and says that the cells are committed; the caller owns them as their consumer, for
    /// as long as it has what it got.
    #[inline(always)]
    pub(super) unsafe fn of(
        (first, further): (&'a Cell, &'a [Cell]),
        tag: Tag,
    ) -> Option<Several<'a>> {
        // SAFETY: the caller's.
        let (label, len) = unsafe { first.label() };
        let fits = cells_for(len) == further.len() + 1;
        fits.then_some(Several { first, further, tag: tag.with(MIDDLE), label, len })
    }
}

impl InPlace for Several<'_> {
    #[inline(always)]
    fn label(&self) -> Label {
        self.label
    }

    #[inline(always)]
    fn size(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn headed(&self) -> Option<(u64, usize)> {
        // SAFETY: the word is the consumer's, see `Several::of`.
        let head = self.first.read(HEAD, 1, |word| unsafe { word.read() });
        Some((head, self.len - 8))
    }

    #[inline(always)]
    unsafe fn copy_behind_head(&self, to: *mut u8) -> bool {
        // SAFETY: the caller's room is that of the message, which has more than the first cell holds.
        let begin = |from: *const u64| unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to, BEHIND_HEAD);
        };
        self.first.read(REST, WORDS - REST, begin);
        let mut done = BEHIND_HEAD;
        for cell in self.further {
            if cell.tag.load(Ordering::Relaxed) != self.tag.0 {
                return false;
            }
            let left = self.len - 8 - done;
            // SAFETY: as above; a cell has as much, and of the last one no more is taken than is left.
            let more = |from: *const u64| unsafe {
                let (from, to) = (from.cast::<u8>(), to.add(done));
                if left >= MORE_BYTES {
                    std::ptr::copy_nonoverlapping(from, to, MORE_BYTES);
                } else {
                    copy_short(to, from, left);
                }
            };
            cell.read(1, WORDS - 1, more);
            done += MORE_BYTES;
        }
        true
    }
}
