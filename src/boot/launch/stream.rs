//! One direction of the connection between a launcher and an agent: never waits.

use crate::base::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Frames on their way out, from any thread. What the pipe does not take waits here, and goes once
/// whoever waits for the pipe calls [`Outgoing::flush`].
#[derive(Debug)]
pub struct Outgoing {
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<u8>,
    broken: bool,
}

impl Outgoing {
    /// Over this pipe.
    pub fn new(fd: OwnedFd) -> Result<Outgoing> {
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|e| Error::os("making an agent's pipe non-blocking", e))?;
        Ok(Outgoing { fd, state: Mutex::default() })
    }

    /// The pipe.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends bytes, after what was sent before.
    pub fn send(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.broken {
            state.queue.extend(bytes);
            self.push(&mut state);
        }
    }

    /// Writes what waits, as far as the pipe takes it.
    pub fn flush(&self) {
        self.push(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether nothing waits to be written, or can be written any more.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken || state.queue.is_empty()
    }

    fn push(&self, state: &mut State) {
        while !state.broken && !state.queue.is_empty() {
            match rustix::io::write(&self.fd, state.queue.as_slices().0) {
                Ok(written) => drop(state.queue.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    state.broken = true;
                    state.queue.clear();
                }
            }
        }
    }
}

/// Bytes on their way in.
#[derive(Debug)]
pub struct Incoming {
    fd: OwnedFd,
    /// What has come and was not taken off yet.
    pub bytes: Vec<u8>,
}

impl Incoming {
    /// Over this pipe.
    pub fn new(fd: OwnedFd) -> Result<Incoming> {
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|e| Error::os("making an agent's pipe non-blocking", e))?;
        Ok(Incoming { fd, bytes: Vec::new() })
    }

    /// The pipe.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads once; false at the end of the stream.
    pub fn read(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(0) => false,
            Ok(got) => {
                self.bytes.extend_from_slice(&bytes[..got]);
                true
            }
            Err(error) => matches!(error, Errno::INTR | Errno::AGAIN),
        }
    }
}
