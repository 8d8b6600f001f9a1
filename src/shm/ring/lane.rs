//! The lane: a ring of cells from one producer to one consumer; its producer's side (the other one is
//! `lane_receiver`).
//!
//! ```text
//! line 0      head   published by the consumer, now and then; `space` to wait on it
//! line 2      grant  generation << 1 | revoked;  `start`: where the next producer begins;
//!             `longer`: from which lap on laps are of all cells
//! line 4..    cells
//! ```
//! The producer keeps its place to itself; the consumer finds the next message by the lap in its
//! cell's tag. So a message of up to 48 bytes moves exactly one cache line, and no atomic
//! read-modify-write is needed. The first cell's tag is stored last: a producer that dies while
//! it writes leaves nothing that the consumer could see, and nothing to clean up.
//!
//! # Several in a cell
//!
//! How long a line takes is what short messages cost, so a stream of them shares lines:
//!
//! * A message whose label, length and first word (in which the layer above has rank and tag) are those of the
//!   cell's first one leaves only what it has behind that word: five messages of 8 bytes and their words make
//!   a cell.
//! * Another one of up to 24 bytes may have the half that one of up to 16 leaves free.
//!
//! ```text
//! producer                            consumer, behind the first message of a cell
//!   first message; tag = committed      tag of the next cell?  then that of this one:
//!   ...                                   says of more?          take the next of those
//!   another one; tag says so              it does not, but the next is there: go on to that
//!   next cell; its tag = committed        neither: nothing has come
//! ```
//! Who finds the next cell's tag written sees all that was written before, so also what has come to this one.
//! The consumer counts the cell as free only once it has gone on.
//!
//! # Growing
//!
//! A stream moves several times as many messages where it does not come back to a line soon: with 252 cells a
//! lap 9 M of 512 B a second, with 8188 16 M. But so many for every connection would be much memory. So a
//! lap has [`SHORT_CELLS`] until a message has found no room, or twice as much has gone through as the lane can
//! hold, and there is memory; then laps are of all cells, from the beginning of the next one on, which the producer
//! says in `longer` before its first message in that lap.
//!
//! ```text
//!   lap L-1   [ 0 .................. 251 ]
//!   lap L     [ 0 .................. 251 | 252 ....................... 8187 ]    longer = L
//! ```
//! The consumer looks at `longer` when it comes to the end of a short lap: if that is lap L or a later one, it has
//! seen a message that was sent after the word was written. Into lap L the producer may write up to the cell at
//! which the consumer is in lap L-1, as always, and beyond 251 once that has come to lap L.
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
    Cell, FIRST_BYTES, HALF_BYTES, Part, SECOND_BYTES, SHARED_BYTES, WORDS, cells_for,
    place_of_repeat, stride,
};
use super::message::write;
use super::payload::{Headed, Payload};
use super::position::Position;
use super::tag::{COMMITTED, Label, Tag};
use super::{NONE, Push, damaged, largest, several, too_long};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, light_fence};
use crate::base::{Result, Slot};
use crate::shm::park::WaitCell;

/// Cells of a lane, and of a lap of one that has not grown.
pub const LANE_CELLS: usize = 8188;
pub const SHORT_CELLS: usize = 252;

pub(super) const WHAT: &str = "a lane";

#[repr(C, align(128))]
pub(super) struct HeadLine {
    pub(super) head: AtomicU64,
    pub(super) space: WaitCell,
}

#[repr(C, align(128))]
pub(super) struct GrantLine {
    pub(super) grant: AtomicU64,
    pub(super) start: AtomicU64,
    /// `1 << 32 | lap`: the first of the long laps; 0 while there is none.
    pub(super) longer: AtomicU64,
}

/// A lane as it lies in shared memory. All zeros is a lane never granted.
#[repr(C)]
pub struct LaneMemory<const N: usize = LANE_CELLS, const S: usize = SHORT_CELLS> {
    pub(super) head: HeadLine,
    pub(super) grant: GrantLine,
    pub(super) cells: [Cell; N],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    type Lane = LaneMemory;
    assert!(offset_of!(Lane, grant) == 128 && offset_of!(Lane, cells) == 256);
    assert!(offset_of!(HeadLine, space) == 8 && offset_of!(GrantLine, start) == 8);
    assert!(offset_of!(GrantLine, longer) == 16);
    assert!(size_of::<LaneMemory>() as u64 == crate::shm::segment::LANE_BYTES);
    let short = offset_of!(Lane, cells) + SHORT_CELLS * size_of::<Cell>();
    assert!(short as u64 == crate::shm::segment::SHORT_LANE_BYTES);
};

