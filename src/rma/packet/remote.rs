//! The calls of a window whose parts are reached by packets.

use super::agent::Agent;
use super::alone::Alone;
use super::cut::{Cutter, land};
use super::device::Sizes;
use super::distrust::Distrust;
use super::modify::{self, Workspace};
use super::reached::Reached;
use super::single::Atomics;
use super::waiting::both;
use super::world::{Around, PATIENCE, Site, short};
use super::{MOST_BODY, fault};
use crate::base::sync::AtomicBool;
use crate::base::{Error, Rank, Result, reentry};
use crate::coll::Team;
use crate::link::far::Far;
use crate::link::service::doorbell;
use crate::rma::accumulate::Domain;
use crate::rma::block::WindowBlock;
use crate::rma::epoch::Assertions;
use crate::rma::foreign::Foreign;
use crate::rma::info::{Info, Medium};
use crate::rma::remote::{Landing, Locking, Operation, OwnPart, Remote, Ticket};
use crate::rma::runtime::{Engine, FenceFlags, LockFlags, LockKind, Trouble, WindowId};
use crate::shm::node::Node;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

/// Most units of one waiting call whose answers are on their way.
const IN_FLIGHT: usize = 16;

/// One window's remote parts, reached by packets.
#[derive(Debug)]
pub(super) struct Packets {
    pub node: Arc<Node>,
    pub agent: Arc<Agent>,
    pub id: WindowId,
    pub team: Team,
    block: Arc<WindowBlock>,
    /// All parts are reached by packets, or all that are on other nodes: then the engine also
    /// synchronises. Else epochs are
    /// synchronised as for mapped memory, which some parts are, and for the engine one epoch on
    /// all parts is open as long as the window is.
    pub synchronises: bool,
    distrust: Arc<Distrust>,
    /// The parts that are accessed without packets in the present epochs: none where all go by
    /// packets, or where epochs are synchronised elsewhere.
    reached: Reached,
    /// What is carried out by devices where it can be, and what leads to them.
    pub sizes: Sizes,
    /// Who carries updates of single elements out.
    pub atomics: Atomics,
    pub far: OnceLock<Option<Arc<dyn Far>>>,
    /// Who of its threads may use parts that it has locked.
    pub alone: Alone,
    /// Where this origin carries accumulates out, once it has.
    pub workspace: Mutex<Option<Workspace>>,
    /// A write has failed, and may not be over: to be looked at before the epoch ends.
    pub doubtful: AtomicBool,
    /// Who performs what is no one-sided operation.
    pub foreign: OnceLock<Arc<dyn Foreign>>,
}

/// Opens the packet path of a window. Every member has to, before any of them uses it: a part of
/// making the window. `own` is this process's part; `all` says that packets synchronise the members:
/// every part is reached by packets, by every member, or by those on other nodes.
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
    let atomics = match info.medium {
        Medium::Auto if team.spans_nodes() => Atomics::from_settings()?,
        _ => Atomics::Never,
    };
    let site = Site {
        team: team.clone(),
        block: block.clone(),
        domain: Domain::new(block, info).with_patience(PATIENCE),
        own,
        foreign: None,
        halves: Default::default(),
        buried: Default::default(),
        dropped: Default::default(),
        left: Default::default(),
        asked: 0,
        exposed: None,
        places: Default::default(),
        singles: Default::default(),
        admits: atomics != Atomics::Never,
    };
    agent.add(&node, id, site)?;
    let (block, foreign) = (block.clone(), OnceLock::new());
    let distrust = agent.enter()?.world.distrust.clone();
    let reached = Reached::new(if all && team.spans_nodes() { team.locals() } else { 0 });
    let synchronises = all;
    let sizes = match info.medium {
        Medium::Auto if team.spans_nodes() => Sizes::from_settings(info)?,
        _ => Sizes::NEVER,
    };
    let packets = Packets {
        node,
        agent,
        id,
        team,
        block,
        synchronises,
        distrust,
        reached,
        sizes,
        atomics,
        far: OnceLock::new(),
        alone: Alone::default(),
        workspace: Mutex::default(),
        doubtful: AtomicBool::new(false),
        foreign,
    };
    if !all {
        packets.ask("making a window", |e, around, id| e.lock_all(around, id, true))?;
    }
    Ok(Arc::new(packets))
}

