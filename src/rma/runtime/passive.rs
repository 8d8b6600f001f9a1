//! Locks and flushes at their origin: calls that are asked until they are done.

use super::Trouble;
use super::host::Host;
use super::limits::Issuing;
use super::pools::Id;
use super::shared::{Open, Shared};
use super::table::{Closing, LockState, TargetObject};
use super::window::Window;
use std::task::Poll;

/// Why a call is refused after another was given up while it was waited for.
pub(super) const STILL_LOCKED: &str = "a lock, unlock or lock_all was given up while it was waited for and is not over: make that \
     call again (instead of an unlock, lock and unlock the target again)";

impl Window {
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
            self.unlocked(shared, rank);
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        if self.bare.contains(rank) {
            // Everything is done.
            let riders = super::Riders { unlock: true, ..super::Riders::default() };
            let message = super::Message::Control { seq: 0, riders };
            if shared.send(host, self.id, rank, &message) == super::Sent::Full {
                return Poll::Pending;
            }
            self.bare.remove(rank);
            self.unlocked(shared, rank);
            return self.outcome(None);
        }
        if !self.is_locked(shared, rank) {
            return Poll::Ready(Err(Trouble::Misuse("this rank has not locked the target")));
        }
        let (mut closed, mut trouble) = (false, None);
        if let Some(id) = self.table.target(&shared.pools, rank) {
            (closed, trouble) = self.close_target(shared, host, id, Closing::Unlock);
        }
        if !closed {
            return Poll::Pending;
        }
        self.unlocked(shared, rank);
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
        self.give_asks_up(shared, host);
        let mut left: Vec<u32> = self.bare.iter().collect();
        if self.locks > 0 {
            self.each_target(shared, |_, shared, id| {
                let TargetObject { lock, rank, .. } = shared.pools.targets[id];
                left.extend((lock != LockState::Collective).then_some(rank));
            });
        }
        let mut over = self.asking.is_empty();
        for rank in left {
            over &= self.unlock(shared, host, rank).is_ready();
        }
        match (over, self.locks) {
            (false, _) => Poll::Pending,
            (true, 0) => Poll::Ready(Ok(())),
            // Of ranks that have died since.
            _ => {
                shared.locks -= std::mem::take(&mut self.locks);
                self.alone.clear();
                Poll::Ready(Ok(()))
            }
        }
    }

    fn unlocked(&mut self, shared: &mut Shared, rank: u32) {
        self.alone.remove(rank);
        self.locks -= 1;
        shared.locks -= 1;
        if shared.open == Some((self.id, Open::Lock(rank))) {
            shared.open = None;
        }
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
            let unused = object.posted == 0 && object.lock == LockState::Unasked && !eager;
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

    /// As [`Window::flush`], and leaves what went wrong where it is.
    pub fn quiet<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Poll<Result<(), Trouble>> {
        if self.dead.contains(rank) {
            return Poll::Ready(Err(Trouble::Dead(rank)));
        }
        self.flush_one(shared, host, rank);
        let there = self.table.target(&shared.pools, rank);
        let done = there.is_none_or(|id| shared.pools.targets[id].remote_complete());
        if done && self.direct_done() { Poll::Ready(Ok(())) } else { Poll::Pending }
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
