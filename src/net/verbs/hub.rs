//! What all objects of an opened device share: the device, its protection domain, the registered
//! memory, the events. It is closed when the last of them goes.

use super::Config;
use super::address::{Spot, digest};
use super::bindings::{self, Gid};
use super::context::{Context, last_error};
use super::pair::Pair;
use super::policy::Link;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::{Error, Result};
use crate::net::alarm::Alarm;
use crate::net::memory::Memory;
use crate::net::provider::{Access, Capabilities};
use crate::net::soft::events::Events;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// A protection domain, given back before the device is closed.
pub(super) struct Domain {
    pub context: Context,
    raw: NonNull<bindings::Domain>,
}

// SAFETY: the library's functions may be called for one domain from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub fn new(context: Context) -> Result<Domain> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.verbs.ibv_alloc_pd)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("making a protection domain"))?;
        Ok(Domain { context, raw })
    }

    pub fn raw(&self) -> *mut bindings::Domain {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: made once, given back once; everything in it keeps it.
        unsafe { (self.context.verbs.ibv_dealloc_pd)(self.raw()) };
    }
}

/// The port that is used.
pub(super) struct PortFacts {
    pub number: u8,
    pub link: Link,
    pub gid: Gid,
    pub gid_index: u8,
    pub lid: u16,
    /// The code of its MTU.
    pub mtu: u8,
    pub traffic_class: u8,
    /// Violations of the datagrams' key that it had counted when it was opened.
    pub violations: u32,
}

/// See the module.
pub(super) struct Hub {
    pub domain: Domain,
    pub port: PortFacts,
    pub capabilities: Capabilities,
    pub cookie: u64,
    /// The key of the job's datagrams.
    pub qkey: u32,
    pub events: Events,
    pub strangers: AtomicU64,
    regions: RwLock<HashMap<u32, (Memory, Access)>>,
    numbers: AtomicU32,
    pub queue_pairs: AtomicU32,
    /// Connected queue pairs, for the keeper: all of them by the device's number.
    pairs: Mutex<HashMap<u32, Weak<Pair>>>,
    /// Numbers of shared receive queues, by the address of the library's.
    shared: Mutex<Vec<(usize, u32)>>,
    /// Wakes the keeper.
    pub alarm: Alarm,
}

impl Hub {
    pub fn new(
        domain: Domain,
        port: PortFacts,
        capabilities: Capabilities,
        config: &Config,
    ) -> Result<Hub> {
        Ok(Hub {
            domain,
            port,
            capabilities,
            cookie: config.cookie,
            // Keys with the highest bit set are the system's.
            qkey: digest(config.cookie, b"datagrams") & 0x7fff_ffff,
            events: Events::default(),
            strangers: AtomicU64::new(0),
            regions: RwLock::default(),
            numbers: AtomicU32::new(0),
            queue_pairs: AtomicU32::new(0),
            pairs: Mutex::default(),
            shared: Mutex::default(),
            alarm: Alarm::new()?,
        })
    }

    pub fn context(&self) -> &Context {
        &self.domain.context
    }

    pub fn verbs(&self) -> &'static bindings::Functions {
        self.domain.context.verbs
    }

    /// A number that no other object of the device has had (in 2^32 of them).
    pub fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A queue pair of this device.
    pub fn spot(&self, number: u32, connected: bool) -> Spot {
        let PortFacts { link, gid, lid, mtu, .. } = self.port;
        let mtu = if connected { mtu } else { 0 };
        Spot { connected, link, number, gid, lid, mtu, receiver: 0, reads: 0, psn: 0 }
    }

    /// How to reach a queue pair.
    pub fn route(&self, spot: &Spot) -> bindings::AhAttr {
        bindings::AhAttr {
            dgid: spot.gid,
            sgid_index: self.port.gid_index,
            hop_limit: 64,
            traffic_class: self.port.traffic_class,
            dlid: spot.lid,
            is_global: 1,
            port_num: self.port.number,
            ..Default::default()
        }
    }

    /// Checks that a peer's queue pair can be reached from here.
    pub fn same_fabric(&self, spot: &Spot) -> bool {
        let v4 = |gid: &Gid| gid[..10] == [0; 10] && gid[10..12] == [255; 2];
        spot.link == self.port.link && v4(&spot.gid) == v4(&self.port.gid)
    }

    /// Keeps memory under the key that the device gave it.
    pub fn keep(&self, key: u32, memory: Memory, access: Access) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(key, (memory, access));
    }

    pub fn forget(&self, key: u32) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Whether a piece lies in registered memory, and can be written if it must.
    pub fn is_registered(&self, piece: &bindings::Sge, written: bool) -> bool {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(&piece.lkey).is_some_and(|(memory, access)| {
            let offset = piece.addr.wrapping_sub(memory.address());
            memory.contains(offset, piece.length.into())
                && (!written || access.allows(Access::LOCAL_WRITE))
        })
    }

    /// The first bytes of pieces; false if they are not (or no longer) in registered memory.
    pub fn peek(&self, pieces: &[bindings::Sge], into: &mut [u8]) -> bool {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let mut rest = into;
        for piece in pieces {
            let Some((memory, _)) = regions.get(&piece.lkey) else { return false };
            let count = rest.len().min(piece.length as usize);
            let (head, tail) = rest.split_at_mut(count);
            if !memory.read(piece.addr.wrapping_sub(memory.address()), head) {
                return false;
            }
            rest = tail;
        }
        rest.is_empty()
    }

    /// Knows a queue pair by the device's number.
    pub fn enlist(&self, number: u32, pair: &Arc<Pair>) {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.insert(number, Arc::downgrade(pair));
    }

    pub fn strike(&self, number: u32) {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    pub fn pair(&self, number: u32) -> Option<Arc<Pair>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }

    pub fn know_shared(&self, raw: *mut bindings::Srq, number: u32) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).push((raw.addr(), number));
    }

    pub fn forget_shared(&self, number: u32) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, other)| *other != number);
    }

    /// The number of the shared receive queue that the library has at this address.
    pub fn shared_at(&self, address: usize) -> Option<u32> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.iter().find(|(at, _)| *at == address).map(|(_, number)| *number)
    }

    pub fn all_pairs(&self) -> Vec<Arc<Pair>> {
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.values().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The keeper sees that it is gone.
        self.alarm.ring();
    }
}

/// A number of a queue pair's first packet, which an earlier one did not have.
pub(super) fn fresh_psn() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::os("getrandom", e))?;
    Ok(u32::from_ne_bytes(bytes) & 0xff_ffff)
}

/// Completions and events of peers that were counted by the port since it was opened.
pub(super) fn violations(hub: &Hub) -> u64 {
    let now = hub.context().port(hub.port.number).map(|port| port.qkey_viol_cntr);
    now.map_or(0, |now| now.saturating_sub(hub.port.violations).into())
}
