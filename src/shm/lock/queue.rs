//! What is done to the queue: looking at it, handing the lock on, recovering it from an owner that
//! is gone, sweeping what was passed over. The protocol stands at the head of the module.

use super::node::{ABANDONED, FREE, PASSED, WAITING};
use super::word::{Id, Word};
use super::{LockEnv, LockNode, QueueLock};
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot, prefetch};
use crate::shm::crash;

/// Longest chain of nodes that can be right: more than every node of the largest segment.
const MAX_WALK: u32 = if cfg!(miri) { 1 << 10 } else { 1 << 19 };

/// Why nobody is behind an owner's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    Abandoned,
    Died,
}

/// What a walk from the tail to the owner saw.
pub(super) struct Line {
    /// The waiter nearest to the owner that is alive and still waits.
    pub(super) first: Option<Id>,
    /// The node next to the owner, if abandoned nodes lie between the owner and `first`.
    pub(super) skipped: Option<Id>,
    /// The abandoned node nearest to the tail.
    pub(super) last_abandoned: Option<Id>,
}

impl Line {
    /// That whose first waits next to the owner.
    fn of(first: Id) -> Line {
        Line { first: Some(first), skipped: None, last_abandoned: None }
    }
}

impl QueueLock {
    /// Whether an owner is dead, or gave up before it noticed that it owns the lock. `ask`: ask
    /// the kernel rather than trust what is known.
    pub(super) fn gone<E: LockEnv>(&self, env: &E, owner: Id, ask: bool) -> Result<Option<Gone>> {
        let (slot, k, node) = resolve(env, owner)?;
        if k != 0 && node.kind() == ABANDONED {
            return Ok(Some(Gone::Abandoned));
        }
        let dead = slot != env.slot() && (env.is_dead(slot) || ask && env.probe(slot));
        Ok(dead.then_some(Gone::Died))
    }

    /// Hands the lock over in the place of an owner that is gone. The caller's node is in the
    /// queue behind the owner, or is the owner. Somebody else may do the same: one CAS wins.
    pub(super) fn recover<E: LockEnv>(&self, env: &E, w: Word, gone: Gone) -> Result<bool> {
        let Some(line) = self.walk(env, w)? else { return Ok(false) };
        let Some(first) = line.first else { return Ok(false) };
        let next = if w.stop() == Id::NONE {
            Word::new(first, w.tail(), w.owner(), gone == Gone::Died)
        } else {
            Word::new(first, w.tail(), w.stop(), w.died())
        };
        crash::point();
        let won = self.cas(w, next);
        crash::point();
        if won {
            resolve(env, first)?.2.hint();
        }
        Ok(won)
    }

