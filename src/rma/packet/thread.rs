//! The progress thread: carries out what arrives while the program is elsewhere.
//!
//! ```text
//!            a message arrives              a call drives, or drove a moment ago
//!   asleep ---------------------> looking ------------------------------------> beside
//!   on the doorbell <------------   |  ^                                          |
//!            nothing more           +--+ <----------------------------------------+
//!                                                 every 250 us, a few times
//! ```
//! It exists while the process has windows reached by packets. While the program's calls drive
//! progress themselves it steps aside and only looks in now and then, so that not every message
//! wakes two threads; once they have ceased for some looks it sleeps on the doorbell, and nothing
//! runs while nothing arrives.

use super::agent::Agent;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Deadline, Error, Result};
use crate::link::service::doorbell;
use crate::shm::node::Node;
use crate::shm::park::Pace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks while calls drive.
const BESIDE: Duration = Duration::from_micros(250);
/// Looks without a call that drives before it sleeps on the doorbell.
const QUIET: u32 = 8;
/// Between two attempts while something waits for room at a peer.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// A running thread.
#[derive(Debug)]
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    handle: std::thread::JoinHandle<()>,
    /// A child that was forked off has the structure but not the thread.
    process: u32,
}

impl Thread {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Os`] if the system gives no thread.
    pub fn start(agent: Arc<Agent>, node: Arc<Node>) -> Result<Thread> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let run = move || {
            block_signals();
            // A panic would be a bug of this library; calls then fail instead of waiting.
            let end = catch_unwind(AssertUnwindSafe(|| run(&agent, &node, &seen)));
            match end {
                Ok(Ok(())) => {}
                Ok(Err(error)) => agent.damage(&node, error.to_string()),
                Err(_) => agent.damage(&node, "the progress thread panicked".into()),
            }
        };
        let named = std::thread::Builder::new().name("hither-progress".into());
        let handle = named.spawn(run).map_err(|e| Error::os("starting a progress thread", e))?;
        Ok(Thread { stop, handle, process: std::process::id() })
    }

    /// Ends it and waits until it has ended. Called by the thread itself (a future that it has woken
    /// let the last window go), it ends soon after.
    pub fn stop(self, node: &Node) {
        if self.process != std::process::id() {
            return;
        }
        self.stop.store(true, Ordering::Release);
        if self.handle.thread().id() == std::thread::current().id() {
            return;
        }
        self.handle.thread().unpark();
        doorbell(node, node.slot()).notify();
        // It catches its panics.
        let _ = self.handle.join();
    }
}

/// Signals of the process are for the program's threads.
fn block_signals() {
    // SAFETY: a signal set is filled before it is used; both calls only write what they are given.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

fn run(agent: &Agent, node: &Node, stop: &AtomicBool) -> Result<()> {
    let stopped = || stop.load(Ordering::Acquire);
    while !stopped() {
        step_aside(agent, node, &stopped)?;
        sleep(agent, node, &stopped)?;
    }
    Ok(())
}

/// Looks in now and then until no call drives any more.
fn step_aside(agent: &Agent, node: &Node, stopped: &impl Fn() -> bool) -> Result<()> {
    let (mut quiet, mut looks) = (0, agent.looks.load(Ordering::Relaxed));
    while quiet < QUIET && !stopped() {
        let now = agent.looks.load(Ordering::Relaxed);
        let active = agent.drivers() > 0 || now != looks;
        looks = now;
        quiet = if active { 0 } else { quiet + 1 };
        if agent.drivers() == 0 {
            look(agent, node)?;
        }
        std::thread::park_timeout(BESIDE);
    }
    Ok(())
}

/// Sleeps on the doorbell and looks whenever it rings, until a call drives.
fn sleep(agent: &Agent, node: &Node, stopped: &impl Fn() -> bool) -> Result<()> {
    const PACE: Pace = Pace { spins: 0, yields: 0, slice: Pace::LONGEST, longest: Pace::LONGEST };
    let looks = agent.looks.load(Ordering::Relaxed);
    let mut retry = false;
    loop {
        // Beside the doorbell's own slices only while something waits for room elsewhere.
        let deadline = if retry { Deadline::after(RETRY) } else { Deadline::NEVER };
        let poll = || {
            if stopped() || agent.drivers() > 0 || agent.looks.load(Ordering::Relaxed) != looks {
                return Some(Ok(false));
            }
            match look(agent, node) {
                Ok((false, again)) if again == retry => None,
                Ok((_, again)) => {
                    retry = again;
                    Some(Ok(true))
                }
                Err(error) => Some(Err(error)),
            }
        };
        let check = || agent.look_around(node, false);
        let cell = doorbell(node, node.slot());
        match cell.wait(PACE, deadline, "progress", poll, check) {
            Ok(Ok(true)) | Err(Error::TimedOut { .. }) => {}
            Ok(Ok(false)) => return Ok(()),
            Ok(Err(error)) | Err(error) => return Err(error),
        }
    }
}

/// One look: whether something had arrived, and whether to try again soon.
fn look(agent: &Agent, node: &Node) -> Result<(bool, bool)> {
    // Who has the lock looks itself, or rings the doorbell when it leaves something.
    let Some(mut state) = agent.try_enter() else { return Ok((false, true)) };
    let found = state.look(node)?;
    let retry = state.retry;
    drop(state);
    if found && agent.drivers() > 0 {
        doorbell(node, node.slot()).notify();
    }
    Ok((found, retry))
}
