//! Which epochs of a window this process has open, and which it may open then.
//!
//! ```text
//!  access                      +--> FENCE --+
//!          fence               |  (view)    | fence
//!   NONE ---------> OFFERED ---+            |              unguarded fences only: what a fence
//!    |  ^  <------- (fence with no_succeed) v              opens counts once an operation is
//!    |  +--------------------------------- NONE|OFFERED    wanted; until then others may open
//!    |
//!    |-- Window::fence ----> FENCE  ----- end ----------> NONE
//!    |-- start(group) -----> START  ----- complete -----> NONE
//!    |-- lock_all ---------> LOCK_ALL --- unlock_all ---> NONE
//!    '-- lock(t) ... ------> NONE with locks held -- unlock(t) each
//!
//!  exposure:  NONE -- post(group) --> POSTED -- wait, or test that says yes --> NONE
//!
//!                 open already:  FENCE  START  LOCK_ALL  locks  POSTED
//!   fence (opening), lock_all      no     no      no       no     no
//!   start                          no     no      no       no     yes
//!   lock(t)                        no     no      no       t' yes t other than oneself
//!   post                           no     yes     no       yes, but for one on oneself   no
//! ```
//! While a thread opens or closes an epoch, the word says BUSY, and other threads that want to
//! open or close one are refused. GUARDED says that a guard will close it.
//!
//! **Locks** are not counted: that a part is locked stands in the window's block, and one more
//! read-modify-write of a counter would make a lock half as dear again. `locked` says that one may
//! have been taken since somebody looked. Whoever opens an epoch that does not go with locks puts
//! BUSY into the word, clears `locked`, and looks at all parts; whoever takes a lock does so by a
//! read-modify-write, makes sure that `locked` is set, and looks at the word. One of the two
//! sees the other. Only locks that are not in the block (asserted with `no_check`, or held through
//! packets) are counted here.

use super::LockKind;
use super::group::Group;
use crate::base::sync::{AtomicBool, AtomicU32, Ordering, fence_after_rmw};
use crate::base::{Error, Rank, Result};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

/// No access epoch but locks.
pub(super) const NONE: u32 = 0;
/// A fence has opened an epoch that nobody has used yet.
pub(super) const OFFERED: u32 = 1;
pub(super) const FENCE: u32 = 2;
pub(super) const START: u32 = 3;
pub(super) const LOCK_ALL: u32 = 4;
const KIND: u32 = 7;
/// A guard closes it.
pub(super) const GUARDED: u32 = 8;
/// On the way to this kind.
const BUSY: u32 = 16;

/// The own part is exposed.
pub(super) const POSTED: u32 = 1;

/// A process's epochs of one window.
#[derive(Debug, Default)]
pub(crate) struct State {
    access: AtomicU32,
    exposure: AtomicU32,
    locked: AtomicBool,
    /// Locks that the window's block does not know: as many as the ledger has.
    unlisted: AtomicU32,
    /// Whether messages of the access epoch opened without a guard may run at the same time.
    concurrent: AtomicBool,
    /// How often a test has found nothing.
    looks: AtomicU32,
    /// Made at the first use: few windows need them.
    groups: OnceLock<Box<Mutex<Groups>>>,
}

/// What does not fit into a word.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Targets of the access epoch opened by `start`.
    pub started: Group,
    /// The exposure epoch opened by `post`.
    pub exposure: Exposure,
    /// Locks that the block does not know, one per part.
    ledger: Vec<Listed>,
    /// Parts locked without a guard, and who was lost while it held them.
    pub recovered: Vec<(u32, Rank)>,
    /// Parts locked without a guard whose messages may run at the same time.
    pub concurrent: Vec<u32>,
}

/// A lock that the block does not know. Its entry is made before the lock is asked for and goes
/// after it has been given back, so that no two threads are about the same part at a time: what
/// takes and gives back such locks cannot tell one from the other.
#[derive(Debug)]
struct Listed {
    part: u32,
    kind: LockKind,
    stage: Stage,
    /// Who took it: another thread may give it back.
    thread: ThreadId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Taking,
    Held,
    GivingBack,
}

