//! Objects that all devices of software have in the same form.

use super::completions::Completions;
use super::core::Ports;
use super::datagram::Ud;
use super::events::Bell;
use super::receives::Receives;
use super::{PIECES, Shared};
use crate::base::sync::Ordering;
use crate::base::{Error, Result};
use crate::net::provider::{
    Arm, Capabilities, Channel, Completion, CompletionQueue, Queues, Receive, Refused,
    SharedReceiveQueue,
};
use std::any::Any;
use std::sync::Arc;

/// What may bring completions when a queue has none.
pub trait Progress: Send + Sync {
    /// Looks whether something has come, without blocking.
    fn progress(&self);
}

/// A completion queue.
pub struct Queue {
    pub completions: Arc<Completions>,
    pub shared: Arc<Shared>,
    pub progress: Option<Arc<dyn Progress>>,
}

impl CompletionQueue for Queue {
    fn poll(&self, into: &mut [Completion]) -> usize {
        if self.completions.is_empty()
            && let Some(progress) = &self.progress
        {
            progress.progress();
        }
        self.completions.poll(into)
    }

    fn arm(&self, what: Arm) -> Result<()> {
        if self.completions.arm(what) {
            return Ok(());
        }
        Err(Error::Misuse {
            what: "arming a completion queue",
            why: "it was made without a channel, so nobody can wait for it; give it one".into(),
        })
    }
}

/// A shared receive queue.
pub struct SharedQueue {
    pub number: u32,
    pub receives: Arc<Receives>,
    pub shared: Arc<Shared>,
}

impl SharedReceiveQueue for SharedQueue {
    fn number(&self) -> u32 {
        self.number
    }

    fn post(&self, receives: &[Receive<'_>]) -> Result<(), Refused> {
        self.receives.post(receives, None)
    }

    fn arm_low_water(&self, mark: u32) -> Result<()> {
        self.receives.arm_low_water(mark, &self.shared.events);
        Ok(())
    }
}

impl SharedQueue {
    pub fn new(
        shared: &Arc<Shared>,
        capabilities: &Capabilities,
        depth: u32,
        pieces: u32,
    ) -> Result<Arc<SharedQueue>> {
        at_most("a shared receive queue's depth", depth, capabilities.shared_receive_depth)?;
        at_most("pieces of a receive", pieces, capabilities.pieces)?;
        let number = shared.number();
        let receives = Arc::new(Receives::new(depth, pieces, 0, Some(number)));
        Ok(Arc::new(SharedQueue { number, receives, shared: shared.clone() }))
    }
}

/// An error unless `value` is in `1..=limit`.
pub fn at_most(what: &'static str, value: u32, limit: u32) -> Result<()> {
    if (1..=limit).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(what, format!("{value}, and this device takes 1 to {limit}")))
}

/// The object behind an interface, if it is this device's.
pub fn own<T: Any + Send + Sync>(object: &(dyn Any + Send + Sync)) -> Result<&T> {
    object.downcast_ref().ok_or_else(foreign)
}

/// What rings a channel of the kind `C`, if there is one.
///
/// # Errors
/// [`Error::InvalidArgument`]: it is one of another kind of device.
pub fn bell<C: Bell + Any + Send + Sync>(
    channel: Option<&Arc<dyn Channel>>,
) -> Result<Option<Arc<dyn Bell>>> {
    let bell = |channel: &Arc<dyn Channel>| {
        let any: Arc<dyn Any + Send + Sync> = channel.clone();
        any.downcast::<C>().map(|bell| bell as Arc<dyn Bell>).map_err(|_| foreign())
    };
    channel.map(bell).transpose()
}

pub fn foreign() -> Error {
    Error::invalid(
        "an object of a network device",
        "it belongs to another device; make all objects by the device that uses them",
    )
}

fn queue<'a>(shared: &Arc<Shared>, queue: &'a Arc<dyn CompletionQueue>) -> Result<&'a Queue> {
    let any: &(dyn Any + Send + Sync) = &**queue;
    let queue: &Queue = own(any)?;
    if Arc::ptr_eq(&queue.shared, shared) { Ok(queue) } else { Err(foreign()) }
}

/// One queue pair, counted while it lives.
pub struct Counted(Arc<Shared>);

impl Counted {
    pub fn new(shared: &Arc<Shared>, limit: u32) -> Result<Counted> {
        let more = |count: u32| (count < limit).then_some(count + 1);
        if shared.queue_pairs.try_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            return Err(Error::Exhausted {
                what: "queue pairs of a network device",
                limit: limit.into(),
                advice: "use fewer connections at a time",
            });
        }
        Ok(Counted(shared.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.queue_pairs.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Checks what a queue pair is asked for, and finds the queues. `shortest` is the shortest receive
/// that one of its own may be.
pub fn ports(
    shared: &Arc<Shared>,
    capabilities: &Capabilities,
    queues: &Queues<'_>,
    shortest: u64,
) -> Result<Ports> {
    at_most("a send queue's depth", queues.send_depth, capabilities.queue_depth)?;
    at_most("pieces of an operation", queues.pieces, capabilities.pieces.min(PIECES as u32))?;
    if queues.inline > capabilities.inline {
        let limit = capabilities.inline;
        return Err(Error::invalid(
            "bytes of an inline operation",
            format!("{}, and this device takes 0 to {limit}", queues.inline),
        ));
    }
    let receives = match queues.shared {
        Some(queue) => {
            let any: &(dyn Any + Send + Sync) = &**queue;
            let queue: &SharedQueue = own(any)?;
            if !Arc::ptr_eq(&queue.shared, shared) {
                return Err(foreign());
            }
            queue.receives.clone()
        }
        None => {
            at_most("a receive queue's depth", queues.receive_depth, capabilities.queue_depth)?;
            Arc::new(Receives::new(queues.receive_depth, queues.pieces, shortest, None))
        }
    };
    Ok(Ports {
        shared: shared.clone(),
        sends: queue(shared, queues.send)?.completions.clone(),
        completions: queue(shared, queues.receive)?.completions.clone(),
        receives,
    })
}

/// The common part of a datagram queue pair.
pub fn datagrams(
    shared: &Arc<Shared>,
    capabilities: &Capabilities,
    queues: &Queues<'_>,
    cookie: u64,
) -> Result<Ud> {
    let (limit, prefix) = (capabilities.datagram, capabilities.datagram_prefix);
    let ports = ports(shared, capabilities, queues, u64::from(limit) + u64::from(prefix))?;
    Ok(Ud {
        number: shared.number(),
        cookie,
        shared: shared.clone(),
        sends: ports.sends,
        receives: ports.receives,
        completions: ports.completions,
        limit,
        prefix,
        pieces: queues.pieces,
        inline: queues.inline,
    })
}
