//! The cell: 64 bytes, one cache line, the unit of both rings.
//!
//! ```text
//! word 0   63           32 31  30 29        16 15      8 7 3 2       0
//!          | lap          | state | owner slot | cells   | 0 | repeats |   tag: an atomic
//!
//! first cell of a message                  every further cell
//! word 1   | imm 40 | kind 8 | len 16 |    words 1..8   56 bytes of payload
//! word 2.. 48 bytes of payload
//!
//! a cell of up to five messages of 8 to 16 bytes (in lanes only) that have label, length and first word
//! in common
//! word 1   the label of all
//! word 2   the first word of all
//! word 3   the second word of the first one
//! word 4.. that of each that repeats it
//! ```
//! * `lap`: the lap (from 1) in which the tag was written.
//! * `state`: FREE only in memory never written; CLAIMED a producer is writing the message;
//!   COMMITTED the message is complete; MIDDLE a further cell of a message, or the first cell of
//!   one that was given up.
//! * `owner`: the producer. `cells`: how many cells the message has, in all of its tags.
//! * `repeats`: so many messages have come to the one that was alone in the cell. They are written while the
//!   consumer may look at the first one already, so each leaves the others' words alone.
//!
//! Every cell has its tag, also in the middle of a message: no payload is ever taken for a tag.

#[cfg(not(loom))]
use super::payload::put_pairs;
use super::payload::{Payload, put_all, put_words};
use super::received::{Scratch, Single};
use super::tag::{FREE, Label};
use crate::base::sync::{AtomicU64, UnsafeCell};

/// Payload bytes in the first cell of a message.
pub const FIRST_BYTES: usize = 48;
/// Most payload bytes of a message whose cell others may share.
pub(super) const SHARED_BYTES: usize = 16;
/// Most messages that come to another one's cell.
pub(super) const MOST_REPEATS: usize = WORDS - REST - 1;
/// Payload bytes in every further cell.
pub const MORE_BYTES: usize = 56;
/// Most cells of one message: half a lane that has not grown.
pub const MAX_CELLS: usize = super::lane::SHORT_CELLS / 2;
/// Most bytes of one message.
pub const MAX_MESSAGE: usize = capacity(MAX_CELLS);

/// Payload bytes of a message of `cells` cells.
pub const fn capacity(cells: usize) -> usize {
    FIRST_BYTES + (cells - 1) * MORE_BYTES
}

/// Cells that a message of `len` bytes takes.
#[inline(always)]
pub const fn cells_for(len: usize) -> usize {
    if len <= FIRST_BYTES { 1 } else { 1 + (len - FIRST_BYTES).div_ceil(MORE_BYTES) }
}

/// The words of a first message's label, of its first word, and that behind it.
pub(super) const LABEL: usize = 1;
pub(super) const HEAD: usize = 2;
pub(super) const REST: usize = 3;
/// Words of a cell.
pub(super) const WORDS: usize = 8;

/// One cell. See the [module](self) for its layout.
#[repr(C, align(64))]
pub struct Cell {
    pub(super) tag: AtomicU64,
    /// The body: owned by the producer from its claim (for a lane: from when the cell is free) to its
    /// commit, by the consumer from then until it publishes a head behind the cell. But what the first
    /// message does not take stays the producer's until the tag says what else has come.
    body: [UnsafeCell<u64>; WORDS - 1],
}

// SAFETY: the body is accessed only by the side that owns it, see the field.
unsafe impl Sync for Cell {}
// SAFETY: plain data.
unsafe impl Send for Cell {}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 64 && align_of::<Cell>() == 64);
    assert!(std::mem::offset_of!(Cell, body) == 8);
    assert!(8 * HEAD + FIRST_BYTES == 8 * WORDS && 8 * (REST + 1) == 8 * HEAD + SHARED_BYTES);
    assert!(MAX_MESSAGE <= u16::MAX as usize && MAX_CELLS <= 255);
    assert!(crate::shm::segment::MAX_CAPACITY <= 1 << 14);
};

impl Cell {
    /// A cell nobody has written (shared cells start as zeros, which is the same).
    pub fn new() -> Cell {
        Cell { tag: AtomicU64::new(FREE), body: std::array::from_fn(|_| UnsafeCell::new(0)) }
    }

