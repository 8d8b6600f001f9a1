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
//!
//! A unit that becomes due wakes one thread; a thread that takes a unit wakes the next one if
//! another unit may run beside it. So as many are awake as can run something.

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

/// What has units to run: one window.
pub(super) trait Runs: Send + Sync + 'static {
    /// Whether there may be one. One load.
    fn is_due(&self) -> bool;

    /// Runs one, if one may be run now.
    fn run_one(&self) -> bool;
}

/// Starts a thread.
type Start = fn(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>;

fn start(run: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("hither-handlers".into()).spawn(run)
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Executor<W> {
    /// How many, none if the program's calls run handlers.
    threads: usize,
    start: Start,
    /// The process that made it.
    process: u32,
    state: Mutex<State<W>>,
    bell: Condvar,
}

#[derive(Debug)]
struct State<W> {
    windows: Vec<Arc<W>>,
    /// The window whose turn is next.
    turn: usize,
    /// Grows with everything that there may be to run.
    news: u64,
    asleep: usize,
    /// Which generation of threads is to run: those of earlier ones end.
    generation: u64,
    handles: Vec<JoinHandle<()>>,
}

impl<W: Runs> Executor<W> {
    /// One without windows and threads.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn new() -> Result<Executor<W>> {
        let by_calls = settings::PROGRESS.text() == "calls";
        let threads = settings::AM_THREADS.number()?;
        if !(1..=256).contains(&threads) {
            let why = format!("{threads} is not between 1 and 256");
            return Err(Error::invalid(settings::AM_THREADS.name, why));
        }
        Ok(Executor::with(if by_calls { 0 } else { threads as usize }, start))
    }

    fn with(threads: usize, start: Start) -> Executor<W> {
        let state = State {
            windows: Vec::new(),
            turn: 0,
            news: 0,
            asleep: 0,
            generation: 0,
            handles: Vec::new(),
        };
        let (state, bell) = (Mutex::new(state), Condvar::new());
        Executor { threads, start, process: std::process::id(), state, bell }
    }

    /// Whether this is the process that made it, not a child forked off.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether there are threads.
    pub fn threaded(&self) -> bool {
        self.threads > 0
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a window in; the first one starts the threads.
    ///
    /// # Errors
    /// [`Error::Os`] if the system does not give all of them: there are none then.
    pub fn add(self: &Arc<Executor<W>>, window: &Arc<W>) -> Result<()> {
        let mut state = self.state();
        if state.windows.is_empty() {
            state.generation += 1;
            for _ in 0..self.threads {
                let (executor, generation) = (self.clone(), state.generation);
                match (self.start)(Box::new(move || executor.run(generation))) {
                    Ok(handle) => state.handles.push(handle),
                    Err(error) => {
                        // Those of a generation that is over would take what wakes the next one's.
                        self.end(state);
                        return Err(Error::os("starting a thread for handlers", error));
                    }
                }
            }
        }
        state.windows.push(window.clone());
        Ok(())
    }

    /// Lets a window go; the last one ends the threads, and waits for them unless it is one of
    /// them that calls.
    pub fn remove(&self, window: &Arc<W>) {
        let mut state = self.state();
        let before = state.windows.len();
        state.windows.retain(|known| !Arc::ptr_eq(known, window));
        if state.windows.is_empty() && before > 0 {
            self.end(state);
        }
    }

    /// Ends the threads there are.
    fn end(&self, mut state: MutexGuard<'_, State<W>>) {
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
                let Some(window) = state.windows.get(state.turn).cloned() else { break };
                if !window.is_due() {
                    continue;
                }
                drop(state);
                // A panic would be a bug of this library: the unit has failed, others go on.
                let one = catch_unwind(AssertUnwindSafe(|| window.run_one()));
                ran |= one.unwrap_or(true);
                drop(window);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicUsize, Ordering};
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Long enough for everything but a wait for ever.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Units that each say that they run, and then wait to be told to end.
    #[derive(Debug)]
    struct Units {
        left: AtomicUsize,
        begun: Sender<()>,
        gate: Mutex<Receiver<()>>,
    }

    impl Units {
        fn new() -> (Arc<Units>, Receiver<()>, Sender<()>) {
            let ((begun, begins), (open, gate)) = (channel(), channel());
            let (left, gate) = (AtomicUsize::new(0), Mutex::new(gate));
            (Arc::new(Units { left, begun, gate }), begins, open)
        }

        fn come(&self, executor: &Executor<Units>) {
            self.left.fetch_add(1, Ordering::AcqRel);
            executor.wake();
        }
    }

    impl Runs for Units {
        fn is_due(&self) -> bool {
            self.left.load(Ordering::Acquire) > 0
        }

        fn run_one(&self) -> bool {
            let less = |n: usize| n.checked_sub(1);
            let taken = self.left.try_update(Ordering::AcqRel, Ordering::Acquire, less);
            if taken.is_ok() {
                self.begun.send(()).unwrap();
                self.gate.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            taken.is_ok()
        }
    }

    fn first_only(run: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        thread_local!(static STARTED: Cell<usize> = const { Cell::new(0) });
        STARTED.set(STARTED.get() + 1);
        // The second one of the first attempt cannot be started.
        if STARTED.get() == 2 { Err(std::io::ErrorKind::OutOfMemory.into()) } else { start(run) }
    }

    #[test]
    fn a_thread_that_could_not_be_started_leaves_none_that_take_wake_ups() {
        let executor = Arc::new(Executor::with(2, first_only));
        let (units, begins, open) = Units::new();
        let error = executor.add(&units).unwrap_err();
        assert!(matches!(error, Error::Os { .. }), "{error}");
        assert!(executor.state().handles.is_empty(), "those of the attempt are over");
        executor.add(&units).unwrap();
        for _ in 0..100 {
            units.come(&executor);
            begins.recv_timeout(PATIENCE).expect("somebody is woken");
            open.send(()).unwrap();
        }
        executor.remove(&units);
    }

    #[test]
    fn threads_end_with_the_last_window_and_start_again_with_the_next() {
        let executor = Arc::new(Executor::with(3, start));
        for _ in 0..20 {
            let (units, begins, open) = Units::new();
            executor.add(&units).unwrap();
            units.come(&executor);
            begins.recv_timeout(PATIENCE).unwrap();
            open.send(()).unwrap();
            executor.remove(&units);
            assert_eq!(Arc::strong_count(&executor), 1, "a thread is left");
        }
    }

    #[test]
    fn a_panic_while_running_costs_the_unit_only() {
        #[derive(Debug)]
        struct Breaks(AtomicUsize, Barrier);
        impl Runs for Breaks {
            fn is_due(&self) -> bool {
                self.0.load(Ordering::Acquire) > 0
            }
            fn run_one(&self) -> bool {
                let left = self.0.fetch_sub(1, Ordering::AcqRel);
                if left == 1 {
                    self.1.wait();
                }
                assert!(left == 1, "a bug, as a test");
                true
            }
        }
        let executor = Arc::new(Executor::with(1, start));
        let breaks = Arc::new(Breaks(AtomicUsize::new(3), Barrier::new(2)));
        executor.add(&breaks).unwrap();
        executor.wake();
        breaks.1.wait();
        executor.remove(&breaks);
    }
}
