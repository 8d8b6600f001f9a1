//! Deadlines: a point in time after which a wait gives up, or none.

use std::time::{Duration, Instant};

/// When a wait gives up. `Deadline::NEVER` still ends when the peer waited for dies.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Option<Instant>,
    started: Option<Instant>,
}

impl Deadline {
    /// No time limit.
    pub const NEVER: Deadline = Deadline { at: None, started: None };

    /// `after` from now.
    pub fn after(after: Duration) -> Deadline {
        let now = Instant::now();
        Deadline { at: now.checked_add(after), started: Some(now) }
    }

    /// Whether the time is up. Costs one clock reading when there is a limit, nothing otherwise.
    pub fn passed(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// Time left; `None` without a limit.
    pub fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The smaller of `slice` and the time left.
    pub fn clamp(&self, slice: Duration) -> Duration {
        self.left().map_or(slice, |left| left.min(slice))
    }

    /// How long this deadline has been running (for messages); zero without a limit.
    pub fn waited(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |start| start.elapsed())
    }
}

impl From<Duration> for Deadline {
    fn from(after: Duration) -> Self {
        Deadline::after(after)
    }
}
