//! How long a window's shared memory lives: its block, and its range of symmetric memory.
//!
//! The first member of the team (of a team on several nodes, the first one on each) makes the block
//! and holds it. The others join when they have heard its name. The last to go frees everything; the dead count as gone (see `shm::holding`). The range
//! of symmetric memory, what the window uses of memory that its members brought along, and the
//! tables of a dynamic window are recorded as belonging to the block, and go with it.

use super::Flavour;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Error, Offset, Rank, Result, Slot};
use crate::coll::Team;
use crate::rma::block::{Plan, WindowBlock, locks};
use crate::shm::heap::Id;
use crate::shm::holding::Holding;
use crate::shm::map::available_memory;
use crate::shm::node::Node;
use crate::shm::region::locate;
use crate::shm::roll::{GONE, Roll};
use std::time::Duration;

/// Longest wait for a lock that nobody can hold for long any more.
const PATIENCE: Duration = Duration::from_secs(5);
/// The kind of such a block, see [`Node::last_rites`].
const KIND: u32 = 2;

/// What a window needs of symmetric memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Bytes in each stride; 0 for none.
    pub bytes: u64,
    /// The only stride in which the range is used; those of all members if there is none.
    pub home: Option<Slot>,
    /// Bytes that all members of the node together will reserve.
    pub total: u64,
    /// The node keeps a copy of all members' sizes.
    pub copied: bool,
    /// How the window comes about.
    pub flavour: Flavour,
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

/// Has the locks of windows looked after by this process when their blocks end, also of windows that
/// it is no member of: who dies leaves it to anybody to end them.
pub(crate) fn attend_locks(node: &Node) {
    node.last_rites(sweep_locks);
}

/// Taking each lock once sweeps what dead waiters left in it (see `shm::lock`).
fn sweep_locks(node: &Node, kind: u32, at: Offset, size: u32) {
    if kind != KIND {
        return;
    }
    let header = Offset(at.0 + Roll::bytes(size));
    let Ok(base) = locate(node.mapping(), header, Plan::new(size).bytes(size), 64) else { return };
    // SAFETY: blocks of this kind are windows', and this one lasts as long as the call.
    for lock in unsafe { locks(base, size) } {
        let _ = lock.lock(node, Deadline::after(PATIENCE)).map(drop);
    }
}

/// Bytes of the block of a team's members on this node, behind its roll.
fn plan_bytes(team: &Team, copied: bool) -> u64 {
    let size = team.locals();
    Plan::new(size).bytes_with(size, if copied { team.size() } else { 0 })
}

impl WindowBlock {
    /// Makes the block and takes the address range of a window (no pages of the latter yet); this
    /// process is the first to hold them.
    pub(super) fn create(team: &Team, range: Range) -> Result<WindowBlock> {
        let size = team.locals();
        check_total(range.total, size)?;
        let node = team.node();
        let bytes = Roll::bytes(size) + plan_bytes(team, range.copied);
        let slots: Vec<Slot> =
            team.local_ranks().map(|r| team.slot_of(r)).collect::<Result<_>>()?;
        let holding =
            Holding::create(node, KIND, bytes, bytes, &slots, "a window's control lines")?;
        let heap = match range.bytes {
            0 => 0,
            bytes => node.alloc_symmetric(&holding, bytes, range.home)?,
        };
        let block = WindowBlock::of(team, holding, range.copied)?;
        let header = block.header();
        header.heap.store(heap, Ordering::Relaxed);
        header.bytes.store(range.bytes, Ordering::Relaxed);
        header.size.store(size, Ordering::Relaxed);
        let home = range.home.map_or(0, |slot| u32::from(slot.0) + 1);
        header.home.store(home, Ordering::Relaxed);
        header.flavour.store(range.flavour as u32, Ordering::Release);
        Ok(WindowBlock { heap, bytes: range.bytes, ..block })
    }

