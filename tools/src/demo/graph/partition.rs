//! Which rank owns which vertex: cyclic, `owner(v) = v mod ranks`, so that runs of neighbouring
//! numbers with many edges (as real files have) are spread over all ranks.

use hither::Rank;

/// No vertex: the parent of what the search has not reached.
pub const NONE: u32 = u32::MAX;

/// The distribution of the vertices over the ranks.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// Number of vertices.
    pub vertices: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// The rank this process is.
    pub rank: u32,
}

impl Partition {
    /// Owner of a vertex and the vertex's place there.
    #[inline]
    pub fn place(&self, vertex: u32) -> (Rank, usize) {
        (Rank(vertex % self.ranks), (vertex / self.ranks) as usize)
    }

    /// The vertex at a place of a rank.
    #[inline]
    pub fn vertex(&self, rank: u32, local: usize) -> u32 {
        local as u32 * self.ranks + rank
    }

    /// Number of vertices a rank owns.
    pub fn owned_by(&self, rank: u32) -> usize {
        ((self.vertices + self.ranks - 1 - rank) / self.ranks) as usize
    }

    /// Number of vertices this rank owns.
    pub fn owned(&self) -> usize {
        self.owned_by(self.rank)
    }

    /// The largest number of vertices any rank owns (at least 1, so that windows are not empty).
    pub fn capacity(&self) -> usize {
        self.owned_by(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_has_one_place() {
        for ranks in 1..=9 {
            for vertices in 0..40 {
                let part = |rank| Partition { vertices, ranks, rank };
                let total: usize = (0..ranks).map(|r| part(r).owned()).sum();
                assert_eq!(total, vertices as usize);
                for vertex in 0..vertices {
                    let (owner, local) = part(0).place(vertex);
                    assert!(local < part(0).owned_by(owner.0));
                    assert_eq!(part(0).vertex(owner.0, local), vertex);
                    assert!(local < part(0).capacity());
                }
            }
        }
    }
}
