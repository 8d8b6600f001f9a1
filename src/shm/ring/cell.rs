//! The cell: 64 bytes, one cache line, the unit of both rings.
//!
//! ```text
//! word 0   63           32 31  30 29        16 15      8 7      0
//!          | lap          | state | owner slot | cells   | 0 | 2nd   tag: an atomic
//!
//! first cell of a message                  every further cell
//! word 1   | imm 40 | kind 8 | len 16 |    words 1..8   56 bytes of payload
//! word 2.. 48 bytes of payload
//!
//! a cell of two messages (in lanes only)
//! word 1   the first one's label           word 4   the second one's label
//! word 2.. its 16 bytes of payload         word 5.. its 24 bytes of payload
//! ```
//! * `lap`: the lap (from 1) in which the tag was written.
//! * `state`: FREE only in memory never written; CLAIMED a producer is writing the message;
//!   COMMITTED the message is complete; MIDDLE a further cell of a message, or the first cell of
//!   one that was given up.
//! * `owner`: the producer. `cells`: how many cells the message has, in all of its tags.
//! * bit 0: a second message has come to the one that was alone in the cell. It is written while the
//!   consumer may look at the first one already, so who has one half leaves the other alone.
//!
//! Every cell has its tag, also in the middle of a message: no payload is ever taken for a tag.

use super::payload::{Payload, copy_short, put_all, put_words};
use super::tag::{FREE, Label};
use crate::base::Slot;
use crate::base::sync::{AtomicU64, UnsafeCell};
use std::mem::MaybeUninit;

/// Payload bytes in the first cell of a message.
pub const FIRST_BYTES: usize = 48;
/// Payload bytes of a message that leaves room for a second one in its cell.
pub(super) const HALF_BYTES: usize = 16;
/// Payload bytes of that one.
pub(super) const SECOND_BYTES: usize = 24;
/// Payload bytes in every further cell.
pub const MORE_BYTES: usize = 56;
/// Most cells of one message: half a lane.
pub const MAX_CELLS: usize = super::lane::LANE_CELLS / 2;
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

/// A received message. The bytes are a private copy.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Who sent it.
    pub from: Slot,
    /// Its label.
    pub label: Label,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// A received message of one cell or half of one, where its producer put it: the consumer's until it
/// goes on.
#[derive(Clone, Copy)]
pub struct Single<'a> {
    cell: &'a Cell,
    part: Part,
    label: Label,
    len: usize,
}

impl Single<'_> {
    /// Its label.
    #[inline(always)]
    pub fn label(&self) -> Label {
        self.label
    }

    /// Bytes of its payload.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its label and its bytes, copied into `scratch`.
    #[inline(always)]
    pub(super) fn copy(self, scratch: &mut Scratch) -> (Label, &[u8]) {
        self.cell.read(self.part, |words| {
            // SAFETY: `Cell::single` checked that so many are in the part, which scratch has room for.
            unsafe { copy_short(scratch.start(), words.add(1).cast(), self.len) }
        });
        // SAFETY: as many were copied.
        (self.label, unsafe { scratch.bytes(self.len) })
    }

    /// The first word of its payload, and the number of bytes behind it, if it has a whole word.
    #[inline(always)]
    pub fn headed(&self) -> Option<(u64, usize)> {
        // SAFETY: the second word of the part, which is the consumer's, see `Cell::single`.
        let word = || self.cell.read(self.part, |words| unsafe { words.add(1).read() });
        (self.len >= 8).then(|| (word(), self.len - 8))
    }

    /// Copies out the bytes behind the first word.
    ///
    /// # Safety
    /// There is a first word, and `to` is private memory, writable for as many bytes as
    /// [`Single::headed`] says.
    #[inline(always)]
    pub unsafe fn copy_behind_head(&self, to: *mut u8) {
        self.cell.read(self.part, |words| {
            // SAFETY: the caller's; `Cell::single` checked that so many are in the part.
            unsafe { copy_short(to, words.add(2).cast(), self.len - 8) }
        });
    }
}

/// Private memory that a consumer copies messages into. It may lie on a stack: nothing is written
/// to it before a message is. (For that it must have no other field: a constant of which a part has a
/// value would be written as a whole.)
pub struct Scratch(MaybeUninit<[u64; SCRATCH_WORDS]>);

/// Room for whole cells, so that copies out are of constant size.
const SCRATCH_WORDS: usize = (FIRST_BYTES + MORE_BYTES * (MAX_CELLS - 1)) / 8;

impl Scratch {
    /// Scratch for messages of up to [`MAX_MESSAGE`] bytes.
    #[inline(always)]
    pub fn new() -> Scratch {
        Scratch(MaybeUninit::uninit())
    }

    #[inline(always)]
    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// The first bytes of the message that was copied in last.
    ///
    /// # Safety
    /// It has so many.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: cells are copied in from the start on, without gaps.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

/// Words of a body that one side has at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All seven.
    Whole,
    /// The first three: a message that leaves room for another.
    First,
    /// The last four: that one.
    Second,
}

impl Part {
    /// Most bytes of a message's payload in it, behind its label.
    const fn room(self) -> usize {
        match self {
            Part::Whole => FIRST_BYTES,
            Part::First => HALF_BYTES,
            Part::Second => SECOND_BYTES,
        }
    }
}

/// One cell. See the [module](self) for its layout.
#[repr(C, align(64))]
pub struct Cell {
    pub(super) tag: AtomicU64,
    /// The body: owned by the producer from its claim (for a lane: from when the cell is free) to its
    /// commit, by the consumer from then until it publishes a head behind the cell.
    first: UnsafeCell<[u64; 3]>,
    /// The rest of it, but if the message is not longer than [`HALF_BYTES`]: then this part is the
    /// producer's until the tag says that there is a second one.
    second: UnsafeCell<[u64; 4]>,
}

