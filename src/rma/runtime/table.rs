//! The operation table of a window (paper 001, figure 3.6): a fixed number of slots, ranks
//! assigned to them in turn, and in each slot the objects of the peers that are active now.
//!
//! ```text
//!   slot 0      slot 1      slot 2 ..
//!   target 0    target 5    origin 2         rank modulo slots
//!   target 4    origin 1
//! ```
//!
//! A *target object* is this rank's view of a peer on which it operates: the lock it has there,
//! the operations that wait to be sent, those that went out before the lock was known to be
//! granted, and how many have been sent and acknowledged. An *origin object* (see `queries`) is
//! the view of a peer that wants a lock here.

use super::message::WindowId;
use super::pools::{Id, List, NONE, Pool, Pools};
use super::queries::OriginObject;
use super::{LockKind, Trouble};

/// What is known of the lock at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// The epoch is none of locks.
    Collective,
    /// Wanted, not asked for.
    Unasked,
    /// Asked for.
    Asked,
    /// The only operation went out with its own lock and unlock.
    Single,
    /// This rank has it.
    Granted,
}

/// What ends the epoch towards a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Unlock,
    /// An unlock of what was never locked, because the program asserted that it need not be.
    Nothing,
    Complete,
    /// The fence's number modulo 256.
    Decrement(u8),
}

/// A peer on which this rank operates.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetObject {
    pub window: WindowId,
    pub rank: u32,
    chain: Id,
    pub lock: LockState,
    pub kind: LockKind,
    /// There is no lock that this object has to release: the program asserted that no
    /// conflicting one exists, or the window's lock-all epoch keeps it.
    pub no_check: bool,
    /// Its operations can go out without waiting for a word of the target: see `reserve`.
    pub ready: bool,
    /// The target has discarded something, so nothing more goes out before the grant.
    pub no_speculation: bool,
    /// Not sent.
    pub pending: List,
    /// Sent before the grant was known, kept in case they are discarded.
    pub speculated: List,
    /// Operations given by the program; they are numbered from 1.
    pub posted: u64,
    /// The last one sent.
    pub issued: u64,
    /// The last one whose answer was asked for.
    pub asked: u64,
    /// The last one known to be done.
    pub acked: u64,
    /// Bytes given by the program.
    pub bytes: u64,
    /// The one that a flush waits for.
    pub ack_at: u64,
    /// Operations that wait for data, sent or not.
    pub tokens: u32,
    /// Send everything.
    pub push: bool,
    /// Send everything, wait for it, and give the object back.
    pub evict: bool,
    pub closing: Option<Closing>,
    /// The end of the epoch has been sent.
    pub told: bool,
    pub trouble: Option<Trouble>,
}

impl TargetObject {
    pub fn new(window: WindowId, rank: u32, lock: LockState, kind: LockKind) -> TargetObject {
        TargetObject {
            window,
            rank,
            chain: NONE,
            lock,
            kind,
            no_check: false,
            ready: lock == LockState::Granted,
            no_speculation: false,
            pending: List::EMPTY,
            speculated: List::EMPTY,
            posted: 0,
            issued: 0,
            asked: 0,
            acked: 0,
            bytes: 0,
            ack_at: 0,
            tokens: 0,
            push: false,
            evict: false,
            closing: None,
            told: false,
            trouble: None,
        }
    }

    /// Nothing waits to be sent, or could have to be sent again.
    pub fn sent(&self) -> bool {
        self.pending.is_empty() && self.speculated.is_empty()
    }

    /// Everything given so far is done at the target.
    pub fn remote_complete(&self) -> bool {
        self.sent() && self.acked == self.posted && self.tokens == 0
    }

    /// Everything given so far is done with here, and no answer is on the way.
    pub fn quiet(&self) -> bool {
        self.sent() && self.acked >= self.asked && self.tokens == 0
    }

