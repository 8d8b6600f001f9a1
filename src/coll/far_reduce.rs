//! Reductions and scans of teams on several nodes.
//!
//! | | within parts | between |
//! |---|---|---|
//! | reductions | combined at the leader; broadcast of the result | leaders, in the order of ranks |
//! | scans | scan; broadcast of what comes before the part | leaders, one to the next |
//!
//! Where the members of parts do not follow each other, and the operation does not commute, data are
//! gathered and combined in the order of ranks.

use super::blocks::Blocks;
use super::call::Call;
use super::operation::{Combine, Spare};
use super::reduce::Own;
use super::sign::What;
use super::span::Span;
use crate::base::Result;

impl Call<'_> {
    /// Whether parts may be combined one after the other.
    fn by_parts(span: &Span, op: &dyn Combine) -> bool {
        span.in_order || op.commutes()
    }

    /// Everybody's data combined in the order of ranks, by this member, from all of them.
    async fn fold_all(
        &self,
        span: &Span,
        op: &dyn Combine,
        data: &[u8],
        ranks: std::ops::Range<u32>,
    ) -> Result<Option<Spare>> {
        let blocks = Blocks::Even(data.len());
        let mut all = self.zeros(data.len() * self.size() as usize)?;
        all[blocks.of(span.rank)].copy_from_slice(data);
        self.far_allgather(span, &mut all, &blocks).await?;
        let (mut sum, mut next) = (Spare::default(), Spare::default());
        for rank in ranks.clone() {
            if rank == ranks.start {
                sum.bytes(data.len()).copy_from_slice(&all[blocks.of(rank)]);
                continue;
            }
            let next = next.bytes(data.len());
            next.copy_from_slice(&all[blocks.of(rank)]);
            op.combine(sum.bytes(data.len()), next);
        }
        Ok((!ranks.is_empty()).then_some(sum))
    }

    /// This part's data combined, at its leader.
    async fn combine_part(&self, span: &Span, op: &dyn Combine, data: &[u8]) -> Result<Spare> {
        let mut sum = Spare::default();
        let own = sum.bytes(data.len());
        own.copy_from_slice(data);
        let choice = self.core().choose(What::Reduce, data.len() as u64);
        let own = if span.leads() { Own::Result(own) } else { Own::Input(data) };
        self.course.reduce(choice, 0, op, own).await?;
        Ok(sum)
    }

    /// What the parts have combined, combined in order, at `root`.
    async fn combine_parts(
        &self,
        span: &Span,
        root: u32,
        op: &dyn Combine,
        mut part: Spare,
        len: usize,
    ) -> Result<Option<Spare>> {
        if span.rank != root {
            if span.leads() {
                self.tell_to(root, part.bytes(len).to_vec()).await?;
            }
            return Ok(None);
        }
        let mut awaited = Vec::new();
        for from in 0..span.members.parts() {
            let leader = span.members.leader(from);
            awaited.push((leader != root).then(|| self.expect(leader, len)).transpose()?);
        }
        let (mut sum, mut next) = (Spare::default(), Spare::default());
        for (index, awaited) in awaited.into_iter().enumerate() {
            let into = if index == 0 { sum.bytes(len) } else { next.bytes(len) };
            match awaited {
                Some(awaited) => into.copy_from_slice(&self.hear(awaited).await?),
                None => into.copy_from_slice(part.bytes(len)),
            }
            if index > 0 {
                op.combine(sum.bytes(len), next.bytes(len));
            }
        }
        Ok(Some(sum))
    }

    pub(super) async fn far_reduce(
        &self,
        span: &Span,
        root: u32,
        op: &dyn Combine,
        own: Own<'_>,
    ) -> Result<()> {
        let len = own.data().len();
        let sum = if Self::by_parts(span, op) {
            let part = self.combine_part(span, op, own.data()).await?;
            self.combine_parts(span, root, op, part, len).await?
        } else {
            self.fold_all(span, op, own.data(), 0..self.size()).await?
        };
        if let (Own::Result(data), Some(mut sum)) = (own, sum) {
            data.copy_from_slice(sum.bytes(len));
        }
        Ok(())
    }

    pub(super) async fn far_allreduce(
        &self,
        span: &Span,
        op: &dyn Combine,
        data: &mut [u8],
    ) -> Result<()> {
        let len = data.len();
        if !Self::by_parts(span, op) {
            let sum = self.fold_all(span, op, data, 0..self.size()).await?;
            sum.into_iter().for_each(|mut sum| data.copy_from_slice(sum.bytes(len)));
            return Ok(());
        }
        let root = span.members.leader(0);
        let part = self.combine_part(span, op, data).await?;
        if let Some(mut sum) = self.combine_parts(span, root, op, part, len).await? {
            data.copy_from_slice(sum.bytes(len));
        }
        self.far_broadcast(span, root, data).await
    }

    pub(super) async fn far_reduce_scatter(
        &self,
        span: &Span,
        op: &dyn Combine,
        data: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        let mut sum = Spare::default();
        let sum = sum.bytes(data.len());
        sum.copy_from_slice(data);
        self.far_allreduce(span, op, sum).await?;
        mine.copy_from_slice(&sum[blocks.of(span.rank)]);
        Ok(())
    }

    pub(super) async fn far_scan(
        &self,
        span: &Span,
        op: &dyn Combine,
        data: &mut [u8],
    ) -> Result<()> {
        let inclusive = self.course.sign.what == What::Scan;
        let len = data.len();
        let last = span.rank + u32::from(inclusive);
        if !span.in_order {
            let sum = self.fold_all(span, op, data, 0..last).await?;
            sum.into_iter().for_each(|mut sum| data.copy_from_slice(sum.bytes(len)));
            return Ok(());
        }
        // The part's own sum at its leader, who passes on what comes before the next part.
        let mut part = self.combine_part(span, op, data).await?;
        let mut before = Spare::default();
        if span.leads() {
            let leader = |part: u32| span.members.leader(part);
            if span.part > 0 {
                let come = self.hear_from(leader(span.part - 1), len).await?;
                before.bytes(len).copy_from_slice(&come);
            }
            if span.part + 1 < span.members.parts() {
                let through = if span.part > 0 {
                    let mut sum = Spare::default();
                    sum.bytes(len).copy_from_slice(before.bytes(len));
                    op.combine(sum.bytes(len), part.bytes(len));
                    sum.bytes(len).to_vec()
                } else {
                    part.bytes(len).to_vec()
                };
                self.tell_to(leader(span.part + 1), through).await?;
            }
        }
        let choice = self.core().choose(self.course.sign.what, len as u64);
        let own_first = self.core().rank == 0;
        self.course.scan(self.course.fitting_scan(choice.first, op), op, data).await?;
        if span.part == 0 {
            return Ok(());
        }
        self.broadcast_in_part(0, before.bytes(len)).await?;
        let before = before.bytes(len);
        if inclusive || !own_first {
            op.combine(before, data);
        }
        data.copy_from_slice(before);
        Ok(())
    }
}
