//! The connections of a process without the process: what it sends to others, and what comes, in one
//! thread and in the time of its device. For tests in virtual networks, and to measure what
//! connections take where there are more of them than a machine can have processes.

use super::Flow;
use super::deliver::FlowState;
use super::outlet::{News, Outlet, PairSettings};
use crate::base::adapt::Limits;
use crate::base::hints::Hints;
use crate::base::{Error, Rank, Result};
use crate::link::Push;
use crate::net::promotion::Settings;
use crate::net::provider::{Address, Device};
use crate::shm::ring::Label;
use std::sync::Arc;
use std::time::Duration;

/// The job's.
const COOKIE: u64 = 9;

/// A process's connections to others on other nodes, in one thread and in the time of their device.
pub struct Bare {
    pub(super) outlet: Outlet,
    pub(super) flows: [FlowState; 3],
    pub(super) hints: Arc<Hints>,
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bare({})", self.outlet.name())
    }
}

impl Bare {
    /// The number that devices for such processes are to be made with.
    pub const COOKIE: u64 = COOKIE;

    /// Those of `rank` in a job of `ranks` on other nodes, of which there may be up to 2^30 here. Peers that do not answer for
    /// `silence` count as dead; a queue pair has failed after `patience`.
    ///
    /// # Errors
    /// What the device has not; [`Error::InvalidArgument`] for a rank beyond the job.
    pub fn open(
        device: Arc<dyn Device>,
        rank: Rank,
        ranks: u32,
        policy: Settings,
        times: [Duration; 2],
    ) -> Result<Bare> {
        Bare::with_limits(device, rank, ranks, policy, Limits::default(), times)
    }

    /// As [`open`](Self::open), with other limits for what large messages are received into.
    ///
    /// # Errors
    /// As there.
    pub fn with_limits(
        device: Arc<dyn Device>,
        rank: Rank,
        ranks: u32,
        policy: Settings,
        limits: Limits,
        [silence, patience]: [Duration; 2],
    ) -> Result<Bare> {
        let hints = Arc::new(Hints::new());
        let pairs = PairSettings { policy, patience, limits, hints: hints.clone(), kept: 1 << 20 };
        let outlet = Outlet::open(device, COOKIE, pairs)?;
        let flow = |flow| FlowState::new(flow, rank, ranks, COOKIE, silence, &outlet);
        let [a, b, c] = Flow::ALL.map(flow);
        Ok(Bare { flows: [a?, b?, c?], outlet, hints })
    }

    /// Where others reach it.
    pub fn address(&self) -> Address {
        self.outlet.address()
    }

    /// What the program says of itself.
    pub fn hints(&self) -> &Arc<Hints> {
        &self.hints
    }

    /// Queue pairs that there are.
    pub fn queue_pairs(&self) -> usize {
        self.outlet.pairs().count_open()
    }

    /// Sends a message to a peer that is reached at `address`; whether there was room.
    ///
    /// # Errors
    /// The peer is gone, or its address is none.
    pub fn send(&mut self, to: Rank, address: &Address, bytes: &[u8]) -> Result<bool> {
        let flow = &mut self.flows[Flow::Messages as usize];
        flow.meet(&self.outlet, to, address)?;
        match flow.send(&self.outlet, (to, 0), Label::new(1, 0)?, [bytes, &[]]) {
            Some(push) => Ok(push == Push::Sent),
            None => Err(Error::invalid("a message", format!("rank {to} is gone"))),
        }
    }

    /// Who sent the next message that has come, which is taken.
    pub fn take(&mut self) -> Option<Rank> {
        self.flows[Flow::Messages as usize].take(&self.outlet, 0).map(|message| message.0)
    }

    /// Whether messages to a peer go by a queue pair.
    pub fn is_hot(&self, peer: Rank) -> bool {
        self.flows[Flow::Messages as usize].is_hot(peer)
    }

    /// Whether peers have everything that was sent.
    pub fn is_drained(&self) -> bool {
        self.flows.iter().all(FlowState::is_drained)
    }

    /// Takes what has come.
    pub fn look(&mut self) {
        let Bare { outlet, flows, .. } = self;
        outlet.arm();
        let Some(mut taking) = outlet.begin(true) else { return };
        flows.iter_mut().for_each(FlowState::mark_ends);
        taking.take(&mut |news| match news {
            News::Datagram(flow, header, body, source) => {
                flows[flow as usize].receive(outlet, &header, body, &source);
            }
            News::Pair(rank, flow, pair, came) => {
                flows[flow as usize].pair_came(outlet, rank, pair, came);
            }
        });
        flows.iter_mut().for_each(|flow| flow.tell_ends(outlet));
    }

    /// Does what is due, for all peers; when something is next.
    pub fn tick(&mut self) -> u64 {
        let Bare { outlet, flows, .. } = self;
        let now = outlet.now();
        flows.iter_mut().map(|flow| flow.tick(outlet, now)).min().unwrap_or(u64::MAX)
    }

    /// Sleeps in the device until something comes, at most `most` nanoseconds and until `next`.
    pub fn sleep(&self, next: u64, most: u64) {
        self.outlet.pairs().await_sent();
        self.outlet.arm();
        self.outlet.sleep(next.min(self.outlet.now().saturating_add(most)));
    }
}
