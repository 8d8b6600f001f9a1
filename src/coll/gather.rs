//! Gathers: everybody's data to one member, or to all.
//!
//! The receiver's own block is in its place before anything is exchanged, so the forms that work
//! in place and those that do not are one.

use super::block::PIECE;
use super::blocks::{Blocks, Parts, bytes_of, bytes_of_mut, check_even, even, zeros};
use super::board::Value;
use super::pieces::cut;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use super::ways::Kind;
use crate::base::copy::copy_slice;
use crate::base::{Error, Rank, Request, Result};
use crate::layout::Datum;

impl Team {
    /// Gathers everybody's `mine` at `root`, in rank order: `all` holds `size` times `mine.len()`
    /// elements there, and is not touched elsewhere. Lengths must be the same everywhere.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::InvalidArgument`] for lengths that do not fit.
    pub fn gather<T: Datum>(&self, root: Rank, mine: &[T], all: &mut [T]) -> Result<()> {
        const DURING: &str = What::Gather.during();
        let each = mine.len();
        let leads = self.rank() == root;
        if leads {
            check_even(all.len(), each, self.size(), DURING)?;
        }
        let (choice, sign) = self.plan_gather::<T>(root, each)?;
        let blocks = Blocks::Even(size_of_val(mine));
        self.run(sign, async |course| {
            let all = if leads { bytes_of_mut(all) } else { &mut [] };
            if leads {
                copy_slice(&mut all[blocks.of(root.0)], bytes_of(mine));
            }
            course.gather(choice, root.0, bytes_of(mine), all, &blocks).await
        })
    }

