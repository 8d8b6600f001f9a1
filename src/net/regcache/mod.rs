//! The pin-down cache (paper 004): memory that was registered for one transfer stays registered for
//! the next one, up to a limit. Pure: registering and giving up are the caller's.
//!
//! ```text
//!   owned    |-------- symmetric heap --------|          |--- buffers ---|      where it caches
//!   entries     |= idle =|   |== 2 users ==|              |= idle =|            never overlapping
//!   replaced              |= 1 user: goes with it =|
//! ```
//! **Why it caches only what is owned.** A registration pins pages, not addresses. If a program
//! unmaps memory and maps other memory at the same address, a cached registration still leads to the
//! old pages: data go astray without any error. A library can learn of that only if it sees every
//! `munmap`, `mremap`, `brk`, `MADV_DONTNEED` and `fork` of the process, and on plain Linux it cannot:
//! - replacing `malloc`, or patching `munmap` in the C library (what MPI libraries and UCX do), misses
//!   system calls made otherwise, breaks with static linking and other allocators, and belongs to no
//!   library that programs merely link;
//! - `userfaultfd` reports unmapping only to the privileged (events need `CAP_SYS_PTRACE` or a
//!   setting), and one reader per process;
//! - `mincore` says whether a page is there, not which; `/proc/self/pagemap` hides page frames from
//!   the unprivileged; both tell what was true before the transfer, not during it.
//!
//! So the rule: registrations are cached in memory whose life the library controls, which its owner
//! declares ([`RegistrationCache::own`]) and takes back *before* it is unmapped
//! ([`RegistrationCache::disown`], which fails while a transfer uses it). Everything else is
//! registered for one transfer ([`Lease::is_cached`] is false), during which the program may not
//! unmap it, as it may not free a buffer under way; large messages pay for it, and programs that want
//! it cheaper allocate from the heap. (Devices that follow the page tables themselves, on-demand
//! paging, need none of this.)

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Registrations begin and end at multiples of this, within what is owned.
const PAGE: u64 = 4096;

/// What may be registered at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes, in use or not.
    pub bytes: u64,
    /// Registrations, in use or not.
    pub entries: usize,
}

/// Why there is no registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal<E> {
    /// All that the limits allow is in use: go through buffers that are registered for ever.
    Full,
    /// The range is empty, or ends beyond the last address.
    Range,
    /// The device refused.
    Device(E),
}

/// Why a stretch of memory cannot be declared, or taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// Some of it is declared already.
    Overlaps,
    /// Not all of it is declared.
    NotOwned,
    /// So many registrations in it are in use.
    InUse(usize),
    /// It is empty.
    Empty,
}

/// The right to use a registration, until it is given back.
#[derive(PartialEq, Eq, Debug)]
pub struct Lease {
    id: u64,
    cached: bool,
}

impl Lease {
    /// Whether the registration stays when it is given back.
    pub fn is_cached(&self) -> bool {
        self.cached
    }
}

#[derive(Debug)]
struct Entry<R> {
    range: Range<u64>,
    users: u32,
    /// When it was last used, counted in calls.
    used: u64,
    /// It can be found; else it goes with its last user.
    found: bool,
    registration: R,
}

/// What happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Transfers whose memory was registered.
    pub hits: u64,
    /// Those for which it had to be.
    pub misses: u64,
    /// Those of memory that is not owned.
    pub once: u64,
    /// Registrations given up for others.
    pub evictions: u64,
}

/// See the module. `R` is what a device gives for a registration. Addresses are numbers here:
/// nothing is accessed.
#[derive(Debug)]
pub struct RegistrationCache<R> {
    limits: Limits,
    /// Ends of what is owned, by starts.
    owned: BTreeMap<u64, u64>,
    entries: HashMap<u64, Entry<R>>,
    /// Entries that can be found, by their starts: they do not overlap.
    places: BTreeMap<u64, u64>,
    /// Those of them without users, the least recently used first.
    idle: BTreeMap<u64, u64>,
    bytes: u64,
    /// Counts entries, and calls.
    next: u64,
    counters: Counters,
}

