//! Completion queues and channels with faults in them.

use super::state::State;
use crate::base::Result;
use crate::net::provider::{Arm, Channel, Completion, CompletionQueue, Device, Time, Woken};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(super) struct FaultQueue {
    pub inner: Arc<dyn CompletionQueue>,
    pub device: Arc<dyn Device>,
    pub state: Arc<State>,
}

impl CompletionQueue for FaultQueue {
    fn poll(&self, into: &mut [Completion]) -> usize {
        self.state.pump(self.device.now());
        loop {
            let count = self.inner.poll(into);
            let kept = self.state.sift(&mut into[..count]);
            if kept > 0 || count == 0 {
                return kept;
            }
        }
    }

    fn arm(&self, what: Arm) -> Result<()> {
        self.inner.arm(what)
    }
}

pub(super) struct FaultChannel {
    pub inner: Arc<dyn Channel>,
    pub device: Arc<dyn Device>,
    pub state: Arc<State>,
}

impl Channel for FaultChannel {
    fn wait(&self, until: Time) -> Woken {
        loop {
            self.state.pump(self.device.now());
            let (woken, next) =
                self.state.asleep(&self.inner, |next| (self.inner.wait(until.min(next)), next));
            if woken != Woken::Elapsed || next >= until {
                return woken;
            }
        }
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
