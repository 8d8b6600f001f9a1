//! Wiring over an allgather that the program already has: an MPI program's, a server's own.
//!
//! ```text
//! every rank                      allgather 1: who and where am I; all compare
//! rank 0   makes the memory and offers it (see `handout`)
//! every rank                      allgather 2: where (or why there is none)
//! ```
//! Each fence is one more allgather. The allgather itself has no deadline but the program's own.

use super::card::Card;
use super::handout::{self, Offer};
use super::pairs::Pairs;
use super::wire::MAX_SIZE;
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use rustix::fd::{AsFd, OwnedFd};

/// Wires up processes by a caller-supplied allgather.
pub struct FromAllgather<F> {
    rank: u32,
    size: u32,
    job: u64,
    gather: F,
    pairs: Pairs,
}

impl<F> std::fmt::Debug for FromAllgather<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("FromAllgather");
        out.field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl<F: FnMut(&[u8]) -> Result<Vec<Vec<u8>>> + Send> FromAllgather<F> {
    /// Rank `rank` of `size`. `gather` is collective: it takes this rank's bytes and returns all
    /// ranks' bytes in rank order; lengths differ between ranks. It is called once here, once in
    /// [`Bootstrap::node_memory`], and once for each fence.
    ///
    /// # Errors
    /// If the ranks cannot share memory: they are on different nodes, in different network
    /// namespaces, or belong to different users. The error names two of them.
    pub fn new(rank: u32, size: u32, gather: F) -> Result<FromAllgather<F>> {
        if size == 0 || size > MAX_SIZE || rank >= size {
            let why = format!("{rank} of {size} is not a rank of a job of 1 to {MAX_SIZE}");
            return Err(Error::invalid("rank", why));
        }
        let mut boot = FromAllgather { rank, size, job: 0, gather, pairs: Pairs::new(size) };
        let own = Card::of_this_process(rank, size)?;
        let all = boot.all(&own.encode())?;
        let cards = all.iter().enumerate().map(|(from, bytes)| {
            Card::decode(bytes).ok_or_else(|| {
                Error::boot(format!(
                    "what the allgather brought from rank {from} is not what hither gave it there: \
                     check that it keeps rank order and lengths, and that all ranks use the same \
                     version of hither"
                ))
            })
        });
        let cards = cards.collect::<Result<Vec<Card>>>()?;
        compare(&cards)?;
        boot.job = cards.first().map_or(0, |c| c.job);
        Ok(boot)
    }

    fn all(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = (self.gather)(own)?;
        if all.len() == self.size as usize && all[self.rank as usize] == own {
            return Ok(all);
        }
        Err(Error::boot(format!(
            "the allgather returned {} pieces in a job of {}, or not this rank's own piece at its \
             place",
            all.len(),
            self.size
        )))
    }
}

/// Checks that all of a job's ranks can share memory and agree on what the job is.
fn compare(cards: &[Card]) -> Result<()> {
    let Some(first) = cards.first() else { return Ok(()) };
    for (rank, card) in cards.iter().enumerate() {
        if card.rank as usize != rank {
            return Err(Error::boot(format!(
                "the allgather's piece {rank} comes from rank {}: the pieces must be in rank order",
                card.rank
            )));
        }
        if card.size != first.size {
            return Err(Error::Mismatch {
                what: "the number of ranks",
                a: Rank(0),
                a_has: first.size.to_string(),
                b: Rank(card.rank),
                b_has: card.size.to_string(),
            });
        }
        first.check_near(card)?;
    }
    Ok(())
}

impl<F: FnMut(&[u8]) -> Result<Vec<Vec<u8>>> + Send> Bootstrap for FromAllgather<F> {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn node_memory(&mut self, make: MakeMemory<'_>, deadline: Deadline) -> Result<OwnedFd> {
        if self.rank != 0 {
            let all = self.all(&[])?;
            return match all[0].split_first() {
                Some((1, name)) => {
                    handout::claim(name, self.job, Rank(self.rank), Rank(0), deadline)
                }
                Some((_, why)) => {
                    let why = String::from_utf8_lossy(why);
                    Err(Error::boot(format!("rank 0 has no node memory for the job: {why}")))
                }
                None => Err(Error::boot("rank 0 sent nothing where the memory's name should be")),
            };
        }
        let made = make().and_then(|memory| Ok((memory, Offer::open(self.size)?)));
        match made {
            Ok((memory, offer)) => {
                self.all(&[&[1], offer.name()].concat())?;
                offer.serve(self.job, 1..self.size, memory.as_fd(), deadline)?;
                Ok(memory)
            }
            Err(e) => {
                self.all(&[&[0], e.to_string().as_bytes()].concat())?;
                Err(e)
            }
        }
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.pairs.put(key, value)
    }

    fn fence(&mut self, _deadline: Deadline) -> Result<()> {
        let own = self.pairs.take_fresh();
        let all = self.all(&own)?;
        (0..).zip(&all).try_for_each(|(rank, bytes)| self.pairs.learn(rank, bytes))
    }

