//! Access without operations: an origin that has a target's part mapped works on it itself, at the
//! times at which operations of the open epoch could be performed there.
//!
//! ```text
//!   lock       the lock is granted                 access   the target has posted
//!   lock_all   the same, asked for now             fence    the opening barrier is over
//! ```
//! So what is direct keeps the order in which epochs put what comes by packets: before the lock is
//! granted, the post has come, or all have ended the fence epoch before, a part may still be changed
//! by packets of others. The end of an epoch is told in the same messages as ever; whoever calls for
//! it has completed by then what was direct.

use super::Trouble;
use super::engine::{Answer, Engine, NO_WINDOW};
use super::give::Given;
use super::host::Host;
use super::message::WindowId;
use super::shared::Shared;
use super::table::LockState;
use super::window::{Regime, Window};
use std::task::Poll;

impl Engine {
    /// Waits until this rank may access the part of `target` itself in the open epoch. It may until
    /// it calls for the end of that.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if that will not come any more because of a death; [`Trouble::Misuse`]
    /// outside an epoch.
    pub fn reach<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) -> Answer<()> {
        let Some(window) = self.windows.get_mut(&id) else { return Poll::Ready(Err(NO_WINDOW)) };
        match window.reach(&mut self.shared, host, target) {
            Ok(Given::Done) => Poll::Ready(Ok(())),
            Err(trouble) => Poll::Ready(Err(trouble)),
            Ok(given) => {
                if given == Given::NoTarget {
                    self.make_target(host, id);
                }
                self.activate(id);
                Poll::Pending
            }
        }
    }
}

impl Engine {
    /// Waits until what was given for `target` has been done there. What it refused is left for the
    /// next flush to tell.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if the target is dead.
    pub fn quiet<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) -> Answer<()> {
        self.on(id, |window, shared| window.quiet(shared, host, target))
    }
}

impl Window {
    fn reach<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
    ) -> Result<Given, Trouble> {
        if self.dead.contains(rank) {
            return Err(Trouble::Dead(rank));
        }
        let (open, trouble) = match self.regime() {
            Regime::None => (false, Some(Trouble::Misuse("no epoch is open"))),
            Regime::Fence => {
                let trouble = self.first_dead();
                if trouble.is_none() && self.fence.want_open() {
                    self.advance_opening(shared, host);
                }
                (self.fence.is_open(), trouble)
            }
            Regime::Access => {
                let access = self.access.as_ref();
                let open = access.is_some_and(|a| a.no_check) || self.posts.contains(rank);
                // Its post may never come: it has heard of the death, too.
                let died = access.and_then(|access| access.first_dead(&self.dead));
                (open, died.filter(|_| !open).map(Trouble::Dead))
            }
            Regime::Locks if !self.is_locked(shared, rank) => {
                (false, Some(Trouble::Misuse("this rank has not locked the target")))
            }
            Regime::Locks => match self.locked(shared, host, rank) {
                Poll::Ready(held) => (true, held.err()),
                Poll::Pending => (false, None),
            },
            Regime::LockAll => return Ok(self.reach_in_all(shared, host, rank)),
        };
        match trouble {
            Some(trouble) => Err(trouble),
            None if open => Ok(Given::Done),
            None => Ok(Given::Later),
        }
    }

    /// A lock-all epoch asks for the lock of a part with the first operation there; so it does with
    /// the first access.
    fn reach_in_all<H: Host>(&mut self, shared: &mut Shared, host: &mut H, rank: u32) -> Given {
        let Some(all) = &self.all else { return Given::Later };
        if all.has(rank) {
            return Given::Done;
        }
        let there = self.table.target(&shared.pools, rank);
        // Whoever has no target object when the window-wide protocol is on is asked by that.
        if there.is_none() && (all.is_wide() || all.asks(rank)) {
            return Given::Later;
        }
        let Some(id) = self.target(shared, rank, Regime::LockAll) else { return Given::NoTarget };
        shared.pools.targets[id].push = true;
        self.work(shared, host, id);
        // It may be cleaned up at once, and its lock kept by the epoch then.
        let there = self.table.target(&shared.pools, rank);
        let granted = there.is_some_and(|id| shared.pools.targets[id].lock == LockState::Granted);
        if granted || self.all.as_ref().is_some_and(|all| all.has(rank)) {
            Given::Done
        } else {
            Given::Later
        }
    }
}
