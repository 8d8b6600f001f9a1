//! The consumer's side of a lane; see [`lane`](super::lane).

use super::cell::{Cell, HALF_BYTES, Incoming, Part, Scratch, Single};
use super::lane::{Generation, LaneMemory, WHAT};
use super::message::{cell, read};
use super::position::Position;
use super::tag::{COMMITTED, Tag};
use super::{Polled, damaged, publish_after};
use crate::base::Result;
use crate::base::sync::{AtomicU32, Ordering, heavy_fence};

/// Most cells whose lines are asked for before their message is there: one of 512 bytes.
const PREFETCHED: usize = 10;

/// Cells ahead of a message whose lines are asked for while messages follow each other: the lines
/// of several are on their way at a time, however long the work for each message is. What the
/// producer has not written yet is still in this core's cache from the last lap, so that asking
/// for it moves nothing.
const AHEAD: usize = 8;

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

/// The consumer's side of a lane. There must be only one at a time.
#[derive(Debug)]
pub struct LaneReceiver {
    at: Position,
    /// The last message was the first one of its cell, in which a second one may come.
    behind: bool,
    unpublished: usize,
    /// Cells of the last message.
    expected: usize,
    /// The last poll found a message.
    follows: bool,
    broken: bool,
}

impl LaneReceiver {
    /// A consumer for the lane's present grant, which must be `generation` (its low bits);
    /// `None` if it is another.
    pub fn open<const N: usize>(lane: &LaneMemory<N>, generation: u64) -> Option<LaneReceiver> {
        let grant = lane.grant.grant.load(Ordering::Acquire);
        let at = Position(lane.grant.start.load(Ordering::Acquire));
        let same = Generation((grant >> 1) as u32).low_bits() == generation;
        (same && at.index() == 0).then_some(LaneReceiver {
            at,
            behind: false,
            unpublished: 0,
            expected: 0,
            follows: false,
            broken: false,
        })
    }