    /// As [`Team::gather`] with one buffer: at the root it is `all`, with its own block in its
    /// place; elsewhere it is `mine`.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn gather_in_place<T: Datum>(&self, root: Rank, data: &mut [T]) -> Result<()> {
        let leads = self.rank() == root;
        let each =
            if leads { even(data.len(), self.size(), What::Gather.during())? } else { data.len() };
        let (choice, sign) = self.plan_gather::<T>(root, each)?;
        let blocks = Blocks::Even(each * size_of::<T>());
        self.run(sign, async |course| {
            if leads {
                course.gather(choice, root.0, &[], bytes_of_mut(data), &blocks).await
            } else {
                course.gather(choice, root.0, bytes_of(data), &mut [], &blocks).await
            }
        })
    }

    /// The gather, begun now; the request brings everybody's data at the root, nothing elsewhere.
    ///
    /// # Errors
    /// As for [`Team::gather`], partly from the request.
    pub fn igather<T: Datum>(
        &self,
        root: Rank,
        mine: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        const DURING: &str = What::Gather.during();
        let mine = mine.into();
        let (choice, sign) = self.plan_gather::<T>(root, mine.len())?;
        let leads = self.rank() == root;
        let len = if leads { mine.len().saturating_mul(self.size() as usize) } else { 0 };
        let mut all: Vec<T> = zeros(len, DURING)?;
        let blocks = Blocks::Even(size_of_val(&mine[..]));
        self.begin(sign, move |course| async move {
            if leads {
                copy_slice(&mut bytes_of_mut(&mut all)[blocks.of(root.0)], bytes_of(&mine));
            }
            let into = bytes_of_mut(&mut all);
            course.gather(choice, root.0, bytes_of(&mine), into, &blocks).await?;
            Ok(all)
        })
    }

    fn plan_gather<T: Datum>(&self, root: Rank, each: usize) -> Result<(Choice, Sign)> {
        const WHAT: What = What::Gather;
        self.check_root(root, WHAT.during())?;
        let bytes = (each * size_of::<T>()) as u64;
        let choice = self.member.choose(WHAT, bytes);
        Ok((choice, Sign::new(WHAT, choice.first, root.0, bytes, 0)))
    }

    /// As [`Team::gather`] with a length for each member: `parts` says at the root where in `all`
    /// everybody's data go; both mean nothing elsewhere.
    ///
    /// # Errors
    /// As for [`Team::gather`]; [`Error::Mismatch`] at the root if a member has another length
    /// than it expects, which breaks the team.
    pub fn gatherv<'p, T: Datum>(
        &self,
        root: Rank,
        mine: &[T],
        all: &mut [T],
        parts: impl Into<Parts<'p>>,
    ) -> Result<()> {
        let leads = self.rank() == root;
        let (blocks, sign) = self.plan_gatherv::<T>(root, parts.into(), mine.len(), all.len())?;
        self.run(sign, async |course| {
            let all = if leads { bytes_of_mut(all) } else { &mut [] };
            course.gatherv(root.0, bytes_of(mine), all, &blocks).await
        })
    }

    /// The gather with a length for each member, begun now; `counts` means something at the root
    /// only, where the request brings everybody's data, one after the other.
    ///
    /// # Errors
    /// As for [`Team::gatherv`], partly from the request.
    pub fn igatherv<T: Datum>(
        &self,
        root: Rank,
        mine: impl Into<Vec<T>>,
        counts: &[usize],
    ) -> Result<Request<Vec<T>>> {
        let mine = mine.into();
        let len = if self.rank() == root { Parts::from(counts).total() } else { 0 };
        let (blocks, sign) = self.plan_gatherv::<T>(root, counts.into(), mine.len(), len)?;
        let mut all: Vec<T> = zeros(len, What::Gatherv.during())?;
        self.begin(sign, move |course| async move {
            course.gatherv(root.0, bytes_of(&mine), bytes_of_mut(&mut all), &blocks).await?;
            Ok(all)
        })
    }

    fn plan_gatherv<T: Datum>(
        &self,
        root: Rank,
        parts: Parts<'_>,
        mine: usize,
        all: usize,
    ) -> Result<(Blocks, Sign)> {
        self.plan_rooted_parts::<T>((What::Gatherv, "data"), root, parts, mine, all)
    }

    /// The blocks of `parts` among the root's `all` elements, of which its own block is as long as
    /// `mine`, what `name` says; nothing at the others.
    pub(super) fn plan_rooted_parts<T: Datum>(
        &self,
        (what, name): (What, &str),
        root: Rank,
        parts: Parts<'_>,
        mine: usize,
        all: usize,
    ) -> Result<(Blocks, Sign)> {
        self.check_root(root, what.during())?;
        let blocks = if self.rank() == root {
            let blocks = parts.ranges::<T>(self.size(), all, what.during())?;
            let own = blocks.of(root.0).len();
            if own != mine * size_of::<T>() {
                let own = own / size_of::<T>().max(1);
                let why = format!("the root's block has {own} elements, its {name} {mine}");
                return Err(Error::invalid(what.during(), why));
            }
            blocks
        } else {
            Blocks::Even(0)
        };
        let how = self.member.choose(what, 0).first;
        Ok((blocks, Sign::new(what, how, root.0, 0, 0)))
    }

    /// Every member gets everybody's `mine`, in rank order: `all` holds `size` times `mine.len()`
    /// elements. Lengths must be the same everywhere.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn allgather<T: Datum>(&self, mine: &[T], all: &mut [T]) -> Result<()> {
        check_even(all.len(), mine.len(), self.size(), What::Allgather.during())?;
        let (choice, sign) = self.plan_allgather(size_of_val(mine));
        let blocks = Blocks::Even(size_of_val(mine));
        self.run(sign, async |course| {
            let all = bytes_of_mut(all);
            copy_slice(&mut all[blocks.of(course.rank())], bytes_of(mine));
            course.allgather(choice, all, &blocks).await
        })
    }

    /// As [`Team::allgather`] with one buffer, in which this member's block is in its place.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn allgather_in_place<T: Datum>(&self, all: &mut [T]) -> Result<()> {
        let each = even(all.len(), self.size(), What::Allgather.during())? * size_of::<T>();
        let (choice, sign) = self.plan_allgather(each);
        self.run(sign, async |course| {
            course.allgather(choice, bytes_of_mut(all), &Blocks::Even(each)).await
        })
    }

    /// The allgather, begun now; the request brings everybody's data.
    ///
    /// # Errors
    /// As for [`Team::gather`], partly from the request.
    pub fn iallgather<T: Datum>(&self, mine: impl Into<Vec<T>>) -> Result<Request<Vec<T>>> {
        let mine = mine.into();
        let each = size_of_val(&mine[..]);
        let (choice, sign) = self.plan_allgather(each);
        let len = mine.len().saturating_mul(self.size() as usize);
        let mut all: Vec<T> = zeros(len, What::Allgather.during())?;
        let blocks = Blocks::Even(each);
        copy_slice(&mut bytes_of_mut(&mut all)[blocks.of(self.rank().0)], bytes_of(&mine));
        self.begin(sign, move |course| async move {
            course.allgather(choice, bytes_of_mut(&mut all), &blocks).await?;
            Ok(all)
        })
    }

    fn plan_allgather(&self, each: usize) -> (Choice, Sign) {
        let choice = self.member.choose(What::Allgather, each as u64);
        (choice, Sign::new(What::Allgather, choice.first, 0, each as u64, 0))
    }

    /// As [`Team::allgather`] with a length for each member; all pass the same.
    ///
    /// # Errors
    /// As for [`Team::gather`].
    pub fn allgatherv<'p, T: Datum>(
        &self,
        mine: &[T],
        all: &mut [T],
        parts: impl Into<Parts<'p>>,
    ) -> Result<()> {
        let (blocks, choice, sign) =
            self.plan_allgatherv::<T>(parts.into(), mine.len(), all.len())?;
        self.run(sign, async |course| {
            let all = bytes_of_mut(all);
            copy_slice(&mut all[blocks.of(course.rank())], bytes_of(mine));
            course.allgather(choice, all, &blocks).await
        })
    }

    /// The allgather with a length for each member, begun now; the request brings everybody's
    /// data, one after the other.
    ///
    /// # Errors
    /// As for [`Team::gather`], partly from the request.
    pub fn iallgatherv<T: Datum>(
        &self,
        mine: impl Into<Vec<T>>,
        counts: &[usize],
    ) -> Result<Request<Vec<T>>> {
        let mine = mine.into();
        let len = Parts::from(counts).total();
        let (blocks, choice, sign) = self.plan_allgatherv::<T>(counts.into(), mine.len(), len)?;
        let mut all: Vec<T> = zeros(len, What::Allgatherv.during())?;
        copy_slice(&mut bytes_of_mut(&mut all)[blocks.of(self.rank().0)], bytes_of(&mine));
        self.begin(sign, move |course| async move {
            course.allgather(choice, bytes_of_mut(&mut all), &blocks).await?;
            Ok(all)
        })
    }

    fn plan_allgatherv<T: Datum>(
        &self,
        parts: Parts<'_>,
        mine: usize,
        all: usize,
    ) -> Result<(Blocks, Choice, Sign)> {
        const WHAT: What = What::Allgatherv;
        let blocks = parts.ranges::<T>(self.size(), all, WHAT.during())?;
        let own = blocks.of(self.rank().0).len();
        if own != mine * size_of::<T>() {
            let own = own / size_of::<T>().max(1);
            let why = format!("this rank's block has {own} elements, its data {mine}");
            return Err(Error::invalid(WHAT.during(), why));
        }
        let choice = self.member.choose(WHAT, blocks.most() as u64);
        let sign = Sign::new(WHAT, choice.first, 0, blocks.digest(), 0);
        Ok((blocks, choice, sign))
    }
}

