//! Long copies in by non-temporal stores, which pass the caches by, of whole lines.
//!
//! A plain store needs its line in this core's cache. One that passes by needs none, nor waits for it: the processor gathers
//! a line's stores, and the line goes to memory as a whole, from where whoever reads it next has to get it. When
//! that is worth it, the caller knows. Such stores are ordered by a fence only, which is part of a copy.

/// Whether this processor has such stores, and this is no interpreter.
pub(super) const EXISTS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Bytes that are on their way at a time: two lines.
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
const STEP: usize = 128;
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
const LINE: usize = 64;

/// As many of `len` bytes as whole lines of the destination have, from the first such line on: where these begin, and
/// where they end. What is before and behind is the caller's. All of it is visible before later stores of this thread.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> (usize, usize) {
    let begin = to.addr().wrapping_neg() % LINE;
    let steps = len.saturating_sub(begin) / STEP;
    if steps == 0 {
        return (0, 0);
    }
    // SAFETY: `steps` is not 0, so `begin < len`, and what is read and written ends at `begin + steps * STEP <= len`: all
    // inside of both ranges. Behind `begin` the destination is a line's start, as the stores demand. Every processor of this
    // architecture has the instructions. A block without `nomem` is taken to read and write any memory, so the compiler moves no
    // access to these bytes across it; nor does the processor, whose non-temporal stores are unordered but for the fence
    // that ends the block.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu xmm0, [{from}]",
            "movdqu xmm1, [{from} + 16]",
            "movdqu xmm2, [{from} + 32]",
            "movdqu xmm3, [{from} + 48]",
            "movdqu xmm4, [{from} + 64]",
            "movdqu xmm5, [{from} + 80]",
            "movdqu xmm6, [{from} + 96]",
            "movdqu xmm7, [{from} + 112]",
            "movntdq [{to}], xmm0",
            "movntdq [{to} + 16], xmm1",
            "movntdq [{to} + 32], xmm2",
            "movntdq [{to} + 48], xmm3",
            "movntdq [{to} + 64], xmm4",
            "movntdq [{to} + 80], xmm5",
            "movntdq [{to} + 96], xmm6",
            "movntdq [{to} + 112], xmm7",
            "add {from}, 128",
            "add {to}, 128",
            "dec {steps}",
            "jnz 2b",
            "sfence",
            from = inout(reg) from.add(begin) => _,
            to = inout(reg) to.add(begin) => _,
            steps = inout(reg) steps => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            options(nostack),
        );
    }
    (begin, begin + steps * STEP)
}

/// Nothing is copied.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) unsafe fn copy(_: *mut u8, _: *const u8, _: usize) -> (usize, usize) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

        /// What it says it has copied it has, exactly, at every alignment; and that is all but less than a line before it and
        /// a step behind it.
        #[test]
        fn it_copies_what_it_says(to in 0usize..200, from in 0usize..200, len in 0usize..5000) {
            let source: Vec<u8> = (0..from + len).map(|i| (i * 7 + (i >> 8)) as u8 | 1).collect();
            let mut there = vec![0u8; to + len + 300];
            // SAFETY: both vectors are long enough.
            let (begin, end) =
                unsafe { copy(there.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
            prop_assert!(begin <= end && end <= len);
            prop_assert!(there[to + begin..to + end] == source[from + begin..from + end]);
            prop_assert!(there[..to + begin].iter().chain(&there[to + end..]).all(|&byte| byte == 0));
            prop_assert!(!EXISTS || len < LINE + STEP || begin < LINE && len - end < STEP);
        }
    }
}
