//! The time of a virtual network: it stands still but for its events, or it is the machine's.

use crate::base::sync::{AtomicU64, Ordering};
use crate::net::provider::Time;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) enum Clock {
    /// Moved by events and by those who wait.
    Still(AtomicU64),
    /// Since when it runs, and what wakes the thread that lets things happen.
    Running(Instant, Arc<Alarm>),
}

impl Clock {
    /// At time 1.
    pub fn still() -> Clock {
        Clock::Still(AtomicU64::new(1))
    }

    /// At time 1 now.
    pub fn running(alarm: Arc<Alarm>) -> Clock {
        Clock::Running(Instant::now(), alarm)
    }

    pub fn now(&self) -> Time {
        match self {
            Clock::Still(now) => Time(now.load(Ordering::Acquire)),
            Clock::Running(since, _) => Time(1).plus(since.elapsed()),
        }
    }

    /// It is this late at least.
    pub fn advance(&self, to: Time) {
        if let Clock::Still(now) = self {
            now.fetch_max(to.0, Ordering::AcqRel);
        }
    }

    pub fn alarm(&self) -> Option<&Alarm> {
        match self {
            Clock::Still(_) => None,
            Clock::Running(_, alarm) => Some(alarm),
        }
    }
}

/// When the thread of a network in real time is to wake.
#[derive(Default)]
pub(super) struct Alarm {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    /// Something is to happen sooner than the thread knew.
    sooner: bool,
    /// The network is gone.
    ended: bool,
}

impl Alarm {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to happen before all else.
    pub fn ring(&self) {
        self.news().sooner = true;
        self.changed.notify_one();
    }

    /// The network is gone.
    pub fn end(&self) {
        self.news().ended = true;
        self.changed.notify_one();
    }

    /// Calls `catch_up` whenever it says that something will happen, and at each news, until the
    /// network is gone.
    pub fn run(&self, catch_up: impl Fn() -> Option<(Time, Time)>) {
        while let Some((now, next)) = catch_up() {
            let news = self.news();
            let quiet = |news: &mut News| !news.sooner && !news.ended;
            let mut news = match next {
                Time::NEVER => {
                    self.changed.wait_while(news, quiet).unwrap_or_else(PoisonError::into_inner)
                }
                next => {
                    let rest = next.since(now).max(Duration::from_nanos(1));
                    let waited = self.changed.wait_timeout_while(news, rest, quiet);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            news.sooner = false;
            if news.ended {
                return;
            }
        }
    }
}