// SAFETY: the body is accessed only by the side that owns it, see the field.
unsafe impl Sync for Cell {}
// SAFETY: plain data.
unsafe impl Send for Cell {}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 64 && align_of::<Cell>() == 64);
    assert!(std::mem::offset_of!(Cell, first) == 8 && std::mem::offset_of!(Cell, second) == 32);
    assert!(8 + HALF_BYTES == 24 && 8 + SECOND_BYTES == 32);
    assert!(MAX_MESSAGE <= u16::MAX as usize && MAX_CELLS <= 255);
    assert!(crate::shm::segment::MAX_CAPACITY <= 1 << 14);
};

impl Cell {
    /// A cell nobody has written (shared cells start as zeros, which is the same).
    pub fn new() -> Cell {
        let (first, second) = (UnsafeCell::new([0; 3]), UnsafeCell::new([0; 4]));
        Cell { tag: AtomicU64::new(FREE), first, second }
    }

    /// Runs `f` on the words of a part, for reading.
    #[cfg(not(loom))]
    #[inline(always)]
    fn read<R>(&self, part: Part, f: impl FnOnce(*const u64) -> R) -> R {
        f(self.words(part))
    }

    /// Runs `f` on the words of a part, for writing.
    #[cfg(not(loom))]
    #[inline(always)]
    fn write<R>(&self, part: Part, f: impl FnOnce(*mut u64) -> R) -> R {
        f(self.words(part))
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn words(&self, part: Part) -> *mut u64 {
        // Of the whole cell, all of which may be written through a shared reference: it is made of cells.
        let words = std::ptr::from_ref(self).cast::<u64>().cast_mut();
        words.wrapping_add(if part == Part::Second { 4 } else { 1 })
    }

    /// In the models the parts are apart, and each access is looked at.
    #[cfg(loom)]
    fn read<R>(&self, part: Part, f: impl FnOnce(*const u64) -> R) -> R {
        let mut words = [0; 7];
        if part != Part::Second {
            // SAFETY: the caller has the part.
            words[..3].copy_from_slice(&self.first.with(|first| unsafe { *first }));
        }
        if part != Part::First {
            // SAFETY: as above.
            words[3..].copy_from_slice(&self.second.with(|second| unsafe { *second }));
        }
        f(words[if part == Part::Second { 3 } else { 0 }..].as_ptr())
    }

    /// As above. What `f` does not write is zero afterwards.
    #[cfg(loom)]
    fn write<R>(&self, part: Part, f: impl FnOnce(*mut u64) -> R) -> R {
        let mut words = [0; 7];
        let done = f(words[if part == Part::Second { 3 } else { 0 }..].as_mut_ptr());
        if part != Part::Second {
            // SAFETY: the caller has the part.
            self.first.with_mut(|first| unsafe { (*first).copy_from_slice(&words[..3]) });
        }
        if part != Part::First {
            // SAFETY: as above.
            self.second.with_mut(|second| unsafe { (*second).copy_from_slice(&words[3..]) });
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

    /// Writes label and the first bytes of a message to a part.
    ///
    /// # Safety
    /// The caller owns the part. At most [`FIRST_BYTES`] of `payload` are taken, and it has no more than
    /// fit the part if that is not the whole.
    #[inline(always)]
    pub(super) unsafe fn put_first(&self, part: Part, label: Label, payload: impl Payload) {
        self.write(part, |words| {
            // SAFETY: the caller owns the part: 8 bytes for the label and room for the payload behind it.
            unsafe {
                words.write(label.with_len(payload.size()));
                payload.put_first(words.add(1));
            }
        });
    }

    /// Writes up to [`MORE_BYTES`] further bytes of a message.
    ///
    /// # Safety
    /// The caller owns the body.
    #[inline(always)]
    pub(super) unsafe fn put_more(&self, bytes: &[u8]) {
        self.write(Part::Whole, |body| {
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

    /// Reads the label, the message's length, and the first bytes into `scratch`.
    ///
    /// # Safety
    /// The caller owns what the message has of the body.
    #[inline(always)]
    pub(super) unsafe fn take_first(&self, scratch: &mut Scratch) -> (Label, usize) {
        // SAFETY: the caller owns the body's first word. Read once: what is checked is what is used.
        let (label, len) = Label::split(self.read(Part::First, |words| unsafe { words.read() }));
        // Copies of constant size have no branches; bytes beyond the message are left over from older
        // ones and not shown to anyone.
        let (part, bytes) =
            if len <= HALF_BYTES { (Part::First, HALF_BYTES) } else { (Part::Whole, FIRST_BYTES) };
        self.read(part, |words| {
            // SAFETY: the caller owns the part; scratch has room for a first cell.
            unsafe {
                let from = words.add(1).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, scratch.start(), bytes);
            }
        });
        (label, len)
    }

    /// A message of this cell, to be looked at here: the first one, or the second one for
    /// [`Part::Second`]; `None` if it says that it has more bytes than there can be.
    ///
    /// # Safety
    /// The caller owns what the message has of the body, for as long as it has what it got.
    #[inline(always)]
    pub(super) unsafe fn single(&self, part: Part) -> Option<Single<'_>> {
        // SAFETY: the caller's. The word is read once: what is checked is what is used.
        let (label, len) = Label::split(self.read(part, |words| unsafe { words.read() }));
        let part = if part == Part::First && len > HALF_BYTES { Part::Whole } else { part };
        (len <= part.room()).then_some(Single { cell: self, part, label, len })
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
        self.read(Part::Whole, |body| {
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
