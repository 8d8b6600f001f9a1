//! The cell: 64 bytes, one cache line, the unit of both rings.
//!
//! ```text
//! word 0   63           32 31  30 29        16 15      8 7 4 3       1  0
//!          | lap          | state | owner slot | cells   | 0 | repeats | 2nd   tag: an atomic
//!
//! first cell of a message                  every further cell
//! word 1   | imm 40 | kind 8 | len 16 |    words 1..8   56 bytes of payload
//! word 2.. 48 bytes of payload
//!
//! a cell of several messages (in lanes only): one that repeats the first one's label and first word,
//! or another one
//! word 1   the first one's label           word 1   the first one's label
//! word 2   the first word of all           word 2.. its 16 bytes of payload
//! word 3.. what the first one has behind   word 4   the second one's label
//!          it, then the others             word 5.. its 24 bytes of payload
//! ```
//! * `lap`: the lap (from 1) in which the tag was written.
//! * `state`: FREE only in memory never written; CLAIMED a producer is writing the message;
//!   COMMITTED the message is complete; MIDDLE a further cell of a message, or the first cell of
//!   one that was given up.
//! * `owner`: the producer. `cells`: how many cells the message has, in all of its tags.
//! * `repeats`, bit 0: so many, or a second message, have come to the one that was alone in the cell. They
//!   are written while the consumer may look at the first one already, so each leaves the others' words
//!   alone.
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
/// Payload bytes of a message that leaves room for a second one in its cell.
pub(super) const HALF_BYTES: usize = 16;
/// Payload bytes of a message that leaves room for one that repeats its label and first word, or for a second
/// one.
pub(super) const SHARED_BYTES: usize = 24;
/// Payload bytes of that one.
pub(super) const SECOND_BYTES: usize = 24;
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

/// Words that the bytes of a message behind its first word take in a cell that it shares.
#[inline(always)]
pub(super) fn stride(rest: usize) -> usize {
    if rest <= 8 { 1 } else { rest.div_ceil(8) }
}

/// Where in a cell a message begins that does not repeat another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// At the first word behind the tag.
    First,
    /// Behind a message of at most [`HALF_BYTES`].
    Second,
}

impl Part {
    /// The word of its label.
    const fn begin(self) -> usize {
        match self {
            Part::First => 1,
            Part::Second => 4,
        }
    }

    /// Most bytes of its payload, behind its label.
    const fn room(self) -> usize {
        match self {
            Part::First => FIRST_BYTES,
            Part::Second => SECOND_BYTES,
        }
    }
}

/// The word of a first message's first word, and that behind it.
pub(super) const HEAD: usize = 2;
pub(super) const REST: usize = 3;
/// Words of a cell.
pub(super) const WORDS: usize = 8;

/// From which word on the rest of the `k`-th repeat lies (0: the first message), if there is room for rests
/// of so many words.
#[inline(always)]
pub(super) fn place_of_repeat(k: usize, stride: usize) -> Option<usize> {
    // Neither is larger than what fits a tag or a length.
    let at = REST + k * stride;
    (at + stride <= WORDS).then_some(at)
}

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
    assert!(8 * Part::Second.begin() == 16 + HALF_BYTES && 40 + SECOND_BYTES == 8 * WORDS);
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

    /// Writes label and the first bytes of a message that begins here.
    ///
    /// # Safety
    /// The caller owns the cell from there on. At most [`FIRST_BYTES`] of `payload` are taken, and it has no
    /// more than fit if it is a second one.
    #[inline(always)]
    pub(super) unsafe fn put_first(&self, part: Part, label: Label, payload: impl Payload) {
        let at = part.begin();
        self.write(at, WORDS - at, |words| {
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
        self.write(Part::First.begin(), 1, |word| unsafe { word.write(label.with_len(len)) });
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

    /// Writes what a message has behind its first word, which repeats another one's, from word `at` on.
    ///
    /// # Safety
    /// The caller owns the words, which [`place_of_repeat`] gave for the payload.
    #[inline(always)]
    pub(super) unsafe fn put_repeat(&self, at: usize, words: usize, payload: impl Payload) {
        // SAFETY: the caller's.
        let put = |words| unsafe { payload.put_behind_head(words) };
        self.write(at, words, put);
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
    pub(super) unsafe fn label(&self, part: Part) -> (Label, usize) {
        // SAFETY: the caller's. Read once: what is checked is what is used.
        Label::split(self.read(part.begin(), 1, |word| unsafe { word.read() }))
    }

    /// Reads the label, the message's length, and the first bytes into `scratch`.
    ///
    /// # Safety
    /// The caller owns what the message has of the body.
    #[inline(always)]
    pub(super) unsafe fn take_first(&self, scratch: &mut Scratch) -> (Label, usize) {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label(Part::First) };
        // Copies of constant size have no branches; bytes beyond the message are left over from older
        // ones and not shown to anyone. Where others may come behind it, none are read.
        let mut copy = |from: usize, to: usize| {
            self.read(HEAD + from / 8, (to - from) / 8, |words| {
                // SAFETY: the caller owns the words; scratch has room for a first cell.
                unsafe {
                    let at = scratch.start().add(from);
                    std::ptr::copy_nonoverlapping(words.cast(), at, to - from);
                }
            });
        };
        copy(0, HALF_BYTES);
        if len > HALF_BYTES {
            copy(HALF_BYTES, SHARED_BYTES);
        }
        if len > SHARED_BYTES {
            copy(SHARED_BYTES, FIRST_BYTES);
        }
        (label, len)
    }

    /// A message of this cell alone, to be looked at here; `None` if it says that it has more bytes than
    /// there can be.
    ///
    /// # Safety
    /// The caller owns what the message has of the body, for as long as it has what it got.
    #[inline(always)]
    pub(super) unsafe fn single(&self, part: Part) -> Option<Single<'_>> {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label(part) };
        let at = part.begin() + 1;
        (len <= part.room()).then_some(Single { cell: self, label, len, at, rest: at + 1 })
    }

    /// The same of the `k`-th one that repeats the label and first word of the first.
    ///
    /// # Safety
    /// As for [`Cell::single`].
    #[inline(always)]
    pub(super) unsafe fn repeat(&self, k: usize) -> Option<Single<'_>> {
        // SAFETY: the caller's.
        let (label, len) = unsafe { self.label(Part::First) };
        let rest = match len {
            // What the most have.
            16 => (k < WORDS - REST).then_some(REST + k)?,
            _ => place_of_repeat(k, stride(len.checked_sub(8)?))?,
        };
        Some(Single { cell: self, label, len, at: HEAD, rest })
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
