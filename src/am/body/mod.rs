//! What the two ends of a message say to each other, as bytes.
//!
//! ```text
//!  origin                                                    target
//!   Unit  ---- operation ---->  More ---->  More ---->       staged at its place, then run
//!          <---- note ----  Done  <---- Done (last)          what came of it, in pieces
//!   Reserve ---------------->                                when there is room:
//!          <---- Granted, or Refused if there never will be
//!   Withdraw --------------->                                it goes without
//!   Release ---------------->                                the space is given up
//!
//!  request  0 version u8 | what u8 | flags u8 | work u8 | handler, unit or space u32
//!   unit    8 message u64 | 16 unit u32 | segments u32 | 24 first segment u64
//!          32 space u32 | described u32 | 40 position u64 | 48 bytes of the place u64
//!          56 at u64 | 64 span u64 | 72 input u64 | 80 output u64 | 88 data
//!   more    8 message u64 | 16 position u64 | 24 data
//!   reserve 8 ticket u64 | 16 least u64 | 24 most u64        withdraw 8 ticket u64
//!  note     0 version u8 | what u8 | flags u8 | status u8 | unit, rank or reason u32 | 8 message or ticket u64
//!   done   16 position u64 | 24 reason u32 | 0 u32 | 32 data
//!   granted (space u32 | 0 u32 | bytes u64) ...
//!   refused 16 largest u64 | 24 attached u64
//! ```
//! A unit is some consecutive segments of a message, complete in itself: it can be run when all of
//! it has come. Its content is a stream, a description of the message (layouts) and then the
//! input as packed; its result is one too, counts and then the output ([`super::pack`]). What does
//! not fit into the first packet follows in further ones.
//!
//! Requests travel as bodies of the one-sided engine's operations, where the first byte tells them
//! from units of one-sided operations; notes travel back in messages that are always absorbed.
//! Numbers are little-endian; what is well-formed has exactly one form. Whoever reads one trusts
//! nothing in it.

mod note;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use note::{DONE_HEAD, Note, Spaces, Status, put_space};
pub(crate) use request::{MORE_HEAD, Request, UNIT_HEAD, Unit, Work};

use crate::base::{Error, Result};
use crate::rma::foreign::FIRST as VERSION;

/// Where at its target a unit is staged, input and output. The origin chooses it, from what it
/// knows to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Which space, see [`super::buffers`].
    pub space: u32,
    /// Where in it.
    pub position: u64,
    /// How much of it. Both are multiples of [`GRAIN`].
    pub bytes: u64,
}

fn bad(why: impl Into<String>) -> Error {
    Error::Incompatible { what: "an active message in a packet", why: why.into() }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// Begins `out`, which is emptied.
fn head(out: &mut Vec<u8>, what: u8, flags: u8, byte: u8, word: u32) {
    out.clear();
    out.extend_from_slice(&[VERSION, what, flags, byte]);
    out.extend_from_slice(&word.to_le_bytes());
}

fn numbers(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Two words in the place of one number.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn read_head(body: &[u8]) -> Result<(u8, u8, u8, u32)> {
    match *body {
        [VERSION, what, flags, byte, ..] if body.len() >= 8 => {
            Ok((what, flags, byte, u32_at(body, 4)))
        }
        _ => Err(bad(format!("{} bytes that begin with {:?}", body.len(), body.first()))),
    }
}
