//! A job: the processes that communicate, seen from one of them.

use super::edge;
use crate::base::hints::{Hinted, Hints, KernelRegion};
use crate::base::{Deadline, Error, Rank, Result, forked, settings};
use crate::boot::{self, Bootstrap};
use crate::coll::Team;
use crate::link::Link;
use crate::link::core::Core;
use crate::shm::map::Mapping;
use crate::shm::node::Node;
use crate::topo::Placement;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// This process's part in a job. Usable from many threads.
///
/// Dropping it, and the last of its teams and windows, leaves the job: peers that still wait for
/// this rank get an error that says so; a collective that it has completed goes on without it.
/// [`Job::finish`] waits for everybody first. A process that ends without either (killed, or
/// unwinding from a panic) counts as dead.
///
/// A child that a rank forks off without executing a program is no rank: it may read what its
/// parent could read and drop what it has a copy of, which means nothing to the job; what it writes
/// to windows stays in it, and what communicates fails with [`Error::Forked`]. It keeps neither its
/// parent's rank alive nor anybody waiting.
#[derive(Debug)]
pub struct Job {
    team: Team,
    node_team: Team,
    link: Link,
    limit: Option<Duration>,
}

/// How to join a job other than by [`Job::init`].
#[derive(Default)]
pub struct Builder {
    bootstrap: Option<Box<dyn Bootstrap>>,
    wire_limit: Option<Duration>,
    heap: Option<u64>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("wire_limit", &self.wire_limit).finish_non_exhaustive()
    }
}

impl Builder {
    /// Uses this bootstrap instead of what the environment asks for.
    pub fn bootstrap(mut self, bootstrap: impl Bootstrap + 'static) -> Builder {
        self.bootstrap = Some(Box::new(bootstrap));
        self
    }

    /// Time limit of the wiring; the setting `HITHER_WIRE_TIMEOUT` if not given.
    pub fn wire_timeout(mut self, limit: Duration) -> Builder {
        self.wire_limit = Some(limit);
        self
    }

    /// Symmetric address space per rank in bytes, where this process creates the node's memory;
    /// the setting `HITHER_HEAP_SIZE` if not given.
    pub fn heap_size(mut self, bytes: u64) -> Builder {
        self.heap = Some(bytes);
        self
    }

    /// Joins the job.
    ///
    /// # Errors
    /// [`Error::TimedOut`] or [`Error::RankDied`] name the ranks that are missing;
    /// [`Error::Forked`] in a child that a rank has forked off.
    pub fn init(self) -> Result<Job> {
        forked::refuse_forked("joining a job")?;
        let limit = match self.wire_limit {
            Some(limit) => Some(limit),
            None => settings::WIRE_TIMEOUT.seconds()?,
        };
        let deadline = limit.map_or(Deadline::NEVER, Deadline::after);
        let mut bootstrap = match self.bootstrap {
            Some(bootstrap) => bootstrap,
            None => boot::from_environment(deadline)?,
        };
        let heap = match self.heap {
            Some(heap) => heap,
            None => settings::HEAP_SIZE.bytes()?,
        };
        let size = bootstrap.size();
        let rank = bootstrap.rank();
        let placement = bootstrap.placement()?.seen_from(rank);
        let slot = placement
            .slot_of(rank)
            .ok_or_else(|| Error::invalid("rank", format!("rank {rank} in a job of {size}")))?;
        let make = || Node::create_memory(placement.locals(), heap);
        let fd = bootstrap.node_memory(&make, deadline)?;
        let node = Node::attach_placed(fd, Some(placement.clone()), slot, deadline)?;
        if placement.nodes() > 1 {
            edge::connect(&node, bootstrap, deadline)?;
        }
        Job::wire(node, deadline)
    }
}

impl Job {
    /// Joins the job that this process was started for: by `hither run`, a
    /// [`crate::world::Launcher`], or an MPI launcher that speaks PMI-1 (MPICH's `mpiexec`, Slurm's
    /// `srun --mpi=pmi2`) or PMIx (Open MPI's `mpirun`, Slurm's `srun --mpi=pmix`); else a job of this
    /// one process.
    ///
    /// A program that uses MPI itself wires hither up with [`crate::boot::FromAllgather`] instead.
    pub fn init() -> Result<Job> {
        Builder::default().init()
    }

    /// Whether a launcher has started this process as a rank of a job, which [`Job::init`] joins.
    pub fn was_launched() -> bool {
        boot::was_launched()
    }

    /// For other ways to join.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `body` on `ranks` ranks that are threads of this process, for tests, examples and
    /// measurements of single pieces. Returns their results in rank order.
    ///
    /// # Errors
    /// [`Error::Os`] if a thread cannot be started: then `body` runs on none. What keeps a rank
    /// from joining; what `body` itself fails with is its result.
    ///
    /// # Panics
    /// A thread that panics counts as a dead rank for the others, and the panic goes on in the
    /// caller once all have ended.
    pub fn threads<R: Send>(ranks: u32, body: impl Fn(Job) -> R + Send + Sync) -> Result<Vec<R>> {
        Job::threads_placed(Placement::one_node(ranks)?, |_| Ok(()), body)
    }

