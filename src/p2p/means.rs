//! What announced messages take, from their times (see [`middle`](super::middle)).
//!
//! Of messages of which many are under way several end together: then the first has taken all the time and the
//! others none, so only means over more than are under way say something. And a program pauses, or the system
//! runs another one: a mean with that in it says nothing. So of the last few means the middle one counts.

/// Means of which the middle one counts.
const KEPT: usize = 3;

/// Times of messages: nanoseconds for each KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Means {
    /// Of the mean that is being made.
    sum: f64,
    count: u32,
    /// The last ones; 0 is none.
    means: [f64; KEPT],
    next: usize,
}

impl Means {
    /// One more; each mean is of so many.
    pub fn add(&mut self, time: f64, span: u32) {
        (self.sum, self.count) = (self.sum + time, self.count + 1);
        if self.count >= span {
            self.means[self.next] = (self.sum / f64::from(self.count)).max(f64::MIN_POSITIVE);
            self.next = (self.next + 1) % KEPT;
            self.begin();
        }
    }

    /// What comes next does not belong to what came before.
    pub fn begin(&mut self) {
        (self.sum, self.count) = (0.0, 0);
    }

    /// The middle one of the means; of two the lower. None before the first is complete.
    pub fn middle(&self) -> Option<f64> {
        let mut known = self.means;
        known.sort_by(f64::total_cmp);
        let unknown = known.iter().filter(|mean| **mean == 0.0).count();
        (unknown < KEPT).then(|| known[unknown + (KEPT - unknown - 1) / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any one mean may have anything in it; what ends together counts as if it had not.
        #[test]
        fn one_mean_of_three_may_be_anything(
            time in 1.0f64..1e6, pause in 0.0f64..1e12, at in 0u32..30, together in 1u32..10, more in 0u32..30,
        ) {
            let (mut means, span) = (Means::default(), 10);
            for i in 0..30 + more {
                let first = i % together == 0;
                let ends = if first { time * f64::from(together) } else { 0.0 };
                means.add(if i == at { pause } else { ends }, span);
            }
            let middle = means.middle().unwrap();
            prop_assert!(middle > 0.3 * time && middle < 2.0 * time, "{middle} of {time}");
        }

        #[test]
        fn before_there_are_three_the_lower_ones_count(times in prop::collection::vec(1.0f64..1e6, 1..3)) {
            let mut means = Means::default();
            prop_assert_eq!(means.middle(), None);
            times.iter().for_each(|time| means.add(*time, 1));
            let least = times.iter().copied().reduce(f64::min);
            prop_assert_eq!(means.middle(), least);
        }
    }

    #[test]
    fn what_was_begun_anew_counts_for_nothing() {
        let mut means = Means::default();
        (0..3).for_each(|_| means.add(9.0, 4));
        assert_eq!(means.middle(), None);
        means.begin();
        (0..3).for_each(|_| means.add(1.0, 4));
        assert_eq!(means.middle(), None);
        means.add(1.0, 4);
        assert_eq!(means.middle(), Some(1.0));
        let mut means = Means::default();
        (0..4).for_each(|_| means.add(0.0, 4));
        assert!(means.middle().is_some_and(|mean| mean < 1e-300), "a mean of 0 is one");
    }
}
