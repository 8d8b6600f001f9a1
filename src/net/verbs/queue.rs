//! Completion queues: `ibv_cq`.
//!
//! Room is taken when something is posted and given back when its completion is polled, or that of a
//! later one that ended it too: so the device's queue cannot overflow. What a shared receive queue may
//! bring is added to the device's queue when the first queue pair joins the two.
//!
//! Where a queue pair goes away the others' completions that are in the way are kept here (`stash`)
//! until they are polled.

use super::bindings::{self, Wc};
use super::channel::VerbsChannel;
use super::context::{check, or_limits};
use super::hub::Hub;
use super::pair::Pair;
use super::shared::VerbsShared;
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Error, Result};
use crate::net::provider::{Arm, Completion, CompletionQueue};
use crate::net::soft::events::Bell;
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Completions taken from the device at a time.
pub(super) const BATCH: usize = 16;

/// A completion of the device's, looked at: what its poller is to see, and how many places in the
/// queue are free now.
#[derive(Default)]
pub(super) struct Taken {
    pub completion: Option<Completion>,
    pub room: u32,
    /// Its queue pair needs mending, which cannot be done while the queue is held.
    pub broke: bool,
}

/// What a queue has under its lock.
pub(super) struct Inner {
    /// By the device's numbers.
    pairs: HashMap<u32, Arc<Pair>>,
    pub stash: VecDeque<Taken>,
    /// Shared receive queues that it has been made longer for.
    shared: Vec<u32>,
    depth: u32,
}

impl Inner {
    pub fn join(&mut self, number: u32, pair: Arc<Pair>) {
        self.pairs.insert(number, pair);
    }

    pub fn part(&mut self, number: u32) -> Option<Arc<Pair>> {
        self.pairs.remove(&number)
    }

    fn translate(&self, wc: &Wc, broken: &mut Vec<Arc<Pair>>) -> Taken {
        // What a queue pair that is gone has left: its places were given back with it.
        let Some(pair) = self.pairs.get(&wc.qp_num) else { return Taken::default() };
        let taken = pair.completed(wc);
        if taken.broke && broken.iter().all(|other| !Arc::ptr_eq(other, pair)) {
            broken.push(pair.clone());
        }
        taken
    }

    /// Keeps one until it is polled.
    pub fn put_by(&mut self, wc: &Wc, broken: &mut Vec<Arc<Pair>>) {
        let taken = self.translate(wc, broken);
        if taken.completion.is_some() || taken.room > 0 {
            self.stash.push_back(taken);
        }
    }
}

/// See the module.
pub(super) struct VerbsQueue {
    /// Of those of the device; two are locked in this order.
    pub number: u32,
    pub hub: Arc<Hub>,
    raw: NonNull<bindings::Cq>,
    channel: Option<Arc<VerbsChannel>>,
    room: AtomicU32,
    inner: Mutex<Inner>,
}

// SAFETY: the library's functions may be called for one queue from any thread.
unsafe impl Send for VerbsQueue {}
// SAFETY: as above.
unsafe impl Sync for VerbsQueue {}

impl Drop for VerbsQueue {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; queue pairs keep theirs.
        unsafe { (self.hub.verbs().ibv_destroy_cq)(self.raw()) };
    }
}

impl VerbsQueue {
    pub fn new(hub: &Arc<Hub>, depth: u32, channel: Option<Arc<VerbsChannel>>) -> Result<Self> {
        let sleeper = channel.as_ref().map_or(std::ptr::null_mut(), |channel| channel.raw());
        let of = std::ptr::null_mut();
        let context = hub.context().raw();
        // SAFETY: context and channel are open; the queue keeps both.
        let raw = unsafe { (hub.verbs().ibv_create_cq)(context, depth as i32, of, sleeper, 0) };
        let raw = or_limits("a completion queue", raw)?;
        let (pairs, stash, shared) = (HashMap::new(), VecDeque::new(), Vec::new());
        Ok(VerbsQueue {
            number: hub.number(),
            hub: hub.clone(),
            raw,
            channel,
            room: AtomicU32::new(depth),
            inner: Mutex::new(Inner { pairs, stash, shared, depth }),
        })
    }

