//! Memory files and mappings: the only place in the library that maps memory.
//!
//! A node's memory is one sparse memfd. Every process maps all of it once, at one agreed
//! address. The file is sealed against shrinking and growing, so a mapping can never turn into
//! SIGBUS because a peer truncated it; and [`reserve`] allocates pages before anyone touches
//! them, so running out of memory is an error with numbers instead of a signal.

use crate::base::{Error, Result, forked};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Page size assumed for layouts: every supported machine's page size divides it or equals it.
pub const PAGE: u64 = 4096;

/// Rounds `value` up to a multiple of `unit`, a power of two.
pub const fn round_up(value: u64, unit: u64) -> u64 {
    (value + unit - 1) & !(unit - 1)
}

/// Creates a sparse, sealed memory file of `length` bytes.
pub fn create_memfd(name: &str, length: u64) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| Error::os("memfd_create for the node's memory", e))?;
    rustix::fs::ftruncate(&fd, length)
        .map_err(|e| Error::os("ftruncate of the node's memory", e))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|e| Error::os("sealing the node's memory", e))?;
    Ok(fd)
}

/// Opens the same memory file anew, so that the caller has an open file description of its own
/// (record locks belong to descriptions, and a passed descriptor shares its sender's).
pub fn reopen(fd: impl AsFd) -> Result<OwnedFd> {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::open(path, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, 0.into())
        .map_err(|e| Error::Os {
            call: "reopening the node's memory through /proc/self/fd",
            source: e.into(),
            hint: "hither needs /proc to be mounted",
        })
}

/// Length of a memory file, and whether it is sealed as [`create_memfd`] seals.
pub fn sealed_length(fd: impl AsFd) -> Result<u64> {
    let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|e| Error::os("reading seals", e))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(Error::Incompatible {
            what: "the node's memory file",
            why: "it is not sealed against resizing, so it was not made by hither".into(),
        });
    }
    let stat = rustix::fs::fstat(&fd).map_err(|e| Error::os("fstat of the node's memory", e))?;
    Ok(stat.st_size as u64)
}

/// Allocates the pages of `offset..offset + length` now, on the calling thread's NUMA node, and
/// fails with the numbers when there is not enough memory. `what` names the user of the memory.
pub fn reserve(fd: BorrowedFd<'_>, offset: u64, length: u64, what: &str) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    forked::refuse_forked("reserving shared memory")?;
    let oom = |available: u64, limit: &str| Error::OutOfMemory {
        what: what.to_owned(),
        wanted: length,
        available,
        limit: limit.to_owned(),
        advice: "use a smaller window, fewer ranks, or raise that limit",
    };
    // Asked before allocating: in a memory cgroup an allocation past the limit may end in the
    // kernel's out-of-memory killer rather than in an error.
    if !PLENTY.take(length, Instant::now()) {
        let (available, limit) = available_memory();
        if length > available {
            return Err(oom(available, &limit));
        }
        PLENTY.found(available - length, Instant::now());
    }
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), offset, length) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM) => {
                release(fd, offset, length);
                return Err(oom(available_memory().0, "the system's memory"));
            }
            Err(e) => return Err(Error::os("fallocate of shared memory", e)),
        }
    }
}

/// The same for memory that only makes something faster: fails also if there is not 256 times as much, so
/// that it is never such memory that leaves none for what a program cannot do without.
pub fn reserve_spare(fd: BorrowedFd<'_>, offset: u64, length: u64, what: &str) -> Result<()> {
    let (available, limit) = available_memory();
    if length.saturating_mul(SPARE) > available {
        let advice = "this is done without where it is not to be had";
        let what = what.to_owned();
        return Err(Error::OutOfMemory { what, wanted: length, available, limit, advice });
    }
    reserve(fd, offset, length, what)
}

/// How many times as much must be there for [`reserve_spare`].
const SPARE: u64 = 256;

/// What a process may reserve without asking how much there is, since it has asked just now and found
/// much more: the answer takes some twenty files, which is much of the time in which a process starts.
#[derive(Debug)]
struct Plenty(Mutex<Option<(Instant, u64)>>);

static PLENTY: Plenty = Plenty(Mutex::new(None));

impl Plenty {
    /// Which part of what there is: a thousand processes at a time may each have it.
    const PART: u64 = 4096;
    /// For how long.
    const FRESH: Duration = Duration::from_millis(100);

    /// So much was there.
    fn found(&self, available: u64, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((now, available / Plenty::PART));
    }

    /// Takes `length` of it; false if it has to be asked.
    fn take(&self, length: u64, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = state.as_mut().filter(|(at, left)| {
            now.saturating_duration_since(*at) < Plenty::FRESH && length <= *left
        });
        left.map(|(_, left)| *left -= length).is_some()
    }
}

/// Gives the pages of a range back. The range reads as zeros afterwards. Nothing happens in a
/// process that was forked off from a rank: the file is not its own.
pub fn release(fd: BorrowedFd<'_>, offset: u64, length: u64) {
    if length > 0 && !forked::is_forked() {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Failure leaves pages allocated until the job ends; nothing else depends on it.
        let _ = rustix::fs::fallocate(fd, flags, offset, length);
    }
}

