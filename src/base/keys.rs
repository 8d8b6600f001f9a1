//! Tables of what has a number: slots, windows, operations that wait for an answer.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by numbers that this process, its node, or the making of a window has given out: nobody else can
/// choose them such that they collide, so one multiplication is enough of a hash.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Number>>;

/// See [`ByNumber`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    /// The table looks at the highest and at the lowest bits.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_told_apart_by_both_ends() {
        let mut table: ByNumber<u64, u64> = ByNumber::default();
        (0..10_000).for_each(|n| _ = table.insert(n * 64, n));
        assert!((0..10_000).all(|n| table.get(&(n * 64)) == Some(&n)));
        let hash = |n: u64| {
            let mut hasher = Number::default();
            hasher.write_u64(n);
            hasher.finish()
        };
        let mut low: Vec<u64> = (0..256).map(|n| hash(n) & 255).collect();
        let mut high: Vec<u64> = (0..256).map(|n| hash(n) >> 57).collect();
        low.sort_unstable();
        low.dedup();
        high.sort_unstable();
        high.dedup();
        assert!(low.len() == 256 && high.len() > 64, "{} {}", low.len(), high.len());
    }
}
