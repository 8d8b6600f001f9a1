//! The consumer's side of a lane; see [`lane`](super::lane).

use super::cell::{Cell, SHARED_BYTES};
use super::lane::{Generation, LaneMemory, WHAT};
use super::message::{cell, read};
use super::position::Position;
use super::received::{InPlace, Incoming, Scratch, Single};
use super::several::{self, Several};
use super::tag::{COMMITTED, Tag};
use super::{NONE, Polled, damaged, publish_after};
use crate::base::sync::{AtomicU32, Ordering, heavy_fence, spin_hint};
use crate::base::{Error, Result};

/// Most cells whose lines are asked for before their message is there: one of 512 bytes.
const PREFETCHED: u32 = 10;

/// Cells ahead of a message whose lines are asked for while messages follow each other in short laps: the lines
/// of several are on their way at a time, however long the work for each message is. What the
/// producer has not written yet is still in this core's cache from the last lap, so that asking
/// for it moves nothing. So many because messages of 512 B have ten cells: with 8 of them ahead such a
/// stream had 5.7 M/s, with 16 8.6, with 32 9.1, with 48 9.5, but those of 4 KiB were slower then.
///
/// Not in long laps, but for those that share cells: what has not been written yet is not in this core's cache
/// there, and asking for it takes it to both caches one time more; the processor itself sees that line
/// follows line. (32 B 35 to 43 M/s, 64 B 30 to 34; 8 B would lose a tenth.)
const AHEAD: usize = 32;

/// What came of a look at one message of a single cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum One {
    /// It was taken.
    Taken,
    /// None has come.
    Nothing,
    /// Something is there that was not taken.
    Left,
}

/// Who looks at a message where it lies. A trait, since closures cannot be told to be
/// inlined, and a call would put all that it looks at on the stack.
pub trait Taker {
    /// Whether it takes the message, all of which it has copied then.
    fn takes(&mut self, message: impl InPlace) -> bool;

    /// While nothing is there: how often to look again before the lane is left.
    #[inline(always)]
    fn looks(&self) -> u32 {
        0
    }
}

#[cfg(test)]
impl<F: FnMut(&dyn InPlace) -> bool> Taker for F {
    fn takes(&mut self, message: impl InPlace) -> bool {
        self(&message)
    }

    fn looks(&self) -> u32 {
        // Models try every order of two looks.
        u32::from(cfg!(loom))
    }
}

/// The consumer's side of a lane. There must be only one at a time.
#[derive(Debug)]
pub struct LaneReceiver {
    at: Position,
    /// Tag of a message of one cell at `at`, but for its owner and its last bit ([`Tag::shape`]); [`BROKEN`]
    /// once something was damaged. Changes once a lap, so that it need not be made for each message.
    whole: u64,
    /// Index of the last message's cell, if others may come in it; else [`NONE`].
    behind: u32,
    /// What else of that cell has been taken, see [`Tag::further`].
    had: u32,
    /// Cells passed since a head was last published. That may have been one short of where this was.
    unpublished: u32,
    /// Cells of the last message.
    expected: u32,
    /// The last poll found a message.
    follows: bool,
    /// Cells of the lap that `at` is in, as far as is known: if it is a longer one, that is found at the end of
    /// a short one.
    cells: usize,
}

/// The shape of no tag.
const BROKEN: u64 = u64::MAX;

impl LaneReceiver {
    /// A consumer for the lane's present grant, which must be `generation` (its low bits);
    /// `None` if it is another.
    pub fn open<const N: usize, const S: usize>(
        lane: &LaneMemory<N, S>,
        generation: u64,
    ) -> Option<LaneReceiver> {
        let grant = lane.grant.grant.load(Ordering::Acquire);
        let at = Position(lane.grant.start.load(Ordering::Acquire));
        let same = Generation((grant >> 1) as u32).low_bits() == generation;
        (same && at.index() == 0).then_some(LaneReceiver {
            at,
            whole: Tag::whole(at),
            behind: NONE,
            had: 0,
            unpublished: 0,
            expected: 0,
            follows: false,
            cells: S,
        })
    }

