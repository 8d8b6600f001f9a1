//! The producer's side of a lane; see [`lane`](super::lane).

use super::cell::{Cell, FIRST_BYTES, REST, SHARED_BYTES, WORDS, cells_for};
use super::lane::{Generation, LaneMemory, WHAT};
use super::message::write;
use super::payload::{Headed, Payload};
use super::position::Position;
use super::tag::{COMMITTED, Label, Tag};
use super::{NONE, Push, damaged, largest, several, too_long};
use crate::base::prefetch::to_write;
use crate::base::sync::{AtomicU32, Ordering, light_fence};
use crate::base::{Result, Slot};

/// How far ahead of a message of one cell, and of one of several, lines are asked for to write: as many as it has.
///
/// The consumer has had those lines, and stores leave a processor in order: where it asks for a line only when the
/// store to it is the next to go, as AMD's seem to, a stream gets one line for each way there and back between the two
/// cores. Asked for ahead, several are on their way at a time (cores far from each other, AMD EPYC: 16 B 11 to 25 M/s,
/// 64 B 8 to 15). From 2 to 32 cells ahead of one cell, and from 8 to 24 of several, it was much the same.
const ONE_AHEAD: usize = 6;
const SEVERAL_AHEAD: usize = 16;

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
    /// Which of its words is free for one that repeats the message's label and first word.
    free: u32,
    /// That message's label with its length.
    label: u64,
    /// Its first word.
    head: u64,
    /// The cell's tag now.
    tag: u64,
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
        let last = Last { index: NONE, free: 0, label: 0, head: 0, tag: 0 };
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

    /// Has laps become longer if `reserve` has found memory for all of the lane, which is asked while the lane is
    /// sure to be this producer's: nobody would give back what was reserved for another one's.
    pub fn grow<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        reserve: impl FnOnce() -> bool,
    ) {
        if let Some(reserved) = self.guarded(lane, sending, |_| reserve()) {
            self.growth = if reserved { Growth::Granted } else { Growth::Refused };
        }
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
        if let Some(cell) = self.repeats(lane, label, payload) {
            // SAFETY: this is the only producer.
            unsafe { self.add(cell, payload) };
            return Ok(Push::Sent);
        }
        let n = cells_for(payload.size());
        if !self.has_room(n) && !self.find_room(lane, n)? {
            return Ok(Push::Full);
        }
        if n > largest(S) {
            return Err(too_long(payload.size(), S));
        }
        if n > 1 {
            self.ask_ahead(lane, 0, n);
        }
        // SAFETY: as above, and the n cells at `at` lie less than a lap ahead of
        // a head that was acquired: the consumer is done with them.
        unsafe { write(lane.lap(self.cells), self.at, self.me, n, label, payload) };
        if n > 1 {
            self.ask_ahead(lane, SEVERAL_AHEAD, n);
        }
        self.pass(lane, n, label, payload);
        Ok(Push::Sent)
    }

    /// The last message's cell, if one that is sent now goes there, since it repeats its label and first word.
    #[inline(always)]
    fn repeats<'l, const N: usize, const S: usize>(
        &self,
        lane: &'l LaneMemory<N, S>,
        label: Label,
        payload: impl Payload,
    ) -> Option<&'l Cell> {
        let cell = lane.cells.get(self.last.index as usize)?;
        let same = self.last.label == label.with_len(payload.size())
            && payload.head() == Some(self.last.head);
        same.then_some(cell)
    }

    /// Puts a message into the cell of the last one.
    ///
    /// # Safety
    /// The caller is the lane's only producer, and [`LaneSender::repeats`] gave the cell for this payload.
    #[inline(always)]
    unsafe fn add(&mut self, cell: &Cell, payload: impl Payload) {
        let last = &mut self.last;
        // SAFETY: until the tag says so the word is the producer's. (The consumer frees the cell only once it has
        // gone on, and nothing was written behind it.) The last message has up to 16 bytes, and its repeat as many.
        unsafe { cell.put_repeat(last.free as usize, payload) };
        last.tag = Tag(last.tag).with_repeat().0;
        cell.tag.store(last.tag, Ordering::Release);
        last.free += 1;
        if last.free == WORDS as u32 {
            last.index = NONE;
        }
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

    /// Asks for the lines of `n` cells, so many places ahead, to write, if they are in this lap.
    #[inline(always)]
    fn ask_ahead<const N: usize, const S: usize>(
        &self,
        lane: &LaneMemory<N, S>,
        ahead: usize,
        n: usize,
    ) {
        let from = self.at.index() + ahead;
        if let Some(cells) = lane.lap(self.cells).get(from..from + n) {
            cells.iter().for_each(|cell| to_write(cell));
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
        // A message without a first word is not repeated: to compare what is sent with it would cost the more
        // messages, which do not repeat each other, more than it gives the others.
        if let Some(head) = payload.head()
            && len <= SHARED_BYTES
        {
            let label = label.with_len(len);
            let free = REST as u32 + 1;
            self.last = Last { index: at.index() as u32, free, label, head, tag: self.whole };
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
        // As `guarded`, written out: what may be an error would be moved from one place on the stack to another.
        sending.store(1, Ordering::Relaxed);
        light_fence();
        if lane.grant.grant.load(Ordering::Acquire) != self.grant {
            sending.store(0, Ordering::Release);
            return Ok(LanePush::Revoked);
        }
        let push = self.try_push(lane, label, payload);
        sending.store(0, Ordering::Release);
        match push {
            Ok(Push::Sent) => Ok(LanePush::Sent),
            Ok(Push::Full) => Ok(LanePush::Full),
            Err(error) => Err(error),
        }
    }

    /// Writes to the lane if it is still this producer's, in a time for which its consumer leaves it that.
    #[inline(always)]
    fn guarded<R, const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        write: impl FnOnce(&mut LaneSender) -> R,
    ) -> Option<R> {
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let granted = lane.grant.grant.load(Ordering::Acquire) == self.grant;
        let written = granted.then(|| write(self));
        sending.store(0, Ordering::Release);
        written
    }

    /// As [`LaneSender::try_send_guarded`], of a message of one cell or part of one for which there is room
    /// as far as is known: whether it was sent. If not, nothing was written, and that one says why.
    #[inline(always)]
    pub fn try_one_guarded<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        sending: &AtomicU32,
        label: Label,
        payload: impl Payload,
    ) -> bool {
        let repeats = self.repeats(lane, label, payload);
        if repeats.is_none() && (self.at == self.full || payload.size() > FIRST_BYTES) {
            return false;
        }
        // As `guarded`, written out: called with a closure, that took 7 % of the rate of 8 B.
        sending.store(1, Ordering::Relaxed);
        light_fence();
        let granted = lane.grant.grant.load(Ordering::Acquire) == self.grant;
        if granted {
            if let Some(cell) = repeats {
                // SAFETY: this is the only producer.
                unsafe { self.add(cell, payload) };
            } else if let Some(first) = lane.cells.get(self.at.index()) {
                if let Some(ahead) = lane.cells.get(self.at.index() + ONE_AHEAD) {
                    to_write(ahead);
                }
                // SAFETY: as for `try_push`: the cell is the producer's; the payload fits it.
                unsafe { first.put_first(label, payload) };
                first.tag.store(self.whole, Ordering::Release);
                self.pass(lane, 1, label, payload);
            }
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
        let Some(cells) = several::stretch(lane.lap(self.cells), self.at, n) else { return false };
        // They were asked for ahead, but who waits for this message may have had them since.
        to_write(cells.0);
        cells.1.iter().for_each(|cell| to_write(cell));
        if !self.has_room(n) && !self.find_room(lane, n).unwrap_or(false) {
            return false;
        }
        let sent = self.guarded(
            lane,
            sending,
            #[inline(always)]
            |this| {
                // SAFETY: as for `try_push`.
                unsafe { several::write(cells, (this.at, this.me), label, payload) };
                this.ask_ahead(lane, SEVERAL_AHEAD, n);
                this.pass(lane, n, label, payload);
            },
        );
        sent.is_some()
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
impl LaneSender {
    /// Writes the further cells of a message of `n` cells, but never its first.
    pub(super) fn die_before_commit<const N: usize, const S: usize>(
        &mut self,
        lane: &LaneMemory<N, S>,
        n: usize,
    ) {
        let tag = Tag::new(self.at, super::tag::MIDDLE, self.me, n);
        for k in 1..n {
            let there = super::message::cell(lane.lap(self.cells), self.at, k);
            let tag = if self.at.index() + k < self.cells { tag } else { tag.next_lap() };
            there.tag.store(tag.0, Ordering::Relaxed);
        }
    }
}
