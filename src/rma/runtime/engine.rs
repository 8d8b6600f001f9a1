//! The engine: calls and messages go in here.

use super::counters::Counters;
use super::fence::FenceFlags;
use super::give::Given;
use super::host::{Host, Sent};
use super::limits::Limits;
use super::message::{Class, Message, WindowId};
use super::shared::{Open, Shared};
use super::window::Window;
use super::{Handled, LockFlags, LockKind, Trouble};
use crate::base::keys::ByNumber;
use std::collections::VecDeque;
use std::task::Poll;

/// One-sided operations of one process on all its packet windows.
///
/// Calls do not block. [`Poll::Pending`] means: hand in the messages that have arrived, call
/// [`Engine::progress`], and make the same call again until it is ready. Ranks are those of the
/// window's team.
///
/// Memory: the pools that [`Limits`] fixes, whatever the number of operations, peers and queries;
/// per window a table of [`Limits::slots`] entries, up to sixteen bits per rank for those kinds of
/// epochs that are used, and, for teams up to [`Limits::reduce_teams`], two numbers per rank; per
/// thread that waits for a lock, a few words. That the pools are enough, however small: `reserve`.
#[derive(Debug)]
pub struct Engine {
    pub(super) shared: Shared,
    pub(super) windows: ByNumber<WindowId, Window>,
    /// Windows with work that no message will announce (paper 001 §3.4.5). The others are
    /// inactive.
    pub(super) active: VecDeque<WindowId>,
}

pub(super) type Answer<T> = Poll<Result<T, Trouble>>;

pub(super) const NO_WINDOW: Trouble = Trouble::Misuse("there is no such window");

impl Engine {
    /// Takes all the memory that its pools will ever have.
    pub fn new(limits: Limits) -> Engine {
        let shared = Shared::new(limits.usable());
        Engine { shared, windows: ByNumber::default(), active: VecDeque::new() }
    }

    /// Makes a window known, before any member can send messages about it.
    pub fn add_window(&mut self, id: WindowId, me: u32, size: u32) {
        let slots = self.shared.limits.slots;
        self.windows.entry(id).or_insert_with(|| Window::new(id, me, size, slots));
    }

    /// Forgets a window, after all members have ended their epochs. What it had in the pools is
    /// given back, whatever state it is in.
    pub fn remove_window<H: Host>(&mut self, host: &mut H, id: WindowId) {
        if let Some(mut window) = self.windows.remove(&id) {
            window.clear(&mut self.shared, host);
            self.active.retain(|active| *active != id);
        }
    }

    /// What has been done so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The bounds in force.
    #[cfg(test)]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Bytes in the pools, used or not; constant.
    pub fn pool_bytes(&self) -> usize {
        self.shared.pools.bytes()
    }

    /// Operations sent and not known to be done.
    pub fn outstanding(&self) -> u64 {
        self.shared.outstanding
    }

    fn is_ending(&self, id: WindowId) -> bool {
        self.windows.get(&id).is_some_and(Window::is_ending)
    }

    /// Runs a call on a window and sees to it that progress goes on where it must.
    pub(super) fn on<T>(
        &mut self,
        id: WindowId,
        call: impl FnOnce(&mut Window, &mut Shared) -> Answer<T>,
    ) -> Answer<T> {
        let Some(window) = self.windows.get_mut(&id) else { return Poll::Ready(Err(NO_WINDOW)) };
        let answer = call(window, &mut self.shared);
        // A call that must be made again may wait for the transport.
        if window.again || answer.is_pending() {
            self.activate(id);
        }
        answer
    }

    /// Gives an operation on `target`: `body` is what [`Host::perform`] will get there; `token`
    /// says that data is to come back, for [`Host::data`]. Ready means that `body` has been
    /// copied or sent. Pending means that there is no room: nothing has been done.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if the target is dead, [`Trouble::Misuse`] outside an epoch.
    pub fn operate<H: Host>(
        &mut self,
        host: &mut H,
        id: WindowId,
        target: u32,
        body: &[u8],
        token: Option<u64>,
    ) -> Answer<()> {
        for attempt in 0..2 {
            let Some(window) = self.windows.get_mut(&id) else {
                return Poll::Ready(Err(NO_WINDOW));
            };
            let given = window.operate(&mut self.shared, host, target, body, token);
            let again = window.again;
            if again {
                self.activate(id);
            }
            match given {
                Err(trouble) => return Poll::Ready(Err(trouble)),
                Ok(Given::Done) => return Poll::Ready(Ok(())),
                Ok(Given::Later) => break,
                Ok(_) if attempt > 0 => break,
                Ok(Given::NoTarget) => self.make_target(host, id),
                Ok(Given::NoOperation) => self.make_operation(host),
            }
        }
        self.shared.counters.blocked += 1;
        self.make_outstanding(host);
        self.activate(id);
        Poll::Pending
    }

