//! Messages as their consumer has them: copied, or looked at where they lie.

use super::cell::{Cell, FIRST_BYTES, HEAD, MAX_CELLS, MORE_BYTES};
use super::payload::copy_short;
use super::tag::Label;
use crate::base::Slot;
use std::mem::MaybeUninit;

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

/// A received message of one cell or of part of one, where its producer put it: the consumer's until it
/// goes on.
#[derive(Clone, Copy)]
pub struct Single<'a> {
    pub(super) cell: &'a Cell,
    pub(super) label: Label,
    pub(super) len: usize,
    /// From which word of the cell on lies what it has behind its first one.
    pub(super) rest: usize,
}

/// A received message that is looked at where its producer put it.
pub trait InPlace {
    /// Its label.
    fn label(&self) -> Label;

    /// Bytes of its payload.
    fn size(&self) -> usize;

    /// The first word of its payload, and the number of bytes behind it, if it has a whole word.
    fn headed(&self) -> Option<(u64, usize)>;

    /// Copies out the bytes behind the first word. False if the message is damaged; who asked for it leaves it
    /// then, and whoever takes it otherwise is told.
    ///
    /// # Safety
    /// There is a first word, and `to` is private memory, writable for as many bytes as
    /// [`InPlace::headed`] says.
    unsafe fn copy_behind_head(&self, to: *mut u8) -> bool;
}

impl Single<'_> {
    /// Its label and its bytes, copied into `scratch`.
    #[inline(always)]
    pub(super) fn copy(self, scratch: &mut Scratch) -> (Label, &[u8]) {
        let first = self.len.min(8);
        let to = scratch.start();
        // SAFETY: who made it checked that so many bytes are in the cell, which scratch has room for.
        unsafe {
            self.cell.read(HEAD, 1, |word| copy_short(to, word.cast(), first));
            if self.len > 8 {
                let len = self.len - 8;
                let copy = |words: *const u64| copy_short(to.add(8), words.cast(), len);
                self.cell.read(self.rest, len.div_ceil(8), copy);
            }
        }
        // SAFETY: as many were copied.
        (self.label, unsafe { scratch.bytes(self.len) })
    }
}

impl InPlace for Single<'_> {
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
        // SAFETY: the word is the consumer's, see `Cell::single`.
        let word = || self.cell.read(HEAD, 1, |word| unsafe { word.read() });
        (self.len >= 8).then(|| (word(), self.len - 8))
    }

    #[inline(always)]
    unsafe fn copy_behind_head(&self, to: *mut u8) -> bool {
        let len = self.len - 8;
        // SAFETY: the caller's; who made it checked that so many are in the cell.
        self.cell.read(self.rest, len.div_ceil(8), |from| unsafe {
            match len {
                // What the most have, and what counts the most then.
                8 => to.cast::<u64>().write_unaligned(from.read()),
                _ => copy_others(to, from.cast(), len),
            }
        });
        true
    }
}

/// As [`copy_short`], and so not inlined: its many ways would have what is looked at on the stack.
///
/// # Safety
/// That of [`copy_short`].
#[inline(never)]
unsafe fn copy_others(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { copy_short(to, from, len) }
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

    /// Copies in all of a message, if it has at least a word: of how many bytes it is. `None` also if it is damaged.
    #[inline(always)]
    pub fn copy_whole(&mut self, message: &impl InPlace) -> Option<usize> {
        let (head, len) = message.headed()?;
        let to = self.start();
        // SAFETY: there is room for the longest message, and there is a first word.
        let whole = unsafe {
            to.cast::<u64>().write(head);
            len == 0 || message.copy_behind_head(to.add(8))
        };
        whole.then_some(8 + len)
    }

    #[inline(always)]
    pub(super) fn start(&mut self) -> *mut u8 {
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
