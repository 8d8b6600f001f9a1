//! Words of 20 bases as numbers of 40 bits, two bits a base.

/// Bases of a query.
pub const LENGTH: usize = 20;

/// A query as text.
pub type Word = [u8; LENGTH];

const MASK: u64 = (1 << (2 * LENGTH)) - 1;

/// What a letter that is no known base stands for.
const UNKNOWN: u8 = 4;
/// Digit of each letter. A table, for bases come in no order that a processor could guess.
const DIGITS: [u8; 256] = {
    let mut digits = [UNKNOWN; 256];
    let mut digit = 0;
    while digit < 4 {
        digits[b"ACGT"[digit] as usize] = digit as u8;
        digit += 1;
    }
    digits
};

/// The number of a word; none if it has an unknown base.
pub fn code(word: &Word) -> Option<u64> {
    let (mut code, mut all) = (0, 0);
    for &base in word {
        let digit = DIGITS[usize::from(base)];
        all |= digit;
        code = code << 2 | u64::from(digit & 3);
    }
    (all < UNKNOWN).then_some(code)
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
        let digit = DIGITS[usize::from(base)];
        code = (code << 2 | u64::from(digit & 3)) & MASK;
        known = if digit < UNKNOWN { known + 1 } else { 0 };
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
