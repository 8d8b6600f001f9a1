//! How the calls of a window wait: one look after the other until what they wait for is there, the
//! ends of epochs for the room above first.
//!
//! ```text
//!   end of an epoch     settle: what the room above does is done    engine: the epoch is over
//!                       |------------------- one deadline -----------------------------|
//!                                  | passed, or failed
//!                                  +--> give_up: the room above is heard a last time in the epoch
//! ```

use super::agent::Entered;
use super::outgoing::Out;
use super::remote::Packets;
use super::state::State;
use super::thread::RETRY;
use super::world::Around;
use crate::base::{Deadline, Error, Rank, Result, forked};
use crate::coll::Team;
use crate::link::service::doorbell;
use crate::rma::foreign::Foreign;
use crate::rma::runtime::{Engine, Trouble, WindowId};
use std::cell::Cell;
use std::task::Poll;

/// The deadline of a call with several things to wait for. The clock is read at the first wait.
pub(super) struct Limit<'t> {
    team: &'t Team,
    deadline: Cell<Option<Deadline>>,
}

impl Limit<'_> {
    fn deadline(&self) -> Deadline {
        let deadline = self.deadline.get().unwrap_or_else(|| self.team.deadline());
        self.deadline.set(Some(deadline));
        deadline
    }
}

