//! How long a window's shared memory lives: its block, and its range of symmetric memory.
//!
//! ```text
//!            leader                         each other member
//!            allocates, JOINED
//!                     \--- offset, nonce -->  JOINED, if the block is still this window's
//!            GONE                             GONE
//! ```
//! The first member of the team makes the block and joins it. The others join when they have heard
//! where it lies. The last to go frees everything; the dead count as gone. Each step is taken under
//! the lock of the commons, so nobody looks at a block that another has freed. A member that goes
//! before the window was complete marks it as failed: those that have not joined by then are not
//! waited for, and if they come, they are turned away. They recognise a block that has been freed
//! and used anew by its nonce.

use super::{Flavour, dynamic};
use crate::base::sync::{AtomicU32, Ordering};
use crate::base::{Deadline, Error, Offset, Result, Slot};
use crate::coll::Team;
use crate::rma::block::{Plan, REACH_MAPPED, STRIPES, Stage, WindowBlock, WindowHeader};
use crate::rma::memory::stride_of;
use crate::shm::map::{PAGE, available_memory};
use crate::shm::region::locate;
use crate::shm::wiring::random;
use std::ptr::NonNull;
use std::time::Duration;

/// Longest wait for a lock that nobody can hold for long any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// The member uses the window.
const JOINED: u32 = 1;
/// The member has dropped the window.
const GONE: u32 = 2;

/// What a window needs of symmetric memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Bytes in each stride; 0 for none.
    pub bytes: u64,
    /// The only stride in which the range is used; those of all members if there is none.
    pub home: Option<Slot>,
    /// Bytes that all members together will reserve.
    pub total: u64,
    /// How the window comes about.
    pub flavour: Flavour,
}

/// Where a window's block lies, as its maker tells the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub at: Offset,
    pub nonce: u64,
}

/// An error if all parts together do not fit the memory there is now. Asked once, before the
/// members reserve their parts at the same time, each of which sees the same room.
fn check_total(wanted: u64, size: u32) -> Result<()> {
    let (available, limit) = available_memory();
    if wanted <= available {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        what: format!("the {size} parts of a window"),
        wanted,
        available,
        limit,
        advice: "use a smaller window, fewer ranks, or raise that limit",
    })
}

fn header(base: NonNull<u8>) -> NonNull<WindowHeader> {
    base.cast()
}

impl WindowBlock {
    /// Allocates the block and the address range of a window (no pages of the latter yet), and
    /// joins it.
    pub(super) fn create(team: &Team, range: Range) -> Result<WindowBlock> {
        check_total(range.total, team.size())?;
        let node = team.node();
        let plan = Plan::new(team.size());
        let nonce = random()? | 1;
        // Both are claimed by this process until a second one has joined: see `shm::alloc`.
        let at = node.claim_commons(plan.bytes(team.size()))?;
        let fill = || {
            node.reserve(at, plan.bytes(team.size()), "a window's control lines")?;
            let base = locate(node.mapping(), at, plan.bytes(team.size()), PAGE)?;
            let heap = if range.bytes == 0 { 0 } else { node.alloc_symmetric(range.bytes, true)? };
            Ok((base, heap))
        };
        let (base, heap) = fill().inspect_err(|_| {
            let _ = node.free_commons(at);
        })?;
        // SAFETY: `locate` checked bounds and alignment; WindowHeader is a SharedLayout.
        let header = unsafe { header(base).as_ref() };
        header.heap.store(heap, Ordering::Relaxed);
        header.bytes.store(range.bytes, Ordering::Relaxed);
        header.size.store(team.size(), Ordering::Relaxed);
        let home = range.home.map_or(0, |slot| u32::from(slot.0) + 1);
        header.home.store(home, Ordering::Relaxed);
        header.flavour.store(range.flavour as u32, Ordering::Relaxed);
        let team = team.clone();
        let (bytes, stage) = (range.bytes, AtomicU32::new(Stage::Joined as u32));
        let (me, slot, size) = (team.rank().0, node.slot(), team.size());
        let block = WindowBlock { at, base, plan, team, me, slot, size, heap, bytes, stage };
        block.info(block.team.rank().0).presence.store(JOINED, Ordering::Relaxed);
        block.header().nonce.store(nonce, Ordering::Release);
        Ok(block)
    }