    /// Runs `f` on `count` words from number `first` on (the tag is number 0), for reading.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn read<R>(&self, first: usize, count: usize, f: impl FnOnce(*const u64) -> R) -> R {
        let _ = count;
        f(self.words(first))
    }

    /// The same for writing.
    #[cfg(not(loom))]
    #[inline(always)]
    fn write<R>(&self, first: usize, count: usize, f: impl FnOnce(*mut u64) -> R) -> R {
        let _ = count;
        f(self.words(first))
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn words(&self, first: usize) -> *mut u64 {
        // Of the whole cell, all of which may be written through a shared reference: it is made of cells.
        std::ptr::from_ref(self).cast::<u64>().cast_mut().wrapping_add(first)
    }

    /// In the models each word is apart, and each access is looked at.
    #[cfg(loom)]
    pub(super) fn read<R>(&self, first: usize, count: usize, f: impl FnOnce(*const u64) -> R) -> R {
        let mut words = [0; WORDS - 1];
        for at in first - 1..first - 1 + count {
            // SAFETY: the caller has the words.
            words[at] = self.body[at].with(|word| unsafe { *word });
        }
        f(words[first - 1..].as_ptr())
    }

    /// As above. What `f` does not write is zero afterwards.
    #[cfg(loom)]
    fn write<R>(&self, first: usize, count: usize, f: impl FnOnce(*mut u64) -> R) -> R {
        let mut words = [0; WORDS - 1];
        let done = f(words[first - 1..].as_mut_ptr());
        for at in first - 1..first - 1 + count {
            // SAFETY: the caller has the words.
            self.body[at].with_mut(|word| unsafe { *word = words[at] });
        }
        done
    }

    /// Asks for the cell's line, without waiting for it.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        // SAFETY: a hint; every x86-64 has it, and it reads nothing that the program could see.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self).cast());
        }
    }

    /// Writes label and the first bytes of a message that begins here: at most [`FIRST_BYTES`].
    ///
    /// # Safety
    /// The caller owns the body.
    #[inline(always)]
    pub(super) unsafe fn put_first(&self, label: Label, payload: impl Payload) {
        self.write(LABEL, WORDS - LABEL, |words| {
            // SAFETY: the caller owns the words: 8 bytes for the label and room for the payload behind it.
            unsafe {
                words.write(label.with_len(payload.size()));
                payload.put_first(words.add(1));
            }
        });
    }

    /// Writes the label of a message of several cells that begins here.
    ///
    /// # Safety
    /// The caller owns the word.
    #[inline(always)]
    pub(super) unsafe fn put_label(&self, label: Label, len: usize) {
        // SAFETY: the caller's.
        self.write(LABEL, 1, |word| unsafe { word.write(label.with_len(len)) });
    }

    /// Writes a word, of an even number, and bytes behind it. Word 0 is the tag of a further cell.
    ///
    /// # Safety
    /// The caller owns the words; `from` is readable for `len` bytes, which fit the cell.
    #[inline(always)]
    pub(super) unsafe fn put_pairs(&self, at: usize, word: u64, from: *const u8, len: usize) {
        // SAFETY: the caller's. A cell begins at a multiple of 64, so such words are those of 16.
        #[cfg(not(loom))]
        unsafe {
            put_pairs(self.words(at), word, from, len);
        }
        #[cfg(loom)]
        match at {
            0 => {
                self.tag.store(word, crate::base::sync::Ordering::Relaxed);
                // SAFETY: the caller's.
                self.write(1, WORDS - 1, |words| unsafe { put_words(words, from, len) });
            }
            // SAFETY: the caller's.
            _ => self.write(at, WORDS - at, |words| unsafe {
                words.write(word);
                put_words(words.add(1), from, len);
            }),
        }
    }

    /// Writes what a message has behind its first word, which repeats another one's, to word `at`.
    ///
    /// # Safety
    /// The caller owns the word, which is one of the cell's; the payload has 8 to [`SHARED_BYTES`].
    #[inline(always)]
    pub(super) unsafe fn put_repeat(&self, at: usize, payload: impl Payload) {
        // SAFETY: the caller's.
        self.write(at, 1, |word| unsafe { payload.put_behind_head(word) });
    }

    /// Writes up to [`MORE_BYTES`] further bytes of a message.
    ///
    /// # Safety
    /// The caller owns the body.
    #[inline(always)]
    pub(super) unsafe fn put_more(&self, bytes: &[u8]) {
        self.write(1, WORDS - 1, |body| {
            // SAFETY: the caller owns the MORE_BYTES bytes of the body; reads stay in the slice.
            unsafe {
                if bytes.len() >= MORE_BYTES {
                    put_all(body, bytes.as_ptr());
                } else {
                    put_words(body, bytes.as_ptr(), bytes.len());
                }
            }
        });
    }

    /// The label and the length of a message that begins here.
    ///
    /// # Safety
    /// The caller owns the word.
    #[inline(always)]
    pub(super) unsafe fn label(&self) -> (Label, usize) {
        // SAFETY: the caller's. Read once: what is checked is what is used.
        Label::split(self.read(LABEL, 1, |word| unsafe { word.read() }))
    }

    /// Reads the label, the message's length, and the first bytes into `scratch`.
    ///
    /// # Safety
    /// The caller owns the body: no others come to the cell.
    #[inline(always)]
    pub(super) unsafe fn take_first(&self, scratch: &mut Scratch) -> (Label, usize) {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label() };
        // A copy of constant size has no branches; bytes beyond the message are left over from older
        // ones and not shown to anyone.
        self.read(HEAD, FIRST_BYTES / 8, |words| {
            // SAFETY: the caller owns the words; scratch has room for a first cell.
            unsafe { std::ptr::copy_nonoverlapping(words.cast(), scratch.start(), FIRST_BYTES) }
        });
        (label, len)
    }

    /// A message of this cell alone, to be looked at here; `None` if it says that it has more bytes than
    /// there can be.
    ///
    /// # Safety
    /// The caller owns what the message has of the body, for as long as it has what it got.
    #[inline(always)]
    pub(super) unsafe fn single(&self) -> Option<Single<'_>> {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label() };
        (len <= FIRST_BYTES).then_some(Single { cell: self, label, len, rest: REST })
    }

    /// The same of the `k`-th one, from 1 on, that repeats the label and first word of the first. `None` also if
    /// there can't be so many.
    ///
    /// # Safety
    /// As for [`Cell::single`].
    #[inline(always)]
    pub(super) unsafe fn repeat(&self, k: usize) -> Option<Single<'_>> {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label() };
        let fits = k <= MOST_REPEATS && (8..=SHARED_BYTES).contains(&len);
        fits.then(|| Single { cell: self, label, len, rest: REST + k })
    }

    /// Reads the bytes of the message's cell number `k`, `1 <= k < MAX_CELLS`, into `scratch`, behind
    /// those of the cells before it.
    ///
    /// # Safety
    /// The caller owns the body.
    #[inline(always)]
    pub(super) unsafe fn take_more(&self, scratch: &mut Scratch, k: usize) {
        assert!((1..MAX_CELLS).contains(&k));
        let before = FIRST_BYTES + (k - 1) * MORE_BYTES;
        self.read(1, WORDS - 1, |body| {
            // SAFETY: the caller owns the body; the assertion keeps the copy inside scratch.
            unsafe {
                let to = scratch.start().add(before);
                std::ptr::copy_nonoverlapping(body.cast::<u8>(), to, MORE_BYTES);
            }
        });
    }
}

impl Default for Cell {
    fn default() -> Self {
        Cell::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_written_whole_and_nothing_else() {
        let source: Vec<u8> = (1..=80).collect();
        for shift in 0..16 {
            let cell = Cell::new();
            // SAFETY: nobody else has the cell; the source has more than 56 + shift bytes.
            unsafe { cell.put_more(&source[shift..]) };
            assert_eq!(cell.tag.load(crate::base::sync::Ordering::Relaxed), FREE);
            let mut scratch = Scratch::new();
            // SAFETY: as above; of the scratch the first cell's bytes are not looked at.
            let bytes = unsafe {
                cell.take_more(&mut scratch, 1);
                std::slice::from_raw_parts(scratch.start().add(FIRST_BYTES), MORE_BYTES)
            };
            assert_eq!(bytes, &source[shift..shift + MORE_BYTES]);
        }
    }

    #[test]
    fn cells_and_capacity_are_inverse() {
        for cells in 1..=MAX_CELLS {
            assert_eq!(cells_for(capacity(cells)), cells);
            assert_eq!(cells_for(capacity(cells) + 1), cells + 1);
        }
        assert_eq!(cells_for(0), 1);
    }
}
