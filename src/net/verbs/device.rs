//! The device: opened, asked for its limits, and what is made of it.

use super::bindings::{Cq, DeviceAttr, GRH, PortAttr, QpCap, QpInitAttr, number};
use super::channel::VerbsChannel;
use super::context::{Context, or_limits};
use super::hub::{Domain, Hub, PortFacts, violations};
use super::pair::{Pair, Parts};
use super::policy::Choice;
use super::queue::VerbsQueue;
use super::rc::VerbsRc;
use super::shared::VerbsShared;
use super::ud::VerbsUd;
use super::{Config, PIECES, keeper, region};
use crate::base::sync::Ordering;
use crate::base::{Error, Result};
use crate::net::alarm::now;
use crate::net::memory::Memory;
use crate::net::provider::{
    Access, Atomics, Capabilities, Channel, CompletionQueue, Counters, Device, Event, MemoryKinds,
    Queues, RcOptions, RcQueuePair, Region, SharedReceiveQueue, Time, UdQueuePair,
};
use crate::net::soft::events::Bell;
use crate::net::soft::objects::{at_most, foreign};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Deepest queues that are offered: more would only cost memory.
const DEPTH: u32 = 4096;
/// Most reads and atomics of a queue pair under way.
const READS: u32 = 16;
/// Inline sizes that are tried, largest first.
const INLINE: [u32; 7] = [512, 256, 220, 128, 64, 32, 0];

/// One queue pair, counted while it lives.
pub(super) struct Counted(Arc<Hub>);

impl Counted {
    fn new(hub: &Arc<Hub>) -> Result<Counted> {
        let limit = hub.capabilities.queue_pairs;
        let more = |count: u32| (count < limit).then_some(count + 1);
        if hub.queue_pairs.try_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            return Err(Error::Exhausted {
                what: "queue pairs of a network device",
                limit: limit.into(),
                advice: "use fewer connections at a time",
            });
        }
        Ok(Counted(hub.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.queue_pairs.fetch_sub(1, Ordering::AcqRel);
    }
}

struct VerbsDevice {
    hub: Arc<Hub>,
    name: String,
}

/// Opens the device on the port that was chosen.
pub(super) fn open(context: Context, choice: &Choice, config: &Config) -> Result<Arc<dyn Device>> {
    let (attributes, port) = (context.attributes()?, context.port(choice.port)?);
    let facts = PortFacts {
        number: choice.port,
        link: choice.link,
        gid: choice.entry.gid,
        gid_index: u8::try_from(choice.entry.index).map_err(|_| {
            let why = format!("{}, and queue pairs take 0 to 255", choice.entry.index);
            Error::invalid("the index of a GID", why)
        })?,
        lid: port.lid,
        mtu: port.active_mtu.clamp(1, 5) as u8,
        traffic_class: config.traffic_class,
        violations: port.qkey_viol_cntr,
    };
    let domain = Domain::new(context)?;
    let capabilities = probe(&domain, capabilities(&attributes, &port, config))?;
    let hub = Arc::new(Hub::new(domain, facts, capabilities, config)?);
    keeper::start(&hub)?;
    Ok(Arc::new(VerbsDevice { hub, name: format!("verbs, {}", choice.reason) }))
}

/// What the device says that it can do.
fn capabilities(device: &DeviceAttr, port: &PortAttr, config: &Config) -> Capabilities {
    let least = |value: i32, most: u32| u32::try_from(value).unwrap_or(0).clamp(1, most);
    Capabilities {
        datagram: (128 << port.active_mtu.clamp(1, 5)).min(config.datagram),
        datagram_prefix: GRH,
        message: port.max_msg_sz.clamp(1, 1 << 30),
        inline: INLINE[0],
        pieces: least(device.max_sge.min(device.max_srq_sge), PIECES as u32),
        queue_pairs: least(device.max_qp, 1 << 20),
        // One place is kept for the question whether the peer lives.
        queue_depth: least(device.max_qp_wr - 1, DEPTH),
        completion_depth: least(device.max_cqe, 1 << 20),
        shared_receive_depth: least(device.max_srq_wr, 32 << 10),
        reads: least(device.max_qp_rd_atom.min(device.max_qp_init_rd_atom), READS),
        atomics: match device.atomic_cap {
            number::ATOMIC_GLOB => Atomics::Cpu,
            number::ATOMIC_HCA => Atomics::Device,
            _ => Atomics::None,
        },
        offloads: true,
        memory: MemoryKinds { private: true, shared: true, locked: true },
        reports_idle_death: false,
    }
}

/// What one queue pair can have all at once is found by making one: first the inline size gives way,
/// then the depth.
fn probe(domain: &Domain, mut wanted: Capabilities) -> Result<Capabilities> {
    let queue = RawQueue::new(domain)?;
    loop {
        for inline in INLINE {
            let tried = Capabilities { inline, ..wanted };
            if [number::QPT_RC, number::QPT_UD].iter().all(|kind| queue.carries(&tried, *kind)) {
                return Ok(tried);
            }
        }
        if wanted.queue_depth < 128 {
            return Err(region::no_memory("a queue pair", 0));
        }
        wanted.queue_depth /= 2;
    }
}

/// A completion queue to try queue pairs on.
struct RawQueue<'a> {
    domain: &'a Domain,
    raw: NonNull<Cq>,
}

