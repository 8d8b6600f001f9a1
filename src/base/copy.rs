//! Copies in and out of memory that others may write at the same time.
//!
//! The compiler must not see such a copy as an ordinary one: it may assume that the bytes do not
//! change under it. Words are moved by relaxed atomics; longer runs go through a `memcpy` that is
//! called by a pointer the optimiser knows nothing about, as foreign code.

use super::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::hint::black_box;

type Memcpy =
    unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

static MEMCPY: Memcpy = libc::memcpy;

/// Copies `len` bytes of private memory into shared memory.
///
/// A naturally aligned run of 1, 2, 4 or 8 bytes is one store that cannot tear; longer runs may.
///
/// # Safety
/// `from..from+len` is readable private memory; `to..to+len` lies in a live mapping of shared
/// memory; the two do not overlap.
#[inline]
pub unsafe fn copy_in(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's; the atomics are aligned by the match guards.
    unsafe {
        match len {
            8 if to.addr().is_multiple_of(8) => {
                AtomicU64::from_ptr(to.cast())
                    .store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed);
            }
            4 if to.addr().is_multiple_of(4) => {
                AtomicU32::from_ptr(to.cast())
                    .store(from.cast::<u32>().read_unaligned(), Ordering::Relaxed);
            }
            2 if to.addr().is_multiple_of(2) => {
                AtomicU16::from_ptr(to.cast())
                    .store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed);
            }
            1 => AtomicU8::from_ptr(to).store(*from, Ordering::Relaxed),
            _ => opaque_copy(to, from, len),
        }
    }
}

/// Copies `len` bytes of shared memory into private memory. Tearing as for [`copy_in`].
///
/// # Safety
/// As for [`copy_in`], with the roles of `to` and `from` exchanged.
#[inline]
pub unsafe fn copy_out(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's; the atomics are aligned by the match guards.
    unsafe {
        match len {
            8 if from.addr().is_multiple_of(8) => {
                let value = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                to.cast::<u64>().write_unaligned(value);
            }
            4 if from.addr().is_multiple_of(4) => {
                let value = AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                to.cast::<u32>().write_unaligned(value);
            }
            2 if from.addr().is_multiple_of(2) => {
                let value = AtomicU16::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                to.cast::<u16>().write_unaligned(value);
            }
            1 => *to = AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed),
            _ => opaque_copy(to, from, len),
        }
    }
}

/// A copy of which the optimiser can assume nothing.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
#[inline(never)]
pub unsafe fn opaque_copy(to: *mut u8, from: *const u8, len: usize) {
    let memcpy = black_box(MEMCPY);
    // SAFETY: the caller's.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}

/// Has the processor fetch the line at `at` for this core to write, if it is not there. To be used
/// ahead of a read-modify-write, which waits for all that comes before it: while it waits for its own
/// line, those of the next ones are on their way.
#[inline(always)]
pub fn prefetch_to_write<T>(at: *mut T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which touches nothing and cannot fault; processors without it ignore it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) at.addr(),
            options(nostack, nomem, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_copies_exactly_its_bytes() {
        let source: Vec<u8> = (0..200).map(|i| i as u8 ^ 0x5a).collect();
        for len in 0..130 {
            for shift in 0..9 {
                let mut there = vec![0u8; 160];
                let mut back = vec![0u8; 160];
                // SAFETY: both vectors are longer than shift + len, and private.
                unsafe {
                    copy_in(there.as_mut_ptr().add(shift), source.as_ptr().add(1), len);
                    copy_out(back.as_mut_ptr().add(3), there.as_ptr().add(shift), len);
                }
                assert_eq!(&back[3..3 + len], &source[1..1 + len]);
                assert!(there[shift + len..].iter().all(|&b| b == 0));
                assert!(back[3 + len..].iter().all(|&b| b == 0));
            }
        }
    }
}
