//! Which parts this process may access itself at present, where epochs are synchronised by packets:
//! a bit for each member on this node. Set once the engine has said so, cleared before the end of the
//! epoch is asked for.

use crate::base::Rank;
use crate::base::sync::{AtomicU64, Ordering};
use crate::coll::Team;

/// See the module.
#[derive(Debug)]
pub(super) struct Reached(Box<[AtomicU64]>);

impl Reached {
    /// None is reached. `members`: how many there can be.
    pub fn new(members: u32) -> Reached {
        Reached((0..members.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, team: &Team, target: Rank) -> Option<(&AtomicU64, u64)> {
        let number = team.local_of(target)?;
        Some((self.0.get(number as usize / 64)?, 1 << (number % 64)))
    }

    /// Whether a part may be accessed.
    #[inline]
    pub fn has(&self, team: &Team, target: Rank) -> bool {
        // What the one who set it had heard of happened before.
        self.place(team, target).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    pub fn insert(&self, team: &Team, target: Rank) {
        if let Some((word, bit)) = self.place(team, target) {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    pub fn remove(&self, team: &Team, target: Rank) {
        if let Some((word, bit)) = self.place(team, target) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
