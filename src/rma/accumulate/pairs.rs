//! Elements of 16 bytes: a value of 8 bytes with an index of 8. No processor of every machine
//! updates them natively, so they are updated under their stripe's lock only.
//!
//! Both halves are stored by one instruction (on x86-64), before or after which a process may be
//! killed, never within: whoever takes the lock over finds whole elements. Elsewhere it cannot know,
//! and reports the death instead of going on. A reader without the
//! lock (a get, a View) may see halves of two.

use super::element::Run;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::layout::Numeric;

/// Whether the death of a process cannot leave halves of two elements.
pub(super) const WHOLE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

type Halves = [u64; 2];

/// # Safety
/// `at` begins two aligned words in live memory.
#[inline(always)]
unsafe fn load(at: *mut u8) -> Halves {
    let at = at.cast::<u64>();
    // SAFETY: the caller's.
    [0, 1].map(|i| unsafe { AtomicU64::from_ptr(at.add(i)) }.load(Relaxed))
}

/// # Safety
/// As for [`load`]; nobody else stores to them.
#[inline(always)]
unsafe fn store(at: *mut u8, halves: Halves) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's; SSE2 is part of x86-64, and movups asks for no alignment.
    unsafe {
        let halves: std::arch::x86_64::__m128i = std::mem::transmute(halves);
        std::arch::asm!(
            "movups xmmword ptr [{at}], {halves}",
            at = in(reg) at,
            halves = in(xmm_reg) halves,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for (i, half) in halves.into_iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { AtomicU64::from_ptr(at.cast::<u64>().add(i)) }.store(half, Relaxed);
    }
}

#[inline(always)]
fn as_element<T: Numeric>(halves: Halves) -> T {
    const { assert!(size_of::<T>() == size_of::<Halves>()) };
    // SAFETY: the sizes are equal, and every bit pattern is a valid T.
    unsafe { std::mem::transmute_copy(&halves) }
}

/// Updates every element of a run.
///
/// # Safety
/// `at` begins `count` elements of 16 bytes at a multiple of 8, `from` and `result` are private
/// memory of as many. Nobody else updates the elements meanwhile.
pub(super) unsafe fn plain<T: Numeric>(run: Run) {
    let size = size_of::<T>();
    for i in 0..run.count {
        // SAFETY: the caller's, for each of `count` elements.
        unsafe {
            let at = run.at.add(i * size);
            let old = load(at);
            let value = run.from.add(i * size).cast::<T>().read_unaligned();
            let new = T::combine(run.op, as_element(old), value);
            let new: Halves = std::mem::transmute_copy(&new);
            // Most of MinLoc and MaxLoc changes nothing.
            if new != old {
                store(at, new);
            }
            if let Some(result) = run.result {
                result.add(i * size).cast::<Halves>().write_unaligned(old);
            }
        }
    }
}

/// Replaces an element by `new` if its bits are `expected`'s; what was there goes to `result`.
///
/// # Safety
/// As for [`plain`], for one element.
pub(super) unsafe fn compare_swap(
    at: *mut u8,
    expected: *const u8,
    new: *const u8,
    result: *mut u8,
) {
    // SAFETY: the caller's.
    unsafe {
        let old = load(at);
        if old == expected.cast::<Halves>().read_unaligned() {
            store(at, new.cast::<Halves>().read_unaligned());
        }
        result.cast::<Halves>().write_unaligned(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Located;
    use crate::rma::accumulate::element::tests::agrees;

    #[test]
    fn updates_do_what_the_formula_says() {
        fn at<V>(value: V, index: i64) -> Located<V, i64> {
            Located { value, index }
        }
        agrees(&[at(0.5f64, 1), at(-1.5, 2), at(0.5, 0), at(9.0, -3)], plain::<Located<f64, i64>>);
        agrees(&[at(5u64, 1), at(7, -2), at(5, 0)], plain::<Located<u64, i64>>);
        agrees(&[at(-5i64, 1), at(7, 2), at(-5, 0)], plain::<Located<i64, i64>>);
    }

    #[test]
    fn swaps_need_both_halves_to_agree() {
        let mut cell = [1u64, 2];
        let mut swap = |expected: Halves, new: Halves| {
            let mut old = [0u64; 2];
            let (expected, new) = (expected.as_ptr().cast(), new.as_ptr().cast());
            // SAFETY: private memory of 16 bytes each.
            unsafe {
                compare_swap(cell.as_mut_ptr().cast(), expected, new, old.as_mut_ptr().cast());
            }
            old
        };
        assert_eq!(swap([1, 3], [7, 7]), [1, 2]);
        assert_eq!(swap([1, 2], [3, 4]), [1, 2]);
        assert_eq!(swap([0, 0], [7, 7]), [3, 4]);
    }
}
