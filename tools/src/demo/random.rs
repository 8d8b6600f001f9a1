//! Counter-based random numbers: the i-th number of a stream is a pure function of (seed, i), so
//! every rank produces exactly its slice of one job-wide sequence, whatever the number of ranks.

/// One stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: u64,
}

/// A bijection of 64 bits in which every input bit flips every output bit with probability ~1/2.
#[inline]
pub fn avalanche(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 29;
    x = x.wrapping_mul(0xa076_1d64_78bd_642f);
    x ^ (x >> 32)
}

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Stream {
        Stream { key: avalanche(avalanche(seed ^ 0x5851_f42d_4c95_7f2d).wrapping_add(1)) }
    }

    /// An independent stream, for the `index`-th object that needs several numbers.
    #[inline]
    pub fn child(&self, index: u64) -> Stream {
        Stream { key: avalanche(self.at(index) ^ 0x2545_f491_4f6c_dd1d) }
    }

    /// Number `index` of the stream, uniform over all 64-bit values.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        avalanche(index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.key))
    }

    /// Number `index` of the stream, uniform over `0..bound` (`bound` > 0).
    #[inline]
    pub fn below(&self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.at(index)) * u128::from(bound)) >> 64) as u64
    }
}

/// What a value at a place adds to a fingerprint of results, by exclusive or: in any order.
pub fn mark(place: u64, value: u64) -> u64 {
    avalanche(value ^ avalanche(place.wrapping_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_range_evenly() {
        let stream = Stream::new(7);
        let mut counts = [0u32; 10];
        for i in 0..100_000 {
            counts[stream.below(i, 10) as usize] += 1;
        }
        // 10,000 expected, standard deviation 95: 600 is more than six of them.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 600), "{counts:?}");
    }

    #[test]
    fn streams_of_neighbouring_seeds_and_children_do_not_overlap() {
        let mut all: Vec<u64> = Vec::new();
        for seed in 0..8 {
            let stream = Stream::new(seed);
            all.extend((0..500).map(|i| stream.at(i)));
            all.extend((0..100).flat_map(|c| (0..5).map(move |i| stream.child(c).at(i))));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn each_bit_is_balanced() {
        let stream = Stream::new(1);
        for bit in 0..64 {
            let ones = (0..10_000).filter(|&i| stream.at(i) >> bit & 1 == 1).count();
            assert!(ones.abs_diff(5_000) < 400, "bit {bit}: {ones}");
        }
    }
}
