//! Giving back what the dead left behind.
//!
//! | owner | garbage once | and then |
//! |---|---|---|
//! | a process, which may be freeing it | it is dead | a range that windows use is nobody's from then on |
//! | a process, which ends the block | it is dead | the block ends from the beginning |
//! | members | none that has joined is alive and has not left | the block ends as if the last had left |
//! | a block | the block is gone | uses just end |
//! | nobody | no window uses the range | |
//!
//! Only deaths make garbage: who lives finishes what it began. So one look at the whole table after
//! each death, by whoever next allocates or asks what is in use, finds all there is. A sweeper first
//! notes that it is the one who frees what it found, so that nobody else does too, and if it dies,
//! the next sweep goes on with it.

use super::alloc::Which;
use super::heap::{Entry, Locked, Owner};
use super::node::Node;
use super::roll::Roll;
use crate::base::sync::Ordering;
use crate::base::{Result, Slot};

impl Node {
    /// Frees what deaths have left behind. Costs three loads while nobody has died since the last
    /// sweep.
    pub(super) fn sweep(&self) -> Result<()> {
        // Before the look: of a death that comes later it may miss something.
        let deaths = self.header().deaths.load(Ordering::Acquire);
        if deaths == 0 {
            return Ok(());
        }
        // The commons first: when blocks are gone, what belongs to them can be seen to be garbage.
        for which in [Which::Commons, Which::Symmetric] {
            if self.with_heap(which, |heap, _| Ok(heap.swept()))? == deaths {
                continue;
            }
            loop {
                let found = self.with_heap(which, |heap, until| {
                    heap.locked(self, until, |table| self.claim_garbage(which, table))
                })?;
                let Found { ranges, blocks } = found;
                if ranges.is_empty() && blocks.is_empty() {
                    break;
                }
                blocks.iter().try_for_each(|block| self.end_block(block))?;
                self.finish(which, &ranges, None)?;
            }
            self.with_heap(which, |heap, _| {
                heap.note_swept(deaths);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Notes that this process frees what is garbage now. Another round may find more: what
    /// belonged to it.
    fn claim_garbage(&self, which: Which, table: &Locked<'_>) -> Found {
        let mut found = Found { ranges: Vec::new(), blocks: Vec::new() };
        let orphaned = |entry: &Entry| match entry.owner {
            Owner::Block(id) if matches!(which, Which::Commons) => table.find(id).is_none(),
            Owner::Block(id) => self.is_block_gone(id),
            _ => false,
        };
        for entry in table.entries().filter(|entry| entry.is_use) {
            if orphaned(&entry) {
                table.remove(&entry);
            }
        }
        for entry in table.entries().filter(|entry| !entry.is_use) {
            let held = |roll: Roll| roll.is_held(|slot| self.is_dead(slot));
            match entry.owner {
                Owner::Nobody | Owner::Process(_) | Owner::Freeing(_) => {
                    if self.claim_unused(table, &entry) {
                        found.ranges.push(entry);
                    }
                }
                Owner::Block(_) if orphaned(&entry) => {
                    table.hand(&entry, Owner::Freeing(self.slot()));
                    found.ranges.push(entry);
                }
                Owner::Members => {
                    // A roll that cannot be right is nobody's to free.
                    let roll = Roll::open(self.mapping(), self.in_commons(entry.offset), entry.len);
                    if roll.is_ok_and(|roll| !held(roll)) {
                        table.hand(&entry, Owner::Ending(self.slot()));
                        found.blocks.push(entry);
                    }
                }
                Owner::Ending(slot) if slot != self.slot() && self.is_known_dead(slot) => {
                    table.hand(&entry, Owner::Ending(self.slot()));
                    found.blocks.push(entry);
                }
                Owner::Block(_) | Owner::Ending(_) | Owner::Job => {}
            }
        }
        found
    }

    /// Notes that this process frees a range that nobody alive owns, if nobody uses it. If somebody
    /// does, it has no owner from then on but its uses.
    pub(super) fn claim_unused(&self, table: &Locked<'_>, range: &Entry) -> bool {
        let left = match range.owner {
            Owner::Nobody => true,
            Owner::Process(slot) | Owner::Freeing(slot) => {
                slot != self.slot() && self.is_known_dead(slot)
            }
            _ => false,
        };
        if !left {
            return false;
        }
        if !table.is_used(range) {
            table.hand(range, Owner::Freeing(self.slot()));
            return true;
        }
        if range.owner != Owner::Nobody {
            table.hand(range, Owner::Nobody);
        }
        false
    }

    fn is_known_dead(&self, slot: Slot) -> bool {
        u32::from(slot.0) < self.size() && self.is_dead(slot)
    }
}

/// What this process is to free.
struct Found {
    ranges: Vec<Entry>,
    blocks: Vec<Entry>,
}

#[cfg(test)]
mod tests;
