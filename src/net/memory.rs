//! Memory that devices read and write: the fence around raw addresses in this room.
//!
//! The law is that of shared memory: a registered byte may be written at any time, by a peer whose
//! operation arrives, by the device, by another thread or process. It is never seen as `&[u8]` or
//! `&mut T`, only moved by copies the compiler can assume nothing about and by single atomic
//! accesses. What is *in* it is worth as much as the protocol that says
//! who may write when; a race garbles bytes, never this process.
//!
//! Who makes a [`Memory`] promises once (`unsafe`) that the addresses stay valid as long as its
//! owner is kept; everything that takes one is safe.

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Error, Result, copy, forked};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// What keeps addresses valid: a mapping, a vector, an allocation.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// A range of addresses that stay valid as long as this (or a clone) lives.
///
/// Cloning costs one atomic. All accesses are bounds-checked, in release builds too.
#[derive(Clone)]
pub struct Memory {
    base: NonNull<u8>,
    length: usize,
    owner: Owner,
}

// SAFETY: it is an address and an owner that may be shared; all accesses through it are copies or
// atomics that allow for others at the same time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// An allocation of zeros, aligned to a cache line, that nothing but a [`Memory`] has the address
/// of.
struct Block {
    base: NonNull<u8>,
    layout: std::alloc::Layout,
}

// SAFETY: only an address that is given back once.
unsafe impl Send for Block {}
// SAFETY: as above; nothing is reached through a shared Block.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Memory::zeroed`, freed once.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl Memory {
    /// The `length` bytes at `base`, for as long as `owner` is kept.
    ///
    /// # Safety
    /// While `owner` or a clone of it lives, the bytes are mapped, readable and writable, and nobody
    /// holds a reference to them (`&[u8]`, `&mut T`; structures of atomics are fine) while a device
    /// may access them.
    pub unsafe fn new(base: NonNull<u8>, length: usize, owner: Owner) -> Memory {
        Memory { base, length, owner }
    }

    /// Fresh zeros, at a cache line's start. Allocates; of much memory only what is used takes pages.
    pub fn zeroed(length: usize) -> Result<Memory> {
        let failed = || Error::OutOfMemory {
            what: "memory for the network".into(),
            wanted: length as u64,
            available: 0,
            limit: "the allocator refused".into(),
            advice: "use fewer or smaller buffers",
        };
        // Zeros at more than the usual alignment would be written rather than mapped.
        let size = length.checked_add(LINE).ok_or_else(failed)?;
        let layout = std::alloc::Layout::from_size_align(size, 16).map_err(|_| failed())?;
        // SAFETY: the layout has a size other than zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(failed)?;
        // SAFETY: less than a line further on, which the block has room for.
        let base = unsafe { start.add(start.addr().get().wrapping_neg() % LINE) };
        Ok(Memory { base, length, owner: Arc::new(Block { base: start, layout }) })
    }

    /// Address of the first byte, as devices name it.
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// What keeps it.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether `length` bytes at `offset` lie inside.
    #[inline]
    pub fn contains(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length as u64)
    }

    /// Address of `length` bytes at `offset`; none if they do not lie inside.
    #[inline]
    fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        if !self.contains(offset, length as u64) {
            return None;
        }
        // SAFETY: inside the range, as just checked.
        Some(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// Copies `bytes` to `offset`; false (and nothing done) if they do not fit.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.at(offset, bytes.len()) else { return false };
        // SAFETY: `to` has room for them and stays valid by the owner; a slice of private memory
        // does not overlap with it (`Memory::new` forbids references to it).
        unsafe { copy::copy_in(to, bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Copies from `offset` into `bytes`; false (and nothing done) if they do not lie inside.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, bytes.len()) else { return false };
        // SAFETY: as in `write`.
        unsafe { copy::copy_out(bytes.as_mut_ptr(), from, bytes.len()) };
        true
    }

    /// Appends `length` bytes at `offset` to `to`; false (and nothing done) if they do not lie inside.
    #[inline]
    #[must_use]
    pub fn append(&self, offset: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let Some(from) = self.at(offset, length) else { return false };
        to.reserve(length);
        let end = to.len();
        // SAFETY: there is room for them behind the end, `from` is as in `read`, and once copied they
        // are initialised.
        unsafe {
            copy::copy_out(to.as_mut_ptr().add(end), from, length);
            to.set_len(end + length);
        }
        true
    }

    /// The `length` bytes at `offset`, where they lie; none if they do not lie inside.
    ///
    /// # Safety
    /// Nobody writes to them as long as the result lives: no device has them to receive into, and no
    /// copy goes there.
    pub unsafe fn slice(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = self.at(offset, length)?;
        // SAFETY: inside, initialised (they were zeros once), valid as long as the owner, which
        // `self` keeps, and not written to, as the caller says.
        Some(unsafe { std::slice::from_raw_parts(from, length) })
    }

    /// Copies between two memories (which may be one); false if either range does not lie inside.
    #[must_use]
    pub fn copy(&self, offset: u64, from: &Memory, from_offset: u64, length: u64) -> bool {
        let Ok(length) = usize::try_from(length) else { return false };
        let (Some(to), Some(from)) = (self.at(offset, length), from.at(from_offset, length)) else {
            return false;
        };
        // SAFETY: both ranges are valid for `length` bytes by their owners; where they overlap the
        // copy is one that may.
        unsafe {
            if to.addr().abs_diff(from.addr()) >= length {
                copy::opaque_copy(to, from, length);
            } else {
                libc::memmove(to.cast(), from.cast(), length);
            }
        }
        true
    }

    /// The eight bytes at `offset` as an atomic; none if they do not lie inside or are not aligned.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8)?;
        if !at.addr().is_multiple_of(8) {
            return None;
        }
        // SAFETY: aligned, inside, valid as long as the owner, which `self` keeps; all other
        // accesses are copies or atomics.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// A load of the word at `offset` with Acquire; none as for [`Memory::word`].
    pub fn load(&self, offset: u64) -> Option<u64> {
        self.word(offset).map(|word| word.load(Ordering::Acquire))
    }
}

