//! Eager thresholds come in classes, each twice the one before: few pools serve many peers.

use std::fmt;

/// Bytes by which a threshold exceeds its power of two, so that messages right on the border, with
/// their headers, are within (paper 000 §3.2: 1,024).
pub const OFFSET: u64 = 1024;

/// The threshold `2^exponent +` [`OFFSET`] bytes. A message of so many bytes, its header counted,
/// still goes eagerly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// The smallest one: below it, messages fit into rings anyway.
    pub const SMALLEST: Class = Class(10);
    /// The largest one that has a name.
    pub const LARGEST: Class = Class(40);
    /// How many there are.
    pub const COUNT: usize = (Class::LARGEST.0 - Class::SMALLEST.0) as usize + 1;

    /// The class with this exponent, as [`exponent`](Self::exponent) gives it; peers send it.
    pub const fn new(exponent: u8) -> Option<Class> {
        let known = exponent >= Class::SMALLEST.0 && exponent <= Class::LARGEST.0;
        if known { Some(Class(exponent)) } else { None }
    }

    /// The threshold that paper 000 §3.2 chooses for `count` messages of `bytes` bytes in all,
    /// headers included: `2^ceil(log2(bytes / count)) + 1024`. Nothing if there are no messages,
    /// or if they are larger than any class.
    pub fn for_average(bytes: u64, count: u64) -> Option<Class> {
        if count == 0 {
            return None;
        }
        // The least power that is no less than the quotient, which need not be whole.
        let least = bytes.div_ceil(count).checked_next_power_of_two()?;
        Class::new((least.trailing_zeros() as u8).max(Class::SMALLEST.0))
    }

    /// The smallest class whose threshold is at least `bytes`.
    pub fn covering(bytes: u64) -> Option<Class> {
        Class::for_average(bytes.saturating_sub(OFFSET), 1)
    }

    /// The largest class whose threshold is at most `bytes`.
    pub fn within(bytes: u64) -> Option<Class> {
        let exponent = bytes.checked_sub(OFFSET)?.checked_ilog2()?;
        Class::new(exponent.min(u32::from(Class::LARGEST.0)) as u8)
    }

    /// The logarithm of its power of two.
    #[inline]
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// Bytes that a message of this class has at most, its header included. Buffers of its pools
    /// are as large.
    #[inline]
    pub const fn threshold(self) -> u64 {
        (1 << self.0) + OFFSET
    }

    /// `0..COUNT`, in the order of the thresholds.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0 - Class::SMALLEST.0)
    }

    /// Every class, from the smallest one.
    pub fn each() -> impl Iterator<Item = Class> {
        (Class::SMALLEST.0..=Class::LARGEST.0).map(Class)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.threshold())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thresholds_are_those_of_the_formula() {
        // Averages of one message each: at, below and above a power of two.
        for (bytes, threshold) in [
            (65_536, 65_536 + 1024),
            (65_535, 65_536 + 1024),
            (65_537, 131_072 + 1024),
            (16_384, 16_384 + 1024),
            (1, 1024 + 1024),
        ] {
            let class = Class::for_average(bytes, 1).unwrap();
            assert_eq!(class.threshold(), threshold, "{bytes} bytes");
        }
        // The quotient is not rounded down before its logarithm is rounded up.
        assert_eq!(Class::for_average(3 * 65_536 + 1, 3).unwrap().threshold(), 131_072 + 1024);
        assert_eq!(Class::for_average(3 * 65_536, 3).unwrap().threshold(), 65_536 + 1024);
        assert_eq!(Class::for_average(0, 0), None);
        assert_eq!(Class::for_average(u64::MAX, 1), None);
        assert_eq!(Class::new(9).or(Class::new(41)), None);
        assert_eq!(Class::each().count(), Class::COUNT);
    }

    proptest! {
        #[test]
        fn the_formula_is_that_of_real_numbers(bytes in 1u64 << 11..1 << 39, count in 1u64..5000) {
            let average = bytes as f64 / count as f64;
            prop_assume!(average > 1024.0);
            let exponent = average.log2().ceil() as u8;
            // The logarithm of a real number is not exact right at a power of two.
            prop_assume!(average.log2().fract() > 1e-9);
            prop_assert_eq!(Class::for_average(bytes, count).unwrap().exponent(), exponent);
        }

        #[test]
        fn a_covering_class_covers_and_no_smaller_one_does(bytes in 0u64..1 << 40) {
            let class = Class::covering(bytes).unwrap();
            prop_assert!(class.threshold() >= bytes);
            prop_assert!(Class::each().take_while(|c| *c < class).all(|c| c.threshold() < bytes));
            let within = Class::within(bytes);
            prop_assert_eq!(within, Class::each().take_while(|c| c.threshold() <= bytes).last());
        }
    }
}
