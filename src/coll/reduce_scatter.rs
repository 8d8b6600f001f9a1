//! Reductions whose result is dealt out. Pieces are divided into lanes, one for each receiver,
//! who combines what lies in its lane in everybody's piece, in rank order.

use super::block::BOARD;
use super::blocks::{Blocks, Parts, bytes_of, bytes_of_mut, check_even, even, zeros};
use super::operation::{Combine, Operation, Spare, Typed, fold};
use super::pieces::Lanes;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use crate::base::copy::copy_slice;
use crate::base::{Error, Request, Result};
use crate::layout::Datum;

impl Team {
    /// Combines everybody's `data` element by element; member r gets block r of the result, which
    /// has `size` blocks of `mine.len()` elements.
    ///
    /// # Errors
    /// As for [`Team::allreduce`].
    pub fn reduce_scatter_block<T: Datum, O: Operation<T>>(
        &self,
        op: O,
        data: &[T],
        mine: &mut [T],
    ) -> Result<()> {
        const DURING: &str = What::ReduceScatterBlock.during();
        check_even(data.len(), mine.len(), self.size(), DURING)?;
        let op = Typed::new(op, mine.len(), DURING)?;
        let each = size_of_val(mine);
        let (choice, sign) = self.plan_reduce_scatter_block(each, op.code());
        self.run(sign, async |course| {
            let (data, mine) = (bytes_of(data), bytes_of_mut(mine));
            course.reduce_scatter(choice, &op, data, &Blocks::Even(each), mine).await
        })
    }

    /// The reduction, begun now; the request brings this member's block of the result.
    ///
    /// # Errors
    /// As for [`Team::allreduce`], partly from the request.
    pub fn ireduce_scatter_block<T: Datum, O: Operation<T> + 'static>(
        &self,
        op: O,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        const DURING: &str = What::ReduceScatterBlock.during();
        let data = data.into();
        let mut mine: Vec<T> = zeros(even(data.len(), self.size(), DURING)?, DURING)?;
        let op = Typed::<T, O>::new(op, mine.len(), DURING)?;
        let each = size_of_val(&mine[..]);
        let (choice, sign) = self.plan_reduce_scatter_block(each, op.code());
        self.begin(sign, move |course| async move {
            let (from, into) = (bytes_of(&data), bytes_of_mut(&mut mine));
            course.reduce_scatter(choice, &op, from, &Blocks::Even(each), into).await?;
            Ok(mine)
        })
    }

    fn plan_reduce_scatter_block(&self, each: usize, code: u16) -> (Choice, Sign) {
        const WHAT: What = What::ReduceScatterBlock;
        let choice = self.member.choose(WHAT, each as u64);
        (choice, Sign::new(WHAT, choice.first, 0, each as u64, code))
    }

    /// As [`Team::reduce_scatter_block`] with a length for each member's block, the same lists
    /// everywhere.
    ///
    /// # Errors
    /// As for [`Team::allreduce`].
    pub fn reduce_scatter<'p, T: Datum, O: Operation<T>>(
        &self,
        op: O,
        data: &[T],
        parts: impl Into<Parts<'p>>,
        mine: &mut [T],
    ) -> Result<()> {
        let op = Typed::new(op, mine.len(), What::ReduceScatter.during())?;
        let (blocks, choice, sign) =
            self.plan_reduce_scatter::<T>(&op, parts.into(), data.len(), mine.len())?;
        self.run(sign, async |course| {
            let (data, mine) = (bytes_of(data), bytes_of_mut(mine));
            course.reduce_scatter(choice, &op, data, &blocks, mine).await
        })
    }

    /// The reduction with a length for each member's block, begun now; blocks lie one after the
    /// other. The request brings this member's block of the result.
    ///
    /// # Errors
    /// As for [`Team::allreduce`], partly from the request.
    pub fn ireduce_scatter<T: Datum, O: Operation<T> + 'static>(
        &self,
        op: O,
        data: impl Into<Vec<T>>,
        counts: &[usize],
    ) -> Result<Request<Vec<T>>> {
        const DURING: &str = What::ReduceScatter.during();
        let data = data.into();
        let own = counts.get(self.rank().index()).copied().unwrap_or(0);
        let op = Typed::<T, O>::new(op, own, DURING)?;
        let (blocks, choice, sign) =
            self.plan_reduce_scatter::<T>(&op, counts.into(), data.len(), own)?;
        let mut mine: Vec<T> = zeros(own, DURING)?;
        self.begin(sign, move |course| async move {
            let (from, into) = (bytes_of(&data), bytes_of_mut(&mut mine));
            course.reduce_scatter(choice, &op, from, &blocks, into).await?;
            Ok(mine)
        })
    }

    fn plan_reduce_scatter<T: Datum>(
        &self,
        op: &dyn Combine,
        parts: Parts<'_>,
        all: usize,
        mine: usize,
    ) -> Result<(Blocks, Choice, Sign)> {
        const WHAT: What = What::ReduceScatter;
        let blocks = parts.ranges::<T>(self.size(), all, WHAT.during())?;
        let own = blocks.of(self.rank().0).len();
        if own != mine * size_of::<T>() {
            let own = own / size_of::<T>().max(1);
            let why = format!("this rank's block has {own} elements, its room {mine}");
            return Err(Error::invalid(WHAT.during(), why));
        }
        for rank in 0..self.size() {
            if !blocks.of(rank).len().is_multiple_of(op.unit()) {
                let why = format!("the block of rank {rank} has no whole units");
                return Err(Error::invalid(WHAT.during(), why));
            }
        }
        let choice = self.member.choose(WHAT, blocks.most() as u64);
        let sign = Sign::new(WHAT, choice.first, 0, blocks.digest(), op.code());
        Ok((blocks, choice, sign))
    }
}

impl Course<'_> {
    pub(super) async fn reduce_scatter(
        &self,
        choice: Choice,
        op: &dyn Combine,
        data: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let me = self.rank();
        let own = blocks.of(me);
        if choice.first == Algorithm::Boards && data.len() <= BOARD {
            return self.reduce_scatter_boards(op, data, own, mine).await;
        }
        copy_slice(mine, &data[own]);
        let mut spare = Spare::default();
        let lanes = Lanes::new(self.size() as usize, op.unit(), 0);
        for turn in 0..lanes.turns(self.size() as usize) {
            let first = (turn * lanes.count) as u32;
            let receivers = first..self.size().min(first + lanes.count as u32);
            for round in 0..lanes.rounds(blocks.most()) {
                for rank in receivers.clone().filter(|&rank| rank != me) {
                    let at = (rank - first) as usize * lanes.stride;
                    self.core().show_piece(at, &data[lanes.cut(blocks.of(rank), round)]);
                }
                let phase = self.sync().await?;
                if receivers.contains(&me) {
                    let at = (me - first) as usize * lanes.stride;
                    let part = lanes.cut(0..mine.len(), round);
                    let range = at..at + part.len();
                    fold(op, 0..self.size(), me, &mut mine[part], &mut spare, |rank, with| {
                        self.core().with_piece(rank, phase, range.clone(), with);
                        Ok(())
                    })?;
                }
            }
        }
        Ok(())
    }

    async fn reduce_scatter_boards(
        &self,
        op: &dyn Combine,
        data: &[u8],
        own: std::ops::Range<usize>,
        mine: &mut [u8],
    ) -> Result<()> {
        let sum = self.combined_boards(op, data).await?;
        mine.copy_from_slice(&sum.bytes()[own]);
        Ok(())
    }
}
