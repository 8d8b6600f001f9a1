//! Wiring a job up: who is in it, and a first exchange of bytes and descriptors.
//!
//! Everything else in hither needs three things to begin: a rank, the size, and the descriptor
//! of the node's memory. A [`Bootstrap`] provides them; afterwards it can be dropped. Its forms:
//!
//! ```text
//! Launched        a rank that `hither run` or a launcher in a program has started
//! Pmi             a rank that an MPI launcher has started (mpiexec of MPICH, Slurm)
//! Pmix            the same by PMIx (mpirun of Open MPI, prterun, Slurm)
//! FromAllgather   processes that already have an allgather (MPI programs, servers)
//! Rendezvous      processes that meet under a name (of one user, on one machine) or at an address
//! Single          one process alone
//! ```
//!
//! `boot` moves bytes and descriptors. What a node's memory looks like inside is not its
//! business: whoever needs one passes a function that makes it.

pub(crate) mod admission;
pub(crate) mod card;
pub(crate) mod channel;
pub(crate) mod gather;
pub(crate) mod handout;
pub(crate) mod launch;
pub(crate) mod launched;
pub(crate) mod lobby;
pub(crate) mod meeting;
pub(crate) mod mpi;
pub(crate) mod neighbours;
pub(crate) mod pairs;
pub(crate) mod pmi;
pub(crate) mod pmix;
pub(crate) mod port;
pub(crate) mod rendezvous;
pub(crate) mod server;
pub(crate) mod single;
pub(crate) mod socket;
pub(crate) mod wire;

pub use gather::FromAllgather;
pub use launched::Launched;
pub use pmi::Pmi;
pub use pmix::Pmix;
pub use rendezvous::Rendezvous;
pub use single::Single;

use crate::base::{Deadline, Rank, Result, settings};
use crate::topo::Placement;
use rustix::fd::OwnedFd;

/// Makes the memory of a node of a job; called in at most one of its processes.
pub type MakeMemory<'a> = &'a dyn Fn() -> Result<OwnedFd>;

/// How a process gets to know its job. All waiting is bounded by the caller's deadline and ends
/// when a process it depends on is known to have ended; the errors name who is missing.
pub trait Bootstrap: Send {
    /// This process's rank.
    fn rank(&self) -> Rank;

    /// Ranks in the job.
    fn size(&self) -> u32;

    /// The nodes that the ranks are on: one, unless the launcher says something else.
    ///
    /// # Errors
    /// If ranks cannot be placed like that.
    fn placement(&self) -> Result<Placement> {
        Placement::one_node(self.size())
    }

    /// Random identity of the job, the same in all its processes.
    fn job(&self) -> u64;

    /// Whether this process knows of one of the job that its loopback address does not lead to: on
    /// another machine, or in another network namespace.
    fn reaches_beyond(&self) -> bool {
        false
    }

    /// The memory file of this rank's node. Collective unless a launcher has brought it along; `make` is
    /// called in one process, the others get a descriptor of what it returned. To be called at
    /// most once.
    fn node_memory(&mut self, make: MakeMemory<'_>, deadline: Deadline) -> Result<OwnedFd>;

    /// Makes `value` known under `key` (1 to 64 bytes) of this rank, from the next fence on. At
    /// most 32 KiB, and a launcher keeps at most 1 MiB for each rank. Local: does not wait for
    /// other ranks.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()>;

    /// Returns once every rank has called it as often as this one.
    fn fence(&mut self, deadline: Deadline) -> Result<()>;

    /// What `rank` put under `key` before the last fence; `None` if it put nothing there.
    fn get(&mut self, rank: Rank, key: &str, deadline: Deadline) -> Result<Option<Vec<u8>>>;
}

/// The bootstrap that the environment asks for: the launcher that started this process, hither's
/// own, or else one that speaks PMI-1, or else PMIx; else this process alone.
///
/// # Errors
/// A launcher that is named and cannot be joined.
pub fn from_environment(deadline: Deadline) -> Result<Box<dyn Bootstrap>> {
    if let Some(launched) = Launched::from_environment(deadline)? {
        return Ok(Box::new(launched));
    }
    // PMI-1 first: its socket is this process's, or there is none, while PMIx has but variables, which
    // any process inherits.
    if let Some(pmi) = Pmi::from_environment(deadline)? {
        return Ok(Box::new(pmi));
    }
    match Pmix::from_environment(deadline)? {
        Some(pmix) => Ok(Box::new(pmix)),
        None => Ok(Box::new(Single::new()?)),
    }
}

/// Whether [`from_environment`] joins the job of a launcher: hither's own, or one that speaks PMI-1 or
/// PMIx.
pub fn was_launched() -> bool {
    settings::LAUNCH_FD.is_set() || Pmi::is_named() || Pmix::is_named()
}

/// A random 64-bit number from the kernel.
fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| crate::base::Error::os("getrandom", e))?;
    Ok(u64::from_le_bytes(bytes))
}
