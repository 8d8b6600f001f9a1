//! Reductions. Every member's data are combined in rank order, so all get bit-identical results,
//! floats included, the same as a serial loop over the ranks, whatever the algorithm.
//!
//! ```text
//! boards   up to 56 bytes: one exchange, everybody combines everything
//! pieces   show 16 KiB; synchronise; who gets the result combines all of it
//! shares   show 16 KiB; synchronise; combine a share of it; synchronise; collect the shares:
//!          each byte crosses the memory about three times, whatever the team's size
//! direct   the same over all the data at once, read where they lie and collected from there
//! ```

use super::block::{BOARD, PIECE};
use super::blocks::{bytes_of, bytes_of_mut};
use super::board::{Line, Shown, Value, WORDS, Word};
use super::operation::{Combine, Operation, Spare, Typed, code_in_word, fold};
use super::pieces::share;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use crate::base::{Error, Rank, Request, Result};
use crate::layout::Datum;

impl Team {
    /// Combines everybody's `data` element by element; every member gets the result in `data`.
    /// Lengths and operation must be the same everywhere. `Replace` gives the last rank's data,
    /// `NoOp` the first's.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::InvalidArgument`] for an operation that does not apply.
    pub fn allreduce<T: Datum, O: Operation<T>>(&self, op: O, data: &mut [T]) -> Result<()> {
        let bytes = size_of_val(data);
        if bytes < self.member.small.allreduce && op.unit() == 1 && align_of::<T>() <= 64 {
            // In functions of their own: what they keep on the stack, and how it is aligned, is none of a word's.
            return match data {
                [value] if Word::is_filled_by::<T>() => self.allreduce_one(&op, value),
                _ => self.allreduce_few(&op, data),
            };
        }
        self.allreduce_large(op, data)
    }

    /// The hottest way: one element of a word.
    #[inline]
    fn allreduce_one<T: Datum, O: Operation<T>>(&self, op: &O, value: &mut T) -> Result<()> {
        op.check()?;
        let (bytes, code) = (size_of::<T>() as u64, code_in_word::<T, O>(op));
        let sign = Sign::new(What::Allreduce, Algorithm::Boards, 0, bytes, code);
        let mine = Word::of(bytes_of(std::slice::from_ref(value)));
        self.collective(What::Allreduce.during(), |core, deadline| {
            let mut sum = core.fold_words(sign, deadline, mine, |sum, word| {
                if let ([sum], [word]) = (sum.elements_mut(1), word.elements(1)) {
                    op.combine_one(sum, word);
                }
            })?;
            if let [sum] = sum.elements_mut(1) {
                *value = *sum;
            }
            Ok(())
        })
    }

    #[inline(never)]
    fn allreduce_few<T: Datum, O: Operation<T>>(&self, op: &O, data: &mut [T]) -> Result<()> {
        if Word::holds::<T>(data.len()) {
            self.allreduce_small::<u64, 1, T, O>(op, data)
        } else {
            self.allreduce_small::<Line, WORDS, T, O>(op, data)
        }
    }

    #[inline(never)]
    fn allreduce_large<T: Datum, O: Operation<T>>(&self, op: O, data: &mut [T]) -> Result<()> {
        let bytes = size_of_val(data);
        let op = Typed::new(op, data.len(), What::Allreduce.during())?;
        let (choice, sign) = self.plan_allreduce(bytes, op.code());
        self.run(sign, async |course| course.allreduce(choice, &op, bytes_of_mut(data)).await)
    }

