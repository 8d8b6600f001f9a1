//! Scatters: one member's data are dealt out. Pieces are divided into lanes, one per receiver.

use super::block::BOARD;
use super::blocks::{Blocks, Parts, bytes_of, bytes_of_mut, check_even, even, zeros};
use super::board::Value;
use super::gather::unexpected;
use super::pieces::Lanes;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use super::ways::Kind;
use crate::base::copy::copy_slice;
use crate::base::{Rank, Request, Result};
use crate::layout::Datum;

impl Team {
    /// Deals out `all` of `root`: member r gets block r of it in `mine`. `all` holds `size` times
    /// `mine.len()` elements at the root, and means nothing elsewhere. Lengths must be the same
    /// everywhere.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit.
    pub fn scatter<T: Datum>(&self, root: Rank, all: &[T], mine: &mut [T]) -> Result<()> {
        let leads = self.rank() == root;
        if leads {
            check_even(all.len(), mine.len(), self.size(), What::Scatter.during())?;
        }
        let each = size_of_val(mine);
        let (choice, sign) = self.plan_scatter(root, each)?;
        self.run(sign, async |course| {
            let (all, mine) = (bytes_of(all), bytes_of_mut(mine));
            if leads {
                copy_slice(mine, &all[Blocks::Even(each).of(root.0)]);
                course.scatter(choice, root.0, all, &mut [], each).await
            } else {
                course.scatter(choice, root.0, &[], mine, each).await
            }
        })
    }

    /// As [`Team::scatter`] with one buffer: at the root it is `all`, and its own block stays
    /// where it is; elsewhere it is `mine`.
    ///
    /// # Errors
    /// As for [`Team::scatter`].
    pub fn scatter_in_place<T: Datum>(&self, root: Rank, data: &mut [T]) -> Result<()> {
        let leads = self.rank() == root;
        let each =
            if leads { even(data.len(), self.size(), What::Scatter.during())? } else { data.len() };
        let each = each * size_of::<T>();
        let (choice, sign) = self.plan_scatter(root, each)?;
        self.run(sign, async |course| {
            if leads {
                course.scatter(choice, root.0, bytes_of(data), &mut [], each).await
            } else {
                course.scatter(choice, root.0, &[], bytes_of_mut(data), each).await
            }
        })
    }

    /// The scatter, begun now; `all` means something at the root only. The request brings this
    /// member's `each` elements.
    ///
    /// # Errors
    /// As for [`Team::scatter`], partly from the request.
    pub fn iscatter<T: Datum>(
        &self,
        root: Rank,
        all: impl Into<Vec<T>>,
        each: usize,
    ) -> Result<Request<Vec<T>>> {
        let all = all.into();
        let leads = self.rank() == root;
        if leads {
            check_even(all.len(), each, self.size(), What::Scatter.during())?;
        }
        let mut mine: Vec<T> = zeros(each, What::Scatter.during())?;
        let each = size_of_val(&mine[..]);
        let (choice, sign) = self.plan_scatter(root, each)?;
        self.begin(sign, move |course| async move {
            let (from, into) = (bytes_of(&all), bytes_of_mut(&mut mine));
            if leads {
                copy_slice(into, &from[Blocks::Even(each).of(root.0)]);
                course.scatter(choice, root.0, from, &mut [], each).await?;
            } else {
                course.scatter(choice, root.0, &[], into, each).await?;
            }
            Ok(mine)
        })
    }

    fn plan_scatter(&self, root: Rank, each: usize) -> Result<(Choice, Sign)> {
        const WHAT: What = What::Scatter;
        self.check_root(root, WHAT.during())?;
        let choice = self.member.choose(WHAT, each as u64);
        Ok((choice, Sign::new(WHAT, choice.first, root.0, each as u64, 0)))
    }

