//! The entries that a process uses at present, in a fixed number of lines.
//!
//! ```text
//! slots   power of two, at least twice the lines:  rank + 1 | line     0: free
//! lines   words of the entry, rank, generation of its last use
//! ```
//! A rank's slot is the first one from its hash on that holds it or is free (open addressing; the
//! slots are never more than half full, and leaving closes gaps, so runs stay short). All lines
//! serve all ranks: a working set of as many ranks as lines always hits, which sets of a few lines
//! could not promise.
//!
//! Hits take no lock: readers look at slots and lines under a [`Version`]; who finds a writer at
//! work goes the way of a miss, where a lock orders everybody. A hit writes only if the line was
//! not used since the last miss: misses count generations, and the line whose last use lies most
//! generations back makes room (the least recently used one, where uses between the same two
//! misses count as one).
//!
//! The paper (001 §3.4.1) builds a minimal perfect hash function (CHD) over the cached ranks anew
//! on every miss. `hither bench window-rate` measures such a cache beside this one: a hit costs
//! about the same in both, and what a miss adds to the fetch is several times as much for the
//! perfect hash, because its construction goes over all keys. That decided for this one.

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
    slots: Box<[AtomicU64]>,
    lines: Box<[Line]>,
    /// Lines in use; whoever changes slots or lines holds it.
    used: Mutex<usize>,
}

#[derive(Debug, Default)]
struct Line {
    words: [AtomicU64; Entry::WORDS],
    rank: AtomicU32,
    generation: AtomicU32,
}

/// A slot that says where a rank's line is.
fn slot(rank: u32, line: usize) -> u64 {
    (u64::from(rank) + 1) << 32 | line as u64
}

impl Cache {
    /// An empty cache of `lines` lines, at least one.
    pub fn new(lines: usize) -> Cache {
        let lines = lines.max(1);
        Cache {
            version: Version::new(),
            generation: AtomicU32::new(1),
            slots: (0..(2 * lines).next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
            lines: (0..lines).map(|_| Line::default()).collect(),
            used: Mutex::new(0),
        }
    }

    /// The entry of `rank`: cached, or fetched and then cached. A hit costs about eight loads
    /// from three private cache lines.
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
        let (line, words) = self.version.read(|| {
            let line = &self.lines[self.search(rank)?];
            Some((line, line.words.each_ref().map(|word| word.load(Ordering::Acquire))))
        })??;
        let now = self.generation.load(Ordering::Relaxed);
        if line.generation.load(Ordering::Relaxed) != now {
            // The line may be another rank's by now: then that one looks used.
            line.generation.store(now, Ordering::Relaxed);
        }
        Some(Entry::from_words(words))
    }

    #[inline(always)]
    fn home(&self, rank: u32) -> usize {
        // Fibonacci hashing: the upper bits of the product.
        let bits = self.slots.len().trailing_zeros();
        (rank.wrapping_mul(0x9e37_79b9) as usize) >> (32 - bits)
    }

    /// The line of `rank`.
    #[inline(always)]
    fn search(&self, rank: u32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let first = self.home(rank);
        for probe in 0..self.slots.len() {
            let seen = self.slots[(first + probe) & mask].load(Ordering::Acquire);
            if seen >> 32 == u64::from(rank) + 1 {
                return Some(seen as u32 as usize % self.lines.len());
            }
            if seen == 0 {
                break;
            }
        }
        None
    }

    #[cold]
    fn miss(&self, rank: u32, fetch: &impl Fetch) -> Result<Entry> {
        let entry = fetch.fetch(rank)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.search(rank).is_none() {
            self.version.write(|| self.insert(&mut used, rank, entry));
        }
        Ok(entry)
    }

    /// Puts an entry into a free line, or the least recently used one. Under the lock.
    fn insert(&self, used: &mut usize, rank: u32, entry: Entry) {
        let now = self.generation.load(Ordering::Relaxed);
        let at = if *used < self.lines.len() {
            *used += 1;
            *used - 1
        } else {
            let age = |line: &Line| now.wrapping_sub(line.generation.load(Ordering::Relaxed));
            let oldest = (0..self.lines.len()).max_by_key(|&at| age(&self.lines[at])).unwrap_or(0);
            self.remove(self.lines[oldest].rank.load(Ordering::Relaxed));
            oldest
        };
        let line = &self.lines[at];
        for (word, value) in line.words.iter().zip(entry.to_words()) {
            word.store(value, Ordering::Release);
        }
        line.rank.store(rank, Ordering::Relaxed);
        line.generation.store(now, Ordering::Relaxed);
        let mask = self.slots.len() - 1;
        let mut place = self.home(rank);
        while self.slots[place].load(Ordering::Relaxed) != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place].store(slot(rank, at), Ordering::Release);
        self.generation.store(now.wrapping_add(1), Ordering::Relaxed);
    }

    /// Frees a rank's slot and moves those behind it, so that no search ends early. Under the
    /// lock.
    fn remove(&self, rank: u32) {
        let mask = self.slots.len() - 1;
        let look = |place: usize| self.slots[place].load(Ordering::Relaxed);
        let mut gap = self.home(rank);
        while look(gap) >> 32 != u64::from(rank) + 1 {
            if look(gap) == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let seen = look(place);
            if seen == 0 {
                break;
            }
            let home = self.home((seen >> 32) as u32 - 1);
            // It may move up to the gap unless its home lies behind that.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.slots[gap].store(seen, Ordering::Release);
                gap = place;
            }
        }
        self.slots[gap].store(0, Ordering::Release);
    }

    /// Bytes that the cache takes.
    pub fn private_bytes(&self) -> usize {
        size_of::<Cache>() + size_of_val(&*self.slots) + size_of_val(&*self.lines)
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
