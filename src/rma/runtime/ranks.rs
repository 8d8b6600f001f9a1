//! A set of ranks, one bit each, that takes no memory before something is put in.

/// A set of the ranks of one team.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    words: Vec<u64>,
    size: u32,
    count: u32,
}

impl Ranks {
    pub fn new(size: u32) -> Ranks {
        Ranks { words: Vec::new(), size, count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, rank: u32) -> bool {
        let word = self.words.get(rank as usize / 64);
        word.is_some_and(|word| word & (1 << (rank % 64)) != 0)
    }

    /// Puts `rank` in; whether it was not there. Ranks outside the team are never in.
    pub fn insert(&mut self, rank: u32) -> bool {
        if rank >= self.size || self.contains(rank) {
            return false;
        }
        if self.words.is_empty() {
            self.words = vec![0; (self.size as usize).div_ceil(64)];
        }
        self.words[rank as usize / 64] |= 1 << (rank % 64);
        self.count += 1;
        true
    }

    /// Takes `rank` out; whether it was there.
    pub fn remove(&mut self, rank: u32) -> bool {
        let was = self.contains(rank);
        if was {
            self.words[rank as usize / 64] &= !(1 << (rank % 64));
            self.count -= 1;
        }
        was
    }

    /// Empties it and gives the memory back.
    pub fn clear(&mut self) {
        *self = Ranks::new(self.size);
    }

    /// The first one in from `from` on.
    pub fn first(&self, from: u32) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some((at * 64) as u32 + word.trailing_zeros())
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first(0), |rank| self.first(rank + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_ranks_is_a_set(
            size in 1u32..300,
            steps in prop::collection::vec((any::<bool>(), 0u32..310), 0..200),
        ) {
            let (mut ranks, mut model) = (Ranks::new(size), BTreeSet::new());
            for (insert, rank) in steps {
                if insert {
                    prop_assert_eq!(ranks.insert(rank), rank < size && model.insert(rank));
                } else {
                    prop_assert_eq!(ranks.remove(rank), model.remove(&rank));
                }
                prop_assert_eq!(ranks.count() as usize, model.len());
                let next = model.range(rank..).next().copied();
                prop_assert_eq!(ranks.first(rank), next);
            }
            prop_assert!(ranks.iter().eq(model.iter().copied()));
        }
    }
}