    /// The epoch is over.
    pub fn closed(&self) -> bool {
        match self.closing {
            None => false,
            Some(Closing::Nothing) => self.remote_complete(),
            Some(Closing::Unlock) => self.told && self.remote_complete(),
            Some(_) => self.told && self.quiet(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    targets: Id,
    origins: Id,
}

/// An object on a chain of a slot.
trait Chained {
    fn peer(&self) -> u32;
    fn chain(&mut self) -> &mut Id;
    fn next(&self) -> Id;
}

impl Chained for TargetObject {
    fn peer(&self) -> u32 {
        self.rank
    }
    fn chain(&mut self) -> &mut Id {
        &mut self.chain
    }
    fn next(&self) -> Id {
        self.chain
    }
}

impl Chained for OriginObject {
    fn peer(&self) -> u32 {
        self.origin
    }
    fn chain(&mut self) -> &mut Id {
        &mut self.chain
    }
    fn next(&self) -> Id {
        self.chain
    }
}

fn find<T: Chained>(pool: &Pool<T>, head: Id, peer: u32) -> Option<Id> {
    let mut at = head;
    while let Some(object) = pool.get(at) {
        if object.peer() == peer {
            return Some(at);
        }
        at = object.next();
    }
    None
}

fn link<T: Chained>(pool: &mut Pool<T>, head: &mut Id, id: Id) {
    *pool[id].chain() = std::mem::replace(head, id);
}

fn unlink<T: Chained>(pool: &mut Pool<T>, head: &mut Id, id: Id) {
    let after = pool[id].next();
    if *head == id {
        *head = after;
        return;
    }
    let mut at = *head;
    while let Some(object) = pool.get(at) {
        let next = object.next();
        if next == id {
            *pool[at].chain() = after;
            return;
        }
        at = next;
    }
}

/// The table of one window.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[Slot]>,
    targets: usize,
}

impl Table {
    pub fn new(slots: usize) -> Table {
        let slot = Slot { targets: NONE, origins: NONE };
        Table { slots: vec![slot; slots].into_boxed_slice(), targets: 0 }
    }

    fn slot(&self, rank: u32) -> usize {
        rank as usize % self.slots.len()
    }

    /// How many target objects there are.
    pub fn targets(&self) -> usize {
        self.targets
    }

    pub fn target(&self, pools: &Pools, rank: u32) -> Option<Id> {
        find(&pools.targets, self.slots[self.slot(rank)].targets, rank)
    }

    pub fn add_target(&mut self, pools: &mut Pools, object: TargetObject) -> Option<Id> {
        let slot = self.slot(object.rank);
        let id = pools.targets.take(object)?;
        link(&mut pools.targets, &mut self.slots[slot].targets, id);
        self.targets += 1;
        Some(id)
    }

    pub fn drop_target(&mut self, pools: &mut Pools, id: Id) -> Option<TargetObject> {
        let slot = self.slot(pools.targets.get(id)?.rank);
        unlink(&mut pools.targets, &mut self.slots[slot].targets, id);
        self.targets -= 1;
        pools.targets.give(id)
    }

    pub fn origin(&self, pools: &Pools, rank: u32) -> Option<Id> {
        find(&pools.origins, self.slots[self.slot(rank)].origins, rank)
    }

    pub fn add_origin(&mut self, pools: &mut Pools, object: OriginObject) -> Option<Id> {
        let slot = self.slot(object.origin);
        let id = pools.origins.take(object)?;
        link(&mut pools.origins, &mut self.slots[slot].origins, id);
        Some(id)
    }

    pub fn drop_origin(&mut self, pools: &mut Pools, id: Id) -> Option<OriginObject> {
        let slot = self.slot(pools.origins.get(id)?.origin);
        unlink(&mut pools.origins, &mut self.slots[slot].origins, id);
        pools.origins.give(id)
    }

    /// Walks over the target objects: give `None` first, then what came back. The object given
    /// may be dropped only after the next one has been asked for.
    pub fn next_target(&self, pools: &Pools, after: Option<Id>) -> Option<Id> {
        let from = match after {
            None => 0,
            Some(id) => {
                let object = &pools.targets[id];
                if object.chain != NONE {
                    return Some(object.chain);
                }
                self.slot(object.rank) + 1
            }
        };
        self.slots[from..].iter().map(|slot| slot.targets).find(|id| *id != NONE)
    }
}
