//! What is to be copied, or done, by whoever makes progress next: in order, but what a peer waits for goes
//! ahead of whole messages.
//!
//! A piece that is to be filled or emptied takes some microseconds, and its other side has nothing to do
//! meanwhile if it waits for both; a message that the kernel copies takes up to milliseconds, and its sender
//! can do nothing about it.

use super::transfer::Due;
use crate::base::Slot;
use std::collections::VecDeque;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Dues {
    pulls: VecDeque<Due>,
    others: VecDeque<Due>,
}

impl Dues {
    pub fn push(&mut self, due: Due) {
        let queue = if due.is_pull() { &mut self.pulls } else { &mut self.others };
        queue.push_back(due);
    }

    pub fn pop(&mut self) -> Option<Due> {
        self.others.pop_front().or_else(|| self.pulls.pop_front())
    }

    /// How many announced messages of `from`'s are due next, up to `most`.
    pub fn pulls_of(&self, from: Slot, most: usize) -> usize {
        let its = |due: &&Due| matches!(due, Due::Pull { from: of, .. } if *of == from);
        self.pulls.iter().take(most).take_while(its).count()
    }
}
