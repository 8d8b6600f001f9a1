//! Entries all of whose fields go in cycles, as one cycle of whole entries: one division finds
//! them all.

use super::pattern::{PERIOD, Pattern};
use super::{Entry, FIELDS};

/// `rows[rank % period] + rank / period * step`, field by field.
#[derive(Debug)]
pub(super) struct Rows {
    period: u32,
    /// A number to multiply with instead of dividing by the period.
    reciprocal: u64,
    step: [u64; FIELDS],
    rows: [[u64; FIELDS]; PERIOD],
}

/// `2^35 / period`, rounded up: for periods up to 8 the product of a 32-bit rank with it, shifted
/// back, is the quotient (the error is below `rank * 8 / 2^35 / period < 1 / period`).
const BITS: u32 = 35;

impl Rows {
    /// Of patterns whose periods have a common multiple of at most [`PERIOD`].
    pub fn new(patterns: &[Pattern; FIELDS]) -> Option<Rows> {
        let mut period = 1;
        for pattern in patterns {
            let own = pattern.period()?;
            period = (1..=PERIOD as u32).find(|p| p % period == 0 && p % own == 0)?;
        }
        let at = |rank| patterns.each_ref().map(|pattern| pattern.at(rank));
        let (first, next) = (at(0), at(period));
        let step = std::array::from_fn(|field| next[field].wrapping_sub(first[field]));
        let mut rows = [[0; FIELDS]; PERIOD];
        for (rank, row) in (0..period).zip(&mut rows) {
            *row = at(rank);
        }
        Some(Rows { period, reciprocal: (1u64 << BITS).div_ceil(period.into()), step, rows })
    }

    /// The entry of `rank`.
    #[inline]
    pub fn at(&self, rank: u32) -> Entry {
        let round = ((u128::from(rank) * u128::from(self.reciprocal)) >> BITS) as u64;
        let place = rank as u64 - round * u64::from(self.period);
        let row = &self.rows[place as usize % PERIOD];
        let field = |f: usize| row[f].wrapping_add(round.wrapping_mul(self.step[f]));
        Entry::from_fields(std::array::from_fn(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_cycle_says_what_the_fields_cycles_say(
            heads: [u64; PERIOD + 1],
            periods in prop_oneof![Just([1, 2, 4, 8]), Just([3, 1, 3, 6]), Just([7, 7, 1, 1])],
            ranks in proptest::collection::vec(any::<u32>(), 20),
        ) {
            let patterns = periods.map(|p| Pattern::suggested(p, u32::MAX, &heads).unwrap());
            let rows = Rows::new(&patterns).unwrap();
            for rank in ranks.into_iter().chain([0, 1, 8, u32::MAX - 1, u32::MAX]) {
                let fields = patterns.each_ref().map(|pattern| pattern.at(rank));
                prop_assert_eq!(rows.at(rank), Entry::from_fields(fields));
            }
        }
    }

    #[test]
    fn periods_without_a_short_common_multiple_stay_apart() {
        let heads = [1, 5, 2, 8, 3, 9, 4, 7, 6];
        let pattern = |period| Pattern::suggested(period, 100, &heads).unwrap();
        assert!(Rows::new(&[pattern(3), pattern(4), pattern(1), pattern(1)]).is_none());
    }
}
