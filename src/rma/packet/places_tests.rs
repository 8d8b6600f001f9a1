//! Places of parts on other nodes over a simulated network: asked for once, and no places any more once
//! somebody doubts them.

use super::agent::Agent;
use crate::base::adapt::Limits;
use crate::base::{Error, Rank, Result, Slot};
use crate::link::core::Core;
use crate::link::far::edge::{Directory, Edge};
use crate::link::far::{Direction, Far, Flow, Outcome, PairSettings};
use crate::net::memory::Memory;
use crate::net::promotion::{Settings, When};
use crate::net::provider::{Address, RemoteRegion};
use crate::net::sim::{Network, Parameters};
use crate::rma::runtime::WindowId;
use crate::shm::node::Node;
use crate::topo::{Map, Placement};
use crate::{Job, LockKind, Window};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ELEMENTS: usize = 10_000;

/// Where the ranks are reached.
#[derive(Clone, Default)]
struct Published(Arc<Mutex<HashMap<Rank, Address>>>);

impl Directory for Published {
    fn address(&self, rank: Rank) -> Result<Address> {
        for _ in 0..10_000 {
            if let Some(address) = self.0.lock().unwrap().get(&rank) {
                return Ok(*address);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::invalid("a test", format!("rank {rank} is nowhere")))
    }
}

/// Runs `body` on two ranks on two nodes, where queue pairs come with the first message.
fn two(body: impl Fn(&Job) + Send + Sync) {
    let network = Network::in_real_time(Parameters::default()).unwrap();
    let published = Published::default();
    let connect = |node: &Arc<Node>| {
        let core = Core::of(node)?;
        let policy = Settings { when: When::Traffic, after: 1, ..Settings::default() };
        let patience = Duration::from_secs(2);
        let pairs = PairSettings {
            policy,
            patience,
            limits: Limits::default(),
            hints: core.hints().clone(),
            kept: 1 << 20,
        };
        let silence = Duration::from_secs(20);
        let edge = Edge::open(node, network.device(1), 1, silence, pairs, |address| {
            published.0.lock().unwrap().insert(node.rank_of(node.slot()), *address);
            Ok(Box::new(published.clone()))
        })?;
        node.look_beyond(edge.clone());
        core.reach_far(edge);
        Ok(())
    };
    let places = "block".parse::<Map>().unwrap().places(2, Some(2)).unwrap();
    let ends = Job::threads_placed(Placement::of(places, 0).unwrap(), connect, |job| {
        body(&job);
        job.finish()
    });
    ends.unwrap().into_iter().for_each(|end| end.unwrap());
}

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
            self.far.copy(self.slot, Flow::Requests.into(), write, region.at(0), &ones).unwrap();
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
    two(|job| {
        let window = Window::<u64>::allocate(job.team(), ELEMENTS).unwrap();
        if job.rank() == Rank(0) {
            let side = Side::new(job, &window);
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
    });
}