    fn get(&mut self, rank: Rank, key: &str, _deadline: Deadline) -> Result<Option<Vec<u8>>> {
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, Mutex};
    use std::time::Duration;

    /// An allgather between threads.
    fn gatherer(size: u32) -> impl Fn(u32, &[u8]) -> Vec<Vec<u8>> + Clone {
        let state =
            Arc::new((Barrier::new(size as usize), Mutex::new(vec![Vec::new(); size as usize])));
        move |rank, own: &[u8]| {
            let (barrier, pieces) = &*state;
            pieces.lock().unwrap()[rank as usize] = own.to_vec();
            barrier.wait();
            let all = pieces.lock().unwrap().clone();
            barrier.wait();
            all
        }
    }

    fn on_threads<R: Send>(size: u32, body: impl Fn(u32) -> R + Sync) -> Vec<R> {
        std::thread::scope(|scope| {
            let body = &body;
            let all: Vec<_> = (0..size).map(|r| scope.spawn(move || body(r))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    fn memory() -> Result<OwnedFd> {
        rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|e| Error::os("memfd_create", e))
    }

    #[test]
    fn all_ranks_get_the_same_memory_and_values() {
        let gather = gatherer(5);
        let seen = on_threads(5, |rank| {
            let gather = gather.clone();
            let mut boot = FromAllgather::new(rank, 5, move |b| Ok(gather(rank, b))).unwrap();
            let fd = boot.node_memory(&memory, soon()).unwrap();
            boot.put("k", &[rank as u8]).unwrap();
            boot.fence(soon()).unwrap();
            for other in 0..5 {
                let value = boot.get(Rank(other), "k", soon()).unwrap().unwrap();
                assert_eq!(value, [other as u8]);
            }
            (boot.job(), rustix::fs::fstat(&fd).unwrap().st_ino)
        });
        assert!(seen.iter().all(|s| *s == seen[0]), "{seen:?}");
    }

    #[test]
    fn a_failure_to_make_memory_reaches_every_rank() {
        let gather = gatherer(3);
        let errors = on_threads(3, |rank| {
            let gather = gather.clone();
            let mut boot = FromAllgather::new(rank, 3, move |b| Ok(gather(rank, b))).unwrap();
            let make = || Err(Error::invalid("heap", "too large"));
            boot.node_memory(&make, soon()).unwrap_err().to_string()
        });
        assert!(errors.iter().all(|e| e.contains("too large")), "{errors:?}");
    }

    #[test]
    fn a_rank_that_never_fetches_is_named() {
        let gather = gatherer(3);
        let errors = on_threads(3, |rank| {
            let gather = gather.clone();
            let mut boot = FromAllgather::new(rank, 3, move |b| Ok(gather(rank, b))).unwrap();
            if rank == 2 {
                boot.all(&[]).unwrap();
                return None;
            }
            let limit = Deadline::after(Duration::from_millis(200));
            boot.node_memory(&memory, limit).err().map(|e| e.to_string())
        });
        assert!(errors[0].as_ref().unwrap().contains("missing: rank 2"), "{errors:?}");
        assert_eq!(errors[1], None);
    }

    #[test]
    fn ranks_that_cannot_share_memory_are_named() {
        let card = Card::of_this_process(0, 4).unwrap();
        let cards = |change: &dyn Fn(&mut Card)| {
            let mut all: Vec<Card> = (0..4).map(|rank| Card { rank, ..card.clone() }).collect();
            change(&mut all[3]);
            compare(&all).map_err(|e| e.to_string())
        };
        assert_eq!(cards(&|_| ()), Ok(()));
        let err = cards(&|c| c.machine = "other".into()).unwrap_err();
        assert!(err.contains("ranks 0 and 3 are on different nodes"), "{err}");
        assert!(cards(&|c| c.user += 1).unwrap_err().contains("different users"));
        assert!(cards(&|c| c.network.clear()).unwrap_err().contains("namespaces"));
        assert!(cards(&|c| c.size = 5).unwrap_err().contains("number of ranks"));
        assert!(cards(&|c| c.rank = 1).unwrap_err().contains("rank order"));
    }

    #[test]
    fn a_faulty_allgather_is_found_out() {
        let short = FromAllgather::new(0, 2, |b| Ok(vec![b.to_vec()]));
        assert!(short.is_err());
        let foreign = FromAllgather::new(0, 2, |b| Ok(vec![b.to_vec(), b"junk".to_vec()]));
        assert!(foreign.unwrap_err().to_string().contains("rank 1"));
        let swapped = FromAllgather::new(0, 2, |b| Ok(vec![vec![], b.to_vec()]));
        assert!(swapped.is_err());
        assert!(FromAllgather::new(2, 2, |b| Ok(vec![b.to_vec()])).is_err());
    }
}