/// No machine has so much: v1's way to say that a group has no limit, which v2 says in words.
const NO_LIMIT: u64 = 1 << 62;

/// Bytes that can still be had, and which limit says so: the smaller of the system's available
/// memory and the room in every enclosing memory cgroup.
pub fn available_memory() -> (u64, String) {
    let mut best = (u64::MAX, String::from("no limit found"));
    if let Ok(text) = std::fs::read_to_string("/proc/meminfo") {
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        if let Some(kib) = kib {
            best = (kib * 1024, "MemAvailable of /proc/meminfo".into());
        }
    }
    if let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") {
        for (max, current) in cgroup_files(&text) {
            let read = |p: &str| std::fs::read_to_string(p).ok()?.trim().parse::<u64>().ok();
            // Most groups have none; what they use takes as long to read as all else.
            let limit = read(&max).filter(|limit| *limit < NO_LIMIT);
            if let Some(limit) = limit
                && let Some(used) = read(&current)
            {
                // Pages of files that are not in use count as used, but give way.
                let left = limit.saturating_sub(used.saturating_sub(reclaimable(&max)));
                if left < best.0 {
                    best = (left, format!("{max} is {limit}, {used} in use"));
                }
            }
        }
    }
    best
}

/// Bytes of the cgroup whose limit file is `max` that the kernel takes back before it runs out.
fn reclaimable(max: &str) -> u64 {
    let folder = max.rsplit_once('/').map_or("", |(folder, _)| folder);
    let text = std::fs::read_to_string(format!("{folder}/memory.stat")).unwrap_or_default();
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        // v2 and v1; where both stand, v1's own counts this group alone.
        matches!(name, "inactive_file" | "total_inactive_file").then(|| value.parse().ok())?
    };
    text.lines().filter_map(value).max().unwrap_or(0)
}

/// The (limit, usage) file pairs of every cgroup that encloses this process, v2 and v1.
fn cgroup_files(proc_self_cgroup: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for line in proc_self_cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, max, current) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max", "memory.current")
        } else if controllers.split(',').any(|c| c == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push((format!("{root}{path}/{max}"), format!("{root}{path}/{current}")));
            match path.rfind('/') {
                Some(cut) => path = &path[..cut],
                None => break,
            }
        }
    }
    files
}

/// Puts a private view of the file `fd` in the place of a shared mapping of it at `base`: what is
/// read is what the others see, until it is written; what is written stays in this process. Returns
/// whether it can be written; where the system grants no private memory of that size it can only be
/// read, or not even that. Async-signal-safe.
///
/// # Safety
/// The range is a [`Mapping`] of `fd` from its start, and no other thread of this process uses it.
pub unsafe fn make_private(fd: RawFd, base: *mut u8, length: u64) -> bool {
    const BOTH: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
    for protection in [BOTH, libc::PROT_READ] {
        // SAFETY: replaces the caller's mapping, by one as long.
        unsafe {
            let there = libc::mmap(base.cast(), length as usize, protection, flags, fd, 0);
            if there != libc::MAP_FAILED {
                libc::madvise(there, length as usize, libc::MADV_DONTDUMP);
                return protection == BOTH;
            }
        }
    }
    // SAFETY: the caller's mapping; whoever touches it then ends, rather than harm others.
    unsafe { libc::mprotect(base.cast(), length as usize, libc::PROT_NONE) };
    false
}

/// One mapping of a memory file, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: u64,
}

// SAFETY: a Mapping is an address range; access to its bytes goes through `Region`, which only
// hands out shared references to atomics and copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `fd` from its start, anywhere.
    pub fn anywhere(fd: impl AsFd, length: u64) -> Result<Mapping> {
        Self::map(fd, length, 0, MapFlags::empty()).map_err(|e| map_error(e, length))
    }

    /// Maps `length` bytes of `fd` at exactly `address`; `None` if something is there already.
    pub fn at(fd: impl AsFd, length: u64, address: u64) -> Result<Option<Mapping>> {
        match Self::map(fd, length, address, MapFlags::FIXED_NOREPLACE) {
            // A kernel before 4.17 ignores the flag and takes the address as a wish.
            Ok(mapping) if mapping.base.as_ptr() as u64 != address => Ok(None),
            Ok(mapping) => Ok(Some(mapping)),
            Err(rustix::io::Errno::EXIST) => Ok(None),
            Err(e) => Err(map_error(e, length)),
        }
    }

    fn map(
        fd: impl AsFd,
        length: u64,
        address: u64,
        flags: MapFlags,
    ) -> rustix::io::Result<Mapping> {
        let wanted = address as *mut c_void;
        // SAFETY: without FIXED the kernel picks or takes a free range; with FIXED_NOREPLACE it
        // refuses a range in use. So no existing mapping is ever replaced.
        let base = unsafe {
            rustix::mm::mmap(
                wanted,
                length as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | flags,
                fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::INVAL)?;
        let mapping = Mapping { base, length };
        // A sparse segment spans terabytes of addresses: keep it out of core dumps.
        mapping.advise(0, length, Advice::LinuxDontDump);
        Ok(mapping)
    }

    /// First byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Asks for huge pages in a range; true if the kernel took the advice (it may still have
    /// them switched off for shared memory).
    pub fn advise_huge(&self, offset: u64, length: u64) -> bool {
        self.advise(offset, length, Advice::LinuxHugepage)
    }

    /// Fills this process's page table for a range whose pages exist, so that first accesses
    /// do not fault one by one. Best effort.
    pub fn populate(&self, offset: u64, length: u64) {
        self.advise(offset, length, Advice::LinuxPopulateWrite);
    }

    /// Moves a range whose pages exist onto huge pages now, copying them, also where the system
    /// gives none of itself (Linux 6.1 and later; the range aligned to huge pages). True if all
    /// of it could be. Other processes' page tables follow when they fault next.
    pub fn collapse_huge(&self, offset: u64, length: u64) -> bool {
        const MADV_COLLAPSE: libc::c_int = 25;
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end > self.length) {
            return false;
        }
        // SAFETY: the range lies in this mapping; the content stays, and the kernel keeps other
        // users of the pages consistent.
        unsafe {
            let start = self.base.as_ptr().add(offset as usize).cast();
            libc::madvise(start, length as usize, MADV_COLLAPSE) == 0
        }
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) -> bool {
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end > self.length) {
            return false;
        }
        // SAFETY: the range lies in this mapping, and these kinds of advice change no content.
        unsafe {
            let start = self.base.as_ptr().add(offset as usize).cast();
            rustix::mm::madvise(start, length as usize, advice).is_ok()
        }
    }
}

