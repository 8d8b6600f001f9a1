//! Origin computation: the origin runs its own copy of the handler on the target's mapped memory
//! (paper 001 §6.4.3 and §8.2.2).
//!
//! ```text
//!   layouts alike on both sides     handler(origin's input, target's part, origin's output)
//!   else, some segments at a time   origin's input --copy--> staging -> handler -> staging --copy--> output
//! ```
//! A side that looks the same at the origin and at the target is worked on where it is: nothing is
//! copied. The other ones are staged in memory of bounded size, whole segments at a time, one call
//! of the handler for each filling. One side may be staged while the other is not.

use super::call::RawCall;
use super::entry::Failure;
use super::plan::{Counts, Plan, Segments};
use super::turn;
use crate::base::{Error, Result};
use crate::rma::core::Core;
use crate::rma::{reshape, zeroed};
use std::alloc::{Layout as Room, alloc_zeroed, dealloc};

/// Bytes of staging of both sides together, unless a segment needs more: what stays in a core's
/// nearest caches beside what the handler works on.
const STAGING: usize = 64 << 10;

/// Carries a message out on mapped memory: the displacement lies at `at`.
///
/// # Errors
/// What the handler did wrong; [`Error::OutOfMemory`] if a segment cannot be staged, before
/// anything runs; those of [`turn::take`].
///
/// # Safety
/// `at` is where the plan's place is in this process. The plan's addresses are valid for its
/// shapes; input is not written and output and counts are not accessed by others meanwhile.
pub(super) unsafe fn run(core: &Core, plan: &Plan<'_>, at: *mut u8) -> Result<()> {
    let work = Work::new(plan)?;
    // SAFETY: the caller's.
    let steps = || unsafe { work.all(core, plan, at) };
    told(plan, turn::take(core, plan.target, plan.concurrent, steps)?)
}

/// As [`run`], on a copy of the persistent part that is this process's own: `at` is where its
/// displacement lies. Nobody's turn is taken.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn on_copy(core: &Core, plan: &Plan<'_>, at: *mut u8) -> Result<()> {
    let work = Work::new(plan)?;
    // SAFETY: the caller's.
    told(plan, unsafe { work.all(core, plan, at) })
}

fn told(plan: &Plan<'_>, done: Result<(), Stop>) -> Result<()> {
    done.map_err(|stop| match stop {
        Stop::Failure(failure) => failure.error(plan.handler.index(), plan.target),
        Stop::Error(error) => error,
    })
}

/// What a message needs besides its plan: all of it allocated before anything runs.
struct Work {
    /// Segments in a call.
    unit: usize,
    input: Option<Staging>,
    output: Option<Staging>,
    /// For the counts of a vector handler, which counts even if nobody wants to know.
    spare: Vec<usize>,
}

impl Work {
    fn new(plan: &Plan<'_>) -> Result<Work> {
        let (unit, align) = (unit(plan)?, plan.handler.buffer_align());
        let unwanted = plan.handler.is_vector() && plan.counts.is_none();
        Ok(Work {
            unit,
            input: Staging::new(&plan.target_input, unit, plan.same_input, align)?,
            output: Staging::new(&plan.target_output, unit, plan.same_output, align)?,
            spare: zeroed("an active message", if unwanted { unit } else { 0 })?,
        })
    }

    /// All calls of the handler, one after the other.
    ///
    /// # Safety
    /// As for [`run`].
    unsafe fn all(mut self, core: &Core, plan: &Plan<'_>, at: *mut u8) -> Result<(), Stop> {
        let spare = (!self.spare.is_empty()).then_some(Counts(self.spare.as_mut_ptr()));
        let mut first = 0;
        while first < plan.segments {
            let count = self.unit.min(plan.segments - first);
            let staging = (&self.input, &self.output);
            // SAFETY: the caller's; the staging was made for as many segments.
            unsafe { step(core, plan, at, (first, count), staging, spare)? };
            first += count;
        }
        Ok(())
    }
}