impl<R> RegistrationCache<R> {
    /// Nothing owned, nothing registered.
    pub fn new(limits: Limits) -> RegistrationCache<R> {
        RegistrationCache {
            limits,
            owned: BTreeMap::new(),
            entries: HashMap::new(),
            places: BTreeMap::new(),
            idle: BTreeMap::new(),
            bytes: 0,
            next: 0,
            counters: Counters::default(),
        }
    }

    /// Bytes that are registered; some may count twice while entries are replaced.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Registrations there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// This memory stays mapped as it is until it is taken back.
    pub fn own(&mut self, range: Range<u64>) -> Result<(), Ownership> {
        if range.is_empty() {
            return Err(Ownership::Empty);
        }
        if self.owned.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start) {
            return Err(Ownership::Overlaps);
        }
        self.owned.insert(range.start, range.end);
        Ok(())
    }

    /// The owned stretch in which all of `range` lies.
    fn owner(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = self.owned.range(..=range.start).next_back()?;
        (*end >= range.end).then_some(*start..*end)
    }

    /// Whether all of it was declared at once.
    pub fn is_owned(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.owner(range).is_some()
    }

    /// This memory, all or a part of what was declared at once, is going to be unmapped or changed:
    /// its registrations are given up by `deregister`. Fails, and changes nothing, while any is in
    /// use; then the transfers have to end first.
    pub fn disown(
        &mut self,
        range: Range<u64>,
        mut deregister: impl FnMut(R),
    ) -> Result<(), Ownership> {
        if range.is_empty() {
            return Err(Ownership::Empty);
        }
        let owner = self.owner(&range).ok_or(Ownership::NotOwned)?;
        let touches =
            |entry: &Entry<R>| entry.range.start < range.end && range.start < entry.range.end;
        let in_use = self.entries.values().filter(|e| e.users > 0 && touches(e)).count();
        if in_use > 0 {
            return Err(Ownership::InUse(in_use));
        }
        for id in self.overlapping(&range) {
            self.forget(id, &mut deregister);
        }
        self.owned.remove(&owner.start);
        for rest in [owner.start..range.start, range.end..owner.end] {
            if !rest.is_empty() {
                self.owned.insert(rest.start, rest.end);
            }
        }
        Ok(())
    }

    /// Entries that can be found and have bytes of `range`.
    fn overlapping(&self, range: &Range<u64>) -> Vec<u64> {
        let begun = self.places.range(..range.end).rev();
        begun
            .map(|(_, id)| *id)
            .take_while(|id| self.entries.get(id).is_some_and(|e| e.range.end > range.start))
            .collect()
    }

    /// Gives an entry up.
    fn forget(&mut self, id: u64, deregister: &mut impl FnMut(R)) {
        let Some(entry) = self.entries.remove(&id) else { return };
        if entry.found {
            self.places.remove(&entry.range.start);
            self.idle.remove(&entry.used);
        }
        self.bytes -= entry.range.end - entry.range.start;
        deregister(entry.registration);
    }

    /// A registration for all of `range`: one that is there, or one that `register` makes; what has
    /// to go for it, `deregister` gives up before.
    pub fn acquire<E>(
        &mut self,
        range: Range<u64>,
        register: impl FnOnce(Range<u64>) -> Result<R, E>,
        mut deregister: impl FnMut(R),
    ) -> Result<Lease, Refusal<E>> {
        if range.is_empty() {
            return Err(Refusal::Range);
        }
        let Some(owner) = self.owner(&range) else {
            self.counters.once += 1;
            return self.add(range, false, register, deregister);
        };
        if let Some(lease) = self.hit(&range) {
            return Ok(lease);
        }
        self.counters.misses += 1;
        // Whole pages, and what is there beside them and not in use: one registration instead of
        // many that overlap.
        let end = range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let paged = (range.start / PAGE * PAGE).max(owner.start)..end.min(owner.end);
        let replaced = self.overlapping(&paged);
        let union = replaced
            .iter()
            .filter_map(|id| self.entries.get(id))
            .fold(paged.clone(), |union, entry| {
                union.start.min(entry.range.start)..union.end.max(entry.range.end)
            });
        let fits = union.end - union.start <= self.limits.bytes / 4;
        let wanted = if fits { union } else { paged };
        for id in replaced {
            self.replace(id, &mut deregister);
        }
        self.add(wanted, true, register, deregister)
    }

    /// A user more of an entry that has all of `range`.
    #[inline]
    fn hit(&mut self, range: &Range<u64>) -> Option<Lease> {
        let (_, id) = self.places.range(..=range.start).next_back()?;
        let id = *id;
        let entry = self.entries.get_mut(&id).filter(|entry| entry.range.end >= range.end)?;
        if entry.users == 0 {
            self.idle.remove(&entry.used);
        }
        entry.users += 1;
        self.counters.hits += 1;
        Some(Lease { id, cached: true })
    }

    /// The entry cannot be found any more; it goes now, or with its last user.
    fn replace(&mut self, id: u64, deregister: &mut impl FnMut(R)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.users == 0 {
            return self.forget(id, deregister);
        }
        entry.found = false;
        self.places.remove(&entry.range.start);
    }

    fn add<E>(
        &mut self,
        range: Range<u64>,
        found: bool,
        register: impl FnOnce(Range<u64>) -> Result<R, E>,
        mut deregister: impl FnMut(R),
    ) -> Result<Lease, Refusal<E>> {
        let bytes = range.end - range.start;
        let idle: u64 = self.idle.values().map(|id| self.size(*id)).sum();
        let in_use = self.bytes - idle;
        if bytes > self.limits.bytes.saturating_sub(in_use)
            || self.entries.len() - self.idle.len() >= self.limits.entries
        {
            return Err(Refusal::Full);
        }
        while bytes > self.limits.bytes.saturating_sub(self.bytes)
            || self.entries.len() >= self.limits.entries
        {
            let Some((_, id)) = self.idle.first_key_value() else { return Err(Refusal::Full) };
            self.counters.evictions += 1;
            self.forget(*id, &mut deregister);
        }
        let registration = register(range.clone()).map_err(Refusal::Device)?;
        let id = self.count();
        if found {
            self.places.insert(range.start, id);
        }
        self.bytes += bytes;
        self.entries.insert(id, Entry { range, users: 1, used: id, found, registration });
        Ok(Lease { id, cached: found })
    }

    fn size(&self, id: u64) -> u64 {
        self.entries.get(&id).map_or(0, |entry| entry.range.end - entry.range.start)
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The registration, and what it covers. Nothing for leases of another cache, and if it was revoked.
    #[inline]
    pub fn registration(&self, lease: &Lease) -> Option<(&R, Range<u64>)> {
        self.entries.get(&lease.id).map(|entry| (&entry.registration, entry.range.clone()))
    }

    /// The transfer is over. A cached registration stays for the next one; others go.
    pub fn release(&mut self, lease: Lease, mut deregister: impl FnMut(R)) {
        let used = self.count();
        let Some(entry) = self.entries.get_mut(&lease.id) else { return };
        entry.users = entry.users.saturating_sub(1);
        entry.used = used;
        match (entry.users, entry.found) {
            (0, true) => {
                self.idle.insert(used, lease.id);
            }
            (0, false) => self.forget(lease.id, &mut deregister),
            _ => {}
        }
    }

    /// The registration goes now, for all who use it: nobody may access its memory by it any more.
    /// Transfers of others that go on by it fail.
    pub fn revoke(&mut self, lease: Lease, mut deregister: impl FnMut(R)) {
        self.forget(lease.id, &mut deregister);
    }

    /// Gives up everything that is not in use.
    pub fn flush(&mut self, mut deregister: impl FnMut(R)) {
        while let Some((_, id)) = self.idle.first_key_value() {
            self.forget(*id, &mut deregister);
        }
    }
}
