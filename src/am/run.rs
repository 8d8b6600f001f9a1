//! How a typed handler is called: by what it is called with, or by words of which that is made where it is wanted.
//!
//! ```text
//!   messages as nearly all are   run_plain(words) --> Call, built in the handler's own frame, or not at all:
//!                                                     what a handler in line does not look at is not stored
//!   all others                   run(Call)
//! ```
//! A [`Call`] has fifteen words. Whoever hands one on by value to a function that is not in line copies it, 16 bytes at a
//! time, and so waits until the words that it was built of have left the store buffer: 10 ns of 23 were that.

use super::call::{Call, Form};
use crate::base::Rank;
use crate::layout::Datum;
use crate::rma::{View, Window};

/// A handler that was registered.
pub(super) trait Run<T, I, O>: Send + Sync {
    /// Runs it.
    fn run(&self, call: Call<'_, T, I, O>);

    /// Runs it for one segment on `len` elements from `first` on, which lie at displacement `start` of `target`'s part.
    /// `form`: how the buffers lie, if it is to be told.
    ///
    /// # Safety
    /// They are elements of that part of `window`, which stays mapped until this returns.
    #[allow(clippy::too_many_arguments)]
    unsafe fn run_plain<'c>(
        &self,
        input: &'c [I],
        output: &'c mut [O],
        first: *mut T,
        len: usize,
        start: usize,
        target: Rank,
        window: &'c Window<T>,
        form: Option<&'c Form<'c>>,
    );
}

impl<T: Datum, I, O, F: Fn(Call<'_, T, I, O>) + Send + Sync> Run<T, I, O> for F {
    #[inline(always)]
    fn run(&self, call: Call<'_, T, I, O>) {
        self(call);
    }

    unsafe fn run_plain<'c>(
        &self,
        input: &'c [I],
        output: &'c mut [O],
        first: *mut T,
        len: usize,
        start: usize,
        target: Rank,
        window: &'c Window<T>,
        form: Option<&'c Form<'c>>,
    ) {
        // SAFETY: the caller's.
        let persistent = unsafe { View::new(first, len, target, window.domain()) };
        let (segments, segment_offset) = (1, 0);
        self(Call { input, output, persistent, start, target, segments, segment_offset, form });
    }
}
