//! Memory that units are staged in, and bytes on their way between layouts and packets.

use crate::am::buffers::GRAIN;
use crate::base::{Error, Result};
use crate::layout::{Cursor, Shape};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed memory at a multiple of [`GRAIN`], which is accessed through addresses only.
#[derive(Debug)]
pub(super) struct Block {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an owned allocation; whoever has addresses into it takes care of races.
unsafe impl Send for Block {}
// SAFETY: as above: shared references only tell the address.
unsafe impl Sync for Block {}

impl Block {
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(what: &'static str, bytes: usize) -> Result<Block> {
        let none = || Error::OutOfMemory {
            what: what.into(),
            wanted: bytes as u64,
            available: 0,
            limit: "memory of this process".into(),
            advice: "ask for less",
        };
        let layout = Layout::from_size_align(bytes.max(1), GRAIN as usize).map_err(|_| none())?;
        // SAFETY: the layout has a size.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Block { first, layout })
    }

    /// The address of `bytes` bytes from `offset` on, if they lie in it.
    pub fn at(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.layout.size() as u64);
        inside.then(|| self.first().wrapping_add(offset as usize))
    }

    /// The first byte.
    pub fn first(&self) -> *mut u8 {
        self.first.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.first.as_ptr(), self.layout) };
    }
}

/// Appends `len` bytes of `shape` at `zero`, from packed position `position` on, to `out`.
///
/// # Errors
/// [`Error::InvalidArgument`] for a shape beyond all memory.
///
/// # Safety
/// The bytes are valid for reads, and nobody writes them meanwhile.
pub(super) unsafe fn gather(
    zero: *const u8,
    shape: Shape<'_>,
    position: usize,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    each_piece(shape, position, len, |offset, len| {
        // SAFETY: a piece of the shape; the caller's.
        let piece = unsafe { std::slice::from_raw_parts(zero.wrapping_offset(offset), len) };
        out.extend_from_slice(piece);
    })
}

/// Puts `bytes` where they belong in `shape` at `zero`, from packed position `position` on.
///
/// # Errors
/// [`Error::InvalidArgument`] for a shape beyond all memory.
///
/// # Safety
/// The bytes are valid for writes, and nobody accesses them meanwhile.
pub(super) unsafe fn scatter(
    zero: *mut u8,
    shape: Shape<'_>,
    position: usize,
    bytes: &[u8],
) -> Result<()> {
    let mut rest = bytes.as_ptr();
    each_piece(shape, position, bytes.len(), |offset, len| {
        // SAFETY: a piece of the shape; the caller's. The pieces sum up to the bytes there are.
        unsafe {
            std::ptr::copy_nonoverlapping(rest, zero.wrapping_offset(offset), len);
            rest = rest.add(len);
        }
    })
}

/// Offsets and lengths of what `len` bytes from `position` on are; no more than the shape has.
fn each_piece(
    shape: Shape<'_>,
    position: usize,
    len: usize,
    mut each: impl FnMut(isize, usize),
) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    if let Some((offset, all)) = shape.single() {
        let len = len.min(all.saturating_sub(position));
        each(offset.wrapping_add_unsigned(position), len);
        return Ok(());
    }
    let mut cursor = Cursor::at(shape, position)?;
    let mut left = len;
    while left > 0
        && let Some(piece) = cursor.next_piece(left)
    {
        each(piece.offset, piece.len);
        left -= piece.len;
    }
    Ok(())
}
