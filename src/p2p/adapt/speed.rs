//! How long the transfer of a message takes, from those that were seen.

/// Sizes by their logarithms; what is larger is reckoned from the last one.
const SIZES: usize = 32;

/// Bytes in a nanosecond before anything was seen: 8 GB/s in a node's memory, 1 GB/s between nodes.
const IN_MEMORY: u64 = 8;
const BETWEEN_NODES: u64 = 1;

/// An estimate of transfer times by size: a running average per power of two, since rates change
/// with size (caches, chunks, pages) and times do not lie on a line.
#[derive(Clone, Debug)]
pub struct Speed {
    /// Picoseconds per byte, times 2^8; 0 where nothing was seen.
    rates: [u64; SIZES],
    /// Bytes in a nanosecond, as long as nothing was seen.
    guess: u64,
}

impl Default for Speed {
    fn default() -> Speed {
        Speed::new()
    }
}

fn size(bytes: u64) -> usize {
    (bytes.max(1).ilog2() as usize).min(SIZES - 1)
}

impl Speed {
    /// Nothing seen; of a node's memory.
    pub fn new() -> Speed {
        Speed { rates: [0; SIZES], guess: IN_MEMORY }
    }

    /// Nothing seen; of what goes to other nodes.
    pub fn between_nodes() -> Speed {
        Speed { guess: BETWEEN_NODES, ..Speed::new() }
    }

    /// The data of a message of `bytes` bytes moved in `ns` nanoseconds: the moving alone, without
    /// the time that one side let the other wait. Each counts an eighth.
    pub fn note(&mut self, bytes: u64, ns: u64) {
        if bytes == 0 {
            return;
        }
        // Beyond 19 hours times are all the same.
        let seen = (ns.saturating_mul(256_000) / bytes).clamp(1, 1 << 48);
        let rate = &mut self.rates[size(bytes)];
        *rate = if *rate == 0 { seen } else { (*rate * 7 + seen) / 8 };
    }

    /// Nanoseconds that the data of a message of `bytes` bytes take: at the rate of that size, or
    /// of the nearest one that was seen.
    pub fn estimate(&self, bytes: u64) -> u64 {
        let at = size(bytes);
        let nearest = (0..SIZES).filter(|&i| self.rates[i] != 0).min_by_key(|i| i.abs_diff(at));
        match nearest {
            Some(i) => (u128::from(bytes) * u128::from(self.rates[i]) / 256_000) as u64,
            None => bytes / self.guess,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_seen_at_that_size_or_the_nearest_one() {
        let mut speed = Speed::new();
        assert_eq!(speed.estimate(1 << 20), (1 << 20) / 8);
        speed.note(1 << 20, 100_000);
        assert_eq!(speed.estimate(1 << 20) / 1000, 99);
        assert_eq!(speed.estimate(1 << 22) / 1000, 399);
        speed.note(1 << 14, 10_000);
        assert_eq!(speed.estimate(1 << 13), 5000);
        assert_eq!(speed.estimate(1 << 21) / 1000, 199);
        for _ in 0..100 {
            speed.note(1 << 20, 200_000);
        }
        assert!((199_000..=200_000).contains(&speed.estimate(1 << 20)));
    }

    #[test]
    fn no_number_is_too_large() {
        let mut speed = Speed::new();
        speed.note(0, u64::MAX);
        speed.note(1, u64::MAX);
        speed.note(u64::MAX, u64::MAX);
        speed.note(u64::MAX, 0);
        for bytes in [0, 1, 1 << 30, u64::MAX] {
            speed.estimate(bytes);
        }
    }
}
