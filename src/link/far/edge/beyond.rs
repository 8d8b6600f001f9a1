//! How processes of other nodes stand, as the network tells: whether they answer.

use super::Edge;
use crate::base::Slot;
use crate::base::sync::Ordering;
use crate::link::far::Flow;
use crate::shm::beyond::{Beyond, Standing};
use std::time::Duration;

impl Beyond for Edge {
    fn standing(&self, slot: Slot) -> Standing {
        let end = self.inner.rank_of(slot).and_then(|rank| self.inner.end_of(rank));
        end.map_or(Standing::There, |(standing, _)| standing)
    }

    fn probe(&self, slot: Slot) -> Standing {
        let inner = &*self.inner;
        if let Some(rank) = inner.rank_of(slot)
            && inner.end_of(rank).is_none()
        {
            let known = inner.flow(Flow::Messages).watch(rank);
            // If nothing has gone either way yet it is met, so that it can be asked.
            if !known && let Ok(address) = inner.directory.address(rank) {
                let mut state = inner.flow(Flow::Messages);
                if state.meet(&inner.outlet, rank, &address).is_ok() {
                    state.watch(rank);
                }
            }
            inner.progress(false);
        }
        self.standing(slot)
    }

    fn cause(&self, slot: Slot) -> String {
        let end = self.inner.rank_of(slot).and_then(|rank| self.inner.end_of(rank));
        end.map_or_else(|| "nothing is known of it".into(), |(_, why)| why)
    }

    fn deaths(&self) -> u32 {
        self.inner.deaths.load(Ordering::Acquire)
    }

    fn drain(&self) {
        let until =
            self.inner.outlet.now().saturating_add(self.inner.flow(Flow::Messages).silence());
        let mut nap = Duration::from_micros(20);
        // The network's thread sends again what was lost; this one only looks.
        while !Flow::ALL.into_iter().all(|flow| self.inner.flow(flow).is_drained())
            && self.inner.outlet.now() < until
        {
            self.inner.outlet.pairs().await_sent();
            self.inner.progress(true);
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(2));
        }
    }

    fn rest(&self) {
        self.inner.shift.call_back();
    }

    fn leave(&self) {
        self.inner.leaving.store(true, Ordering::Release);
    }
}
