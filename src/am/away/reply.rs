//! A result on its way out: counts and output, or the text of a panic, in notes of a packet each.

use super::arriving::Told;
use super::memory::gather;
use crate::am::body::{DONE_HEAD, Status, Unit, Work};
use crate::am::pack::{Form, Output, width};
use crate::base::Rank;
use std::sync::Arc;

/// A result on its way.
#[derive(Debug)]
pub(super) struct Reply {
    pub origin: Rank,
    pub head: Unit<'static>,
    pub status: Status,
    pub form: Form,
    /// The stream's beginning: counts, or a text.
    pub lead: Vec<u8>,
    pub counts: Option<Vec<u32>>,
    pub told: Option<Arc<Told>>,
    /// Where the output's shape is applied.
    pub output: *const u8,
    pub position: u64,
    pub total: u64,
}

impl Reply {
    /// The next bytes of the stream that fit into a note, and whether they are the last.
    pub fn next(&self, most: usize) -> (Vec<u8>, bool) {
        let room = (most - DONE_HEAD) as u64;
        let len = room.min(self.total - self.position) as usize;
        let mut data = Vec::with_capacity(len);
        let lead = &self.lead[(self.position as usize).min(self.lead.len())..];
        data.extend_from_slice(&lead[..lead.len().min(len)]);
        let left = len - data.len();
        if left > 0 {
            let position = self.position as usize + data.len() - self.lead.len();
            self.gather(position, left, &mut data);
        }
        debug_assert_eq!(data.len(), len);
        let text = self.status != Status::Done;
        // Of a unit that was not done there is one note only.
        (data, text || self.position + len as u64 == self.total)
    }

    /// Appends bytes of the output.
    fn gather(&self, position: usize, len: usize, data: &mut Vec<u8>) {
        let Some(told) = self.told.as_ref().filter(|_| self.head.work == Work::Run) else {
            // SAFETY: a fetched range, as long as the output, in the unit's place.
            let there =
                unsafe { std::slice::from_raw_parts(self.output.wrapping_add(position), len) };
            data.extend_from_slice(there);
            return;
        };
        let kept = &told.described.output;
        let segments = self.head.segments as usize;
        let shape = kept.times(segments);
        let all = Output {
            entry: kept.layout.size(),
            most: kept.count,
            segments,
            counts: self.counts.as_deref(),
        };
        for (at, len) in all.pieces(self.form, position, len) {
            // SAFETY: pieces of the output, which lies in the unit's place.
            let gathered = unsafe { gather(self.output, shape, at, len, data) };
            debug_assert!(gathered.is_ok());
        }
    }
}

/// Bytes of the counts of a unit, in its result's stream.
pub(super) fn lead(vector: bool, most: usize, segments: usize) -> usize {
    if vector { width(most) * segments } else { 0 }
}
