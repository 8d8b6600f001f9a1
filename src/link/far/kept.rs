//! Memory that a device knows: for one transfer, or kept for the next one where the library controls
//! its life (the pin-down cache of paper 004, [`crate::net::regcache`]).
//!
//! ```text
//!   declared by its owner (own ... disown)      the program's other memory
//!      |== kept ==|   |=== kept ===|               |once|      |once|
//!        ^ used again, whole pages                   registered for one transfer
//! ```
//! Two caches: what this process's own operations name, and what peers may read. A registration is
//! given back when its transfer has ended well; then nothing accesses memory by it until it is used
//! again. In any other case it is revoked: the device forgets it at once, whoever else uses it, and
//! what it was just doing is over. So the rules of transfers are the same with and without a cache:
//! whoever gives a message or an operation up has its memory back, and nothing comes or goes late.

use crate::base::Result;
use crate::base::sync::{AtomicU64, Ordering};
use crate::net::memory::{Lent, Memory};
use crate::net::provider::{Access, Device, Local, Region, Remote, RemoteRegion};
use crate::net::regcache::{Lease, Limits, Ownership, RegistrationCache};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Registrations that are kept at most, of each kind.
const ENTRIES: usize = 1024;

/// Which cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Named by this process's own operations.
    Own = 0,
    /// Known to peers, who may read.
    Shown = 1,
}

impl Use {
    /// What kept registrations allow; more than some transfers need, so that all can share them.
    fn access(self) -> Access {
        match self {
            Use::Own => Access::LOCAL_WRITE,
            Use::Shown => Access::REMOTE_READ,
        }
    }

    /// The cache for what is wanted; none for what is never kept.
    fn of(access: Access) -> Option<Use> {
        match access {
            Access::LOCAL_READ | Access::LOCAL_WRITE => Some(Use::Own),
            Access::REMOTE_READ => Some(Use::Shown),
            _ => None,
        }
    }
}

/// A registration that is kept. Dropped, the device has forgotten it.
#[derive(Debug)]
struct Held {
    // In this order: registered no more, then back.
    region: Region,
    _lent: Lent,
}

type Cache = RegistrationCache<Held>;

/// Those of a process.
pub(super) struct Kept {
    device: Arc<dyn Device>,
    caches: [Mutex<Cache>; 2],
    again: AtomicU64,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kept({} and {})", self.cache(Use::Own).len(), self.cache(Use::Shown).len())
    }
}

impl Kept {
    /// At most so many bytes of each kind; 0 keeps none.
    pub fn new(device: Arc<dyn Device>, bytes: u64) -> Arc<Kept> {
        let cache = || Mutex::new(Cache::new(Limits { bytes, entries: ENTRIES }));
        Arc::new(Kept { device, caches: [cache(), cache()], again: AtomicU64::new(0) })
    }

