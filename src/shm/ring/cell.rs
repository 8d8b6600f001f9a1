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

use super::position::Position;
use crate::base::sync::{AtomicU64, UnsafeCell};
use crate::base::{Error, Result, Slot};
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
/// Bits of a message's `imm`.
pub const IMM_BITS: u32 = 40;

/// Payload bytes of a message of `cells` cells.
pub const fn capacity(cells: usize) -> usize {
    FIRST_BYTES + (cells - 1) * MORE_BYTES
}

/// Cells that a message of `len` bytes takes.
#[inline(always)]
pub const fn cells_for(len: usize) -> usize {
    if len <= FIRST_BYTES { 1 } else { 1 + (len - FIRST_BYTES).div_ceil(MORE_BYTES) }
}

pub(super) const FREE: u64 = 0;
pub(super) const MIDDLE: u64 = 1;
pub(super) const CLAIMED: u64 = 2;
pub(super) const COMMITTED: u64 = 3;

/// The first word of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub u64);

impl Tag {
    #[inline(always)]
    pub fn new(at: Position, state: u64, owner: Slot, cells: usize) -> Tag {
        let owner = u64::from(owner.0 & 0x3fff);
        Tag(u64::from(at.tag_lap()) << 32 | state << 30 | owner << 16 | (cells as u64 & 0xff) << 8)
    }

    /// The same tag in another state.
    #[inline(always)]
    pub fn with(self, state: u64) -> Tag {
        Tag(self.0 & !(3 << 30) | state << 30)
    }

    /// The same tag, with a second message.
    #[inline(always)]
    pub fn with_second(self) -> Tag {
        Tag(self.0 | 1)
    }

    /// Whether there is a second message in the cell.
    #[inline(always)]
    pub fn has_second(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is that of a message of one cell, committed at this position, with a second one or
    /// without.
    #[inline(always)]
    pub fn is_whole(self, at: Position) -> bool {
        let owner = 0x3fff << 16;
        self.0 & !(owner | 1) == Tag::new(at, COMMITTED, Slot(0), 1).0
    }

    /// The same tag, one lap on.
    #[inline(always)]
    pub fn next_lap(self) -> Tag {
        Tag(self.0.wrapping_add(1 << 32))
    }

    #[inline(always)]
    pub fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub fn state(self) -> u64 {
        self.0 >> 30 & 3
    }

    #[inline(always)]
    pub fn owner(self) -> Slot {
        Slot((self.0 >> 16 & 0x3fff) as u16)
    }

    #[inline(always)]
    pub fn cells(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = ["free", "middle", "claimed", "committed"][self.state() as usize];
        write!(f, "{state} lap {} owner {} cells {}", self.lap(), self.owner(), self.cells())
    }
}

/// What a message is, beside its bytes: a kind, and up to 40 bits that the layer above chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    kind: u8,
    imm: u64,
}

impl Label {
    /// A label; an error if `imm` has more than [`IMM_BITS`] bits.
    #[inline]
    pub fn new(kind: u8, imm: u64) -> Result<Label> {
        if imm >> IMM_BITS != 0 {
            return Err(Error::invalid(
                "message label",
                format!("imm {imm:#x} has more than {IMM_BITS} bits"),
            ));
        }
        Ok(Label { kind, imm })
    }

    /// The kind.
    #[inline]
    pub fn kind(self) -> u8 {
        self.kind
    }

    /// The immediate value.
    #[inline]
    pub fn imm(self) -> u64 {
        self.imm
    }

    #[inline(always)]
    fn with_len(self, len: usize) -> u64 {
        self.imm << 24 | u64::from(self.kind) << 16 | len as u64
    }

    #[inline(always)]
    fn split(word: u64) -> (Label, usize) {
        (Label { kind: (word >> 16) as u8, imm: word >> 24 }, word as u16 as usize)
    }
}

/// What a message carries, as its producer has it.
pub trait Payload: Copy {
    /// Bytes.
    fn size(self) -> usize;

    /// What does not fit the first cell.
    fn rest(&self) -> &[u8];

    /// Writes the first [`FIRST_BYTES`] of it, or all if there are fewer, in whole words.
    ///
    /// # Safety
    /// `to` is writable for [`FIRST_BYTES`].
    unsafe fn put_first(self, to: *mut u64);
}

