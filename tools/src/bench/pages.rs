//! Buffers that begin with a page, as those of `benches/peers` do (`memory`): whoever copies page by page has
//! one less to find, and copies of several contestants lie at the same distances.

use std::ops::{Deref, DerefMut};

/// How many of `size` bytes make a window, as in `benches/peers` (`messages.c`, `signals.h`).
pub fn buffers(size: usize) -> usize {
    if size < 256 << 10 { 64 } else { 8 }
}

/// Elements from the beginning of a page on, ones.
pub struct Pages<T> {
    all: Vec<T>,
    begin: usize,
    len: usize,
}

impl<T: Copy + From<u8>> Pages<T> {
    /// So many.
    pub fn new(len: usize) -> Pages<T> {
        const PAGE: usize = 4096;
        let room = PAGE / size_of::<T>();
        let all = vec![T::from(1); len + room];
        let begin = all.as_ptr().align_offset(PAGE).min(room);
        Pages { all, begin, len }
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.begin..][..self.len]
    }
}

impl<T> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[self.begin..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_with_a_page() {
        for len in [0, 1, 511, 5000] {
            let mut pages = Pages::<u64>::new(len);
            assert_eq!((pages.len(), pages.as_ptr() as usize % 4096), (len, 0));
            pages.fill(7);
            assert!(pages.iter().all(|&word| word == 7));
        }
    }
}
