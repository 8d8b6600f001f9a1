//! Who runs the handlers of messages that come by packets.
//!
//! ```text
//!           a unit is complete              nothing may be run
//!   asleep ---------------------> running ----------------------> asleep
//!   (condition variable)            |  ^
//!                                   +--+ one unit after the other, the windows in turn
//! ```
//! One per process, beside the thread that takes packets in: a long handler keeps neither one-sided
//! operations nor the program's messages from going on. It never polls. Its threads exist while
//! the process has windows with handlers that are reached by packets, `HITHER_AM_THREADS` of them.
//! With `HITHER_PROGRESS=calls` there are none; the program's calls run what is due.

use super::Away;
use crate::base::sync::Ordering;
use crate::base::{Error, Result, settings};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is one of the threads that run handlers.
pub(super) fn inside() -> bool {
    INSIDE.get()
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Executor {
    /// How many, none if the program's calls run handlers.
    threads: usize,
    /// The process that made it.
    process: u32,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    windows: Vec<Arc<Away>>,
    /// The window whose turn is next.
    turn: usize,
    /// Grows with everything that there may be to run.
    news: u64,
    asleep: usize,
    /// Which generation of threads is to run: those of earlier ones end.
    generation: u64,
    handles: Vec<JoinHandle<()>>,
}

impl Executor {
    /// One without windows and threads.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn new() -> Result<Executor> {
        let by_calls = settings::PROGRESS.text() == "calls";
        let threads = settings::AM_THREADS.number()?;
        if !(1..=256).contains(&threads) {
            let why = format!("{threads} is not between 1 and 256");
            return Err(Error::invalid(settings::AM_THREADS.name, why));
        }
        let threads = if by_calls { 0 } else { threads as usize };
        let (process, state, bell) = (std::process::id(), Mutex::default(), Condvar::new());
        Ok(Executor { threads, process, state, bell })
    }

    /// Whether this is the process that made it, not a child forked off.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether there are threads.
    pub fn threaded(&self) -> bool {
        self.threads > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a window in; the first one starts the threads.
    pub fn add(self: &Arc<Executor>, away: &Arc<Away>) -> Result<()> {
        let mut state = self.state();
        if state.windows.is_empty() {
            state.generation += 1;
            for _ in 0..self.threads {
                let (executor, generation) = (self.clone(), state.generation);
                let named = std::thread::Builder::new().name("hither-handlers".into());
                let spawned = named.spawn(move || executor.run(generation));
                let handle = spawned.map_err(|e| Error::os("starting a thread for handlers", e));
                state.handles.push(handle.inspect_err(|_| self.bell.notify_all())?);
            }
        }
        state.windows.push(away.clone());
        Ok(())
    }

    /// Lets a window go; the last one ends the threads, and waits for them unless it is one of
    /// them that calls.
    pub fn remove(&self, away: &Arc<Away>) {
        let mut state = self.state();
        let before = state.windows.len();
        state.windows.retain(|known| !Arc::ptr_eq(known, away));
        if !state.windows.is_empty() || before == 0 {
            return;
        }
        state.generation += 1;
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        self.bell.notify_all();
        // A child that was forked off has the structure but not the threads.
        if self.is_here() && !inside() {
            for handle in handles {
                // They catch their panics.
                let _ = handle.join();
            }
        }
    }

    /// There may be something to run. Cost if the threads are awake: a lock of this process.
    pub fn wake(&self) {
        if self.threads == 0 {
            return;
        }
        let mut state = self.state();
        state.news += 1;
        let asleep = state.asleep > 0;
        drop(state);
        if asleep {
            self.bell.notify_one();
        }
    }

    fn run(&self, generation: u64) {
        INSIDE.set(true);
        block_signals();
        let mut state = self.state();
        while state.generation == generation {
            let (news, windows) = (state.news, state.windows.len());
            let mut ran = false;
            for _ in 0..windows {
                let len = state.windows.len().max(1);
                state.turn = (state.turn + 1) % len;
                let Some(away) = state.windows.get(state.turn).cloned() else { break };
                if !away.due.load(Ordering::Acquire) {
                    continue;
                }
                drop(state);
                // A panic would be a bug of this library: the message is lost, others go on.
                ran |= catch_unwind(AssertUnwindSafe(|| away.run_one())).unwrap_or(false);
                drop(away);
                state = self.state();
                if state.generation != generation {
                    return;
                }
            }
            if !ran && state.news == news && state.generation == generation {
                state.asleep += 1;
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        }
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
