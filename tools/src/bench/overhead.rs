//! How much of a transfer's time the program has for itself: the post-work-wait method of paper
//! 002. Pure: it says how much work the next iteration does, is told how long that took, and
//! reckons.
//!
//! ```text
//! iteration time                                        post; work; wait
//!   stop x base ........................../.
//!                                        /  |
//!   1.03 x base ......................./    | overhead = iteration - the same work alone
//!   base _____________________________/  .  |
//!        the transfer hides the work  .     work alone
//!        |---------- averaged --------|
//!        0                             work of an iteration --->
//! ```
//! The work grows from iteration to iteration. As long as the transfer takes longer than the work,
//! iterations take as long as the transfer: their average is the *base time*, taken until one
//! exceeds it by a threshold (1.02 to 1.05 in the paper). When one takes 1.5 to 2 times the base
//! time, the work is what takes time: what the iteration took beyond the same work without any
//! message is the *overhead*, and *availability* is 1 - overhead / base time.

use hither::{Error, Result};

/// More iterations than any curve needs whose times grow with its work.
const MOST: usize = 500;

/// The two thresholds, as multiples of the base time, and the work added per iteration, as a
/// share of the first iteration's time.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// An iteration that takes so many base times ends the averaging: 1.02 to 1.05.
    pub base: f64,
    /// One that takes so many ends the measuring: 1.5 to 2.
    pub stop: f64,
    /// Work added.
    pub step: f64,
}

impl Method {
    /// The middle of what the paper recommends.
    pub const PAPER: Method = Method { base: 1.035, stop: 1.75, step: 0.05 };
}

/// What was found out about one kind of transfer; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Base time: how long the transfer takes.
    pub transfer: f64,
    /// Time that it keeps the program from computing. Noise can make the difference less than
    /// nothing: it counts as nothing.
    pub overhead: f64,
    /// Share of the transfer's time that the program has for itself, in 0..=1.
    pub availability: f64,
}

/// One measurement under way.
#[derive(Clone, Debug)]
pub struct Run {
    method: Method,
    iterations: usize,
    /// Time of the first iteration, which had no work.
    first: f64,
    /// Time of the latest one, and its work.
    latest: (f64, f64),
    /// Sum and number of the times that are averaged.
    averaged: (f64, usize),
    averaging: bool,
}

impl Run {
    /// Nothing measured.
    pub fn new(method: Method) -> Run {
        let (latest, averaged) = ((0.0, 0.0), (0.0, 0));
        Run { method, iterations: 0, first: 0.0, latest, averaged, averaging: true }
    }

    /// The base time so far.
    fn base(&self) -> f64 {
        self.averaged.0 / self.averaged.1.max(1) as f64
    }

    /// The work of the next iteration, in nanoseconds; nothing if the last one was enough.
    pub fn next(&self) -> Option<f64> {
        let enough = self.iterations > 0 && self.latest.0 >= self.method.stop * self.base();
        let work = self.iterations as f64 * self.method.step * self.first;
        (!enough && self.iterations < MOST).then_some(work)
    }

    /// An iteration with that work took so long.
    pub fn add(&mut self, work: f64, time: f64) {
        if self.iterations == 0 {
            self.first = time;
        } else if time > self.method.base * self.base() {
            self.averaging = false;
        }
        if self.averaging {
            self.averaged = (self.averaged.0 + time, self.averaged.1 + 1);
        }
        self.iterations += 1;
        self.latest = (time, work);
    }

    /// Work of the last iteration, which is now to be timed alone.
    pub fn last_work(&self) -> f64 {
        self.latest.1
    }

