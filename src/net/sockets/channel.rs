//! Where threads sleep: an eventfd, and what it was rung for. Of a device without a thread of its
//! own, whoever sleeps does its work: then sockets end a sleep too.

use super::engine::Engine;
use crate::base::Result;
use crate::base::sync::{AtomicBool, Ordering};
use crate::net::alarm::{Alarm, now, sleep};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

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
