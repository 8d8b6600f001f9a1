//! A fair, robust queue lock of one word in shared memory. It survives the death of its holder
//! or of any waiter at any instruction; the next holder is told.
//!
//! ```text
//!  word:  owner = D      tail = C                  (stop, died: see debris)
//!            |             |
//!            v             v
//!           D <--prev-- A <--prev-- B <--prev-- C
//!         holds       first       waits        last
//! ```
//! **Taking a free lock** is one CAS of the word from 0. The holder then has no node in the queue,
//! only the id of node 0 of its slot; giving the lock back to nobody is one CAS to 0.
//!
//! **Finding it taken.** Who finds the lock taken tries again for a ms or so before it stands in line, with
//! looks further and further apart, as each takes the lock's line away from the holder, or, by a rank that shares its
//! core, some times with a yield between two, so that whoever holds the lock may run. Each hand-over to somebody
//! in line moves several cache lines from core to core, and may have to wait until the system lets its new
//! holder run, which takes ten and a hundred times as long as short work under a lock: among
//! members that want the lock all the time, it then changes hands once for many such pieces of
//! work. A lock that is waited for is never free, so nobody overtakes who stands in line.
//!
//! **Waiting.** A waiter stores `prev = tail` in a node of its slot, then puts itself at the tail
//! by a CAS. So `prev` of whatever is in the queue is right even if its thread was killed in the
//! next instruction. Then it watches its own node.
//!
//! Once in the queue it notes in the node ahead that it stands behind it (`behind`), with the number of
//! that node's life in queues (`turn`), which it reads before it sees that the lock is not its own yet: until
//! then the node ahead cannot have left. A note that comes late names a life that is over.
//!
//! **Handing over.** The holder takes the node that is noted behind its own for the first in line, or, if none
//! is or that one gave up or died, walks from the tail to the node whose `prev` is itself. What lies behind a
//! live holder only grows at the tail, so the walk is safe. One CAS of
//! the word makes the first in line the owner. That CAS alone decides; the hint set in the
//! successor's node afterwards saves it from looking at the word, and if the holder dies before
//! the hint, the successor looks at the word after at most one slice of sleep.
//!
//! **Giving up.** A waiter whose deadline passes marks its node ABANDONED and leaves it in the
//! queue; hand-overs pass it over. If it was made the owner just then, an ABANDONED owner counts as
//! gone: nobody is inside.
//!
//! **Recovery.** A waiter that finds the owner dead or gone does the hand-over in its place, by the
//! same walk and CAS. There is no ABA: the owner's id can come back as an owner only from behind
//! the waiter that does the recovery, and nodes ahead of or at that waiter do not leave the queue.
//! (Slots of dead processes are never given to others.) A newcomer first queues behind the dead
//! owner, then recovers.
//!
//! **Debris.** Nodes passed over must get back to their processes, without a store that a kill
//! could lose. They stay chained by `prev` ahead of the new owner, and the word's `stop` names the
//! last of them: the former owner if that was gone, else the node that was next to it.
//!
//! ```text
//!   stop <--prev-- A (abandoned) <--prev-- X (dead) <--prev-- owner <--prev-- ...  tail
//! ```
//! If none of those behind a releasing holder waits any more, the last abandoned one becomes the
//! owner in name, and whoever comes next takes the lock over from it.
//!
//! The owner sweeps before it goes on: it signs a node (`by`, PASSED), unlinks it (`owner.prev =
//! node.prev`), marks it FREE, and so on; last it sets `stop` to 0. Killed meanwhile, it is itself
//! part of the chain its own successor sweeps, up to the same `stop`. A node signed by a dead
//! sweeper whose `prev` no longer names it was unlinked, so its process may take it back as if it
//! were FREE. With `stop == 0`, `owner.prev` means nothing.
//! `died` says that `stop` was a holder that died. One that died while it still swept never
//! entered, so it leaves `stop` and `died` as they were.
//!
//! Before the memory of a lock is given to another use, some live process takes and releases the
//! lock once: that sweeps what is left in it.

#[cfg(not(loom))]
mod env;
#[cfg(not(loom))]
pub(crate) use env::Caller;
mod node;
pub(crate) mod part;
mod queue;
mod word;

#[cfg(test)]
pub(crate) mod model;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use node::{LocalNodes, LockNode};

