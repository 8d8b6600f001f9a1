//! What is asked: query `i` is a pure function of the genome, the seed and `i`. Half of the
//! queries are words of the genome, three tenths such words with one to three bases exchanged,
//! the rest random words (which hardly ever occur).

use super::super::random::Stream;
use super::kmer::{LENGTH, Word, opposite};

const BASES: &[u8; 4] = b"ACGT";

/// The queries on one genome.
pub struct Queries<'a> {
    bases: &'a [u8],
    stream: Stream,
    /// Whether each word is also looked for on the opposite strand, as a query of its own.
    both: bool,
}

impl<'a> Queries<'a> {
    /// Queries of a seed.
    pub fn new(bases: &'a [u8], seed: u64, both: bool) -> Queries<'a> {
        Queries { bases, stream: Stream::new(seed), both }
    }

    /// Query `index`. With both strands, odd queries are the opposites of the even ones.
    pub fn query(&self, index: u64) -> Word {
        match (self.both, index % 2) {
            (false, _) => self.word(index),
            (true, 0) => self.word(index / 2),
            (true, _) => opposite(&self.word(index / 2)),
        }
    }

    fn word(&self, index: u64) -> Word {
        let draw = self.stream.child(index);
        let kind = draw.below(0, 10);
        let places = self.bases.len().saturating_sub(LENGTH - 1) as u64;
        if kind >= 8 || places == 0 {
            return std::array::from_fn(|i| BASES[draw.below(1 + i as u64, 4) as usize]);
        }
        let start = draw.below(1, places) as usize;
        let mut word = [0; LENGTH];
        word.copy_from_slice(&self.bases[start..start + LENGTH]);
        if kind >= 5 {
            for change in 0..1 + draw.below(2, 3) {
                let at = draw.below(3 + 2 * change, LENGTH as u64) as usize;
                word[at] = BASES[draw.below(4 + 2 * change, 4) as usize];
            }
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::super::kmer::code;
    use super::*;

    #[test]
    fn queries_are_reproducible_and_of_all_kinds() {
        let stream = Stream::new(5);
        let bases: Vec<u8> = (0..5_000).map(|i| BASES[stream.below(i, 4) as usize]).collect();
        let queries = Queries::new(&bases, 1, false);
        let occurs = |word: &Word| bases.windows(LENGTH).any(|w| w == word);
        let hits = (0..1_000)
            .inspect(|&i| assert_eq!(queries.query(i), Queries::new(&bases, 1, false).query(i)))
            .filter(|&i| occurs(&queries.query(i)))
            .count();
        // Half are words; of the changed ones a few are changed into what they were.
        assert!((420..640).contains(&hits), "{hits}");
    }

    #[test]
    fn both_strands_alternate() {
        let bases = b"ACGTTGCAACGTTTGACCAGTGACCTGA".repeat(3);
        let both = Queries::new(&bases, 1, true);
        let one = Queries::new(&bases, 1, false);
        for i in 0..50 {
            assert_eq!(both.query(2 * i), one.query(i));
            assert_eq!(both.query(2 * i + 1), opposite(&one.query(i)));
        }
    }

    #[test]
    fn a_genome_shorter_than_a_query_gets_random_queries() {
        assert!((0..50).all(|i| code(&Queries::new(b"ACG", 1, false).query(i)).is_some()));
    }
}
