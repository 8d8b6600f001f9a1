//! The entries that a process uses at present, in a fixed number of lines.
//!
//! ```text
//! slots, a power of two, at least twice the lines:
//!   rank + 1 (0: free) | generation of the last use | words of the entry        32 B
//! ```
//! A rank's slot is the first one from its hash on that holds it or is free (open addressing; the
//! slots are never more than half full, and leaving closes gaps, so runs stay short). All lines
//! serve all ranks: a working set of as many ranks as lines always hits, which sets of a few lines
//! could not promise.
//!
//! Hits take no lock: readers look at slots under a version (`base::version`); who finds a writer
//! at work goes the way of a miss, where a lock orders everybody. A hit writes only if the line was
//! not used since the last miss: misses count generations, and the line whose last use lies most
//! generations back makes room (the least recently used one, where uses between the same two
//! misses count as one).
//!
//! The paper (001 §3.4.1) builds a minimal perfect hash function (CHD) over the cached ranks anew
//! on every miss. `hither bench window-rate` measures such a cache beside this one. Its
//! construction goes over all keys, so a miss costs it more than all else together; that decided
//! for this one. Figures stand in `docs/performance.md`.

use super::Entry;
use crate::base::Result;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::version::Version;
use std::sync::{Mutex, PoisonError};

/// Lines of a cache where nobody asks for another number; the paper's.
pub const LINES: usize = 32;

/// Where an entry comes from if it is neither computed nor cached.
pub trait Fetch {
    /// The entry of `rank`, from its home. May block, as a get does.
    fn fetch(&self, rank: u32) -> Result<Entry>;
}

impl<F: Fn(u32) -> Result<Entry>> Fetch for F {
    fn fetch(&self, rank: u32) -> Result<Entry> {
        self(rank)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Cache {
    version: Version,
    /// Advanced by every miss.
    generation: AtomicU32,
    /// Where the upper bits of a hash begin.
    shift: u32,
    slots: Box<[Slot]>,
    /// Lines that are free; whoever changes the slots holds it.
    free: Mutex<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Rank + 1, or 0 if the slot is free.
    key: AtomicU32,
    generation: AtomicU32,
    words: [AtomicU64; Entry::WORDS],
}

const _: () = assert!(size_of::<Slot>() == 32);

impl Slot {
    fn take_over(&self, key: u32, generation: u32, words: [u64; Entry::WORDS]) {
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
        self.generation.store(generation, Ordering::Relaxed);
        self.key.store(key, Ordering::Release);
    }

    #[inline(always)]
    fn words(&self) -> [u64; Entry::WORDS] {
        self.words.each_ref().map(|word| word.load(Ordering::Acquire))
    }
}

impl Cache {
    /// An empty cache of `lines` lines, at least one.
    pub fn new(lines: usize) -> Cache {
        let lines = lines.clamp(1, 1 << 24);
        let slots = (2 * lines).next_power_of_two();
        Cache {
            version: Version::new(),
            generation: AtomicU32::new(1),
            shift: 32 - slots.trailing_zeros(),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: Mutex::new(lines),
        }
    }

    /// The entry of `rank`: cached, or fetched and then cached. A hit costs about eight loads
    /// from two private cache lines.
    #[inline]
    pub fn entry(&self, rank: u32, fetch: &impl Fetch) -> Result<Entry> {
        match self.hit(rank) {
            Some(entry) => Ok(entry),
            None => self.miss(rank, fetch),
        }
    }

    /// The entry of `rank` if it is cached and nobody changes the cache at the moment.
    #[inline]
    pub fn hit(&self, rank: u32) -> Option<Entry> {
        let (slot, words) = self.version.read(|| {
            let slot = self.search(rank)?;
            Some((slot, slot.words()))
        })??;
        let now = self.generation.load(Ordering::Relaxed);
        if slot.generation.load(Ordering::Relaxed) != now {
            // The slot may be another rank's by now: then that one looks used.
            slot.generation.store(now, Ordering::Relaxed);
        }
        Some(Entry::from_words(words))
    }

    /// Where the search for a key begins: the upper bits of a product (Fibonacci hashing).
    #[inline(always)]
    fn home(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b9) >> self.shift) as usize
    }

    /// The slot of `rank`.
    #[inline(always)]
    fn search(&self, rank: u32) -> Option<&Slot> {
        let key = rank.wrapping_add(1);
        let mask = self.slots.len() - 1;
        let first = self.home(key);
        for probe in 0..=mask {
            let slot = &self.slots[(first + probe) & mask];
            match slot.key.load(Ordering::Acquire) {
                0 => break,
                seen if seen == key => return Some(slot),
                _ => {}
            }
        }
        None
    }

    #[cold]
    fn miss(&self, rank: u32, fetch: &impl Fetch) -> Result<Entry> {
        let entry = fetch.fetch(rank)?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // No team has so many members that a rank could have no key.
        if rank < u32::MAX && self.search(rank).is_none() {
            self.version.write(|| self.insert(&mut free, rank + 1, entry));
        }
        Ok(entry)
    }

