//! Ranks that talk to each other and stand in line for one core, while there are others.
//!
//! Where ranks share cores the system keeps as many of them busy as it can, and knows nothing of who
//! talks to whom. Two that answer each other on one core take a change of processes for each message;
//! on two cores at the same time none, until another rank's turn comes. The system sees no reason to
//! part them: all cores are as busy. So one of them does.
//!
//! ```text
//!   a wait for one peer is about to give up its core:
//!     notes on which core it runs;  where did the peer run when it did the same?
//!       another core:  count = 0
//!       this one:      count += 1;  at SAME, if the own slot is the lower one and the last move is long
//!                      enough ago: the calling thread moves to the next core of those it may use
//! ```
//! The other one stays, or both would meet again. To move, a thread has itself bound to the one core for a
//! moment, then to all that it may use, as before: the system goes on to decide, and a thread that may
//! use one core only is left alone. Whoever moves often does so less and less often, for then it does not
//! help.

use crate::base::sync::{AtomicU32, Ordering};
use crate::topo::CpuSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Waits in a row whose peer was seen on the same core before one moves: what a move takes is what some
/// ten changes of processes take.
const SAME: u32 = 64;
/// Least time between two moves, which is doubled by each that comes within [`FORGOTTEN`] times that.
const SOONEST: Duration = Duration::from_millis(4);
/// Most of it.
const LATEST: Duration = Duration::from_millis(128);
/// See [`SOONEST`].
const FORGOTTEN: u32 = 8;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Aside {
    same: AtomicU32,
    moves: Mutex<Moves>,
}

/// When the last move was, and how long none follows it.
#[derive(Clone, Debug, Default)]
struct Moves {
    last: Option<Instant>,
    rest: Duration,
    /// The system refuses: not to be asked again.
    refused: bool,
}

impl Moves {
    /// Whether one may move now; then it counts as done.
    fn may(&mut self, now: Instant) -> bool {
        let Some(last) = self.last else {
            (self.last, self.rest) = (Some(now), SOONEST);
            return true;
        };
        let since = now.saturating_duration_since(last);
        if since < self.rest {
            return false;
        }
        let again = since < self.rest * FORGOTTEN;
        self.rest = if again { (self.rest * 2).min(LATEST) } else { SOONEST };
        self.last = Some(now);
        true
    }
}

impl Aside {
    /// A wait is about to give up its core, and what it waits for is to come from a process whose threads
    /// were last seen `there`, those of this one `here`. `lower`: it is this one that moves if one does.
    ///
    /// Cost: asking for the number of the core (no system call), and a load of a word of each of the two,
    /// which change only with their cores.
    pub fn look(&self, here: &AtomicU32, there: &AtomicU32, lower: bool) {
        let core = rustix::thread::sched_getcpu() as u32;
        if self.meets(core, here, there) && lower {
            self.step(core);
        }
    }

    /// Notes where this process runs; whether the peer has been there for [`SAME`] waits.
    fn meets(&self, core: u32, here: &AtomicU32, there: &AtomicU32) -> bool {
        let seen = core.wrapping_add(1);
        if here.load(Ordering::Relaxed) != seen {
            here.store(seen, Ordering::Relaxed);
        }
        let before = self.same.load(Ordering::Relaxed);
        let same = if there.load(Ordering::Relaxed) == seen { before + 1 } else { 0 };
        if same != before {
            // Of threads that count at once some may be lost.
            self.same.store(same % SAME, Ordering::Relaxed);
        }
        same == SAME
    }

    #[cold]
    fn step(&self, core: u32) {
        // A thread that is at it is enough.
        let Ok(mut moves) = self.moves.try_lock() else { return };
        if moves.refused || !moves.may(Instant::now()) {
            return;
        }
        moves.refused = step_from(core).is_none();
    }
}

/// Moves the calling thread from `core` to the next one that it may use; nothing if there is none, or
/// the system does not let it.
fn step_from(core: u32) -> Option<()> {
    let may = CpuSet::of_thread().ok()?;
    let other =
        may.iter().find(|cpu| *cpu > core).or_else(|| may.iter().find(|cpu| *cpu != core))?;
    CpuSet::from_iter([other]).apply().ok()?;
    may.apply().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_moves_often_rests_for_longer_until_it_has_not_for_long() {
        let (mut moves, mut now) = (Moves::default(), Instant::now());
        let mut rests = Vec::new();
        for _ in 0..12 {
            assert!(moves.may(now) && !moves.may(now));
            let before = now;
            while !{
                now += SOONEST / 2;
                moves.clone().may(now)
            } {}
            rests.push(now - before);
        }
        assert_eq!(rests[0], SOONEST);
        assert!(rests.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(LATEST)), "{rests:?}");
        now += LATEST * FORGOTTEN;
        assert!(moves.may(now) && !moves.may(now) && moves.may(now + SOONEST));
    }

    #[test]
    fn a_thread_moves_and_may_go_everywhere_afterwards() {
        std::thread::spawn(|| {
            let may = CpuSet::of_thread().unwrap();
            let one = may.first().unwrap();
            if may.len() > 1 {
                assert_eq!(step_from(one), Some(()));
                assert_eq!(CpuSet::of_thread().unwrap(), may);
            }
            CpuSet::from_iter([one]).apply().unwrap();
            assert_eq!(step_from(one), None, "there is no other");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn only_waits_in_a_row_on_one_core_count() {
        let aside = Aside::default();
        let (here, there) = (AtomicU32::new(0), AtomicU32::new(0));
        assert!((0..2 * SAME).all(|_| !aside.meets(0, &here, &there)), "the peer was never seen");
        there.store(1, Ordering::Relaxed);
        for _ in 0..3 {
            assert!((1..SAME).all(|_| !aside.meets(0, &here, &there)));
            assert!(!aside.meets(1, &here, &there), "here now on another core");
        }
        for _ in 0..3 {
            assert!((1..SAME).all(|_| !aside.meets(0, &here, &there)));
            assert!(aside.meets(0, &here, &there));
        }
        assert_eq!(here.load(Ordering::Relaxed), 1);
    }
}