    fn cache(&self, of: Use) -> MutexGuard<'_, Cache> {
        self.caches[of as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registrations in these bytes are kept from now on.
    ///
    /// # Safety
    /// They stay mapped, readable and writable, until [`Kept::disown`] has taken them back, and no
    /// reference to them exists while a device may access them.
    pub unsafe fn own(&self, first: NonNull<u8>, bytes: usize) {
        let start = first.as_ptr().expose_provenance() as u64;
        for of in [Use::Own, Use::Shown] {
            // What overlaps with what is declared is not kept; nobody declares that.
            let _ = self.cache(of).own(start..start + bytes as u64);
        }
    }

    /// The bytes are going to be something else. False if a transfer still uses them: then they have
    /// to stay as they are.
    pub fn disown(&self, first: NonNull<u8>, bytes: usize) -> bool {
        let start = first.as_ptr().addr() as u64;
        [Use::Own, Use::Shown].into_iter().fold(true, |all, of| {
            let mut gone = Vec::new();
            let done = self.cache(of).disown(start..start + bytes as u64, |held| gone.push(held));
            // Whose drop waits for the device: without the lock, which is free again here.
            drop(gone);
            all & !matches!(done, Err(Ownership::InUse(_)))
        })
    }

    /// Has the device know memory.
    ///
    /// # Errors
    /// The device's limits; memory of a kind that it does not take.
    pub fn register(self: &Arc<Self>, memory: &Memory, access: Access) -> Result<Registered> {
        if let Some(kept) = Use::of(access).and_then(|of| self.keep(memory, of)) {
            return Ok(kept);
        }
        let region = self.device.register(memory, access)?;
        Ok(Registered { at: memory.address(), length: memory.length(), how: How::Once(region) })
    }

    /// A registration that is kept, if all of the memory is its owner's to declare.
    fn keep(self: &Arc<Self>, memory: &Memory, of: Use) -> Option<Registered> {
        let start = memory.address();
        let range = start..start.checked_add(memory.length())?;
        let mut gone = Vec::new();
        let mut cache = self.cache(of);
        if !cache.is_owned(&range) {
            return None;
        }
        let register = |range: std::ops::Range<u64>| {
            let first = std::ptr::with_exposed_provenance_mut(range.start as usize);
            let first = NonNull::new(first).ok_or(())?;
            let bytes = usize::try_from(range.end - range.start).map_err(drop)?;
            // SAFETY: the cache asks for what is owned only: mapped until it is disowned, before
            // which this is dropped.
            let (lent, memory) = unsafe { Lent::new(first, bytes) };
            let region = self.device.register(&memory, of.access()).map_err(drop)?;
            Ok::<_, ()>(Held { region, _lent: lent })
        };
        let before = cache.counters().hits;
        let lease = cache.acquire(range, register, |held| gone.push(held));
        self.again.fetch_add(cache.counters().hits - before, Ordering::Relaxed);
        let how = lease.ok().and_then(|lease| {
            let (held, _) = cache.registration(&lease)?;
            let whole = held.region.memory();
            // The keys are those of every piece of it.
            let local = held.region.local(start - whole.address(), 0).ok()?;
            let remote = held.region.remote();
            let kept = self.clone();
            Some(How::Kept { kept, of, lease: Some(lease), local, remote, _memory: memory.clone() })
        });
        drop(cache);
        drop(gone);
        Some(Registered { at: start, length: memory.length(), how: how? })
    }

    /// Transfers so far that found their memory registered.
    pub fn again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }
}

/// Memory that a device knows. Dropped, it does not any more.
#[derive(Debug)]
pub(crate) struct Registered {
    at: u64,
    length: u64,
    how: How,
}

#[derive(Debug)]
enum How {
    Once(Region),
    Kept {
        kept: Arc<Kept>,
        of: Use,
        /// Until it is given back.
        lease: Option<Lease>,
        local: Local,
        remote: RemoteRegion,
        /// Whoever lent it waits for this to go.
        _memory: Memory,
    },
}

impl Registered {
    /// Where peers find it, if they may access it.
    pub fn remote(&self) -> Remote {
        self.whole().at(0)
    }

