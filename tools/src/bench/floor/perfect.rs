//! The other way to cache window metadata: a minimal perfect hash function over the cached ranks,
//! built anew whenever one of them changes, as paper 001 §3.4.1 does it (CHD: hash and displace).
//!
//! ```text
//! bucket = h0(rank)      slot = (h1(rank) + displacement[bucket] * h2(rank)) mod lines
//! ```
//! Construction: buckets in order of size; for each the smallest displacement that puts all its
//! ranks on free slots. Nothing is shared between threads, which the library's cache must be.

use hither::Result;
use hither::rma::directory::Entry;

const LINES: usize = 32;
const BUCKETS: usize = 16;
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Line {
    rank: u32,
    used: u32,
    entry: Entry,
}

/// A cache of 32 lines.
pub struct Perfect {
    lines: [Line; LINES],
    count: usize,
    seed: u32,
    displacement: [u16; BUCKETS],
    slots: [u8; LINES],
    generation: u32,
}

fn mix(rank: u32, seed: u32) -> u64 {
    let x = (u64::from(rank) ^ u64::from(seed) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn place(hash: u64, displacement: u16) -> usize {
    // The factor is odd, so a single rank can be sent to every slot.
    let factor = (hash >> 16) as usize | 1;
    ((hash >> 32) as usize + usize::from(displacement) * factor) % LINES
}

fn bucket(hash: u64) -> usize {
    (hash >> 60) as usize % BUCKETS
}

impl Perfect {
    /// An empty one.
    pub fn new() -> Perfect {
        let line = Line { rank: FREE, used: 0, entry: Entry::default() };
        Perfect {
            lines: [line; LINES],
            count: 0,
            seed: 0,
            displacement: [0; BUCKETS],
            slots: [0; LINES],
            generation: 0,
        }
    }

    /// The entry of `rank`: cached, or fetched and then cached.
    #[inline]
    pub fn entry(&mut self, rank: u32, fetch: impl Fn(u32) -> Result<Entry>) -> Result<Entry> {
        let hash = mix(rank, self.seed);
        let slot = place(hash, self.displacement[bucket(hash)]);
        let line = &mut self.lines[self.slots[slot] as usize % LINES];
        if line.rank == rank {
            line.used = self.generation;
            return Ok(line.entry);
        }
        self.miss(rank, fetch)
    }

    #[cold]
    fn miss(&mut self, rank: u32, fetch: impl Fn(u32) -> Result<Entry>) -> Result<Entry> {
        let entry = fetch(rank)?;
        let at = if self.count < LINES {
            self.count += 1;
            self.count - 1
        } else {
            let age = |at: &usize| self.generation.wrapping_sub(self.lines[*at].used);
            (0..LINES).max_by_key(age).unwrap_or(0)
        };
        self.lines[at] = Line { rank, used: self.generation, entry };
        self.generation = self.generation.wrapping_add(1);
        while !self.build() {
            self.seed = self.seed.wrapping_add(1);
        }
        Ok(entry)
    }

    /// Whether there is a displacement for every bucket with this seed.
    fn build(&mut self) -> bool {
        let mut order: [(usize, usize); BUCKETS] = std::array::from_fn(|b| (0, b));
        let hashes: [u64; LINES] = std::array::from_fn(|at| mix(self.lines[at].rank, self.seed));
        for hash in &hashes[..self.count] {
            order[bucket(*hash)].0 += 1;
        }
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut taken = 0u32;
        for (size, which) in order {
            if size == 0 {
                break;
            }
            let members = || (0..self.count).filter(|&at| bucket(hashes[at]) == which);
            let fitting = (0..1024).find_map(|displacement| {
                let mut mine = taken;
                for at in members() {
                    let bit = 1 << place(hashes[at], displacement);
                    if mine & bit != 0 {
                        return None;
                    }
                    mine |= bit;
                }
                Some((displacement, mine))
            });
            let Some((displacement, with)) = fitting else { return false };
            taken = with;
            for at in (0..self.count).filter(|&at| bucket(hashes[at]) == which) {
                self.slots[place(hashes[at], displacement)] = at as u8;
            }
            self.displacement[which] = displacement;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_its_entry_and_recent_ones_stay() {
        let mut cache = Perfect::new();
        let made =
            |rank: u32| Ok(Entry { offset: u64::from(rank) * 3, unit: rank, ..Entry::default() });
        let mut x = 1u32;
        for _ in 0..20_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let rank = (x >> 16) % 60;
            assert_eq!(cache.entry(rank, made).unwrap(), made(rank).unwrap());
        }
        let never = |_| Err(hither::Error::invalid("a fetch", "of what is cached"));
        for rank in 0..LINES as u32 {
            cache.entry(rank, made).unwrap();
        }
        for rank in 0..LINES as u32 {
            assert_eq!(cache.entry(rank, never).unwrap().unit, rank);
        }
    }
}
