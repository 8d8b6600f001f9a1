//! Running a unit that has come, on this process's own part.

use super::arriving::Told;
use super::describe::Staging;
use super::why::{BROKEN, LOCKED, NO_ROOM, OUT_OF_BOUNDS, TOO_MANY, UNUSABLE};
use crate::am::body::{Status, Unit, Work};
use crate::am::call::RawCall;
use crate::am::changes::Changes;
use crate::am::entry::Failure;
use crate::am::turn;
use crate::base::sync::Ordering;
use crate::base::{Error, Rank};
use crate::rma::core::Core;
use crate::rma::kind::Parts;
use crate::rma::remote::OwnPart;
use crate::shm::copy::{copy_in, copy_out};
use std::sync::Arc;

/// Longest text of a panic that is told.
const TEXT: usize = 1024;

/// A unit to run.
#[derive(Debug)]
pub(super) struct Job {
    pub origin: Rank,
    pub head: Unit<'static>,
    /// Its place.
    pub first: *mut u8,
    pub told: Option<Arc<Told>>,
    pub staging: Staging,
}

// SAFETY: the place belongs to the unit until it is over.
unsafe impl Send for Job {}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub status: Status,
    /// Of a unit with variable output.
    pub counts: Option<Vec<usize>>,
    /// Of a panic.
    pub text: String,
}

impl Outcome {
    pub fn failed(status: Status) -> Outcome {
        Outcome { status, counts: None, text: String::new() }
    }

    /// Of a unit that nobody knows how far it came.
    pub fn broken() -> Outcome {
        Outcome::failed(Status::Failed { why: BROKEN })
    }
}

/// Runs `job` when it is the part's turn.
pub(super) fn run(core: &Core, me: Rank, job: &Job) -> Outcome {
    let failed = |why| Outcome::failed(Status::Failed { why });
    let mut outcome = failed(OUT_OF_BOUNDS);
    let on_part = |outcome: &mut Outcome| {
        let own: &dyn OwnPart = match &core.parts {
            Parts::Dynamic(attachments) => &**attachments,
            _ => &core.own,
        };
        let (at, span) = (job.head.at, job.head.span);
        // Nothing can lie anywhere.
        let (at, asked) = if span == 0 { (0, 0) } else { (at, span) };
        let mut on = |first: *mut u8| *outcome = work(core, me, job, first);
        if asked == 0 && matches!(core.parts, Parts::Dynamic(_)) {
            return on(std::ptr::dangling_mut());
        }
        let _ = own.with(at, asked, &mut on);
    };
    let taken = match job.head.work {
        Work::Run => turn::take(core, me, job.head.concurrent, || on_part(&mut outcome)),
        Work::Fetch | Work::Store => turn::look(core, me, || on_part(&mut outcome)),
    };
    // Somebody may wait for a word of this part to change.
    core.block.active(me.0).signal.notify();
    match taken {
        Ok(()) => outcome,
        Err(Error::WindowPoisoned { culprit, .. }) => {
            Outcome::failed(Status::Poisoned { culprit: culprit.0 })
        }
        Err(Error::OutOfMemory { .. }) => failed(NO_ROOM),
        Err(_) => failed(LOCKED),
    }
}

/// The work itself; `first` is where the persistent range begins.
fn work(core: &Core, me: Rank, job: &Job, first: *mut u8) -> Outcome {
    let done = Outcome { status: Status::Done, counts: None, text: String::new() };
    let version = &core.block.part(me.0).version;
    let (place, span) = (job.first, job.head.span as usize);
    match job.head.work {
        Work::Run => return handler(core, me, job, first),
        Work::Fetch => {
            // SAFETY: the place has room for the version and the range, the range lies in the part.
            unsafe {
                place.cast::<u64>().write(version.load(Ordering::Acquire).to_le());
                copy_out(place.add(8), first, span);
            }
        }
        Work::Store => {
            let now = version.load(Ordering::Acquire);
            // SAFETY: the place has room for the input, which has come.
            let came = unsafe { std::slice::from_raw_parts(place, job.head.input as usize) };
            let Ok(changes) = Changes::read(came, job.head.span) else {
                return Outcome::failed(Status::Failed { why: UNUSABLE });
            };
            if changes.version != now {
                return Outcome::failed(Status::Stale);
            }
            for (at, run) in changes.each() {
                // SAFETY: `read` found that it lies in the range, and that in the part.
                unsafe { copy_in(first.add(at), run.as_ptr(), run.len()) };
            }
            version.fetch_add(1, Ordering::AcqRel);
        }
    }
    done
}

fn handler(core: &Core, me: Rank, job: &Job, first: *mut u8) -> Outcome {
    let Some(told) = &job.told else { return Outcome::failed(Status::Failed { why: UNUSABLE }) };
    let Told { entry, described } = &**told;
    if !entry.is_registered() {
        // Since its first unit came.
        return Outcome::failed(Status::Unknown);
    }
    let (head, place, staging) = (&job.head, job.first, job.staging);
    let segments = head.segments as usize;
    let counts = head.vector.then(|| {
        // SAFETY: aligned room for the counts in the unit's place, zeroed when it came.
        unsafe {
            std::slice::from_raw_parts_mut(place.add(staging.counts).cast::<usize>(), segments)
        }
    });
    let mut call = RawCall {
        input: place.wrapping_add(staging.input),
        input_segment: described.input.shape(),
        persistent: first.wrapping_offset(described.zero as isize),
        persistent_shape: described.persistent.shape(),
        output: place.wrapping_add(staging.output),
        output_segment: described.output.shape(),
        segments,
        segment_offset: head.first as usize,
        counts,
        target: me,
        displacement: described.displacement as usize,
        domain: core.updates(),
    };
    // SAFETY: the shapes were checked for this entry, and lie in the place and the part.
    let called = unsafe { entry.call(&mut call) };
    let told = |status, mut text: String| {
        let end = (0..=text.len().min(TEXT)).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        Outcome { status, counts: None, text }
    };
    match called {
        Ok(()) => {
            // SAFETY: the handler is over; the room is as above.
            let counts = head.vector.then(|| unsafe {
                std::slice::from_raw_parts(place.add(staging.counts).cast::<usize>(), segments)
                    .to_vec()
            });
            Outcome { status: Status::Done, counts, text: String::new() }
        }
        Err(Failure::Panicked(text)) => told(Status::Panicked, text),
        Err(failure) => {
            let why = if matches!(failure, Failure::TooMany { .. }) { TOO_MANY } else { UNUSABLE };
            let text = match failure.error(head.handler, me) {
                Error::Misuse { why, .. } | Error::InvalidArgument { why, .. } => why,
                other => other.to_string(),
            };
            told(Status::Failed { why }, text)
        }
    }
}
