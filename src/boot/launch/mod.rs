//! Starting the ranks of a job and looking after them to the end.
//!
//! ```text
//!                     control thread                             output thread
//!   pidfds  --------> how each rank ended: marks, messages,
//!   control sockets ->  wiring (see `boot::server`)          <---- pipes of the ranks
//!   signals  -------> passed on to the ranks' groups          ---> stdout, stderr
//!   guardian  ------> told of every group (see `guardian`)
//! ```
//! Each rank is the leader of a process group. A rank ends when its first process ends; what is
//! left of its group is killed then. The control thread starts all ranks, because their
//! parent-death signals are tied to the thread that started them, and lives until all are reaped.

pub mod agent;
mod control;
pub mod exit;
pub mod frame;
mod guardian;
pub mod hosts;
mod output;
pub mod rsh;
mod signals;
mod spawn;
mod stream;

pub use exit::{Exit, Outcome};
pub use signals::Signals;

use super::wire::MAX_BLOCKS;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use crate::topo::Places;
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the output of ranks goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// Line by line to the launcher's standard output and standard error.
    #[default]
    Forward,
    /// Ranks write to the launcher's standard output and standard error themselves, so they see
    /// a terminal where there is one. On other hosts as [`Output::Forward`].
    Inherit,
    /// Into the [`Outcome`].
    Capture,
}

/// What to start and how.
#[derive(Debug)]
pub struct Plan {
    /// The program, looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables on top of the launcher's own.
    pub env: Vec<(OsString, OsString)>,
    /// Whether rank 0 gets the standard input, unless that is a terminal.
    pub input: bool,
    /// CPUs for each rank; ranks beyond its end, or without any, run anywhere.
    pub cpus: Vec<Vec<usize>>,
    /// Where output goes.
    pub output: Output,
    /// Whether each line of output gets its rank in front (forwarded output only).
    pub label: bool,
    /// Whether the others go on when a rank fails.
    pub survive: bool,
    /// Time limit of the whole job.
    pub timeout: Option<Duration>,
    /// How long ranks may take to end by themselves once the job is ending, and again how long
    /// after SIGTERM, before they are killed.
    pub grace: Duration,
    /// Identity of the job.
    pub job: u64,
    /// The memory of each node, handed to every rank of it that joins.
    pub memories: Vec<OwnedFd>,
    /// Which ranks are on which of these nodes.
    pub places: Places,
    /// The launcher's own signals, to be passed on.
    pub signals: Option<Signals>,
    /// The hosts on which its nodes are, where they are not this machine.
    pub remote: Option<Remote>,
}

/// How other hosts are reached, and what is to be done there.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The host of each node, with the addresses that its name stands for.
    pub hosts: Vec<(hosts::Host, Vec<String>)>,
    /// The command that runs another one on a host, and its arguments.
    pub rsh: Vec<OsString>,
    /// The command that serves as an agent there, and its arguments.
    pub agent: Vec<OsString>,
    /// The directory in which ranks run.
    pub directory: OsString,
    /// Symmetric address space for each rank in bytes.
    pub heap: u64,
    /// How ranks are bound.
    pub bind: crate::topo::Bind,
    /// The address, interface or subnet for the network, or nothing.
    pub address: String,
    /// How long a host may say nothing before it counts as lost.
    pub silence: Duration,
}

/// Is told what happens to ranks, so that it can be recorded where other ranks see it.
pub trait Watcher: Send {
    /// The process of `rank` has ended.
    fn ended(&mut self, rank: u32, exit: Exit);
    /// The job is being ended.
    fn ending(&mut self);
}

#[derive(Debug, Clone)]
struct Process {
    pid: i32,
    /// The way to its agent, if it is on another host.
    away: Option<Arc<stream::Outgoing>>,
    /// Not reaped yet, so the number is still its own.
    alive: bool,
}

/// What the control thread shares with the handle.
#[derive(Debug)]
struct Shared {
    processes: Mutex<Vec<Process>>,
    stop: AtomicBool,
    wake: OwnedFd,
}

impl Shared {
    fn processes(&self) -> MutexGuard<'_, Vec<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `signal` to a rank's group; false if it has ended.
    fn kill(&self, rank: usize, signal: i32) -> bool {
        let processes = self.processes();
        let Some(process) = processes.get(rank).filter(|p| p.alive) else { return false };
        if let Some(agent) = &process.away {
            let signal = signal as u32;
            agent.send(&frame::Down::Signal { rank: rank as u32, signal }.encode());
            return true;
        }
        // SAFETY: no memory involved. The group's leader is not reaped while the lock is held,
        // so the number belongs to it.
        unsafe { libc::kill(-process.pid, signal) == 0 }
    }

    fn kill_all(&self, signal: i32) {
        let count = self.processes().len();
        for rank in 0..count {
            self.kill(rank, signal);
        }
    }
}

/// A job that has been started. Dropping it kills the job and waits for its end.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Outcome>>,
    /// A child that was forked off has the structure but not the thread.
    process: u32,
}

/// Starts a job; returns once all its ranks have been started, or none is left.
pub fn start(plan: Plan, watcher: Box<dyn Watcher>) -> Result<Running> {
    let blocks = plan.places.blocks().len();
    if blocks > MAX_BLOCKS {
        let why = format!(
            "it needs {blocks} blocks, and {MAX_BLOCKS} are the most; give more nodes that follow \
             each other the same number of ranks"
        );
        return Err(Error::invalid("map of ranks to nodes", why));
    }
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::os("eventfd for the launcher", e))?;
    let shared =
        Arc::new(Shared { processes: Mutex::new(Vec::new()), stop: AtomicBool::new(false), wake });
    let (started, report) = mpsc::channel();
    let for_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("hither-launch".into())
        .spawn(move || control::run(plan, watcher, for_thread, &started))
        .map_err(|e| Error::os("starting the launcher's thread", e))?;
    let running = Running { shared, thread: Some(thread), process: std::process::id() };
    match report.recv() {
        Ok(Ok(())) => Ok(running),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(Error::boot("the launcher's thread ended before the ranks were started")),
    }
}

impl Running {
    /// Sends a signal to a rank's process group; false if the rank has ended.
    pub fn kill(&self, rank: u32, signal: i32) -> bool {
        self.shared.kill(rank as usize, signal)
    }

    /// Process id of a rank's first process, `None` for a rank that is not in the job. It may have
    /// ended by now.
    pub fn pid(&self, rank: u32) -> Option<u32> {
        self.shared.processes().get(rank as usize).map(|p| p.pid as u32)
    }

    /// Whether the job is over: [`Running::wait`] would return at once.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the job.
    pub fn wait(mut self) -> Result<Outcome> {
        self.join()
    }

    fn join(&mut self) -> Result<Outcome> {
        let thread = self.thread.take();
        if self.process != std::process::id() {
            return Err(Error::boot(
                "the job belongs to the process that this one was forked from",
            ));
        }
        thread.and_then(|t| t.join().ok()).ok_or_else(|| {
            Error::boot("the launcher's thread panicked; this is a defect of hither")
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && self.process == std::process::id() {
            self.shared.stop.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
            let _ = self.join();
        }
    }
}
