//! Who copies a large message for whose end both sides wait: both, all of it through shared buffers; both by
//! the kernel, each a half; or the receiver alone, by the kernel. Which
//! is sooner over depends on how near their cores are, on whose caches have the data, and on how many
//! messages follow each other; so it is found out while the program runs, for each size.
//!
//! ```text
//!   BLOCK messages one way, BLOCK another --> the faster one for a while --> BLOCK another way --.
//!                                                     ^                                          |
//!                                                     '- twice as long, if it is still faster <--+
//!                                                     '- as long as at first, if it is not <-----'
//!                                                        or messages take longer than they did
//! ```
//! A trial ends early, and the next one is as far away as can be, where the other way takes several times as
//! long: else trials alone would take as much time as all other messages. And messages that take longer
//! than they did are no reason for one as long as they are far from what the other way takes: times of
//! messages that follow each other vary by a factor of two.
//!
//! What counts is the time from when the copy could begin, which is at the end of the one before if that was
//! later, until its end: so both the time of a message alone and the rate of many.

use crate::base::sync::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Messages of a trial.
const BLOCK: u32 = 8;
/// Of these, those that are not counted: they began while others went the other way.
const UNSETTLED: u32 = 2;
/// Messages between trials, at first and at most.
const SHORTEST: u32 = 32;
const LONGEST: u32 = 512;
/// Messages over which the time of one is smoothed.
const SMOOTH: u32 = 8;
/// How many times as long the other way takes that is not worth a whole trial, and how many messages tell.
const HOPELESS: f64 = 2.5;
const TELLING: u32 = 2;
/// Which part of what the other way takes is near it.
const NEAR: f64 = 0.6;
/// Powers of two that have sizes of their own: from 16 KiB to 32 MiB.
const SMALLEST: u32 = 14;
const CLASSES: usize = 12;

/// Who copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// Each side its part, through shared buffers.
    Both,
    /// Each side a half, by the kernel.
    Halves,
    /// The receiver, by the kernel.
    Receiver,
}

impl Who {
    const ALL: [Who; 3] = [Who::Both, Who::Halves, Who::Receiver];
}

/// What is known of messages of each size.
#[derive(Debug)]
pub(super) struct Copiers {
    classes: [Mutex<Class>; CLASSES],
    /// Halves turned out not to be possible.
    whole: AtomicBool,
}

#[derive(Debug)]
struct Class {
    /// Who copies the messages that begin now.
    now: Who,
    /// Who does but for trials.
    chosen: Who,
    /// Messages that are still to begin before that changes, and those that have ended since it did.
    left: u32,
    ended: u32,
    /// Messages between trials.
    rest: u32,
    /// What was tried last.
    tried: Who,
    /// Nanoseconds for each KiB, each way, smoothed; of the last trial if it is not the
    /// chosen one's. 0 as long as nothing is known.
    cost: [f64; 3],
    /// What the chosen one's was when it was chosen, or found to be the faster one again.
    expected: f64,
    /// When the last one ended.
    last: u64,
}

impl Default for Copiers {
    fn default() -> Copiers {
        // What is the fastest in most cases begins, and through shared buffers is tried first.
        let class = || Class {
            now: Who::Halves,
            chosen: Who::Halves,
            left: BLOCK,
            ended: 0,
            rest: SHORTEST,
            tried: Who::Receiver,
            cost: [0.0; 3],
            expected: 0.0,
            last: 0,
        };
        let classes = std::array::from_fn(|_| Mutex::new(class()));
        Copiers { classes, whole: AtomicBool::new(false) }
    }
}

