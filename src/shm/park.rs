//! Waiting: spin, then yield, then sleep on a shared futex. Wakers pay a system call only when
//! somebody sleeps.
//!
//! ```text
//! sleeper                                   waker
//!   s = seq                                   make the condition true
//!   asleep = 1                                light_fence
//!   heavy_fence                               if asleep != 0:
//!   condition? -> done                            if swap(asleep, 0) != 0:
//!   futex_wait(seq, s, slice)                         seq += 1; futex_wake(all)
//! ```
//!
//! Either the sleeper's re-check sees the condition, or the waker sees `asleep` (the pair of
//! fences). If the waker's swap comes after the sleeper's store, its increment of `seq` comes
//! after the sleeper read `seq`, so `futex_wait` returns. `asleep` is a flag rather than a count:
//! a sleeper killed in its sleep costs later wakers one needless system call, not one per message
//! for ever. A waker killed between swap and wake costs the sleeper the rest of its slice: every
//! sleep is cut into slices, after each of which the caller's `check` looks for dead peers.

use crate::base::sync::{
    AtomicU32, Ordering, futex_wait, futex_wait_either, futex_wake, heavy_fence, light_fence,
    spin_hint, yield_now,
};
use crate::base::{Deadline, Error, Result, forked};
use std::time::{Duration, Instant};

/// How long to spin and yield before sleeping, and for how long to sleep at a time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Polls with a pause between them.
    pub spins: u32,
    /// Polls with a yield of the processor between them.
    pub yields: u32,
    /// First sleep; doubled after each.
    pub slice: Duration,
    /// Longest sleep, [`Pace::LONGEST`] at most.
    pub longest: Duration,
}

impl Pace {
    /// Longest single sleep of all: the time within which the death of a peer is noticed at the latest.
    pub const LONGEST: Duration = Duration::from_millis(64);

    /// Longest single sleep of a process that has to look now and then for what others want of it,
    /// because nothing else does (`HITHER_PROGRESS=calls`).
    pub const HELPING: Duration = Duration::from_millis(1);

    /// For ranks that have a core each: spinning harms nobody. As many pauses as take
    /// [`Pace::AWAKE`] where they are short; see [`Pace::measured`].
    pub const DEDICATED: Pace =
        Pace { spins: 8192, yields: 16, slice: Duration::from_millis(4), longest: Pace::LONGEST };

    /// For ranks that share cores: who spins keeps the one waited for from running.
    pub const SHARED: Pace = Pace { spins: 24, yields: 32, ..Pace::DEDICATED };

    /// How long a rank that has a core waits before it gives it up: some ten times what it takes to
    /// wake a sleeper. If it has no core to itself after all, this is what each message takes.
    const AWAKE: Duration = Duration::from_micros(128);

    /// A yield that takes so long let others run than those who talk to this one: they would have
    /// waited by then.
    const STRANGER: Duration = Duration::from_millis(1);

    /// Yields of a wait after which what has come came because of them, if they took so long: there and back
    /// between two threads takes about a microsecond or two, and one that lets nobody run some hundred nanoseconds
    /// (on one machine 2.1 and 0.4 µs). Else an answer that came just then by chance would be taken for one from
    /// this core.
    const AT_ONCE: u32 = 2;
    const SWITCHED: Duration = Duration::from_nanos(700);

    /// The same with the pauses that take [`Pace::AWAKE`] on this processor, at most: a pause takes
    /// from 5 to 70 ns. Costs some 20 µs.
    pub fn measured(self) -> Pace {
        const PAUSES: u32 = 64;
        let batch = || {
            let start = Instant::now();
            (0..PAUSES).for_each(|_| spin_hint());
            start.elapsed()
        };
        // The shortest: others are longer by what interrupted them.
        let shortest = (0..5).map(|_| batch()).min().unwrap_or_default();
        let pauses = u128::from(PAUSES) * Self::AWAKE.as_nanos() / shortest.as_nanos().max(1);
        let spins = u32::try_from(pauses).unwrap_or(u32::MAX).max(512);
        Pace { spins: self.spins.min(spins), ..self }
    }

