//! Fences (paper 001 §3.4.2, figure 3.5, and §4.2.3).
//!
//! ```text
//!  small teams:   [IBARRIER] .. operations ..  REDUCE_SCATTER  rest, decrements   wait: counted
//!  large teams:   [IBARRIER] .. operations ..  wait: all acknowledged   BARRIER (opens the next)
//! ```
//!
//! The *opening* barrier lets operations go before the fence that ends the epoch. It does not
//! block, and whoever has called the opening fence takes part in it from then on, whatever else
//! the rank does. Eager issuing begins it in the opening fence. Otherwise it is begun by the
//! first rank that has enough operations to want it, and joined by the others when its first
//! message comes; an epoch with few operations does without, since the reduce-scatter tells the
//! same: all have called the closing fence. Chapter 4 uses an early reduce-scatter for that, in
//! which the others can take part only in their closing fence; a rank that fills its pools would
//! then wait for them, and for ever if they wait for something it does after.
//!
//! *Small teams*: the reduce-scatter tells each rank how many others have operations for it; the
//! last operation to a target, or a message of its own if all are gone, counts there. *Large
//! teams*: operations are acknowledged, and a barrier follows. After it every rank has called
//! the fence and nothing is under way, so it is the opening barrier of the next epoch as well.

use super::Trouble;
use super::collective::Step;
use super::host::{Host, Sent};
use super::limits::Issuing;
use super::message::{Message, Riders};
use super::ranks::Ranks;
use super::shared::Shared;
use super::table::Closing;
use super::window::Window;
use std::task::Poll;

/// What the program asserts about a fence; the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceFlags {
    /// No operation of this window precedes it in this epoch (`MPI_MODE_NOPRECEDE`).
    pub no_precede: bool,
    /// No operation follows before the next fence (`MPI_MODE_NOSUCCEED`).
    pub no_succeed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// Nobody needs it yet.
    Deferred,
    Running,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No closing fence has been called.
    Idle,
    /// Waits for the opening barrier, there being nothing else to wait for.
    Opening,
    Reduce,
    /// Waits until the rest is sent and this many ranks have counted here.
    Count(u32),
    /// Waits for the opening barrier, to send all operations.
    Open,
    /// Waits for their acknowledgement.
    Acknowledge,
    Barrier,
}

/// The fences of one window.
#[derive(Debug)]
pub(super) struct Fence {
    /// An epoch is open.
    pub open: bool,
    /// Number of the epoch, the same on all ranks.
    number: u64,
    opening: Opening,
    phase: Phase,
    /// Small teams: those that expect a decrement of this rank in this epoch.
    pub touched: Ranks,
    /// Decrements counted here, by the parity of the epoch.
    pub counted: [u32; 2],
}

impl Fence {
    pub fn new(size: u32) -> Fence {
        Fence {
            open: false,
            number: 0,
            opening: Opening::Deferred,
            phase: Phase::Idle,
            touched: Ranks::new(size),
            counted: [0; 2],
        }
    }

    /// Whether operations may be sent.
    pub fn is_open(&self) -> bool {
        self.opening == Opening::Done
    }

    /// Fence epochs that have been ended.
    pub fn ended(&self) -> u64 {
        self.number
    }

    /// Whether the end of an epoch is waited for that nobody ends who has ended only so many.
    pub fn misses(&self, ended: u64) -> bool {
        self.phase != Phase::Idle && ended <= self.number
    }

    /// Asks for the opening barrier; whether it must be begun.
    pub fn want_open(&mut self) -> bool {
        let begin = self.open && self.opening == Opening::Deferred;
        if begin {
            self.opening = Opening::Running;
        }
        begin
    }

    /// Whether a member can have come to the reduction of an epoch: it is one epoch ahead at most,
    /// since it ends an epoch only after this rank has taken part. One that comes late is harmless:
    /// of a fence that others ended by asserting that there was nothing to end.
    fn reduces(&self, instance: u64) -> bool {
        instance <= self.number.saturating_add(1)
    }

    /// The same for a barrier. An opening one may come late: the end of its epoch overtakes it. A
    /// member may open the epoch after next: the closing barrier, in which this rank may still be,
    /// is the next one's opening, too, and that epoch may end without another.
    fn bars(&self, instance: u64) -> bool {
        instance <= self.opening_barrier().saturating_add(4)
    }

    fn opening_barrier(&self) -> u64 {
        2 * self.number
    }

    fn closing_barrier(&self) -> u64 {
        2 * self.number + 1
    }
}

impl Window {
    /// Whether a reply can be one of a collective machine at this time, if it claims to be.
    pub fn due(&self, message: &Message<'_>) -> bool {
        match *message {
            Message::Barrier { instance, round } => {
                self.fence.bars(instance) && self.barriers.has_round(round)
            }
            Message::Reduce { instance, round, .. } => {
                self.fence.reduces(instance) && self.barriers.has_round(round)
            }
            _ => true,
        }
    }

    /// Takes part in the opening barrier if somebody has begun it.
    pub fn advance_opening<H: Host>(&mut self, shared: &mut Shared, host: &mut H) {
        let number = self.fence.opening_barrier();
        if !self.fence.open || self.fence.opening == Opening::Done {
            return;
        }
        if self.fence.opening == Opening::Deferred && !self.barriers.begun(number) {
            return;
        }
        self.fence.opening = Opening::Running;
        self.barriers.join(number);
        match self.advance_barrier(shared, host, number) {
            Step::Done => {
                self.fence.opening = Opening::Done;
                if self.access.is_none() {
                    self.each_target(shared, |window, shared, id| window.work(shared, host, id));
                }
            }
            Step::Full => self.again = true,
            Step::Waits => {}
        }
    }

