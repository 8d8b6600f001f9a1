//! The device over sockets.

use super::Config;
use super::channel::SocketChannel;
use super::engine::Engine;
use super::interface;
use super::rc::SocketRc;
use super::ud::SocketUd;
use crate::base::{Error, Result, forked};
use crate::net::alarm::now;
use crate::net::memory::Memory;
use crate::net::provider::{
    Access, Atomics, Capabilities, Channel, CompletionQueue, Counters, Device, Event, MemoryKinds,
    Queues, RcOptions, RcQueuePair, Region, SharedReceiveQueue, Time, UdQueuePair,
};
use crate::net::soft::completions::Completions;
use crate::net::soft::core::Core;
use crate::net::soft::events::Bell;
use crate::net::soft::objects::{Counted, Progress, Queue, SharedQueue, at_most, bell};
use crate::net::soft::objects::{datagrams, ports};
use crate::net::soft::{INLINE, MESSAGE, PIECES, READS};
use std::sync::{Arc, Weak};

/// Longest payload of a UDP datagram over IPv4, less our header.
const LONGEST_DATAGRAM: u32 = 65_507 - crate::net::soft::datagram::HEADER as u32;

/// Who keeps the thread: the device and its queue pairs. With the last of them it ends (nobody waits
/// for that: the last may be let go by the thread itself, or by who polls in its stead).
pub(super) struct Owner {
    pub engine: Arc<Engine>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

struct SocketDevice {
    owner: Arc<Owner>,
    thread: bool,
    name: String,
    capabilities: Capabilities,
}

/// Opens the device: a listening TCP socket, and a thread if it is to have one. Errors: not an address of this machine, no
/// descriptors, no threads.
pub fn open(config: &Config) -> Result<Arc<dyn Device>> {
    forked::refuse_forked("opening a network device")?;
    at_most("HITHER_NET_DATAGRAM", config.datagram, LONGEST_DATAGRAM)?;
    let engine = Engine::new(interface::check(config.address)?, config.cookie)?;
    if config.thread {
        let runs = engine.clone();
        std::thread::Builder::new()
            .name("hither-net".into())
            .spawn(move || runs.run())
            .map_err(|e| Error::os("starting the network's thread", e))?;
    }
    // Two descriptors for a connected queue pair, and some for the program.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let queue_pairs = files.unwrap_or(1 << 20).saturating_sub(64) / 2;
    let capabilities = Capabilities {
        datagram: config.datagram,
        datagram_prefix: 0,
        message: MESSAGE,
        inline: INLINE as u32,
        pieces: PIECES as u32,
        queue_pairs: queue_pairs.clamp(1, 1 << 20) as u32,
        queue_depth: 16 << 10,
        completion_depth: 1 << 20,
        shared_receive_depth: 32 << 10,
        reads: READS as u32,
        atomics: Atomics::Cpu,
        offloads: false,
        memory: MemoryKinds { private: true, shared: true, locked: false },
        reports_idle_death: true,
    };
    let name = format!("sockets, {}", engine.here);
    let owner = Arc::new(Owner { engine });
    Ok(Arc::new(SocketDevice { owner, thread: config.thread, name, capabilities }))
}

impl Device for SocketDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> Time {
        now()
    }

    fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        self.owner.engine.shared.keys.register(memory, access)
    }

    fn channel(&self) -> Result<Arc<dyn Channel>> {
        let channel =
            Arc::new(SocketChannel::new((!self.thread).then(|| self.owner.engine.clone()))?);
        let shared = &self.owner.engine.shared;
        if !shared.events.is_empty() {
            channel.ring();
        }
        let bell: Arc<dyn Bell> = channel.clone();
        let bell: Weak<dyn Bell> = Arc::downgrade(&bell);
        shared.events.attach(bell);
        Ok(channel)
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>> {
        at_most("a completion queue's depth", depth, self.capabilities.completion_depth)?;
        let bell = bell::<SocketChannel>(channel)?;
        let progress: Arc<dyn Progress> = self.owner.engine.clone();
        Ok(Arc::new(Queue {
            completions: Arc::new(Completions::new(depth, bell)),
            shared: self.owner.engine.shared.clone(),
            progress: Some(progress),
        }))
    }

    fn shared_receive_queue(&self, depth: u32, pieces: u32) -> Result<Arc<dyn SharedReceiveQueue>> {
        Ok(SharedQueue::new(&self.owner.engine.shared, &self.capabilities, depth, pieces)?)
    }

    fn ud(&self, queues: &Queues<'_>) -> Result<Arc<dyn UdQueuePair>> {
        let engine = &self.owner.engine;
        let counted = Counted::new(&engine.shared, self.capabilities.queue_pairs)?;
        let ud = datagrams(&engine.shared, &self.capabilities, queues, engine.cookie)?;
        Ok(SocketUd::new(&self.owner, ud, counted)?)
    }

    fn rc(&self, queues: &Queues<'_>, options: &RcOptions) -> Result<Arc<dyn RcQueuePair>> {
        let engine = &self.owner.engine;
        let counted = Counted::new(&engine.shared, self.capabilities.queue_pairs)?;
        let ports = ports(&engine.shared, &self.capabilities, queues, 0)?;
        let sizes = [queues.send_depth, queues.pieces, queues.inline];
        let core = Core::new(engine.shared.number(), ports, *options, sizes);
        Ok(SocketRc::new(&self.owner, core, counted))
    }

    fn events(&self, into: &mut [Event]) -> usize {
        self.owner.engine.shared.events.take(into)
    }

    fn counters(&self) -> Counters {
        self.owner.engine.shared.counters()
    }
}
