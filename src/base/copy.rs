//! Copies in and out of memory that others may write at the same time.
//!
//! The compiler must not see such a copy as an ordinary one: it may assume that the bytes do not
//! change under it. Words are moved by relaxed atomics; longer runs go through a `memcpy` that is
//! called by a pointer the optimiser knows nothing about, as foreign code, or through instructions that it does not see.
//!
//! # Distances
//!
//! `memcpy` and the kernel's copies are one instruction, `rep movsb`, from some KiB on. Where the destination lies
//! 1 to 31 bytes behind the source, modulo 4096, it takes up to sixteen times as long (AMD family 25: 64 KiB 23 µs
//! instead of 1.4; with the kernel 28 instead of 7): apparently each load is taken for one of what was just stored. Memory of
//! an allocator begins 16 bytes behind a page's start, other memory at it, so this is no rare case. Such copies go
//! by a place in between that is at no such distance of either ([`Between`]). On other processors (Intel family 6
//! model 207) no distance is slow, and the way round takes three times as long (4 KiB 150 ns instead of 45): so
//! the first such copy of a process finds out ([`distances_matter`]).

use super::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use super::{nontemporal, wide};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

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

/// Whether [`copy_nontemporal`] is anything else than [`copy_in`] here.
pub const HAS_NONTEMPORAL: bool = nontemporal::EXISTS;

/// [`copy_in`] by non-temporal stores, where there are such (see [`nontemporal`]), and a fence: what is copied is visible
/// before later stores.
///
/// # Safety
/// As for [`copy_in`].
pub unsafe fn copy_nontemporal(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's; what lies before `begin` and behind `end` is left to be copied.
    unsafe {
        let (begin, end) = nontemporal::copy(to, from, len);
        if begin > 0 {
            opaque_copy(to, from, begin);
        }
        if len > end {
            opaque_copy(to.add(end), from.add(end), len - end);
        }
    }
}

/// Up to how many bytes the kernel maps at a time where memory is read, aligned to so many.
const AROUND: usize = 64 << 10;

/// Has this process's page table filled for shared memory that exists, before it is written: one load for each
/// 64 KiB, whose lines the write takes next. A first write maps one page, a first read all that are there around it
/// (Linux's `fault_around_bytes`), to be written, too: 1 MiB in 0.14 ms instead of 0.6.
///
/// # Safety
/// `at..at+len` lies in a live mapping of shared memory.
pub unsafe fn touch(at: *mut u8, len: usize) {
    let within = at.addr() % AROUND;
    let starts = (AROUND - within..len).step_by(AROUND);
    for from in std::iter::once(0).filter(|_| len > 0).chain(starts) {
        // SAFETY: inside, by the caller's promise.
        black_box(unsafe { AtomicU8::from_ptr(at.add(from)) }.load(Ordering::Relaxed));
    }
}

/// Copies `len` bytes of shared memory into private memory. Tearing as for [`copy_in`]. Long ones go by vectors where these
/// are faster (see [`wide`]).
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
            _ if len >= wide::LEAST => long_copy_out(to, from, len),
            _ => opaque_copy(to, from, len),
        }
    }
}

/// [`opaque_copy`] of what another core may have written just now.
///
/// # Safety
/// As for that.
#[inline(never)]
unsafe fn long_copy_out(to: *mut u8, from: *const u8, len: usize) {
    let mut done = 0;
    if wide::is_faster() && !is_slow(to.addr(), from.addr()) {
        // SAFETY: the caller's.
        done = unsafe { wide::copy(to, from, len) };
    }
    // SAFETY: the caller's; `done` of the `len` bytes are copied.
    unsafe { opaque_copy(to.add(done), from.add(done), len - done) }
}

/// A copy of which the optimiser can assume nothing.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
#[inline(never)]
pub unsafe fn opaque_copy(to: *mut u8, from: *const u8, len: usize) {
    if len >= LONG && is_slow(to.addr(), from.addr()) {
        // SAFETY: the caller's.
        return unsafe { copy_between(to, from, len) };
    }
    let memcpy = black_box(MEMCPY);
    // SAFETY: the caller's.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}

/// `to.copy_from_slice(from)` for what may be long: at no distance slow.
///
/// # Panics
/// If they differ in length.
#[inline]
pub fn copy_slice(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "slices of one length");
    // SAFETY: both are slices of that length, of which one may be written: they do not overlap.
    unsafe { opaque_copy(to.as_mut_ptr(), from.as_ptr(), from.len()) }
}

/// Bytes from which on a copy may be the instruction that distances matter to.
pub const LONG: usize = 2048;
const PAGE: usize = 4096;
/// From the source of a slow copy to the place in between.
const APART: usize = 64;

/// Whether a long copy between two addresses is slow.
#[inline(always)]
pub fn is_slow(to: usize, from: usize) -> bool {
    is_suspect(to, from) && distances_matter()
}

/// Whether it is where distances matter.
#[inline(always)]
fn is_suspect(to: usize, from: usize) -> bool {
    (to.wrapping_sub(from) % PAGE).wrapping_sub(1) < 31
}

/// What is known of this processor: nothing yet, or whether distances matter.
static MATTER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NEVER: u8 = 1;
const MATTERING: u8 = 2;

/// Whether this processor's copies are slow at some distances: one load, but for the first time.
#[inline]
fn distances_matter() -> bool {
    match MATTER.load(Ordering::Relaxed) {
        UNKNOWN => find_out(),
        known => known == MATTERING,
    }
}

