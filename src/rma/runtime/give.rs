//! Operations as the program gives them: kept, or sent at once.

use super::Trouble;
use super::host::{Host, Sent};
use super::issue::Gate;
use super::limits::Issuing;
use super::message::{Message, Riders};
use super::pools::{Id, OperationObject};
use super::shared::Shared;
use super::table::LockState;
use super::window::{Regime, Window};

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

impl Window {
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
        if regime == Regime::Locks && !self.is_locked(shared, rank) {
            return Err(Trouble::Misuse("this rank has not locked the target"));
        }
        let Some(id) = self.target(shared, rank, regime) else {
            // Once the epoch is open there is an object for it.
            self.again |= regime == Regime::Fence && self.fence.want_open();
            return Ok(Given::NoTarget);
        };
        self.note_ready(shared, id);
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
        if !object.ready && !shared.waiting.may_keep(&shared.limits) {
            self.push(shared, host, id);
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
        if !object.ready {
            shared.waiting.operations += 1;
        }
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
}
