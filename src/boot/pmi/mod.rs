//! A rank that an MPI launcher started (MPICH's `mpiexec`, Slurm's `srun --mpi=pmi2`): client of
//! PMI-1.
//!
//! ```text
//! rank                                    the launcher's process manager
//!   init, get_maxes, get_my_kvsname  -->    who it is (PMI_RANK, PMI_SIZE), the name of its store
//!   get PMI_process_mapping          -->    which ranks are on which node (see `layout`); where that
//!                                           is not said, or not true, ranks tell each other
//!   put RANK.FENCE.PIECE, barrier_in -->    what was put since the last fence, for everybody
//!   get RANK.FENCE.PIECE             -->    when somebody asks for what that rank has put
//!   finalize                         -->    when the bootstrap is dropped
//! ```
//! What ranks tell each other so is the same whoever carries it (see `neighbours`).
//!
//! Nobody gets more than he asks for: a rank's values cost a look-up for each fence and piece. The
//! launcher does not say who is missing at a barrier, so a deadline that passes names nobody.

mod layout;
#[cfg(test)]
mod tests;
mod wire;

use super::card::Card;
use super::mpi;
use super::neighbours;
use super::pairs::Pairs;
use super::socket;
use super::wire::MAX_SIZE;
use super::{Bootstrap, MakeMemory};
use crate::base::{Deadline, Error, Rank, Result, settings};
use crate::topo::Placement;
use rustix::fd::{OwnedFd, RawFd};
use std::collections::HashMap;
use std::time::Duration;
use wire::{Assembly, Connection, Line, Step};

/// Least length of values with which a launcher is of use, without an end.
const LEAST_VALUE: usize = 63;
/// Most bytes that a rank puts between two fences.
const MOST: usize = 4 << 20;
/// How long the launcher may take for the farewell.
const PATIENCE: Duration = Duration::from_secs(1);

/// The variable with the number of the launcher's socket.
const SOCKET: &str = "PMI_FD";
/// The variable with the way in which Slurm distributes ranks.
const DISTRIBUTION: &str = "SLURM_DISTRIBUTION";

/// A rank of an MPI launcher.
#[derive(Debug)]
pub struct Pmi {
    connection: Connection,
    rank: Rank,
    size: u32,
    /// Seen from its node.
    placement: Placement,
    job: u64,
    /// Whether rank 0 is where this one's loopback address does not reach.
    beyond: bool,
    /// Name of the launcher's store for this job.
    store: String,
    /// Most characters of a value that is put.
    most: usize,
    /// Fences so far.
    fences: u32,
    pairs: Pairs,
    /// Up to which fence what a rank has put was fetched.
    fetched: HashMap<u32, u32>,
    process: u32,
}

impl Pmi {
    /// Whether the environment names a launcher.
    pub fn is_named() -> bool {
        settings::environment(SOCKET).is_some()
    }