    /// Access to a block that is held, in which nothing need be yet.
    fn of(team: &Team, holding: Holding, copied: bool) -> Result<WindowBlock> {
        let (node, size) = (team.node(), team.locals());
        let plan = Plan::new(size);
        let header = Offset(holding.at().0 + Roll::bytes(size));
        let base = locate(node.mapping(), header, plan_bytes(team, copied), 64)?;
        // A node has few slots enough: see `MAX_CAPACITY`.
        let (me, size) = (team.local_rank() as u16, size as u16);
        let (slot, spans) = (node.slot(), team.spans_nodes());
        let (team, heap, bytes) = (team.clone(), 0, 0);
        Ok(WindowBlock { holding, base, plan, team, me, slot, spans, size, heap, bytes })
    }

    /// What the others must know to join.
    pub(super) fn ticket(&self) -> u64 {
        self.holding.id().raw()
    }

    /// Joins a window that the first member on the node made, with `bytes` in each stride.
    pub(super) fn join(team: &Team, ticket: u64, bytes: u64, copied: bool) -> Result<WindowBlock> {
        let node = team.node();
        let holding = Holding::join(node, Id::from_raw(ticket), Some(team.local_rank()))?;
        let Some(holding) = holding.filter(|h| h.roll().size() == team.locals()) else {
            // Whoever made it is dead, or has given it up because of somebody who is.
            let slots: Vec<_> = team.local_ranks().flat_map(|rank| team.slot_of(rank)).collect();
            node.check(slots.into_iter(), "making a window")?;
            return Err(Error::Incompatible {
                what: "a window's block",
                why: "no window of this team is there: its making was given up".into(),
            });
        };
        let block = WindowBlock::of(team, holding, copied)?;
        let (heap, there) = {
            let header = block.header();
            (header.heap.load(Ordering::Relaxed), header.bytes.load(Ordering::Relaxed))
        };
        let end = heap.checked_add(there);
        // Parts are found by what this process asked for: it must be what there is.
        if there == bytes && end.is_some_and(|end| end <= node.areas().stride) {
            return Ok(WindowBlock { heap, bytes, ..block });
        }
        Err(Error::Incompatible {
            what: "a window's block",
            why: format!(
                "its {there} bytes at {heap:#x} do not fit, or are not the {bytes} that were \
                 asked for"
            ),
        })
    }

    /// Whether the window has a range of symmetric memory, in the strides of all its members.
    pub fn lies_in_every_stride(&self) -> bool {
        self.bytes > 0 && self.header().home.load(Ordering::Relaxed) == 0
    }

    /// Where the block lies.
    pub fn at(&self) -> Offset {
        self.holding.at()
    }

    /// The window's number among all there ever are: on a node, or in the job if it is on several.
    pub fn identity(&self) -> u64 {
        match self.header().number.load(Ordering::Relaxed) {
            0 => self.ticket(),
            number => number,
        }
    }

    /// Gives a window on several nodes its number: each node's first member, while it is made.
    pub(super) fn set_number(&self, number: u64) {
        self.header().number.store(number, Ordering::Relaxed);
    }

    /// Whether a member on this node has dropped the window.
    pub fn has_gone(&self, rank: u32) -> bool {
        let local = if self.spans { self.team.local_of(Rank(rank)) } else { Some(rank) };
        local.is_some_and(|rank| self.holding.roll().presence(rank) == GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, Result};

    #[test]
    fn a_block_of_other_sizes_is_no_window_of_this_team() {
        Job::threads(2, |job| -> Result<()> {
            let team = job.team();
            let flavour = Flavour::Allocate;
            let range = Range { bytes: 4096, home: None, total: 8192, copied: false, flavour };
            let mut named = [0u64];
            let made = if job.rank() == Rank(0) {
                let block = WindowBlock::create(team, range)?;
                named = [block.ticket()];
                Some(block)
            } else {
                None
            };
            team.broadcast(Rank(0), &mut named)?;
            let [ticket] = named;
            if made.is_none() {
                let joined = WindowBlock::join(team, ticket, 4096, false)?;
                assert_eq!(joined.bytes, 4096);
                let error = WindowBlock::join(team, ticket, 8192, false).unwrap_err();
                assert!(matches!(error, Error::Incompatible { .. }), "{error}");
            }
            team.barrier()
        })
        .unwrap()
        .into_iter()
        .for_each(|outcome| outcome.unwrap());
    }
}
