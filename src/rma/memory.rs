//! Memory that a program brings to a window: [`WindowBuilder::create`](super::WindowBuilder::create)
//! makes a part of it, [`Window::attach`](super::Window::attach) lends it to a dynamic window.
//!
//! | | who has it mapped | others reach it |
//! |---|---|---|
//! | [`Memory::shared`] | every process of the node | directly |
//! | [`Memory::private`], [`Memory::raw`] | its owner | by packets |
//!
//! A `Memory` is a handle: clones and windows keep what it stands for. Shared memory lies in its
//! owner's stride of symmetric memory, at an address range that nobody else uses, so it has one
//! address in every process of the node, is near its owner, and may be as large as a window. Other
//! processes use it through windows only; their uses are counted where the allocation is recorded
//! (`shm::alloc`), so it goes when the last handle and the last window are gone, and when its owner
//! dies, with the last window. What a device of the network was once told of it, for a large message
//! or operation, it keeps until then (`HITHER_NET_KEPT`).

use crate::base::{Error, Offset, Rank, Result};
use crate::coll::Team;
use crate::coll::message::{ReceiveBuffer, SendBuffer};
use crate::layout::Datum;
use crate::link::core::Core;
use crate::link::far::Far;
use crate::shm::copy::{copy_in, copy_out};
use crate::shm::map::{PAGE, round_up};
use crate::shm::node::Node;
use crate::shm::region::locate;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Elements that can become a part of a window. See the [module](self).
#[derive(Clone, Debug)]
pub struct Memory<T> {
    region: Region,
    _elements: PhantomData<T>,
}

/// The same without the element type.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    store: Arc<Store>,
    /// First byte.
    pub first: NonNull<u8>,
    /// Bytes.
    pub bytes: usize,
}

// SAFETY: the address stands for memory that `store` keeps, accessed by atomics and opaque copies
// only; whoever lends raw memory has promised that any thread may do so.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// What keeps the bytes.
enum Store {
    /// A range of the owner's stride, claimed in the symmetric heap.
    Shared { node: Arc<Node>, at: u64, first: NonNull<u8>, bytes: usize },
    /// What was a `Vec`.
    Private(Parts),
    /// Somebody else's.
    Raw,
}

// SAFETY: of shared memory only an address beside what keeps it, for whoever may access that;
// private memory is `Parts`, which may go anywhere.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

/// A `Vec` taken apart, so that no reference to its elements exists while windows use them.
struct Parts {
    first: NonNull<u8>,
    len: usize,
    capacity: usize,
    drop: unsafe fn(NonNull<u8>, usize, usize),
}

// SAFETY: a Vec of plain data, which only `Drop` and `into_vec` touch as one.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

/// # Safety
/// The three came from a `Vec<T>` that was forgotten, and are used once.
unsafe fn drop_vec<T>(first: NonNull<u8>, len: usize, capacity: usize) {
    // SAFETY: the caller's.
    drop(unsafe { Vec::from_raw_parts(first.cast::<T>().as_ptr(), len, capacity) });
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: `drop` belongs to the element type that the three came from.
        unsafe { (self.drop)(self.first, self.len, self.capacity) };
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Store::Shared { node, at, first, bytes } = self {
            // Failure leaves the memory allocated as long as this process lives.
            if devices(node).is_none_or(|far| far.disown(*first, *bytes)) {
                let _ = node.disown(*at);
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Store::Shared { at, .. } => write!(f, "Shared({at:#x})"),
            Store::Private(parts) => write!(f, "Private({} elements)", parts.len),
            Store::Raw => write!(f, "Raw"),
        }
    }
}

