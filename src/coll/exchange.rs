//! Broadcast, allgather and agreement.
//!
//! Larger data moves in pieces: write the piece of the coming phase, synchronise, read the
//! others' pieces. The two halves of the pieces make one barrier per piece enough (see `block`).

use super::block::PIECE;
use super::team::{Member, Team};
use crate::base::{Deadline, Error, Rank, Result};
use crate::layout::Datum;

/// The bytes of plain elements.
pub(super) fn bytes_of<T: Datum>(data: &[T]) -> &[u8] {
    // SAFETY: Datum has no padding, so every byte is initialised; lifetime and length are data's.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// The bytes of plain elements, to write.
pub(super) fn bytes_of_mut<T: Datum>(data: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a valid Datum.
    unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}

impl Team {
    /// Copies `data` of `root` to every member's `data`; lengths must be the same everywhere.
    ///
    /// Up to 56 bytes in a team of up to 16: one cache-line transfer. More: two copies and one
    /// barrier per 16 KiB.
    pub fn broadcast<T: Datum>(&self, root: Rank, data: &mut [T]) -> Result<()> {
        const DURING: &str = "a broadcast";
        self.check_root(root, DURING)?;
        self.collective(DURING, |member, deadline| {
            member.broadcast_bytes(root.0, bytes_of_mut(data), deadline)
        })
    }

    /// Every member gets everybody's `mine`, in rank order: `all` holds `size` times `mine.len()`
    /// elements. Lengths must be the same everywhere.
    pub fn allgather<T: Datum>(&self, mine: &[T], all: &mut [T]) -> Result<()> {
        const DURING: &str = "an allgather";
        if mine.len().checked_mul(self.size() as usize) != Some(all.len()) {
            return Err(Error::invalid(
                DURING,
                format!(
                    "the result has {} elements; {} ranks times {} are needed",
                    all.len(),
                    self.size(),
                    mine.len()
                ),
            ));
        }
        self.collective(DURING, |member, deadline| {
            member.allgather_bytes(bytes_of(mine), bytes_of_mut(all), deadline)
        })
    }

    /// Turns one member's failure into everybody's: returns `mine` if it is an error, else an
    /// error that names a member that failed, else the value.
    pub fn agree<R>(&self, during: &'static str, mine: Result<R>) -> Result<R> {
        let failed = u8::from(mine.is_err());
        let mut culprit = None;
        let exchanged = self.collective(during, |member, deadline| {
            if member.fits_board(1) {
                return member.exchange_small(&[failed], during, deadline, |rank, value| {
                    if value[0] != 0 && culprit.is_none() {
                        culprit = Some(rank);
                    }
                });
            }
            let mut all = vec![0u8; self.size() as usize];
            member.allgather_bytes(&[failed], &mut all, deadline)?;
            culprit = all.iter().position(|&f| f != 0).map(|r| r as u32);
            Ok(())
        });
        let value = mine?;
        exchanged?;
        match culprit {
            None => Ok(value),
            Some(rank) => Err(Error::PeerFailed { rank: Rank(rank), during }),
        }
    }

    pub(super) fn check_root(&self, root: Rank, during: &'static str) -> Result<()> {
        if root.0 < self.size() {
            return Ok(());
        }
        let why = format!("root {root} is not a rank of a team of {}", self.size());
        Err(Error::invalid(during, why))
    }
}

impl Member {
    /// Copies bytes into this member's piece for the coming phase.
    pub(super) fn show(&self, bytes: &[u8]) {
        let coming = self.phase.load(crate::base::sync::Ordering::Relaxed).wrapping_add(1);
        let to = self.block.piece(self.rank, coming);
        let len = bytes.len().min(PIECE);
        // SAFETY: `to` is this member's own piece of PIECE bytes; nobody reads it between the
        // end of phase coming - 2 and the barrier of `coming` (see the module `block`).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
    }

    /// Copies bytes out of a member's piece of a phase that this member has synchronised.
    pub(super) fn look(&self, rank: u32, phase: u32, into: &mut [u8]) {
        let from = self.block.piece(rank, phase);
        let len = into.len().min(PIECE);
        // SAFETY: `from` is a piece of PIECE bytes whose owner wrote it before the barrier of
        // `phase` and does not write it again before this member enters phase + 1.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), len) };
    }

    pub(super) fn broadcast_bytes(
        &self,
        root: u32,
        data: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        if self.fits_board(data.len()) {
            let shown = data.to_vec();
            return self.exchange_small(&shown, "a broadcast", deadline, |rank, value| {
                if rank == root {
                    data.copy_from_slice(value);
                }
            });
        }
        for piece in data.chunks_mut(PIECE) {
            if self.rank == root {
                self.show(piece);
            }
            let phase = self.barrier(deadline)?;
            if self.rank != root {
                self.look(root, phase, piece);
            }
        }
        Ok(())
    }

    pub(super) fn allgather_bytes(
        &self,
        mine: &[u8],
        all: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        let len = mine.len();
        if self.fits_board(len) {
            return self.exchange_small(mine, "an allgather", deadline, |rank, value| {
                let at = rank as usize * len;
                all[at..at + len].copy_from_slice(value);
            });
        }
        for (index, piece) in mine.chunks(PIECE).enumerate() {
            self.show(piece);
            let phase = self.barrier(deadline)?;
            for rank in 0..self.block.size {
                let at = rank as usize * len + index * PIECE;
                self.look(rank, phase, &mut all[at..at + piece.len()]);
            }
        }
        Ok(())
    }
}
