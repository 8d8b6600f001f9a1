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
//! A trial is over when most of its messages have ended, which may be after the next ones have begun; at once, and
//! of that way there is none in some of the next turns, where it takes several times as
//! long: else trials alone would take as much time as all other messages. The first messages through shared buffers
//! do not count: they find pages that nobody has touched. And messages that take longer
//! than they did are no reason for one as long as they are far from what the other way takes: times of
//! messages that follow each other vary by a factor of two.
//!
//! Of messages that cross, the side with the lower rank finds out and the other one copies those that it receives
//! as it sees its own copied ([`Copiers::follow`]): each waits for the other's copies, too, so that one
//! way tried by one side alone would show nothing but that it is not the other's, and slow down what the other
//! is finding out at the time.
//!
//! What counts is the time from when the copy could begin, which is at the end of the one before if that was
//! later, until its end: so both the time of a message alone and the rate of many. Of many that are under way
//! some end together, of which the first has taken all the time; so means count, over more messages than that.

use crate::base::sync::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Messages of a trial: more of those of which many are under way at a time.
const BLOCK: u32 = 8;
const BLOCK_OF_MANY: u32 = 32;
/// The first messages of a size, which are not counted.
const COLD: u32 = 8;
const COLD_OF_MANY: u32 = 24;
/// The first ones through shared buffers, likewise: so many touch all of these.
const FRESH: u32 = 2;
/// Several times as many as are under way, over which a mean is one.
const SPAN_OF_MANY: u32 = 256;
/// The largest of these.
const MANY: usize = (256 << 10) - 1;
/// How many of them have to end.
const ENOUGH: f64 = 0.75;
/// Trials' messages between trials, at first and at most.
const SHORTEST: u32 = 4;
const LONGEST: u32 = 64;
/// Messages under way that are told from one, at most.
const TOGETHER: u32 = 64;
/// How many times as long the other way takes that is not worth a whole trial, and how many messages tell.
const HOPELESS: f64 = 2.5;
const TELLING: f64 = 3.0;
/// Turns in which it is not tried then.
const SKIPPED: u32 = 4;
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

/// What is not open to a message.
#[derive(Clone, Copy)]
struct Open {
    /// Halves: they are not possible.
    whole: bool,
    /// Both sides through shared buffers: it might have been lent.
    lent: bool,
}

/// What is known of messages of each size.
#[derive(Debug)]
pub(super) struct Copiers {
    classes: [Mutex<Class>; CLASSES],
    /// Halves turned out not to be possible.
    whole: AtomicBool,
}

/// Times of messages that went one way: nanoseconds for each KiB, of which older ones fade.
#[derive(Clone, Copy, Default, Debug)]
struct Times {
    sum: f64,
    count: f64,
}

impl Times {
    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Whether what is interrupted can be told from what is not.
    fn is_settled(&self) -> bool {
        self.count >= 2.0
    }

    /// One more; means are over so many to twice as many.
    fn add(&mut self, time: f64, span: u32) {
        (self.sum, self.count) = (self.sum + time, self.count + 1.0);
        if self.count >= f64::from(2 * span) {
            (self.sum, self.count) = (self.sum / 2.0, self.count / 2.0);
        }
    }
}

#[derive(Debug)]
struct Class {
    /// Messages of a trial, and over how many of the chosen way the mean is.
    block: u32,
    span: u32,
    /// Who copies the messages that begin now.
    now: Who,
    /// Who does but for trials.
    chosen: Who,
    /// Messages that are still to begin before that changes.
    left: u32,
    /// Messages between trials.
    rest: u32,
    /// What was tried last, and whether it is still open what came of it.
    tried: Who,
    open: bool,
    /// Of the last trial if it is not the chosen one's.
    times: [Times; 3],
    /// Turns so far, and from which on each way may be tried.
    turns: u32,
    again: [u32; 3],
    /// Messages through shared buffers that are not to be counted yet.
    fresh: u32,
    /// What the chosen one's mean was when it was chosen, or a trial began; and messages since.
    expected: f64,
    since: u32,
    /// Messages that have begun and not ended.
    under_way: u32,
    /// Of the first ones, how many are still to end: they find pages that were never touched, and cold caches,
    /// and say nothing of the way that they went.
    cold: u32,
    /// When the last one ended.
    last: u64,
    /// Who copied the last of this side's that crossed one of such a peer.
    seen: Who,
}