impl Copiers {
    fn class<R>(&self, bytes: usize, f: impl FnOnce(&mut Class) -> R) -> R {
        let class = bytes.max(1).ilog2().saturating_sub(SMALLEST) as usize;
        let class = &self.classes[class.min(CLASSES - 1)];
        f(&mut class.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who copies a message of so many bytes that is to begin.
    pub fn choose(&self, bytes: usize) -> Who {
        let whole = self.whole.load(Ordering::Relaxed);
        self.class(bytes, |class| class.choose(whole))
    }

    /// Halves are not possible: they are chosen no more.
    pub fn keep_whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// Who copies such messages but for trials: for one that is not to be counted.
    pub fn chosen(&self, bytes: usize) -> Who {
        self.class(bytes, |class| class.chosen)
    }

    /// Nanoseconds for each KiB of such messages, smoothed, if any have come.
    pub fn cost(&self, bytes: usize) -> Option<f64> {
        let cost = self.class(bytes, |class| class.cost[class.chosen as usize]);
        (cost > 0.0).then_some(cost)
    }

    /// One that `who` has copied took from `began` until `now`, in nanoseconds.
    pub fn took(&self, who: Who, bytes: usize, began: u64, now: u64) {
        self.class(bytes, |class| class.took(who, bytes, began, now));
    }
}

impl Class {
    fn choose(&mut self, whole: bool) -> Who {
        if whole && self.chosen == Who::Halves {
            (self.chosen, self.now, self.left) = (Who::Receiver, Who::Receiver, BLOCK);
            (self.ended, self.expected) = (0, 0.0);
        } else if whole && self.now == Who::Halves {
            (self.now, self.left, self.ended) = (self.chosen, self.rest, 0);
        }
        if self.left == 0 {
            self.turn(whole);
        }
        self.left -= 1;
        self.now
    }

    /// What is to be tried: what was not tried last time.
    fn candidate(&self, whole: bool) -> Who {
        let next = |after: Who| Who::ALL[(after as usize + 1) % Who::ALL.len()];
        let mut who = next(self.tried);
        while who == self.chosen || whole && who == Who::Halves {
            who = next(who);
        }
        who
    }

    /// What the cheapest way that is not the chosen one took when it was tried; 0 if none was.
    fn other_cost(&self) -> f64 {
        let others = Who::ALL.into_iter().filter(|&who| who != self.chosen);
        let known = others.map(|who| self.cost[who as usize]).filter(|&cost| cost > 0.0);
        known.reduce(f64::min).unwrap_or(0.0)
    }

    /// A trial begins, or is over.
    fn turn(&mut self, whole: bool) {
        let trial = self.now != self.chosen;
        let [here, there] = [self.chosen, self.now].map(|who| self.cost[who as usize]);
        if trial && there > 0.0 {
            // One that is hardly better is not worth the change.
            if there < 0.95 * here {
                self.chosen = self.now;
                self.rest = SHORTEST;
            } else if there > HOPELESS * here {
                self.rest = LONGEST;
            } else {
                self.rest = (self.rest * 2).min(LONGEST);
            }
        }
        self.now = if trial { self.chosen } else { self.candidate(whole) };
        self.expected = self.cost[self.chosen as usize];
        self.left = if trial { self.rest } else { BLOCK };
        self.ended = 0;
        if !trial {
            self.tried = self.now;
            self.cost[self.now as usize] = 0.0;
        }
    }

    fn took(&mut self, who: Who, bytes: usize, began: u64, now: u64) {
        let time = now.saturating_sub(began.max(self.last)) as f64;
        self.last = self.last.max(now);
        if who != self.now {
            return;
        }
        self.ended = self.ended.saturating_add(1);
        if self.ended <= UNSETTLED {
            return;
        }
        let cost = time * 1024.0 / bytes.max(1) as f64;
        let known = &mut self.cost[who as usize];
        let trial = who != self.chosen;
        let weight = if trial { (self.ended - UNSETTLED).min(SMOOTH) } else { SMOOTH };
        // One that was interrupted tells little.
        let cost = if *known == 0.0 { cost } else { cost.min(2.0 * *known) };
        *known = if *known == 0.0 { cost } else { *known + (cost - *known) / f64::from(weight) };
        let known = *known;
        let other = if trial { self.cost[self.chosen as usize] } else { self.other_cost() };
        if trial {
            let told = self.ended >= UNSETTLED + TELLING;
            if told && other > 0.0 && known > HOPELESS * other {
                self.left = 0;
            }
        } else if self.expected > 0.0 && known > 1.3 * self.expected && known > NEAR * other {
            // Something has changed: the cores' distance, or where the data lie.
            (self.left, self.rest, self.expected) = (0, SHORTEST, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Messages one after the other, of which each takes what `cost` says: how many went each way.
    fn run(
        copiers: &Copiers,
        bytes: usize,
        count: u32,
        now: &mut u64,
        cost: impl Fn(Who) -> u64,
    ) -> [u32; 3] {
        let mut went = [0; 3];
        for _ in 0..count {
            let (who, began) = (copiers.choose(bytes), *now);
            *now += cost(who);
            copiers.took(who, bytes, began, *now);
            went[who as usize] += 1;
        }
        went
    }

    proptest! {
        /// Whatever is cheaper by a quarter gets nearly all, also once that has changed.
        #[test]
        fn the_cheapest_way_is_found_and_found_again(
            bytes in (16usize << 10)..(64 << 20), base in 1000u64..100_000_000,
            first in 0usize..3, then in 1usize..3,
        ) {
            let copiers = Copiers::default();
            let mut now = 5;
            let cost = |cheap: Who| move |who: Who| if who == cheap { base } else { base + base / 4 };
            let (first, then) = (Who::ALL[first], Who::ALL[(first + then) % 3]);
            let went = run(&copiers, bytes, 4000, &mut now, cost(first));
            prop_assert!(went[first as usize] > 3800, "{went:?}, {first:?} is the cheapest");
            // It is found out at the latest when the longest rest is over, twice, as two are tried in turn.
            run(&copiers, bytes, 2 * (LONGEST + 3 * BLOCK), &mut now, cost(then));
            let went = run(&copiers, bytes, 4000, &mut now, cost(then));
            prop_assert!(went[then as usize] > 3800, "{went:?}, {then:?} is the cheapest");
        }

        /// What is not possible is chosen no more, even if it was the fastest.
        #[test]
        fn what_is_not_possible_is_not_chosen(
            bytes in (16usize << 10)..(64 << 20), before in 0u32..2000,
        ) {
            let copiers = Copiers::default();
            let (mut now, cost) = (5, |who| if who == Who::Halves { 10_000 } else { 20_000 });
            run(&copiers, bytes, before, &mut now, cost);
            copiers.keep_whole();
            let went = run(&copiers, bytes, 4000, &mut now, cost);
            prop_assert!(went[Who::Halves as usize] == 0, "{went:?}");
        }

        /// Sizes do not disturb each other.
        #[test]
        fn each_size_has_its_own(base in 1000u64..1_000_000) {
            let copiers = Copiers::default();
            let mut now = 0;
            for _ in 0..400 {
                run(&copiers, 20_000, 8, &mut now, |who| if who == Who::Both { base } else { 2 * base });
                run(&copiers, 1 << 20, 8, &mut now, |who| if who == Who::Both { 2 * base } else { base });
            }
            let both = |bytes, now: &mut u64| run(&copiers, bytes, 256, now, |_| base)[Who::Both as usize];
            prop_assert!(both(20_000, &mut now) > 200);
            prop_assert!(both(1 << 20, &mut now) < 56);
        }
    }

    #[test]
    fn messages_that_overlap_count_by_their_rate() {
        // By both, one takes 100 but they follow each other by 20; by the receiver alone 50 each.
        let copiers = Copiers::default();
        let bytes = 64 << 10;
        let (mut now, mut ends) = (1000u64, std::collections::VecDeque::new());
        let mut both = 0;
        for _ in 0..4000 {
            let who = copiers.choose(bytes);
            match who {
                Who::Both => {
                    both += 1;
                    ends.push_back((now, now + 100));
                    now += 20;
                    if ends.len() > 4
                        && let Some((began, end)) = ends.pop_front()
                    {
                        copiers.took(Who::Both, bytes, began, end);
                    }
                }
                Who::Receiver | Who::Halves => {
                    while let Some((began, end)) = ends.pop_front() {
                        copiers.took(Who::Both, bytes, began, end);
                    }
                    copiers.took(who, bytes, now, now + 50);
                    now += 50;
                }
            }
        }
        assert!(both > 3800, "{both}");
    }

    #[test]
    fn a_hopeless_way_takes_little_however_much_times_vary() {
        let copiers = Copiers::default();
        let (bytes, base) = (64 << 10, 2000);
        let cost = |cheap: Who, count: u64| {
            move |who: Who| if who == cheap { base + base * (count % 3) / 2 } else { 6 * base }
        };
        let mut now = 1;
        for cheap in [Who::Both, Who::Receiver, Who::Halves, Who::Both] {
            run(&copiers, bytes, 2 * (LONGEST + 3 * BLOCK), &mut now, cost(cheap, 0));
            let of_cheap = |i| run(&copiers, bytes, 1, &mut now, cost(cheap, i))[cheap as usize];
            let other = 4000 - (0..4000).map(of_cheap).sum::<u32>();
            assert!(other < 60, "{other} of 4000 a way that takes several times as long");
        }
    }

    #[test]
    fn extremes_do_no_harm() {
        let copiers = Copiers::default();
        for bytes in [0, 1, usize::MAX] {
            for _ in 0..500 {
                let who = copiers.choose(bytes);
                copiers.took(who, bytes, u64::MAX, 0);
                let other = Who::ALL[(who as usize + 1) % Who::ALL.len()];
                copiers.took(other, bytes, 0, u64::MAX);
            }
        }
    }
}
