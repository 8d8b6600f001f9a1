//! Locks at their target: who holds this rank's lock of a window, and who waits for it (paper
//! 001 §3.4.2).
//!
//! A query that cannot be granted at once takes an *origin object* and waits in order of arrival;
//! shared ones at the head are granted together. None overtakes, but those of lock-all epochs. With the origin objects used
//! up, a query is discarded and its origin told, which asks again later.
//!
//! ```text
//!   a speculative operation arrives       (figure 3.7)
//!     its origin holds the lock   perform
//!     its query is queued         keep it in an operation object, or, with none left, discard
//!                                 it and all after it until the origin sends one that is not
//!                                 speculative
//!     neither                     discard: so was the query
//! ```
//!
//! Holders are known one by one, in one bit each: it tells a granted shared lock from a discarded
//! query without the origin object that the paper keeps for this while queries are outstanding,
//! and it tells what a rank that died has held.

use super::host::Host;
use super::message::{Discarded, Fault, Message, RequestId, Riders};
use super::pools::{Id, List, NONE, OperationObject};
use super::ranks::Ranks;
use super::shared::{Owed, Shared};
use super::window::Window;
use super::{Handled, LockKind};

/// A peer that wants a lock here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OriginObject {
    pub origin: u32,
    pub chain: Id,
    kind: LockKind,
    /// One of a lock-all epoch.
    all: bool,
    /// It expects no word of the grant, or has got it.
    told: bool,
    /// Its speculative operations are discarded.
    dropping: bool,
    operations: List,
}

/// The lock of one window at this rank.
#[derive(Debug)]
pub(super) struct Queries {
    exclusive: Option<u32>,
    shared: Ranks,
    /// Not granted, in order of arrival.
    waiting: List,
    /// Granted; to be told, and their operations to be performed.
    granted: List,
    /// The last holder of the exclusive lock that died with it, until the grant of an exclusive
    /// lock has told of it: whoever has that can repair what was left.
    recovered: Option<u32>,
}

impl Queries {
    pub fn new(size: u32) -> Queries {
        Queries {
            exclusive: None,
            shared: Ranks::new(size),
            waiting: List::EMPTY,
            granted: List::EMPTY,
            recovered: None,
        }
    }

    fn free_for(&self, kind: LockKind) -> bool {
        self.exclusive.is_none() && (kind == LockKind::Shared || self.shared.is_empty())
    }

    fn holds(&self, origin: u32) -> bool {
        self.exclusive == Some(origin) || self.shared.contains(origin)
    }

    fn hold(&mut self, origin: u32, kind: LockKind) {
        match kind {
            LockKind::Shared => {
                self.shared.insert(origin);
            }
            LockKind::Exclusive => self.exclusive = Some(origin),
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

    /// Something here waits for nothing but the transport.
    pub fn busy(&self) -> bool {
        !self.granted.is_empty()
    }

    #[cfg(test)]
    pub fn holders(&self) -> (Option<u32>, Vec<u32>) {
        (self.exclusive, self.shared.iter().collect())
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
        match *message {
            Message::Lock { kind, all } => {
                self.lock_query(shared, host, from, (kind, all), None);
            }
            Message::Operation { seq, request, lock, riders, body } => {
                let incoming = Incoming { seq, request, riders, body: Some(body) };
                match lock {
                    Some(kind) => {
                        self.lock_query(shared, host, from, (kind, false), Some(incoming))
                    }
                    None => self.operation(shared, host, from, incoming),
                }
            }
            Message::Control { seq, riders } => {
                let incoming = Incoming { seq, request: None, riders, body: None };
                self.operation(shared, host, from, incoming);
            }
            _ => shared.counters.strays += 1,
        }
        // What a release has granted goes out now if it can.
        if !self.advance_queries(shared, host) {
            self.again = true;
        }
        Handled::Done
    }

    /// A query, maybe with the operation that it is for.
    fn lock_query<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        (kind, all): (LockKind, bool),
        single: Option<Incoming<'_>>,
    ) {
        let queued = self.table.origin(&shared.pools, from).is_some();
        if self.queries.holds(from) || queued {
            shared.counters.strays += 1;
            return;
        }
        if (all || self.queries.waiting.is_empty()) && self.queries.free_for(kind) {
            match single {
                Some(incoming) => self.perform(shared, host, from, incoming),
                None => {
                    self.queries.hold(from, kind);
                    let recovered = self.queries.lost_before(kind);
                    shared.reply(host, self.id, from, Owed::Granted { recovered });
                }
            }
            return;
        }
        if !self.queue(shared, from, (kind, all), single) {
            shared.counters.queries_discarded += 1;
            shared.reply(host, self.id, from, Owed::Discarded(Discarded::Query));
        }
    }

    fn queue(
        &mut self,
        shared: &mut Shared,
        origin: u32,
        (kind, all): (LockKind, bool),
        single: Option<Incoming<'_>>,
    ) -> bool {
        if shared.pools.origins.full() {
            return false;
        }
        let mut operations = List::EMPTY;
        let told = single.is_some();
        if let Some(incoming) = single {
            let Some(id) = hold(shared, incoming) else { return false };
            operations.push(&mut shared.pools.operations, id);
        }
        let object =
            OriginObject { origin, chain: NONE, kind, all, told, dropping: false, operations };
        let Some(id) = self.table.add_origin(&mut shared.pools, object) else { return false };
        self.queries.waiting.push(&mut shared.pools.origins, id);
        let used = shared.pools.origins.used() as u64;
        shared.counters.most_origins = shared.counters.most_origins.max(used);
        true
    }

    /// An operation or riders, to be performed, kept or discarded.
    fn operation<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        incoming: Incoming<'_>,
    ) {
        let object = self.table.origin(&shared.pools, from);
        if !incoming.riders.speculative {
            // The origin knows of its grant: what it sends now is what had been discarded.
            match object {
                Some(id) if self.queries.holds(from) => self.drop_origin(shared, id),
                Some(_) => {
                    shared.counters.strays += 1;
                    return;
                }
                None => {}
            }
            return self.perform(shared, host, from, incoming);
        }
        let Some(id) = object else {
            if self.queries.holds(from) {
                self.perform(shared, host, from, incoming);
            } else {
                shared.counters.operations_discarded += 1;
            }
            return;
        };
        let seq = incoming.seq;
        if !shared.pools.origins[id].dropping && !self.queries.holds(from) {
            if let Some(kept) = hold(shared, incoming) {
                let pools = &mut shared.pools;
                pools.origins[id].operations.push(&mut pools.operations, kept);
                return;
            }
            shared.pools.origins[id].dropping = true;
            shared.reply(host, self.id, from, Owed::Discarded(Discarded::From(seq)));
        }
        shared.counters.operations_discarded += 1;
    }

