//! What comes from one peer by its lane: a lock for each, so that threads that receive from different
//! peers share nothing that is written.
//!
//! ```text
//!   Wire::poll_one  --> the lane of the peer that a thread waits for          (its lock alone)
//!   Receiver's poll --> one after the other, the inbox, other nodes            (receiver, then each)
//! ```
//! A poll of all leaves a lane alone for whose messages another thread looks, unless it is to be
//! *thorough*: as one is before a sleep. Taking a lock that is biased to the other thread would cost both
//! of them, and the other one takes what is there anyway.
//!
//! Messages of one peer are taken under its feed's lock, or by whoever has the receiver as long as they
//! come by the inbox; so whoever has the lock of a feed that has a lane knows that all that the peer sent
//! before is where it belongs.

use super::biased::{Biased, Guard};
use super::table::OfPeer;
use super::{KINDS, Message};
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Result, Slot};
use crate::shm::region::SharedRef;
use crate::shm::ring::lane::LaneMemory;
use crate::shm::ring::lane_receiver::{LaneReceiver, One, Taker};
use crate::shm::ring::{Polled, Scratch};
use std::ops::ControlFlow::{self, Continue};

/// Looks in a row that ended with a message, before one at all the others.
const MOST_ENDED: u32 = 64;

/// See the [module](self). Lines of its own.
#[repr(align(128))]
pub(super) struct Feed {
    peer: Slot,
    /// Looks of threads that wait for this peer alone, but for those that found a message by the short
    /// way. This and the next two are written by whoever
    /// has the lock.
    looks: AtomicU32,
    /// Messages taken.
    taken: AtomicU64,
    /// Of these, those that a thread has not taken for itself: what the most are is not counted twice.
    passed_on: AtomicU64,
    way: Biased<Way>,
}

/// What the lock protects.
pub(super) struct Way {
    /// Nothing while the peer's messages come by the inbox.
    lane: Option<OpenLane>,
    /// Looks in a row that ended with a message.
    ended: u32,
}

/// A lane, and how far it has been read.
pub(super) struct OpenLane {
    pub memory: SharedRef<LaneMemory>,
    pub from_lane: LaneReceiver,
}

/// What came of a look for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// One was there. Its taker says whether another thread may wait for it.
    Taken { found: bool },
    /// None is there.
    Nothing,
    /// There were so many in a row that everything else is to be looked at first, once.
    OthersTurn,
    /// That is not known without a poll of all.
    Unknown,
}

/// What came of a look into the lane that is to be looked into first.
pub(super) enum First {
    /// So many messages were taken, and `f` broke off or not.
    Looked(usize, ControlFlow<()>),
    /// The others come first now.
    OthersTurn,
    /// There is none.
    Absent,
}

impl OfPeer for Feed {
    #[inline(always)]
    fn peer(&self) -> Slot {
        self.peer
    }
}

impl Feed {
    pub fn new(peer: Slot) -> Feed {
        let way = Biased::new(Way { lane: None, ended: 0 });
        let (taken, passed_on) = (AtomicU64::new(0), AtomicU64::new(0));
        Feed { peer, looks: AtomicU32::new(0), taken, passed_on, way }
    }

    /// Messages that came by lanes so far.
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Of these, those that threads took for themselves.
    pub fn direct(&self) -> u64 {
        let passed_on = self.passed_on.load(Ordering::Relaxed);
        self.taken().saturating_sub(passed_on)
    }

    /// Changes whenever a thread looks that waits for this peer alone.
    #[inline(always)]
    pub fn looks(&self) -> u32 {
        // Whoever takes a message for itself has looked.
        self.looks.load(Ordering::Relaxed).wrapping_add(self.direct() as u32)
    }

    #[inline(always)]
    fn look(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the calling thread is the one that usually looks here.
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        self.way.is_mine()
    }

    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, Way>> {
        self.way.try_lock()
    }

