//! Messages of many bytes from rank 0 to rank 1, new every time and read every time, as the limit
//! ([`handed`](crate::bench::floor::handed)) has it.
//!
//! ```text
//! rank 0    writes its buffer |  send ............. receives the answer |
//! rank 1   [posts the receive]|  .. receives .. answers (an empty message) |  reads all
//! flags   0: has begun to send (rank 0; where the sender comes first)
//!         128: ready for the next one (rank 1)
//! ```
//! Who comes first is fixed by the two flags, which are raw shared memory: which of the library's
//! protocols a message takes depends on it.

use super::pair::End;
use crate::bench::block::{APART, Area};
use crate::bench::crew::{Crew, spin_until};
use crate::bench::duel::Side;
use crate::bench::floor::handed::{Way, read_all};
use crate::bench::meter::Meter;
use hither::{Error, Memory, Result};
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What is sent, how, and what that is held against.
pub struct Kind {
    /// Name of its rows.
    pub what: &'static str,
    /// The sender's buffer is shared memory.
    pub from_shared: bool,
    /// The receiver's is.
    pub to_shared: bool,
    /// The sender comes before the receiver.
    pub sender_first: bool,
    /// The limit.
    pub way: Way,
    /// Share of the limit that is to be reached.
    pub least: f64,
}

const fn kind(what: &'static str, way: Way) -> Kind {
    Kind { what, from_shared: false, to_shared: false, sender_first: false, way, least: 0.9 }
}

/// All kinds.
pub const KINDS: [Kind; 5] = [
    kind("private to private, receiver first", Way::IntoPrivate),
    Kind { sender_first: true, ..kind("private to private, sender first", Way::OutOfPrivate) },
    Kind { from_shared: true, ..kind("from shared memory, receiver first", Way::OutOfShared) },
    Kind {
        from_shared: true,
        sender_first: true,
        ..kind("from shared memory, sender first", Way::OutOfShared)
    },
    Kind { to_shared: true, ..kind("to shared memory, receiver first", Way::IntoShared) },
];

/// A buffer of either end.
enum Buffer {
    Private(Vec<u8>),
    Shared(Memory<u8>),
}

impl Buffer {
    fn write(&mut self, values: &[u8]) -> Result<()> {
        match self {
            Buffer::Private(own) => {
                own.copy_from_slice(values);
                Ok(())
            }
            Buffer::Shared(memory) => memory.write(0, values),
        }
    }
}

/// One end.
pub struct Large {
    end: End,
    flags: Area,
    sender_first: bool,
    /// Absent while a request has it.
    buffer: Option<Buffer>,
    /// What the sender's buffer is made of.
    pattern: Vec<u8>,
    turn: u64,
}

const READY: usize = APART;

fn taken() -> Error {
    Error::invalid("bench", "a buffer was lost by an earlier error")
}

impl Large {
    /// Of `size` bytes, a multiple of 8.
    pub fn new(crew: &Crew, size: usize, kind: &Kind) -> Result<Large> {
        let end = End::new(crew, 0)?;
        let shared = if crew.leads() { kind.from_shared } else { kind.to_shared };
        let buffer = Some(if shared {
            Buffer::Shared(Memory::shared(end.job.team(), size)?)
        } else {
            Buffer::Private(vec![0; size])
        });
        let flags = crew.block().take(2 * APART)?;
        let pattern = vec![0; size];
        Ok(Large { end, flags, sender_first: kind.sender_first, buffer, pattern, turn: 0 })
    }

    /// Rank 0: waits until rank 1 is ready, then writes new bytes.
    fn prepare(&mut self) -> Result<()> {
        self.turn += 1;
        let (ready, turn) = (self.flags.word(READY), self.turn);
        spin_until(|| ready.load(Acquire) == turn)?;
        self.pattern.fill(turn as u8);
        self.buffer.as_mut().ok_or_else(taken)?.write(&self.pattern)
    }

    fn send(&mut self) -> Result<()> {
        let (team, to) = (self.end.job.team(), self.end.peer);
        let begun = || self.flags.word(0).store(self.turn, Release);
        let back = match self.buffer.take().ok_or_else(taken)? {
            Buffer::Private(own) => {
                let request = team.isend(to, 1, own)?;
                begun();
                Buffer::Private(request.wait()?)
            }
            Buffer::Shared(memory) => {
                let request = team.isend(to, 1, memory)?;
                begun();
                Buffer::Shared(request.wait()?)
            }
        };
        self.buffer = Some(back);
        team.recv(to, 2, &mut [0u8; 0]).map(drop)
    }

    /// Rank 1: says that it is ready, in time for its place in the order, and receives.
    fn receive(&mut self) -> Result<()> {
        self.turn += 1;
        let (team, from, turn) = (self.end.job.team(), self.end.peer, self.turn);
        let (begun, ready) = (self.flags.word(0), self.flags.word(READY));
        let first = || -> Result<()> {
            if self.sender_first {
                ready.store(turn, Release);
                spin_until(|| begun.load(Acquire) == turn)?;
            }
            Ok(())
        };
        let then = || {
            if !self.sender_first {
                ready.store(turn, Release);
            }
        };
        let buffer = self.buffer.take().ok_or_else(taken)?;
        first()?;
        let back = match buffer {
            Buffer::Private(own) => {
                let request = team.irecv(from, 1, own)?;
                then();
                Buffer::Private(request.wait()?.0)
            }
            Buffer::Shared(memory) => {
                let request = team.irecv(from, 1, memory)?;
                then();
                Buffer::Shared(request.wait()?.0)
            }
        };
        team.send(from, 2, &[0u8; 0])?;
        let size = self.pattern.len();
        let sum = match &back {
            Buffer::Private(own) => read_all(own),
            Buffer::Shared(memory) => {
                // SAFETY: this rank's own memory, of that size, to which nothing is on its way: the
                // next receive is posted later.
                read_all(unsafe { std::slice::from_raw_parts(memory.as_ptr(), size) })
            }
        };
        self.buffer = Some(back);
        if sum != u64::from_ne_bytes([turn as u8; 8]).wrapping_mul(size as u64 / 8) {
            return Err(Error::invalid("bench", "a large message is not what was sent"));
        }
        Ok(())
    }
}

impl Side for Large {
    fn lead(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let side = RefCell::new(self);
        meter.parts(count, |_| side.borrow_mut().prepare(), |_| side.borrow_mut().send())
    }

    fn follow(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.receive())
    }
}
