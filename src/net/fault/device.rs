//! The decorated device.

use super::queues::{FaultChannel, FaultQueue};
use super::rc::FaultRc;
use super::state::State;
use super::ud::FaultUd;
use super::{Done, Plan};
use crate::base::{Error, Result};
use crate::net::memory::Memory;
use crate::net::provider::{
    Access, Capabilities, Channel, CompletionQueue, Counters, Device, Event, PostError, Queues,
    RcOptions, RcQueuePair, Region, SharedReceiveQueue, Time, UdQueuePair,
};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A device over another one, with faults.
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    name: String,
    capabilities: Capabilities,
    state: Arc<State>,
    rcs: Mutex<Vec<Weak<FaultRc>>>,
}

impl FaultDevice {
    /// Decorates `inner`. Objects made by it before do not work with this one.
    pub fn over(inner: Arc<dyn Device>, plan: Plan) -> Arc<FaultDevice> {
        let name = format!("{}, with faults", inner.name());
        let mut capabilities = *inner.capabilities();
        // Every datagram queue pair has one beside it that nobody looks at.
        capabilities.queue_pairs = (capabilities.queue_pairs / 2).max(1);
        let (state, rcs) = (Arc::new(State::new(plan)), Mutex::default());
        Arc::new(FaultDevice { inner, name, capabilities, state, rcs })
    }

    /// Another plan from now on.
    pub fn set_plan(&self, plan: Plan) {
        self.state.set_plan(plan);
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        self.state.lock().done
    }

    /// Cuts all connected queue pairs.
    pub fn cut_all(&self) {
        let rcs = self.rcs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rcs.iter().filter_map(Weak::upgrade).for_each(|rc| rc.cut());
    }

    fn queue<'a>(&self, queue: &'a Arc<dyn CompletionQueue>) -> Result<&'a FaultQueue> {
        let any: &(dyn Any + Send + Sync) = &**queue;
        any.downcast_ref::<FaultQueue>()
            .filter(|queue| Arc::ptr_eq(&queue.state, &self.state))
            .ok_or_else(foreign)
    }

    /// Calls `make` with the queues of the device below.
    fn below<T>(
        &self,
        queues: &Queues<'_>,
        make: impl FnOnce(&Queues<'_>) -> Result<T>,
    ) -> Result<T> {
        let (send, receive) = (self.queue(queues.send)?, self.queue(queues.receive)?);
        make(&Queues { send: &send.inner, receive: &receive.inner, ..*queues })
    }
}

fn foreign() -> Error {
    Error::invalid(
        "an object of a network device",
        "it belongs to another device; make all objects by the device that uses them",
    )
}

struct Registered {
    // Dropped in this order: forgotten, then unregistered.
    _forgets: Forgets,
    _region: Region,
}

struct Forgets(Arc<State>, u32);

impl Drop for Forgets {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

impl Device for FaultDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        let region = self.inner.register(memory, access)?;
        let local = region.local(0, 0).map_err(PostError::error)?.key;
        let remote = region.remote().key;
        self.state.remember(local, memory.clone());
        let forgets = Forgets(self.state.clone(), local);
        let registered = Registered { _forgets: forgets, _region: region };
        Ok(Region::new(memory.clone(), local, remote, access, Box::new(registered)))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>> {
        let (inner, device) = (self.inner.channel()?, self.inner.clone());
        Ok(Arc::new(FaultChannel { inner, device, state: self.state.clone() }))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>> {
        let channel = match channel {
            Some(channel) => {
                let any: &(dyn Any + Send + Sync) = &**channel;
                Some(&any.downcast_ref::<FaultChannel>().ok_or_else(foreign)?.inner)
            }
            None => None,
        };
        let inner = self.inner.completion_queue(depth, channel)?;
        let (device, state) = (self.inner.clone(), self.state.clone());
        Ok(Arc::new(FaultQueue { inner, device, state }))
    }

    fn shared_receive_queue(&self, depth: u32, pieces: u32) -> Result<Arc<dyn SharedReceiveQueue>> {
        self.inner.shared_receive_queue(depth, pieces)
    }

    fn ud(&self, queues: &Queues<'_>) -> Result<Arc<dyn UdQueuePair>> {
        let inner = self.below(queues, |below| self.inner.ud(below))?;
        let sink = self.below(queues, |below| {
            let (send_depth, receive_depth) = (1, 1);
            self.inner.ud(&Queues { send_depth, receive_depth, shared: None, ..*below })
        })?;
        Ok(FaultUd::new(inner, sink, &self.inner, &self.state)?)
    }

    fn rc(&self, queues: &Queues<'_>, options: &RcOptions) -> Result<Arc<dyn RcQueuePair>> {
        let inner = self.below(queues, |below| self.inner.rc(below, options))?;
        let rc = Arc::new(FaultRc { inner, state: self.state.clone() });
        let mut rcs = self.rcs.lock().unwrap_or_else(PoisonError::into_inner);
        rcs.retain(|rc| rc.strong_count() > 0);
        rcs.push(Arc::downgrade(&rc));
        Ok(rc)
    }

    fn events(&self, into: &mut [Event]) -> usize {
        self.inner.events(into)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
