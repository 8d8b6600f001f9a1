//! The key–value exchange where all a bootstrap has is an allgather: each fence gathers what was
//! put since the last one, and everybody keeps everything. That is memory in proportion to the
//! ranks, in the wiring only: it goes when the bootstrap is dropped.

use super::wire::{self, Reader};
use crate::base::{Error, Rank, Result};
use std::collections::HashMap;

/// Keys and values of a job, as known to one process.
#[derive(Debug)]
pub struct Pairs {
    size: u32,
    fresh: Vec<u8>,
    known: HashMap<(u32, String), Vec<u8>>,
}

impl Pairs {
    /// Nothing known, of `size` ranks.
    pub fn new(size: u32) -> Pairs {
        Pairs { size, fresh: Vec::new(), known: HashMap::new() }
    }

    /// Notes a pair for the next fence.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        wire::check_pair(key, value)?;
        for part in [key.as_bytes(), value] {
            self.fresh.extend_from_slice(&(part.len() as u32).to_le_bytes());
            self.fresh.extend_from_slice(part);
        }
        Ok(())
    }

    /// What was put since the last call, as bytes for [`Pairs::learn`] everywhere.
    pub fn take_fresh(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes in what [`Pairs::take_fresh`] gave at `rank`.
    pub fn learn(&mut self, rank: u32, bytes: &[u8]) -> Result<()> {
        let mut left = Reader(bytes);
        while !left.0.is_empty() {
            let pair = left.text(wire::MAX_KEY).zip(left.bytes(wire::MAX_VALUE));
            let (key, value) = pair.ok_or_else(|| {
                Error::boot(format!("what rank {rank} put is damaged: check the allgather"))
            })?;
            self.known.insert((rank, key), value);
        }
        Ok(())
    }

    /// A value of before the last fence.
    pub fn get(&self, rank: Rank, key: &str) -> Result<Option<Vec<u8>>> {
        if rank.0 >= self.size {
            let why = format!("rank {rank} is not below {}", self.size);
            return Err(Error::invalid("get", why));
        }
        Ok(self.known.get(&(rank.0, key.to_owned())).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Pairs::new(2).learn(1, &bytes);
        }

        #[test]
        fn pairs_survive_the_trip(
            pairs in proptest::collection::hash_map("[a-z]{1,9}", proptest::collection::vec(any::<u8>(), 0..50), 0..9),
        ) {
            let mut from = Pairs::new(2);
            for (key, value) in &pairs {
                from.put(key, value).unwrap();
            }
            let mut to = Pairs::new(2);
            to.learn(1, &from.take_fresh()).unwrap();
            prop_assert!(from.take_fresh().is_empty());
            for (key, value) in &pairs {
                prop_assert_eq!(&to.get(Rank(1), key).unwrap().unwrap(), value);
                prop_assert_eq!(to.get(Rank(0), key).unwrap(), None);
            }
        }
    }
}