// SAFETY: the elements stay where they are as long as a handle exists; those who also use them
// through windows see to it, as with any memory of a window, that accesses do not meet.
unsafe impl<T: Datum> SendBuffer for Memory<T> {
    type Item = T;
    fn first(&self) -> *const T {
        self.as_ptr()
    }
    fn count(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above.
unsafe impl<T: Datum> ReceiveBuffer for Memory<T> {
    fn first_mut(&mut self) -> *mut T {
        self.as_ptr()
    }
}

impl<T: Datum> Memory<T> {
    /// `len` elements, all zero bits, of the node's shared memory, owned by this process. Not
    /// collective. The pages are reserved now, near this process.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::InvalidArgument`] for elements without bytes or aligned to
    /// more than a page; [`Error::Exhausted`] if there are thousands already: allocate
    /// fewer and larger ones, and lend [parts](Memory::part) of them.
    pub fn shared(team: &Team, len: usize) -> Result<Memory<T>> {
        super::kind::check_element::<T>()?;
        let node = team.node();
        let stride = node.areas().stride;
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        if bytes > stride {
            return Err(super::kind::too_large("shared memory for windows", bytes, stride));
        }
        let at = node.alloc_own(bytes)?;
        let offset = Offset(node.areas().heap(node.slot()).0 + at);
        let length = round_up(bytes, PAGE);
        let first = locate(node.mapping(), offset, length, PAGE)?;
        let whole = length as usize;
        let store = Arc::new(Store::Shared { node: node.clone(), at, first, bytes: whole });
        node.reserve(offset, length, "shared memory for windows")?;
        node.warm(offset, length);
        if let Some(far) = devices(node) {
            // SAFETY: the store takes them back before the memory is anything else; the node stays
            // mapped as long as the store has it. They are accessed by copies and atomics alone.
            unsafe { far.own(first, whole) };
        }
        Ok(Memory::of(store, first, bytes as usize))
    }

    /// Memory of this process alone. Get it back with [`Memory::into_vec`].
    pub fn private(values: impl Into<Vec<T>>) -> Memory<T> {
        let mut values = std::mem::ManuallyDrop::new(values.into());
        // SAFETY: the pointer of a Vec is never null.
        let first = unsafe { NonNull::new_unchecked(values.as_mut_ptr().cast::<u8>()) };
        let (len, capacity) = (values.len(), values.capacity());
        let parts = Parts { first, len, capacity, drop: drop_vec::<T> };
        Memory::of(Arc::new(Store::Private(parts)), first, len * size_of::<T>())
    }

    /// Memory that somebody else keeps.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the address is null, not aligned, or its end overflows.
    ///
    /// # Safety
    /// `len` elements from `first` on may be read and written by any thread until the last handle
    /// and the last window over them are gone at this process. Meanwhile the program itself
    /// accesses them through windows and handles only, or otherwise such that no data race comes
    /// of it.
    pub unsafe fn raw(first: *mut T, len: usize) -> Result<Memory<T>> {
        const WHAT: &str = "Memory::raw";
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.filter(|&b| b <= isize::MAX as usize);
        let bytes = bytes.filter(|b| first.addr().checked_add(*b).is_some());
        let Some(bytes) = bytes else {
            return Err(Error::invalid(WHAT, format!("{len} elements are too many")));
        };
        match NonNull::new(first) {
            Some(at) if first.is_aligned() => {
                Ok(Memory::of(Arc::new(Store::Raw), at.cast(), bytes))
            }
            _ => Err(Error::invalid(
                WHAT,
                format!("{first:p} is null or not aligned to {} bytes", align_of::<T>()),
            )),
        }
    }

    fn of(store: Arc<Store>, first: NonNull<u8>, bytes: usize) -> Memory<T> {
        Memory { region: Region { store, first, bytes }, _elements: PhantomData }
    }

    /// A handle to elements `start..end` alone.
    pub fn part(&self, start: usize, end: usize) -> Result<Memory<T>> {
        let count = end.checked_sub(start).ok_or_else(|| {
            Error::invalid("Memory::part", format!("{start}..{end} ends before it starts"))
        })?;
        let first = self.at("Memory::part", start, count)?;
        Ok(Memory::of(self.region.store.clone(), first, count * size_of::<T>()))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.region.bytes / size_of::<T>().max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first element. Shared memory has the same one in every process of the node.
    pub fn as_ptr(&self) -> *mut T {
        self.region.first.as_ptr().cast()
    }

    /// Whether other processes of the node have it mapped.
    pub fn is_shared(&self) -> bool {
        matches!(*self.region.store, Store::Shared { .. })
    }

    /// Reads elements from `start` on. Tearing as for [`View`](super::View).
    pub fn read(&self, start: usize, into: &mut [T]) -> Result<()> {
        let from = self.at("Memory::read", start, into.len())?;
        // SAFETY: `at` checked the bounds; `into` is borrowed exclusively, so nothing overlaps.
        unsafe { copy_out(into.as_mut_ptr().cast(), from.as_ptr(), size_of_val(into)) };
        Ok(())
    }

    /// Writes elements from `start` on. Tearing as for [`View`](super::View).
    pub fn write(&self, start: usize, values: &[T]) -> Result<()> {
        let to = self.at("Memory::write", start, values.len())?;
        // SAFETY: `at` checked the bounds; no reference to the elements exists, so `values` are
        // others.
        unsafe { copy_in(to.as_ptr(), values.as_ptr().cast(), size_of_val(values)) };
        Ok(())
    }

    /// The elements of [private](Memory::private) memory, if this is its only handle and no window
    /// uses it any more; else the handle.
    pub fn into_vec(self) -> std::result::Result<Vec<T>, Memory<T>> {
        let Region { store, first, bytes } = self.region;
        let whole = match &*store {
            Store::Private(parts) => parts.first == first && parts.len * size_of::<T>() == bytes,
            _ => false,
        };
        if !whole {
            return Err(Memory::of(store, first, bytes));
        }
        let mut store = Arc::try_unwrap(store).map_err(|store| Memory::of(store, first, bytes))?;
        let Store::Private(parts) = &mut store else { return Ok(Vec::new()) };
        parts.drop = |_, _, _| ();
        // SAFETY: `private` took a Vec<T> apart into these; the handle's type says so, and part
        // and clone keep it. Dropping `store` leaves them alone.
        Ok(unsafe {
            Vec::from_raw_parts(parts.first.cast::<T>().as_ptr(), parts.len, parts.capacity)
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// # Safety
    /// The region holds elements of this type.
    pub(crate) unsafe fn from_region(region: Region) -> Memory<T> {
        Memory { region, _elements: PhantomData }
    }

    fn at(&self, what: &'static str, start: usize, count: usize) -> Result<NonNull<u8>> {
        match start.checked_add(count) {
            // SAFETY: start <= len.
            Some(end) if end <= self.len() => unsafe {
                Ok(self.region.first.add(start * size_of::<T>()))
            },
            _ => Err(Error::OutOfBounds {
                what,
                rank: self.owner(),
                start: start as u64,
                end: (start as u64).saturating_add(count as u64),
                len: self.len() as u64,
            }),
        }
    }

    /// The rank, in the whole job, that shared memory belongs to; 0 for other memory.
    fn owner(&self) -> Rank {
        match &*self.region.store {
            Store::Shared { node, .. } => node.rank_of(node.slot()),
            _ => Rank(0),
        }
    }
}

impl Region {
    /// Offset in the segment of a region of shared memory; none if it is not mapped elsewhere.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it belongs to another job than `node` does.
    pub fn offset_in(&self, node: &Node) -> Result<Option<u64>> {
        let Store::Shared { node: home, .. } = &*self.store else { return Ok(None) };
        if home.mapping().base() != node.mapping().base() {
            let why = "it was allocated in another job; allocate it with a team of this one";
            return Err(Error::invalid("memory for a window", why));
        }
        Ok(Some((self.first.addr().get() - node.mapping().base().addr().get()) as u64))
    }
}

/// What has memory registered for other nodes, where there are any.
fn devices(node: &Node) -> Option<Arc<dyn Far>> {
    (node.placement().nodes() > 1).then(|| Core::of(node).ok()?.far().cloned()).flatten()
}

/// Where in a stride of symmetric memory an offset in the segment is.
pub(super) fn stride_of(node: &Node, offset: u64) -> Result<u64> {
    let areas = node.areas();
    let first = areas.heap(crate::base::Slot(0)).0;
    let beyond = offset.checked_sub(first).ok_or_else(|| Error::Incompatible {
        what: "the record of a window's part",
        why: format!("{offset:#x} is not in symmetric memory"),
    })?;
    Ok(beyond % areas.stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_comes_back_when_nobody_else_has_it() {
        let memory = Memory::private(vec![1u32, 2, 3]);
        memory.write(1, &[7]).unwrap();
        let part = memory.part(1, 3).unwrap();
        let memory = memory.into_vec().unwrap_err();
        let mut read = [0; 2];
        part.read(0, &mut read).unwrap();
        assert_eq!(read, [7, 3]);
        assert!(part.into_vec().is_err(), "a part is not the whole");
        assert_eq!(memory.into_vec().unwrap(), [1, 7, 3]);
    }

    #[test]
    fn bounds_hold() {
        let memory = Memory::private(vec![1u16, 2, 3]);
        assert!(memory.read(2, &mut [0; 2]).is_err());
        assert!(memory.write(usize::MAX, &[0]).is_err());
        assert!(memory.part(2, 1).is_err());
        assert!(memory.part(3, 3).unwrap().is_empty());
        assert!(memory.part(3, 4).is_err());
    }

    #[test]
    fn raw_memory_must_be_aligned_and_end() {
        let mut there = [0u64; 4];
        let first = there.as_mut_ptr();
        // SAFETY: the array outlives the handle, and only the handle uses it meanwhile.
        unsafe {
            assert!(Memory::raw(first, 4).is_ok());
            assert!(Memory::<u64>::raw(std::ptr::null_mut(), 1).is_err());
            assert!(Memory::<u64>::raw(first.wrapping_byte_add(1), 1).is_err());
            assert!(Memory::<u64>::raw(first, usize::MAX).is_err());
        }
    }
}
