//! A rank that a launcher started which speaks PMIx (Open MPI's `mpirun`, PRRTE's `prterun`, Slurm's
//! `srun --mpi=pmix`): client of its server by way of PMIx's own library, loaded here (see `library`).
//!
//! ```text
//! rank                                    the launcher's server on this machine
//!   PMIx_Init                        -->    who it is (PMIX_NAMESPACE, PMIX_RANK, PMIX_SERVER_URI*)
//!   get PMIX_JOB_SIZE                -->    of the job
//!   get PMIX_HOSTNAME                -->    of each rank: those with one name are on one node
//!   put hither.FENCE, commit, fence  -->    what was put since the last fence, for everybody
//!   get hither.FENCE                 -->    when somebody asks for what that rank has put
//!   PMIx_Finalize                    -->    when the bootstrap is dropped
//! ```
//! Names of hosts are what servers know of all ranks; some know node numbers of their own ranks only.
//! What ranks tell each other so is the same whoever carries it (see `neighbours`).
//!
//! Joining costs a look-up on this machine for each rank of the job, and memory in proportion to them
//! until the map of nodes is made. The launcher does not say who is missing at a fence, so a deadline
//! that passes names nobody.

mod library;

use super::mpi;
use super::neighbours;
use super::pairs::Pairs;
use super::wire::MAX_SIZE;
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result, settings};
use crate::topo::{Placement, Places};
use library::Client;
use rustix::fd::OwnedFd;
use std::collections::HashMap;

/// The variables that make a process a rank.
const NAMESPACE: &str = "PMIX_NAMESPACE";
const RANK: &str = "PMIX_RANK";

/// Most bytes that a rank puts between two fences.
const MOST: usize = 4 << 20;

/// A rank of a launcher that speaks PMIx.
#[derive(Debug)]
pub struct Pmix {
    client: Client,
    rank: Rank,
    size: u32,
    /// Seen from its node.
    placement: Placement,
    job: u64,
    /// Whether rank 0 is where this one's loopback address does not reach.
    beyond: bool,
    /// Fences so far.
    fences: u32,
    pairs: Pairs,
    /// Up to which fence what a rank has put was fetched.
    fetched: HashMap<u32, u32>,
}

impl Pmix {
    /// Whether the environment names a launcher.
    pub fn is_named() -> bool {
        settings::environment(NAMESPACE).is_some() && settings::environment(RANK).is_some()
    }

    /// Joins the job of the launcher that the environment names; `None` if it names none. Collective.
    ///
    /// A program that uses MPI itself must not call this (its MPI talks to the launcher): it wires
    /// hither up with [`super::FromAllgather`].
    ///
    /// # Errors
    /// [`Error::Boot`] if the library cannot be loaded (`HITHER_PMIX`), the server not be reached, the
    /// process has used PMIx before or uses MPI, or neighbours share no memory; [`Error::TimedOut`].
    pub fn from_environment(deadline: Deadline) -> Result<Option<Pmix>> {
        if !Pmix::is_named() {
            return Ok(None);
        }
        let named = settings::environment(RANK).unwrap_or_default();
        mpi::refuse_in_use(RANK)?;
        let client = Client::connect(deadline)?;
        let rank = client.rank();
        if named.trim().parse() != Ok(rank) {
            return Err(Error::boot(format!(
                "PMIX_RANK is \"{named}\", but the launcher's server says rank {rank}: start the \
                 job anew, or unset PMIX_RANK to run this process by itself"
            )));
        }
        let size = client.size(deadline)?.unwrap_or(0);
        if size == 0 || size > MAX_SIZE || rank >= size {
            let why = format!("{rank} of {size} is not a rank of a job of 1 to {MAX_SIZE}");
            return Err(Error::invalid("rank", why));
        }
        let hosts = (0..size).map(|rank| {
            client.host(rank, deadline)?.ok_or_else(|| {
                let why = "the launcher (PMIx) does not say on which host rank";
                Error::boot(format!("{why} {rank} is (PMIX_HOSTNAME)"))
            })
        });
        let places = Places::listed(&numbered(hosts)?)?;
        let rank = Rank(rank);
        let placement = Placement::of(places, 0)?.seen_from(rank);
        let mut pmix = Pmix {
            client,
            rank,
            size,
            placement: placement.clone(),
            job: 0,
            beyond: false,
            fences: 0,
            pairs: Pairs::new(size),
            fetched: HashMap::new(),
        };
        let known = neighbours::introduce(&mut pmix, &placement, deadline)?;
        (pmix.job, pmix.beyond) = (known.job, known.beyond);
        Ok(Some(pmix))
    }

    /// Fetches what a rank has put in all fences so far.
    fn fetch(&mut self, rank: u32, deadline: Deadline) -> Result<()> {
        let before = self.fetched.get(&rank).copied().unwrap_or(0);
        for fence in before + 1..=self.fences {
            let key = key(fence);
            let bytes = self.client.bytes(rank, &key, deadline)?.unwrap_or_default();
            let (_, pairs) = bytes.split_first().ok_or_else(|| {
                let why = "the launcher's store (PMIx) has lost what it put";
                Error::boot(format!("of rank {rank} {why} ({key})"))
            })?;
            self.pairs.learn(rank, pairs)?;
            self.fetched.insert(rank, fence);
        }
        Ok(())
    }
}

/// Under which what a rank put before a fence is in the store.
fn key(fence: u32) -> String {
    format!("hither.{fence}")
}

/// Numbers for names, the same for the same.
fn numbered(names: impl Iterator<Item = Result<String>>) -> Result<Vec<u32>> {
    let mut numbers = HashMap::new();
    names
        .map(|name| {
            let next = numbers.len() as u32;
            Ok(*numbers.entry(name?).or_insert(next))
        })
        .collect()
}

impl Bootstrap for Pmix {
    fn rank(&self) -> Rank {
        self.rank
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

    fn fence(&mut self, deadline: Deadline) -> Result<()> {
        let fresh = self.pairs.take_fresh();
        if fresh.len() > MOST {
            let why = format!("{} bytes between two fences, and {MOST} are the most", fresh.len());
            return Err(Error::invalid("put", why));
        }
        self.fences += 1;
        // Also where there is nothing, or who looks would wait for it. One byte in front: values
        // without any are not everybody's.
        self.client.put(&key(self.fences), &[&[0], &fresh[..]].concat())?;
        self.client.fence(deadline)
    }

    fn get(&mut self, rank: Rank, key: &str, deadline: Deadline) -> Result<Option<Vec<u8>>> {
        if rank.0 < self.size {
            self.fetch(rank.0, deadline)?;
        }
        self.pairs.get(rank, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_one_name_are_on_one_node() {
        let numbered = |names: &[&str]| numbered(names.iter().map(|name| Ok((*name).to_owned())));
        assert_eq!(numbered(&["b", "a", "b", "c", "a"]).unwrap(), [0, 1, 0, 2, 1]);
        assert_eq!(numbered(&["x"; 4]).unwrap(), [0; 4]);
        let failed = ["a", "", "b"].map(|name| match name {
            "" => Err(Error::boot("not known")),
            _ => Ok(name.to_owned()),
        });
        assert!(super::numbered(failed.into_iter()).is_err());
    }
}
