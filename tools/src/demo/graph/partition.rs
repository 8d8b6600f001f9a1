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
    /// 2^63 / ranks, rounded up: a multiplication instead of a division for every vertex.
    reciprocal: u64,
}

impl Partition {
    /// The distribution over `ranks` ranks (1 to 2^16), as seen by one of them.
    pub fn new(vertices: u32, ranks: u32, rank: u32) -> Partition {
        let reciprocal = (1u64 << 63).div_ceil(u64::from(ranks));
        Partition { vertices, ranks, rank, reciprocal }
    }

    /// Owner of a vertex and the vertex's place there.
    #[inline]
    pub fn place(&self, vertex: u32) -> (Rank, usize) {
        // The reciprocal is too large by less than 1: the product is too large by less than 2^32
        // before the shift, and a quotient's distance to the next integer is at least
        // 2^63 / ranks, which is more.
        let local = ((u128::from(self.reciprocal) * u128::from(vertex)) >> 63) as u32;
        (Rank(vertex - local * self.ranks), local as usize)
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
                let part = |rank| Partition::new(vertices, ranks, rank);
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

    #[test]
    fn multiplying_is_dividing() {
        let edges = [0, 1, 2, 3, 1 << 16, (1 << 16) - 1, 1 << 31, u32::MAX - 1, u32::MAX];
        for ranks in (1..=4096).chain([65_535, 65_536]) {
            let part = Partition::new(u32::MAX, ranks, 0);
            let multiples =
                [1, 2, 1000, u32::MAX / ranks].map(|n| (n.min(u32::MAX / ranks)) * ranks);
            let near = multiples.iter().flat_map(|m| [m.wrapping_sub(1), *m, m.wrapping_add(1)]);
            for vertex in edges.into_iter().chain(near) {
                let want = (Rank(vertex % ranks), (vertex / ranks) as usize);
                assert_eq!(part.place(vertex), want, "{vertex} of {ranks}");
            }
        }
    }
}
