//! Taking locks at their origin.
//!
//! ```text
//!   lock     process has no other lock epoch   open at once: the lock is asked for when the first
//!                                              operations go out, or comes with a single one
//!            else, and on the own part         asked for now; open when it is granted
//!   lock_all likewise: part by part, or all parts now
//! ```
//! What is open without being granted is the process's only one of that kind ([`Shared::open`]),
//! and any other acquisition waits for it first: so locks are taken in the order of the calls,
//! and no wait for a lock holds up the threads that hold others (see `reserve`). A lock that a call
//! waits for takes no object; nor does it when granted, until there are operations: it is *bare*.
//!
//! A call that was given up leaves its query, which cannot be taken back: the lock is given back as
//! soon as it is granted, unless the same call is made again before.

use super::engine::Engine;
use super::host::{Host, Sent};
use super::message::{Message, Query, Riders, WindowId};
use super::shared::{Open, Shared};
use super::table::{LockState, TargetObject};
use super::window::Window;
use super::{LockFlags, LockKind, Trouble};

/// A lock that a call waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    rank: u32,
    kind: LockKind,
    beside: bool,
    sent: bool,
    granted: bool,
    given_up: bool,
}

impl Window {
    /// Whether a lock epoch is open with `rank`.
    pub fn is_locked(&self, shared: &Shared, rank: u32) -> bool {
        let is_lock = |id| shared.pools.targets[id].lock != LockState::Collective;
        let target = self.table.target(&shared.pools, rank);
        self.bare.contains(rank) || target.is_some_and(is_lock)
    }

    /// Whether a lock epoch is open with `rank` in which, once it is granted, nobody else has access.
    pub fn is_alone(&self, shared: &Shared, rank: u32) -> bool {
        self.alone.contains(rank) && self.is_locked(shared, rank)
    }

