//! Where threads sleep: an eventfd, and what it was rung for. Of a device without a thread of its
//! own, whoever sleeps does its work: then sockets end a sleep too.

use super::engine::Engine;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

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

/// See the module.
pub(super) struct SocketChannel {
    alarm: Alarm,
    rung: AtomicBool,
    called: AtomicBool,
    /// Whose work is done by whoever waits.
    engine: Option<Arc<Engine>>,
    /// Somebody who waits is doing it, and looks afterwards whether it was rung.
    working: AtomicBool,
}

impl SocketChannel {
    /// One whose waiters do the work of `engine`, if there is one.
    pub fn new(engine: Option<Arc<Engine>>) -> Result<SocketChannel> {
        let (rung, called) = (AtomicBool::new(false), AtomicBool::new(false));
        let working = AtomicBool::new(false);
        Ok(SocketChannel { alarm: Alarm::new()?, rung, called, engine, working })
    }
}

impl Bell for SocketChannel {
    fn ring(&self) {
        // Set already: its setter has rung, or is about to. (In one order for all with what a
        // waiter does: it is seen to be set after the work, or seen that nobody is at work.)
        if !self.rung.swap(true, Ordering::SeqCst) && !self.working.load(Ordering::SeqCst) {
            self.alarm.ring();
        }
    }
}

impl Channel for SocketChannel {
    fn wait(&self, until: Time) -> Woken {
        loop {
            // Silenced before the looks, so that a ring after them is heard.
            self.alarm.silence();
            if self.rung.swap(false, Ordering::SeqCst) {
                if self.called.load(Ordering::Acquire) {
                    self.alarm.ring();
                }
                return Woken::Ready;
            }
            if self.called.swap(false, Ordering::AcqRel) {
                return Woken::Called;
            }
            let woken = match &self.engine {
                None => sleep(&[self.alarm.as_fd()], until),
                Some(engine) => {
                    let woken = sleep(
                        &[self.alarm.as_fd(), engine.epoll().as_fd()],
                        engine.next_due().min(until),
                    );
                    self.working.store(true, Ordering::SeqCst);
                    engine.work();
                    self.working.store(false, Ordering::SeqCst);
                    woken || now() < until || self.rung.load(Ordering::SeqCst)
                }
            };
            if !woken {
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
