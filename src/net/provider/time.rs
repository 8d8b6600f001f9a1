//! Time as a device's clock gives it: real, or virtual in a simulator.

use std::time::Duration;

/// Nanoseconds since some moment before the device was opened. Comparable among devices of one
/// process only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than any moment that comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// `after` later, at most [`Time::NEVER`].
    pub fn plus(self, after: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
