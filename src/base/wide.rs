//! Long copies out of memory that another core has just written, by vector instructions.
//!
//! `memcpy` is `rep movsb` from some KiB on, which on AMD's processors (family 25 model 17) moves such bytes more slowly,
//! and less evenly, than loads and stores of 64 bytes: 128 KiB at a time out of shared buffers at 13 instead of 18 GB/s, on
//! cores that share a cache. Into memory that another core has read last it is on a par, so copies in stay as they are.
//! Found where it was measured only: on other processors nothing is copied this way.

use super::sync::{AtomicU8, Ordering};

/// Bytes from which on it is worth the look which processor this is.
pub(super) const LEAST: usize = 16 << 10;

/// What is known of this processor: nothing yet, or whether it is one of these.
static FASTER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether such copies are faster this way: one load, but for the first time.
#[inline]
pub(super) fn is_faster() -> bool {
    match FASTER.load(Ordering::Relaxed) {
        UNKNOWN => find_out(),
        known => known == YES,
    }
}

#[cold]
fn find_out() -> bool {
    let faster = is_here() && super::prefetch::is_vendor(b"AuthenticAMD");
    FASTER.store(if faster { YES } else { NO }, Ordering::Relaxed);
    faster
}

/// Whether this processor has the instructions.
fn is_here() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Bytes of a vector, and of those that are on their way at a time.
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
const VECTOR: usize = 64;
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
const STEP: usize = 4 * VECTOR;

/// As many of `len` bytes, from the first one on, as vectors have: how many. The rest is the caller's.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap; others may write to the source at the same time. The
/// processor has the instructions ([`is_faster`]).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    if len < VECTOR + STEP {
        return 0;
    }
    // The first vector may overlap the second: all others begin with a line of the destination.
    let begin = VECTOR - to.addr() % VECTOR;
    let steps = (len - begin) / STEP;
    // SAFETY: `begin` is 1 to 64, so at least STEP bytes follow it and `steps` is not 0; what is read and written ends at
    // `begin + steps * STEP <= len`, and the first vector within 64 bytes; behind `begin` the destination is aligned. The
    // processor has the instructions, by the caller's promise. That others write the source is nothing to the compiler,
    // which does not see the loads.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 zmm0, [{from}]",
            "vmovdqu64 [{to}], zmm0",
            "add {from}, {begin}",
            "add {to}, {begin}",
            "2:",
            "vmovdqu64 zmm0, [{from}]",
            "vmovdqu64 zmm1, [{from} + 64]",
            "vmovdqu64 zmm2, [{from} + 128]",
            "vmovdqu64 zmm3, [{from} + 192]",
            "vmovdqa64 [{to}], zmm0",
            "vmovdqa64 [{to} + 64], zmm1",
            "vmovdqa64 [{to} + 128], zmm2",
            "vmovdqa64 [{to} + 192], zmm3",
            "add {from}, 256",
            "add {to}, 256",
            "dec {steps}",
            "jnz 2b",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            begin = in(reg) begin,
            steps = inout(reg) steps => _,
            // All of these registers.
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack),
        );
    }
    begin + steps * STEP
}

/// Nothing is copied.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) unsafe fn copy(_: *mut u8, _: *const u8, _: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

        /// What it says it has copied it has, exactly, at every alignment; and that is all but the end.
        #[test]
        fn it_copies_what_it_says(to in 0usize..200, from in 0usize..200, len in 0usize..5000) {
            let source: Vec<u8> = (0..from + len).map(|i| (i * 7 + (i >> 8)) as u8).collect();
            let mut there = vec![0u8; to + len + 300];
            let copied = match is_here() {
                // SAFETY: both vectors are long enough, and the processor has the instructions.
                true => unsafe { copy(there.as_mut_ptr().add(to), source.as_ptr().add(from), len) },
                false => 0,
            };
            prop_assert!(copied <= len && (!is_here() || len - copied < VECTOR + STEP));
            prop_assert!(there[to..to + copied] == source[from..from + copied]);
            prop_assert!(there[..to].iter().chain(&there[to + copied..]).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn what_was_found_out_of_the_processor_stays() {
        assert_eq!(find_out(), is_faster());
        assert_ne!(FASTER.load(Ordering::Relaxed), UNKNOWN);
        assert!(is_here() || !is_faster());
    }
}
