//! The inbox: a bounded ring of cells with many producers and one consumer.
//!
//! ```text
//!          consumed        claimed, in any order committed      free
//!   ... ------------|--------|----------------|-----------|------------ ...
//!                  head    message          message      tail
//! line 0      tail   where the next message starts; a hint that may lag behind
//! line 2      head   published by the consumer, now and then; `space` to wait on it
//! line 4..    cells
//! ```
//!
//! **Claim, write, commit.** A producer that wants `n` cells reads `t = tail` and the tag of the
//! cell at `t`:
//! 1. The tag is of `t`'s lap: somebody claimed a message there. Move `tail` over it by
//!    compare-exchange, whoever's it is, and start again.
//! 2. Otherwise, if `head` leaves room for `n` cells at `t`, *claim*: compare-exchange the tag
//!    from what was read, which must be of the lap before, to CLAIMED. Then move `tail`.
//! 3. Write the further cells and the payload; *commit*: store the tag as COMMITTED.
//!
//! **Why at most one message is claimed at each place.** `tail` takes only places where messages
//! start: it begins at one, and moves from a place to behind the message that the tag there
//! describes; the number of cells in that tag never changes within the lap. The cell at such a
//! place gets a tag of lap `L` only by a claim (a MIDDLE tag would need a message that began
//! before the place and reaches over it). So a tag of lap `L-1` there means "not claimed yet",
//! and only one compare-exchange from it can succeed, even by a producer that slept for laps:
//! tags never return to an older lap. And the tag is of lap `L-1` rather than older once `head`
//! has passed: every cell of a consumed message carries its lap.
//!
//! **Why a death wedges nobody.** A producer that dies before its claim left nothing. After its
//! claim, others move `tail` over it, and the consumer, told that the owner is dead, gives all of
//! its cells the tags they should have, and goes on. The consumer may so get ahead of `tail`;
//! the next producer moves it on by (1). A *living* producer that stands still between claim and
//! commit holds up what is behind it (which the others meet as a full ring, in the end).

use super::cell::{Cell, cells_for};
use super::message::{cell, read, write};
use super::payload::Payload;
use super::position::Position;
use super::received::{Incoming, Scratch};
use super::tag::{CLAIMED, COMMITTED, Label, MIDDLE, Tag};
use super::{Polled, Push, damaged, largest, publish_after, too_long};
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Result, Slot};
use crate::shm::park::WaitCell;

#[cfg(test)]
pub(crate) mod dying;

/// Cells of a process's inbox.
pub const INBOX_CELLS: usize = 2044;

const WHAT: &str = "an inbox";

#[repr(C, align(128))]
struct TailLine {
    tail: AtomicU64,
}

#[repr(C, align(128))]
struct HeadLine {
    head: AtomicU64,
    space: WaitCell,
}

/// An inbox as it lies in shared memory. All zeros is an empty inbox.
#[repr(C)]
pub struct InboxMemory<const N: usize = INBOX_CELLS> {
    tail: TailLine,
    head: HeadLine,
    cells: [Cell; N],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    type Inbox = InboxMemory;
    assert!(offset_of!(Inbox, head) == 128 && offset_of!(Inbox, cells) == 256);
    assert!(offset_of!(HeadLine, space) == 8);
    assert!(size_of::<InboxMemory>() as u64 == crate::shm::segment::INBOX_BYTES);
};

#[cfg(not(loom))]
// SAFETY: repr(C); atomics, and cell bodies owned by claim and commit; all bit patterns valid.
unsafe impl<const N: usize> crate::shm::region::SharedLayout for InboxMemory<N> {}

impl<const N: usize> InboxMemory<N> {
    /// An empty inbox in private memory, for tests and measurements.
    pub fn new() -> Self {
        InboxMemory {
            tail: TailLine { tail: AtomicU64::new(0) },
            head: HeadLine { head: AtomicU64::new(0), space: WaitCell::new() },
            cells: std::array::from_fn(|_| Cell::new()),
        }
    }

    /// Rung when the consumer has published room.
    pub fn space(&self) -> &WaitCell {
        &self.head.space
    }

    /// Where the next message starts. All that is committed lies before it.
    pub fn load_tail(&self) -> Result<Position> {
        let tail = Position(self.tail.tail.load(Ordering::Acquire));
        if tail.index() >= N {
            return Err(damaged(WHAT, format!("tail is {tail:?}")));
        }
        Ok(tail)
    }

