//! The generated graph of the Graph 500 benchmark: a stochastic Kronecker graph with initiator
//! probabilities A = .57, B = C = .19, D = .05, 16 edges a vertex, scrambled vertex numbers.
//!
//! Edge `i` is a pure function of (seed, scale, i): every rank generates its own slice. The edges
//! are independent of one another, so their order needs no shuffling.

use super::super::random::Stream;

/// An edge between two vertices, either of which may be first.
pub type Edge = [u32; 2];

/// Edges for each vertex.
pub const EDGE_FACTOR: u64 = 16;

// Upper bounds of the quadrants (0,0), (0,1), (1,0) in units of 2^-32.
const A: u64 = (0.57 * 4_294_967_296.0) as u64;
const AB: u64 = (0.76 * 4_294_967_296.0) as u64;
const ABC: u64 = (0.95 * 4_294_967_296.0) as u64;

/// One generated graph.
#[derive(Clone, Copy, Debug)]
pub struct Kronecker {
    scale: u32,
    stream: Stream,
    scramble: [u32; 4],
}

impl Kronecker {
    /// The graph of 2^`scale` vertices (`scale` in 1..=31) of a seed.
    pub fn new(scale: u32, seed: u64) -> Kronecker {
        let keys = Stream::new(seed ^ 0x5ca1_ab1e);
        let scramble = std::array::from_fn(|i| keys.at(i as u64) as u32 | 1);
        Kronecker { scale, stream: Stream::new(seed), scramble }
    }

    /// Number of vertices, with and without edges.
    pub fn vertices(&self) -> u32 {
        1 << self.scale
    }

    /// Number of edges, with self-loops and duplicates.
    pub fn edges(&self) -> u64 {
        EDGE_FACTOR << self.scale
    }

    /// Edge `index`.
    pub fn edge(&self, index: u64) -> Edge {
        let bits = self.stream.child(index);
        let (mut from, mut to) = (0u32, 0u32);
        for level in 0..self.scale {
            // One number serves two levels.
            let draw = bits.at(u64::from(level / 2)) >> (32 * (level % 2)) & 0xffff_ffff;
            let (down, right) = (draw >= AB, (A..AB).contains(&draw) || draw >= ABC);
            from = from << 1 | u32::from(down);
            to = to << 1 | u32::from(right);
        }
        [self.scrambled(from), self.scrambled(to)]
    }

    /// A bijection of the vertex numbers: without it the numbers would tell the degrees. Each
    /// round multiplies by an odd number modulo 2^scale, then folds the high half into the low
    /// one; both can be undone.
    fn scrambled(&self, vertex: u32) -> u32 {
        let mask = self.vertices() - 1;
        let fold = self.scale.div_ceil(2);
        self.scramble.iter().fold(vertex, |x, &key| {
            let x = x.wrapping_mul(key).wrapping_add(key >> 7) & mask;
            x ^ (x >> fold)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::slices::slice;
    use super::*;

    #[test]
    fn scrambling_is_a_bijection_at_every_scale() {
        for scale in 1..=14 {
            let graph = Kronecker::new(scale, 3);
            let mut seen = vec![false; 1 << scale];
            for vertex in 0..graph.vertices() {
                let image = graph.scrambled(vertex);
                assert!(!std::mem::replace(&mut seen[image as usize], true), "{scale}: {vertex}");
            }
        }
    }

    #[test]
    fn scrambling_moves_most_vertices() {
        let graph = Kronecker::new(12, 1);
        let fixed = (0..graph.vertices()).filter(|&v| graph.scrambled(v) == v).count();
        assert!(fixed < 40, "{fixed} of 4096 stayed");
    }

    #[test]
    fn quadrants_have_the_initiators_probabilities() {
        // At scale 1 an edge is one draw: 20,000 graphs' first edges, unscrambled.
        let mut counts = [[0u32; 2]; 2];
        for seed in 0..20_000 {
            let mut graph = Kronecker::new(1, seed);
            graph.scramble = [1; 4];
            let edge = graph.edge(0);
            // With key 1 the scramble of one bit is the identity.
            counts[edge[0] as usize][edge[1] as usize] += 1;
        }
        // Four standard deviations of 20,000 draws are at most 280.
        for (count, want) in counts.into_iter().flatten().zip([11_400, 3_800, 3_800, 1_000]) {
            assert!(count.abs_diff(want) < 280, "{counts:?}");
        }
    }

    #[test]
    fn degrees_are_skewed_as_a_kronecker_graphs_are() {
        let graph = Kronecker::new(12, 5);
        let mut degree = vec![0u32; 1 << 12];
        for edge in (0..graph.edges()).map(|i| graph.edge(i)) {
            for end in edge {
                degree[end as usize] += 1;
            }
        }
        let largest = degree.iter().max().copied().unwrap_or(0);
        let isolated = degree.iter().filter(|&&d| d == 0).count();
        // A uniform random graph of mean degree 32 has no isolated vertex and no degree above 80.
        // The expected degree of the corner vertex is 32 * (2 * .76)^12 = 4,860.
        assert!(largest > 2_000, "{largest}");
        assert!(isolated > 400, "{isolated}");
    }

    #[test]
    fn slices_partition_and_do_not_depend_on_their_number() {
        let graph = Kronecker::new(6, 9);
        let whole: Vec<Edge> = (0..graph.edges()).map(|i| graph.edge(i)).collect();
        for parts in 1..=7 {
            let cut: Vec<Edge> = (0..parts)
                .flat_map(|p| slice(graph.edges(), p, parts))
                .map(|i| graph.edge(i))
                .collect();
            assert_eq!(cut, whole);
        }
    }
}
