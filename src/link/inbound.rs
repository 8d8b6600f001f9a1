//! The consumer of an inbox: takes messages, and does not wait for ever for one whose producer
//! died while writing it.

use crate::base::{Offset, Result, Slot};
use crate::shm::node::Node;
use crate::shm::region::SharedRef;
use crate::shm::ring::inbox::{InboxMemory, InboxReceiver};
use crate::shm::ring::{Incoming, Polled, Position, Scratch};

/// Polls that meet the same unfinished message between two questions to the kernel whether its
/// producer lives.
const PROBE_EVERY: u32 = 1024;

/// An inbox of this process. There must be only one for each inbox.
pub(super) struct Inbound {
    inbox: SharedRef<InboxMemory>,
    from_inbox: InboxReceiver,
    unfinished: Option<Slot>,
    unfinished_polls: u32,
}

impl Inbound {
    /// The consumer of the inbox at `at`.
    pub fn new(node: &Node, at: Offset) -> Result<Inbound> {
        Ok(Inbound {
            inbox: SharedRef::new(node.mapping(), at)?,
            from_inbox: InboxReceiver::new(),
            unfinished: None,
            unfinished_polls: 0,
        })
    }

    /// The next message and the slot of its sender, which is one of the job's.
    #[inline]
    pub fn poll<'s>(
        &mut self,
        node: &Node,
        scratch: &'s mut Scratch,
    ) -> Result<Option<(Slot, Incoming<'s>)>> {
        let is_dead = |s: Slot| u32::from(s.0) < node.size() && node.is_dead(s);
        match self.from_inbox.poll(&self.inbox, scratch, is_dead)? {
            Polled::Empty => {
                self.unfinished = None;
                Ok(None)
            }
            Polled::Unfinished(owner) => {
                self.wait_for_owner(node, owner)?;
                Ok(None)
            }
            Polled::Message(m) => Ok(Some((node.checked_slot(m.from.0.into())?, m))),
        }
    }

    #[cold]
    fn wait_for_owner(&mut self, node: &Node, owner: Slot) -> Result<()> {
        let owner = node.checked_slot(owner.0.into())?;
        if self.unfinished != Some(owner) {
            self.unfinished = Some(owner);
            self.unfinished_polls = 0;
        }
        self.unfinished_polls += 1;
        if self.unfinished_polls.is_multiple_of(PROBE_EVERY) {
            // Recorded if dead; the next poll then skips the message.
            node.probe(owner);
        }
        Ok(())
    }

    /// Whose unfinished message the inbox waits for.
    pub fn unfinished(&self) -> Option<Slot> {
        self.unfinished
    }

    /// Messages given up because their producers died while they wrote them.
    pub fn skipped(&self) -> u64 {
        self.from_inbox.skipped()
    }

    /// Where the next message will start.
    pub fn load_tail(&self) -> Result<Position> {
        self.inbox.load_tail()
    }

    /// Whether everything before `place` has been taken.
    pub fn has_passed(&self, place: Position) -> bool {
        self.from_inbox.has_passed(&*self.inbox, place)
    }
}
