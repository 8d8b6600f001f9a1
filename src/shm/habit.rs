//! How long ranks that share cores keep theirs while they wait: as long as that has paid lately, where
//! they wait.
//!
//! ```text
//!   who is waited for runs on another core now:  the answer is there in less than a change of processes
//!                                                takes, and whoever yields instead loses the company
//!   it stands in line for this core, or for one: nothing comes before the core is given up
//! ```
//! Which of the two it is depends on where the system has put the ranks, and on what they wait for (one
//! that is running too, or all of a team that is larger than the machine), and stays so for many waits.
//! So each place of waiting remembers: a credit that a wait adds to if the answer came while it kept its
//! core for [`Habits::PATIENCE`], and takes from if not. A gain weighs twice as much as a loss, since a
//! change of processes takes about twice as long as keeping the core did. Without credit one wait in
//! [`TRY_EVERY`] tries whether things have changed.
//!
//! Not for what a whole team has to do (barriers): where it shares cores, keeping one keeps others from
//! coming at all.

use super::park::WaitCell;
use crate::base::sync::{AtomicU32, Ordering, spin_hint};
use std::time::{Duration, Instant};

/// Places that are told apart: more share a credit, which costs time at worst.
const PLACES: usize = 16;
/// Most credit.
const MOST: u32 = 16;
/// What a wait gains.
const GAIN: u32 = 2;
/// Waits without credit for each that tries.
const TRY_EVERY: u32 = 16;
/// Polls between two looks at the clock.
const POLLS: u32 = 4;

/// The credit of some places of waiting, and waits since it was used up, in one word:
/// `since << 8 | credit`.
#[derive(Debug)]
pub(super) struct Habits {
    places: [AtomicU32; PLACES],
}

impl Habits {
    /// How long a wait keeps its core: less than a change to another process and back takes.
    pub const PATIENCE: Duration = Duration::from_micros(2);

    /// Of a process that has not waited yet: it tries.
    pub fn new() -> Habits {
        Habits { places: std::array::from_fn(|_| AtomicU32::new(MOST / 2)) }
    }

    fn place(&self, cell: &WaitCell) -> &AtomicU32 {
        let at = std::ptr::from_ref(cell).addr();
        &self.places[(at >> 6 ^ at >> 12) % PLACES]
    }

    /// Polls for [`Habits::PATIENCE`] if that has paid at `cell`.
    ///
    /// Cost beside the polls: a load and a store of a line of this process's.
    pub fn poll<R>(&self, cell: &WaitCell, poll: &mut impl FnMut() -> Option<R>) -> Option<R> {
        let place = self.place(cell);
        // Threads that wait at one place may overwrite each other's: what is learned later counts.
        let known = place.load(Ordering::Relaxed);
        let (credit, since) = (known & 0xff, known >> 8);
        if credit == 0 && since + 1 < TRY_EVERY {
            place.store((since + 1) << 8, Ordering::Relaxed);
            return None;
        }
        let come = poll_for(Habits::PATIENCE, poll);
        let credit = match come {
            Some(_) => (credit + GAIN).min(MOST),
            None => credit.saturating_sub(1),
        };
        if credit != known {
            place.store(credit, Ordering::Relaxed);
        }
        come
    }
}

fn poll_for<R>(time: Duration, poll: &mut impl FnMut() -> Option<R>) -> Option<R> {
    let start = Instant::now();
    loop {
        for _ in 0..POLLS {
            spin_hint();
            if let Some(value) = poll() {
                return Some(value);
            }
        }
        if start.elapsed() >= time {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Polls of a wait, of which `at` is the one that finds what it waits for.
    fn polls(habits: &Habits, cell: &WaitCell, at: Option<u32>) -> u32 {
        let count = Cell::new(0);
        let mut poll = || {
            count.set(count.get() + 1);
            (Some(count.get()) == at).then_some(())
        };
        assert_eq!(habits.poll(cell, &mut poll).is_some(), at.is_some_and(|at| at == count.get()));
        count.get()
    }

    #[test]
    fn what_does_not_pay_is_given_up_and_tried_now_and_then() {
        let (habits, cell) = (Habits::new(), WaitCell::new());
        let tried = |waits| (0..waits).filter(|_| polls(&habits, &cell, None) > 0).count();
        assert_eq!(tried(MOST / 2), MOST as usize / 2);
        assert_eq!(tried(10 * TRY_EVERY), 10);
    }

    #[test]
    fn one_gain_pays_for_two_losses() {
        let (habits, cell) = (Habits::new(), WaitCell::new());
        (0..MOST / 2).for_each(|_| assert!(polls(&habits, &cell, None) > 0));
        (0..TRY_EVERY - 1).for_each(|_| assert_eq!(polls(&habits, &cell, Some(1)), 0));
        assert_eq!(polls(&habits, &cell, Some(1)), 1, "it is tried, and comes at once");
        (0..GAIN).for_each(|_| assert!(polls(&habits, &cell, None) > 0));
        assert_eq!(polls(&habits, &cell, Some(1)), 0);
    }

    #[test]
    fn credit_has_a_limit() {
        let (habits, cell) = (Habits::new(), WaitCell::new());
        (0..1000).for_each(|_| assert_eq!(polls(&habits, &cell, Some(1)), 1));
        (0..MOST).for_each(|_| assert!(polls(&habits, &cell, None) > 0));
        assert_eq!(polls(&habits, &cell, None), 0);
    }
}