/// Memory that is lent to devices for a time. Dropping this waits until none of them has it any more:
/// for the part of an access that is just being made, once it is registered nowhere.
#[derive(Debug)]
pub struct Lent(Arc<()>);

impl Lent {
    /// Lends the `length` bytes at `base`, to whoever the memory is given to.
    ///
    /// # Safety
    /// The bytes stay mapped and readable until this is dropped, which it is (or never are given
    /// back), and writable if they are registered for that; and nobody uses them otherwise while a
    /// device may access them, but to read what devices only read.
    pub unsafe fn new(base: NonNull<u8>, length: usize) -> (Lent, Memory) {
        let token = Arc::new(());
        // SAFETY: the caller's: the memory's clones have the token, for which the drop waits.
        (Lent(token.clone()), unsafe { Memory::new(base, length, token) })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A child that was forked off does not have the threads that would give its copy back.
        while !forked::is_forked() && Arc::get_mut(&mut self.0).is_none() {
            crate::base::sync::yield_now();
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({:p}, {} bytes)", self.base, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_are_refused_and_inside_exact() {
        let memory = Memory::zeroed(100).unwrap();
        assert!(memory.write(90, &[7; 10]));
        assert!(!memory.write(91, &[7; 10]));
        assert!(!memory.write(u64::MAX, &[7]));
        let mut back = [0; 12];
        assert!(!memory.read(89, &mut back));
        assert!(memory.read(88, &mut back));
        assert_eq!(back, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        let mut all = vec![1];
        assert!(memory.append(89, 3, &mut all) && !memory.append(99, 2, &mut all));
        assert_eq!(all, [1, 0, 7, 7]);
        assert!(memory.word(88).is_some() && memory.word(92).is_none());
        assert!(memory.word(96).is_none(), "half outside");
        assert!(memory.word(4).is_none(), "not aligned");
    }

    #[test]
    fn overlapping_copies_move() {
        let memory = Memory::zeroed(16).unwrap();
        assert!(memory.write(0, &[1, 2, 3, 4, 5, 6]));
        assert!(memory.copy(2, &memory, 0, 6));
        let mut back = [0; 8];
        assert!(memory.read(0, &mut back));
        assert_eq!(back, [1, 2, 1, 2, 3, 4, 5, 6]);
        assert!(!memory.copy(11, &memory, 0, 6));
        assert!(!memory.copy(0, &memory, 11, 6));
    }

    #[test]
    fn who_lends_memory_has_it_back_when_nobody_else_has_it() {
        let bytes = Box::new([7u8; 16]);
        // SAFETY: the box outlives what was lent, and is only read.
        let (lent, memory) = unsafe { Lent::new(NonNull::from(&bytes[0]), 16) };
        let looked = Arc::new(crate::base::sync::AtomicBool::new(false));
        let other = std::thread::spawn({
            let looked = looked.clone();
            move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                let mut back = [0; 16];
                assert!(memory.read(0, &mut back));
                looked.store(true, Ordering::Release);
            }
        });
        drop(lent);
        assert!(looked.load(Ordering::Acquire));
        other.join().unwrap();
    }

    #[test]
    fn the_owner_is_kept_as_long_as_any_clone() {
        let owner = Arc::new([0u8; 8]);
        let base = NonNull::from(&owner[0]);
        // SAFETY: nothing is accessed through it.
        let memory = unsafe { Memory::new(base, 8, owner.clone()) };
        let other = memory.clone();
        drop(memory);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