#[cfg(not(loom))]
// SAFETY: repr(C); atomics, and cell bodies owned by tag and head; all bit patterns valid.
unsafe impl<const N: usize, const S: usize> crate::shm::region::SharedLayout for LaneMemory<N, S> {}

impl<const N: usize, const S: usize> LaneMemory<N, S> {
    /// A lane in private memory, for tests and measurements.
    pub fn new() -> Self {
        LaneMemory {
            head: HeadLine { head: AtomicU64::new(0), space: WaitCell::new() },
            grant: GrantLine {
                grant: AtomicU64::new(0),
                start: AtomicU64::new(0),
                longer: AtomicU64::new(0),
            },
            cells: std::array::from_fn(|_| Cell::new()),
        }
    }

    /// Rung when the consumer has published room, and when it has revoked the grant.
    pub fn space(&self) -> &WaitCell {
        &self.head.space
    }
}

impl<const N: usize, const S: usize> Default for LaneMemory<N, S> {
    fn default() -> Self {
        LaneMemory::new()
    }
}

/// Which grant of a lane is meant: producer and consumer must mean the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(pub(super) u32);

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
    me: Slot,
    at: Position,
    /// Tag of a message of one cell at `at`. Changes once a lap, so that it need not be made for each
    /// message.
    whole: u64,
    /// Where a message finds no room as far as is known: a lap behind the last head seen, which was never ahead of
    /// the true one.
    full: Position,
    grant: u64,
    last: Last,
    /// Cells of the lap that `at` is in.
    cells: usize,
    growth: Growth,
}

/// Whether laps become longer, as long as they are short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// There has been room, in so many laps.
    Unasked(usize),
    /// There was none, or there is much traffic.
    Asked,
    /// From the next lap on.
    Granted,
    /// There is no memory for it.
    Refused,
}

/// The cell of the last message, and what may still come to it.
#[derive(Debug)]
struct Last {
    /// Its index, or [`NONE`] if nothing may come.
    index: u32,
    /// From which of its words on the rest of one lies that repeats the first message's label and word.
    rest: u32,
    /// That message's label with its length, or 0 if nothing may repeat it.
    label: u64,
    /// Its first word.
    head: u64,
    /// The cell's tag now.
    tag: u64,
    /// Whether half of it is free.
    half: bool,
}