    /// Takes the next message, if there is one ([`Polled::Unfinished`] is never the answer).
    ///
    /// Never waits. The only error is a damaged lane, which stays an error.
    ///
    /// Cost: one line, read; the line's transfer if there is a message. Per `N/8` cells one store
    /// to the consumer's line and a wake-up if the producer sleeps.
    #[inline(always)]
    pub fn poll<'s, const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        scratch: &'s mut Scratch,
    ) -> Result<Polled<'s>> {
        let tag = Tag(cell(&lane.cells, self.at, 0).tag.load(Ordering::Acquire));
        if let Some((there, tag)) = self.second(lane) {
            // SAFETY: the tag says that the part is the consumer's now, and that publishes no head behind
            // the cell before it has gone on.
            let Some(single) = (unsafe { there.single(Part::Second) }).filter(|_| !self.broken)
            else {
                self.broken = true;
                return Err(damaged(WHAT, format!("the second message of {tag:?} is too long")));
            };
            self.pass_second(lane);
            let (label, bytes) = single.copy(scratch);
            return Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }));
        }
        if tag.lap() != self.at.tag_lap() {
            self.expect(lane);
            return Ok(Polled::Empty);
        }
        self.go_on();
        if tag.state() != COMMITTED || self.broken {
            self.broken = true;
            return Err(damaged(WHAT, format!("at {:?} there is {tag:?}", self.at)));
        }
        self.look_ahead(lane, tag.cells());
        let read = read(WHAT, &lane.cells, self.at, tag, scratch);
        let (label, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                self.broken = true;
                return Err(error);
            }
        };
        self.pass(lane, tag.cells(), bytes.len());
        Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }))
    }

    /// Has `f` look at the next message where it lies, if it is one of a single cell, and takes it if `f`
    /// says so. Whatever is left, or broken, [`LaneReceiver::poll`] is for.
    ///
    /// Cost: as for `poll`, without its copy.
    #[inline(always)]
    pub fn take_one<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        f: impl FnOnce(Single<'_>) -> bool,
    ) -> One {
        let first = cell(&lane.cells, self.at, 0);
        let tag = Tag(first.tag.load(Ordering::Acquire));
        if let Some((there, _)) = self.second(lane) {
            // SAFETY: as in `poll`.
            let single = unsafe { there.single(Part::Second) };
            if self.broken || !single.is_some_and(f) {
                return One::Left;
            }
            self.pass_second(lane);
            return One::Taken;
        }
        if tag.lap() != self.at.tag_lap() {
            self.expect(lane);
            return One::Nothing;
        }
        if !tag.is_whole(self.at) || self.broken {
            return One::Left;
        }
        // SAFETY: the tag is committed in this lap, and the consumer, which runs this, has not
        // published a head behind the cell: what the message has of the body is the consumer's.
        let Some(single) = (unsafe { first.single(Part::First) }) else { return One::Left };
        let len = single.len();
        if !f(single) {
            return One::Left;
        }
        self.go_on();
        self.look_ahead(lane, 1);
        self.pass(lane, 1, len);
        One::Taken
    }

    /// The cell of the last message, if there is a second one in it. Asked after a look at the next
    /// cell: if that has come, and this has none, it will never have one.
    #[inline(always)]
    fn second<'l, const N: usize>(&self, lane: &'l LaneMemory<N>) -> Option<(&'l Cell, Tag)> {
        if !self.behind {
            return None;
        }
        let there = cell(&lane.cells, self.at.before(N), 0);
        let tag = Tag(there.tag.load(Ordering::Acquire));
        tag.has_second().then_some((there, tag))
    }

    /// The second message of a cell was taken.
    #[inline(always)]
    fn pass_second<const N: usize>(&mut self, lane: &LaneMemory<N>) {
        self.go_on();
        self.follows = true;
        if self.unpublished >= publish_after(N) {
            self.publish(lane);
        }
    }

    /// Nothing more is expected of the last message's cell.
    #[inline(always)]
    fn go_on(&mut self) {
        self.unpublished += usize::from(self.behind);
        self.behind = false;
    }

    /// Nothing has come yet.
    #[inline(always)]
    fn expect<const N: usize>(&mut self, lane: &LaneMemory<N>) {
        // Further cells are written before the first, so their lines can be on their way
        // while the tag is still to come. How many there will be is a guess: as last time.
        for k in 1..self.expected.min(PREFETCHED) {
            cell(&lane.cells, self.at, k).prefetch();
        }
        self.follows = false;
    }

    /// A message of so many cells has come.
    #[inline(always)]
    fn look_ahead<const N: usize>(&mut self, lane: &LaneMemory<N>, cells: usize) {
        if self.follows && N > 2 * AHEAD {
            for k in 0..cells.min(AHEAD) {
                cell(&lane.cells, self.at, AHEAD + k).prefetch();
            }
        }
        self.follows = true;
    }

    /// A message of so many cells and bytes was taken.
    #[inline(always)]
    fn pass<const N: usize>(&mut self, lane: &LaneMemory<N>, cells: usize, len: usize) {
        self.expected = cells;
        self.at = self.at.plus(cells, N);
        self.behind = len <= HALF_BYTES;
        if !self.behind {
            self.unpublished += cells;
        }
        if self.unpublished >= publish_after(N) {
            self.publish(lane);
        }
    }

    /// Whether no message is there now.
    pub fn is_empty<const N: usize>(&self, lane: &LaneMemory<N>) -> bool {
        let tag = Tag(cell(&lane.cells, self.at, 0).tag.load(Ordering::Acquire));
        tag.lap() != self.at.tag_lap() && self.second(lane).is_none()
    }

    #[cold]
    fn publish<const N: usize>(&mut self, lane: &LaneMemory<N>) {
        self.unpublished = 0;
        let head = if self.behind { self.at.before(N) } else { self.at };
        lane.head.head.store(head.0, Ordering::Release);
        lane.head.space.notify();
    }

    /// Takes the grant back. From now on the producer begins no message; one that it has begun it
    /// may still complete. Costs one system call. Wakes a producer that waits for room.
    pub fn revoke<const N: usize>(&self, lane: &LaneMemory<N>) {
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
    pub fn close<const N: usize>(self, lane: &LaneMemory<N>) {
        // Two laps on: a message that a dying producer did not complete may reach into the next.
        let mut lap = self.at.lap().wrapping_add(2);
        if lap == u32::MAX {
            // Its tags would be of lap 0, as those of pages that were given back.
            lap = 0;
        }
        let start = Position::of_lap(lap);
        lane.head.head.store(start.0, Ordering::Relaxed);
        lane.grant.start.store(start.0, Ordering::Release);
    }
}
