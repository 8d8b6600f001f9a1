//! How the processes of a job stand, as an attachment knows it: in the node by their slots and
//! record locks, beyond it as the room says that reaches them.

use super::beyond::Standing;
use super::forked::FORKED;
use super::liveness::{self, may_act};
use super::node::Node;
use super::segment::{RankSlot, STATE_DEAD, STATE_LEFT};
use crate::base::sync::Ordering;
use crate::base::{Error, Result, Slot, forked};
use rustix::fd::AsFd;

/// Most peers asked about in one check.
const PROBES: usize = 64;

impl Node {
    #[cold]
    fn standing_beyond(&self, slot: Slot) -> Standing {
        self.beyond.get().map_or(Standing::There, |beyond| beyond.standing(slot))
    }

    fn standing(&self, slot: Slot) -> Standing {
        if !self.is_local(slot) {
            return self.standing_beyond(slot);
        }
        match self.rank_slot(slot).state.load(Ordering::Acquire) {
            STATE_DEAD => Standing::Dead,
            STATE_LEFT => Standing::Left,
            _ => Standing::There,
        }
    }

    /// Deaths in the job that this process knows of, ever.
    pub fn deaths(&self) -> u32 {
        self.death_mark() & !FORKED
    }

    /// Another number after every death that this process learns of; not 0 in a child that it has
    /// forked off.
    ///
    /// Cost: a load of a line that only deaths write; in a job of several nodes another.
    #[inline]
    pub(crate) fn death_mark(&self) -> u32 {
        let here = self.header.deaths.load(Ordering::Acquire);
        match self.beyond.get() {
            Some(beyond) => here.wrapping_add(beyond.deaths()),
            None => here,
        }
    }

    /// Whether a slot's process is known to be gone (dead or left). One load.
    #[inline]
    pub fn is_dead(&self, slot: Slot) -> bool {
        if self.is_local(slot) {
            return is_gone(self.rank_slot(slot));
        }
        self.standing_beyond(slot) != Standing::There
    }

    /// Whether a slot's process is known to have died, rather than left. One load.
    pub fn has_died(&self, slot: Slot) -> bool {
        self.standing(slot) == Standing::Dead
    }

    /// Whether a slot's process is known to have left in good order.
    pub fn has_left(&self, slot: Slot) -> bool {
        self.standing(slot) == Standing::Left
    }

    /// Asks the kernel whether a slot's process is gone, and records it if so. About 1 µs.
    pub fn probe(&self, slot: Slot) -> bool {
        if !self.is_local(slot) {
            let beyond = self.beyond.get();
            return beyond.is_some_and(|beyond| beyond.probe(slot) != Standing::There);
        }
        let block = self.rank_slot(slot);
        if may_act(block.state.load(Ordering::Acquire))
            && slot != self.slot
            && !liveness::held_by_other(self.fd.as_fd(), slot)
        {
            // It may have left in good order between the two looks; mark_dead leaves LEFT alone.
            liveness::mark_dead(&self.header, block, 0);
        }
        self.is_dead(slot)
    }

    /// An error if one of `slots` is gone: known ones at once, then at most 64 are asked about
    /// per call, a different 64 each time, so that a wait among thousands stays cheap.
    pub fn check(
        &self,
        slots: impl Iterator<Item = Slot> + Clone,
        during: &'static str,
    ) -> Result<()> {
        forked::refuse_forked(during)?;
        self.help();
        let mut count = 0;
        let mut left = None;
        for slot in slots.clone() {
            count += 1;
            match self.standing(slot) {
                Standing::Dead => return Err(self.died(slot, during)),
                Standing::Left => left = left.or(Some(slot)),
                Standing::There => {}
            }
        }
        // Who died is the cause; who left may have left because of it.
        if let Some(slot) = left {
            return Err(self.died(slot, during));
        }
        let first = if count > PROBES {
            self.probe_cursor.fetch_add(PROBES as u32, Ordering::Relaxed) as usize % count
        } else {
            0
        };
        for slot in slots.clone().chain(slots).skip(first).take(count.min(PROBES)) {
            if self.probe(slot) {
                return Err(self.died(slot, during));
            }
        }
        Ok(())
    }

    /// The error that reports that `slot`'s process is gone. One that left after somebody died
    /// most likely left because of that: then the error names the dead.
    #[cold]
    pub fn died(&self, slot: Slot, during: &'static str) -> Error {
        if forked::is_forked() {
            return forked::error(during);
        }
        let slot = if self.has_left(slot) {
            match self.locals().find(|other| self.has_died(*other)) {
                Some(dead) => dead,
                None => return Error::RankLeft { rank: self.rank_of(slot), during },
            }
        } else {
            slot
        };
        let cause = match self.beyond.get() {
            Some(beyond) if !self.is_local(slot) => beyond.cause(slot),
            _ => liveness::describe_end(self.rank_slot(slot)),
        };
        Error::RankDied { rank: self.rank_of(slot), cause, during }
    }
}

/// See [`Node::is_dead`].
#[inline]
pub(crate) fn is_gone(slot: &RankSlot) -> bool {
    matches!(slot.state.load(Ordering::Acquire), STATE_DEAD | STATE_LEFT)
}
