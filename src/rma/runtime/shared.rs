//! What all windows of an engine share, and the one answer that may wait to be sent.

use super::counters::Counters;
use super::host::{Host, Sent};
use super::limits::Limits;
use super::message::{Class, Fault, Message, RequestId, WindowId};
use super::pools::Pools;
use super::reserve::Waiting;

/// An answer that the transport did not take. While there is one, no request is handled: so one
/// is enough, and the data of an [`Owed::Answer`] stays in [`Shared::answer`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Owed {
    Answer { seq: u64, acked: bool, request: Option<RequestId>, result: Result<(), Fault> },
    Granted { recovered: Option<u32>, clock: u64 },
    Discarded { from: u64 },
}

/// An acquisition that is not waited for: see `acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// Of the lock of this rank.
    Lock(u32),
    /// Of a lock-all epoch.
    All,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub limits: Limits,
    pub pools: Pools,
    pub counters: Counters,
    /// Operations sent and not known to be done.
    pub outstanding: u64,
    /// What those hold that wait for a word of a peer.
    pub waiting: Waiting,
    /// Lock epochs open, over all windows, and calls that open one; those of lock-all that take no
    /// lock left out.
    pub locks: u32,
    /// The acquisition that may go on though its call has returned.
    pub open: Option<(WindowId, Open)>,
    /// Counts calls of progress: the only clock.
    pub tick: u64,
    /// Data of the answer that is made or owed.
    pub answer: Vec<u8>,
    stash: Option<(WindowId, u32, Owed)>,
}

impl Shared {
    pub fn new(limits: Limits) -> Shared {
        Shared {
            pools: Pools::new(&limits),
            limits,
            counters: Counters::default(),
            outstanding: 0,
            waiting: Waiting::default(),
            locks: 0,
            open: None,
            tick: 0,
            answer: Vec::new(),
            stash: None,
        }
    }

    /// Sends and counts.
    pub fn send<H: Host>(
        &mut self,
        host: &mut H,
        window: WindowId,
        to: u32,
        message: &Message<'_>,
    ) -> Sent {
        let sent = host.send(window, to, message);
        if sent == Sent::Yes {
            match message.class() {
                Class::Request => self.counters.requests_sent += 1,
                Class::Reply => self.counters.replies_sent += 1,
            }
        }
        sent
    }

    /// Sends the answer owed, if any; whether another can be made.
    pub fn clear<H: Host>(&mut self, host: &mut H) -> bool {
        let Some((window, to, owed)) = self.stash else { return true };
        let answer = std::mem::take(&mut self.answer);
        let message = match owed {
            Owed::Answer { seq, acked, request, result } => {
                Message::Answer { seq, acked, request, result: result.map(|()| &answer[..]) }
            }
            Owed::Granted { recovered, clock } => Message::Granted { recovered, clock },
            Owed::Discarded { from } => Message::Discarded { from },
        };
        let sent = self.send(host, window, to, &message);
        self.answer = answer;
        if sent != Sent::Full {
            self.stash = None;
        }
        self.stash.is_none()
    }

    /// Answers; only after [`Shared::clear`].
    pub fn reply<H: Host>(&mut self, host: &mut H, window: WindowId, to: u32, owed: Owed) {
        debug_assert!(self.stash.is_none());
        self.stash = Some((window, to, owed));
        self.clear(host);
    }

    /// Whether an answer waits.
    pub fn owes(&self) -> bool {
        self.stash.is_some()
    }

    /// Forgets what is left of a window that goes.
    pub fn forget(&mut self, window: WindowId) {
        if self.stash.is_some_and(|(of, ..)| of == window) {
            self.stash = None;
        }
        if self.open.is_some_and(|(of, _)| of == window) {
            self.open = None;
        }
    }

    /// Counts operations that went out.
    pub fn went_out(&mut self) {
        self.outstanding += 1;
        self.counters.most_outstanding = self.counters.most_outstanding.max(self.outstanding);
    }

    /// Whether another operation may go out.
    pub fn may_go_out(&self) -> bool {
        self.outstanding < self.limits.outstanding as u64
    }
}
