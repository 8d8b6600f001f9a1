//! Who copies a large message for whose end both sides wait: both, or the receiver alone by the kernel. Which
//! is sooner over depends on how near their cores are, on whose caches have the data, and on how many
//! messages follow each other; so it is found out while the program runs, for each size.
//!
//! ```text
//!   BLOCK messages one way, BLOCK the other --> the faster one for a while --> BLOCK the other way --.
//!                                                     ^                                              |
//!                                                     '----- twice as long, if it is still faster <--+
//!                                                     '----- as long as at first, if it is not <-----'
//!                                                            or messages take longer than they did
//! ```
//! A trial ends early, and the next one is as far away as can be, where the other way takes several times as
//! long: else trials alone would take as much time as all other messages. And messages that take longer
//! than they did are no reason for one as long as they are far from what the other way takes: times of
//! messages that follow each other vary by a factor of two.
//!
//! What counts is the time from when the copy could begin, which is at the end of the one before if that was
//! later, until its end: so both the time of a message alone and the rate of many.

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
    /// The receiver, by the kernel.
    Receiver,
}

impl Who {
    fn other(self) -> Who {
        match self {
            Who::Both => Who::Receiver,
            Who::Receiver => Who::Both,
        }
    }
}

/// What is known of messages of each size.
#[derive(Debug)]
pub(super) struct Copiers {
    classes: [Mutex<Class>; CLASSES],
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
    /// Nanoseconds for each KiB, by both and by the receiver, smoothed; of the last trial if it is not the
    /// chosen one's. 0 as long as nothing is known.
    cost: [f64; 2],
    /// What the chosen one's was when it was chosen, or found to be the faster one again.
    expected: f64,
    /// When the last one ended.
    last: u64,
}

impl Default for Copiers {
    fn default() -> Copiers {
        // It has been measured that the kernel is slow, where this is asked.
        let class = || Class {
            now: Who::Both,
            chosen: Who::Both,
            left: BLOCK,
            ended: 0,
            rest: SHORTEST,
            cost: [0.0; 2],
            expected: 0.0,
            last: 0,
        };
        Copiers { classes: std::array::from_fn(|_| Mutex::new(class())) }
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
        self.class(bytes, Class::choose)
    }

    /// Who copies such messages but for trials: for one that is not to be counted.
    pub fn chosen(&self, bytes: usize) -> Who {
        self.class(bytes, |class| class.chosen)
    }

    /// One that `who` has copied took from `began` until `now`, in nanoseconds.
    pub fn took(&self, who: Who, bytes: usize, began: u64, now: u64) {
        self.class(bytes, |class| class.took(who, bytes, began, now));
    }
}

impl Class {
    fn choose(&mut self) -> Who {
        if self.left == 0 {
            self.turn();
        }
        self.left -= 1;
        self.now
    }

    /// A trial begins, or is over.
    fn turn(&mut self) {
        let trial = self.now != self.chosen;
        let [here, there] = [self.chosen, self.chosen.other()].map(|who| self.cost[who as usize]);
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
        self.now = if trial { self.chosen } else { self.chosen.other() };
        self.expected = self.cost[self.chosen as usize];
        self.left = if trial { self.rest } else { BLOCK };
        self.ended = 0;
        if !trial {
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
        let (known, other) = (*known, self.cost[who.other() as usize]);
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

    /// Messages one after the other, of which each takes what `cost` says: how many both copied.
    fn run(
        copiers: &Copiers,
        bytes: usize,
        count: u32,
        now: &mut u64,
        cost: impl Fn(Who) -> u64,
    ) -> u32 {
        let mut both = 0;
        for _ in 0..count {
            let (who, began) = (copiers.choose(bytes), *now);
            *now += cost(who);
            copiers.took(who, bytes, began, *now);
            both += u32::from(who == Who::Both);
        }
        both
    }

    proptest! {
        /// Whatever is cheaper by a quarter gets nearly all, also once that has changed.
        #[test]
        fn the_cheaper_way_is_found_and_found_again(
            bytes in (16usize << 10)..(64 << 20), base in 1000u64..100_000_000, both_first: bool,
        ) {
            let copiers = Copiers::default();
            let mut now = 5;
            let cost = |cheap: Who| move |who: Who| if who == cheap { base } else { base + base / 4 };
            let (first, then) =
                if both_first { (Who::Both, Who::Receiver) } else { (Who::Receiver, Who::Both) };
            let of = |who: Who, both: u32, count: u32| if who == Who::Both { both } else { count - both };
            let both = run(&copiers, bytes, 4000, &mut now, cost(first));
            prop_assert!(of(first, both, 4000) > 3800, "{both} of 4000 by both, {first:?} is cheaper");
            // It is found out at the latest when the longest rest is over.
            run(&copiers, bytes, LONGEST + 3 * BLOCK, &mut now, cost(then));
            let both = run(&copiers, bytes, 4000, &mut now, cost(then));
            prop_assert!(of(then, both, 4000) > 3800, "{both} of 4000 by both, {then:?} is cheaper");
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
            prop_assert!(run(&copiers, 20_000, 256, &mut now, |_| base) > 200);
            prop_assert!(run(&copiers, 1 << 20, 256, &mut now, |_| base) < 56);
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
            match copiers.choose(bytes) {
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
                Who::Receiver => {
                    while let Some((began, end)) = ends.pop_front() {
                        copiers.took(Who::Both, bytes, began, end);
                    }
                    copiers.took(Who::Receiver, bytes, now, now + 50);
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
        for cheap in [Who::Both, Who::Receiver, Who::Both] {
            run(&copiers, bytes, LONGEST + 3 * BLOCK, &mut now, cost(cheap, 0));
            let both: u32 =
                (0..4000).map(|i| run(&copiers, bytes, 1, &mut now, cost(cheap, i))).sum();
            let other = if cheap == Who::Both { both.abs_diff(4000) } else { both };
            assert!(other < 60, "{other} of 4000 the way that takes several times as long");
        }
    }

    #[test]
    fn extremes_do_no_harm() {
        let copiers = Copiers::default();
        for bytes in [0, 1, usize::MAX] {
            for _ in 0..500 {
                let who = copiers.choose(bytes);
                copiers.took(who, bytes, u64::MAX, 0);
                copiers.took(who.other(), bytes, 0, u64::MAX);
            }
        }
    }
}
