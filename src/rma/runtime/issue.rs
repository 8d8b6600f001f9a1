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
use super::message::{Message, Query, RequestId, Riders};
use super::pools::{Id, OperationObject};
use super::shared::Shared;
use super::table::{Closing, LockState, TargetObject};
use super::window::Window;

/// Whether operations may go to a target now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// If they can be sent again.
    Speculate,
    /// The query comes first.
    Ask,
    /// All of it in one message.
    Single,
    /// A message will open it.
    Shut,
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

    pub fn gate(&self, shared: &Shared, id: Id) -> Gate {
        let object = &shared.pools.targets[id];
        let may_wait = shared.waiting.may_send(&shared.limits);
        match object.lock {
            LockState::Collective if self.synchronised(object) => Gate::Open,
            LockState::Collective => Gate::Shut,
            LockState::Unasked => {
                let alone = object.posted == 1 && object.pending.len() == 1;
                let delayed = shared.limits.issuing != Issuing::Eager;
                // In a lock-all epoch others are held meanwhile: see `Query`.
                let closing = object.closing == Some(Closing::Unlock) && self.all.is_none();
                let single = alone && delayed && closing && !object.evict && may_wait;
                if single { Gate::Single } else { Gate::Ask }
            }
            LockState::Asked => {
                let delayed = shared.limits.issuing == Issuing::Delayed;
                let speculate = object.speculated.len() < shared.limits.speculate
                    && !object.no_speculation
                    && !delayed
                    && may_wait;
                if speculate { Gate::Speculate } else { Gate::Shut }
            }
            LockState::Single => Gate::Shut,
            LockState::Granted => Gate::Open,
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
        // One that is asked for so late is the only one, or of a lock-all epoch.
        let query = Query { kind, age: self.age, beside: self.all.is_some() };
        let sent = shared.send(host, self.id, rank, &Message::Lock(query));
        if sent == Sent::Yes {
            shared.pools.targets[id].lock = LockState::Asked;
        }
        sent.into()
    }

    /// What rides on an operation, given whether it is the last that there is.
    pub fn riders(&self, shared: &Shared, object: &TargetObject, seq: u64, last: bool) -> Riders {
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
    pub fn went_out(
        &mut self,
        shared: &mut Shared,
        id: Id,
        seq: u64,
        request: Option<RequestId>,
        riders: Riders,
    ) {
        shared.went_out();
        if !shared.pools.targets[id].ready {
            shared.waiting.sent += 1;
        }
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

    /// The target has discarded what was sent before the grant, from an operation on; false if that
    /// makes no sense.
    pub fn take_back(&mut self, shared: &mut Shared, id: Id, from: u64) -> bool {
        let pools = &mut shared.pools;
        let object = &mut pools.targets[id];
        // Before the grant nothing is done, and who has done something does not discard it.
        if object.acked > 0 {
            return false;
        }
        match object.lock {
            LockState::Asked => {}
            // The query that it brought is in line now.
            LockState::Single if from <= object.issued => object.lock = LockState::Asked,
            _ => return false,
        }
        let taken = object.speculated.split(&mut pools.operations, |kept| kept.seq >= from);
        object.no_speculation = true;
        let Some(first) = taken.front() else { return true };
        let issued = pools.operations[first].seq - 1;
        let pending = std::mem::replace(&mut object.pending, taken);
        object.pending.append(&mut pools.operations, pending);
        shared.outstanding -= object.issued - issued;
        shared.waiting.sent -= object.issued - issued;
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
            shared.waiting.operations -= 1;
        }
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
