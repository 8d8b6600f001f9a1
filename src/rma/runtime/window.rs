//! One window in the engine: its table, its lock, its epochs.

use super::acquire::Ask;
use super::collective::{Barriers, Reductions};
use super::everyone::LockAll;
use super::fence::Fence;
use super::host::Host;
use super::message::{Fault, Message, RequestId, WindowId};
use super::pools::{Id, Request};
use super::pscw::{Access, Exposure, Posts};
use super::queries::Queries;
use super::ranks::Ranks;
use super::reserve::Waiting;
use super::shared::Shared;
use super::table::{LockState, Table, TargetObject};
use super::{LockKind, Trouble};
use std::task::Poll;

/// What kind of epoch an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    None,
    Fence,
    Access,
    Locks,
    LockAll,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    pub id: WindowId,
    pub me: u32,
    pub size: u32,
    pub table: Table,
    pub queries: Queries,
    pub fence: Fence,
    pub barriers: Barriers,
    pub reductions: Reductions,
    pub access: Option<Access>,
    /// Ranks whose exposure epochs are open to this one, and what was given up towards others.
    pub posts: Posts,
    pub exposure: Exposure,
    /// Locks that the program holds, by `lock`.
    pub locks: u32,
    /// This rank's clock when the first of those was opened, or its lock-all epoch (see `line`).
    pub age: u64,
    /// Of targets that it holds: who died with the lock, as their grants told. Not in their
    /// objects, which may go before that is asked for.
    pub recovered: Vec<(u32, u32)>,
    /// Locks that calls wait for.
    pub asking: Vec<Ask>,
    /// Locks held without a target object.
    pub bare: Ranks,
    /// Those that are held, or asked for, are exclusive ones.
    pub alone: Ranks,
    pub all: Option<LockAll>,
    pub dead: Ranks,
    /// What went wrong and has not been told.
    pub trouble: Option<Trouble>,
    /// Operations and bytes in the collective epoch.
    pub operations: u64,
    pub bytes: u64,
    /// There is work that no message will announce.
    pub again: bool,
    /// It is on the list of active windows.
    pub active: bool,
}

impl Window {
    pub fn new(id: WindowId, me: u32, size: u32, slots: usize) -> Window {
        Window {
            id,
            me,
            size,
            table: Table::new(slots.min(size as usize).max(1)),
            queries: Queries::new(size),
            fence: Fence::new(size),
            barriers: Barriers::new(me, size),
            reductions: Reductions::new(me, size),
            access: None,
            posts: Posts::new(size),
            exposure: Exposure::new(size),
            locks: 0,
            age: 0,
            recovered: Vec::new(),
            asking: Vec::new(),
            bare: Ranks::new(size),
            alone: Ranks::new(size),
            all: None,
            dead: Ranks::new(size),
            trouble: None,
            operations: 0,
            bytes: 0,
            again: false,
            active: false,
        }
    }

    /// What an operation given now belongs to.
    pub fn regime(&self) -> Regime {
        if self.locks > 0 {
            Regime::Locks
        } else if self.all.is_some() {
            Regime::LockAll
        } else if self.access.is_some() {
            Regime::Access
        } else if self.fence.open {
            Regime::Fence
        } else {
            Regime::None
        }
    }

    /// The ids of all target objects, one after the other.
    pub fn each_target(
        &mut self,
        shared: &mut Shared,
        mut visit: impl FnMut(&mut Window, &mut Shared, Id),
    ) {
        let mut next = self.table.next_target(&shared.pools, None);
        while let Some(id) = next {
            next = self.table.next_target(&shared.pools, Some(id));
            visit(self, shared, id);
        }
    }

    /// The object of `rank`, made if there is none; nothing if there is no room.
    pub fn target(&mut self, shared: &mut Shared, rank: u32, regime: Regime) -> Option<Id> {
        if let Some(id) = self.table.target(&shared.pools, rank) {
            return Some(id);
        }
        let owned = regime == Regime::LockAll && self.all.as_ref().is_some_and(|a| a.has(rank));
        let lock = match regime {
            Regime::LockAll if owned => LockState::Granted,
            // The lock is held.
            Regime::Locks => LockState::Granted,
            Regime::LockAll => LockState::Unasked,
            _ => LockState::Collective,
        };
        let mut object = TargetObject::new(self.id, rank, lock, LockKind::Shared);
        object.no_check = owned;
        let id = self.add_target(shared, object)?;
        if regime == Regime::Locks {
            self.bare.remove(rank);
        }
        Some(id)
    }

