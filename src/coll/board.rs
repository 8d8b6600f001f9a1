//! The flat exchange of small values: every member shows a value of up to 56 bytes on its board
//! and reads everybody else's. Value and step share a cache line, so one transfer per peer moves
//! the data and synchronises at the same time.
//!
//! With more members than [`FLAT`], reading all boards while they change would cost more than a
//! barrier and then a look; and where ranks share cores, a barrier by count needs one waking
//! instead of one for each member.

use super::block::{BOARD, Board};
use super::core::{Core, Place};
use super::sign::Sign;
use super::step::Course;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Result};
use crate::layout::Datum;

/// Members up to which reading every board beats a barrier.
const FLAT: u32 = 16;

const WORDS: usize = BOARD / 8;

/// What is on a board. Elements of every type are aligned in it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Value {
    words: [u64; WORDS],
}

impl Value {
    /// The first bytes of `bytes`, as many as fit.
    #[inline]
    pub fn of(bytes: &[u8]) -> Value {
        let mut value = Value::default();
        if let Ok(word) = bytes.try_into() {
            value.words[0] = u64::from_ne_bytes(word);
        } else {
            let len = bytes.len().min(BOARD);
            // SAFETY: `len` bytes fit into the words, and any bytes are words.
            unsafe {
                let to = value.words.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
        }
        value
    }

    /// All bytes; those that were not shown are of no meaning.
    #[inline]
    pub fn bytes(&self) -> &[u8; BOARD] {
        // SAFETY: an array of words is as many bytes, without padding.
        unsafe { &*self.words.as_ptr().cast() }
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; BOARD] {
        // SAFETY: as above, and any bytes are words.
        unsafe { &mut *self.words.as_mut_ptr().cast() }
    }

    /// Its bytes as elements, at most as many as it has room for.
    #[inline]
    pub fn elements<T: Datum>(&self, len: usize) -> &[T] {
        let len = if size_of::<T>() * len <= BOARD && align_of::<T>() <= 64 { len } else { 0 };
        // SAFETY: so many elements lie within the words, aligned as the value is; every bit
        // pattern is a valid Datum.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), len) }
    }

    /// As [`Value::elements`], to write.
    #[inline]
    pub fn elements_mut<T: Datum>(&mut self, len: usize) -> &mut [T] {
        let len = if size_of::<T>() * len <= BOARD && align_of::<T>() <= 64 { len } else { 0 };
        // SAFETY: as above, and every byte of an element is a byte of a word.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }

    /// One of its words.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// With another value for one of its words.
    pub fn with_word(mut self, index: usize, word: u64) -> Value {
        self.words[index] = word;
        self
    }
}

impl Board {
    /// Shows a value to all who wait for `step`; nobody reads what was there before any more.
    #[inline]
    pub fn put(&self, value: &Value, words: usize, step: u64) {
        self.payload.with_mut(|to| {
            for index in 0..words.min(WORDS) {
                // SAFETY: inside the payload. Only its owner writes a board, and nobody reads it
                // now: readers wait for the store below.
                unsafe { (&raw mut (*to)[index]).write(value.words[index]) };
            }
        });
        self.step.store(step, Ordering::Release);
    }

    /// The value that it shows, for whom it has been put there and who has not been through with it.
    #[inline]
    pub fn get(&self, words: usize) -> Value {
        let mut value = Value::default();
        self.payload.with(|from| {
            for index in 0..words.min(WORDS) {
                // SAFETY: inside the payload. The owner wrote it before what this member waited
                // for, and writes it again only after this member has gone on.
                value.words[index] = unsafe { (&raw const (*from)[index]).read() };
            }
        });
        value
    }
}

impl Core {
    /// Whether boards are read without a barrier before.
    #[inline]
    fn is_flat(&self) -> bool {
        self.disseminates && self.block.size <= FLAT
    }

    #[inline]
    fn board(&self, rank: u32, phase: u32) -> &Board {
        &self.block.lines(rank).boards[phase as usize % 2]
    }

    /// Puts a value on the board of a phase.
    #[inline]
    fn show(&self, phase: u32, value: &Value, words: usize, step: u64) {
        // Readers of phase - 2 are done (see the module `block`), and readers of this phase wait for
        // the step or for the barrier behind it.
        self.board(self.rank, phase).put(value, words, step);
    }

    /// Whether a member has shown its value of this step.
    #[inline]
    fn shown(&self, rank: u32, step: u64) -> Option<Result<()>> {
        let seen = self.board(rank, step as u32).step.load(Ordering::Acquire);
        if seen == step {
            return Some(Ok(()));
        }
        (seen as u32 == step as u32).then(|| Err(self.mismatch(rank)))
    }

    /// A member's value of a phase that it has shown: it writes it again only after this member has
    /// entered the next phase.
    #[inline]
    fn value(&self, rank: u32, phase: u32, words: usize) -> Value {
        self.board(rank, phase).get(words)
    }

    /// Shows the first `bytes` bytes of `mine` and calls `each(rank, value)` for every member in
    /// rank order, this one included. A full synchronisation: it ends after everybody has called
    /// it.
    #[inline]
    pub fn exchange(
        &self,
        sign: Sign,
        deadline: Deadline,
        mine: &Value,
        bytes: usize,
        mut each: impl FnMut(u32, &Value),
    ) -> Result<()> {
        let words = bytes.div_ceil(8);
        if !self.is_flat() {
            let step = self.step_of(self.coming(), sign);
            self.show(self.coming(), mine, words, step);
            let phase = self.sync(sign, deadline)?;
            for rank in 0..self.block.size {
                each(rank, &self.value(rank, phase, words));
            }
            return Ok(());
        }
        let phase = self.next_phase(sign);
        let step = self.step_of(phase, sign);
        self.show(phase, mine, words, step);
        self.block.lines(self.rank).wait.notify();
        for rank in 0..self.block.size {
            if rank == self.rank {
                each(rank, mine);
                continue;
            }
            match self.shown(rank, step) {
                Some(come) => come?,
                None => self.await_board(sign, rank, step, deadline)?,
            }
            each(rank, &self.value(rank, phase, words));
        }
        Ok(())
    }

    fn await_board(&self, sign: Sign, rank: u32, step: u64, deadline: Deadline) -> Result<()> {
        let during = sign.what.during();
        let cell = &self.block.lines(rank).wait;
        let shown = || self.shown(rank, step);
        self.block.node.wait(cell, deadline, during, shown, || self.check(during))?
    }
}

impl Course<'_> {
    /// As [`Core::exchange`].
    pub async fn exchange(
        &self,
        mine: &Value,
        bytes: usize,
        mut each: impl FnMut(u32, &Value),
    ) -> Result<()> {
        let core = self.core();
        if let Some(deadline) = self.blocking() {
            return core.exchange(self.sign, deadline, mine, bytes, each);
        }
        let words = bytes.div_ceil(8);
        if !core.is_flat() {
            let step = core.step_of(core.coming(), self.sign);
            core.show(core.coming(), mine, words, step);
            let phase = self.sync().await?;
            for rank in 0..core.block.size {
                each(rank, &core.value(rank, phase, words));
            }
            return Ok(());
        }
        let phase = core.next_phase(self.sign);
        let step = core.step_of(phase, self.sign);
        core.show(phase, mine, words, step);
        core.block.lines(core.rank).wait.notify();
        for rank in (0..core.block.size).filter(|&rank| rank != core.rank) {
            self.until(Place::Lines(rank), || core.shown(rank, step)).await?;
        }
        for rank in 0..core.block.size {
            each(rank, &core.value(rank, phase, words));
        }
        Ok(())
    }
}