    /// Whether who waits is running as a rule when what is waited for comes, if it comes soon.
    pub fn is_awake(self) -> bool {
        self.spins > self.yields
    }

    /// The same for a process whose threads are in each other's way: awake for about as long as one
    /// that spins, for its threads wake each other with what they wait for, but on nobody's core.
    pub fn crowded(self) -> Pace {
        Pace { spins: self.spins.min(Pace::SHARED.spins), yields: 512, ..self }
    }

    /// The first part of a wait: an answer that is under way from another core is there before it
    /// ends.
    #[inline]
    pub fn poll_at_once<R>(self, poll: &mut impl FnMut() -> Option<R>) -> Option<R> {
        (0..self.at_once()).find_map(|_| poll())
    }

    /// How many polls that takes.
    #[inline]
    pub fn at_once(self) -> u32 {
        self.spins.min(EAGER)
    }

    /// The second part: awake, with pauses between the polls as long as `may_spin`.
    pub fn poll_with_pauses<R>(
        self,
        may_spin: impl Fn() -> bool,
        poll: &mut impl FnMut() -> Option<R>,
    ) -> Option<R> {
        for _ in EAGER..self.spins.max(EAGER) {
            if !may_spin() {
                break;
            }
            spin_hint();
            if let Some(value) = poll() {
                return Some(value);
            }
        }
        None
    }

    /// The third: with yields of the processor. Whoever has a core as a rule goes on to sleep after
    /// one that has let strangers run: from there it is back sooner.
    pub fn poll_with_yields<R>(self, poll: &mut impl FnMut() -> Option<R>) -> Yielded<R> {
        self.poll_between(poll, || {
            let start = Instant::now();
            yield_now();
            start.elapsed()
        })
    }

    /// The same with what gives up the processor, and says for how long.
    fn poll_between<R>(
        self,
        poll: &mut impl FnMut() -> Option<R>,
        mut give_up: impl FnMut() -> Duration,
    ) -> Yielded<R> {
        let mut at_once = false;
        for turn in 0..self.yields {
            if let Some(value) = poll() {
                return Yielded::Come(value, at_once);
            }
            if !self.is_awake() {
                // How long does not matter: who shares a core gives it up anyway.
                yield_now();
                continue;
            }
            let away = give_up();
            if away >= Self::STRANGER {
                return Yielded::Strangers;
            }
            at_once = turn < Self::AT_ONCE && away >= Self::SWITCHED;
        }
        Yielded::Nothing
    }

    /// The same with sleeps so short that who waits can look after other work between them.
    pub fn watchful(self) -> Pace {
        let most = Pace::HELPING;
        Pace { slice: self.slice.min(most), longest: self.longest.min(most), ..self }
    }
}

/// What has come of giving up the processor.
#[derive(Debug)]
pub enum Yielded<R> {
    /// What is waited for; true if the first yields brought it: who was waited for stood in line for
    /// this core.
    Come(R, bool),
    /// Others have run for long who have nothing to do with it.
    Strangers,
    /// Nothing.
    Nothing,
}

/// Polls without a pause at the beginning of a wait: an answer from another core takes about as
/// long as a few pauses, and half a pause on average would be added to it.
#[cfg(not(loom))]
const EAGER: u32 = 48;
/// Every poll is a scheduling point of the model.
#[cfg(loom)]
const EAGER: u32 = 0;

/// Where threads of any process wait for a condition on shared memory.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct WaitCell {
    seq: AtomicU32,
    asleep: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<WaitCell>() == 8);

#[cfg(not(loom))]
// SAFETY: two atomics, all bit patterns valid.
unsafe impl super::region::SharedLayout for WaitCell {}

impl WaitCell {
    /// A cell nobody waits on (shared cells start as zeros, which is the same).
    pub fn new() -> WaitCell {
        WaitCell { seq: AtomicU32::new(0), asleep: AtomicU32::new(0) }
    }

