//! Collectives of teams on several nodes: shared memory within each part, messages between parts.
//!
//! | | within parts | between |
//! |---|---|---|
//! | barrier | before and after | leaders: dissemination |
//! | broadcast | of the root's part; of the others | leaders: a binomial tree |
//! | gather, scatter | at, from the leader | leaders and the root |
//! | allgather | at the leader; of everything | leaders, each to each |
//! | alltoall | | pairs of members, a few at a time |
//!
//! Reductions are in `far_reduce`.

use super::alltoall::Both;
use super::blocks::{Blocks, zeros};
use super::board::Value;
use super::call::Call;
use super::gather::unexpected;
use super::sign::What;
use super::span::Span;
use crate::base::{Error, Result};
use std::collections::VecDeque;

/// Messages of an alltoall that a member has under way at a time.
const ABREAST: usize = 16;

impl Call<'_> {
    pub(super) fn zeros(&self, len: usize) -> Result<Vec<u8>> {
        zeros(len, self.course.sign.what.during())
    }

    pub(super) async fn far_sync(&self, span: &Span) -> Result<()> {
        self.course.sync().await?;
        if span.leads() {
            let (me, parts) = (span.part, span.members.parts());
            let mut distance = 1;
            while distance < parts {
                let to = span.members.leader((me + distance) % parts);
                let from = span.members.leader((me + parts - distance) % parts);
                let sent = self.tell(to, Vec::new())?;
                self.hear_from(from, 0).await?;
                self.sent(sent).await?;
                distance *= 2;
            }
        }
        self.course.sync().await.map(|_| ())
    }

    pub(super) async fn far_exchange(
        &self,
        span: &Span,
        mine: &Value,
        bytes: usize,
        mut each: impl FnMut(u32, &Value),
    ) -> Result<()> {
        let mut all = self.zeros(bytes * self.size() as usize)?;
        let blocks = Blocks::Even(bytes);
        all[blocks.of(span.rank)].copy_from_slice(&mine.bytes()[..bytes]);
        self.far_allgather(span, &mut all, &blocks).await?;
        (0..self.size()).for_each(|rank| each(rank, &Value::of(&all[blocks.of(rank)])));
        Ok(())
    }

    /// Of member `root` of this part to all others of it.
    pub(super) async fn broadcast_in_part(&self, root: u32, data: &mut [u8]) -> Result<()> {
        let choice = self.core().choose(What::Broadcast, data.len() as u64);
        self.course.broadcast(choice, root, data).await
    }

    pub(super) async fn far_broadcast(
        &self,
        span: &Span,
        root: u32,
        data: &mut [u8],
    ) -> Result<()> {
        let (home, parts) = (span.members.part_of(root), span.members.parts());
        if span.part == home {
            self.broadcast_in_part(span.members.local_of(root), data).await?;
        }
        if span.leads() {
            self.broadcast_among_leaders(span, home, parts, data).await?;
        }
        if span.part != home {
            self.broadcast_in_part(0, data).await?;
        }
        Ok(())
    }

    /// A binomial tree over the parts, by their distance from the root's.
    async fn broadcast_among_leaders(
        &self,
        span: &Span,
        home: u32,
        parts: u32,
        data: &mut [u8],
    ) -> Result<()> {
        let mine = (span.part + parts - home) % parts;
        let leader = |distance: u32| span.members.leader((home + distance) % parts);
        // The lowest bit of its distance says from whom a part gets the data, and below which bit
        // it passes them on.
        let mut below = parts.next_power_of_two();
        if mine != 0 {
            below = mine & mine.wrapping_neg();
            let come = self.hear_from(leader(mine - below), data.len()).await?;
            data.copy_from_slice(&come);
        }
        let mut sent = Vec::new();
        while below > 1 {
            below /= 2;
            if mine + below < parts {
                sent.push(self.tell(leader(mine + below), data.to_vec())?);
            }
        }
        for sent in sent {
            self.sent(sent).await?;
        }
        Ok(())
    }

    /// The blocks of a part's members, one after the other.
    fn blocks_of_part(&self, span: &Span, part: u32, blocks: &Blocks) -> Blocks {
        let mut next = 0;
        let ranges = span.members.members_of(part).map(|rank| {
            let start = next;
            next += blocks.of(rank).len();
            start..next
        });
        Blocks::Listed(ranges.collect())
    }

    /// Everybody's block of this part at its leader; nothing elsewhere.
    async fn gather_in_part(&self, span: &Span, mine: &[u8], blocks: &Blocks) -> Result<Vec<u8>> {
        if !span.leads() {
            let nothing = Blocks::Even(0);
            self.course.gather_by_pieces(0, blocks.most(), mine, &mut [], &nothing).await?;
            return Ok(Vec::new());
        }
        let total: usize = (0..self.core().block.size).map(|local| blocks.of(local).len()).sum();
        let mut all = self.zeros(total)?;
        all[blocks.of(0)].copy_from_slice(mine);
        self.course.gather_by_pieces(0, blocks.most(), mine, &mut all, blocks).await?;
        Ok(all)
    }

    pub(super) async fn far_gather(
        &self,
        span: &Span,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let in_part = self.blocks_of_part(span, span.part, blocks);
        // In place at the root its block is in `all` already.
        let own = if span.rank == root { all[blocks.of(root)].to_vec() } else { mine.to_vec() };
        let part = self.gather_in_part(span, &own, &in_part).await?;
        self.bring_to_root(
            span,
            root,
            part,
            |part| self.blocks_of_part(span, part, blocks),
            |rank, bytes| {
                all[blocks.of(rank)].copy_from_slice(bytes);
                Ok(())
            },
        )
        .await
    }

    /// Leaders send what they have gathered to the root, who gives it to `take` by members.
    async fn bring_to_root(
        &self,
        span: &Span,
        root: u32,
        part: Vec<u8>,
        blocks_of: impl Fn(u32) -> Blocks,
        mut take: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if span.rank != root {
            if span.leads() {
                self.tell_to(root, part).await?;
            }
            return Ok(());
        }
        let mut expected = VecDeque::new();
        for from in 0..span.members.parts() {
            let blocks = blocks_of(from);
            let total: usize =
                (0..span.members.count_in(from)).map(|local| blocks.of(local).len()).sum();
            let leader = span.members.leader(from);
            let awaited = (leader != root).then(|| self.expect(leader, total)).transpose()?;
            expected.push_back((from, blocks, awaited));
        }
        let mut part = Some(part);
        while let Some((from, blocks, awaited)) = expected.pop_front() {
            let bytes = match awaited {
                Some(awaited) => self.hear(awaited).await?,
                None => part.take().unwrap_or_default(),
            };
            for (local, rank) in (0u32..).zip(span.members.members_of(from)) {
                take(rank, &bytes[blocks.of(local)])?;
            }
        }
        Ok(())
    }

    /// Everybody's length, so that leaders know what comes.
    async fn lengths(&self, span: &Span, mine: usize) -> Result<Blocks> {
        let mut next = 0usize;
        let mut fits = true;
        let mut ranges = Vec::with_capacity(self.size() as usize);
        let shown = Value::default().with_word(0, mine as u64);
        self.far_exchange(span, &shown, 8, |_, value| {
            let start = next;
            // A peer wrote that.
            let end = usize::try_from(value.word(0)).ok().and_then(|len| start.checked_add(len));
            fits &= end.is_some();
            next = end.unwrap_or(start);
            ranges.push(start..next);
        })
        .await?;
        if fits {
            return Ok(Blocks::Listed(ranges));
        }
        Err(Error::Incompatible {
            what: "the lengths of a collective",
            why: "together they are more than memory can have; end the job".into(),
        })
    }

    /// The lengths of all members' blocks, which at the root are to be those that it gave.
    async fn agreed(
        &self,
        span: &Span,
        what: What,
        root: u32,
        mine: usize,
        blocks: &Blocks,
    ) -> Result<Blocks> {
        let lengths = self.lengths(span, mine).await?;
        let ranks = if span.rank == root { 0..self.size() } else { 0..0 };
        for rank in ranks {
            let (has, wanted) = (lengths.of(rank).len(), blocks.of(rank).len());
            if has != wanted {
                return Err(unexpected(what, rank, has, root, wanted));
            }
        }
        Ok(lengths)
    }

    pub(super) async fn far_gatherv(
        &self,
        span: &Span,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let lengths = self.agreed(span, What::Gatherv, root, mine.len(), blocks).await?;
        let in_part = self.blocks_of_part(span, span.part, &lengths);
        let part = self.gather_in_part(span, mine, &in_part).await?;
        self.bring_to_root(
            span,
            root,
            part,
            |part| self.blocks_of_part(span, part, &lengths),
            |rank, bytes| {
                all[blocks.of(rank)].copy_from_slice(bytes);
                Ok(())
            },
        )
        .await
    }

    pub(super) async fn far_allgather(
        &self,
        span: &Span,
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        let in_part = self.blocks_of_part(span, span.part, blocks);
        let own = all[blocks.of(span.rank)].to_vec();
        let part = self.gather_in_part(span, &own, &in_part).await?;
        if span.leads() {
            let parts = span.members.parts();
            let mut under_way = VecDeque::new();
            for distance in 1..parts {
                let from = (span.part + parts - distance) % parts;
                let theirs = self.blocks_of_part(span, from, blocks);
                let total: usize =
                    (0..span.members.count_in(from)).map(|local| theirs.of(local).len()).sum();
                let awaited = self.expect(span.members.leader(from), total)?;
                let to = span.members.leader((span.part + distance) % parts);
                under_way.push_back((from, theirs, awaited, self.tell(to, part.clone())?));
            }
            for (local, rank) in (0u32..).zip(span.members.members_of(span.part)) {
                all[blocks.of(rank)].copy_from_slice(&part[in_part.of(local)]);
            }
            while let Some((from, theirs, awaited, sent)) = under_way.pop_front() {
                let bytes = self.hear(awaited).await?;
                for (local, rank) in (0u32..).zip(span.members.members_of(from)) {
                    all[blocks.of(rank)].copy_from_slice(&bytes[theirs.of(local)]);
                }
                self.sent(sent).await?;
            }
        }
        // Blocks need not lie together: packed, so that what lies between stays as it is.
        let total: usize = (0..self.size()).map(|rank| blocks.of(rank).len()).sum();
        let mut packed = self.zeros(total)?;
        let mut at = 0;
        for rank in 0..self.size() {
            let block = blocks.of(rank);
            packed[at..at + block.len()].copy_from_slice(&all[block.clone()]);
            at += block.len();
        }
        self.broadcast_in_part(0, &mut packed).await?;
        at = 0;
        for rank in 0..self.size() {
            let block = blocks.of(rank);
            let len = block.len();
            all[block].copy_from_slice(&packed[at..at + len]);
            at += len;
        }
        Ok(())
    }

    pub(super) async fn far_scatter(
        &self,
        span: &Span,
        root: u32,
        all: &[u8],
        mine: &mut [u8],
        each: usize,
    ) -> Result<()> {
        let blocks = Blocks::Even(each);
        let in_part = self.blocks_of_part(span, span.part, &blocks);
        if span.rank == root {
            // Its own block is where it is to be.
            let mut own = self.zeros(each)?;
            return self.deal_out(span, root, all, &blocks, &in_part, &mut own).await;
        }
        self.deal_out(span, root, all, &blocks, &in_part, mine).await
    }

    /// The root sends each part what is for its members to their leader, who deals it out.
    async fn deal_out(
        &self,
        span: &Span,
        root: u32,
        all: &[u8],
        blocks: &Blocks,
        in_part: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let mut sent = Vec::new();
        let mut own = None;
        if span.rank == root {
            for part in 0..span.members.parts() {
                let mut bytes = Vec::new();
                for rank in span.members.members_of(part) {
                    bytes.extend_from_slice(&all[blocks.of(rank)]);
                }
                match span.members.leader(part) {
                    leader if leader == root => own = Some(bytes),
                    leader => sent.push(self.tell(leader, bytes)?),
                }
            }
        }
        let mut part = Vec::new();
        if span.leads() {
            let total = (0..self.core().block.size).map(|local| in_part.of(local).len()).sum();
            part = match own {
                Some(bytes) => bytes,
                None => self.hear_from(root, total).await?,
            };
            mine.copy_from_slice(&part[in_part.of(0)]);
        }
        if self.core().block.size > 1 {
            self.course.scatter_by_pieces(0, in_part.most(), &part, in_part, mine).await?;
        }
        for sent in sent {
            self.sent(sent).await?;
        }
        Ok(())
    }

    pub(super) async fn far_scatterv(
        &self,
        span: &Span,
        root: u32,
        all: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let lengths = self.agreed(span, What::Scatterv, root, mine.len(), blocks).await?;
        let in_part = self.blocks_of_part(span, span.part, &lengths);
        self.deal_out(span, root, all, blocks, &in_part, mine).await
    }

    /// By pairs: with the member at each distance in turn.
    pub(super) async fn far_alltoall(
        &self,
        span: &Span,
        mut both: Both<'_>,
        to: &Blocks,
        from: &Blocks,
    ) -> Result<()> {
        let (me, size) = (span.rank, self.size());
        both.keep(to.of(me), from.of(me));
        // In place what goes must be out before anything else comes there.
        let send = both.send().to_vec();
        let mut under_way = VecDeque::new();
        for distance in 1..=size {
            if distance < size {
                let (next, last) = ((me + distance) % size, (me + size - distance) % size);
                let awaited = self.expect(last, from.of(last).len())?;
                let sent = self.tell(next, send[to.of(next)].to_vec())?;
                under_way.push_back((last, awaited, sent));
            }
            while under_way.len() > ABREAST || distance == size {
                let Some((last, awaited, sent)) = under_way.pop_front() else { break };
                let bytes = self.hear(awaited).await?;
                both.recv()[from.of(last)].copy_from_slice(&bytes);
                self.sent(sent).await?;
            }
        }
        Ok(())
    }
}