fn map_error(e: rustix::io::Errno, length: u64) -> Error {
    if e == rustix::io::Errno::NOMEM {
        return Error::OutOfMemory {
            what: "the address range of the node's memory".into(),
            wanted: length,
            available: 0,
            limit: "the process's address space, see ulimit -v".into(),
            advice: "raise that limit or lower HITHER_HEAP_SIZE",
        };
    }
    Error::os("mmap of the node's memory", e)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the range, and every typed access holds it alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_unasked_is_a_small_part_of_what_was_there_just_now() {
        let plenty = Plenty(Mutex::new(None));
        let now = Instant::now();
        assert!(!plenty.take(1, now), "nobody has asked");
        plenty.found(Plenty::PART * 100, now);
        assert!(plenty.take(60, now) && !plenty.take(41, now) && plenty.take(40, now));
        assert!(!plenty.take(1, now));
        plenty.found(Plenty::PART * 100, now);
        assert!(!plenty.take(1, now + Plenty::FRESH), "that was long ago");
        plenty.found(Plenty::PART - 1, now);
        assert!(!plenty.take(1, now), "there was little");
    }

    #[test]
    fn a_reservation_beyond_the_machine_names_the_numbers() {
        let fd = create_memfd("test", 1 << 50).unwrap();
        let err = reserve(fd.as_fd(), 0, 1 << 49, "a test").unwrap_err();
        let text = err.to_string();
        assert!(matches!(err, Error::OutOfMemory { wanted, .. } if wanted == 1 << 49), "{text}");
        assert!(text.contains("562949953421312 bytes wanted"), "{text}");
    }

    #[test]
    fn released_pages_read_as_zero_and_can_be_reserved_again() {
        let fd = create_memfd("test", 1 << 20).unwrap();
        let map = Mapping::anywhere(&fd, 1 << 20).unwrap();
        for _ in 0..2 {
            reserve(fd.as_fd(), 0, 1 << 16, "a test").unwrap();
            // SAFETY: the byte is mapped, reserved, and no one else has this file.
            unsafe {
                assert_eq!(map.base().as_ptr().add(5000).read_volatile(), 0);
                map.base().as_ptr().add(5000).write_volatile(7);
            }
            release(fd.as_fd(), 0, 1 << 16);
        }
    }

    #[test]
    fn spare_memory_is_a_small_part_of_what_there_is() {
        let length = 1 << 40;
        let fd = create_memfd("test", length).unwrap();
        let much = (available_memory().0 / (SPARE / 2)).min(length);
        let error = reserve_spare(fd.as_fd(), 0, much, "a test").unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { wanted, .. } if wanted == much), "{error}");
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_blocks, 0);
        reserve_spare(fd.as_fd(), 0, 1 << 16, "a test").unwrap();
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_blocks, 128);
    }

    #[test]
    fn an_occupied_address_is_refused_not_replaced() {
        let fd = create_memfd("test", 1 << 16).unwrap();
        let first = Mapping::anywhere(&fd, 1 << 16).unwrap();
        let there = first.base().as_ptr() as u64;
        assert!(Mapping::at(&fd, 1 << 16, there).unwrap().is_none());
    }

    #[test]
    fn a_sealed_file_cannot_be_truncated() {
        let fd = create_memfd("test", 1 << 16).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert_eq!(sealed_length(&fd).unwrap(), 1 << 16);
    }

    #[test]
    fn every_enclosing_cgroup_is_asked() {
        let files = cgroup_files("0::/a/b\n3:memory:/x\n1:cpu:/y\n");
        let names: Vec<&str> = files.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
    }
}
