//! A unit on its way in: checked when everything but its input is known, then put where it belongs,
//! byte by byte as packets bring it; or nowhere, if something is wrong with it.

use super::describe::{Described, Staging};
use super::memory::scatter;
use super::why::{NO_ROOM, OUT_OF_BOUNDS, UNUSABLE};
use crate::am::body::{Status, Unit, Work};
use crate::am::entry::Entry;
use crate::am::{changes, plan};
use crate::rma::core::Handlers;
use std::sync::Arc;

/// What a message's first unit told, or why it is of no use.
#[derive(Debug)]
pub(super) struct Told {
    pub entry: Arc<Entry>,
    pub described: Described,
}

/// A unit that has not come completely.
#[derive(Debug)]
pub(super) struct Arriving {
    pub head: Unit<'static>,
    /// Its place; nothing if there is no memory for it.
    pub memory: Option<*mut u8>,
    pub description: Vec<u8>,
    pub told: Option<Arc<Told>>,
    pub staging: Staging,
    pub received: u64,
    /// Bytes of its stream.
    pub total: u64,
    /// It has been checked.
    pub begun: bool,
    /// Why it will not be run.
    pub wrong: Option<Status>,
}

impl Arriving {
    /// There is no memory for it.
    pub const NO_ROOM: Status = Status::Failed { why: NO_ROOM };

    /// Checks a unit, of which everything but the input is known. Costs what the layouts do, and
    /// zeroing its place.
    pub fn begin(&mut self, handlers: &Handlers) -> std::result::Result<(), Status> {
        let head = self.head;
        let unusable = || Status::Failed { why: UNUSABLE };
        let room = usize::try_from(head.place.bytes).map_err(|_| unusable())?;
        if head.work != Work::Run {
            // The version and all of the range; or the version and what is changed of it.
            let all = head.span.checked_add(8).ok_or_else(unusable)?;
            let (bytes, sound) = match head.work {
                Work::Fetch => (head.output, head.output == all),
                _ => (head.input, head.input >= changes::LEAST),
            };
            self.staging.bytes = room;
            return match self.memory {
                _ if !sound || bytes > room as u64 => Err(unusable()),
                Some(_) => Ok(()),
                None => Err(Arriving::NO_ROOM),
            };
        }
        if head.described > 0 {
            let description = std::mem::take(&mut self.description);
            let described = Described::decode(&description).map_err(|_| unusable())?;
            let entry = Entry::find_in(handlers, head.handler).ok_or(Status::Unknown)?;
            self.told = Some(Arc::new(Told { entry, described }));
        }
        let told = self.told.as_ref().ok_or_else(unusable)?;
        let Told { entry, described } = &**told;
        let segments = head.segments as usize;
        let fits = entry.is_vector() == head.vector
            && entry.index() == head.handler
            && described.input.bytes().checked_mul(segments) == Some(head.input as usize)
            && described.output.bytes().checked_mul(segments) == Some(head.output as usize);
        let staging = described.staging(entry, head.vector, segments).map_err(|_| unusable())?;
        let (inputs, outputs) = (described.input.times(segments), described.output.times(segments));
        let usable = entry.check(inputs, outputs, described.persistent.shape()).is_ok();
        if !fits || !usable || staging.bytes > room || described.output.count > u32::MAX as usize {
            return Err(unusable());
        }
        // All that a view of the persistent buffer reaches lies in the range that was named.
        let (element, _) = entry.persistent_element();
        let (lower, upper) =
            plan::whole(described.persistent.shape(), element).map_err(|_| unusable())?;
        let low = described.zero.checked_add(lower as i64);
        let high = described.zero.checked_add(upper as i64);
        let inside = low.is_some_and(|low| low >= 0)
            && high.is_some_and(|high| high >= 0 && high as u64 <= head.span);
        if !inside {
            return Err(Status::Failed { why: OUT_OF_BOUNDS });
        }
        self.staging = staging;
        let first = self.memory.ok_or(Arriving::NO_ROOM)?;
        // SAFETY: the unit's place, which is as large and belongs to nobody else.
        unsafe { std::ptr::write_bytes(first, 0, staging.bytes) };
        Ok(())
    }

    /// Puts bytes of the input where they belong.
    pub fn put(&mut self, position: usize, bytes: &[u8]) {
        let Some(first) = self.memory.filter(|_| !bytes.is_empty()) else { return };
        match (self.head.work, &self.told) {
            (Work::Run, Some(told)) => {
                let shape = told.described.input.times(self.head.segments as usize);
                let zero = first.wrapping_add(self.staging.input);
                // SAFETY: `begin` found that all of the shape lies in the unit's place; `feed`
                // that the bytes are no more than those of the input. Bounds were looked at too.
                let put = unsafe { scatter(zero, shape, position, bytes) };
                debug_assert!(put.is_ok());
            }
            // SAFETY: `begin` found that the whole input fits into the place.
            _ => unsafe {
                let to = first.wrapping_add(position);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            },
        }
    }
}
