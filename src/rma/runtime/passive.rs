//! Locks and flushes at their origin: calls that are asked until they are done.

use super::host::Host;
use super::limits::Issuing;
use super::pools::Id;
use super::shared::Shared;
use super::table::{Closing, LockState, TargetObject};
use super::window::Window;
use super::{LockKind, Trouble};
use std::task::Poll;

/// Why a call is refused after another was given up while it was waited for.
pub(super) const STILL_LOCKED: &str = "a lock, unlock or lock_all was given up while it was waited for and is not over: make that \
     call again (instead of an unlock, lock and unlock the target again)";

/// An answer of a call that has to find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Done.
    Done,
    /// Not yet.
    Wait,
    /// There is no target object.
    NoTarget,
}

impl Window {
    /// Opens a lock epoch. One on this rank's own part, which the program may use with loads and
    /// stores, waits for the grant.
    pub fn lock<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
        kind: LockKind,
        no_check: bool,
    ) -> Result<Room, Trouble> {
        if rank >= self.size {
            return Err(Trouble::Misuse("the target is no member of the window's team"));
        }
        if self.dead.contains(rank) {
            return Err(Trouble::Dead(rank));
        }
        // A lock-all epoch that the caller has given up: no other can be open now.
        if self.all.is_some() && self.close_all(shared, host).is_pending() {
            return Ok(Room::Wait);
        }
        let found = self.table.target(&shared.pools, rank);
        let mut given_up = false;
        if rank == self.me && self.locking_self {
            let fits = |id: Id| {
                let object = &shared.pools.targets[id];
                object.kind == kind && object.closing.is_none()
            };
            if found.is_none_or(fits) {
                return Ok(self.lock_self(shared, host, found));
            }
            // A query cannot be taken back: it is granted and released first.
            (self.locking_self, given_up) = (false, true);
        }
        if let Some(id) = found {
            let object = &mut shared.pools.targets[id];
            if object.lock == LockState::Collective && object.evict {
                // Of a fence epoch that a death ended: it goes when its answers have come.
                self.work(shared, host, id);
                return Ok(Room::Wait);
            }
            if object.closing.is_none() && !given_up {
                return Err(Trouble::Misuse("the target is locked already"));
            }
            // Its unlock was given up while it was waited for. What went wrong was told then.
            if self.unlock(shared, host, rank).is_pending() {
                return Ok(Room::Wait);
            }
        }
        let Some(id) = self.open_lock(shared, rank, kind, no_check) else {
            return Ok(Room::NoTarget);
        };
        self.locks += 1;
        shared.locks += 1;
        if rank == self.me {
            self.locking_self = true;
            return Ok(self.lock_self(shared, host, Some(id)));
        }
        self.work(shared, host, id);
        Ok(Room::Done)
    }

    fn lock_self<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Option<Id>) -> Room {
        // Without an object it has been cleaned up, after the grant.
        if let Some(id) = id.filter(|id| shared.pools.targets[*id].lock != LockState::Granted) {
            self.push(shared, host, id);
            return Room::Wait;
        }
        self.locking_self = false;
        Room::Done
    }

    /// Waits for the lock of `rank`; who had died with it, as often as it is asked for.
    pub fn locked<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Poll<Result<Option<u32>, Trouble>> {
        if self.dead.contains(rank) {
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        let granted = |shared: &Shared, id: Id| shared.pools.targets[id].lock == LockState::Granted;
        // Without an object it has been cleaned up, after the grant.
        let waiting = |window: &Window, shared: &Shared| {
            window.table.target(&shared.pools, rank).filter(|id| !granted(shared, *id))
        };
        if let Some(id) = waiting(self, shared) {
            shared.pools.targets[id].push = true;
            self.work(shared, host, id);
        }
        if waiting(self, shared).is_some() {
            return Poll::Pending;
        }
        let lost = self.recovered.iter().find(|(target, _)| *target == rank);
        Poll::Ready(Ok(lost.map(|(_, lost)| *lost)))
    }

    /// Closes a lock epoch.
    pub fn unlock<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Poll<Result<(), Trouble>> {
        if self.locks == 0 {
            return Poll::Ready(Err(Trouble::Misuse("no lock epoch is open")));
        }
        self.recovered.retain(|(target, _)| *target != rank);
        if self.dead.contains(rank) {
            self.unlocked(shared);
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        if self.table.target(&shared.pools, rank).is_none() {
            // Cleaned up: everything is done, the lock is held.
            let riders = super::Riders { unlock: true, ..super::Riders::default() };
            let message = super::Message::Control { seq: 0, riders };
            if shared.send(host, self.id, rank, &message) == super::Sent::Full {
                return Poll::Pending;
            }
            self.unlocked(shared);
            return self.outcome(None);
        }
        let (mut closed, mut trouble) = (false, None);
        if let Some(id) = self.table.target(&shared.pools, rank) {
            (closed, trouble) = self.close_target(shared, host, id, Closing::Unlock);
        }
        if !closed {
            return Poll::Pending;
        }
        self.unlocked(shared);
        self.outcome(trouble)
    }

    /// Ends the lock and lock-all epochs whose ends, or beginnings, the program has given up when
    /// a deadline passed, before an epoch of another kind begins; what went wrong in them was told
    /// then. The rules of epochs see to it that no others are open.
    pub fn end_given_up<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        if self.all.is_some() && self.close_all(shared, host).is_pending() {
            return Poll::Pending;
        }
        let mut left = Vec::new();
        if self.locks > 0 {
            self.each_target(shared, |_, shared, id| {
                let TargetObject { lock, rank, .. } = shared.pools.targets[id];
                left.extend((lock != LockState::Collective).then_some(rank));
            });
            self.locking_self = false;
        }
        let mut over = true;
        for rank in left {
            over &= self.unlock(shared, host, rank).is_ready();
        }
        match (over, self.locks) {
            (false, _) => Poll::Pending,
            (true, 0) => Poll::Ready(Ok(())),
            // Of ranks that have died since.
            _ if self.first_dead().is_some() => {
                shared.locks -= std::mem::take(&mut self.locks);
                Poll::Ready(Ok(()))
            }
            // Not known any more whose: its unlock found no room in an inbox for so long.
            _ => Poll::Ready(Err(Trouble::Misuse(STILL_LOCKED))),
        }
    }

    fn unlocked(&mut self, shared: &mut Shared) {
        self.locks -= 1;
        shared.locks -= 1;
    }

    /// Works towards the end of the epoch at one target; whether it has come, and what went
    /// wrong.
    fn close_target<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        id: Id,
        closing: Closing,
    ) -> (bool, Option<Trouble>) {
        let eager = shared.limits.issuing == Issuing::Eager;
        let object = &mut shared.pools.targets[id];
        if object.closing.is_none() {
            let unused = object.posted == 0
                && matches!(object.lock, LockState::Unasked | LockState::Retry(_))
                && !eager;
            let nothing = closing == Closing::Unlock && (unused || object.no_check);
            object.closing = Some(if nothing { Closing::Nothing } else { closing });
            object.ack_at = match closing {
                Closing::Unlock => object.posted,
                _ => object.ack_at,
            };
        }
        if !shared.pools.targets[id].closed() {
            self.work(shared, host, id);
        }
        let object = &shared.pools.targets[id];
        if !object.closed() {
            return (false, None);
        }
        let rank = object.rank;
        if object.closing == Some(Closing::Complete) {
            self.left(rank);
        }
        (true, self.drop_target(shared, id))
    }

    /// The same at all targets; the first thing that went wrong.
    pub fn close_targets<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        closing: impl Fn(u32) -> Closing,
    ) -> Option<Trouble> {
        let mut trouble = None;
        self.each_target(shared, |window, shared, id| {
            let closing = closing(shared.pools.targets[id].rank);
            let (_, wrong) = window.close_target(shared, host, id, closing);
            trouble = trouble.or(wrong);
        });
        trouble
    }

    /// Sends everything for `rank`, and waits until it is done there.
    pub fn flush<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Poll<Result<(), Trouble>> {
        if self.dead.contains(rank) {
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        self.flush_one(shared, host, rank);
        // Operations without objects are not told apart by target.
        if !self.direct_done() {
            return Poll::Pending;
        }
        let mut trouble = None;
        if let Some(id) = self.table.target(&shared.pools, rank) {
            let object = &mut shared.pools.targets[id];
            if !object.remote_complete() {
                return Poll::Pending;
            }
            trouble = object.trouble.take();
        }
        self.outcome(trouble)
    }

    fn flush_one<H: Host>(&mut self, shared: &mut Shared, host: &mut H, rank: u32) {
        if let Some(id) = self.table.target(&shared.pools, rank) {
            let object = &mut shared.pools.targets[id];
            if !object.remote_complete() {
                object.ack_at = object.posted;
                object.push = true;
                self.work(shared, host, id);
            }
        }
    }

    /// Sends everything, asking for acknowledgement.
    pub fn flush_targets<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        self.each_target(shared, |window, shared, id| {
            let rank = shared.pools.targets[id].rank;
            window.flush_one(shared, host, rank);
        });
    }

    /// Sends everything to everybody, and waits until it is done there.
    pub fn flush_all<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        self.flush_targets(shared, host);
        let mut done = true;
        self.each_target(shared, |_, shared, id| {
            done &= shared.pools.targets[id].remote_complete();
        });
        if !done || !self.direct_done() {
            return Poll::Pending;
        }
        let mut trouble = None;
        self.each_target(shared, |_, shared, id| {
            trouble = trouble.or(shared.pools.targets[id].trouble.take());
        });
        self.outcome(trouble)
    }

    /// Sends what `rank` is to give data for, and waits for the data. Everything else is copied
    /// or sent, so that the program may use its memory again.
    pub fn flush_local<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Poll<Result<(), Trouble>> {
        if self.dead.contains(rank) {
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        match self.table.target(&shared.pools, rank) {
            Some(id) if self.fetch(shared, host, id) => Poll::Pending,
            _ if self.direct_done() => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    /// The same for all targets.
    pub fn flush_local_all<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        let mut waits = false;
        self.each_target(shared, |window, shared, id| waits |= window.fetch(shared, host, id));
        if waits || !self.direct_done() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Whether data is still to come from a target; then everything for it goes out.
    fn fetch<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) -> bool {
        let waits = shared.pools.targets[id].tokens > 0;
        if waits {
            self.push(shared, host, id);
        }
        waits
    }

    /// Sends everything for a target as soon as that can be.
    pub fn push<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) {
        shared.pools.targets[id].push = true;
        self.work(shared, host, id);
    }
}