    /// Wakes all sleepers, if any, after the caller made their condition true.
    ///
    /// Cost without sleepers: one load of a line that stays shared, plus a full fence where
    /// asymmetric ones are not to be had.
    #[inline]
    pub fn notify(&self) {
        if self.is_awaited() {
            self.wake();
        }
    }

    /// Whether somebody may sleep that [`WaitCell::notify`] would wake, after the caller made their
    /// condition true: it must be called then.
    #[inline(always)]
    pub fn is_awaited(&self) -> bool {
        light_fence();
        self.asleep.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(0, Ordering::AcqRel) != 0 {
            self.seq.fetch_add(1, Ordering::AcqRel);
            futex_wake(&self.seq, u32::MAX);
        }
    }

    /// Waits until `poll` returns a value, `check` an error, or the deadline passes.
    ///
    /// `poll` is called often and must be cheap; `check` is called before the first sleep and
    /// after each, and looks for dead peers.
    pub fn wait<R>(
        &self,
        pace: Pace,
        deadline: Deadline,
        during: &'static str,
        poll: impl FnMut() -> Option<R>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        self.wait_beside(None, pace, deadline, during, poll, check)
    }

    /// As [`WaitCell::wait`]; who notifies `beside` ends a sleep as well. What rings there is looked
    /// at by `check`, which is called between saying so and falling asleep.
    ///
    /// Who notifies one cell leaves the other one's flag set: its next waker pays a system call for
    /// nobody.
    pub fn wait_beside<R>(
        &self,
        beside: Option<&WaitCell>,
        pace: Pace,
        deadline: Deadline,
        during: &'static str,
        mut poll: impl FnMut() -> Option<R>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        let awake = pace
            .poll_at_once(&mut poll)
            .or_else(|| pace.poll_with_pauses(|| true, &mut poll))
            .or_else(|| match pace.poll_with_yields(&mut poll) {
                Yielded::Come(value, _) => Some(value),
                Yielded::Strangers | Yielded::Nothing => None,
            });
        match awake {
            Some(value) => Ok(value),
            None => self.sleep_until(beside, pace, deadline, during, poll, check),
        }
    }

