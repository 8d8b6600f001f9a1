//! Words by which two processes agree who has a buffer that a message names: it is read (or
//! written) by the peer, or taken back by its owner, never both.
//!
//! ```text
//!            take                 claim (the peer)
//!   FREE -----------> OPEN -------------------------> CLAIMED
//!    ^            leave |^ attend     ^                  |
//!    |                  v|            | unless it yields |
//!    |               ATTENDED --------+                  |
//!    |                  | withdraw (the owner)           |
//!    +------------------+<-------------------------------+ release (the owner, who was told
//!      next generation                                     that the copy is over)
//! ```
//! ATTENDED is OPEN, but a thread of the owner's waits awake for the message. If the owner receives, a
//! peer that would have to ask the kernel for a copy which the owner can make without yields to it; if it
//! sends, a receiver that waits as well asks for the message in pieces instead (see `awake`).
//!
//! They lie in the owner's control block, which nobody else ever gets. A word's value is its
//! generation and its state, so a claim that comes late meets another generation.

use super::words::Claim;
use crate::base::{Slot, prefetch};
use crate::shm::node::Node;
use crate::shm::segment::CLAIMS;
use std::sync::{Mutex, PoisonError};

const INDEX_BITS: u32 = 9;
const GENERATIONS: u64 = 1 << (32 - INDEX_BITS);

const _: () = assert!(CLAIMS == 1 << INDEX_BITS);

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

/// The word of a name, in the generation that it names.
fn named(node: &Node, owner: Slot, name: u32) -> Claim<'_> {
    let word = &node.rank_slot(owner).claims[name as usize & (CLAIMS - 1)];
    Claim { word, generation: u64::from(name >> INDEX_BITS) }
}

impl Claims {
    fn give_back(&self, name: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(name & (CLAIMS as u32 - 1));
    }

    /// An open word: its name, for peers; `None` if all are in use.
    pub fn take(&self, node: &Node) -> Option<u32> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let opened = Claim::open(named(node, node.slot(), index).word, GENERATIONS);
        Some((opened.generation as u32) << INDEX_BITS | index)
    }

    /// Takes an open word back; false if the peer has claimed it.
    pub fn withdraw(&self, node: &Node, name: u32) -> bool {
        let won = named(node, node.slot(), name).withdraw();
        if won {
            self.give_back(name);
        }
        won
    }

    /// Ends a word, whatever its state: the copy is over, or nobody is left to make it.
    pub fn release(&self, node: &Node, name: u32) {
        named(node, node.slot(), name).release();
        self.give_back(name);
    }
}

/// Says of an own word that a thread waits awake for what is to come.
pub(super) fn attend(node: &Node, name: u32) {
    named(node, node.slot(), name).attend();
}

/// Ends [`attend`].
pub(super) fn leave(node: &Node, name: u32) {
    named(node, node.slot(), name).leave();
}

/// Has the processor fetch a word of `owner`'s that will be claimed soon.
pub(super) fn ask_for(node: &Node, owner: Slot, name: u32) {
    prefetch::to_write(named(node, owner, name).word);
}

/// Whether the owner of a word waits awake, as it says.
pub(super) fn is_attended(node: &Node, owner: Slot, name: u32) -> bool {
    named(node, owner, name).is_attended()
}

/// Claims a word of `owner`'s; false if it was taken back, or is attended and the caller would
/// rather `yield_to` the owner then.
pub(super) fn claim(node: &Node, owner: Slot, name: u32, yield_to: bool) -> bool {
    named(node, owner, name).claim(yield_to)
}

/// Opens a claimed word again: nothing was copied after all.
pub(super) fn unclaim(node: &Node, owner: Slot, name: u32) {
    named(node, owner, name).unclaim();
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
        assert!(claim(&node, Slot(0), name, false) && !claims.withdraw(&node, name));
        assert!(!claim(&node, Slot(0), name, false));
        claims.release(&node, name);
        let again = claims.take(&node).unwrap();
        assert!(again != name && !claim(&node, Slot(0), name, false));
        assert!(claims.withdraw(&node, again) && !claim(&node, Slot(0), again, false));
        let attended = claims.take(&node).unwrap();
        attend(&node, attended);
        assert!(!claim(&node, Slot(0), attended, true), "its owner is there");
        leave(&node, attended);
        assert!(claim(&node, Slot(0), attended, true));
        claims.release(&node, attended);
        let attended = claims.take(&node).unwrap();
        attend(&node, attended);
        assert!(claims.withdraw(&node, attended) && !claim(&node, Slot(0), attended, false));
        let all: Vec<u32> = std::iter::from_fn(|| claims.take(&node)).collect();
        assert_eq!(all.len(), CLAIMS);
        node.leave();
    }
}
