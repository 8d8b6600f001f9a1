//! Short messages beside the calls of a team on several nodes, in contexts that no team has, with
//! the team's context for a tag.

use crate::base::{Deadline, Result, Slot};
use crate::p2p::{Endpoint, Going, Letter, Mode, Owned, Pattern};
use std::sync::Arc;

/// What such messages are about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    /// The end of the team's collectives: see `revoke`.
    End,
    /// Who goes on after deaths: see `survivors`.
    Survivors,
    /// What call somebody is in: see `compare`.
    Calls,
}

/// Contexts that are kept for this, from the highest down.
pub(super) const KEPT: u32 = 3;

impl About {
    fn context(self) -> u32 {
        u32::MAX - self as u32
    }
}

/// Sends `bytes` about the team with the context `team`. So short a message is on its way, or in
/// line, when this returns.
///
/// # Errors
/// The end of the receiver; no memory.
pub(super) fn say(
    endpoint: &Arc<Endpoint>,
    to: Slot,
    about: About,
    (team, rank): (u32, u32),
    bytes: Vec<u8>,
) -> Result<()> {
    let letter = Letter { to, context: about.context(), rank, tag: team, element: 0 };
    // SAFETY: the bytes are the record's owner's, and are only read.
    let record = unsafe { super::message::bytes_record(bytes.as_ptr().cast_mut(), bytes.len()) };
    Going::send(endpoint, &letter, Owned::new(record, bytes), Mode::Standard).map(drop)
}

/// A message about the team with the context `team` that has come: the rank it was sent as, and its
/// bytes. Nothing if its sender died while it was being sent. Longer ones than `most` bytes, which
/// nobody has to say, are dropped: what a peer claims of their length reserves no memory.
///
/// # Errors
/// No memory for it; the deadline, if it is a large one.
pub(super) fn hear(
    endpoint: &Endpoint,
    about: About,
    team: u32,
    most: usize,
    deadline: Deadline,
    during: &'static str,
) -> Result<Option<(u32, Vec<u8>)>> {
    let pattern = Pattern { context: about.context(), source: None, tag: Some(team) };
    let (taken, arrived) = loop {
        let Some(taken) = endpoint.taken(&pattern) else { return Ok(None) };
        let arrived = taken.arrived();
        if arrived.bytes <= most {
            break (taken, arrived);
        }
        let mut none = [0u8; 0];
        // SAFETY: no bytes are touched by anybody.
        let record = unsafe { super::message::bytes_record(none.as_mut_ptr(), 0) };
        // Too long for that, which ends it.
        let _ = endpoint.receive_taken(taken, &record, deadline, during);
    };
    let mut bytes = super::blocks::zeros::<u8>(arrived.bytes, during)?;
    // SAFETY: the bytes stay until the call returns, which ends the record.
    let record = unsafe { super::message::bytes_record(bytes.as_mut_ptr(), bytes.len()) };
    match endpoint.receive_taken(taken, &record, deadline, during) {
        Ok(_) => Ok(Some((arrived.rank, bytes))),
        Err(error) if error.is_death() => Ok(None),
        Err(error) => Err(error),
    }
}
