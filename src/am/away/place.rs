//! Running a message at its origin, on a fetched copy of the persistent range (paper 001 §6.4.3).
//!
//! ```text
//!   fetch: version v, range  -->  handler on the copy  -->  changed? store those elements if the
//!     ^                                                     part's version is v still
//!     +------------------- stale: another message ran there -------+     then, at the target
//! ```
//! The target's part is locked while it is copied, either way, and no longer: a message that runs
//! here neither keeps others waiting nor can it take them along into its death. So a handler may be
//! run again for the same segments; only one of the runs counts.
//!
//! **Against other operations.** Elements that the handler leaves as they are, are not written
//! ([`crate::am::changes`]), so whatever others do to those stays. An element that it changes is as
//! if it had been read when the copy was made and written when that is stored: what others do to it
//! in between is lost, as overlapping accesses at the same time may be. Only updates through the
//! handler's view ([`crate::rma::View::fetch_and_op`]) promise more; a handler that is seen to use
//! them has its work on the copy thrown away, and runs at the targets from then on unless the
//! program says otherwise.
//!
//! What cannot run here goes to the target: ranges with gaps, messages that may run at the same
//! time as others, copies or changes for which the target has no room.

use super::Away;
use super::issue::{Call, Mode};
use super::memory::Block;
use super::message::Message;
use crate::am::body::Work;
use crate::am::buffers::GRAIN;
use crate::am::changes::{self, Grain};
use crate::am::origin;
use crate::am::place::Site;
use crate::am::plan::{Placement, Plan};
use crate::base::{Result, reentry};
use crate::rma::core::Core;
use std::time::Instant;

/// Where the range begins in its copy, behind the version.
const RANGE: usize = GRAIN as usize;
/// Copies made before the message goes to the target.
const ATTEMPTS: usize = 2;

/// Bytes that a message moves if it runs at the target, and bytes of its persistent range.
pub(super) fn sizes(plan: &Plan<'_>, message: &Message) -> (u64, u64) {
    let (input, output) = message.bytes_each();
    let each = (input as u64).saturating_add(output as u64);
    (each.saturating_mul(plan.segments as u64), message.mark.span)
}

/// Runs a message here, if that is the place for it; nothing if it is to go to the target.
pub(super) fn run_here(
    core: &Core,
    call: &Call<'_>,
    plan: &Plan<'_>,
    message: &Message,
    mode: &Mode,
) -> Option<Result<()>> {
    let (moved, span) = sizes(plan, message);
    let shape = plan.persistent.shape;
    let whole = shape.single().is_some_and(|(_, len)| len as u64 == span);
    // What is only begun goes on at the target while this process does something else.
    let waits = matches!(mode, Mode::Wait) || plan.placement == Placement::Origin;
    if plan.placement == Placement::Target || plan.concurrent || !whole || !waits {
        return None;
    }
    let auto = plan.placement == Placement::Auto;
    if auto && span + GRAIN > call.away.system() {
        return None;
    }
    let index = plan.handler.index();
    let site = call.away.costs(|all| {
        let (costs, updates) = all.entry(index).or_default();
        if auto && *updates { Site::Target } else { costs.choose(plan.placement, moved, span) }
    });
    if site == Site::Target {
        return None;
    }
    let begun = Instant::now();
    for _ in 0..ATTEMPTS {
        match attempt(core, call, plan, message, auto) {
            Ok(Attempt::Stored) => {
                call.away.took(index, site, (moved, span), begun);
                return Some(Ok(()));
            }
            Ok(Attempt::Updates) => {
                call.away.costs(|all| all.entry(index).or_default().1 = true);
                return None;
            }
            Ok(Attempt::NoRoom) => {
                call.away.client().done.too_large += 1;
                return None;
            }
            Ok(Attempt::Stale) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    // Others are too quick; what it took is what it costs.
    call.away.took(index, site, (moved, span), begun);
    None
}

enum Attempt {
    Stored,
    /// Another message ran on the part meanwhile.
    Stale,
    /// The handler updates the part atomically, which a copy cannot do for others.
    Updates,
    /// No buffer of the target can hold the copy, or what has changed of it.
    NoRoom,
}

fn attempt(
    core: &Core,
    call: &Call<'_>,
    plan: &Plan<'_>,
    message: &Message,
    auto: bool,
) -> Result<Attempt> {
    let span = message.mark.span as usize;
    let copy = Block::new("a copy of the persistent part", RANGE + span)?;
    // SAFETY: the block is as long, initialised, and this call's own.
    let bytes = unsafe { std::slice::from_raw_parts_mut(copy.first(), RANGE + span) };
    let fetch = Message::of_range(message, Work::Fetch, &mut bytes[RANGE - 8..]);
    let fetched = call.until_done(fetch, plan.exclusive)?;
    if fetched.too_large {
        return Ok(Attempt::NoRoom);
    }
    fetched.failure.map_or(Ok(()), Err)?;
    // SAFETY: as above; nothing lands any more.
    let came = unsafe { std::slice::from_raw_parts(copy.first().add(RANGE - 8), 8 + span) };
    let (version, before) = came.split_at(8);
    let version = version.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let before = before.to_vec();
    let zero = copy.first().wrapping_add(RANGE).wrapping_offset(-plan.persistent.lower);
    plan.handler.usable_on(core.id())?;
    let _ = reentry::take_update();
    // SAFETY: the copy is the range around the displacement; the plan's addresses are valid as
    // the caller of the message says.
    unsafe { origin::on_copy(core, plan, zero)? };
    if reentry::take_update() && auto {
        return Ok(Attempt::Updates);
    }
    // SAFETY: as above; the handler is over.
    let after = unsafe { std::slice::from_raw_parts(copy.first().add(RANGE), span) };
    let element = plan.handler.elements().0.size().max(1);
    let lead = plan.persistent.lower.wrapping_neg().rem_euclid(element.cast_signed());
    let grain = Grain { lead: lead.unsigned_abs(), element };
    let Some(mut changes) = changes::of(version, &before, after, grain) else {
        // As if it had run when the copy was made.
        call.away.client().done.at_origin += 1;
        return Ok(Attempt::Stored);
    };
    let store = Message::of_range(message, Work::Store, &mut changes);
    let stored = call.until_done(store, plan.exclusive)?;
    match stored.failure {
        _ if stored.too_large => Ok(Attempt::NoRoom),
        _ if stored.stale => Ok(Attempt::Stale),
        Some(error) => Err(error),
        None => {
            call.away.client().done.at_origin += 1;
            Ok(Attempt::Stored)
        }
    }
}

impl Away {
    /// A message took its time.
    pub(super) fn took(
        &self,
        index: u32,
        site: Site,
        (moved, persistent): (u64, u64),
        begun: Instant,
    ) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.costs(|all| all.entry(index).or_default().0.took(site, moved, persistent, ns));
    }
}
