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
//! | `client`, `message` | the origin's side: lines, credit, streams; one message |
//! | `server` | the target's side: places, jobs, results |
//! | `arriving`, `run`, `reply` | a unit coming in, being run on the own part, its result going out |
//! | `executor` | the thread that runs handlers |
//! | `describe` | how everything lies: what travels besides the units' heads |
//! | `attach` | buffers that the program attaches |
//! | `issue`, `place` | the calls: waiting, requests; running a message at its origin |
//!
//! Units travel as operations of the one-sided engine, so epochs hold for them as for any other
//! ([`crate::rma::foreign`] is the seam); what they bring about comes back in notes.

mod arriving;
mod attach;
mod client;
mod describe;
mod executor;
mod issue;
mod memory;
mod message;
mod place;
mod reply;
mod run;
mod server;
#[cfg(test)]
mod tests;

pub use attach::UserBuffer;
pub(crate) use issue::{Issued, Mode, Parcel, Pending, issue};

use super::place::Costs;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Rank, Result, settings};
use crate::coll::Team;
use crate::rma::block::WindowBlock;
use crate::rma::core::Core;
use crate::rma::foreign::{CLOSED, Foreign, Outgoing};
use crate::rma::remote::{Remote, gone};
use crate::rma::runtime::Fault;
use client::Client;
use executor::Executor;
use server::Server;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

const WHAT: &str = "an active message";

/// Code of faults by which a target refuses a request that makes no sense.
const REFUSED: u16 = 100;

/// Why a target could not run a unit.
const UNUSABLE: u32 = 1;
const OUT_OF_BOUNDS: u32 = 2;
const TOO_MANY: u32 = 3;
const LOCKED: u32 = 4;
const NO_ROOM: u32 = 5;
/// It has dropped the window.
const GONE: u32 = 6;

/// The answer to a request that makes no sense; `why` tells the places in the code apart.
fn fault(why: u64) -> Fault {
    Fault { code: REFUSED, details: [why, 0, 0] }
}

/// The error that a target's number stands for.
#[cold]
fn failed(target: Rank, index: u32, why: u32) -> Error {
    match why {
        UNUSABLE => Error::invalid(
            WHAT,
            format!(
                "handler {index} at rank {target} cannot be called with these layouts; register \
                 equivalent handlers at all ranks"
            ),
        ),
        OUT_OF_BOUNDS => Error::invalid(
            WHAT,
            format!(
                "the persistent range does not lie in rank {target}'s part (any more), or not all \
                 of the elements that handler {index} can reach"
            ),
        ),
        TOO_MANY => Error::Misuse {
            what: WHAT,
            why: format!(
                "handler {index} counted more entries of output in a segment than it has room for; \
                 count what was written"
            ),
        },
        LOCKED => Error::invalid(
            WHAT,
            format!("rank {target} did not get the turn on its part before its deadline"),
        ),
        NO_ROOM => Error::invalid(WHAT, format!("rank {target} has no memory to stage it")),
        GONE => gone(WHAT, target),
        other => Error::Incompatible {
            what: "a packet of an active message",
            why: format!(
                "rank {target} refused it ({other}); are HITHER_AM_SYSTEM_BUFFER and the window's \
                 hints the same at all ranks?"
            ),
        },
    }
}

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
    executor: Arc<Executor>,
    /// Has the results sent; nothing where the program's calls run handlers.
    kick: Kick,
    /// By handler: what messages cost here and there, and whether it updates elements atomically.
    costs: Mutex<HashMap<u32, (Costs, bool)>>,
    /// Most bytes of a body.
    most: usize,
    settings: Settings,
}

struct Kick(Option<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Kick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "by a thread" } else { "by calls" })
    }
}

/// What the settings say.
#[derive(Clone, Copy, Debug)]
struct Settings {
    system: u64,
    unit: u64,
    pack: f64,
}