    /// What the others must know to join.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket { at: self.at, nonce: self.header().nonce.load(Ordering::Relaxed) }
    }

    /// Joins a window that the first member of the team made, with `bytes` in each stride.
    pub(super) fn join(team: &Team, ticket: Ticket, bytes: u64) -> Result<WindowBlock> {
        let node = team.node();
        let plan = Plan::new(team.size());
        let at = ticket.at;
        let base = locate(node.mapping(), at, plan.bytes(team.size()), PAGE)?;
        let stage = AtomicU32::new(Stage::Outside as u32);
        let (me, slot, size) = (team.rank().0, node.slot(), team.size());
        let mut block = WindowBlock {
            at,
            base,
            plan,
            team: team.clone(),
            me,
            slot,
            size,
            heap: 0,
            bytes: 0,
            stage,
        };
        let joined = node.join_commons(at, || {
            let header = block.header();
            let alive = header.nonce.load(Ordering::Acquire) == ticket.nonce
                && header.size.load(Ordering::Relaxed) == team.size()
                && header.failed.load(Ordering::Relaxed) == 0;
            if alive {
                block.info(team.rank().0).presence.store(JOINED, Ordering::Release);
                if header.bytes.load(Ordering::Relaxed) > 0 {
                    // Failure leaves it to the first member's claim.
                    let _ = node.share_symmetric(header.heap.load(Ordering::Relaxed));
                }
            }
            alive
        })?;
        if !joined {
            return Err(Error::Incompatible {
                what: "a window's block",
                why: format!("no window of this team lies at {at}: its making was given up"),
            });
        }
        block.stage.store(Stage::Joined as u32, Ordering::Relaxed);
        block.heap = block.header().heap.load(Ordering::Relaxed);
        block.bytes = block.header().bytes.load(Ordering::Relaxed);
        let end = block.heap.checked_add(block.bytes);
        // Parts are found by what this process asked for: it must be what there is.
        if block.bytes == bytes && end.is_some_and(|end| end <= node.areas().stride) {
            return Ok(block);
        }
        Err(Error::Incompatible {
            what: "a window's block",
            why: format!(
                "its {} bytes at {:#x} do not fit, or are not the {bytes} that were asked for",
                block.bytes, block.heap
            ),
        })
    }

    /// Notes that every member has the window.
    pub(super) fn completed(&self) {
        self.stage.store(Stage::Complete as u32, Ordering::Relaxed);
    }

    /// The window's number among all there ever are.
    pub fn identity(&self) -> u64 {
        self.header().nonce.load(Ordering::Relaxed)
    }

    /// Whether a member has dropped the window.
    pub fn has_gone(&self, rank: u32) -> bool {
        self.info(rank).presence.load(Ordering::Acquire) == GONE
    }

    /// Whether nobody can use the window any more. Under the lock of the commons.
    fn deserted(&self) -> bool {
        let failed = self.header().failed.load(Ordering::Relaxed) != 0;
        self.team.ranks().all(|rank| {
            let presence = self.info(rank.0).presence.load(Ordering::Acquire);
            let absent = presence == GONE || (failed && presence == 0);
            absent || self.team.slot_of(rank).is_ok_and(|slot| self.team.node().probe(slot))
        })
    }

    /// Gives back what the window has besides its block; returns further blocks of the commons,
    /// which are to be freed when its lock is.
    fn dismantle(&self) -> Vec<Offset> {
        let node = self.team.node();
        let locks = self.stripes();
        // Taking each lock once sweeps what dead waiters left in it (see `shm::lock`).
        for rank in self.team.ranks() {
            // SAFETY: the block is open.
            let stripes = (0..STRIPES).map(|i| unsafe { &locks.get(rank.0, i).lock });
            let others = [&self.part(rank.0).am_lock, &self.passive(rank.0).gate];
            for lock in stripes.chain(others) {
                let _ = lock.lock(&**node, Deadline::after(PATIENCE)).map(drop);
            }
        }
        let tables = self.end_uses();
        if self.bytes == 0 {
            return tables;
        }
        // Failure leaves the memory allocated until the job ends.
        let home = self.header().home.load(Ordering::Relaxed);
        let _ = match home.checked_sub(1).map(|slot| node.checked_slot(slot.into())) {
            Some(slot) => slot.and_then(|s| node.free_symmetric(self.heap, std::iter::once(s))),
            None => {
                let slots = self.team.ranks().filter_map(|r| self.team.slot_of(r).ok());
                node.free_symmetric(self.heap, slots)
            }
        };
        tables
    }
}

