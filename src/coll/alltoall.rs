//! All to all: everybody has a block for everybody.

use super::block::BOARD;
use super::block::Board;
use super::blocks::{Blocks, Parts, bytes_of, bytes_of_mut, even, zeros};
use super::board::Value;
use super::gather::unexpected;
use super::pieces::Lanes;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use super::ways::Kind;
use crate::base::copy::copy_slice;
use crate::base::{Error, Request, Result};
use crate::layout::Datum;

impl Team {
    /// Block r of `send` goes to member r, whose block for this member comes to block r of
    /// `recv`. Both have `size` blocks of the same length, everywhere.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::InvalidArgument`] for lengths that do not fit.
    pub fn alltoall<T: Datum>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        const DURING: &str = What::Alltoall.during();
        let each = even(send.len(), self.size(), DURING)?;
        if recv.len() != send.len() {
            let why = format!("{} elements to send, room for {}", send.len(), recv.len());
            return Err(Error::invalid(DURING, why));
        }
        if each * size_of::<T>() < self.member.small.alltoall {
            return self.alltoall_small(bytes_of(send), bytes_of_mut(recv));
        }
        let (choice, sign) = self.plan_alltoall(each * size_of::<T>());
        self.run(sign, async |course| {
            let both = Both::Two(bytes_of(send), bytes_of_mut(recv));
            course.alltoall(choice, both, each * size_of::<T>()).await
        })
    }

    /// The hot way: straight code.
    fn alltoall_small(&self, send: &[u8], recv: &mut [u8]) -> Result<()> {
        const WHAT: What = What::Alltoall;
        let blocks = Blocks::Even(send.len() / self.size() as usize);
        let sign = Sign::new(WHAT, Algorithm::Boards, 0, blocks.of(0).len() as u64, 0);
        let own = blocks.of(self.rank().0);
        self.collective(WHAT.during(), |core, deadline| {
            let show = |board: &Board, step| board.put_bytes(send, step);
            core.exchange_boards(sign, deadline, show, |rank, board| {
                let block = &mut recv[blocks.of(rank)];
                match board {
                    None => block.copy_from_slice(&send[own.clone()]),
                    Some(board) => board.get_bytes(own.start, block),
                }
            })
        })
    }

    /// As [`Team::alltoall`] with one buffer, whose blocks are exchanged.
    ///
    /// # Errors
    /// As for [`Team::alltoall`].
    pub fn alltoall_in_place<T: Datum>(&self, data: &mut [T]) -> Result<()> {
        let each = even(data.len(), self.size(), What::Alltoall.during())? * size_of::<T>();
        let (choice, sign) = self.plan_alltoall(each);
        self.run(sign, async |course| {
            course.alltoall(choice, Both::One(bytes_of_mut(data)), each).await
        })
    }

    /// The exchange, begun now; the request brings what came.
    ///
    /// # Errors
    /// As for [`Team::alltoall`], partly from the request.
    pub fn ialltoall<T: Datum>(&self, send: impl Into<Vec<T>>) -> Result<Request<Vec<T>>> {
        let mut data = send.into();
        let each = even(data.len(), self.size(), What::Alltoall.during())? * size_of::<T>();
        let (choice, sign) = self.plan_alltoall(each);
        self.begin(sign, move |course| async move {
            course.alltoall(choice, Both::One(bytes_of_mut(&mut data)), each).await?;
            Ok(data)
        })
    }

    fn plan_alltoall(&self, each: usize) -> (Choice, Sign) {
        let choice = self.member.choose(What::Alltoall, each as u64);
        (choice, Sign::new(What::Alltoall, choice.first, 0, each as u64, 0))
    }

    /// As [`Team::alltoall`] with a length for each pair: `to` says where in `send` the blocks
    /// for the members lie, `from` where in `recv` those that come from them go.
    ///
    /// # Errors
    /// As for [`Team::alltoall`]; [`Error::Mismatch`] if a member sends another length than is
    /// expected of it, which breaks the team.
    pub fn alltoallv<'p, T: Datum>(
        &self,
        send: &[T],
        to: impl Into<Parts<'p>>,
        recv: &mut [T],
        from: impl Into<Parts<'p>>,
    ) -> Result<()> {
        let (to, from, sign) =
            self.plan_alltoallv::<T>(to.into(), send.len(), from.into(), recv.len())?;
        self.run(sign, async |course| {
            course.alltoallv(Both::Two(bytes_of(send), bytes_of_mut(recv)), &to, &from).await
        })
    }

    /// The exchange with a length for each pair, begun now; blocks lie one after the other. The
    /// request brings what came.
    ///
    /// # Errors
    /// As for [`Team::alltoallv`], partly from the request.
    pub fn ialltoallv<T: Datum>(
        &self,
        send: impl Into<Vec<T>>,
        to: &[usize],
        from: &[usize],
    ) -> Result<Request<Vec<T>>> {
        let send = send.into();
        let total = Parts::from(from).total();
        let (to, from, sign) =
            self.plan_alltoallv::<T>(to.into(), send.len(), from.into(), total)?;
        let mut recv: Vec<T> = zeros(total, What::Alltoallv.during())?;
        self.begin(sign, move |course| async move {
            let both = Both::Two(bytes_of(&send), bytes_of_mut(&mut recv));
            course.alltoallv(both, &to, &from).await?;
            Ok(recv)
        })
    }

    fn plan_alltoallv<T: Datum>(
        &self,
        to: Parts<'_>,
        send: usize,
        from: Parts<'_>,
        recv: usize,
    ) -> Result<(Blocks, Blocks, Sign)> {
        const WHAT: What = What::Alltoallv;
        let to = to.ranges::<T>(self.size(), send, WHAT.during())?;
        let from = from.ranges::<T>(self.size(), recv, WHAT.during())?;
        let me = self.rank().0;
        if to.of(me).len() != from.of(me).len() {
            let why = "what this rank sends itself and expects of itself have different lengths";
            return Err(Error::invalid(WHAT.during(), why));
        }
        let how = self.member.choose(WHAT, 0).first;
        Ok((to, from, Sign::new(WHAT, how, 0, 0, 0)))
    }
}