impl Payload for &[u8] {
    #[inline(always)]
    fn size(self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.get(FIRST_BYTES..).unwrap_or_default()
    }
    #[inline(always)]
    unsafe fn put_first(self, to: *mut u64) {
        // SAFETY: the caller's; as many bytes are read as the slice has.
        unsafe { put_words(to, self.as_ptr(), self.len().min(FIRST_BYTES)) }
    }
}

/// A word and bytes behind it, that lie apart: sent as one, without being put together first.
#[derive(Clone, Copy, Debug)]
pub struct Headed<'a>(pub u64, pub &'a [u8]);

impl Payload for Headed<'_> {
    #[inline(always)]
    fn size(self) -> usize {
        8 + self.1.len()
    }
    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.1.get(FIRST_BYTES - 8..).unwrap_or_default()
    }
    #[inline(always)]
    unsafe fn put_first(self, to: *mut u64) {
        // SAFETY: the caller's; as many bytes are read as the slice has.
        unsafe {
            to.write(self.0);
            put_words(to.add(1), self.1.as_ptr(), self.1.len().min(FIRST_BYTES - 8));
        }
    }
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

/// Writes `len` bytes by stores of whole, aligned words; the last one is filled up with zeros.
///
/// To a line that another core has, stores across 16 bytes are far dearer than aligned ones: on an AMD
/// EPYC (family 25) a message of 1 KiB took 1.6 times as long with those that the compiler makes of a
/// copy to the body, which begins at a multiple of 8. So they are volatile: it does not join them.
///
/// # Safety
/// `from` is readable for `len` bytes, `to` writable for as many, rounded up to words; they do not
/// overlap.
#[inline(always)]
unsafe fn put_words(to: *mut u64, from: *const u8, len: usize) {
    let mut at = 0;
    // SAFETY: the caller's: at + 8 <= len for a whole word; the rest is the last one's.
    unsafe {
        while at + 8 <= len {
            to.byte_add(at).write_volatile(from.add(at).cast::<u64>().read_unaligned());
            at += 8;
        }
        if at < len {
            to.byte_add(at).write_volatile(last_word(from, at, len));
        }
    }
}

/// The bytes `at..len`, of which there are 1 to 7, as the first ones of a word.
///
/// # Safety
/// `from` is readable for `len` bytes.
#[inline(always)]
unsafe fn last_word(from: *const u8, at: usize, len: usize) -> u64 {
    let rest = len - at;
    // SAFETY: the caller's; each read ends at `len` or before, and begins at 0 or behind.
    unsafe {
        let word = |at: usize| u64::from_le(from.add(at).cast::<u64>().read_unaligned());
        let half = |at: usize| u64::from(u32::from_le(from.add(at).cast::<u32>().read_unaligned()));
        let byte = |at: usize| u64::from(from.add(at).read());
        let value = if len >= 8 {
            word(len - 8) >> (64 - 8 * rest)
        } else if rest >= 4 {
            half(at) | half(len - 4) << (8 * (rest - 4))
        } else {
            let middle = rest / 2;
            byte(at) | byte(at + middle) << (8 * middle) | byte(len - 1) << (8 * (rest - 1))
        };
        value.to_le()
    }
}

/// Writes [`MORE_BYTES`] to a body, the last seven words of a line, by stores that are as wide as they
/// can be and still aligned; see [`put_words`].
///
/// # Safety
/// `from` is readable and `body` writable for so many; they do not overlap.
#[inline(always)]
unsafe fn put_all(body: *mut u64, from: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: the caller's. Every x86-64 has these instructions; behind the first word of a body the
    // line goes on at a multiple of 16.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
        body.write_volatile(from.cast::<u64>().read_unaligned());
        let (to, from) = (body.add(1).cast::<__m128i>(), from.add(8).cast::<__m128i>());
        let [a, b, c] = [0, 1, 2].map(|k| _mm_loadu_si128(from.add(k)));
        _mm_store_si128(to, a);
        _mm_store_si128(to.add(1), b);
        _mm_store_si128(to.add(2), c);
    }
    // Cells of the models begin elsewhere.
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    // SAFETY: the caller's.
    unsafe {
        put_words(body, from, MORE_BYTES);
    }
}

