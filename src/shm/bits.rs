//! A set of members of a group in shared memory: one bit per member.
//!
//! A bit says who: whoever waits for a set to become empty can ask whether the members that keep
//! it from that still live, which a count could not tell.

use crate::base::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Words that a set of `size` members takes.
pub(crate) const fn words(size: u32) -> usize {
    (size as usize).div_ceil(64)
}

/// A set in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'b> {
    first: NonNull<AtomicU64>,
    words: usize,
    _block: PhantomData<&'b AtomicU64>,
}

impl<'b> Bits<'b> {
    /// # Safety
    /// `first` begins `words` words that stay mapped for `'b`; `words` is at least 1.
    pub unsafe fn new(first: NonNull<AtomicU64>, words: usize) -> Bits<'b> {
        Bits { first, words, _block: PhantomData }
    }

    /// A word; words beyond the set fold onto the first.
    #[inline]
    pub fn word(&self, index: usize) -> &'b AtomicU64 {
        let index = if index < self.words { index } else { 0 };
        // SAFETY: index < words, by the caller of `new`.
        unsafe { self.first.add(index).as_ref() }
    }

    /// Puts `rank` into the set; whether it was not there before. One read-modify-write.
    #[inline]
    pub fn insert(&self, rank: u32) -> bool {
        let bit = 1u64 << (rank % 64);
        self.word(rank as usize / 64).fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Takes `rank` out of the set; whether it was there. One read-modify-write.
    #[inline]
    pub fn remove(&self, rank: u32) -> bool {
        let bit = 1u64 << (rank % 64);
        self.word(rank as usize / 64).fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether `rank` is in the set.
    #[inline]
    pub fn contains(&self, rank: u32) -> bool {
        self.word(rank as usize / 64).load(Ordering::Acquire) & 1u64 << (rank % 64) != 0
    }

    /// Whether nobody is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        (0..self.words).all(|w| self.word(w).load(Ordering::SeqCst) == 0)
    }

    /// The members, each word read once.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'b> {
        let this = *self;
        (0..this.words).flat_map(move |w| {
            let mut left = this.word(w).load(Ordering::Acquire);
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some(w as u32 * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go() {
        let memory: [AtomicU64; 3] = Default::default();
        // SAFETY: three words that outlive the set.
        let set = unsafe { Bits::new(NonNull::from(&memory[0]), words(130)) };
        assert!(set.is_empty());
        for rank in [0, 63, 64, 129] {
            assert!(set.insert(rank));
            assert!(!set.insert(rank));
            assert!(set.contains(rank));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(set.remove(64));
        assert!(!set.remove(64));
        assert!(!set.contains(64) && !set.is_empty());
    }
}
