//! One per process: who takes what has come, and carries out what follows from it.
//!
//! ```text
//!   a call waits:  is it done? --no--> progress: receive (link's lock) --> arrive (engine's lock)
//!        ^                                |
//!        +--------------------------------+-- settle: copies, answers, what found no room: no lock
//! ```
//! Any call makes progress for all; there is a thread only while requests are awaited as futures
//! (see `awaited`). One thread at a time receives, the others
//! see whether their own record is done. A match takes the engine's lock for as long as it takes,
//! small data are copied after it is released, and large ones are left to `settle`, in which any
//! thread takes what is due. Both locks cost the thread that usually takes them no atomic
//! operation.

use super::advert::Adverts;
use super::awaited::Awaited;
use super::awake::Patience;
use super::budget::Budget;
use super::claim::Claims;
use super::counters::{Counting, count};
use super::dues::Dues;
use super::engine::Engine;
use super::express;
use super::far::Beyond;
use super::fetch::Fetches;
use super::judge::Judge;
use super::lent::{self, Lending};
use super::outgoing::Outgoing;
use super::ports::Endpoints;
use super::reach::Reaches;
use super::record::Record;
use super::shown::Shown;
use super::stream::Buffers;
use super::switch::Switching;
use super::transfer::Due;
use super::wire::{self};
use crate::base::filling::Stores;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Deadline, Error, Result, Slot, prefetch, settings};
use crate::link::Message;
use crate::link::biased::{Biased, Guard, me};
use crate::link::core::{Core, Sink, Wire};
use crate::link::receive::Manner;
use crate::shm::node::Node;
use crate::shm::park::Pace;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a process that leaves waits for room for what is in line.
const PARTING: Duration = Duration::from_secs(1);

/// Sizes that are chosen by settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest message whose data travel with it.
    pub eager: usize,
    /// Largest message that goes the short way.
    pub express: usize,
    /// How often a receive that waits looks at a lane in a row.
    pub looks: u16,
    /// Largest message in a buffer of its sender's.
    pub lend: usize,
    /// Largest of those before whose copy its buffer's lines are asked for.
    pub ahead: usize,
    /// Whether such a message may be announced instead, if it does not always travel with its data.
    pub may_announce: bool,
    /// Memory for unexpected messages above which large and small ones are only announced.
    pub unexpected: usize,
    /// Smallest message that processes of other nodes are to read by themselves.
    pub read: usize,
}

/// See the [module](self).
pub struct Messenger {
    engine: Biased<Engine>,
    /// What may be known of its queues without its lock.
    pub(super) shown: Arc<Shown>,
    pub(super) outgoing: Outgoing,
    pub(super) claims: Arc<Claims>,
    pub(super) reaches: Arc<Reaches>,
    pub(super) limits: Limits,
    /// Of an endpoint that is not the process's: all endpoints, and which of them it is.
    own: Option<(Weak<Endpoints>, usize)>,
    /// The one thread that communicates, see `biased`; 0 if any may.
    only: AtomicU64,
    due: Mutex<Dues>,
    /// Copies that are due, and 1 once the messages are damaged.
    pub(super) work: AtomicU32,
    /// Why every call fails.
    broken: OnceLock<String>,
    pub(super) counting: Counting,
    pub(super) buffers: Buffers,
    pub(super) lending: Arc<Lending>,
    pub(super) judge: Judge,
    pub(super) adverts: Adverts,
    /// With senders that have announced a message, and with receivers that have told where they want one.
    pub(super) patience: Patience,
    pub(super) expectation: Patience,
    pub(super) awaited: Awaited,
    pub(super) switching: Switching,
    pub(super) beyond: Beyond,
    pub(super) fetches: Fetches,
}

impl std::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messenger").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the endpoints of a process have in common: only large messages use it.
#[derive(Clone)]
pub(super) struct Common {
    pub claims: Arc<Claims>,
    pub reaches: Arc<Reaches>,
    pub budget: Arc<Budget>,
}

impl Common {
    pub fn of(node: &Node) -> Result<Common> {
        let claims = node.attachment(|| Ok(Claims::default()))?;
        let reaches = node.attachment(|| Reaches::open(node))?;
        let budget = node.attachment(Budget::open)?;
        Ok(Common { claims, reaches, budget })
    }
}