    /// The result, where the last iteration takes `beyond` longer than its work without any message.
    pub fn finish(self, beyond: f64) -> Result<Outcome> {
        let transfer = self.base();
        let sound = transfer.is_normal() && transfer > 0.0 && beyond.is_finite();
        if !sound || self.next().is_some() || self.latest.0 < self.method.stop * transfer {
            return Err(Error::invalid(
                "the measurement of overhead",
                format!("times do not grow with work: {:.0} ns at last", self.latest.0),
            ));
        }
        let overhead = beyond.max(0.0);
        let availability = (1.0 - overhead / transfer).clamp(0.0, 1.0);
        Ok(Outcome { transfer, overhead, availability })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through a curve; `alone` is what an amount of work takes by itself.
    fn measure(
        method: Method,
        mut curve: impl FnMut(f64) -> f64,
        alone: impl Fn(f64) -> f64,
    ) -> (Result<Outcome>, usize) {
        let mut run = Run::new(method);
        while let Some(work) = run.next() {
            run.add(work, curve(work));
        }
        let (iterations, last) = (run.iterations, run.last_work());
        let beyond = curve(last) - alone(last);
        (run.finish(beyond), iterations)
    }

    fn close(value: f64, want: f64, tolerance: f64) -> bool {
        (value - want).abs() <= tolerance
    }

    /// Whoever offloads keeps the program busy for a fixed time, at both ends of the work.
    #[test]
    fn an_offloaded_transfer_leaves_all_but_its_overhead() {
        for (transfer, overhead) in [(1e5, 2e3), (1e6, 1e3), (5e3, 2.5e3)] {
            let curve = |work: f64| f64::max(transfer, work + overhead);
            let outcome = measure(Method::PAPER, curve, |work| work).0.unwrap();
            assert!(close(outcome.transfer, transfer, 0.01 * transfer), "{outcome:?}");
            assert!(close(outcome.overhead, overhead, 1e-6 * transfer), "{outcome:?}");
            assert!(close(outcome.availability, 1.0 - overhead / transfer, 0.01), "{outcome:?}");
        }
    }

    /// Where the program has to do all by itself, work and transfer add up from the beginning.
    #[test]
    fn a_transfer_by_the_program_leaves_nothing() {
        let (outcome, iterations) = measure(Method::PAPER, |work| 4e4 + work, |work| work);
        let outcome = outcome.unwrap();
        assert_eq!((outcome.transfer, outcome.availability), (4e4, 0.0));
        assert!(close(outcome.overhead, 4e4, 1e-6));
        assert!(iterations < 20);
    }

    /// A rendezvous of which half is done when it is posted, and half in the wait.
    #[test]
    fn what_is_between_is_in_between() {
        let curve = |work: f64| f64::max(1e5, work + 5e4);
        let outcome = measure(Method::PAPER, curve, |work| work).0.unwrap();
        assert!(close(outcome.availability, 0.5, 0.01), "{outcome:?}");
    }

    /// Within the thresholds that the paper recommends, the result depends on them little, also
    /// with noise of a percent and a clock that says more than it should.
    #[test]
    fn thresholds_and_noise_matter_little() {
        for base in [1.02, 1.035, 1.05] {
            for stop in [1.5, 1.75, 2.0] {
                for seed in 0..20u64 {
                    let method = Method { base, stop, step: 0.05 };
                    let mut state = seed;
                    let curve = |work: f64| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(99991);
                        let noise = 1.0 + 0.01 * ((state >> 33) as f64 / (1u64 << 31) as f64 - 0.5);
                        f64::max(1e5, 1.02 * work + 8e3) * noise
                    };
                    let outcome = measure(method, curve, |work| 1.02 * work).0.unwrap();
                    assert!(close(outcome.availability, 0.92, 0.03), "{method:?}: {outcome:?}");
                    assert!(close(outcome.transfer, 1e5, 1.5e3), "{method:?}: {outcome:?}");
                }
            }
        }
    }

    /// Figure 2 of the paper: not a running average, but one of all values up to there; what
    /// comes after the first one above the threshold is out, even if it is below again.
    #[test]
    fn the_average_ends_with_the_first_that_exceeds_it() {
        let times = [100.0, 102.0, 98.0, 104.0, 100.0, 100.0, 180.0];
        let mut next = times.into_iter();
        let mut run = Run::new(Method::PAPER);
        while let Some(work) = run.next() {
            run.add(work, next.next().unwrap());
        }
        assert_eq!(run.iterations, 7);
        assert_eq!(run.finish(80.0).unwrap().transfer, 100.0);
    }

    #[test]
    fn a_curve_that_does_not_rise_is_an_error_and_ends() {
        let (outcome, iterations) = measure(Method::PAPER, |_| 1e4, |work| work);
        assert!(outcome.is_err() && iterations == MOST);
        assert!(measure(Method::PAPER, |_| 0.0, |_| 0.0).0.is_err());
        assert!(measure(Method::PAPER, |_| f64::NAN, |_| 0.0).0.is_err());
        assert!(Run::new(Method::PAPER).finish(1.0).is_err());
    }
}
