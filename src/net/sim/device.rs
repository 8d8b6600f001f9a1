//! Devices of the virtual network.

use super::channel::SimChannel;
use super::network::{Network, Place};
use super::rc::{Line, SimRc};
use super::ud::SimUd;
use crate::base::Result;
use crate::net::memory::Memory;
use crate::net::provider::{
    Access, Atomics, Capabilities, Channel, CompletionQueue, Counters, Device, Event, MemoryKinds,
    Queues, RcOptions, RcQueuePair, Region, SharedReceiveQueue, Time, UdQueuePair,
};
use crate::net::soft::completions::Completions;
use crate::net::soft::core::Core;
use crate::net::soft::events::Bell;
use crate::net::soft::objects::{Counted, Queue, SharedQueue, at_most, bell, datagrams, ports};
use crate::net::soft::{INLINE, MESSAGE, PIECES, READS, Shared};
use std::sync::{Arc, Mutex, Weak};

pub(super) struct SimDevice {
    network: Arc<Network>,
    node: u32,
    cookie: u64,
    name: String,
    capabilities: Capabilities,
    shared: Arc<Shared>,
}

impl SimDevice {
    pub fn new(network: Arc<Network>, node: u32, cookie: u64) -> Arc<SimDevice> {
        let capabilities = Capabilities {
            datagram: network.parameters.datagram,
            datagram_prefix: network.parameters.datagram_prefix,
            message: MESSAGE,
            inline: INLINE as u32,
            pieces: PIECES as u32,
            queue_pairs: 1 << 20,
            queue_depth: 16 << 10,
            completion_depth: 1 << 20,
            shared_receive_depth: 32 << 10,
            reads: READS as u32,
            atomics: Atomics::Cpu,
            offloads: false,
            memory: MemoryKinds { private: true, shared: true, locked: false },
            reports_idle_death: false,
        };
        let (name, shared) = (format!("sim, node {node}"), Arc::default());
        Arc::new(SimDevice { network, node, cookie, name, capabilities, shared })
    }
}

impl Device for SimDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> Time {
        self.network.now()
    }

    fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        self.shared.keys.register(memory, access)
    }

    fn channel(&self) -> Result<Arc<dyn Channel>> {
        let rung = !self.shared.events.is_empty();
        let channel = Arc::new(SimChannel::new(self.network.clone(), rung));
        let bell: Arc<dyn Bell> = channel.clone();
        let bell: Weak<dyn Bell> = Arc::downgrade(&bell);
        self.shared.events.attach(bell);
        Ok(channel)
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>> {
        at_most("a completion queue's depth", depth, self.capabilities.completion_depth)?;
        let bell = bell::<SimChannel>(channel)?;
        let completions = Arc::new(Completions::new(depth, bell));
        Ok(Arc::new(Queue { completions, shared: self.shared.clone(), progress: None }))
    }

    fn shared_receive_queue(&self, depth: u32, pieces: u32) -> Result<Arc<dyn SharedReceiveQueue>> {
        Ok(SharedQueue::new(&self.shared, &self.capabilities, depth, pieces)?)
    }

    fn ud(&self, queues: &Queues<'_>) -> Result<Arc<dyn UdQueuePair>> {
        let counted = Counted::new(&self.shared, self.capabilities.queue_pairs)?;
        let ud = datagrams(&self.shared, &self.capabilities, queues, self.cookie)?;
        let place = Place { node: self.node, number: ud.number, incarnation: 0 };
        let ud = Arc::new(SimUd {
            ud,
            place,
            network: self.network.clone(),
            peers: Mutex::default(),
            _counted: counted,
        });
        self.network.add_ud(place, &ud);
        Ok(ud)
    }

    fn rc(&self, queues: &Queues<'_>, options: &RcOptions) -> Result<Arc<dyn RcQueuePair>> {
        let counted = Counted::new(&self.shared, self.capabilities.queue_pairs)?;
        let ports = ports(&self.shared, &self.capabilities, queues, 0)?;
        let number = self.shared.number();
        let sizes = [queues.send_depth, queues.pieces, queues.inline];
        let rc = Arc::new(SimRc {
            node: self.node,
            number,
            cookie: self.cookie,
            network: self.network.clone(),
            shared: self.shared.clone(),
            line: Mutex::new(Line::new(Core::new(number, ports, *options, sizes))),
            _counted: counted,
        });
        self.network.add_rc(Place { node: self.node, number, incarnation: 0 }, &rc);
        Ok(rc)
    }

    fn events(&self, into: &mut [Event]) -> usize {
        self.shared.events.take(into)
    }

    fn counters(&self) -> Counters {
        self.shared.counters()
    }
}