    fn advance_barrier<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        instance: u64,
    ) -> Step {
        let id = self.id;
        self.barriers.advance(instance, |to, round| {
            shared.send(host, id, to, &Message::Barrier { instance, round })
        })
    }

    fn advance_reduction<H: Host>(&mut self, shared: &mut Shared, host: &mut H) -> Step {
        let (id, instance) = (self.id, self.fence.number);
        self.reductions.advance(instance, |to, round, counts| {
            shared.send(host, id, to, &Message::Reduce { instance, round, counts })
        })
    }

    /// `fence`, asked until it is done.
    pub fn fence<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        flags: FenceFlags,
    ) -> Poll<Result<(), Trouble>> {
        loop {
            if let Some(trouble) = self.first_dead() {
                self.fence.phase = Phase::Idle;
                return Poll::Ready(Err(trouble));
            }
            if self.all.is_some() || self.locks > 0 {
                // Operations would belong to that epoch, and no fence would complete them.
                match self.end_given_up(shared, host) {
                    Poll::Ready(Ok(())) => {}
                    other => return other,
                }
            }
            match self.fence.phase {
                Phase::Idle => {
                    if !self.fence.open {
                        return self.begin_epoch(shared, host, flags, false);
                    }
                    self.fence.phase = if flags.no_precede {
                        self.fence.want_open();
                        Phase::Opening
                    } else if self.size <= shared.limits.reduce_teams {
                        self.reductions.join(self.fence.number, self.fence.touched.iter());
                        Phase::Reduce
                    } else {
                        self.fence.want_open();
                        Phase::Open
                    };
                }
                Phase::Opening | Phase::Open => {
                    self.advance_opening(shared, host);
                    if !self.fence.is_open() {
                        return Poll::Pending;
                    }
                    if self.fence.phase == Phase::Opening {
                        return self.begin_epoch(shared, host, flags, false);
                    }
                    self.fence.phase = Phase::Acknowledge;
                }
                Phase::Reduce => {
                    // Others may still want the opening barrier before their closing fence.
                    self.advance_opening(shared, host);
                    if self.advance_reduction(shared, host) != Step::Done {
                        return Poll::Pending;
                    }
                    self.fence.opening = Opening::Done;
                    self.fence.phase = Phase::Count(self.reductions.result(self.fence.number));
                }
                Phase::Count(expected) => {
                    if !self.count(shared, host, expected) {
                        return Poll::Pending;
                    }
                    return self.begin_epoch(shared, host, flags, false);
                }
                Phase::Acknowledge => {
                    self.flush_targets(shared, host);
                    let mut trouble = self.trouble.take();
                    self.each_target(shared, |window, shared, id| {
                        if shared.pools.targets[id].remote_complete() {
                            trouble = trouble.or(window.drop_target(shared, id));
                        }
                    });
                    self.trouble = trouble;
                    if self.table.targets() > 0 {
                        return Poll::Pending;
                    }
                    self.barriers.join(self.fence.closing_barrier());
                    self.fence.phase = Phase::Barrier;
                }
                Phase::Barrier => {
                    let number = self.fence.closing_barrier();
                    if self.advance_barrier(shared, host, number) != Step::Done {
                        return Poll::Pending;
                    }
                    return self.begin_epoch(shared, host, flags, true);
                }
            }
        }
    }

    /// Sends the rest with the decrements; whether all is done and all have counted here.
    fn count<H: Host>(&mut self, shared: &mut Shared, host: &mut H, expected: u32) -> bool {
        let number = self.fence.number as u8;
        let trouble = self.close_targets(shared, host, |_| Closing::Decrement(number));
        if let (Some(trouble), None) = (trouble, self.trouble) {
            self.trouble = Some(trouble);
        }
        // Those whose objects have been cleaned up.
        let mut next = self.fence.touched.first(0);
        while let Some(rank) = next {
            next = self.fence.touched.first(rank + 1);
            if self.table.target(&shared.pools, rank).is_some() {
                continue;
            }
            let riders = Riders { decrement: Some(number), ..Riders::default() };
            let message = Message::Control { seq: 0, riders };
            if shared.send(host, self.id, rank, &message) == Sent::Full {
                return false;
            }
            self.fence.touched.remove(rank);
        }
        let counted = self.fence.counted[usize::from(number % 2)];
        self.table.targets() == 0 && self.fence.touched.is_empty() && counted >= expected
    }

    /// Ends the epoch, if there is one, and begins the next.
    fn begin_epoch<H: Host>(
        &mut self,
        shared: &mut Shared,
        host: &mut H,
        flags: FenceFlags,
        synchronised: bool,
    ) -> Poll<Result<(), Trouble>> {
        let fence = &mut self.fence;
        if fence.open {
            fence.counted[(fence.number % 2) as usize] = 0;
            fence.number += 1;
        }
        fence.open = !flags.no_succeed;
        fence.phase = Phase::Idle;
        fence.opening = match (synchronised, shared.limits.issuing) {
            (true, _) if !flags.no_succeed => Opening::Done,
            (_, Issuing::Eager) => Opening::Running,
            _ => Opening::Deferred,
        };
        (self.operations, self.bytes) = (0, 0);
        self.advance_opening(shared, host);
        self.outcome(None)
    }
}