use super::crash;
use super::park::Pace;
use crate::base::sync::{AtomicU64, Ordering, futex_wait, spin_hint, yield_now};
use crate::base::{Deadline, Error, Rank, Result, Slot, forked, prefetch};
use node::{FREE, HINT, PARKED};
use queue::own;
use word::{Id, Word};

const DURING: &str = "waiting for a lock";

/// Nodes per slot: how many threads of a process can wait for locks at one time, plus one.
pub const NODES: usize = 64;

#[cfg(not(loom))]
const _: () = assert!(NODES == super::segment::LOCK_NODES);

/// Pauses before the first look at a lock that was taken. Before each next one it waits as long as it has waited by
/// then, so that a lock which comes free is found so within twice the time, and that so few looks, by however
/// many members, take the line away from the holder.
const FIRST: u32 = 8;

/// Longest wait between two looks, as a part of a wait awake ([`Pace::spins`]): some 30 µs. And how many such waits
/// to try for, before standing in line: some 1 ms. The longer, the fewer of many members stand in line at a time,
/// each of whom has the others wait for its hand-over.
const APART: u32 = 4;
const TRIES: u32 = 8;

/// Most yields where ranks share cores.
const YIELDS: u32 = 16;

/// Pauses to try for, or yields. None under loom, whose interleavings have all of them: who looks later might as
/// well have come later.
fn patience(pace: Pace) -> u32 {
    match pace.is_awake() {
        _ if cfg!(loom) => 0,
        true => spins(pace) * TRIES,
        false => (pace.yields / 2).min(YIELDS),
    }
}

/// Pauses of a wait awake. Whatever a program's setting says, the deadline is looked at now and then.
fn spins(pace: Pace) -> u32 {
    pace.spins.min(Pace::DEDICATED.spins)
}

/// What a lock must know of the process that uses it and of its peers.
pub trait LockEnv {
    /// Node `k < NODES` of a slot; `None` if the segment has no such slot.
    fn node(&self, slot: Slot, k: usize) -> Option<&LockNode>;
    /// This process's slot.
    fn slot(&self) -> Slot;
    /// This process's book of its own nodes. One book per slot.
    fn nodes(&self) -> &LocalNodes;
    /// How to wait.
    fn pace(&self) -> Pace;
    /// Whether the process at a slot is known to be gone (one load). Must stay true once true.
    fn is_dead(&self, slot: Slot) -> bool;
    /// Finds out whether the process at a slot is gone, also if nobody knew (a system call). Once
    /// it has returned true, [`LockEnv::is_dead`] does too.
    fn probe(&self, slot: Slot) -> bool;
    /// Called in waits, with the number of the poll, or with 0 before a sleep or where polls are seldom: time to
    /// look after other work.
    fn waiting(&self, _turn: u32) {}
    /// What messages call the process at a slot.
    fn rank(&self, slot: Slot) -> Rank {
        Rank(u32::from(slot.0))
    }
}

/// How a lock reads that a process has taken and that nobody waits for: the same for every lock, so
/// that who counts instructions keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sole(Word);

impl Sole {
    /// That of the process at `slot`.
    #[inline(always)]
    pub fn of(slot: Slot) -> Sole {
        Sole(Word::held(Id::new(slot, 0)))
    }
}

/// A fair robust lock in shared memory. All zeros is a free lock.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct QueueLock {
    word: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<QueueLock>() == 8);

#[cfg(not(loom))]
// SAFETY: one atomic, every bit pattern valid (what cannot be right is refused when read).
unsafe impl super::region::SharedLayout for QueueLock {}
#[cfg(not(loom))]
// SAFETY: repr(C), two atomics and padding nobody reads or writes.
unsafe impl super::region::SharedLayout for LockNode {}

impl Default for QueueLock {
    fn default() -> Self {
        QueueLock { word: AtomicU64::new(0) }
    }
}

/// Proof that the caller holds a lock, to be given back by [`QueueLock::release`]. Dropped
/// instead, it leaves the lock held for ever.
#[derive(Debug)]
#[must_use = "the lock stays held until QueueLock::release gets this back"]
pub struct Held {
    node: usize,
    died: Option<Slot>,
}

impl Held {
    /// The process that died holding the lock, if the lock comes from a dead holder: what the lock
    /// protects may be half-changed.
    pub fn previous_holder_died(&self) -> Option<Slot> {
        self.died
    }
}

