//! The order of one flow's messages of one peer, whichever way they come.
//!
//! ```text
//!   sender numbers messages    0 1 2 3 | 4 5 6 | 7 8      by datagrams | by a queue pair | ...
//!   receiver                   next = 2: 2 goes to the inbox, 5 is kept, 1 has been here before
//! ```
//! Each way keeps its own order, but not the other's; and what a queue pair may or may not have
//! delivered when it failed is sent again by datagrams. By their numbers messages come once, and in
//! order, all the same, and nobody waits while the way changes.

use super::batch::MOST;
use super::pairs::ROOM;
use super::stock::{LARGEST, SMALLEST};
use std::collections::BTreeMap;

/// Messages that are kept because one before them is missing, at most, of those that come by datagrams.
/// Senders keep to fewer: what they send by datagrams while a queue pair has messages under way
/// ([`AHEAD`]).
pub(super) const KEPT: usize = 1024;

/// The same of those that come by queue pairs: what may be under way by one of each class besides, as
/// one may follow the other while a datagram is missing. Senders cannot send more.
pub(super) const KEPT_OF_PAIRS: usize = KEPT + CLASSES * (ROOM * MOST) as usize;

/// Classes of queue pairs: the usual one, and those of `stock`.
const CLASSES: usize = 1 + (LARGEST.exponent() - SMALLEST.exponent() + 1) as usize;

/// Messages that a sender lets overtake those that a queue pair has under way.
pub(super) const AHEAD: u32 = 256;

/// What to do with a message that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It is the next one.
    Next,
    /// One before it is missing.
    Early,
    /// It has been here.
    Again,
    /// It is so early that there is no room for it.
    TooEarly,
}

/// See the [module](self). `M` is a message.
#[derive(Debug)]
pub(super) struct Order<M> {
    next: u64,
    early: BTreeMap<u64, M>,
}

impl<M> Order<M> {
    /// Nothing has come.
    pub fn new() -> Order<M> {
        Order { next: 0, early: BTreeMap::new() }
    }

    /// Where the message with this number belongs, if so many may be [`KEPT`].
    #[inline]
    pub fn place(&self, number: u64, kept: usize) -> Place {
        if number == self.next {
            Place::Next
        } else if number < self.next || self.early.contains_key(&number) {
            Place::Again
        } else if self.early.len() < kept {
            Place::Early
        } else {
            Place::TooEarly
        }
    }

    /// Takes the next message; `each` gets it, and those that have waited for it.
    #[inline]
    pub fn take(&mut self, message: M, mut each: impl FnMut(M)) {
        self.next += 1;
        each(message);
        while let Some(entry) = self.early.first_entry()
            && *entry.key() == self.next
        {
            each(entry.remove());
            self.next += 1;
        }
    }

    /// Keeps one that is early.
    pub fn keep(&mut self, number: u64, message: M) {
        self.early.insert(number, message);
    }

    /// Gives up what is kept: what is missing does not come any more.
    pub fn give_up(&mut self) {
        self.early.clear();
    }

    /// Whether something is kept.
    #[cfg(test)]
    pub fn waits(&self) -> bool {
        !self.early.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_overtakes_or_comes_again_all_come_once_and_in_order(
            mut numbers in prop::collection::vec(0u64..40, 0..200),
            seed: u64,
        ) {
            numbers.extend(0..40);
            // A shuffle by the seed.
            let mut state = seed | 1;
            for i in (1..numbers.len()).rev() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                numbers.swap(i, (state >> 33) as usize % (i + 1));
            }
            let (mut order, mut came) = (Order::new(), Vec::new());
            for number in numbers {
                match order.place(number, KEPT) {
                    Place::Next => order.take(number, |number| came.push(number)),
                    Place::Early => order.keep(number, number),
                    Place::Again => {}
                    Place::TooEarly => prop_assert!(false),
                }
            }
            prop_assert_eq!(came, (0..40).collect::<Vec<_>>());
            prop_assert!(!order.waits());
        }
    }

    #[test]
    fn a_sender_that_keeps_no_measure_finds_no_room_but_the_missing_one_does() {
        let mut order = Order::new();
        (1..=KEPT as u64).for_each(|number| {
            assert_eq!(order.place(number, KEPT), Place::Early);
            order.keep(number, number);
        });
        assert_eq!(order.place(KEPT as u64 + 1, KEPT), Place::TooEarly);
        assert_eq!(order.place(KEPT as u64 + 1, KEPT_OF_PAIRS), Place::Early);
        assert_eq!(order.place(3, KEPT), Place::Again);
        assert_eq!(order.place(0, KEPT), Place::Next);
        let mut count = 0;
        order.take(0, |_| count += 1);
        assert_eq!((count, order.waits()), (KEPT + 1, false));
    }

    #[test]
    fn what_is_missing_for_ever_is_given_up() {
        let mut order = Order::new();
        order.keep(5, 5);
        order.give_up();
        assert!(!order.waits());
        assert_eq!(order.place(5, KEPT), Place::Early);
    }
}