    /// As [`Job::threads`] on several nodes; `connect` is called for each rank before it begins.
    pub(crate) fn threads_placed<R: Send>(
        placement: Placement,
        connect: impl Fn(&Arc<Node>) -> Result<()> + Send + Sync,
        body: impl Fn(Job) -> R + Send + Sync,
    ) -> Result<Vec<R>> {
        forked::refuse_forked("joining a job")?;
        let heap = settings::HEAP_SIZE.bytes()?;
        let limit = settings::WIRE_TIMEOUT.seconds()?;
        let mut memories = Vec::new();
        for node in 0..placement.nodes() {
            let fd = Node::create_memory(placement.places().count_on(node), heap)?;
            let length = crate::shm::map::sealed_length(&fd)?;
            let mapping = Arc::new(Mapping::anywhere(&fd, length)?);
            memories.push((fd, mapping));
        }
        // Nobody begins before all threads are there: those that came would wait for the others.
        let all_there = RwLock::new(false);
        let run = |rank: u32| -> Result<R> {
            if !*all_there.read().unwrap_or_else(PoisonError::into_inner) {
                return Err(Error::boot("not all ranks of the job could be started"));
            }
            let deadline = limit.map_or(Deadline::NEVER, Deadline::after);
            let here = placement.seen_from(Rank(rank));
            let (Some(slot), Some((fd, mapping))) =
                (here.slot_of(Rank(rank)), memories.get(here.node() as usize))
            else {
                return Err(Error::boot("a rank without a node; this is a fault of the library"));
            };
            let mapping = mapping.clone();
            let node = Node::attach_mapped_placed(clone_fd(fd)?, Some(here), slot, mapping)?;
            connect(&node)?;
            Ok(body(Job::wire(node, deadline)?))
        };
        std::thread::scope(|scope| {
            let run = &run;
            let mut gate = all_there.write().unwrap_or_else(PoisonError::into_inner);
            let start = |rank| {
                let thread = std::thread::Builder::new();
                thread.spawn_scoped(scope, move || run(rank)).map_err(|source| Error::Os {
                    call: "starting a rank's thread",
                    source,
                    hint: "see ulimit -u (threads) and ulimit -v (address space of their stacks)",
                })
            };
            let all = (0..placement.ranks()).map(start).collect::<Result<Vec<_>>>()?;
            *gate = true;
            drop(gate);
            let ended: Vec<_> = all.into_iter().map(|thread| thread.join()).collect();
            ended
                .into_iter()
                .map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    fn wire(node: Arc<Node>, deadline: Deadline) -> Result<Job> {
        crate::rma::attend_locks(&node);
        Team::prepare_whole(&node)?;
        node.await_all(deadline)?;
        let limit = settings::WAIT_TIMEOUT.seconds()?;
        let limited = |team: Team| limit.map_or(team.clone(), |limit| team.with_deadline(limit));
        let team = limited(Team::whole(&node)?);
        let node_team = match node.placement().nodes() {
            1 => team.clone(),
            _ => limited(Team::of_node(&node)?),
        };
        // What comes for teams must find who takes it, also while the program looks into the link.
        team.open_messages()?;
        let link = Link::new(node)?;
        Ok(Job { team, node_team, link, limit })
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.team.rank()
    }

    /// Ranks in the job.
    pub fn size(&self) -> u32 {
        self.team.size()
    }

    /// The team of all ranks.
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The team of the ranks on this node; the whole job's if it has one node.
    pub fn node_team(&self) -> &Team {
        &self.node_team
    }

    /// Time limit of waits, as set by `HITHER_WAIT_TIMEOUT`.
    pub fn wait_timeout(&self) -> Option<Duration> {
        self.limit
    }

    /// Whether this rank knows of any death in the job.
    pub fn deaths(&self) -> u32 {
        self.node().deaths()
    }

    /// Short messages to single peers: what two-sided communication is built on.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Says something of the program that makes it faster and changes nothing else, from now on and
    /// in all of the process's threads: `job.hint("in_kernel", "1")` (paper 003). What hints there
    /// are: [`crate::base::hints::TABLE`]. Never blocks.
    pub fn hint(&self, key: &str, value: &str) -> Result<Hinted> {
        Ok(Core::of(self.node())?.hints().hint(key, value))
    }

    /// The program is in its kernel region, the part that has to be fast, until what is returned is
    /// dropped: who is sent to there gets a connection of its own at once, a lane in the node and a
    /// queue pair beyond it.
    pub fn kernel_region(&self) -> Result<KernelRegion> {
        Ok(Hints::kernel_region(Core::of(self.node())?.hints()))
    }

    /// The attachment to the node's memory.
    pub fn node(&self) -> &Arc<Node> {
        self.team.node()
    }

    /// Waits until every rank has called it, then leaves. After a death it leaves at once and
    /// reports it. Then the program may end however it likes: nobody misses anything of it. Where
    /// the network loses the very last words of others that have left already, it takes as long as
    /// they would need to count as dead (`HITHER_NET_TIMEOUT`).
    pub fn finish(self) -> Result<()> {
        let ended = self.team.farewell();
        // Windows and teams that are never dropped would keep the connections from doing this.
        self.node().drain_beyond();
        ended
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.node().leave();
        }
    }
}

fn clone_fd(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.as_fd()
        .try_clone_to_owned()
        .map_err(|e| Error::os("duplicating the descriptor of the node's memory", e))
}