    /// Moves `tail` over the message at `at`, if it still stands there.
    fn help(&self, at: Position, tag: Tag) -> Result<()> {
        let n = tag.cells();
        if n == 0 || n > largest(N) {
            return Err(damaged(WHAT, format!("{tag:?} at {at:?}")));
        }
        // Release, so that who reads the new tail also sees what this thread acquired: the head
        // that made room for the message.
        let next = at.plus(n, N);
        let _ = self.tail.tail.compare_exchange(at.0, next.0, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }
}

impl<const N: usize> Default for InboxMemory<N> {
    fn default() -> Self {
        InboxMemory::new()
    }
}

/// What a producer remembers of an inbox between messages.
#[derive(Clone, Copy, Default, Debug)]
pub struct InboxSender {
    /// The last head seen: never ahead of the true one.
    head: Position,
}

enum Room {
    Enough,
    TooLittle,
    /// The head is not within a lap before the place: one of them is out of date.
    Inconsistent,
}

fn room<const N: usize>(at: Position, n: usize, head: Position) -> Room {
    match at.since(head, N) {
        used if used < 0 || used > N as i64 => Room::Inconsistent,
        used if used as usize + n <= N => Room::Enough,
        _ => Room::TooLittle,
    }
}

impl InboxSender {
    /// Puts a message into the inbox, on behalf of process `me`.
    ///
    /// Never waits; lock-free. Errors: a message that is too long, a damaged inbox.
    ///
    /// Cost of a message of up to 48 bytes with room known: two compare-exchanges, on the line of
    /// `tail` and on the message's cell, both usually taken from another core. Larger ones take
    /// one more line per 56 bytes. Now and then a read of the consumer's line.
    pub fn try_send<const N: usize>(
        &mut self,
        inbox: &InboxMemory<N>,
        me: Slot,
        label: Label,
        bytes: &[u8],
    ) -> Result<Push> {
        self.try_push(inbox, me, label, bytes)
    }

    /// As [`InboxSender::try_send`], of any payload.
    pub fn try_push<const N: usize>(
        &mut self,
        inbox: &InboxMemory<N>,
        me: Slot,
        label: Label,
        payload: impl Payload,
    ) -> Result<Push> {
        let n = cells_for(payload.size());
        if n > largest(N) {
            return Err(too_long(payload.size(), N));
        }
        let Some(at) = self.claim(inbox, me, n)? else {
            return Ok(Push::Full);
        };
        // SAFETY: `claim` gave this thread the n cells at `at`.
        unsafe { write(&inbox.cells, at, me, n, label, payload) };
        Ok(Push::Sent)
    }

    /// Claims `n` cells; `None` if the inbox is full.
    fn claim<const N: usize>(
        &mut self,
        inbox: &InboxMemory<N>,
        me: Slot,
        n: usize,
    ) -> Result<Option<Position>> {
        loop {
            let at = inbox.load_tail()?;
            let first = cell(&inbox.cells, at, 0);
            let seen = Tag(first.tag.load(Ordering::Acquire));
            if seen.lap() == at.tag_lap() {
                inbox.help(at, seen)?;
                continue;
            }
            if !matches!(room::<N>(at, n, self.head), Room::Enough) {
                self.head = Position(inbox.head.head.load(Ordering::Acquire));
                match room::<N>(at, n, self.head) {
                    Room::Enough => {}
                    Room::TooLittle => {
                        if inbox.load_tail()? == at {
                            return Ok(None);
                        }
                        continue;
                    }
                    Room::Inconsistent => {
                        self.recheck(inbox, at, false)?;
                        continue;
                    }
                }
            }
            if seen.lap() != at.lap() {
                // Out of date, or the tag was read before the head moved over the cell.
                self.recheck(inbox, at, true)?;
                continue;
            }
            let claim = Tag::new(at, CLAIMED, me, n);
            // Success owns the cells: the acquired head lies behind their last use. Acquire as
            // well, as the tail that others will read is stored after this.
            let won =
                first.tag.compare_exchange(seen.0, claim.0, Ordering::AcqRel, Ordering::Relaxed);
            if won.is_ok() {
                inbox.help(at, claim)?;
                return Ok(Some(at));
            }
        }
    }

    /// After a contradiction at `at`: fails if it cannot come from others' progress, so that a
    /// damaged inbox is an error rather than an endless loop.
    ///
    /// The head was acquired before this. If it says that the cell at `at` was passed in the
    /// lap before (`free`) then the tag now read is of that lap or a later one; if the head is
    /// past `at`, of `at`'s lap or a later one. A tag of a still later lap was stored by a
    /// producer that had read a later tail, so the tail read below has moved.
    #[cold]
    fn recheck<const N: usize>(
        &self,
        inbox: &InboxMemory<N>,
        at: Position,
        free: bool,
    ) -> Result<()> {
        let tag = Tag(cell(&inbox.cells, at, 0).tag.load(Ordering::Acquire));
        let explained = tag.lap() == at.tag_lap() || free && tag.lap() == at.lap();
        if !explained && inbox.load_tail()? == at {
            let head = self.head;
            return Err(damaged(WHAT, format!("tail {at:?}, head {head:?}, there {tag:?}")));
        }
        Ok(())
    }
}

/// The consumer's side of an inbox. There must be only one at a time.
#[derive(Debug, Default)]
pub struct InboxReceiver {
    at: Position,
    unpublished: usize,
    skipped: u64,
    broken: bool,
}

impl InboxReceiver {
    /// A consumer for an inbox that never had one.
    pub fn new() -> InboxReceiver {
        InboxReceiver::default()
    }

