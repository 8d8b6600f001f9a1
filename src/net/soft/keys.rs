//! Keys of registered memory. Local and remote key of a region are one number: 20 bits of index, 12
//! of generation, so that a key in use is never a stale one (in 4095 registrations of its place).

use crate::base::{Error, Result};
use crate::net::memory::Memory;
use crate::net::provider::{Access, Region};
use std::sync::{Arc, PoisonError, RwLock};

const INDEX_BITS: u32 = 20;
const GENERATIONS: u32 = 1 << (32 - INDEX_BITS);

#[derive(Default)]
struct Entry {
    generation: u32,
    region: Option<(Memory, Access)>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// The table of a device.
#[derive(Default)]
pub struct Keys(Arc<RwLock<Table>>);

struct Registration {
    table: Arc<RwLock<Table>>,
    key: u32,
}

impl Keys {
    pub fn register(&self, memory: &Memory, access: Access) -> Result<Region> {
        let key = {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let index = match table.free.pop() {
                Some(index) => index,
                None if table.entries.len() >> INDEX_BITS == 0 => {
                    table.entries.push(Entry { generation: 1, region: None });
                    table.entries.len() as u32 - 1
                }
                None => {
                    return Err(Error::Exhausted {
                        what: "registered regions",
                        limit: 1 << INDEX_BITS,
                        advice: "register fewer, larger regions",
                    });
                }
            };
            let entry = &mut table.entries[index as usize];
            entry.region = Some((memory.clone(), access));
            entry.generation << INDEX_BITS | index
        };
        let registration = Registration { table: self.0.clone(), key };
        Ok(Region::new(memory.clone(), key, key, access, Box::new(registration)))
    }

    /// The memory behind a key and the offset of `address` in it, if `length` bytes lie there and
    /// `need` is granted. Cost: a read lock and two atomics.
    pub fn find(&self, key: u32, address: u64, length: u64, need: Access) -> Option<(Memory, u64)> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get((key & ((1 << INDEX_BITS) - 1)) as usize)?;
        let (memory, access) = entry.region.as_ref()?;
        let offset = address.checked_sub(memory.address())?;
        let good = entry.generation == key >> INDEX_BITS
            && memory.contains(offset, length)
            && access.allows(need);
        good.then(|| (memory.clone(), offset))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let index = self.key & ((1 << INDEX_BITS) - 1);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let entry = &mut table.entries[index as usize];
        let gone = entry.region.take();
        entry.generation = (entry.generation + 1) % GENERATIONS;
        if entry.generation == 0 {
            entry.generation = 1;
        }
        table.free.push(index);
        drop(table);
        // The owner's drop is the program's: with no lock held.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_open_what_they_were_made_for_and_only_while_it_is_registered() {
        let keys = Keys::default();
        let memory = Memory::zeroed(100).unwrap();
        let region = keys.register(&memory, Access::REMOTE_READ).unwrap();
        let remote = region.remote();
        let find = |offset: u64, length, need| {
            keys.find(remote.key, remote.address.wrapping_add(offset), length, need)
        };
        assert_eq!(find(40, 60, Access::REMOTE_READ).unwrap().1, 40);
        assert!(find(40, 61, Access::REMOTE_READ).is_none());
        assert!(find(u64::MAX, 1, Access::REMOTE_READ).is_none());
        assert!(find(1, u64::MAX, Access::REMOTE_READ).is_none());
        assert!(find(0, 1, Access::REMOTE_WRITE).is_none());
        assert!(keys.find(remote.key ^ 1 << 20, remote.address, 1, Access::LOCAL_READ).is_none());
        drop(region);
        assert!(keys.find(remote.key, remote.address, 1, Access::LOCAL_READ).is_none());
        let again = keys.register(&memory, Access::ALL).unwrap();
        assert_ne!(again.remote().key, remote.key);
    }

    #[test]
    fn memory_is_given_back_when_its_region_is_dropped() {
        let keys = Keys::default();
        let memory = Memory::zeroed(8).unwrap();
        let owner = Arc::downgrade(memory.owner());
        let region = keys.register(&memory, Access::ALL).unwrap();
        drop(memory);
        assert!(owner.upgrade().is_some());
        drop(region);
        assert!(owner.upgrade().is_none());
    }
}
