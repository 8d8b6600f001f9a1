//! Ranks that talk to each other and stand in line for one core, while there are others.
//!
//! Where ranks share cores the system keeps as many of them busy as it can, and knows nothing of who
//! talks to whom. Two that answer each other on one core take a change of processes for each message;
//! on two cores at the same time none, until another rank's turn comes. The system sees no reason to
//! part them: all cores are as busy. So one of them does.
//!
//! ```text
//!   a wait for one peer is about to give up its core:
//!     notes on which core it runs;  where has the peer been when it did the same, since this one's last wait?
//!       another core, or it has not waited:         count = 0
//!       this one, but much was done between waits:  count -= MUCH
//!       this one:      count += 1;  at SAME, if the own slot is the lower one and the last move is long
//!                      enough ago: the calling thread moves to the next core of those it may use
//! ```
//! Who does much between two waits (copies large messages, or many) loses little by a change of processes for
//! each; and what the two exchange is in one core's caches, from where another core would have to fetch it.
//!
//! The other one stays, or both would meet again. To move, a thread has itself bound to the one core for a
//! moment, then to all that it may use, as before: the system goes on to decide, and a thread that may
//! use one core only is left alone. Whoever moves often does so less and less often, for then it does not
//! help.

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::topo::CpuSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Waits in a row whose peer was seen on the same core before one moves: what a move takes is what some
/// ten changes of processes take.
const SAME: u32 = 64;
/// What is done between two of them at most, polls at the beginning of a wait included (2 µs where a pause is long):
/// less than copies of 64 KiB there and back take.
const LITTLE: Duration = Duration::from_micros(3);
/// What one that comes after more takes from their number: some do among messages there and back, after an
/// interruption, or the patience of `habit`.
const MUCH: u32 = 4;
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
    /// The peer's note at the last wait.
    noted: AtomicU32,
    /// When the last wait that counted was over, in nanoseconds since `start`; zero: none since.
    back: AtomicU64,
    start: Start,
    moves: Mutex<Moves>,
}

#[derive(Debug)]
struct Start(Instant);

impl Default for Start {
    fn default() -> Start {
        Start(Instant::now())
    }
}

/// A process's note of the core it was on when it gave it up, which says something else each time:
/// `count << 16 | core + 1`.
mod note {
    const COUNTED: u32 = 1 << 16;

    pub fn next(last: u32, core: u32) -> u32 {
        (last & !(COUNTED - 1)).wrapping_add(COUNTED) | (core + 1) & (COUNTED - 1)
    }

    pub fn is_of(note: u32, core: u32) -> bool {
        note & (COUNTED - 1) == (core + 1) & (COUNTED - 1)
    }
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
    /// noted `there` when they last did, those of this one `here`. `lower`: it is this one that moves if one does.
    /// Whether the end of the wait is of interest: [`Aside::back`].
    ///
    /// Cost: asking for the number of the core (no system call), a store to this process's word and a load of the
    /// peer's; while both are on one core, a look at the clock.
    pub fn look(&self, here: &AtomicU32, there: &AtomicU32, lower: bool) -> bool {
        let core = rustix::thread::sched_getcpu() as u32;
        let met = self.meets(core, here, there, || self.start.0.elapsed());
        if met == Some(SAME) && lower {
            self.step(core);
        }
        met.is_some()
    }

    /// The wait is over.
    pub fn back(&self) {
        self.note_back(self.start.0.elapsed());
    }

