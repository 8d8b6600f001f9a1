//! Looking for what has come: everywhere, for the program and for the sink, or in the lane of one peer.
//!
//! ```text
//!   poll_one      the lane of one peer            its feed's lock
//!   poll_sink     the same first, then all        its feed's lock, then the receiver's and each feed's
//!   poll          all                             the receiver's and each feed's
//!   poll_waiting  the lane that brought what came
//!                 lately, if nothing is there all the receiver's and each feed's
//! ```
//! Whoever leaves a lock rings the process's bell if it has found what another thread may wait for, or
//! if one that is about to sleep came while it was inside (see [`overlooked`](super::overlooked)).

use super::core::Wire;
use super::feed::{Feed, First, Look};
use super::receive::{Favoured, LANE_BATCH, Manner, Scope};
use super::table::OfPeer;
use super::{KINDS, Message};
use crate::base::sync::Ordering;
use crate::base::{Result, Slot};
use crate::shm::ring::Scratch;
use crate::shm::ring::lane_receiver::{One, Taker};
use std::cell::Cell;
use std::ops::ControlFlow;

/// What a part of a poll has come to.
#[derive(Clone, Copy)]
struct Done {
    /// Messages taken.
    count: usize,
    /// Whether the taker broke off.
    flow: ControlFlow<()>,
    /// Something was left alone because of another thread.
    partial: bool,
}

impl Done {
    const NOTHING: Done = Done { count: 0, flow: ControlFlow::Continue(()), partial: false };

    fn and(self, rest: Done) -> Done {
        Done { count: self.count + rest.count, ..rest }
    }
}

