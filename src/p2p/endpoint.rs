//! What a room above sends and receives by: a process's attachment, connections and messages.

use super::counters::MessageCounters;
use super::messenger::Messenger;
use crate::base::{Result, Slot};
use crate::link::core::{Core, Wire};
use crate::shm::node::Node;
use std::sync::Arc;

/// See the [module](self). Teams and requests share one; it keeps the attachment.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(super) node: Arc<Node>,
    core: Arc<Core>,
    pub(super) messenger: Arc<Messenger>,
}

impl Endpoint {
    /// That of a process.
    ///
    /// # Errors
    /// Settings that are none.
    pub fn of(node: &Arc<Node>) -> Result<Endpoint> {
        let core = Core::of(node)?;
        let messenger = Messenger::of(node, &core)?;
        Ok(Endpoint { node: node.clone(), core, messenger })
    }

    #[inline(always)]
    pub(super) fn wire(&self) -> Wire<'_> {
        Wire { node: &self.node, core: &self.core }
    }

    /// Receives what has come and does what is due.
    pub fn progress(&self) -> Result<()> {
        self.messenger.progress(self.wire()).map(drop)
    }

    /// What was done so far.
    pub fn counters(&self) -> MessageCounters {
        let engine = self.messenger.engine();
        self.messenger.counting.read(&engine)
    }

    /// Forgets the messages of a context that is no more.
    pub fn forget_context(&self, context: u32) {
        self.messenger.forget_context(self.wire(), context);
    }

    /// For the checks of waits that depend on a peer: if it is gone, and all that it had sent was
    /// received, ends what waits for it.
    pub fn mourn(&self, peer: Slot) -> Result<()> {
        self.messenger.mourn(self.wire(), peer)
    }
}