impl Class {
    fn new(many: bool, first: Who) -> Class {
        let (block, span) = if many { (BLOCK_OF_MANY, SPAN_OF_MANY) } else { (BLOCK, BLOCK) };
        let (cold, fresh) = if many { (COLD_OF_MANY, block) } else { (COLD, FRESH) };
        // What counts of it must be known before another way is tried.
        let counted = if first == Who::Both { fresh + block } else { block };
        Class {
            block,
            span,
            now: first,
            chosen: first,
            left: cold + counted,
            rest: SHORTEST * block,
            tried: if first == Who::Both { Who::Both } else { Who::Receiver },
            open: false,
            times: [Times::default(); 3],
            turns: 0,
            again: [0; 3],
            fresh,
            expected: 0.0,
            since: 0,
            under_way: 0,
            cold,
            last: 0,
            seen: first,
        }
    }
}

impl Default for Copiers {
    /// What is the fastest in most cases begins, and through shared buffers is tried first.
    fn default() -> Copiers {
        Copiers::beginning(|_| Who::Halves)
    }
}

fn class_of(bytes: usize) -> usize {
    (bytes.max(1).ilog2().saturating_sub(SMALLEST) as usize).min(CLASSES - 1)
}

impl Copiers {
    fn class<R>(&self, bytes: usize, f: impl FnOnce(&mut Class) -> R) -> R {
        let class = &self.classes[class_of(bytes)];
        f(&mut class.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn beginning(first: impl Fn(usize) -> Who) -> Copiers {
        let class = |i: usize| Mutex::new(Class::new(i <= class_of(MANY), first(i)));
        Copiers { classes: std::array::from_fn(class), whole: AtomicBool::new(false) }
    }

    /// Of messages that cross, none of which goes by halves. Those that cannot have been lent begin through
    /// shared buffers: these need both sides, so one that tries them while the other has the kernel copy waits
    /// for it, and never finds out that they would be faster; the other way round it does.
    pub fn of_crossing() -> Copiers {
        let lent = class_of(super::lent::MOST);
        let first = |class| if class > lent { Who::Both } else { Who::Receiver };
        let copiers = Copiers::beginning(first);
        copiers.keep_whole();
        copiers
    }

    /// Who copies a message of so many bytes that is to begin. `lent`: it might have been lent, which is two
    /// copies by both sides, too, and found out by others: not to be tried here.
    pub fn choose(&self, bytes: usize, lent: bool) -> Who {
        let open = Open { whole: self.whole.load(Ordering::Relaxed), lent };
        self.class(bytes, |class| class.choose(open))
    }

    /// Who copies one that crosses one of this side's, where its sender finds that out.
    pub fn follow(&self, bytes: usize, lent: bool) -> Who {
        match self.class(bytes, |class| class.seen) {
            Who::Both if lent => Who::Receiver,
            who => who,
        }
    }

    /// Who has copied one of this side's that crossed such a one.
    pub fn saw(&self, who: Who, bytes: usize) {
        self.class(bytes, |class| class.seen = who);
    }

    /// Halves are not possible: they are chosen no more.
    pub fn keep_whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// Who copies such messages but for trials: for one that is not to be counted.
    pub fn chosen(&self, bytes: usize) -> Who {
        self.class(bytes, |class| class.chosen)
    }

    /// One that `who` has copied took from `began` until `now`, in nanoseconds: how much of that after the one
    /// before.
    pub fn took(&self, who: Who, bytes: usize, began: u64, now: u64) -> u64 {
        self.class(bytes, |class| class.took(who, bytes, began, now))
    }
}

impl Class {
    fn choose(&mut self, open: Open) -> Who {
        let whole = open.whole;
        if whole && self.chosen == Who::Halves {
            // A trial among messages that do not count would say nothing.
            let left = self.block + self.cold;
            (self.chosen, self.now, self.left) = (Who::Receiver, Who::Receiver, left);
            (self.open, self.expected) = (false, 0.0);
        } else if whole && self.now == Who::Halves {
            (self.now, self.left, self.open) = (self.chosen, self.rest, false);
        }
        if self.left == 0 {
            self.turn(open);
        }
        self.left -= 1;
        self.under_way = (self.under_way + 1).min(TOGETHER);
        self.now
    }

    /// What is to be tried, if anything is: what was not tried last time.
    fn candidate(&self, open: Open) -> Option<Who> {
        let after = |i| Who::ALL[(self.tried as usize + i) % Who::ALL.len()];
        let out = |who| match who {
            Who::Halves => open.whole,
            Who::Both => open.lent,
            Who::Receiver => false,
        };
        let due = |who: Who| self.again[who as usize] <= self.turns;
        (1..=Who::ALL.len()).map(after).find(|&who| who != self.chosen && !out(who) && due(who))
    }

    fn mean(&self, who: Who) -> Option<f64> {
        self.times[who as usize].mean()
    }

    /// What the cheapest way that is not the chosen one took when it was tried; 0 if none was.
    fn other(&self) -> f64 {
        let others = Who::ALL.into_iter().filter(|&who| who != self.chosen);
        others.filter_map(|who| self.mean(who)).reduce(f64::min).unwrap_or(0.0)
    }

    /// A trial begins, or all its messages have begun.
    fn turn(&mut self, open: Open) {
        let free = self.now == self.chosen;
        self.turns = self.turns.saturating_add(free.into());
        let candidate = self.candidate(open).filter(|_| free);
        let Some(candidate) = candidate else {
            (self.now, self.left) = (self.chosen, self.rest);
            return;
        };
        self.now = candidate;
        let fresh = if candidate == Who::Both { self.fresh } else { 0 };
        (self.tried, self.open, self.left) = (self.now, true, self.block + fresh);
        self.times[self.now as usize] = Times::default();
        (self.expected, self.since) = (self.mean(self.chosen).unwrap_or(0.0), 0);
    }

    /// What has come of a trial.
    fn decide(&mut self, there: f64, here: f64) {
        self.open = false;
        // One that is hardly better is not worth the change.
        if there < 0.95 * here {
            // What was chosen until now has just been measured, and need not be soon: the third one is tried next.
            (self.chosen, self.tried) = (self.tried, self.chosen);
            self.again[self.tried as usize] = self.turns.saturating_add(2);
            self.rest = SHORTEST * self.block;
            (self.expected, self.since) = (there, 0);
            (self.now, self.left) = (self.chosen, self.block);
            return;
        }
        if there > HOPELESS * here {
            self.again[self.tried as usize] = self.turns.saturating_add(SKIPPED);
        }
        self.rest = (self.rest * 2).min(LONGEST * self.block);
        (self.now, self.left) = (self.chosen, self.rest);
    }

    fn took(&mut self, who: Who, bytes: usize, began: u64, now: u64) -> u64 {
        let time = now.saturating_sub(began.max(self.last));
        self.last = self.last.max(now);
        let together = self.under_way.max(1);
        self.under_way = together - 1;
        if self.cold > 0 {
            self.cold -= 1;
            return time;
        }
        if who == Who::Both && self.fresh > 0 {
            self.fresh -= 1;
            return time;
        }
        let times = &mut self.times[who as usize];
        let mut cost = time as f64 * 1024.0 / bytes.max(1) as f64;
        // One that was interrupted tells little.
        if let Some(mean) = times.mean().filter(|_| times.is_settled()) {
            cost = cost.min(2.0 * mean * f64::from(together));
        }
        times.add(cost, self.span);
        let (count, mean) = (times.count, times.mean().unwrap_or(0.0));
        if who == self.chosen {
            self.since = self.since.saturating_add(1);
            let longer = self.expected > 0.0 && mean > 1.3 * self.expected;
            if longer && self.now == who && self.since >= self.span && mean > NEAR * self.other() {
                // Something has changed: the cores' distance, or where the data lie.
                (self.left, self.rest) = (0, SHORTEST * self.block);
                (self.expected, self.since, self.again) = (mean, 0, [0; 3]);
            }
        } else if self.open && who == self.tried {
            let here = self.mean(self.chosen);
            let hopeless = |here: f64| together <= 2 && count >= TELLING && mean > HOPELESS * here;
            if count >= ENOUGH * f64::from(self.block) || here.is_some_and(hopeless) {
                self.decide(mean, here.unwrap_or(mean));
            }
        }
        time
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
            let (who, began) = (copiers.choose(bytes, false), *now);
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
            let went = run(&copiers, bytes, 16_000, &mut now, cost(first));
            prop_assert!(went[first as usize] > 15_000, "{went:?}, {first:?} is the cheapest");
            // It is found out at the latest when the longest rest is over, twice, as two are tried in turn.
            run(&copiers, bytes, 2 * (LONGEST + 3) * BLOCK_OF_MANY, &mut now, cost(then));
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

        /// What might have been lent does not go both sides' way, and where halves are not possible either, the
        /// receiver's.
        #[test]
        fn what_might_have_been_lent_is_not_tried_here(
            bytes in (16usize << 10)..(128 << 10), after in 0u32..1000,
        ) {
            let copiers = Copiers::default();
            let mut now = 5;
            for i in 0..8000 {
                if i == after {
                    copiers.keep_whole();
                }
                let (who, began) = (copiers.choose(bytes, true), now);
                prop_assert!(who != Who::Both && (who == Who::Receiver || i < after), "{who:?}, {i}");
                now += if who == Who::Receiver { 2000 } else { 1000 };
                copiers.took(who, bytes, began, now);
            }
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
            let who = copiers.choose(bytes, false);
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
    fn messages_that_end_together_count_as_one_after_the_other() {
        // By halves, eight end at a time, which is no faster than the receiver's one by one.
        for (halves, right) in [(60, Who::Receiver), (40, Who::Halves)] {
            let copiers = Copiers::default();
            let bytes = 64 << 10;
            let (mut now, mut went, mut begun) = (1000u64, [0; 3], Vec::new());
            for _ in 0..8000 {
                let who = copiers.choose(bytes, false);
                went[who as usize] += 1;
                if who == Who::Halves {
                    begun.push(now);
                }
                if who != Who::Halves || begun.len() == 8 {
                    now += halves * begun.len() as u64;
                    for began in begun.drain(..) {
                        copiers.took(Who::Halves, bytes, began, now);
                    }
                }
                if who != Who::Halves {
                    let time = if who == Who::Receiver { 50 } else { 100 };
                    copiers.took(who, bytes, now, now + time);
                    now += time;
                }
            }
            assert!(went[right as usize] > 7000, "{went:?}, {right:?} is the fastest");
        }
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
            run(&copiers, bytes, 2 * (LONGEST + 3) * BLOCK_OF_MANY, &mut now, cost(cheap, 0));
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
                let who = copiers.choose(bytes, false);
                copiers.took(who, bytes, u64::MAX, 0);
                let other = Who::ALL[(who as usize + 1) % Who::ALL.len()];
                copiers.took(other, bytes, 0, u64::MAX);
            }
        }
    }

    /// Two sides of messages that cross, of which one finds out and the other follows: both go the faster way
    /// nearly always, whichever it is, although a way that only one side goes is slow.
    #[test]
    fn of_two_sides_one_finds_out_for_both() {
        for faster in [Who::Both, Who::Receiver] {
            for bytes in [128 << 10, 1 << 20, 32 << 20] {
                let [leader, follower] = [(); 2].map(|()| Copiers::of_crossing());
                let (mut now, mut went) = (5, [0; 3]);
                for round in 0..20_000 {
                    let mine = leader.choose(bytes, false);
                    let its = follower.follow(bytes, false);
                    let cost = match mine == its {
                        true if mine == faster => 10_000,
                        true => 20_000,
                        false => 40_000,
                    };
                    let began = now;
                    now += cost;
                    leader.took(mine, bytes, began, now);
                    follower.saw(mine, bytes);
                    if round >= 10_000 {
                        went[mine as usize] += u32::from(mine == its);
                    }
                }
                let most = went[faster as usize];
                assert!(most > 9_000, "{faster:?} is the faster way for {bytes}: {went:?}");
            }
        }
    }

    /// What might have been lent does not go through shared buffers, whatever was seen.
    #[test]
    fn who_follows_has_nothing_lent_twice() {
        let copiers = Copiers::of_crossing();
        assert_eq!(copiers.follow(1 << 20, false), Who::Both);
        assert_eq!(copiers.follow(64 << 10, true), Who::Receiver);
        copiers.saw(Who::Both, 100 << 10);
        assert_eq!(copiers.follow(100 << 10, false), Who::Both);
        assert_eq!(copiers.follow(64 << 10, true), Who::Receiver);
        copiers.saw(Who::Receiver, 100 << 10);
        assert_eq!(copiers.follow(100 << 10, false), Who::Receiver);
    }
}