    /// Makes an object, if there is room for one that is ready, or for one that waits.
    pub fn add_target(&mut self, shared: &mut Shared, mut object: TargetObject) -> Option<Id> {
        object.ready |= self.synchronised(&object);
        if !object.ready && !shared.waiting.may_take(&shared.limits) {
            return None;
        }
        let id = self.table.add_target(&mut shared.pools, object)?;
        shared.waiting.targets += usize::from(!object.ready);
        let used = shared.pools.targets.used() as u64;
        shared.counters.most_targets = shared.counters.most_targets.max(used);
        Some(id)
    }

    /// Whether operations can go to a target without waiting for anything.
    pub fn synchronised(&self, object: &TargetObject) -> bool {
        match (object.lock, &self.access) {
            (LockState::Granted, _) => true,
            (LockState::Collective, None) => self.fence.is_open(),
            (LockState::Collective, Some(access)) => {
                access.no_check || self.posts.contains(object.rank)
            }
            _ => false,
        }
    }

    /// What an object holds is not held by one that waits any more, if the word it waited for has
    /// come. Before anything of it is sent.
    pub fn note_ready(&mut self, shared: &mut Shared, id: Id) {
        let object = &shared.pools.targets[id];
        if !object.ready && self.synchronised(object) {
            self.set_ready(shared, id);
        }
    }

    fn set_ready(&mut self, shared: &mut Shared, id: Id) {
        let object = &mut shared.pools.targets[id];
        if !std::mem::replace(&mut object.ready, true) {
            shared.waiting.leave(Waiting::of(object));
        }
    }

    /// Frees an object; what went wrong with it is kept if nobody else takes it.
    pub fn drop_target(&mut self, shared: &mut Shared, id: Id) -> Option<Trouble> {
        let object = self.table.drop_target(&mut shared.pools, id)?;
        if !object.ready {
            shared.waiting.leave(Waiting::of(&object));
        }
        let mut lost = object.pending;
        lost.append(&mut shared.pools.operations, object.speculated);
        while let Some(kept) = lost.pop(&mut shared.pools.operations) {
            shared.pools.operations.give(kept);
        }
        shared.outstanding -= object.issued - object.acked;
        object.trouble
    }

    /// Gives objects that are to be cleaned up back as soon as they can be.
    pub fn settle(&mut self, shared: &mut Shared, id: Id) {
        let object = &shared.pools.targets[id];
        let held = match object.lock {
            LockState::Collective | LockState::Granted => true,
            LockState::Unasked => object.posted == 0 && self.locks == 0,
            _ => false,
        };
        if object.evict && object.closing.is_none() && held && object.remote_complete() {
            let (rank, lock, owned) = (object.rank, object.lock, object.no_check);
            shared.counters.clean_ups += 1;
            if let Some(trouble) = self.drop_target(shared, id) {
                self.trouble.get_or_insert(trouble);
            }
            match (&mut self.all, lock) {
                (Some(all), LockState::Granted) if !owned => all.owns(rank),
                (Some(_), LockState::Granted) => {}
                (Some(all), _) => {
                    all.lost(rank);
                    self.again = true;
                }
                (None, LockState::Granted) => _ = self.bare.insert(rank),
                (None, _) => {}
            }
        }
    }

