//! The calls of a window whose parts are reached by packets.

use super::agent::{Agent, Entered};
use super::cut::{Cutter, land};
use super::distrust::Distrust;
use super::state::State;
use super::thread::RETRY;
use super::world::{Around, Site, short};
use super::{MOST_BODY, fault};
use crate::base::{Deadline, Error, Rank, Result};
use crate::coll::Team;
use crate::link::service::doorbell;
use crate::rma::accumulate::Domain;
use crate::rma::block::WindowBlock;
use crate::rma::epoch::Assertions;
use crate::rma::foreign::Foreign;
use crate::rma::info::Info;
use crate::rma::remote::{Landing, Locking, Operation, OwnPart, Remote, Ticket};
use crate::rma::runtime::{Engine, FenceFlags, LockKind, Trouble, WindowId};
use crate::shm::node::Node;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

/// Most units of one waiting call whose answers are on their way.
const IN_FLIGHT: usize = 16;

/// One window's remote parts, reached by packets.
#[derive(Debug)]
struct Packets {
    node: Arc<Node>,
    agent: Arc<Agent>,
    id: WindowId,
    team: Team,
    block: Arc<WindowBlock>,
    /// All parts are reached by packets: then the engine also synchronises. Else epochs are
    /// synchronised as for mapped memory, which some parts are, and for the engine one epoch on
    /// all parts is open as long as the window is.
    synchronises: bool,
    distrust: Arc<Distrust>,
    /// Who performs what is no one-sided operation.
    foreign: OnceLock<Arc<dyn Foreign>>,
}

/// Opens the packet path of a window. Every member has to, before any of them uses it: a part of
/// making the window. `own` is this process's part; `all` says that every part is reached by
/// packets, by every member.
///
/// # Errors
/// [`Error::OutOfMemory`] for the inboxes, [`Error::Os`] for the thread.
pub(crate) fn open(
    block: &Arc<WindowBlock>,
    info: &Info,
    own: Arc<dyn OwnPart>,
    all: bool,
) -> Result<Arc<dyn Remote>> {
    let team = block.team.clone();
    let node = team.node().clone();
    let agent = Agent::of(&node)?;
    let id = WindowId(block.identity());
    let site = Site {
        team: team.clone(),
        block: block.clone(),
        domain: Domain::new(block, info),
        own,
        foreign: None,
        buried: Default::default(),
        dropped: Default::default(),
    };
    agent.add(&node, id, site)?;
    let (block, foreign) = (block.clone(), OnceLock::new());
    let distrust = agent.enter()?.world.distrust.clone();
    let packets = Packets { node, agent, id, team, block, synchronises: all, distrust, foreign };
    if !all {
        packets.ask("making a window", |e, around, id| e.lock_all(around, id, true))?;
    }
    Ok(Arc::new(packets))
}

impl Packets {
    fn error(&self, during: &'static str, trouble: Trouble) -> Error {
        fault::trouble_of(&self.node, &self.block, &self.distrust, during, trouble)
    }

    /// Members, numbered as in the job.
    fn in_job(&self, members: Vec<u32>) -> Vec<Rank> {
        let slots = members.into_iter().filter_map(|rank| self.team.slot_of(Rank(rank)).ok());
        slots.map(|slot| Rank(slot.0.into())).collect()
    }