impl Messenger {
    /// `own`: who else there is, and the number among them, if it is not the process's.
    pub(super) fn open(
        common: Common,
        pace: Pace,
        own: Option<(Weak<Endpoints>, usize)>,
    ) -> Result<Messenger> {
        let eager = settings::EAGER_LIMIT.bytes()?;
        let eager = usize::try_from(eager).unwrap_or(usize::MAX);
        let lend = settings::LEND_LIMIT.bytes()?;
        let unexpected = settings::UNEXPECTED_LIMIT.bytes()?;
        let read = match settings::NET_READ_FROM.bytes()? {
            0 => usize::MAX,
            from => usize::try_from(from).unwrap_or(usize::MAX).max(wire::MOST_EAGER + 1),
        };
        let may_announce = match settings::LEND.text().as_str() {
            "auto" => true,
            "always" => false,
            other => {
                let why = format!("\"{other}\" is neither auto nor always");
                return Err(Error::invalid(settings::LEND.name, why));
            }
        };
        let (stores, most) = (Stores::from_settings()?, settings::LEND_BYTES.bytes()?);
        let (engine, lending) = (Engine::new(stores), Lending::new(own.is_none(), most, stores));
        Ok(Messenger {
            shown: engine.matching.shown().clone(),
            engine: Biased::new(engine),
            outgoing: Outgoing::default(),
            claims: common.claims,
            reaches: common.reaches,
            limits: Limits {
                eager: eager.min(wire::MOST_EAGER),
                express: eager.min(express::MOST),
                looks: express::looks(pace),
                lend: usize::try_from(lend).unwrap_or(usize::MAX).min(lent::MOST),
                ahead: prefetch::worth_writing_ahead(),
                may_announce,
                unexpected: usize::try_from(unexpected).unwrap_or(usize::MAX),
                read,
            },
            switching: Switching::open(eager, common.budget, own.is_some())?,
            own,
            only: AtomicU64::new(0),
            due: Mutex::default(),
            work: AtomicU32::new(0),
            broken: OnceLock::new(),
            counting: Counting::default(),
            buffers: Buffers::default(),
            lending: Arc::new(lending),
            judge: Judge::default(),
            adverts: Adverts::default(),
            patience: Patience::default(),
            expectation: Patience::default(),
            awaited: Awaited::default(),
            beyond: Beyond::default(),
            fetches: Fetches::default(),
        })
    }

    /// The messages of a process: made, and fed by its connections, from the first call on.
    ///
    /// # Errors
    /// Settings that are none.
    pub(crate) fn of(node: &Node, core: &Arc<Core>) -> Result<Arc<Messenger>> {
        let common = Common::of(node)?;
        let endpoints = Endpoints::of(node)?;
        let messenger = node.attachment(|| Messenger::open(common, node.pace(), None))?;
        if core.attach(messenger.clone()) {
            endpoints.enter(core.clone(), messenger.clone());
            // Who waits here for something else may be waited for by those who send here.
            let (core, messenger) = (Arc::downgrade(core), Arc::downgrade(&messenger));
            node.help_while_waiting(move |node| {
                if let (Some(core), Some(messenger)) = (core.upgrade(), messenger.upgrade())
                    && messenger.may_communicate()
                {
                    // Damage is reported by the next call that is about messages.
                    let _ = messenger.progress_thoroughly(Wire { node, core: &core });
                }
                endpoints.help(node, 0);
            })?;
        }
        Ok(messenger)
    }