    /// Puts an entry into a free line, or the least recently used one. Under the lock.
    fn insert(&self, free: &mut usize, key: u32, entry: Entry) {
        let now = self.generation.load(Ordering::Relaxed);
        if *free > 0 {
            *free -= 1;
        } else {
            let used = |at: &usize| self.slots[*at].key.load(Ordering::Relaxed) != 0;
            let age =
                |at: &usize| now.wrapping_sub(self.slots[*at].generation.load(Ordering::Relaxed));
            if let Some(oldest) = (0..self.slots.len()).filter(used).max_by_key(age) {
                self.remove(oldest);
            }
        }
        let mask = self.slots.len() - 1;
        let mut place = self.home(key);
        while self.slots[place].key.load(Ordering::Relaxed) != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place].take_over(key, now, entry.to_words());
        self.generation.store(now.wrapping_add(1), Ordering::Relaxed);
    }

    /// Frees a slot and moves those behind it, so that no search ends early. Under the lock.
    fn remove(&self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let slot = &self.slots[place];
            let key = slot.key.load(Ordering::Relaxed);
            if key == 0 {
                break;
            }
            // It may move up to the gap unless its home lies behind that.
            if place.wrapping_sub(self.home(key)) & mask >= place.wrapping_sub(gap) & mask {
                let generation = slot.generation.load(Ordering::Relaxed);
                self.slots[gap].take_over(key, generation, slot.words());
                gap = place;
            }
        }
        self.slots[gap].key.store(0, Ordering::Release);
    }

    /// Bytes that the cache takes.
    pub fn private_bytes(&self) -> usize {
        size_of::<Cache>() + size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    fn made_of(rank: u32) -> Entry {
        let r = u64::from(rank);
        Entry { offset: r * 7919, bytes: !r, unit: rank ^ 5, reach: rank.rotate_left(9) }
    }

    proptest! {
        #[test]
        fn entries_are_right_and_the_least_recently_used_one_goes(
            lines in 1usize..9,
            ranks in proptest::collection::vec(0u32..24, 0..300),
        ) {
            let cache = Cache::new(lines);
            // What is cached, with the number of misses before each one's last use.
            let mut model: Vec<(u32, usize)> = Vec::new();
            let misses = Cell::new(0);
            for rank in ranks {
                let known = model.iter().position(|&(r, _)| r == rank);
                let before = misses.get();
                let found = cache.entry(rank, &|rank| {
                    misses.set(misses.get() + 1);
                    Ok(made_of(rank))
                });
                prop_assert_eq!(found.unwrap(), made_of(rank));
                prop_assert_eq!(misses.get() == before, known.is_some());
                match known {
                    Some(at) => model[at].1 = before,
                    None => {
                        if model.len() == lines {
                            // Whichever of the oldest went: it is not there any more.
                            let gone = model.iter().position(|l| cache.search(l.0).is_none());
                            let (_, age) = model.swap_remove(gone.unwrap());
                            prop_assert!(model.iter().all(|&(_, other)| other >= age));
                            prop_assert!(model.iter().all(|l| cache.search(l.0).is_some()));
                        }
                        model.push((rank, before));
                    }
                }
            }
        }

        #[test]
        fn as_many_ranks_as_lines_miss_once_each(seed: u32) {
            let ranks: Vec<u32> = (0..LINES as u32).map(|i| i.wrapping_mul(seed | 1)).collect();
            let cache = Cache::new(LINES);
            let misses = Cell::new(0);
            let fetch = |rank| {
                misses.set(misses.get() + 1);
                Ok(made_of(rank))
            };
            for _ in 0..3 {
                for &rank in ranks.iter().filter(|&&rank| rank < u32::MAX) {
                    prop_assert_eq!(cache.entry(rank, &fetch).unwrap(), made_of(rank));
                }
            }
            let mut distinct = ranks;
            distinct.retain(|&rank| rank < u32::MAX);
            prop_assert_eq!(misses.get(), distinct.len());
        }
    }

    #[test]
    fn a_failed_fetch_leaves_nothing_behind() {
        let cache = Cache::new(2);
        let asked = RefCell::new(Vec::new());
        let fetch = |rank| {
            asked.borrow_mut().push(rank);
            if asked.borrow().len() == 1 {
                return Err(Error::invalid("a fetch", "that fails"));
            }
            Ok(made_of(rank))
        };
        assert!(cache.entry(3, &fetch).is_err());
        assert_eq!(cache.entry(3, &fetch).unwrap(), made_of(3));
        assert_eq!(*asked.borrow(), [3, 3]);
    }

    #[test]
    fn threads_never_see_a_mixture() {
        let cache = Cache::new(4);
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..3u32 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut x = thread + 1;
                    for _ in 0..rounds {
                        x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                        let rank = (x >> 16) % 12;
                        let found = cache.entry(rank, &|rank| Ok(made_of(rank)));
                        assert_eq!(found.unwrap(), made_of(rank));
                    }
                });
            }
        });
    }
}