    /// As [`Team::scatter`] with a length for each member: `parts` says at the root where in
    /// `all` everybody's data lie; both mean nothing elsewhere.
    ///
    /// # Errors
    /// As for [`Team::scatter`]; [`Error::Mismatch`](crate::Error::Mismatch) at the root if a member wants another length
    /// than it has for it, which breaks the team.
    pub fn scatterv<'p, T: Datum>(
        &self,
        root: Rank,
        all: &[T],
        parts: impl Into<Parts<'p>>,
        mine: &mut [T],
    ) -> Result<()> {
        let leads = self.rank() == root;
        let (blocks, sign) = self.plan_scatterv::<T>(root, parts.into(), all.len(), mine.len())?;
        self.run(sign, async |course| {
            let all = if leads { bytes_of(all) } else { &[] };
            course.scatterv(root.0, all, &blocks, bytes_of_mut(mine)).await
        })
    }

    /// The scatter with a length for each member, begun now; `all` and `counts`, the lengths of
    /// blocks that lie one after the other, mean something at the root only. The request brings
    /// this member's `mine` elements.
    ///
    /// # Errors
    /// As for [`Team::scatterv`], partly from the request.
    pub fn iscatterv<T: Datum>(
        &self,
        root: Rank,
        all: impl Into<Vec<T>>,
        counts: &[usize],
        mine: usize,
    ) -> Result<Request<Vec<T>>> {
        let all = all.into();
        let leads = self.rank() == root;
        let (blocks, sign) = self.plan_scatterv::<T>(root, counts.into(), all.len(), mine)?;
        let mut mine: Vec<T> = zeros(mine, What::Scatterv.during())?;
        self.begin(sign, move |course| async move {
            let all = if leads { bytes_of(&all) } else { &[] };
            course.scatterv(root.0, all, &blocks, bytes_of_mut(&mut mine)).await?;
            Ok(mine)
        })
    }

    fn plan_scatterv<T: Datum>(
        &self,
        root: Rank,
        parts: Parts<'_>,
        all: usize,
        mine: usize,
    ) -> Result<(Blocks, Sign)> {
        self.plan_rooted_parts::<T>((What::Scatterv, "room"), root, parts, mine, all)
    }
}

impl Course<'_> {
    /// Deals out blocks of `each` bytes; the root has its own already.
    pub(super) async fn scatter(
        &self,
        choice: Choice,
        root: u32,
        all: &[u8],
        mine: &mut [u8],
        each: usize,
    ) -> Result<()> {
        let leads = self.rank() == root;
        let blocks = Blocks::Even(each);
        let (mut how, mut _timed) = (choice.first, None);
        if how == Algorithm::Direct {
            let addresses;
            let kind = Kind::new(What::Scatter, each);
            (addresses, _timed) = self.sources(kind, Some(all), |rank| rank == root).await?;
            if let Some(addresses) = addresses {
                if !leads {
                    let at = blocks.of(self.rank()).start;
                    self.core().fetch(root, addresses[root as usize], at, mine)?;
                }
                return self.sync().await.map(|_| ());
            }
            how = choice.otherwise;
        }
        let total = each * self.size() as usize;
        if how == Algorithm::Boards && total <= BOARD {
            let me = self.rank();
            return self
                .exchange(&Value::of(all), total, |rank, value| {
                    if rank == root && !leads {
                        mine.copy_from_slice(&value.bytes()[blocks.of(me)]);
                    }
                })
                .await;
        }
        self.scatter_by_pieces(root, each, all, &blocks, mine).await
    }

    /// Receivers are numbered by their distance from the root.
    pub(super) async fn scatter_by_pieces(
        &self,
        root: u32,
        most: usize,
        all: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let (me, size) = (self.rank(), self.size());
        let receivers = size as usize - 1;
        let lanes = Lanes::new(receivers, 1, 0);
        let own = ((me + size - root) % size) as usize;
        for turn in 0..lanes.turns(receivers) {
            for round in 0..lanes.rounds(most) {
                if me == root {
                    for lane in 0..lanes.count.min(receivers - turn * lanes.count) {
                        let distance = (turn * lanes.count + lane + 1) as u32;
                        let block = blocks.of((root + distance) % size);
                        self.core().show_piece(lane * lanes.stride, &all[lanes.cut(block, round)]);
                    }
                }
                let phase = self.sync().await?;
                if me != root && (own - 1) / lanes.count == turn {
                    let at = (own - 1) % lanes.count * lanes.stride;
                    let into = lanes.cut(0..mine.len(), round);
                    self.core().look_piece(root, phase, at, &mut mine[into]);
                }
            }
        }
        Ok(())
    }

    /// Deals out blocks whose lengths the root knows, and each member its own: they tell first.
    pub(super) async fn scatterv(
        &self,
        root: u32,
        all: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let leads = self.rank() == root;
        let mut most = 0;
        let mut wrong = None;
        let shown = Value::default().with_word(0, mine.len() as u64);
        self.exchange(&shown, 8, |rank, value| {
            let len = value.word(0) as usize;
            most = most.max(len);
            if leads && blocks.of(rank).len() != len {
                wrong = wrong.or(Some((rank, len, blocks.of(rank).len())));
            }
        })
        .await?;
        if let Some((rank, has, wanted)) = wrong {
            return Err(unexpected(What::Scatterv, rank, has, root, wanted));
        }
        if leads {
            copy_slice(mine, &all[blocks.of(root)]);
        }
        self.scatter_by_pieces(root, most, all, blocks, mine).await
    }
}
