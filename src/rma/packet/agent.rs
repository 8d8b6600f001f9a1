//! One per process: the engine, the channels, and who drives them.
//!
//! ```text
//!   user's call: lock; call the engine ---- done? ----> return
//!                  ^     | not yet: look into the inboxes, ask again; sleep on the doorbell
//!                  +-----+
//!   thread:      sleeps on the same doorbell while no call drives (see `thread`)
//! ```
//! Everything is behind one lock, held for one look into the inboxes or one call of the engine.
//! The agent hangs on the [`Node`] and never owns it.

use super::state::State;
use super::thread::Thread;
use super::world::{Around, Site};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Rank, Result, forked, settings};
use crate::link::service::doorbell;
use crate::rma::foreign::Foreign;
use crate::rma::runtime::WindowId;
use crate::shm::node::Node;
use crate::shm::segment::{INBOX_BYTES, SERVICES};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Agent {
    state: Mutex<State>,
    /// Calls that wait at present, and so look into the inboxes themselves.
    drivers: AtomicU32,
    /// Grows with every call that looked into the inboxes.
    pub looks: AtomicU32,
    thread: Mutex<Option<Thread>>,
    threaded: bool,
}

impl Agent {
    /// The agent of the process, made at first use: its inboxes are reserved then.
    pub fn of(node: &Node) -> Result<Arc<Agent>> {
        let mut fresh = false;
        let agent = node.attachment(|| {
            fresh = true;
            Agent::new(node)
        })?;
        let spans = node.placement().nodes() > 1;
        if fresh && (!agent.threaded || spans) {
            // Whoever waits here for something else is waited for by those whose operations come,
            // and, on other nodes, by those who ask whether it has dropped its last window.
            let helper = Arc::downgrade(&agent);
            node.help_while_waiting(move |node| {
                if let Some(agent) = helper.upgrade()
                    && let Some(mut state) = agent.try_enter()
                    && (!agent.threaded || state.world.sites.is_empty())
                {
                    // Damage stays, and is reported by the next call.
                    let found = state.look(node).unwrap_or(true);
                    let ran = agent.leave(node, state);
                    if (found || ran) && agent.drivers() > 0 {
                        doorbell(node, node.slot()).notify();
                    }
                }
            })?;
        }
        Ok(agent)
    }

    fn new(node: &Node) -> Result<Agent> {
        let threaded = match settings::PROGRESS.text().as_str() {
            "thread" => true,
            "calls" => false,
            other => {
                let why = format!("\"{other}\" is neither thread nor calls");
                return Err(Error::invalid(settings::PROGRESS.name, why));
            }
        };
        let state = State::open(node)?;
        Ok(Agent {
            state: Mutex::new(state),
            drivers: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            thread: Mutex::new(None),
            threaded,
        })
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// What has broken the packet path of this process.
    pub fn enter(&self) -> Result<Entered<'_>> {
        // A child's copy of the lock may be held by a thread that it does not have.
        forked::refuse_forked("an operation by packets")?;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.intact()?;
        Ok(Entered(Some(state)))
    }

