//! Words of 20 bases as numbers of 40 bits, two bits a base.

/// Bases of a query.
pub const LENGTH: usize = 20;

/// A query as text.
pub type Word = [u8; LENGTH];

const MASK: u64 = (1 << (2 * LENGTH)) - 1;

fn digit(base: u8) -> Option<u64> {
    match base {
        b'A' => Some(0),
        b'C' => Some(1),
        b'G' => Some(2),
        b'T' => Some(3),
        _ => None,
    }
}

/// The number of a word; none if it has an unknown base.
pub fn code(word: &Word) -> Option<u64> {
    word.iter().try_fold(0, |code, &base| Some(code << 2 | digit(base)?))
}

/// The word on the opposite strand: complements in reverse order.
pub fn opposite(word: &Word) -> Word {
    std::array::from_fn(|i| match word[LENGTH - 1 - i] {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        unknown => unknown,
    })
}

/// Calls `found(position, code)` for every word of `bases` without unknown bases; `position`
/// counts from the start of `bases`.
pub fn scan(bases: &[u8], mut found: impl FnMut(usize, u64)) {
    let (mut code, mut known) = (0u64, 0usize);
    for (at, &base) in bases.iter().enumerate() {
        match digit(base) {
            Some(digit) => {
                code = (code << 2 | digit) & MASK;
                known += 1;
            }
            None => known = 0,
        }
        if known >= LENGTH {
            found(at + 1 - LENGTH, code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scanning_finds_what_slicing_finds(bases in "[ACGTN]{0,120}") {
            let bases = bases.as_bytes();
            let mut found = Vec::new();
            scan(bases, |position, code| found.push((position, code)));
            let want: Vec<(usize, u64)> = bases
                .windows(LENGTH)
                .enumerate()
                .filter_map(|(i, w)| Some((i, code(w.try_into().ok()?)?)))
                .collect();
            prop_assert_eq!(found, want);
        }

        #[test]
        fn codes_tell_words_apart(a in "[ACGT]{20}", b in "[ACGT]{20}") {
            let word = |s: &str| -> Word { s.as_bytes().try_into().expect("20 bytes") };
            prop_assert_eq!(code(&word(&a)) == code(&word(&b)), a == b);
            prop_assert_eq!(opposite(&opposite(&word(&a))), word(&a));
        }
    }

    #[test]
    fn the_opposite_strand_is_the_reverse_complement() {
        assert_eq!(&opposite(b"AACCCGGGGTTTTTACGTNA"), b"TNACGTAAAAACCCCGGGTT");
        assert_eq!(code(b"AACCCGGGGTTTTTACGTNA"), None);
    }
}