impl Groups {
    /// Whether the ledger is empty.
    pub fn lists_none(&self) -> bool {
        self.ledger.is_empty()
    }

    fn listed(&mut self, part: u32) -> Option<&mut Listed> {
        self.ledger.iter_mut().find(|lock| lock.part == part)
    }
}

/// What is left of an exposure epoch.
#[derive(Debug, Default)]
pub(super) struct Exposure {
    /// Origins that have not answered, and the numbers of the posts.
    pub open: Vec<(Rank, u8)>,
    /// Why it has failed.
    pub failed: Option<Error>,
}

/// A change of a word on its way: what was there comes back unless it is settled.
#[derive(Debug)]
pub(super) struct Change<'s> {
    word: &'s AtomicU32,
    back: u32,
}

impl Change<'_> {
    /// Ends the change with the word at `value`.
    pub fn settle(mut self, value: u32) {
        self.back = value;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Release is enough: who must see this change at all sees BUSY, which a read-modify-write put
        // there, until it sees this, and both refuse what is not to meet it.
        self.word.store(self.back, Ordering::Release);
    }
}

impl State {
    /// The lists.
    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The access word.
    #[inline]
    pub fn access(&self) -> u32 {
        self.access.load(Ordering::SeqCst)
    }

    /// Starts to change the access epoch from one of `from` toward `kind`.
    pub(super) fn change(&self, what: &'static str, from: &[u32], kind: u32) -> Result<Change<'_>> {
        let now = self.access();
        let (busy, order) = (BUSY | kind, Ordering::SeqCst);
        if now & GUARDED != 0 && from.contains(&(now & !GUARDED)) {
            return Err(misuse(what, BY_GUARD));
        }
        if !from.contains(&now) || self.access.compare_exchange(now, busy, order, order).is_err() {
            return Err(self.refused(what));
        }
        Ok(Change { word: &self.access, back: now })
    }

    /// As [`State::change`], for an epoch that goes with no lock (`holds` finds out whether the
    /// window's block says that this process holds one), and with no exposure unless `exposed`.
    pub(super) fn open(
        &self,
        what: &'static str,
        from: &[u32],
        kind: u32,
        exposed: bool,
        holds: impl FnOnce() -> Result<bool>,
    ) -> Result<Change<'_>> {
        let change = self.change(what, from, kind)?;
        if !exposed && self.exposure.load(Ordering::SeqCst) != NONE {
            return Err(misuse(what, EXPOSED));
        }
        if self.holds_locks(holds)? { Err(misuse(what, LOCKED)) } else { Ok(change) }
    }

    fn holds_locks(&self, holds: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if self.unlisted.load(Ordering::SeqCst) != 0 {
            return Ok(true);
        }
        if !self.locked.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.locked.swap(false, Ordering::SeqCst);
        fence_after_rmw();
        let held = holds();
        if !matches!(held, Ok(false)) {
            self.locked.store(true, Ordering::SeqCst);
        }
        held
    }

    /// Whether a lock may be taken now; `own`: on this process's own part.
    #[inline]
    pub fn may_lock(&self, what: &'static str, own: bool) -> Result<()> {
        let access = self.access.load(Ordering::Acquire);
        if access > OFFERED {
            return Err(self.refused(what));
        }
        if own && self.exposure.load(Ordering::Acquire) != NONE {
            return Err(misuse(what, EXPOSED));
        }
        Ok(())
    }