/// What is sent and where what comes goes: two buffers, or one whose parts are sent before others
/// come in their place.
pub(super) enum Both<'b> {
    Two(&'b [u8], &'b mut [u8]),
    One(&'b mut [u8]),
}

impl Both<'_> {
    pub fn send(&self) -> &[u8] {
        match self {
            Both::Two(send, _) => send,
            Both::One(data) => data,
        }
    }

    pub fn recv(&mut self) -> &mut [u8] {
        match self {
            Both::Two(_, recv) => recv,
            Both::One(data) => data,
        }
    }

    /// Moves this member's block for itself.
    pub fn keep(&mut self, to: std::ops::Range<usize>, from: std::ops::Range<usize>) {
        if let Both::Two(send, recv) = self {
            copy_slice(&mut recv[from], &send[to]);
        }
    }
}

impl Course<'_> {
    pub(super) async fn alltoall(
        &self,
        choice: Choice,
        mut both: Both<'_>,
        each: usize,
    ) -> Result<()> {
        let me = self.rank();
        let blocks = Blocks::Even(each);
        both.keep(blocks.of(me), blocks.of(me));
        let (mut how, mut _timed) = (choice.first, None);
        if how == Algorithm::Direct {
            // In place, what the others want would be overwritten before they have it.
            let apart = matches!(both, Both::Two(..)).then(|| both.send());
            let addresses;
            let kind = Kind::new(What::Alltoall, each);
            (addresses, _timed) = self.sources(kind, apart, |_| true).await?;
            if let Some(addresses) = addresses {
                for rank in (0..self.size()).filter(|&rank| rank != me) {
                    let into = &mut both.recv()[blocks.of(rank)];
                    self.core().fetch(rank, addresses[rank as usize], blocks.of(me).start, into)?;
                }
                return self.sync().await.map(|_| ());
            }
            how = choice.otherwise;
        }
        let total = each * self.size() as usize;
        if how == Algorithm::Boards && total <= BOARD {
            let shown = Value::of(both.send());
            let recv = both.recv();
            return self
                .exchange(&shown, total, |rank, value| {
                    recv[blocks.of(rank)].copy_from_slice(&value.bytes()[blocks.of(me)]);
                })
                .await;
        }
        if let Both::One(data) = &mut both
            && Lanes::new(self.size() as usize - 1, 1, 0).turns(self.size() as usize - 1) > 1
        {
            // Receivers have their turns, and in one what comes may lie where in a later one
            // something is to be sent from.
            let send = data.to_vec();
            return self.trade(Both::Two(&send, data), &blocks, &blocks, each, false).await;
        }
        self.trade(both, &blocks, &blocks, each, false).await
    }

    pub(super) async fn alltoallv(
        &self,
        mut both: Both<'_>,
        to: &Blocks,
        from: &Blocks,
    ) -> Result<()> {
        let me = self.rank();
        both.keep(to.of(me), from.of(me));
        let shown = Value::default().with_word(0, to.most().max(from.most()) as u64);
        let mut most = 0;
        self.exchange(&shown, 8, |_, value| most = most.max(value.word(0) as usize)).await?;
        self.trade(both, to, from, most, true).await
    }

    /// By pieces: receivers are numbered by their distance from the sender. With `headed`, each
    /// lane begins with the length of the whole block, which the receiver compares with its own.
    async fn trade(
        &self,
        mut both: Both<'_>,
        to: &Blocks,
        from: &Blocks,
        most: usize,
        headed: bool,
    ) -> Result<()> {
        let (me, size) = (self.rank(), self.size());
        let head = if headed { 8 } else { 0 };
        let others = size as usize - 1;
        let lanes = Lanes::new(others, 1, head);
        for turn in 0..lanes.turns(others) {
            let first = turn * lanes.count + 1;
            let count = lanes.count.min(others + 1 - first);
            for round in 0..lanes.rounds(most) {
                for lane in 0..count {
                    let block = to.of((me + (first + lane) as u32) % size);
                    let at = lane * lanes.stride;
                    if headed {
                        self.core().show_piece(at, &(block.len() as u64).to_ne_bytes());
                    }
                    let data = &both.send()[lanes.cut(block, round)];
                    self.core().show_piece(at + head, data);
                }
                let phase = self.sync().await?;
                for lane in 0..count {
                    let rank = (me + size - (first + lane) as u32) % size;
                    let block = from.of(rank);
                    let at = lane * lanes.stride;
                    if headed {
                        let mut len = [0; 8];
                        self.core().look_piece(rank, phase, at, &mut len);
                        let len = u64::from_ne_bytes(len) as usize;
                        if len != block.len() {
                            return Err(unexpected(What::Alltoallv, rank, len, me, block.len()));
                        }
                    }
                    let into = &mut both.recv()[lanes.cut(block, round)];
                    self.core().look_piece(rank, phase, at + head, into);
                }
            }
        }
        Ok(())
    }
}
