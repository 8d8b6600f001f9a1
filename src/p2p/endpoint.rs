//! What a room above sends and receives by: a process's attachment, connections and messages.

use super::counters::MessageCounters;
use super::messenger::{Messenger, Wanted};
use super::ports::Lease;
use super::record::Record;
use crate::base::{Deadline, Error, Result, Slot};
use crate::link::core::{Core, Wire};
use crate::shm::node::Node;
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;

/// See the [module](self). Teams and requests share one; it keeps the attachment.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(super) node: Arc<Node>,
    core: Arc<Core>,
    pub(super) messenger: Arc<Messenger>,
    /// Of one that is not the process's: what it is called until dropped.
    lease: Option<Lease>,
}

impl Endpoint {
    /// That of a process.
    ///
    /// # Errors
    /// Settings that are none.
    pub fn of(node: &Arc<Node>) -> Result<Endpoint> {
        let core = Core::of(node)?;
        let messenger = Messenger::of(node, &core)?;
        messenger.awaited.enter();
        Ok(Endpoint { node: node.clone(), core, messenger, lease: None })
    }

    /// One that shares nothing but memory with the process's others; what goes to it comes from
    /// those of the same number. `beyond`: on other nodes, too, by connections that all share.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; settings that are none.
    pub fn leased(node: &Arc<Node>, lease: Lease, beyond: bool) -> Result<Endpoint> {
        let (core, messenger) = lease.open(node, beyond)?;
        messenger.awaited.enter();
        Ok(Endpoint { node: node.clone(), core, messenger, lease: Some(lease) })
    }

    /// Whether it is not the process's.
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Whether the calling thread may communicate by it. Costs a load if any may.
    #[inline(always)]
    pub fn is_admitted(&self) -> bool {
        self.messenger.may_communicate()
    }

    /// Makes sure that the calling thread may communicate by it.
    ///
    /// # Errors
    /// [`Error::Misuse`].
    #[inline(always)]
    pub fn admit(&self, during: &'static str) -> Result<()> {
        if self.is_admitted() { Ok(()) } else { Err(foreign(during)) }
    }

    /// Has the calling thread alone communicate by it.
    ///
    /// # Errors
    /// [`Error::Misuse`]: one does already.
    pub fn bind(&self) -> Result<()> {
        if self.messenger.bind() {
            return Ok(());
        }
        let why = "its messages are funneled through a thread already; drop that one's \
                   `Funneled` first, or use an endpoint per thread (`Team::endpoints`)";
        Err(Error::Misuse { what: "funnel", why: why.into() })
    }

    /// Ends [`Endpoint::bind`].
    pub fn unbind(&self) {
        self.messenger.unbind();
    }

    #[inline(always)]
    pub(super) fn wire(&self) -> Wire<'_> {
        Wire { node: &self.node, core: &self.core }
    }

    /// See [`Messenger::keep_waker`].
    pub(super) fn keep_waker(&self, record: &Record, peer: Option<Slot>, waker: &Waker) -> bool {
        self.messenger.keep_waker((&self.node, &self.core), record, peer, waker)
    }

    /// Whether whoever waits now keeps its core for a while.
    pub fn waits_awake(&self) -> bool {
        self.node.pace().is_awake()
    }

    /// Receives what has come and does what is due.
    pub fn progress(&self) -> Result<()> {
        self.messenger.progress(self.wire()).map(drop)
    }

    /// What was done so far.
    pub fn counters(&self) -> MessageCounters {
        let mut counters = self.messenger.counting.read(&self.messenger.engine());
        self.messenger.switching.fill_in(&mut counters);
        counters.lent = self.messenger.lending.sent();
        counters.lent_bytes = self.messenger.lending.bytes();
        counters
    }

    /// Forgets the messages of a context that is no more.
    pub fn forget_context(&self, context: u32) {
        self.messenger.forget_context(self.wire(), context);
    }

    /// For the checks of waits that depend on a peer: if it is gone, and all that it had sent was
    /// received, ends what waits for it.
    /// Whether that was so.
    pub fn mourn(&self, peer: Slot) -> Result<bool> {
        self.messenger.has_mourned(self.wire(), peer)
    }

    /// Waits until `find` finds something.
    ///
    /// # Errors
    /// Those of `check`; [`Error::TimedOut`]; damage.
    pub fn await_any<R>(
        &self,
        deadline: Deadline,
        during: &'static str,
        find: impl Fn() -> Option<R>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        let found = Cell::new(None);
        // Asked more than once; what `find` has found it may not find again.
        let done = || {
            let now = found.take().or_else(&find);
            let some = now.is_some();
            found.set(now);
            some
        };
        let (wire, wanted) = (self.wire(), Wanted::default());
        let waited = self.messenger.wait_until(wire, deadline, during, wanted, done, check);
        match (waited, found.take()) {
            (_, Some(found)) => Ok(found),
            (Err(error), None) => Err(error),
            (Ok(()), None) => Err(Error::invalid(during, "nothing was found")),
        }
    }
}

#[cold]
fn foreign(during: &'static str) -> Error {
    let why = "messages are funneled through another thread; make the call there, or give each \
               thread an endpoint (`Team::endpoints`)";
    Error::Misuse { what: during, why: why.into() }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let last = self.messenger.awaited.leave(self.wire());
        if last && self.node.is_leaving() && !std::thread::panicking() {
            self.messenger.part(self.wire());
        }
        if last {
            self.messenger.lending.leave(&self.node);
        }
    }
}
