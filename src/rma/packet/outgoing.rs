//! What the room above sends through: its messages as operations and notes of a window.

use super::fault;
use super::world::Around;
use crate::base::{Rank, Result};
use crate::rma::foreign::Outgoing;
use crate::rma::runtime::{Engine, Sent, WindowId};
use std::any::Any;
use std::task::{Poll, Waker};

/// What [`Foreign::pump`](crate::rma::foreign::Foreign::pump) sends through.
pub(super) struct Out<'a> {
    pub engine: &'a mut Engine,
    pub around: Around<'a>,
    pub window: WindowId,
    /// Something found no room.
    pub blocked: bool,
    /// Something found room.
    pub sent: bool,
}

impl Outgoing for Out<'_> {
    fn operate(&mut self, target: Rank, body: &[u8]) -> Poll<Result<()>> {
        let given = self.engine.operate(&mut self.around, self.window, target.0, body, None);
        match given {
            Poll::Pending => self.blocked = true,
            Poll::Ready(_) => self.sent = true,
        }
        let (node, world) = (self.around.node, &*self.around.world);
        given.map_err(|trouble| match world.sites.get(&self.window) {
            Some(site) => {
                let (block, distrust) = (&site.block, &world.distrust);
                fault::trouble_of(node, block, distrust, "an active message", trouble)
            }
            None => fault::gone("an active message", target),
        })
    }

    fn push(&mut self, target: Rank) {
        self.engine.push(&mut self.around, self.window, target.0);
    }

    fn note(&mut self, to: Rank, body: &[u8]) -> Sent {
        let sent = self.engine.note(&mut self.around, self.window, to.0, body);
        match sent {
            Sent::Full => self.blocked = true,
            Sent::Yes | Sent::Gone => self.sent = true,
        }
        sent
    }

    fn wake(&mut self, waker: Waker) {
        self.around.world.wake.push(waker);
    }

    fn ring(&mut self) {
        self.around.world.rung = true;
    }

    fn later(&mut self, spent: Box<dyn Any + Send>) {
        self.around.world.spent.push(spent);
    }
}
