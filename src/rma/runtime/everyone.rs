//! Lock-all (paper 001 §3.4.2).
//!
//! *Per target*: opening does nothing but lock this rank's own part, which the program may use
//! with loads and stores; each other target is locked when the first operation goes there.
//! *Window-wide*: once target objects run out, every member is asked for its lock. From then on
//! an object may come and go without its lock, and an operation that finds none needs none: it
//! is answered by itself. A flush waits for all of these, whatever their target.

use super::give::Given;
use super::host::{Host, Sent};
use super::message::{Message, Query, Riders};
use super::ranks::Ranks;
use super::shared::{Open, Shared};
use super::table::Closing;
use super::window::Window;
use super::{LockKind, Trouble};
use std::task::Poll;

/// A lock-all epoch.
#[derive(Debug)]
pub(super) struct LockAll {
    no_check: bool,
    /// Asked for their lock without a target object; with those that own one, as long as not
    /// everybody has granted.
    asked: Ranks,
    granted: Ranks,
    /// The window-wide protocol is on.
    wide: bool,
    /// Everybody has granted.
    everyone: bool,
    /// Those below have been asked, or, at the end, told.
    cursor: u32,
    /// Operations sent without a target object and not answered.
    pub under_way: u64,
    closing: bool,
}

impl LockAll {
    pub fn new(size: u32, no_check: bool) -> LockAll {
        LockAll {
            no_check,
            asked: Ranks::new(size),
            granted: Ranks::new(size),
            wide: false,
            everyone: false,
            cursor: 0,
            under_way: 0,
            closing: false,
        }
    }

    /// This rank's lock at `rank`, had by a target object, is kept here from now on.
    pub fn owns(&mut self, rank: u32) {
        if self.has(rank) {
            return;
        }
        self.asked.insert(rank);
        self.granted.insert(rank);
    }

    /// A target object is gone that had not got the lock.
    pub fn lost(&mut self, rank: u32) {
        self.cursor = self.cursor.min(rank);
    }

    pub fn granted(&mut self, rank: u32) -> bool {
        self.asked.contains(rank) && self.granted.insert(rank)
    }

    /// Whether it waits for the lock of `rank` without a target object.
    pub fn asks(&self, rank: u32) -> bool {
        self.asked.contains(rank) && !self.granted.contains(rank)
    }

    /// Whether everybody is asked for its lock.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Whether it takes any lock.
    pub fn locks(&self) -> bool {
        !self.no_check
    }

    /// Whether it has all locks that it takes.
    pub fn is_complete(&self) -> bool {
        self.no_check || self.everyone
    }

    pub fn bury(&mut self, rank: u32) {
        self.owns(rank);
    }

    /// Whether the lock of `rank` is had, and not by a target object.
    pub fn has(&self, rank: u32) -> bool {
        self.no_check || self.everyone || self.granted.contains(rank)
    }
}

impl Window {
    /// Changes a lock-all epoch to the window-wide protocol.
    pub fn switch_wide(&mut self, shared: &mut Shared) {
        let Some(all) = &mut self.all else { return };
        if all.wide || all.no_check {
            return;
        }
        (all.wide, all.cursor) = (true, 0);
        shared.counters.wide_switches += 1;
        self.again = true;
        self.each_target(shared, |_, shared, id| shared.pools.targets[id].evict = true);
    }

    /// Sees to it that a lock-all epoch, if there is one, gets all its locks; whether it has, or is
    /// over. One that is being closed wants no more.
    pub fn complete_all<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> bool {
        if self.all.as_ref().is_some_and(|all| !all.closing) {
            self.switch_wide(shared);
            self.advance_everyone(shared, host);
        }
        self.all.as_ref().is_none_or(LockAll::is_complete)
    }

