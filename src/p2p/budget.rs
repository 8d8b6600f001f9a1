//! What the pools of a process's endpoints may take together.

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Result, settings};

/// Bytes that the pools of all endpoints of a process may still take together.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    /// What the settings say.
    pub fn open() -> Result<Budget> {
        settings::EAGER_BYTES.bytes().map(|bytes| Budget(AtomicU64::new(bytes)))
    }

    /// Takes room for up to `count` buffers of `each` bytes: for how many.
    pub fn take(&self, count: u32, each: u64) -> u32 {
        let fit = |left: u64| u64::from(count).min(left / each.max(1));
        let less = |left: u64| Some(left - fit(left) * each);
        match self.0.try_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(left) | Err(left) => fit(left) as u32,
        }
    }

    pub fn give_back(&self, count: u32, each: u64) {
        self.0.fetch_add(u64::from(count) * each, Ordering::AcqRel);
    }
}