    /// The hot way: straight code, typed.
    #[inline]
    fn allreduce_small<A: Copy, const W: usize, T: Datum, O: Operation<T>>(
        &self,
        op: &O,
        data: &mut [T],
    ) -> Result<()> {
        op.check()?;
        let bytes = size_of_val(data);
        let code = code_in_word::<T, O>(op);
        let sign = Sign::new(What::Allreduce, Algorithm::Boards, 0, bytes as u64, code);
        self.collective(What::Allreduce.during(), |core, deadline| {
            let mut sum = Shown::<A, W>::default();
            core.exchange(sign, deadline, &Shown::of(bytes_of(data)), bytes, |rank, value| {
                if rank == 0 {
                    sum = *value;
                } else {
                    op.combine(sum.elements_mut(data.len()), value.elements(data.len()));
                }
            })?;
            sum.copy_to(bytes_of_mut(data));
            Ok(())
        })
    }

    /// The allreduce, begun now; the request brings the result.
    ///
    /// # Errors
    /// As for [`Team::allreduce`], partly from the request.
    pub fn iallreduce<T: Datum, O: Operation<T> + 'static>(
        &self,
        op: O,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        let mut data = data.into();
        let op = Typed::<T, O>::new(op, data.len(), What::Allreduce.during())?;
        let (choice, sign) = self.plan_allreduce(size_of_val(&data[..]), op.code());
        self.begin(sign, move |course| async move {
            course.allreduce(choice, &op, bytes_of_mut(&mut data)).await?;
            Ok(data)
        })
    }

    fn plan_allreduce(&self, bytes: usize, code: u16) -> (Choice, Sign) {
        let choice = self.member.choose(What::Allreduce, bytes as u64);
        (choice, Sign::new(What::Allreduce, choice.first, 0, bytes as u64, code))
    }

    /// As [`Team::allreduce`], but only `root` gets the result, in `result`, which has the length
    /// of `mine` there and is not touched elsewhere.
    ///
    /// # Errors
    /// As for [`Team::allreduce`]; [`Error::InvalidArgument`] for a root that is no rank.
    pub fn reduce<T: Datum, O: Operation<T>>(
        &self,
        root: Rank,
        op: O,
        mine: &[T],
        result: &mut [T],
    ) -> Result<()> {
        const DURING: &str = What::Reduce.during();
        let leads = self.rank() == root;
        if leads && result.len() != mine.len() {
            return Err(Error::invalid(
                DURING,
                format!("the result has {} elements, the input {}", result.len(), mine.len()),
            ));
        }
        let op = Typed::new(op, mine.len(), DURING)?;
        let (choice, sign) = self.plan_reduce(root, size_of_val(mine), op.code())?;
        self.run(sign, async |course| {
            if leads {
                result.copy_from_slice(mine);
                course.reduce(choice, root.0, &op, Own::Result(bytes_of_mut(result))).await
            } else {
                course.reduce(choice, root.0, &op, Own::Input(bytes_of(mine))).await
            }
        })
    }

    /// As [`Team::reduce`] with one buffer, in which the root gets the result; it is not touched
    /// elsewhere.
    ///
    /// # Errors
    /// As for [`Team::reduce`].
    pub fn reduce_in_place<T: Datum, O: Operation<T>>(
        &self,
        root: Rank,
        op: O,
        data: &mut [T],
    ) -> Result<()> {
        let op = Typed::new(op, data.len(), What::Reduce.during())?;
        let (choice, sign) = self.plan_reduce(root, size_of_val(data), op.code())?;
        self.run(sign, async |course| {
            let own = Own::of(course.rank() == root.0, bytes_of_mut(data));
            course.reduce(choice, root.0, &op, own).await
        })
    }

    /// The reduce, begun now; the request brings the result at the root, and elsewhere the data
    /// as they were.
    ///
    /// # Errors
    /// As for [`Team::reduce`], partly from the request.
    pub fn ireduce<T: Datum, O: Operation<T> + 'static>(
        &self,
        root: Rank,
        op: O,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        let mut data = data.into();
        let op = Typed::<T, O>::new(op, data.len(), What::Reduce.during())?;
        let (choice, sign) = self.plan_reduce(root, size_of_val(&data[..]), op.code())?;
        self.begin(sign, move |course| async move {
            let own = Own::of(course.rank() == root.0, bytes_of_mut(&mut data));
            course.reduce(choice, root.0, &op, own).await?;
            Ok(data)
        })
    }

    fn plan_reduce(&self, root: Rank, bytes: usize, code: u16) -> Result<(Choice, Sign)> {
        self.check_root(root, What::Reduce.during())?;
        let choice = self.member.choose(What::Reduce, bytes as u64);
        Ok((choice, Sign::new(What::Reduce, choice.first, root.0, bytes as u64, code)))
    }
}