    pub fn raw(&self) -> *mut bindings::Cq {
        self.raw.as_ptr()
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for one completion; false if there is none.
    pub fn take_room(&self) -> bool {
        let less = |room: u32| room.checked_sub(1);
        self.room.try_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// Gives room back.
    pub fn give_room(&self, count: u32) {
        if count > 0 {
            self.room.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// Makes room for what a shared receive queue may bring.
    pub fn make_room_for(&self, shared: &VerbsShared) -> Result<()> {
        let mut inner = self.lock();
        if inner.shared.contains(&shared.number) {
            return Ok(());
        }
        let depth = inner.depth.saturating_add(shared.depth);
        let most = self.hub.capabilities.completion_depth;
        if depth > most {
            return Err(Error::Exhausted {
                what: "places of a completion queue, with those of shared receives",
                limit: most.into(),
                advice: "use a smaller completion queue or fewer shared receive queues on one",
            });
        }
        // SAFETY: the queue lives.
        let code = unsafe { (self.hub.verbs().ibv_resize_cq)(self.raw(), depth as i32) };
        check("making a completion queue longer for shared receives", code)?;
        inner.depth = depth;
        inner.shared.push(shared.number);
        Ok(())
    }

    /// Takes completions from the device, with the lock held.
    pub fn take(&self, into: &mut [Wc]) -> usize {
        // SAFETY: the queue lives, and there is room for so many.
        let count = unsafe {
            (self.hub.context().ops().poll_cq)(self.raw(), into.len() as i32, into.as_mut_ptr())
        };
        usize::try_from(count).unwrap_or(0)
    }

    /// Wakes who waits: something is here that the device says nothing of.
    pub fn ring(&self) {
        if let Some(channel) = &self.channel {
            channel.ring();
        }
    }

    /// Looks at what there is without handing it out: so that failures are noticed where nobody
    /// polls.
    pub fn look(&self) {
        let mut broken = Vec::new();
        let mut inner = self.lock();
        let mut some = [Wc::default(); BATCH];
        loop {
            let count = self.take(&mut some);
            some[..count].iter().for_each(|wc| inner.put_by(wc, &mut broken));
            if count < BATCH {
                break;
            }
        }
        drop(inner);
        broken.iter().for_each(|pair| pair.mend());
    }
}

impl CompletionQueue for VerbsQueue {
    fn poll(&self, into: &mut [Completion]) -> usize {
        let (mut count, mut room) = (0, 0);
        let mut broken = Vec::new();
        let mut inner = self.lock();
        let most = into.len();
        let mut hand_out = |taken: Taken, count: &mut usize| {
            room += taken.room;
            if let Some(completion) = taken.completion {
                into[*count] = completion;
                *count += 1;
            }
        };
        while count < most
            && let Some(taken) = inner.stash.pop_front()
        {
            hand_out(taken, &mut count);
        }
        while count < most {
            let mut some = [Wc::default(); BATCH];
            let wanted = BATCH.min(most - count);
            let got = self.take(&mut some[..wanted]);
            for wc in &some[..got] {
                hand_out(inner.translate(wc, &mut broken), &mut count);
            }
            if got < wanted {
                break;
            }
        }
        drop(inner);
        self.give_room(room);
        broken.iter().for_each(|pair| pair.mend());
        count
    }

    fn arm(&self, what: Arm) -> Result<()> {
        if self.channel.is_none() {
            return Err(Error::Misuse {
                what: "arming a completion queue",
                why: "it was made without a channel, so nobody can wait for it; give it one".into(),
            });
        }
        let solicited = i32::from(what == Arm::Solicited);
        // SAFETY: the queue lives.
        let code = unsafe { (self.hub.context().ops().req_notify_cq)(self.raw(), solicited) };
        check("arming a completion queue", code)
    }
}