    fn note_back(&self, now: Duration) {
        self.back.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Notes where this process runs; if the peer is on the same core, for how many waits in a row, [`SAME`] at most.
    ///
    /// Threads may overwrite each other's: some waits are lost, or count for more than they should.
    fn meets(
        &self,
        core: u32,
        here: &AtomicU32,
        there: &AtomicU32,
        now: impl FnOnce() -> Duration,
    ) -> Option<u32> {
        here.store(note::next(here.load(Ordering::Relaxed), core), Ordering::Relaxed);
        let note = there.load(Ordering::Relaxed);
        let old = self.noted.swap(note, Ordering::Relaxed);
        if note == old || !note::is_of(note, core) {
            self.same.store(0, Ordering::Relaxed);
            self.back.store(0, Ordering::Relaxed);
            return None;
        }
        let back = Duration::from_nanos(self.back.swap(0, Ordering::Relaxed));
        let little = !back.is_zero() && now().saturating_sub(back) <= LITTLE;
        let before = self.same.load(Ordering::Relaxed);
        let same = if little { before + 1 } else { before.saturating_sub(MUCH) };
        self.same.store(same % SAME, Ordering::Relaxed);
        Some(same)
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

    /// Two processes that wait for each other.
    struct Two {
        aside: Aside,
        here: AtomicU32,
        there: AtomicU32,
        now: Duration,
    }

    impl Two {
        fn new() -> Two {
            let now = Duration::from_secs(1);
            Two { aside: Aside::default(), here: 0.into(), there: 0.into(), now }
        }

        fn peer_waits(&self, core: u32) {
            self.there
                .store(note::next(self.there.load(Ordering::Relaxed), core), Ordering::Relaxed);
        }

        /// Waits on `core` after having been busy for so long; whether it would move.
        fn waits(&mut self, core: u32, busy: Duration) -> bool {
            self.now += busy;
            let met = self.aside.meets(core, &self.here, &self.there, || self.now);
            self.now += Duration::from_micros(30);
            if met.is_some() {
                self.aside.note_back(self.now);
            }
            met == Some(SAME)
        }
    }

    /// One wait more than count: nothing is known of the time before the first.
    fn never(mut wait: impl FnMut() -> bool) -> bool {
        (0..SAME).all(|_| !wait())
    }

    #[test]
    fn only_waits_in_a_row_on_one_core_count() {
        let mut two = Two::new();
        assert!(never(|| two.waits(0, LITTLE)) && never(|| two.waits(0, LITTLE)), "never seen");
        for _ in 0..3 {
            let mut both = |own| {
                two.peer_waits(0);
                two.waits(own, LITTLE)
            };
            assert!(never(|| both(0)));
            assert!(!both(1), "on another core now");
            assert!(never(|| both(0)) && both(0));
            assert!((1..SAME).all(|_| !both(0)) && both(0), "and again");
            assert!(!both(1));
        }
        assert!(note::is_of(two.here.load(Ordering::Relaxed), 1));
    }

    #[test]
    fn a_peer_that_has_not_waited_meanwhile_is_not_there() {
        let mut two = Two::new();
        for turn in 0..4 * SAME {
            if turn % 16 != 0 {
                two.peer_waits(3);
            }
            assert!(!two.waits(3, LITTLE));
        }
    }

    #[test]
    fn who_does_much_between_its_waits_stays() {
        // Moves in so many waits, of which each `every`th comes after much.
        let moves = |waits: u32, every: u32| {
            let mut two = Two::new();
            let much = |turn: u32| turn.is_multiple_of(every);
            let wait = |turn| {
                two.peer_waits(3);
                two.waits(3, if much(turn) { LITTLE * 2 } else { LITTLE })
            };
            (0..waits).map(wait).filter(|moved| *moved).count()
        };
        assert_eq!(moves(10 * SAME, 1), 0);
        assert_eq!(moves(10 * SAME, MUCH), 0, "as much as little");
        let habit = moves(10 * SAME, 16);
        assert!((4..=9).contains(&habit), "one that had patience now and then parts: {habit}");
    }

    #[test]
    fn cores_with_large_numbers_are_told_apart() {
        let note = note::next(note::next(0, 0xfff0), 300);
        assert!(note::is_of(note, 300) && !note::is_of(note, 301) && !note::is_of(note, 0xfff0));
        assert_ne!(note, note::next(note, 300));
    }
}
