//! Locks at their target: who holds this rank's lock of a window, and who waits for it (paper
//! 001 §3.4.2).
//!
//! A query that cannot be granted at once takes an *origin object* and stands in line (see `line`:
//! who is next, and who may overtake whom). With the origin objects used up, it stands
//! in line all the same, without one (see `crowd`).
//!
//! ```text
//!   a speculative operation arrives       (figure 3.7)
//!     its origin holds the lock   perform
//!     its query is queued         keep it in an operation object, or, with none left, discard
//!                                 it and all after it until the origin sends one that is not
//!                                 speculative
//!     its query is in the crowd   discard it likewise
//! ```
//!
//! Holders are known one by one, in one bit each: it tells what a rank that died has held.

use super::host::Host;
use super::line::{Line, Next};
use super::message::{Fault, Message, Query, RequestId, Riders};
use super::pools::{Id, List, NONE, OperationObject};
use super::ranks::Ranks;
use super::shared::{Owed, Shared};
use super::window::Window;
use super::{Handled, LockKind};
use std::task::Poll;

/// A peer that wants a lock here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OriginObject {
    pub origin: u32,
    pub chain: Id,
    pub kind: LockKind,
    /// It expects no word of the grant, or has got it.
    told: bool,
    /// Its speculative operations are discarded.
    dropping: bool,
    operations: List,
}

/// Who holds a lock.
#[derive(Debug)]
struct Holders {
    exclusive: Option<u32>,
    shared: Ranks,
}

impl Holders {
    fn free_for(&self, kind: LockKind) -> bool {
        self.exclusive.is_none() && (kind == LockKind::Shared || self.shared.is_empty())
    }

    fn contain(&self, rank: u32) -> bool {
        self.exclusive == Some(rank) || self.shared.contains(rank)
    }

    fn add(&mut self, rank: u32, kind: LockKind) {
        match kind {
            LockKind::Shared => {
                self.shared.insert(rank);
            }
            LockKind::Exclusive => self.exclusive = Some(rank),
        }
    }

    /// Takes one out; nothing happens if it is none: it asserted that it need not be, or came with
    /// its own lock.
    fn remove(&mut self, rank: u32) {
        if self.exclusive == Some(rank) {
            self.exclusive = None;
        } else {
            self.shared.remove(rank);
        }
    }
}

/// The lock of one window at this rank.
#[derive(Debug)]
pub(super) struct Queries {
    holders: Holders,
    /// Not granted.
    line: Line,
    /// Granted; to be told, and their operations to be performed.
    granted: List,
    /// The last holder of the exclusive lock that died with it, until the grant of an exclusive
    /// lock has told of it: whoever has that can repair what was left.
    recovered: Option<u32>,
}

impl Queries {
    pub fn new(size: u32) -> Queries {
        Queries {
            holders: Holders { exclusive: None, shared: Ranks::new(size) },
            line: Line::new(size),
            granted: List::EMPTY,
            recovered: None,
        }
    }

    /// Whom the grant of a lock tells of: all are told, up to and including the first that can
    /// repair what was left.
    fn lost_before(&mut self, kind: LockKind) -> Option<u32> {
        match kind {
            LockKind::Shared => self.recovered,
            LockKind::Exclusive => self.recovered.take(),
        }
    }

    /// What a grant tells.
    fn granted(&mut self, kind: LockKind) -> Owed {
        Owed::Granted { recovered: self.lost_before(kind), clock: self.clock() }
    }

    /// This rank's clock (see `line`).
    pub fn clock(&self) -> u64 {
        self.line.clock()
    }

    /// The clock of another rank.
    pub fn heard(&mut self, clock: u64) {
        self.line.heard(clock);
    }

    /// Something here waits for nothing but the transport.
    pub fn busy(&self) -> bool {
        !self.granted.is_empty() || !self.line.crowd.untold.is_empty()
    }

    #[cfg(test)]
    pub fn in_crowd(&self, rank: u32) -> bool {
        self.line.crowd.contains(rank)
    }

    #[cfg(test)]
    pub fn holders(&self) -> (Option<u32>, Vec<u32>) {
        (self.holders.exclusive, self.holders.shared.iter().collect())
    }
}

/// A request to be performed.
pub(super) struct Incoming<'a> {
    pub seq: u64,
    pub request: Option<RequestId>,
    pub riders: Riders,
    /// Nothing for riders alone.
    pub body: Option<&'a [u8]>,
}

