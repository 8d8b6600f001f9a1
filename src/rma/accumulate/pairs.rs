//! Elements of 16 bytes: a value of 8 bytes with an index of 8. Not every processor can update them
//! natively, so all of their updates need the lock of their stripe.
//!
//! Both halves are stored by one instruction (on x86-64), before or after which a process may be
//! killed, never within: whoever takes the lock over finds whole elements. Elsewhere it cannot know,
//! and reports the death instead of going on. A reader without the lock (a get, a View) may see
//! halves of two.

use super::element::{Element, sealed};
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::layout::{Located, Numeric, Op};

/// Whether the death of a process cannot leave halves of two elements.
pub(super) const WHOLE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

type Halves = [u64; 2];

/// # Safety
/// `at` begins two aligned words in live memory.
#[inline(always)]
unsafe fn load(at: *const u64) -> Halves {
    // SAFETY: the caller's.
    [0, 1].map(|i| unsafe { AtomicU64::from_ptr(at.add(i).cast_mut()) }.load(Relaxed))
}

/// # Safety
/// As for [`load`]; nobody else stores to them.
#[inline(always)]
unsafe fn store(at: *mut u64, halves: Halves) {
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
        unsafe { AtomicU64::from_ptr(at.add(i)) }.store(half, Relaxed);
    }
}

macro_rules! pairs {
    ($($v:ty: $to:expr, $from:expr;)+) => { $(
        impl sealed::Sealed for Located<$v, i64> {}
        impl Element for Located<$v, i64> {
            const NATIVE: bool = false;
            #[inline(always)]
            unsafe fn fetch_op(at: *mut Self, op: Op, value: Self) -> Self {
                // SAFETY: the caller's.
                unsafe {
                    let old = Self::load(at);
                    Self::store(at, Self::combine(op, old, value));
                    old
                }
            }
            #[inline(always)]
            unsafe fn compare_swap(at: *mut Self, expected: Self, new: Self) -> Self {
                let halves = |v: Self| -> Halves { [$to(v.value), v.index.cast_unsigned()] };
                // SAFETY: the caller's.
                unsafe {
                    let old = Self::load(at);
                    if halves(old) == halves(expected) {
                        Self::store(at, new);
                    }
                    old
                }
            }
            #[inline(always)]
            unsafe fn load(at: *const Self) -> Self {
                // SAFETY: the caller's.
                let [value, index] = unsafe { load(at.cast()) };
                Located { value: $from(value), index: index.cast_signed() }
            }
            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self) {
                let halves = [$to(value.value), value.index.cast_unsigned()];
                // SAFETY: the caller's.
                unsafe { store(at.cast(), halves) };
            }
        }
    )+ };
}
pairs! {
    f64: f64::to_bits, f64::from_bits;
    i64: i64::cast_unsigned, u64::cast_signed;
    u64: |v| v, |v| v;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::accumulate::element::plain;
    use crate::rma::accumulate::element::tests::agrees;

    fn at<V>(value: V, index: i64) -> Located<V, i64> {
        Located { value, index }
    }

    #[test]
    fn updates_do_what_the_formula_says() {
        agrees(&[at(0.5f64, 1), at(-1.5, 2), at(0.5, 0), at(9.0, -3)], plain::<Located<f64, i64>>);
        agrees(&[at(5u64, 1), at(7, -2), at(5, 0)], plain::<Located<u64, i64>>);
        agrees(&[at(-5i64, 1), at(7, 2), at(-5, 0)], plain::<Located<i64, i64>>);
    }

    #[test]
    fn swaps_need_both_halves_to_agree() {
        let mut cell = at(1u64, 2);
        // SAFETY: aligned and private.
        let mut swap = |expected, new| unsafe { Located::compare_swap(&mut cell, expected, new) };
        assert_eq!(swap(at(1, 3), at(7, 7)), at(1, 2));
        assert_eq!(swap(at(1, 2), at(3, 4)), at(1, 2));
        assert_eq!(swap(at(0, 0), at(7, 7)), at(3, 4));
        // SAFETY: as above.
        assert_eq!(unsafe { Located::fetch_op(&mut cell, Op::MaxLoc, at(9, 1)) }, at(3, 4));
        assert_eq!(cell, at(9, 1));
    }
}