    /// Opens a lock epoch with `target`. Ready does not mean that the lock is granted, unless the
    /// target is this rank, or other lock epochs are open; see [`Engine::locked`]. Several are
    /// acquired in the order in which the program asks. A call that is not made again is to be given
    /// up by [`Engine::give_lock_up`].
    ///
    /// # Errors
    /// As [`Engine::operate`].
    pub fn lock<H: Host>(
        &mut self,
        host: &mut H,
        id: WindowId,
        target: u32,
        kind: LockKind,
        flags: LockFlags,
    ) -> Answer<()> {
        let waits = !self.may_acquire(host, (id, Open::Lock(target))) || self.is_ending(id);
        self.on(id, |window, shared| {
            if waits && !window.dead.contains(target) {
                return Poll::Pending;
            }
            match window.lock(shared, host, target, kind, flags) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(trouble) => Poll::Ready(Err(trouble)),
            }
        })
    }

    /// Gives up a call of [`Engine::lock`] that was not ready: the lock is given back as soon as it
    /// is granted.
    pub fn give_lock_up<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) {
        if let Some(window) = self.windows.get_mut(&id) {
            window.give_ask_up(&mut self.shared, host, target);
            self.activate(id);
        }
    }

    /// Asks for the lock of an open lock epoch and waits for it. Tells which rank died with the
    /// exclusive lock since it was last granted exclusively.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if the target is dead.
    pub fn locked<H: Host>(
        &mut self,
        host: &mut H,
        id: WindowId,
        target: u32,
    ) -> Answer<Option<u32>> {
        self.on(id, |window, shared| window.locked(shared, host, target))
    }

    /// Ends a lock epoch: all its operations are done at the target.
    ///
    /// # Errors
    /// What went wrong in the epoch; it is over all the same.
    pub fn unlock<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) -> Answer<()> {
        self.on(id, |window, shared| window.unlock(shared, host, target))
    }

    /// Opens a lock-all epoch; ready when this rank has its own lock, or, while other lock epochs of
    /// the process are open, all locks.
    ///
    /// # Errors
    /// [`Trouble::Misuse`] for an unknown window.
    pub fn lock_all<H: Host>(&mut self, host: &mut H, id: WindowId, no_check: bool) -> Answer<()> {
        let waits = !no_check && !self.may_acquire(host, (id, Open::All));
        self.on(id, |window, shared| match waits || window.is_ending() {
            true => Poll::Pending,
            false => window.open_all(shared, host, no_check),
        })
    }

    /// Ends a lock-all epoch: all its operations are done everywhere.
    ///
    /// # Errors
    /// What went wrong in the epoch; it is over all the same.
    pub fn unlock_all<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.close_all(shared, host))
    }

    /// All operations on `target` are done there.
    ///
    /// # Errors
    /// What went wrong since the last time that was asked.
    pub fn flush<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) -> Answer<()> {
        self.on(id, |window, shared| window.flush(shared, host, target))
    }

    /// All operations are done at their targets.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn flush_all<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.flush_all(shared, host))
    }

    /// The data of all operations on `target` is here.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if the target is dead.
    pub fn flush_local<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) -> Answer<()> {
        self.on(id, |window, shared| window.flush_local(shared, host, target))
    }

    /// The data of all operations is here.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if that cannot be known any more.
    pub fn flush_local_all<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.flush_local_all(shared, host))
    }

    /// Sends the operations on `target` as soon as the synchronisation allows it, the last one
    /// too. For a caller that waits for what one of them brings about.
    pub fn push<H: Host>(&mut self, host: &mut H, id: WindowId, target: u32) {
        let Some(window) = self.windows.get_mut(&id) else { return };
        if let Some(object) = window.table.target(&self.shared.pools, target) {
            window.push(&mut self.shared, host, object);
        }
        if window.again {
            self.activate(id);
        }
    }

    /// Whether everything given for `target` has been sent, and will not have to be sent again.
    pub fn pushed(&self, id: WindowId, target: u32) -> bool {
        let pools = &self.shared.pools;
        let window = self.windows.get(&id);
        let object = window.and_then(|window| window.table.target(pools, target));
        object.is_none_or(|object| pools.targets[object].sent())
    }

    /// A fence: ends the fence epoch, if there is one, and begins the next.
    ///
    /// # Errors
    /// What went wrong in the epoch, or [`Trouble::Dead`] if a member is dead.
    pub fn fence<H: Host>(&mut self, host: &mut H, id: WindowId, flags: FenceFlags) -> Answer<()> {
        self.on(id, |window, shared| match window.is_ending() {
            true => Poll::Pending,
            false => window.fence(shared, host, flags),
        })
    }

    /// Opens an exposure epoch to `ranks`.
    ///
    /// # Errors
    /// [`Trouble::Misuse`] if one is open or the group is none.
    pub fn post<H: Host>(
        &mut self,
        host: &mut H,
        id: WindowId,
        ranks: &[u32],
        no_check: bool,
    ) -> Answer<()> {
        self.on(id, |window, shared| Poll::Ready(window.post(shared, host, ranks, no_check)))
    }

    /// Opens an access epoch to `ranks`; waits only for what [`Engine::give_up`] has left.
    ///
    /// # Errors
    /// As [`Engine::post`].
    pub fn start(&mut self, id: WindowId, ranks: &[u32], no_check: bool) -> Answer<()> {
        self.on(id, |window, _| match window.is_ending() {
            true => Poll::Pending,
            false => Poll::Ready(window.start(ranks, no_check)),
        })
    }

    /// Ends lock and lock-all epochs that were given up while they were waited for, before an
    /// access epoch begins. The other calls that begin epochs do so themselves.
    ///
    /// # Errors
    /// [`Trouble::Misuse`] for one that cannot be told any more.
    pub fn end_given_up<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.end_given_up(shared, host))
    }

    /// Ends the access epoch: all its operations are sent and their data is here.
    ///
    /// # Errors
    /// What went wrong in the epoch; it is over all the same.
    pub fn complete<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.complete(shared, host))
    }

    /// Does what [`Engine::complete`] does first: if a member of the access epoch's group is dead,
    /// gives up towards those that have not posted. For a caller that has to wait for others before
    /// it completes.
    pub fn give_up_for_dead<H: Host>(&mut self, host: &mut H, id: WindowId) {
        if let Some(window) = self.windows.get_mut(&id) {
            window.give_up_for_dead(&mut self.shared, host);
        }
    }

    /// Gives up the end of an access epoch towards those that have not posted, and returns them:
    /// what was given for them is dropped, their posts are for the next access epoch. What was given
    /// for the others is done, and they are told of the end, without further calls.
    pub fn give_up<H: Host>(&mut self, host: &mut H, id: WindowId) -> Vec<u32> {
        let Some(window) = self.windows.get_mut(&id) else { return Vec::new() };
        let late = window.give_up(&mut self.shared, host);
        self.activate(id);
        late
    }

    /// Origins that the exposure epoch waits for.
    pub fn awaited(&self, id: WindowId) -> Vec<u32> {
        self.windows.get(&id).map_or_else(Vec::new, Window::awaited)
    }

    /// Ends the exposure epoch: all operations of the group are done here. Asked once, it is
    /// `test`.
    ///
    /// # Errors
    /// [`Trouble::Dead`] if a member of the group died before it had completed, or gave up because
    /// of that death.
    pub fn wait<H: Host>(&mut self, host: &mut H, id: WindowId) -> Answer<()> {
        self.on(id, |window, shared| window.wait(shared, host))
    }

    /// Sends a note: what arrives at `to` is given to its [`Host::note`], after the notes and
    /// answers sent before. Needs no epoch. [`Sent::Full`] means that nothing has been done.
    pub fn note<H: Host>(&mut self, host: &mut H, id: WindowId, to: u32, body: &[u8]) -> Sent {
        let known = self.windows.get(&id).is_some_and(|window| to < window.size);
        if known { self.shared.send(host, id, to, &Message::Note { body }) } else { Sent::Gone }
    }

    /// A message has arrived.
    pub fn handle<H: Host>(
        &mut self,
        host: &mut H,
        id: WindowId,
        from: u32,
        message: &Message<'_>,
    ) -> Handled {
        let Some(window) = self.windows.get_mut(&id).filter(|window| from < window.size) else {
            self.shared.counters.strays += 1;
            return Handled::Done;
        };
        let mut handled = Handled::Done;
        match message.class() {
            Class::Request => {
                handled = window.handle_request(&mut self.shared, host, from, message);
            }
            Class::Reply if !window.due(message) => handled = Handled::Nonsense,
            Class::Reply => {
                if !window.handle_reply(&mut self.shared, host, from, message) {
                    self.shared.counters.strays += 1;
                }
                window.again |= window.is_ending();
            }
        }
        if window.again || handled == Handled::Busy {
            self.activate(id);
        }
        if handled == Handled::Nonsense {
            self.shared.counters.strays += 1;
        }
        handled
    }

    /// Fence epochs of a window that have been ended.
    pub fn fences(&self, id: WindowId) -> u64 {
        self.windows.get(&id).map_or(0, |window| window.fence.ended())
    }

    /// Whether a window waits for what only `rank` could bring, and will not: it is out of the window,
    /// after so many fence epochs, and all that it had sent has been handed in.
    pub fn misses(&self, id: WindowId, rank: u32, fences: u64) -> bool {
        self.windows.get(&id).is_some_and(|window| {
            let known = window.dead.contains(rank);
            let shared = &self.shared;
            let misses = window.fence.misses(fences)
                || window.misses_word(shared, rank)
                || window.misses_answer(shared, rank);
            !known && misses
        })
    }

    /// A member of a window is dead.
    pub fn peer_dead<H: Host>(&mut self, host: &mut H, id: WindowId, rank: u32) {
        let Some(window) = self.windows.get_mut(&id) else { return };
        window.bury(&mut self.shared, host, rank);
        self.activate(id);
    }
}