    /// Sends what can be sent to a target.
    pub fn work<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) {
        self.note_ready(shared, id);
        if self.pump(shared, host, id) {
            self.again = true;
        }
        self.settle(shared, id);
    }

    /// All that can be done now without input (paper 001, figure 3.9: progress of a window).
    pub fn progress<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        self.again = false;
        if !self.advance_queries(shared, host) {
            self.again = true;
        }
        self.advance_exposure(shared, host);
        self.advance_posts(shared, host);
        self.advance_ending(shared, host);
        self.advance_opening(shared, host);
        self.advance_everyone(shared, host);
        self.advance_asking(shared, host);
        self.each_target(shared, |window, shared, id| window.work(shared, host, id));
    }

    /// A reply has arrived; false if it makes no sense.
    pub fn handle_reply<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        message: &Message<'_>,
    ) -> bool {
        match *message {
            Message::Answer { seq, acked, request, result } => {
                self.answer(shared, host, from, (seq, acked, request), result)
            }
            Message::Granted { recovered, clock } => {
                self.queries.heard(clock);
                self.granted(shared, host, from, recovered)
            }
            Message::Discarded { from: first } => self.discarded(shared, host, from, first),
            Message::Barrier { instance, round } => {
                let known = self.barriers.arrive(instance, round);
                self.advance_opening(shared, host);
                known
            }
            Message::Reduce { instance, round, counts } => {
                self.reductions.arrive(instance, round, counts)
            }
            Message::Post { number } => self.posted(shared, host, from, number),
            Message::GaveUp { number, died } => self.gave_up(from, number, died),
            Message::Note { body } => {
                host.note(self.id, from, body);
                true
            }
            _ => false,
        }
    }

    fn answer<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        (seq, acked, request): (u64, bool, Option<RequestId>),
        result: Result<&[u8], Fault>,
    ) -> bool {
        if self.dead.contains(from) {
            // Of one that lives, but dropped the window: what was under way has been told.
            return true;
        }
        let mut known = true;
        let mut trouble = result.err().map(|fault| Trouble::Remote(from, fault));
        if let Some(request) = request {
            match shared.pools.answered(request, self.id, from) {
                Some(Request { token: Some(token), direct, .. }) => {
                    self.direct_answered(shared, direct.into());
                    match (result, trouble.take()) {
                        (_, Some(trouble)) => host.failed(token, trouble),
                        (Ok(data), None) => host.data(token, data),
                        (Err(_), None) => {}
                    }
                }
                Some(Request { token: None, .. }) => self.direct_answered(shared, 1),
                None => known = false,
            }
        } else if let Err(fault) = result {
            host.refused(self.id, from, fault);
        }
        if seq == 0 {
            if let (Some(trouble), None) = (trouble, self.trouble) {
                self.trouble = Some(trouble);
            }
            return known;
        }
        let Some(id) = self.table.target(&shared.pools, from) else {
            // Late word of an operation whose completion nobody waits for.
            if let (Some(trouble), None) = (trouble, self.trouble) {
                self.trouble = Some(trouble);
            }
            return known;
        };
        let object = &mut shared.pools.targets[id];
        object.trouble = object.trouble.or(trouble);
        if request.is_some() && known {
            object.tokens = object.tokens.saturating_sub(1);
        }
        if acked && seq > object.acked && seq <= object.issued {
            shared.outstanding -= seq - object.acked;
            if !object.ready {
                shared.waiting.sent -= seq - object.acked;
            }
            object.acked = seq;
            if object.lock == LockState::Single {
                self.single_done(shared, id);
            }
        }
        self.work(shared, host, id);
        known
    }

    fn granted<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        recovered: Option<u32>,
    ) -> bool {
        let Some(id) = self.table.target(&shared.pools, from) else {
            return self.ask_granted(shared, host, from, recovered)
                || self.all.as_mut().is_some_and(|all| all.granted(from));
        };
        if shared.pools.targets[id].lock != LockState::Asked {
            return false;
        }
        shared.pools.targets[id].lock = LockState::Granted;
        self.note_ready(shared, id);
        let object = &mut shared.pools.targets[id];
        // Grants of a lock-all epoch tell nobody.
        let lost = recovered.filter(|_| self.all.is_none());
        self.recovered.extend(lost.map(|lost| (from, lost)));
        // Those that were discarded are back among the pending ones: the rest is done or queued.
        let mut done = std::mem::replace(&mut object.speculated, super::pools::List::EMPTY);
        while let Some(kept) = done.pop(&mut shared.pools.operations) {
            shared.pools.operations.give(kept);
        }
        self.work(shared, host, id);
        true
    }

    fn discarded<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        first: u64,
    ) -> bool {
        let Some(id) = self.table.target(&shared.pools, from) else {
            // Nothing was sent after it: its word is that it stands in line.
            return self.is_asking(from) || self.all.as_ref().is_some_and(|all| all.asks(from));
        };
        if !self.take_back(shared, id, first) {
            return false;
        }
        self.work(shared, host, id);
        true
    }

    /// Whether an answer of `rank` is waited for.
    pub fn misses_answer(&self, shared: &Shared, rank: u32) -> bool {
        let waits = |id: Id| {
            let object = &shared.pools.targets[id];
            let asked = matches!(object.lock, LockState::Asked | LockState::Single);
            // One that is closed is only to be noticed by the call that closes it.
            !object.closed() && (asked || object.closing.is_some() || !object.remote_complete())
        };
        self.table.target(&shared.pools, rank).is_some_and(waits)
            || self.is_asking(rank)
            || self.all.as_ref().is_some_and(|all| all.asks(rank))
            || shared.pools.awaits(self.id, rank)
    }

    /// The first rank known to be dead.
    pub fn first_dead(&self) -> Option<Trouble> {
        self.dead.first(0).map(Trouble::Dead)
    }

    /// `trouble`, or what else went wrong.
    pub fn outcome(&mut self, trouble: Option<Trouble>) -> Poll<Result<(), Trouble>> {
        match trouble.or_else(|| self.trouble.take()) {
            Some(trouble) => Poll::Ready(Err(trouble)),
            None => Poll::Ready(Ok(())),
        }
    }

    /// A member is dead: its locks are released, what was for it fails, waits for it end.
    pub fn bury<H: Host>(&mut self, shared: &mut Shared, host: &mut H, rank: u32) {
        if !self.dead.insert(rank) {
            return;
        }
        self.bury_origin(shared, rank);
        self.fail(shared, host, Some(rank));
        if let Some(all) = &mut self.all {
            all.bury(rank);
        }
        self.bury_exposure(rank);
        self.bury_asking(shared, rank);
        if self.fence.open {
            // No fence of this team can end any more, so what waits for one is in the way.
            self.fail(shared, host, None);
        }
        self.again = true;
    }

    /// Fails what is under way to `rank`, or what waits for a fence epoch to open. What has been
    /// sent in one is answered by those that live; till then its objects are kept, so that no
    /// answer meets another object.
    fn fail<H: Host>(&mut self, shared: &mut Shared, host: &mut H, rank: Option<u32>) {
        let trouble = rank.map(Trouble::Dead).or(self.first_dead());
        let Some(trouble) = trouble else { return };
        let mut lost: Vec<u32> = rank.into_iter().collect();
        let collective = self.access.is_none();
        self.each_target(shared, |window, shared, id| {
            let object = &mut shared.pools.targets[id];
            let of_fence = object.lock == LockState::Collective && collective;
            if rank.is_none() && of_fence && object.issued > 0 {
                (object.closing, object.told, object.evict) = (None, false, true);
                window.set_ready(shared, id);
            } else if rank.is_none() && of_fence {
                lost.push(object.rank);
            }
        });
        for rank in lost {
            self.discard(shared, host, rank, trouble);
        }
    }

    /// Forgets what was given for a target, and what is to come from it.
    pub fn discard<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
        trouble: Trouble,
    ) {
        if let Some(id) = self.table.target(&shared.pools, rank) {
            let pools = &shared.pools;
            let kept = pools.targets[id].pending.ids(&pools.operations);
            // Those that were sent have a request, which is abandoned below.
            for kept in kept.filter(|kept| pools.operations[*kept].request.is_none()) {
                match pools.operations[kept].token {
                    Some(token) => host.failed(token, trouble),
                    None => host.dropped(self.id, rank, pools.body(kept), trouble),
                }
            }
            self.drop_target(shared, id);
        }
        for Request { token, direct, .. } in shared.pools.abandon(self.id, Some(rank)) {
            self.direct_answered(shared, direct.into());
            if let Some(token) = token {
                host.failed(token, trouble);
            }
        }
        host.abandoned(self.id, rank, trouble);
    }

    /// The window goes: everything it has in the pools goes back.
    pub fn clear<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        self.each_target(shared, |window, shared, id| {
            let pools = &shared.pools;
            let kept = pools.targets[id].pending.ids(&pools.operations);
            // Those that were sent have a request, which is abandoned below.
            for kept in kept.filter(|kept| pools.operations[*kept].request.is_none()) {
                if let Some(token) = pools.operations[kept].token {
                    host.failed(token, Trouble::Misuse("the window was freed"));
                }
            }
            window.drop_target(shared, id);
        });
        self.drop_origins(shared);
        for Request { token, .. } in shared.pools.abandon(self.id, None) {
            if let Some(token) = token {
                host.failed(token, Trouble::Misuse("the window was freed"));
            }
        }
        shared.locks -= self.locks + u32::from(self.all.as_ref().is_some_and(LockAll::locks));
        shared.outstanding -= self.all.as_ref().map_or(0, |all| all.under_way);
        shared.forget(self.id);
    }
}