    /// Has the calling thread alone communicate; false if it or another one does already.
    pub(super) fn bind(&self) -> bool {
        self.only.compare_exchange(0, me(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends [`Messenger::bind`].
    pub(super) fn unbind(&self) {
        self.only.store(0, Ordering::Release);
    }

    /// Whether one thread alone communicates.
    pub(super) fn is_bound(&self) -> bool {
        self.only.load(Ordering::Relaxed) != 0
    }

    /// Whether the calling thread may. One load of a line that is only read; if another thread may
    /// not, one more, of the thread's own name.
    #[inline(always)]
    pub(super) fn may_communicate(&self) -> bool {
        let only = self.only.load(Ordering::Relaxed);
        only == 0 || Messenger::is_me(only)
    }

    /// Not inlined: few programs have such threads.
    #[inline(never)]
    fn is_me(only: u64) -> bool {
        only == me()
    }

    /// The engine, for one match. Never held while waiting, sending or copying much.
    #[inline]
    pub(super) fn engine(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Leaves a copy to whoever makes progress next.
    pub(super) fn defer(&self, due: Due) {
        let mut all = lock(&self.due);
        all.push(due);
        self.add_work(1, &all);
    }

    /// Receives what has come and does what is due. Never waits, but copies what is due. `None` if
    /// another thread is receiving, or looks after something of it; else how many messages came.
    ///
    /// # Errors
    /// Damage; [`Error::Exhausted`] if the program leaves its short messages lying.
    #[inline]
    pub(super) fn progress(&self, wire: Wire<'_>) -> Result<Option<usize>> {
        self.progress_until(wire, Wanted::default(), Manner::Polite, || false)
    }

    /// Receives what has come, but leaves copies to the next call that waits or asks: what the caller
    /// is about to send is not to wait for them, nor is its peer, which could copy at the same time.
    ///
    /// # Errors
    /// Those of [`Messenger::progress`].
    pub(super) fn glance(&self, wire: Wire<'_>) -> Result<()> {
        self.take_all(wire)?;
        if !self.outgoing.is_empty() {
            self.outgoing.flush(self, wire);
        }
        self.look_sometimes(wire);
        if self.work.load(Ordering::Relaxed) != 0 {
            self.refuse_broken()?;
            // Threads that wait, asleep or not, need not wait for this one's next call.
            wire.doorbell().notify();
        }
        Ok(())
    }

    /// Receives what has come, and nothing else.
    pub(super) fn take_all(&self, wire: Wire<'_>) -> Result<Option<usize>> {
        wire.poll_sink((None, false), Manner::Polite, |message| {
            self.take(wire, message);
            ControlFlow::<bool>::Continue(())
        })
    }

    fn refuse_broken(&self) -> Result<()> {
        match self.broken.get() {
            Some(why) => Err(Error::Incompatible { what: "a message", why: why.clone() }),
            None => Ok(()),
        }
    }

    /// The same as [`Messenger::progress`], whoever looks after it.
    ///
    /// # Errors
    /// The same.
    pub(super) fn progress_thoroughly(&self, wire: Wire<'_>) -> Result<Option<usize>> {
        self.progress_until(wire, Wanted::default(), Manner::Thorough, || false)
    }

    /// The same, but takes no more once `done`: what is behind is left where it is, and so costs
    /// no place among the messages that nobody asked for. Looks first for what is wanted, whose
    /// coming wakes no other thread.
    #[inline]
    fn progress_until(
        &self,
        wire: Wire<'_>,
        wanted: Wanted<'_>,
        manner: Manner,
        done: impl Fn() -> bool,
    ) -> Result<Option<usize>> {
        let polled = wire.poll_sink((wanted.source, wanted.beside), manner, |message| {
            let ended = self.take(wire, message);
            if done() {
                let record = wanted.record.zip(ended);
                return ControlFlow::Break(record.is_some_and(|(mine, it)| it.is(mine)));
            }
            ControlFlow::Continue(())
        });
        if self.work.load(Ordering::Relaxed) != 0 || !self.outgoing.is_empty() {
            self.carry_out(wire)?;
        }
        self.look_sometimes(wire);
        polled
    }

    /// One poll of a wait: nothing as long as it goes on. Notes in `contended` if another thread was
    /// in the way.
    #[inline(always)]
    pub(super) fn look_for(
        &self,
        wire: Wire<'_>,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
        contended: &Cell<bool>,
    ) -> Option<Result<()>> {
        if done() {
            return Some(Ok(()));
        }
        match self.progress_until(wire, wanted, Manner::Polite, &done) {
            Err(error) => return Some(Err(error)),
            Ok(None) => contended.set(true),
            Ok(Some(_)) => {}
        }
        done().then_some(Ok(()))
    }

    /// What a wait does before each sleep, having said that it will sleep.
    pub(super) fn before_sleep(&self, wire: Wire<'_>, contended: &Cell<bool>) -> Result<()> {
        if contended.replace(false) {
            wire.note_missed();
            if self.progress_thoroughly(wire)? != Some(0) {
                // Maybe for this thread, which is about to sleep.
                wire.doorbell().notify();
            }
        }
        wire.probe_unfinished();
        // Of another endpoint an answer may wait for room, and a peer for that answer.
        let (all, number) = match &self.own {
            Some((all, number)) => (all.upgrade(), *number),
            None => (Endpoints::of(wire.node).ok(), 0),
        };
        if let Some(all) = all {
            all.help(wire.node, number);
        }
        Ok(())
    }

    /// Before the process leaves: sends what is still in line, above all answers for which others
    /// wait, unless there is no room for it for a while.
    pub(super) fn part(&self, wire: Wire<'_>) {
        if self.outgoing.is_empty() {
            return;
        }
        let (deadline, wanted) = (Deadline::after(PARTING), Wanted::default());
        let sent = || self.outgoing.is_empty();
        // What cannot be sent is given up with everything else.
        let _ = self.wait_until(wire, deadline, "leaving the job", wanted, sent, || Ok(()));
    }

    /// How many announced messages of `from`'s are due next, up to `most`.
    pub(super) fn pulls_behind(&self, from: Slot, most: usize) -> usize {
        lock(&self.due).pulls_of(from, most)
    }

    fn next_due(&self) -> Option<Due> {
        let mut all = lock(&self.due);
        let due = all.pop()?;
        self.add_work(-1, &all);
        Some(due)
    }

    /// Changed under the lock alone, so it takes no atomic addition.
    fn add_work(&self, more: i32, _locked: &MutexGuard<'_, Dues>) {
        let work = self.work.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.work.store(work, Ordering::Release);
    }

    /// Sends what found no room, and makes the copies that are due.
    #[cold]
    fn carry_out(&self, wire: Wire<'_>) -> Result<()> {
        self.refuse_broken()?;
        loop {
            self.outgoing.flush(self, wire);
            if self.work.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            let Some(due) = self.next_due() else { return Ok(()) };
            let pull = due.is_pull();
            self.carry(wire, due);
            // Another thread may wait for what this was.
            wire.doorbell().notify();
            if pull && self.work.load(Ordering::Relaxed) != 0 {
                // A peer may have asked for a piece meanwhile, and wait for it.
                self.take_all(wire)?;
            }
        }
    }

    /// Waits until `done`, making progress; `check` is asked before each sleep.
    ///
    /// # Errors
    /// Those of `check` and of the progress; [`Error::TimedOut`].
    #[inline]
    pub(super) fn wait_until(
        &self,
        wire: Wire<'_>,
        deadline: Deadline,
        during: &'static str,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
        check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.wait_at(None, wire, deadline, during, wanted, done, check)
    }

    /// As [`Messenger::wait_until`], at another pace than the process's.
    #[expect(clippy::too_many_arguments, reason = "those of wait_until, and one")]
    #[inline]
    pub(super) fn wait_at(
        &self,
        pace: Option<Pace>,
        wire: Wire<'_>,
        deadline: Deadline,
        during: &'static str,
        wanted: Wanted<'_>,
        done: impl Fn() -> bool,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let contended = Cell::new(false);
        let poll = || self.look_for(wire, wanted, &done, &contended);
        let check = || {
            self.before_sleep(wire, &contended)?;
            check()
        };
        match pace {
            None => {
                let (bell, peer) = (wire.doorbell(), wanted.source);
                wire.node.wait_for(bell, peer, deadline, during, poll, check)?
            }
            Some(pace) => wire.doorbell().wait(pace, deadline, during, poll, check)?,
        }
    }

    /// Something made no sense: every call fails from now on.
    #[cold]
    pub(super) fn damage(&self, from: Slot, what: &str) {
        count(&self.counting.senseless);
        let why = format!("rank {from} sent {what} that makes no sense; end the job");
        if self.broken.set(why).is_ok() {
            self.add_work(1, &lock(&self.due));
        }
    }
}

/// What a thread waits for, as far as that is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    /// Nobody else waits for its end.
    pub record: Option<&'a Record>,
    /// Whose message it is.
    pub source: Option<Slot>,
    /// It looks into the lane of that one by itself, and now at everything else.
    pub beside: bool,
}

impl Sink for Messenger {
    fn arrive(&self, wire: Wire<'_>, message: Message<'_>) {
        self.take(wire, message);
    }

    fn settle(&self, wire: Wire<'_>) {
        if self.work.load(Ordering::Relaxed) != 0 || !self.outgoing.is_empty() {
            // Damage is reported by the next call that is about messages.
            let _ = self.carry_out(wire);
        }
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        // Peers may still copy from and to what goes on: it is never freed.
        self.fetches.leak();
        let mut engine = self.engine.lock();
        let numbers: Vec<u64> = engine.sendings.iter().map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(sending) = engine.sendings.remove(number) {
                sending.record.leak();
            }
        }
        let keys: Vec<_> = engine.matching.posted().map(|(key, ..)| key).collect();
        for key in keys {
            if let Some(posted) = engine.matching.cancel(key) {
                posted.record.leak();
            }
        }
    }
}