    /// Whether a lock may be taken with no more than [`State::is_noted`] afterwards.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        let acquire = Ordering::Acquire;
        let access = self.access.load(acquire) | self.exposure.load(acquire);
        access == NONE && self.unlisted.load(acquire) == 0
    }

    /// After a lock was taken by a read-modify-write while the state [is idle](State::is_idle):
    /// whether it is so still and nothing has to be noted. Otherwise [`State::note_lock`].
    #[inline(always)]
    pub fn is_noted(&self) -> bool {
        fence_after_rmw();
        let acquire = Ordering::Acquire;
        // In this order: who clears the flag has closed the state before.
        let locked = self.locked.load(acquire);
        let access = self.access.load(acquire) | self.exposure.load(acquire);
        locked && access == NONE
    }

    /// Looks again after a lock was taken by a read-modify-write: on an error it must be undone.
    #[inline]
    pub fn note_lock(&self, what: &'static str, own: bool) -> Result<()> {
        fence_after_rmw();
        if !self.locked.load(Ordering::Relaxed) {
            self.locked.swap(true, Ordering::SeqCst);
            fence_after_rmw();
        }
        self.may_lock(what, own)?;
        if self.access.load(Ordering::Relaxed) != NONE {
            self.decline();
        }
        Ok(())
    }

    /// Puts a lock that the block does not know on the ledger, to be taken now; on an error it is
    /// not there. One thread at a time for each part. Whether this thread has taken others of it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the part is on the ledger already, or an epoch excludes locks.
    pub fn list(&self, what: &'static str, target: u32, kind: LockKind, own: bool) -> Result<bool> {
        let (mut groups, thread) = (self.groups(), std::thread::current().id());
        if groups.listed(target).is_some() {
            return Err(misuse(what, NESTED));
        }
        let beside = groups.ledger.iter().any(|lock| lock.thread == thread);
        groups.ledger.push(Listed { part: target, kind, stage: Stage::Taking, thread });
        drop(groups);
        self.unlisted.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
        self.may_lock(what, own).inspect_err(|_| _ = self.unlist(target))?;
        self.decline();
        Ok(beside)
    }

    /// A lock on the ledger has been taken.
    pub fn taken(&self, target: u32) {
        if let Some(lock) = self.groups().listed(target) {
            lock.stage = Stage::Held;
        }
    }

    /// Starts to give a lock on the ledger back; false unless it is held, and nobody else is about
    /// to give it back.
    pub fn give_back(&self, target: u32) -> bool {
        let mut groups = self.groups();
        let Some(lock) = groups.listed(target).filter(|lock| lock.stage == Stage::Held) else {
            return false;
        };
        lock.stage = Stage::GivingBack;
        true
    }

    /// Takes a lock off the ledger and the count; false if it is not there.
    pub fn unlist(&self, target: u32) -> bool {
        let mut groups = self.groups();
        let Some(at) = groups.ledger.iter().position(|lock| lock.part == target) else {
            return false;
        };
        groups.ledger.swap_remove(at);
        drop(groups);
        self.unlisted.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// How a lock is held that is on the ledger.
    pub fn listed(&self, target: u32) -> Option<LockKind> {
        if self.unlisted.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.groups().listed(target).map(|lock| lock.kind)
    }

    /// Another epoch is used instead of the one that a fence has offered.
    #[cold]
    fn decline(&self) {
        let order = Ordering::SeqCst;
        let _ = self.access.compare_exchange(OFFERED, NONE, order, order);
    }

    /// Uses the epoch that a fence has offered. Whether an access epoch is a fence's then.
    pub fn accept(&self) -> bool {
        let order = Ordering::SeqCst;
        match self.access.compare_exchange(OFFERED, FENCE, order, order) {
            Ok(_) if self.exposure.load(order) != NONE => {
                let _ = self.access.compare_exchange(FENCE, NONE, order, order);
                false
            }
            Ok(_) => true,
            Err(now) => now & !GUARDED == FENCE,
        }
    }

    /// Keeps what was asserted when an access epoch was opened without a guard.
    pub(super) fn assert_concurrent(&self, concurrent: bool) {
        self.concurrent.store(concurrent, Ordering::Relaxed);
    }

    /// Whether messages on `target` may run at the same time, in the epoch without a guard that
    /// covers it.
    pub(super) fn is_concurrent(&self, target: u32) -> bool {
        if matches!(self.access(), FENCE | START | LOCK_ALL) {
            return self.concurrent.load(Ordering::Relaxed);
        }
        self.groups.get().is_some_and(|_| self.groups().concurrent.contains(&target))
    }

    /// Starts to expose the own part; `holds`: whether this process has locked it.
    pub(super) fn expose(
        &self,
        what: &'static str,
        holds: impl FnOnce() -> Result<bool>,
    ) -> Result<Change<'_>> {
        let order = Ordering::SeqCst;
        if self.exposure.compare_exchange(NONE, BUSY, order, order).is_err() {
            return Err(misuse(what, EXPOSED));
        }
        let change = Change { word: &self.exposure, back: NONE };
        if !matches!(self.access() & KIND, NONE | OFFERED | START) {
            return Err(self.refused(what));
        }
        if holds()? {
            return Err(misuse(what, "this rank holds a lock on its own part; unlock it first"));
        }
        self.decline();
        Ok(change)
    }

    /// Starts to end the exposure.
    pub(super) fn cover(&self, what: &'static str, guarded: bool) -> Result<Change<'_>> {
        let from = if guarded { POSTED | GUARDED } else { POSTED };
        let order = Ordering::SeqCst;
        match self.exposure.compare_exchange(from, BUSY, order, order) {
            Ok(back) => Ok(Change { word: &self.exposure, back }),
            Err(BUSY) => Err(misuse(what, BETWEEN)),
            Err(NONE) => {
                Err(misuse(what, "this rank's part is not exposed; expose it by post first"))
            }
            Err(_) => Err(misuse(what, BY_GUARD)),
        }
    }

    /// Whether it is time for a test to ask for deaths: at every 64th call.
    pub fn looks_often(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed) % 64 == 63
    }

    /// Why an access epoch cannot be opened or closed now.
    #[cold]
    pub fn refused(&self, what: &'static str) -> Error {
        let now = self.access();
        let why = match now & KIND {
            _ if now & BUSY != 0 => BETWEEN,
            FENCE => {
                "a fence epoch of this window is open; end it first, by FenceEpoch::end or a fence \
                 that asserts no_succeed"
            }
            START => "an access epoch opened by start is open on this window; complete it first",
            LOCK_ALL => "this rank has locked all parts of this window; call unlock_all first",
            _ => "no epoch of that kind is open on this window; open it first",
        };
        misuse(what, why)
    }
}

