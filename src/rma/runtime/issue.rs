//! Sending operations: when, in what order, and with what riding on them (paper 001 §3.4.3 and
//! chapter 4).
//!
//! ```text
//!                 few and small, epoch open     beyond a threshold, flushed, or closing
//!   lock          kept, no query                query; sent speculatively; after the grant at once
//!   fence, start  kept                          sent as soon as the epoch is open at the target
//! ```
//!
//! The last operation stays here until the epoch ends or a flush comes, and then carries the
//! unlock, the end of the access epoch or the fence's decrement (figure 4.1 and §4.2). A single
//! small operation carries its lock, too: one message there, one back. Operations for one target
//! leave in the order in which they were given; a discarded one leaves again before any later
//! one.

use super::host::{Host, Sent};
use super::limits::Issuing;
use super::message::{Discarded, Message, RequestId, Riders};
use super::pools::{Id, List, OperationObject};
use super::shared::Shared;
use super::table::{Closing, LockState, TargetObject};
use super::window::{Regime, Window};
use super::{LockKind, Trouble};

/// What became of an operation given by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Sent or kept.
    Done,
    /// There is no target object.
    NoTarget,
    /// There is no operation object.
    NoOperation,
    /// It has to wait for a lock, an answer or the transport.
    Later,
}

/// Whether operations may go to a target now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// If they can be sent again.
    Speculate,
    /// The query comes first.
    Ask,
    /// All of it in one message.
    Single,
    /// A message will open it.
    Shut,
    /// Time will.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    /// Try again.
    Full,
    /// The target is dead.
    Gone,
}

impl From<Sent> for Step {
    fn from(sent: Sent) -> Step {
        match sent {
            Sent::Yes => Step::Sent,
            Sent::Full => Step::Full,
            Sent::Gone => Step::Gone,
        }
    }
}

impl Window {
    /// Whether it is time to send to this target at all.
    fn wants(&self, shared: &Shared, object: &TargetObject) -> bool {
        let limits = &shared.limits;
        if object.push || object.evict || object.closing.is_some() {
            return true;
        }
        let (operations, bytes) = match object.lock {
            LockState::Collective => (self.operations, self.bytes),
            _ => (object.posted, object.bytes),
        };
        match limits.issuing {
            Issuing::Eager => true,
            Issuing::Delayed => false,
            Issuing::Adaptive => {
                operations >= limits.eager_operations || bytes >= limits.eager_bytes
            }
        }
    }

    fn gate(&self, shared: &mut Shared, id: Id) -> Gate {
        let tick = shared.tick;
        let object = &mut shared.pools.targets[id];
        if let LockState::Retry(at) = object.lock {
            if tick < at {
                return Gate::Later;
            }
            object.lock = LockState::Unasked;
            shared.counters.retries += 1;
        }
        match object.lock {
            LockState::Collective => match &self.access {
                Some(access) if access.no_check || self.posts.contains(object.rank) => Gate::Open,
                None if self.fence.is_open() => Gate::Open,
                _ => Gate::Shut,
            },
            LockState::Unasked => {
                let alone = object.posted == 1 && object.pending.len() == 1;
                let delayed = shared.limits.issuing != Issuing::Eager;
                // In a lock-all epoch others are held meanwhile: see `Message::Lock`.
                let closing = object.closing == Some(Closing::Unlock) && self.all.is_none();
                if alone && delayed && closing && !object.evict { Gate::Single } else { Gate::Ask }
            }
            LockState::Asked => {
                let delayed = shared.limits.issuing == Issuing::Delayed;
                let speculate = object.speculated.len() < shared.limits.speculate
                    && !object.no_speculation
                    && !delayed;
                if speculate { Gate::Speculate } else { Gate::Shut }
            }
            LockState::Single => Gate::Shut,
            LockState::Granted => Gate::Open,
            LockState::Retry(_) => Gate::Later,
        }
    }