impl Window {
    /// A request of `from` has arrived.
    pub fn handle_request<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        message: &Message<'_>,
    ) -> Handled {
        // What a rank sent before it died comes too late once its locks have been released.
        if self.dead.contains(from) {
            shared.counters.strays += 1;
            return Handled::Done;
        }
        if !self.advance_queries(shared, host) || !shared.clear(host) {
            return Handled::Busy;
        }
        let handled = match *message {
            Message::Lock(query) => self.lock_query(shared, host, from, query, None),
            Message::Operation { seq, request, lock, riders, body } => {
                let incoming = Incoming { seq, request, riders, body: Some(body) };
                match lock {
                    Some(kind) => {
                        // Held for the operation only: nothing waits while its origin has it.
                        let query = Query::alone(kind, 0);
                        self.lock_query(shared, host, from, query, Some(incoming))
                    }
                    None => self.operation(shared, host, from, incoming),
                }
            }
            Message::Control { seq, riders } => {
                let incoming = Incoming { seq, request: None, riders, body: None };
                self.operation(shared, host, from, incoming)
            }
            _ => stray(shared),
        };
        // What a release has granted goes out now if it can.
        if !self.advance_queries(shared, host) {
            self.again = true;
        }
        handled
    }

    /// A query, maybe with the operation that it is for.
    fn lock_query<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        query: Query,
        single: Option<Incoming<'_>>,
    ) -> Handled {
        let queries = &mut self.queries;
        let queued = self.table.origin(&shared.pools, from).is_some();
        if queries.holders.contain(from) || queued || queries.line.crowd.contains(from) {
            return stray(shared);
        }
        let kind = query.kind;
        if queries.line.goes_ahead(query) && queries.holders.free_for(kind) {
            if let Some(incoming) = single {
                return self.perform(shared, host, from, incoming);
            }
            self.queries.holders.add(from, kind);
            let granted = self.queries.granted(kind);
            shared.reply(host, self.id, from, granted);
            return Handled::Done;
        }
        self.queue(shared, host, from, query, single);
        Handled::Done
    }

    fn queue<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        origin: u32,
        query: Query,
        single: Option<Incoming<'_>>,
    ) {
        let line = &mut self.queries.line;
        let discarded = single.as_ref().map(|incoming| incoming.seq);
        if !line.crowd.is_empty() || shared.pools.origins.full() {
            line.join_crowd(&mut shared.pools.origins, origin, query);
            shared.counters.queries_crowded += 1;
            let from = discarded.unwrap_or(1);
            return shared.reply(host, self.id, origin, Owed::Discarded { from });
        }
        let mut operations = List::EMPTY;
        let kept = single.and_then(|incoming| hold(shared, incoming));
        if let Some(kept) = kept {
            operations.push(&mut shared.pools.operations, kept);
        }
        // One whose operation is not kept is told of the grant, like one that sent none.
        let told = kept.is_some();
        let dropping = discarded.is_some() && !told;
        let kind = query.kind;
        let object = OriginObject { origin, chain: NONE, kind, told, dropping, operations };
        if let Some(id) = self.table.add_origin(&mut shared.pools, object) {
            line.join(&mut shared.pools.origins, id, query);
        }
        let used = shared.pools.origins.used() as u64;
        shared.counters.most_origins = shared.counters.most_origins.max(used);
        if let (true, Some(from)) = (dropping, discarded) {
            shared.reply(host, self.id, origin, Owed::Discarded { from });
        }
    }

    /// An operation or riders, to be performed, kept or discarded.
    fn operation<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        incoming: Incoming<'_>,
    ) -> Handled {
        let object = self.table.origin(&shared.pools, from);
        if !incoming.riders.speculative {
            if object.is_some() || self.queries.line.crowd.contains(from) {
                return stray(shared);
            }
            // The origin knows of its grant: what it sends now is what had been discarded.
            self.queries.line.crowd.dropping.remove(from);
            return self.perform(shared, host, from, incoming);
        }
        let Some(id) = object else {
            let queries = &self.queries;
            if queries.holders.contain(from) && !queries.line.crowd.dropping.contains(from) {
                return self.perform(shared, host, from, incoming);
            }
            shared.counters.operations_discarded += 1;
            return Handled::Done;
        };
        let seq = incoming.seq;
        if !shared.pools.origins[id].dropping && !self.queries.holders.contain(from) {
            if let Some(kept) = hold(shared, incoming) {
                let pools = &mut shared.pools;
                pools.origins[id].operations.push(&mut pools.operations, kept);
                return Handled::Done;
            }
            shared.pools.origins[id].dropping = true;
            shared.reply(host, self.id, from, Owed::Discarded { from: seq });
        }
        shared.counters.operations_discarded += 1;
        Handled::Done
    }

    /// Performs an operation, lets its riders act, and answers; or else does nothing.
    fn perform<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        incoming: Incoming<'_>,
    ) -> Handled {
        let Incoming { seq, request, riders, body } = incoming;
        shared.answer.clear();
        let mut result = Ok(());
        if let Some(body) = body {
            match host.perform(self.id, from, body, &mut shared.answer) {
                Poll::Pending => return Handled::Busy,
                Poll::Ready(done) => result = done,
            }
            shared.counters.performed += 1;
        }
        self.finish(shared, host, from, (seq, request, riders), result);
        Handled::Done
    }

    /// Lets the riders of a performed request act, and answers if that is wanted.
    fn finish<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        (seq, request, riders): (u64, Option<RequestId>, Riders),
        result: Result<(), Fault>,
    ) {
        self.ride(shared, from, riders);
        let acked = riders.ack || request.is_some();
        if acked || result.is_err() {
            if result.is_err() || request.is_none() {
                shared.answer.clear();
            }
            shared.reply(host, self.id, from, Owed::Answer { seq, acked, request, result });
        }
    }

    fn ride(&mut self, shared: &mut Shared, from: u32, riders: Riders) {
        if riders.unlock {
            self.release(shared, from);
        }
        if riders.complete && !self.completed(from) {
            shared.counters.strays += 1;
        }
        if let Some(number) = riders.decrement {
            self.fence.counted[usize::from(number % 2)] += 1;
        }
    }

    /// Gives the lock of `origin` to those who wait.
    fn release(&mut self, shared: &mut Shared, origin: u32) {
        let Queries { holders, line, granted, .. } = &mut self.queries;
        holders.remove(origin);
        let pool = &mut shared.pools.origins;
        while let Some(next) = line.next(pool, |kind| holders.free_for(kind)) {
            match next {
                Next::Object(id) => {
                    holders.add(pool[id].origin, pool[id].kind);
                    granted.push(pool, id);
                }
                Next::Crowd(origin, kind) => holders.add(origin, kind),
            }
        }
    }

    /// Tells those who have been granted the lock and performs what they had sent; false if the
    /// transport is in the way, or somebody at work on the same elements.
    pub fn advance_queries<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> bool {
        while let Some(id) = self.queries.granted.front() {
            if !shared.clear(host) {
                return false;
            }
            let object = &mut shared.pools.origins[id];
            let (origin, kind) = (object.origin, object.kind);
            if !object.told {
                object.told = true;
                let granted = self.queries.granted(kind);
                shared.reply(host, self.id, origin, granted);
                continue;
            }
            let Some(kept) = object.operations.front() else {
                self.queries.granted.pop(&mut shared.pools.origins);
                // Whose operations were discarded is remembered until they are sent again.
                if shared.pools.origins[id].dropping {
                    self.queries.line.crowd.dropping.insert(origin);
                }
                self.drop_origin(shared, id);
                continue;
            };
            if !self.perform_kept(shared, host, origin, (id, kept)) {
                return false;
            }
        }
        while let Some(origin) = self.queries.line.crowd.untold.first(0) {
            if !shared.clear(host) {
                return false;
            }
            self.queries.line.crowd.untold.remove(origin);
            let exclusive = self.queries.holders.exclusive == Some(origin);
            let kind = if exclusive { LockKind::Exclusive } else { LockKind::Shared };
            let granted = self.queries.granted(kind);
            shared.reply(host, self.id, origin, granted);
        }
        true
    }

    /// Performs the first operation that was kept for an origin; false, and nothing is done, if it
    /// cannot be now.
    fn perform_kept<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        origin: u32,
        (object, kept): (Id, Id),
    ) -> bool {
        let OperationObject { seq, request, riders, .. } = shared.pools.operations[kept];
        shared.answer.clear();
        let body = shared.pools.body(kept);
        let Poll::Ready(result) = host.perform(self.id, origin, body, &mut shared.answer) else {
            return false;
        };
        shared.counters.performed += 1;
        let pools = &mut shared.pools;
        pools.origins[object].operations.pop(&mut pools.operations);
        pools.operations.give(kept);
        pools.held -= 1;
        self.finish(shared, host, origin, (seq, request, riders), result);
        true
    }

    fn drop_origin(&mut self, shared: &mut Shared, id: Id) {
        let Some(mut object) = self.table.drop_origin(&mut shared.pools, id) else { return };
        while let Some(kept) = object.operations.pop(&mut shared.pools.operations) {
            shared.pools.operations.give(kept);
            shared.pools.held -= 1;
        }
    }

    /// `origin` is dead: it neither waits nor holds.
    pub fn bury_origin(&mut self, shared: &mut Shared, origin: u32) {
        if let Some(id) = self.table.origin(&shared.pools, origin) {
            let pool = &mut shared.pools.origins;
            self.queries.line.leave(pool, id);
            self.queries.granted.split(pool, |object| object.origin == origin);
            self.drop_origin(shared, id);
        }
        self.queries.line.crowd.bury(origin);
        if self.queries.holders.exclusive == Some(origin) {
            self.queries.recovered = Some(origin);
        }
        self.release(shared, origin);
        self.again |= self.queries.busy();
    }

    /// The window goes: gives all origin objects back.
    pub fn drop_origins(&mut self, shared: &mut Shared) {
        let everyone: Vec<Id> =
            (0..self.size).filter_map(|rank| self.table.origin(&shared.pools, rank)).collect();
        for id in everyone {
            self.drop_origin(shared, id);
        }
        self.queries.line.clear();
        self.queries.granted = List::EMPTY;
    }
}

/// A message that makes no sense here.
fn stray(shared: &mut Shared) -> Handled {
    shared.counters.strays += 1;
    Handled::Done
}

/// Keeps an operation of another rank.
fn hold(shared: &mut Shared, incoming: Incoming<'_>) -> Option<Id> {
    let body = incoming.body?;
    let object = OperationObject {
        seq: incoming.seq,
        length: body.len(),
        token: None,
        request: incoming.request,
        riders: incoming.riders,
    };
    shared.pools.hold(&mut shared.counters, object, body)
}
