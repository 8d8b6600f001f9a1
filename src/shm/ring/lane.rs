//! The lane: a ring of cells from one producer to one consumer.
//!
//! ```text
//! line 0      head   published by the consumer, now and then; `space` to wait on it
//! line 2      grant  generation << 1 | revoked;  `start`: where the next producer begins
//! line 4..    cells
//! ```
//! The producer keeps its place to itself; the consumer finds the next message by the lap in its
//! cell's tag. So a message of up to 48 bytes moves exactly one cache line, and no atomic
//! read-modify-write is needed. The first cell's tag is stored last: a producer that dies while
//! it writes leaves nothing that the consumer could see, and nothing to clean up.
//!
//! # Two in a cell
//!
//! A message of up to 16 bytes leaves half of its cell to the next one, if that has up to 24: a stream of
//! such messages moves half as many lines, and how long a line takes is what each message costs.
//!
//! ```text
//! producer                            consumer, behind the first message of a cell
//!   first half; tag = committed         tag of the next cell?  then that of this one:
//!   ...                                   has a second?          take it
//!   second half; tag |= second            none, but the next?    there will be none: go on to that
//!   next cell; its tag = committed        neither                nothing has come
//! ```
//! Who finds the next cell's tag written sees all that was written before, so also a second message. The
//! consumer counts the cell as free only once it has gone on.
//!
//! # Changing hands
//!
//! A lane lies in the memory of its consumer, who may take it back without the producer's help.
//! Beside the lane this takes a word in the *producer's* own memory, `sending`, which no other
//! process writes (in the lane it would be written by a former producer that wakes up late, and
//! so hide what the present one does):
//!
//! ```text
//! producer, for each message                 consumer
//!   sending = 1                                grant |= revoked
//!   light_fence                                heavy_fence
//!   grant as it was granted?                   sending == 0, or the producer is dead?
//!     no:  sending = 0; never again              then the producer will never again write here:
//!     yes: write; sending = 0 (Release)          drain what is there, move `start` to a fresh
//!                                                lap, and let somebody else have the lane
//! ```
//! Either the producer sees the revocation, or the consumer sees `sending`. The next producer
//! gets another generation, so the former one never takes the grant for its own. It begins at a
//! fresh lap, so nothing that is left in the cells looks like its messages, and the pages of the
//! cells (but not the first, which holds the control lines) may be given back in between: zeros
//! look like nothing, too.

use super::cell::{
    Cell, FIRST_BYTES, HALF_BYTES, Incoming, Part, SECOND_BYTES, Scratch, Single, cells_for,
};
use super::message::{cell, read, write};
use super::payload::Payload;
use super::position::Position;
use super::tag::{COMMITTED, Label, Tag};
use super::{Polled, Push, damaged, largest, publish_after, too_long};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, heavy_fence, light_fence};
use crate::base::{Result, Slot};
use crate::shm::park::WaitCell;

/// Cells of a lane.
pub const LANE_CELLS: usize = 252;

const WHAT: &str = "a lane";

/// Most cells whose lines are asked for before their message is there: one of 512 bytes.
const PREFETCHED: usize = 10;

/// Cells ahead of a message whose lines are asked for while messages follow each other: the lines
/// of several are on their way at a time, however long the work for each message is. What the
/// producer has not written yet is still in this core's cache from the last lap, so that asking
/// for it moves nothing.
const AHEAD: usize = 8;

#[repr(C, align(128))]
struct HeadLine {
    head: AtomicU64,
    space: WaitCell,
}

#[repr(C, align(128))]
struct GrantLine {
    grant: AtomicU64,
    start: AtomicU64,
}

/// A lane as it lies in shared memory. All zeros is a lane never granted.
#[repr(C)]
pub struct LaneMemory<const N: usize = LANE_CELLS> {
    head: HeadLine,
    grant: GrantLine,
    cells: [Cell; N],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    type Lane = LaneMemory;
    assert!(offset_of!(Lane, grant) == 128 && offset_of!(Lane, cells) == 256);
    assert!(offset_of!(HeadLine, space) == 8 && offset_of!(GrantLine, start) == 8);
    assert!(size_of::<LaneMemory>() as u64 == crate::shm::segment::LANE_BYTES);
};

