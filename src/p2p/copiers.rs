//! Who copies a large message for whose end both sides wait: both, all of it through shared buffers; both by
//! the kernel, each a half; or the receiver alone, by the kernel. Which
//! is sooner over depends on how near their cores are, on whose caches have the data, and on how many
//! messages follow each other; so it is found out while the program runs (see [`trials`](super::trials)), for each
//! size.
//!
//! Of messages that cross, the side with the lower rank finds out and the other one copies those that it receives
//! as it sees its own copied ([`Copiers::follow`]): each waits for the other's copies, too, so that one
//! way tried by one side alone would show nothing but that it is not the other's, and slow down what the other
//! is finding out at the time.

use super::trials::{CROSSING_BYTES, Open, Trials, WARMING_BYTES};
use crate::base::sync::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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
    pub const ALL: [Who; 3] = [Who::Both, Who::Halves, Who::Receiver];
}

/// What is known of messages of each size.
#[derive(Debug)]
pub(super) struct Copiers {
    classes: [Mutex<Trials>; CLASSES],
    /// Halves turned out not to be possible.
    whole: AtomicBool,
}

impl Default for Copiers {
    /// What cannot have been lent begins through shared buffers, which is the fastest in most cases, near and far; the rest by
    /// halves.
    fn default() -> Copiers {
        let first = |class| if is_lent(class) { Who::Halves } else { Who::Both };
        Copiers::beginning(first, WARMING_BYTES)
    }
}

/// Whether messages of a class might have been lent.
fn is_lent(class: usize) -> bool {
    class <= class_of(super::lent::SINGLE)
}

fn class_of(bytes: usize) -> usize {
    (bytes.max(1).ilog2().saturating_sub(SMALLEST) as usize).min(CLASSES - 1)
}

impl Copiers {
    fn class<R>(&self, bytes: usize, f: impl FnOnce(&mut Trials) -> R) -> R {
        let class = &self.classes[class_of(bytes)];
        f(&mut class.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn beginning(first: impl Fn(usize) -> Who, warming: usize) -> Copiers {
        let bytes = |i: usize| 1 << (SMALLEST as usize + i);
        let class = |i: usize| Mutex::new(Trials::new(bytes(i), first(i), warming));
        Copiers { classes: std::array::from_fn(class), whole: AtomicBool::new(false) }
    }

    /// Of messages that cross, none of which goes by halves. Those that cannot have been lent begin through
    /// shared buffers: these need both sides, so one that tries them while the other has the kernel copy waits
    /// for it, and never finds out that they would be faster; the other way round it does.
    pub fn of_crossing() -> Copiers {
        let first = |class| if is_lent(class) { Who::Receiver } else { Who::Both };
        let copiers = Copiers::beginning(first, CROSSING_BYTES);
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
        match self.class(bytes, |class| class.seen()) {
            Who::Both if lent => Who::Receiver,
            who => who,
        }
    }

    /// Who has copied one of this side's that crossed such a one.
    pub fn saw(&self, who: Who, bytes: usize) {
        self.class(bytes, |class| class.saw(who));
    }

    /// Halves are not possible: they are chosen no more.
    pub fn keep_whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// Who copies such messages but for trials: for one that is not to be counted.
    pub fn chosen(&self, bytes: usize) -> Who {
        self.class(bytes, |class| class.chosen())
    }

    /// One that `who` has copied took from `began` until `now`, in nanoseconds: how much of that after the one
    /// before.
    pub fn took(&self, who: Who, bytes: usize, began: u64, now: u64) -> u64 {
        self.class(bytes, |class| class.took(who, bytes, began, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::trials::{BLOCK_OF_MANY, LONGEST};
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

        /// Times that go up and down by more than a factor of two are no reason to try others again and again.
        #[test]
        fn trials_stay_rare_however_much_times_vary(
            bytes in (256usize << 10)..(64 << 20), fast in 0usize..3, period in 8u64..64,
        ) {
            let (copiers, fast) = (Copiers::default(), Who::ALL[fast]);
            let (mut now, mut count) = (5, 0);
            let mut cost = |who: Who| {
                count += 1;
                let base = if who == fast { 10_000 } else { 24_000 };
                base * if count / period % 2 == 0 { 7 } else { 17 } / 10
            };
            let mut run = |count: u32| -> u32 {
                let one = |_| {
                    let (who, began) = (copiers.choose(bytes, false), now);
                    now += cost(who);
                    copiers.took(who, bytes, began, now);
                    u32::from(who != fast)
                };
                (0..count).map(one).sum()
            };
            run(4000);
            let others = run(16_000);
            prop_assert!(others < 1200, "{others} of 16000 go ways that take more than twice as long");
        }

        /// The first ones of a trial, which find caches as others have left them, do not decide.
        #[test]
        fn what_is_slow_only_at_first_is_found_to_be_fast(
            bytes in (256usize << 10)..(64 << 20), slow in 1u32..9,
        ) {
            let slow = slow.min((WARMING_BYTES / bytes).max(1) as u32);
            let copiers = Copiers::default();
            let (mut now, mut last, mut since) = (5, Who::Receiver, 0);
            let mut went = [0; 3];
            for _ in 0..16_000 {
                let (who, began) = (copiers.choose(bytes, false), now);
                since = if who == last { since + 1 } else { 1 };
                last = who;
                now += match who {
                    Who::Both if since <= slow => 60_000,
                    Who::Both => 10_000,
                    Who::Halves => 14_000,
                    Who::Receiver => 20_000,
                };
                copiers.took(who, bytes, began, now);
                went[who as usize] += 1;
            }
            prop_assert!(went[Who::Both as usize] > 14_000, "{went:?}");
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
