//! One send or receive that goes on, and the memory it concerns.
//!
//! ```text
//!  posted, or announced           outcome written; `keep` let go
//!  WAITING ------------------------------------------------------> DONE
//!  the engine's                                                    the owner's
//! ```
//! One that is awaited is ARMED instead of WAITING (see `awaited`): whoever ends it says so.
//!
//! A record is the engine's until it is DONE: whoever gave it does not free it (nor the memory it
//! describes) before, or has given a reference to it that the engine keeps ([`Record::keep`]).

use super::messenger::Messenger;
use super::wire::elements_agree;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::base::{Error, Rank, Result};
use crate::layout::{Cursor, Layout};
use crate::shm::ring::cell::MORE_BYTES;
use crate::shm::ring::payload::copy_short;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

const WAITING: u32 = 0;
const DONE: u32 = 1;
const ARMED: u32 = 2;

/// Memory of this process that a message is taken from or put into: bytes that lie together, or
/// those of a layout.
#[derive(Debug)]
pub(crate) struct Place {
    at: *mut u8,
    /// Bytes, as packed.
    len: usize,
    shape: Option<Box<(Layout, usize)>>,
}

// SAFETY: an address; whoever makes one promises that the memory may be used from any thread as
// long as the record is the engine's.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// Bytes that lie together.
    ///
    /// # Safety
    /// `len` bytes at `at` may be read (sends) or written (receives) by any thread, and nobody
    /// else accesses them otherwise, as long as the record that gets the place is not done.
    pub unsafe fn flat(at: *mut u8, len: usize) -> Place {
        Place { at, len, shape: None }
    }

    /// The bytes of `count` copies of a layout around `at`.
    ///
    /// # Safety
    /// As for [`Place::flat`], of the bytes of the layout.
    pub unsafe fn shaped(at: *mut u8, layout: &Layout, count: usize) -> Result<Place> {
        let shape = layout.times(count);
        let len = shape.size()?;
        Ok(match shape.single() {
            Some((offset, len)) => Place { at: at.wrapping_offset(offset), len, shape: None },
            None => Place { at, len, shape: Some(Box::new((layout.clone(), count))) },
        })
    }

    /// Bytes, as packed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte, if they lie together.
    pub fn address(&self) -> Option<*mut u8> {
        self.shape.is_none().then_some(self.at)
    }

    /// Runs `f` with the address and the length of each piece of `len` bytes from `position` on.
    fn pieces(&self, position: usize, len: usize, mut f: impl FnMut(*mut u8, usize)) {
        let len = len.min(self.len.saturating_sub(position));
        let Some(shape) = &self.shape else {
            return f(self.at.wrapping_add(position), len);
        };
        // Neither fails for a shape that was checked and a position inside it.
        let Ok(mut cursor) = Cursor::at(shape.0.times(shape.1), position) else { return };
        let mut left = len;
        while let Some(piece) = cursor.next_piece(left) {
            f(self.at.wrapping_offset(piece.offset), piece.len);
            left -= piece.len;
        }
    }

    /// Copies `bytes` in from `position` on, as far as there is room.
    ///
    /// # Safety
    /// The record is the engine's, and no other thread writes there now.
    #[inline]
    pub unsafe fn write(&self, position: usize, bytes: &[u8]) {
        if self.shape.is_none() {
            let len = bytes.len().min(self.len.saturating_sub(position));
            // SAFETY: the caller's, and the place's.
            unsafe {
                let to = self.at.add(position);
                if len <= MORE_BYTES {
                    copy_short(to, bytes.as_ptr(), len);
                } else {
                    crate::shm::copy::opaque_copy(to, bytes.as_ptr(), len);
                }
            }
            return;
        }
        let mut from = bytes.as_ptr();
        self.pieces(position, bytes.len(), |to, len| {
            // SAFETY: the caller's; the pieces together are no longer than `bytes`.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, len);
                from = from.add(len);
            }
        });
    }

    /// Copies `len` bytes of shared memory in, as far as there is room.
    ///
    /// # Safety
    /// As for [`Place::write`]; `len` bytes at `from` are readable, and nobody writes to them now.
    pub unsafe fn fill(&self, from: *const u8, len: usize) {
        if self.shape.is_none() {
            // SAFETY: the caller's, and the place's.
            return unsafe { crate::shm::copy::copy_out(self.at, from, len.min(self.len)) };
        }
        let mut from = from;
        self.pieces(0, len, |to, len| {
            // SAFETY: the caller's; the pieces together are no longer than `len`.
            unsafe {
                crate::shm::copy::copy_out(to, from, len);
                from = from.add(len);
            }
        });
    }

    /// Copies `len` bytes from `position` on to `to`, as far as there are any.
    ///
    /// # Safety
    /// The record is the engine's; `len` bytes at `to` are writable.
    pub unsafe fn read(&self, position: usize, to: *mut u8, len: usize) {
        let mut to = to;
        self.pieces(position, len, |from, len| {
            // SAFETY: the caller's, and the place's.
            unsafe {
                crate::shm::copy::opaque_copy(to, from, len);
                to = to.add(len);
            }
        });
    }
}