impl Course<'_> {
    /// Gathers blocks of one length at the root, whose own is in its place.
    pub(super) async fn gather(
        &self,
        choice: Choice,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let leads = self.rank() == root;
        let (mut how, mut _timed) = (choice.first, None);
        if how == Algorithm::Direct {
            let addresses;
            let kind = Kind::new(What::Gather, blocks.most());
            (addresses, _timed) = self.sources(kind, Some(mine), |rank| rank != root).await?;
            if let Some(addresses) = addresses {
                for rank in (0..self.size()).filter(|&rank| leads && rank != root) {
                    self.core().fetch(
                        rank,
                        addresses[rank as usize],
                        0,
                        &mut all[blocks.of(rank)],
                    )?;
                }
                return self.sync().await.map(|_| ());
            }
            how = choice.otherwise;
        }
        if how == Algorithm::Boards {
            let len = blocks.most();
            return self
                .exchange(&Value::of(mine), len, |rank, value| {
                    if leads && rank != root {
                        all[blocks.of(rank)].copy_from_slice(&value.bytes()[..len]);
                    }
                })
                .await;
        }
        self.gather_by_pieces(root, blocks.most(), mine, all, blocks).await
    }

    pub(super) async fn gather_by_pieces(
        &self,
        root: u32,
        most: usize,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let leads = self.rank() == root;
        for round in 0..most.div_ceil(PIECE) {
            if !leads {
                self.core().show_piece(0, &mine[cut(0..mine.len(), round, PIECE)]);
            }
            let phase = self.sync().await?;
            for rank in (0..self.size()).filter(|&rank| leads && rank != root) {
                let into = &mut all[cut(blocks.of(rank), round, PIECE)];
                self.core().look_piece(rank, phase, 0, into);
            }
        }
        Ok(())
    }

    /// Gathers blocks whose lengths the root knows, and each member its own. Members tell them
    /// first, and small data with them.
    pub(super) async fn gatherv(
        &self,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        /// Data beside the length.
        const INLINE: usize = super::block::BOARD - 8;
        let leads = self.rank() == root;
        let mut shown = Value::default();
        let inline = mine.len().min(INLINE);
        shown.bytes_mut()[8..8 + inline].copy_from_slice(&mine[..inline]);
        let shown = shown.with_word(0, mine.len() as u64);
        let mut most = 0;
        let mut wrong = None;
        self.exchange(&shown, super::block::BOARD, |rank, value| {
            let len = value.word(0) as usize;
            most = most.max(len);
            if !leads {
                return;
            }
            let into = &mut all[blocks.of(rank)];
            if into.len() != len {
                wrong = wrong.or(Some((rank, len, into.len())));
            } else if len <= INLINE {
                into.copy_from_slice(&value.bytes()[8..8 + len]);
            }
        })
        .await?;
        if let Some((rank, has, wanted)) = wrong {
            return Err(unexpected(What::Gatherv, rank, has, root, wanted));
        }
        if most <= INLINE {
            return Ok(());
        }
        if leads {
            copy_slice(&mut all[blocks.of(root)], mine);
        }
        self.gather_by_pieces(root, most, mine, all, blocks).await
    }

    /// Gives everybody everybody's block; each has its own in its place.
    pub(super) async fn allgather(
        &self,
        choice: Choice,
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let me = self.rank();
        let others = move |rank: &u32| *rank != me;
        let (mut how, mut _timed) = (choice.first, None);
        if how == Algorithm::Direct {
            let addresses;
            // The same in all members, whose blocks may differ.
            let kind = Kind::new(What::Allgather, blocks.most());
            let mine = Some(&all[blocks.of(me)]);
            (addresses, _timed) = self.sources(kind, mine, |_| true).await?;
            if let Some(addresses) = addresses {
                for rank in (0..self.size()).filter(others) {
                    self.core().fetch(
                        rank,
                        addresses[rank as usize],
                        0,
                        &mut all[blocks.of(rank)],
                    )?;
                }
                return self.sync().await.map(|_| ());
            }
            how = choice.otherwise;
        }
        if how == Algorithm::Boards && blocks.fit_boards() {
            let mine = Value::of(&all[blocks.of(me)]);
            return self
                .exchange(&mine, blocks.most(), |rank, value| {
                    if rank != me {
                        let into = &mut all[blocks.of(rank)];
                        into.copy_from_slice(&value.bytes()[..into.len()]);
                    }
                })
                .await;
        }
        for round in 0..blocks.most().div_ceil(PIECE) {
            self.core().show_piece(0, &all[cut(blocks.of(me), round, PIECE)]);
            let phase = self.sync().await?;
            for rank in (0..self.size()).filter(others) {
                let into = &mut all[cut(blocks.of(rank), round, PIECE)];
                self.core().look_piece(rank, phase, 0, into);
            }
        }
        Ok(())
    }
}

/// A member has another length than the one who gets or gives the data says.
pub(super) fn unexpected(what: What, rank: u32, has: usize, other: u32, wanted: usize) -> Error {
    Error::Mismatch {
        what: what.during(),
        a: Rank(rank),
        a_has: format!("{has} bytes"),
        b: Rank(other),
        b_has: format!("{wanted} bytes for it"),
    }
}