impl Wire<'_> {
    /// For the program: see [`Link::poll`](super::Link::poll). One that `waits` is content with what the lane has
    /// that brought what came lately.
    #[inline]
    pub(super) fn poll(self, waits: bool, f: &mut impl FnMut(Message<'_>)) -> Result<usize> {
        let core = self.core;
        // Should `f` panic: its message has been taken by then, so all is in order.
        let Some(mut receiver) = core.receiver.try_lock() else { return Ok(0) };
        let count = Cell::new(0);
        let mut others = 0;
        let mut own = |message: Message<'_>| {
            count.set(count.get() + 1);
            f(message);
        };
        core.held.give(&mut own);
        let sink = core.sink.get();
        let mut take = |message: Message<'_>| {
            if message.kind < KINDS {
                // What a thread has come across since then was sent before.
                core.held.give(&mut own);
                own(message);
            } else if let Some(sink) = sink {
                others += 1;
                sink.arrive(self, message);
            }
            ControlFlow::Continue(())
        };
        let looked = if waits {
            receiver.poll_favourite(self.node.waits_awake(), &mut take)
        } else {
            Ok(())
        };
        let polled = match looked {
            // Also if what came is the sink's: the program may be about to sleep, and then all must have been
            // looked at.
            Ok(()) if !waits || count.get() == 0 => {
                let all = Scope { but: None, manner: Manner::Thorough };
                let polled = receiver.poll((self.node, &core.feeds), all, &mut take);
                if let Some(far) = core.far().filter(|far| far.has_come(core.line())) {
                    receiver.poll_far((&**far, core.number()), &mut take);
                }
                polled.map(|_| ())
            }
            looked => looked,
        };
        drop(receiver);
        self.left(others > 0);
        self.relieve_others();
        if let (true, Some(sink)) = (others > 0, sink) {
            sink.settle(self);
        }
        polled.map(|()| count.get())
    }

    /// The same for one that waits, which begins with the next message of that lane alone.
    #[inline(always)]
    pub(super) fn poll_waiting(self, f: &mut impl FnMut(Message<'_>)) -> Result<usize> {
        let core = self.core;
        let Some(mut receiver) = core.receiver.lock_as_owner().filter(|_| core.held.is_empty())
        else {
            return self.poll_apart(true, f);
        };
        let waits = match receiver.take_favourite(self.node.waits_awake()) {
            Favoured::Taken { message, follows } => {
                f(message);
                drop(receiver);
                self.left(false);
                self.relieve_others();
                // Also if what follows is the sink's.
                return if follows { self.poll_apart(true, f).map(|more| more + 1) } else { Ok(1) };
            }
            Favoured::Nothing => false,
            Favoured::Unknown => true,
        };
        drop(receiver);
        self.left(false);
        self.poll_apart(waits, f)
    }

    /// [`Wire::poll_waiting`] in a function of its own.
    #[inline(never)]
    pub(super) fn poll_on(self, f: &mut impl FnMut(Message<'_>)) -> Result<usize> {
        self.poll_waiting(f)
    }

    /// [`Wire::poll`] in a function of its own.
    #[inline(never)]
    fn poll_apart(self, waits: bool, f: &mut impl FnMut(Message<'_>)) -> Result<usize> {
        self.poll(waits, f)
    }

    /// For the sink: takes what has come, at most a few hundred messages, and calls `f` for those
    /// that are the sink's; the program's are held for it. Begins with the lane of `first`, or else
    /// of whoever sent the latest message (`beside`: leaves that lane alone), and ends when `f` breaks off, saying whether its last
    /// message is one that no other thread waits for. Returns how many of all there were. Never
    /// waits; `None` if another thread is receiving, or something of it, or (where it is to be
    /// [polite](Manner::Polite)) looks after a lane.
    ///
    /// Cost if the first lane has what breaks off: that lane's line and lock; nothing else is
    /// looked at.
    ///
    /// # Errors
    /// Damaged shared memory; [`Error::Exhausted`] if the program does not receive its own.
    #[inline]
    pub fn poll_sink(
        self,
        (first, beside): (Option<Slot>, bool),
        manner: Manner,
        mut f: impl FnMut(Message<'_>) -> ControlFlow<bool>,
    ) -> Result<Option<usize>> {
        self.core.held.admit()?;
        let mut own = 0;
        let mut take = |message: Message<'_>| {
            if message.kind < KINDS {
                self.core.held.keep(message);
                return ControlFlow::Continue(());
            }
            f(message).map_break(|alone| own = usize::from(alone))
        };
        let mut polled =
            if beside { Ok((Done::NOTHING, first)) } else { self.poll_first(first, &mut take) };
        if let Ok((done, but)) = &mut polled
            && done.flow.is_continue()
        {
            let scope = Scope { but: *but, manner };
            polled = self.poll_rest(scope, &mut take).map(|rest| (done.and(rest), None));
        }
        self.left(!matches!(&polled, Ok((done, _)) if done.count <= own));
        polled.map(|(done, _)| (done.flow.is_break() || !done.partial).then_some(done.count))
    }

    /// Looks into one lane; whose lane need not be looked into again.
    #[inline]
    fn poll_first(
        self,
        first: Option<Slot>,
        take: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<(Done, Option<Slot>)> {
        let Some(feed) = self.core.feed(first) else { return Ok((Done::NOTHING, None)) };
        let Some(mut way) = feed.try_lock() else { return Ok((Done::NOTHING, None)) };
        let mut scratch = Scratch::new();
        match feed.take_first(&mut way, &mut scratch, LANE_BATCH, take)? {
            First::Looked(count, flow) => {
                Ok((Done { count, flow, partial: false }, Some(feed.peer())))
            }
            First::Absent => Ok((Done::NOTHING, None)),
            First::OthersTurn => {
                drop(way);
                let others = Scope { but: Some(feed.peer()), manner: Manner::Polite };
                let done = self.poll_rest(others, take)?;
                Ok((Done { partial: false, ..done }, None))
            }
        }
    }

    /// Looks everywhere.
    fn poll_rest(
        self,
        scope: Scope,
        take: &mut impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> Result<Done> {
        let core = self.core;
        let Some(mut receiver) = core.receiver.try_lock() else {
            return Ok(Done { partial: true, ..Done::NOTHING });
        };
        core.note_look();
        let mut come = receiver.poll((self.node, &core.feeds), scope, take)?;
        if let Some(far) = core.far()
            && far.has_come(core.line())
        {
            come.count += receiver.poll_far((&**far, core.number()), take);
        }
        drop(receiver);
        self.relieve_others();
        if let Some(latest) = come.latest
            && core.latest.load(Ordering::Relaxed) != u32::from(latest.0)
        {
            core.latest.store(latest.0.into(), Ordering::Relaxed);
        }
        Ok(Done { count: come.count, flow: come.flow, partial: come.partial })
    }

    /// For the sink: takes the next message that the lane of `source` has (or of whoever sent the
    /// latest message), if `enter` agrees. While `enter` is asked, and until `f` has the message,
    /// nothing else of that peer can arrive. `f` says whether another thread may wait for what came.
    ///
    /// Cost: the lane's line, and a lock and lines that are only written by threads that receive
    /// from the same peer.
    ///
    /// # Errors
    /// Damaged shared memory.
    #[inline]
    pub fn poll_one(
        self,
        source: Option<Slot>,
        enter: impl FnOnce() -> bool,
        f: impl FnOnce(Message<'_>) -> bool,
    ) -> Result<Look> {
        let core = self.core;
        if core.far().is_some() && source.is_none_or(|source| !self.node.is_local(source)) {
            return Ok(Look::Unknown);
        }
        let Some(feed) = core.feed(source) else { return Ok(Look::Unknown) };
        let Some(mut way) = feed.try_lock() else { return Ok(Look::Unknown) };
        // Others may have what any source will do for: a poll of all gives them their turn.
        if !enter() || source.is_none() && way.is_others_turn() {
            return Ok(Look::Unknown);
        }
        let look = match feed.take_one(&mut way, f, |message| core.held.keep(message)) {
            Ok(look) => look,
            Err(error) => {
                drop(way);
                self.left(false);
                return Err(error);
            }
        };
        drop(way);
        self.left(matches!(look, Look::Taken { found: true }));
        Ok(look)
    }

    /// The short way of [`Wire::poll_one`], see [`Feed::express`]: `taker` looks at the next message that the
    /// lane of `source` has, and says whether it has taken it.
    #[inline(always)]
    pub fn express_from<const SEVERAL: bool>(
        self,
        source: Slot,
        enter: impl FnOnce() -> bool,
        taker: &mut impl Taker,
    ) -> One {
        let Some(feed) = self.core.feed(Some(source)) else { return One::Left };
        let one = feed.express::<SEVERAL>(enter, taker);
        self.left(false);
        one
    }

    /// Messages that threads took for themselves by [`Wire::poll_one`].
    pub fn taken_directly(self, peer: Slot) -> u64 {
        self.core.feeds.get(peer).map_or(0, Feed::direct)
    }

    /// A lock was released. `found`: something that another thread may wait for has come.
    #[inline(always)]
    pub(super) fn left(self, found: bool) {
        self.core.overlooked.left(found, || self.doorbell());
    }

    /// Says, before a sleep, that something was in use at the last look; what it had to say may
    /// be asked for once more now.
    pub fn note_missed(self) {
        self.core.overlooked.note();
    }
}