    /// Takes the next message, if there is one ([`Polled::Unfinished`] is never the answer).
    ///
    /// Never waits. The only error is a damaged lane, which stays an error.
    ///
    /// Cost: one line, read; the line's transfer if there is a message. Per `N/8` cells one store
    /// to the consumer's line and a wake-up if the producer sleeps.
    #[inline(always)]
    pub fn poll<'s, const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        scratch: &'s mut Scratch,
    ) -> Result<Polled<'s>> {
        let tag = Tag(cell(&lane.cells, self.at, 0).tag.load(Ordering::Acquire));
        if let Some((there, tag)) = self.further(lane) {
            // SAFETY: the consumer has not gone on.
            let Some(single) = (unsafe { self.next_of(there, tag) }) else {
                return Err(
                    self.break_off(format!("what {tag:?} says of further messages is wrong"))
                );
            };
            self.pass_further();
            let (label, bytes) = single.copy(scratch);
            return Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }));
        }
        if tag.shape() == self.whole {
            // SAFETY: as in `take_one`.
            let single = unsafe { cell(&lane.cells, self.at, 0).single() };
            let Some(single) = single else {
                return Err(
                    self.break_off(format!("at {:?} more is said to be than fits", self.at))
                );
            };
            let (len, (label, bytes)) = (single.size(), single.copy(scratch));
            self.look_ahead(lane, 1, len <= SHARED_BYTES);
            self.pass(lane, 1, len);
            return Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }));
        }
        if tag.lap() != self.at.tag_lap() && self.whole != BROKEN {
            self.expect(lane);
            return Ok(Polled::Empty);
        }
        if tag.state() != COMMITTED || self.whole == BROKEN {
            return Err(self.break_off(format!("at {:?} there is {tag:?}", self.at)));
        }
        self.look_ahead(lane, tag.cells(), false);
        self.reach(lane, tag.cells());
        let read = read(WHAT, lane.lap(self.cells), self.at, tag, scratch);
        let (label, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                (self.whole, self.behind) = (BROKEN, NONE);
                return Err(error);
            }
        };
        self.pass(lane, tag.cells(), bytes.len());
        Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }))
    }

    /// Whether something has come that [`LaneReceiver::poll`] would find.
    ///
    /// Cost: the line of the next message, read.
    #[inline(always)]
    pub fn has_next<const N: usize, const S: usize>(&self, lane: &LaneMemory<N, S>) -> bool {
        let tag = Tag(cell(&lane.cells, self.at, 0).tag.load(Ordering::Relaxed));
        tag.lap() == self.at.tag_lap() || self.further(lane).is_some()
    }

    /// Looks once and `looks` times more whether something has come, or the lane is known to be damaged: whether it
    /// is so.
    ///
    /// Cost: while nothing comes, a few instructions and a pause for each look.
    #[inline(always)]
    pub fn watch<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        mut looks: u32,
    ) -> bool {
        let next = cell(&lane.cells, self.at, 0);
        let tag = Tag(next.tag.load(Ordering::Relaxed));
        tag.lap() == self.at.tag_lap()
            || self.whole == BROKEN
            || self.further(lane).is_some()
            || self.expect_one(lane, (next, tag), &mut looks)
    }

    /// Whether the next message, if it is like the last one, is one for [`LaneReceiver::take_one`] or
    /// [`LaneReceiver::take_several`].
    #[inline(always)]
    pub fn expects_short(&self) -> bool {
        self.expected as usize <= several::MOST
    }

    /// Has `taker` look at the next message where it lies, if it is one of a single cell, and takes it if
    /// that says so. Whatever is left, or broken, [`LaneReceiver::poll`] is for.
    ///
    /// Cost: as for `poll`, without its copy.
    #[inline(always)]
    pub fn take_one<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        taker: &mut impl Taker,
    ) -> One {
        let Some(next) = lane.cells.get(self.at.index()) else { return One::Left };
        let mut looks = taker.looks();
        loop {
            let tag = Tag(next.tag.load(Ordering::Acquire));
            if let Some((there, tag)) = self.further(lane) {
                // SAFETY: as in `poll`.
                let single = unsafe { self.next_of(there, tag) };
                if !single.is_some_and(|single| taker.takes(single)) {
                    return One::Left;
                }
                self.pass_further();
                return One::Taken;
            }
            if tag.shape() == self.whole {
                // SAFETY: the tag is committed in this lap, and the consumer, which runs this, has not
                // published a head behind the cell: what the message has of the body is the consumer's.
                let Some(single) = (unsafe { next.single() }) else { return One::Left };
                let len = single.size();
                if !taker.takes(single) {
                    return One::Left;
                }
                self.look_ahead(lane, 1, len <= SHARED_BYTES);
                self.pass(lane, 1, len);
                return One::Taken;
            }
            if tag.lap() != self.at.tag_lap() {
                if self.expect_one(lane, (next, tag), &mut looks) {
                    continue;
                }
                return One::Nothing;
            }
            return One::Left;
        }
    }

    /// As [`LaneReceiver::take_one`], if the next message is one of several cells, up to
    /// [`SEVERAL_BYTES`](super::SEVERAL_BYTES), that does not reach beyond the end of the lap.
    ///
    /// Cost: its lines, and the taker's copy.
    #[inline(always)]
    pub fn take_several<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        taker: &mut impl Taker,
    ) -> One {
        let Some(next) = lane.cells.get(self.at.index()) else { return One::Left };
        let mut looks = taker.looks();
        let tag = loop {
            let tag = Tag(next.tag.load(Ordering::Acquire));
            if self.further(lane).is_some() {
                return One::Left;
            }
            if tag.of_one_cell().shape() == self.whole {
                break tag;
            }
            if tag.lap() == self.at.tag_lap() || self.whole == BROKEN {
                return One::Left;
            }
            if !self.expect_one(lane, (next, tag), &mut looks) {
                return One::Nothing;
            }
        };
        let n = tag.cells();
        self.reach(lane, n);
        let Some(cells) = several::stretch(lane.lap(self.cells), self.at, n) else {
            return One::Left;
        };
        self.look_ahead(lane, n, false);
        // SAFETY: as in `take_one`, of as many cells as the tag says.
        let Some(message) = (unsafe { Several::of(cells, tag) }) else { return One::Left };
        let len = message.size();
        if !taker.takes(message) {
            return One::Left;
        }
        self.pass(lane, n, len);
        One::Taken
    }

    /// The cell of the last message, if something else has come in it. Asked after a look at the next
    /// cell: if that has come, and nothing more is in this, nothing ever will be.
    #[inline(always)]
    fn further<'l, const N: usize, const S: usize>(
        &self,
        lane: &'l LaneMemory<N, S>,
    ) -> Option<(&'l Cell, Tag)> {
        let there = lane.cells.get(self.behind as usize)?;
        let tag = Tag(there.tag.load(Ordering::Acquire));
        (tag.repeats() != self.had).then_some((there, tag))
    }

    /// The next one of those.
    ///
    /// # Safety
    /// That is what [`LaneReceiver::further`] gave, and the consumer has not gone on. (The tag, which was
    /// acquired, says that it is the consumer's, and that publishes no head behind the cell before.)
    #[inline(always)]
    unsafe fn next_of<'l>(&self, there: &'l Cell, tag: Tag) -> Option<Single<'l>> {
        // SAFETY: the caller's.
        (tag.repeats() > self.had).then(|| unsafe { there.repeat(self.had as usize + 1) })?
    }

    /// That was taken.
    #[inline(always)]
    fn pass_further(&mut self) {
        self.had += 1;
        self.follows = true;
    }

    /// A message of so many cells has been found.
    #[inline(always)]
    fn reach<const N: usize, const S: usize>(&mut self, lane: &LaneMemory<N, S>, cells: usize) {
        if self.at.index() + cells >= self.cells {
            self.find_end(lane);
        }
    }

    /// Whether the lap is a longer one, at the end of a short one.
    #[cold]
    fn find_end<const N: usize, const S: usize>(&mut self, lane: &LaneMemory<N, S>) {
        // That of this lap or an earlier one was written before the message that has been found.
        let longer = lane.grant.longer.load(Ordering::Relaxed);
        let begun = self.at.lap().wrapping_sub(longer as u32) as i32 >= 0;
        if longer >> 32 != 0 && begun {
            self.cells = N;
        }
    }

    /// Nothing has come yet.
    #[inline]
    fn expect<const N: usize, const S: usize>(&mut self, lane: &LaneMemory<N, S>) {
        self.ask_for_others(lane);
        self.follows = false;
    }

    /// Further cells are written before the first, so their lines can be on their way
    /// while the tag is still to come. How many there will be is a guess: as last time.
    #[inline(always)]
    fn ask_for_others<const N: usize, const S: usize>(&self, lane: &LaneMemory<N, S>) {
        for k in 1..self.expected.min(PREFETCHED) {
            cell(lane.lap(self.cells), self.at, k as usize).prefetch();
        }
    }

    /// The same for who looks at this lane alone, and so many times more than once, if nothing comes: with
    /// `next`, and `tag` in it, at the next message's place. Whether something has changed.
    ///
    /// A look takes three instructions and a pause. Between two of a whole receive the processor would have
    /// hundreds under way, of which none is of use when the line has come: 8 B took 100 instead of 84 ns.
    #[inline(always)]
    fn expect_one<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        (next, tag): (&Cell, Tag),
        looks: &mut u32,
    ) -> bool {
        self.expect(lane);
        // The next look takes the line away from its producer, which may be writing it; of several cells the first
        // is written in one go, when all others are, so that the look of somebody who has had much else to do
        // meanwhile comes as soon as may be.
        let pauses = self.expected <= 1 || *looks > 0;
        loop {
            if pauses {
                spin_hint();
            }
            if *looks == 0 {
                return false;
            }
            *looks -= 1;
            self.ask_for_others(lane);
            if next.tag.load(Ordering::Relaxed) != tag.0 || self.further(lane).is_some() {
                return true;
            }
        }
    }

    /// A message of so many cells has come, or one that may be `shared` by others.
    #[inline(always)]
    fn look_ahead<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        cells: usize,
        shared: bool,
    ) {
        if self.follows && (shared || self.cells == S) && S > 2 * AHEAD {
            for k in 0..cells.min(AHEAD) {
                cell(lane.lap(self.cells), self.at, AHEAD + k).prefetch();
            }
        }
        self.follows = true;
    }

    /// A message of so many cells and bytes was taken.
    #[inline(always)]
    fn pass<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        cells: usize,
        len: usize,
    ) {
        self.reach(lane, cells);
        let at = self.at;
        self.behind = if len <= SHARED_BYTES { at.index() as u32 } else { NONE };
        self.had = 0;
        self.expected = cells as u32;
        self.at = at.plus(cells, self.cells);
        if self.at.lap() != at.lap() {
            self.whole = Tag::whole(self.at);
        }
        self.unpublished += cells as u32;
        if self.unpublished >= publish_after(self.cells) as u32 {
            self.publish(lane);
        }
    }

    /// Something is damaged.
    #[cold]
    fn break_off(&mut self, why: String) -> Error {
        (self.whole, self.behind) = (BROKEN, NONE);
        damaged(WHAT, why)
    }

    /// Whether no message is there now.
    pub fn is_empty<const N: usize, const S: usize>(&self, lane: &LaneMemory<N, S>) -> bool {
        let tag = Tag(cell(&lane.cells, self.at, 0).tag.load(Ordering::Acquire));
        tag.lap() != self.at.tag_lap() && self.further(lane).is_none()
    }

    #[cold]
    fn publish<const N: usize, const S: usize>(&mut self, lane: &LaneMemory<N, S>) {
        // The cell in which another message may come is not free yet.
        let short = self.behind != NONE;
        let head = if short { self.at.before(self.cells) } else { self.at };
        self.unpublished = short.into();
        lane.head.head.store(head.0, Ordering::Release);
        lane.head.space.notify();
    }

    /// Takes the grant back. From now on the producer begins no message; one that it has begun it
    /// may still complete. Costs one system call. Wakes a producer that waits for room.
    pub fn revoke<const N: usize, const S: usize>(&self, lane: &LaneMemory<N, S>) {
        lane.grant.grant.fetch_or(1, Ordering::SeqCst);
        heavy_fence();
        lane.head.space.notify();
    }

    /// Whether the producer of a revoked lane can no longer write to it: `sending` is its word.
    /// What it had sent is then visible to [`LaneReceiver::poll`].
    pub fn is_quiet(sending: &AtomicU32) -> bool {
        sending.load(Ordering::Acquire) == 0
    }

    /// Prepares a revoked, quiet (or its producer dead), drained lane for its next producer.
    pub fn close<const N: usize, const S: usize>(self, lane: &LaneMemory<N, S>) {
        // Two laps on: a message that a dying producer did not complete may reach into the next.
        let mut lap = self.at.lap().wrapping_add(2);
        if lap == u32::MAX {
            // Its tags would be of lap 0, as those of pages that were given back.
            lap = 0;
        }
        let start = Position::of_lap(lap);
        lane.head.head.store(start.0, Ordering::Relaxed);
        lane.grant.longer.store(0, Ordering::Relaxed);
        lane.grant.start.store(start.0, Ordering::Release);
    }
}
