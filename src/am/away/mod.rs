//! Messages on parts that are not mapped at the origin.
//!
//! ```text
//!  origin                                                   target
//!  issue: place? -- at the target --> client --- units --> server --- jobs --> executor: handler
//!           |                            ^                    |                       |
//!           |                            +------- notes ------+ <--- results ---------+
//!           +-- here: fetch the persistent range, run the handler on the copy, store it
//! ```
//! | module | owns |
//! |---|---|
//! | `client`, `sending`, `ending` | the origin's side: lines and credit; bodies out; how messages end |
//! | `message`, `landing` | one message; its results as they come |
//! | `server` | the target's side: places, jobs, results |
//! | `arriving`, `run`, `reply` | a unit coming in, being run on the own part, its result going out |
//! | `executor` | the threads that run handlers |
//! | `port` | what the room below calls |
//! | `spent` | what is let go of: dropped with no lock held |
//! | `describe` | how everything lies: what travels besides the units' heads |
//! | `attach` | buffers that the program attaches |
//! | `issue`, `place` | the calls: waiting, requests; running a message at its origin |
//! | `settings`, `why` | what the settings say; why a target could not do something |
//!
//! Units travel as operations of the one-sided engine, so epochs hold for them as for any other
//! ([`crate::rma::foreign`] is the seam); what they bring about comes back in notes.

mod arriving;
mod attach;
#[cfg(test)]
mod attach_tests;
mod client;
mod describe;
mod ending;
#[cfg(test)]
mod ending_tests;
mod executor;
mod issue;
mod landing;
mod memory;
mod message;
mod place;
#[cfg(test)]
mod place_tests;
mod port;
mod reply;
mod run;
mod sending;
mod server;
mod settings;
mod spent;
#[cfg(test)]
mod target_tests;
#[cfg(test)]
mod tests;
mod why;

pub use attach::UserBuffer;
pub(crate) use issue::{Issued, Mode, Parcel, Pending, issue};

use super::budget::{Budget, Claim};
use super::place::Costs;
use super::queue::Turn;
use super::room::Room;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Rank, Result};
use crate::coll::Team;
use crate::layout::Op;
use crate::rma::block::WindowBlock;
use crate::rma::core::Core;
use crate::rma::remote::gone;
use client::Client;
use executor::{Executor, Runs};
use run::{Job, Outcome};
use server::Server;
use settings::Settings;
use spent::{Held, Spends};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

const WHAT: &str = "an active message";

/// One window's messages that go by packets, both as origin and as target.
#[derive(Debug)]
pub(super) struct Away {
    core: Weak<Core>,
    team: Team,
    block: Arc<WindowBlock>,
    me: Rank,
    client: Mutex<Client>,
    server: Mutex<Server>,
    /// A handler has ended while the window was being closed, or room in buffers came back.
    ended: Condvar,
    /// There may be something to send.
    busy: AtomicBool,
    /// There are units to run.
    due: AtomicBool,
    executor: Arc<Executor<Away>>,
    /// Has the results sent; nothing where the program's calls run handlers.
    kick: Kick,
    /// By handler: what messages cost here and there, and whether it updates elements atomically.
    costs: Mutex<HashMap<u32, (Costs, bool)>>,
    /// Most bytes of a body.
    most: usize,
    settings: Settings,
    /// What the members have settled on.
    given: OnceLock<Given>,
}

/// What origins have without asking, at every member.
#[derive(Debug)]
struct Given {
    /// Bytes of a whole system buffer.
    system: u64,
    /// What this window takes of what the process has for all.
    _claim: Claim,
}

struct Kick(Option<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Kick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "by a thread" } else { "by calls" })
    }
}

/// Makes this process ready to run what packets bring for a window that has handlers now. Again
/// for every further handler.
///
/// # Errors
/// A setting that cannot be used; [`Error::Os`] if the system gives no thread.
pub(crate) fn attach(core: &Arc<Core>) -> Result<()> {
    attached(core).map(drop)
}

/// Has the members settle how much origins have at each of them without asking, if they have not.
/// Collective, after all of them have [`attach`]ed; nobody may send before all have returned.
///
/// # Errors
/// As for the collectives of the team.
pub(crate) fn furnish(core: &Arc<Core>) -> Result<()> {
    let Some(away) = attached(core)? else { return Ok(()) };
    if away.given.get().is_some() {
        return Ok(());
    }
    let budget = away.team.node().attachment(|| Ok(Budget::default()))?;
    let mut claim = budget.claim(away.settings.total);
    let mut least = [away.settings.system, claim.bytes()];
    away.team.allreduce(Op::Min, &mut least)?;
    let ([system, total], origins) = (least, away.team.size());
    let room = Room::of(system, total, origins);
    claim.keep(room.bytes(origins));
    away.client().furnish(room.own);
    away.server().furnish(room);
    // Collective calls of a team come one after the other.
    let _ = away.given.set(Given { system, _claim: claim });
    Ok(())
}

