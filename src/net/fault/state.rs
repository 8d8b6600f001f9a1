//! What the objects of one decorated device share.

use super::ud::FaultUd;
use super::{Done, Plan};
use crate::base::sync::{AtomicU64, Ordering};
use crate::net::memory::Memory;
use crate::net::provider::{Channel, Completion, Local, Status, Time};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(super) struct State {
    inner: Mutex<Inner>,
    /// When the next held datagram is due.
    next: AtomicU64,
    /// Threads that wait in channels, each until then or longer.
    asleep: Mutex<Vec<Arc<dyn Channel>>>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub plan: Plan,
    pub done: Done,
    dice: u64,
    memories: HashMap<u32, Memory>,
    uds: Vec<Weak<FaultUd>>,
    /// Connected queue pairs that were cut and have not said why yet.
    cut: HashSet<u32>,
    /// Completions that are this decorator's own, and the slots that they free.
    own: HashMap<(u32, u64), (Weak<FaultUd>, usize)>,
    last: u64,
}

impl Inner {
    /// Whether something that happens `of_1000` times happens now (SplitMix64).
    pub fn happens(&mut self, of_1000: u32) -> bool {
        of_1000 > 0 && self.roll() % 1000 < of_1000.into()
    }

    pub fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number for a completion of this decorator's own, which frees `slot`. (Programs do not count
    /// down from 2^64.)
    pub fn own(&mut self, queue_pair: u32, ud: Weak<FaultUd>, slot: usize) -> u64 {
        self.last += 1;
        let id = u64::MAX - self.last;
        self.own.insert((queue_pair, id), (ud, slot));
        id
    }

    pub fn disown(&mut self, queue_pair: u32, id: u64) {
        self.own.remove(&(queue_pair, id));
    }
}

impl State {
    pub fn new(plan: Plan) -> State {
        let inner = Inner { plan, dice: plan.seed, ..Inner::default() };
        State { inner: Mutex::new(inner), next: AtomicU64::new(u64::MAX), asleep: Mutex::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_plan(&self, plan: Plan) {
        let mut inner = self.lock();
        (inner.plan, inner.dice) = (plan, plan.seed);
    }

    pub fn remember(&self, key: u32, memory: Memory) {
        self.lock().memories.insert(key, memory);
    }

    pub fn forget(&self, key: u32) {
        let gone = self.lock().memories.remove(&key);
        drop(gone);
    }

    /// The bytes of pieces; none where one is not registered so.
    pub fn gather(&self, pieces: &[Local]) -> Option<Vec<u8>> {
        let inner = self.lock();
        let mut bytes = Vec::new();
        for piece in pieces {
            let memory = inner.memories.get(&piece.key)?;
            let start = bytes.len();
            bytes.resize(start + piece.length as usize, 0);
            let offset = piece.address.checked_sub(memory.address())?;
            memory.read(offset, &mut bytes[start..]).then_some(())?;
        }
        Some(bytes)
    }

    pub fn add(&self, ud: Weak<FaultUd>) {
        let mut inner = self.lock();
        inner.uds.retain(|ud| ud.strong_count() > 0);
        inner.uds.push(ud);
    }

    pub fn next(&self) -> Time {
        Time(self.next.load(Ordering::Acquire))
    }

    /// Something is due at a time; those who would sleep past it are woken.
    pub fn due(&self, at: Time) {
        if at.0 < self.next.fetch_min(at.0, Ordering::AcqRel) {
            let asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            asleep.iter().for_each(|channel| channel.wake());
        }
    }

    /// Runs `sleep`, a wait in a channel, until when the next is due: what is due earlier from now on
    /// ends it.
    pub fn asleep<R>(&self, channel: &Arc<dyn Channel>, sleep: impl FnOnce(Time) -> R) -> R {
        let list = || self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        list().push(channel.clone());
        // Read behind the entry: what is due earlier is either seen here or finds the entry.
        let slept = sleep(self.next());
        let mut list = list();
        if let Some(at) = list.iter().position(|one| Arc::ptr_eq(one, channel)) {
            list.swap_remove(at);
        }
        slept
    }

    /// Sends what is due.
    pub fn pump(&self, now: Time) {
        if self.next() > now {
            return;
        }
        self.next.store(u64::MAX, Ordering::Release);
        let uds = self.lock().uds.clone();
        uds.iter().filter_map(Weak::upgrade).for_each(|ud| ud.release(now));
    }

    pub fn cut(&self, queue_pair: u32) {
        let mut inner = self.lock();
        inner.done.cut += 1;
        inner.cut.insert(queue_pair);
    }

    pub fn mend(&self, queue_pair: u32) {
        self.lock().cut.remove(&queue_pair);
    }

    /// Takes out what is this decorator's own and says why cut queue pairs failed; what is left
    /// stands in front. Says how many those are.
    pub fn sift(&self, completions: &mut [Completion]) -> usize {
        let mut inner = self.lock();
        let mut free = Vec::new();
        let mut kept = 0;
        for at in 0..completions.len() {
            let mut done = completions[at];
            if let Some(slot) = inner.own.remove(&(done.queue_pair, done.id)) {
                free.push(slot);
                continue;
            }
            let flushed = done.status == Status::Flushed && !done.opcode.is_receive();
            if flushed && inner.cut.remove(&done.queue_pair) {
                done.status = Status::RetryExceeded;
            }
            completions[kept] = done;
            kept += 1;
        }
        drop(inner);
        for (ud, slot) in free {
            if let Some(ud) = ud.upgrade() {
                ud.give(slot);
            }
        }
        kept
    }
}
