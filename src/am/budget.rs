//! What all windows of a process together give origins that send without asking.
//!
//! ```text
//!   |  first window  | second |third|..                 left  |    each may have half of what is left
//!   |<------- claimed ------------->|                         |    when it comes, takes what it needs
//!   |<------------------------ total ------------------------>|    of that, and gives it back
//! ```
//! The members of a window settle on the least that one of them can offer, so an origin never counts
//! on more than its target has. Nothing is moved between windows later on: room that a window had to
//! wait for until another one's epoch ends could never come.

use crate::base::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    /// Half of what is left of `total` bytes.
    pub fn claim(self: &Arc<Budget>, total: u64) -> Claim {
        let half = |claimed: u64| total.saturating_sub(claimed) / 2;
        let more = |claimed: u64| Some(claimed.saturating_add(half(claimed)));
        // The closure never refuses.
        let (Ok(before) | Err(before)) =
            self.0.try_update(Ordering::AcqRel, Ordering::Acquire, more);
        Claim { budget: self.clone(), bytes: half(before) }
    }

    /// What windows have at present.
    #[cfg(test)]
    pub(super) fn claimed(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A window's part, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Claim {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it `bytes`: what the window takes in the end. More than was claimed is what a window
    /// cannot do without.
    pub fn keep(&mut self, bytes: u64) {
        let change = |claimed: u64| Some(claimed.saturating_sub(self.bytes).saturating_add(bytes));
        let _ = self.budget.0.try_update(Ordering::AcqRel, Ordering::Acquire, change);
        self.bytes = bytes;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::am::room::Room;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_that_come_and_go_stay_within_the_total(
            total in 0u64..1 << 24,
            windows in proptest::collection::vec((1u64..1 << 16, 1u32..64, any::<bool>()), 1..80),
        ) {
            let budget = Arc::new(Budget::default());
            let mut open = Vec::new();
            for (system, origins, leave) in windows {
                let mut claim = budget.claim(total);
                // Somebody else may have less.
                let offer = if leave { claim.bytes() / 3 } else { claim.bytes() };
                let room = Room::of(system, offer, origins);
                claim.keep(room.bytes(origins));
                open.push((claim, room.bytes(origins), room.shared));
                if leave && open.len() > 2 {
                    open.swap_remove(open.len() / 2);
                }
                let sum: u64 = open.iter().map(|(_, bytes, _)| bytes).sum();
                prop_assert_eq!(budget.claimed(), sum);
                // Beyond the total only what holds one whole system buffer, where there is no room
                // for it otherwise.
                let needed: u64 = open.iter().map(|(_, _, shared)| shared).sum();
                prop_assert!(sum <= total + needed, "{sum} of {total}, {needed}");
            }
            drop(open);
            prop_assert_eq!(budget.claimed(), 0);
        }
    }

    #[test]
    fn nothing_overflows() {
        let budget = Arc::new(Budget::default());
        let mut first = budget.claim(u64::MAX);
        first.keep(u64::MAX);
        let second = budget.claim(u64::MAX);
        assert_eq!((first.bytes(), second.bytes()), (u64::MAX, 0));
        drop(first);
        assert_eq!(budget.claimed(), 0);
    }

    #[test]
    fn claims_at_the_same_time_do_not_share() {
        let budget = Arc::new(Budget::default());
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let each = || {
                let budget = budget.clone();
                scope.spawn(move || (0..4).map(|_| budget.claim(1 << 20)).collect::<Vec<_>>())
            };
            let all: Vec<_> = (0..4).map(|_| each()).collect();
            all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut sizes: Vec<u64> = claims.iter().map(Claim::bytes).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let halves: Vec<u64> = (1..=16).map(|k| (1 << 20) >> k).collect();
        assert_eq!(sizes, halves);
    }
}