/// Times a page's copy at a suspect distance and at one that is not: some 10 µs. The shortest of several, as
/// others are longer by what interrupted them.
#[cold]
fn find_out() -> bool {
    const COPIES: usize = 4;
    // Written: pages that never were are copied by other ways of the processor.
    let mut room = vec![1u8; 4 * PAGE];
    let start = room.as_mut_ptr();
    let memcpy = black_box(MEMCPY);
    let shortest = |behind: usize| {
        let time = |_| {
            let begun = Instant::now();
            for _ in 0..COPIES {
                // SAFETY: the source is the first page of four, what lies two pages behind it and a little
                // another.
                unsafe { memcpy(start.add(2 * PAGE + behind).cast(), start.cast(), PAGE) };
            }
            begun.elapsed()
        };
        (0..6).map(time).min().unwrap_or(Duration::ZERO)
    };
    // The first finds the caches cold.
    shortest(APART);
    let matter = shortest(16) > 2 * shortest(APART);
    MATTER.store(if matter { MATTERING } else { NEVER }, Ordering::Relaxed);
    matter
}

/// Memory in between two others, for `N - 4096` bytes at a time.
pub struct Between<const N: usize>(MaybeUninit<[u8; N]>);

impl<const N: usize> Between<N> {
    /// Bytes that it has room for.
    pub const ROOM: usize = N - PAGE;

    /// On the stack: nothing is written to it.
    #[inline(always)]
    pub fn new() -> Between<N> {
        Between(MaybeUninit::uninit())
    }

    /// Where to put what is at `from`, so that neither copy is slow.
    pub fn beside(&mut self, from: usize) -> *mut u8 {
        let start: *mut u8 = self.0.as_mut_ptr().cast();
        start.wrapping_add(from.wrapping_add(APART).wrapping_sub(start.addr()) % PAGE)
    }
}

/// A long copy between addresses at a distance at which one is slow: by way of the first-level cache.
///
/// # Safety
/// As for [`opaque_copy`].
#[cold]
#[inline(never)]
unsafe fn copy_between(to: *mut u8, from: *const u8, len: usize) {
    let mut between = Between::<{ 2 * PAGE }>::new();
    let place = between.beside(from.addr());
    let memcpy = black_box(MEMCPY);
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(Between::<{ 2 * PAGE }>::ROOM);
        // SAFETY: the caller's; `done + piece <= len`, and the place has room for a piece.
        unsafe {
            memcpy(place.cast(), from.add(done).cast(), piece);
            memcpy(to.add(done).cast(), place.cast(), piece);
        }
        done += piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

        /// Both ways, at every distance.
        #[test]
        fn long_copies_copy_exactly_their_bytes(
            to in 0usize..200, from in 0usize..4200, len in 0usize..20_000,
        ) {
            let source: Vec<u8> = (0..from + len).map(|i| (i * 7 + (i >> 8)) as u8).collect();
            let mut there = vec![0u8; to + len + 40];
            type Copy = unsafe fn(*mut u8, *const u8, usize);
            for copy in [opaque_copy as Copy, copy_between, long_copy_out, copy_out, copy_nontemporal] {
                there.fill(0);
                // SAFETY: both vectors are long enough.
                unsafe { copy(there.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                prop_assert!(there[to..to + len] == source[from..]);
                prop_assert!(there[..to].iter().chain(&there[to + len..]).all(|&byte| byte == 0));
            }
        }

        /// Nothing changes, and nothing outside is read (which Miri sees).
        #[test]
        fn what_is_touched_stays_as_it_was(from in 0usize..5000, len in 0usize..200_000) {
            // Repeated and compared as a whole, which Miri does quickly.
            let before = [7, 1, 0, 255, 128].repeat((from + len).div_ceil(5));
            let mut all = before[..from + len].to_vec();
            // SAFETY: the vector is long enough.
            unsafe { touch(all.as_mut_ptr().add(from), len) };
            prop_assert!(all == before[..from + len]);
        }

        #[test]
        fn what_is_between_is_at_no_slow_distance(from: usize, distance in 1usize..32) {
            let to = from.wrapping_add(distance);
            prop_assert!(is_suspect(to, from));
            prop_assert!(is_suspect(to.wrapping_add(5 << 12), from));
            type Three = Between<{ 3 * PAGE }>;
            let (mut between, room) = (Three::new(), Three::ROOM);
            let (start, end) = (std::ptr::from_ref(&between).addr(), 3 * PAGE);
            let place = between.beside(from).addr();
            prop_assert!(place >= start && place + room <= start + end);
            prop_assert!(!is_suspect(place, from) && !is_suspect(to, place));
        }
    }

    #[test]
    fn most_distances_are_fast() {
        assert_eq!((0..4096).filter(|&to| is_suspect(to, 8192)).count(), 31);
        let near = |to| is_suspect(to, 8192);
        assert!(!near(8192) && !near(8192 + 32) && !near(8191));
    }

    #[test]
    fn what_was_found_out_of_the_processor_stays() {
        find_out();
        assert_ne!(MATTER.load(Ordering::Relaxed), UNKNOWN);
        assert!(!is_slow(8192, 8192));
    }

    #[test]
    fn every_length_and_alignment_copies_exactly_its_bytes() {
        let source: Vec<u8> = (0..200).map(|i| i as u8 ^ 0x5a).collect();
        // Miri takes a tenth of a second for each.
        let apart = if cfg!(miri) { 3 } else { 1 };
        for len in 0..130 {
            for shift in (0..9).step_by(apart) {
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
