//! A job of one process: everything works without a launcher.

use super::pairs::Pairs;
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use rustix::fd::OwnedFd;

/// One process alone: rank 0 of 1.
#[derive(Debug)]
pub struct Single {
    job: u64,
    pairs: Pairs,
}

impl Single {
    /// A job of its own.
    pub fn new() -> Result<Single> {
        Ok(Single { job: super::random()?, pairs: Pairs::new(1) })
    }
}

impl Bootstrap for Single {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        1
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn node_memory(&mut self, make: MakeMemory<'_>, _deadline: Deadline) -> Result<OwnedFd> {
        make()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.pairs.put(key, value)
    }

    fn fence(&mut self, _deadline: Deadline) -> Result<()> {
        let own = self.pairs.take_fresh();
        self.pairs.learn(0, &own)
    }

    fn get(&mut self, rank: Rank, key: &str, _deadline: Deadline) -> Result<Option<Vec<u8>>> {
        if rank != Rank(0) {
            return Err(Error::invalid("get", format!("rank {rank} in a job of one")));
        }
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_seen_after_the_fence() {
        let mut boot = Single::new().unwrap();
        boot.put("a", b"1").unwrap();
        assert_eq!(boot.get(Rank(0), "a", Deadline::NEVER).unwrap(), None);
        boot.fence(Deadline::NEVER).unwrap();
        assert_eq!(boot.get(Rank(0), "a", Deadline::NEVER).unwrap().unwrap(), b"1");
        assert!(boot.get(Rank(1), "a", Deadline::NEVER).is_err());
        assert!(boot.put("", b"").is_err());
        assert!(boot.put(&"k".repeat(65), b"").is_err());
        assert!(boot.put("k", &[0; 40 << 10]).is_err());
    }
}
