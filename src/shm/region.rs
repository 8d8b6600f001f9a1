//! The only typed access to shared bytes.
//!
//! The law (after vm-memory's): bytes that another process may write at any time are never seen
//! as `&[u8]` or `&mut T`. They are reached in three ways only:
//! 1. as `&T` where `T: SharedLayout`, a `repr(C)` structure of atomics and protocol-owned cells;
//! 2. by copies in and out (`super::copy`), which the compiler cannot split, repeat or assume
//!    anything about;
//! 3. through raw pointers, by code that states which protocol gives it ownership.

use super::map::Mapping;
use crate::base::{Error, Offset, Result};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A structure that may lie in shared memory.
///
/// # Safety
/// The type is `repr(C)`, is valid for every bit pattern (all zeros in particular), holds no
/// pointer, reference, `bool`, `char` or Rust enum, and everything in it is an atomic or a cell
/// that a protocol gives to one side at a time.
pub unsafe trait SharedLayout: Sync + Sized {}

/// A typed view of bytes of a mapping that keeps the mapping alive. Cloning costs one private
/// atomic; using it costs what a reference costs.
pub struct SharedRef<T> {
    at: NonNull<T>,
    map: Arc<Mapping>,
}

// SAFETY: it is a shared reference to a Sync type, kept alive by the Arc.
unsafe impl<T: SharedLayout> Send for SharedRef<T> {}
// SAFETY: as above.
unsafe impl<T: SharedLayout> Sync for SharedRef<T> {}

impl<T> Clone for SharedRef<T> {
    fn clone(&self) -> Self {
        SharedRef { at: self.at, map: self.map.clone() }
    }
}

impl<T: SharedLayout> SharedRef<T> {
    /// The structure at `offset`; an error if it would not lie inside the mapping, aligned.
    pub fn new(map: &Arc<Mapping>, offset: Offset) -> Result<SharedRef<T>> {
        let at = locate(map, offset, size_of::<T>() as u64, align_of::<T>() as u64)?;
        Ok(SharedRef { at: at.cast(), map: map.clone() })
    }

    /// The mapping that holds the structure.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
}

impl<T: SharedLayout> Deref for SharedRef<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `new` checked bounds and alignment, the Arc keeps the mapping, and
        // `SharedLayout` says that every bit pattern is a valid, shareable T.
        unsafe { self.at.as_ref() }
    }
}

impl<T: SharedLayout> std::fmt::Debug for SharedRef<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedRef<{}>({:p})", std::any::type_name::<T>(), self.at)
    }
}

/// Address of `length` bytes at `offset` of a mapping, checked.
pub fn locate(map: &Mapping, offset: Offset, length: u64, align: u64) -> Result<NonNull<u8>> {
    let fits = offset.0.checked_add(length).is_some_and(|end| end <= map.length());
    if !fits || !offset.0.is_multiple_of(align) {
        return Err(Error::Incompatible {
            what: "an offset into shared memory",
            why: format!(
                "{length} bytes at {offset} (alignment {align}) do not fit the {} bytes mapped",
                map.length()
            ),
        });
    }
    // SAFETY: offset + length lies inside the mapping.
    Ok(unsafe { map.base().add(offset.0 as usize) })
}
