//! Where threads sleep: an eventfd, and what it was rung for.

use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
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
pub(super) fn sleep(fd: BorrowedFd<'_>, until: Time) -> bool {
    loop {
        let left = until.since(now());
        let timeout = rustix::event::Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let timeout = (until != Time::NEVER).then_some(&timeout);
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout) {
            Ok(0) if now() >= until => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Anything else is a descriptor that can be read now, or whose error a read will tell.
            _ => return true,
        }
    }
}

/// See the module.
pub(super) struct SocketChannel {
    alarm: Alarm,
    rung: AtomicBool,
    called: AtomicBool,
}

impl SocketChannel {
    pub fn new() -> Result<SocketChannel> {
        let (rung, called) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(SocketChannel { alarm: Alarm::new()?, rung, called })
    }
}

impl Bell for SocketChannel {
    fn ring(&self) {
        // Set already: its setter has rung, or is about to.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.alarm.ring();
        }
    }
}

impl Channel for SocketChannel {
    fn wait(&self, until: Time) -> Woken {
        loop {
            // Silenced before the looks, so that a ring after them is heard.
            self.alarm.silence();
            if self.rung.swap(false, Ordering::AcqRel) {
                if self.called.load(Ordering::Acquire) {
                    self.alarm.ring();
                }
                return Woken::Ready;
            }
            if self.called.swap(false, Ordering::AcqRel) {
                return Woken::Called;
            }
            if !sleep(self.alarm.as_fd(), until) {
                return Woken::Elapsed;
            }
        }
    }

    fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.alarm.ring();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.alarm.as_fd())
    }
}
