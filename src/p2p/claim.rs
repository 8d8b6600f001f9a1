//! Words by which two processes agree who has a buffer that a message names: it is read (or
//! written) by the peer, or taken back by its owner, never both.
//!
//! ```text
//!            take                 claim (the peer)
//!   FREE -----------> OPEN -------------------------> CLAIMED
//!    ^                  | withdraw (the owner)           |
//!    +------------------+<-------------------------------+ release (the owner, who was told
//!      next generation                                     that the copy is over)
//! ```
//! They lie in the owner's control block, which nobody else ever gets. A word's value is its
//! generation and its state, so a claim that comes late meets another generation.

use crate::base::Slot;
use crate::base::sync::{AtomicU64, Ordering};
use crate::shm::node::Node;
use crate::shm::segment::CLAIMS;
use std::sync::{Mutex, PoisonError};

const INDEX_BITS: u32 = 9;
const GENERATIONS: u64 = 1 << (32 - INDEX_BITS);

const _: () = assert!(CLAIMS == 1 << INDEX_BITS);

const FREE: u64 = 0;
const OPEN: u64 = 1;
const CLAIMED: u64 = 2;

/// Which of a process's own words are free.
#[derive(Debug)]
pub(super) struct Claims {
    free: Mutex<Vec<u32>>,
}

impl Default for Claims {
    fn default() -> Self {
        Claims { free: Mutex::new((0..CLAIMS as u32).rev().collect()) }
    }
}

/// The word of a name, and the generation that it names.
fn word(node: &Node, owner: Slot, name: u32) -> (&AtomicU64, u64) {
    let word = &node.rank_slot(owner).claims[name as usize & (CLAIMS - 1)];
    (word, u64::from(name >> INDEX_BITS))
}

fn value(generation: u64, state: u64) -> u64 {
    generation << 2 | state
}

impl Claims {
    fn give_back(&self, name: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(name & (CLAIMS as u32 - 1));
    }

    /// An open word: its name, for peers; `None` if all are in use.
    pub fn take(&self, node: &Node) -> Option<u32> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let (word, _) = word(node, node.slot(), index);
        let generation = (word.load(Ordering::Relaxed) >> 2) % GENERATIONS;
        // Release: whoever claims it sees the buffer as it is now.
        word.store(value(generation, OPEN), Ordering::Release);
        Some((generation as u32) << INDEX_BITS | index)
    }

    /// Takes an open word back; false if the peer has claimed it.
    pub fn withdraw(&self, node: &Node, name: u32) -> bool {
        let (word, generation) = word(node, node.slot(), name);
        let (open, next) = (value(generation, OPEN), value(generation + 1, FREE));
        let won = word.compare_exchange(open, next, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if won {
            self.give_back(name);
        }
        won
    }

    /// Ends a word, whatever its state: the copy is over, or nobody is left to make it.
    pub fn release(&self, node: &Node, name: u32) {
        let (word, generation) = word(node, node.slot(), name);
        word.store(value(generation + 1, FREE), Ordering::Release);
        self.give_back(name);
    }
}

/// Claims a word of `owner`'s; false if it was taken back.
pub(super) fn claim(node: &Node, owner: Slot, name: u32) -> bool {
    let (word, generation) = word(node, owner, name);
    let (open, claimed) = (value(generation, OPEN), value(generation, CLAIMED));
    word.compare_exchange(open, claimed, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Opens a claimed word again: nothing was copied after all.
pub(super) fn unclaim(node: &Node, owner: Slot, name: u32) {
    let (word, generation) = word(node, owner, name);
    word.store(value(generation, OPEN), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Deadline;

    #[test]
    fn a_word_is_claimed_or_taken_back_but_not_both_and_never_under_an_old_name() {
        let fd = Node::create_memory(1, 1 << 21).unwrap();
        let node = Node::attach(fd, Slot(0), Deadline::NEVER).unwrap();
        let claims = Claims::default();
        let name = claims.take(&node).unwrap();
        assert!(claim(&node, Slot(0), name) && !claims.withdraw(&node, name));
        assert!(!claim(&node, Slot(0), name));
        claims.release(&node, name);
        let again = claims.take(&node).unwrap();
        assert!(again != name && !claim(&node, Slot(0), name));
        assert!(claims.withdraw(&node, again) && !claim(&node, Slot(0), again));
        let all: Vec<u32> = std::iter::from_fn(|| claims.take(&node)).collect();
        assert_eq!(all.len(), CLAIMS);
        node.leave();
    }
}