impl RawQueue<'_> {
    fn new(domain: &Domain) -> Result<RawQueue<'_>> {
        let (context, none) = (&domain.context, std::ptr::null_mut());
        // SAFETY: the device is open.
        let raw = unsafe {
            (context.verbs.ibv_create_cq)(context.raw(), 1, none, std::ptr::null_mut(), 0)
        };
        Ok(RawQueue { domain, raw: or_limits("a completion queue", raw)? })
    }

    fn carries(&self, capabilities: &Capabilities, kind: u32) -> bool {
        let cap = QpCap {
            max_send_wr: capabilities.queue_depth + 1,
            max_recv_wr: capabilities.queue_depth,
            max_send_sge: capabilities.pieces,
            max_recv_sge: capabilities.pieces,
            max_inline_data: capabilities.inline,
        };
        let (send_cq, recv_cq) = (self.raw.as_ptr(), self.raw.as_ptr());
        let (qp_context, srq) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut wanted =
            QpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type: kind, sq_sig_all: 0 };
        let verbs = self.domain.context.verbs;
        // SAFETY: domain and queue live, and outlive the queue pair, which is destroyed once.
        unsafe {
            let pair = (verbs.ibv_create_qp)(self.domain.raw(), &mut wanted);
            !pair.is_null() && (verbs.ibv_destroy_qp)(pair) == 0
        }
    }
}

impl Drop for RawQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { (self.domain.context.verbs.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}

impl VerbsDevice {
    fn parts(&self, queues: &Queues<'_>) -> Result<Parts> {
        let limits = &self.hub.capabilities;
        at_most("a send queue's depth", queues.send_depth, limits.queue_depth)?;
        at_most("pieces of an operation", queues.pieces, limits.pieces)?;
        if queues.inline > limits.inline {
            return Err(Error::invalid(
                "bytes of an inline operation",
                format!("{}, and this device takes 0 to {}", queues.inline, limits.inline),
            ));
        }
        let shared = queues.shared.map(|queue| {
            let queue: Arc<dyn Any + Send + Sync> = queue.clone();
            let queue = queue.downcast::<VerbsShared>().map_err(|_| foreign())?;
            if Arc::ptr_eq(&queue.hub, &self.hub) { Ok(queue) } else { Err(foreign()) }
        });
        let shared = shared.transpose()?;
        if shared.is_none() {
            at_most("a receive queue's depth", queues.receive_depth, limits.queue_depth)?;
        }
        Ok(Parts {
            send: self.queue(queues.send)?,
            receive: self.queue(queues.receive)?,
            shared,
            send_depth: queues.send_depth,
            receive_depth: queues.receive_depth,
            pieces: queues.pieces,
            inline: queues.inline,
        })
    }

    fn queue(&self, queue: &Arc<dyn CompletionQueue>) -> Result<Arc<VerbsQueue>> {
        let queue: Arc<dyn Any + Send + Sync> = queue.clone();
        let queue = queue.downcast::<VerbsQueue>().map_err(|_| foreign())?;
        if Arc::ptr_eq(&queue.hub, &self.hub) { Ok(queue) } else { Err(foreign()) }
    }
}

impl Device for VerbsDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.hub.capabilities
    }

    fn now(&self) -> Time {
        now()
    }

    fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        region::register(&self.hub, memory, access)
    }

    fn channel(&self) -> Result<Arc<dyn Channel>> {
        let channel = Arc::new(VerbsChannel::new(&self.hub)?);
        if !self.hub.events.is_empty() {
            channel.ring();
        }
        let bell: Arc<dyn Bell> = channel.clone();
        let bell: Weak<dyn Bell> = Arc::downgrade(&bell);
        self.hub.events.attach(bell);
        Ok(channel)
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>> {
        let limit = self.hub.capabilities.completion_depth;
        at_most("a completion queue's depth", depth, limit)?;
        let own = |channel: &Arc<dyn Channel>| {
            let channel: Arc<dyn Any + Send + Sync> = channel.clone();
            channel.downcast::<VerbsChannel>().map_err(|_| foreign())
        };
        let channel = channel.map(own).transpose()?;
        Ok(Arc::new(VerbsQueue::new(&self.hub, depth, channel)?))
    }

    fn shared_receive_queue(&self, depth: u32, pieces: u32) -> Result<Arc<dyn SharedReceiveQueue>> {
        let limits = &self.hub.capabilities;
        at_most("a shared receive queue's depth", depth, limits.shared_receive_depth)?;
        at_most("pieces of a receive", pieces, limits.pieces)?;
        Ok(Arc::new(VerbsShared::new(&self.hub, depth, pieces)?))
    }

    fn ud(&self, queues: &Queues<'_>) -> Result<Arc<dyn UdQueuePair>> {
        let counted = Counted::new(&self.hub)?;
        let pair = Pair::new(&self.hub, self.parts(queues)?, None)?;
        Ok(Arc::new(VerbsUd::new(pair, counted)))
    }

    fn rc(&self, queues: &Queues<'_>, options: &RcOptions) -> Result<Arc<dyn RcQueuePair>> {
        let counted = Counted::new(&self.hub)?;
        let pair = Pair::new(&self.hub, self.parts(queues)?, Some(*options))?;
        Ok(Arc::new(VerbsRc::new(pair, *options, counted)))
    }

    fn events(&self, into: &mut [Event]) -> usize {
        self.hub.events.take(into)
    }

    fn counters(&self) -> Counters {
        // What devices drop for other reasons they tell nobody.
        let strangers = self.hub.strangers.load(Ordering::Relaxed);
        Counters { strangers: strangers + violations(&self.hub), ..Default::default() }
    }
}
