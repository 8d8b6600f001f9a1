//! The launcher's view of a segment: it watches and records, and takes no slot.

use super::liveness;
use super::map::Mapping;

use super::region::SharedRef;
use super::segment::{Areas, NodeHeader, RankSlot};
use super::wiring::open_head;
use crate::base::sync::Ordering;
use crate::base::{Error, Offset, Result, Slot};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// The launcher's view of a segment: it watches and records, and takes no slot.
#[derive(Debug)]
pub struct Observer {
    _fd: OwnedFd,
    head: Arc<Mapping>,
    header: SharedRef<NodeHeader>,
    areas: Areas,
    size: u32,
}

impl Observer {
    /// Opens the memory file of a node.
    pub fn open(fd: OwnedFd) -> Result<Observer> {
        let (fd, head, areas, size) = open_head(fd)?;
        let header = SharedRef::new(&head, Offset(0))?;
        Ok(Observer { _fd: fd, head, header, areas, size })
    }

    fn block(&self, slot: Slot) -> Result<SharedRef<RankSlot>> {
        if u32::from(slot.0) >= self.size {
            return Err(Error::invalid("slot", format!("{slot} in a job of {}", self.size)));
        }
        SharedRef::new(&self.head, self.areas.slot(slot))
    }

    /// Records that a slot's process ended: `cause` is 0x100 | signal or 0x200 | exit code.
    /// A process that had left in good order is not counted.
    pub fn mark_dead(&self, slot: Slot, cause: u32) -> Result<()> {
        liveness::mark_dead(&self.header, &*self.block(slot)?, cause);
        Ok(())
    }

    /// Records the core a rank is bound to.
    pub fn set_core(&self, slot: Slot, core: u32) -> Result<()> {
        self.block(slot)?.core.store(core.saturating_add(1), Ordering::Relaxed);
        Ok(())
    }

    /// Announces that the job is being ended.
    pub fn set_ending(&self) {
        self.header.ending.store(1, Ordering::Release);
        self.header.wiring.notify();
    }
}
