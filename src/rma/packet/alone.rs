//! Threads of one process in the epoch of an exclusive lock: who reads and writes elements of the part is
//! alone there meanwhile.
//!
//! A lock for each part, not for the window: an operation on one part may wait for that part's grant, and
//! must not hold up threads that hold another part's lock.

use crate::base::Rank;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Those of the parts that this process has locked alone and operated on.
#[derive(Debug, Default)]
pub(super) struct Alone(Mutex<HashMap<u32, Arc<RwLock<()>>>>);

impl Alone {
    /// A part's lock.
    pub fn part(&self, target: Rank) -> Arc<RwLock<()>> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.entry(target.0).or_default().clone()
    }

    /// The epoch on a part is over.
    pub fn forget(&self, target: Rank) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&target.0);
    }
}