impl WindowBlock {
    /// Ends the window's uses of memory that its members brought along. Returns the blocks of the
    /// commons that record them. Failure leaves memory allocated until the job ends.
    fn end_uses(&self) -> Vec<Offset> {
        let mut tables = Vec::new();
        let node = self.team.node();
        let end = |offset: u64| {
            let _ = stride_of(node, offset).and_then(|(at, slot)| node.unuse_symmetric(at, slot));
        };
        let flavour = self.header().flavour.load(Ordering::Relaxed);
        for rank in self.team.ranks() {
            if flavour == Flavour::Create as u32 {
                let entry = self.entry(rank.0);
                if entry.reach == REACH_MAPPED && entry.bytes > 0 {
                    end(entry.offset);
                }
            } else if flavour == Flavour::Dynamic as u32 {
                tables.extend(dynamic::dismantle(node, self.info(rank.0), end));
            }
        }
        tables
    }
}

impl Drop for WindowBlock {
    /// The last member to drop the window frees it for all: until then others may have
    /// operations in flight on any part.
    fn drop(&mut self) {
        let stage = self.stage.load(Ordering::Relaxed);
        if stage == Stage::Outside as u32 {
            return;
        }
        let mut tables = Vec::new();
        let last = || {
            if stage != Stage::Complete as u32 {
                self.header().failed.store(1, Ordering::Relaxed);
            }
            self.info(self.team.rank().0).presence.store(GONE, Ordering::Release);
            let last = self.deserted();
            if last {
                tables = self.dismantle();
                self.header().nonce.store(0, Ordering::Release);
            }
            last
        };
        let node = self.team.node();
        let _ = node.free_commons_if(self.at, last);
        for table in tables {
            let _ = node.free_commons(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rank;
    use crate::{Job, Result};

    #[test]
    fn a_block_of_other_sizes_is_no_window_of_this_team() {
        Job::threads(2, |job| -> Result<()> {
            let team = job.team();
            let range = Range { bytes: 4096, home: None, total: 8192, flavour: Flavour::Allocate };
            let mut named = [[0u64; 2]];
            let made = if job.rank() == Rank(0) {
                let block = WindowBlock::create(team, range)?;
                let Ticket { at, nonce } = block.ticket();
                named = [[at.0, nonce]];
                Some(block)
            } else {
                None
            };
            team.broadcast(Rank(0), &mut named)?;
            let [at, nonce] = named[0];
            if made.is_none() {
                let ticket = Ticket { at: Offset(at), nonce };
                let joined = WindowBlock::join(team, ticket, 4096)?;
                assert_eq!(joined.bytes, 4096);
                let error = WindowBlock::join(team, ticket, 8192).unwrap_err();
                assert!(matches!(error, Error::Incompatible { .. }), "{error}");
            }
            team.barrier()
        })
        .unwrap()
        .into_iter()
        .for_each(|outcome| outcome.unwrap());
    }
}