    /// Joins the job of the launcher that the environment names; `None` if it names none.
    ///
    /// A program that uses MPI itself must not call this (its MPI talks to the launcher): it wires
    /// hither up with [`super::FromAllgather`].
    ///
    /// # Errors
    /// [`Error::Boot`] if the launcher's socket is not there, was used up by this process, or is its
    /// MPI's; those of [`Pmi::join`].
    pub fn from_environment(deadline: Deadline) -> Result<Option<Pmi>> {
        let Some(fd) = settings::environment(SOCKET) else { return Ok(None) };
        let number = |name: &str| {
            let text = settings::environment(name);
            text.as_deref().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
                let text = text.unwrap_or_default();
                Error::boot(format!("PMI_FD is set, but {name} is \"{text}\", which is no number"))
            })
        };
        let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
        mpi::refuse_in_use(SOCKET)?;
        let told = settings::environment(DISTRIBUTION).is_none_or(|how| !layout::is_made_up(&how));
        Pmi::join_told(told, claim(&fd)?, Rank(rank), size, deadline).map(Some)
    }

    /// Joins as `rank` of `size` over a socket connected to the launcher. Collective.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Boot`] if the launcher does not speak PMI-1, says where ranks are
    /// in another way than PMI-1 has it, or takes processes for neighbours that share no memory.
    pub fn join(socket: OwnedFd, rank: Rank, size: u32, deadline: Deadline) -> Result<Pmi> {
        Pmi::join_told(true, socket, rank, size, deadline)
    }

    /// The same; `told` is whether what the launcher says of nodes is true.
    fn join_told(
        told: bool,
        socket: OwnedFd,
        rank: Rank,
        size: u32,
        deadline: Deadline,
    ) -> Result<Pmi> {
        if size == 0 || size > MAX_SIZE || rank.0 >= size {
            let why = format!("{rank} of {size} is not a rank of a job of 1 to {MAX_SIZE}");
            return Err(Error::invalid("rank", why));
        }
        let mut connection = Connection::new(socket);
        let mut ask = |line: &str, answer| {
            let said = connection.ask(line, answer, deadline, "joining the launcher (PMI)")?;
            if said.succeeded() { Ok(said) } else { Err(refused(line, &said)) }
        };
        let version = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        if version.get("pmi_version").is_some_and(|version| version != "1") {
            return Err(refused("PMI version 1", &version));
        }
        let most = ask("cmd=get_maxes", "maxes")?;
        let most: usize = most.get("vallen_max").and_then(|text| text.parse().ok()).unwrap_or(0);
        let store = ask("cmd=get_my_kvsname", "my_kvsname")?;
        let store = store.get("kvsname").unwrap_or_default().to_owned();
        // One for an end that some count; and the whole line is one that launchers read at once.
        let around = put(&store, &key(size, u32::MAX, MOST), "").len();
        let most = most.saturating_sub(1).min(wire::LINE.saturating_sub(around));
        if most < LEAST_VALUE || store.is_empty() {
            let why = format!("the launcher's store (PMI) \"{store}\" has values of {most} bytes");
            return Err(Error::boot(why));
        }
        let placement = Placement::one_node(size)?;
        let mut pmi = Pmi {
            connection,
            rank,
            size,
            placement,
            job: 0,
            beyond: false,
            store,
            most,
            fences: 0,
            pairs: Pairs::new(size),
            fetched: HashMap::new(),
            process: std::process::id(),
        };
        let mapping = if told { pmi.look_up("PMI_process_mapping", deadline)? } else { None };
        let (placement, known) = match mapping {
            Some(mapping) => {
                let places = layout::places(&mapping, size)?;
                let placement = Placement::of(places, 0)?.seen_from(rank);
                let known = neighbours::introduce(&mut pmi, &placement, deadline)?;
                (placement, known)
            }
            None => {
                let own = Card::of_this_process(rank.0, size)?;
                neighbours::meet(&mut pmi, &own, deadline)?
            }
        };
        (pmi.placement, pmi.job, pmi.beyond) = (placement, known.job, known.beyond);
        Ok(pmi)
    }

    /// The value of a key of the launcher's store; `None` if there is none.
    fn look_up(&mut self, key: &str, deadline: Deadline) -> Result<Option<String>> {
        let line = format!("cmd=get kvsname={} key={key}", self.store);
        let said =
            self.connection.ask(&line, "get_result", deadline, "a look-up in the wiring (PMI)")?;
        let value = said.get("value").filter(|_| said.succeeded());
        Ok(value.map(str::to_owned))
    }

    /// Fetches what a rank has put in all fences so far.
    fn fetch(&mut self, rank: u32, deadline: Deadline) -> Result<()> {
        let before = self.fetched.get(&rank).copied().unwrap_or(0);
        for fence in before + 1..=self.fences {
            let mut assembly = Assembly::default();
            let mut number = 0;
            let bytes = loop {
                let key = key(rank, fence, number);
                let step = match self.look_up(&key, deadline)? {
                    Some(piece) => assembly.add(&piece, MOST),
                    None => None,
                };
                match step {
                    Some(Step::Whole(bytes)) => break bytes,
                    Some(Step::More) => number += 1,
                    None => {
                        let why = "the launcher's store (PMI) has lost what it put";
                        return Err(Error::boot(format!("of rank {rank} {why} ({key})")));
                    }
                }
            };
            self.pairs.learn(rank, &bytes)?;
            self.fetched.insert(rank, fence);
        }
        Ok(())
    }
}

/// Under which a piece of what a rank put before a fence is in the store.
fn key(rank: u32, fence: u32, piece: usize) -> String {
    format!("hither-{rank}.{fence}.{piece}")
}

/// The line that puts a value.
fn put(store: &str, key: &str, value: &str) -> String {
    format!("cmd=put kvsname={store} key={key} value={value}")
}

#[cold]
fn refused(what: &str, said: &Line) -> Error {
    let why = said.get("msg").unwrap_or("no reason given");
    Error::boot(format!("the launcher's process manager refused \"{what}\": {why}"))
}

impl Bootstrap for Pmi {
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
        let during = "a fence of the wiring (PMI)";
        let fresh = self.pairs.take_fresh();
        if fresh.len() > MOST {
            let why = format!("{} bytes between two fences, and {MOST} are the most", fresh.len());
            return Err(Error::invalid("put", why));
        }
        self.fences += 1;
        for (number, piece) in wire::pieces(&fresh, self.most).into_iter().enumerate() {
            let key = key(self.rank.0, self.fences, number);
            let line = put(&self.store, &key, &piece);
            let said = self.connection.ask(&line, "put_result", deadline, during)?;
            if !said.succeeded() {
                return Err(refused("put", &said));
            }
        }
        let said = self.connection.ask("cmd=barrier_in", "barrier_out", deadline, during)?;
        if said.succeeded() { Ok(()) } else { Err(refused("barrier_in", &said)) }
    }

    fn get(&mut self, rank: Rank, key: &str, deadline: Deadline) -> Result<Option<Vec<u8>>> {
        if rank.0 < self.size {
            self.fetch(rank.0, deadline)?;
        }
        self.pairs.get(rank, key)
    }
}

impl Drop for Pmi {
    fn drop(&mut self) {
        // A launcher takes a process that ends without this for one that has failed. A forked
        // child's copy says nothing.
        if self.process == std::process::id() {
            let patience = Deadline::after(PATIENCE);
            let _ = self.connection.ask(
                "cmd=finalize",
                "finalize_ack",
                patience,
                "leaving the launcher",
            );
        }
    }
}

/// Takes ownership of the launcher's socket, if nobody in this process has.
fn claim(text: &str) -> Result<OwnedFd> {
    let bad = |why: &str| {
        Error::boot(format!(
            "PMI_FD is \"{text}\", but {why}; either the library was initialised twice in this \
             process, or MPI has used the socket up (wire hither up with FromAllgather then), or \
             this process was started by a rank: unset PMI_FD to run it by itself"
        ))
    };
    let fd: RawFd = text.trim().parse().map_err(|_| bad("that is no number"))?;
    socket::inherit(fd, None).map_err(bad)
}