    /// The last part of [`WaitCell::wait_beside`]: asleep from the beginning.
    pub fn sleep_until<R>(
        &self,
        beside: Option<&WaitCell>,
        pace: Pace,
        deadline: Deadline,
        during: &'static str,
        mut poll: impl FnMut() -> Option<R>,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<R> {
        let mut slice = pace.slice;
        loop {
            let seen = self.seq.load(Ordering::Acquire);
            self.asleep.store(1, Ordering::Release);
            let also = beside.map(|other| {
                let seen = other.seq.load(Ordering::Acquire);
                other.asleep.store(1, Ordering::Release);
                (&other.seq, seen)
            });
            heavy_fence();
            if let Some(value) = poll() {
                return Ok(value);
            }
            if let Err(gone) = forked::refuse_forked(during).and_then(|()| check()) {
                // What is waited for may have come between the poll and the end of the peer.
                return poll().ok_or(gone);
            }
            if deadline.passed() {
                return Err(Error::TimedOut {
                    during,
                    waited: deadline.waited(),
                    missing: Vec::new(),
                });
            }
            let slept = deadline.clamp(slice);
            match also {
                None => futex_wait(&self.seq, seen, slept),
                Some((other, then)) => futex_wait_either([&self.seq, other], [seen, then], slept),
            }
            if let Some(value) = poll() {
                return Ok(value);
            }
            slice = (slice * 2).min(pace.longest);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What a wait makes of yields that each took so many nanoseconds, the last of which brought the answer.
    fn outcome(yields: &[u64]) -> Yielded<()> {
        let (mut polls, mut left) = (0, yields.iter());
        let mut poll = || {
            polls += 1;
            (polls > yields.len()).then_some(())
        };
        let give_up = || Duration::from_nanos(left.next().copied().unwrap_or(0));
        Pace::DEDICATED.poll_between(&mut poll, give_up)
    }

    #[test]
    fn only_an_answer_that_a_change_of_processes_brought_was_waiting_for_this_core() {
        for (yields, at_once) in [
            (&[][..], false),
            (&[2_000], true),
            (&[400, 2_000], true),
            // It was under way on another core.
            (&[400], false),
            (&[400, 400], false),
            (&[2_000, 400], false),
            // Others have run, and it came later.
            (&[2_000, 2_000, 2_000], false),
        ] {
            let come = outcome(yields);
            assert!(matches!(come, Yielded::Come((), it) if it == at_once), "{yields:?}: {come:?}");
        }
        assert!(matches!(outcome(&[400, 2_000_000]), Yielded::Strangers));
        assert!(matches!(outcome(&[400; 99]), Yielded::Nothing));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::sync::futex_blocks;
    use loom::thread;
    use std::sync::Arc;

    const AT_ONCE: Pace =
        Pace { spins: 0, yields: 0, slice: Duration::from_millis(1), longest: Pace::LONGEST };

    struct Place {
        cell: WaitCell,
        count: AtomicU32,
    }

    impl Place {
        fn new() -> Arc<Place> {
            Arc::new(Place { cell: WaitCell::new(), count: AtomicU32::new(0) })
        }
        fn add(&self) {
            self.count.fetch_add(1, Ordering::Release);
            self.cell.notify();
        }
        fn await_count(&self, n: u32) {
            let poll = || (self.count.load(Ordering::Acquire) >= n).then_some(());
            self.cell.wait(AT_ONCE, Deadline::NEVER, "a model", poll, || Ok(())).unwrap();
        }
    }

    /// Sleeps end by wakes alone: a lost one is a deadlock.
    fn model(bound: usize, f: impl Fn() + Send + Sync + 'static) {
        futex_blocks(true);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(bound).min(bound));
        builder.check(f);
        futex_blocks(false);
    }

    #[test]
    fn loom_a_sleeper_is_woken() {
        model(4, || {
            let place = Place::new();
            let other = place.clone();
            let waker = thread::spawn(move || other.add());
            place.await_count(1);
            waker.join().unwrap();
        });
    }

    #[test]
    fn loom_a_sleeper_that_sleeps_again_is_woken_again() {
        model(3, || {
            let place = Place::new();
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let place = place.clone();
                    thread::spawn(move || place.add())
                })
                .collect();
            place.await_count(1);
            place.await_count(2);
            wakers.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    #[test]
    fn loom_a_sleeper_beside_another_cell_is_woken_by_either() {
        model(3, || {
            let (place, beside) = (Place::new(), Place::new());
            let (others, helped) = (beside.clone(), place.clone());
            let waker = thread::spawn(move || others.add());
            // Rung at the other cell, the sleeper does itself what it waits for.
            let help = || {
                if beside.count.load(Ordering::Acquire) > 0 {
                    helped.add();
                }
                Ok(())
            };
            let poll = || (place.count.load(Ordering::Acquire) > 0).then_some(());
            let cell = Some(&beside.cell);
            place.cell.wait_beside(cell, AT_ONCE, Deadline::NEVER, "a model", poll, help).unwrap();
            waker.join().unwrap();

            let other = place.clone();
            let waker = thread::spawn(move || other.add());
            let poll = || (place.count.load(Ordering::Acquire) > 1).then_some(());
            let cell = Some(&beside.cell);
            let wait =
                place.cell.wait_beside(cell, AT_ONCE, Deadline::NEVER, "a model", poll, || Ok(()));
            wait.unwrap();
            waker.join().unwrap();
        });
    }

    #[test]
    fn loom_all_sleepers_are_woken() {
        model(3, || {
            let place = Place::new();
            let other = place.clone();
            let sleeper = thread::spawn(move || other.await_count(1));
            let other = place.clone();
            let waker = thread::spawn(move || other.add());
            place.await_count(1);
            waker.join().unwrap();
            sleeper.join().unwrap();
        });
    }
}
