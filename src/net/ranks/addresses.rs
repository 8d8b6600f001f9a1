//! Addresses of processes that were asked for lately. Who is asked is the host's business.

use std::collections::HashMap;

/// The longest address.
const LONGEST: usize = 64;

/// An address as a device takes it: up to 64 bytes that mean something to nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    length: u8,
    bytes: [u8; LONGEST],
}

impl Address {
    /// Nothing if there are more bytes than an address can have.
    pub fn new(address: &[u8]) -> Option<Address> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..address.len())?.copy_from_slice(address);
        Some(Address { length: address.len() as u8, bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(LONGEST)]
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.bytes()).finish()
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    process: u32,
    /// Asked for since the hand last passed.
    used: bool,
    address: Address,
}

/// The latest addresses, up to a limit: which one has to go is found by a hand that goes round and
/// spares each that was asked for since it last passed (the clock approximation of least recently
/// used).
#[derive(Clone, Debug)]
pub struct Addresses {
    limit: usize,
    entries: Vec<Entry>,
    places: HashMap<u32, u32>,
    hand: usize,
}

impl Addresses {
    /// At most `limit`, and at least one.
    pub fn new(limit: usize) -> Addresses {
        let limit = limit.clamp(1, u32::MAX as usize);
        Addresses { limit, entries: Vec::new(), places: HashMap::new(), hand: 0 }
    }

    /// The address of `process`, if it is known.
    #[inline]
    pub fn get(&mut self, process: u32) -> Option<Address> {
        let entry = &mut self.entries[*self.places.get(&process)? as usize];
        entry.used = true;
        Some(entry.address)
    }

    /// The address of `process` is this one now.
    pub fn put(&mut self, process: u32, address: Address) {
        let entry = Entry { process, used: false, address };
        if let Some(at) = self.places.get(&process) {
            self.entries[*at as usize] = entry;
            return;
        }
        let at = if self.entries.len() < self.limit {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            while std::mem::take(&mut self.entries[self.hand].used) {
                self.hand = (self.hand + 1) % self.limit;
            }
            let at = self.hand;
            self.hand = (at + 1) % self.limit;
            self.places.remove(&self.entries[at].process);
            self.entries[at] = entry;
            at
        };
        self.places.insert(process, at as u32);
    }

    /// What was known of `process` is not right any more.
    pub fn forget(&mut self, process: u32) {
        let Some(at) = self.places.remove(&process) else { return };
        self.entries.swap_remove(at as usize);
        if let Some(moved) = self.entries.get(at as usize) {
            self.places.insert(moved.process, at);
        }
        if self.hand >= self.entries.len() {
            self.hand = 0;
        }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that it has, with this structure; of the hash table, what its entries need.
    pub fn bytes(&self) -> usize {
        let places = self.places.capacity() * (size_of::<(u32, u32)>() + 1);
        size_of::<Addresses>() + self.entries.capacity() * size_of::<Entry>() + places
    }
}
