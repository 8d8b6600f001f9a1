//! The flat exchange of small values: every member shows a value of up to 56 bytes on its board
//! and reads everybody else's. Value and step share a cache line, so one transfer per peer moves
//! the data and synchronises at the same time.
//!
//! With more members than [`FLAT`], reading all boards while they change would cost more than a
//! barrier and then a look; and where ranks share cores, a barrier by count needs one waking
//! instead of one for each member.

use super::block::{BOARD, Board, MemberLines};
use super::core::{Core, Place};
use super::sign::Sign;
use super::step::Course;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Result};
use crate::layout::Datum;

/// Members up to which reading every board beats a barrier.
const FLAT: u32 = 16;

/// Words of a board.
pub(super) const WORDS: usize = BOARD / 8;

/// What is on a board, and what is shown there: `W` words, aligned as `A` is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Shown<A, const W: usize> {
    _alignment: [A; 0],
    words: [u64; W],
}

/// A line's alignment.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line;

/// All of a board. Elements of every type are aligned in it.
pub(super) type Value = Shown<Line, WORDS>;

/// The first word of one. It stays in a register, or is loaded as it was stored, while a [`Value`] is copied in
/// larger pieces than it was written in: those are not to be had before all stores are done that were begun until
/// then, and one of them is that which the others wait for.
pub(super) type Word = Shown<u64, 1>;

impl<A: Copy, const W: usize> Default for Shown<A, W> {
    #[inline]
    fn default() -> Self {
        Shown { _alignment: [], words: [0; W] }
    }
}

impl<A: Copy, const W: usize> Shown<A, W> {
    /// Payload bytes.
    pub const BYTES: usize = 8 * W;

    /// Whether `len` elements of a type have room in it.
    #[inline]
    pub const fn holds<T>(len: usize) -> bool {
        size_of::<T>() * len <= Self::BYTES && align_of::<T>() <= align_of::<Self>()
    }

    /// Whether one element of a type is all of it.
    #[inline]
    pub const fn is_filled_by<T>() -> bool {
        size_of::<T>() == Self::BYTES && Self::holds::<T>(1)
    }

    /// The first bytes of `bytes`, as many as fit.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let mut value = Self::default();
        if let Ok(word) = bytes.try_into() {
            value.words[0] = u64::from_ne_bytes(word);
        } else {
            let len = bytes.len().min(Self::BYTES);
            // SAFETY: `len` bytes fit into the words, and any bytes are words.
            unsafe {
                let to = value.words.as_mut_ptr().cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
        }
        value
    }

    /// Copies its first bytes to `bytes`, which are no more than it has.
    #[inline]
    pub fn copy_to(&self, bytes: &mut [u8]) {
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *bytes) {
            *word = self.words[0].to_ne_bytes();
        } else {
            bytes.copy_from_slice(self.elements(bytes.len()));
        }
    }

    /// Its bytes as elements, at most as many as it has room for.
    #[inline]
    pub fn elements<T: Datum>(&self, len: usize) -> &[T] {
        let len = if Self::holds::<T>(len) { len } else { 0 };
        // SAFETY: so many elements lie within the words, aligned as the value is; every bit
        // pattern is a valid Datum.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), len) }
    }

    /// As [`Value::elements`], to write.
    #[inline]
    pub fn elements_mut<T: Datum>(&mut self, len: usize) -> &mut [T] {
        let len = if Self::holds::<T>(len) { len } else { 0 };
        // SAFETY: as above, and every byte of an element is a byte of a word.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }

    /// One of its words.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// With another value for one of its words.
    pub fn with_word(mut self, index: usize, word: u64) -> Self {
        self.words[index] = word;
        self
    }
}

impl Value {
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
}

impl Board {
    /// Shows a value to all who wait for `step`; nobody reads what was there before any more.
    #[inline]
    pub fn put<A, const W: usize>(&self, value: &Shown<A, W>, words: usize, step: u64) {
        const { assert!(W <= WORDS) };
        self.payload.with_mut(|to| {
            for index in 0..words.min(W) {
                // SAFETY: inside the payload. Only its owner writes a board, and nobody reads it
                // now: readers wait for the store below.
                unsafe { (&raw mut (*to)[index]).write(value.words[index]) };
            }
        });
        self.step.store(step, Ordering::Release);
    }

    /// As [`Board::put`], of bytes, as many as fit.
    #[inline]
    pub fn put_bytes(&self, data: &[u8], step: u64) {
        self.payload.with_mut(|to| match data.try_into() {
            // SAFETY: a word has room in the payload, which is aligned for it; otherwise as in `put`.
            Ok(word) => unsafe { to.cast::<u64>().write(u64::from_ne_bytes(word)) },
            Err(_) => {
                let len = data.len().min(BOARD);
                // SAFETY: no more than have room; otherwise as in `put`.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.cast(), len) };
            }
        });
        self.step.store(step, Ordering::Release);
    }

