//! What is kept for each peer, by peer: grows with the peers that are talked to, not with the ranks
//! there are. Lookups take no lock and write nothing.
//!
//! ```text
//! current -> Buckets { [peer 7] [ ] [peer 3] ... }   open addressing, at most half full
//! older   -> outgrown Buckets, kept until the table is dropped, since readers may be in them
//! ```
//! What is in it is never removed, so a pointer once found stays good for as long as the table;
//! the outgrown buckets together are smaller than the current ones.

use crate::base::Slot;
use crate::base::sync::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What belongs to one peer.
pub(super) trait OfPeer: Send + Sync {
    /// Whose it is.
    fn peer(&self) -> Slot;
}

struct Buckets<T>(Box<[AtomicPtr<T>]>);

impl<T: OfPeer> Buckets<T> {
    fn new(count: usize) -> Buckets<T> {
        Buckets((0..count).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect())
    }

    /// The bucket that holds `peer`, or the empty one where it belongs.
    #[inline]
    fn find(&self, peer: Slot) -> (&AtomicPtr<T>, *mut T) {
        let mask = self.0.len() - 1;
        let hash = u32::from(peer.0).wrapping_mul(0x9e37_79b1);
        let mut at = (hash >> 16) as usize & mask;
        loop {
            let bucket = &self.0[at];
            let found = bucket.load(Ordering::Acquire);
            // SAFETY: a non-null pointer was published with Release after its target was complete,
            // and that lives as long as the table.
            if found.is_null() || unsafe { (*found).peer() } == peer {
                return (bucket, found);
            }
            at = (at + 1) & mask;
        }
    }
}

/// See the [module](self).
pub(super) struct Table<T: OfPeer> {
    current: AtomicPtr<Buckets<T>>,
    growth: Mutex<Growth<T>>,
}

struct Growth<T> {
    /// Every Buckets there has been; the last one is the current one.
    all: Vec<*mut Buckets<T>>,
    entries: Vec<Arc<T>>,
}

// SAFETY: the pointers own what they point to, of which nothing but the entries' addresses is used;
// the entries are Send and Sync.
unsafe impl<T: OfPeer> Send for Growth<T> {}

impl<T: OfPeer> Table<T> {
    pub fn new() -> Table<T> {
        let first = Box::into_raw(Box::new(Buckets::new(8)));
        let growth = Mutex::new(Growth { all: vec![first], entries: Vec::new() });
        Table { current: AtomicPtr::new(first), growth }
    }

    fn growth(&self) -> MutexGuard<'_, Growth<T>> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buckets(&self) -> &Buckets<T> {
        // SAFETY: `current` always points to Buckets in `growth.all`, freed only by drop.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// What there is for `peer`.
    #[inline]
    pub fn get(&self, peer: Slot) -> Option<&T> {
        let (_, found) = self.buckets().find(peer);
        // SAFETY: as in `find`.
        unsafe { found.as_ref() }
    }

    /// What there is for `peer`, made by `make` if there is nothing.
    #[cold]
    pub fn insert<E>(&self, peer: Slot, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let made = self.insert_shared(peer, make)?;
        // SAFETY: the table keeps it for as long as itself.
        Ok(unsafe { &*Arc::as_ptr(&made) })
    }

    /// The same, to be kept.
    #[cold]
    pub fn insert_shared<E>(
        &self,
        peer: Slot,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut growth = self.growth();
        if let Some(there) = growth.entries.iter().find(|entry| entry.peer() == peer) {
            return Ok(there.clone());
        }
        let made = Arc::new(make()?);
        growth.entries.push(made.clone());
        let address = |entry: &Arc<T>| Arc::as_ptr(entry).cast_mut();
        let buckets = self.buckets();
        if growth.entries.len() * 2 > buckets.0.len() {
            let larger = Buckets::new(buckets.0.len() * 2);
            for entry in &growth.entries {
                larger.find(entry.peer()).0.store(address(entry), Ordering::Relaxed);
            }
            let larger = Box::into_raw(Box::new(larger));
            growth.all.push(larger);
            self.current.store(larger, Ordering::Release);
        } else {
            buckets.find(peer).0.store(address(&made), Ordering::Release);
        }
        Ok(made)
    }

    /// Runs `f` on everything.
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        self.growth().entries.iter().for_each(|entry| f(entry));
    }
}

impl<T: OfPeer> Drop for Table<T> {
    fn drop(&mut self) {
        let growth = self.growth.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every pointer came from Box::into_raw and is freed once; nobody else has a
        // reference, since `self` is exclusive.
        growth.all.drain(..).for_each(|buckets| drop(unsafe { Box::from_raw(buckets) }));
    }
}
