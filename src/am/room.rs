//! How much of a target's memory origins have without asking, and how much they share.
//!
//! ```text
//!   few origins     | system | system | system |                   one each; no more than the total
//!   many origins    |own|own|own|own| ... |own|      shared      | half of the total each way
//! ```
//! What a target keeps for origins does not grow with their number beyond a total. Where a whole
//! system buffer for each would be more, each has a smaller one, and the rest is one buffer in which
//! they reserve room as in those that the program attaches ([`super::buffers`]): first come, first
//! served, so nobody waits for ever. Both sides work this out from what the members have settled on
//! ([`super::budget`]).

use super::buffers::{GRAIN, rounded};

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes that each origin has to itself.
    pub own: u64,
    /// Bytes that all share; none while there is a whole system buffer for each.
    pub shared: u64,
}

impl Room {
    /// For `origins` origins that are to have `system` bytes each, but no more than `total`
    /// together. What is shared holds whatever fits into a whole system buffer, whatever the total.
    pub fn of(system: u64, total: u64, origins: u32) -> Room {
        let (system, origins) = (rounded(system), u64::from(origins.max(1)));
        if system.checked_mul(origins).is_some_and(|all| all <= total) {
            return Room { own: system, shared: 0 };
        }
        let own = (total / 2 / origins / GRAIN * GRAIN).min(system);
        let shared = (total - own * origins) / GRAIN * GRAIN;
        Room { own, shared: shared.max(system) }
    }

    /// All of it.
    pub fn bytes(&self, origins: u32) -> u64 {
        self.own.saturating_mul(origins.into()).saturating_add(self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_total_holds_and_nobody_gets_less_than_he_could(
            system in 1u64..1 << 20,
            total in 1u64..1 << 30,
            origins in 1u32..100_000,
        ) {
            let Room { own, shared } = Room::of(system, total, origins);
            let (whole, all) = (rounded(system), own * u64::from(origins) + shared);
            prop_assert!(own.is_multiple_of(GRAIN) && shared.is_multiple_of(GRAIN));
            prop_assert!(own <= whole);
            if whole * u64::from(origins) <= total {
                prop_assert_eq!((own, shared), (whole, 0));
            } else {
                // One system buffer is always there.
                prop_assert!(all <= total.max(total / 2 + whole), "{own} {shared}");
                prop_assert!(shared >= whole);
                let next = (own + GRAIN) * u64::from(origins);
                prop_assert!(next > total / 2 || own == whole, "{own} could be more");
            }
        }
    }

    #[test]
    fn beyond_all_memory() {
        let room = Room::of(1 << 40, 64 << 20, u32::MAX);
        assert_eq!(room, Room { own: 0, shared: 1 << 40 });
        assert_eq!(Room::of(u64::MAX, u64::MAX, 1).shared, 0);
    }
}
