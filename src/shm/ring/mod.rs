//! Rings of cells: how short messages travel inside a node.
//!
//! * [`cell`]: the 64-byte cell; [`tag`], its first words; [`payload`], what is put into it; `received`, what
//!   its consumer has of it.
//! * [`inbox`]: many producers, one consumer. One per process; any peer may write to it.
//! * [`lane`], [`lane_sender`], [`lane_receiver`]: one producer, one consumer. On demand, for pairs that talk often;
//!   `several`: its messages of several cells, the short way.
//!
//! Both rings hold the same cells. Positions never return: a [`Position`] counts laps, and every
//! cell carries the lap it was last written in, so that "not yet written" is told from "written"
//! by the cell alone, and a reader or a claimer that was asleep for a lap or more can tell.
//!
//! Both assume that *dead* means dead: when a peer is reported dead, not one more of its stores
//! will appear.

pub mod cell;
pub mod inbox;
pub mod lane;
pub mod lane_receiver;
pub mod lane_sender;
mod message;
pub mod payload;
mod position;
mod received;
mod several;
pub mod tag;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod oracle;

pub use cell::{FIRST_BYTES, MAX_CELLS, MAX_MESSAGE};
pub use payload::{Headed, HeadedWords, Payload};
pub use position::Position;
pub use received::{InPlace, Incoming, Scratch};
pub use several::SEVERAL_BYTES;
pub use tag::Label;

use crate::base::Error;

/// What came of an attempt to put a message into a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// It is in the ring, and the consumer can see it.
    Sent,
    /// There is no room now. Nothing was written.
    Full,
}

/// What a consumer found at the head of a ring.
#[derive(Debug)]
pub enum Polled<'a> {
    /// A message. Its cells are free again: the bytes are a private copy.
    Message(Incoming<'a>),
    /// Nothing.
    Empty,
    /// A message that this producer is still writing; everything behind it waits.
    Unfinished(crate::base::Slot),
}

/// No cell's index.
const NONE: u32 = u32::MAX;

/// Cells that a consumer frees before it tells the producers. Rarely, because telling costs a
/// cache-line transfer; never so late that a message of the largest size could not be sent into
/// an empty ring: `n - n/8 >= n/2`.
const fn publish_after(cells: usize) -> usize {
    if cells < 16 { 1 } else { cells / 8 }
}

/// Cells of the largest message of a ring.
const fn largest(cells: usize) -> usize {
    if cells / 2 < MAX_CELLS { cells / 2 } else { MAX_CELLS }
}

#[cold]
fn damaged(what: &'static str, why: String) -> Error {
    Error::Incompatible {
        what,
        why: format!("{why}; some process has overwritten shared memory, end the job"),
    }
}

#[cold]
fn too_long(len: usize, cells: usize) -> Error {
    Error::invalid(
        "message",
        format!(
            "{len} bytes do not fit one ring message of at most {} bytes; send it in pieces",
            cell::capacity(largest(cells))
        ),
    )
}