    /// Opens a lock epoch; whether it is open.
    pub fn lock<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
        kind: LockKind,
        LockFlags { no_check, beside }: LockFlags,
    ) -> Result<bool, Trouble> {
        if rank >= self.size {
            return Err(Trouble::Misuse("the target is no member of the window's team"));
        }
        if self.dead.contains(rank) {
            return Err(Trouble::Dead(rank));
        }
        // A lock-all epoch that the caller has given up: no other can be open now.
        if self.all.is_some() && self.close_all(shared, host).is_pending() {
            return Ok(false);
        }
        if let Some(ask) = self.asking.iter_mut().find(|ask| ask.rank == rank) {
            // Another lock than that which was given up is asked for when that is over.
            ask.given_up = no_check || ask.kind != kind;
            let done = !ask.given_up && ask.granted;
            self.advance_asking(shared, host);
            if done {
                self.asking.retain(|ask| ask.rank != rank);
                self.bare.insert(rank);
            }
            return Ok(done);
        }
        if let Some(id) = self.table.target(&shared.pools, rank) {
            let object = &shared.pools.targets[id];
            if object.lock == LockState::Collective && object.evict {
                // Of a fence epoch that a death ended: it goes when its answers have come.
                self.work(shared, host, id);
                return Ok(false);
            }
            if object.closing.is_none() {
                return Err(Trouble::Misuse("the target is locked already"));
            }
            // Its unlock was given up while it was waited for. What went wrong was told then.
            if self.unlock(shared, host, rank).is_pending() {
                return Ok(false);
            }
        } else if self.bare.contains(rank) && self.unlock(shared, host, rank).is_pending() {
            // Likewise.
            return Ok(false);
        }
        if kind == LockKind::Exclusive {
            self.alone.insert(rank);
        }
        let first = shared.locks == 0;
        if self.locks == 0 {
            self.age = self.queries.clock();
        }
        self.locks += 1;
        shared.locks += 1;
        let state = if no_check { LockState::Granted } else { LockState::Unasked };
        let mut object = TargetObject::new(self.id, rank, state, kind);
        object.no_check = no_check;
        if no_check && self.add_target(shared, object).is_none() {
            self.bare.insert(rank);
        }
        if no_check {
            return Ok(true);
        }
        if first
            && rank != self.me
            && let Some(id) = self.add_target(shared, object)
        {
            shared.open = Some((self.id, Open::Lock(rank)));
            self.work(shared, host, id);
            return Ok(true);
        }
        let ask = Ask { rank, kind, beside, sent: false, granted: false, given_up: false };
        self.asking.push(ask);
        self.advance_asking(shared, host);
        Ok(false)
    }

    /// Asks for the locks that calls wait for, and gives those back for which none does any more.
    pub fn advance_asking<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        let mut at = 0;
        while let Some(&ask) = self.asking.get(at) {
            let riders = Riders { unlock: true, ..Riders::default() };
            let message = match (ask.sent, ask.granted, ask.given_up) {
                (false, _, false) => {
                    Message::Lock(Query { kind: ask.kind, age: self.age, beside: ask.beside })
                }
                (true, true, true) => Message::Control { seq: 0, riders },
                (false, _, true) => {
                    self.stop_asking(shared, at);
                    continue;
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            match shared.send(host, self.id, ask.rank, &message) {
                Sent::Full => {
                    self.again = true;
                    at += 1;
                }
                Sent::Yes if !ask.sent => {
                    self.asking[at].sent = true;
                    at += 1;
                }
                // The news of a death ends what waits.
                Sent::Gone if !ask.sent => at += 1,
                Sent::Yes | Sent::Gone => self.stop_asking(shared, at),
            }
        }
    }

    fn stop_asking(&mut self, shared: &mut Shared, at: usize) {
        let ask = self.asking.swap_remove(at);
        self.alone.remove(ask.rank);
        self.recovered.retain(|(target, _)| *target != ask.rank);
        self.locks -= 1;
        shared.locks -= 1;
    }

    /// A grant has come; whether it is one that a call waits for, or waited for.
    pub fn ask_granted<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        recovered: Option<u32>,
    ) -> bool {
        let waits = |ask: &&mut Ask| ask.rank == from && ask.sent && !ask.granted;
        let Some(ask) = self.asking.iter_mut().find(waits) else { return false };
        ask.granted = true;
        self.recovered.extend(recovered.map(|lost| (from, lost)));
        self.advance_asking(shared, host);
        true
    }

    /// Whether a call waits, or waited, for the lock of `rank`.
    pub fn is_asking(&self, rank: u32) -> bool {
        self.asking.iter().any(|ask| ask.rank == rank && ask.sent && !ask.granted)
    }

    /// The call for the lock of `rank` is given up.
    pub fn give_ask_up<H: Host>(&mut self, shared: &mut Shared, host: &mut H, rank: u32) {
        let asks = self.asking.iter_mut().filter(|ask| ask.rank == rank);
        asks.for_each(|ask| ask.given_up = true);
        self.advance_asking(shared, host);
    }

    /// All such calls have been given up.
    pub fn give_asks_up<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        self.asking.iter_mut().for_each(|ask| ask.given_up = true);
        self.advance_asking(shared, host);
    }

    /// `rank` is dead: calls for its lock fail.
    pub fn bury_asking(&mut self, shared: &mut Shared, rank: u32) {
        self.bare.remove(rank);
        if let Some(at) = self.asking.iter().position(|ask| ask.rank == rank) {
            self.stop_asking(shared, at);
        }
    }
}

impl Engine {
    /// Whether an epoch of an exclusive lock of `target` is open.
    pub fn is_alone(&self, id: WindowId, target: u32) -> bool {
        let window = self.windows.get(&id);
        window.is_some_and(|window| window.is_alone(&self.shared, target))
    }

    /// Whether another lock may be asked for now. Sees to it that it soon may. An epoch that
    /// `call` says is being opened by the caller is not waited for.
    pub(super) fn may_acquire<H: Host>(&mut self, host: &mut H, call: (WindowId, Open)) -> bool {
        let Some((id, open)) = self.shared.open else { return true };
        let shared = &mut self.shared;
        let Some(window) = self.windows.get_mut(&id).filter(|_| (id, open) != call) else {
            return true;
        };
        let complete = match open {
            Open::Lock(rank) => match window.table.target(&shared.pools, rank) {
                Some(object) => {
                    let found = &mut shared.pools.targets[object];
                    let held = matches!(found.lock, LockState::Granted | LockState::Collective);
                    if !held && !found.closed() {
                        found.push |= found.closing.is_none();
                        window.work(shared, host, object);
                    }
                    held || shared.pools.targets.get(object).is_none_or(TargetObject::closed)
                }
                None => true,
            },
            Open::All => window.complete_all(shared, host),
        };
        if complete {
            self.shared.open = None;
        }
        self.activate(id);
        complete
    }
}