    /// The value that it shows, for whom it has been put there and who has not been through with it.
    #[inline]
    pub fn get<A, const W: usize>(&self) -> Shown<A, W> {
        const { assert!(W <= WORDS) };
        // SAFETY: inside the payload. The owner wrote it before what this member waited for, and writes it
        // again only after this member has gone on.
        let words = self.payload.with(|from| unsafe { from.cast::<[u64; W]>().read() });
        Shown { _alignment: [], words }
    }

    /// As [`Board::get`], of the bytes from `at` on, as many as there are.
    #[inline]
    pub fn get_bytes(&self, at: usize, data: &mut [u8]) {
        let len = data.len().min(BOARD.saturating_sub(at));
        self.payload.with(|from| {
            let from = from.cast::<u8>().wrapping_add(at);
            match <&mut [u8; 8]>::try_from(&mut data[..len]) {
                // SAFETY: `len` bytes from `at` on end no later than the payload; otherwise as in `get`.
                Ok(word) => *word = unsafe { from.cast::<[u8; 8]>().read() },
                // SAFETY: the same.
                Err(_) => unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), len) },
            }
        });
    }
}

impl MemberLines {
    /// Readers of phase - 2 are done (see the module `block`), and readers of this phase wait for the step or for
    /// the barrier behind it.
    #[inline]
    fn board(&self, phase: u32) -> &Board {
        &self.boards[phase as usize % 2].0
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
        self.block.lines(rank).board(phase)
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
    fn value<A, const W: usize>(&self, rank: u32, phase: u32) -> Shown<A, W> {
        self.board(rank, phase).get()
    }

    /// Shows the first `bytes` bytes of `mine` and calls `each(rank, value)` for every member in
    /// rank order, this one included. A full synchronisation: it ends after everybody has called
    /// it.
    #[inline]
    pub fn exchange<A, const W: usize>(
        &self,
        sign: Sign,
        deadline: &Deadline,
        mine: &Shown<A, W>,
        bytes: usize,
        mut each: impl FnMut(u32, &Shown<A, W>),
    ) -> Result<()> {
        let show = |board: &Board, step| board.put(mine, bytes.div_ceil(8), step);
        self.exchange_boards(sign, deadline, show, |rank, board| match board {
            None => each(rank, mine),
            Some(board) => each(rank, &board.get()),
        })
    }

    /// A word of each member, combined in rank order. Synchronises as [`Core::exchange`].
    ///
    /// The steps of [`Core::exchange_boards`] once more: by its closures, which keep the words in memory, an allreduce
    /// took 74 instead of 70 ns between near cores, with as many instructions.
    #[inline]
    pub fn fold_words(
        &self,
        sign: Sign,
        deadline: &Deadline,
        mine: Word,
        fold: impl Fn(&mut Word, &Word),
    ) -> Result<Word> {
        let mut sum = mine;
        if !self.is_flat() {
            self.exchange(sign, deadline, &mine, Word::BYTES, |rank, word| match rank {
                0 => sum = *word,
                _ => fold(&mut sum, word),
            })?;
            return Ok(sum);
        }
        let own = self.block.lines(self.rank);
        let phase = self.next_phase(own, sign);
        let step = self.step_of(phase, sign);
        own.board(phase).put(&mine, 1, step);
        own.wait.notify();
        for rank in 0..self.block.size {
            let word = match rank == self.rank {
                true => mine,
                false => self.shown_word(sign, (rank, phase), step, deadline)?,
            };
            match rank {
                0 => sum = word,
                _ => fold(&mut sum, &word),
            }
        }
        Ok(sum)
    }

    #[inline(always)]
    fn shown_word(
        &self,
        sign: Sign,
        (rank, phase): (u32, u32),
        step: u64,
        deadline: &Deadline,
    ) -> Result<Word> {
        let board = self.board(rank, phase);
        if !self.comes_at_once::<false>(&board.step, step) {
            self.await_board(sign, rank, step, deadline)?;
        }
        Ok(board.get())
    }

    /// As [`Core::exchange`]: `show` puts something on this member's board, and `each` gets the others' boards.
    #[inline]
    pub fn exchange_boards(
        &self,
        sign: Sign,
        deadline: &Deadline,
        show: impl FnOnce(&Board, u64),
        mut each: impl FnMut(u32, Option<&Board>),
    ) -> Result<()> {
        if !self.is_flat() {
            return self.exchange_behind_barrier(sign, deadline, show, each);
        }
        let own = self.block.lines(self.rank);
        let phase = self.next_phase(own, sign);
        let step = self.step_of(phase, sign);
        show(own.board(phase), step);
        own.wait.notify();
        for rank in 0..self.block.size {
            if rank == self.rank {
                each(rank, None);
                continue;
            }
            let board = self.board(rank, phase);
            if !self.comes_at_once::<false>(&board.step, step) {
                self.await_board(sign, rank, step, deadline)?;
            }
            each(rank, Some(board));
        }
        Ok(())
    }

    /// The same for more members than [`FLAT`], or fewer cores.
    #[inline(never)]
    fn exchange_behind_barrier(
        &self,
        sign: Sign,
        deadline: &Deadline,
        show: impl FnOnce(&Board, u64),
        mut each: impl FnMut(u32, Option<&Board>),
    ) -> Result<()> {
        let coming = self.coming();
        show(self.board(self.rank, coming), self.step_of(coming, sign));
        let phase = self.sync(sign, *deadline)?;
        for rank in 0..self.block.size {
            each(rank, (rank != self.rank).then(|| self.board(rank, phase)));
        }
        Ok(())
    }

    #[inline(never)]
    fn await_board(&self, sign: Sign, rank: u32, step: u64, deadline: &Deadline) -> Result<()> {
        let during = sign.what.during();
        let cell = &self.block.lines(rank).wait;
        let mut come = Ok(());
        let shown = || self.shown(rank, step).map(|shown| come = shown);
        self.block.node.wait(cell, *deadline, during, shown, || self.check(during))?;
        come
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
            return core.exchange(self.sign, &deadline, mine, bytes, each);
        }
        let words = bytes.div_ceil(8);
        if !core.is_flat() {
            let step = core.step_of(core.coming(), self.sign);
            core.board(core.rank, core.coming()).put(mine, words, step);
            let phase = self.sync().await?;
            for rank in 0..core.block.size {
                each(rank, &core.value(rank, phase));
            }
            return Ok(());
        }
        let own = core.block.lines(core.rank);
        let phase = core.next_phase(own, self.sign);
        let step = core.step_of(phase, self.sign);
        own.board(phase).put(mine, words, step);
        own.wait.notify();
        for rank in (0..core.block.size).filter(|&rank| rank != core.rank) {
            self.until(Place::Lines(rank), || core.shown(rank, step)).await?;
        }
        for rank in 0..core.block.size {
            each(rank, &core.value(rank, phase));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicU64, UnsafeCell};

    #[test]
    fn bytes_come_off_a_board_as_they_were_put_there() {
        let board = Board { step: AtomicU64::new(0), payload: UnsafeCell::new([0; WORDS]) };
        for len in 0..=BOARD {
            let data: Vec<u8> = (0..len).map(|i| (3 * i + len) as u8).collect();
            board.put_bytes(&data, len as u64 + 1);
            assert_eq!(board.step.load(Ordering::Relaxed), len as u64 + 1);
            for at in 0..=len {
                for part in 0..=len - at {
                    let mut got = vec![0; part];
                    board.get_bytes(at, &mut got);
                    assert_eq!(got, data[at..at + part], "{len} bytes, {part} from {at} on");
                }
            }
            assert_eq!(board.get::<Line, WORDS>().bytes()[..len], data);
            let (mut back, mut word) = (vec![0; len], vec![0; len.min(8)]);
            Value::of(&data).copy_to(&mut back);
            Word::of(&data).copy_to(&mut word);
            assert_eq!((&back[..], &word[..]), (&data[..], &data[..len.min(8)]));
        }
        // What does not fit is left out.
        board.put_bytes(&[7; 2 * BOARD], 1);
        let mut got = [1; 2 * BOARD];
        board.get_bytes(BOARD - 2, &mut got);
        assert_eq!(got[..3], [7, 7, 1]);
        board.get_bytes(BOARD + 9, &mut got[..8]);
        assert_eq!(got[..3], [7, 7, 1]);
    }

    #[test]
    fn elements_lie_in_what_has_room_and_alignment_for_them() {
        assert!(Word::holds::<u32>(2) && !Word::holds::<u32>(3) && Value::holds::<u32>(14));
        assert!(!Word::holds::<Line>(0) && Value::holds::<Line>(0));
        assert_eq!(Value::of(&[1, 0, 0, 0, 2]).elements::<u32>(2), [1, 2]);
        assert!(Value::default().elements::<u64>(8).is_empty(), "more than there is room for");
    }
}