/// The window's messages by packets, made ready if they were not; nothing if all parts are mapped.
fn attached(core: &Arc<Core>) -> Result<Option<Arc<Away>>> {
    let Some(remote) = core.remote() else { return Ok(None) };
    if let Some(away) = port::found(&**remote) {
        return Ok(Some(away));
    }
    let settings = Settings::read()?;
    let (info, team) = (&core.info, core.block.team.clone());
    let node = team.node().clone();
    let executor = node.attachment(Executor::new)?;
    let wanted = info.am_ordering;
    let me = team.rank();
    let promised = info.am_user_buffers.get(me);
    let handlers = core.handlers().clone();
    let client =
        Client::new(0, info.am_user_buffers.clone(), wanted, info.am_buf_interleave_am_detach);
    let server = Server::new(handlers, promised, wanted, settings.pack);
    let away = Arc::new(Away {
        core: Arc::downgrade(core),
        team,
        block: core.block.clone(),
        me,
        client: Mutex::new(client),
        server: Mutex::new(server),
        ended: Condvar::new(),
        busy: AtomicBool::new(false),
        due: AtomicBool::new(false),
        kick: Kick(executor.threaded().then(|| remote.kicker())),
        executor: executor.clone(),
        costs: Mutex::default(),
        most: remote.most_body(),
        settings,
        given: OnceLock::new(),
    });
    executor.add(&away)?;
    // Another thread of the program may have been first.
    let first = port::attach(&**remote, &away);
    if first.as_ref().is_none_or(|first| !Arc::ptr_eq(first, &away)) {
        executor.remove(&away);
    }
    Ok(first)
}

impl Away {
    /// The origin's side. The engine's lock may be held, other locks not.
    fn client(&self) -> Held<'_, Client> {
        Held::within(&self.client)
    }

    /// As [`Away::client`], where no lock is held: what is let go of is dropped at once.
    fn client_alone(&self) -> Held<'_, Client> {
        Held::alone(&self.client)
    }

    /// The target's side. The engine's lock may be held, other locks not.
    fn server(&self) -> Held<'_, Server> {
        Held::within(&self.server)
    }

    /// As [`Away::server`], where no lock is held.
    fn server_alone(&self) -> Held<'_, Server> {
        Held::alone(&self.server)
    }

    fn costs<R>(&self, with: impl FnOnce(&mut HashMap<u32, (Costs, bool)>) -> R) -> R {
        with(&mut self.costs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes of a whole system buffer.
    fn system(&self) -> u64 {
        self.given.get().map_or(self.settings.system, |given| given.system)
    }

    /// There is something to send.
    fn stir(&self) {
        self.busy.store(true, Ordering::Release);
    }

    /// Why nothing comes from a member any more.
    #[cold]
    fn death_of(&self, rank: Rank) -> Error {
        let node = self.team.node();
        match self.team.slot_of(rank) {
            Ok(slot) if node.is_dead(slot) => node.died(slot, WHAT),
            // It has dropped the window, perhaps because of a death.
            Ok(_) => match self.block.cause_of(rank.0) {
                Some(slot) => node.died(slot, WHAT),
                None => gone(WHAT, rank),
            },
            Err(error) => error,
        }
    }

    /// Runs one unit by `run`, if one may be run now.
    fn run_by(&self, run: impl FnOnce(&Core, &Job) -> Outcome) -> bool {
        // The window stays until the unit is over. It may be the last to know the window; then that
        // goes here, after all else.
        let Some(core) = self.core.upgrade() else { return false };
        let mut server = self.server_alone();
        let taken = server.take();
        self.due.store(server.waits(), Ordering::Release);
        // Who takes one wakes the next, as long as one may run beside those that do.
        let more = taken.is_some() && server.may_run();
        drop(server);
        let Some((turn, job)) = taken else { return false };
        if more {
            self.executor.wake();
        }
        let mut running = Running { away: self, taken: Some((turn, job)) };
        if let Some((_, job)) = &running.taken {
            let outcome = run(&core, job);
            running.over(outcome);
        }
        drop(core);
        true
    }
}

impl Runs for Away {
    fn is_due(&self) -> bool {
        self.due.load(Ordering::Acquire)
    }

    fn run_one(&self) -> bool {
        self.run_by(|core, job| run::run(core, self.me, job))
    }
}

/// A unit that is being run. However that ends, the unit is over then, and its origin is told.
struct Running<'a> {
    away: &'a Away,
    taken: Option<(Turn, Job)>,
}

impl Running<'_> {
    fn over(&mut self, outcome: Outcome) {
        let Some((turn, job)) = self.taken.take() else { return };
        let away = self.away;
        let mut server = away.server();
        server.finish(turn, job, outcome);
        let spent = std::mem::take(server.spent());
        drop(server);
        away.ended.notify_all();
        away.stir();
        if let Kick(Some(kick)) = &away.kick {
            kick();
        }
        // When everybody has been told: what is dropped may wait for them.
        drop(spent);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Only a panic of this library comes here with it.
        self.over(Outcome::broken());
    }
}