    /// Asks those for their lock that have to be asked.
    pub fn advance_everyone<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        let Some(all) = &mut self.all else { return };
        if all.no_check || all.everyone || all.closing && !all.wide {
            return;
        }
        // Without the window-wide protocol, only this rank itself.
        let (from, to) = if all.wide { (all.cursor, self.size) } else { (self.me, self.me + 1) };
        for rank in from..to {
            if self.dead.contains(rank) {
                all.owns(rank);
            }
            let skip = all.asked.contains(rank) || self.table.target(&shared.pools, rank).is_some();
            if !skip {
                let query = Query { kind: LockKind::Shared, age: self.age, beside: true };
                if shared.send(host, self.id, rank, &Message::Lock(query)) != Sent::Yes {
                    self.again = true;
                    return;
                }
                all.asked.insert(rank);
            }
            if all.wide {
                all.cursor = rank + 1;
            }
        }
        if all.wide && all.granted.count() == self.size {
            all.everyone = true;
            all.asked.clear();
            all.granted.clear();
        }
    }

    /// Sends an operation without a target object; nothing if it is to have one. One that was
    /// sent before does not come in the way of the order, nor does this: an object that there is
    /// gets it.
    pub fn operate_direct<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
        body: &[u8],
        token: Option<u64>,
    ) -> Option<Given> {
        let all = self.all.as_mut()?;
        if self.table.target(&shared.pools, rank).is_some() || all.no_check {
            return None;
        }
        let room = !shared.pools.targets.full();
        match (all.has(rank), all.wide) {
            (false, true) => return Some(Given::Later),
            (true, true) if !room => {}
            _ => return None,
        }
        if !shared.may_go_out() {
            return Some(Given::Later);
        }
        let Some(request) = shared.pools.request(self.id, rank, token) else {
            return Some(Given::Later);
        };
        let riders = Riders::default();
        let message =
            Message::Operation { seq: 0, request: Some(request), lock: None, riders, body };
        if shared.send(host, self.id, rank, &message) != Sent::Yes {
            shared.pools.answered(request, self.id, rank);
            return Some(Given::Later);
        }
        shared.pools.mark_direct(request);
        shared.went_out();
        shared.counters.operations_sent += 1;
        all.under_way += 1;
        Some(Given::Done)
    }

    /// Whether operations without target objects are done.
    pub fn direct_done(&self) -> bool {
        self.all.as_ref().is_none_or(|all| all.under_way == 0)
    }

    /// So many operations without target objects have been answered, or never will be.
    pub fn direct_answered(&mut self, shared: &mut Shared, count: u64) {
        if let Some(all) = &mut self.all {
            let count = count.min(all.under_way);
            all.under_way -= count;
            shared.outstanding -= count;
        }
    }

    /// `lock_all`: until this rank has its own share, or, if others of the process hold locks, all
    /// shares (see `acquire`).
    pub fn open_all<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        no_check: bool,
    ) -> Poll<Result<(), Trouble>> {
        let ends = self.all.as_ref().is_some_and(|all| all.closing);
        if ends || self.all.is_none() && self.locks > 0 {
            match self.end_given_up(shared, host) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        if self.all.is_none() {
            self.all = Some(LockAll::new(self.size, no_check));
            self.age = self.queries.clock();
            if !no_check {
                if shared.locks == 0 {
                    shared.open = Some((self.id, Open::All));
                }
                shared.locks += 1;
            }
        }
        let whole = shared.open != Some((self.id, Open::All));
        if whole {
            self.switch_wide(shared);
        }
        self.advance_everyone(shared, host);
        let got = |all: &LockAll| if whole { all.is_complete() } else { all.has(self.me) };
        match &self.all {
            Some(all) if !got(all) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// `unlock_all`, asked until it is done.
    pub fn close_all<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
    ) -> Poll<Result<(), Trouble>> {
        self.advance_everyone(shared, host);
        let Some(all) = &mut self.all else {
            return Poll::Ready(Err(Trouble::Misuse("no lock_all epoch is open")));
        };
        if all.wide && !all.everyone {
            // Those that have been asked will grant; objects go as they finish.
            self.each_target(shared, |window, shared, id| window.work(shared, host, id));
            return Poll::Pending;
        }
        if !std::mem::replace(&mut all.closing, true) {
            all.cursor = 0;
        }
        if !all.wide && all.asked.contains(self.me) && !all.has(self.me) {
            // Given up before it was open: the grant would find nobody to give it back.
            return Poll::Pending;
        }
        let wrong = self.close_targets(shared, host, |_| Closing::Unlock);
        self.trouble = self.trouble.or(wrong);
        if self.table.targets() > 0 || !self.direct_done() {
            return Poll::Pending;
        }
        let Some(all) = &mut self.all else { return Poll::Pending };
        while !all.no_check && all.cursor < self.size {
            let rank = all.cursor;
            if all.has(rank) && !self.dead.contains(rank) {
                let riders = Riders { unlock: true, ..Riders::default() };
                let message = Message::Control { seq: 0, riders };
                if shared.send(host, self.id, rank, &message) == Sent::Full {
                    return Poll::Pending;
                }
            }
            all.cursor += 1;
        }
        if self.all.take().is_some_and(|all| all.locks()) {
            shared.locks -= 1;
            if shared.open == Some((self.id, Open::All)) {
                shared.open = None;
            }
        }
        self.outcome(None)
    }
}