pub(super) const NESTED: &str = "this rank holds a lock on the target already, or another of its threads is taking one or \
     giving it back; unlock it first, or share the epoch between the threads";
const LOCKED: &str = "this rank holds a lock of this window; unlock it first";
const EXPOSED: &str = "this rank's part is exposed by post; wait for the end of that first";
const BETWEEN: &str =
    "another thread of this rank is opening or closing an epoch of this window; let one do it";
pub(super) const BY_GUARD: &str =
    "a guard holds this epoch open; close it through the guard, or by dropping that";

#[cold]
pub(super) fn misuse(what: &'static str, why: impl Into<String>) -> Error {
    Error::Misuse { what, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "a test";

    #[test]
    fn a_lock_on_the_ledger_has_one_thread_from_asking_to_giving_back() {
        let state = State::default();
        let list = |target| state.list(WHAT, target, LockKind::Exclusive, false);
        list(3).unwrap();
        assert!(!state.give_back(3), "it is being taken by the other");
        assert!(list(3).is_err());
        state.taken(3);
        assert!(list(3).is_err());
        list(4).unwrap();
        assert!(state.give_back(3));
        assert!(!state.give_back(3), "the other does already");
        assert!(list(3).is_err(), "not before it has been given back");
        assert_eq!(state.listed(3), Some(LockKind::Exclusive));
        assert!(state.unlist(3) && !state.unlist(3));
        assert_eq!(state.listed(3), None);
        list(3).unwrap();
    }

    #[test]
    fn of_threads_that_ask_at_a_time_one_gets_a_lock_on_the_ledger() {
        let state = State::default();
        let barrier = std::sync::Barrier::new(3);
        for round in 0..2000 {
            let gained: u32 = std::thread::scope(|scope| {
                let ask = || {
                    barrier.wait();
                    let gained = state.list(WHAT, 1, LockKind::Shared, false).is_ok();
                    barrier.wait();
                    u32::from(gained)
                };
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(gained, 1, "round {round}");
            assert!(state.unlist(1));
        }
    }
}
