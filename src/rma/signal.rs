//! Signals: a put that tells its target so, and waiting for a word of one's own part to change.
//!
//! ```text
//!   origin                                    target
//!     data -> target's part                     wait_until(index, Ge, n)
//!     release fence                               load the word ... n or more?
//!     word := v, or word += v                     acquire fence
//!     wake the target, if it sleeps               the data is there
//! ```
//! The word is an element of a `Window<u64>`, in that window's one atomic domain: many origins may
//! add to it, and any other operation may change it.

use super::epoch::Epoch;
use super::kind::Place;
use super::window::Window;
use crate::base::sync::{Ordering, fence};
use crate::base::{Error, Rank, Result, reentry};
use crate::layout::{Datum, Op};
use crate::rma::accumulate::Element;
use std::sync::Arc;

/// What a signal does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignalOp {
    /// Sets it to the value.
    Set,
    /// Adds the value, wrapping: for signals of many origins.
    Add,
}

/// How [`Window::wait_until`] compares the element with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

impl Compare {
    /// Whether `element` stands to `value` as this says. Nothing but `Ne` holds for a NaN.
    #[inline]
    pub fn holds<T: PartialOrd>(self, element: T, value: T) -> bool {
        match self {
            Compare::Eq => element == value,
            Compare::Ne => element != value,
            Compare::Lt => element < value,
            Compare::Le => element <= value,
            Compare::Gt => element > value,
            Compare::Ge => element >= value,
        }
    }
}

impl<T: Datum> Epoch<'_, T> {
    /// As [`Epoch::put`], and then changes element `index` of `target` in another window, or in
    /// this one, and wakes `target` if it waits for that in [`Window::wait_until`]. Who has seen
    /// the change there sees the data.
    ///
    /// `signal` is an open epoch of the window that has the word: the same epoch, if it is this
    /// window. Both windows' teams must give `target` the same meaning.
    ///
    /// Cost in the node, besides the put: one atomic update, and a load of a line that only
    /// sleepers write. Where a part is reached by packets, the signal follows the data in the same
    /// window; if the word is mapped or lies in another window, the call waits until the data has
    /// arrived.
    ///
    /// # Errors
    /// Those of [`Epoch::put`] and [`Epoch::fetch_and_op`], found out before anything is written
    /// where the parts are mapped; [`Error::InvalidArgument`] if `target` is another rank in the
    /// other window's team.
    #[expect(clippy::too_many_arguments, reason = "a put and a signal")]
    pub fn put_signal(
        &self,
        target: Rank,
        start: usize,
        values: &[T],
        signal: &Epoch<'_, u64>,
        index: usize,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        const WHAT: &str = "put_signal";
        self.admit(WHAT, target)?;
        signal.admit(WHAT, target)?;
        let (data, words) = (self.window, signal.window);
        let word = words.place(WHAT, target, index, 1)?;
        let same = Arc::as_ptr(data.core()) == Arc::as_ptr(words.core());
        if !same && data.team().slot_of(target)? != words.team().slot_of(target)? {
            let why = format!(
                "rank {target} is not the same process in the teams of the two windows: make them \
                 for the same team"
            );
            return Err(Error::invalid(WHAT, why));
        }
        let away = matches!(data.place(WHAT, target, start, values.len())?, Place::Away(_));
        self.put(target, start, values)?;
        // One window's packets to a target stay in order; a word that is mapped overtakes them,
        // and in a dynamic window that can be so in one and the same window.
        if away && !(same && matches!(word, Place::Away(_))) {
            data.remote(WHAT, target)?.flush(Some(target))?;
        }
        let op = match op {
            SignalOp::Set => Op::Replace,
            SignalOp::Add => Op::Sum,
        };
        match word {
            Place::Here(at) => {
                // The update is Relaxed; with this it releases the data.
                fence(Ordering::Release);
                // SAFETY: `place` checked the element.
                unsafe { words.domain().fetch_op(target, at, op, value)? };
                words.core().block.active(target.0).signal.notify();
                Ok(())
            }
            Place::Away(_) => {
                signal.accumulate(target, index, op, &[value])?;
                // Nobody flushes on behalf of who waits for it.
                words.remote(WHAT, target)?.push(target)
            }
        }
    }
}

impl<T: Element + PartialOrd> Window<T> {
    /// Waits until element `index` of this rank's own part compares with `value` as `compare`
    /// says; returns the element. What its writer wrote before it is then visible here, if it
    /// changed the element by [`Epoch::put_signal`], or otherwise after a flush of what it had
    /// written before.
    ///
    /// Needs no epoch. Sleeps when the element has not changed for a while; a signal ends the sleep at
    /// once, any other way of changing the element within 64 milliseconds.
    ///
    /// Cost if the element is already so: its load.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::RankDied`] if a member of the team dies meanwhile;
    /// [`Error::RankLeft`] if all others have left; [`Error::TimedOut`] at the team's deadline.
    pub fn wait_until(&self, index: usize, compare: Compare, value: T) -> Result<T> {
        const DURING: &str = "wait_until";
        reentry::refuse_inside(DURING)?;
        let mine = self.local().slice(index, index.saturating_add(1))?;
        let mut element = mine.get(0)?;
        if !compare.holds(element, value) {
            let (team, node) = (self.team(), self.node());
            let cell = &self.core().block.active(team.rank().0).signal;
            let deadline = team.deadline();
            while !compare.holds(element, value) {
                // A word that changes may be counted up by many signals: each keeps this thread awake, or who
                // sends them would have to wake it for each. Not by `!=`, which holds for a NaN all the time.
                let changed =
                    |now: &T| compare.holds(*now, value) || *now < element || *now > element;
                let poll = || mine.get(0).ok().filter(changed);
                let check = || self.somebody_is_there(DURING);
                element = node.wait(cell, deadline, DURING, poll, check)?;
            }
        }
        fence(Ordering::Acquire);
        Ok(element)
    }

    /// An error if a member is dead, or if all others have left.
    fn somebody_is_there(&self, during: &'static str) -> Result<()> {
        let (team, node) = (self.team(), self.node());
        let others = || team.ranks().filter(|rank| *rank != team.rank());
        let has_left = |slot| node.has_left(slot);
        let there = others().filter_map(|r| team.slot_of(r).ok()).filter(|slot| !has_left(*slot));
        node.check(there.clone(), during)?;
        match (others().next(), there.clone().next()) {
            (Some(rank), None) => {
                let slot = team.slot_of(rank)?;
                Err(Error::RankLeft { rank: node.rank_of(slot), during })
            }
            _ => Ok(()),
        }
    }
}
