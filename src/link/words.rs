//! This process's `sending` words: one per lane that it writes to.

use crate::base::sync::{AtomicU64, Ordering};

/// Which words are in use, one bit each.
#[derive(Default)]
pub(super) struct Words {
    used: AtomicU64,
}

impl Words {
    /// A word that nobody uses, or `None`: then no more connections can become hot.
    pub fn take(&self) -> Option<usize> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let bit = (!used).trailing_zeros();
            if bit == 64 {
                return None;
            }
            let with = used | 1 << bit;
            match self.used.compare_exchange(used, with, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(spread(bit as usize)),
                Err(now) => used = now,
            }
        }
    }

    /// Gives a word back. Its user has cleared it.
    pub fn give_back(&self, word: usize) {
        self.used.fetch_and(!(1 << spread(word)), Ordering::AcqRel);
    }
}

/// Permutes 0..64 so that the first few land on different cache lines (of 16 words, and of 8
/// rows): exchanges the two halves of the index's six bits, so it is its own inverse.
fn spread(index: usize) -> usize {
    (index & 7) << 3 | index >> 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_can_be_had_once() {
        let words = Words::default();
        let mut taken: Vec<usize> = std::iter::from_fn(|| words.take()).collect();
        assert_eq!(taken.len(), 64);
        assert_ne!(taken[0] / 16, taken[2] / 16);
        words.give_back(taken[5]);
        assert_eq!(words.take(), Some(taken[5]));
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..64));
    }
}
