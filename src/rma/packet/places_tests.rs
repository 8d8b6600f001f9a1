//! Places of parts on other nodes over a simulated network: asked for once, and no places any more once
//! somebody doubts them.

use super::agent::Agent;
use crate::base::{Rank, Slot};
use crate::link::core::Core;
use crate::link::far::{Direction, Far, Flow, Outcome};
use crate::net::memory::Memory;
use crate::net::provider::RemoteRegion;
use crate::rma::runtime::WindowId;
use crate::shm::node::Node;
use crate::world::Simulation;
use crate::{Job, LockKind, Window};
use std::sync::Arc;

const ELEMENTS: usize = 10_000;

/// One of two ranks, and where the other one's part is.
struct Side<'w> {
    window: &'w Window<u64>,
    node: Arc<Node>,
    agent: Arc<Agent>,
    far: Arc<dyn Far>,
    id: WindowId,
    peer: Rank,
    slot: Slot,
}

impl Side<'_> {
    fn new<'w>(job: &Job, window: &'w Window<u64>) -> Side<'w> {
        let node = job.team().node().clone();
        let (agent, peer) = (Agent::of(&node).unwrap(), Rank(1 - job.rank().0));
        let far = Core::of(&node).unwrap().far().unwrap().clone();
        let id = WindowId(window.core().block.identity());
        let slot = job.team().slot_of(peer).unwrap();
        Side { window, node, agent, far, id, peer, slot }
    }

    fn look(&self) {
        self.agent.enter().unwrap().look(&self.node).unwrap();
        std::thread::yield_now();
    }

    fn place(&self) -> Option<RemoteRegion> {
        self.agent.enter().unwrap().world.place(&self.node, self.id, self.peer, self.slot)
    }

    fn known(&self) -> RemoteRegion {
        loop {
            match self.place() {
                Some(region) => return region,
                None => self.look(),
            }
        }
    }

    /// Writes a one into the first elements, as a late write would.
    fn write(&self, region: RemoteRegion) -> Outcome {
        // A queue pair is there, or comes with these.
        while !self.far.is_hot(self.slot, Flow::Requests) {
            let epoch = self.window.lock(self.peer, LockKind::Shared).unwrap();
            epoch.put(self.peer, ELEMENTS - 1, &[0]).unwrap();
            epoch.unlock().unwrap();
        }
        let ones = Memory::zeroed(800).unwrap();
        (0..100).for_each(|i| assert!(ones.write(8 * i, &1u64.to_le_bytes())));
        let write = Direction::Write;
        let transfer =
            self.far.copy(self.slot, Flow::Requests, write, region.at(0), &ones).unwrap();
        loop {
            match transfer.outcome() {
                Some(outcome) => return outcome,
                None => self.look(),
            }
        }
    }
}

#[test]
fn a_place_that_is_doubted_is_none_any_more_and_a_new_one_is_told() {
    let results = Simulation::new(2, 2).run(|job| {
        let window = Window::<u64>::allocate(job.team(), ELEMENTS).unwrap();
        if job.rank() == Rank(0) {
            let side = Side::new(&job, &window);
            assert!(side.place().is_none(), "nobody has told it yet");
            let first = side.known();
            assert_eq!((first.length, side.known()), (8 * ELEMENTS as u64, first));
            assert_eq!(side.write(first), Outcome::Done);

            let enter = || side.agent.enter().unwrap();
            enter().world.doubt(&side.node, side.id, side.peer, side.slot, first.key);
            assert!(enter().world.doubts(side.id) && side.place().is_none());
            while enter().world.doubts(side.id) {
                side.look();
            }
            let second = side.known();
            assert_ne!(second.key, first.key);
            assert_eq!(side.write(first), Outcome::Failed, "the old place is gone");
            assert_eq!(side.write(second), Outcome::Done, "though a queue pair has failed");

            // Who doubts what is none any more learns the present one.
            enter().world.doubt(&side.node, side.id, side.peer, side.slot, first.key);
            while enter().world.doubts(side.id) {
                side.look();
            }
            assert_eq!(side.known(), second);
        }
        job.team().barrier().unwrap();
        if job.rank() == Rank(1) {
            assert_eq!(window.local().get(99).unwrap(), 1);
            assert_eq!(window.local().get(100).unwrap(), 0);
        }
        window.free().unwrap();
        job.finish().unwrap();
    });
    assert_eq!(results.unwrap().len(), 2);
}