#[cfg(not(loom))]
// SAFETY: repr(C); atomics, and cell bodies owned by tag and head; all bit patterns valid.
unsafe impl<const N: usize> crate::shm::region::SharedLayout for LaneMemory<N> {}

impl<const N: usize> LaneMemory<N> {
    /// A lane in private memory, for tests and measurements.
    pub fn new() -> Self {
        LaneMemory {
            head: HeadLine { head: AtomicU64::new(0), space: WaitCell::new() },
            grant: GrantLine { grant: AtomicU64::new(0), start: AtomicU64::new(0) },
            cells: std::array::from_fn(|_| Cell::new()),
        }
    }

    /// Rung when the consumer has published room, and when it has revoked the grant.
    pub fn space(&self) -> &WaitCell {
        &self.head.space
    }
}

impl<const N: usize> Default for LaneMemory<N> {
    fn default() -> Self {
        LaneMemory::new()
    }
}

/// Which grant of a lane is meant: producer and consumer must mean the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(u32);

impl Generation {
    /// Bits by which a generation is told from others in a message.
    pub const BITS: u32 = 24;

    /// The low [`Generation::BITS`] bits.
    pub fn low_bits(self) -> u64 {
        u64::from(self.0) & ((1 << Self::BITS) - 1)
    }
}

/// The producer's side of a lane.
#[derive(Debug)]
pub struct LaneSender {
    at: Position,
    /// The last head seen: never ahead of the true one.
    head: Position,
    /// The last message has left half of its cell.
    half: bool,
    grant: u64,
}

/// What came of an attempt to send on a lane that may be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LanePush {
    /// The message is in the lane.
    Sent,
    /// There is no room now.
    Full,
    /// The lane is no longer this producer's. Nothing was written.
    Revoked,
}

impl LaneSender {
    /// Takes the grant of a lane, as its new producer. The caller owns the lane, and the former
    /// owner's release of it happened before: ownership is kept where the lane is allotted.
    pub fn open<const N: usize>(lane: &LaneMemory<N>) -> Result<LaneSender> {
        let start = Position(lane.grant.start.load(Ordering::Acquire));
        if start.index() != 0 {
            return Err(damaged(WHAT, format!("it starts at {start:?}")));
        }
        let grant = ((lane.grant.grant.load(Ordering::Relaxed) >> 1) + 1) << 1;
        lane.grant.grant.store(grant, Ordering::Release);
        Ok(LaneSender { at: start, head: start, half: false, grant })
    }

    /// The grant's generation.
    pub fn generation(&self) -> Generation {
        Generation((self.grant >> 1) as u32)
    }

