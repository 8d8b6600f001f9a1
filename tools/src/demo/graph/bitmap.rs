//! A set of vertices, one bit each.

/// A private bitmap. A search's working set: at a million vertices it is 128 KiB, so that asking
/// "seen this one before?" stays in the cache where the parent array would not.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// An empty set that can hold `0..len`.
    pub fn new(len: usize) -> Bitmap {
        Bitmap { words: vec![0; len.div_ceil(64)] }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds an element; true if it is new.
    #[inline]
    pub fn insert(&mut self, element: u32) -> bool {
        let word = &mut self.words[(element / 64) as usize];
        let bit = 1u64 << (element % 64);
        // Most are old: not writing them back keeps runs of questions independent.
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        true
    }

    /// Whether the element is in the set.
    pub fn contains(&self, element: u32) -> bool {
        self.words[(element / 64) as usize] >> (element % 64) & 1 == 1
    }

    /// The words, for combining the sets of several ranks.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserting_tells_what_is_new() {
        let mut set = Bitmap::new(130);
        for element in [0, 63, 64, 129] {
            assert!(!set.contains(element));
            assert!(set.insert(element));
            assert!(!set.insert(element));
            assert!(set.contains(element));
        }
        assert!(!set.contains(1));
        set.clear();
        assert!(!set.contains(129));
    }
}