/// Holds a lock; dropping it gives the lock to the next in line.
pub struct LockGuard<'a, E: LockEnv> {
    lock: &'a QueueLock,
    env: &'a E,
    held: Held,
}

impl<E: LockEnv> LockGuard<'_, E> {
    /// As [`Held::previous_holder_died`].
    pub fn previous_holder_died(&self) -> Option<Slot> {
        self.held.died
    }
}

impl<E: LockEnv> std::fmt::Debug for LockGuard<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard").field("lock", self.lock).field("held", &self.held).finish()
    }
}

impl<E: LockEnv> Drop for LockGuard<'_, E> {
    #[inline]
    fn drop(&mut self) {
        // It fails only when a peer overwrote the lock; every later use of it says so too.
        let _ = self.lock.hand_on(self.env, self.held.node);
    }
}

impl QueueLock {
    /// Takes the lock, waiting in line for it until `deadline`.
    ///
    /// Uncontended: one CAS of the lock's line, and one to release. Contended: a CAS to queue and a write to
    /// the node ahead, and per hand-over one CAS of the word and one write of the successor's node, however
    /// many wait; a read of `prev` of every waiter only after one that gave up or died, or by a holder that had
    /// found the lock free. Spins, yields, then sleeps as [`LockEnv::pace`] says. Fails with
    /// [`Error::TimedOut`], or [`Error::Incompatible`] when the shared words cannot be right. The
    /// death of the holder is no error: see [`LockGuard::previous_holder_died`].
    pub fn lock<'a, E: LockEnv>(
        &'a self,
        env: &'a E,
        deadline: Deadline,
    ) -> Result<LockGuard<'a, E>> {
        let held = self.acquire(env, deadline)?;
        Ok(LockGuard { lock: self, env, held })
    }

    /// Takes the lock if nobody has it: the uncontended part of [`QueueLock::lock`], which a
    /// caller that counts instructions tries first.
    #[inline]
    pub fn lock_if_free<'a, E: LockEnv>(&'a self, env: &'a E) -> Option<LockGuard<'a, E>> {
        self.take_free(env).map(|held| LockGuard { lock: self, env, held })
    }

    /// Takes the lock if it is free, or held by a process known to be dead. Never waits.
    pub fn try_lock<'a, E: LockEnv>(&'a self, env: &'a E) -> Result<Option<LockGuard<'a, E>>> {
        Ok(self.try_acquire(env)?.map(|held| LockGuard { lock: self, env, held }))
    }

    /// As [`QueueLock::lock`], for holders whose lifetime is not a scope's.
    #[inline]
    pub fn acquire<E: LockEnv>(&self, env: &E, deadline: Deadline) -> Result<Held> {
        match self.take_free(env) {
            Some(held) => Ok(held),
            None => self.acquire_queued(env, deadline),
        }
    }

    /// As [`QueueLock::try_lock`], for holders whose lifetime is not a scope's. It does not ask
    /// the kernel for deaths, so a loop of it is no substitute for waiting.
    pub fn try_acquire<E: LockEnv>(&self, env: &E) -> Result<Option<Held>> {
        if let Some(held) = self.take_free(env) {
            return Ok(Some(held));
        }
        self.take_over(env, false)
    }

    /// Gives the lock to the next in line. `held` must come from this lock. Fails only when a peer
    /// overwrote the lock.
    #[inline]
    pub fn release<E: LockEnv>(&self, env: &E, held: Held) -> Result<()> {
        self.hand_on(env, held.node)
    }

    /// Gives the lock to the next in line, without what taking it returned: this process must
    /// hold it, which is checked.
    #[inline]
    pub(crate) fn release_own<E: LockEnv>(&self, env: &E) -> Result<()> {
        match self.load().owner().parts() {
            Some((slot, node)) if slot == env.slot() => self.hand_on(env, node),
            _ => Err(queue::damaged("this process holds it, but it does not say so".into())),
        }
    }

    /// Takes the lock for a process if nobody holds it or waits for it: one CAS, for callers that
    /// count instructions. [`QueueLock::release_alone`] or [`QueueLock::release_own`] gives it
    /// back.
    #[inline(always)]
    pub(crate) fn take_alone(&self, by: Sole) -> bool {
        crash::point();
        self.cas(Word::FREE, by.0)
    }

    /// Gives back what [`QueueLock::take_alone`] took for a process, if nobody waits for it.
    /// False, and nothing has changed, if somebody does, or it was taken otherwise.
    #[inline(always)]
    pub(crate) fn release_alone(&self, by: Sole) -> bool {
        crash::point();
        self.load() == by.0 && self.cas(by.0, Word::FREE)
    }

    /// Whether [`QueueLock::take_alone`] took it for the process at `slot`, and nobody waits.
    #[inline(always)]
    pub(crate) fn is_alone(&self, slot: Slot) -> bool {
        self.load() == Sole::of(slot).0
    }

    /// Whether nobody holds the lock or waits for it. Acquires what the last holder released.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.load() == Word::FREE
    }

    /// Whether a thread of this process holds the lock.
    pub(crate) fn is_own<E: LockEnv>(&self, env: &E) -> Result<bool> {
        let owner = self.load().owner();
        let own = owner.parts().is_some_and(|(slot, _)| slot == env.slot());
        Ok(own && self.gone(env, owner, false)?.is_none())
    }

    /// The process that holds the lock at this moment, for messages.
    pub fn holder(&self) -> Option<Slot> {
        self.load().owner().parts().map(|(slot, _)| slot)
    }

    #[inline]
    fn take_free<E: LockEnv>(&self, env: &E) -> Option<Held> {
        self.take_alone(Sole::of(env.slot())).then_some(Held { node: 0, died: None })
    }

    /// Tries for a moment. Also while others stand in line: they go first, as the lock is not free before the
    /// last of them has it; and if those who come back wait for that, the line comes to an end.
    fn take_soon<E: LockEnv>(&self, env: &E, deadline: Deadline) -> Option<Held> {
        let pace = env.pace();
        let (awake, most, apart) = (pace.is_awake(), patience(pace), spins(pace) / APART);
        let mut waited = 0;
        while waited < most && !deadline.passed() {
            if awake {
                let pauses = waited.min(apart).max(FIRST);
                (0..pauses).for_each(|_| spin_hint());
                waited += pauses;
            } else {
                yield_now();
                waited += 1;
            }
            env.waiting(0);
            if self.is_free()
                && let Some(held) = self.take_free(env)
            {
                return Some(held);
            }
        }
        None
    }

    #[inline]
    fn load(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Every change of the word: acquires what earlier changes released, releases our own.
    #[inline]
    fn cas(&self, from: Word, to: Word) -> bool {
        self.word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock from an owner that is gone, if nobody alive waits behind it. `ask` as for
    /// [`QueueLock::gone`].
    #[cold]
    fn take_over<E: LockEnv>(&self, env: &E, ask: bool) -> Result<Option<Held>> {
        let w = self.load();
        if w == Word::FREE || self.gone(env, w.owner(), ask)?.is_none() {
            return Ok(None);
        }
        if self.walk(env, w)?.is_none_or(|line| line.first.is_some()) {
            return Ok(None);
        }
        let Some(k) = env.nodes().take_reserved() else { return Ok(None) };
        let (me, node) = own(env, k)?;
        node.begin();
        node.prev.store(w.tail().0, Ordering::Release);
        crash::point();
        if !self.cas(w, w.with_tail(me)) {
            env.nodes().give(k, node);
            return Ok(None);
        }
        crash::point();
        // First in line behind an owner that is gone: the lock is this caller's. Only if the same
        // word came back with another queue behind it between the look and the CAS is it not.
        match self.settle(env, me, node, false) {
            Ok(Some(died)) => Ok(Some(Held { node: k, died })),
            other => {
                self.abandon(env, me, k, node);
                other.map(|_| None)
            }
        }
    }

    #[cold]
    fn acquire_queued<E: LockEnv>(&self, env: &E, deadline: Deadline) -> Result<Held> {
        if let Some(held) = self.take_soon(env, deadline) {
            return Ok(held);
        }
        let k = match self.take_node(env, deadline)? {
            Ok(k) => k,
            Err(held) => return Ok(held),
        };
        let (me, node) = own(env, k)?;
        node.begin();
        let ahead = loop {
            let w = self.load();
            if w == Word::FREE {
                if let Some(held) = self.take_free(env) {
                    env.nodes().give(k, node);
                    return Ok(held);
                }
                continue;
            }
            node.prev.store(w.tail().0, Ordering::Release);
            crash::point();
            if self.cas(w, w.with_tail(me)) {
                break w.tail();
            }
        };
        crash::point();
        self.note_behind(env, me, ahead);
        crash::point();
        let outcome = self.wait(env, me, node, deadline);
        match outcome {
            Ok(Some(died)) => {
                self.prepare(env, node);
                Ok(Held { node: k, died })
            }
            other => {
                let holder = self.holder();
                self.abandon(env, me, k, node);
                other?;
                Err(timed_out(env, deadline, holder))
            }
        }
    }

    /// A node, or the lock itself if it comes free while every node is in use.
    fn take_node<E: LockEnv>(
        &self,
        env: &E,
        deadline: Deadline,
    ) -> Result<std::result::Result<usize, Held>> {
        let pace = env.pace();
        let mut tries = 0;
        loop {
            if let Some(k) = env.nodes().take(env) {
                return Ok(Ok(k));
            }
            // More threads wait than there are nodes: out of line, but not out of luck.
            if let Some(held) = self.take_free(env) {
                return Ok(Err(held));
            }
            if let Some(held) = self.take_over(env, tries >= pace.yields)? {
                return Ok(Err(held));
            }
            if deadline.passed() {
                return Err(timed_out(env, deadline, self.holder()));
            }
            forked::refuse_forked(DURING)?;
            tries += 1;
            if tries < pace.yields {
                yield_now();
            } else {
                env.waiting(0);
                // Nobody wakes this: node 0 is in no queue. It is a sleep of one slice.
                let (_, node) = own(env, 0)?;
                futex_wait(&node.state, FREE, deadline.clamp(pace.slice));
            }
        }
    }

    /// Waits as a member of the queue. `Some(died)` once this node owns the lock, `None` if the
    /// deadline passed.
    fn wait<E: LockEnv>(
        &self,
        env: &E,
        me: Id,
        node: &LockNode,
        deadline: Deadline,
    ) -> Result<Option<Option<Slot>>> {
        if let Some(died) = self.settle(env, me, node, false)? {
            return Ok(Some(died));
        }
        let pace = env.pace();
        for turn in 0..pace.spins + pace.yields {
            if node.state.load(Ordering::Acquire) & HINT != 0 {
                // To be written soon: the hint is late only rarely.
                prefetch::to_write(&raw const self.word);
                // An owner needs the flag no more, and to take it back would cost a transfer of the line.
                if self.load().owner() != me {
                    node.state.fetch_and(!HINT, Ordering::AcqRel);
                }
                if let Some(died) = self.settle(env, me, node, false)? {
                    return Ok(Some(died));
                }
            }
            env.waiting(turn);
            if turn < pace.spins { spin_hint() } else { yield_now() }
        }
        let mut slice = pace.slice;
        loop {
            env.waiting(0);
            // Every write of the state is a read-modify-write: whoever sets HINT either does so
            // before PARKED, and the settle below sees its owner CAS, or sees PARKED and wakes.
            let parked = node.state.fetch_or(PARKED, Ordering::AcqRel) | PARKED;
            if let Some(died) = self.settle(env, me, node, true)? {
                return Ok(Some(died));
            }
            if deadline.passed() {
                return Ok(None);
            }
            forked::refuse_forked(DURING)?;
            if parked & HINT == 0 {
                futex_wait(&node.state, parked, deadline.clamp(slice));
                slice = (slice * 2).min(pace.longest);
            }
            node.state.fetch_and(!(HINT | PARKED), Ordering::AcqRel);
        }
    }

    /// Looks at the word from within the queue, and hands the lock over in the place of an owner
    /// that is gone. `Some(died)` if this node owns the lock; it is swept then.
    fn settle<E: LockEnv>(
        &self,
        env: &E,
        me: Id,
        node: &LockNode,
        ask: bool,
    ) -> Result<Option<Option<Slot>>> {
        loop {
            let w = self.load();
            if w.owner() == me {
                return self.sweep(env, me, node, w).map(Some);
            }
            let Some(gone) = self.gone(env, w.owner(), ask)? else { return Ok(None) };
            self.recover(env, w, gone)?;
        }
    }
}

#[cold]
fn timed_out<E: LockEnv>(env: &E, deadline: Deadline, holder: Option<Slot>) -> Error {
    Error::TimedOut {
        during: DURING,
        waited: deadline.waited(),
        missing: holder.map(|slot| env.rank(slot)).into_iter().collect(),
    }
}
