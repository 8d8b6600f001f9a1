//! How long an answer takes, and after what time none is going to come.

use super::Config;

/// Doublings of the timeout at most.
const DOUBLINGS: u8 = 16;

/// A running average and its mean deviation (Jacobson's, as in RFC 6298), and how often the
/// timeout was doubled since then. Only datagrams that were sent once are measured (Karn's rule).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RoundTrip {
    /// 0: nothing measured.
    mean: u64,
    deviation: u64,
    doublings: u8,
}

impl RoundTrip {
    pub fn note(&mut self, took: u64) {
        let took = took.clamp(1, 1 << 50);
        self.doublings = 0;
        if self.mean == 0 {
            (self.mean, self.deviation) = (took, took / 2);
        } else {
            self.deviation = (3 * self.deviation + self.mean.abs_diff(took)) / 4;
            self.mean = (7 * self.mean + took) / 8;
        }
    }

    /// Something new was acknowledged, though what was sent twice.
    pub fn progress(&mut self) {
        self.doublings = self.doublings.min(1);
    }

    pub fn slower(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS);
    }

    /// The average, or 0.
    pub fn mean(&self) -> u64 {
        self.mean
    }

    /// How long to wait for an answer.
    pub fn timeout(&self, config: &Config) -> u64 {
        let once = if self.mean == 0 {
            config.first_timeout
        } else {
            self.mean + 4 * self.deviation + config.ack_delay
        };
        let most = config.most_timeout;
        let once = once.clamp(config.least_timeout, most);
        once.saturating_mul(1 << self.doublings).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_follow_what_was_measured_and_double() {
        let config = Config {
            first_timeout: 5_000,
            least_timeout: 1_000,
            most_timeout: 100_000,
            ack_delay: 100,
            ..Config::new(1, 0, 2, 1)
        };
        let mut trip = RoundTrip::default();
        assert_eq!(trip.timeout(&config), 5_000);
        trip.slower();
        assert_eq!(trip.timeout(&config), 10_000);
        trip.note(4_000);
        assert_eq!(trip.timeout(&config), 4_000 + 4 * 2_000 + 100);
        (0..200).for_each(|_| trip.note(4_000));
        assert!((4_100..4_200).contains(&trip.timeout(&config)), "{trip:?}");
        (0..200).for_each(|_| trip.note(10));
        assert_eq!(trip.timeout(&config), 1_000);
        (0..100).for_each(|_| trip.slower());
        assert_eq!(trip.timeout(&config), 100_000);
        trip.progress();
        assert_eq!(trip.timeout(&config), 2_000);
        trip.note(u64::MAX);
        assert_eq!(trip.timeout(&config), 100_000);
    }
}