/// Why a message stops.
enum Stop {
    Failure(Failure),
    Error(Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// How many segments a call of the handler gets.
fn unit(plan: &Plan<'_>) -> Result<usize> {
    let mut bytes = 0usize;
    for (same, side) in
        [(plan.same_input, &plan.target_input), (plan.same_output, &plan.target_output)]
    {
        if !same {
            let (lower, upper) = side.bounds(1)?;
            let one = (upper - lower).unsigned_abs().max(side.stride.unsigned_abs());
            bytes = bytes.saturating_add(one);
        }
    }
    let fit = STAGING.checked_div(bytes).unwrap_or(plan.segments);
    Ok(fit.clamp(1, plan.segments.max(1)))
}

/// One call of the handler: `count` segments from `first` on.
///
/// # Safety
/// As for [`run`]; the staging and the spare counts were made for `count` segments.
unsafe fn step(
    core: &Core,
    plan: &Plan<'_>,
    at: *mut u8,
    (first, count): (usize, usize),
    (input, output): (&Option<Staging>, &Option<Staging>),
    spare: Option<Counts>,
) -> Result<(), Stop> {
    let (from, to) = (plan.input.segment(first), plan.output.segment(first));
    if let Some(staging) = input {
        let (here, there) =
            (plan.input.segments.together(count), plan.target_input.together(count));
        // SAFETY: the plan's shapes lie in the origin's memory and in the staging, and have the
        // same size; the two do not overlap.
        unsafe { reshape(from, here, staging.zero(), there)? };
    }
    let counts = plan.counts.map(|counts| counts.0.wrapping_add(first)).or(spare.map(|c| c.0));
    let mut call = RawCall {
        input: input.as_ref().map_or(from, Staging::zero).cast_const(),
        input_segment: plan.target_input.shape,
        persistent: at,
        persistent_shape: plan.persistent.shape,
        output: output.as_ref().map_or(to, Staging::zero),
        output_segment: plan.target_output.shape,
        segments: count,
        segment_offset: first,
        // SAFETY: the caller's: as many as the message, or the staging, has segments.
        counts: counts.map(|at| unsafe { std::slice::from_raw_parts_mut(at, count) }),
        target: plan.target,
        displacement: plan.persistent.displacement,
        domain: core.updates(),
    };
    // SAFETY: the plan checked the shapes with the handler's entry; the addresses are the origin's
    // own, which suit the handler as the plan says, or aligned, zeroed staging.
    unsafe { plan.handler.call(&mut call)? };
    let Some(counts) = counts else {
        if let Some(staging) = output {
            let (there, here) =
                (plan.target_output.together(count), plan.output.segments.together(count));
            // SAFETY: as above.
            unsafe { reshape(staging.zero(), there, to, here)? };
        }
        return Ok(());
    };
    for index in 0..count {
        // SAFETY: as above; the handler is over, so nobody else has the counts.
        let there = unsafe { &mut *counts.add(index) };
        let entries = *there;
        *there = entries * plan.scale;
        if let Some(staging) = output {
            let segment = staging.segment(&plan.target_output, index);
            let made = plan.target_output.shape.layout.times(entries);
            let kept = plan.output.segments.shape.layout.times(*there);
            // SAFETY: as above: the call checked that so many entries fit.
            unsafe { reshape(segment, made, plan.output.segment(first + index), kept)? };
        }
    }
    Ok(())
}

/// Memory for some segments of one side as the handler gets them: zero at first.
struct Staging {
    first: *mut u8,
    room: Room,
    /// Where the first shape is applied, in bytes from `first`.
    zero: usize,
}

impl Staging {
    /// None if the handler works on the origin's memory, or if there is nothing to work on.
    fn new(side: &Segments<'_>, count: usize, same: bool, align: usize) -> Result<Option<Staging>> {
        if same || side.bytes == 0 || count == 0 {
            return Ok(None);
        }
        let (lower, upper) = side.bounds(count)?;
        let zero = lower.min(0).unsigned_abs().next_multiple_of(align);
        // Elements of the handler that reach over the end are there as a whole.
        let bytes = zero + upper.max(0).unsigned_abs().next_multiple_of(align) + align;
        let none = || Error::OutOfMemory {
            what: "segments of an active message".into(),
            wanted: bytes as u64,
            available: 0,
            limit: "memory of this process".into(),
            advice: "describe segments by layouts that reach less far",
        };
        let room = Room::from_size_align(bytes, align).map_err(|_| none())?;
        // SAFETY: the size is not 0.
        let first = unsafe { alloc_zeroed(room) };
        if first.is_null() { Err(none()) } else { Ok(Some(Staging { first, room, zero })) }
    }

    /// Where the shape of the first segment is applied.
    fn zero(&self) -> *mut u8 {
        self.first.wrapping_add(self.zero)
    }

    fn segment(&self, side: &Segments<'_>, index: usize) -> *mut u8 {
        self.zero().wrapping_offset(side.stride * index.cast_signed())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { dealloc(self.first, self.room) };
    }
}
