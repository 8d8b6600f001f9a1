//! Waiting in virtual time.

use super::network::Network;
use crate::base::sync::{AtomicBool, Ordering};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(super) struct SimChannel {
    pub network: Arc<Network>,
    pub rung: AtomicBool,
    pub called: AtomicBool,
}

impl Bell for SimChannel {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
    }
}

impl Channel for SimChannel {
    fn wait(&self, until: Time) -> Woken {
        loop {
            if self.rung.swap(false, Ordering::AcqRel) {
                return Woken::Ready;
            }
            if self.called.swap(false, Ordering::AcqRel) {
                return Woken::Called;
            }
            if !self.network.step(until) {
                return Woken::Elapsed;
            }
        }
    }

    fn wake(&self) {
        self.called.store(true, Ordering::Release);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
