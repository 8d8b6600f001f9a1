//! The host's end of a guest's serial port: what is told to the agent, and what it says, told apart
//! by run.

use crate::error::{Error, Result};
use crate::running::{End, Record};
use crate::wire::Frame;
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After which the guest counts as one that does not listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is kept of the console.
const CONSOLE: usize = 8 << 10;
/// Lines of it that errors show.
const LAST_LINES: usize = 15;

pub(crate) struct Channel {
    guest: usize,
    to: Mutex<UnixStream>,
    state: Mutex<State>,
    changed: Condvar,
    console: Mutex<Vec<u8>>,
    /// Of the laboratory: its time is up.
    time_up: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    hello: bool,
    gone: bool,
    next: u32,
    runs: HashMap<u32, Arc<Record>>,
}

impl Channel {
    /// Listens to `stream` on a thread of its own, until it ends.
    pub fn new(guest: usize, stream: UnixStream, time_up: Arc<AtomicBool>) -> Result<Arc<Channel>> {
        let system = |e| Error::system("a guest's channel", e);
        let mut from = stream.try_clone().map_err(system)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(system)?;
        let channel = Arc::new(Channel {
            guest,
            to: Mutex::new(stream),
            state: Mutex::default(),
            changed: Condvar::new(),
            console: Mutex::default(),
            time_up,
        });
        let listener = channel.clone();
        std::thread::spawn(move || {
            while let Ok((run, frame)) = Frame::receive(&mut from) {
                listener.take(run, frame);
            }
            listener.lost();
        });
        Ok(channel)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, run: u32, frame: Frame) {
        let mut state = self.lock();
        if frame == Frame::Hello {
            state.hello = true;
            drop(state);
            return self.changed.notify_all();
        }
        let record = match frame {
            Frame::Exit(_) | Frame::Failed(_) => state.runs.remove(&run),
            _ => state.runs.get(&run).cloned(),
        };
        drop(state);
        if let Some(record) = record {
            record.note(frame);
        }
    }

    fn lost(&self) {
        let mut state = self.lock();
        state.gone = true;
        let runs = std::mem::take(&mut state.runs);
        drop(state);
        self.changed.notify_all();
        runs.into_values().for_each(|record| record.end(End::Gone));
    }

    /// Waits until the agent is there.
    pub fn await_hello(&self, until: Instant) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.gone {
                drop(state);
                return Err(self.why_gone());
            }
            if state.hello {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                let last = self.last_words();
                let why = format!("guest g{} did not start in time\n{last}", self.guest);
                return Err(Error::Failed(why));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the guest is gone.
    pub fn await_end(&self, limit: Duration) -> Result<()> {
        let alive = |state: &mut State| !state.gone;
        let waited = self.changed.wait_timeout_while(self.lock(), limit, alive);
        let gone = waited.unwrap_or_else(PoisonError::into_inner).0.gone;
        let why = || Error::Failed(format!("guest g{} does not go off", self.guest));
        if gone { Ok(()) } else { Err(why()) }
    }

    /// A number for a run whose news go to `record`.
    pub fn register(&self, record: &Arc<Record>) -> Result<u32> {
        let mut state = self.lock();
        if state.gone {
            drop(state);
            return Err(self.why_gone());
        }
        state.next += 1;
        let number = state.next;
        state.runs.insert(number, record.clone());
        Ok(number)
    }

    pub fn send(&self, run: u32, frame: &Frame) -> Result<()> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        frame.send(run, &mut *to).map_err(|e| {
            if self.lock().gone {
                self.why_gone()
            } else {
                Error::system(format!("guest g{} cannot be told anything", self.guest), e)
            }
        })
    }

    pub fn is_gone(&self) -> bool {
        self.lock().gone
    }

    pub fn why_gone(&self) -> Error {
        if self.time_up.load(Ordering::Acquire) {
            return Error::TimeUp("all its guests were switched off".into());
        }
        Error::Gone { guest: self.guest, last: self.last_words() }
    }

    fn last_words(&self) -> String {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Keeps the end of what comes out of `pipe`, on a thread of its own.
    pub fn keep_console(self: &Arc<Channel>, mut pipe: impl Read + Send + 'static) {
        let channel = self.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                let mut console = channel.console.lock().unwrap_or_else(PoisonError::into_inner);
                console.extend_from_slice(&buffer[..length]);
                let old = console.len().saturating_sub(CONSOLE);
                console.drain(..old);
            }
        });
    }

    /// Ends the listening thread, whatever the emulator does.
    pub fn close(&self) {
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        // It is closed already if that fails.
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}