impl Packets {
    /// The deadline of a call that begins now.
    pub fn limit(&self) -> Limit<'_> {
        Limit { team: &self.team, deadline: Cell::new(None) }
    }

    /// Calls `step` until it is done, making progress in between; sleeps when that does not pay.
    /// Even with its deadline passed it looks some times.
    pub fn drive<R>(
        &self,
        during: &'static str,
        limit: &Limit<'_>,
        mut step: impl FnMut(&mut State) -> Poll<Result<R>>,
    ) -> Result<R> {
        let mut state = self.agent.enter()?;
        let found = !self.agent.threaded() && state.look(&self.node)?;
        let done = step(&mut state);
        self.leave(state, found, 0);
        if let Poll::Ready(done) = done {
            return done;
        }
        let _driving = self.agent.driving();
        let deadline = limit.deadline();
        let mut retry = false;
        loop {
            let poll = || {
                let mut state = match self.agent.enter() {
                    Ok(state) => state,
                    Err(error) => return Some(Err(error)),
                };
                let found = match state.look(&self.node) {
                    Ok(found) => found,
                    Err(error) => return Some(Err(error)),
                };
                let done = step(&mut state);
                let again = state.retry;
                let ran = self.leave(state, found, 1);
                match done {
                    Poll::Ready(done) => Some(done.map(Some)),
                    // There may be more to run: it is not to be slept over.
                    Poll::Pending if ran || again && !retry => Some(Ok(None)),
                    Poll::Pending => None,
                }
            };
            // A peer that makes room rings no doorbell.
            let limit = if retry { Deadline::after(RETRY) } else { deadline };
            let check = || self.agent.look_around(&self.node, true);
            let bell = doorbell(&self.node, self.node.slot());
            match self.node.wait(bell, limit, during, poll, check) {
                Ok(Ok(Some(done))) => return Ok(done),
                Ok(Ok(None)) => retry = true,
                Ok(Err(error)) => return Err(error),
                Err(Error::TimedOut { .. }) if !deadline.passed() => retry = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// Releases the lock, and tells other waiting calls if something had arrived: it may be what
    /// they wait for. `mine`: the caller is so many of those that wait. Whether handlers were run.
    pub fn leave(&self, state: Entered<'_>, found: bool, mine: u32) -> bool {
        let ran = self.agent.leave(&self.node, state);
        if (ran || found) && self.agent.drivers() > mine {
            doorbell(&self.node, self.node.slot()).notify();
        }
        ran
    }

    /// A call of the engine.
    pub fn ask<R>(
        &self,
        during: &'static str,
        call: impl FnMut(&mut Engine, &mut Around<'_>, WindowId) -> Poll<Result<R, Trouble>>,
    ) -> Result<R> {
        self.ask_within(during, &self.limit(), call)
    }

    /// As [`Packets::ask`], as one thing of several that a call waits for.
    pub fn ask_within<R>(
        &self,
        during: &'static str,
        limit: &Limit<'_>,
        mut call: impl FnMut(&mut Engine, &mut Around<'_>, WindowId) -> Poll<Result<R, Trouble>>,
    ) -> Result<R> {
        self.drive(during, limit, |state| {
            let around = &mut Around { node: &self.node, world: &mut state.world };
            let done = call(&mut state.engine, around, self.id);
            done.map_err(|trouble| self.error(during, trouble))
        })
    }

    /// Waits until nothing of writes that failed can land any more, and what is performed elsewhere is done at `target` (everywhere for `None`): what
    /// is done for it is sent within the present epoch; before each question `meanwhile` is
    /// called. One that `ends` the epoch gives up what it does not wait for.
    pub fn settle(
        &self,
        during: &'static str,
        target: Option<Rank>,
        ends: bool,
        limit: &Limit<'_>,
        mut meanwhile: impl FnMut(&mut State),
    ) -> Result<()> {
        let sure = self.dispel(during, limit);
        let Some(foreign) = self.foreign.get() else { return sure };
        let mut settled = match foreign.idle(target, ends) {
            Ok(false) => self.drive(during, limit, |state| {
                meanwhile(state);
                match foreign.idle(target, ends) {
                    Ok(false) => Poll::Pending,
                    Ok(true) => Poll::Ready(Ok(())),
                    Err(error) => Poll::Ready(Err(error)),
                }
            }),
            settled => settled.map(drop),
        };
        if let Err(Error::TimedOut { missing, .. }) = &mut settled {
            let awaited = foreign.awaited(target);
            *missing = self.in_job(awaited.into_iter().map(|rank| rank.0).collect());
        }
        if let (true, Err(why)) = (ends, &settled) {
            self.give_up(&**foreign, target, why);
        }
        both(sure, settled)
    }

    /// The room above is not waited for any more.
    fn give_up(&self, foreign: &dyn Foreign, target: Option<Rank>, why: &Error) {
        if forked::is_forked() {
            // Who has the lock is not in a child that was forked off, nor is anything sent there.
            return;
        }
        // Also where the path is broken: what refers to the callers' memory has to end.
        let mut state = self.agent.enter_regardless();
        let here = &mut *state;
        let around = Around { node: &self.node, world: &mut here.world };
        let engine = &mut here.engine;
        let mut out = Out { engine, around, window: self.id, blocked: false, sent: false };
        foreign.give_up(target, why, !self.synchronises, &mut out);
        here.engine.progress(&mut Around { node: &self.node, world: &mut here.world });
        let rung = std::mem::take(&mut here.world.rung);
        self.leave(state, rung, 0);
    }

    /// Members, numbered as in the job.
    pub fn in_job(&self, members: Vec<u32>) -> Vec<Rank> {
        let slots = members.into_iter().filter_map(|rank| self.team.slot_of(Rank(rank)).ok());
        slots.map(|slot| self.node.rank_of(slot)).collect()
    }

    /// Names the only one that can have been missing.
    pub fn naming(&self, target: Option<Rank>, mut done: Result<()>) -> Result<()> {
        if let (Some(target), Err(Error::TimedOut { missing, .. })) = (target, &mut done)
            && missing.is_empty()
        {
            *missing = self.in_job(vec![target.0]);
        }
        done
    }
}

/// What became of a call with two things to wait for: the first error, with all that were missing.
pub(super) fn both(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (
            Err(Error::TimedOut { during, waited, mut missing }),
            Err(Error::TimedOut { missing: others, .. }),
        ) => {
            missing.extend(others);
            missing.sort_unstable();
            missing.dedup();
            Err(Error::TimedOut { during, waited, missing })
        }
        (first, second) => first.and(second),
    }
}