/// A member's data in a reduce: the root's have the result afterwards.
pub(super) enum Own<'d> {
    Result(&'d mut [u8]),
    Input(&'d [u8]),
}

impl<'d> Own<'d> {
    fn of(leads: bool, data: &'d mut [u8]) -> Own<'d> {
        if leads { Own::Result(data) } else { Own::Input(data) }
    }

    pub fn data(&self) -> &[u8] {
        match self {
            Own::Result(data) => data,
            Own::Input(data) => data,
        }
    }
}

impl Course<'_> {
    /// How many bytes of whole units go into a piece.
    pub fn room(op: &dyn Combine) -> usize {
        PIECE / op.unit() * op.unit()
    }

    pub(super) async fn allreduce(
        &self,
        choice: Choice,
        op: &dyn Combine,
        data: &mut [u8],
    ) -> Result<()> {
        let mut how = choice.first;
        if how == Algorithm::Direct {
            if let Some(addresses) = self.addresses(Some(data), |_| true).await? {
                return self.allreduce_directly(op, &addresses, data).await;
            }
            how = choice.otherwise;
        }
        let mut spare = Spare::default();
        match how {
            Algorithm::Boards if data.len() <= BOARD => self.reduce_boards(op, data).await,
            Algorithm::Pieces => {
                for piece in data.chunks_mut(Self::room(op)) {
                    self.core().show_piece(0, piece);
                    let phase = self.sync().await?;
                    self.fold_pieces(op, self.size(), phase, 0, piece, &mut spare)?;
                }
                Ok(())
            }
            _ => {
                let mut work = Spare::default();
                for piece in data.chunks_mut(Self::room(op)) {
                    self.combine_share(op, piece, &mut work, &mut spare).await?;
                    self.collect_shares(op, piece);
                }
                Ok(())
            }
        }
    }

    /// What everybody's `data` combine to, in rank order; as long as a board holds.
    pub(super) async fn combined_boards(&self, op: &dyn Combine, data: &[u8]) -> Result<Value> {
        let len = data.len();
        let mut sum = Value::default();
        self.exchange(&Value::of(data), len, |rank, value| {
            if rank == 0 {
                sum = *value;
            } else {
                op.combine(&mut sum.bytes_mut()[..len], &value.bytes()[..len]);
            }
        })
        .await?;
        Ok(sum)
    }

    async fn reduce_boards(&self, op: &dyn Combine, data: &mut [u8]) -> Result<()> {
        let sum = self.combined_boards(op, data).await?;
        data.copy_from_slice(&sum.bytes()[..data.len()]);
        Ok(())
    }

    /// Combines the bytes of the pieces of members `0..last` from `first` on; `own` has this
    /// member's data there, and the result afterwards.
    pub fn fold_pieces(
        &self,
        op: &dyn Combine,
        last: u32,
        phase: u32,
        first: usize,
        own: &mut [u8],
        spare: &mut Spare,
    ) -> Result<()> {
        let range = first..first + own.len();
        fold(op, 0..last, self.rank(), own, spare, |rank, with| {
            self.core().with_piece(rank, phase, range.clone(), with);
            Ok(())
        })
    }

    /// Shows `piece`, combines this member's share into its result piece, and synchronises:
    /// afterwards the shares of all may be collected.
    async fn combine_share(
        &self,
        op: &dyn Combine,
        piece: &[u8],
        work: &mut Spare,
        spare: &mut Spare,
    ) -> Result<()> {
        self.core().show_piece(0, piece);
        let phase = self.sync().await?;
        let share = share(self.rank(), self.size(), piece.len(), op.unit());
        let mine = work.bytes(share.len());
        mine.copy_from_slice(&piece[share.clone()]);
        self.fold_pieces(op, self.size(), phase, share.start, mine, spare)?;
        self.core().show_result(0, mine);
        self.sync().await.map(|_| ())
    }

    fn collect_shares(&self, op: &dyn Combine, piece: &mut [u8]) {
        for rank in 0..self.size() {
            let share = share(rank, self.size(), piece.len(), op.unit());
            self.core().look_result(rank, 0, &mut piece[share]);
        }
    }

    /// Combines this member's share of all data in its own data, which the others read only
    /// elsewhere, and collects the others' shares from theirs.
    async fn allreduce_directly(
        &self,
        op: &dyn Combine,
        addresses: &[u64],
        data: &mut [u8],
    ) -> Result<()> {
        let mine = share(self.rank(), self.size(), data.len(), op.unit());
        self.fold_directly(op, addresses, mine, data)?;
        self.sync().await?;
        for rank in (0..self.size()).filter(|&rank| rank != self.rank()) {
            let share = share(rank, self.size(), data.len(), op.unit());
            self.core().fetch(rank, addresses[rank as usize], share.start, &mut data[share])?;
        }
        // The others may still be reading.
        self.sync().await.map(|_| ())
    }

    /// Combines a range of everybody's data, a piece at a time through this process's caches:
    /// what others could change is copied before it is looked at.
    fn fold_directly(
        &self,
        op: &dyn Combine,
        addresses: &[u64],
        range: std::ops::Range<usize>,
        data: &mut [u8],
    ) -> Result<()> {
        let (mut spare, mut stage) = (Spare::default(), Spare::default());
        let mut at = range.start;
        for own in data[range].chunks_mut(Self::room(op)) {
            let len = own.len();
            fold(op, 0..self.size(), self.rank(), own, &mut spare, |rank, with| {
                let theirs = stage.bytes(len);
                self.core().fetch(rank, addresses[rank as usize], at, theirs)?;
                with(theirs);
                Ok(())
            })?;
            at += len;
        }
        Ok(())
    }

    pub(super) async fn reduce(
        &self,
        choice: Choice,
        root: u32,
        op: &dyn Combine,
        mut own: Own<'_>,
    ) -> Result<()> {
        let mut how = choice.first;
        if how == Algorithm::Direct {
            if let Some(addresses) = self.addresses(Some(own.data()), |rank| rank != root).await? {
                if let Own::Result(data) = own {
                    self.fold_directly(op, &addresses, 0..data.len(), data)?;
                }
                return self.sync().await.map(|_| ());
            }
            how = choice.otherwise;
        }
        let len = own.data().len();
        if how == Algorithm::Boards && len <= BOARD {
            let mut sum = Value::of(own.data());
            self.reduce_boards(op, &mut sum.bytes_mut()[..len]).await?;
            if let Own::Result(data) = own {
                data.copy_from_slice(&sum.bytes()[..len]);
            }
            return Ok(());
        }
        let (mut spare, mut work) = (Spare::default(), Spare::default());
        let room = Self::room(op);
        for round in 0..len.div_ceil(room) {
            let range = super::pieces::cut(0..len, round, room);
            if how == Algorithm::Shares {
                let piece = &own.data()[range.clone()];
                self.combine_share(op, piece, &mut work, &mut spare).await?;
                if let Own::Result(data) = &mut own {
                    self.collect_shares(op, &mut data[range]);
                }
                continue;
            }
            self.core().show_piece(0, &own.data()[range.clone()]);
            let phase = self.sync().await?;
            if let Own::Result(data) = &mut own {
                self.fold_pieces(op, self.size(), phase, 0, &mut data[range], &mut spare)?;
            }
        }
        Ok(())
    }
}