    /// Performs an operation, lets its riders act, and answers.
    fn perform<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        from: u32,
        incoming: Incoming<'_>,
    ) {
        let Incoming { seq, request, riders, body } = incoming;
        shared.answer.clear();
        let mut result = Ok(());
        if let Some(body) = body {
            shared.counters.performed += 1;
            result = host.perform(self.id, from, body, &mut shared.answer);
        }
        self.finish(shared, host, from, (seq, request, riders), result);
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
        let queries = &mut self.queries;
        if queries.exclusive == Some(origin) {
            queries.exclusive = None;
        } else {
            // Not held: the origin asserted that it need not be, or came with its own lock.
            queries.shared.remove(origin);
        }
        while let Some(id) = queries.waiting.front() {
            let OriginObject { origin, kind, .. } = shared.pools.origins[id];
            if !queries.free_for(kind) {
                break;
            }
            queries.waiting.pop(&mut shared.pools.origins);
            queries.hold(origin, kind);
            queries.granted.push(&mut shared.pools.origins, id);
        }
        if queries.exclusive.is_none() {
            let mut over = queries.waiting.split(&mut shared.pools.origins, |object| object.all);
            while let Some(id) = over.pop(&mut shared.pools.origins) {
                queries.hold(shared.pools.origins[id].origin, LockKind::Shared);
                queries.granted.push(&mut shared.pools.origins, id);
            }
        }
    }

    /// Tells those who have been granted the lock and performs what they had sent; false if the
    /// transport is in the way.
    pub fn advance_queries<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> bool {
        while let Some(id) = self.queries.granted.front() {
            if !shared.clear(host) {
                return false;
            }
            let object = &mut shared.pools.origins[id];
            let (origin, kind) = (object.origin, object.kind);
            if !object.told {
                object.told = true;
                let recovered = self.queries.lost_before(kind);
                shared.reply(host, self.id, origin, Owed::Granted { recovered });
                continue;
            }
            let Some(kept) = object.operations.pop(&mut shared.pools.operations) else {
                self.queries.granted.pop(&mut shared.pools.origins);
                // One whose operations were discarded is remembered until it sends them again.
                if !shared.pools.origins[id].dropping {
                    self.drop_origin(shared, id);
                }
                continue;
            };
            self.perform_kept(shared, host, origin, kept);
        }
        true
    }

    fn perform_kept<H: Host>(&mut self, shared: &mut Shared, host: &mut H, origin: u32, kept: Id) {
        let OperationObject { seq, request, riders, .. } = shared.pools.operations[kept];
        shared.answer.clear();
        shared.counters.performed += 1;
        let body = shared.pools.body(kept);
        let result = host.perform(self.id, origin, body, &mut shared.answer);
        shared.pools.operations.give(kept);
        shared.pools.held -= 1;
        self.finish(shared, host, origin, (seq, request, riders), result);
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
            self.queries.waiting.split(pool, |object| object.origin == origin);
            self.queries.granted.split(pool, |object| object.origin == origin);
            self.drop_origin(shared, id);
        }
        if self.queries.exclusive == Some(origin) {
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
        (self.queries.waiting, self.queries.granted) = (List::EMPTY, List::EMPTY);
    }
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