impl Packets {
    pub(super) fn error(&self, during: &'static str, trouble: Trouble) -> Error {
        fault::trouble_of(&self.node, &self.block, &self.distrust, during, trouble)
    }

    /// Posts the unit in `body`.
    fn issue(&self, operation: &Operation<'_>, body: &[u8], token: Option<u64>) -> Result<()> {
        let (what, target) = (operation.what, operation.target.0);
        self.drive(what, &self.limit(), |state| {
            let around = &mut Around { node: &self.node, world: &mut state.world };
            let issued = state.engine.operate(around, self.id, target, body, token);
            issued.map_err(|trouble| self.error(what, trouble))
        })
    }

    /// Posts all units of an operation that fetches nothing.
    pub(super) fn stream(&self, operation: &Operation<'_>, cutter: &mut Cutter<'_>) -> Result<()> {
        let mut body = Body::new();
        while cutter.next(&mut body.0)?.is_some() {
            self.issue(operation, &body.0, None)?;
        }
        Ok(())
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
        let mut body = Body::new();
        let body = &mut body.0;
        let mut more = true;
        loop {
            while more && under_way.units.len() < IN_FLIGHT {
                let Some(cut) = cutter.next(body)? else {
                    more = false;
                    break;
                };
                let token = self.agent.enter()?.world.claim();
                under_way.units.push_back((token, cut));
                self.issue(operation, body, Some(token))?;
            }
            let Some(&(token, cut)) = under_way.units.front() else { return Ok(()) };
            self.hurry(operation.target)?;
            let done =
                self.drive(operation.what, &self.limit(), |state| match state.world.take(token) {
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

thread_local! {
    /// Memory for the unit that a thread is about to give, from one call to the next.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A unit that is being made. A call within a call makes its own.
struct Body(Vec<u8>);

impl Body {
    fn new() -> Body {
        // A thread that ends may have none any more.
        Body(SPARE.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.0)));
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
        let rest = match self.modify(operation)? {
            0 => None,
            done if done == operation.bytes => return Ok(None),
            done => Some(modify::rest(operation, done)),
        };
        let operation = rest.as_ref().unwrap_or(operation);
        if rest.is_some() {
            cutter = Cutter::new(operation)?;
        }
        let part = self.alone_at(operation.target)?;
        let _beside = part.as_ref().map(|p| p.read().unwrap_or_else(PoisonError::into_inner));
        if self.carry(operation)? || self.update(operation)? {
            return Ok(None);
        }
        match operation.landing {
            Landing::Here(_) => self.fetch(operation, &mut cutter).map(|()| None),
            Landing::Later => self.begin(operation, &mut cutter).map(Some),
            Landing::Nothing => self.stream(operation, &mut cutter).map(|()| None),
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
        self.drive("Request::wait", &self.limit(), |state| {
            match state.world.collect(ticket.0, None) {
                None => Poll::Pending,
                Some(Ok(data)) => Poll::Ready(Ok(data)),
                Some(Err(trouble)) => Poll::Ready(Err(self.error("Request::wait", trouble))),
            }
        })
    }

    fn abandon(&self, ticket: Ticket) {
        if let Ok(mut state) = self.agent.enter() {
            state.world.abandon(ticket.0);
        }
    }

    fn flush(&self, target: Option<Rank>) -> Result<()> {
        // Where epochs are synchronised elsewhere, this is all that is heard of their ends.
        let limit = self.limit();
        let settled = self.settle("flush", target, !self.synchronises, &limit, |_| {});
        let flushed = self.ask_within("flush", &limit, |e, around, id| match target {
            Some(target) => e.flush(around, id, target.0),
            None => e.flush_all(around, id),
        });
        both(settled, self.naming(target, flushed))
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

    fn reach(&self, what: &'static str, target: Rank) -> Result<()> {
        reentry::refuse_inside(what)?;
        if self.reached.has(&self.team, target) {
            return Ok(());
        }
        let limit = self.limit();
        let reached = self.ask_within(what, &limit, |e, around, id| e.reach(around, id, target.0));
        self.naming(Some(target), reached)?;
        self.reached.insert(&self.team, target);
        Ok(())
    }

    fn lock(&self, target: Rank, locking: Locking) -> Result<()> {
        let kind = if locking.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let flags = LockFlags { no_check: locking.no_check, beside: locking.beside };
        let locked = self.ask("lock", |e, around, id| e.lock(around, id, target.0, kind, flags));
        locked.inspect_err(|_| {
            if let Ok(mut state) = self.agent.enter() {
                let here = &mut *state;
                let around = &mut Around { node: &self.node, world: &mut here.world };
                here.engine.give_lock_up(around, self.id, target.0);
            }
        })
    }

    fn recovered_from(&self, target: Rank) -> Result<Option<Rank>> {
        let lost = self.ask("lock", |e, around, id| e.locked(around, id, target.0))?;
        // A rank beyond the team is nothing that a member found.
        Ok(lost.filter(|&rank| rank < self.team.size()).map(Rank))
    }

    fn unlock(&self, target: Rank) -> Result<()> {
        self.reached.remove(&self.team, target);
        let limit = self.limit();
        let settled = self.settle("unlock", Some(target), true, &limit, |_| {});
        let unlocked =
            self.ask_within("unlock", &limit, |e, around, id| e.unlock(around, id, target.0));
        if self.sizes.modifies() {
            self.alone.forget(target);
        }
        both(settled, self.naming(Some(target), unlocked))
    }

    fn lock_all(&self, no_check: bool) -> Result<()> {
        self.ask("lock_all", |e, around, id| e.lock_all(around, id, no_check))
    }

    fn unlock_all(&self) -> Result<()> {
        self.reached.clear();
        let limit = self.limit();
        let settled = self.settle("unlock_all", None, true, &limit, |_| {});
        let unlock_all = |e: &mut Engine, around: &mut Around<'_>, id| e.unlock_all(around, id);
        both(settled, self.ask_within("unlock_all", &limit, unlock_all))
    }

    fn fence(&self, assertions: Assertions) -> Result<()> {
        let Assertions { no_precede, no_succeed, .. } = assertions;
        let flags = FenceFlags { no_precede, no_succeed };
        self.reached.clear();
        let limit = self.limit();
        let settled = self.settle("fence", None, true, &limit, |_| {});
        let fenced = self.ask_within("fence", &limit, |e, around, id| e.fence(around, id, flags));
        both(settled, fenced)?;
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
        self.reached.clear();
        let limit = self.limit();
        // Those that have not posted would be waited for in vain once somebody of the group is
        // dead; what was meant for them has to be given up first.
        let settled = self.settle("complete", None, true, &limit, |state| {
            let around = &mut Around { node: &self.node, world: &mut state.world };
            state.engine.give_up_for_dead(around, self.id);
        });
        let mut done = self.ask_within("complete", &limit, |e, around, id| e.complete(around, id));
        if let Err(Error::TimedOut { missing, .. }) = &mut done {
            let mut state = self.agent.enter()?;
            let here = &mut *state;
            let around = &mut Around { node: &self.node, world: &mut here.world };
            *missing = self.in_job(here.engine.give_up(around, self.id));
            // Whoever waited for what has been thrown away is told.
            let found = state.look(&self.node)?;
            self.leave(state, found, 0);
        }
        both(settled, done)
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

    fn attach(&self, foreign: Arc<dyn Foreign>) -> Arc<dyn Foreign> {
        // Told to callers after the agent knows: what they issue then is performed.
        let first = self.agent.attach(self.id, foreign);
        self.foreign.get_or_init(|| first).clone()
    }

    fn drive(
        &self,
        during: &'static str,
        step: &mut dyn FnMut() -> Option<Result<()>>,
    ) -> Result<()> {
        Packets::drive(self, during, &self.limit(), |_| step().map_or(Poll::Pending, Poll::Ready))
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
