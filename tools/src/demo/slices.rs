//! Dividing a range among ranks.

/// Slice `part` of `parts` of `0..total`.
pub fn slice(total: u64, part: u32, parts: u32) -> std::ops::Range<u64> {
    let cut = |i: u32| (u128::from(total) * u128::from(i) / u128::from(parts)) as u64;
    cut(part)..cut(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_partition_the_range() {
        for total in [0, 1, 7, 100, u64::MAX] {
            for parts in 1..=9 {
                assert_eq!(slice(total, 0, parts).start, 0);
                assert_eq!(slice(total, parts - 1, parts).end, total);
                for part in 1..parts {
                    assert_eq!(slice(total, part - 1, parts).end, slice(total, part, parts).start);
                }
            }
        }
    }
}
