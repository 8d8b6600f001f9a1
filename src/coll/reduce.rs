//! Reductions. Every member combines in rank order, so all get bit-identical results, floats
//! included, and the same as a serial loop over the ranks.
//!
//! Small (up to 56 bytes, up to 16 members): one flat exchange. Larger: per piece of 16 KiB, show
//! it; synchronise; combine this member's share of the elements over all pieces; synchronise;
//! collect the shares. Each byte crosses the memory about three times, whatever the team's size.

use super::block::PIECE;
use super::exchange::{bytes_of, bytes_of_mut};
use super::team::{Member, Team};
use crate::base::{Deadline, Error, Rank, Result};
use crate::layout::op::{Numeric, Op, check_op, combine_slices};

impl Team {
    /// Combines everybody's `data` element by element; every member gets the result in `data`.
    /// Lengths and operation must be the same everywhere. `Replace` gives the last rank's data,
    /// `NoOp` the first's.
    pub fn allreduce<T: Numeric>(&self, op: Op, data: &mut [T]) -> Result<()> {
        check_op::<T>(op)?;
        self.collective("an allreduce", |member, deadline| {
            if member.fits_board(size_of_val(data)) {
                return member.reduce_small(op, data, deadline);
            }
            for piece in data.chunks_mut(PIECE / size_of::<T>()) {
                member.combine_share(op, piece, deadline)?;
                member.collect_shares(piece);
            }
            Ok(())
        })
    }

    /// As [`Team::allreduce`], but only `root` gets the result, in `result`, which has the length
    /// of `mine` there and is not touched elsewhere.
    pub fn reduce<T: Numeric>(
        &self,
        root: Rank,
        op: Op,
        mine: &[T],
        result: &mut [T],
    ) -> Result<()> {
        const DURING: &str = "a reduce";
        check_op::<T>(op)?;
        self.check_root(root, DURING)?;
        if self.rank() == root && result.len() != mine.len() {
            return Err(Error::invalid(
                DURING,
                format!("the result has {} elements, the input {}", result.len(), mine.len()),
            ));
        }
        self.collective(DURING, |member, deadline| {
            let step = PIECE / size_of::<T>();
            for (index, piece) in mine.chunks(step).enumerate() {
                member.show(bytes_of(piece));
                let phase = member.barrier(deadline)?;
                if member.rank == root.0 {
                    let into = &mut result[index * step..index * step + piece.len()];
                    member.combine_pieces(op, phase, 0, into);
                }
            }
            Ok(())
        })
    }
}

impl Member {
    fn reduce_small<T: Numeric>(&self, op: Op, data: &mut [T], deadline: Deadline) -> Result<()> {
        let mut mine = [0u8; super::block::BOARD];
        let len = size_of_val(data);
        mine[..len].copy_from_slice(bytes_of(data));
        self.exchange_small(&mine[..len], "an allreduce", deadline, |rank, value| {
            for (index, into) in data.iter_mut().enumerate() {
                let at = index * size_of::<T>();
                // SAFETY: `value` has the length of `data`, so the element lies inside it; the
                // read is unaligned, and every bit pattern is a valid Datum.
                let theirs: T = unsafe { value.as_ptr().add(at).cast::<T>().read_unaligned() };
                *into = if rank == 0 { theirs } else { T::combine(op, *into, theirs) };
            }
        })
    }

    /// Elements of a piece that a member combines.
    fn share(&self, rank: u32, len: usize) -> std::ops::Range<usize> {
        let (rank, size) = (rank as usize, self.block.size as usize);
        len * rank / size..len * (rank + 1) / size
    }

    /// Combines elements `first..first + into.len()` of everybody's pieces of a phase.
    fn combine_pieces<T: Numeric>(&self, op: Op, phase: u32, first: usize, into: &mut [T]) {
        for rank in 0..self.block.size {
            let from = self.block.piece(rank, phase).cast::<T>();
            // SAFETY: the piece is page aligned and holds the elements (callers cut data into
            // pieces of PIECE bytes at most); its owner wrote it before the barrier of `phase`
            // and leaves it alone until this member enters the next phase, so for the life of
            // this slice nobody writes it.
            let theirs = unsafe { std::slice::from_raw_parts(from.add(first), into.len()) };
            if rank == 0 {
                into.copy_from_slice(theirs);
            } else {
                combine_slices(op, into, theirs);
            }
        }
    }

    /// Shows `piece`, combines this member's share into its result piece, and synchronises:
    /// afterwards the shares of all may be collected.
    fn combine_share<T: Numeric>(&self, op: Op, piece: &mut [T], deadline: Deadline) -> Result<()> {
        self.show(bytes_of(piece));
        let phase = self.barrier(deadline)?;
        let share = self.share(self.rank, piece.len());
        let mine = &mut piece[share.clone()];
        self.combine_pieces(op, phase, share.start, mine);
        let to = self.block.result(self.rank);
        // SAFETY: the result piece is this member's own; readers of the previous results have
        // finished before they entered `phase`.
        unsafe {
            std::ptr::copy_nonoverlapping(mine.as_ptr().cast(), to, size_of_val(mine));
        }
        self.barrier(deadline).map(|_| ())
    }

    fn collect_shares<T: Numeric>(&self, piece: &mut [T]) {
        for rank in (0..self.block.size).filter(|&r| r != self.rank) {
            let share = self.share(rank, piece.len());
            let into = bytes_of_mut(&mut piece[share]);
            let from = self.block.result(rank);
            // SAFETY: the owner wrote its result before the barrier that this member has passed
            // and writes it again only after this member has entered the next phase.
            unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        }
    }
}
