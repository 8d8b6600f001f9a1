//! Broadcast.

use super::block::PIECE;
use super::blocks::bytes_of_mut;
use super::select::{Algorithm, Choice};
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use super::ways::Kind;
use crate::base::{Rank, Request, Result};
use crate::layout::Datum;

const WHAT: What = What::Broadcast;

impl Team {
    /// Copies `data` of `root` to every member's `data`; lengths must be the same everywhere.
    ///
    /// Up to 56 bytes: one cache-line transfer, and the root does not wait for the others but when it
    /// is 16 such broadcasts ahead of one. More: two copies and one barrier per 16 KiB; one copy, if
    /// the root's data lie in the node's memory.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`crate::Error::InvalidArgument`] for a root that is no rank.
    pub fn broadcast<T: Datum>(&self, root: Rank, data: &mut [T]) -> Result<()> {
        if size_of_val(data) < self.member.small.broadcast {
            return self.broadcast_small(root, bytes_of_mut(data));
        }
        let (choice, sign) = self.plan_broadcast(root, size_of_val(data))?;
        self.run(sign, async |course| course.broadcast(choice, root.0, bytes_of_mut(data)).await)
    }

    /// The hot way: straight code.
    fn broadcast_small(&self, root: Rank, data: &mut [u8]) -> Result<()> {
        self.check_root(root, WHAT.during())?;
        let sign = Sign::new(WHAT, Algorithm::Boards, root.0, data.len() as u64, 0);
        self.collective(WHAT.during(), |core, deadline| {
            core.broadcast(sign, deadline, root.0, data)
        })
    }

    /// The broadcast, begun now; the request brings the data back.
    ///
    /// # Errors
    /// As for [`Team::broadcast`], partly from the request.
    pub fn ibroadcast<T: Datum>(
        &self,
        root: Rank,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        let mut data = data.into();
        let (choice, sign) = self.plan_broadcast(root, size_of_val(&data[..]))?;
        self.begin(sign, move |course| async move {
            course.broadcast(choice, root.0, bytes_of_mut(&mut data)).await?;
            Ok(data)
        })
    }

    /// Copies up to 7 words of the first member on each node to the others there. Collective.
    ///
    /// # Errors
    /// As for [`Team::barrier`].
    pub(crate) fn share_on_node(&self, words: &mut [u64; 7]) -> Result<()> {
        let data = bytes_of_mut(words);
        let sign = Sign::new(WHAT, Algorithm::Boards, 0, data.len() as u64, 1);
        self.run(sign, async |call| call.course.broadcast_post(0, data).await)
    }

    fn plan_broadcast(&self, root: Rank, bytes: usize) -> Result<(Choice, Sign)> {
        self.check_root(root, WHAT.during())?;
        let choice = self.member.choose(WHAT, bytes as u64);
        Ok((choice, Sign::new(WHAT, choice.first, root.0, bytes as u64, 0)))
    }
}

impl Course<'_> {
    pub(super) async fn broadcast(&self, choice: Choice, root: u32, data: &mut [u8]) -> Result<()> {
        match choice.first {
            Algorithm::Boards => self.broadcast_post(root, data).await,
            Algorithm::Direct => {
                let kind = Kind::new(WHAT, data.len());
                let (addresses, _timed) =
                    self.sources(kind, Some(data), |rank| rank == root).await?;
                match addresses {
                    Some(addresses) => {
                        if self.rank() != root {
                            self.core().fetch(root, addresses[root as usize], 0, data)?;
                        }
                        // The root may change its data when all have them.
                        self.sync().await.map(|_| ())
                    }
                    None if choice.otherwise == Algorithm::Boards => {
                        self.broadcast_post(root, data).await
                    }
                    None => self.broadcast_by_pieces(root, data).await,
                }
            }
            _ => self.broadcast_by_pieces(root, data).await,
        }
    }

    async fn broadcast_by_pieces(&self, root: u32, data: &mut [u8]) -> Result<()> {
        for piece in data.chunks_mut(PIECE) {
            if self.rank() == root {
                self.core().show_piece(0, piece);
            }
            let phase = self.sync().await?;
            if self.rank() != root {
                self.core().look_piece(root, phase, 0, piece);
            }
        }
        Ok(())
    }
}
