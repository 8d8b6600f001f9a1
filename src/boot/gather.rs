//! Wiring over an allgather that the program already has: an MPI program's, a server's own.
//!
//! ```text
//! every rank                      allgather 1: cards (see `card`); who can share memory is on one node
//! first ranks of nodes            make their memory and offer it (see `handout`)
//! every rank                      allgather 2, a fence: where (or why there is none)
//! ```
//! Each fence is one more allgather, of what was put since the last one. Each rank's piece begins with
//! the rank and the number of the fence, so that an allgather that mixes them up is found out. The
//! allgather itself has no deadline but the program's own.
//!
//! All ranks learn all that was put: in a job of several nodes the addresses of all ranks stay with
//! each of them.

use super::card::Card;
use super::neighbours;
use super::pairs::Pairs;
use super::wire::{MAX_SIZE, Reader};
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result};
use crate::topo::Placement;
use rustix::fd::OwnedFd;

/// Wires up processes by a caller-supplied allgather, wherever they are.
pub struct FromAllgather<F> {
    rank: u32,
    size: u32,
    job: u64,
    placement: Placement,
    /// Whether a rank is where this one's loopback address does not reach.
    beyond: bool,
    gather: F,
    /// Fences so far.
    fences: u32,
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
    /// [`Bootstrap::node_memory`], and once for each fence: in a job that joins, never after that, and
    /// by the threads that call this and [`crate::world::Builder::init`] alone. So an MPI that is called
    /// by its main thread only (`MPI_THREAD_FUNNELED`) will do, and may be finalised before the job ends.
    ///
    /// Ranks of one user on one machine, in one network namespace, are a node and share memory. Others
    /// are on different nodes, and what goes between them goes over the network: on different machines,
    /// and in different containers, each needs an address there that the others reach
    /// (`HITHER_NET_ADDRESS`).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if that is no rank; [`Error::Boot`], [`Error::Mismatch`] if the
    /// allgather does not bring what it was given, or the ranks do not have the same size and version;
    /// what `gather` itself fails with.
    pub fn new(rank: u32, size: u32, gather: F) -> Result<FromAllgather<F>> {
        Self::as_said(Card::of_this_process(rank, size)?, gather)
    }

    /// As [`FromAllgather::new`], on a node with this name (1 to 256 bytes): ranks that give different
    /// names are on different nodes, also where they could share memory. For containers that share no
    /// memory although it looks so, and to try several nodes out on one machine.
    ///
    /// # Errors
    /// Those of [`FromAllgather::new`]; [`Error::InvalidArgument`] if that is no name.
    pub fn on_node(node: &str, rank: u32, size: u32, gather: F) -> Result<FromAllgather<F>> {
        Self::as_said(Card::of_this_process(rank, size)?.on_node(node)?, gather)
    }

    fn as_said(own: Card, gather: F) -> Result<FromAllgather<F>> {
        let (rank, size) = (own.rank, own.size);
        if size == 0 || size > MAX_SIZE || rank >= size {
            let why = format!("{rank} of {size} is not a rank of a job of 1 to {MAX_SIZE}");
            return Err(Error::invalid("rank", why));
        }
        let placement = Placement::one_node(size)?;
        let (pairs, job, beyond, fences) = (Pairs::new(size), 0, false, 0);
        let mut boot = FromAllgather { rank, size, job, placement, beyond, gather, fences, pairs };
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
        let (placement, known) = neighbours::places(&cards, Rank(rank))?;
        (boot.placement, boot.job, boot.beyond) = (placement, known.job, known.beyond);
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

impl<F: FnMut(&[u8]) -> Result<Vec<Vec<u8>>> + Send> Bootstrap for FromAllgather<F> {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn placement(&self) -> Result<Placement> {
        Ok(self.placement.clone())
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn reaches_beyond(&self) -> bool {
        self.beyond
    }

    fn node_memory(&mut self, make: MakeMemory<'_>, deadline: Deadline) -> Result<OwnedFd> {
        let placement = self.placement.clone();
        neighbours::node_memory(self, &placement, make, deadline)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.pairs.put(key, value)
    }

    fn fence(&mut self, _deadline: Deadline) -> Result<()> {
        self.fences = self.fences.wrapping_add(1);
        let label = |rank: u32| [rank.to_le_bytes(), self.fences.to_le_bytes()].concat();
        let own = [label(self.rank), self.pairs.take_fresh()].concat();
        let expected: Vec<Vec<u8>> = (0..self.size).map(label).collect();
        let all = self.all(&own)?;
        for ((rank, label), bytes) in (0..).zip(&expected).zip(&all) {
            let Some(pairs) = bytes.strip_prefix(&label[..]) else {
                let mut said = Reader(bytes);
                let said = match (said.u32(), said.u32()) {
                    (Some(from), Some(fence)) => format!("that of fence {fence} of rank {from}"),
                    _ => format!("{} bytes", bytes.len()),
                };
                return Err(Error::boot(format!(
                    "the allgather's piece {rank} for fence {} of the wiring is {said}: the pieces of \
                     one call must come together, whole and in rank order",
                    self.fences
                )));
            };
            self.pairs.learn(rank, pairs)?;
        }
        Ok(())
    }

    fn get(&mut self, rank: Rank, key: &str, _deadline: Deadline) -> Result<Option<Vec<u8>>> {
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
