//! Raw shared memory for the limits: a memory file of the benchmark's own, so that they depend
//! on nothing of the library.

use hither::{Error, Result};
use memmap2::MmapRaw;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, OFlags};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes in a block. Sparse: only what is touched takes memory.
const BYTES: usize = 1 << 30;
/// Distance that keeps two words from sharing a cache line or a pair of prefetched lines.
pub const APART: usize = 128;

/// A mapping of the file, handed out front to back. Every rank takes the same areas in the same
/// order, so equal positions mean equal bytes. Nothing is given back: areas are always fresh
/// zeros.
pub struct Block {
    map: Arc<MmapRaw>,
    next: Cell<usize>,
    end: usize,
}

impl Block {
    /// Creates the memory file.
    pub fn create() -> Result<OwnedFd> {
        let fd = rustix::fs::memfd_create("hither-bench", MemfdFlags::CLOEXEC)
            .map_err(|e| Error::os("memfd_create for the limits", e))?;
        rustix::fs::ftruncate(&fd, BYTES as u64)
            .map_err(|e| Error::os("ftruncate for the limits", e))?;
        Ok(fd)
    }

    /// Opens the memory file that process `pid` holds under the number `fd`.
    pub fn open(pid: u32, fd: i32) -> Result<OwnedFd> {
        let path = format!("/proc/{pid}/fd/{fd}");
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, 0.into())
            .map_err(|e| Error::os("opening rank 0's memory file for the limits", e))
    }

    /// Maps the file.
    pub fn map(fd: &OwnedFd) -> Result<Block> {
        let map = memmap2::MmapOptions::new()
            .len(BYTES)
            .map_raw(fd.as_raw_fd())
            .map_err(|e| Error::os("mapping memory for the limits", e))?;
        Ok(Block { map: Arc::new(map), next: Cell::new(0), end: BYTES })
    }

    /// One of `parts` blocks of `bytes` each that are taken from this one.
    pub fn part(&self, at: usize, parts: usize, bytes: usize) -> Result<Block> {
        let bytes = bytes.next_multiple_of(4096);
        let end = self.next.get() + parts * bytes;
        self.take(parts * bytes)?;
        let next = end - (parts - at) * bytes;
        Ok(Block { map: self.map.clone(), next: Cell::new(next), end: next + bytes })
    }

    /// The next `bytes` of the block, page-aligned.
    pub fn take(&self, bytes: usize) -> Result<Area> {
        let start = self.next.get();
        let end = start.saturating_add(bytes.next_multiple_of(4096));
        if end > self.end {
            return Err(Error::Exhausted {
                what: "memory for the limits",
                limit: self.end as u64,
                advice: "run fewer benchmarks at a time",
            });
        }
        self.next.set(end);
        // SAFETY: start < end <= self.end, which is at most the length of the mapping.
        let base = unsafe { NonNull::new_unchecked(self.map.as_mut_ptr().add(start)) };
        Ok(Area { base, bytes, _map: self.map.clone() })
    }
}

/// A part of a block.
pub struct Area {
    base: NonNull<u8>,
    bytes: usize,
    _map: Arc<MmapRaw>,
}

// SAFETY: an address range of shared memory that the Arc keeps mapped. Access is through atomics
// or through raw pointers by code that states its protocol.
unsafe impl Send for Area {}

impl Area {
    /// The aligned word at byte `at`.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "word {at} of {}", self.bytes);
        // SAFETY: in bounds and aligned by the assertion, mapped for as long as self lives, and
        // an atomic is valid for any bits.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Puts the area on huge pages where the system can, as the library does with its windows.
    pub fn collapse(&self) {
        // SAFETY: the range lies in a mapping that self keeps; collapsing changes no byte of it.
        // Where it fails, the pages stay as they are.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_COLLAPSE) };
    }

    /// Address of the `len` bytes at `at`.
    pub fn bytes(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at + len <= self.bytes, "bytes {at}+{len} of {}", self.bytes);
        // SAFETY: in bounds by the assertion.
        unsafe { self.base.as_ptr().add(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_see_one_memory_at_the_same_places() {
        let fd = Block::create().unwrap();
        let again = Block::open(std::process::id(), fd.as_raw_fd()).unwrap();
        let (a, b) = (Block::map(&fd).unwrap(), Block::map(&again).unwrap());
        for _ in 0..2 {
            let (x, y) = (a.take(100).unwrap(), b.take(100).unwrap());
            assert_eq!(x.word(8).load(Ordering::Relaxed), 0, "fresh");
            x.word(8).store(7, Ordering::Relaxed);
            assert_eq!(y.word(8).load(Ordering::Relaxed), 7);
        }
        assert!(a.take(BYTES).is_err());
        // Parts are apart from each other and from what comes behind them.
        let parts = [a.part(0, 2, 5000).unwrap(), b.part(0, 2, 5000).unwrap()];
        let other = a.part(1, 2, 5000).unwrap();
        let after = a.take(8).unwrap();
        for (i, block) in parts.iter().chain([&other]).enumerate() {
            let area = block.take(8192).unwrap();
            assert_eq!(area.word(0).swap(9, Ordering::Relaxed), if i == 1 { 9 } else { 0 });
            assert!(block.take(1).is_err(), "no more than its own");
        }
        assert_eq!(after.word(0).load(Ordering::Relaxed), 0);
    }
}
