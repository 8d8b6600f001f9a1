//! Waiting in virtual time, or in real time for what happens in a virtual network.

use super::network::Network;
use crate::base::sync::{AtomicBool, Ordering};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct SimChannel {
    network: Arc<Network>,
    rung: AtomicBool,
    called: AtomicBool,
    /// In real time: who waits sleeps here.
    gate: Mutex<()>,
    changed: Condvar,
}

impl SimChannel {
    pub fn new(network: Arc<Network>, rung: bool) -> SimChannel {
        let (rung, called) = (AtomicBool::new(rung), AtomicBool::new(false));
        SimChannel { network, rung, called, gate: Mutex::default(), changed: Condvar::new() }
    }

    fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_sleepers(&self) {
        if self.network.is_real() {
            // Who has looked in vain sleeps when the gate is free.
            drop(self.gate());
            self.changed.notify_all();
        }
    }

    fn woken(&self) -> Option<Woken> {
        if self.rung.swap(false, Ordering::AcqRel) {
            return Some(Woken::Ready);
        }
        self.called.swap(false, Ordering::AcqRel).then_some(Woken::Called)
    }

    fn sleep(&self, until: Time) -> Woken {
        let mut gate = self.gate();
        loop {
            if let Some(woken) = self.woken() {
                return woken;
            }
            let now = self.network.now();
            if now >= until {
                return Woken::Elapsed;
            }
            gate = match until {
                Time::NEVER => self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner),
                until => {
                    let waited = self.changed.wait_timeout(gate, until.since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Bell for SimChannel {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.wake_sleepers();
    }
}

impl Channel for SimChannel {
    fn wait(&self, until: Time) -> Woken {
        if self.network.is_real() {
            return self.sleep(until);
        }
        loop {
            if let Some(woken) = self.woken() {
                return woken;
            }
            if !self.network.step(until) {
                return Woken::Elapsed;
            }
        }
    }

    fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.wake_sleepers();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