    /// Looks at the whole queue. `None` if the lock changed meanwhile.
    pub(super) fn walk<E: LockEnv>(&self, env: &E, w: Word) -> Result<Option<Line>> {
        let mut line = Line { first: None, skipped: None, last_abandoned: None };
        let mut abandoned = false;
        let mut at = w.tail();
        let mut steps = 0;
        while at != w.owner() {
            let (slot, _, node) = match resolve(env, at) {
                Ok(found) if found.1 != 0 && steps < MAX_WALK => found,
                // Not a queue. For a recovery that somebody else has finished that is normal: the
                // nodes may be in other queues by now.
                _ if self.load() != w => return Ok(None),
                Ok((_, k, _)) => return Err(damaged(format!("node {k} after {steps} others"))),
                Err(e) => return Err(e),
            };
            if node.kind() == ABANDONED {
                abandoned = true;
                line.last_abandoned.get_or_insert(at);
            } else if slot == env.slot() || !env.is_dead(slot) {
                abandoned = false;
                line.first = Some(at);
            }
            line.skipped = abandoned.then_some(at);
            // Acquire, and Release where it is stored: who strays into a newer life of a node sees
            // the changes of the word that came before it.
            at = Id(node.prev.load(Ordering::Acquire));
            steps += 1;
            if steps % 64 == 0 && self.load() != w {
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    /// As the new owner: frees the nodes passed over on the way to us. Returns who died holding
    /// the lock.
    pub(super) fn sweep<E: LockEnv>(
        &self,
        env: &E,
        me: Id,
        mine: &LockNode,
        w: Word,
    ) -> Result<Option<Slot>> {
        let stop = w.stop();
        if stop == Id::NONE {
            return Ok(None);
        }
        let culprit = resolve(env, stop)?.0;
        let mut at = Id(mine.prev.load(Ordering::Relaxed));
        let mut steps = 0;
        while at != Id::NONE {
            let (_, k, node) = resolve(env, at)?;
            let next = if at == stop { 0 } else { node.prev.load(Ordering::Relaxed) };
            crash::point();
            if k != 0 {
                // Release: who sees the signature sees that `mine.prev` names the node.
                node.by.store(me.0, Ordering::Release);
                crash::point();
                node.state.swap(PASSED, Ordering::AcqRel);
            }
            crash::point();
            mine.prev.store(next, Ordering::Release);
            crash::point();
            if k != 0 {
                // Swaps, like every write to a node that late hints may still reach.
                node.state.swap(FREE, Ordering::AcqRel);
            }
            at = Id(next);
            steps += 1;
            if steps > MAX_WALK {
                return Err(damaged("the nodes passed over form a ring".into()));
            }
        }
        crash::point();
        let mut w = w;
        while !self.cas(w, w.swept()) {
            w = self.load();
        }
        Ok(w.died().then_some(culprit))
    }

    /// Leaves the queue's node to whoever passes it over.
    pub(super) fn abandon<E: LockEnv>(&self, env: &E, me: Id, k: usize, node: &LockNode) {
        node.state.swap(ABANDONED, Ordering::AcqRel);
        crash::point();
        // Made the owner just now? Then pass it on at once, rather than when a waiter's sleep
        // ends. The node is not in the book yet, so this id is no one else's meanwhile.
        loop {
            let w = self.load();
            if w.owner() != me {
                break;
            }
            match self.recover(env, w, Gone::Abandoned) {
                Ok(false) if self.load() != w => continue,
                _ => break,
            }
        }
        env.nodes().leave(k);
    }

    /// As a member of the queue: notes in the node ahead that this one stands behind it, unless it has left
    /// already. A word that names no node is damage, which the wait to come finds out.
    pub(super) fn note_behind<E: LockEnv>(&self, env: &E, me: Id, ahead: Id) {
        // Node 0 has no lives to tell apart: who found the lock free does not count them.
        let Ok((_, 1.., node)) = resolve(env, ahead) else { return };
        let turn = node.turn.load(Ordering::Acquire);
        // It leaves only after the lock has come to this node: until then `turn` is that of the life in
        // which this one is behind it.
        if self.load().owner() != me {
            crash::point();
            node.note_behind(me, turn);
        }
    }

    /// As the new owner: has the node that is next in line fetched, to be at hand when the lock is handed on.
    pub(super) fn prepare<E: LockEnv>(&self, env: &E, node: &LockNode) {
        if let Some(next) = node.noted_behind()
            && let Ok((_, _, next)) = resolve(env, next)
        {
            prefetch::to_read(next);
        }
    }

    /// The first in line, where it is noted behind the owner's node `k` and still waits.
    fn noted<E: LockEnv>(&self, env: &E, k: usize) -> Result<Option<Id>> {
        if k == 0 {
            return Ok(None);
        }
        let Some(id) = own(env, k)?.1.noted_behind() else { return Ok(None) };
        let (slot, at, node) = resolve(env, id)?;
        let waits = at != 0 && node.kind() == WAITING;
        Ok((waits && (slot == env.slot() || !env.is_dead(slot))).then_some(id))
    }

    /// Hands the lock, held under node `k`'s id, to the first in line.
    pub(super) fn hand_on<E: LockEnv>(&self, env: &E, k: usize) -> Result<()> {
        let me = Id::new(env.slot(), k);
        crash::point();
        // Who has stood in line looks first: others probably do now.
        if (k == 0 || self.load() == Word::held(me)) && self.cas(Word::held(me), Word::FREE) {
            return give_back(env, k);
        }
        self.hand_on_queued(env, k, me)
    }

    #[cold]
    pub(super) fn hand_on_queued<E: LockEnv>(&self, env: &E, k: usize, me: Id) -> Result<()> {
        loop {
            let w = self.load();
            if w.owner() != me || w.stop() != Id::NONE {
                return Err(damaged(format!("a held lock reads {:#x}", w.0)));
            }
            let line = match self.noted(env, k)? {
                Some(first) if w.tail() != me => Line::of(first),
                _ => match self.walk(env, w)? {
                    Some(line) => line,
                    None => continue,
                },
            };
            let stop = line.skipped.unwrap_or(Id::NONE);
            let next = match (line.first, line.last_abandoned) {
                (Some(first), _) => Word::new(first, w.tail(), stop, false),
                // Only debris: its last node is the owner in name, until somebody takes the lock.
                (None, Some(last)) => Word::new(last, last, stop, false),
                (None, None) => Word::FREE,
            };
            crash::point();
            if !self.cas(w, next) {
                continue;
            }
            crash::point();
            give_back(env, k)?;
            if let Some(first) = line.first {
                resolve(env, first)?.2.hint();
            }
            return Ok(());
        }
    }
}

#[inline]
pub(super) fn give_back<E: LockEnv>(env: &E, k: usize) -> Result<()> {
    if k != 0 {
        env.nodes().give(k, own(env, k)?.1);
    }
    Ok(())
}

/// This process's node `k`, and its id.
pub(super) fn own<E: LockEnv>(env: &E, k: usize) -> Result<(Id, &LockNode)> {
    let slot = env.slot();
    let node = env.node(slot, k).ok_or_else(|| damaged(format!("no node {k} at slot {slot}")))?;
    Ok((Id::new(slot, k), node))
}

/// The node an id from shared memory names.
pub(super) fn resolve<E: LockEnv>(env: &E, id: Id) -> Result<(Slot, usize, &LockNode)> {
    id.parts()
        .and_then(|(slot, k)| Some((slot, k, env.node(slot, k)?)))
        .ok_or_else(|| damaged(format!("{:#x} names no waiter", id.0)))
}

#[cold]
pub(super) fn damaged(why: String) -> Error {
    Error::Incompatible {
        what: "a lock in shared memory",
        why: format!("{why}; some process has overwritten it, end the job"),
    }
}
