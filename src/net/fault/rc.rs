//! Connected queue pairs that are cut.

use super::state::State as Faults;
use crate::base::Result;
use crate::net::provider::{Address, RcQueuePair, Receive, Refused, State, Work};
use std::sync::Arc;

pub(super) struct FaultRc {
    pub inner: Arc<dyn RcQueuePair>,
    pub state: Arc<Faults>,
}

impl FaultRc {
    pub fn cut(&self) {
        if self.inner.state() == State::Ready {
            self.state.cut(self.inner.number());
            self.inner.fail();
        }
    }
}

impl Drop for FaultRc {
    fn drop(&mut self) {
        self.state.mend(self.inner.number());
    }
}

impl RcQueuePair for FaultRc {
    fn number(&self) -> u32 {
        self.inner.number()
    }

    fn address(&self) -> Address {
        self.inner.address()
    }

    fn state(&self) -> State {
        self.inner.state()
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        self.inner.connect(peer)
    }

    fn post(&self, works: &[Work<'_>]) -> Result<(), Refused> {
        let cut = {
            let mut state = self.state.lock();
            let often = state.plan.cut;
            state.happens(often)
        };
        if cut {
            self.cut();
        }
        self.inner.post(works)
    }

    fn receive(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.inner.receive(receives)
    }

    fn fail(&self) {
        self.inner.fail();
    }

    fn reset(&self) -> Result<()> {
        self.inner.reset()?;
        self.state.mend(self.inner.number());
        Ok(())
    }
}