    /// The same, and how much there is.
    pub fn whole(&self) -> RemoteRegion {
        match &self.how {
            How::Once(region) => region.remote(),
            How::Kept { remote, .. } => {
                RemoteRegion { address: self.at, length: self.length, ..*remote }
            }
        }
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// A piece of it in this process's operations.
    pub fn local(&self, offset: u64, length: u32) -> Option<Local> {
        match &self.how {
            How::Once(region) => region.local(offset, length).ok(),
            How::Kept { local, .. } => {
                let end = offset.checked_add(length.into())?;
                (end <= self.length).then(|| Local { address: self.at + offset, length, ..*local })
            }
        }
    }

    /// It was used as it should be, and nothing accesses it any more: the registration may be kept.
    pub fn give_back(mut self) {
        if let How::Kept { kept, of, lease, .. } = &mut self.how
            && let Some(lease) = lease.take()
        {
            let mut gone = Vec::new();
            kept.cache(*of).release(lease, |held| gone.push(held));
        }
    }
}

impl Drop for How {
    fn drop(&mut self) {
        if let How::Kept { kept, of, lease, .. } = self
            && let Some(lease) = lease.take()
        {
            let mut gone = Vec::new();
            kept.cache(*of).revoke(lease, |held| gone.push(held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::sim::{Network, Parameters};

    /// Some memory that is declared, and a device.
    fn world(bytes: u64) -> (Arc<Network>, Arc<Kept>, Memory) {
        let network = Network::new(Parameters::default());
        let device = network.device(1);
        let memory = Memory::zeroed(64 << 10).unwrap();
        let kept = Kept::new(device, bytes);
        let first = NonNull::new(std::ptr::with_exposed_provenance_mut(memory.address() as usize));
        // SAFETY: each test keeps the memory until its end.
        unsafe { kept.own(first.unwrap(), 64 << 10) };
        (network, kept, memory)
    }

    /// What a program would lend of it.
    fn part(memory: &Memory, from: u64, bytes: usize) -> (Lent, Memory) {
        let at = std::ptr::with_exposed_provenance_mut((memory.address() + from) as usize);
        // SAFETY: as above.
        unsafe { Lent::new(NonNull::new(at).unwrap(), bytes) }
    }

    #[test]
    fn what_was_given_back_is_found_again_and_names_what_was_asked_for() {
        let (_network, kept, memory) = world(1 << 20);
        let (_lent, first) = part(&memory, 100, 5000);
        let (_lent2, inside) = part(&memory, 300, 8);
        let registered = kept.register(&first, Access::LOCAL_READ).unwrap();
        let key = registered.local(0, 1).unwrap().key;
        registered.give_back();
        let again = kept.register(&inside, Access::LOCAL_WRITE).unwrap();
        let local = again.local(2, 6).unwrap();
        assert_eq!((local.key, local.address), (key, memory.address() + 302));
        assert!(again.local(2, 7).is_none() && again.local(u64::MAX, 1).is_none());
        assert_eq!(kept.again(), 1);
        // Peers' are others: what they know is not what this process's operations name.
        let shown = kept.register(&inside, Access::REMOTE_READ).unwrap();
        assert_eq!(shown.whole().length, 8);
        assert_eq!(shown.remote().address, memory.address() + 300);
        assert_eq!(kept.again(), 1);
    }

    #[test]
    fn what_is_dropped_is_forgotten_by_the_device_at_once() {
        let (_network, kept, memory) = world(1 << 20);
        let (lent, first) = part(&memory, 0, 100);
        let one = kept.register(&first, Access::REMOTE_READ).unwrap();
        let other = kept.register(&first, Access::REMOTE_READ).unwrap();
        assert_eq!(one.remote(), other.remote());
        drop(one);
        assert!(kept.cache(Use::Shown).is_empty(), "a peer could still read");
        other.give_back();
        drop(first);
        drop(lent);
        let (_lent, first) = part(&memory, 0, 100);
        kept.register(&first, Access::REMOTE_READ).unwrap().give_back();
        assert_eq!((kept.again(), kept.cache(Use::Shown).len()), (1, 1));
    }

    #[test]
    fn memory_of_others_and_rights_to_write_are_for_one_transfer() {
        let (_network, kept, memory) = world(1 << 20);
        let foreign = Memory::zeroed(100).unwrap();
        kept.register(&foreign, Access::LOCAL_WRITE).unwrap().give_back();
        let (_lent, first) = part(&memory, 0, 100);
        let writable = Access::REMOTE_READ | Access::REMOTE_WRITE;
        kept.register(&first, writable).unwrap().give_back();
        assert!(kept.cache(Use::Own).is_empty() && kept.cache(Use::Shown).is_empty());
    }

    #[test]
    fn without_room_for_more_transfers_go_on() {
        let (_network, kept, memory) = world(4096 * 3);
        // What was lent goes after what is registered, which has it.
        let lent: (Vec<_>, Vec<_>) = (0..8).map(|i| part(&memory, i * 8192, 100)).unzip();
        let (_lent, parts) = lent;
        let register = |part| kept.register(part, Access::LOCAL_READ).unwrap();
        let all: Vec<_> = parts.iter().map(register).collect();
        let once = all.iter().filter(|it| matches!(it.how, How::Once(_))).count();
        assert!(once >= 4, "{once}");
        all.into_iter().for_each(Registered::give_back);
        assert!(kept.cache(Use::Own).bytes() <= 4096 * 3);
    }

    #[test]
    fn what_is_in_use_is_not_taken_back() {
        let (_network, kept, memory) = world(1 << 20);
        let (_lent, first) = part(&memory, 0, 100);
        let used = kept.register(&first, Access::LOCAL_READ).unwrap();
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(memory.address() as usize));
        assert!(!kept.disown(start.unwrap(), 64 << 10));
        used.give_back();
        assert!(kept.disown(start.unwrap(), 64 << 10));
        assert!(kept.cache(Use::Own).is_empty());
        kept.register(&first, Access::LOCAL_READ).unwrap().give_back();
        assert!(kept.cache(Use::Own).is_empty(), "nobody answers for that memory any more");
    }
}
