//! How a process waits: for what another core may be about to store, then awake, then asleep, and looking after
//! what others want of it meanwhile.
//!
//! ```text
//!   polls at once, where the caller has what it polls in registers        (Node::wait, inlined)
//!     --> polls with pauses --> what pays where cores are shared --> yields --> asleep     (wait_longer)
//! ```
//! How long each part lasts is the process's pace (see `park`), and whether its threads are in each other's way
//! (`crowd`), or peers on its core (`habit`, `aside`).

use super::aside::Aside;
use super::node::Node;
use super::park::{Pace, WaitCell, Yielded};
use crate::base::{Deadline, Result, Slot};

/// Polls of a wait between two looks at other work, while there is some.
const HELP_EVERY: u32 = 32;

/// Who has to do what a wait is for.
#[derive(Clone, Copy)]
enum Peers {
    /// Several.
    Many,
    /// One, if that is known.
    One(Option<Slot>),
}

impl Node {
    /// For waits that are none of [`Node::wait`]: after `turn` polls, looks after pending work if it
    /// is time to. One load for each [`HELP_EVERY`] polls while there is none.
    pub(crate) fn help_now_and_then(&self, turn: u32) {
        if turn.is_multiple_of(HELP_EVERY) && self.has_pending() {
            self.help();
        }
    }

    /// How often what another core may be about to store is polled for at the beginning of a wait, by who does
    /// that by itself before [`Node::wait`].
    #[inline]
    pub fn polls_at_once(&self) -> u32 {
        if self.has_pending() {
            return 0;
        }
        let most = if self.crowd.is_crowded() { Pace::SHARED.spins } else { u32::MAX };
        self.pace.at_once().min(most)
    }

    /// [`WaitCell::wait`] at this process's pace, which looks whether there is a core for each thread
    /// of this process that waits, and after pending work meanwhile: then packets end its sleeps too.
    ///
    /// For what many have to do, of whom some may want this core; see [`Node::wait_for`].
    ///
    /// What comes soon is polled for where the caller has what it polls in registers: put into memory first, it
    /// would be had again only when the stores before it are done, which the others may be waiting for.
    #[inline]
    pub fn wait<R>(
        &self,
        cell: &WaitCell,
        deadline: Deadline,
        during: &'static str,
        poll: impl FnMut() -> Option<R>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        self.wait_beside(cell, Peers::Many, deadline, during, poll, check)
    }

    /// The same for what a process has to do, which is `peer` if it is known. Ranks that share cores
    /// keep theirs for longer here, while that pays (see `habit`), and part from peers on the same core
    /// (see `aside`).
    #[inline]
    pub fn wait_for<R>(
        &self,
        cell: &WaitCell,
        peer: Option<Slot>,
        deadline: Deadline,
        during: &'static str,
        poll: impl FnMut() -> Option<R>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        self.wait_beside(cell, Peers::One(peer), deadline, during, poll, check)
    }

    #[inline]
    fn wait_beside<R>(
        &self,
        cell: &WaitCell,
        peers: Peers,
        deadline: Deadline,
        during: &'static str,
        mut poll: impl FnMut() -> Option<R>,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        if !self.has_pending()
            && let Some(value) = self.pace().poll_at_once(&mut poll)
        {
            return Ok(value);
        }
        self.wait_longer((cell, peers), deadline, during, &mut poll, &mut check)
    }

    #[inline(never)]
    fn wait_longer<R>(
        &self,
        (cell, peers): (&WaitCell, Peers),
        deadline: Deadline,
        during: &'static str,
        poll: &mut impl FnMut() -> Option<R>,
        check: &mut impl FnMut() -> Result<()>,
    ) -> Result<R> {
        let pace = self.pace();
        if !self.has_pending() {
            return self.wait_at((cell, None, peers), pace, deadline, during, poll, check);
        }
        let mut turn = 0u32;
        let mut poll = || {
            turn = turn.wrapping_add(1);
            self.help_now_and_then(turn);
            poll()
        };
        let mut check = || {
            self.help();
            check()
        };
        if let Some(value) = pace.poll_at_once(&mut poll) {
            return Ok(value);
        }
        let service = &self.rank_slot(self.slot).service;
        let beside = (!std::ptr::eq(cell, service)).then_some(service);
        self.wait_at((cell, beside, peers), pace, deadline, during, &mut poll, &mut check)
    }

    /// What follows [`Pace::poll_at_once`].
    fn wait_at<R>(
        &self,
        (cell, beside, peers): (&WaitCell, Option<&WaitCell>, Peers),
        pace: Pace,
        deadline: Deadline,
        during: &'static str,
        poll: &mut impl FnMut() -> Option<R>,
        check: &mut impl FnMut() -> Result<()>,
    ) -> Result<R> {
        let awake = self.crowd.enter();
        let crowd = &self.crowd;
        if let Some(value) = pace.poll_with_pauses(|| !crowd.is_crowded(), poll) {
            crowd.note_spun();
            return Ok(value);
        }
        let mut beside_peer = None;
        if let (Peers::One(peer), Some(habits)) = (peers, &self.habits) {
            if let Some(value) = habits.poll(cell, poll) {
                return Ok(value);
            }
            beside_peer = self.look_aside(peer);
        }
        let yielded = pace.poll_with_yields(poll);
        if let (Some(aside), Yielded::Come(..)) = (beside_peer, &yielded) {
            aside.back();
        }
        match yielded {
            Yielded::Come(value, at_once) => {
                if at_once {
                    crowd.note_yielded();
                }
                return Ok(value);
            }
            Yielded::Strangers => crowd.note_strangers(),
            Yielded::Nothing => {}
        }
        drop(awake);
        if let Some(beyond) = self.beyond.get() {
            beyond.rest();
        }
        cell.sleep_until(beside, pace, deadline, during, poll, check)
    }

    /// Parts from `peer` if that is due. Whether both are on one core now.
    fn look_aside(&self, peer: Option<Slot>) -> Option<&Aside> {
        let (aside, peer) = (self.aside.as_ref()?, peer?);
        if peer == self.slot || !self.is_local(peer) {
            return None;
        }
        let (here, there) = (self.rank_slot(self.slot), self.rank_slot(peer));
        aside.look(&here.seen_on, &there.seen_on, self.slot < peer).then_some(aside)
    }
}