/// What a message is received into, or sent from: a place, and what its bytes are.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub place: Place,
    /// Code of the elements, see [`super::wire`].
    pub element: u8,
    /// Bytes of which a message must have a multiple.
    unit: usize,
}

impl Buffer {
    /// For elements of this code, and messages of a multiple of `unit` bytes.
    #[inline(always)]
    pub fn new(place: Place, element: u8, unit: usize) -> Buffer {
        Buffer { place, element, unit: unit.max(1) }
    }

    /// Bytes of which a message must have a multiple.
    #[inline(always)]
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Whether a message with elements of this code fits.
    #[inline(always)]
    pub fn fits(&self, arrived: Arrived, element: u8) -> bool {
        let fits = arrived.bytes <= self.place.len;
        let whole = self.unit.is_power_of_two() && arrived.bytes & (self.unit - 1) == 0
            || arrived.bytes.is_multiple_of(self.unit);
        fits && whole && elements_agree(element, self.element)
    }

    /// Why it does not.
    #[cold]
    fn refuse(&self, arrived: Arrived, element: u8) -> Error {
        let (from, tag) = (Rank(arrived.rank), arrived.tag);
        let sent = arrived.bytes as u64;
        if elements_agree(element, self.element) && arrived.bytes > self.place.len {
            return Error::Truncated { from, tag, sent, room: self.place.len as u64 };
        }
        let expected = self.unit as u64;
        Error::ElementSize { from, tag, sent, element: element.into(), expected }
    }
}

/// What came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The sender's rank in the team.
    pub rank: u32,
    /// The message's tag.
    pub tag: u32,
    /// Its bytes.
    pub bytes: usize,
}

/// See the [module](self).
pub(crate) struct Record {
    state: AtomicU32,
    pub buffer: Buffer,
    /// 1 once the owner waits awake, and does nothing else before the record is done, or it sleeps. Of a
    /// send that was announced the name of its claim instead, see `awake`; 0 before.
    pub(super) awake: AtomicU64,
    outcome: UnsafeCell<Option<Result<Arrived>>>,
    keep: UnsafeCell<Option<Arc<dyn Any + Send + Sync>>>,
    /// Who is told of the end: the owner's before ARMED, of whoever ends the record from then on.
    watcher: UnsafeCell<Option<Weak<Messenger>>>,
}

// SAFETY: `outcome` and `keep` are accessed by the engine before DONE and by the owner after;
// `watcher` as its comment says.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

impl Record {
    /// A record that nobody has yet.
    pub fn new(buffer: Buffer) -> Record {
        Record {
            state: AtomicU32::new(WAITING),
            buffer,
            awake: AtomicU64::new(0),
            outcome: UnsafeCell::new(None),
            keep: UnsafeCell::new(None),
            watcher: UnsafeCell::new(None),
        }
    }

    /// Has the engine hold `owner`, of which this record is a part, until the record is done.
    ///
    /// # Safety
    /// The record is not the engine's yet.
    pub unsafe fn keep(&self, owner: Arc<dyn Any + Send + Sync>) {
        // SAFETY: the caller's: nobody else accesses it.
        self.keep.with_mut(|keep| unsafe { *keep = Some(owner) });
    }

    /// Whether the engine holds its owner.
    pub fn is_kept(&self) -> bool {
        // SAFETY: only whoever ends the record writes it, and the caller is told again later.
        self.keep.with(|keep| unsafe { (*keep).is_some() })
    }

    /// Ends a record that the engine has no more, without an outcome: true unless it was done.
    pub fn abandon(&self) -> bool {
        if self.is_done() {
            return false;
        }
        // SAFETY: it stays where it is: the caller has a reference.
        unsafe { RecordRef::new(self) }.finish(Ok(Arrived::default()));
        true
    }

    /// Whether the outcome is there. One load.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Whether somebody is told of the end.
    pub fn is_armed(&self) -> bool {
        self.state.load(Ordering::Acquire) == ARMED
    }

