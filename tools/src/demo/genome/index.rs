//! One rank's part of the index, as words of its window. The words it holds are those whose hash
//! names this rank, so that a query concerns one rank only.
//!
//! ```text
//!   word   0        buckets B (a power of two)
//!          1        different words K
//!          2        positions E
//!          3        directory: first key of each bucket, and K       B + 1 words
//!          ...      keys, ascending in each bucket                   K
//!          ...      first position of each key, and E                K + 1
//!          ...      positions, ascending for each key                E
//! ```
//!
//! A bucket holds one key on average; all the positions of a word that is repeated a million
//! times are still one key.

use super::super::random::avalanche;

/// A word of the genome and where it stands.
pub type Entry = [u64; 2];

const DIRECTORY: usize = 3;

/// The rank that keeps a word.
pub fn owner(code: u64, ranks: u32) -> u32 {
    (((avalanche(code) >> 32) * u64::from(ranks)) >> 32) as u32
}

fn bucket(code: u64, buckets: u64) -> u64 {
    // The low half of the hash; the high one chose the rank.
    avalanche(code) & (buckets - 1)
}

/// The index of some entries.
pub fn build(mut entries: Vec<Entry>) -> Vec<u64> {
    let buckets = (entries.len().max(1) as u64).next_power_of_two();
    entries.sort_unstable_by_key(|&[code, position]| (bucket(code, buckets), code, position));
    let mut keys: Vec<u64> = Vec::new();
    let mut firsts: Vec<u64> = Vec::new();
    let mut directory = vec![0u64; buckets as usize + 1];
    for (at, &[code, _]) in entries.iter().enumerate() {
        if keys.last() != Some(&code) {
            keys.push(code);
            firsts.push(at as u64);
            directory[bucket(code, buckets) as usize + 1] += 1;
        }
    }
    firsts.push(entries.len() as u64);
    for at in 0..buckets as usize {
        directory[at + 1] += directory[at];
    }
    let mut words = vec![buckets, keys.len() as u64, entries.len() as u64];
    words.extend(directory);
    words.extend(keys);
    words.extend(firsts);
    words.extend(entries.iter().map(|entry| entry[1]));
    words
}

/// Where the positions of a word stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// How many.
    pub count: u64,
    /// Place of the first one among the index's words.
    pub first: u64,
}

/// Looks words up in an index of which `read(i)` gives word `i`: four words and the keys of one bucket for
/// each of `codes`, all of one kind before any of the next, so that the memory's answers are waited for
/// together. `hits` has a place for each.
pub fn look_up<E>(
    codes: &[u64],
    hits: &mut [Hit],
    mut read: impl FnMut(usize) -> Result<u64, E>,
) -> Result<(), E> {
    let (buckets, keys) = (read(0)?, read(1)? as usize);
    let keys_at = DIRECTORY + buckets as usize + 1;
    let firsts_at = keys_at + keys;
    for (&code, hit) in codes.iter().zip(&mut *hits) {
        let at = DIRECTORY + bucket(code, buckets) as usize;
        let (first, end) = (read(at)?, read(at + 1)?);
        *hit = Hit { count: end.saturating_sub(first), first };
    }
    for (&code, hit) in codes.iter().zip(&mut *hits) {
        let keys = hit.first..hit.first + hit.count;
        hit.count = 0;
        for key in keys {
            if read(keys_at + key as usize)? == code {
                *hit = Hit { count: 1, first: key };
                break;
            }
        }
    }
    for hit in hits.iter_mut().filter(|hit| hit.count > 0) {
        let at = firsts_at + hit.first as usize;
        let (first, end) = (read(at)?, read(at + 1)?);
        *hit = Hit { count: end - first, first: (firsts_at + keys + 1) as u64 + first };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn positions(index: &[u64], code: u64) -> Vec<u64> {
        let mut hits = [Hit::default(); 2];
        let Ok(()) = look_up(&[code, code], &mut hits, |i| Ok::<_, Infallible>(index[i]));
        assert_eq!(hits[0], hits[1]);
        let Hit { count, first } = hits[0];
        if count == 0 {
            Vec::new()
        } else {
            index[first as usize..(first + count) as usize].to_vec()
        }
    }

    proptest! {
        #[test]
        fn an_index_finds_exactly_what_was_put_in(
            entries in proptest::collection::vec((0u64..40, 0u64..1000), 0..200),
        ) {
            let mut entries: Vec<Entry> = entries.iter().map(|&(c, p)| [c, p]).collect();
            let index = build(entries.clone());
            entries.sort_unstable();
            for code in 0..45 {
                let want: Vec<u64> =
                    entries.iter().filter(|e| e[0] == code).map(|e| e[1]).collect();
                prop_assert_eq!(positions(&index, code), want);
            }
        }
    }

    #[test]
    fn words_are_spread_evenly_over_ranks() {
        for ranks in [1, 2, 3, 8] {
            let mut counts = vec![0u32; ranks as usize];
            (0..20_000).for_each(|code| counts[owner(code, ranks) as usize] += 1);
            let even = 20_000 / ranks;
            assert!(counts.iter().all(|c| c.abs_diff(even) < even / 10 + 1), "{counts:?}");
        }
    }
}
