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
//! They lie in a page of the owner's that is allocated at first use. A word's value is its
//! generation and its state, so a claim that comes late meets another generation.

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::{Offset, Result, Slot};
use crate::shm::map::PAGE;
use crate::shm::node::Node;
use crate::shm::region::{SharedLayout, SharedRef};
use std::sync::{Mutex, PoisonError};

const WORDS: usize = PAGE as usize / 8;
const INDEX_BITS: u32 = 9;
const GENERATIONS: u64 = 1 << (32 - INDEX_BITS);

const FREE: u64 = 0;
const OPEN: u64 = 1;
const CLAIMED: u64 = 2;

#[repr(C, align(64))]
struct Page {
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Page>() == PAGE as usize && WORDS == 1 << INDEX_BITS);

// SAFETY: repr(C), atomics only.
unsafe impl SharedLayout for Page {}

/// A process's own words.
#[derive(Debug, Default)]
pub(super) struct Claims {
    mine: Mutex<Mine>,
}

#[derive(Default)]
struct Mine {
    page: Option<SharedRef<Page>>,
    free: Vec<u32>,
    /// There is no memory for the page.
    failed: bool,
}

impl std::fmt::Debug for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mine").field("free", &self.free.len()).finish_non_exhaustive()
    }
}

fn value(generation: u64, state: u64) -> u64 {
    generation << 2 | state
}

impl Claims {
    fn with<R>(&self, f: impl FnOnce(&mut Mine) -> R) -> R {
        f(&mut self.mine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An open word: its name, for peers; `None` if all are in use or there is no memory.
    pub fn take(&self, node: &Node) -> Option<u32> {
        self.with(|mine| {
            if mine.page.is_none() && !mine.failed {
                mine.open(node).unwrap_or_else(|_| mine.failed = true);
            }
            let page = mine.page.as_ref()?;
            let index = mine.free.pop()?;
            let word = &page.words[index as usize];
            let generation = (word.load(Ordering::Relaxed) >> 2) % GENERATIONS;
            // Release: whoever claims it sees the buffer as it is now.
            word.store(value(generation, OPEN), Ordering::Release);
            Some((generation as u32) << INDEX_BITS | index)
        })
    }

    /// Takes an open word back; false if the peer has claimed it.
    pub fn withdraw(&self, name: u32) -> bool {
        self.with(|mine| {
            let Some((word, generation)) = mine.word(name) else { return true };
            let (open, next) = (value(generation, OPEN), value(generation + 1, FREE));
            let won = word.compare_exchange(open, next, Ordering::AcqRel, Ordering::Acquire);
            if won.is_ok() {
                mine.free.push(name & (WORDS as u32 - 1));
            }
            won.is_ok()
        })
    }

    /// Ends a word, whatever its state: the copy is over, or nobody is left to make it.
    pub fn release(&self, name: u32) {
        self.with(|mine| {
            if let Some((word, generation)) = mine.word(name) {
                word.store(value(generation + 1, FREE), Ordering::Release);
                mine.free.push(name & (WORDS as u32 - 1));
            }
        });
    }
}

impl Mine {
    fn open(&mut self, node: &Node) -> Result<()> {
        let at = node.claim_commons(PAGE)?;
        node.reserve(at, PAGE, "the words of this rank's large messages")?;
        self.page = Some(SharedRef::new(node.mapping(), at)?);
        self.free = (0..WORDS as u32).rev().collect();
        node.rank_slot(node.slot()).copying.claims.store(at.0, Ordering::Release);
        Ok(())
    }

    fn word(&self, name: u32) -> Option<(&AtomicU64, u64)> {
        let word = &self.page.as_ref()?.words[name as usize & (WORDS - 1)];
        Some((word, u64::from(name >> INDEX_BITS)))
    }
}

/// Claims a word of `owner`'s; false if it was taken back.
///
/// # Errors
/// There can be no such word.
pub(super) fn claim(node: &Node, owner: Slot, name: u32) -> Result<bool> {
    let at = node.rank_slot(owner).copying.claims.load(Ordering::Acquire);
    let page: SharedRef<Page> = SharedRef::new(node.mapping(), Offset(at))?;
    let word = &page.words[name as usize & (WORDS - 1)];
    let generation = u64::from(name >> INDEX_BITS);
    let (open, claimed) = (value(generation, OPEN), value(generation, CLAIMED));
    Ok(word.compare_exchange(open, claimed, Ordering::AcqRel, Ordering::Acquire).is_ok())
}

/// Opens a claimed word again: nothing was copied after all.
pub(super) fn unclaim(node: &Node, owner: Slot, name: u32) -> Result<()> {
    let at = node.rank_slot(owner).copying.claims.load(Ordering::Acquire);
    let page: SharedRef<Page> = SharedRef::new(node.mapping(), Offset(at))?;
    let generation = u64::from(name >> INDEX_BITS);
    page.words[name as usize & (WORDS - 1)].store(value(generation, OPEN), Ordering::Release);
    Ok(())
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
        assert!(claim(&node, Slot(0), name).unwrap() && !claims.withdraw(name));
        assert!(!claim(&node, Slot(0), name).unwrap());
        claims.release(name);
        let again = claims.take(&node).unwrap();
        assert!(again != name && !claim(&node, Slot(0), name).unwrap());
        assert!(claims.withdraw(again) && !claim(&node, Slot(0), again).unwrap());
        let all: Vec<u32> = std::iter::from_fn(|| claims.take(&node)).collect();
        assert_eq!(all.len(), WORDS);
        node.leave();
    }
}
