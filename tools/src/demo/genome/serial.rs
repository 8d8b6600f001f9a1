//! The plain serial search that results are checked against: one pass over the text, comparing
//! letters. It shares nothing with the index: no codes, no hashing of ours.

use super::fasta::UNKNOWN;
use super::kmer::{LENGTH, Word};
use std::collections::HashMap;

/// Positions (ascending, overlapping ones too) of each query in the text.
pub fn search(bases: &[u8], queries: &[Word]) -> Vec<Vec<u64>> {
    let mut wanted: HashMap<&[u8], Vec<usize>> = HashMap::with_capacity(queries.len());
    for (index, query) in queries.iter().enumerate() {
        if !query.contains(&UNKNOWN) {
            wanted.entry(query).or_default().push(index);
        }
    }
    let mut found = vec![Vec::new(); queries.len()];
    for (position, word) in bases.windows(LENGTH).enumerate() {
        for &index in wanted.get(word).into_iter().flatten() {
            found[index].push(position as u64);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_comparing_everywhere_finds(
            bases in "[AC]{0,8}[AN]{0,40}[ACG]{0,40}", at in 0usize..80,
        ) {
            let bases = bases.as_bytes();
            let mut queries = vec![[b'A'; LENGTH], [b'C'; LENGTH], [b'N'; LENGTH]];
            if let Some(word) = bases.get(at..at + LENGTH) {
                let word: Word = word.try_into().expect("20 bytes");
                queries.extend([word, word]);
            }
            let found = search(bases, &queries);
            for (query, found) in queries.iter().zip(found) {
                let mut want = Vec::new();
                for position in 0..bases.len() {
                    let matches = (0..LENGTH).all(|i| {
                        query[i] != UNKNOWN && bases.get(position + i) == Some(&query[i])
                    });
                    if matches {
                        want.push(position as u64);
                    }
                }
                prop_assert_eq!(found, want);
            }
        }
    }
}