    /// Sends to a target what is to be sent now; whether there is more that no message will
    /// announce.
    pub fn pump<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) -> bool {
        loop {
            let object = &shared.pools.targets[id];
            if object.told && object.pending.is_empty() || !self.wants(shared, object) {
                return false;
            }
            let gate = self.gate(shared, id);
            let object = &shared.pools.targets[id];
            let step = match (gate, object.pending.front()) {
                (Gate::Later, _) => return true,
                (Gate::Shut, _) => {
                    if object.lock == LockState::Collective && self.access.is_none() {
                        return self.fence.want_open();
                    }
                    return false;
                }
                (Gate::Ask, _) => self.ask(shared, host, id),
                (Gate::Single, Some(kept)) => self.send_kept(shared, host, id, kept, gate),
                (Gate::Open, None) => return self.send_riders(shared, host, id),
                (_, None) => return false,
                (Gate::Open | Gate::Speculate, Some(kept)) => {
                    let forced = object.push || object.evict || object.closing.is_some();
                    let eager = shared.limits.issuing == Issuing::Eager;
                    if object.pending.len() == 1 && !forced && !eager {
                        return false;
                    }
                    self.send_kept(shared, host, id, kept, gate)
                }
            };
            match step {
                Step::Sent => {}
                Step::Full => return true,
                Step::Gone => return false,
            }
        }
    }

    fn ask<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) -> Step {
        let TargetObject { rank, kind, .. } = shared.pools.targets[id];
        let all = self.all.is_some();
        let sent = shared.send(host, self.id, rank, &Message::Lock { kind, all });
        if sent == Sent::Yes {
            shared.pools.targets[id].lock = LockState::Asked;
        }
        sent.into()
    }

    /// What rides on an operation, given whether it is the last that there is.
    fn riders(&self, shared: &Shared, object: &TargetObject, seq: u64, last: bool) -> Riders {
        let every = (shared.limits.outstanding as u64 / 4).clamp(1, 64);
        let mut riders = Riders {
            ack: seq == object.ack_at || seq - object.asked >= every,
            ..Riders::default()
        };
        if last {
            close(&mut riders, object.closing);
            riders.ack |= riders.unlock || object.evict;
        }
        riders
    }

    fn send_kept<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        id: Id,
        kept: Id,
        gate: Gate,
    ) -> Step {
        let OperationObject { seq, token, mut request, .. } = shared.pools.operations[kept];
        let object = shared.pools.targets[id];
        if !shared.may_go_out() {
            return Step::Full;
        }
        if let (Some(token), None) = (token, request) {
            request = shared.pools.request(self.id, object.rank, Some(token));
            if request.is_none() {
                return Step::Full;
            }
            shared.pools.operations[kept].request = request;
        }
        let mut riders = self.riders(shared, &object, seq, object.pending.len() == 1);
        riders.speculative = gate == Gate::Speculate;
        let lock = (gate == Gate::Single).then_some(object.kind);
        let body = shared.pools.body(kept);
        let message = Message::Operation { seq, request, lock, riders, body };
        let sent = host.send(self.id, object.rank, &message);
        if sent != Sent::Yes {
            return sent.into();
        }
        self.went_out(shared, id, seq, request, riders);
        let pools = &mut shared.pools;
        let object = &mut pools.targets[id];
        object.pending.pop(&mut pools.operations);
        if gate == Gate::Open {
            pools.operations.give(kept);
        } else {
            object.speculated.push(&mut pools.operations, kept);
        }
        match gate {
            Gate::Speculate => shared.counters.speculated += 1,
            Gate::Single => {
                object.lock = LockState::Single;
                shared.counters.single_messages += 1;
            }
            _ => {}
        }
        Step::Sent
    }

    /// Notes an operation that has been sent.
    fn went_out(
        &mut self,
        shared: &mut Shared,
        id: Id,
        seq: u64,
        request: Option<RequestId>,
        riders: Riders,
    ) {
        shared.went_out();
        shared.counters.requests_sent += 1;
        shared.counters.operations_sent += 1;
        let object = &mut shared.pools.targets[id];
        object.issued = seq;
        if riders.ack || request.is_some() {
            object.asked = seq;
        }
        if riders.unlock || riders.complete || riders.decrement.is_some() {
            object.told = true;
            shared.counters.piggybacked += 1;
            if riders.complete {
                self.posts.remove(object.rank);
            }
            if let Some(Closing::Decrement(_)) = object.closing {
                self.fence.touched.remove(object.rank);
            }
        }
    }

    /// With everything sent: the end of the epoch, or a question how far the target is.
    fn send_riders<H: Host>(&mut self, shared: &mut Shared, host: &mut H, id: Id) -> bool {
        let object = shared.pools.targets[id];
        let mut riders = Riders::default();
        close(&mut riders, object.closing);
        let closes = riders != Riders::default();
        let unasked = object.asked < object.issued;
        let flush = object.ack_at > object.asked || object.evict || object.closing.is_some();
        let collective = matches!(object.closing, Some(Closing::Complete | Closing::Decrement(_)));
        riders.ack = unasked && flush && !(closes && collective);
        if riders != Riders::default() {
            let message = Message::Control { seq: object.issued, riders };
            match shared.send(host, self.id, object.rank, &message) {
                Sent::Yes => {}
                Sent::Full => return true,
                Sent::Gone => return false,
            }
        }
        let object = &mut shared.pools.targets[id];
        object.push = false;
        object.told |= closes;
        if riders.complete {
            self.posts.remove(object.rank);
        }
        if riders.ack {
            object.asked = object.issued;
        }
        if let Some(Closing::Decrement(_)) = object.closing {
            self.fence.touched.remove(object.rank);
        }
        false
    }

    /// The target has discarded what was sent before the grant; false if that makes no sense.
    pub fn take_back(&mut self, shared: &mut Shared, id: Id, what: Discarded) -> bool {
        let tick = shared.tick;
        let pools = &mut shared.pools;
        let object = &mut pools.targets[id];
        // Before the grant nothing is done, and who has done something does not discard it.
        if object.acked > 0 {
            return false;
        }
        let taken = match (what, object.lock) {
            (Discarded::Query, LockState::Asked | LockState::Single) => {
                object.lock = LockState::Retry(tick + (1 << object.discards.min(6)));
                object.discards = object.discards.saturating_add(1);
                std::mem::replace(&mut object.speculated, List::EMPTY)
            }
            (Discarded::From(seq), LockState::Asked) => {
                object.speculated.split(&mut pools.operations, |kept| kept.seq >= seq)
            }
            _ => return false,
        };
        object.no_speculation = true;
        let Some(first) = taken.front() else { return true };
        let issued = pools.operations[first].seq - 1;
        let pending = std::mem::replace(&mut object.pending, taken);
        object.pending.append(&mut pools.operations, pending);
        shared.outstanding -= object.issued - issued;
        object.issued = issued;
        object.asked = object.asked.min(issued);
        object.told = false;
        true
    }

    /// The operation that came with its lock is done, and with it the epoch.
    pub fn single_done(&mut self, shared: &mut Shared, id: Id) {
        let pools = &mut shared.pools;
        let object = &mut pools.targets[id];
        object.told = true;
        while let Some(kept) = object.speculated.pop(&mut pools.operations) {
            pools.operations.give(kept);
        }
    }

    /// An operation given by the program.
    pub fn operate<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        rank: u32,
        body: &[u8],
        token: Option<u64>,
    ) -> Result<Given, Trouble> {
        let regime = self.regime();
        if rank >= self.size {
            return Err(Trouble::Misuse("the target is no member of the window's team"));
        }
        if self.dead.contains(rank) {
            return Err(Trouble::Dead(rank));
        }
        match regime {
            Regime::None => return Err(Trouble::Misuse("no epoch is open")),
            Regime::Fence => {
                if let Some(trouble) = self.first_dead() {
                    return Err(trouble);
                }
            }
            Regime::LockAll => {
                if let Some(given) = self.operate_direct(shared, host, rank, body, token) {
                    return Ok(given);
                }
            }
            Regime::Access | Regime::Locks => {}
        }
        let Some(id) = self.target(shared, rank, regime) else { return Ok(Given::NoTarget) };
        if shared.pools.targets[id].closing.is_some() {
            return Err(Trouble::Misuse("the epoch is being closed"));
        }
        let left_over = shared.pools.targets[id].lock == LockState::Collective;
        if left_over && matches!(regime, Regime::Locks | Regime::LockAll) {
            // Of a fence epoch that a death ended; it goes when its answers have come.
            return Ok(Given::Later);
        }
        let given = self.give(shared, host, id, body, token);
        if given == Given::Done {
            if regime == Regime::Fence && self.size <= shared.limits.reduce_teams {
                self.fence.touched.insert(rank);
            }
            if matches!(regime, Regime::Fence | Regime::Access) {
                self.operations += 1;
                self.bytes += body.len() as u64;
            }
            self.work(shared, host, id);
        }
        Ok(given)
    }

    fn give<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        id: Id,
        body: &[u8],
        token: Option<u64>,
    ) -> Given {
        let small = body.len() <= shared.limits.small;
        let eager = shared.limits.issuing == Issuing::Eager;
        if !small {
            shared.pools.targets[id].push = true;
            self.work(shared, host, id);
            // A target to be cleaned up may be gone now.
            if shared.pools.targets.get(id).is_none_or(|object| object.window != self.id) {
                return Given::Later;
            }
        }
        let object = &shared.pools.targets[id];
        let seq = object.posted + 1;
        if (!small || eager) && object.sent() && self.gate(shared, id) == Gate::Open {
            return self.send_direct(shared, host, id, body, token);
        }
        if !small {
            return Given::Later;
        }
        let riders = Riders::default();
        let kept = OperationObject { seq, length: body.len(), token, request: None, riders };
        let Some(kept) = shared.pools.keep(&mut shared.counters, kept, body) else {
            return Given::NoOperation;
        };
        let pools = &mut shared.pools;
        let object = &mut pools.targets[id];
        object.pending.push(&mut pools.operations, kept);
        object.posted = seq;
        object.bytes += body.len() as u64;
        object.tokens += u32::from(token.is_some());
        Given::Done
    }

    /// Sends an operation that is not kept.
    fn send_direct<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        id: Id,
        body: &[u8],
        token: Option<u64>,
    ) -> Given {
        let object = shared.pools.targets[id];
        if !shared.may_go_out() {
            return Given::Later;
        }
        let seq = object.posted + 1;
        let mut request = None;
        if token.is_some() {
            request = shared.pools.request(self.id, object.rank, token);
            if request.is_none() {
                return Given::Later;
            }
        }
        let riders = self.riders(shared, &object, seq, false);
        let message = Message::Operation { seq, request, lock: None, riders, body };
        if host.send(self.id, object.rank, &message) != Sent::Yes {
            if let Some(request) = request {
                shared.pools.answered(request, self.id, object.rank);
            }
            return Given::Later;
        }
        let object = &mut shared.pools.targets[id];
        object.posted = seq;
        object.bytes += body.len() as u64;
        object.tokens += u32::from(token.is_some());
        self.went_out(shared, id, seq, request, riders);
        Given::Done
    }

    /// Begins a lock epoch with one target; false if there is no object for it.
    pub fn open_lock(
        &mut self,
        shared: &mut Shared,
        rank: u32,
        kind: LockKind,
        no_check: bool,
    ) -> Option<Id> {
        let lock = if no_check { LockState::Granted } else { LockState::Unasked };
        let mut object = TargetObject::new(self.id, rank, lock, kind);
        object.no_check = no_check;
        self.add_target(shared, object)
    }
}

fn close(riders: &mut Riders, closing: Option<Closing>) {
    match closing {
        Some(Closing::Unlock) => riders.unlock = true,
        Some(Closing::Complete) => riders.complete = true,
        Some(Closing::Decrement(number)) => riders.decrement = Some(number),
        Some(Closing::Nothing) | None => {}
    }
}
