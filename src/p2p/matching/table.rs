//! A hash table from [`Name`]s to small values, for keys that others choose.
//!
//! ```text
//!   [ name | value ][ vacant ][ name | value ][ name | value ] ...   open addressing, <= half full
//! ```
//! Linear probing; removal closes the gap it makes, so that a table through which any number of
//! names have passed is as quick as a new one and never has to be cleaned up. It grows by
//! doubling and keeps what it has grown to: nothing is allocated once it has been as full as it
//! gets.
//!
//! A peer chooses tags, so the hash is keyed: a multiplication of 64 by 64 bits with both factors
//! masked by seeds of this process, and a second one that spreads what regular names leave regular
//! (as wyhash does). Without the seeds nobody can choose names that fall on one place.

use super::pattern::Name;
use std::hash::{BuildHasher, RandomState};

/// An odd number with as many ones as zeros, in no order.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The product of both, its halves laid upon each other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// The key of the hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed([u64; 2]);

impl Seed {
    /// One that nobody else knows.
    pub fn random() -> Seed {
        // The standard library's tables draw theirs from the system in this way.
        let states = RandomState::new();
        Seed::from([states.hash_one(0u64), states.hash_one(1u64)])
    }

    #[inline]
    fn hash(&self, name: &Name) -> u64 {
        let [a, b] = self.0;
        fold(fold(name.wide ^ a, u64::from(name.narrow) ^ b), ODD)
    }
}

impl From<[u64; 2]> for Seed {
    fn from([a, b]: [u64; 2]) -> Seed {
        // Never a small factor: the upper half of the product has to depend on the name.
        Seed([a, b | 1 << 63])
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Entry<V> {
    name: Name,
    value: V,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Table<V> {
    seed: Seed,
    used: usize,
    /// A power of two of them.
    entries: Box<[Entry<V>]>,
}

/// Where a name stands in a table, until something is inserted or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(usize);

impl<V: Copy + Default> Table<V> {
    pub fn new(seed: Seed) -> Table<V> {
        Table { seed, used: 0, entries: vec![Entry::default(); 16].into() }
    }

    /// Names in the table.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Places that there is memory for.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    #[inline]
    fn home(&self, name: &Name) -> usize {
        self.seed.hash(name) as usize & self.mask()
    }

    /// Where `name` is, or else the vacant place where it belongs. Ends, since half of the places
    /// are vacant.
    #[inline]
    fn search(&self, name: &Name) -> (Place, bool) {
        let mut at = self.home(name);
        loop {
            let found = &self.entries[at].name;
            if found == name || found.is_vacant() {
                return (Place(at), found == name);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Where `name` is. One hash, and as a rule one cache line.
    #[inline]
    pub fn find(&self, name: &Name) -> Option<Place> {
        let (place, there) = self.search(name);
        there.then_some(place)
    }

    #[inline]
    pub fn at(&self, place: Place) -> &V {
        &self.entries[place.0].value
    }

    #[inline]
    pub fn at_mut(&mut self, place: Place) -> &mut V {
        &mut self.entries[place.0].value
    }

    /// Where `name` is, with the default value if it was not there.
    #[inline]
    pub fn entry(&mut self, name: &Name) -> Place {
        let (mut place, there) = self.search(name);
        if !there {
            if (self.used + 1) * 2 > self.entries.len() {
                self.grow();
                place = self.search(name).0;
            }
            self.used += 1;
            self.entries[place.0] = Entry { name: *name, value: V::default() };
        }
        place
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Entry::default(); self.entries.len() * 2].into();
        let old = std::mem::replace(&mut self.entries, larger);
        for entry in old.iter().filter(|entry| !entry.name.is_vacant()) {
            let (place, _) = self.search(&entry.name);
            self.entries[place.0] = *entry;
        }
    }

    /// Removes what is at `place`, and moves up those that stand behind their own place for it.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        let mask = self.mask();
        let (mut gap, mut at) = (place.0, place.0);
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.name.is_vacant() {
                break;
            }
            let wanted = self.home(&entry.name);
            if at.wrapping_sub(wanted) & mask >= at.wrapping_sub(gap) & mask {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = Entry::default();
        self.used -= 1;
    }

    /// Steps of the longest search for a name that is there.
    #[cfg(test)]
    pub fn longest(&self) -> usize {
        let each = self.entries.iter().enumerate().filter(|(_, e)| !e.name.is_vacant());
        let steps = |(at, e): (usize, &Entry<V>)| at.wrapping_sub(self.home(&e.name)) & self.mask();
        each.map(steps).max().unwrap_or(0)
    }
}