    /// Calls `step` until it is done, making progress in between; sleeps when that does not pay.
    fn drive<R>(
        &self,
        during: &'static str,
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
        let deadline = self.team.deadline();
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
                self.leave(state, found, 1);
                match done {
                    Poll::Ready(done) => Some(done.map(Some)),
                    Poll::Pending if again && !retry => Some(Ok(None)),
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
    /// they wait for. `mine`: the caller is so many of those that wait.
    fn leave(&self, state: Entered<'_>, found: bool, mine: u32) {
        // What was run here has something to send: the caller is to look again.
        let ran = self.agent.leave(state);
        if ran || found && self.agent.drivers() > mine {
            doorbell(&self.node, self.node.slot()).notify();
        }
    }

    /// Waits until what is performed elsewhere is done at `target` (everywhere for `None`): what
    /// is done for it is sent within the present epoch. One that `ends` the epoch gives up what
    /// it does not wait for.
    fn settle(&self, during: &'static str, target: Option<Rank>, ends: bool) -> Result<()> {
        let Some(foreign) = self.foreign.get() else { return Ok(()) };
        let settled = match foreign.idle(target, ends) {
            Ok(false) => self.drive(during, |_| match foreign.idle(target, ends) {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }),
            settled => settled.map(drop),
        };
        if ends && settled.is_err() {
            foreign.give_up(target);
        }
        settled
    }

    /// Posts the unit in `body`.
    fn issue(&self, operation: &Operation<'_>, body: &[u8], token: Option<u64>) -> Result<()> {
        let (what, target) = (operation.what, operation.target.0);
        self.drive(what, |state| {
            let around = &mut Around { node: &self.node, world: &mut state.world };
            let issued = state.engine.operate(around, self.id, target, body, token);
            issued.map_err(|trouble| self.error(what, trouble))
        })
    }

    /// A call of the engine.
    fn ask<R>(
        &self,
        during: &'static str,
        mut call: impl FnMut(&mut Engine, &mut Around<'_>, WindowId) -> Poll<Result<R, Trouble>>,
    ) -> Result<R> {
        self.drive(during, |state| {
            let around = &mut Around { node: &self.node, world: &mut state.world };
            let done = call(&mut state.engine, around, self.id);
            done.map_err(|trouble| self.error(during, trouble))
        })
    }

    /// What is waited for is not to be kept back.
    fn hurry(&self, target: Rank) -> Result<()> {
        let mut state = self.agent.enter()?;
        let here = &mut *state;
        here.engine.push(
            &mut Around { node: &self.node, world: &mut here.world },
            self.id,
            target.0,
        );
        Ok(())
    }

    /// Fetches into the caller's memory, a bounded number of units at a time.
    fn fetch(&self, operation: &Operation<'_>, cutter: &mut Cutter<'_>) -> Result<()> {
        let Landing::Here(memory) = operation.landing else { return Ok(()) };
        let mut under_way = UnderWay { packets: self, units: VecDeque::new() };
        let mut body = Vec::with_capacity(MOST_BODY.min(operation.bytes + 128));
        let mut more = true;
        loop {
            while more && under_way.units.len() < IN_FLIGHT {
                let Some(cut) = cutter.next(&mut body)? else {
                    more = false;
                    break;
                };
                let token = self.agent.enter()?.world.claim();
                under_way.units.push_back((token, cut));
                self.issue(operation, &body, Some(token))?;
            }
            let Some(&(token, cut)) = under_way.units.front() else { return Ok(()) };
            self.hurry(operation.target)?;
            let done = self.drive(operation.what, |state| match state.world.take(token) {
                None => Poll::Pending,
                Some(Ok(data)) => Poll::Ready(Ok(data)),
                Some(Err(trouble)) => Poll::Ready(Err(self.error(operation.what, trouble))),
            });
            under_way.units.pop_front();
            let data = done?;
            if data.len() != cut.bytes {
                return Err(self.error(operation.what, short()));
            }
            // SAFETY: the landing memory of an operation is for writing, by its contract.
            unsafe { land(&memory, cut.position, &data)? };
        }
    }

    /// Begins to fetch into memory of the operation's own.
    fn begin(&self, operation: &Operation<'_>, cutter: &mut Cutter<'_>) -> Result<Ticket> {
        let ticket = self.agent.enter()?.world.gather(operation.what, operation.bytes)?;
        let mut body = Vec::new();
        let mut issue = || {
            while let Some(cut) = cutter.next(&mut body)? {
                let token = self.agent.enter()?.world.claim_piece(ticket, cut.position, cut.bytes);
                self.issue(operation, &body, Some(token)).inspect_err(|_| self.forget(token))?;
            }
            self.hurry(operation.target)
        };
        match issue() {
            Ok(()) => Ok(Ticket(ticket)),
            Err(error) => {
                self.abandon(Ticket(ticket));
                Err(error)
            }
        }
    }

    fn forget(&self, token: u64) {
        if let Ok(mut state) = self.agent.enter() {
            state.world.forget(token);
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // For a window that was not made in the end.
        self.close();
    }
}

/// Units whose answers are on their way; those that nobody will take are forgotten.
struct UnderWay<'p> {
    packets: &'p Packets,
    units: VecDeque<(u64, super::cut::Cut)>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for (token, _) in self.units.drain(..) {
            self.packets.forget(token);
        }
    }
}

impl Remote for Packets {
    fn post(&self, operation: &Operation<'_>) -> Result<Option<Ticket>> {
        let mut cutter = Cutter::new(operation)?;
        match operation.landing {
            Landing::Here(_) => self.fetch(operation, &mut cutter).map(|()| None),
            Landing::Later => self.begin(operation, &mut cutter).map(Some),
            Landing::Nothing => {
                let mut body = Vec::with_capacity(MOST_BODY.min(operation.bytes + 128));
                while cutter.next(&mut body)?.is_some() {
                    self.issue(operation, &body, None)?;
                }
                Ok(None)
            }
        }
    }

    fn poll(&self, ticket: Ticket, waker: Option<&Waker>) -> Result<Option<Vec<u8>>> {
        let mut state = self.agent.enter()?;
        let found = state.look(&self.node)?;
        let done = state.world.collect(ticket.0, waker);
        self.leave(state, found, 0);
        self.agent.looks.fetch_add(1, crate::base::sync::Ordering::Relaxed);
        match done {
            None => {
                if let (Some(waker), false) = (waker, self.agent.threaded()) {
                    waker.wake_by_ref();
                }
                Ok(None)
            }
            Some(Ok(data)) => Ok(Some(data)),
            Some(Err(trouble)) => Err(self.error("a request", trouble)),
        }
    }

    fn wait(&self, ticket: Ticket) -> Result<Vec<u8>> {
        self.drive("Request::wait", |state| match state.world.collect(ticket.0, None) {
            None => Poll::Pending,
            Some(Ok(data)) => Poll::Ready(Ok(data)),
            Some(Err(trouble)) => Poll::Ready(Err(self.error("Request::wait", trouble))),
        })
    }

    fn abandon(&self, ticket: Ticket) {
        if let Ok(mut state) = self.agent.enter() {
            state.world.abandon(ticket.0);
        }
    }

    fn flush(&self, target: Option<Rank>) -> Result<()> {
        // Where epochs are synchronised elsewhere, this is all that is heard of their ends.
        let settled = self.settle("flush", target, !self.synchronises);
        let flushed = match target {
            Some(target) => self.ask("flush", |e, around, id| e.flush(around, id, target.0)),
            None => self.ask("flush_all", |e, around, id| e.flush_all(around, id)),
        };
        settled.and(flushed)
    }

    fn flush_local(&self, target: Option<Rank>) -> Result<()> {
        match target {
            Some(target) => {
                self.ask("flush_local", |e, around, id| e.flush_local(around, id, target.0))
            }
            None => self.ask("flush_local_all", |e, around, id| e.flush_local_all(around, id)),
        }
    }

    fn push(&self, target: Rank) -> Result<()> {
        self.ask("put_signal", |e, around, id| {
            e.push(around, id, target.0);
            if e.pushed(id, target.0) { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
    }

    fn synchronises(&self) -> bool {
        self.synchronises
    }

    fn lock(&self, target: Rank, locking: Locking) -> Result<()> {
        let kind = if locking.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let no_check = locking.no_check;
        self.ask("lock", |e, around, id| e.lock(around, id, target.0, kind, no_check))
    }

    fn recovered_from(&self, target: Rank) -> Result<Option<Rank>> {
        let lost = self.ask("lock", |e, around, id| e.locked(around, id, target.0))?;
        // A rank beyond the team is nothing that a member found.
        Ok(lost.filter(|&rank| rank < self.team.size()).map(Rank))
    }

    fn unlock(&self, target: Rank) -> Result<()> {
        let settled = self.settle("unlock", Some(target), true);
        settled.and(self.ask("unlock", |e, around, id| e.unlock(around, id, target.0)))
    }

    fn lock_all(&self, no_check: bool) -> Result<()> {
        self.ask("lock_all", |e, around, id| e.lock_all(around, id, no_check))
    }

    fn unlock_all(&self) -> Result<()> {
        let settled = self.settle("unlock_all", None, true);
        settled.and(self.ask("unlock_all", |e, around, id| e.unlock_all(around, id)))
    }

    fn fence(&self, assertions: Assertions) -> Result<()> {
        let Assertions { no_precede, no_succeed, .. } = assertions;
        let flags = FenceFlags { no_precede, no_succeed };
        let settled = self.settle("fence", None, true);
        settled.and(self.ask("fence", |e, around, id| e.fence(around, id, flags)))?;
        // One that neither ends nor begins anything is a barrier all the same.
        if no_precede && no_succeed { self.team.barrier() } else { Ok(()) }
    }

    fn expose(&self, origins: &[Rank], no_check: bool) -> Result<()> {
        let ranks: Vec<u32> = origins.iter().map(|rank| rank.0).collect();
        self.ask("post", |e, around, id| e.post(around, id, &ranks, no_check))
    }

    fn start(&self, targets: &[Rank], no_check: bool) -> Result<()> {
        let ranks: Vec<u32> = targets.iter().map(|rank| rank.0).collect();
        self.ask("start", |e, around, id| e.end_given_up(around, id))?;
        self.ask("start", |e, _, id| e.start(id, &ranks, no_check))
    }

    fn complete(&self) -> Result<()> {
        let settled = self.settle("complete", None, true);
        let mut done = self.ask("complete", |e, around, id| e.complete(around, id));
        if let Err(Error::TimedOut { missing, .. }) = &mut done {
            let mut state = self.agent.enter()?;
            let here = &mut *state;
            let around = &mut Around { node: &self.node, world: &mut here.world };
            *missing = self.in_job(here.engine.give_up(around, self.id));
        }
        settled.and(done)
    }

    fn exposure_over(&self, wait: bool) -> Result<bool> {
        if wait {
            let over = self.ask("wait", |e, around, id| e.wait(around, id)).map(|()| true);
            let Err(Error::TimedOut { during, waited, .. }) = over else { return over };
            let missing = self.in_job(self.agent.enter()?.engine.awaited(self.id));
            return Err(Error::TimedOut { during, waited, missing });
        }
        let mut state = self.agent.enter()?;
        let found = state.look(&self.node)?;
        let here = &mut *state;
        let around = &mut Around { node: &self.node, world: &mut here.world };
        let over = here.engine.wait(around, self.id);
        self.leave(state, found, 0);
        match over {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(trouble)) => Err(self.error("test", trouble)),
        }
    }

    fn attach(&self, foreign: Arc<dyn Foreign>) {
        if self.foreign.set(foreign.clone()).is_ok() {
            self.agent.attach(self.id, foreign);
        }
    }

    fn drive(
        &self,
        during: &'static str,
        step: &mut dyn FnMut() -> Option<Result<()>>,
    ) -> Result<()> {
        Packets::drive(self, during, |_| step().map_or(Poll::Pending, Poll::Ready))
    }

    fn kicker(&self) -> Box<dyn Fn() + Send + Sync> {
        let (agent, node) = (self.agent.clone(), self.node.clone());
        Box::new(move || agent.kick(&node))
    }

    fn most_body(&self) -> usize {
        MOST_BODY
    }

    fn attached(&self) -> Option<&Arc<dyn Foreign>> {
        self.foreign.get()
    }

    fn look(&self) -> Result<bool> {
        let mut state = self.agent.enter()?;
        let found = state.look(&self.node)?;
        let left = state.retry;
        self.leave(state, found, 0);
        self.agent.looks.fetch_add(1, crate::base::sync::Ordering::Relaxed);
        if left {
            // Nobody rings when there is room elsewhere.
            doorbell(&self.node, self.node.slot()).notify();
        }
        Ok(self.agent.threaded())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.agent.counters()
    }

    fn close(&self) {
        self.agent.remove(&self.node, self.id);
    }
}
