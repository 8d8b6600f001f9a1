//! Plain updates of many elements: vector instructions where the processor has them.

use super::domain::kinds;
use super::element::{self, Element, Run};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::simd;
use crate::layout::{Kind, Op};

/// Updates every element of a run by loads and stores.
///
/// # Safety
/// As for [`element::plain`].
pub(super) unsafe fn plain<T: Element>(run: Run) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if run.count * size_of::<T>() >= WORTH
        && let Some(vectors) = simd::find(T::KIND, run.op)
    {
        let size = size_of::<T>();
        // To the next multiple of the vectors' alignment, of which the size is a divisor.
        let head = run.at.addr().wrapping_neg() % simd::ALIGN / size;
        let body = (run.count - head) * size / simd::BLOCK * simd::BLOCK;
        let tail = head + body / size;
        let result = run.result.unwrap_or(std::ptr::null_mut());
        // SAFETY: head <= tail <= run.count, since WORTH is more than ALIGN and BLOCK together;
        // the body is aligned, and the rest the caller's.
        unsafe {
            element::plain::<T>(run.slice(size, 0, head));
            let middle = run.slice(size, head, body / size);
            let result = if result.is_null() { result } else { result.add(head * size) };
            vectors(middle.at, middle.from, body, result);
            element::plain::<T>(run.slice(size, tail, run.count - tail));
        }
        return;
    }
    // SAFETY: the caller's.
    unsafe { element::plain::<T>(run) };
}

/// `at[i] = at[i] OP from[i]` for `count` elements; what was there goes to `result`, if given. The caller
/// has checked that `op` applies to `kind`.
///
/// # Safety
/// `at` begins as many aligned elements that nobody else accesses; `from` and `result` are private memory
/// of as many, which need not be aligned.
pub(crate) unsafe fn combine(
    kind: Kind,
    op: Op,
    (at, count): (*mut u8, usize),
    from: *const u8,
    result: Option<*mut u8>,
) {
    // SAFETY: the caller's.
    unsafe { (kinds(kind).plain)(Run { op, at, from, count, result }) }
}

/// From so many bytes on the vectors are used.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WORTH: usize = 256;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const _: () = assert!(WORTH >= simd::ALIGN + simd::BLOCK);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::accumulate::element::tests::agrees_for_all;

    #[test]
    fn many_are_updated_as_single_ones_are() {
        agrees_for_all!(plain);
    }
}
