//! An eventfd that ends sleeps, sleeping on descriptors, and the machine's clock.

use super::provider::Time;
use crate::base::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Nanoseconds of the machine's monotonic clock.
pub(super) fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// An eventfd.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub fn new() -> Result<Alarm> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Alarm)
            .map_err(|e| Error::os("eventfd for the network", e))
    }

    pub fn ring(&self) {
        // It fails only where it is rung 2^64 times already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of `fds` is readable or the time has come; false for the latter.
pub(super) fn sleep(fds: &[BorrowedFd<'_>], until: Time) -> bool {
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let left = until.since(now());
        let timeout = rustix::event::Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let timeout = (until != Time::NEVER).then_some(&timeout);
        match rustix::event::poll(&mut fds, timeout) {
            Ok(0) if now() >= until => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Anything else is a descriptor that can be read now, or whose error a read will tell.
            _ => return true,
        }
    }
}