    /// Puts a message into a lane that is never taken back.
    ///
    /// Never waits. Errors: a message that is too long, a damaged lane.
    ///
    /// Cost of a message of up to 48 bytes with room known: one line written. Larger ones take
    /// one more line per 56 bytes. Once per `N/8` cells or less a read of the consumer's line.
    #[inline(always)]
    pub fn try_send<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        me: Slot,
        label: Label,
        bytes: &[u8],
    ) -> Result<Push> {
        self.try_push(lane, me, label, bytes)
    }

    /// As [`LaneSender::try_send`], of any payload.
    #[inline(always)]
    pub fn try_push<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        me: Slot,
        label: Label,
        payload: impl Payload,
    ) -> Result<Push> {
        if self.half && payload.size() <= SECOND_BYTES {
            // SAFETY: this is the only producer.
            unsafe { self.put_second(lane, me, label, payload) };
            return Ok(Push::Sent);
        }
        let n = cells_for(payload.size());
        // At most half of the lane can never lack room while this holds, so that the common case
        // is one comparison.
        if self.at.since(self.head, N) + n as i64 > N as i64 && !self.find_room(lane, n)? {
            return Ok(Push::Full);
        }
        if n > largest(N) {
            return Err(too_long(payload.size(), N));
        }
        // SAFETY: this is the only producer, and the n cells at `at` lie less than a lap ahead of
        // a head that was acquired: the consumer is done with them.
        unsafe { write(&lane.cells, self.at, me, n, label, payload) };
        self.at = self.at.plus(n, N);
        self.half = payload.size() <= HALF_BYTES;
        Ok(Push::Sent)
    }

    /// Puts a message into what the last one has left of its cell.
    ///
    /// # Safety
    /// The caller is the lane's only producer, the last message has left half of its cell, and the payload
    /// fits that.
    #[inline(always)]
    unsafe fn put_second<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        me: Slot,
        label: Label,
        payload: impl Payload,
    ) {
        let last = self.at.before(N);
        let there = cell(&lane.cells, last, 0);
        // SAFETY: the caller's: until the tag says so the part is the producer's. (The consumer frees the
        // cell only once it has gone on, and nothing was written behind it.)
        unsafe { there.put_first(Part::Second, label, payload) };
        let tag = Tag::new(last, COMMITTED, me, 1).with_second();
        there.tag.store(tag.0, Ordering::Release);
        self.half = false;
    }

    /// As [`LaneSender::try_push`], for a lane that its consumer may take back. `sending` is a
    /// word in the producer's memory that stands for this grant, and that the consumer knows.
    ///
    /// Cost: that of `try_send`, one store to a line that is this process's, and one load of a
    /// line that nobody writes while the lane is granted.
    #[inline(always)]
    pub fn try_send_guarded<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        sending: &AtomicU32,
        me: Slot,
        label: Label,
        payload: impl Payload,
    ) -> Result<LanePush> {
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let push = if lane.grant.grant.load(Ordering::Acquire) == self.grant {
            self.try_push(lane, me, label, payload).map(|push| match push {
                Push::Sent => LanePush::Sent,
                Push::Full => LanePush::Full,
            })
        } else {
            Ok(LanePush::Revoked)
        };
        sending.store(0, Ordering::Release);
        push
    }

    /// As [`LaneSender::try_send_guarded`], of a message of one cell or half of one for which there is room
    /// as far as is known: whether it was sent. If not, nothing was written, and that one says why.
    #[inline(always)]
    pub fn try_one_guarded<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        sending: &AtomicU32,
        me: Slot,
        label: Label,
        payload: impl Payload,
    ) -> bool {
        let second = self.half && payload.size() <= SECOND_BYTES;
        // All of the lane is a lap ahead of the head.
        if !second && (self.at == self.head.next_lap() || payload.size() > FIRST_BYTES) {
            return false;
        }
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let granted = lane.grant.grant.load(Ordering::Acquire) == self.grant;
        if granted && second {
            // SAFETY: this is the only producer, and the payload fits.
            unsafe { self.put_second(lane, me, label, payload) };
        } else if granted {
            // SAFETY: as for `try_push`; the payload fits the one cell.
            unsafe { write(&lane.cells, self.at, me, 1, label, payload) };
            self.at = self.at.plus(1, N);
            self.half = payload.size() <= HALF_BYTES;
        }
        sending.store(0, Ordering::Release);
        granted
    }

    #[cold]
    fn find_room<const N: usize>(&mut self, lane: &LaneMemory<N>, n: usize) -> Result<bool> {
        let head = Position(lane.head.head.load(Ordering::Acquire));
        let used = self.at.since(head, N);
        if head.index() >= N || used < 0 || used > N as i64 {
            return Err(damaged(WHAT, format!("head is {head:?}, the producer at {:?}", self.at)));
        }
        self.head = head;
        Ok(used as usize + n <= N)
    }
}

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

#[cfg(all(test, not(loom)))]
impl<const N: usize> LaneMemory<N> {
    /// Overwrites a tag or, from place N on, a control word.
    pub(super) fn overwrite(&self, place: usize, value: u64) {
        match place.checked_sub(N) {
            None => self.cells[place].tag.store(value, Ordering::Relaxed),
            Some(_) => self.head.head.store(value, Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(loom)))]
impl LaneSender {
    /// Writes the further cells of a message of `n` cells, but never its first.
    pub(super) fn die_before_commit<const N: usize>(
        &mut self,
        lane: &LaneMemory<N>,
        me: Slot,
        n: usize,
    ) {
        let tag = Tag::new(self.at, super::tag::MIDDLE, me, n);
        for k in 1..n {
            let there = cell(&lane.cells, self.at, k);
            let tag = if self.at.index() + k < N { tag } else { tag.next_lap() };
            there.tag.store(tag.0, Ordering::Relaxed);
        }
    }
}