    /// Messages given up because their producer died while it wrote them.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether everything before `place` has been taken.
    pub fn has_passed<const N: usize>(&self, _: &InboxMemory<N>, place: Position) -> bool {
        self.at.since(place, N) >= 0
    }

    /// Takes the next message, if there is one; steps over messages of producers that `is_dead`
    /// says died in writing them.
    ///
    /// Never waits. The only error is a damaged inbox, which stays an error.
    ///
    /// Cost: one line, read; the line's transfer if there is a message. Per `N/8` cells one store
    /// to the consumer's line and a wake-up if a producer sleeps.
    #[inline]
    pub fn poll<'s, const N: usize>(
        &mut self,
        inbox: &InboxMemory<N>,
        scratch: &'s mut Scratch,
        is_dead: impl Fn(Slot) -> bool,
    ) -> Result<Polled<'s>> {
        loop {
            let first = cell(&inbox.cells, self.at, 0);
            let tag = Tag(first.tag.load(Ordering::Acquire));
            if tag.lap() != self.at.tag_lap() {
                if tag.lap() != self.at.lap() {
                    return Err(self.damaged(tag));
                }
                return Ok(Polled::Empty);
            }
            if self.broken {
                return Err(self.damaged(tag));
            }
            if tag.state() == COMMITTED {
                let read = read(WHAT, &inbox.cells, self.at, tag, scratch);
                let (label, bytes) = match read {
                    Ok(read) => read,
                    Err(error) => {
                        self.broken = true;
                        return Err(error);
                    }
                };
                self.advance(inbox, tag.cells());
                return Ok(Polled::Message(Incoming { from: tag.owner(), label, bytes }));
            }
            if tag.state() != CLAIMED {
                return Err(self.damaged(tag));
            }
            if !is_dead(tag.owner()) {
                return Ok(Polled::Unfinished(tag.owner()));
            }
            // Nothing of it comes any more. What came last may have been the commit.
            if first.tag.load(Ordering::Acquire) == tag.0 {
                self.skip(inbox, tag)?;
            }
        }
    }

    /// Gives the cells of a dead producer's claim the tags of this lap, and passes over them.
    #[cold]
    fn skip<const N: usize>(&mut self, inbox: &InboxMemory<N>, tag: Tag) -> Result<()> {
        let n = tag.cells();
        if n == 0 || n > largest(N) {
            return Err(self.damaged(tag));
        }
        let given_up = tag.with(MIDDLE);
        for k in (0..n).rev() {
            let tag = if self.at.index() + k < N { given_up } else { given_up.next_lap() };
            // Release: producers that move the tail over it must find it as it was claimed.
            cell(&inbox.cells, self.at, k).tag.store(tag.0, Ordering::Release);
        }
        self.skipped += 1;
        self.advance(inbox, n);
        Ok(())
    }

    #[inline(always)]
    fn advance<const N: usize>(&mut self, inbox: &InboxMemory<N>, n: usize) {
        self.at = self.at.plus(n, N);
        self.unpublished += n;
        if self.unpublished >= publish_after(N) {
            self.publish(inbox);
        }
    }

    #[cold]
    fn publish<const N: usize>(&mut self, inbox: &InboxMemory<N>) {
        self.unpublished = 0;
        inbox.head.head.store(self.at.0, Ordering::Release);
        inbox.head.space.notify();
    }

    #[cold]
    fn damaged(&mut self, tag: Tag) -> crate::base::Error {
        self.broken = true;
        damaged(WHAT, format!("at {:?} there is {tag:?}", self.at))
    }
}

#[cfg(all(test, not(loom)))]
impl<const N: usize> InboxMemory<N> {
    /// Overwrites a tag or, from place N on, a control word.
    pub(super) fn overwrite(&self, place: usize, value: u64) {
        match place.checked_sub(N) {
            None => self.cells[place].tag.store(value, Ordering::Relaxed),
            Some(odd) if odd % 2 == 1 => self.tail.tail.store(value, Ordering::Relaxed),
            Some(_) => self.head.head.store(value, Ordering::Relaxed),
        }
    }
}