/// Where a message goes.
enum Goes<'a> {
    /// To the last message's cell, whose label and first word it repeats.
    Repeats(&'a Cell),
    /// To the free half of that cell.
    Second(&'a Cell),
    /// To a cell of its own, or several.
    On,
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
    /// Takes the grant of a lane, as its new producer, `me`. The caller owns the lane, and the former
    /// owner's release of it happened before: ownership is kept where the lane is allotted.
    pub fn open<const N: usize, const S: usize>(
        lane: &LaneMemory<N, S>,
        me: Slot,
    ) -> Result<LaneSender> {
        let start = Position(lane.grant.start.load(Ordering::Acquire));
        if start.index() != 0 {
            return Err(damaged(WHAT, format!("it starts at {start:?}")));
        }
        let grant = ((lane.grant.grant.load(Ordering::Relaxed) >> 1) + 1) << 1;
        lane.grant.grant.store(grant, Ordering::Release);
        let whole = Tag::new(start, COMMITTED, me, 1).0;
        let full = start.next_lap();
        let last = Last { index: NONE, rest: 0, label: 0, head: 0, tag: 0, half: false };
        let growth = if S < N { Growth::Unasked(0) } else { Growth::Refused };
        Ok(LaneSender { me, at: start, whole, full, grant, last, cells: S, growth })
    }

    /// The grant's generation.
    pub fn generation(&self) -> Generation {
        Generation((self.grant >> 1) as u32)
    }

    /// Whether longer laps would do good. To be asked after a message has gone the general way, and answered
    /// by [`LaneSender::grow`].
    #[inline(always)]
    pub fn wants_more(&self) -> bool {
        self.growth == Growth::Asked
    }

    /// Has laps become longer, if there is memory for all of the lane.
    pub fn grow(&mut self, reserved: bool) {
        self.growth = if reserved { Growth::Granted } else { Growth::Refused };
    }

    /// Puts a message into a lane that is never taken back.
    ///
    /// Never waits. Errors: a message that is too long, a damaged lane.
    ///
    /// Cost of a message of up to 48 bytes with room known: one line written. Larger ones take
    /// one more line per 56 bytes. Once per `N/8` cells or less a read of the consumer's line.
    #[inline(always)]
    pub fn try_send<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        label: Label,
        bytes: &[u8],
    ) -> Result<Push> {
        self.try_push(lane, label, bytes)
    }

    /// As [`LaneSender::try_send`], of any payload.
    #[inline(always)]
    pub fn try_push<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        label: Label,
        payload: impl Payload,
    ) -> Result<Push> {
        // SAFETY: this is the only producer.
        if unsafe { self.add(self.goes(lane, label, payload), label, payload) } {
            return Ok(Push::Sent);
        }
        let n = cells_for(payload.size());
        if !self.has_room(n) && !self.find_room(lane, n)? {
            return Ok(Push::Full);
        }
        if n > largest(S) {
            return Err(too_long(payload.size(), S));
        }
        // SAFETY: this is the only producer, and the n cells at `at` lie less than a lap ahead of
        // a head that was acquired: the consumer is done with them.
        unsafe { write(self.lap(lane), self.at, self.me, n, label, payload) };
        self.pass(lane, n, label, payload);
        Ok(Push::Sent)
    }

    /// Where a message goes that is sent now.
    #[inline(always)]
    fn goes<'l, const N: usize, const S: usize>(
        &self,
        lane: &'l LaneMemory<N, S>,
        label: Label,
        payload: impl Payload,
    ) -> Goes<'l> {
        let Some(cell) = lane.cells.get(self.last.index as usize) else { return Goes::On };
        let len = payload.size();
        if self.last.label == label.with_len(len) && payload.head() == Some(self.last.head) {
            Goes::Repeats(cell)
        } else if self.last.half && len <= SECOND_BYTES {
            Goes::Second(cell)
        } else {
            Goes::On
        }
    }

    /// Puts a message into the cell of the last one, if it goes there: whether it does.
    ///
    /// # Safety
    /// The caller is the lane's only producer, and this is what [`LaneSender::goes`] has said.
    #[inline(always)]
    unsafe fn add(&mut self, goes: Goes<'_>, label: Label, payload: impl Payload) -> bool {
        let last = &mut self.last;
        // SAFETY, of both: until the tag says so these words are the producer's. (The consumer frees the
        // cell only once it has gone on, and nothing was written behind it.)
        match goes {
            Goes::Repeats(cell) => {
                let (at, words) = (last.rest, stride(payload.size() - 8) as u32);
                // SAFETY: as above; `last.label` says that there is room.
                unsafe { cell.put_repeat(at as usize, payload) };
                last.tag = Tag(last.tag).with_repeat().0;
                cell.tag.store(last.tag, Ordering::Release);
                last.rest = at + words;
                last.half = false;
                if last.rest + words > WORDS as u32 {
                    last.label = 0;
                }
                true
            }
            Goes::Second(cell) => {
                // SAFETY: as above; the payload fits.
                unsafe { cell.put_first(Part::Second, label, payload) };
                cell.tag.store(Tag(last.tag).with_second().0, Ordering::Release);
                last.index = NONE;
                true
            }
            Goes::On => false,
        }
    }

    /// The cells of this lap.
    #[inline(always)]
    fn lap<'l, const N: usize, const S: usize>(&self, lane: &'l LaneMemory<N, S>) -> &'l [Cell] {
        lane.cells.get(..self.cells).unwrap_or(&lane.cells)
    }

    /// Whether there is room for so many cells, as far as is known.
    #[inline(always)]
    fn has_room(&self, n: usize) -> bool {
        let end = self.at.plus(n, self.cells);
        match self.full.lap().wrapping_sub(end.lap()) {
            0 => end.index() <= self.full.index(),
            laps => laps == 1,
        }
    }

    /// A message of so many cells was put in.
    #[inline(always)]
    fn pass<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        cells: usize,
        label: Label,
        payload: impl Payload,
    ) {
        let (at, len) = (self.at, payload.size());
        self.last.index = NONE;
        if len <= SHARED_BYTES {
            // A message without a first word is not repeated.
            let head = payload.head();
            let words = stride(len.wrapping_sub(8));
            let rest = head.and_then(|_| place_of_repeat(1, words));
            self.last = Last {
                index: at.index() as u32,
                rest: rest.unwrap_or(0) as u32,
                label: if rest.is_some() { label.with_len(len) } else { 0 },
                head: head.unwrap_or(0),
                tag: self.whole,
                half: len <= HALF_BYTES,
            };
        }
        self.at = at.plus(cells, self.cells);
        if self.at.lap() != at.lap() {
            self.begin_lap(lane);
        }
    }

    #[cold]
    fn begin_lap<const N: usize, const S: usize>(&mut self, lane: &LaneMemory<N, S>) {
        self.whole = Tag::new(self.at, COMMITTED, self.me, 1).0;
        match self.growth {
            Growth::Granted if self.cells < N => {
                // Ahead of the next tag, which is stored with Release.
                lane.grant.longer.store(1 << 32 | u64::from(self.at.lap()), Ordering::Relaxed);
                self.cells = N;
            }
            Growth::Unasked(laps) if laps * S >= 2 * N => {
                self.growth = Growth::Asked;
                // The next message goes the general way, whoever sends it asks.
                self.full = self.at;
            }
            Growth::Unasked(laps) => self.growth = Growth::Unasked(laps + 1),
            _ => {}
        }
    }

    /// As [`LaneSender::try_push`], for a lane that its consumer may take back. `sending` is a
    /// word in the producer's memory that stands for this grant, and that the consumer knows.
    ///
    /// Cost: that of `try_send`, one store to a line that is this process's, and one load of a
    /// line that nobody writes while the lane is granted.
    #[inline(always)]
    pub fn try_send_guarded<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        label: Label,
        payload: impl Payload,
    ) -> Result<LanePush> {
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let push = if lane.grant.grant.load(Ordering::Acquire) == self.grant {
            self.try_push(lane, label, payload).map(|push| match push {
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
    pub fn try_one_guarded<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        label: Label,
        payload: impl Payload,
    ) -> bool {
        let goes = self.goes(lane, label, payload);
        if matches!(goes, Goes::On) && (self.at == self.full || payload.size() > FIRST_BYTES) {
            return false;
        }
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let granted = lane.grant.grant.load(Ordering::Acquire) == self.grant;
        // SAFETY: this is the only producer.
        let added = granted && unsafe { self.add(goes, label, payload) };
        if granted
            && !added
            && let Some(first) = lane.cells.get(self.at.index())
        {
            // SAFETY: as for `try_push`: the cell is the producer's; the payload fits it.
            unsafe { first.put_first(Part::First, label, payload) };
            first.tag.store(self.whole, Ordering::Release);
            self.pass(lane, 1, label, payload);
        }
        sending.store(0, Ordering::Release);
        granted
    }

    /// The same of a message of several cells, of [`SEVERAL_BYTES`](super::SEVERAL_BYTES) at most, that does not
    /// reach beyond the end of the lap.
    ///
    /// Cost: its lines; as [`LaneSender::try_send`] says, now and then a read of the consumer's.
    #[inline(always)]
    pub fn try_several_guarded<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        label: Label,
        payload: Headed<'_>,
    ) -> bool {
        let n = cells_for(payload.size());
        let Some(cells) = several::stretch(self.lap(lane), self.at, n) else { return false };
        if !self.has_room(n) && !self.find_room(lane, n).unwrap_or(false) {
            return false;
        }
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let granted = lane.grant.grant.load(Ordering::Acquire) == self.grant;
        if granted {
            // SAFETY: as for `try_push`.
            unsafe { several::write(cells, (self.at, self.me), label, payload) };
            self.pass(lane, n, label, payload);
        }
        sending.store(0, Ordering::Release);
        granted
    }

    #[cold]
    fn find_room<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        n: usize,
    ) -> Result<bool> {
        let head = Position(lane.head.head.load(Ordering::Acquire));
        let right = match self.at.lap().wrapping_sub(head.lap()) {
            0 => head.index() <= self.at.index(),
            1 => self.at.index() <= head.index(),
            _ => false,
        };
        if head.index() >= N || !right {
            return Err(damaged(WHAT, format!("head is {head:?}, the producer at {:?}", self.at)));
        }
        self.full = head.next_lap();
        let room = self.has_room(n);
        if !room && matches!(self.growth, Growth::Unasked(_)) {
            self.growth = Growth::Asked;
        }
        Ok(room)
    }
}

#[cfg(all(test, not(loom)))]
impl<const N: usize, const S: usize> LaneMemory<N, S> {
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
    pub(super) fn die_before_commit<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        n: usize,
    ) {
        let tag = Tag::new(self.at, super::tag::MIDDLE, self.me, n);
        for k in 1..n {
            let there = super::message::cell(self.lap(lane), self.at, k);
            let tag = if self.at.index() + k < self.cells { tag } else { tag.next_lap() };
            there.tag.store(tag.0, Ordering::Relaxed);
        }
    }
}
