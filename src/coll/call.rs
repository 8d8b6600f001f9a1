//! One call of one member, wherever the other members are: in a team on one node it is a course
//! (`step`), in one on several it is made of courses in each part and of messages between parts
//! (`far`).

use super::alltoall::Both;
use super::blocks::Blocks;
use super::board::Value;
use super::core::Core;
use super::operation::Combine;
use super::reduce::Own;
use super::select::{Algorithm, Choice};
use super::span::Span;
use super::step::Course;
use crate::base::Result;
use crate::base::sync::AtomicU32;

/// See the [module](self).
pub(super) struct Call<'c> {
    /// In the part of the team that is on this node.
    pub course: Course<'c>,
    /// The number of the call in a team on several nodes.
    pub number: u32,
    /// Looks in vain for what it waits for (see `compare`).
    pub looks: AtomicU32,
}

macro_rules! dispatch {
    ($self:ident, $far:ident($($given:expr),*), $near:ident($($same:expr),*)) => {
        match $self.span() {
            None => $self.course.$near($($same),*).await,
            Some(span) => $self.$far(span, $($given),*).await,
        }
    };
}

impl<'c> Call<'c> {
    /// That whose part on this node `course` is.
    pub fn new(course: Course<'c>) -> Call<'c> {
        let number = course.core().span.as_deref().map_or(0, Span::next_call);
        let call = Call { course, number, looks: AtomicU32::new(0) };
        // What cannot be taken now is found by the call's own steps.
        let _ = call.take_in();
        call
    }

    pub fn core(&self) -> &Core {
        self.course.core()
    }

    /// Where the team reaches, if beyond this node.
    pub fn span(&self) -> Option<&Span> {
        self.core().span.as_deref()
    }

    /// This member.
    pub fn rank(&self) -> u32 {
        self.core().me()
    }

    /// Members.
    pub fn size(&self) -> u32 {
        self.core().members()
    }

    pub async fn sync(&self) -> Result<()> {
        match self.span() {
            None => self.course.sync().await.map(|_| ()),
            Some(span) => self.far_sync(span).await,
        }
    }

    pub async fn exchange(
        &self,
        mine: &Value,
        bytes: usize,
        each: impl FnMut(u32, &Value),
    ) -> Result<()> {
        dispatch!(self, far_exchange(mine, bytes, each), exchange(mine, bytes, each))
    }

    pub async fn broadcast(&self, choice: Choice, root: u32, data: &mut [u8]) -> Result<()> {
        dispatch!(self, far_broadcast(root, data), broadcast(choice, root, data))
    }

    pub async fn gather(
        &self,
        choice: Choice,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        dispatch!(
            self,
            far_gather(root, mine, all, blocks),
            gather(choice, root, mine, all, blocks)
        )
    }

    pub async fn gatherv(
        &self,
        root: u32,
        mine: &[u8],
        all: &mut [u8],
        blocks: &Blocks,
    ) -> Result<()> {
        dispatch!(self, far_gatherv(root, mine, all, blocks), gatherv(root, mine, all, blocks))
    }

    pub async fn allgather(&self, choice: Choice, all: &mut [u8], blocks: &Blocks) -> Result<()> {
        dispatch!(self, far_allgather(all, blocks), allgather(choice, all, blocks))
    }

    pub async fn scatter(
        &self,
        choice: Choice,
        root: u32,
        all: &[u8],
        mine: &mut [u8],
        each: usize,
    ) -> Result<()> {
        dispatch!(self, far_scatter(root, all, mine, each), scatter(choice, root, all, mine, each))
    }

    pub async fn scatterv(
        &self,
        root: u32,
        all: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        dispatch!(self, far_scatterv(root, all, blocks, mine), scatterv(root, all, blocks, mine))
    }

    pub async fn alltoall(&self, choice: Choice, both: Both<'_>, each: usize) -> Result<()> {
        let blocks = Blocks::Even(each);
        dispatch!(self, far_alltoall(both, &blocks, &blocks), alltoall(choice, both, each))
    }

    pub async fn alltoallv(&self, both: Both<'_>, to: &Blocks, from: &Blocks) -> Result<()> {
        dispatch!(self, far_alltoall(both, to, from), alltoallv(both, to, from))
    }

    pub async fn allreduce(&self, choice: Choice, op: &dyn Combine, data: &mut [u8]) -> Result<()> {
        dispatch!(self, far_allreduce(op, data), allreduce(choice, op, data))
    }

    pub async fn reduce(
        &self,
        choice: Choice,
        root: u32,
        op: &dyn Combine,
        own: Own<'_>,
    ) -> Result<()> {
        dispatch!(self, far_reduce(root, op, own), reduce(choice, root, op, own))
    }

    pub async fn reduce_scatter(
        &self,
        choice: Choice,
        op: &dyn Combine,
        data: &[u8],
        blocks: &Blocks,
        mine: &mut [u8],
    ) -> Result<()> {
        dispatch!(
            self,
            far_reduce_scatter(op, data, blocks, mine),
            reduce_scatter(choice, op, data, blocks, mine)
        )
    }

    pub async fn scan(&self, how: Algorithm, op: &dyn Combine, data: &mut [u8]) -> Result<()> {
        dispatch!(self, far_scan(op, data), scan(how, op, data))
    }
}
