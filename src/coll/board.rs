//! The flat exchange of small values: every member shows a value of up to 56 bytes on its board
//! and reads everybody else's. Value and phase share a cache line, so one transfer per peer
//! moves the data and synchronises at the same time.

use super::block::BOARD;
use super::team::Member;
use crate::base::sync::Ordering;
use crate::base::{Deadline, Result};

/// Members up to which reading every board beats a tree.
pub(super) const FLAT: u32 = 16;

impl Member {
    /// Whether `bytes` bytes are exchanged through boards in this team.
    pub(super) fn fits_board(&self, bytes: usize) -> bool {
        bytes <= BOARD && self.block.size <= FLAT
    }

    /// Shows `mine` and calls `each(rank, value)` for every member in rank order, this one
    /// included. A full synchronisation: it ends after everybody has called it.
    pub(super) fn exchange_small(
        &self,
        mine: &[u8],
        during: &'static str,
        deadline: Deadline,
        mut each: impl FnMut(u32, &[u8]),
    ) -> Result<()> {
        let phase = self.next_phase();
        let half = phase as usize % 2;
        let block = &self.block;
        let len = mine.len().min(BOARD);
        let own = block.lines(self.rank);
        let board = &own.boards[half];
        board.payload.with_mut(|to| {
            // SAFETY: only this process writes its board; readers of phase - 2 are done (see the
            // module `block`), and readers of this phase wait for the store below.
            unsafe { std::ptr::copy_nonoverlapping(mine.as_ptr(), to.cast::<u8>(), len) };
        });
        board.phase.store(phase, Ordering::Release);
        own.wait.notify();
        for rank in 0..block.size {
            let theirs = block.lines(rank);
            let board = &theirs.boards[half];
            let shown = || board.phase.load(Ordering::Acquire) == phase;
            if !shown() {
                theirs.wait.wait(
                    block.node.pace(),
                    deadline,
                    during,
                    || shown().then_some(()),
                    || self.check(during),
                )?;
            }
            let mut value = [0u8; BOARD];
            board.payload.with(|from| {
                // SAFETY: the owner wrote it before `phase` (Acquire above) and writes it again
                // only after this member has entered the next phase.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr(), len);
                }
            });
            each(rank, &value[..len]);
        }
        Ok(())
    }
}