    /// Has `watcher` told of the end, of a record that is kept; false if it has come. For the
    /// owner, who does so once and not from two threads at a time.
    pub fn arm(&self, watcher: Weak<Messenger>) -> bool {
        if self.state.load(Ordering::Acquire) != WAITING {
            return self.is_armed();
        }
        // SAFETY: not ARMED: nobody else looks at it.
        self.watcher.with_mut(|place| unsafe { *place = Some(watcher) });
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        self.state.compare_exchange(WAITING, ARMED, release, acquire).is_ok()
    }

    /// The outcome, once it is there. To be taken once.
    pub fn take(&self) -> Option<Result<Arrived>> {
        if !self.is_done() {
            return None;
        }
        // SAFETY: DONE: the engine no longer accesses it; requests serialise their owners.
        self.outcome.with_mut(|outcome| unsafe { (*outcome).take() })
    }

    /// The same, but for errors, which stay.
    #[inline(always)]
    pub fn take_arrived(&self) -> Option<Arrived> {
        if !self.is_done() {
            return None;
        }
        // SAFETY: as above. What is replaced has nothing to be dropped.
        self.outcome.with_mut(|outcome| unsafe {
            let Some(Ok(arrived)) = *outcome else { return None };
            outcome.write(None);
            Some(arrived)
        })
    }

    /// Whether a message of `bytes` bytes with elements of this code fits.
    ///
    /// # Errors
    /// [`Error::ElementSize`], [`Error::Truncated`].
    #[inline]
    pub fn admit(&self, arrived: Arrived, element: u8) -> Result<()> {
        let buffer = &self.buffer;
        if buffer.fits(arrived, element) { Ok(()) } else { Err(buffer.refuse(arrived, element)) }
    }
}

/// The engine's handle of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRef(NonNull<Record>);

// SAFETY: a reference to something Sync.
unsafe impl Send for RecordRef {}
// SAFETY: as above.
unsafe impl Sync for RecordRef {}

impl RecordRef {
    /// Gives a record to the engine.
    ///
    /// # Safety
    /// It stays where it is until it is done, or the engine says that it has it no more.
    pub unsafe fn new(record: &Record) -> RecordRef {
        RecordRef(NonNull::from(record))
    }

    /// The record, which is not done.
    #[inline(always)]
    pub fn get(&self) -> &Record {
        // SAFETY: promised at `new`; the engine forgets its handles of records that are done.
        unsafe { self.0.as_ref() }
    }

    /// Whether it is this one.
    pub fn is(&self, record: &Record) -> bool {
        std::ptr::eq(self.0.as_ptr(), record)
    }

    /// Ends the record: it is its owner's again, and may be gone when this returns.
    #[inline]
    pub fn finish(self, outcome: Result<Arrived>) {
        let record = self.get();
        // SAFETY: the record is not done, so the engine alone accesses these, and of the engine
        // only whoever took the handle out of where it was kept.
        let keep = unsafe {
            record.outcome.with_mut(|place| *place = Some(outcome));
            record.keep.with_mut(|keep| (*keep).take())
        };
        if keep.is_none() {
            // Nobody awaits it, and it may be gone with this store.
            return record.state.store(DONE, Ordering::Release);
        }
        if record.state.swap(DONE, Ordering::AcqRel) == ARMED {
            // SAFETY: `keep` keeps the record, and it was armed: the owner leaves this alone.
            let watcher = record.watcher.with_mut(|watcher| unsafe { (*watcher).take() });
            if let Some(messenger) = watcher.and_then(|watcher| watcher.upgrade()) {
                messenger.wake_later(std::ptr::from_ref(record).addr());
            }
        }
        drop(keep);
    }

    /// Copies a message that has come as a whole, and ends the record.
    #[inline]
    pub fn deliver(self, arrived: Arrived, element: u8, bytes: &[u8]) {
        let record = self.get();
        let outcome = record.admit(arrived, element).map(|()| {
            // SAFETY: the record is the engine's, and this thread took it out of the queue.
            unsafe { record.buffer.place.write(0, bytes) };
            arrived
        });
        self.finish(outcome);
    }

    /// As [`RecordRef::finish`], of a record whose memory others may still write to: neither it
    /// nor the memory is ever freed.
    pub fn leak(self) {
        // SAFETY: as in `finish`.
        let keep = self.get().keep.with_mut(|keep| unsafe { (*keep).take() });
        std::mem::forget(keep);
    }
}