    /// Waits for the lock. Not from inside of what is called with a message.
    pub fn lock(&self) -> Guard<'_, Way> {
        self.way.lock()
    }

    /// The caller has the lock.
    #[inline(always)]
    fn add(&self, counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Looks into the lane once and so many times more: whether there is something.
    #[inline(always)]
    pub fn watch(&self, way: &mut Way, looks: u32) -> bool {
        way.lane.as_mut().is_some_and(|lane| lane.from_lane.watch(&lane.memory, looks))
    }

    /// For whoever takes what is everybody's, if the calling thread is the one that usually looks here: has `taker`
    /// look at the next message, of up to ten cells, where it lies. What came of it, and whether something else has
    /// come behind what it took.
    ///
    /// Cost: as for [`Feed::express`].
    #[inline(always)]
    pub fn take_whole(&self, taker: &mut impl Taker) -> (One, bool) {
        let Some(mut way) = self.way.lock_as_owner() else { return (One::Left, false) };
        let lane = way.lane.as_mut().filter(|lane| lane.from_lane.expects_short());
        let Some(lane) = lane else { return (One::Left, false) };
        let mut one = lane.from_lane.take_one(&lane.memory, taker);
        if one == One::Left {
            one = lane.from_lane.take_several(&lane.memory, taker);
        }
        if one != One::Taken {
            return (one, false);
        }
        let follows = lane.from_lane.has_next(&lane.memory);
        self.add(&self.taken, 1);
        self.add(&self.passed_on, 1);
        (one, follows)
    }

    /// Takes up to `limit` messages, fewer if `f` breaks off.
    #[inline]
    pub fn take(
        &self,
        way: &mut Way,
        scratch: &mut Scratch,
        limit: usize,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<(usize, ControlFlow<()>)> {
        let Some(lane) = &mut way.lane else { return Ok((0, Continue(()))) };
        let (mut count, mut flow) = (0, Continue(()));
        while count < limit && flow.is_continue() {
            let Polled::Message(m) = lane.from_lane.poll(&lane.memory, scratch)? else { break };
            count += 1;
            let (kind, imm) = (m.label.kind(), m.label.imm());
            flow = f(Message { from: self.peer, kind, imm, bytes: m.bytes });
        }
        if count > 0 {
            self.add(&self.taken, count as u64);
            self.add(&self.passed_on, count as u64);
        }
        Ok((count, flow))
    }

    /// The same for a thread that waits for this peer: it breaks off with what it waits for, and then
    /// leaves the others' messages where they are, for some time.
    #[inline]
    pub fn take_first(
        &self,
        way: &mut Way,
        scratch: &mut Scratch,
        limit: usize,
        f: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<First> {
        self.look();
        if way.lane.is_none() {
            return Ok(First::Absent);
        }
        if way.is_others_turn() {
            way.ended = 0;
            return Ok(First::OthersTurn);
        }
        let (count, flow) = self.take(way, scratch, limit, f)?;
        way.ended = if flow.is_break() { way.ended + 1 } else { 0 };
        Ok(First::Looked(count, flow))
    }

    /// The short way of [`Feed::take_one`] for a message of one cell, or of `SEVERAL`: has `taker` look at it where
    /// it lies, if the calling thread is the one that usually looks here, and `enter` agrees. The lock may have been
    /// taken and left, whatever came of it.
    ///
    /// Cost: as for [`Feed::take_one`], without the copy.
    #[inline(always)]
    pub fn express<const SEVERAL: bool>(
        &self,
        enter: impl FnOnce() -> bool,
        taker: &mut impl Taker,
    ) -> One {
        let Some(mut way) = self.way.lock_as_owner() else { return One::Left };
        if way.is_others_turn() || !enter() {
            return One::Left;
        }
        let Some(lane) = &mut way.lane else { return One::Left };
        let one = match SEVERAL {
            true => lane.from_lane.take_several(&lane.memory, taker),
            false => lane.from_lane.take_one(&lane.memory, taker),
        };
        match one {
            // Also a look, see `looks`.
            One::Taken => {
                way.ended += 1;
                self.add(&self.taken, 1);
            }
            One::Nothing => self.look(),
            One::Left => {}
        }
        one
    }

    /// Takes at most one message, which is one for `f` unless it is `hold`'s: the program's.
    ///
    /// Cost: the lane's line, and lines of this process that only those write who wait for this peer.
    #[inline]
    pub fn take_one(
        &self,
        way: &mut Way,
        f: impl FnOnce(Message<'_>) -> bool,
        hold: impl FnOnce(Message<'_>),
    ) -> Result<Look> {
        if way.is_others_turn() {
            way.ended = 0;
            return Ok(Look::OthersTurn);
        }
        let Some(lane) = &mut way.lane else { return Ok(Look::Unknown) };
        self.look();
        let mut scratch = Scratch::new();
        let Polled::Message(m) = lane.from_lane.poll(&lane.memory, &mut scratch)? else {
            return Ok(Look::Nothing);
        };
        way.ended += 1;
        self.add(&self.taken, 1);
        let (kind, imm) = (m.label.kind(), m.label.imm());
        let message = Message { from: self.peer, kind, imm, bytes: m.bytes };
        if kind < KINDS {
            self.add(&self.passed_on, 1);
            hold(message);
            return Ok(Look::Taken { found: true });
        }
        let found = f(message);
        if found {
            self.add(&self.passed_on, 1);
        }
        Ok(Look::Taken { found })
    }
}

impl Way {
    /// The peer has switched to a lane; false if it has one already.
    pub fn open(&mut self, lane: OpenLane) -> bool {
        let free = self.lane.is_none();
        if free {
            self.lane = Some(lane);
        }
        free
    }

    /// The lane, to be freed.
    pub fn close(&mut self) -> Option<OpenLane> {
        self.lane.take()
    }

    /// Whether everything else is to be looked at first.
    #[inline(always)]
    pub fn is_others_turn(&self) -> bool {
        self.ended >= MOST_ENDED
    }

    /// The lane.
    pub fn lane(&self) -> Option<&OpenLane> {
        self.lane.as_ref()
    }

    /// Whether nothing is in the lane now.
    pub fn is_empty(&self) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.from_lane.is_empty(&lane.memory))
    }
}