    /// Takes the lock even if the path is broken: for what is given up.
    pub fn enter_regardless(&self) -> Entered<'_> {
        Entered(Some(self.state.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if nobody has it.
    pub fn try_enter(&self) -> Option<Entered<'_>> {
        if forked::is_forked() {
            return None;
        }
        match self.state.try_lock() {
            Ok(state) => Some(Entered(Some(state))),
            Err(TryLockError::Poisoned(poisoned)) => Some(Entered(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Marks the calling thread as one that looks into the inboxes until dropped.
    pub fn driving(&self) -> Driving<'_> {
        self.drivers.fetch_add(1, Ordering::AcqRel);
        Driving(self)
    }

    /// Calls that look into the inboxes at present.
    pub fn drivers(&self) -> u32 {
        self.drivers.load(Ordering::Acquire)
    }

    /// Whether a thread makes progress.
    pub fn threaded(&self) -> bool {
        self.threaded
    }

    /// Releases the lock and, where no thread does it, runs some of what is due and sends what came
    /// of it: whether anything was run. There may be more then.
    pub fn leave(&self, node: &Node, state: Entered<'_>) -> bool {
        if self.threaded || !state.world.foreigners.iter().any(|(_, foreign)| foreign.due()) {
            return false;
        }
        let due = state.world.foreigners.iter().filter(|(_, foreign)| foreign.due());
        let due: Vec<Arc<dyn Foreign>> = due.map(|(_, foreign)| foreign.clone()).collect();
        drop(state);
        let ran = due.iter().filter(|foreign| foreign.run_due()).count() > 0;
        if ran {
            // The caller may not look again for long.
            self.kick(node);
        }
        ran
    }

    /// Takes a window in; the first one starts the thread.
    pub fn add(self: &Arc<Agent>, node: &Arc<Node>, id: WindowId, site: Site) -> Result<()> {
        forked::refuse_forked("making a window")?;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && self.threaded {
            *thread = Some(Thread::start(self.clone(), node.clone())?);
        }
        let (me, size) = (site.team.rank().0, site.team.size());
        let mut state = self.enter()?;
        if state.world.sites.is_empty() && !self.threaded {
            node.pending(true);
        }
        state.world.sites.insert(id, site);
        state.engine.add_window(id, me, size);
        state.suspicious |= !state.world.distrust.is_empty();
        // What the lock's release lets go of may let other windows go, which takes the other one.
        drop(thread);
        drop(state);
        Ok(())
    }

    /// Lets a window go; the last one ends the thread. Whoever waits for its data is told.
    pub fn remove(&self, node: &Node, id: WindowId) {
        if forked::is_forked() {
            return;
        }
        self.dismiss(id);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.enter_regardless();
        let here = &mut *state;
        if let Some(site) = here.world.sites.get(&id) {
            let fences = here.engine.fences(id);
            site.block.leave_fences(fences);
            if site.team.spans_nodes() {
                here.world.depart(id, fences);
            }
        }
        here.engine.remove_window(&mut Around { node, world: &mut here.world }, id);
        let site = state.world.sites.remove(&id);
        state.world.forget_window(id);
        let last = state.world.sites.is_empty();
        if last && site.is_some() && !self.threaded {
            node.pending(false);
        }
        let ended = if last { thread.take() } else { None };
        // Futures that are woken now, and those that the thread wakes while it is waited for, may
        // let other windows go.
        drop(thread);
        drop(state);
        // Outside the lock: it may be the last reference to the window's block.
        drop(site);
        if let Some(ended) = ended {
            ended.stop(node);
        }
    }

    /// Takes in who performs a window's other operations, unless somebody does; who does then.
    pub fn attach(&self, id: WindowId, foreign: Arc<dyn Foreign>) -> Arc<dyn Foreign> {
        if forked::is_forked() {
            return foreign;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let world = &mut state.world;
        let Some(site) = world.sites.get_mut(&id) else { return foreign };
        if let Some(there) = &site.foreign {
            return there.clone();
        }
        for rank in &site.buried {
            foreign.died(Rank(*rank));
        }
        site.foreign = Some(foreign.clone());
        world.foreigners.push((id, foreign.clone()));
        foreign
    }

    /// Lets go who performs a window's other operations: nothing is run when it returns.
    fn dismiss(&self, id: WindowId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = state.world.sites.get_mut(&id).and_then(|site| site.foreign.take());
        state.world.foreigners.retain(|(of, _)| *of != id);
        drop(state);
        if let Some(foreign) = foreign {
            foreign.close();
        }
    }

    /// Has those pump that have something to send, and leaves to the thread or the next call what
    /// finds no room.
    pub fn kick(&self, node: &Node) {
        let Ok(mut state) = self.enter() else { return };
        let found = state.look(node).unwrap_or(true);
        let left = state.retry;
        drop(state);
        if left || found && self.drivers() > 0 {
            doorbell(node, node.slot()).notify();
        }
    }

    /// Counters of engine and transport, and the bytes they hold.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        if forked::is_forked() {
            return Vec::new();
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = state.engine.counters().each();
        let (claims, gathered) = state.world.held();
        all.extend([
            ("packets_received", state.received()),
            ("packets_sent", state.world.sent()),
            ("outstanding", state.engine.outstanding()),
            ("pool_bytes", state.engine.pool_bytes() as u64),
            ("inbox_bytes", SERVICES as u64 * INBOX_BYTES),
            ("units_awaited", claims),
            ("result_bytes", gathered),
            ("puts_by_queue_pair", state.world.moved.written),
            ("gets_by_queue_pair", state.world.moved.read),
            ("updates_by_queue_pair", state.world.moved.updated),
            ("accumulates_by_queue_pair", state.world.moved.modified),
            ("queue_pair_failures", state.world.moved.failed),
        ]);
        for (_, foreign) in &state.world.foreigners {
            for (name, value) in foreign.counters() {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += value,
                    None => all.push((name, value)),
                }
            }
        }
        all
    }

    /// Ends the packet path of this process: calls fail from now on.
    pub fn damage(&self, node: &Node, why: String) {
        if forked::is_forked() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken.get_or_insert(why);
        drop(state);
        doorbell(node, node.slot()).notify();
    }

    /// For the checks of waits: asks about some members of every window (if `ask`, or a request
    /// is under way, for which nobody may be waiting in a call), and tells the engine of those that
    /// are gone.
    ///
    /// # Errors
    /// Only damage.
    pub fn look_around(&self, node: &Node, ask: bool) -> Result<()> {
        let mut state = self.enter()?;
        if ask || state.world.gathers() {
            state.probe(node);
        }
        if state.bury(node)? {
            drop(state);
            doorbell(node, node.slot()).notify();
        }
        Ok(())
    }
}

/// The lock, held. Futures are woken, and what is spent is dropped, after it is released.
#[derive(Debug)]
pub(super) struct Entered<'a>(Option<MutexGuard<'a, State>>);

impl std::ops::Deref for Entered<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("only drop takes the guard")
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("only drop takes the guard")
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mut state) = self.0.take() {
            let wake = std::mem::take(&mut state.world.wake);
            let spent = std::mem::take(&mut state.world.spent);
            drop(state);
            // A panic of one, which is the program's, is reported by its hook, and keeps neither
            // the others from being woken nor the packets from being taken.
            for waker in wake {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            for it in spent {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(it)));
            }
        }
    }
}

/// See [`Agent::driving`].
pub(super) struct Driving<'a>(&'a Agent);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.drivers.fetch_sub(1, Ordering::AcqRel);
    }
}
