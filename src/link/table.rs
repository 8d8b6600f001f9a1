//! The table of virtual connections: grows with the peers that are talked to, not with the ranks
//! there are. Lookups take no lock and write nothing.
//!
//! ```text
//! current -> Buckets { [peer 7] [ ] [peer 3] ... }   open addressing, at most half full
//! older   -> outgrown Buckets, kept until the table is dropped, since readers may be in them
//! ```
//! Connections are never removed, so a pointer once found stays good for as long as the table;
//! the outgrown buckets together are smaller than the current ones.

use super::vc::Vc;
use crate::base::Slot;
use crate::base::sync::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Buckets(Box<[AtomicPtr<Vc>]>);

impl Buckets {
    fn new(count: usize) -> Buckets {
        Buckets((0..count).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect())
    }

    /// The bucket that holds `peer`, or the empty one where it belongs.
    #[inline]
    fn find(&self, peer: Slot) -> (&AtomicPtr<Vc>, *mut Vc) {
        let mask = self.0.len() - 1;
        let hash = u32::from(peer.0).wrapping_mul(0x9e37_79b1);
        let mut at = (hash >> 16) as usize & mask;
        loop {
            let bucket = &self.0[at];
            let vc = bucket.load(Ordering::Acquire);
            // SAFETY: a non-null pointer was published with Release after its Vc was complete,
            // and Vcs live as long as the table.
            if vc.is_null() || unsafe { (*vc).peer() } == peer {
                return (bucket, vc);
            }
            at = (at + 1) & mask;
        }
    }
}

/// See the [module](self).
pub(super) struct VcTable {
    current: AtomicPtr<Buckets>,
    growth: Mutex<Growth>,
}

struct Growth {
    /// Every Buckets there has been; the last one is the current one.
    all: Vec<*mut Buckets>,
    vcs: Vec<*mut Vc>,
}

// SAFETY: the pointers own what they point to; Buckets and Vc are Send and Sync.
unsafe impl Send for Growth {}

impl VcTable {
    pub fn new() -> VcTable {
        let first = Box::into_raw(Box::new(Buckets::new(8)));
        let growth = Mutex::new(Growth { all: vec![first], vcs: Vec::new() });
        VcTable { current: AtomicPtr::new(first), growth }
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buckets(&self) -> &Buckets {
        // SAFETY: `current` always points to Buckets in `growth.all`, freed only by drop.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The connection to `peer`, if there is one.
    #[inline]
    pub fn get(&self, peer: Slot) -> Option<&Vc> {
        let (_, vc) = self.buckets().find(peer);
        // SAFETY: as in `find`.
        unsafe { vc.as_ref() }
    }

    /// The connection to `peer`, made by `make` if there is none.
    #[cold]
    pub fn insert<E>(&self, peer: Slot, make: impl FnOnce() -> Result<Vc, E>) -> Result<&Vc, E> {
        let mut growth = self.growth();
        if let Some(vc) = self.get(peer) {
            return Ok(vc);
        }
        let vc = Box::into_raw(Box::new(make()?));
        growth.vcs.push(vc);
        let buckets = self.buckets();
        if growth.vcs.len() * 2 > buckets.0.len() {
            let larger = Buckets::new(buckets.0.len() * 2);
            for &vc in &growth.vcs {
                // SAFETY: just made, or as in `find`.
                let peer = unsafe { (*vc).peer() };
                larger.find(peer).0.store(vc, Ordering::Relaxed);
            }
            let larger = Box::into_raw(Box::new(larger));
            growth.all.push(larger);
            self.current.store(larger, Ordering::Release);
        } else {
            buckets.find(peer).0.store(vc, Ordering::Release);
        }
        // SAFETY: just made.
        Ok(unsafe { &*vc })
    }

    /// Runs `f` on every connection.
    pub fn for_each(&self, mut f: impl FnMut(&Vc)) {
        for &vc in &self.growth().vcs {
            // SAFETY: as in `find`.
            f(unsafe { &*vc });
        }
    }
}

impl Drop for VcTable {
    fn drop(&mut self) {
        let growth = self.growth.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every pointer came from Box::into_raw and is freed once; nobody else has a
        // reference, since `self` is exclusive.
        unsafe {
            growth.all.drain(..).for_each(|b| drop(Box::from_raw(b)));
            growth.vcs.drain(..).for_each(|v| drop(Box::from_raw(v)));
        }
    }
}
