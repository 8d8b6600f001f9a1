//! Updates by a caller that keeps others waiting: of as many elements as are to be had soon.

use super::balance::cost;
use super::domain::{Domain, STRIPE, check_kind_aligned, kinds};
use super::element::Run;
use crate::base::{Error, Rank, Result};
use crate::layout::{Kind, Op};
#[cfg(test)]
use crate::shm::{lock::LockGuard, node::Node};
use std::time::Duration;

impl Domain {
    /// One for a caller that keeps others waiting: for the lock of a stripe it waits so long only,
    /// to the µs, then [`Domain::update_some`] stops and [`Domain::update_if_equal`] fails with
    /// [`Error::TimedOut`].
    pub fn with_patience(mut self, patience: Duration) -> Domain {
        self.patience = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Holds the lock of the stripe at an address of a part, as who is at work there does.
    #[cfg(test)]
    pub fn hold(&self, part: Rank, at: *const u8) -> LockGuard<'_, Node> {
        self.lock(self.stripe(part, at.addr()), true).unwrap()
    }

    /// As [`Domain::update`], in order, as far as the locks are to be had: returns how many elements
    /// are updated. The rest is for another call.
    ///
    /// # Errors
    /// As for [`Domain::update`].
    ///
    /// # Safety
    /// As for [`Domain::update`].
    #[expect(clippy::too_many_arguments, reason = "an operation has that many operands")]
    pub unsafe fn update_some(
        &self,
        part: Rank,
        kind: Kind,
        op: Op,
        at: *mut u8,
        count: usize,
        from: *const u8,
        result: Option<*mut u8>,
    ) -> Result<usize> {
        check_kind_aligned(kind, at)?;
        let (kinds, run) = (kinds(kind), Run { op, at, from, count, result });
        // SAFETY: the caller's.
        if unsafe { self.at_once(&kinds, run) } {
            return Ok(count);
        }
        let mut done = 0;
        while done < count {
            let stripe = (self.offset(at.addr()) + done * kinds.size) / STRIPE;
            let end = ((stripe + 1) * STRIPE - self.offset(at.addr())).div_ceil(kinds.size);
            let end = end.min(count);
            // SAFETY: done < end <= count.
            let here = unsafe { run.slice(kinds.size, done, end - done) };
            // SAFETY: the caller's.
            let rest = unsafe { self.natively_first(&kinds, here) };
            done = end - rest.count;
            if rest.count == 0 {
                continue;
            }
            let stripe = self.stripe(part, rest.at.addr());
            let guard = match self.try_lock(stripe) {
                Some(guard) => guard,
                None => match self.lock(stripe, kinds.native.is_some()) {
                    Ok(guard) => guard,
                    Err(Error::TimedOut { .. }) => return Ok(done),
                    Err(error) => return Err(error),
                },
            };
            // SAFETY: the caller's; the lock is held.
            unsafe { self.locked(&kinds, rest) };
            drop(guard);
            done = end;
            if count == 1 && kinds.native.is_some() {
                self.weigh(cost::NATIVE as i32 - cost::LOCK);
            }
        }
        Ok(done)
    }
}