impl Settings {
    fn read() -> Result<Settings> {
        let system = settings::AM_SYSTEM_BUFFER.bytes()?;
        let limit = 1 << 40;
        if system == 0 || system > limit {
            let why = format!("{system} bytes; want 1 to {limit}");
            return Err(Error::invalid(settings::AM_SYSTEM_BUFFER.name, why));
        }
        let text = settings::AM_PACK.text();
        let pack = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let pack = pack.ok_or_else(|| {
            Error::invalid(settings::AM_PACK.name, format!("\"{text}\" is no number from 0 to 1"))
        })?;
        Ok(Settings { system, unit: settings::AM_UNIT.bytes()?, pack })
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

/// The window's messages by packets, made ready if they were not; nothing if all parts are mapped.
fn attached(core: &Arc<Core>) -> Result<Option<Arc<Away>>> {
    let Some(remote) = core.remote() else { return Ok(None) };
    if let Some(away) = found(&**remote) {
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
    let client = Client::new(
        settings.system,
        info.am_user_buffers.clone(),
        wanted,
        info.am_buf_interleave_am_detach,
    );
    let server = Server::new(handlers, settings.system, promised, wanted, settings.pack);
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
    });
    executor.add(&away)?;
    remote.attach(Arc::new(Port(away.clone())));
    // Another thread of the program may have been first.
    let first = found(&**remote);
    if first.as_ref().is_none_or(|first| !Arc::ptr_eq(first, &away)) {
        executor.remove(&away);
    }
    Ok(first)
}

/// What hangs on the seam: the window's side of it ends when the seam's does.
#[derive(Debug)]
struct Port(Arc<Away>);

fn found(remote: &dyn Remote) -> Option<Arc<Away>> {
    let foreign: &dyn Any = &**remote.attached()?;
    foreign.downcast_ref::<Port>().map(|port| port.0.clone())
}

impl Away {
    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn costs<R>(&self, with: impl FnOnce(&mut HashMap<u32, (Costs, bool)>) -> R) -> R {
        with(&mut self.costs.lock().unwrap_or_else(PoisonError::into_inner))
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

    /// Runs one unit, if one may be run now.
    fn run_one(&self) -> bool {
        // The window stays until the unit is over.
        let Some(core) = self.core.upgrade() else { return false };
        let mut server = self.server();
        let job = server.take();
        self.due.store(server.waits(), Ordering::Release);
        drop(server);
        let Some(job) = job else { return false };
        let outcome = run::run(&core, self.me, &job);
        self.server().finish(job, outcome);
        self.ended.notify_all();
        self.stir();
        if let Kick(Some(kick)) = &self.kick {
            kick();
        }
        // It may be the last to know the window; then it goes here.
        drop(core);
        true
    }
}

impl Foreign for Port {
    fn arrived(&self, origin: Rank, body: &[u8]) -> Result<(), Fault> {
        let away = &self.0;
        let mut server = away.server();
        let ready = server.arrived(origin, body);
        let notes = server.has_notes();
        if let Ok(true) = ready {
            away.due.store(true, Ordering::Release);
        }
        drop(server);
        if notes {
            away.stir();
        }
        if ready? {
            away.executor.wake();
        }
        Ok(())
    }

    fn noted(&self, from: Rank, body: &[u8]) {
        self.0.client().noted(from, body);
        self.0.stir();
    }

    fn refused(&self, target: Rank, fault: Fault) {
        match fault.code {
            CLOSED => self.0.client().refused(target, 0),
            REFUSED => self.0.client().refused(target, fault.details[0].max(1)),
            // A one-sided operation's.
            _ => return,
        }
        self.0.stir();
    }

    fn died(&self, rank: Rank) {
        self.0.client().died(rank, &|| self.0.death_of(rank));
        self.0.server().died(rank);
        self.0.ended.notify_all();
        self.0.stir();
    }

    fn busy(&self) -> bool {
        self.0.busy.load(Ordering::Acquire)
    }

    fn pump(&self, out: &mut dyn Outgoing) -> bool {
        let away = &self.0;
        away.busy.store(false, Ordering::Release);
        let mut server = away.server();
        let mut sent = server.has_notes() && server.pump(out, away.most);
        let mut left = server.has_notes();
        drop(server);
        let mut client = away.client();
        if client.is_busy() {
            sent |= client.pump(out, away.most);
            left |= client.is_busy();
        }
        drop(client);
        if left {
            away.stir();
        }
        sent
    }

    fn idle(&self, target: Option<Rank>, ends: bool) -> Result<bool> {
        let idle = self.0.client().idle(target, ends);
        if let Ok(false) = idle {
            self.0.stir();
        }
        idle
    }

    fn give_up(&self, target: Option<Rank>) {
        self.0.client().give_up(target);
        self.0.stir();
    }

    fn due(&self) -> bool {
        self.0.kick.0.is_none() && self.0.due.load(Ordering::Acquire)
    }

    fn run_due(&self) -> bool {
        let mut ran = false;
        while self.0.run_one() {
            ran = true;
        }
        ran
    }

    fn close(&self) {
        let away = &self.0;
        away.executor.remove(away);
        let mut server = away.server();
        let mut over = server.close();
        away.due.store(false, Ordering::Release);
        // A handler on this thread cannot be waited for: it has let the window go.
        // Nor one that a forked child does not have.
        while !over && !executor::inside() && away.executor.is_here() {
            server = away.ended.wait(server).unwrap_or_else(PoisonError::into_inner);
            over = server.close();
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let client = self.0.client();
        let (origin, (peers, messages)) = (client.done, client.held());
        drop(client);
        let chosen = self.0.costs(|all| {
            let runs = all.values().map(|(costs, _)| costs.runs());
            runs.fold([0; 2], |sum, runs| [sum[0] + runs[0], sum[1] + runs[1]])
        });
        let server = self.0.server();
        let (target, (origins, waiting, running)) = (server.done, server.held());
        vec![
            ("am_messages", origin.messages),
            ("am_units_sent", origin.units),
            ("am_units_without_asking", origin.unasked),
            ("am_reservations", origin.asked),
            ("am_input_bytes", origin.bytes),
            ("am_run_at_origin", origin.at_origin),
            ("am_chosen_target", chosen[0]),
            ("am_chosen_origin", chosen[1]),
            ("am_notes_unknown", origin.strays),
            ("am_peers", peers),
            ("am_messages_under_way", messages),
            ("am_units_run", target.units),
            ("am_fetched", target.fetched),
            ("am_stored", target.stored),
            ("am_stale", target.stale),
            ("am_packed", target.packed),
            ("am_whole", target.whole),
            ("am_staged_bytes", target.bytes_in),
            ("am_output_bytes", target.bytes_out),
            ("am_granted", target.granted),
            ("am_refused", target.refused),
            ("am_stood_in", target.stood_in),
            ("am_origins", origins),
            ("am_units_waiting", waiting),
            ("am_handlers_running", running),
        ]
    }
}
