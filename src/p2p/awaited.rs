//! Requests that are awaited: their wakers, and the thread that makes progress for them.
//!
//! ```text
//!   poll of a future     makes progress; not over: keeps the waker, arms the record
//!   whoever ends it      armed? the waker is taken out, and woken once no lock is held
//!   the attendant        while wakers are kept: waits as a call would, and so makes progress;
//!                        every BEAT asks whether those live that are waited for, and wakes whom
//!                        it concerns that one does not. Else it is parked
//! ```
//! Futures have nobody who waits in the library while the program's executor sleeps, hence a thread
//! of its own: one for a process, begun by the first poll that finds its request going on, ended
//! with the last [`Endpoint`](super::Endpoint). It never spins: the program may need the core.

use super::messenger::{Messenger, Wanted};
use super::record::Record;
use super::transfer::Due;
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Slot, forked};
use crate::link::core::{Core, Wire};
use crate::shm::node::Node;
use crate::shm::park::Pace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two questions whether those live that are waited for.
const BEAT: Duration = Duration::from_millis(50);

/// A waker, and who has to do its part; nobody in particular if any source will do.
struct Kept {
    waker: Waker,
    peer: Option<Slot>,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Awaited {
    /// By the addresses of their records.
    kept: Mutex<HashMap<usize, Kept>>,
    /// How many are kept.
    count: AtomicU32,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The attendant is to end.
    stop: AtomicU32,
    /// Endpoints that there are.
    endpoints: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Awaited {
    fn kept(&self) -> MutexGuard<'_, HashMap<usize, Kept>> {
        lock(&self.kept)
    }

    fn remove(&self, record: usize) -> Option<Kept> {
        let mut kept = self.kept();
        let removed = kept.remove(&record);
        self.count.store(kept.len() as u32, Ordering::Release);
        removed
    }

    /// Nobody awaits a record any more.
    pub fn forget(&self, record: &Record) {
        // Dropped with no lock held.
        drop(self.remove(std::ptr::from_ref(record).addr()));
    }

    /// Counts an endpoint.
    pub fn enter(&self) {
        self.endpoints.fetch_add(1, Ordering::AcqRel);
    }

    /// An endpoint goes; whether it was the last. With that the attendant goes, which keeps the
    /// process attached: waits for it.
    pub fn leave(&self, wire: Wire<'_>) -> bool {
        if self.endpoints.fetch_sub(1, Ordering::AcqRel) > 1 || forked::is_forked() {
            return false;
        }
        let Some(attendant) = lock(&self.thread).take() else { return true };
        self.stop.store(1, Ordering::Release);
        attendant.thread().unpark();
        wire.doorbell().notify();
        // A waker may drop the last endpoint: then it is the attendant itself that is here.
        if attendant.thread().id() != thread::current().id() {
            let _ = attendant.join();
        }
        true
    }
}

impl Messenger {
    /// Has `waker` woken once `record` is done, or when `peer` is gone; true if it is done already.
    /// Not for two threads at a time.
    pub(super) fn keep_waker(
        self: &Arc<Self>,
        (node, core): (&Arc<Node>, &Arc<Core>),
        record: &Record,
        peer: Option<Slot>,
        waker: &Waker,
    ) -> bool {
        if self.is_bound() {
            // No other thread may wait for it: the program has to ask again and again.
            waker.wake_by_ref();
            return record.is_done();
        }
        let at = std::ptr::from_ref(record).addr();
        // Wakers are the program's: cloned and dropped with no lock held.
        let fresh = Kept { waker: waker.clone(), peer };
        let armed = record.is_armed();
        let mut kept = self.awaited.kept();
        if armed && !kept.contains_key(&at) {
            // It has just been ended.
            drop(kept);
            return true;
        }
        let before = kept.insert(at, fresh);
        let first = kept.len() == 1;
        self.awaited.count.store(kept.len() as u32, Ordering::Release);
        drop(kept);
        drop(before);
        if !armed && !record.arm(Arc::downgrade(self)) {
            self.awaited.forget(record);
            return true;
        }
        if first && !self.attend(node, core) {
            // There is no thread to be had: the program has to ask again and again.
            waker.wake_by_ref();
        }
        record.is_done()
    }

    /// A record that was armed is done.
    pub(super) fn wake_later(&self, record: usize) {
        if let Some(kept) = self.awaited.remove(record) {
            self.defer(Due::Wake(kept.waker));
        }
    }

    /// Has the attendant look; whether there is one.
    fn attend(self: &Arc<Self>, node: &Arc<Node>, core: &Arc<Core>) -> bool {
        let mut thread = lock(&self.awaited.thread);
        if let Some(attendant) = &*thread {
            attendant.thread().unpark();
            return true;
        }
        self.awaited.stop.store(0, Ordering::Release);
        let (messenger, node, core) = (self.clone(), node.clone(), core.clone());
        let body = move || messenger.wait_for_the_awaited(&node, &core);
        *thread = thread::Builder::new().name("hither-attendant".into()).spawn(body).ok();
        thread.is_some()
    }

    /// What the attendant does.
    fn wait_for_the_awaited(&self, node: &Node, core: &Core) {
        let wire = Wire { node, core };
        let stopped = || self.awaited.stop.load(Ordering::Acquire) != 0;
        let idle = || self.awaited.count.load(Ordering::Acquire) == 0;
        while !stopped() {
            if idle() {
                thread::park();
                continue;
            }
            let (pace, deadline) = (Some(Pace::SHARED), Deadline::after(BEAT));
            let (done, wanted) = (|| stopped() || idle(), Wanted::default());
            let waited = self.wait_at(pace, wire, deadline, "a request", wanted, done, || Ok(()));
            if waited.is_err() {
                self.beat(wire);
            }
            if waited.is_err_and(|error| !matches!(error, crate::base::Error::TimedOut { .. })) {
                // Every call says so; this one may be made too often.
                thread::sleep(BEAT);
            }
        }
    }

    /// Wakes those that wait for somebody who is gone, or may be told of it; all if nothing goes
    /// on any more.
    fn beat(&self, wire: Wire<'_>) {
        let peers: Vec<(usize, Option<Slot>)> =
            self.awaited.kept().iter().map(|(at, kept)| (*at, kept.peer)).collect();
        let all = self.progress(wire).is_err();
        let mut somebody = None;
        let mut is_gone = |peer: Option<Slot>| match peer {
            Some(peer) => wire.node.probe(peer),
            None => *somebody.get_or_insert_with(|| {
                let mut slots = wire.node.locals();
                slots.any(|slot| slot != wire.node.slot() && wire.node.probe(slot))
            }),
        };
        for (at, peer) in peers {
            if all || is_gone(peer) {
                let waker = self.awaited.kept().get(&at).map(|kept| kept.waker.clone());
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }
}
