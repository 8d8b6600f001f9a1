//! Buffers that begin with a page, as those of `benches/peers` do (`memory`): whoever copies page by page has
//! one less to find, and copies of several contestants lie at the same distances.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// How many of `size` bytes make a window, as in `benches/peers` (`messages.c`, `signals.h`).
pub fn buffers(size: usize) -> usize {
    if size < 256 << 10 { 64 } else { 8 }
}

/// Elements from the beginning of a page on, ones. Found by an address and a length, as a C program's, since
/// what a loop looks up for each operation counts as part of it.
pub struct Pages<T> {
    begin: NonNull<T>,
    len: usize,
    /// Where they lie.
    _all: Vec<T>,
}

impl<T: Copy + From<u8>> Pages<T> {
    /// So many.
    pub fn new(len: usize) -> Pages<T> {
        const PAGE: usize = 4096;
        let room = PAGE / size_of::<T>();
        let mut all = vec![T::from(1); len + room];
        let begin = all.as_ptr().align_offset(PAGE).min(room);
        Pages { begin: NonNull::from(&mut all[begin..]).cast(), len, _all: all }
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements of the vector begin there (`new`); they are reached by this value only.
        unsafe { NonNull::slice_from_raw_parts(self.begin, self.len).as_ref() }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { NonNull::slice_from_raw_parts(self.begin, self.len).as_mut() }
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