/// Copies 0..=56 bytes by at most four moves, without the call and the dispatch of a general
/// `memcpy`: the last move overlaps the one before it.
///
/// # Safety
/// `from` is readable and `to` writable for `len <= 56` bytes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    type Wide = [u64; 2];
    // SAFETY: every move reads and writes inside `0..len`: its offset is at most len minus its
    // width, and the branch ensures that len is at least the width.
    unsafe {
        match len {
            33.. => {
                let last = len - 16;
                let a = from.cast::<Wide>().read_unaligned();
                let b = from.add(16).cast::<Wide>().read_unaligned();
                let c = from.add(last.min(32)).cast::<Wide>().read_unaligned();
                let d = from.add(last).cast::<Wide>().read_unaligned();
                to.cast::<Wide>().write_unaligned(a);
                to.add(16).cast::<Wide>().write_unaligned(b);
                to.add(last.min(32)).cast::<Wide>().write_unaligned(c);
                to.add(last).cast::<Wide>().write_unaligned(d);
            }
            16..=32 => {
                let last = len - 16;
                let a = from.cast::<Wide>().read_unaligned();
                let b = from.add(last).cast::<Wide>().read_unaligned();
                to.cast::<Wide>().write_unaligned(a);
                to.add(last).cast::<Wide>().write_unaligned(b);
            }
            8..=15 => {
                let last = len - 8;
                let a = from.cast::<u64>().read_unaligned();
                let b = from.add(last).cast::<u64>().read_unaligned();
                to.cast::<u64>().write_unaligned(a);
                to.add(last).cast::<u64>().write_unaligned(b);
            }
            4..=7 => {
                let last = len - 4;
                let a = from.cast::<u32>().read_unaligned();
                let b = from.add(last).cast::<u32>().read_unaligned();
                to.cast::<u32>().write_unaligned(a);
                to.add(last).cast::<u32>().write_unaligned(b);
            }
            1..=3 => {
                to.write(from.read());
                to.add(len / 2).write(from.add(len / 2).read());
                to.add(len - 1).write(from.add(len - 1).read());
            }
            0 => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn short_copies_copy_exactly_their_bytes() {
        let source: Vec<u8> = (1..=80).collect();
        for len in 0..=MORE_BYTES {
            for shift in 0..8 {
                let mut there = vec![0u8; 72];
                // SAFETY: both vectors are long enough for len + shift.
                unsafe { copy_short(there.as_mut_ptr().add(shift), source.as_ptr().add(1), len) };
                assert_eq!(&there[shift..shift + len], &source[1..1 + len]);
                assert!(there[..shift].iter().chain(&there[shift + len..]).all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn words_hold_exactly_their_bytes() {
        let source: Vec<u8> = (1..=80).collect();
        for len in 0..=MORE_BYTES {
            for shift in 0..8 {
                let mut there = [u64::MAX; 8];
                // SAFETY: eight words; the source has more than len + shift bytes.
                unsafe { put_words(there.as_mut_ptr(), source.as_ptr().add(shift), len) };
                let bytes: Vec<u8> = there.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(&bytes[..len], &source[shift..shift + len]);
                let words = len.next_multiple_of(8);
                assert!(bytes[len..words].iter().all(|&b| b == 0), "{len}");
                assert!(bytes[words..].iter().all(|&b| b == 255), "{len}");
            }
        }
    }

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

    #[test]
    fn tags_and_labels_hold_their_extremes() {
        let at = Position::of_lap(u32::MAX - 1);
        let tag = Tag::new(at, CLAIMED, Slot(0x3fff), 255);
        assert_eq!((tag.lap(), tag.state(), tag.cells()), (u32::MAX, CLAIMED, 255));
        assert_eq!(tag.owner(), Slot(0x3fff));
        assert_eq!(tag.with(COMMITTED).with(CLAIMED), tag);
        let label = Label::new(255, (1 << IMM_BITS) - 1).unwrap();
        assert_eq!(Label::split(label.with_len(MAX_MESSAGE)), (label, MAX_MESSAGE));
        assert!(Label::new(0, 1 << IMM_BITS).is_err());
    }
}
